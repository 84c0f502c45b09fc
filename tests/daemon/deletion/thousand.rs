//! A thousand machines disappear at once. Deletion pauses with an Event, then continues under the limit, and ends when
//! the machines exist again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;
use support::nodes::set_ready;
use support::{ApiServer, Daemon, FakeVcenter, Heavy, KubeletNode, Machine, Model, eventually};

use super::evidence::{Metrics, until_asked};
use crate::cluster::{Cluster, until_passed};

const NODES: usize = 1_000;
/// Number of nodes whose machines always exist.
const WELL: usize = 20;
/// Number of nodes that are ready although their machines are destroyed.
const READY: usize = 20;
/// Deletions for each window: two percent of all nodes, every five seconds.
const ALLOWANCE: usize = 20;
const WINDOW: Duration = Duration::from_secs(5);
const HOLD: Duration = Duration::from_secs(30);
const FLAGS: [&str; 4] = [
    "--node-monitor-period=1s",
    "--node-deletion-grace=2s",
    "--node-deletion-limit=5,2%,5s",
    "--node-deletion-mass-hold=30s",
];
/// Metric of the nodes that are not deleted, by reason.
const HELD: &str = "vsphere_ccm_node_deletions_held";
const LIMIT: Duration = Duration::from_secs(120);
/// Number of nodes that the daemon reconciles concurrently.
const WORKERS: usize = 8;
/// Number of concurrent requests to the API server.
const AT_ONCE: usize = 32;

fn name(number: usize) -> String {
    format!("n-{number}")
}

fn address(number: usize) -> String {
    format!("10.0.{}.{}", number / 250, number % 250 + 1)
}

fn machine(number: usize) -> Machine {
    Machine::new(&name(number), &Model::uuid(number)).ip(&address(number))
}

/// Returns a Node as the daemon leaves it, so that it needs no initialization.
fn node(cluster: &Cluster, fake: &FakeVcenter, number: usize) -> Node {
    let mut node = cluster.marked(KubeletNode::new(&name(number), &Model::uuid(number)).ready()).build();
    let record = json!({
        "vcenter": fake.instance_uuid(),
        "vm": fake.id("VirtualMachine", &name(number)),
        "host": format!("host-{}", number % 3 + 1),
        "folder": "group-v1",
        "pool": "resgroup-1",
        "datacenter": "datacenter-1",
    });
    let annotations = node.metadata.annotations.get_or_insert_default();
    annotations.insert("vsphere-ccm.dev/vm".to_owned(), record.to_string());
    let spec = node.spec.get_or_insert_default();
    spec.taints = None;
    spec.provider_id = Some(format!("vsphere://{}", Model::uuid(number)));
    node
}

/// Returns the names of the cluster's nodes.
async fn names(nodes: &Api<Node>) -> BTreeSet<String> {
    let all = nodes.list_metadata(&ListParams::default()).await.unwrap();
    all.items.into_iter().filter_map(|node| node.metadata.name).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_machines_gone_at_once_pause_deletion_and_then_it_goes_on_under_the_limit() {
    let _alone = Heavy::alone();
    let server = ApiServer::start().await;
    let cluster = Cluster::on(&server).await;
    let fake = FakeVcenter::start(Model::small().vms(NODES)).await;
    let nodes = Api::<Node>::all(cluster.client.clone());
    each(1..=NODES, async |number| {
        nodes.create(&PostParams::default(), &node(&cluster, &fake, number)).await.unwrap();
    })
    .await;
    let metrics = Metrics::new(&server).await;
    let config = fake.ini_section("vc-1", "dc-1", server.folder());
    let mut daemon = cluster.start(&config, &[&FLAGS[..], &[&metrics.flag()]].concat());
    let gone = WELL + 1..=NODES;
    // The kubelets of the first nodes are silent. Those of the last nodes still report.
    each(1..=NODES - READY, async |number| {
        set_ready(&nodes, &name(number), "Unknown", "").await.unwrap();
    })
    .await;
    until_asked(&daemon, &gone.clone().take(NODES - READY - WELL).map(name).collect::<Vec<_>>(), 1).await;
    assert_eq!(names(&nodes).await.len(), NODES, "their machines are there");

    let destroyed = Instant::now();
    for number in gone.clone() {
        fake.destroy_vm(&name(number));
    }
    let begun = until_some(&metrics, &mut daemon, "vsphere_ccm_node_deletion_mass_hold", destroyed).await;
    until_some(&metrics, &mut daemon, &format!("{HELD}{{reason=\"DeletionMassHold\"}}"), begun).await;
    let told = begun.elapsed();
    assert_eq!(names(&nodes).await.len(), NODES, "nothing was deleted before the pause");
    let event = event(&cluster, "DeletionMassHold", &daemon).await;
    println!("the pause is told {told:?} after it began: {event}");

    let (none, first, deleted_at_first) = deleted(&nodes, 1, begun).await;
    let paused = first.duration_since(begun);
    // The metric changes at the end of the pass that notices the absence.
    assert!(paused + Duration::from_secs(1) >= HOLD, "deletion paused for {paused:?}");
    let (_, last, deleted_at_last) = deleted(&nodes, 3 * ALLOWANCE, first).await;
    let time = last.duration_since(none);
    println!("{deleted_at_first} to {deleted_at_last} Nodes were deleted in {time:?}");
    // Each worker may have got its permit and made the second proof before the first deletion counted.
    let allowed = ALLOWANCE as f64 * (1.0 + time.as_secs_f64() / WINDOW.as_secs_f64()) + WORKERS as f64;
    assert!(deleted_at_last as f64 <= allowed, "{deleted_at_last} of {allowed} in {time:?}");

    // An operator registers the machines again.
    for number in gone {
        fake.create_vm(machine(number));
    }
    let left = names(&nodes).await.len();
    // At the former rate the daemon would delete twice the allowance in this time.
    until_passed(Instant::now(), 2 * WINDOW).await;
    let after = names(&nodes).await;
    assert!(left - after.len() <= ALLOWANCE / 2, "{left} and then {}: only what was proved before", after.len());
    for number in (1..=WELL).chain(NODES - READY + 1..=NODES) {
        assert!(after.contains(&name(number)), "{}", name(number));
    }
}

async fn each(numbers: impl IntoIterator<Item = usize>, act: impl AsyncFn(usize)) {
    futures::stream::iter(numbers).for_each_concurrent(AT_ONCE, async |number| act(number).await).await;
}

/// Waits until a series is one or more. Returns a time before that: the start of the last read with a smaller value, or
/// `since` if there is none.
async fn until_some(metrics: &Metrics, daemon: &mut Daemon, series: &str, since: Instant) -> Instant {
    let mut before = since;
    eventually(&format!("{series} is not zero"), LIMIT, async || {
        let look = Instant::now();
        match metrics.sum(series, daemon).await {
            value if value >= 1.0 => Ok(before),
            value => {
                before = look;
                Err(format!("{value}\n{}", daemon.output().tail(20)))
            }
        }
    })
    .await
}

/// Waits until this many Nodes are deleted. Returns a time before that as [`until_some`] does, the time of the
/// observation, and the number of deleted Nodes.
async fn deleted(nodes: &Api<Node>, count: usize, since: Instant) -> (Instant, Instant, usize) {
    let mut before = since;
    eventually(&format!("{count} Nodes are deleted"), LIMIT, async || {
        let look = Instant::now();
        match NODES - names(nodes).await.len() {
            deleted if deleted >= count => Ok((before, Instant::now(), deleted)),
            deleted => {
                before = look;
                Err(format!("{deleted}"))
            }
        }
    })
    .await
}

async fn event(cluster: &Cluster, word: &str, daemon: &Daemon) -> String {
    let events = Api::<Event>::all(cluster.client.clone());
    eventually(&format!("an Event says {word}"), LIMIT, async || {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let texts = all.iter().map(|event| {
            let (reason, message) = (event.reason.as_deref(), event.message.as_deref());
            format!("{}: {}", reason.unwrap_or_default(), message.unwrap_or_default())
        });
        texts.into_iter().find(|text| text.contains(word)).ok_or_else(|| daemon.output().tail(20))
    })
    .await
}
