//! The cache of Nodes with a real watch.

use std::time::Duration;

use ccm::kubernetes::client::{Clients, Settings, read_config};
use ccm::kubernetes::stores::{Change, Nodes, watch_nodes};
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use support::connect_proxy::ConnectProxy;
use support::{ApiServer, KubeletNode, eventually, unique};
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(60);

async fn next(changes: &mut BoxStream<'static, Change>) -> Change {
    tokio::time::timeout(LONG, changes.next()).await.expect("a change within a minute").unwrap()
}

async fn until(changes: &mut BoxStream<'static, Change>, expected: Change) {
    while next(changes).await != expected {}
}

async fn register(client: &Client, name: &str, pool: &str) {
    KubeletNode::new(name, &Uuid::new_v4().to_string()).label("pool", pool).register(client).await;
}

async fn set_pool(client: &Client, name: &str, pool: &str) {
    let patch = json!({"metadata": {"labels": {"pool": pool}}});
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch(name, &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
}

fn watch(client: Client, pool: &str) -> Nodes {
    let (nodes, task) = watch_nodes(client, Some(format!("pool={pool}")));
    tokio::spawn(task);
    nodes
}

#[tokio::test]
async fn the_cache_holds_the_selected_nodes_and_tells_of_changes() {
    let server = ApiServer::shared().await;
    let client = server.client().await;
    let [pool, other] = [unique("pool"), unique("pool")];
    let [a, b, foreign] = [unique("a"), unique("b"), unique("foreign")];
    register(&client, &a, &pool).await;
    register(&client, &foreign, &other).await;

    let nodes = watch(client.clone(), &pool);
    let mut changes = nodes.subscribe();
    tokio::time::timeout(LONG, nodes.wait_until_ready()).await.expect("it fills");
    assert!(nodes.is_ready());
    let names: Vec<_> = nodes.list().filter_map(|node| node.metadata.name.clone()).collect();
    assert_eq!(names, std::slice::from_ref(&a));
    let node = nodes.get(&a).unwrap();
    assert!(node.metadata.uid.is_some() && node.metadata.resource_version.is_some());
    assert_eq!(node.metadata.managed_fields, None, "pruned");
    assert!(node.status.as_ref().unwrap().node_info.is_some(), "kept");

    register(&client, &b, &pool).await;
    until(&mut changes, Change::Applied(b.clone())).await;
    set_pool(&client, &foreign, &pool).await;
    until(&mut changes, Change::Applied(foreign.clone())).await;
    set_pool(&client, &foreign, &other).await;
    until(&mut changes, Change::Deleted(foreign.clone())).await;
    assert!(nodes.get(&foreign).is_none(), "no longer selected");
    Api::<Node>::all(client).delete(&b, &DeleteParams::default()).await.unwrap();
    until(&mut changes, Change::Deleted(b.clone())).await;
    assert_eq!(nodes.list().len(), 1);
}

#[tokio::test]
async fn the_cache_outlives_an_api_server_that_restarts() {
    let mut server = ApiServer::start().await;
    let client = server.client().await;
    let pool = unique("pool");
    register(&client, "before", &pool).await;
    let nodes = watch(client.clone(), &pool);
    let mut changes = nodes.subscribe();
    until(&mut changes, Change::All).await;

    server.kill().await;
    assert!(nodes.get("before").is_some(), "what is known stays");
    server.restart().await;
    let client = server.client().await;
    register(&client, "after", &pool).await;
    let seen =
        eventually("the new node in the cache", LONG, async || nodes.get("after").ok_or("it is not there")).await;
    assert_eq!(seen.metadata.name.as_deref(), Some("after"));
    assert!(nodes.get("before").is_some());
}

/// The connections stay open and transfer nothing in either direction, as behind a load balancer that dropped them.
#[tokio::test]
async fn a_watch_that_hears_nothing_is_opened_again_within_45_seconds() {
    let server = ApiServer::shared().await;
    let client = server.client().await;
    let proxy = ConnectProxy::start(server.url().rsplit(':').next().unwrap().parse().unwrap()).await;
    let existing = server.kubeconfig();
    let mut kubeconfig: serde_json::Value = serde_json::from_slice(&std::fs::read(&existing).unwrap()).unwrap();
    kubeconfig["clusters"][0]["cluster"]["proxy-url"] = format!("http://127.0.0.1:{}", proxy.port()).into();
    let path = existing.with_file_name(format!("{}.kubeconfig", unique("forgetful")));
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    let config = read_config(&Settings { kubeconfig: Some(path), ..Settings::default() }).await.unwrap();
    let pool = unique("pool");
    let nodes = watch(Clients::new(&config).unwrap().watch, &pool);
    tokio::time::timeout(LONG, nodes.wait_until_ready()).await.expect("it fills");
    let mut changes = nodes.subscribe();
    let before = unique("before");
    register(&client, &before, &pool).await;
    until(&mut changes, Change::Applied(before)).await;
    let connections = proxy.asked().len();

    proxy.forget();
    let after = unique("after");
    register(&client, &after, &pool).await;
    let noticed = until(&mut changes, Change::Applied(after));
    tokio::time::timeout(Duration::from_secs(45), noticed).await.expect("noticed within 45 s");
    assert_eq!(proxy.asked().len(), connections + 1, "{:?}", proxy.asked());
}
