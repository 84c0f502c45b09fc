//! The floor of a join storm: the time of a plain client for the same writes to the same API server.
//!
//! The client writes Nodes of the same size, with the daemon's concurrency for Nodes and Events, and the same watch
//! observes them. For nodes that are registered while a daemon runs, the client writes to each node as soon as it is
//! registered. Both times include the registration of all nodes.

use std::time::{Duration, Instant};

use support::measure::floor;
use support::measure::initialization::Initialized;
use support::measure::kubelet;
use support::report::Measure;
use tokio::sync::mpsc::unbounded_channel;

use crate::Bench;
use crate::cluster::{Cluster, LIMIT};
use crate::storm::{AXES, DELAYS, Way, case_name, marks, patience};

/// Reports the floor, and returns the time to the last node. The cluster has no nodes before and after.
pub async fn measure(bench: &mut Bench, cluster: &Cluster, chapter: &'static str, way: Way, nodes: usize) -> Duration {
    let (tell, told) = unbounded_channel();
    let client = cluster.client.clone();
    let registration = async move {
        kubelet::register_telling(&client, nodes, |node| tell.send(node).unwrap()).await.unwrap();
    };
    let mut registration = Some(registration);
    if way == Way::Nodes {
        registration.take().unwrap().await;
    }
    let mut initialized = Initialized::from_now(&cluster.client).await.unwrap();
    let before = cluster.server.usage();
    let begun = Instant::now();
    let registering = tokio::spawn(async {
        if let Some(registration) = registration {
            registration.await
        }
    });
    let client = cluster.client.clone();
    let writing = tokio::spawn(async move { floor::write(&client, told).await });
    tokio::time::timeout(patience(nodes), initialized.follow(nodes)).await.unwrap().unwrap();
    tokio::time::timeout(LIMIT, writing).await.unwrap().unwrap().unwrap();
    registering.await.unwrap();
    let after = cluster.server.usage();

    let times = initialized.times(begun);
    let mut report = |what: &str, sample: f64| {
        let name = format!("{}: {what}", way.text());
        bench.report(Measure { chapter, subject: "floor", name, unit: "s", samples: vec![sample], limit: None });
    };
    for (what, index) in marks(nodes) {
        report(what, times[index].as_secs_f64());
    }
    for ((program, after), (_, before)) in after.iter().zip(before) {
        report(&format!("CPU of {program}"), (after.cpu - before.cpu).as_secs_f64());
    }
    // One curve for each delay of the comparison.
    for delay in DELAYS {
        let share = |index: usize| (index + 1) as f64 * 100.0 / nodes as f64;
        let points = times.iter().enumerate().map(|(index, time)| [time.as_secs_f64(), share(index)]).collect();
        bench.curve(chapter, "floor", &case_name(way, delay), AXES, points);
    }
    cluster.clear().await;
    *times.last().unwrap()
}
