//! Pure: the schedule of the passes over all routes.

use std::time::{Duration, Instant};

use crate::controllers::driver::SHORTEST_PERIOD;

/// Changes within this time after the first change share a pass.
const GATHERING: Duration = Duration::from_secs(1);

/// Minimum interval between two listings triggered by changes, because clouds limit the rate of listings.
const LISTING_PAUSE: Duration = Duration::from_secs(10);

/// The trigger of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A change of a Node, or the end of the period that began with the last pass.
    Watch {
        /// `--route-reconciliation-period`; 5 minutes by default.
        period: Duration,
    },
    /// The period only: the loop of the Go program with `CloudControllerManagerWatchBasedRoutesReconciliation=false`.
    Loop {
        /// `--route-reconciliation-period`, between the beginnings of two passes.
        period: Duration,
    },
}

#[derive(Debug)]
pub(super) struct Schedule {
    trigger: Trigger,
    /// Time when the cache of Nodes was first filled. No pass begins earlier.
    started: Option<Instant>,
    /// Time when the last listing began.
    began: Option<Instant>,
    /// Time of the first change that no listing has covered.
    changed: Option<Instant>,
    /// Earliest time of the next listing after a failed listing.
    not_before: Option<Instant>,
    /// Whether a pass is queued whose listing has not begun.
    is_queued: bool,
}

impl Schedule {
    pub(super) fn new(trigger: Trigger) -> Self {
        Self { trigger, started: None, began: None, changed: None, not_before: None, is_queued: false }
    }

    /// Records that the cache has all Nodes at `at`, and that each Node may have changed.
    pub(super) fn all_known(&mut self, at: Instant) {
        self.started.get_or_insert(at);
        self.change(at);
    }

    /// Records a change that routes depend on.
    pub(super) fn change(&mut self, at: Instant) {
        self.changed.get_or_insert(at);
    }

    /// Records a failed listing. The next listing begins after `pause` at the earliest.
    pub(super) fn fail(&mut self, at: Instant, pause: Duration) {
        self.change(at);
        self.not_before = Some(at + pause);
    }

    /// Returns the time of the next pass; `None` while a pass is queued, or before the cache of Nodes is filled.
    pub(super) fn due(&self) -> Option<Instant> {
        let started = self.started.filter(|_| !self.is_queued)?;
        let after_listing = |pause| self.began.map(|began| began + pause);
        let due = match self.trigger {
            Trigger::Watch { period } => {
                let gathered = self.changed.map(|changed| changed + GATHERING);
                let after_change = gathered.map(|due| Some(due).max(after_listing(LISTING_PAUSE)));
                [after_change.flatten(), after_listing(period.max(SHORTEST_PERIOD))].into_iter().flatten().min()?
            }
            Trigger::Loop { period } => after_listing(period.max(SHORTEST_PERIOD)).unwrap_or(started),
        };
        Some(due.max(self.not_before.unwrap_or(due)))
    }

    pub(super) fn queue(&mut self) {
        self.is_queued = true;
    }

    /// Begins a listing, which covers all changes so far.
    pub(super) fn begin(&mut self, at: Instant) {
        *self = Self { began: Some(at), changed: None, not_before: None, is_queued: false, ..*self };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const WATCH: Trigger = Trigger::Watch { period: Duration::from_secs(300) };
    const LOOP: Trigger = Trigger::Loop { period: Duration::from_secs(10) };

    /// Returns the start times of the passes in seconds. Each pass starts as soon as it is due. Changes are in
    /// milliseconds.
    fn passes(trigger: Trigger, changes: &[u64], until: u64) -> Vec<u64> {
        let start = Instant::now();
        let mut schedule = Schedule::new(trigger);
        assert_eq!(schedule.due(), None, "no pass before the Nodes are known");
        schedule.all_known(start);
        let (mut passes, mut changes) = (Vec::new(), changes.iter().map(|change| Duration::from_millis(*change)));
        let mut change = changes.next();
        loop {
            let due = schedule.due().expect("a period").duration_since(start);
            if let Some(earlier) = change.filter(|change| *change <= due) {
                schedule.change(start + earlier);
                change = changes.next();
                continue;
            }
            if due.as_secs() >= until {
                return passes;
            }
            passes.push(due.as_secs());
            schedule.queue();
            assert_eq!(schedule.due(), None, "it is queued");
            schedule.begin(start + due);
        }
    }

    #[test]
    fn passes_follow_changes_with_pauses_or_the_period() {
        for (case, trigger, changes, until, expected) in [
            ("the period", WATCH, vec![], 700, vec![1, 301, 601]),
            ("one change", WATCH, vec![100_000], 350, vec![1, 101]),
            ("soon after a listing", WATCH, vec![2_000], 100, vec![1, 11]),
            ("several at once", WATCH, vec![100_000, 100_400, 100_900, 101_500], 250, vec![1, 101, 111]),
            ("the loop", LOOP, vec![100, 12_000], 35, vec![0, 10, 20, 30]),
        ] {
            assert_eq!(passes(trigger, &changes, until), expected, "{case}");
        }
        let joining: Vec<u64> = (0..500).map(|number| 20_000 + number * 120).collect();
        let listings = passes(WATCH, &joining, 300);
        assert_eq!(listings, [1, 21, 31, 41, 51, 61, 71, 81], "the first one is of the start");
    }

    #[test]
    fn a_failed_listing_is_repeated_and_changes_do_not_hurry_it() {
        for (trigger, expected) in [(WATCH, 42), (LOOP, 42)] {
            let start = Instant::now();
            let mut schedule = Schedule::new(trigger);
            schedule.all_known(start);
            schedule.queue();
            schedule.begin(start);
            schedule.fail(start + 2 * SECOND, 40 * SECOND);
            schedule.change(start + 3 * SECOND);
            assert_eq!(schedule.due(), Some(start + expected * SECOND), "{trigger:?}");
            schedule.begin(start + expected * SECOND);
            assert!(schedule.due() > Some(start + expected * SECOND), "{trigger:?}");
        }
        let start = Instant::now();
        let mut schedule = Schedule::new(WATCH);
        schedule.all_known(start);
        schedule.begin(start);
        schedule.fail(start, SECOND);
        assert_eq!(schedule.due(), Some(start + LISTING_PAUSE), "a short backoff keeps the pause between listings");
    }

    #[test]
    fn a_pass_that_takes_longer_than_the_period_is_followed_at_once() {
        let start = Instant::now();
        let mut schedule = Schedule::new(LOOP);
        schedule.all_known(start);
        schedule.begin(start);
        assert!(
            schedule.due().is_some_and(|due| due < start + 25 * SECOND),
            "at the end of the pass it is due already"
        );
    }
}
