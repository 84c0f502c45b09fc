//! Tests of the work queue with a paused clock.

use super::*;
use futures::FutureExt as _;
use proptest::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering};

fn queue() -> Queue<&'static str> {
    Queue::new(Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60)), &QueueMetrics::new("test"))
}

fn now<K: Clone + Eq + Hash>(queue: &Queue<K>) -> Option<WorkItem<K>> {
    queue.next().now_or_never().flatten()
}

#[tokio::test(start_paused = true)]
async fn a_key_added_twice_is_handed_out_once() {
    let queue = queue();
    queue.add("a");
    queue.add("a");
    assert_eq!(now(&queue).as_deref(), Some(&"a"));
    assert!(now(&queue).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_key_added_while_it_is_worked_on_comes_again_only_afterwards() {
    let queue = queue();
    queue.add("a");
    let work = now(&queue).unwrap();
    queue.add("a");
    assert!(now(&queue).is_none());
    drop(work);
    assert_eq!(now(&queue).as_deref(), Some(&"a"));
    assert!(now(&queue).is_none());
}

#[tokio::test(start_paused = true)]
async fn the_first_class_overtakes_and_promotes() {
    let queue = queue();
    queue.add("a");
    queue.add("b");
    queue.add_with_priority("c", Priority::First);
    queue.add_with_priority("b", Priority::First);
    let order: Vec<_> = std::iter::from_fn(|| now(&queue).map(|work| *work)).collect();
    assert_eq!(order, ["c", "b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn the_state_of_a_key_shows_when_a_worker_takes_it() {
    let queue = queue();
    assert_eq!(queue.key_state(&"a"), KeyState::Idle);
    queue.add("a");
    assert_eq!(queue.key_state(&"a"), KeyState::Ready);
    let work = now(&queue).unwrap();
    assert_eq!(queue.key_state(&"a"), KeyState::Running);
    let until = Instant::now() + queue.retry("a");
    drop(work);
    assert_eq!(queue.key_state(&"a"), KeyState::Delayed { until, failures: 1 });
    queue.close();
    assert_eq!(queue.key_state(&"a"), KeyState::Idle);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_comes_when_it_is_due_and_the_earliest_delay_counts() {
    let queue = queue();
    let start = Instant::now();
    queue.add_after("a", Duration::from_secs(30));
    queue.add_after("a", Duration::from_secs(10));
    queue.add_after("a", Duration::from_secs(20));
    let work = queue.next().await.unwrap();
    assert_eq!((*work, start.elapsed().as_secs()), ("a", 10));
    drop(work);
    tokio::time::advance(Duration::from_secs(100)).await;
    assert!(now(&queue).is_none());
}

#[tokio::test(start_paused = true)]
async fn an_addition_fulfils_the_delayed_one() {
    let queue = queue();
    queue.add_after("a", Duration::from_secs(30));
    queue.add("a");
    drop(now(&queue).unwrap());
    tokio::time::advance(Duration::from_secs(100)).await;
    assert!(now(&queue).is_none());
}

#[tokio::test(start_paused = true)]
async fn an_earlier_delay_wakes_a_worker_that_already_waits_for_a_later_one() {
    let queue = queue();
    let start = Instant::now();
    queue.add_after("late", Duration::from_secs(60));
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.next().await.map(|work| *work) }
    });
    tokio::task::yield_now().await;
    queue.add_after("early", Duration::from_secs(5));
    assert_eq!(waiting.await.unwrap(), Some("early"));
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_up_to_the_maximum_and_are_forgotten() {
    let queue = queue();
    for _ in 0..20 {
        queue.retry("a");
    }
    assert!(queue.retry("a") <= Duration::from_secs(60));
    assert!(queue.retry("a") >= Duration::from_secs(30));
    queue.forget(&"a");
    assert!(queue.retry("a") <= Duration::from_secs(1));
    assert!(queue.is_backing_off(&"a"));
    queue.forget(&"a");
    assert!(!queue.is_backing_off(&"a"), "it waits, but not for its backoff");
}

/// There is no new event for the key, so it waits for its backoff.
#[tokio::test(start_paused = true)]
async fn a_failure_ends_the_delays_that_were_asked_for_before_it() {
    for (case, delay, runs) in [("it passes while the key runs", 1, 2), ("it passes afterwards", 2, 1)] {
        let queue =
            Queue::new(Backoff::doubling(Duration::from_secs(10), Duration::from_secs(60)), &QueueMetrics::new("test"));
        queue.add("a");
        let work = now(&queue).unwrap();
        queue.add_after("a", Duration::from_secs(delay));
        tokio::time::advance(Duration::from_secs(runs)).await;
        assert!(now(&queue).is_none(), "{case}: it runs");
        let failed = Instant::now();
        assert_eq!(queue.retry("a"), Duration::from_secs(10), "{case}");
        drop(work);
        drop(queue.next().await.unwrap());
        assert_eq!(failed.elapsed(), Duration::from_secs(10), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_addition_or_a_delay_while_a_key_runs_counts_unless_the_delay_is_followed_by_a_failure() {
    let queue = queue();
    queue.add("a");
    let work = now(&queue).unwrap();
    queue.add_after("a", Duration::from_secs(1));
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(now(&queue).is_none(), "it runs");
    drop(work);
    let work = now(&queue).expect("the delay is over");
    queue.add("a");
    queue.retry("a");
    drop(work);
    let work = now(&queue).expect("something new is known");
    assert!(!queue.is_backing_off(&"a"), "it runs");
    drop(work);
    queue.add_after("a", Duration::from_secs(1));
    assert!(!queue.is_backing_off(&"a"), "it failed once, and does not wait for that");
}

/// The expected delays are those of client-go's exponential limiter and its maximum, without jitter. This queue has no
/// token bucket over all keys.
// vectors: E-20–E-22
#[tokio::test(start_paused = true)]
async fn vectors_of_the_rate_limiters() {
    let milliseconds = Duration::from_millis;
    let backoff = Backoff::doubling(milliseconds(1), milliseconds(1000));
    let delays: Vec<_> = (1..=5).map(|failures| backoff.pause(failures, 0.0)).collect();
    assert_eq!(delays, [1, 2, 4, 8, 16].map(milliseconds), "E-20");
    assert_eq!(backoff.pause(100, 0.0), milliseconds(1000), "E-22");

    let queue = Queue::new(Backoff::doubling(milliseconds(16), milliseconds(1000)), &QueueMetrics::new("test"));
    for _ in 0..4 {
        queue.add(0);
        let work = now(&queue).unwrap();
        queue.retry(*work);
    }
    let is_within = |wait: Duration, full: u64| (milliseconds(full / 2)..=milliseconds(full)).contains(&wait);
    assert!(is_within(queue.retry(0), 256), "E-20: the fifth failure");
    assert!(is_within(queue.retry(1), 16), "E-20: counted for each key");
    queue.forget(&0);
    assert!(is_within(queue.retry(0), 16), "E-20: forgotten");
    let longest = (2..1000).map(|key| queue.retry(key)).max().unwrap();
    assert!(longest <= milliseconds(16), "E-21 differs: no bucket holds up keys that fail for the first time");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_gives_its_key_back() {
    let queue = queue();
    queue.add("a");
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move {
            let _work = queue.next().await;
            panic!("on purpose");
        }
    });
    assert!(worker.await.unwrap_err().is_panic());
    queue.add("a");
    assert_eq!(now(&queue).as_deref(), Some(&"a"));
}

#[tokio::test(start_paused = true)]
async fn closing_drops_what_waits_and_what_would_come_again() {
    let queue = queue();
    queue.add("running");
    let work = now(&queue).unwrap();
    queue.add("running");
    queue.add("waiting");
    queue.retry("failed");
    queue.close();
    drop(work);
    tokio::time::advance(Duration::from_secs(120)).await;
    assert!(now(&queue).is_none());
    assert!(queue.shared.state.lock().entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn closing_ends_every_worker() {
    let queue = queue();
    let workers: Vec<_> = (0..5)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.next().await.is_none() })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.close();
    for worker in workers {
        assert!(worker.await.unwrap());
    }
    queue.add("a");
    assert!(queue.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_of_keys_that_are_done() {
    let queue =
        Queue::new(Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60)), &QueueMetrics::new("test"));
    for key in 0..1000 {
        queue.add(key);
        drop(now(&queue));
    }
    assert!(queue.shared.state.lock().entries.is_empty());
}

/// An action of the test.
#[derive(Clone, Debug)]
enum Step {
    Add(usize),
    AddFirst(usize),
    AddAfter(usize, u64),
    Wait(u64),
}

const KEYS: usize = 5;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..KEYS).prop_map(Step::Add),
        (0..KEYS).prop_map(Step::AddFirst),
        (0..KEYS, 0..50u64).prop_map(|(key, delay)| Step::AddAfter(key, delay)),
        (0..30u64).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..60)
}

#[derive(Default)]
struct Key {
    running: AtomicUsize,
    /// Number of additions. Each run stores the number at its start in `seen`.
    added: AtomicUsize,
    seen: AtomicUsize,
}

async fn work(queue: Queue<usize>, keys: Arc<[Key; KEYS]>, pace: u64) {
    let mut runs = 0u64;
    while let Some(work) = queue.next().await {
        let key = &keys[*work];
        assert_eq!(key.running.fetch_add(1, Ordering::SeqCst), 0, "key {} runs twice at once", *work);
        key.seen.store(key.added.load(Ordering::SeqCst), Ordering::SeqCst);
        runs += 1;
        tokio::time::sleep(Duration::from_millis((runs * pace) % 17)).await;
        if runs.is_multiple_of(7) {
            queue.retry(*work);
        } else {
            queue.forget(&work);
        }
        key.running.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn play(steps: Vec<Step>, workers: u64) {
    let queue =
        Queue::new(Backoff::doubling(Duration::from_millis(5), Duration::from_millis(40)), &QueueMetrics::new("test"));
    let keys: Arc<[Key; KEYS]> = Arc::default();
    let tasks: Vec<_> = (0..workers).map(|i| tokio::spawn(work(queue.clone(), keys.clone(), i + 3))).collect();
    for step in steps {
        if let Step::Add(key) | Step::AddFirst(key) | Step::AddAfter(key, _) = step {
            keys[key].added.fetch_add(1, Ordering::SeqCst);
        }
        match step {
            Step::Add(key) => queue.add(key),
            Step::AddFirst(key) => queue.add_with_priority(key, Priority::First),
            Step::AddAfter(key, delay) => queue.add_after(key, Duration::from_millis(delay)),
            Step::Wait(time) => tokio::time::sleep(Duration::from_millis(time)).await,
        }
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(
            key.seen.load(Ordering::SeqCst),
            key.added.load(Ordering::SeqCst),
            "an addition of {number} is lost"
        );
    }
    queue.close();
    for task in tasks {
        task.await.unwrap();
    }
}

proptest! {
    #[test]
    fn no_key_runs_twice_at_once_and_no_addition_is_lost(steps in steps(), workers in 1..5u64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(play(steps, workers));
    }
}
