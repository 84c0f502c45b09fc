//! Pure: a node and the proven power state of its machine → which of our taints it is to have.
//!
//! Mirrors `AddOrUpdateTaintOnNode` and `RemoveTaintOffNode` of `node/helpers/taints.go` and `MonitorNodes` of
//! `controllers/nodelifecycle/node_lifecycle_controller.go`. What is not proven changes nothing.

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Taint};

use crate::cloud::node::{self, Readiness};
use crate::cloud::{Power, PowerState};

/// The machine does not run; with the effect `NoSchedule`.
pub const TAINT_SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// The machine will not run before somebody sees to it: kube-controller-manager frees its volumes. Effect `NoExecute`.
pub const TAINT_OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The value of that taint when a machine is switched off.
pub const OUT_OF_SERVICE_VALUE: &str = "nodeshutdown";
/// Says that the taint of that name is ours, and when it was set (RFC 3339).
pub const ANNOTATION_OUT_OF_SERVICE: &str = "vsphere-ccm.dev/out-of-service";
/// Somebody says `true` in it: this Node may be deleted without grace period, limit and pause.
pub const ANNOTATION_ALLOW_DELETION: &str = "vsphere-ccm.dev/allow-deletion";

const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";

/// A change of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Add the shutdown taint, or make it what it should be.
    AddShutdown,
    /// Remove every taint of that key and effect.
    RemoveShutdown,
    /// Add the out-of-service taint and the annotation that says it is ours.
    AddOutOfService,
    /// Remove both, or the annotation if the taint is gone.
    RemoveOutOfService,
}

/// As the log shows it.
impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Change::AddShutdown => "shutdown added",
            Change::RemoveShutdown => "shutdown removed",
            Change::AddOutOfService => "out-of-service added",
            Change::RemoveOutOfService => "out-of-service removed",
        })
    }
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LifecyclePlan {
    /// In one patch. Empty when the node is as it should be.
    pub changes: Vec<Change>,
    /// When the node has to be looked at again although nothing happens.
    pub look_again: Option<Duration>,
}

/// Whether the machine's power state is needed to plan: for a Ready node it is not.
pub fn needs_power(node: &Node) -> bool {
    node::readiness(node) != Readiness::True
}

/// Whether there can be anything to do for this node, be it a deletion: not for a Ready one without a taint of ours.
pub fn needs_a_look(node: &Node) -> bool {
    needs_power(node)
        || has_taint(node, TAINT_SHUTDOWN, NO_SCHEDULE)
        || node::annotation(node, ANNOTATION_OUT_OF_SERVICE).is_some()
}

/// Whether somebody allowed the deletion of this Node.
pub fn is_allowed_by_hand(node: &Node) -> bool {
    node::annotation(node, ANNOTATION_ALLOW_DELETION) == Some("true")
}

/// Decides. `power` is what is proven, if anything is; `unreachable_for` is for how long the node has been Ready=Unknown
/// without a break.
pub fn plan(
    node: &Node,
    power: Option<Power>,
    unreachable_for: Duration,
    out_of_service_after: Option<Duration>,
) -> LifecyclePlan {
    let mut plan = LifecyclePlan::default();
    plan.changes.extend(plan_shutdown(node, power));
    plan_out_of_service(&mut plan, node, power, unreachable_for, out_of_service_after);
    plan
}

fn plan_shutdown(node: &Node, power: Option<Power>) -> Option<Change> {
    let is_on = power.map(|power| power.state == PowerState::On);
    let is_wanted = match (node::readiness(node), is_on) {
        (Readiness::True, _) | (_, Some(true)) => false,
        (_, Some(false)) => true,
        (_, None) => return None,
    };
    let present: Vec<&Taint> = matching(node, TAINT_SHUTDOWN, NO_SCHEDULE).collect();
    match (is_wanted, present.as_slice()) {
        (true, [taint]) if is_plain(taint) => None,
        (true, _) => Some(Change::AddShutdown),
        (false, []) => None,
        (false, _) => Some(Change::RemoveShutdown),
    }
}

fn plan_out_of_service(
    plan: &mut LifecyclePlan,
    node: &Node,
    power: Option<Power>,
    unreachable_for: Duration,
    after: Option<Duration>,
) {
    let readiness = node::readiness(node);
    if node::annotation(node, ANNOTATION_OUT_OF_SERVICE).is_some() {
        // A Ready node runs, whichever VM it runs on. The annotation without the taint: somebody removed the taint, and
        // it is not added again while the VM is off.
        let is_over = readiness == Readiness::True || power.is_some_and(|power| power.state == PowerState::On);
        plan.changes.extend(is_over.then_some(Change::RemoveOutOfService));
        return;
    }
    let (Some(power), Some(after)) = (power, after) else { return };
    let is_theirs = node::has_taint(node, TAINT_OUT_OF_SERVICE);
    // A kubelet that reports runs, perhaps on a copy of the VM with the same volumes.
    let is_candidate = readiness == Readiness::Unknown && !node::is_uninitialized(node) && !is_theirs;
    // A suspended VM may resume at any moment with its volumes mounted.
    if !is_candidate || power.state != PowerState::Off {
        return;
    }
    match after.checked_sub(power.lasting.min(unreachable_for)) {
        None | Some(Duration::ZERO) => plan.changes.push(Change::AddOutOfService),
        rest => plan.look_again = rest,
    }
}

/// The node's taints after `changes`, in the order in which they stand.
pub fn taints_after(node: &Node, changes: &[Change]) -> Vec<Taint> {
    let mut taints = node::taints(node).to_vec();
    for change in changes {
        match change {
            Change::AddShutdown => put(&mut taints, shutdown_taint()),
            Change::RemoveShutdown => taints.retain(|taint| !is(taint, TAINT_SHUTDOWN, NO_SCHEDULE)),
            Change::AddOutOfService => put(&mut taints, out_of_service_taint()),
            Change::RemoveOutOfService => taints.retain(|taint| !is_out_of_service(taint)),
        }
    }
    taints
}

/// Replaces the first taint of the same key and effect, as `AddOrUpdateTaint` does, or appends.
fn put(taints: &mut Vec<Taint>, taint: Taint) {
    match taints.iter_mut().find(|other| is(other, &taint.key, &taint.effect)) {
        Some(other) => *other = taint,
        None => taints.push(taint),
    }
}

fn shutdown_taint() -> Taint {
    Taint { key: TAINT_SHUTDOWN.to_owned(), effect: NO_SCHEDULE.to_owned(), ..Taint::default() }
}

fn out_of_service_taint() -> Taint {
    Taint {
        key: TAINT_OUT_OF_SERVICE.to_owned(),
        value: Some(OUT_OF_SERVICE_VALUE.to_owned()),
        effect: NO_EXECUTE.to_owned(),
        ..Taint::default()
    }
}

/// Without value and time, as upstream compares it.
fn is_plain(taint: &Taint) -> bool {
    taint.value.as_deref().unwrap_or_default().is_empty() && taint.time_added.is_none()
}

/// The one we set; one with another value or effect is somebody else's.
fn is_out_of_service(taint: &Taint) -> bool {
    is(taint, TAINT_OUT_OF_SERVICE, NO_EXECUTE) && taint.value.as_deref() == Some(OUT_OF_SERVICE_VALUE)
}

fn is(taint: &Taint, key: &str, effect: &str) -> bool {
    taint.key == key && taint.effect == effect
}

fn matching<'a>(node: &'a Node, key: &'a str, effect: &'a str) -> impl Iterator<Item = &'a Taint> {
    node::taints(node).iter().filter(move |taint| is(taint, key, effect))
}

fn has_taint(node: &Node, key: &str, effect: &str) -> bool {
    matching(node, key, effect).next().is_some()
}
