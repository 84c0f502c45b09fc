//! `Clusters` of `cloud.go`. No controller calls it.

use async_trait::async_trait;

use super::error::Error;

/// `Clusters` of `cloud.go`.
#[async_trait]
pub trait Clusters: Send + Sync {
    /// The names of the clusters.
    async fn list_clusters(&self) -> Result<Vec<String>, Error>;

    /// The address of the control plane of the cluster of this name.
    async fn master(&self, cluster_name: &str) -> Result<String, Error>;
}
