//! Settings of a candidate: its Lease, and the durations.

use std::time::Duration;

/// Maximum random extension of the pause between attempts to acquire, in retry periods, as client-go's `JitterFactor`.
pub(super) const ACQUIRE_JITTER: f64 = 1.2;

/// Settings of a candidate.
#[derive(Debug, Clone)]
pub struct LeaseConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Identity of this candidate; see [`identity`].
    pub identity: String,
    /// Time without a renewal after which other candidates may acquire the Lease. Written in whole seconds.
    pub lease_duration: Duration,
    /// Time without a renewal after which the holder stops leading.
    pub renew_deadline: Duration,
    /// Pause between two attempts.
    pub retry_period: Duration,
}

/// The error for invalid durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidLease(&'static str);

/// Returns `<hostname>_<uuid>`, with a new UUID at each start, as in the Go program.
pub fn identity(hostname: &str) -> String {
    format!("{hostname}_{}", uuid::Uuid::new_v4())
}

impl LeaseConfig {
    /// Checks the durations by the conditions of client-go.
    pub fn validate(&self) -> Result<(), InvalidLease> {
        let complaint = if self.retry_period.is_zero() {
            // Retries without a pause would flood the API server.
            "the retry period must be longer than zero"
        } else if self.renew_deadline <= self.retry_period.mul_f64(ACQUIRE_JITTER) {
            // There would be no time for a second attempt.
            "the renew deadline must be longer than 1.2 times the retry period"
        } else if self.lease_duration <= self.renew_deadline {
            // Other candidates would acquire the Lease while the holder still leads.
            "the lease duration must be longer than the renew deadline"
        } else if self.lease_duration < Duration::from_secs(1) {
            // A Lease stores whole seconds.
            "the lease duration must be at least one second"
        } else {
            return Ok(());
        };
        Err(InvalidLease(complaint))
    }
}
