//! Every version of this test's Nodes, in order, from the API server's watch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};

/// Limit for the absence of an API server that was killed.
const LIMIT: Duration = Duration::from_secs(180);
/// Interval between two checks that the API server is available again.
const LOOK_PERIOD: Duration = Duration::from_millis(250);
/// A watch may not have delivered writes that were this short before its end.
const DELIVERY: Duration = Duration::from_secs(5);
/// Limit for one answer.
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// One version of a Node.
pub struct Version {
    /// Time at which the test received the version.
    pub at: Instant,
    /// The Node, for a deletion in its last state.
    pub node: Node,
    /// Whether the version is the deletion of the Node.
    pub is_deletion: bool,
    /// If versions before this one were missed: a time before all of them.
    pub missed_since: Option<Instant>,
}

/// Reaction to the loss of the watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The test fails.
    Fails,
    /// All nodes are read again, and the next versions are marked with `missed_since`.
    IsTold,
}

/// Collector of the versions. It stops when this is dropped.
pub struct Versions {
    collected: Arc<Mutex<Vec<Version>>>,
    watch: JoinHandle<()>,
}

impl Versions {
    /// Starts to collect. No such Node exists yet, so no version is missed.
    pub async fn watch(client: Client, labels: &str) -> Self {
        Self::begin(client, labels, Loss::Fails).await
    }

    /// As [`Versions::watch`], for an API server that may be killed and restarted.
    pub async fn through_restarts(client: Client, labels: &str) -> Self {
        Self::begin(client, labels, Loss::IsTold).await
    }

    async fn begin(client: Client, labels: &str, loss: Loss) -> Self {
        let nodes = Api::<Node>::all(client);
        let list = nodes.list_metadata(&ListParams::default().labels(labels)).await.unwrap();
        assert!(list.items.is_empty(), "the first version of a Node was missed");
        let start = list.metadata.resource_version.unwrap();
        let collected = Arc::new(Mutex::new(Vec::new()));
        let collector = Collector {
            nodes,
            labels: labels.to_owned(),
            loss,
            collected: Arc::clone(&collected),
            last: BTreeMap::new(),
        };
        Self { collected, watch: tokio::spawn(collector.run(start)) }
    }

    /// Returns the versions since the last call.
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

struct Collector {
    nodes: Api<Node>,
    labels: String,
    loss: Loss,
    collected: Arc<Mutex<Vec<Version>>>,
    /// Last version of each existing Node, by UID.
    last: BTreeMap<String, Node>,
}

impl Collector {
    /// Watches again from the last version when the API server ends the watch, as it does every few minutes.
    async fn run(mut self, mut from: String) {
        loop {
            match self.follow(&mut from).await {
                Ok(()) => {}
                Err(error) if self.loss == Loss::Fails => panic!("versions were missed: {error}"),
                Err(_) => from = self.read_anew(Instant::now() - DELIVERY).await,
            }
        }
    }

    /// Reads one watch until it ends.
    async fn follow(&mut self, from: &mut String) -> Result<(), String> {
        let parameters = WatchParams::default().labels(&self.labels);
        let events = self.nodes.watch(&parameters, from).await.map_err(|error| error.to_string())?;
        let mut events = events.boxed();
        while let Some(event) = events.next().await {
            let (node, is_deletion) = match event.map_err(|error| error.to_string())? {
                WatchEvent::Added(node) | WatchEvent::Modified(node) => (node, false),
                WatchEvent::Deleted(node) => (node, true),
                WatchEvent::Bookmark(bookmark) => {
                    *from = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(error) => return Err(error.to_string()),
            };
            *from = node.metadata.resource_version.clone().unwrap();
            self.push(node, is_deletion, None);
        }
        Ok(())
    }

    /// Reads all Nodes once the API server is available again. Returns the resource version for the next watch.
    async fn read_anew(&mut self, missed_since: Instant) -> String {
        let parameters = ListParams::default().labels(&self.labels);
        let deadline = Instant::now() + LIMIT;
        let mut looks = interval(LOOK_PERIOD);
        let list = loop {
            looks.tick().await;
            let state = match timeout(CALL_LIMIT, self.nodes.list(&parameters)).await {
                Ok(Ok(list)) => break list,
                Ok(Err(error)) => error.to_string(),
                Err(late) => late.to_string(),
            };
            assert!(Instant::now() < deadline, "the API server is not back within {LIMIT:?}: {state}");
        };
        let mut gone = std::mem::take(&mut self.last);
        for node in list.items {
            gone.remove(node.metadata.uid.as_deref().unwrap());
            self.push(node, false, Some(missed_since));
        }
        for node in gone.into_values() {
            self.push(node, true, Some(missed_since));
        }
        list.metadata.resource_version.unwrap()
    }

    fn push(&mut self, node: Node, is_deletion: bool, missed_since: Option<Instant>) {
        let uid = node.metadata.uid.clone().unwrap();
        match is_deletion {
            true => drop(self.last.remove(&uid)),
            false => drop(self.last.insert(uid, node.clone())),
        }
        self.collected.lock().unwrap().push(Version { at: Instant::now(), node, is_deletion, missed_since });
    }
}
