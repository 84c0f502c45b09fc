//! Rate limit of deferrable Node writes: missing labels, and VM records of VMs that moved.
//!
//! The recorded location is part of the proof that a VM is deleted, so it should be current when the VM's host
//! disappears. But a rolling upgrade of hosts moves each VM several times within an hour. So the first move of a VM is
//! written without a pause, and the next move only after a pause. Waiting Nodes are written one at a time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Shortest interval between two deferrable writes to one Node.
const MIN_REWRITE_INTERVAL: Duration = Duration::from_secs(600);
/// Pause of a Node after a failed write.
const REFUSED_INTERVAL: Duration = Duration::from_secs(60);
/// Interval between two writes of VM records of moved VMs, over all Nodes.
pub(super) const MOVES_PACE: Duration = Duration::from_secs(1);
/// Interval between two label writes, over all Nodes. 10,000 Nodes take about 17 minutes.
pub(super) const LABELS_PACE: Duration = Duration::from_millis(100);

/// The Nodes that wait for a deferrable write, in one leadership term. A turn is the permission for one such write.
pub(super) struct DeferredWrites {
    state: Mutex<DeferredWriteState>,
    changed: Notify,
}

#[derive(Default)]
struct DeferredWriteState {
    /// Interval between two turns.
    pace: Duration,
    /// Waiting Nodes, and the start of their wait.
    waiting: BTreeMap<String, Instant>,
    /// Waiting Nodes that have a turn at their next sync.
    granted: HashSet<String>,
    /// Earliest time of the next turn, by Node.
    resting: HashMap<String, Instant>,
    last: Option<Instant>,
}

/// The result of a sync for the deferrable write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncResult {
    /// No write is needed now.
    Settled,
    /// A write is needed, but the Node had no turn.
    Waits,
    /// The write succeeded in the Node's turn.
    Written,
    /// A write failed in the Node's turn.
    Refused,
}

impl SyncResult {
    pub(super) fn new(is_to_be_written: bool, is_turn: bool, is_refused: bool) -> Self {
        match (is_to_be_written, is_turn, is_refused) {
            (false, _, _) => Self::Settled,
            (true, false, _) => Self::Waits,
            (true, true, false) => Self::Written,
            (true, true, true) => Self::Refused,
        }
    }
}

impl DeferredWrites {
    /// Creates the turns for one kind of write, with this interval between two writes.
    pub(super) fn new(pace: Duration) -> Self {
        let state = DeferredWriteState { pace, ..DeferredWriteState::default() };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    /// Returns whether the Node has a turn, and ends this turn.
    pub(super) fn take_turn(&self, node: &str) -> bool {
        self.state.lock().granted.remove(node)
    }

    /// Returns whether the Node has a turn, without ending this turn.
    pub(super) fn has_turn(&self, node: &str) -> bool {
        self.state.lock().granted.contains(node)
    }

    pub(super) fn synced(&self, node: &str, result: SyncResult) {
        let now = Instant::now();
        let mut state = self.state.lock();
        match result {
            SyncResult::Settled => state.forget(node),
            SyncResult::Waits => {
                if state.waiting.contains_key(node) {
                    return;
                }
                state.waiting.insert(node.to_owned(), now);
                self.changed.notify_one();
            }
            SyncResult::Written => {
                state.forget(node);
                state.resting.retain(|_, until| *until > now);
                state.resting.insert(node.to_owned(), now + MIN_REWRITE_INTERVAL);
            }
            // The Node gets another turn, after the Nodes that already wait.
            SyncResult::Refused => {
                state.waiting.insert(node.to_owned(), now);
                state.resting.insert(node.to_owned(), now + REFUSED_INTERVAL);
                self.changed.notify_one();
            }
        }
    }

    /// Waits until a Node may be written, gives this Node a turn, and returns its name.
    pub(super) async fn next(&self) -> String {
        loop {
            let due = match self.state.lock().next(Instant::now()) {
                Ok(node) => return node,
                Err(due) => due,
            };
            let changed = self.changed.notified();
            match due {
                Some(at) => drop(timeout_at(at, changed).await),
                None => changed.await,
            }
        }
    }
}

impl DeferredWriteState {
    /// Gives a turn to the longest waiting Node whose pause has ended. Otherwise, returns the time of the next possible
    /// turn, or `None` if no Node waits without a turn.
    fn next(&mut self, now: Instant) -> Result<String, Option<Instant>> {
        // Avoids an iteration over all Nodes before a turn is possible.
        if let Some(paced) = self.last.map(|last| last + self.pace).filter(|at| *at > now && !self.waiting.is_empty()) {
            return Err(Some(paced));
        }
        let mut first: Option<(Instant, &String)> = None;
        let mut rested: Option<Instant> = None;
        for (node, since) in self.waiting.iter().filter(|(node, _)| !self.granted.contains(*node)) {
            match self.resting.get(node).filter(|until| **until > now) {
                Some(until) => rested = Some(rested.map_or(*until, |other| other.min(*until))),
                None => first = Some(first.map_or((*since, node), |other| other.min((*since, node)))),
            }
        }
        let Some((_, node)) = first else { return Err(rested) };
        let node = node.clone();
        self.last = Some(now);
        self.granted.insert(node.clone());
        Ok(node)
    }

    fn forget(&mut self, node: &str) {
        self.waiting.remove(node);
        self.granted.remove(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    /// Returns the Node whose turn it is now. Does not wait.
    async fn now(moves: &DeferredWrites) -> Option<String> {
        tokio::select! {
            biased;
            node = moves.next() => Some(node),
            () = std::future::ready(()) => None,
        }
    }

    async fn write_next(moves: &DeferredWrites) -> (String, u64) {
        let began = Instant::now();
        let node = moves.next().await;
        assert!(moves.has_turn(&node) && moves.take_turn(&node), "a turn is given");
        assert!(!moves.has_turn(&node) && !moves.take_turn(&node), "a turn is given once");
        moves.synced(&node, SyncResult::Written);
        (node, began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_written_at_once_and_then_rests_for_ten_minutes() {
        let moves = DeferredWrites::new(MOVES_PACE);
        assert_eq!(now(&moves).await, None);
        moves.synced("a", SyncResult::Waits);
        assert_eq!(write_next(&moves).await, ("a".into(), 0));
        advance(Duration::from_secs(60)).await;
        moves.synced("a", SyncResult::Waits);
        assert_eq!(now(&moves).await, None);
        assert_eq!(write_next(&moves).await, ("a".into(), 540));
        // `Settled` means that the VM moved back, or that the Node was written for another reason.
        moves.synced("a", SyncResult::Waits);
        moves.synced("a", SyncResult::Settled);
        advance(MIN_REWRITE_INTERVAL * 2).await;
        assert_eq!(now(&moves).await, None);
        assert!(!moves.take_turn("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_waiting_comes_first_one_a_second_and_none_is_dropped() {
        let moves = DeferredWrites::new(MOVES_PACE);
        moves.synced("rests", SyncResult::Waits);
        assert_eq!(write_next(&moves).await.0, "rests");
        moves.synced("rests", SyncResult::Waits);
        advance(MIN_REWRITE_INTERVAL - Duration::from_secs(2)).await;
        for node in ["c", "a", "b"] {
            moves.synced(node, SyncResult::Waits);
            // A repeated result changes nothing.
            moves.synced(node, SyncResult::Waits);
            advance(Duration::from_millis(1)).await;
        }
        let mut order = Vec::new();
        for _ in 0..4 {
            order.push(write_next(&moves).await);
        }
        let expected = [("c", 0), ("a", 1), ("rests", 1), ("b", 1)];
        let order: Vec<_> = order.iter().map(|(node, waited)| (node.as_str(), *waited)).collect();
        assert_eq!(order, expected, "whoever waits longest, once it may");
        assert_eq!(now(&moves).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_refused_has_its_turn_again_after_the_others() {
        let moves = DeferredWrites::new(MOVES_PACE);
        moves.synced("a", SyncResult::Waits);
        let node = moves.next().await;
        assert!(moves.take_turn(&node));
        moves.synced(&node, SyncResult::Refused);
        moves.synced("b", SyncResult::Waits);
        assert_eq!(write_next(&moves).await.0, "b");
        let (node, waited) = write_next(&moves).await;
        assert_eq!((node.as_str(), waited), ("a", 59));
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_moves_take_a_thousand_seconds() {
        let moves = DeferredWrites::new(MOVES_PACE);
        let began = Instant::now();
        for number in 0..1_000 {
            moves.synced(&format!("n{number:03}"), SyncResult::Waits);
        }
        for number in 0..1_000 {
            assert_eq!(write_next(&moves).await.0, format!("n{number:03}"));
        }
        assert!(began.elapsed() >= MOVES_PACE * 999);
    }

    #[tokio::test(start_paused = true)]
    async fn ten_thousand_nodes_without_a_label_are_written_ten_a_second() {
        let labelling = DeferredWrites::new(LABELS_PACE);
        let began = Instant::now();
        for number in 0..10_000 {
            labelling.synced(&format!("n{number:04}"), SyncResult::Waits);
        }
        for _ in 0..10_000 {
            write_next(&labelling).await;
        }
        assert!(began.elapsed() >= LABELS_PACE * 9_999 && began.elapsed() < Duration::from_secs(1_100));
        // Another controller removes the label again and again.
        labelling.synced("n0000", SyncResult::Waits);
        labelling.synced("n9999", SyncResult::Waits);
        assert_eq!(write_next(&labelling).await.0, "n0000");
        assert!(write_next(&labelling).await.1 > 500);
    }
}
