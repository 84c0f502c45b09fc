//! `Routes` of `cloud.go`.

use async_trait::async_trait;
use k8s_openapi::api::core::v1::NodeAddress;

use super::error::Error;
use super::permit::LeaderToken;

/// A route of the pod network; `Route` of `cloud.go`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Route {
    /// The route's name in the cloud. Empty in the input of [`Routes::create_route`].
    pub name: String,
    /// The target Node. Empty for a blackhole.
    pub target_node: String,
    /// Whether the controller must compare `target_node_addresses`. Set by [`Routes::list_routes`].
    pub enable_node_addresses: bool,
    /// The addresses of the target.
    pub target_node_addresses: Vec<NodeAddress>,
    /// The destination in CIDR notation.
    pub destination_cidr: String,
    /// Whether the route drops its traffic.
    pub blackhole: bool,
}

/// `Routes` of `cloud.go`. Methods that write get a permit, which the provider checks before each write.
#[async_trait]
pub trait Routes: Send + Sync {
    /// Returns all routes managed for the cluster of this name.
    async fn list_routes(&self, cluster_name: &str) -> Result<Vec<Route>, Error>;

    /// Creates `route`; `name_hint` is the Node's UID.
    async fn create_route(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        name_hint: &str,
        route: &Route,
    ) -> Result<(), Error>;

    /// Deletes `route`, which must equal a route that [`Routes::list_routes`] returned.
    async fn delete_route(&self, permit: &LeaderToken, cluster_name: &str, route: &Route) -> Result<(), Error>;

    /// Returns true if [`Routes::create_route`] changes the addresses of a route without an interruption. If false, the
    /// old route is deleted first, as in the Go program. Not in `cloud.go`.
    fn rewrites_in_place(&self) -> bool {
        false
    }

    /// Returns the number of routes that the last list omitted, because they may belong to another cluster. Such routes
    /// are neither changed nor deleted. Not in `cloud.go`.
    fn ambiguous_routes(&self) -> usize {
        0
    }
}
