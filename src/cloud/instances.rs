//! `Instances` and `InstancesV2` of `cloud.go`, and the stream of instance changes (ours).

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use std::collections::BTreeMap;
use std::time::Duration;

use super::error::Error;
use super::presence::{Presence, Unknown};

/// What a provider knows about the machine behind a node; `InstanceMetadata` of `cloud.go`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InstanceMetadata {
    /// Written to `spec.providerID` if that is empty.
    pub provider_id: String,
    /// Written to both instance-type labels; empty leaves them alone.
    pub instance_type: String,
    /// The addresses, in order of preference; empty leaves the node's alone.
    pub node_addresses: Vec<NodeAddress>,
    /// Written to both zone labels; empty leaves them alone.
    pub zone: String,
    /// Written to both region labels; empty leaves them alone.
    pub region: String,
    /// Further labels, set at initialisation where the key does not exist.
    pub additional_labels: BTreeMap<String, String>,
    /// Labels that say where the machine is, under a prefix of their own: always as they are here, with `None` for one
    /// that is to go. What is not here is not touched.
    pub topology_labels: BTreeMap<String, Option<String>>,
    /// How the machine was found for this node.
    pub found_by: FoundBy,
    /// Which instance this is and where, recorded on the node; empty where the provider records nothing.
    pub record: String,
    /// Whether the node's record names this instance already, be it at another place.
    pub is_recorded: bool,
    /// Whether the record is to follow the instance at once, because its place may be removed soon.
    pub is_record_urgent: bool,
    /// The node that this machine backs under an earlier name, if the node that is asked about is being initialised: it
    /// hears of that.
    pub earlier_name: Option<String>,
    /// Why a node must not be initialised yet although its instance is known, for example a zone that is configured
    /// and not found. It holds back nothing on a node that is initialised.
    pub pending: Option<Unknown>,
    /// What people should know although nothing is held back for it, for example an address family that the machine
    /// lacks. Told when it changes.
    pub notes: Vec<String>,
    /// Why this may not be so any more, for example a cloud that does not answer now. Nothing of it is written to a node
    /// then: whoever led before may have heard more.
    pub stale: Option<Unknown>,
}

/// What spoke for a machine when it was taken for a node's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FoundBy {
    /// The node's provider ID.
    #[default]
    ProviderId,
    /// The UUID the kubelet reads from the firmware, which no other machine has.
    SystemUuid,
    /// That UUID, which other machines have, too; a rule told them apart.
    SystemUuidAmongSeveral,
    /// The node's name alone.
    Name,
}

/// Whether a machine runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PowerState {
    /// It runs.
    #[default]
    On,
    /// It is switched off.
    Off,
    /// It is halted with its memory kept; it may go on at any moment.
    Suspended,
    /// It does not run, and the cloud does not say how.
    NotRunning,
}

/// A power state that is proven: the cloud answers, and hears from the machine and from its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Power {
    /// The state.
    pub state: PowerState,
    /// For how long this process knows it to be so without a break. Zero where the provider keeps no count.
    pub lasting: Duration,
}

/// `InstancesV2` of `cloud.go`: what the controllers use.
///
/// Every method answers from what the provider knows now and returns quickly; what is not known yet is
/// [`Presence::Unknown`], and [`InstanceEvents`] announces when that changes.
#[async_trait]
pub trait InstancesV2: Send + Sync {
    /// Does the machine behind `node` exist?
    async fn instance_exists(&self, node: &Node) -> Presence;

    /// Is the machine behind `node` shut down? Unknown when its power state is not proven.
    async fn instance_shutdown(&self, node: &Node) -> Presence<bool> {
        self.instance_power(node).await.map(|power| power.state != PowerState::On)
    }

    /// The proven power state of the machine behind `node`, and for how long it has been so. Ours; `cloud.go` knows
    /// shut down or not.
    async fn instance_power(&self, node: &Node) -> Presence<Power>;

    /// As [`InstancesV2::instance_power`], asked of the cloud anew: for what must not rest on a view that may be late.
    /// Off only where no other machine that is known by the node's identity may run; else unknown.
    async fn read_instance_power(&self, node: &Node) -> Presence<PowerState>;

    /// Provider ID, addresses, type, zone, region and labels of the machine behind `node`.
    async fn instance_metadata(&self, node: &Node) -> Presence<InstanceMetadata>;

    /// Makes sure that nobody takes for live what the provider has not heard for a while: it asks whether all is as it
    /// knows it, and what it gets no answer about is in doubt when this returns, which is within a few seconds. Called
    /// when a term begins, since another process has written until now what it had heard. Ours.
    async fn refresh(&self) {}
}

/// Changes of instances, so that nobody has to poll. Ours; `cloud.go` has no counterpart.
pub trait InstanceEvents: Send + Sync {
    /// A new subscription. A slow subscriber gets [`InstanceEvent::All`] in place of what it missed.
    fn subscribe(&self) -> BoxStream<'static, InstanceEvent>;
}

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceEvent {
    /// What the provider answers for the node of this name may have changed.
    Node(String),
    /// Anything may have changed: look at every node.
    All,
}

/// `Instances` of `cloud.go`, the older contract. Providers written against it are used through
/// `super::adapter`.
#[async_trait]
pub trait Instances: Send + Sync {
    /// The addresses of the instance behind the node of this name.
    async fn node_addresses(&self, node_name: &str) -> Result<Vec<NodeAddress>, Error>;

    /// The addresses of the instance with this provider ID, which may be empty.
    async fn node_addresses_by_provider_id(&self, provider_id: &str) -> Result<Vec<NodeAddress>, Error>;

    /// The instance's id, without the provider's prefix. [`Error::InstanceNotFound`] when there is no such instance
    /// (a stopped one exists), [`Error::NotImplemented`] when the cloud has no ids.
    async fn instance_id(&self, node_name: &str) -> Result<String, Error>;

    /// The instance type; may be empty.
    async fn instance_type(&self, node_name: &str) -> Result<String, Error>;

    /// The instance type by provider ID; may be empty.
    async fn instance_type_by_provider_id(&self, provider_id: &str) -> Result<String, Error>;

    /// Does the instance exist? True for stopped ones. `Ok(false)` is upstream's proof of absence.
    async fn instance_exists_by_provider_id(&self, provider_id: &str) -> Result<bool, Error>;

    /// Is the instance shut down? [`Error::NotImplemented`] counts as no.
    async fn instance_shutdown_by_provider_id(&self, provider_id: &str) -> Result<bool, Error>;
}
