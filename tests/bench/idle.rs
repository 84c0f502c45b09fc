//! How much memory a daemon takes that leads, serves, and has nothing to do.

use std::time::{Duration, Instant};

use support::process::Usage;
use support::report::Measure;
use support::{ApiServer, Daemon, eventually};

use crate::Bench;
use crate::cluster::{Cluster, LIMIT};

/// In MiB.
const MEMORY: f64 = 15.0;
const NODES: usize = 100;
/// How long it is looked at: several renewals of the Lease and looks at vCenter fall into it.
const WHILE: Duration = Duration::from_secs(20);

/// With one vCenter: without nodes, after some have joined at once, and started again where they are. What joining took
/// is kept for the next time, so that it has no limit. The most memory that was resident while it was looked at.
pub async fn measure(bench: &mut Bench) {
    let cluster = Cluster::start(ApiServer::start().await, NODES).await;
    let daemon = start(bench, &cluster).await;
    cluster.until_initialised(0).await;
    report(bench, "no nodes", Some(MEMORY), &daemon).await;
    cluster.register(NODES).await;
    cluster.until_initialised(NODES).await;
    report(bench, "100 nodes have joined at once", None, &daemon).await;
    drop(daemon);
    let daemon = start(bench, &cluster).await;
    report(bench, "started with 100 nodes", Some(MEMORY), &daemon).await;
}

/// A daemon that leads, and its port.
async fn start(bench: &Bench, cluster: &Cluster) -> (Daemon, u16) {
    let (mut daemon, port) = cluster.start_daemon(&bench.daemon, &cluster.server.kubeconfig()).await;
    daemon.wait_for_line("became leader", LIMIT).await;
    (daemon, port)
}

async fn report(bench: &mut Bench, when: &str, limit: Option<f64>, (daemon, port): &(Daemon, u16)) {
    let most = most(daemon, *port).await;
    for (name, kilobytes, limit) in
        [("resident", most.resident, limit), ("of it heap and stacks", most.anonymous, None)]
    {
        let (name, samples) = (format!("{when}: {name}"), vec![kilobytes as f64 / 1024.0]);
        bench.report(Measure { chapter: "idle", name, unit: "MiB", samples, limit });
    }
}

/// Probes it as a kubelet does, only more often.
async fn most(daemon: &Daemon, port: u16) -> Usage {
    let probe = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy().build().unwrap();
    let (began, mut most) = (Instant::now(), Usage::default());
    eventually("it was looked at", WHILE + LIMIT, async || {
        let answer =
            probe.get(format!("https://127.0.0.1:{port}/healthz")).send().await.map_err(|error| error.to_string())?;
        assert!(answer.status().is_success(), "{answer:?}");
        let usage = Usage::of(daemon.pid().unwrap()).unwrap();
        if usage.resident > most.resident {
            most = usage;
        }
        if began.elapsed() > WHILE { Ok(most) } else { Err(format!("{:?}", began.elapsed())) }
    })
    .await
}
