//! The few things a provider may ask of the Kubernetes cluster.

use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use std::sync::Arc;

/// Reads of the cluster, implemented over the shared caches and handed to the provider by `app`.
pub trait ClusterReads: Send + Sync {
    /// The nodes this process looks after, from the cache; empty until the cache has filled.
    fn nodes(&self) -> Box<dyn Iterator<Item = Arc<Node>> + Send + '_>;

    /// The node of this name as last seen, from the cache.
    fn node(&self, name: &str) -> Option<Arc<Node>>;

    /// Announces what changed in [`ClusterReads::nodes`]. The first item comes when the cache has filled, and is
    /// [`NodeChange::All`].
    fn node_changes(&self) -> BoxStream<'static, NodeChange>;
}

/// A change of the nodes this process looks after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// The node of this name came, changed or went.
    Node(String),
    /// Look at every node.
    All,
}
