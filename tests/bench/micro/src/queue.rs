//! The work queue: 1,000 keys arrive, each twice as with events, and are processed in sequence. Also keys that fail and
//! wait for their backoff.

use std::time::Duration;

use ccm::base::backoff::Backoff;
use ccm::runtime::queue::{Priority, Queue, QueueMetrics};
use criterion::{Criterion, Throughput};
use tokio::time::timeout;

const KEYS: usize = 1_000;
const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(60), Duration::from_secs(600));

/// Measures the work queue.
pub fn measure(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let keys: Vec<String> = (0..KEYS).map(|number| format!("cluster-a-md-0-{number:05}-x7k2p")).collect();
    let metrics = QueueMetrics::new("bench");
    let mut group = criterion.benchmark_group("queue");
    group.throughput(Throughput::Elements(KEYS as u64));
    group.bench_function("work", |bencher| {
        bencher.iter(|| {
            let queue = Queue::new(BACKOFF, &metrics);
            for key in keys.iter().chain(&keys) {
                queue.add_with_priority(key.clone(), Priority::Normal);
            }
            runtime.block_on(async {
                for _ in 0..KEYS {
                    queue.forget(&queue.next().await.expect("it is open"));
                }
                assert!(timeout(Duration::ZERO, queue.next()).await.is_err(), "each key is handed out once");
            });
            queue
        });
    });
    group.bench_function("retry", |bencher| {
        bencher.iter(|| {
            let queue = Queue::new(BACKOFF, &metrics);
            for key in &keys {
                queue.retry(key.clone());
            }
            let next = runtime.block_on(async { timeout(Duration::ZERO, queue.next()).await });
            assert!(next.is_err(), "all of them wait");
            queue
        });
    });
    group.finish();
}
