//! Pure: what blocks a Service, who acts, and the command that shows or removes the cause.

use super::{BalancedService, TermFacts};
use crate::app::inquiries::explain::actors::{CLUSTER, NOBODY, NSX, SERVICE_OWNER};
use crate::app::inquiries::explain::outside_text::full_message;
use crate::app::reports::explain::Section;
use crate::cloud::Reason;
use crate::controllers::service::reason as controller;
use crate::providers::vsphere::nsx::load_balancer::explanation::LoadBalancerFacts;
use crate::providers::vsphere::reason;

/// The actors by reason. Further reasons are for [`CLUSTER`].
const ACTORS: &[(Reason, &str)] = &[
    (reason::LoadBalancerNotPossible, SERVICE_OWNER),
    (reason::LoadBalancerClassUnknown, SERVICE_OWNER),
    (reason::LoadBalancerClassFixed, SERVICE_OWNER),
    (controller::FinalizerNotOurs, SERVICE_OWNER),
    (reason::AddressUnavailable, NSX),
    (reason::LoadBalancerCapacity, NSX),
    (reason::LoadBalancerNotRealized, NSX),
    (reason::LoadBalancerNotConfirmed, NSX),
    (reason::LoadBalancerStillRealized, NSX),
    (reason::LoadBalancerAddressEdited, NSX),
    (reason::LoadBalancerAddressSetBack, NOBODY),
    (reason::AddressNotReserved, NSX),
    (reason::AddressNotReleased, NSX),
    (reason::NSXNoPermission, NSX),
    (reason::NSXRefused, NSX),
    (reason::NSXUnavailable, NSX),
    (controller::CloudUnavailable, NOBODY),
    (controller::WriteConflict, NOBODY),
    (controller::ProviderTimeout, NOBODY),
];

/// Returns the section about the reason that blocks the Service; empty without a reason.
pub(super) fn section(known: &BalancedService, blocked: Option<(Reason, String)>) -> Section {
    let mut section = Section::new("Findings");
    let Some((reason, message)) = blocked else { return section };
    let actor = ACTORS.iter().find(|(of, _)| *of == reason).map_or(CLUSTER, |(_, actor)| *actor);
    section.add_finding(reason.as_str(), full_message(&message));
    section.add("who acts", actor);
    section.add_some("command", command(known, reason, actor));
    section.add("page", format!("docs/reasons.md#{}", reason.as_str().to_lowercase()));
    section
}

fn command(known: &BalancedService, reason: Reason, actor: &str) -> Option<String> {
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
        let pools = nsx_command(known, "/infra/ip-pools")?;
        return Some(format!("{pools} | jq '.results[] | {{path, pool_usage}}' shows the free addresses"));
    }
    let verb = if actor == SERVICE_OWNER { "edit" } else { "describe" };
    // Only names of existing Services are safe in a command.
    known
        .service
        .as_ref()
        .and(known.key.split_once('/'))
        .map(|(namespace, name)| format!("kubectl {verb} service -n {namespace} {name}"))
}

/// Returns the command that reads an object of NSX.
fn nsx_command(known: &BalancedService, path: &str) -> Option<String> {
    known.nsx.as_ref().map(|server| format!("curl -s --cacert CA_FILE -u USER https://{server}/policy/api/v1{path}"))
}

fn lb_service(known: &BalancedService) -> Option<&str> {
    let LoadBalancerFacts { state, .. } = known.balancer.as_ref()?;
    state.as_ref()?.lb_service.as_ref().ok()?.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::inquiries::explain::actors::{assert_documented, documented};

    #[test]
    fn who_acts_is_the_same_as_in_the_table_of_the_reasons() {
        for (reason, actor) in ACTORS {
            assert_documented(reason.as_str(), actor);
        }
        let groups = ["Load balancers of Services", "NSX"];
        let of_services: Vec<&str> =
            documented().into_iter().filter(|(_, _, group)| groups.contains(group)).map(|(word, ..)| word).collect();
        assert!(of_services.len() > 20, "{of_services:?}");
        for word in of_services {
            let actor = ACTORS.iter().find(|(of, _)| *of == word).map_or(CLUSTER, |(_, actor)| *actor);
            assert_documented(word, actor);
        }
    }
}
