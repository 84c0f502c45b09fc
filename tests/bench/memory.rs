//! The memory of a daemon that starts with many initialized nodes, and the memory for each node.
//!
//! The chapter `storm-5000` measures the memory after a join of many nodes.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Service;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use support::ApiServer;
use support::measure::initialization::Initialized;
use support::measure::steady_state::settled;
use support::process::Usage;
use support::report::{Limit, Measure, OURS};

use crate::Bench;
use crate::cluster::{Cluster, LIMIT};
use crate::machines::Kind;
use crate::subject::Subject;

const NODES: [usize; 2] = [1_000, 5_000];
/// Limits in MiB with the largest number of nodes: resident memory, and its peak.
const RESIDENT: f64 = 70.0;
const PEAK: f64 = 70.0;
/// Limits for the additional memory of Services, in MiB: Services without a load balancer, and Services that need one.
const SERVICES: [(&str, usize, f64); 2] = [("ClusterIP", 5_000, 1.0), ("LoadBalancer", 1_000, 3.0)];
/// Number of starts whose median is used.
const STARTS: usize = 3;
/// Number of Services that are created concurrently.
const CREATED_AT_ONCE: usize = 32;
/// All objects are read when the memory has not changed by a MiB for this time.
const QUIET: Duration = Duration::from_secs(10);

/// Measures this daemon only. The machines of a peer are in the simulator, which does not support that many.
pub async fn measure(bench: &mut Bench) {
    let subject = bench.ours.clone();
    bench.attempt("memory", &subject, async |bench| measure_ours(bench, &subject).await).await;
}

async fn measure_ours(bench: &mut Bench, subject: &Subject) {
    let mut residents = Vec::new();
    for nodes in NODES {
        let usage = started_with(subject, nodes).await;
        let is_most = NODES.last() == Some(&nodes);
        let below = |limit: f64| is_most.then_some(Limit::Below(limit));
        for (what, kilobytes, limit) in [
            ("resident", usage.resident, below(RESIDENT)),
            ("of it heap and stacks", usage.anonymous, None),
            ("peak", usage.peak, below(PEAK)),
        ] {
            report(bench, format!("started with {nodes} nodes: {what}"), "MiB", kilobytes as f64 / 1024.0, limit);
        }
        residents.push(usage.resident as f64);
    }
    for (kind, count, limit) in SERVICES {
        let cluster = Cluster::new(ApiServer::start().await, bench.vcenter(), 0).await;
        let without = median_of_starts(subject, &cluster).await;
        create_services(&cluster.client, kind, count).await;
        let with = median_of_starts(subject, &cluster).await;
        let name = format!("{count} Services of type {kind} more");
        report(bench, name, "MiB", (with - without) / 1024.0, Some(Limit::Below(limit)));
    }
    let more = (NODES[1] - NODES[0]) as f64;
    let name = format!("each node between {} and {}", NODES[0], NODES[1]);
    report(bench, name, "KiB", (residents[1] - residents[0]) / more, None);
}

/// Returns the use of a subject once it has read this many initialized nodes and their machines.
async fn started_with(subject: &Subject, nodes: usize) -> Usage {
    let cluster = Cluster::new(ApiServer::start().await, Kind::Fake, nodes).await;
    let mut initialized = Initialized::from_now(&cluster.client).await.unwrap();
    cluster.register(nodes).await;
    let mut first = cluster.start(subject, &cluster.server.kubeconfig()).await;
    tokio::time::timeout(2 * LIMIT, initialized.follow(nodes)).await.unwrap().unwrap();
    first.daemon.stop(LIMIT).await;
    drop(first);
    let mut running = cluster.start(subject, &cluster.server.kubeconfig()).await;
    running.until_leading(&cluster.client).await;
    let is_settled = settled(QUIET, LIMIT, async || running.usage().anonymous / 1024).await;
    assert!(is_settled, "its memory still changes after {LIMIT:?}");
    let usage = running.usage();
    running.daemon.stop(LIMIT).await;
    usage
}

/// Returns the median use of several starts, in KiB of heap and stacks. Pages of the binary are excluded, because they
/// depend on the machine.
async fn median_of_starts(subject: &Subject, cluster: &Cluster) -> f64 {
    let mut taken = Vec::new();
    for _ in 0..STARTS {
        let mut running = cluster.start(subject, &cluster.server.kubeconfig()).await;
        running.until_leading(&cluster.client).await;
        assert!(settled(QUIET, LIMIT, async || running.usage().anonymous / 1024).await, "its memory still changes");
        taken.push(running.usage().anonymous);
        running.daemon.stop(LIMIT).await;
    }
    taken.sort_unstable();
    taken[STARTS / 2] as f64
}

/// Creates Services as in a cluster: with labels, a selector, and the annotation of `kubectl apply`.
async fn create_services(client: &Client, kind: &str, count: usize) {
    let services = Api::<Service>::namespaced(client.clone(), "default");
    let create = |number: usize| {
        let services = services.clone();
        let mut service = json!({
            "metadata": {
                "name": format!("service-{number}"),
                "labels": {"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": format!("web-{number}")},
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x".repeat(600)},
            },
            "spec": {
                "type": kind, "selector": {"app.kubernetes.io/instance": format!("web-{number}")},
                "ports": [{"name": "http", "port": 80, "targetPort": 8080}, {"name": "https", "port": 443, "targetPort": 8443}],
            },
        });
        // A test's IP range has fewer addresses than there are Services of this type.
        if kind == "ClusterIP" {
            service["spec"]["clusterIP"] = json!("None");
        }
        async move { services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap() }
    };
    futures::stream::iter((0..count).map(create)).buffer_unordered(CREATED_AT_ONCE).collect::<Vec<_>>().await;
}

fn report(bench: &mut Bench, name: String, unit: &'static str, sample: f64, limit: Option<Limit>) {
    bench.report(Measure { chapter: "memory", subject: OURS, name, unit, samples: vec![sample], limit });
}
