//! A provider's access to the Kubernetes cluster: cached Nodes, live reads of the API server, and Events about the
//! cluster.

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, Service};
use std::sync::Arc;

use super::presence::{Presence, Unknown};
use super::reason::Reason;

/// Cached reads of the cluster, implemented over the shared caches and passed to the provider by `app`.
///
/// Cached Nodes lack unread fields; [`node::cache_filter`](super::node::cache_filter) lists them.
pub trait ClusterReads: Send + Sync {
    /// The cached Nodes that this process manages; empty until the cache has synced.
    fn nodes(&self) -> Box<dyn Iterator<Item = Arc<Node>> + Send + '_>;

    /// The cached Node of this name.
    fn node(&self, name: &str) -> Option<Arc<Node>>;

    /// Whether the cache has a Service of this key, such as `default/web`, with the type `LoadBalancer` or the
    /// finalizer.
    fn has_service(&self, key: &str) -> bool;

    /// Announces changes of [`ClusterReads::nodes`]. The first item is [`NodeChange::All`], once the cache has synced.
    fn node_changes(&self) -> BoxStream<'static, NodeChange>;
}

/// Live reads of the API server, for decisions that must not use stale data. Each returns within 10 s. An object is
/// absent only if the API server answered that it does not exist.
#[async_trait]
pub trait LiveReads: Send + Sync {
    /// The complete Node of this name.
    async fn node(&self, name: &str) -> Presence<Node>;

    /// The complete Service of this name.
    async fn service(&self, namespace: &str, name: &str) -> Presence<Service>;

    /// The identity of the cluster: the UID of its namespace `kube-system`.
    ///
    /// # Errors
    /// Why the UID is not known, also if the namespace does not exist.
    async fn cluster_uid(&self) -> Result<String, Unknown>;
}

/// Events that concern the cluster and no single object.
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
    /// Every Node may have changed.
    All,
}
