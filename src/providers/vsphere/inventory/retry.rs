//! Pure: how long to wait after a failure before vCenter is tried again.
//!
//! A rejected login is another matter than a lost connection: vCenter's single sign-on locks an account after about
//! five rejections in three minutes, so that no more than three of one pair fit into 200 seconds, and the pauses
//! grow. What all pairs and processes make together is limited by the ledger.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
const FIRST_AFTER_REJECTION: Duration = Duration::from_secs(70);
const LONGEST_AFTER_REJECTION: Duration = Duration::from_secs(30 * 60);

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The connection, the server, or anything that may pass.
    Passing,
    /// The user name or password was rejected.
    Rejected,
}

/// Counts failures in a row.
#[derive(Clone, Debug, Default)]
pub struct Retry {
    failures: u32,
    rejections: u32,
}

impl Retry {
    /// Starts over after a success.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Whether a login was rejected since the start.
    pub fn was_rejected(&self) -> bool {
        self.rejections > 0
    }

    /// How long to wait after one more failure. `random` is in 0..1: passing failures wait between half and all of
    /// the step, rejected logins between all of it and a quarter more.
    pub fn after(&mut self, kind: Kind, random: f64) -> Duration {
        match kind {
            Kind::Passing => {
                let step = doubled(FIRST, self.failures, LONGEST);
                self.failures = self.failures.saturating_add(1);
                step.mul_f64(0.5 + random / 2.0)
            }
            Kind::Rejected => {
                let step = doubled(FIRST_AFTER_REJECTION, self.rejections, LONGEST_AFTER_REJECTION);
                self.rejections = self.rejections.saturating_add(1);
                step.mul_f64(1.0 + random / 4.0)
            }
        }
    }
}

fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    first.checked_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX)).unwrap_or(longest).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passing_failures_double_up_to_a_minute() {
        let mut retry = Retry::default();
        let waits: Vec<u64> = (0..8).map(|_| retry.after(Kind::Passing, 1.0).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        retry.reset();
        assert_eq!(retry.after(Kind::Passing, 0.0), Duration::from_millis(500));
    }

    #[test]
    fn no_more_than_three_rejected_logins_fit_into_200_seconds() {
        let mut retry = Retry::default();
        let mut at = Duration::ZERO;
        let mut attempts = vec![at];
        for _ in 0..10 {
            at += retry.after(Kind::Rejected, 0.0);
            attempts.push(at);
        }
        for (first, start) in attempts.iter().enumerate() {
            let within =
                attempts.iter().skip(first).filter(|attempt| **attempt < *start + Duration::from_secs(200)).count();
            assert!(within <= 3, "{within} attempts within 200 s from {start:?}: {attempts:?}");
        }
    }

    #[test]
    fn many_failures_do_not_overflow() {
        let mut retry = Retry { failures: u32::MAX, rejections: 40 };
        assert_eq!(retry.after(Kind::Passing, 1.0), LONGEST);
        assert_eq!(retry.after(Kind::Rejected, 0.0), LONGEST_AFTER_REJECTION);
    }
}
