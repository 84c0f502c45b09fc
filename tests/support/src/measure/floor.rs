//! Makes the writes of many joining nodes with a plain client, which measures how fast this API server accepts them.
//!
//! It sends the same two patches of each node in the same order, with the same preconditions and concurrency, and one
//! Event for each node with the daemon's default concurrency. It reads only the watch that measures, calls no vCenter,
//! and decides nothing.

use std::sync::Arc;
use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::kubelet::Registered;
use crate::Model;

/// Default of `--concurrent-node-syncs`.
pub const NODES_AT_ONCE: usize = 16;
/// Number of Events that the daemon sends concurrently.
pub const EVENTS_AT_ONCE: usize = 8;
const MANAGER: &str = "floor";

/// The fields that are read of an answer.
#[derive(Deserialize)]
struct Written {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

/// Initializes the nodes as they arrive, until the channel closes. Then waits until all Events are written.
///
/// # Errors
///
/// A sentence, if the API server rejects a write.
pub async fn write(client: &Client, nodes: UnboundedReceiver<Registered>) -> Result<(), String> {
    let (nodes, mut writers) = (Arc::new(Mutex::new(nodes)), JoinSet::new());
    let (done, events) = unbounded_channel();
    for _ in 0..NODES_AT_ONCE {
        writers.spawn(initialize(client.clone(), Arc::clone(&nodes), done.clone()));
    }
    drop(done);
    let events = Arc::new(Mutex::new(events));
    for _ in 0..EVENTS_AT_ONCE {
        writers.spawn(tell(client.clone(), Arc::clone(&events)));
    }
    while let Some(end) = writers.join_next().await {
        end.map_err(|error| error.to_string())??;
    }
    Ok(())
}

/// Initializes nodes one after the other.
async fn initialize(
    client: Client,
    nodes: Arc<Mutex<UnboundedReceiver<Registered>>>,
    done: UnboundedSender<Registered>,
) -> Result<(), String> {
    let request = Request::new("/api/v1/nodes");
    let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    loop {
        let Some(node) = nodes.lock().await.recv().await else { return Ok(()) };
        let name = node.name();
        let failed = |error: String| format!("failed to initialize node {name}: {error}");
        let metadata = json!({ "uid": node.uid, "resourceVersion": node.version });
        let patch = Patch::Strategic(addresses(node.number, &metadata));
        let patch = request.patch_subresource("status", &name, &parameters, &patch);
        let patch = patch.map_err(|error| failed(error.to_string()))?;
        let written: Written = client.request(patch).await.map_err(|error| failed(error.to_string()))?;
        let patch = Patch::Strategic(rest(&node, &written.metadata.resource_version));
        let patch = request.patch(&name, &parameters, &patch).map_err(|error| failed(error.to_string()))?;
        let _: Written = client.request(patch).await.map_err(|error| failed(error.to_string()))?;
        // The receiver waits for the Events, too.
        let _ = done.send(node);
    }
}

fn addresses(number: usize, metadata: &Value) -> Value {
    let address = format!("10.10.{}.{}", number / 250, number % 250 + 1);
    json!({
        "metadata": metadata,
        "status": { "addresses": [
            { "type": "InternalIP", "address": address }, { "type": "ExternalIP", "address": address },
            { "type": "Hostname", "address": format!("n-{number}") }, { "$patch": "replace" },
        ] },
    })
}

fn rest(node: &Registered, version: &str) -> Value {
    let labels = json!({
        "node.kubernetes.io/instance-type": "vsphere-vm.cpu-4.mem-16gb.os-other3xlinux64guest",
        "beta.kubernetes.io/instance-type": "vsphere-vm.cpu-4.mem-16gb.os-other3xlinux64guest",
        "topology.kubernetes.io/zone": "zone-a", "failure-domain.beta.kubernetes.io/zone": "zone-a",
        "topology.kubernetes.io/region": "region-1", "failure-domain.beta.kubernetes.io/region": "region-1",
    });
    json!({
        "metadata": { "uid": node.uid, "resourceVersion": version, "labels": labels },
        "spec": { "providerID": format!("vsphere://{}", Model::uuid(node.number)), "taints": null },
    })
}

/// Writes Events one after the other.
async fn tell(client: Client, nodes: Arc<Mutex<UnboundedReceiver<Registered>>>) -> Result<(), String> {
    let request = Request::new("/api/v1/namespaces/default/events");
    loop {
        let Some(node) = nodes.lock().await.recv().await else { return Ok(()) };
        let failed = |error: String| format!("failed to write the event of node {}: {error}", node.name());
        let body = serde_json::to_vec(&event(&node)).map_err(|error| failed(error.to_string()))?;
        let post = request.create(&PostParams::default(), body).map_err(|error| failed(error.to_string()))?;
        client.request_text(post).await.map_err(|error| failed(error.to_string()))?;
    }
}

fn event(node: &Registered) -> Value {
    let (name, now) = (node.name(), Timestamp::now().to_string());
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": format!("{name}.{:x}", since_1970.as_nanos()), "namespace": "default" },
        "involvedObject": { "apiVersion": "v1", "kind": "Node", "name": name, "uid": node.uid },
        "reason": "Synced", "message": "Node synced successfully", "type": "Normal", "count": 1,
        "source": { "component": MANAGER }, "reportingComponent": MANAGER,
        "firstTimestamp": now, "lastTimestamp": now,
    })
}
