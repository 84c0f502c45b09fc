//! `LoadBalancer` of `cloud.go`.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Node, Service};
use std::sync::Arc;

use super::error::Error;
use super::permit::WritePermit;

/// `LoadBalancer` of `cloud.go`. Services and nodes are read-only for the provider. What writes gets a
/// permit, which the provider checks before each write.
#[async_trait]
pub trait LoadBalancer: Send + Sync {
    /// The status of the load balancer made for `service`, or none if this program made none.
    async fn get_load_balancer(
        &self,
        cluster_name: &str,
        service: &Service,
    ) -> Result<Option<LoadBalancerStatus>, Error>;

    /// The name of the load balancer of `service`, for the provider's own use.
    fn load_balancer_name(&self, cluster_name: &str, service: &Service) -> String;

    /// Creates or updates; called again with the same arguments it changes nothing.
    async fn ensure_load_balancer(
        &self,
        permit: &WritePermit,
        cluster_name: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<LoadBalancerStatus, Error>;

    /// Only the set of backend nodes changed.
    async fn update_load_balancer(
        &self,
        permit: &WritePermit,
        cluster_name: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<(), Error>;

    /// Deletes; succeeds when nothing is left.
    async fn ensure_load_balancer_deleted(
        &self,
        permit: &WritePermit,
        cluster_name: &str,
        service: &Service,
    ) -> Result<(), Error>;
}
