//! Pure: what was seen of a node and its instance → the changes to make, and what comes next.
//!
//! Mirrors `syncNode`, `getNodeModifiersFromCloudProvider`, `reconcileNodeLabels` and `updateNodeAddress` in
//! `controllers/node/node_controller.go`, as one decision instead of three loops.

mod action;

#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{Node, NodeAddress};
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) use action::other_taints;
pub use action::{Action, Initialise};

use super::observe::Observed;
use crate::cloud::node::{self, ANNOTATION_VM, INSTANCE_TYPE, LabelPair, REGION, ZONE, addresses};
use crate::cloud::{InstanceMetadata, Presence, Reason, Unknown};

/// What to do about one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// To be done in this order. Empty when nothing is to change.
    pub actions: Vec<Action>,
    /// What comes after the actions.
    pub outcome: Outcome,
    /// What people should hear once the actions are done.
    pub notes: Vec<String>,
}

/// What comes after the actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The node is as it should be.
    Settled,
    /// Something is in the way.
    Held(Held),
}

/// Why a node is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The word for metrics, Events and the condition.
    pub reason: Reason,
    /// What was looked at, for people.
    pub message: String,
    /// When to look again.
    pub retry: Retry,
    /// Nobody has to hear it: the node works, and the provider tells its own troubles.
    pub is_quiet: bool,
}

/// When to look at a node again, if no change is announced earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After this time.
    After(Duration),
    /// With the backoff of the queue.
    Backoff,
    /// With the periodic pass.
    Period,
}

impl Plan {
    fn nothing() -> Self {
        Self { actions: Vec::new(), outcome: Outcome::Settled, notes: Vec::new() }
    }

    fn held(held: Held) -> Self {
        Self { outcome: Outcome::Held(held), ..Self::nothing() }
    }

    /// Whether this plan ends with the node being initialised.
    pub fn initialises(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Initialise(_)))
    }
}

impl Held {
    fn new(reason: Reason, message: String, retry: Retry) -> Self {
        Self { reason, message, retry, is_quiet: false }
    }

    fn by(unknown: &Unknown, otherwise: Retry) -> Self {
        let retry = unknown.retry_after.map_or(otherwise, Retry::After);
        Self { is_quiet: unknown.is_passing, ..Self::new(unknown.reason, unknown.message.clone(), retry) }
    }
}

/// Decides.
pub fn plan(observed: &Observed) -> Plan {
    match observed {
        Observed::Missing | Observed::Foreign => Plan::nothing(),
        Observed::Ours { node, instance } if node::is_uninitialized(node) => {
            plan_initialisation(node, instance).unwrap_or_else(Plan::held)
        }
        Observed::Ours { node, instance } => plan_refresh(node, instance),
    }
}

fn plan_initialisation(node: &Node, instance: &Presence<InstanceMetadata>) -> Result<Plan, Held> {
    let metadata = match instance {
        Presence::Exists(metadata) => metadata,
        Presence::Absent(proof) => return Err(Held::new(Reason::InstanceAbsent, proof.to_string(), Retry::Backoff)),
        Presence::Unknown(unknown) => return Err(Held::by(unknown, Retry::Backoff)),
    };
    if let Some(pending) = &metadata.pending {
        return Err(Held::by(pending, Retry::Backoff));
    }
    if node::provider_id(node).is_empty() && metadata.provider_id.is_empty() {
        let message = format!("cloud provider does not set node provider ID for node {}", node::name(node));
        return Err(Held::new(Reason::NoProviderID, message, Retry::Backoff));
    }
    let addresses = merged_addresses(node, metadata, Retry::Backoff)?;
    let (labels, notes) = labels_at_initialisation(node, metadata);
    let record = Some(&metadata.record)
        .filter(|record| !record.is_empty() && node::annotation(node, ANNOTATION_VM) != Some(record.as_str()));
    let initialise = Initialise {
        provider_id: node::provider_id(node).is_empty().then(|| metadata.provider_id.clone()),
        labels,
        annotations: record.map(|record| (ANNOTATION_VM.to_owned(), record.clone())).into_iter().collect(),
    };
    let mut actions: Vec<_> = addresses.map(Action::WriteAddresses).into_iter().collect();
    actions.push(Action::Initialise(initialise));
    Ok(Plan { actions, outcome: Outcome::Settled, notes })
}

fn plan_refresh(node: &Node, instance: &Presence<InstanceMetadata>) -> Plan {
    let mut plan = Plan::nothing();
    let mut wanted = labels_of(node);
    match instance {
        Presence::Exists(metadata) => {
            wanted.extend(missing_topology(node, metadata));
            // None at all is nothing new: the node keeps what it has.
            if !metadata.node_addresses.is_empty() {
                match merged_addresses(node, metadata, Retry::Period) {
                    Ok(addresses) => plan.actions.extend(addresses.map(Action::WriteAddresses)),
                    Err(held) => plan.outcome = Outcome::Held(held),
                }
            }
        }
        // What follows from an absent machine is the node-lifecycle controller's to decide.
        Presence::Absent(_) => {}
        Presence::Unknown(unknown) => {
            plan.outcome = Outcome::Held(Held { is_quiet: true, ..Held::by(unknown, Retry::Period) });
        }
    }
    let labels = changed_labels(node, with_current_forms(wanted));
    if !labels.is_empty() {
        plan.actions.push(Action::SetLabels(labels));
    }
    plan
}

/// The addresses to write, or none if they are as they should be. A node never ends up without an address that others
/// can reach.
fn merged_addresses(node: &Node, metadata: &InstanceMetadata, retry: Retry) -> Result<Option<Vec<NodeAddress>>, Held> {
    if !addresses::include_an_ip(&metadata.node_addresses) {
        let message = format!("the cloud reports no InternalIP or ExternalIP of {}", described(node, metadata));
        return Err(Held::new(Reason::NoAddresses, message, retry));
    }
    let merged = addresses::merge(node, &metadata.node_addresses).map_err(|error| {
        let message = format!("provided node ip for node {:?} is not valid: {error}", node::name(node));
        Held::new(Reason::ProvidedNodeIPNotValid, message, retry)
    })?;
    Ok((merged != addresses::of(node)).then_some(merged))
}

fn described(node: &Node, metadata: &InstanceMetadata) -> String {
    let id = Some(node::provider_id(node)).filter(|id| !id.is_empty()).unwrap_or(&metadata.provider_id);
    format!("instance {id}")
}

type Labels = BTreeMap<String, String>;

fn labels_of(node: &Node) -> Labels {
    node.metadata.labels.clone().unwrap_or_default()
}

/// The labels of `wanted` that `node` does not have in that form.
fn changed_labels(node: &Node, wanted: Labels) -> Labels {
    wanted.into_iter().filter(|(key, value)| node::label(node, key) != Some(value.as_str())).collect()
}

/// Where the older form of a label exists, the current one follows it; never the other way round.
fn with_current_forms(mut labels: Labels) -> Labels {
    for LabelPair { current, legacy } in [ZONE, REGION, INSTANCE_TYPE] {
        if let Some(value) = labels.get(legacy).cloned() {
            labels.insert(current.to_owned(), value);
        }
    }
    labels
}

/// Both forms of zone and region, where the node has neither and the cloud knows the value. What it has stays: volumes
/// are pinned to zones.
fn missing_topology(node: &Node, metadata: &InstanceMetadata) -> Labels {
    [(ZONE, &metadata.zone), (REGION, &metadata.region)]
        .into_iter()
        .filter(|(LabelPair { current, legacy }, value)| {
            !value.is_empty() && node::label(node, current).is_none() && node::label(node, legacy).is_none()
        })
        .flat_map(|(pair, value)| [pair.current, pair.legacy].map(|key| (key.to_owned(), value.clone())))
        .collect()
}

/// The labels to change, and what to say about those of the provider that are not set.
fn labels_at_initialisation(node: &Node, metadata: &InstanceMetadata) -> (Labels, Vec<String>) {
    let mut wanted = labels_of(node);
    let mut notes = Vec::new();
    for (pair, value) in [(INSTANCE_TYPE, &metadata.instance_type), (ZONE, &metadata.zone), (REGION, &metadata.region)]
    {
        if !value.is_empty() {
            wanted.insert(pair.current.to_owned(), value.clone());
            wanted.insert(pair.legacy.to_owned(), value.clone());
        }
    }
    for (key, value) in &metadata.additional_labels {
        if node::is_reserved_label(key) {
            notes.push(format!("label {key} is not set, because its prefix is reserved for Kubernetes"));
        } else if let Some(present) = wanted.get(key).filter(|present| *present != value) {
            notes.push(format!("label {key} stays {present:?} and does not become {value:?}"));
        } else {
            wanted.insert(key.clone(), value.clone());
        }
    }
    (changed_labels(node, with_current_forms(wanted)), notes)
}
