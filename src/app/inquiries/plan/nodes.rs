//! Pure: the plan for one Node, from the plans of the controllers that write to it.

use crate::app::reports::plan::{ChangeKind, ObjectPlan, PlannedChange};
use crate::base::quoting::listed;
use crate::cloud::node::{self, TAINT_UNINITIALIZED, addresses};
use crate::cloud::{InstanceMetadata, Presence, Unknown};
use crate::controllers::node::NodePreview;
use crate::controllers::node::plan::{Metadata, NextStep, NodeAction, NodePlan};
use crate::controllers::node::reason;
use crate::controllers::node_lifecycle::LifecyclePreview;
use crate::controllers::node_lifecycle::candidacy::Candidacy;
use crate::controllers::node_lifecycle::deletion_policy::HoldReason;
use crate::controllers::node_lifecycle::plan::{ANNOTATION_OUT_OF_SERVICE, Change, taints_after};
use crate::controllers::node_lifecycle::{DeletionMode, NodeDeletionFacts};
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, Taint};

/// The condition of the route controller.
const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// What the process knows of one Node.
pub(super) struct NodePlanFacts<'a> {
    /// The cached Node.
    pub(super) node: &'a Node,
    /// The reason why the answer of the cloud about the VM is not known.
    pub(super) unknown: Option<Unknown>,
    /// Whether the plans come from terms of leadership, which have clocks and limits.
    pub(super) has_term: bool,
    /// The plan of the node controller; `None` if it does not run in this process.
    pub(super) preview: Option<NodePreview>,
    /// The plan of the node-lifecycle controller; `None` if it leaves the Node alone or does not run in this process.
    pub(super) lifecycle: Option<LifecyclePreview>,
    /// Returns the end of a hold as text.
    pub(super) end_of: &'a dyn Fn(&HoldReason) -> Option<String>,
    /// Status and reason that the condition `NetworkUnavailable` gets from the route controller.
    pub(super) network_condition: Option<(&'static str, &'static str)>,
}

/// Returns the reason why the answer of the cloud is not known or may be outdated.
pub(super) fn unknown_answer(answer: &Presence<InstanceMetadata>) -> Option<Unknown> {
    match answer {
        // The Node has the provider ID of another provider, which is not asked.
        Presence::Unknown(unknown) if unknown.reason == reason::ForeignProviderID => None,
        Presence::Unknown(unknown) => Some(unknown.clone()),
        Presence::Exists(metadata) => metadata.stale.clone(),
        Presence::Absent(_) => None,
    }
}

/// Returns the plan for a Node.
pub(super) fn node_plan(facts: &NodePlanFacts<'_>) -> ObjectPlan {
    let mut object = ObjectPlan::new(node::name(facts.node));
    match (&facts.preview, &facts.unknown) {
        (Some(preview), _) => add_preview(&mut object, facts, preview),
        // The taints depend on the power state of the VM.
        (None, Some(unknown)) if facts.lifecycle.is_some() => object.add(unknown_vm(unknown)),
        (None, _) => {}
    }
    if let Some(lifecycle) = &facts.lifecycle {
        let is_deleted = add_deletion(&mut object, &lifecycle.deletion, facts);
        if !is_deleted {
            add_lifecycle_taints(&mut object, facts, lifecycle);
        }
    }
    if let Some((status, reason)) = facts.network_condition {
        let present = node::condition(facts.node, NETWORK_UNAVAILABLE).map(condition_text);
        let planned = format!("{status} ({reason})");
        let field = format!("condition {NETWORK_UNAVAILABLE}");
        object.add(PlannedChange::update(&field, present.as_deref(), Some(&planned)));
    }
    object
}

/// Adds the plan of the node controller.
fn add_preview(object: &mut ObjectPlan, facts: &NodePlanFacts<'_>, preview: &NodePreview) {
    // The controller leaves a Node of another provider alone.
    let Some(plan) = &preview.plan else { return };
    for action in &plan.actions {
        add_action(object, facts.node, action, preview.defers_record);
    }
    match (&facts.unknown, &plan.outcome) {
        (Some(unknown), _) => object.add(unknown_vm(unknown)),
        (None, NextStep::Superseded) => {
            let message = "the cache does not have the last write of this process";
            object.add(PlannedChange::new(ChangeKind::Unknown, "update").with_message(message));
        }
        (None, NextStep::Blocked(blocked)) => {
            let field = if node::is_uninitialized(facts.node) { "initialization" } else { "update" };
            object.add(
                PlannedChange::new(ChangeKind::Hold, field)
                    .with_reason(blocked.reason.as_str())
                    .with_message(&blocked.message),
            );
        }
        (None, NextStep::Done) => add_refusal(object, preview, plan),
    }
    for difference in plan.differences.iter().flatten() {
        let field = format!("label {}", difference.label);
        object.add(
            PlannedChange::new(ChangeKind::Keep, &field)
                .with_present(&difference.present)
                .with_planned(&difference.present)
                .with_reason(difference.reason.as_str())
                .with_message(&difference.describe()),
        );
    }
}

fn unknown_vm(unknown: &Unknown) -> PlannedChange {
    let change = PlannedChange::new(ChangeKind::Unknown, "VM").with_reason(unknown.reason.as_str());
    change.with_message(&unknown.message)
}

/// Adds the reason why the last write of planned changes was not made, if the API server is the cause.
fn add_refusal(object: &mut ObjectPlan, preview: &NodePreview, plan: &NodePlan) {
    let is_of_write = |reason| [reason::WriteRefused, reason::WriteConflict, reason::Panic].contains(&reason);
    let refusal = preview.blocked.as_ref().filter(|blocked| is_of_write(blocked.reason) && !plan.actions.is_empty());
    if let Some(blocked) = refusal {
        object.add(
            PlannedChange::new(ChangeKind::Hold, "last attempt")
                .with_reason(blocked.reason.as_str())
                .with_message(&blocked.message),
        );
    }
}

fn add_action(object: &mut ObjectPlan, node: &Node, action: &NodeAction, defers_record: bool) {
    match action {
        NodeAction::WriteAddresses(planned) => add_addresses(object, addresses::of(node), planned),
        NodeAction::Initialize { provider_id, metadata } => {
            // A Node without the taint is initialized because of --adopt-untainted-nodes.
            let kind = if node::is_uninitialized(node) { ChangeKind::Update } else { ChangeKind::Adopt };
            if let Some(provider_id) = provider_id {
                object.add(PlannedChange::update("provider ID", None, Some(provider_id)).with_kind(kind));
            }
            add_metadata(object, node, metadata, defers_record);
            add_taints(object, node::taints(node), &node::taints_without(node, TAINT_UNINITIALIZED, None));
        }
        NodeAction::SetMetadata(metadata) => add_metadata(object, node, metadata, defers_record),
        NodeAction::SetCondition(condition) => {
            let present = node::condition(node, &condition.type_).map(condition_text);
            let field = format!("condition {}", condition.type_);
            let planned = condition_text(condition);
            let change = PlannedChange::update(&field, present.as_deref(), Some(&planned));
            object.add(change.with_message(condition.message.as_deref().unwrap_or_default()));
        }
    }
}

fn add_addresses(object: &mut ObjectPlan, present: &[NodeAddress], planned: &[NodeAddress]) {
    let before = object.changes.len();
    let field = |address: &NodeAddress| format!("address {}", address.type_);
    for address in planned.iter().filter(|address| !present.contains(address)) {
        object.add(PlannedChange::update(&field(address), None, Some(&address.address)));
    }
    for address in present.iter().filter(|address| !planned.contains(address)) {
        object.add(PlannedChange::update(&field(address), Some(&address.address), None));
    }
    if object.changes.len() == before {
        let texts = |addresses: &[NodeAddress]| {
            let texts: Vec<String> = addresses.iter().map(|one| format!("{} {}", one.type_, one.address)).collect();
            listed(&texts)
        };
        object.add(PlannedChange::update("order of the addresses", Some(&texts(present)), Some(&texts(planned))));
    }
}

fn add_metadata(object: &mut ObjectPlan, node: &Node, metadata: &Metadata, defers_record: bool) {
    for (key, planned) in &metadata.labels {
        let present = node::label(node, key);
        if present != planned.as_deref() {
            object.add(PlannedChange::update(&format!("label {key}"), present, planned.as_deref()));
        }
    }
    for (key, planned) in &metadata.annotations {
        let present = node::annotation(node, key);
        let change = PlannedChange::update(&format!("annotation {key}"), present, Some(planned));
        let is_deferred = defers_record && key == node::ANNOTATION_VM;
        object.add(if is_deferred { change.with_message("at most one Node a second") } else { change });
    }
    for key in &metadata.removed_annotations {
        object.add(PlannedChange::update(&format!("annotation {key}"), node::annotation(node, key), None));
    }
}

/// Adds the taints that differ. Each is identified by key and effect.
fn add_taints(object: &mut ObjectPlan, present: &[Taint], planned: &[Taint]) {
    let is_same = |one: &Taint, other: &Taint| one.key == other.key && one.effect == other.effect;
    for taint in present {
        let after = planned.iter().find(|other| is_same(taint, other));
        if after != Some(taint) {
            let planned = after.map(taint_text);
            object.add(PlannedChange::update(&taint_field(taint), Some(&taint_text(taint)), planned.as_deref()));
        }
    }
    for taint in planned.iter().filter(|taint| !present.iter().any(|other| is_same(taint, other))) {
        object.add(PlannedChange::update(&taint_field(taint), None, Some(&taint_text(taint))));
    }
}

fn taint_field(taint: &Taint) -> String {
    format!("taint {}", taint.key)
}

fn taint_text(taint: &Taint) -> String {
    match taint.value.as_deref() {
        Some(value) if !value.is_empty() => format!("{value}:{}", taint.effect),
        _ => taint.effect.clone(),
    }
}

fn condition_text(condition: &NodeCondition) -> String {
    match condition.reason.as_deref() {
        Some(reason) if !reason.is_empty() => format!("{} ({reason})", condition.status),
        _ => condition.status.clone(),
    }
}

/// Adds the deletion of the Node, or the reason why it is not deleted although its kubelet does not report. Returns
/// whether the Node is deleted.
fn add_deletion(object: &mut ObjectPlan, facts: &NodeDeletionFacts, inputs: &NodePlanFacts<'_>) -> bool {
    if facts.exemption.is_some() {
        return false;
    }
    let is_unknown = matches!(facts.answer.as_ref().map(|answer| &answer.presence), Some(Presence::Unknown(_)));
    let change = |kind| PlannedChange::new(kind, "deletion");
    match (&facts.candidacy, &facts.checks) {
        (None, _) => object.add(
            change(ChangeKind::Unknown).with_message("its VM was not looked up since the last change of the Node"),
        ),
        (Some(Candidacy::VmExists | Candidacy::Unreported(_)), _) => {}
        (Some(Candidacy::Held { reason, message, .. }), _) => {
            let kind = if is_unknown { ChangeKind::Unknown } else { ChangeKind::Hold };
            object.add(change(kind).with_reason(reason.as_str()).with_message(message));
        }
        (Some(Candidacy::VmAbsent(proof)), None) if !inputs.has_term => {
            let hold = match &facts.mode {
                DeletionMode::Enforce => None,
                DeletionMode::DryRun => Some(HoldReason::DryRun),
                DeletionMode::Off { reason } => Some(HoldReason::Off { reason }),
            };
            let Some(hold) = hold else {
                let clocks = "after the grace period and within the limits of the leader, which are not known here, and \
                              unless deletions pause";
                object.add(deletion_change(facts).with_message(&format!("{clocks}; VM confirmed deleted: {proof}")));
                return true;
            };
            object.add(held_deletion(&hold, None));
        }
        (Some(Candidacy::VmAbsent(_)), None) => {
            object.add(change(ChangeKind::Unknown).with_message("its VM is looked up again at the next check"));
        }
        (Some(Candidacy::VmAbsent(proof)), Some(checks)) => {
            // A dry run reports the deletion once, and holds it from then on.
            let dry_run = (facts.mode == DeletionMode::DryRun).then_some(HoldReason::DryRun);
            let hold = checks.hold.as_ref().map(|(_, hold)| hold.clone()).or(dry_run);
            let Some(hold) = hold else {
                let message = format!("after a fresh proof; VM confirmed deleted: {proof}");
                object.add(deletion_change(facts).with_message(&message));
                if let Some(failed) = facts.failed_attempt() {
                    let message = "every rule has passed; the last check ended with this reason";
                    let hold = PlannedChange::new(ChangeKind::Hold, "last attempt");
                    object.add(hold.with_reason(failed.reason.as_str()).with_message(message));
                }
                return true;
            };
            object.add(held_deletion(&hold, (inputs.end_of)(&hold).as_deref()));
        }
    }
    false
}

fn deletion_change(facts: &NodeDeletionFacts) -> PlannedChange {
    PlannedChange::new(ChangeKind::Delete, "Node").with_present(&format!("UID {}", facts.facts.uid))
}

/// Returns the hold of a deletion. `until` is its end.
fn held_deletion(hold: &HoldReason, until: Option<&str>) -> PlannedChange {
    let change = PlannedChange::new(ChangeKind::Hold, "deletion").with_reason(hold.reason().as_str());
    change.with_message(&hold.message(until))
}

fn add_lifecycle_taints(object: &mut ObjectPlan, facts: &NodePlanFacts<'_>, lifecycle: &LifecyclePreview) {
    let node = facts.node;
    add_taints(object, node::taints(node), &taints_after(node, &lifecycle.taints));
    let annotation = format!("annotation {ANNOTATION_OUT_OF_SERVICE}");
    let present = node::annotation(node, ANNOTATION_OUT_OF_SERVICE);
    if lifecycle.taints.contains(&Change::AddOutOfService) {
        let change = PlannedChange::update(&annotation, present, Some("the time of the write"));
        object.add(change.with_message("after a live read of the power state"));
    }
    if lifecycle.taints.contains(&Change::RemoveOutOfService) {
        object.add(PlannedChange::update(&annotation, present, None));
    }
    if let Some(hold) = &lifecycle.out_of_service_hold {
        let message = hold.message((facts.end_of)(hold).as_deref());
        object.add(
            PlannedChange::new(ChangeKind::Hold, "out-of-service taint")
                .with_reason(hold.reason().as_str())
                .with_message(&message),
        );
    }
}

#[cfg(test)]
mod tests;
