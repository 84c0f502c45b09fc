//! The older contract of `cloud.go`: `Instances`, `Zones` and `Clusters`. An adapter turns `Instances` and `Zones` into
//! `InstancesV2`, so that controllers need only one contract.
//!
//! Mirrors the older path of `getInstanceMetadata` and `getProviderID` in `controllers/node/node_controller.go` and
//! `ensureNodeExistsByProviderID` in `controllers/nodelifecycle/node_lifecycle_controller.go`.

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use std::sync::Arc;
use std::time::Duration;

use super::error::Error;
use super::instances::{InstanceMetadata, InstancesV2, Power, PowerState};
use super::presence::{AbsenceProof, Presence, Unknown};
use super::{CloudProvider, node};
use crate::base::error_chain::chain;

/// `Instances` of `cloud.go`, the older contract. Controllers use implementations through [`instances_v2_of`].
#[async_trait]
pub trait Instances: Send + Sync {
    /// Returns the addresses of the instance of the Node with this name.
    async fn node_addresses(&self, node_name: &str) -> Result<Vec<NodeAddress>, Error>;

    /// Returns the addresses of the instance with this provider ID. The provider ID may be empty.
    async fn node_addresses_by_provider_id(&self, provider_id: &str) -> Result<Vec<NodeAddress>, Error>;

    /// Returns the id of the instance of the Node with this name, without the provider's prefix. Fails with
    /// [`Error::InstanceNotFound`] if the instance does not exist, and with [`Error::NotImplemented`] if the cloud has
    /// no ids. A stopped instance exists.
    async fn instance_id(&self, node_name: &str) -> Result<String, Error>;

    /// Returns the type of the instance of the Node with this name. The type may be empty.
    async fn instance_type(&self, node_name: &str) -> Result<String, Error>;

    /// Returns the type of the instance with this provider ID. The type may be empty.
    async fn instance_type_by_provider_id(&self, provider_id: &str) -> Result<String, Error>;

    /// Returns whether the instance with this provider ID exists, running or stopped. `Ok(false)` is upstream's proof
    /// of absence.
    async fn instance_exists_by_provider_id(&self, provider_id: &str) -> Result<bool, Error>;

    /// Returns whether the instance with this provider ID is shut down. [`Error::NotImplemented`] means that the state
    /// is unknown.
    async fn instance_shutdown_by_provider_id(&self, provider_id: &str) -> Result<bool, Error>;
}

/// The location of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// The failure domain; may be empty.
    pub failure_domain: String,
    /// The region; may be empty.
    pub region: String,
}

/// `Zones` of `cloud.go`, without `GetZone` (the zone of the VM that runs the program). No controller calls `GetZone`.
#[async_trait]
pub trait Zones: Send + Sync {
    /// Returns the zone of the instance with this provider ID.
    async fn zone_by_provider_id(&self, provider_id: &str) -> Result<Zone, Error>;

    /// Returns the zone of the instance of the Node with this name.
    async fn zone_by_node_name(&self, node_name: &str) -> Result<Zone, Error>;
}

/// `Clusters` of `cloud.go`. No controller calls it.
#[async_trait]
pub trait Clusters: Send + Sync {
    /// Returns the names of the clusters.
    async fn list_clusters(&self) -> Result<Vec<String>, Error>;

    /// Returns the control plane address of the cluster with this name.
    async fn master(&self, cluster_name: &str) -> Result<String, Error>;
}

/// Returns the provider's `InstancesV2`. If the provider has only [`Instances`], returns an adapter. Returns `None` if
/// the provider has neither.
pub fn instances_v2_of(provider: &dyn CloudProvider) -> Option<Arc<dyn InstancesV2>> {
    provider.instances_v2().or_else(|| {
        let (provider_name, instances) = (provider.provider_name(), provider.instances()?);
        Some(Arc::new(FromInstances { provider_name, instances, zones: provider.zones() }) as Arc<dyn InstancesV2>)
    })
}

/// Adapter from the older contract ([`Instances`] and [`Zones`]) to the current contract ([`InstancesV2`]).
struct FromInstances {
    /// The scheme of provider IDs.
    provider_name: &'static str,
    instances: Arc<dyn Instances>,
    /// `None` if the cloud has no zones.
    zones: Option<Arc<dyn Zones>>,
}

impl FromInstances {
    /// Returns the Node's provider ID. If the Node has none, builds one from the id of the instance.
    async fn provider_id(&self, node: &Node) -> Result<String, Error> {
        let present = node::provider_id(node);
        if !present.is_empty() {
            return Ok(present.to_owned());
        }
        let id = self.instances.instance_id(node::name(node)).await?;
        if id.is_empty() {
            // Upstream would return `name://`, which identifies no instance and can never be corrected.
            return Err(Error::other(format!("the cloud gives an empty id for Node {}", node::name(node))));
        }
        Ok(format!("{}://{id}", self.provider_name))
    }

    async fn zone(&self, provider_id: &str, node_name: &str) -> Result<Zone, Error> {
        let Some(zones) = &self.zones else { return Ok(Zone::default()) };
        either("the zone", node_name, zones.zone_by_provider_id(provider_id), zones.zone_by_node_name(node_name)).await
    }

    async fn metadata(&self, node: &Node) -> Result<InstanceMetadata, Error> {
        let provider_id = match self.provider_id(node).await {
            // The cloud has no ids, but other data may be available by name.
            Err(Error::NotImplemented) => String::new(),
            other => other?,
        };
        let name = node::name(node);
        let by_id = self.instances.node_addresses_by_provider_id(&provider_id);
        let node_addresses = either("node addresses", name, by_id, self.instances.node_addresses(name)).await?;
        let by_id = self.instances.instance_type_by_provider_id(&provider_id);
        let instance_type = either("the instance type", name, by_id, self.instances.instance_type(name)).await?;
        let Zone { failure_domain, region } = self.zone(&provider_id, name).await?;
        Ok(InstanceMetadata {
            provider_id,
            instance_type,
            node_addresses,
            zone: failure_domain,
            region,
            ..InstanceMetadata::default()
        })
    }
}

#[async_trait]
impl InstancesV2 for FromInstances {
    async fn instance_exists(&self, node: &Node) -> Presence {
        let exists = async {
            let provider_id = self.provider_id(node).await?;
            Ok(match self.instances.instance_exists_by_provider_id(&provider_id).await? {
                true => Presence::Exists(()),
                false => {
                    let name = self.provider_name;
                    let evidence = format!("provider {name} answers that {provider_id} does not exist");
                    Presence::Absent(AbsenceProof::new(evidence, []))
                }
            })
        };
        exists.await.unwrap_or_else(unknown)
    }

    async fn instance_power(&self, node: &Node) -> Presence<Power> {
        self.read_instance_power(node).await.map(|state| Power { state, lasting: Duration::ZERO })
    }

    /// Reads the power state. The older contract has one state for all VMs that do not run. If the cloud cannot return
    /// the state, the result is unknown. Upstream then assumes a running VM. Neither result changes the shutdown taint.
    async fn read_instance_power(&self, node: &Node) -> Presence<PowerState> {
        let is_shut_down = async {
            let provider_id = self.provider_id(node).await?;
            self.instances.instance_shutdown_by_provider_id(&provider_id).await
        };
        let state = |is_shut_down| if is_shut_down { PowerState::NotRunning } else { PowerState::On };
        is_shut_down.await.map_or_else(unknown, |is_shut_down| Presence::Exists(state(is_shut_down)))
    }

    async fn instance_metadata(&self, node: &Node) -> Presence<InstanceMetadata> {
        self.metadata(node).await.map_or_else(unknown, Presence::Exists)
    }
}

/// Converts an error to an unknown presence. An error of the older contract never proves absence.
fn unknown<T>(error: Error) -> Presence<T> {
    Presence::Unknown(Unknown { retry_after: error.retry_after(), ..Unknown::new(error.reason(), chain(&error)) })
}

/// Reads by provider ID and, if that read fails, by name. If both reads fail, returns the second error with both
/// messages. Some kinds of errors become [`Error::Other`].
async fn either<T>(
    what: &str,
    node_name: &str,
    by_provider_id: impl Future<Output = Result<T, Error>>,
    by_name: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let first = match by_provider_id.await {
        Ok(found) => return Ok(found),
        Err(first) => chain(&first),
    };
    by_name.await.map_err(|second| {
        let second_chain = chain(&second);
        let message =
            format!("reading {what} of Node {node_name} by provider ID failed ({first}), and by name ({second_chain})");
        match second {
            Error::RetryAfter { after, .. } => Error::RetryAfter { message, after },
            Error::Pending { after, .. } => Error::Pending { message, after },
            Error::Exhausted { reason, after, .. } => Error::Exhausted { reason, message, after },
            Error::Invalid { reason, .. } => Error::Invalid { reason, message },
            Error::Denied { .. } => Error::Denied { message },
            Error::Unavailable { .. } => Error::Unavailable { message, source: None },
            Error::InstanceNotFound => Error::InstanceNotFound,
            _ => Error::other(message),
        }
    })
}
