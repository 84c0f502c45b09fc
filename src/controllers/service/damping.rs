//! Pure: rate limit for the changes of one Node that reach the load balancers.
//!
//! A kubelet can change labels and addresses of its Node at any rate, and a guest can change its addresses. Each change
//! lists and writes the pools of all Services. The first five changes within a minute apply immediately. Later changes
//! apply after a pause.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::base::backoff::{Backoff, Failures};

/// Maximum number of changes of one Node within [`WINDOW`] that apply immediately.
const CHANGES: usize = 5;

const WINDOW: Duration = Duration::from_secs(60);

/// Length of a pause. The length doubles with each pause, until the Node has had no changes for [`CALM`].
const PAUSE: Backoff = Backoff::doubling(Duration::from_secs(30), Duration::from_secs(300));

const CALM: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
pub(super) struct Damping(BTreeMap<String, RecentChanges>);

#[derive(Debug, Default)]
struct RecentChanges {
    /// Times of the changes that applied immediately, at most [`CHANGES`].
    changes: VecDeque<Instant>,
    /// Time of the last change, even if the change was not applied.
    last: Option<Instant>,
    /// The end of the current pause, if any.
    until: Option<Instant>,
    pauses: Failures,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DampingVerdict {
    /// The change applies immediately.
    Follow {
        /// Whether the next change may begin a pause, during which load balancers use the state after this change.
        is_last: bool,
    },
    /// The change waits for the end of the pause.
    Wait {
        until: Instant,
        /// Whether the pause begins with this change.
        is_first: bool,
    },
}

impl Damping {
    /// Records a change of the Node, and decides when the change applies.
    pub(super) fn change(&mut self, name: &str, at: Instant) -> DampingVerdict {
        let recent = self.0.entry(name.to_owned()).or_default();
        recent.last = Some(at);
        if let Some(until) = recent.until {
            return DampingVerdict::Wait { until, is_first: false };
        }
        while recent.changes.front().is_some_and(|first| at.saturating_duration_since(*first) >= WINDOW) {
            recent.changes.pop_front();
        }
        if recent.changes.len() >= CHANGES {
            let until = at + recent.pauses.next_pause(&PAUSE, 0.0);
            recent.until = Some(until);
            return DampingVerdict::Wait { until, is_first: true };
        }
        recent.changes.push_back(at);
        DampingVerdict::Follow { is_last: recent.changes.len() == CHANGES }
    }

    /// Ends the expired pauses and returns their Nodes. The next change of one of these Nodes begins another pause, if
    /// the change comes within a minute.
    pub(super) fn end_pauses(&mut self, at: Instant) -> Vec<String> {
        let mut ended = Vec::new();
        self.0.retain(|name, recent| {
            if recent.until.is_some_and(|until| until <= at) {
                recent.until = None;
                recent.changes = std::iter::repeat_n(at, CHANGES).collect();
                ended.push(name.clone());
            }
            recent.until.is_some() || recent.last.is_some_and(|last| at.saturating_duration_since(last) < CALM)
        });
        ended
    }

    pub(super) fn next_end(&self) -> Option<Instant> {
        self.0.values().filter_map(|recent| recent.until).min()
    }

    /// Returns the Nodes in a pause, with the ends of the pauses.
    pub(super) fn pauses(&self) -> Vec<(String, Instant)> {
        self.0.iter().filter_map(|(name, recent)| Some((name.clone(), recent.until?))).collect()
    }

    pub(super) fn is_pausing(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|recent| recent.until.is_some())
    }

    /// Whether the Node has recent changes.
    pub(super) fn is_known(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLLOWED: DampingVerdict = DampingVerdict::Follow { is_last: false };

    #[test]
    fn after_five_changes_in_a_minute_a_node_waits_twice_as_long_each_time() {
        let (mut damping, start) = (Damping::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        for second in 0..4 {
            assert_eq!(damping.change("n", at(second)), FOLLOWED);
        }
        assert_eq!(damping.change("n", at(4)), DampingVerdict::Follow { is_last: true });
        assert_eq!(damping.change("other", at(4)), FOLLOWED);
        assert!(!damping.is_pausing("n") && damping.next_end().is_none());
        let mut now = 5;
        for pause in [30, 60, 120, 240, 300, 300] {
            assert_eq!(damping.change("n", at(now)), DampingVerdict::Wait { until: at(now + pause), is_first: true });
            assert_eq!(
                damping.change("n", at(now + 1)),
                DampingVerdict::Wait { until: at(now + pause), is_first: false }
            );
            assert!(damping.is_pausing("n"));
            assert_eq!(damping.pauses(), [("n".to_owned(), at(now + pause))]);
            assert_eq!(damping.next_end(), Some(at(now + pause)));
            assert_eq!(damping.end_pauses(at(now + pause - 1)), [""; 0]);
            assert_eq!(damping.end_pauses(at(now + pause)), ["n"]);
            now += pause + 1;
        }
    }

    #[test]
    fn a_node_that_is_calm_is_followed_again_at_once() {
        let (mut damping, start) = (Damping::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let exhaust = |damping: &mut Damping, from: u64| {
            for _ in 0..5 {
                assert!(matches!(damping.change("n", at(from)), DampingVerdict::Follow { .. }));
            }
            damping.change("n", at(from))
        };
        assert_eq!(exhaust(&mut damping, 0), DampingVerdict::Wait { until: at(30), is_first: true });
        assert_eq!(damping.end_pauses(at(30)), ["n"]);
        // A minute later changes are followed again, but the next pause is longer.
        assert_eq!(exhaust(&mut damping, 90), DampingVerdict::Wait { until: at(150), is_first: true });
        assert_eq!(damping.end_pauses(at(150)), ["n"]);
        damping.end_pauses(at(90 + 300));
        assert_eq!(exhaust(&mut damping, 400), DampingVerdict::Wait { until: at(430), is_first: true }, "it was calm");
        // Slow changes cause no pause.
        let mut damping = Damping::default();
        for number in 0..100 {
            assert!(matches!(damping.change("n", at(number * 12)), DampingVerdict::Follow { .. }), "{number}");
        }
        damping.forget("n");
        assert_eq!(damping.change("n", at(1200)), FOLLOWED);
    }
}
