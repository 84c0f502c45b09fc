//! `InstancesV2` of `cloud.go`, and the stream of instance changes (not in `cloud.go`).

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use std::collections::BTreeMap;
use std::time::Duration;

use super::presence::{Presence, Unknown};

/// A provider's data about the VM of a Node; `InstanceMetadata` of `cloud.go`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InstanceMetadata {
    /// Provider ID to write if `spec.providerID` is empty.
    pub provider_id: String,
    /// Value of both instance-type labels. An empty value leaves the labels unchanged.
    pub instance_type: String,
    /// The addresses, in order of preference. An empty list leaves the Node's addresses unchanged.
    pub node_addresses: Vec<NodeAddress>,
    /// Value of both zone labels. An empty value leaves the labels unchanged.
    pub zone: String,
    /// Value of both region labels. An empty value leaves the labels unchanged.
    pub region: String,
    /// Further labels. A label is added at initialization if the Node lacks its key.
    pub additional_labels: BTreeMap<String, String>,
    /// Location labels, which are kept in sync with the location of the VM. `None` removes a label.
    pub topology_labels: BTreeMap<String, Option<String>>,
    /// The criterion by which the VM was found.
    pub found_by: FoundBy,
    /// Record of the instance and its location, to write to the Node. Empty if the provider keeps no record.
    pub record: String,
    /// Whether the record on the Node names this instance, even at another location.
    pub is_recorded: bool,
    /// Whether the record must be updated immediately, because the VM's location may be removed soon.
    pub is_record_urgent: bool,
    /// Name of an earlier Node of this VM, if the requested Node is being initialized. The earlier Node gets an Event.
    pub earlier_name: Option<String>,
    /// Reason why the Node must not be initialized yet although its instance was found, for example a configured zone
    /// that was not found. Has no effect on an initialized Node.
    pub pending: Option<Unknown>,
    /// Notes for operators, such as a missing address family. Notes block nothing and are logged when they change.
    pub messages: Vec<String>,
    /// Reason why this data may be stale, for example a cloud that does not answer. Blocks writes to the Node, because
    /// the previous leader may have had newer data.
    pub stale: Option<Unknown>,
}

/// The criterion by which a VM was found for a Node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FoundBy {
    /// The Node's provider ID.
    #[default]
    ProviderId,
    /// The UUID that the kubelet reads from the firmware. Only this VM has the UUID.
    SystemUuid,
    /// The UUID that the kubelet reads from the firmware. Several VMs have the UUID, and a rule selected this VM.
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
    /// The VM is suspended with its memory saved, and may resume at any time.
    Suspended,
    /// The VM does not run, and the cloud returns no details.
    NotRunning,
}

/// A proven power state: the cloud answers, and is connected to the VM and to its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Power {
    /// The state.
    pub state: PowerState,
    /// Time for which this process has observed this state without interruption. Zero if this time is not measured.
    pub lasting: Duration,
}

/// `InstancesV2` of `cloud.go`: the contract that controllers use. Methods answer from cached state. Only
/// [`InstancesV2::instance_exists`], [`InstancesV2::read_instance_power`] and [`InstancesV2::refresh`] are allowed to
/// query the cloud. [`InstanceEvents`] announces changed answers.
#[async_trait]
pub trait InstancesV2: Send + Sync {
    /// Returns whether the VM of `node` exists.
    async fn instance_exists(&self, node: &Node) -> Presence;

    /// Returns whether the VM of `node` is shut down. Unknown if the power state is not proven.
    async fn instance_shutdown(&self, node: &Node) -> Presence<bool> {
        self.instance_power(node).await.map(|power| power.state != PowerState::On)
    }

    /// Returns the proven power state of the VM of `node`, and the duration of that state.
    async fn instance_power(&self, node: &Node) -> Presence<Power>;

    /// Reads the power state live, for decisions that must not use stale data. The result is off only if certainly no
    /// other VM with the Node's identity runs. If another VM with this identity may run, the result is unknown.
    async fn read_instance_power(&self, node: &Node) -> Presence<PowerState>;

    /// Returns provider ID, addresses, type, zone, region and labels of the VM of `node`.
    async fn instance_metadata(&self, node: &Node) -> Presence<InstanceMetadata>;

    /// Confirms the provider's data with the cloud within a few seconds, and marks unconfirmed data as stale. Called at
    /// the start of a term, because the previous leader may have had newer data. Not in `cloud.go`.
    async fn refresh(&self) {}
}

/// Source of announcements of instance changes. Makes polling unnecessary. `cloud.go` has no counterpart.
pub trait InstanceEvents: Send + Sync {
    /// Creates a subscription. A slow subscriber gets [`InstanceEvent::All`] instead of missed items.
    fn subscribe(&self) -> BoxStream<'static, InstanceEvent>;
}

/// A change of instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceEvent {
    /// The provider's answers for the Node of this name may have changed.
    Node(String),
    /// The answers for all Nodes may have changed.
    All,
}
