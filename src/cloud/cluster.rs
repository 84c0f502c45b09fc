//! The few things a provider may ask of the Kubernetes cluster.

use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use std::sync::Arc;

/// Reads of the cluster, implemented over the shared caches and handed to the provider by `app`.
pub trait ClusterReads: Send + Sync {
    /// The nodes this process looks after, from the cache; empty until the cache has filled.
    fn nodes(&self) -> Vec<Arc<Node>>;

    /// Announces that [`ClusterReads::nodes`] may give another answer. The first item comes when the cache has
    /// filled; changes in between are coalesced into one.
    fn node_changes(&self) -> BoxStream<'static, ()>;
}
