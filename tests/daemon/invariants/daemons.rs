//! The daemons whose Nodes are checked.

use std::time::Duration;

use support::{Daemon, eventually};

use crate::admin::Admin;
use crate::cluster::Cluster;

/// Limit for a process to end after SIGTERM.
const STOP: Duration = Duration::from_secs(30);
/// Log text of a replica that observes that it has lost the Lease.
const STANDS_BY: &str = "this process is now a standby";

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

/// Whether the daemon has led as this holder of the Lease.
pub fn has_led_as(daemon: &Daemon, holder: &str) -> bool {
    let leads = |line: &String| line.contains("became leader") && line.contains(holder);
    !holder.is_empty() && daemon.output().lines().iter().any(leads)
}

/// Waits until another replica than `before` holds the Lease of the cluster, and returns its number.
pub async fn leader_but(cluster: &Cluster, replicas: &[&Daemon], before: Option<usize>, limit: Duration) -> usize {
    eventually("one of the replicas holds the Lease", limit, async || {
        let holder = cluster.holder(cluster.pool()).await;
        match replicas.iter().position(|daemon| has_led_as(daemon, &holder)) {
            Some(replica) if before != Some(replica) => Ok(replica),
            _ => Err(format!("{holder:?}, before {before:?}")),
        }
    })
    .await
}

/// Continues a frozen leader, and waits until it observes that it has lost the Lease.
pub async fn thaw(daemon: &Daemon, limit: Duration) {
    let before = daemon.output().count(STANDS_BY);
    daemon.signal("CONT").await;
    eventually("who was frozen finds that it leads no more", limit, async || match daemon.output().count(STANDS_BY) {
        now if now > before => Ok(()),
        _ => Err(daemon.output().tail(20)),
    })
    .await;
}

/// Daemons that got SIGTERM. Each must end without an error.
#[derive(Default)]
pub struct Ending(Vec<Daemon>);

impl Ending {
    /// Sends SIGTERM to a daemon, which may be frozen.
    pub async fn add(&mut self, mut daemon: Daemon) {
        assert!(daemon.ended().is_none(), "a replica ended by itself:\n{}", daemon.output().tail(40));
        daemon.signal("CONT").await;
        daemon.signal("TERM").await;
        self.0.push(daemon);
        self.0.retain_mut(|daemon| daemon.ended().is_none_or(|status| status.code() != Some(0)));
    }

    /// Waits until all daemons have ended.
    pub async fn finish(&mut self) {
        for mut daemon in self.0.drain(..) {
            let status = daemon.wait(STOP).await;
            assert_eq!(status.code(), Some(0), "{}", daemon.output().tail(40));
        }
    }
}
