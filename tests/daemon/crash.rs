//! The daemon or the API server crashes in the middle of an initialization, while other clients write to the Node.

use std::ops::Range;
use std::time::Duration;

use futures::future::join_all;
use http::StatusCode;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use support::api_proxy::{Side, Write};
use support::nodes::NodeView;
use support::{ApiProxy, ApiServer, Vcenter, eventually};
use tokio::sync::{Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval};

use crate::cluster::{Cluster, LIMIT};

/// Points at which the daemon is killed: before and after each of the two writes.
const MOMENTS: [(Write, Side); 4] = [
    (Write::Status, Side::Request),
    (Write::Status, Side::Answer),
    (Write::Node, Side::Request),
    (Write::Node, Side::Answer),
];
/// Number of nodes at each point. It is less than the number of workers.
const NODES: usize = 6;
/// Interval between two taints that are added to a node while it joins.
const BEAT: Duration = Duration::from_secs(2);
/// An address that no machine has at first.
const NEW_IP: &str = "10.9.9.9";

/// Starts a proxy before the shared API server. Returns it with the flag that makes a daemon use it.
async fn proxy() -> (ApiProxy, String) {
    let server = ApiServer::shared().await;
    let proxy = ApiProxy::start(server);
    let kubeconfig = proxy.kubeconfig(&server.kubeconfig()).await;
    (proxy, format!("--kubeconfig={}", kubeconfig.display()))
}

/// Requests of the dead daemon arrive after the next daemon has finished the work. The API server rejects them.
#[tokio::test]
async fn a_daemon_killed_before_or_after_either_write_leaves_nodes_that_the_next_one_finishes() {
    join_all(MOMENTS.map(|(write, side)| killed_there(write, side))).await;
}

async fn killed_there(write: Write, side: Side) {
    let numbers = 0..NODES;
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(numbers.clone())).await;
    let (proxy, flag) = proxy().await;
    let mut killed = cluster.start_for(&vcenter, &[&flag]).await;
    let hold = proxy.hold(write, side);
    cluster.register(numbers.clone()).await;
    hold.wait_for(NODES).await;
    killed.kill().await;
    proxy.clear();
    let views = cluster.views().await;
    for view in numbers.clone().map(|number| &views[&cluster.name(number)]) {
        let has_addresses = (write, side) != (Write::Status, Side::Request);
        let is_initialized = (write, side) == (Write::Node, Side::Answer);
        assert_eq!(!view.addresses.is_empty(), has_addresses, "{write:?}, {side:?}: {view:?}");
        assert_eq!(view.provider_id.is_some(), is_initialized, "{write:?}, {side:?}: {view:?}");
        assert_eq!(!view.uninitialized, is_initialized, "{write:?}, {side:?}: {view:?}");
    }

    // The address in the write to the first of these nodes is stale now.
    let moved = numbers.start;
    vcenter.set_ip(&cluster.name(moved), NEW_IP).await;
    let next = cluster.start_for(&vcenter, &[]).await;
    cluster.wait_until_initialized(moved + 1..numbers.end, &next).await;
    eventually("the first node has the address of now", LIMIT, async || {
        let view = &cluster.views().await[&cluster.name(moved)];
        let has_both =
            ["InternalIP", "ExternalIP"].iter().all(|kind| view.addresses.contains(&format!("{kind}={NEW_IP}")));
        if has_both && !view.uninitialized { Ok(()) } else { Err(format!("{view:?}\n{}", next.output().tail(20))) }
    })
    .await;
    let before = cluster.nodes().await;
    let late = hold.release().await;
    let expected = if side == Side::Request { StatusCode::CONFLICT } else { StatusCode::OK };
    assert!(late.iter().all(|held| held.status == Some(expected)), "{write:?}, {side:?}: {late:?}");
    assert_eq!(cluster.nodes().await, before, "{write:?}, {side:?}: a late write changed something");
}

/// The daemon writes the whole list of taints. A write that was planned before another taint was added would drop that
/// taint.
#[tokio::test]
async fn taints_that_others_add_between_the_plan_and_either_write_survive() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..NODES)).await;
    let (proxy, flag) = proxy().await;
    let daemon = cluster.start_for(&vcenter, &[&flag]).await;
    let first = proxy.hold(Write::Status, Side::Request);
    cluster.register(0..NODES).await;
    first.wait_for(NODES).await;
    add_taints(&cluster, 0..NODES, "test.example/before-the-first").await;
    let second = proxy.hold(Write::Node, Side::Request);
    let refused = first.release().await;
    assert!(refused.iter().all(|held| held.status == Some(StatusCode::CONFLICT)), "{refused:?}");
    second.wait_for(NODES).await;
    add_taints(&cluster, 0..NODES, "test.example/before-the-second").await;
    proxy.clear();
    let refused = second.release().await;
    assert!(refused.iter().all(|held| held.status == Some(StatusCode::CONFLICT)), "{refused:?}");
    cluster.wait_until_initialized(0..NODES, &daemon).await;
    for (name, node) in cluster.nodes().await {
        let expected = ["test.example/before-the-first", "test.example/before-the-second"];
        assert_eq!(taint_keys(&node), expected, "{name}");
    }
}

/// The taints are added while the nodes join. The added taints survive a restart of the daemon or the API server.
#[tokio::test]
async fn an_api_server_restarted_in_the_middle_of_a_join_of_200_delays_it_and_loses_no_taint() {
    const NODES: usize = 200;
    const BEFORE: usize = 50;
    let mut server = ApiServer::start().await;
    let cluster = Cluster::on(&server).await;
    let vcenter = Vcenter::start(&cluster.scenario(0..NODES)).await;
    cluster.register(0..NODES).await;
    let is_up = watch::Sender::new(true);
    let (turns, first) = (Semaphore::new(AT_ONCE), watch::Sender::new(0));
    let meddle = |number| meddle(&cluster, cluster.name(number), &turns, &first, is_up.subscribe());
    let meddlers = join_all((0..NODES).map(meddle));
    let join = async {
        // Each `meddle` adds one taint before the join.
        let mut count = first.subscribe();
        tokio::time::timeout(LIMIT, count.wait_for(|count| *count == NODES)).await.unwrap().unwrap();
        // A low rate limit, so that the join is still in progress when the API server is killed.
        let mut daemon =
            cluster.start_for(&vcenter, &["--leader-elect=true", "--kube-api-qps=40", "--kube-api-burst=1"]).await;
        eventually("the join is under way", LIMIT, async || match initialized(&cluster).await {
            count if count >= BEFORE => Ok(()),
            count => Err(format!("{count}\n{}", daemon.output().tail(20))),
        })
        .await;
        is_up.send_replace(false);
        server.kill().await;
        // Counted from the log and not from the API server, because the daemon may have initialized more nodes before
        // the restarted API server answers this test.
        let done = daemon.output().count("node initialized");
        println!("{done} of {NODES} nodes were initialized when the API server went");
        assert!((BEFORE / 2..NODES - BEFORE / 2).contains(&done), "{done}: the join was not under way");
        server.restart().await;
        is_up.send_replace(true);
        cluster.wait_until_initialized(0..NODES, &daemon).await;
        assert!(daemon.ended().is_none());
    };
    let (added, ()) = tokio::join!(meddlers, join);
    let nodes = cluster.nodes().await;
    let taints: usize = added.iter().map(|added| added.taints.len()).sum();
    println!("{taints} taints were added while they joined");
    assert!(taints > 2 * NODES, "{taints}: each meddler adds one before and one after the join");
    for added in added {
        let node = &nodes[&added.node];
        assert_eq!(taint_keys(node), added.taints, "{}", added.node);
    }
    server.kill().await;
}

async fn initialized(cluster: &Cluster) -> usize {
    cluster.views().await.values().filter(|view| !view.uninitialized).count()
}

/// The taints that one `meddle` added to a node.
struct Meddled {
    node: String,
    taints: Vec<String>,
}

/// Maximum number of concurrent `meddle` writes. With more of them, every write of a daemon would conflict if the API
/// server takes longer than a beat for a write.
const AT_ONCE: usize = 4;

/// Adds a taint to a node at each beat until the node is initialized, and one more afterwards. Without a pause 200 such
/// writers would overload the API server. Therefore missed beats are skipped, also after a restart. No write is tried
/// while the API server restarts.
///
/// `first` counts the calls that have added one taint.
async fn meddle(
    cluster: &Cluster,
    node: String,
    turns: &Semaphore,
    first: &watch::Sender<usize>,
    is_up: watch::Receiver<bool>,
) -> Meddled {
    let nodes = Api::<Node>::all(cluster.client.clone());
    let mut taints = Vec::new();
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        let key = format!("test.example/added-{}", taints.len());
        let written = loop {
            is_sent(is_up.clone(), true).await;
            let _turn = turns.acquire().await.unwrap();
            tokio::select! {
                written = eventually("a taint is added", LIMIT, async || add_taint(&nodes, &node, &key).await) => break written,
                () = is_sent(is_up.clone(), false) => {}
            }
        };
        taints.push(key);
        if taints.len() == 1 {
            first.send_modify(|count| *count += 1);
        }
        if !NodeView::of(&written).uninitialized {
            return Meddled { node, taints };
        }
    }
}

/// Completes once `state` is sent.
async fn is_sent(mut states: watch::Receiver<bool>, state: bool) {
    states.wait_for(|now| *now == state).await.unwrap();
}

async fn add_taints(cluster: &Cluster, numbers: Range<usize>, key: &str) {
    let nodes = Api::<Node>::all(cluster.client.clone());
    join_all(numbers.map(async |number| add_taint(&nodes, &cluster.name(number), key).await.unwrap())).await;
}

/// Appends a taint if it is missing, and keeps concurrent changes.
async fn add_taint(nodes: &Api<Node>, name: &str, key: &str) -> Result<Node, kube::Error> {
    let node = nodes.get(name).await?;
    let taint = json!({ "key": key, "effect": "NoSchedule" });
    let operation = match taint_keys(&node) {
        present if present.iter().any(|present| present == key) => return Ok(node),
        present if present.is_empty() => json!({ "op": "add", "path": "/spec/taints", "value": [taint] }),
        _ => json!({ "op": "add", "path": "/spec/taints/-", "value": taint }),
    };
    let patch = Patch::<()>::Json(serde_json::from_value(json!([operation])).unwrap());
    nodes.patch(name, &PatchParams::default(), &patch).await
}

fn taint_keys(node: &Node) -> Vec<String> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().map(|taint| taint.key.clone()).collect()
}
