//! `Instances` and `InstancesV2` of `cloud.go`, and the stream of instance changes (not in `cloud.go`).

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use std::collections::BTreeMap;
use std::time::Duration;

use super::error::Error;
use super::presence::{Presence, Unknown};

/// A provider's data about the VM behind a Node; `InstanceMetadata` of `cloud.go`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InstanceMetadata {
    /// Value for an empty `spec.providerID`.
    pub provider_id: String,
    /// Value of both instance-type labels; if empty, they stay unchanged.
    pub instance_type: String,
    /// The addresses, in order of preference; if empty, the Node's stay unchanged.
    pub node_addresses: Vec<NodeAddress>,
    /// Value of both zone labels; if empty, they stay unchanged.
    pub zone: String,
    /// Value of both region labels; if empty, they stay unchanged.
    pub region: String,
    /// Further labels, added at initialization if the key does not exist.
    pub additional_labels: BTreeMap<String, String>,
    /// Location labels under their own prefix, kept in sync with the VM; `None` removes a label. Labels not listed here
    /// stay unchanged.
    pub topology_labels: BTreeMap<String, Option<String>>,
    /// How the VM was found for this Node.
    pub found_by: FoundBy,
    /// The instance and its location, to be recorded on the Node; empty if the provider keeps no record.
    pub record: String,
    /// Whether the Node's record names this instance, even at another location.
    pub is_recorded: bool,
    /// Whether the record must be updated at once, because its location may be removed soon.
    pub is_record_urgent: bool,
    /// The Node that this VM backs under an earlier name, if the requested Node is being initialized. The earlier Node
    /// gets an Event.
    pub earlier_name: Option<String>,
    /// Why a Node must not be initialized yet although its instance is known, for example because a configured zone was
    /// not found. Blocks nothing on an initialized Node.
    pub pending: Option<Unknown>,
    /// Notes for operators that block nothing, for example an address family that the VM lacks. Logged when they
    /// change.
    pub messages: Vec<String>,
    /// Why this data may be stale, for example because the cloud does not answer. Blocks writes to the Node: the
    /// previous leader may have had newer data.
    pub stale: Option<Unknown>,
}

/// How a VM was matched to a Node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FoundBy {
    /// The Node's provider ID.
    #[default]
    ProviderId,
    /// The UUID that the kubelet reads from the firmware, unique to this VM.
    SystemUuid,
    /// The UUID that the kubelet reads from the firmware, shared with other VMs; a rule chose this VM.
    SystemUuidAmongSeveral,
    /// The Node's name alone.
    Name,
}

/// Power state of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PowerState {
    /// The VM runs.
    #[default]
    On,
    /// The VM is powered off.
    Off,
    /// The VM is halted with its memory kept; it may resume at any time.
    Suspended,
    /// The VM does not run; the cloud gives no details.
    NotRunning,
}

/// A proven power state: the cloud answers, and is connected to the VM and to its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Power {
    /// The state.
    pub state: PowerState,
    /// How long this process has known this state without interruption. Zero if the provider does not measure it.
    pub lasting: Duration,
}

/// `InstancesV2` of `cloud.go`: the contract that controllers use.
///
/// Every method answers from the provider's present state and returns quickly. Unknown data is [`Presence::Unknown`],
/// and [`InstanceEvents`] announces when that changes.
#[async_trait]
pub trait InstancesV2: Send + Sync {
    /// Whether the VM behind `node` exists.
    async fn instance_exists(&self, node: &Node) -> Presence;

    /// Whether the VM behind `node` is shut down; unknown if its power state is not proven.
    async fn instance_shutdown(&self, node: &Node) -> Presence<bool> {
        self.instance_power(node).await.map(|power| power.state != PowerState::On)
    }

    /// The proven power state of the VM behind `node`, and its duration. `cloud.go` has only whether the VM is shut
    /// down.
    async fn instance_power(&self, node: &Node) -> Presence<Power>;

    /// Like [`InstancesV2::instance_power`], but read live, for decisions that must not use stale data. The result is
    /// off only if no other VM with the Node's identity may run; otherwise it is unknown.
    async fn read_instance_power(&self, node: &Node) -> Presence<PowerState>;

    /// Provider ID, addresses, type, zone, region and labels of the VM behind `node`.
    async fn instance_metadata(&self, node: &Node) -> Presence<InstanceMetadata>;

    /// Confirms the provider's data with the cloud, so that no stale data counts as live: unconfirmed data is marked
    /// stale when this returns, within a few seconds. Called at the start of a term, because the previous leader may
    /// have had newer data. Not in `cloud.go`.
    async fn refresh(&self) {}
}

/// Changes of instances, which make polling unnecessary. `cloud.go` has no counterpart.
pub trait InstanceEvents: Send + Sync {
    /// A new subscription. A slow subscriber gets [`InstanceEvent::All`] instead of missed items.
    fn subscribe(&self) -> BoxStream<'static, InstanceEvent>;
}

/// A change of instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceEvent {
    /// The provider's answers for the Node of this name may have changed.
    Node(String),
    /// All answers may have changed: process every Node.
    All,
}

/// `Instances` of `cloud.go`, the older contract. Providers that implement it are used through `super::adapter`.
#[async_trait]
pub trait Instances: Send + Sync {
    /// The addresses of the instance behind the Node of this name.
    async fn node_addresses(&self, node_name: &str) -> Result<Vec<NodeAddress>, Error>;

    /// The addresses of the instance with this provider ID, which may be empty.
    async fn node_addresses_by_provider_id(&self, provider_id: &str) -> Result<Vec<NodeAddress>, Error>;

    /// The instance's id, without the provider's prefix. [`Error::InstanceNotFound`] if it does not exist (a stopped
    /// one does), [`Error::NotImplemented`] if the cloud has no ids.
    async fn instance_id(&self, node_name: &str) -> Result<String, Error>;

    /// The instance type; may be empty.
    async fn instance_type(&self, node_name: &str) -> Result<String, Error>;

    /// The instance type by provider ID; may be empty.
    async fn instance_type_by_provider_id(&self, provider_id: &str) -> Result<String, Error>;

    /// Whether the instance exists, running or stopped. `Ok(false)` is upstream's proof of absence.
    async fn instance_exists_by_provider_id(&self, provider_id: &str) -> Result<bool, Error>;

    /// Whether the instance is shut down. [`Error::NotImplemented`] counts as no.
    async fn instance_shutdown_by_provider_id(&self, provider_id: &str) -> Result<bool, Error>;
}
