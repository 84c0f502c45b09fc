//! A provider's access to the Kubernetes cluster: cached Nodes, live reads, and Events about the cluster.

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, Service};
use std::sync::Arc;

use super::presence::{Presence, Unknown};
use super::reason::Reason;

/// Cached reads of the cluster. Nodes lack the fields that [`node::cache_filter`](super::node::cache_filter) lists.
pub trait ClusterReads: Send + Sync {
    /// Returns the cached Nodes that this process manages. Empty until the cache has synced.
    fn nodes(&self) -> Box<dyn Iterator<Item = Arc<Node>> + Send + '_>;

    /// Returns the cached Node with this name.
    fn node(&self, name: &str) -> Option<Arc<Node>>;

    /// Returns true if the cache has a Service with this key, such as `default/web`, that has the type `LoadBalancer`
    /// or the finalizer of load balancers.
    fn has_service(&self, key: &str) -> bool;

    /// Returns the changes of [`ClusterReads::nodes`]. The first item, after the cache sync, is [`NodeChange::All`].
    fn node_changes(&self) -> BoxStream<'static, NodeChange>;
}

/// Live reads of the API server, for decisions that must not use stale data. Each read returns within 10 s. An object
/// is absent only if the API server answered that the object does not exist.
#[async_trait]
pub trait LiveReads: Send + Sync {
    /// Reads the complete Node with this name.
    async fn node(&self, name: &str) -> Presence<Node>;

    /// Reads the complete Service with this name.
    async fn service(&self, namespace: &str, name: &str) -> Presence<Service>;

    /// Reads the UID of the namespace `kube-system`, which identifies the cluster. A missing namespace is an error.
    async fn cluster_uid(&self) -> Result<String, Unknown>;
}

/// Events about the cluster as a whole.
#[async_trait]
pub trait ClusterEvents: Send + Sync {
    /// Records a warning Event. The Event may be lost, so the caller also logs the message.
    async fn warn(&self, reason: Reason, message: &str);
}

/// A change of the Nodes that this process manages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// The Node of this name was added, changed or deleted.
    Node(String),
    /// All Nodes may have changed.
    All,
}
