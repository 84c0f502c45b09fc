//! The states of the Nodes with their times, from a watch.

use std::collections::BTreeSet;

use futures::StreamExt;
use kube::api::{ApiResource, ListParams, Object, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::HOST_LABEL;

/// The taint of a node whose machine is off.
pub const SHUT_DOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// Duration of a watch, short enough that the server does not end it first.
const WATCH_SECONDS: u32 = 290;

/// A Node with only the relevant fields.
type Seen = Object<Spec, Status>;

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Spec {
    #[serde(default)]
    taints: Vec<Taint>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Taint {
    key: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Status {
    #[serde(default)]
    addresses: Vec<Address>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct Address {
    address: String,
}

/// One version of a Node.
pub struct Node {
    /// Number of the machine.
    pub number: usize,
    /// Time of the read.
    pub at: Instant,
    texts: BTreeSet<String>,
}

impl Node {
    /// Whether the Node has this address, this taint, or this host.
    pub fn shows(&self, text: &str) -> bool {
        self.texts.contains(text)
    }
}

/// The watch of all Nodes. It ends when this is dropped.
pub struct Nodes {
    versions: mpsc::UnboundedReceiver<Node>,
    following: JoinHandle<()>,
    shut_down: BTreeSet<usize>,
}

impl Nodes {
    /// Starts the watch.
    pub async fn follow(client: &Client) -> Self {
        let resource = ApiResource::erase::<k8s_openapi::api::core::v1::Node>(&());
        let api: Api<Seen> = Api::all_with(client.clone(), &resource);
        let list = api.list(&ListParams::default().limit(1)).await.unwrap();
        let mut version = list.metadata.resource_version.unwrap_or_default();
        let (sender, versions) = mpsc::unbounded_channel();
        let following = tokio::spawn(async move {
            loop {
                let parameters = WatchParams::default().timeout(WATCH_SECONDS);
                let mut events = api.watch(&parameters, &version).await.unwrap().boxed();
                while let Some(event) = events.next().await {
                    let at = Instant::now();
                    match event.unwrap() {
                        WatchEvent::Added(seen) | WatchEvent::Modified(seen) => {
                            version = seen.resource_version().unwrap_or_default();
                            if let Some(node) = node(&seen, at)
                                && sender.send(node).is_err()
                            {
                                return;
                            }
                        }
                        WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                        WatchEvent::Deleted(seen) => panic!("node {} was deleted", seen.name_any()),
                        WatchEvent::Error(status) => panic!("the watch was refused: {}", status.message),
                    }
                }
            }
        });
        Self { versions, following, shut_down: BTreeSet::new() }
    }

    /// Returns the next version of any Node.
    pub async fn next(&mut self) -> Node {
        let node = self.versions.recv().await.expect("the watch has ended");
        self.take_down(&node);
        node
    }

    /// Processes all received versions.
    pub fn drain(&mut self) {
        while let Ok(node) = self.versions.try_recv() {
            self.take_down(&node);
        }
    }

    /// Whether the last version of the node had the taint of a machine that is off.
    pub fn is_shut_down(&self, number: usize) -> bool {
        self.shut_down.contains(&number)
    }

    fn take_down(&mut self, node: &Node) {
        if node.shows(SHUT_DOWN) {
            self.shut_down.insert(node.number);
        } else {
            self.shut_down.remove(&node.number);
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.following.abort();
    }
}

fn node(seen: &Seen, at: Instant) -> Option<Node> {
    let number = seen.name_any().strip_prefix("n-")?.parse().ok()?;
    let addresses = seen.status.iter().flat_map(|status| &status.addresses).map(|address| address.address.clone());
    let taints = seen.spec.taints.iter().map(|taint| taint.key.clone());
    let texts = addresses.chain(taints).chain(seen.labels().get(HOST_LABEL).cloned()).collect();
    Some(Node { number, at, texts })
}
