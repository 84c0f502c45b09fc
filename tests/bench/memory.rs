//! How much memory a daemon takes that starts where many nodes are initialised, and what a node costs in it.
//!
//! What a storm of joining nodes leaves is measured by `storm-5000`.

use std::time::Duration;

use support::ApiServer;
use support::measure::initialised::Initialised;
use support::measure::settled::settled;
use support::process::Usage;
use support::report::{Limit, Measure, OURS};

use crate::Bench;
use crate::cluster::{Cluster, LIMIT};
use crate::machines::Kind;
use crate::subject::Subject;

const NODES: [usize; 2] = [1_000, 5_000];
/// In MiB, with the most nodes: resident, and the most ever.
const RESIDENT: f64 = 50.0;
const PEAK: f64 = 70.0;
/// All is known when its memory has not changed by a MiB for this long.
const QUIET: Duration = Duration::from_secs(10);

/// Ours alone: a peer's machines are the simulator's, which does not take so many.
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
    let more = (NODES[1] - NODES[0]) as f64;
    let name = format!("each node between {} and {}", NODES[0], NODES[1]);
    report(bench, name, "KiB", (residents[1] - residents[0]) / more, None);
}

/// What it has taken once it knows so many initialised nodes and their machines.
async fn started_with(subject: &Subject, nodes: usize) -> Usage {
    let cluster = Cluster::new(ApiServer::start().await, Kind::Fake, nodes).await;
    let mut initialised = Initialised::from_now(&cluster.client).await.unwrap();
    cluster.register(nodes).await;
    let mut first = cluster.start(subject, &cluster.server.kubeconfig()).await;
    tokio::time::timeout(2 * LIMIT, initialised.follow(nodes)).await.unwrap().unwrap();
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

fn report(bench: &mut Bench, name: String, unit: &'static str, sample: f64, limit: Option<Limit>) {
    bench.report(Measure { chapter: "memory", subject: OURS, name, unit, samples: vec![sample], limit });
}
