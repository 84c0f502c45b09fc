//! `Routes` of `cloud.go`.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::NodeAddress;

use super::error::Error;
use super::permit::LeaderToken;

/// One route of the cluster's pod network; `Route` of `cloud.go`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Route {
    /// The route's name in the cloud; empty on input of [`Routes::create_route`].
    pub name: String,
    /// The Node of the route; empty for a blackhole.
    pub target_node: String,
    /// Whether `target_node_addresses` must be compared; set by the provider in [`Routes::list_routes`].
    pub enable_node_addresses: bool,
    /// The addresses of the target.
    pub target_node_addresses: Vec<NodeAddress>,
    /// The destination, as CIDR text.
    pub destination_cidr: String,
    /// Whether the route drops its traffic.
    pub blackhole: bool,
}

/// `Routes` of `cloud.go`. Writing methods get a permit, which the provider checks before each write.
#[async_trait]
pub trait Routes: Send + Sync {
    /// All routes managed for the cluster of this name.
    async fn list_routes(&self, cluster_name: &str) -> Result<Vec<Route>, Error>;

    /// Creates `route`; `name_hint` is the Node's UID.
    async fn create_route(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        name_hint: &str,
        route: &Route,
    ) -> Result<(), Error>;

    /// Deletes `route`, exactly as it was listed.
    async fn delete_route(&self, permit: &LeaderToken, cluster_name: &str, route: &Route) -> Result<(), Error>;

    /// Whether [`Routes::create_route`] changes a route's addresses without an interruption, so that the old route must
    /// not be deleted first. Not in `cloud.go`: the Go program deletes the route and creates it again.
    fn rewrites_in_place(&self) -> bool {
        false
    }

    /// Number of ambiguous routes that the last list left out, because nothing shows whether they belong to this
    /// cluster. They are neither changed nor deleted. Not in `cloud.go`.
    fn ambiguous_routes(&self) -> usize {
        0
    }
}
