//! The few things a provider may ask of the Kubernetes cluster.

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use std::sync::Arc;

use super::error::Error;

/// Reads of the cluster, implemented over the shared caches and handed to the provider by `app`.
///
/// Cached Nodes lack what nobody reads of them: [`node::cached`](super::node::cached) lists it.
#[async_trait]
pub trait ClusterReads: Send + Sync {
    /// The nodes this process looks after, from the cache; empty until the cache has filled.
    fn nodes(&self) -> Box<dyn Iterator<Item = Arc<Node>> + Send + '_>;

    /// The node of this name as last seen, from the cache.
    fn node(&self, name: &str) -> Option<Arc<Node>>;

    /// The whole node of this name as the API server has it now; none if there is no such node. Answers within 10 s.
    async fn fetch_node(&self, name: &str) -> Result<Option<Node>, Error>;

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
