//! Pure: the plan for the load balancers of one Service.

use crate::app::reports::check::nsx_plan::ORPHAN;
use crate::app::reports::plan::{ChangeKind, ObjectPlan, PlannedChange};
use crate::base::quoting::listed;
use crate::cloud::service::FINALIZER;
use crate::cloud::{Reason, service};
use crate::controllers::service::explanation::ServiceFacts;
use crate::controllers::service::plan::ServicePlan;
use crate::providers::vsphere::nsx::load_balancer::orphans::Policy;
use crate::providers::vsphere::nsx::load_balancer::preview::{FirstStep, OrphanPreview};
use crate::providers::vsphere::nsx::load_balancer::{PlannedStep, StepKind};
use crate::providers::vsphere::reason::LoadBalancerAdoptedAsIs;
use k8s_openapi::api::core::v1::Service;
use std::net::IpAddr;

/// What the process knows of one Service.
pub(super) struct ServicePlanFacts<'a> {
    /// Namespace and name.
    pub(super) key: &'a str,
    /// What the controller knows.
    pub(super) term: &'a ServiceFacts,
    /// The first step of the next call; `None` before the first list of NSX, and if no call is made.
    pub(super) step: Option<FirstStep>,
    /// Whether NSX was listed in this term.
    pub(super) is_listed: bool,
    /// Reason and message if no load balancer is ensured because no Node is selected.
    pub(super) hold_of_targets: Option<&'a (Reason, String)>,
}

/// What the next sync of a Service does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncPurpose {
    /// It ensures the load balancers, or finds them as they should be.
    Ensure,
    /// It deletes the load balancers.
    Delete,
    /// It makes no call.
    Nothing,
}

impl SyncPurpose {
    /// Returns what the next sync does.
    pub(super) fn of(facts: &ServiceFacts) -> Self {
        let Some(service) = facts.service.as_deref() else { return Self::Delete };
        match &facts.plan {
            Some(ServicePlan::Delete) => Self::Delete,
            Some(ServicePlan::Ensure { .. }) => Self::Ensure,
            Some(ServicePlan::LeaveAlone) if service::wants_load_balancer(service) => Self::Ensure,
            Some(ServicePlan::LeaveAlone | ServicePlan::Hold { .. }) | None => Self::Nothing,
        }
    }
}

/// Returns the plan for a Service.
pub(super) fn service_plan(facts: &ServicePlanFacts<'_>) -> ObjectPlan {
    let mut object = ObjectPlan::new(facts.key);
    let term = facts.term;
    if term.is_replaced {
        let message = "the load balancer of the former Service of this name is deleted first";
        object.add(PlannedChange::new(ChangeKind::Delete, "load balancer").with_message(message));
    }
    let planned_hold = match &term.plan {
        Some(ServicePlan::Hold { reason, message }) => Some((*reason, message.clone())),
        Some(ServicePlan::Ensure { .. }) => facts.hold_of_targets.cloned(),
        _ => None,
    };
    match SyncPurpose::of(term) {
        SyncPurpose::Nothing => {}
        _ if planned_hold.is_some() => {}
        _ if !facts.is_listed => {
            let message = "the objects in NSX are not listed yet in this term of leadership";
            object.add(PlannedChange::new(ChangeKind::Unknown, "load balancer").with_message(message));
        }
        purpose => add_call(&mut object, facts, purpose),
    }
    // The reason that is reported may be that of the plan.
    let reported = term.blocked.as_ref().map(|blocked| (blocked.reason, blocked.message.clone()));
    let refused = facts.step.as_ref().and_then(|step| step.as_ref().err()).cloned();
    let mut holds: Vec<(Reason, String)> = Vec::new();
    for hold in [planned_hold, refused, reported].into_iter().flatten() {
        if !holds.iter().any(|(reason, _)| *reason == hold.0) {
            holds.push(hold);
        }
    }
    for (reason, message) in holds {
        let change = PlannedChange::new(ChangeKind::Hold, "load balancer");
        object.add(change.with_reason(reason.as_str()).with_message(&message));
    }
    object
}

/// Adds what a call and the writes to the Service around it change.
fn add_call(object: &mut ObjectPlan, facts: &ServicePlanFacts<'_>, purpose: SyncPurpose) {
    if let Some(ServicePlan::Ensure { adds_finalizer: true }) = facts.term.plan {
        object.add(PlannedChange::update("finalizer", None, Some(FINALIZER)));
    }
    let Some(Ok(step)) = &facts.step else { return };
    if let Some(change) = step_change(step) {
        object.add(change);
        return;
    }
    if let Some(message) = &step.adopted_as_is {
        let change = PlannedChange::new(ChangeKind::Keep, "load balancer").with_message(message);
        object.add(change.with_reason(LoadBalancerAdoptedAsIs.as_str()));
    }
    let Some(service) = facts.term.service.as_deref() else { return };
    match purpose {
        SyncPurpose::Ensure => add_status(object, service, &step.addresses),
        SyncPurpose::Delete => add_release(object, service),
        SyncPurpose::Nothing => {}
    }
}

/// Returns the step as a change; `None` if nothing is left to do.
fn step_change(planned: &PlannedStep) -> Option<PlannedChange> {
    let (step, kind) = planned.step.as_ref().zip(planned.kind)?;
    let (kind, field) = match kind {
        StepKind::Create => (ChangeKind::Create, "next step"),
        StepKind::Update => (ChangeKind::Update, "next step"),
        StepKind::Adopt => (ChangeKind::Adopt, "next step"),
        StepKind::Delete => (ChangeKind::Delete, "next step"),
        StepKind::Hold => (ChangeKind::Hold, "port"),
        // What follows depends on the answer of NSX.
        StepKind::Read => (ChangeKind::Unknown, "next step"),
    };
    let texts: Vec<&str> = std::iter::once(step).chain(&planned.changes).map(String::as_str).collect();
    Some(PlannedChange::new(kind, field).with_message(&texts.join("; ")))
}

/// Adds the addresses in the status, if they change.
fn add_status(object: &mut ObjectPlan, service: &Service, planned: &[IpAddr]) {
    let present = reported(service);
    let planned: Vec<String> = planned.iter().map(ToString::to_string).collect();
    if present != planned {
        object.add(PlannedChange::update(
            "status.loadBalancer",
            shown(&present).as_deref(),
            shown(&planned).as_deref(),
        ));
    }
}

/// Adds the release of a Service whose load balancer is deleted.
fn add_release(object: &mut ObjectPlan, service: &Service) {
    if service::has_finalizer(service) {
        object.add(PlannedChange::update("finalizer", Some(FINALIZER), None));
    }
    let present = reported(service);
    if !present.is_empty() {
        object.add(PlannedChange::update("status.loadBalancer", shown(&present).as_deref(), None));
    }
}

/// Returns the addresses in the status.
fn reported(service: &Service) -> Vec<String> {
    let ingress = service::ingress(service).iter();
    ingress.filter_map(|one| one.ip.clone().or_else(|| one.hostname.clone())).collect()
}

fn shown(addresses: &[String]) -> Option<String> {
    (!addresses.is_empty()).then(|| listed(addresses))
}

/// Returns the plan for the load balancers of a Service that does not exist.
pub(super) fn orphan_plan(orphan: &OrphanPreview) -> ObjectPlan {
    let mut object = ObjectPlan::new(&orphan.service);
    let hold = |message: &str| PlannedChange::new(ChangeKind::Hold, ORPHAN).with_message(message);
    object.add(match (orphan.policy, orphan.is_confirmed, orphan.is_paused) {
        (Policy::Report | Policy::Off, ..) => hold("its Service does not exist; --nsx-orphans only reports it"),
        (Policy::Delete, false, _) => {
            hold("the cache has no such Service; another list and a live read have to confirm it before the deletion")
        }
        (Policy::Delete, true, true) => hold("its Service does not exist; deletions pause, because many are orphans"),
        (Policy::Delete, true, false) => match &orphan.step {
            Ok(step) => step_change(step).unwrap_or_else(|| {
                hold("its Service does not exist; NSX has to confirm the last step of the deletion")
            }),
            Err((reason, message)) => {
                hold(&format!("its Service does not exist; {message}")).with_reason(reason.as_str())
            }
        },
    });
    object
}

#[cfg(test)]
mod tests;
