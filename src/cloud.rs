//! The contract between controllers and clouds; mirrors `cloud.go` of `kubernetes/cloud-provider`.
//!
//! It uses the types of Kubernetes (`k8s-openapi`) and does no I/O: no API server, no HTTP, no vendor.

pub mod adapter;
pub mod cluster;
pub mod error;
pub mod instances;
pub mod load_balancer;
pub mod login_ledger;
pub mod node;
pub mod permit;
pub mod presence;
pub mod reason;
pub mod routes;
pub mod service;
pub mod zones;

use async_trait::async_trait;
use futures::stream::BoxStream;
use std::sync::Arc;

pub use cluster::{ClusterEvents, ClusterReads, LiveReads, NodeChange};
pub use error::Error;
pub use instances::{
    FoundBy, InstanceEvent, InstanceEvents, InstanceMetadata, Instances, InstancesV2, Power, PowerState,
};
pub use load_balancer::{Handling, LoadBalancer, LoadBalancerFleet, NO_NODES, ServiceEvent};
pub use node::usable_addresses::UsableAddresses;
pub use permit::LeaderToken;
pub use presence::{AbsenceProof, Presence, Unknown};
pub use reason::Reason;
pub use routes::{Route, Routes};
pub use zones::{Zone, Zones};

/// A cloud provider; `Interface` of `cloud.go`. Optional capabilities are `Option`s. Load balancers and routes may
/// appear and disappear at run time, so callers request them for each use.
///
/// Differences from upstream: there is no `Initialize` (the provider returns its background work to `app` as named
/// futures when it is built), and a provider decides which provider IDs are its own.
pub trait CloudProvider: Send + Sync {
    /// The provider's name, also the scheme of provider IDs in the older contract.
    fn provider_name(&self) -> &'static str;

    /// Whether `provider_id` belongs to this provider. A Node with a foreign one is never touched.
    fn owns_provider_id(&self, provider_id: &str) -> bool;

    /// The current instance contract.
    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        None
    }

    /// Changes of instances; without them, controllers rely on their resync period.
    fn instance_events(&self) -> Option<Arc<dyn InstanceEvents>> {
        None
    }

    /// The older instance contract.
    fn instances(&self) -> Option<Arc<dyn Instances>> {
        None
    }

    /// Zones of the older contract.
    fn zones(&self) -> Option<Arc<dyn Zones>> {
        None
    }

    /// Load balancers for Services. Returns the same object as long as its state is valid; if another object is
    /// returned, controllers drop what they know.
    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        None
    }

    /// The same load balancers as a fleet, if the provider offers that.
    fn load_balancer_fleet(&self) -> Option<Arc<dyn LoadBalancerFleet>> {
        None
    }

    /// Routes of the pod network. Returns the same object as long as its state is valid, as
    /// [`CloudProvider::load_balancer`] does.
    fn routes(&self) -> Option<Arc<dyn Routes>> {
        None
    }

    /// Whether the active configuration has no routes. False while routes are configured but unavailable (not built
    /// yet, invalid configuration, no answer), and while this is unknown.
    fn routes_are_off(&self) -> bool {
        false
    }

    /// Announces from now on that [`CloudProvider::load_balancer`], [`CloudProvider::routes`] or
    /// [`CloudProvider::routes_are_off`] may have changed.
    fn capability_changes(&self) -> BoxStream<'static, ()> {
        Box::pin(futures::stream::pending())
    }

    /// The clusters of the cloud.
    fn clusters(&self) -> Option<Arc<dyn Clusters>> {
        None
    }
}

/// `Clusters` of `cloud.go`. No controller calls it.
#[async_trait]
pub trait Clusters: Send + Sync {
    /// The names of the clusters.
    async fn list_clusters(&self) -> Result<Vec<String>, Error>;

    /// The address of the control plane of the cluster of this name.
    async fn master(&self, cluster_name: &str) -> Result<String, Error>;
}
