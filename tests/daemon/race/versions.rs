//! Every version of this test's Nodes, in order, as the API server's watch gives them.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::task::JoinHandle;

/// One version of a Node.
pub struct Version {
    /// When it was heard of.
    pub at: Instant,
    /// The Node; of a deleted one what it was last.
    pub node: Node,
    /// Whether it is deleted with this.
    pub is_deletion: bool,
}

/// Collects them. Dropping it ends that.
pub struct Versions {
    collected: Arc<Mutex<Vec<Version>>>,
    watch: JoinHandle<()>,
}

impl Versions {
    /// From now on; there is no such Node yet.
    pub async fn watch(client: Client, labels: &str) -> Self {
        let nodes = Api::<Node>::all(client);
        let list = nodes.list_metadata(&ListParams::default().labels(labels)).await.unwrap();
        assert!(list.items.is_empty(), "the first version of a Node was missed");
        let start = list.metadata.resource_version.unwrap();
        let collected = Arc::new(Mutex::new(Vec::new()));
        let watch = collect(nodes, labels.to_owned(), start, Arc::clone(&collected));
        Self { collected, watch: tokio::spawn(watch) }
    }

    /// What has come since the last call.
    pub fn take(&self) -> Vec<Version> {
        assert!(!self.watch.is_finished(), "the watch broke off; its reason is above");
        std::mem::take(&mut self.collected.lock().unwrap())
    }
}

impl Drop for Versions {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// Goes on where it was when the API server ends the watch, which it does every few minutes.
async fn collect(nodes: Api<Node>, labels: String, mut from: String, collected: Arc<Mutex<Vec<Version>>>) {
    let parameters = WatchParams::default().labels(&labels);
    loop {
        let mut events = nodes.watch(&parameters, &from).await.unwrap().boxed();
        while let Some(event) = events.next().await {
            let (node, is_deletion) = match event.unwrap() {
                WatchEvent::Added(node) | WatchEvent::Modified(node) => (node, false),
                WatchEvent::Deleted(node) => (node, true),
                WatchEvent::Bookmark(bookmark) => {
                    from = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(error) => panic!("versions were missed: {error}"),
            };
            from = node.metadata.resource_version.clone().unwrap();
            collected.lock().unwrap().push(Version { at: Instant::now(), node, is_deletion });
        }
    }
}
