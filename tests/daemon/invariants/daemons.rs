//! The daemons whose Nodes are checked.

use std::time::Duration;

use support::{Daemon, eventually};

use crate::admin::Admin;

/// Short periods, so that many events happen in a minute.
const SHORT: [&str; 4] = [
    "--leader-elect-retry-period=500ms",
    "--tag-poll-interval=1s",
    "--node-monitor-period=1s",
    "--node-deletion-mass-hold=1s",
];

/// Returns the flags of every daemon of a world. `own` are the flags of this world, `period` is the longest pause
/// between two reconciliations of a node, `grace` is the grace period for the deletion of a node that is not ready, and
/// `follows` makes labels follow their machines.
pub fn flags(own: &[&str], period: Duration, grace: Duration, follows: bool) -> Vec<String> {
    let mut flags: Vec<String> = SHORT.iter().chain(own).map(|&flag| flag.to_owned()).collect();
    flags.push(format!("--node-status-update-frequency={}s", period.as_secs()));
    flags.push(format!("--node-deletion-grace={}s", grace.as_secs()));
    if follows {
        flags.extend(["--zone-labels=follow".to_owned(), "--instance-type=follow".to_owned()]);
    }
    flags
}

/// Waits until a daemon has reconciled this many nodes twice, with their machines found.
pub async fn until_looked(daemon: &mut Daemon, nodes: usize, (admin, token): (&Admin, &str), limit: Duration) {
    let wanted = 2.0 * nodes as f64;
    eventually("every node was looked at with its machine known", limit, async || {
        match admin.sum("vsphere_ccm_node_syncs_total{result=\"Settled\"}", token, daemon).await {
            settled if settled >= wanted => Ok(()),
            settled => Err(format!("{settled} of {wanted}\n{}", daemon.output().tail(20))),
        }
    })
    .await;
}
