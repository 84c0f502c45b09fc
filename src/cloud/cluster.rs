//! The few things a provider may ask of the Kubernetes cluster: cached Nodes, reads of the API server itself, and Events about
//! the cluster.

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, Service};
use std::sync::Arc;

use super::presence::{Presence, Unknown};
use super::reason::Reason;

/// Reads of the cluster, implemented over the shared caches and handed to the provider by `app`.
///
/// Cached Nodes lack what nobody reads of them: [`node::cache_filter`](super::node::cache_filter) lists it.
pub trait ClusterReads: Send + Sync {
    /// The nodes this process looks after, from the cache; empty until the cache has filled.
    fn nodes(&self) -> Box<dyn Iterator<Item = Arc<Node>> + Send + '_>;

    /// The node of this name as last seen, from the cache.
    fn node(&self, name: &str) -> Option<Arc<Node>>;

    /// Whether the cache has a Service of this namespace and name, such as `default/web`, that has the type `LoadBalancer` or
    /// the finalizer.
    fn has_service(&self, key: &str) -> bool;

    /// Announces what changed in [`ClusterReads::nodes`]. The first item comes when the cache has filled, and is
    /// [`NodeChange::All`].
    fn node_changes(&self) -> BoxStream<'static, NodeChange>;
}

/// Reads of the API server, for decisions that a stale cache must not make. Each answers within 10 s. An object is absent
/// only if the API server answered that it has none of that name.
#[async_trait]
pub trait LiveReads: Send + Sync {
    /// The whole Node of this name.
    async fn node(&self, name: &str) -> Presence<Node>;

    /// The whole Service of this name.
    async fn service(&self, namespace: &str, name: &str) -> Presence<Service>;

    /// What identifies the cluster: the UID of its namespace `kube-system`.
    ///
    /// # Errors
    /// Why it is not known, also if there is no such namespace.
    async fn cluster_uid(&self) -> Result<String, Unknown>;
}

/// Events about the cluster as a whole, for what is about no single object.
#[async_trait]
pub trait ClusterEvents: Send + Sync {
    /// Records a warning with this reason. The Event may be lost, so the caller also logs the message.
    async fn warn(&self, reason: Reason, message: &str);
}

/// A change of the nodes this process looks after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// The node of this name came, changed or went.
    Node(String),
    /// Look at every node.
    All,
}
