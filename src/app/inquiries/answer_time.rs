//! The moment of an answer, which relates monotonic times of this process to the wall clock.

use crate::app::inquiries::whole;
use jiff::Timestamp;
use std::time::Instant;

/// The same moment by both clocks.
pub(super) struct AnswerTime {
    instant: Instant,
    time: Timestamp,
}

impl AnswerTime {
    /// Reads both clocks.
    pub(super) fn now() -> Self {
        Self { instant: tokio::time::Instant::now().into_std(), time: Timestamp::now() }
    }

    /// Returns a moment for tests.
    #[cfg(test)]
    pub(super) fn of(instant: Instant, time: &str) -> Self {
        Self { instant, time: time.parse().unwrap_or_default() }
    }

    /// Returns the wall clock time of `at`, in whole seconds.
    pub(super) fn wall_clock(&self, at: Instant) -> Timestamp {
        let time = match at.checked_duration_since(self.instant) {
            Some(ahead) => self.time.checked_add(ahead),
            None => self.time.checked_sub(self.instant.saturating_duration_since(at)),
        };
        whole(time.unwrap_or(self.time))
    }

    /// Returns the seconds since `at`; zero for a later time.
    pub(super) fn seconds_since(&self, at: Instant) -> u64 {
        self.instant.saturating_duration_since(at).as_secs()
    }

    /// Whether `at` is after the moment of the answer.
    pub(super) fn is_ahead(&self, at: Instant) -> bool {
        at > self.instant
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_before_and_after_the_answer_are_wall_clock_times_in_whole_seconds() {
        let instant = Instant::now() + Duration::from_secs(3600);
        let moment = AnswerTime::of(instant, "2026-11-24T03:12:40Z");
        let seconds = Duration::from_secs;
        assert_eq!(moment.wall_clock(instant + seconds(90)).to_string(), "2026-11-24T03:14:10Z");
        assert_eq!(moment.wall_clock(instant - seconds(41)).to_string(), "2026-11-24T03:11:59Z");
        assert_eq!(moment.wall_clock(instant + Duration::from_millis(100)).to_string(), "2026-11-24T03:12:40Z");
        assert_eq!([moment.seconds_since(instant - seconds(41)), moment.seconds_since(instant + seconds(1))], [41, 0]);
        assert!(moment.is_ahead(instant + seconds(1)) && !moment.is_ahead(instant));
    }
}
