//! Pure: which changes of a Node reach the load balancers at once.
//!
//! A kubelet can change labels and addresses of its Node at any rate, and a guest its addresses. Each change lists and
//! writes the pools of all Services. The first five of a minute are followed at once, later ones after a pause.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::base::backoff::{Backoff, Failures};

/// Changes of one Node within [`WINDOW`] that are followed at once.
const CHANGES: usize = 5;

const WINDOW: Duration = Duration::from_secs(60);

/// How long the next change waits. Twice as long each time, until the Node has been calm for [`CALM`].
const PAUSE: Backoff = Backoff::doubling(Duration::from_secs(30), Duration::from_secs(300));

const CALM: Duration = Duration::from_secs(300);

/// The Nodes that changed lately.
#[derive(Debug, Default)]
pub(super) struct Damping(BTreeMap<String, Recent>);

#[derive(Debug, Default)]
struct Recent {
    /// Those that were followed, at most [`CHANGES`].
    changes: VecDeque<Instant>,
    /// When the last change came, followed or not.
    last: Option<Instant>,
    /// The end of the pause, while there is one.
    until: Option<Instant>,
    pauses: Failures,
}

/// What is to become of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DampingVerdict {
    /// It is followed. If it is the last one before a pause, this is how the Node is seen during the pause.
    Follow {
        /// Whether it is.
        is_last: bool,
    },
    /// It waits.
    Wait {
        /// Until then.
        until: Instant,
        /// Whether the pause begins with it.
        is_first: bool,
    },
}

impl Damping {
    /// The Node of this name has changed at `at`.
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

    /// Ends the pauses that are over at `at`, and gives the names of their Nodes. The next change of such a Node, if it comes within
    /// a minute, waits again.
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

    /// The end of the first pause.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.0.values().filter_map(|recent| recent.until).min()
    }

    /// Whether changes of the Node wait.
    pub(super) fn is_pausing(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|recent| recent.until.is_some())
    }

    /// Whether the Node changed lately.
    pub(super) fn is_known(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The Node is gone.
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
        // A minute later there is room again, and the pause is still the longer one.
        assert_eq!(exhaust(&mut damping, 90), DampingVerdict::Wait { until: at(150), is_first: true });
        assert_eq!(damping.end_pauses(at(150)), ["n"]);
        damping.end_pauses(at(90 + 300));
        assert_eq!(exhaust(&mut damping, 400), DampingVerdict::Wait { until: at(430), is_first: true }, "it was calm");
        // Slow changes never wait.
        let mut damping = Damping::default();
        for number in 0..100 {
            assert!(matches!(damping.change("n", at(number * 12)), DampingVerdict::Follow { .. }), "{number}");
        }
        damping.forget("n");
        assert_eq!(damping.change("n", at(1200)), FOLLOWED);
    }
}
