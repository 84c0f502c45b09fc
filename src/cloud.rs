//! The contract between controllers and clouds, mirroring `cloud.go` of `kubernetes/cloud-provider`.
//!
//! It knows the vocabulary of Kubernetes (`k8s-openapi`) and no I/O: no API server, no HTTP, no vendor.

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

/// A cloud provider; `Interface` of `cloud.go`. Optional capabilities are `Option`, as there. Load balancers and routes may
/// appear and go while the process runs: callers ask for them at each use.
///
/// Differences from upstream: there is no `Initialize` (background work is handed to `app` as named futures when the
/// provider is built), and a provider says itself which provider IDs are its own.
pub trait CloudProvider: Send + Sync {
    /// The provider's name, also the scheme of the provider IDs of the older contract.
    fn provider_name(&self) -> &'static str;

    /// Whether `provider_id` names an instance of this provider. A node with another one is never touched.
    fn owns_provider_id(&self, provider_id: &str) -> bool;

    /// The current instance contract.
    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        None
    }

    /// Changes of instances; without them the controllers rely on their period.
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

    /// Load balancers for Services. The same object for as long as what it knows holds: with another one controllers start
    /// from scratch.
    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        None
    }

    /// The same load balancers as a fleet, if the provider offers that.
    fn load_balancer_fleet(&self) -> Option<Arc<dyn LoadBalancerFleet>> {
        None
    }

    /// Routes of the pod network; see [`CloudProvider::load_balancer`].
    fn routes(&self) -> Option<Arc<dyn Routes>> {
        None
    }

    /// Whether the configuration that is in use says that the cluster has no routes. False while routes are configured and
    /// cannot be served (not built yet, refused configuration, no answer), and while nothing is known.
    fn routes_are_off(&self) -> bool {
        false
    }

    /// Announces that [`CloudProvider::load_balancer`] or [`CloudProvider::routes`] may have appeared or gone, or that
    /// [`CloudProvider::routes_are_off`] may have changed, from now on.
    fn capability_changes(&self) -> BoxStream<'static, ()> {
        Box::pin(futures::stream::pending())
    }

    /// Clusters.
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
