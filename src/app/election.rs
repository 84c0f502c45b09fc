//! This process as a candidate in the leader election.

use super::Error;
use super::settings::Election;
use crate::kubernetes::client;
use crate::kubernetes::leader_election::{LeaderElector, Leadership, LeaseConfig, identity};
use crate::runtime::metrics::Metrics;

/// A candidate that does not compete yet, and the token that will say whether it leads.
pub fn candidate(
    election: &Election,
    config: &kube::Config,
    metrics: &Metrics,
) -> Result<(LeaderElector, Leadership), Error> {
    let lease = LeaseConfig {
        namespace: election.namespace.clone(),
        name: election.name.clone(),
        identity: identity(&hostname()),
        lease_duration: election.lease_duration,
        renew_deadline: election.renew_deadline,
        retry_period: election.retry_period,
    };
    // The candidate writes its Lease before there is a leadership to check.
    let (elector, leadership) = LeaderElector::new(client::unguarded(config)?, lease)?;
    elector.register(metrics.registry())?;
    Ok((elector, leadership))
}

/// The name of this machine, or of the pod.
fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "unknown-host".to_owned() } else { name.to_owned() }
}
