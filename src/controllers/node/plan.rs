//! Pure: what was seen of a node and its instance → the changes to make, and what comes next.
//!
//! Mirrors `syncNode`, `getNodeModifiersFromCloudProvider`, `reconcileNodeLabels` and `updateNodeAddress` in
//! `controllers/node/node_controller.go`, as one decision instead of three loops.

mod action;
mod condition;
mod label_reports;
mod labels;

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{Node, NodeAddress};
use std::time::Duration;

pub(super) use action::other_taints;
pub use action::{Initialise, Metadata, NodeAction};
pub use condition::CONDITION;
pub use label_reports::has as is_reported;
pub use labels::{Difference, LabelChanges, count_lacks};

use super::observe::{NodeObservation, Ours};
use super::{NodeLabelsOn, Policy};
use crate::cloud::node::addresses::ProvidedNodeIpError;
use crate::cloud::node::{self, ANNOTATION_PROVIDED_NODE_IP, ANNOTATION_VM, Readiness, addresses};
use crate::cloud::{FoundBy, InstanceMetadata, Presence, Reason, Unknown};
use crate::controllers::driver::Next;
use crate::controllers::node::reason;

/// When a node is looked at again whose machine may not be as it is known, if the end of that is not announced earlier.
const DOUBT_PAUSE: Duration = Duration::from_secs(10);

/// What to do about one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePlan {
    /// To be done in this order. Empty when nothing is to change.
    pub actions: Vec<NodeAction>,
    /// What comes after the actions.
    pub outcome: NextStep,
    /// The reason that the node carries once the actions are done, if it carried another one before.
    pub told: Option<(Reason, String)>,
    /// The labels that stay although the cloud says otherwise; none while the cloud says nothing.
    pub differences: Option<Vec<Difference>>,
    /// What people should hear once the actions are done.
    pub notes: Vec<String>,
    /// The Node of the VM's previous name; it gets an Event when this Node is initialised.
    pub earlier_name: Option<String>,
}

/// What comes after the actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// The node is as it should be.
    Settled,
    /// Something is in the way.
    Held(NodeBlocked),
    /// The cache is behind what this process wrote to the node; the change that is on its way is looked at instead.
    Superseded,
}

/// Why a node is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeBlocked {
    /// The word for metrics, Events and the condition.
    pub reason: Reason,
    /// What was looked at, for people.
    pub message: String,
    /// When to look again.
    pub next: Next,
    /// Also then, because there may be something to tell.
    pub tell_after: Option<Duration>,
    /// Nobody has to hear it: the node works, and the provider tells its own troubles.
    pub is_quiet: bool,
    /// The machine of a node that works is another's, or may be: an Event says so.
    pub has_event: bool,
}

impl NodePlan {
    fn nothing() -> Self {
        Self {
            actions: Vec::new(),
            outcome: NextStep::Settled,
            told: None,
            differences: None,
            notes: Vec::new(),
            earlier_name: None,
        }
    }

    /// Whether this plan does nothing but say why the node is held.
    pub fn only_tells(&self) -> bool {
        matches!(self.outcome, NextStep::Held(_)) && matches!(self.actions.as_slice(), [NodeAction::SetCondition(_)])
    }

    /// This plan, and that `held` is in the way, which the node says of itself once it is time to.
    fn held(mut self, mut held: NodeBlocked, ours: &Ours, policy: &Policy) -> Self {
        let telling = condition::tell(&ours.node, &held, ours.at, ours.waited, policy.condition_after);
        held.tell_after = telling.again_after;
        self.told = telling.is_news.then(|| (held.reason, held.message.clone()));
        self.actions.extend(telling.write.map(NodeAction::SetCondition));
        self.outcome = NextStep::Held(held);
        self
    }
}

impl NodeBlocked {
    /// Something to be heard of.
    pub(super) fn new(reason: Reason, message: String, next: Next) -> Self {
        Self { reason, message, next, tell_after: None, is_quiet: false, has_event: false }
    }

    fn by(unknown: &Unknown, otherwise: Next) -> Self {
        let next = unknown.retry_after.map_or(otherwise, |delay| Next::Wait(Some(delay)));
        Self { is_quiet: unknown.is_passing, ..Self::new(unknown.reason, unknown.message.clone(), next) }
    }

    fn quiet(self) -> Self {
        Self { is_quiet: true, ..self }
    }
}

/// Decides.
pub fn plan(observed: &NodeObservation, policy: &Policy) -> NodePlan {
    let NodeObservation::Ours(ours) = observed else { return NodePlan::nothing() };
    if !is_to_be_initialised(ours, policy) {
        return plan_refresh(ours, policy);
    }
    plan_initialisation(ours, policy).unwrap_or_else(|held| {
        // A node without the taint is in use, and is kept up to date until it can be adopted.
        let is_tainted = node::is_uninitialized(&ours.node);
        let plan = if is_tainted { NodePlan::nothing() } else { plan_refresh(ours, policy) };
        plan.held(held, ours, policy)
    })
}

/// What to do when `held` came in the way of a plan that is given up.
pub fn tell(ours: &Ours, held: NodeBlocked, policy: &Policy) -> NodePlan {
    let nothing = NodePlan::nothing();
    if is_to_be_initialised(ours, policy) {
        return nothing.held(held, ours, policy);
    }
    NodePlan { outcome: NextStep::Held(held), ..nothing }
}

/// Whether `node` waits for a cloud controller: it has the taint that says so, or is one of those that are adopted.
pub fn waits(node: &Node, policy: &Policy) -> bool {
    node::is_uninitialized(node) || is_without_taint_and_provider_id(node) && policy.adopts_untainted_nodes
}

fn is_without_taint_and_provider_id(node: &Node) -> bool {
    !node::is_uninitialized(node) && node::provider_id(node).is_empty()
}

/// Whether the node waits, and is ours to initialise: without the taint, only the UUID of the firmware proves that.
fn is_to_be_initialised(ours: &Ours, policy: &Policy) -> bool {
    node::is_uninitialized(&ours.node)
        || waits(&ours.node, policy)
            && matches!(&*ours.instance, Presence::Exists(found) if found.found_by == FoundBy::SystemUuid)
}

fn plan_initialisation(ours: &Ours, policy: &Policy) -> Result<NodePlan, NodeBlocked> {
    let node = &*ours.node;
    let metadata = match &*ours.instance {
        Presence::Exists(metadata) => metadata,
        Presence::Absent(proof) => {
            return Err(NodeBlocked::new(reason::InstanceAbsent, proof.to_string(), Next::Backoff));
        }
        // Nothing but a change of the node ends that.
        Presence::Unknown(unknown) if unknown.reason == reason::ForeignProviderID => {
            return Err(NodeBlocked::by(unknown, Next::Period));
        }
        Presence::Unknown(unknown) => return Err(NodeBlocked::by(unknown, Next::Backoff)),
    };
    if let Some(held) = doubt(metadata) {
        return Err(held);
    }
    if let Some(pending) = &metadata.pending {
        return Err(NodeBlocked::by(pending, Next::Backoff));
    }
    if node::provider_id(node).is_empty() && metadata.provider_id.is_empty() {
        let message = format!("cloud provider does not set node provider ID for node {}", node::name(node));
        return Err(NodeBlocked::new(reason::NoProviderID, message, Next::Backoff));
    }
    let addresses = merged_addresses(node, metadata, Next::Backoff)?;
    let (labels, notes) = labels::at_initialisation(node, metadata, policy);
    let record = Some(&metadata.record).filter(|record| !record.is_empty() && !says(node, record));
    let annotations = record.map(|record| (ANNOTATION_VM.to_owned(), record.clone())).into_iter().collect();
    let mut changes = Metadata { labels, annotations, ..Metadata::default() };
    label_reports::set(node, &[], |_| false, &mut changes);
    let mut actions: Vec<_> = addresses.map(NodeAction::WriteAddresses).into_iter().collect();
    actions.push(NodeAction::Initialise(Initialise {
        // What is there is never overwritten, also when the cloud says otherwise.
        provider_id: node::provider_id(node).is_empty().then(|| metadata.provider_id.clone()),
        metadata: changes,
    }));
    actions.extend(takes_back(ours));
    let earlier_name = metadata.earlier_name.clone();
    Ok(NodePlan { actions, notes, earlier_name, differences: Some(Vec::new()), ..NodePlan::nothing() })
}

fn plan_refresh(ours: &Ours, policy: &Policy) -> NodePlan {
    let node = &*ours.node;
    let mut plan = NodePlan::nothing();
    let mut changes = Metadata::default();
    match &*ours.instance {
        Presence::Exists(metadata) => (plan, changes) = follow(ours, metadata, policy),
        // What follows from an absent machine is the node-lifecycle controller's to decide.
        Presence::Absent(_) => changes.labels = labels::without_cloud(node),
        Presence::Unknown(unknown) => {
            changes.labels = labels::without_cloud(node);
            let last = last_place(node, unknown).map(|record| (ANNOTATION_VM.to_owned(), record.clone()));
            changes.annotations.extend(last);
            let held = NodeBlocked::by(unknown, Next::Period);
            plan.outcome = NextStep::Held(match unknown.is_disputed {
                true => NodeBlocked { has_event: true, ..held },
                false => held.quiet(),
            });
        }
    }
    if !changes.is_empty() {
        plan.actions.push(NodeAction::SetMetadata(changes));
    }
    if !node::provider_id(node).is_empty() {
        plan.actions.extend(takes_back(ours));
    } else if plan.outcome == NextStep::Settled && policy.adopts_untainted_nodes {
        plan.outcome = why_not_adopted(&ours.instance).map_or(NextStep::Settled, NextStep::Held);
    }
    plan
}

/// What makes an initialised node as its machine is: the plan so far, and the metadata to set.
fn follow(ours: &Ours, metadata: &InstanceMetadata, policy: &Policy) -> (NodePlan, Metadata) {
    let node = &*ours.node;
    let (mut labels, differences) = labels::on_refresh(node, metadata, policy);
    if ours.turn.of_labels && lacks_labels(ours, policy) {
        let lacking = labels::lacking(node, policy).filter(|(key, _)| !metadata.topology_labels.contains_key(*key));
        labels.extend(lacking.map(|(key, value)| (key.clone(), Some(value.clone()))));
    }
    let mut changes = Metadata { labels, ..Metadata::default() };
    let is_unknown = |label: &str| metadata.pending.is_some() && !labels::is_said(label, metadata, policy);
    label_reports::set(node, &differences, is_unknown, &mut changes);
    let mut plan = NodePlan { differences: Some(differences), ..NodePlan::nothing() };
    if is_to_be_recorded(node, metadata) || ours.turn.of_record && has_moved(ours) {
        changes.annotations.insert(ANNOTATION_VM.to_owned(), metadata.record.clone());
    }
    // None at all is nothing new: the node keeps what it has.
    if !metadata.node_addresses.is_empty() {
        match merged_addresses(node, metadata, Next::Period) {
            Ok(addresses) => plan.actions.extend(addresses.map(NodeAction::WriteAddresses)),
            Err(held) => plan.outcome = NextStep::Held(held),
        }
    } else if let Some(pending) = &metadata.pending {
        plan.outcome = NextStep::Held(NodeBlocked::by(pending, Next::Period).quiet());
    }
    let by_itself = Metadata { labels: labels::without_cloud(node), ..Metadata::default() };
    match doubt(metadata) {
        None => (plan, changes),
        Some(held) if !plan.actions.is_empty() || changes != by_itself => {
            (NodePlan { outcome: NextStep::Held(held.quiet()), ..NodePlan::nothing() }, by_itself)
        }
        Some(_) => (NodePlan { differences: None, ..plan }, by_itself),
    }
}

/// The condition that says that a node is not initialised ends with the initialisation, whoever died in between.
fn takes_back(ours: &Ours) -> Option<NodeAction> {
    condition::stands_false(&ours.node).then(|| NodeAction::SetCondition(condition::done(ours.at)))
}

/// Why a node without taint and provider ID stays as it is.
fn why_not_adopted(instance: &Presence<InstanceMetadata>) -> Option<NodeBlocked> {
    let held = |reason, message: String| Some(NodeBlocked::new(reason, message, Next::Period).quiet());
    match instance {
        Presence::Exists(metadata) => {
            let (reason, why) = match metadata.found_by {
                FoundBy::Name | FoundBy::ProviderId => (reason::NameMatchRefused, "only the node's name speaks for it"),
                FoundBy::SystemUuidAmongSeveral => (reason::SeveralVMsMatch, "other machines have its UUID, too"),
                FoundBy::SystemUuid => return None,
            };
            held(reason, format!("the node is not adopted for machine {}: {why}", metadata.provider_id))
        }
        Presence::Absent(proof) => held(reason::InstanceAbsent, proof.to_string()),
        // It is quiet, and says its own reason.
        Presence::Unknown(_) => None,
    }
}

/// Whether the node says this of its machine.
fn says(node: &Node, record: &str) -> bool {
    node::annotation(node, ANNOTATION_VM) == Some(record)
}

/// Whether a Ready node records its machine at another place than where that is. The record follows, but not at each
/// vMotion: `turns.rs` says when.
pub fn has_moved(ours: &Ours) -> bool {
    let node = &*ours.node;
    let Presence::Exists(metadata) = &*ours.instance else { return false };
    let is_recorded = node::annotation(node, ANNOTATION_VM).is_some() && metadata.is_recorded;
    let is_ready = !node::is_uninitialized(node) && node::readiness(node) == Readiness::True;
    let is_elsewhere = !metadata.record.is_empty() && !says(node, &metadata.record);
    is_recorded && is_ready && is_elsewhere && metadata.stale.is_none() && !node::provider_id(node).is_empty()
}

/// Whether an initialised node is to get labels of `--node-labels`, which can wait.
pub fn lacks_labels(ours: &Ours, policy: &Policy) -> bool {
    let node = &*ours.node;
    let Presence::Exists(metadata) = &*ours.instance else { return false };
    let is_initialised = !node::is_uninitialized(node) && !node::provider_id(node).is_empty();
    let is_asked = policy.node_labels_on == NodeLabelsOn::All && is_initialised && metadata.stale.is_none();
    is_asked && labels::lacking(node, policy).any(|(key, _)| !metadata.topology_labels.contains_key(key))
}

/// Whether the record of an initialised node is to be written at once. A Ready node whose machine moved can wait, unless the
/// cloud says that the record is urgent. For a node that is not Ready the last place matters: it is part of the proof that the
/// machine is gone.
fn is_to_be_recorded(node: &Node, metadata: &InstanceMetadata) -> bool {
    if metadata.record.is_empty() || node::provider_id(node).is_empty() || says(node, &metadata.record) {
        return false;
    }
    node::annotation(node, ANNOTATION_VM).is_none()
        || !metadata.is_recorded
        || metadata.is_record_urgent
        || node::readiness(node) != Readiness::True
}

/// The place that the machine was seen to leave, if the node records another one. With an older place on record, such as a host
/// that still answers, the machine would count as gone although it was removed together with its last host.
fn last_place<'u>(node: &Node, unknown: &'u Unknown) -> Option<&'u String> {
    let is_recorded = node::annotation(node, ANNOTATION_VM).is_some() && !node::provider_id(node).is_empty();
    unknown.last_record.as_ref().filter(|record| is_recorded && !says(node, record))
}

/// Why nothing that the cloud said is written: it may not be so any more, and whoever led before may have heard more than
/// this process has, so that the node would go back to what was.
fn doubt(metadata: &InstanceMetadata) -> Option<NodeBlocked> {
    metadata.stale.as_ref().map(|doubt| NodeBlocked::by(doubt, Next::Wait(Some(DOUBT_PAUSE))))
}

/// The addresses to write, or none if they are as they should be. A node never ends up without an address that others
/// can reach.
fn merged_addresses(
    node: &Node,
    metadata: &InstanceMetadata,
    retry: Next,
) -> Result<Option<Vec<NodeAddress>>, NodeBlocked> {
    if !addresses::include_an_ip(&metadata.node_addresses) {
        let message = format!("the cloud reports no InternalIP or ExternalIP of {}", described(node, metadata));
        return Err(NodeBlocked::new(reason::NoAddresses, message, retry));
    }
    let merged = addresses::merge(node, &metadata.node_addresses)
        .map_err(|error| refused_node_ip(node, metadata, &error, retry))?;
    Ok((merged != addresses::of(node)).then_some(merged))
}

/// The kubelet's `--node-ip` cannot be followed.
fn refused_node_ip(node: &Node, metadata: &InstanceMetadata, error: &ProvidedNodeIpError, retry: Next) -> NodeBlocked {
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
        // What the cloud knows of this address, such as the interface that it is on.
        ProvidedNodeIpError::NotReported(ip) => {
            let ip = ip.to_string();
            let about = metadata.notes.iter().filter(|note| note.split([' ', ',', ':']).any(|word| word == ip));
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
