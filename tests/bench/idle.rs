//! The memory of a daemon that leads, serves, and has no work.

use std::time::{Duration, Instant};

use support::fake_nsx::Model;
use support::process::Usage;
use support::report::{Limit, Measure, OURS};
use support::{ApiServer, FakeNsx, eventually};

use crate::Bench;
use crate::cluster::{Cluster, LIMIT};
use crate::subject::{Running, Subject};

/// Limit in MiB.
const MEMORY: f64 = 16.0;
/// Limit in MiB with routes on NSX.
const MEMORY_WITH_NSX: f64 = 16.0;
const NODES: usize = 100;
/// Duration of the measurement. It includes several renewals of the Lease and requests to vCenter.
const WHILE: Duration = Duration::from_secs(20);

/// Measures with one vCenter: without nodes, after the join of some nodes, and after a restart with these nodes. The
/// allocator keeps the memory of the join, so that measurement has no limit. The result is the maximum resident memory
/// during the measurement.
pub async fn measure(bench: &mut Bench) {
    for subject in bench.subjects() {
        bench.attempt("idle", &subject, async |bench| measure_one(bench, &subject).await).await;
    }
}

async fn measure_one(bench: &mut Bench, subject: &Subject) {
    let cluster = Cluster::new(ApiServer::start().await, bench.vcenter(), NODES).await;
    let running = start(subject, &cluster).await;
    report(bench, subject, "no nodes", Some(MEMORY), &running).await;
    cluster.register(NODES).await;
    cluster.until_initialized(NODES).await;
    report(bench, subject, "100 nodes have joined at once", None, &running).await;
    drop(running);
    let running = start(subject, &cluster).await;
    report(bench, subject, "started with 100 nodes", Some(MEMORY), &running).await;
    drop(running);
    if subject.name == OURS {
        with_nsx(bench, subject, &cluster).await;
    }
}

/// Measures again with routes on NSX. The nodes have no pod networks.
async fn with_nsx(bench: &mut Bench, subject: &Subject, cluster: &Cluster) {
    let nsx = FakeNsx::start(Model::small()).await;
    let (before, section) =
        (std::fs::read_to_string(&cluster.config).unwrap(), nsx.ini_section(cluster.server.folder()));
    let config = format!("{before}\n{section}\n[Route]\nrouter-path = /infra/tier-1s/t1\n");
    std::fs::write(&cluster.config, config).unwrap();
    let kubeconfig = cluster.server.kubeconfig();
    let mut running = subject.start_with(&cluster.config, &kubeconfig, &["--cluster-cidr=10.244.0.0/16"]);
    running.until_leading(&cluster.client).await;
    eventually("the routes are listed", LIMIT, async || match nsx.counts().of("LIST static-routes") {
        0 => Err("not yet"),
        _ => Ok(()),
    })
    .await;
    report(bench, subject, "started with 100 nodes and NSX", Some(MEMORY_WITH_NSX), &running).await;
}

/// Starts a subject, and waits until it leads.
async fn start(subject: &Subject, cluster: &Cluster) -> Running {
    let mut running = cluster.start(subject, &cluster.server.kubeconfig()).await;
    running.until_leading(&cluster.client).await;
    running
}

async fn report(bench: &mut Bench, subject: &Subject, when: &str, limit: Option<f64>, running: &Running) {
    let most = most(running).await;
    let limit = limit.map(Limit::Below);
    for (name, kilobytes, limit) in
        [("resident", most.resident, limit), ("of it heap and stacks", most.anonymous, None)]
    {
        let (name, samples) = (format!("{when}: {name}"), vec![kilobytes as f64 / 1024.0]);
        bench.report(Measure { chapter: "idle", subject: subject.name, name, unit: "MiB", samples, limit });
    }
}

/// Returns the maximum use, while the daemon is probed as by a kubelet, but more often.
async fn most(running: &Running) -> Usage {
    let probe = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).no_proxy().build().unwrap();
    let (began, mut most) = (Instant::now(), Usage::default());
    eventually("it was looked at", WHILE + LIMIT, async || {
        let answer = probe
            .get(format!("https://127.0.0.1:{}/healthz", running.port))
            .send()
            .await
            .map_err(|error| error.to_string())?;
        assert!(answer.status().is_success(), "{answer:?}");
        let usage = running.usage();
        if usage.resident > most.resident {
            most = usage;
        }
        if began.elapsed() > WHILE { Ok(most) } else { Err(format!("{:?}", began.elapsed())) }
    })
    .await
}
