//! A work queue of keys with delays, and with backoff for each key. At most one worker at a time processes a key. A key
//! that is added while it waits is not queued twice. A key that is added while it is processed is handed out again
//! afterwards. So the queue never has more entries than there are keys.

mod metrics;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::IntCounter;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::base::backoff::Backoff;
use metrics::Content;
pub use metrics::QueueMetrics;

/// Capacity, in keys, above which an empty queue frees its memory.
const KEPT_CAPACITY: usize = 64;

/// Priority of a waiting key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Before all normal keys, in the order of arrival.
    First,
    /// In the order of arrival.
    #[default]
    Normal,
}

/// The state of a key in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// The key is not queued.
    Idle,
    /// A worker processes the key.
    Running,
    /// The key waits for a worker.
    Ready,
    /// The key becomes ready later.
    Delayed {
        /// Time at which the key becomes ready.
        until: Instant,
        /// Number of consecutive failures of the key.
        failures: u32,
    },
}

/// The work queue. Clones share the content.
pub struct Queue<K> {
    shared: Arc<QueueInner<K>>,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

struct QueueInner<K> {
    backoff: Backoff,
    metrics: QueueMetrics,
    /// Never locked while code of a caller runs.
    state: Mutex<State<K>>,
    changed: Notify,
}

struct State<K> {
    entries: HashMap<K, Entry>,
    ready: BTreeMap<(Priority, u64), K>,
    delayed: BTreeMap<(Instant, u64), K>,
    sequence: u64,
    closed: bool,
    /// Number of keys that became ready.
    adds: IntCounter,
}

#[derive(Default)]
struct Entry {
    priority: Priority,
    ready: Option<(Priority, u64)>,
    due: Option<(Instant, u64)>,
    /// Time at which the key became ready.
    waits_since: Option<Instant>,
    /// Time at which a worker took the key.
    runs_since: Option<Instant>,
    /// Whether the key was added while it was processed. Such a key is handed out again.
    runs_again: bool,
    /// Time at which a delay of the key ended while it was processed. The key is handed out again unless it fails.
    overdue: Option<Instant>,
    /// Whether the key failed and waits for its backoff.
    backs_off: bool,
    failures: u32,
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.ready.is_none() && self.due.is_none() && self.runs_since.is_none() && self.failures == 0
    }
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// Creates an empty queue. From now on, `metrics` shows this queue instead of an earlier queue.
    pub fn new(backoff: Backoff, metrics: &QueueMetrics) -> Self
    where
        K: Send + 'static,
    {
        let state = State {
            entries: HashMap::new(),
            ready: BTreeMap::new(),
            delayed: BTreeMap::new(),
            sequence: 0,
            closed: false,
            adds: metrics.adds.clone(),
        };
        let (metrics, state) = (metrics.clone(), Mutex::new(state));
        let shared = Arc::new(QueueInner { backoff, metrics, state, changed: Notify::new() });
        let shown = Arc::downgrade(&shared);
        shared.metrics.set_content(move |now| Some(shown.upgrade()?.state.lock().content(now)));
        Self { shared }
    }

    #[cfg(test)]
    pub(crate) fn add(&self, key: K) {
        let now = Instant::now();
        self.change(|state| state.make_ready(key, None, now));
    }

    /// Queues `key`. A key that already waits moves forward, but never back.
    pub fn add_with_priority(&self, key: K, priority: Priority) {
        let now = Instant::now();
        self.change(|state| state.make_ready(key, Some(priority), now));
    }

    /// Queues `key` after `delay`. If a key has several delays, the delay that ends first applies. Has no effect on a
    /// key that already waits without a delay, or that was added while it is processed.
    pub fn add_after(&self, key: K, delay: Duration) {
        let due = Instant::now() + delay;
        self.change(|state| state.delay_until(key, due));
    }

    /// Counts a failure of `key`, queues the key after its backoff, and returns the backoff. Replaces earlier delays. A
    /// key that was added while it was processed does not wait for the backoff.
    pub fn retry(&self, key: K) -> Duration {
        let mut delay = Duration::ZERO;
        self.change(|state| {
            let entry = state.entries.entry(key.clone()).or_default();
            entry.failures = entry.failures.saturating_add(1);
            (entry.backs_off, entry.overdue) = (true, None);
            delay = self.shared.backoff.pause(entry.failures, fastrand::f64());
            if let Some(earlier) = entry.due.take() {
                state.delayed.remove(&earlier);
            }
            state.delay_until(key, Instant::now() + delay);
        });
        self.shared.metrics.retries.inc();
        delay
    }

    /// Resets the failures of `key`. A queued key stays queued.
    pub fn forget(&self, key: &K) {
        let mut state = self.shared.state.lock();
        if let Some(entry) = state.entries.get_mut(key) {
            (entry.failures, entry.backs_off) = (0, false);
        }
        state.drop_if_idle(key);
    }

    /// Whether `key` failed and waits for its backoff.
    pub fn is_backing_off(&self, key: &K) -> bool {
        self.shared.state.lock().entries.get(key).is_some_and(|entry| entry.backs_off)
    }

    /// Returns the state of `key`.
    pub fn key_state(&self, key: &K) -> KeyState {
        let state = self.shared.state.lock();
        match state.entries.get(key) {
            Some(Entry { runs_since: Some(_), .. }) => KeyState::Running,
            Some(Entry { ready: Some(_), .. }) => KeyState::Ready,
            Some(Entry { due: Some((until, _)), failures, .. }) => {
                KeyState::Delayed { until: *until, failures: *failures }
            }
            Some(_) | None => KeyState::Idle,
        }
    }

    /// Closes the queue: each current and future [`Queue::next`] returns `None`. Drops waiting keys and all failures.
    pub fn close(&self) {
        let mut state = self.shared.state.lock();
        state.closed = true;
        state.ready.clear();
        state.delayed.clear();
        state.entries.retain(|_, entry| {
            *entry = Entry { runs_since: entry.runs_since, ..Entry::default() };
            entry.runs_since.is_some()
        });
        drop(state);
        self.shared.changed.notify_waiters();
        self.shared.changed.notify_one();
    }

    /// Waits for the next key. Returns `None` once the queue is closed. The key belongs to the caller until the
    /// returned guard is dropped. Cancel-safe.
    pub async fn next(&self) -> Option<WorkItem<K>> {
        loop {
            let changed = self.shared.changed.notified();
            let wake_at = match self.take() {
                TakeResult::Work(work) => return Some(work),
                TakeResult::Closed => return None,
                TakeResult::Nothing { next_due } => next_due,
            };
            match wake_at {
                Some(due) => drop(timeout_at(due, changed).await),
                None => changed.await,
            }
        }
    }

    fn take(&self) -> TakeResult<K> {
        let now = Instant::now();
        let mut state = self.shared.state.lock();
        if state.closed {
            // Wakes the next worker, which must also see that the queue is closed.
            self.shared.changed.notify_one();
            return TakeResult::Closed;
        }
        state.promote_due(now);
        let Some((_, key)) = state.ready.pop_first() else {
            return TakeResult::Nothing { next_due: state.delayed.first_key_value().map(|((due, _), _)| *due) };
        };
        let mut since = None;
        if let Some(entry) = state.entries.get_mut(&key) {
            (entry.ready, entry.backs_off) = (None, false);
            entry.runs_since = Some(now);
            since = entry.waits_since.take();
        }
        if !state.ready.is_empty() || !state.delayed.is_empty() {
            // This worker may be the one that waited for the next due time, so another worker must wait for that time.
            self.shared.changed.notify_one();
        }
        drop(state);
        let work = WorkItem { key, queue: self.clone() };
        if let Some(since) = since {
            self.shared.metrics.queue_duration.observe(now.saturating_duration_since(since).as_secs_f64());
        }
        TakeResult::Work(work)
    }

    fn change(&self, change: impl FnOnce(&mut State<K>)) {
        let mut state = self.shared.state.lock();
        if !state.closed {
            change(&mut state);
            self.shared.changed.notify_one();
        }
    }

    fn done(&self, key: &K) {
        let now = Instant::now();
        let mut state = self.shared.state.lock();
        let began = state.entries.get_mut(key).and_then(|entry| entry.runs_since.take());
        if state.hand_out_again(key) {
            self.shared.changed.notify_one();
        }
        state.drop_if_idle(key);
        drop(state);
        if let Some(began) = began {
            self.shared.metrics.worked.observe(now.saturating_duration_since(began).as_secs_f64());
        }
    }
}

enum TakeResult<K: Clone + Eq + Hash> {
    Work(WorkItem<K>),
    Nothing { next_due: Option<Instant> },
    Closed,
}

impl<K: Clone + Eq + Hash> State<K> {
    fn next_sequence(&mut self) -> u64 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// Queues `key` with `since` as the start of its wait. Removes a delay of the key.
    fn make_ready(&mut self, key: K, priority: Option<Priority>, since: Instant) {
        let sequence = self.next_sequence();
        let entry = self.entries.entry(key.clone()).or_default();
        if let Some(priority) = priority {
            entry.priority = priority;
        }
        if let Some(due) = entry.due.take() {
            self.delayed.remove(&due);
        }
        if entry.waits_since.is_none() {
            entry.waits_since = Some(since);
            self.adds.inc();
        }
        if entry.runs_since.is_some() {
            entry.runs_again = true;
            return;
        }
        if let Some(place) = entry.ready {
            if place.0 <= entry.priority {
                return;
            }
            self.ready.remove(&place);
        }
        let place = (entry.priority, sequence);
        entry.ready = Some(place);
        self.ready.insert(place, key);
    }

    /// Queues `key` after its processing if it was added, or if its delay ended, in the meantime. Returns true in these
    /// two cases.
    fn hand_out_again(&mut self, key: &K) -> bool {
        let Some(entry) = self.entries.get_mut(key) else { return false };
        let overdue = entry.overdue.take();
        let since = if std::mem::take(&mut entry.runs_again) { entry.waits_since } else { overdue };
        let Some(since) = since else { return false };
        self.make_ready(key.clone(), None, since);
        true
    }

    fn delay_until(&mut self, key: K, due: Instant) {
        let sequence = self.next_sequence();
        let entry = self.entries.entry(key.clone()).or_default();
        if entry.ready.is_some() || entry.runs_again || entry.due.is_some_and(|(earlier, _)| earlier <= due) {
            return;
        }
        if let Some(later) = entry.due.replace((due, sequence)) {
            self.delayed.remove(&later);
        }
        self.delayed.insert((due, sequence), key);
    }

    fn content(&mut self, now: Instant) -> Content {
        self.promote_due(now);
        let mut content = Content::default();
        for entry in self.entries.values() {
            content.waiting += usize::from(entry.waits_since.is_some());
            if let Some(began) = entry.runs_since {
                let runs = now.saturating_duration_since(began);
                content.unfinished += runs;
                content.longest = content.longest.max(runs);
            }
        }
        content
    }

    fn promote_due(&mut self, now: Instant) {
        while let Some(first) = self.delayed.first_entry() {
            let due = first.key().0;
            if due > now {
                return;
            }
            let key = first.remove();
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            entry.due = None;
            if entry.runs_since.is_some() {
                entry.overdue = Some(due);
            } else {
                self.make_ready(key, None, due);
            }
        }
    }

    fn drop_if_idle(&mut self, key: &K) {
        if self.entries.get(key).is_some_and(Entry::is_idle) {
            self.entries.remove(key);
            // Frees the memory that a burst of keys needed.
            if self.entries.is_empty() && self.entries.capacity() > KEPT_CAPACITY {
                self.entries.shrink_to(0);
            }
        }
    }
}

/// A key that is being processed. Dropping the item ends the processing, even during a panic.
pub struct WorkItem<K: Clone + Eq + Hash> {
    key: K,
    queue: Queue<K>,
}

impl<K: Clone + Eq + Hash> Deref for WorkItem<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.key
    }
}

impl<K: Clone + Eq + Hash> Drop for WorkItem<K> {
    fn drop(&mut self) {
        self.queue.done(&self.key);
    }
}
