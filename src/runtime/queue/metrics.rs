//! The series of a work queue, under client-go's names. Values that depend on the time are computed at each scrape.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, Histogram, HistogramOpts, IntCounter, IntGauge, Opts};
use tokio::time::Instant;

use crate::runtime::metrics::valid;

/// Bucket bounds in seconds, from 10 ns to 10 s, with client-go's rounding errors so that the labels are equal.
const BUCKETS: [f64; 10] =
    [1e-8, 1e-7, 1e-6, 9.999_999_999_999_999e-6, 9.999_999_999_999_999e-5, 1e-3, 1e-2, 1e-1, 1.0, 10.0];

/// The series of all queues of one name. The series outlive a queue, because each term of leadership creates a new
/// queue. Clones share the series.
#[derive(Clone)]
pub struct QueueMetrics {
    depth: IntGauge,
    pub(super) adds: IntCounter,
    /// Number of retries, after failures and after delays that a worker chose.
    pub(super) retries: IntCounter,
    /// Time in seconds that keys waited until they were handed out.
    pub(super) queue_duration: Histogram,
    /// Time in seconds that keys were processed.
    pub(super) worked: Histogram,
    unfinished: Gauge,
    longest: Gauge,
    /// Function that reads the content of the current queue. Returns `None` after the queue is dropped.
    content: Arc<Mutex<ReadContent>>,
}

type ReadContent = Box<dyn Fn(Instant) -> Option<Content> + Send>;

/// The content of a queue.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// Number of waiting keys, including keys that were added again while they are processed.
    pub(super) waiting: usize,
    /// Sum of the times for which the keys in progress have been processed.
    pub(super) unfinished: Duration,
    /// Longest time for which a key in progress has been processed.
    pub(super) longest: Duration,
}

impl QueueMetrics {
    /// Creates the series at zero, without registering them. `name` is the value of a label, unique in the process.
    pub fn new(name: &'static str) -> Self {
        let options =
            |series: &str, help: &str| Opts::new(series, help).subsystem("workqueue").const_label("name", name);
        let counter = |series, help| valid(IntCounter::with_opts(options(series, help)));
        let gauge = |series, help| valid(Gauge::with_opts(options(series, help)));
        let histogram = |series, help| {
            let options = HistogramOpts::from(options(series, help)).buckets(BUCKETS.to_vec());
            valid(Histogram::with_opts(options))
        };
        Self {
            depth: valid(IntGauge::with_opts(options("depth", "Keys that wait in the work queue."))),
            adds: counter(
                "adds_total",
                "Keys that were added to the work queue; one that waits already is not counted.",
            ),
            retries: counter("retries_total", "Keys that were added again because working on them failed."),
            queue_duration: histogram(
                "queue_duration_seconds",
                "How long a key waited in the work queue until it was handed out.",
            ),
            worked: histogram("work_duration_seconds", "How long a key of the work queue was worked on."),
            unfinished: gauge(
                "unfinished_work_seconds",
                "For how long the keys that are worked on now have been, together; what grows without end is stuck.",
            ),
            longest: gauge(
                "longest_running_processor_seconds",
                "For how long the key has been worked on that has been for the longest time.",
            ),
            content: Arc::new(Mutex::new(Box::new(|_| None))),
        }
    }

    /// Shows the content that `look` returns, instead of the content of an earlier queue.
    pub(super) fn set_content(&self, look: impl Fn(Instant) -> Option<Content> + Send + 'static) {
        *self.content.lock() = Box::new(look);
    }

    fn collectors(&self) -> [&dyn Collector; 7] {
        let Self { depth, adds, retries, queue_duration: waited, worked, unfinished, longest, content: _ } = self;
        [depth, adds, retries, waited, worked, unfinished, longest]
    }
}

impl Collector for QueueMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.collectors().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let content = (self.content.lock())(Instant::now()).unwrap_or_default();
        self.depth.set(i64::try_from(content.waiting).unwrap_or(i64::MAX));
        self.unfinished.set(content.unfinished.as_secs_f64());
        self.longest.set(content.longest.as_secs_f64());
        self.collectors().into_iter().flat_map(Collector::collect).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Queue, WorkItem};
    use super::*;
    use crate::base::backoff::Backoff;
    use crate::runtime::metrics::Metrics;
    use futures::FutureExt as _;

    const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60));

    fn next(queue: &Queue<&'static str>) -> WorkItem<&'static str> {
        queue.next().now_or_never().flatten().expect("a key waits")
    }

    /// The lines of a registry with one queue, `Nodes`.
    struct MetricLines(Metrics);

    impl MetricLines {
        fn of(queue: &QueueMetrics) -> Self {
            let metrics = Metrics::new().unwrap();
            metrics.registry().register(Box::new(queue.clone())).unwrap();
            Self(metrics)
        }

        #[track_caller]
        fn says(&self, expected: &[(&str, &str)]) {
            let text = self.0.encode().unwrap();
            for (series, value) in expected {
                let line = format!("workqueue_{series}{{name=\"Nodes\"}} {value}");
                assert!(text.lines().any(|have| have == line), "{line} in {text}");
            }
        }
    }

    #[test]
    fn the_buckets_are_those_of_the_go_program() {
        let mut bound = 10e-9;
        for bucket in BUCKETS {
            assert_eq!(bucket.to_bits(), f64::to_bits(bound));
            bound *= 10.0;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_counted_while_they_wait_are_worked_on_and_fail() {
        let metrics = QueueMetrics::new("Nodes");
        let shown = MetricLines::of(&metrics);
        shown.says(&[("depth", "0"), ("adds_total", "0"), ("unfinished_work_seconds", "0")]);
        let queue = Queue::new(BACKOFF, &metrics);
        for key in ["a", "b", "a", "c"] {
            queue.add(key);
        }
        queue.add_after("d", Duration::from_secs(100));
        shown.says(&[("depth", "3"), ("adds_total", "3"), ("retries_total", "0")]);
        tokio::time::advance(Duration::from_secs(2)).await;
        let first = next(&queue);
        tokio::time::advance(Duration::from_secs(3)).await;
        let second = next(&queue);
        tokio::time::advance(Duration::from_secs(4)).await;
        queue.add("a");
        shown.says(&[
            ("depth", "2"),
            ("adds_total", "4"),
            ("queue_duration_seconds_count", "2"),
            ("queue_duration_seconds_sum", "7"),
            ("work_duration_seconds_count", "0"),
            ("unfinished_work_seconds", "11"),
            ("longest_running_processor_seconds", "7"),
        ]);
        queue.retry(*second);
        drop(first);
        drop(second);
        shown.says(&[
            ("depth", "2"),
            ("retries_total", "1"),
            ("work_duration_seconds_count", "2"),
            ("work_duration_seconds_sum", "11"),
            ("unfinished_work_seconds", "0"),
            ("longest_running_processor_seconds", "0"),
        ]);
        // The metrics count keys that became due, although no worker has taken them.
        tokio::time::advance(Duration::from_secs(100)).await;
        shown.says(&[("depth", "4"), ("adds_total", "6")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_due_waits_from_then_on() {
        let metrics = QueueMetrics::new("Nodes");
        let shown = MetricLines::of(&metrics);
        let queue = Queue::new(BACKOFF, &metrics);
        queue.add_after("a", Duration::from_secs(10));
        tokio::time::advance(Duration::from_secs(15)).await;
        drop(next(&queue));
        shown.says(&[("queue_duration_seconds_sum", "5")]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_series_go_on_with_the_next_queue_and_a_queue_that_is_gone_holds_nothing() {
        let metrics = QueueMetrics::new("Nodes");
        let shown = MetricLines::of(&metrics);
        let queue = Queue::new(BACKOFF, &metrics);
        queue.add("a");
        drop(queue);
        shown.says(&[("depth", "0"), ("adds_total", "1")]);
        let queue = Queue::new(BACKOFF, &metrics);
        queue.add("b");
        queue.add("c");
        shown.says(&[("depth", "2"), ("adds_total", "3")]);
        queue.close();
        shown.says(&[("depth", "0")]);
    }
}
