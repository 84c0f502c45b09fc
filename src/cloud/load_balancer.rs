//! `LoadBalancer` of `cloud.go`, and [`LoadBalancerFleet`], which a provider may offer beside it.

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Node, Service};
use std::sync::Arc;

use super::error::Error;
use super::node::usable_addresses::UsableAddresses;
use super::permit::LeaderToken;
use super::reason::Reason;

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
        permit: &LeaderToken,
        cluster_name: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<LoadBalancerStatus, Error>;

    /// Only the set of backend nodes changed.
    async fn update_load_balancer(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<(), Error>;

    /// Deletes; succeeds when nothing is left.
    async fn ensure_load_balancer_deleted(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        service: &Service,
    ) -> Result<(), Error>;
}

/// The message of the Go program for a load balancer without nodes.
pub const NO_NODES: &str = "There are no available nodes for the load balancer";

/// All load balancers of a provider together. Ours: upstream asks for each Service alone. Each method has a default, with
/// which a plain [`LoadBalancer`] behaves as upstream.
#[async_trait]
pub trait LoadBalancerFleet: LoadBalancer {
    /// Whether this provider makes the load balancer of `service`. Reads only the Service: no I/O.
    fn handles(&self, _service: &Service) -> Handling {
        Handling::Handled
    }

    /// The same `nodes` for all of `services`: one result each, in their order. One call for a change of the nodes, so that
    /// a provider can write what the load balancers share once.
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

    /// How the annotations begin that a load balancer depends on. A change of any other annotation is no reason to ensure a
    /// load balancer again. The default is every annotation that the cache keeps ([`ANNOTATIONS`](super::service::cache_filter::ANNOTATIONS)).
    fn annotation_prefixes(&self) -> &[&str] {
        &[""]
    }

    /// What the owner of a Service has to know about its load balancer, which was ensured or deleted: the word and the message of an
    /// Event. Each remark is given once; none when all were given.
    fn remark(&self, _service: &Service) -> Option<(Reason, String)> {
        None
    }

    /// Why the load balancer of a Service, which was ensured or updated with these nodes, leads to none of them, or to none for
    /// one family of addresses. None if it does. No I/O.
    fn without_nodes(&self, _service: &Service, nodes: &[Arc<Node>]) -> Option<String> {
        nodes.is_empty().then(|| NO_NODES.to_owned())
    }

    /// Which addresses of a Node load balancers send traffic to. A change is announced as one of the instance. No I/O.
    fn usable_addresses(&self, _node: &Node) -> UsableAddresses {
        UsableAddresses::All
    }

    /// Whether the address of a load balancer that the Service does not report is to be written to it before the load
    /// balancer is deleted, because it shows whose the parts are that an interrupted deletion leaves.
    fn needs_address_before_deletion(&self) -> bool {
        false
    }

    /// Announces Services that are to be synced again although they did not change, from now on.
    fn subscribe(&self) -> BoxStream<'static, ServiceEvent> {
        Box::pin(futures::stream::pending())
    }
}

/// Whether a provider makes the load balancer of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handling {
    /// It does.
    Handled,
    /// Another program does, if any. Nothing is created, and the Service gets no finalizer.
    Declined,
    /// It would, but cannot as the Service is.
    Invalid {
        /// The word for what is wrong.
        reason: Reason,
        /// What is wrong, and what is expected.
        message: String,
    },
}

/// What a provider announces of load balancers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceEvent {
    /// Of this Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Possibly of every Service: the subscriber fell behind, or the provider cannot tell.
    All,
}
