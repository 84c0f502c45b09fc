//! The check `leaderElection` of `/healthz`: the leader must have renewed its Lease.
//!
//! A term ends at the renew deadline, and no write passes afterwards. The check fails only if the elector does not
//! record the end of the term, because its task hangs or the process gets no CPU time.

use std::time::Duration;

use super::LeaseConfig;
use crate::kubernetes::leadership::Leadership;

/// Tolerance beyond the lease duration, as in the Go program.
const TOLERANCE: Duration = Duration::from_secs(20);

/// The check of one Lease.
#[derive(Debug, Clone)]
pub struct RenewalCheck {
    lease: String,
    lease_duration: Duration,
    leadership: Leadership,
}

impl RenewalCheck {
    /// Creates the check for the candidate that competes for this Lease.
    pub fn new(config: &LeaseConfig, leadership: Leadership) -> Self {
        Self { lease: config.name.clone(), lease_duration: config.lease_duration, leadership }
    }

    /// Returns the error text if the elector has a term whose last renewal is older than the lease duration plus 20 s.
    /// Mirrors `Check` of client-go's `tools/leaderelection/leaderelection.go`.
    pub fn failure(&self) -> Option<String> {
        let is_overdue = self.leadership.unrenewed_for()? > self.lease_duration + TOLERANCE;
        is_overdue.then(|| format!("failed election to renew leadership on lease {}", self.lease))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::leadership::{Holder, SendTime};

    const HOUR: Duration = Duration::from_secs(3600);

    // vectors: E-10–E-14
    #[tokio::test(start_paused = true)]
    async fn e_10_to_e_14_only_a_believed_leadership_that_was_not_renewed_fails() {
        let lease_duration = Duration::from_secs(15);
        // Name, result of the election, time since the last renewal, and whether the check passes.
        type Case = (&'static str, Option<bool>, Duration, bool);
        let cases: [Case; 7] = [
            ("E-10 no election yet", None, HOUR, true),
            ("E-11 ours, expired an hour ago", Some(true), lease_duration + HOUR, false),
            ("E-12 expired, and another's", Some(false), lease_duration + HOUR, true),
            ("E-13 not expired", Some(true), Duration::from_secs(14), true),
            ("E-14 expired for a second, 20 are forgiven", Some(true), Duration::from_secs(16), true),
            ("the last moment", Some(true), Duration::from_secs(35), true),
            ("a moment later", Some(true), Duration::from_millis(35_001), false),
        ];
        for (case, is_ours, ago, passes) in cases {
            let (mut holder, leadership) = Holder::new();
            if let Some(is_ours) = is_ours {
                holder.begin(SendTime::now(), Duration::from_secs(10));
                if !is_ours {
                    holder.end();
                }
            }
            tokio::time::advance(ago).await;
            let check = RenewalCheck { lease: "foo".to_owned(), lease_duration, leadership };
            let expected = (!passes).then_some("failed election to renew leadership on lease foo");
            assert_eq!(check.failure().as_deref(), expected, "{case}");
        }
    }
}
