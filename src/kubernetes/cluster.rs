//! What a provider may ask of the cluster, answered from the shared caches.

use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;

use super::stores::{Change, Nodes};
use crate::cloud::{ClusterReads, NodeChange};

/// [`ClusterReads`] over the cache of Nodes.
#[derive(Clone)]
pub struct Cluster {
    nodes: Nodes,
}

impl Cluster {
    /// Over these Nodes.
    pub fn new(nodes: Nodes) -> Self {
        Self { nodes }
    }
}

impl ClusterReads for Cluster {
    fn nodes(&self) -> Box<dyn Iterator<Item = Arc<Node>> + Send + '_> {
        Box::new(self.nodes.list())
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(name)
    }

    fn node_changes(&self) -> BoxStream<'static, NodeChange> {
        let changes = self.nodes.subscribe().map(|change| match change {
            Change::Applied(name) | Change::Deleted(name) => NodeChange::Node(name),
            Change::All => NodeChange::All,
        });
        changes.boxed()
    }
}
