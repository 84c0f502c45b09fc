//! When each node was initialised, as a watch shows it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, ListParams, Object, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt};
use serde::{Deserialize, Serialize};

use crate::nodes::UNINITIALIZED_TAINT;

/// A watch that the server has not ended by then.
const WATCH_SECONDS: u32 = 290;

/// A Node, without what is not looked at: reading that costs time which others could use.
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

/// Nodes that are seen without the taint from a moment on.
pub struct Initialised {
    api: Api<Seen>,
    version: String,
    seen: BTreeMap<String, Instant>,
}

impl Initialised {
    /// From now on.
    ///
    /// # Errors
    ///
    /// A sentence, when the API server does not say what is now.
    pub async fn from_now(client: &Client) -> Result<Self, String> {
        let api: Api<Seen> = Api::all_with(client.clone(), &ApiResource::erase::<Node>(&()));
        let list = api.list(&ListParams::default().limit(1)).await.map_err(|error| format!("Nodes: {error}"))?;
        Ok(Self { api, version: list.metadata.resource_version.unwrap_or_default(), seen: BTreeMap::new() })
    }

    /// Those that are there, too.
    #[must_use]
    pub fn from_the_start(client: &Client) -> Self {
        let api = Api::all_with(client.clone(), &ApiResource::erase::<Node>(&()));
        // A watch from no version begins with what is there.
        Self { api, version: String::new(), seen: BTreeMap::new() }
    }

    /// How many were seen.
    #[must_use]
    pub fn count(&self) -> usize {
        self.seen.len()
    }

    /// Watches until so many nodes were seen. What was seen stays when this is given up.
    ///
    /// # Errors
    ///
    /// A sentence, when a node is deleted or the watch refused.
    pub async fn follow(&mut self, count: usize) -> Result<(), String> {
        let parameters = WatchParams::default().timeout(WATCH_SECONDS);
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

    /// How long after this moment each was seen, the first one first.
    #[must_use]
    pub fn times(&self, since: Instant) -> Vec<Duration> {
        let mut times: Vec<_> = self.seen.values().map(|at| at.saturating_duration_since(since)).collect();
        times.sort_unstable();
        times
    }
}
