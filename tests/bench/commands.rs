//! The time that commands take, from their start to their end, while the daemon holds many nodes.

use std::time::{Duration, Instant};

use support::ApiServer;
use support::report::{Limit, Measure};
use tokio::process::Command;

use crate::Bench;
use crate::cluster::{Cluster, LIMIT};
use crate::machines::Kind;
use crate::subject::Running;

const NODES: usize = 5_000;
/// Number of times that each command runs.
const SAMPLES: usize = 100;
/// Limit of a command that shows what the process holds, in milliseconds.
const SHOWN: f64 = 100.0;

/// The commands without the name of the program, with their names in the report. A peer has no commands.
const COMMANDS: [(&str, &[&str]); 2] = [("status", &["status"]), ("status -o json", &["status", "-o", "json"])];

/// Measures on a new leader after its first pass over all nodes.
pub async fn measure(bench: &mut Bench) {
    let nodes = bench.sizes(&[NODES])[0];
    let cluster = Cluster::new(ApiServer::start().await, Kind::Fake, nodes).await;
    cluster.register(nodes).await;
    let mut running = cluster.start(&bench.ours, &cluster.server.kubeconfig()).await;
    cluster.until_initialised(nodes).await;
    running.daemon.stop(LIMIT).await;
    cluster.clear_lease().await;
    let mut running = cluster.start(&bench.ours, &cluster.server.kubeconfig()).await;
    running.until_leading(&cluster.client).await;
    let seconds = LIMIT.as_secs();
    run(bench, &running, &["status", "--wait", &format!("--timeout={seconds}s")]).await;
    for (name, arguments) in COMMANDS {
        let mut samples = Vec::new();
        for _ in 0..SAMPLES {
            samples.push(run(bench, &running, arguments).await.as_secs_f64() * 1e3);
        }
        let measure = Measure {
            chapter: "commands",
            subject: bench.ours.name,
            name: format!("{nodes} nodes: {name}"),
            unit: "ms",
            samples,
            limit: Some(Limit::Below(SHOWN)),
        };
        bench.report(measure);
    }
}

/// Runs a command until it ends with success, and returns its duration.
async fn run(bench: &Bench, running: &Running, arguments: &[&str]) -> Duration {
    let (name, rest) = arguments.split_first().unwrap();
    let process = format!("--pid={}", running.daemon.pid().unwrap());
    let mut command = Command::new(bench.ours.binary());
    command.arg(name).arg(process).args(rest);
    let begun = Instant::now();
    let output = support::command::output(command, "").await;
    let took = begun.elapsed();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    took
}
