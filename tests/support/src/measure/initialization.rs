//! Measures with a watch when each node was initialized.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, ListParams, Object, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::nodes::UNINITIALIZED_TAINT;

/// Timeout of a watch, in seconds. The server does not end a watch earlier.
const WATCH_SECONDS: u32 = 290;

/// A Node with the needed fields only. Parsing the others would take CPU time from the measured programs.
type Seen = Object<SeenSpec, SeenStatus>;

#[derive(Clone, Debug, Deserialize, Serialize)]
struct SeenSpec {
    #[serde(default)]
    taints: Vec<SeenTaint>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
struct SeenTaint {
    key: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct SeenStatus {}

/// The nodes that the watch has shown without the taint, with the time.
pub struct Initialized {
    api: Api<Seen>,
    version: String,
    seen: BTreeMap<String, Instant>,
}

impl Initialized {
    /// Starts to watch. Only nodes that are initialized or changed from now on count.
    ///
    /// # Errors
    ///
    /// A sentence, if the API server does not return the current version.
    pub async fn from_now(client: &Client) -> Result<Self, String> {
        let api: Api<Seen> = Api::all_with(client.clone(), &ApiResource::erase::<Node>(&()));
        let list = api.list(&ListParams::default().limit(1)).await.map_err(|error| format!("Nodes: {error}"))?;
        Ok(Self { api, version: list.metadata.resource_version.unwrap_or_default(), seen: BTreeMap::new() })
    }

    /// Starts to watch. Existing nodes count, too.
    #[must_use]
    pub fn from_the_start(client: &Client) -> Self {
        let api = Api::all_with(client.clone(), &ApiResource::erase::<Node>(&()));
        Self { api, version: String::new(), seen: BTreeMap::new() }
    }

    /// Lists the existing nodes. A watch could deliver them, too, but in any order: after its end, the version of the
    /// last one would be no place to continue.
    async fn see_existing(&mut self) -> Result<(), String> {
        let list = self.api.list(&ListParams::default()).await.map_err(|error| format!("Nodes: {error}"))?;
        for node in &list.items {
            self.see(node);
        }
        self.version = list.metadata.resource_version.unwrap_or_default();
        Ok(())
    }

    /// Returns the number of initialized nodes.
    #[must_use]
    pub fn count(&self) -> usize {
        self.seen.len()
    }

    /// Watches until this many nodes are initialized. The result is kept if this is cancelled.
    ///
    /// # Errors
    ///
    /// A sentence, if a node is deleted or the watch is rejected.
    pub async fn follow(&mut self, count: usize) -> Result<(), String> {
        let parameters = WatchParams::default().timeout(WATCH_SECONDS);
        if self.version.is_empty() {
            self.see_existing().await?;
        }
        while self.seen.len() < count {
            let events = self.api.watch(&parameters, &self.version).await.map_err(|error| error.to_string())?;
            let mut events = events.boxed();
            while let Some(event) = events.next().await {
                match event.map_err(|error| error.to_string())? {
                    WatchEvent::Added(node) | WatchEvent::Modified(node) => self.see(&node),
                    WatchEvent::Bookmark(bookmark) => self.version = bookmark.metadata.resource_version,
                    WatchEvent::Deleted(node) => return Err(format!("node {} was deleted", node.name_any())),
                    WatchEvent::Error(status) => return Err(format!("the watch was refused: {}", status.message)),
                }
                if self.seen.len() == count {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn see(&mut self, node: &Seen) {
        self.version = node.resource_version().unwrap_or_default();
        if !node.spec.taints.iter().any(|taint| taint.key == UNINITIALIZED_TAINT) {
            self.seen.entry(node.name_any()).or_insert_with(Instant::now);
        }
    }

    /// Returns the time of each node after this moment, the shortest first.
    #[must_use]
    pub fn times(&self, since: Instant) -> Vec<Duration> {
        let mut times: Vec<_> = self.seen.values().map(|at| at.saturating_duration_since(since)).collect();
        times.sort_unstable();
        times
    }
}
