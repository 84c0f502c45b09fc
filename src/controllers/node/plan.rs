//! Pure: maps the observation of a Node and its instance to the changes and the next step.
//!
//! Mirrors `syncNode`, `getNodeModifiersFromCloudProvider`, `reconcileNodeLabels` and `updateNodeAddress` in
//! `controllers/node/node_controller.go`. One decision replaces the three loops of upstream.

mod action;
mod condition;
mod label_reports;
mod labels;

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{Node, NodeAddress};
use std::time::Duration;

pub use action::{Metadata, NodeAction};
pub use condition::CONDITION;
pub use label_reports::has as is_reported;
pub use labels::{Difference, LabelChanges, describe_missing};

use super::observe::OwnNode;
use super::{NodeLabelsOn, Policy};
use crate::cloud::node::addresses::ProvidedNodeIpError;
use crate::cloud::node::{self, ANNOTATION_PROVIDED_NODE_IP, ANNOTATION_VM, Readiness, addresses};
use crate::cloud::{FoundBy, InstanceMetadata, Presence, Reason, Unknown};
use crate::controllers::driver::Requeue;
use crate::controllers::node::reason;

/// Pause before a Node with stale instance data is reconciled again, unless an event comes earlier.
const DOUBT_PAUSE: Duration = Duration::from_secs(10);

/// The plan for one Node. The default plan changes nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodePlan {
    /// The actions in the order of execution. Empty if nothing has to change.
    pub actions: Vec<NodeAction>,
    /// The state after the actions.
    pub outcome: NextStep,
    /// Reason and message of the Event to record after the actions, if the reason in the Node's condition changes.
    pub event: Option<(Reason, String)>,
    /// The labels that stay although the cloud has other values; `None` if the plan did not compare the labels with the
    /// cloud.
    pub differences: Option<Vec<Difference>>,
    /// Messages for users, logged after the actions.
    pub messages: Vec<String>,
    /// Name of an older Node of the same VM, if any. The older Node gets an Event when this Node is initialized.
    pub earlier_name: Option<String>,
}

/// The state after the actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NextStep {
    /// The Node is up to date.
    #[default]
    Done,
    /// The Node is blocked.
    Blocked(NodeBlocked),
    /// The cached Node is older than a write of this process. The next version of the Node is reconciled instead.
    Superseded,
}

/// The reason why a Node is not up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeBlocked {
    /// The reason for metrics, Events and the condition.
    pub reason: Reason,
    /// Details for users.
    pub message: String,
    /// Time of the next reconcile of the Node.
    pub next: Requeue,
    /// Time after which an additional reconcile is due, because the condition may have to be written then.
    pub report_after: Option<Duration>,
    /// Whether the log omits the block, and the condition reports the block late or never.
    pub is_quiet: bool,
    /// Whether an Event reports the block, because the VM of an initialized Node belongs or may belong to another Node.
    pub has_event: bool,
}

impl NodePlan {
    /// Whether the plan only reports why the Node is blocked.
    pub fn only_reports_block(&self) -> bool {
        matches!(self.outcome, NextStep::Blocked(_)) && matches!(self.actions.as_slice(), [NodeAction::SetCondition(_)])
    }

    /// Marks the plan as blocked, and adds the write of the condition if the write is due.
    fn blocked(mut self, mut blocked: NodeBlocked, ours: &OwnNode, policy: &Policy) -> Self {
        let telling = condition::plan_condition(ours, &blocked, policy.condition_after);
        blocked.report_after = telling.again_after;
        self.event = telling.is_new_reason.then(|| (blocked.reason, blocked.message.clone()));
        self.actions.extend(telling.write.map(NodeAction::SetCondition));
        self.outcome = NextStep::Blocked(blocked);
        self
    }
}

impl NodeBlocked {
    /// Creates a block that the log reports, without an additional reconcile and without an Event.
    pub fn new(reason: Reason, message: String, next: Requeue) -> Self {
        Self { reason, message, next, report_after: None, is_quiet: false, has_event: false }
    }

    fn by(unknown: &Unknown, otherwise: Requeue) -> Self {
        let next = unknown.retry_after.map_or(otherwise, Requeue::after);
        Self { is_quiet: unknown.is_transient, ..Self::new(unknown.reason, unknown.message.clone(), next) }
    }

    fn quiet(self) -> Self {
        Self { is_quiet: true, ..self }
    }
}

/// Creates the plan for one Node. The plan for a Node that is not observed changes nothing.
pub fn plan(observed: Option<&OwnNode>, policy: &Policy) -> NodePlan {
    let Some(ours) = observed else { return NodePlan::default() };
    if !is_to_be_initialized(ours, policy) {
        return plan_refresh(ours, policy);
    }
    plan_initialization(ours, policy).unwrap_or_else(|blocked| {
        // A Node without the taint is in use, so it is updated until it can be adopted.
        let is_tainted = node::is_uninitialized(&ours.node);
        let plan = if is_tainted { NodePlan::default() } else { plan_refresh(ours, policy) };
        plan.blocked(blocked, ours, policy)
    })
}

/// Creates the plan for a Node after a previous plan failed because of `blocked`. The new plan only reports `blocked`.
pub fn blocked_plan(ours: &OwnNode, blocked: NodeBlocked, policy: &Policy) -> NodePlan {
    let nothing = NodePlan::default();
    if is_to_be_initialized(ours, policy) {
        return nothing.blocked(blocked, ours, policy);
    }
    NodePlan { outcome: NextStep::Blocked(blocked), ..nothing }
}

/// Whether `node` waits for a cloud controller: it has the uninitialized taint, or `policy` allows its adoption.
pub fn waits(node: &Node, policy: &Policy) -> bool {
    node::is_uninitialized(node) || policy.adopts_untainted_nodes && node::provider_id(node).is_empty()
}

/// Whether this process must initialize the Node. Without the taint, the VM must be found by the firmware UUID.
fn is_to_be_initialized(ours: &OwnNode, policy: &Policy) -> bool {
    node::is_uninitialized(&ours.node)
        || waits(&ours.node, policy)
            && matches!(&*ours.instance, Presence::Exists(found) if found.found_by == FoundBy::SystemUuid)
}

fn plan_initialization(ours: &OwnNode, policy: &Policy) -> Result<NodePlan, NodeBlocked> {
    let node = &*ours.node;
    let metadata = match &*ours.instance {
        Presence::Exists(metadata) => metadata,
        Presence::Absent(proof) => {
            return Err(NodeBlocked::new(reason::InstanceAbsent, proof.to_string(), Requeue::BACKOFF));
        }
        // Retries do not help. The Node has to change.
        Presence::Unknown(unknown) if unknown.reason == reason::ForeignProviderID => {
            return Err(NodeBlocked::by(unknown, Requeue::PERIOD));
        }
        Presence::Unknown(unknown) => return Err(NodeBlocked::by(unknown, Requeue::BACKOFF)),
    };
    if let Some(blocked) = stale_block(metadata) {
        return Err(blocked);
    }
    if let Some(pending) = &metadata.pending {
        return Err(NodeBlocked::by(pending, Requeue::BACKOFF));
    }
    if node::provider_id(node).is_empty() && metadata.provider_id.is_empty() {
        let message = format!("cloud provider does not set node provider ID for node {}", node::name(node));
        return Err(NodeBlocked::new(reason::NoProviderID, message, Requeue::BACKOFF));
    }
    let addresses = merged_addresses(node, metadata, Requeue::BACKOFF)?;
    let (labels, notes) = labels::at_initialization(node, metadata, policy);
    let record = Some(&metadata.record).filter(|record| !record.is_empty() && !says(node, record));
    let annotations = record.map(|record| (ANNOTATION_VM.to_owned(), record.clone())).into_iter().collect();
    let mut changes = Metadata { labels, annotations, ..Metadata::default() };
    label_reports::set(node, &[], |_| false, &mut changes);
    let mut actions: Vec<_> = addresses.map(NodeAction::WriteAddresses).into_iter().collect();
    actions.push(NodeAction::Initialize {
        // An existing provider ID is never overwritten, even if the cloud has a different one.
        provider_id: node::provider_id(node).is_empty().then(|| metadata.provider_id.clone()),
        metadata: changes,
    });
    actions.extend(takes_back(ours));
    let earlier_name = metadata.earlier_name.clone();
    Ok(NodePlan { actions, messages: notes, earlier_name, differences: Some(Vec::new()), ..NodePlan::default() })
}

fn plan_refresh(ours: &OwnNode, policy: &Policy) -> NodePlan {
    let node = &*ours.node;
    let mut plan = NodePlan::default();
    let mut changes = Metadata::default();
    match &*ours.instance {
        Presence::Exists(metadata) => (plan, changes) = follow(ours, metadata, policy),
        // The node-lifecycle controller handles absent VMs.
        Presence::Absent(_) => changes.labels = labels::without_cloud(node),
        Presence::Unknown(unknown) => {
            changes.labels = labels::without_cloud(node);
            let last = last_place(node, unknown).map(|record| (ANNOTATION_VM.to_owned(), record.clone()));
            changes.annotations.extend(last);
            let blocked = NodeBlocked::by(unknown, Requeue::PERIOD);
            plan.outcome = NextStep::Blocked(match unknown.is_disputed {
                true => NodeBlocked { has_event: true, ..blocked },
                false => blocked.quiet(),
            });
        }
    }
    if !changes.is_empty() {
        plan.actions.push(NodeAction::SetMetadata(changes));
    }
    if !node::provider_id(node).is_empty() {
        plan.actions.extend(takes_back(ours));
    } else if plan.outcome == NextStep::Done && policy.adopts_untainted_nodes {
        plan.outcome = adoption_block(&ours.instance).map_or(NextStep::Done, NextStep::Blocked);
    }
    plan
}

/// Plans the update of an initialized Node from its VM. Returns the plan without the metadata, and the metadata to set.
fn follow(ours: &OwnNode, metadata: &InstanceMetadata, policy: &Policy) -> (NodePlan, Metadata) {
    let node = &*ours.node;
    let (mut labels, differences) = labels::on_refresh(node, metadata, policy);
    if ours.turn.of_labels && lacks_labels(ours, policy) {
        let lacking = labels::lacking(node, policy).filter(|(key, _)| !metadata.topology_labels.contains_key(*key));
        labels.extend(lacking.map(|(key, value)| (key.clone(), Some(value.clone()))));
    }
    let mut changes = Metadata { labels, ..Metadata::default() };
    let is_unknown = |label: &str| metadata.pending.is_some() && !labels::has_cloud_value(label, metadata, policy);
    label_reports::set(node, &differences, is_unknown, &mut changes);
    let mut plan = NodePlan { differences: Some(differences), ..NodePlan::default() };
    if is_to_be_recorded(node, metadata) || ours.turn.of_record && has_moved(ours) {
        changes.annotations.insert(ANNOTATION_VM.to_owned(), metadata.record.clone());
    }
    // If the cloud reports no address at all, the Node keeps its addresses.
    if !metadata.node_addresses.is_empty() {
        match merged_addresses(node, metadata, Requeue::PERIOD) {
            Ok(addresses) => plan.actions.extend(addresses.map(NodeAction::WriteAddresses)),
            Err(blocked) => plan.outcome = NextStep::Blocked(blocked),
        }
    } else if let Some(pending) = &metadata.pending {
        plan.outcome = NextStep::Blocked(NodeBlocked::by(pending, Requeue::PERIOD).quiet());
    }
    let by_itself = Metadata { labels: labels::without_cloud(node), ..Metadata::default() };
    match stale_block(metadata) {
        None => (plan, changes),
        Some(held) if !plan.actions.is_empty() || changes != by_itself => {
            (NodePlan { outcome: NextStep::Blocked(held.quiet()), ..NodePlan::default() }, by_itself)
        }
        Some(_) => (NodePlan { differences: None, ..plan }, by_itself),
    }
}

/// Returns the action that sets a `False` condition to `True`, even if another process wrote the `False` condition.
fn takes_back(ours: &OwnNode) -> Option<NodeAction> {
    condition::is_false(&ours.node).then(|| NodeAction::SetCondition(condition::done(ours.observed_at)))
}

/// Returns the reason why a Node without taint and provider ID is not adopted.
fn adoption_block(instance: &Presence<InstanceMetadata>) -> Option<NodeBlocked> {
    let blocked = |reason, message: String| Some(NodeBlocked::new(reason, message, Requeue::PERIOD).quiet());
    match instance {
        Presence::Exists(metadata) => {
            let (reason, why) = match metadata.found_by {
                FoundBy::Name | FoundBy::ProviderId => (reason::NameMatchRefused, "only its name matches"),
                FoundBy::SystemUuidAmongSeveral => (reason::SeveralVMsMatch, "other VMs have the same UUID"),
                FoundBy::SystemUuid => return None,
            };
            blocked(reason, format!("the Node does not adopt the VM with provider ID {}: {why}", metadata.provider_id))
        }
        Presence::Absent(proof) => blocked(reason::InstanceAbsent, proof.to_string()),
        // `plan_refresh` has already blocked the plan for the reason in `Unknown`.
        Presence::Unknown(_) => None,
    }
}

/// Whether the Node's VM record equals `record`.
fn says(node: &Node, record: &str) -> bool {
    node::annotation(node, ANNOTATION_VM) == Some(record)
}

/// Whether the VM record of an initialized, `Ready` Node names a previous location of the VM. False while the instance
/// data is stale. `turns.rs` limits the rate of the updates of such records.
pub fn has_moved(ours: &OwnNode) -> bool {
    let node = &*ours.node;
    let Presence::Exists(metadata) = &*ours.instance else { return false };
    let is_recorded = node::annotation(node, ANNOTATION_VM).is_some() && metadata.is_recorded;
    let is_ready = !node::is_uninitialized(node) && node::readiness(node) == Readiness::True;
    let is_elsewhere = !metadata.record.is_empty() && !says(node, &metadata.record);
    is_recorded && is_ready && is_elsewhere && metadata.stale.is_none() && !node::provider_id(node).is_empty()
}

/// Whether an initialized Node must get missing labels of `--node-labels`. False without `--node-labels-on=all`, and
/// while the instance data is stale. The write of these labels can be deferred.
pub fn lacks_labels(ours: &OwnNode, policy: &Policy) -> bool {
    let node = &*ours.node;
    let Presence::Exists(metadata) = &*ours.instance else { return false };
    let is_initialized = !node::is_uninitialized(node) && !node::provider_id(node).is_empty();
    let is_asked = policy.node_labels_on == NodeLabelsOn::All && is_initialized && metadata.stale.is_none();
    is_asked && labels::lacking(node, policy).any(|(key, _)| !metadata.topology_labels.contains_key(key))
}

/// Whether the VM record of an initialized Node must be updated in this sync. The location is part of the proof that
/// the VM is deleted, so the update can wait only while the Node is `Ready` and the record is not urgent.
fn is_to_be_recorded(node: &Node, metadata: &InstanceMetadata) -> bool {
    if metadata.record.is_empty() || node::provider_id(node).is_empty() || says(node, &metadata.record) {
        return false;
    }
    node::annotation(node, ANNOTATION_VM).is_none()
        || !metadata.is_recorded
        || metadata.is_record_urgent
        || node::readiness(node) != Readiness::True
}

/// Returns the record of the location from which the VM disappeared, if the Node's VM record names another location.
/// With an older record, the VM would be confirmed deleted although it was only removed together with its last host.
fn last_place<'u>(node: &Node, unknown: &'u Unknown) -> Option<&'u String> {
    let is_recorded = node::annotation(node, ANNOTATION_VM).is_some() && !node::provider_id(node).is_empty();
    unknown.last_record.as_ref().filter(|record| is_recorded && !says(node, record))
}

/// Returns a block while the instance data is stale, because a write could revert newer data of the previous leader.
fn stale_block(metadata: &InstanceMetadata) -> Option<NodeBlocked> {
    metadata.stale.as_ref().map(|stale| NodeBlocked::by(stale, Requeue::after(DOUBT_PAUSE)))
}

/// Returns the addresses to write, or `None` if the addresses are up to date. Fails if the cloud reports no IP address
/// or if `--node-ip` cannot be used, so that a Node never ends up without a reachable address.
fn merged_addresses(
    node: &Node,
    metadata: &InstanceMetadata,
    retry: Requeue,
) -> Result<Option<Vec<NodeAddress>>, NodeBlocked> {
    if !addresses::include_an_ip(&metadata.node_addresses) {
        let message = format!("the cloud reports no InternalIP or ExternalIP of {}", described(node, metadata));
        return Err(NodeBlocked::new(reason::NoAddresses, message, retry));
    }
    let merged = addresses::merge(node, &metadata.node_addresses)
        .map_err(|error| refused_node_ip(node, metadata, &error, retry))?;
    Ok((merged != addresses::of(node)).then_some(merged))
}

fn refused_node_ip(
    node: &Node,
    metadata: &InstanceMetadata,
    error: &ProvidedNodeIpError,
    retry: Requeue,
) -> NodeBlocked {
    let reason = match error {
        ProvidedNodeIpError::NotReported { .. } => reason::ProvidedNodeIPNotOnVM,
        ProvidedNodeIpError::Unparsable { .. }
        | ProvidedNodeIpError::NotADualStackPair
        | ProvidedNodeIpError::Unspecified => reason::ProvidedNodeIPNotValid,
    };
    let provided = node::annotation(node, ANNOTATION_PROVIDED_NODE_IP).unwrap_or_default();
    let reported: Vec<_> =
        metadata.node_addresses.iter().map(|address| format!("{} {}", address.type_, address.address)).collect();
    let notes = match error {
        // Adds the cloud's notes about this address, for example about its network interface.
        ProvidedNodeIpError::NotReported(ip) => {
            let ip = ip.to_string();
            let about = metadata.messages.iter().filter(|note| note.split([' ', ',', ':']).any(|word| word == ip));
            about.map(|note| format!("; {note}")).collect()
        }
        _ => String::new(),
    };
    let message = format!(
        "provided node ip for node {:?} is not valid: {error}; annotation {ANNOTATION_PROVIDED_NODE_IP} is {provided:?}, \
         and the cloud reports {} of {}{notes}",
        node::name(node),
        reported.join(", "),
        described(node, metadata),
    );
    NodeBlocked::new(reason, message, retry)
}

fn described(node: &Node, metadata: &InstanceMetadata) -> String {
    let id = Some(node::provider_id(node)).filter(|id| !id.is_empty()).unwrap_or(&metadata.provider_id);
    format!("instance {id}")
}
