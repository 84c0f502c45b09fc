//! Pure: maps a Node and the proven power state of its VM to the changes of its taints.
//!
//! Mirrors `AddOrUpdateTaintOnNode` and `RemoveTaintOffNode` of `node/helpers/taints.go`, and `MonitorNodes` of
//! `controllers/nodelifecycle/node_lifecycle_controller.go`. If the Node is not `Ready`, an unproven power state
//! changes nothing.

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Taint};

use crate::cloud::node::{self, Readiness};
use crate::cloud::{Power, PowerState};

/// Taint of a Node whose VM does not run. Effect `NoSchedule`.
pub const TAINT_SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// Taint of a Node whose VM stays off, so that kube-controller-manager detaches its volumes. Effect `NoExecute`.
pub const TAINT_OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The value of `TAINT_OUT_OF_SERVICE` for a VM that is powered off.
pub const OUT_OF_SERVICE_VALUE: &str = "nodeshutdown";
/// Annotation of a Node on which this controller has set `TAINT_OUT_OF_SERVICE`. The value is the time of the write
/// (RFC 3339).
pub const ANNOTATION_OUT_OF_SERVICE: &str = "vsphere-ccm.dev/out-of-service";
/// Annotation that a user sets to `true` to allow the deletion of this Node without grace period, limit and mass pause.
pub const ANNOTATION_ALLOW_DELETION: &str = "vsphere-ccm.dev/allow-deletion";

const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";

/// A change of the taints that this controller sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds the shutdown taint, or corrects it.
    AddShutdown,
    /// Removes every taint with the key and effect of the shutdown taint.
    RemoveShutdown,
    /// Adds the out-of-service taint, and the annotation that marks it as set by this controller.
    AddOutOfService,
    /// Removes the out-of-service taint and its annotation, or only the annotation if a user has removed the taint.
    RemoveOutOfService,
}

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

/// The plan for one Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LifecyclePlan {
    /// The changes for one patch. Empty if the Node is up to date.
    pub changes: Vec<Change>,
    /// Time after which to reconcile the Node again even if no event arrives.
    pub requeue_after: Option<Duration>,
}

/// Whether the plan needs the power state of the VM, because the Node is not `Ready`.
pub fn needs_power(node: &Node) -> bool {
    node::readiness(node) != Readiness::True
}

/// Whether the Node needs a reconcile for taints or deletion: it is not `Ready`, or it has the shutdown taint or
/// `ANNOTATION_OUT_OF_SERVICE`.
pub fn needs_reconcile(node: &Node) -> bool {
    needs_power(node)
        || matching(node, TAINT_SHUTDOWN, NO_SCHEDULE).next().is_some()
        || node::annotation(node, ANNOTATION_OUT_OF_SERVICE).is_some()
}

/// Whether `ANNOTATION_ALLOW_DELETION` allows the deletion of this Node.
pub fn is_allowed_by_hand(node: &Node) -> bool {
    node::annotation(node, ANNOTATION_ALLOW_DELETION) == Some("true")
}

/// Creates the plan from the proven power state and the uninterrupted time of `Ready=Unknown` (`unreachable_for`).
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
        // A `Ready` Node runs, even if it runs on another VM. If only the annotation is left, a user has removed the
        // taint. Then the taint is not added again while the VM is off.
        let is_over = readiness == Readiness::True || power.is_some_and(|power| power.state == PowerState::On);
        plan.changes.extend(is_over.then_some(Change::RemoveOutOfService));
        return;
    }
    let (Some(power), Some(after)) = (power, after) else { return };
    let is_theirs = node::has_taint(node, TAINT_OUT_OF_SERVICE);
    // With `Ready=False`, the kubelet still reports, perhaps on a copy of the VM with the same volumes.
    let is_candidate = readiness == Readiness::Unknown && !node::is_uninitialized(node) && !is_theirs;
    // A suspended VM may resume at any time, with its volumes mounted.
    if !is_candidate || power.state != PowerState::Off {
        return;
    }
    match after.checked_sub(power.lasting.min(unreachable_for)) {
        None | Some(Duration::ZERO) => plan.changes.push(Change::AddOutOfService),
        rest => plan.requeue_after = rest,
    }
}

/// Returns the Node's taints after `changes`, in their order.
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

/// Replaces the first taint with the same key and effect, as `AddOrUpdateTaint` does; otherwise appends the taint.
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

/// Whether value and time of the taint are empty. Upstream compares the value and the time.
fn is_plain(taint: &Taint) -> bool {
    taint.value.as_deref().unwrap_or_default().is_empty() && taint.time_added.is_none()
}

/// Whether the taint has the key, effect and value of the out-of-service taint that this controller sets.
fn is_out_of_service(taint: &Taint) -> bool {
    is(taint, TAINT_OUT_OF_SERVICE, NO_EXECUTE) && taint.value.as_deref() == Some(OUT_OF_SERVICE_VALUE)
}

fn is(taint: &Taint, key: &str, effect: &str) -> bool {
    taint.key == key && taint.effect == effect
}

fn matching<'a>(node: &'a Node, key: &'a str, effect: &'a str) -> impl Iterator<Item = &'a Taint> {
    node::taints(node).iter().filter(move |taint| is(taint, key, effect))
}
