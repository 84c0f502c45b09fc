//! When Nodes are written that can wait, such as those that lack labels and those whose record follows the machine to another
//! place.
//!
//! The place is part of the proof that a machine is gone, so that it should not be an old one when its host goes away. But
//! a rolling upgrade of hosts moves each machine several times in an hour, and all of them in a day. So a Node is written
//! at once, but not again soon, and the Nodes that wait are written one after the other.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How long a Node whose record was rewritten waits until it is rewritten again.
const MIN_REWRITE_INTERVAL: Duration = Duration::from_secs(600);
/// How long a Node waits of which the API server refused the write.
const REFUSED_INTERVAL: Duration = Duration::from_secs(60);
/// Between two turns for records, whosever they are.
const PACE: Duration = Duration::from_secs(1);
/// Between two turns for labels: 10,000 Nodes take a quarter of an hour.
const LABELS_PACE: Duration = Duration::from_millis(100);

/// The Nodes that wait to be written, for one term.
pub(super) struct Turns {
    state: Mutex<TurnState>,
    changed: Notify,
}

struct TurnState {
    /// Between two turns.
    pace: Duration,
    /// Since when each waits.
    waiting: BTreeMap<String, Instant>,
    /// Nodes that wait, and may be written at their next look.
    granted: HashSet<String>,
    /// Before when a Node gets no turn.
    resting: HashMap<String, Instant>,
    /// When the last turn was given.
    last: Option<Instant>,
}

/// What came of a look at a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncResult {
    /// There is nothing to write, or not now.
    Settled,
    /// There is, and it was not this Node's turn.
    Waits,
    /// It was written in this Node's turn.
    Written,
    /// In this Node's turn the API server did not take it.
    Refused,
}

impl SyncResult {
    /// What came of a look at a Node that is or is not to be written, in its turn or not, and of the write.
    pub(super) fn new(is_to_be_written: bool, is_turn: bool, is_refused: bool) -> Self {
        match (is_to_be_written, is_turn, is_refused) {
            (false, _, _) => Self::Settled,
            (true, false, _) => Self::Waits,
            (true, true, false) => Self::Written,
            (true, true, true) => Self::Refused,
        }
    }
}

impl Turns {
    /// For the records of machines that moved.
    pub(super) fn of_moves() -> Self {
        Self::new(PACE)
    }

    /// For the labels of Nodes that are initialised.
    pub(super) fn of_labels() -> Self {
        Self::new(LABELS_PACE)
    }

    fn new(pace: Duration) -> Self {
        let state =
            TurnState { pace, waiting: BTreeMap::new(), granted: HashSet::new(), resting: HashMap::new(), last: None };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    /// Whether it is this Node's turn. A turn is given once.
    pub(super) fn take_turn(&self, node: &str) -> bool {
        self.state.lock().granted.remove(node)
    }

    /// Takes down what came of a look.
    pub(super) fn looked(&self, node: &str, looked: SyncResult) {
        let now = Instant::now();
        let mut state = self.state.lock();
        match looked {
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
            // Its turn comes again, after those of the others that wait by now.
            SyncResult::Refused => {
                state.waiting.insert(node.to_owned(), now);
                state.resting.insert(node.to_owned(), now + REFUSED_INTERVAL);
                self.changed.notify_one();
            }
        }
    }

    /// The next Node that may be written, once it may be.
    pub(super) async fn next(&self) -> String {
        loop {
            let due = match self.state.lock().next(Instant::now()) {
                Ok(node) => return node,
                Err(due) => due,
            };
            let is_due = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = is_due => {}
                () = self.changed.notified() => {}
            }
        }
    }
}

impl TurnState {
    /// Gives a turn to the Node that has waited longest of those that do not rest. Otherwise returns when the next
    /// turn is due; `None` if only an event can give one.
    fn next(&mut self, now: Instant) -> Result<String, Option<Instant>> {
        // Before that nothing can come of a look at all of them.
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

    /// The Node whose turn it is now, without waiting.
    async fn now(moves: &Turns) -> Option<String> {
        tokio::select! {
            biased;
            node = moves.next() => Some(node),
            () = std::future::ready(()) => None,
        }
    }

    async fn write_next(moves: &Turns) -> (String, u64) {
        let began = Instant::now();
        let node = moves.next().await;
        assert!(moves.take_turn(&node) && !moves.take_turn(&node), "a turn is given once");
        moves.looked(&node, SyncResult::Written);
        (node, began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_written_at_once_and_then_rests_for_ten_minutes() {
        let moves = Turns::of_moves();
        assert_eq!(now(&moves).await, None);
        moves.looked("a", SyncResult::Waits);
        assert_eq!(write_next(&moves).await, ("a".into(), 0));
        advance(Duration::from_secs(60)).await;
        moves.looked("a", SyncResult::Waits);
        assert_eq!(now(&moves).await, None);
        assert_eq!(write_next(&moves).await, ("a".into(), 540));
        // It came back to where it was, or is written for another reason.
        moves.looked("a", SyncResult::Waits);
        moves.looked("a", SyncResult::Settled);
        advance(MIN_REWRITE_INTERVAL * 2).await;
        assert_eq!(now(&moves).await, None);
        assert!(!moves.take_turn("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_waiting_comes_first_one_a_second_and_none_is_dropped() {
        let moves = Turns::of_moves();
        moves.looked("rests", SyncResult::Waits);
        assert_eq!(write_next(&moves).await.0, "rests");
        moves.looked("rests", SyncResult::Waits);
        advance(MIN_REWRITE_INTERVAL - Duration::from_secs(2)).await;
        for node in ["c", "a", "b"] {
            moves.looked(node, SyncResult::Waits);
            // That it is seen again changes nothing.
            moves.looked(node, SyncResult::Waits);
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
        let moves = Turns::of_moves();
        moves.looked("a", SyncResult::Waits);
        let node = moves.next().await;
        assert!(moves.take_turn(&node));
        moves.looked(&node, SyncResult::Refused);
        moves.looked("b", SyncResult::Waits);
        assert_eq!(write_next(&moves).await.0, "b");
        let (node, waited) = write_next(&moves).await;
        assert_eq!((node.as_str(), waited), ("a", 59));
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_moves_take_a_thousand_seconds() {
        let moves = Turns::of_moves();
        let began = Instant::now();
        for number in 0..1_000 {
            moves.looked(&format!("n{number:03}"), SyncResult::Waits);
        }
        for number in 0..1_000 {
            assert_eq!(write_next(&moves).await.0, format!("n{number:03}"));
        }
        assert!(began.elapsed() >= PACE * 999);
    }

    #[tokio::test(start_paused = true)]
    async fn ten_thousand_nodes_without_a_label_are_written_ten_a_second() {
        let labelling = Turns::of_labels();
        let began = Instant::now();
        for number in 0..10_000 {
            labelling.looked(&format!("n{number:04}"), SyncResult::Waits);
        }
        for _ in 0..10_000 {
            write_next(&labelling).await;
        }
        assert!(began.elapsed() >= LABELS_PACE * 9_999 && began.elapsed() < Duration::from_secs(1_100));
        // Another controller takes the label away again and again.
        labelling.looked("n0000", SyncResult::Waits);
        labelling.looked("n9999", SyncResult::Waits);
        assert_eq!(write_next(&labelling).await.0, "n0000");
        assert!(write_next(&labelling).await.1 > 500);
    }
}
