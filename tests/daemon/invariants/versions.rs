//! Every version of this test's Nodes, in order, as the API server's watch gives them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};

/// How long an API server that was killed may be away.
const LIMIT: Duration = Duration::from_secs(180);
/// Between two questions whether it is back.
const LOOK_PERIOD: Duration = Duration::from_millis(250);
/// What was written so long before the end of a watch may not have been told.
const DELIVERY: Duration = Duration::from_secs(5);
/// How long it may take for one answer.
const CALL_LIMIT: Duration = Duration::from_secs(10);

/// One version of a Node.
pub struct Version {
    /// When it was heard of.
    pub at: Instant,
    /// The Node; of a deleted one what it was last.
    pub node: Node,
    /// Whether it is deleted with this.
    pub is_deletion: bool,
    /// Versions before this one were missed, all later than this moment.
    pub missed_since: Option<Instant>,
}

/// What is done when the watch breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The test fails.
    Fails,
    /// All nodes are read anew, and that versions may be missing is told.
    IsTold,
}

/// Collects them. Dropping it ends that.
pub struct Versions {
    collected: Arc<Mutex<Vec<Version>>>,
    watch: JoinHandle<()>,
}

impl Versions {
    /// From now on; there is no such Node yet. None is missed.
    pub async fn watch(client: Client, labels: &str) -> Self {
        Self::begin(client, labels, Loss::Fails).await
    }

    /// The same with an API server that may be killed and comes back.
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

struct Collector {
    nodes: Api<Node>,
    labels: String,
    loss: Loss,
    collected: Arc<Mutex<Vec<Version>>>,
    /// The last version of each Node that is not deleted, by UID.
    last: BTreeMap<String, Node>,
}

impl Collector {
    /// Goes on where it was when the API server ends the watch, which it does every few minutes.
    async fn run(mut self, mut from: String) {
        loop {
            match self.follow(&mut from).await {
                Ok(()) => {}
                Err(error) if self.loss == Loss::Fails => panic!("versions were missed: {error}"),
                Err(_) => from = self.read_anew(Instant::now() - DELIVERY).await,
            }
        }
    }

    /// One watch, until it ends.
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

    /// Reads all Nodes, once the API server is back; where to go on.
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
