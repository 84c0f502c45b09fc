//! Pure: what blocks a Service, who acts, and the command that shows or removes the cause.

use super::{BalancedService, TermFacts, clipped};
use crate::app::reports::explain::Section;
use crate::cloud::Reason;
use crate::controllers::service::reason as controller;
use crate::providers::vsphere::nsx::load_balancer::explanation::LoadBalancerFacts;
use crate::providers::vsphere::reason;

/// Who acts on a reason.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Actor {
    ServiceOwner,
    NsxAdministrator,
    Operator,
    Nobody,
}

impl Actor {
    fn text(self) -> &'static str {
        match self {
            Self::ServiceOwner => "the owner of the Service changes it",
            Self::NsxAdministrator => "the administrator of NSX",
            Self::Operator => "the operator of this program, with its configuration or permissions",
            Self::Nobody => "no one: it is tried again",
        }
    }
}

/// The actors by reason. Further reasons are for the operator.
const ACTORS: &[(Reason, Actor)] = &[
    (reason::LoadBalancerNotPossible, Actor::ServiceOwner),
    (reason::LoadBalancerClassUnknown, Actor::ServiceOwner),
    (reason::LoadBalancerClassFixed, Actor::ServiceOwner),
    (controller::FinalizerNotOurs, Actor::ServiceOwner),
    (reason::AddressUnavailable, Actor::NsxAdministrator),
    (reason::LoadBalancerCapacity, Actor::NsxAdministrator),
    (reason::LoadBalancerNotRealized, Actor::NsxAdministrator),
    (reason::LoadBalancerStillRealized, Actor::NsxAdministrator),
    (reason::NSXNoPermission, Actor::NsxAdministrator),
    (reason::NSXRefused, Actor::NsxAdministrator),
    (reason::NSXUnavailable, Actor::NsxAdministrator),
    (controller::NodeFlapping, Actor::Nobody),
    (controller::WriteConflict, Actor::Nobody),
    (controller::APIServerUnavailable, Actor::Nobody),
    (controller::ProviderTimeout, Actor::Nobody),
];

/// Returns the section about the reason that blocks the Service; empty without a reason.
pub(super) fn section(known: &BalancedService, blocked: Option<(Reason, String)>) -> Section {
    let mut section = Section::new("What is wrong");
    let Some((reason, message)) = blocked else { return section };
    let actor = ACTORS.iter().find(|(of, _)| *of == reason).map_or(Actor::Operator, |(_, actor)| *actor);
    section.add_finding(reason.as_str(), clipped(&message));
    section.add("who acts", actor.text());
    section.add_some("command", command(known, reason, actor));
    section.add("page", format!("docs/reasons.md#{}", reason.as_str().to_lowercase()));
    section
}

fn command(known: &BalancedService, reason: Reason, actor: Actor) -> Option<String> {
    if reason == controller::NodeFlapping {
        let TermFacts::Current(facts) = &known.term else { return None };
        return facts.nodes.pausing.first().map(|(node, _)| format!("kubectl describe node {node}"));
    }
    if reason == controller::NoSelectedNodes {
        return Some("kubectl get nodes --show-labels".to_owned());
    }
    if reason == reason::LoadBalancerCapacity {
        return nsx_command(known, &format!("{}/service-usage", lb_service(known)?));
    }
    if reason == reason::AddressUnavailable {
        return nsx_command(known, "/infra/ip-pools");
    }
    let verb = if actor == Actor::ServiceOwner { "edit" } else { "describe" };
    // Only names of existing Services are safe in a command.
    known
        .service
        .as_ref()
        .and(known.key.split_once('/'))
        .map(|(namespace, name)| format!("kubectl {verb} service -n {namespace} {name}"))
}

/// Returns the command that reads an object of NSX.
fn nsx_command(known: &BalancedService, path: &str) -> Option<String> {
    known.nsx.as_ref().map(|server| format!("curl -k -u USER https://{server}/policy/api/v1{path}"))
}

fn lb_service(known: &BalancedService) -> Option<&str> {
    let LoadBalancerFacts { state, .. } = known.balancer.as_ref()?;
    state.as_ref()?.lb_service.as_ref().ok()?.as_deref()
}
