//! What a provider may ask of the cluster, answered from the shared caches.

use std::sync::Arc;

use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;

use super::stores::Nodes;
use crate::cloud::ClusterReads;

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
    fn nodes(&self) -> Vec<Arc<Node>> {
        self.nodes.list()
    }

    fn node_changes(&self) -> BoxStream<'static, ()> {
        self.nodes.subscribe_coalesced()
    }
}
