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

/// With one vCenter, without nodes and with some. The most memory that was resident while it was looked at.
pub async fn measure(bench: &mut Bench) {
    let cluster = Cluster::start(ApiServer::start().await, NODES).await;
    let (mut daemon, port) = cluster.start_daemon(&bench.daemon, &cluster.server.kubeconfig()).await;
    daemon.wait_for_line("became leader", LIMIT).await;
    for nodes in [0, NODES] {
        if nodes > 0 {
            cluster.register(nodes).await;
        }
        cluster.until_initialised(nodes).await;
        let most = most(&daemon, port).await;
        let memory = |kilobytes: u64| vec![kilobytes as f64 / 1024.0];
        let measure = |name: &str, samples, limit| Measure {
            chapter: "idle",
            name: format!("{name}, {nodes} nodes"),
            unit: "MiB",
            samples,
            limit,
        };
        bench.report(measure("resident memory (VmRSS)", memory(most.resident), Some(MEMORY)));
        bench.report(measure("of it heap and stacks (RssAnon)", memory(most.anonymous), None));
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
