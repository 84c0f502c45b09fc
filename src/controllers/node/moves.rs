//! When the record of a Ready Node follows its machine to another place.
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
/// Between two turns, whosever they are.
const PACE: Duration = Duration::from_secs(1);

/// The Nodes whose VM moved, queued for a rewrite of the record, for one term.
#[derive(Default)]
pub(super) struct Moves {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
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
pub(super) enum RecordOutcome {
    /// The record is where the machine is, or is not to follow it now.
    Settled,
    /// The machine moved, and it was not this Node's turn.
    Moved,
    /// The record was written in this Node's turn.
    Written,
    /// In this Node's turn the API server did not take it.
    Refused,
}

impl Moves {
    /// Whether it is this Node's turn. A turn is given once.
    pub(super) fn take_turn(&self, node: &str) -> bool {
        self.state.lock().granted.remove(node)
    }

    /// Takes down what came of a look.
    pub(super) fn looked(&self, node: &str, looked: RecordOutcome) {
        let now = Instant::now();
        let mut state = self.state.lock();
        match looked {
            RecordOutcome::Settled => state.forget(node),
            RecordOutcome::Moved => {
                if state.waiting.contains_key(node) {
                    return;
                }
                state.waiting.insert(node.to_owned(), now);
                self.changed.notify_one();
            }
            RecordOutcome::Written => {
                state.forget(node);
                state.resting.retain(|_, until| *until > now);
                state.resting.insert(node.to_owned(), now + MIN_REWRITE_INTERVAL);
            }
            // Its turn comes again, after those of the others that wait by now.
            RecordOutcome::Refused => {
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

impl State {
    /// Gives a turn to the Node that has waited longest of those that do not rest. Otherwise returns when the next
    /// turn is due; `None` if only an event can give one.
    fn next(&mut self, now: Instant) -> Result<String, Option<Instant>> {
        let mut first: Option<(Instant, &String)> = None;
        let mut rested: Option<Instant> = None;
        for (node, since) in self.waiting.iter().filter(|(node, _)| !self.granted.contains(*node)) {
            match self.resting.get(node).filter(|until| **until > now) {
                Some(until) => rested = Some(rested.map_or(*until, |other| other.min(*until))),
                None => first = Some(first.map_or((*since, node), |other| other.min((*since, node)))),
            }
        }
        let paced = self.last.map(|last| last + PACE).filter(|at| *at > now);
        match (first, paced) {
            (Some(_), Some(_)) => Err(paced),
            (Some((_, node)), None) => {
                let node = node.clone();
                self.last = Some(now);
                self.granted.insert(node.clone());
                Ok(node)
            }
            (None, _) => Err(rested),
        }
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
    async fn now(moves: &Moves) -> Option<String> {
        tokio::select! {
            biased;
            node = moves.next() => Some(node),
            () = std::future::ready(()) => None,
        }
    }

    async fn write_next(moves: &Moves) -> (String, u64) {
        let began = Instant::now();
        let node = moves.next().await;
        assert!(moves.take_turn(&node) && !moves.take_turn(&node), "a turn is given once");
        moves.looked(&node, RecordOutcome::Written);
        (node, began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_written_at_once_and_then_rests_for_ten_minutes() {
        let moves = Moves::default();
        assert_eq!(now(&moves).await, None);
        moves.looked("a", RecordOutcome::Moved);
        assert_eq!(write_next(&moves).await, ("a".into(), 0));
        advance(Duration::from_secs(60)).await;
        moves.looked("a", RecordOutcome::Moved);
        assert_eq!(now(&moves).await, None);
        assert_eq!(write_next(&moves).await, ("a".into(), 540));
        // It came back to where it was, or is written for another reason.
        moves.looked("a", RecordOutcome::Moved);
        moves.looked("a", RecordOutcome::Settled);
        advance(MIN_REWRITE_INTERVAL * 2).await;
        assert_eq!(now(&moves).await, None);
        assert!(!moves.take_turn("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_waiting_comes_first_one_a_second_and_none_is_dropped() {
        let moves = Moves::default();
        moves.looked("rests", RecordOutcome::Moved);
        assert_eq!(write_next(&moves).await.0, "rests");
        moves.looked("rests", RecordOutcome::Moved);
        advance(MIN_REWRITE_INTERVAL - Duration::from_secs(2)).await;
        for node in ["c", "a", "b"] {
            moves.looked(node, RecordOutcome::Moved);
            // That it is seen again changes nothing.
            moves.looked(node, RecordOutcome::Moved);
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
        let moves = Moves::default();
        moves.looked("a", RecordOutcome::Moved);
        let node = moves.next().await;
        assert!(moves.take_turn(&node));
        moves.looked(&node, RecordOutcome::Refused);
        moves.looked("b", RecordOutcome::Moved);
        assert_eq!(write_next(&moves).await.0, "b");
        let (node, waited) = write_next(&moves).await;
        assert_eq!((node.as_str(), waited), ("a", 59));
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_moves_take_a_thousand_seconds() {
        let moves = Moves::default();
        let began = Instant::now();
        for number in 0..1_000 {
            moves.looked(&format!("n{number:03}"), RecordOutcome::Moved);
        }
        for number in 0..1_000 {
            assert_eq!(write_next(&moves).await.0, format!("n{number:03}"));
        }
        assert!(began.elapsed() >= PACE * 999);
    }
}
