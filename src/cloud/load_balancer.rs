//! `LoadBalancer` of `cloud.go`, and the optional extension [`LoadBalancerFleet`].

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Node, Service};
use std::sync::Arc;

use super::error::Error;
use super::node::usable_addresses::UsableAddresses;
use super::permit::LeaderToken;
use super::reason::Reason;

/// `LoadBalancer` of `cloud.go`. Services and Nodes are read-only for the provider. Writing methods get a permit, which
/// the provider checks before each write.
#[async_trait]
pub trait LoadBalancer: Send + Sync {
    /// Status of the load balancer that this program created for `service`, if any.
    async fn get_load_balancer(
        &self,
        cluster_name: &str,
        service: &Service,
    ) -> Result<Option<LoadBalancerStatus>, Error>;

    /// The name of the load balancer of `service`, for internal use by the provider.
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

    /// Deletes the load balancer. Succeeds if nothing is left.
    async fn ensure_load_balancer_deleted(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        service: &Service,
    ) -> Result<(), Error>;
}

/// The message of the Go program for a load balancer without Nodes.
pub const NO_NODES: &str = "There are no available nodes for the load balancer";

/// All load balancers of a provider together. Not in `cloud.go`: upstream calls the provider for each Service alone.
/// With the default methods, a plain [`LoadBalancer`] behaves as upstream.
#[async_trait]
pub trait LoadBalancerFleet: LoadBalancer {
    /// Whether this provider implements the load balancer of `service`. Reads only the Service: no I/O.
    fn handles(&self, _service: &Service) -> Handling {
        Handling::Handled
    }

    /// Sets the same `nodes` for all `services`; returns one result each, in their order. A single call per change of
    /// the Nodes lets a provider write shared objects once.
    async fn update_nodes(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        services: &[Arc<Service>],
        nodes: &[Arc<Node>],
    ) -> Vec<Result<(), Error>> {
        let mut results = Vec::with_capacity(services.len());
        for service in services {
            results.push(self.update_load_balancer(permit, cluster_name, service, nodes).await);
        }
        results
    }

    /// Prefixes of the annotations that a load balancer depends on; a change of any other annotation triggers no sync.
    /// By default, all annotations that the cache keeps ([`ANNOTATIONS`](super::service::cache_filter::ANNOTATIONS)).
    fn annotation_prefixes(&self) -> &[&str] {
        &[""]
    }

    /// Reason and message of an Event for the owner of a Service whose load balancer was ensured or deleted. Each
    /// remark is returned once; `None` when all were returned.
    fn remark(&self, _service: &Service) -> Option<(Reason, String)> {
        None
    }

    /// The reason why the load balancer has no targets after it was ensured or updated with these Nodes: there are no
    /// Nodes, or none has a usable address of one of its address families. `None` if no such reason is known. No I/O.
    fn without_nodes(&self, _service: &Service, nodes: &[Arc<Node>]) -> Option<String> {
        nodes.is_empty().then(|| NO_NODES.to_owned())
    }

    /// Addresses of a Node that load balancers send traffic to. The provider announces a change of these addresses as a
    /// change of the instance. No I/O.
    fn usable_addresses(&self, _node: &Node) -> UsableAddresses {
        UsableAddresses::All
    }

    /// Whether the address of a load balancer must be written to a Service that lacks it before the load balancer is
    /// deleted. The address identifies the owner of objects that an interrupted deletion leaves.
    fn needs_address_before_deletion(&self) -> bool {
        false
    }

    /// Announces, from now on, Services that need a sync although they did not change.
    fn subscribe(&self) -> BoxStream<'static, ServiceEvent> {
        Box::pin(futures::stream::pending())
    }
}

/// Whether a provider implements the load balancer of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handling {
    /// The provider implements it.
    Handled,
    /// Another program may implement it. Nothing is created, and the Service gets no finalizer.
    Declined,
    /// The provider would implement it, but the Service is invalid.
    Invalid {
        /// The reason.
        reason: Reason,
        /// What is wrong, and what is expected.
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
    /// Possibly the load balancers of all Services: the subscriber lagged behind, or the provider knows no details.
    All,
}
