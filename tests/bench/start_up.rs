//! The time from the start of a process until it is ready, without nodes and with many initialized nodes.

use std::time::Instant;

use support::ApiServer;
use support::measure::steady_state::ready;
use support::report::{Measure, OURS};

use crate::Bench;
use crate::cluster::{Cluster, LIMIT};
use crate::machines::Kind;
use crate::subject::Subject;

const SAMPLES: usize = 5;
/// Maximum number of nodes for a peer, and the larger number for this daemon.
const SOME: usize = 1_000;
const MANY: usize = 5_000;

/// Measures the time until `/healthz`, which both programs have. For this daemon also `/readyz`, which includes filled
/// caches.
pub async fn measure(bench: &mut Bench) {
    let sizes: &[(usize, Kind)] = if bench.peers.is_empty() {
        &[(0, Kind::Fake), (MANY, Kind::Fake)]
    } else {
        &[(0, Kind::Simulator), (SOME, Kind::Simulator), (MANY, Kind::Fake)]
    };
    for &(nodes, kind) in sizes {
        let cluster = Cluster::new(ApiServer::start().await, kind, nodes.max(1)).await;
        if nodes > 0 {
            cluster.register(nodes).await;
            let mut running = cluster.start(&bench.ours, &cluster.server.kubeconfig()).await;
            cluster.until_initialized(nodes).await;
            running.daemon.stop(LIMIT).await;
        }
        for subject in bench.subjects() {
            let is_ours = subject.name == OURS;
            if !is_ours && kind == Kind::Fake {
                continue;
            }
            let paths: &[&str] = if is_ours { &["healthz", "readyz"] } else { &["healthz"] };
            for path in paths {
                let mut samples = Vec::new();
                for _ in 0..SAMPLES {
                    samples.push(start(&cluster, &subject, path).await);
                }
                let name = format!("{nodes} nodes: process start to /{path}");
                bench.report(Measure {
                    chapter: "start-up",
                    subject: subject.name,
                    name,
                    unit: "s",
                    samples,
                    limit: None,
                });
            }
        }
    }
}

/// Returns the seconds until the answer for this path is a success.
async fn start(cluster: &Cluster, subject: &Subject, path: &str) -> f64 {
    // A former holder may not have released the Lease.
    cluster.clear_lease().await;
    let begun = Instant::now();
    let mut running = subject.start(&cluster.config, &cluster.server.kubeconfig());
    let url = format!("https://127.0.0.1:{}/{path}", running.port);
    let took = ready(&url, begun, LIMIT).await.unwrap();
    running.daemon.stop(LIMIT).await;
    took.as_secs_f64()
}
