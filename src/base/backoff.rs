//! Pure: computes the delay before the retry of a failed call.

use std::time::Duration;

/// A retry policy. The pause grows with each consecutive failure. Jitter spreads calls that failed at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    growth: f64,
    /// Largest jitter, as a fraction of the pause. A negative value shortens the pause.
    jitter: f64,
}

impl Backoff {
    /// Returns a policy without jitter. Each further failure doubles the pause, from `first` up to `longest`.
    pub const fn doubling(first: Duration, longest: Duration) -> Self {
        Self { first, longest, growth: 2.0, jitter: 0.0 }
    }

    /// Returns this policy with this growth factor, which must be at least 1.
    pub const fn growing_by(self, growth: f64) -> Self {
        Self { growth, ..self }
    }

    /// Returns this policy with jitter that shortens each pause by up to the fraction `part`.
    pub const fn shortened_by(self, part: f64) -> Self {
        Self { jitter: -part, ..self }
    }

    /// Returns this policy with jitter that lengthens each pause, even the longest pause, by up to the fraction `part`.
    pub const fn lengthened_by(self, part: f64) -> Self {
        Self { jitter: part, ..self }
    }

    /// Returns the pause after `failures` (1 or more) consecutive failures. `random` (0.0 to 1.0) scales the jitter.
    pub fn pause(&self, failures: u32, random: f64) -> Duration {
        let factor = self.growth.powi(i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX));
        let full = Duration::try_from_secs_f64(self.first.as_secs_f64() * factor).unwrap_or(self.longest);
        self.jittered(full.min(self.longest), random)
    }

    /// Applies this policy's jitter to a pause from another source.
    pub fn jittered(&self, pause: Duration, random: f64) -> Duration {
        pause.mul_f64(1.0 + self.jitter * random.clamp(0.0, 1.0))
    }
}

/// Counter of the consecutive failures of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures(u32);

impl Failures {
    /// Counts a failure and returns the pause before the next attempt. See [`Backoff::pause`].
    pub fn next_pause(&mut self, backoff: &Backoff, random: f64) -> Duration {
        self.0 = self.0.saturating_add(1);
        backoff.pause(self.0, random)
    }

    /// Resets the counter after a success.
    pub fn reset(&mut self) {
        self.0 = 0;
    }

    /// Whether no failure has occurred since the last success.
    pub fn is_none(&self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_grow_up_to_the_longest_and_do_not_overflow() {
        let minute = Backoff::doubling(SECOND, SECOND * 60);
        let long = Backoff::doubling(Duration::from_millis(70), SECOND * u32::MAX).growing_by(1.5);
        for (backoff, failures, milliseconds) in [
            (minute, 0, 1_000),
            (minute, 1, 1_000),
            (minute, 2, 2_000),
            (minute, 6, 32_000),
            (minute, 7, 60_000),
            (minute, 1_025, 60_000),
            (minute, u32::MAX, 60_000),
            (long, 2, 105),
            (Backoff::doubling(Duration::from_millis(800), SECOND * 30), 6, 25_600),
            (Backoff::doubling(SECOND * 70, SECOND * 1_800), 5, 1_120_000),
        ] {
            assert_eq!(backoff.pause(failures, 0.0), Duration::from_millis(milliseconds), "{backoff:?}, {failures}");
        }
        assert_eq!(long.pause(u32::MAX, 0.0), SECOND * u32::MAX);
    }

    #[test]
    fn jitter_shortens_or_lengthens_by_its_part() {
        let plain = Backoff::doubling(SECOND, SECOND * 60);
        let (shorter, longer) = (plain.shortened_by(0.5), plain.lengthened_by(0.25));
        for (backoff, random, milliseconds) in [
            (plain, 1.0, 4_000),
            (shorter, 0.0, 4_000),
            (shorter, 0.5, 3_000),
            (shorter, 1.0, 2_000),
            (shorter, 7.0, 2_000),
            (longer, 0.0, 4_000),
            (longer, 1.0, 5_000),
        ] {
            assert_eq!(backoff.pause(3, random), Duration::from_millis(milliseconds), "{backoff:?}, {random}");
        }
        assert_eq!(longer.pause(100, 1.0), SECOND * 75, "also the longest");
        assert_eq!(shorter.jittered(SECOND * 8, 1.0), SECOND * 4);
    }

    #[test]
    fn failures_in_a_row_are_counted_until_a_success() {
        let backoff = Backoff::doubling(SECOND, SECOND * 60);
        let mut failures = Failures::default();
        assert!(failures.is_none());
        let pauses: Vec<u64> = (0..8).map(|_| failures.next_pause(&backoff, 0.0).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(!failures.is_none());
        failures.reset();
        assert_eq!(failures.next_pause(&backoff, 0.0), SECOND);
    }
}
