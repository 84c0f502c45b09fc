//! The time that commands take, from their start to their end, while the daemon holds many nodes and load balancers,
//! and the time in which the daemon repairs a Node while commands run one after the other.
//!
//! Most nodes are excluded from load balancers, because no load balancer service has capacity for all of them.

use std::time::{Duration, Instant};

use futures::{TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use support::report::{Limit, Measure};
use tokio::process::Command;
use tokio::time::sleep;

use crate::Bench;
use crate::cluster::LIMIT;
use crate::load_balancers::Size;
use crate::load_balancers::services::Watched;
use crate::load_balancers::world::World;
use crate::machines::name;
use crate::subject::Running;

const CHAPTER: &str = "commands";
const NODES: usize = 5_000;
const SERVICES: usize = 1_000;
/// Number of nodes behind the load balancers.
const MEMBERS: usize = 9;
/// Number of times that each command runs, and of Nodes that are repaired with and without commands.
const SAMPLES: usize = 100;
/// Limit of a command that shows what the process holds, of one that calls the API server, vCenter and NSX, and of one
/// that has lines for each object, in milliseconds.
const SHOWN: f64 = 100.0;
const CHECKED: f64 = 1_000.0;
const LISTED: f64 = 5_000.0;
/// Label of a node that load balancers leave out.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Number of concurrent requests.
const AT_ONCE: usize = 32;
/// Pause between two looks at a Node, which is small against the time of a repair.
const LOOK: Duration = Duration::from_millis(2);

/// The arguments of the commands with their limits.
const COMMANDS: [(&[&str], f64); 9] = [
    (&["status"], SHOWN),
    (&["status", "-o", "json"], SHOWN),
    (&["explain", "node", "n-17"], SHOWN),
    (&["explain", "deletion", "n-17"], SHOWN),
    (&["explain", "service", "default/service-17"], SHOWN),
    (&["explain", "vcenter", "127.0.0.1"], SHOWN),
    (&["check"], CHECKED),
    (&["plan"], LISTED),
    (&["bundle"], LISTED),
];

/// Measures on a leader that has initialized all nodes and served all Services. A peer has no commands.
pub async fn measure(bench: &mut Bench) {
    let nodes = bench.sizes(&[NODES])[0];
    let size = Size { services: SERVICES, nodes };
    let world = World::new(bench, CHAPTER, bench.ours.clone(), size).await;
    let client = &world.cluster.client;
    exclude(client, MEMBERS + 1..=nodes).await;
    let mut watched = Watched::start(client).await;
    let mut process = world.start_leading(0, &[]).await;
    world.create(1..=SERVICES).await;
    world.until_served(&mut watched, SERVICES).await;
    process.running.until_leading(client).await;
    world.until_quiet().await;
    let alone = repair_times(client).await;
    for (arguments, limit) in COMMANDS {
        let mut samples = Vec::new();
        for _ in 0..SAMPLES {
            samples.push(run(bench, &process.running, arguments).await.as_secs_f64() * 1e3);
        }
        report(bench, nodes, arguments.join(" "), samples, Some(Limit::Below(limit)));
    }
    let asking = async {
        loop {
            for (arguments, _) in COMMANDS {
                run(bench, &process.running, arguments).await;
            }
        }
    };
    let beside = tokio::select! {
        times = repair_times(client) => times,
        () = asking => unreachable!("it asks until all Nodes are repaired"),
    };
    report(bench, nodes, "a Node gets its addresses back, no commands".to_owned(), alone, None);
    report(bench, nodes, "a Node gets its addresses back, commands run all the time".to_owned(), beside, None);
}

fn report(bench: &mut Bench, nodes: usize, what: String, samples: Vec<f64>, limit: Option<Limit>) {
    let name = format!("{nodes} nodes, {SERVICES} Services: {what}");
    bench.report(Measure { chapter: CHAPTER, subject: bench.ours.name, name, unit: "ms", samples, limit });
}

/// Excludes the nodes with these numbers from load balancers.
async fn exclude(client: &kube::Client, numbers: impl IntoIterator<Item = usize>) {
    let nodes = Api::<Node>::all(client.clone());
    let patch = Patch::Merge(json!({"metadata": {"labels": {EXCLUDED: ""}}}));
    let exclude =
        async |number: usize| nodes.patch_metadata(&name(number), &PatchParams::default(), &patch).await.map(drop);
    stream::iter(numbers.into_iter().map(Ok)).try_for_each_concurrent(AT_ONCE, exclude).await.unwrap();
}

/// Takes the addresses from one Node after the other. Returns the times in milliseconds until they are back.
async fn repair_times(client: &kube::Client) -> Vec<f64> {
    let nodes = Api::<Node>::all(client.clone());
    let patch = Patch::Merge(json!({"status": {"addresses": []}}));
    let mut times = Vec::new();
    for number in 1..=SAMPLES {
        let begun = Instant::now();
        nodes.patch_status(&name(number), &PatchParams::default(), &patch).await.unwrap();
        loop {
            let node = nodes.get(&name(number)).await.unwrap();
            if node.status.and_then(|status| status.addresses).is_some_and(|addresses| !addresses.is_empty()) {
                break;
            }
            assert!(begun.elapsed() < LIMIT, "node {number} has no addresses after {LIMIT:?}");
            sleep(LOOK).await;
        }
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times
}

/// Runs a command, and returns its duration. It must have an answer, which may contain findings.
async fn run(bench: &Bench, running: &Running, arguments: &[&str]) -> Duration {
    let (name, rest) = arguments.split_first().unwrap();
    let process = format!("--pid={}", running.daemon.pid().unwrap());
    let mut command = Command::new(bench.ours.binary());
    command.arg(name).arg(process).args(rest);
    let begun = Instant::now();
    let output = support::command::output(command, "").await;
    let took = begun.elapsed();
    let is_complete = match output.status.code() {
        Some(0 | 1) => true,
        // There are more Events about Nodes than a bundle has.
        Some(3) => *name == "bundle",
        _ => false,
    };
    assert!(is_complete && !output.stdout.is_empty(), "{arguments:?}: {:?}", String::from_utf8_lossy(&output.stderr));
    took
}
