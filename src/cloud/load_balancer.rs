//! `LoadBalancer` of `cloud.go`, with further methods that have defaults.

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Node, Service};
use std::sync::Arc;

use super::error::Error;
use super::node::usable_addresses::UsableAddresses;
use super::permit::LeaderToken;
use super::reason::Reason;

/// The Go program's message for a load balancer without Nodes.
pub const NO_NODES: &str = "There are no available nodes for the load balancer";

/// `LoadBalancer` of `cloud.go`. The provider must not change Services or Nodes. Methods that write get a permit, which
/// the provider checks before each write. The methods with defaults are not in `cloud.go`. With the defaults, a provider
/// behaves as upstream.
#[async_trait]
pub trait LoadBalancer: Send + Sync {
    /// Returns the status of the load balancer that this program created for `service`, if any.
    async fn get_load_balancer(
        &self,
        cluster_name: &str,
        service: &Service,
    ) -> Result<Option<LoadBalancerStatus>, Error>;

    /// Returns the name of the load balancer of `service`, for internal use by the provider.
    fn load_balancer_name(&self, cluster_name: &str, service: &Service) -> String;

    /// Creates or updates the load balancer. Idempotent.
    async fn ensure_load_balancer(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<LoadBalancerStatus, Error>;

    /// Updates the set of backend Nodes.
    async fn update_load_balancer(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<(), Error>;

    /// Deletes the load balancer. Succeeds if no load balancer exists.
    async fn ensure_load_balancer_deleted(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        service: &Service,
    ) -> Result<(), Error>;

    /// Returns whether this provider implements the load balancer of `service`. Reads only the Service, without I/O.
    fn handles(&self, _service: &Service) -> Handling {
        Handling::Handled
    }

    /// Sets the same `nodes` for all `services`, so that objects that they share are written once. Returns one result for
    /// each Service, in the same order. Returns `None` if the provider has no such call. The Services are then updated
    /// separately.
    async fn update_nodes(
        &self,
        _permit: &LeaderToken,
        _cluster_name: &str,
        _services: &[Arc<Service>],
        _nodes: &[Arc<Node>],
    ) -> Option<Vec<Result<(), Error>>> {
        None
    }

    /// Returns the prefixes of the annotations that a load balancer depends on. Other annotations trigger no sync. By
    /// default, all cached annotations trigger a sync ([`ANNOTATIONS`](super::service::cache_filter::ANNOTATIONS)).
    fn annotation_prefixes(&self) -> &[&str] {
        &[""]
    }

    /// Returns the reason and the message of an Event for a Service whose load balancer was ensured or deleted. Returns
    /// each remark once, and `None` after the last remark.
    fn remark(&self, _service: &Service) -> Option<(Reason, String)> {
        None
    }

    /// Returns the reason why the load balancer has no targets after it was ensured or updated with these Nodes: there
    /// are no Nodes, or no Node has a usable address of an IP family of the load balancer. Otherwise returns `None`.
    /// Does no I/O.
    fn without_nodes(&self, _service: &Service, nodes: &[Arc<Node>]) -> Option<String> {
        nodes.is_empty().then(|| NO_NODES.to_owned())
    }

    /// Returns the addresses of a Node that load balancers are allowed to send traffic to. The provider announces a
    /// change of these addresses as a change of the instance. Does no I/O.
    fn usable_addresses(&self, _node: &Node) -> UsableAddresses {
        UsableAddresses::All
    }

    /// Returns true if a Service without an address must get the address of its load balancer before the load balancer
    /// is deleted. The address identifies the owner of objects that an interrupted deletion leaves behind.
    fn needs_address_before_deletion(&self) -> bool {
        false
    }

    /// Returns a stream of Services that need a sync although they did not change.
    fn subscribe(&self) -> BoxStream<'static, ServiceEvent> {
        Box::pin(futures::stream::pending())
    }
}

/// A provider's responsibility for the load balancer of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handling {
    /// The provider implements the load balancer.
    Handled,
    /// Another program may implement the load balancer. Nothing is created, and the Service gets no finalizer.
    Declined,
    /// The provider would implement the load balancer, but the Service is invalid.
    Invalid {
        /// The reason.
        reason: Reason,
        /// The invalid part, and the expected content.
        message: String,
    },
}

/// Load balancers that need a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceEvent {
    /// The load balancer of one Service.
    Service {
        /// The Service's namespace.
        namespace: String,
        /// The Service's name.
        name: String,
    },
    /// Possibly the load balancers of all Services: the subscriber lagged behind, or the provider has no details.
    All,
}
