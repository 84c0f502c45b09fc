//! The contract between controllers and clouds. Mirrors `cloud.go` of `kubernetes/cloud-provider`. Uses the types of
//! `k8s-openapi`, and does no I/O.

pub mod cluster;
pub mod error;
pub mod instances;
pub mod legacy;
pub mod load_balancer;
pub mod login_ledger;
pub mod node;
pub mod object_size;
pub mod permit;
pub mod presence;
pub mod reason;
pub mod routes;
pub mod service;

use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use std::sync::Arc;

pub use cluster::{ClusterEvents, ClusterReads, LiveReads, NodeChange};
pub use error::Error;
pub use instances::{FoundBy, InstanceEvent, InstanceEvents, InstanceMetadata, InstancesV2, Power, PowerState};
pub use legacy::{Clusters, Instances, Zone, Zones};
pub use load_balancer::{Handling, LoadBalancer, NO_NODES, ServiceEvent};
pub use node::usable_addresses::UsableAddresses;
pub use permit::LeaderToken;
pub use presence::{AbsenceProof, Presence, Unknown};
pub use reason::Reason;
pub use routes::{Route, Routes};

/// A cloud provider; `Interface` of `cloud.go`. Optional capabilities are `Option`s. Load balancers and routes can
/// appear and disappear at run time, so callers request them for each use. Unlike upstream, there is no `Initialize`:
/// the constructor of a provider returns the background work to `app` as named futures.
pub trait CloudProvider: Send + Sync {
    /// Returns the provider's name. The name is also the scheme of provider IDs in the older instance contract
    /// ([`Instances`]).
    fn provider_name(&self) -> &'static str;

    /// Returns true if `provider_id` belongs to this provider. A Node with a foreign provider ID is never changed.
    fn owns_provider_id(&self, provider_id: &str) -> bool;

    /// Returns true if `node` belongs to this provider, or has no provider ID yet.
    fn owns(&self, node: &Node) -> bool {
        let provider_id = node::provider_id(node);
        provider_id.is_empty() || self.owns_provider_id(provider_id)
    }

    /// Returns the current instance contract, if the provider implements it.
    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        None
    }

    /// Returns the source of instance changes. Without a source, controllers rely on their resync period.
    fn instance_events(&self) -> Option<Arc<dyn InstanceEvents>> {
        None
    }

    /// Returns the older instance contract, if the provider implements it.
    fn instances(&self) -> Option<Arc<dyn Instances>> {
        None
    }

    /// Returns the zones of the older instance contract.
    fn zones(&self) -> Option<Arc<dyn Zones>> {
        None
    }

    /// Returns the load balancers for Services. Returns the same object as long as its state is valid, because
    /// controllers drop their cached state when the object changes.
    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        None
    }

    /// Returns the routes of the pod network. Returns the same object as long as its state is valid.
    fn routes(&self) -> Option<Arc<dyn Routes>> {
        None
    }

    /// Returns true if the active configuration has no routes. Returns false if routes are configured but unavailable
    /// (not built yet, invalid configuration, no answer), or if the configuration is unknown.
    fn routes_are_off(&self) -> bool {
        false
    }

    /// Returns a stream that announces future changes of `load_balancer`, `routes` and `routes_are_off`.
    fn capability_changes(&self) -> BoxStream<'static, ()> {
        Box::pin(futures::stream::pending())
    }

    /// Returns the clusters of the cloud.
    fn clusters(&self) -> Option<Arc<dyn Clusters>> {
        None
    }
}
