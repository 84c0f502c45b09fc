//! Reads the state of the election.

use super::{Inquiries, whole};
use crate::app::reports::status::ElectionStatus;
use tokio::time::Instant;

/// Returns the state of the election; `None` without an election.
pub(super) fn status(process: &Inquiries) -> Option<ElectionStatus> {
    let lease = process.lease.as_ref()?;
    let status = lease.status();
    let age = |time: Option<Instant>| time.map(|time| time.elapsed().as_secs());
    Some(ElectionStatus {
        namespace: lease.namespace.clone(),
        name: lease.name.clone(),
        holder: status.holder,
        since: status.acquired.map(whole),
        read_age_seconds: age(status.read),
        renewal_age_seconds: age(status.renewed),
        lease_duration_seconds: status.duration.map(|duration| duration.as_secs()),
    })
}
