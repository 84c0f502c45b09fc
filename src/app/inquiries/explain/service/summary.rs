//! Pure: the state of a Service in one sentence.

use super::{BalancedService, TermFacts};
use crate::app::inquiries::explain::outside_text::full_message;
use crate::app::reports::explain::{SubjectState, lasting};
use crate::app::reports::text::{count, duration};
use crate::cloud::{Reason, service};
use crate::controllers::service::explanation::{BackendNodes, BlockedService, ServiceFacts};
use crate::controllers::service::plan::ServicePlan;
use crate::controllers::service::reason;
use crate::providers::vsphere::nsx::load_balancer::explanation::{LoadBalancerFacts, ObjectState};
use crate::providers::vsphere::nsx::load_balancer::ownership::ObjectOwner;
use crate::providers::vsphere::nsx::load_balancer::{ListStatus, PlannedStep};
use k8s_openapi::api::core::v1::Service;

/// The state of a Service.
pub(super) struct Summary {
    pub(super) state: SubjectState,
    /// The state in one sentence.
    pub(super) text: String,
    /// What blocks the Service, with its message.
    pub(super) reason: Option<(Reason, String)>,
}

impl Summary {
    fn new(state: SubjectState, text: impl Into<String>) -> Self {
        Self { state, text: text.into(), reason: None }
    }

    fn settled(text: impl Into<String>) -> Self {
        Self::new(SubjectState::Settled, text)
    }

    fn held(text: impl Into<String>) -> Self {
        Self::new(SubjectState::Held, text)
    }

    fn unknown(text: impl Into<String>) -> Self {
        Self::new(SubjectState::Unknown, text)
    }

    /// Held by a reason that the controller has not recorded.
    fn held_by(subject: &str, reason: Reason, message: &str) -> Self {
        let reason = (reason, message.to_owned());
        Self { reason: Some(reason.clone()), ..Self::held(format!("{subject}: {}", reason.0)) }
    }
}

/// Returns the state.
pub(super) fn of(known: &BalancedService) -> Summary {
    let service = known.service.as_deref();
    let facts = match &known.term {
        TermFacts::Current(facts) => facts,
        TermFacts::NoController => return Summary::unknown("not known: the service controller does not run here"),
        TermFacts::Standby => return Summary::unknown("not known: only the leader lists NSX"),
        TermFacts::NotBegun => return Summary::unknown("not known: the term of leadership has begun just now"),
        TermFacts::Unread => return Summary::unknown("not known: the Services or Nodes could not be read"),
        TermFacts::NotConfigured => return not_configured(service),
    };
    if let Some(blocked) = &facts.blocked {
        return of_blocked(blocked);
    }
    let Some(LoadBalancerFacts { state: Some(state), .. }) = &known.balancer else {
        if known.is_detached {
            return Summary::unknown("not known: the objects in NSX could not be listed");
        }
        return Summary::unknown("not known: the objects in NSX are not listed yet in this term of leadership");
    };
    match (service, &facts.plan) {
        (None, _) => as_of_list(of_absent(facts, state), known),
        (Some(service), Some(ServicePlan::LeaveAlone)) if is_of_another_program(service) => {
            Summary::settled(of_another_program(service))
        }
        (Some(service), Some(ServicePlan::Ensure { adds_finalizer })) if known.is_detached => {
            as_of_list(of_first_ensure(*adds_finalizer, service, state), known)
        }
        (Some(service), Some(plan)) => as_of_list(of_plan(service, plan, facts, state), known),
        (Some(_), None) => Summary::unknown("not known: the load balancers are being configured"),
    }
}

fn of_blocked(blocked: &BlockedService) -> Summary {
    let since = lasting(blocked.blocked_for.as_secs());
    let subject = if blocked.is_of_nodes { "its Nodes are not up to date" } else { "not up to date" };
    let reason = Some((blocked.reason, blocked.message.clone()));
    Summary { reason, ..Summary::held(format!("{subject} {since}: {}", blocked.reason)) }
}

fn not_configured(service: Option<&Service>) -> Summary {
    match service {
        Some(service) if service::wants_load_balancer(service) || service::needs_cleanup(service) => {
            let message = "this process has no load balancers configured, or their configuration has an error";
            Summary::held_by("no load balancer", reason::LoadBalancerNotConfigured, message)
        }
        Some(service) if service::is_load_balancer(service) => Summary::settled(of_another_program(service)),
        _ => Summary::unknown("not known: this process has no load balancers configured"),
    }
}

fn is_of_another_program(service: &Service) -> bool {
    service::is_load_balancer(service) && !service::wants_load_balancer(service)
}

/// Returns the summary. A state that depends on a list of NSX is not known while NSX cannot be listed.
fn as_of_list(summary: Summary, known: &BalancedService) -> Summary {
    let list = known.balancer.as_ref().map(|balancer| &balancer.list);
    let Some(ListStatus { last: Some(last), failure: Some(failure) }) = list else { return summary };
    if summary.state != SubjectState::Settled {
        return summary;
    }
    let age = known.age(*last);
    Summary::unknown(format!("not known: {}, as of the list {age} ago: {}", summary.text, full_message(failure)))
}

fn of_another_program(service: &Service) -> String {
    let class = service.spec.as_ref().and_then(|spec| spec.load_balancer_class.as_deref()).unwrap_or_default();
    format!("the class {class:?} in spec.loadBalancerClass belongs to another program")
}

/// Of a Service that the cache does not have.
fn of_absent(facts: &ServiceFacts, state: &ObjectState) -> Summary {
    match (owned(state), facts.has_record) {
        (0, true) => Summary::held("does not exist, or needs no load balancer; what is left of it is being deleted"),
        (0, false) if !state.objects.is_empty() => Summary::settled(format!(
            "does not exist, or needs no load balancer; {} with its name may be of another cluster",
            count(state.objects.len(), "object")
        )),
        (0, false) => Summary::settled("does not exist, or needs no load balancer; NSX has no object of it"),
        (owned, _) => Summary::held(format!(
            "does not exist, or needs no load balancer; NSX has {} of it",
            count(owned, "object")
        )),
    }
}

fn of_plan(service: &Service, plan: &ServicePlan, facts: &ServiceFacts, state: &ObjectState) -> Summary {
    match plan {
        ServicePlan::Hold { reason, message } => Summary::held_by("not up to date", *reason, message),
        ServicePlan::Delete => Summary::held(format!("the load balancer is to be deleted: {}", next_of(state))),
        ServicePlan::Ensure { .. } => match &state.next {
            Err((reason, message)) => Summary::held_by("not up to date", *reason, message),
            Ok(_) => Summary::held(format!("the load balancer is not complete: {}", next_of(state))),
        },
        ServicePlan::LeaveAlone if service::wants_load_balancer(service) => of_wanted(service, facts, state),
        ServicePlan::LeaveAlone => of_unwanted(service, state),
    }
}

/// Of a Service whose load balancer a new leader would ensure with a change.
fn of_first_ensure(adds_finalizer: bool, service: &Service, state: &ObjectState) -> Summary {
    match &state.next {
        Err((reason, message)) => Summary::held_by("not up to date", *reason, message),
        Ok(_) if adds_finalizer => Summary::held("not complete: next, the finalizer is set"),
        Ok(PlannedStep { step: Some(step), .. }) => {
            Summary::held(format!("NSX does not match the Service: next, {step}"))
        }
        Ok(PlannedStep { step: None, .. }) => {
            let present = addresses(service);
            let present = if present.is_empty() { "none".to_owned() } else { present.join(", ") };
            Summary::held(format!("NSX matches the Service, and the status has another address: {present}"))
        }
    }
}

fn next_of(state: &ObjectState) -> String {
    match &state.next {
        Ok(PlannedStep { step: Some(step), .. }) => format!("next, {step}"),
        _ => "NSX has to confirm the last step".to_owned(),
    }
}

/// Of a Service whose load balancer this term has ensured.
fn of_wanted(service: &Service, facts: &ServiceFacts, state: &ObjectState) -> Summary {
    let BackendNodes { differing, pausing, is_certain, .. } = &facts.nodes;
    match &state.next {
        Err((reason, message)) => return Summary::held_by("not up to date", *reason, message),
        Ok(PlannedStep { step: Some(step), .. }) => {
            return Summary::held(format!("NSX does not match the Service: next, {step}"));
        }
        Ok(PlannedStep { step: None, .. }) => {}
    }
    if !differing.is_empty() {
        return Summary::held(format!("changes of {} are about to be written", count(differing.len(), "Node")));
    }
    if let Some((name, rest)) = pausing.first() {
        let message =
            format!("the Node {name} changes too often; its last change waits for {}", duration(rest.as_secs()));
        return Summary::held_by("served, without the last change of a Node", reason::NodeFlapping, &message);
    }
    if facts.was_ensured && !is_certain {
        return Summary::held("the Nodes behind the load balancer are being written");
    }
    let addresses = addresses(service);
    if addresses.is_empty() {
        Summary::held("no address in the status yet")
    } else {
        Summary::settled(format!("served at {}", addresses.join(", ")))
    }
}

/// Of a Service that needs no load balancer.
fn of_unwanted(service: &Service, state: &ObjectState) -> Summary {
    let kind = service.spec.as_ref().and_then(|spec| spec.type_.as_deref()).unwrap_or("ClusterIP");
    match owned(state) {
        0 => Summary::settled(format!("has the type {kind} and no load balancer")),
        owned => Summary::held(format!("has the type {kind}, and NSX still has {} of it", count(owned, "object"))),
    }
}

/// Returns the addresses in the status of the Service.
pub(super) fn addresses(service: &Service) -> Vec<String> {
    let ingress = service::ingress(service).iter();
    ingress.filter_map(|one| one.ip.clone().or_else(|| one.hostname.clone())).collect()
}

fn owned(state: &ObjectState) -> usize {
    state.objects.iter().filter(|object| matches!(object.owner, ObjectOwner::ThisCluster(_))).count()
}
