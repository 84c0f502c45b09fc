//! Pure: the sections of the explanation of a Service.

use super::summary::addresses;
use super::{BalancedService, TermFacts};
use crate::app::inquiries::explain::outside_text::{clipped, full_message};
use crate::app::reports::explain::Section;
use crate::app::reports::text::{count, duration};
use crate::cloud::service;
use crate::controllers::service::explanation::{BackendNodes, ServiceFacts};
use crate::controllers::service::plan::ServicePlan;
use crate::controllers::service::reason;
use crate::providers::vsphere::nsx::load_balancer::explanation::{
    LoadBalancerFacts, ObjectFacts, ObjectState, RequestFacts,
};
use crate::providers::vsphere::nsx::load_balancer::ownership::{ObjectOwner, OwnershipProof};
use crate::providers::vsphere::nsx::load_balancer::service_request::Features;
use crate::providers::vsphere::nsx::load_balancer::{LastStep, PlannedStep};
use crate::providers::vsphere::reason::LoadBalancerAdoptedAsIs;
use k8s_openapi::api::core::v1::Service;

/// Maximum numbers of objects and of Nodes that are listed.
const MAX_OBJECTS: usize = 60;
const MAX_NODES: usize = 20;

/// Returns the sections, in order.
pub(super) fn all(known: &BalancedService) -> Vec<Section> {
    vec![request(known), next(known), objects(known), nodes(known)]
}

fn request(known: &BalancedService) -> Section {
    let mut section = Section::new("Requested by the Service");
    let Some(service) = known.service.as_deref() else {
        section.add("Service", "the cache has no Service of this name that needs or has a load balancer");
        if !known.similar.is_empty() {
            section.add("similar names", known.similar.join(", "));
        }
        return section;
    };
    let spec = service.spec.clone().unwrap_or_default();
    let type_ = spec.type_.as_deref().unwrap_or("ClusterIP");
    let end = if service.metadata.deletion_timestamp.is_some() { ", being deleted" } else { "" };
    section.add("type", format!("{}{end}", clipped(type_)));
    section.add_some("other program", spec.load_balancer_class.as_deref().map(clipped));
    if let Some(balancer) = known.balancer.as_ref().filter(|_| service::wants_load_balancer(service)) {
        of_request(&mut section, &balancer.request);
    }
    if service::is_load_balancer(service) {
        let policy = spec.external_traffic_policy.as_deref().unwrap_or("Cluster");
        section.add("traffic policy", clipped(policy));
    }
    section.add("finalizer", if service::has_finalizer(service) { "set" } else { "not set" });
    section.add("addresses", shown_addresses(known, service));
    section
}

fn of_request(section: &mut Section, request: &RequestFacts) {
    let RequestFacts { class, ports, families, features, source_ranges, address, ignores_address, refusals } = request;
    section.add("class", clipped(class));
    section.add("ports", clipped(&ports.join(", ")));
    section.add("families", families.join(", "));
    let ranges = if source_ranges.is_empty() { "every client".to_owned() } else { clipped(&source_ranges.join(", ")) };
    section.add("source ranges", ranges);
    if let Some(Features { affinity, health_check, has_icmp_check, is_snat_disabled, .. }) = features {
        section.add_some("affinity", affinity.map(|time| format!("ClientIP for {}", duration(time.as_secs()))));
        let health = match (health_check, has_icmp_check) {
            (Some(port), _) => format!("HTTP to the port {port} of each Node"),
            (None, true) => "TCP to the node port; ICMP for UDP ports".to_owned(),
            (None, false) => "TCP to the node port; none for UDP ports".to_owned(),
        };
        section.add("health check", health);
        section.add("SNAT", if *is_snat_disabled { "disabled" } else { "automap" });
    }
    if *ignores_address {
        section.add("address", "spec.loadBalancerIP has no effect: --nsx-load-balancer-ip=off");
    } else {
        section.add_some("address", address.map(|address| format!("{address}, and no other one")));
    }
    for (reason, message) in refusals {
        section.add_finding("refused", format!("{}: {reason}", full_message(message)));
    }
}

fn shown_addresses(known: &BalancedService, service: &Service) -> String {
    let listed = |addresses: Vec<String>| if addresses.is_empty() { "none".to_owned() } else { addresses.join(", ") };
    let status = format!("{} in the status", clipped(&listed(addresses(service))));
    let state = known.balancer.as_ref().and_then(|balancer| balancer.state.as_ref());
    match state.map(|state| &state.next) {
        Some(Ok(step)) if service::wants_load_balancer(service) => {
            format!("{status}, {} in NSX", listed(step.addresses.iter().map(ToString::to_string).collect()))
        }
        _ => status,
    }
}

fn next(known: &BalancedService) -> Section {
    let mut section = Section::new("Next step");
    let TermFacts::Current(facts) = &known.term else { return section };
    let wants = known.service.as_deref().is_some_and(service::wants_load_balancer);
    match (&facts.plan, known.is_detached) {
        (Some(ServicePlan::LeaveAlone), true) if wants => {
            section.add("decision", "leave alone: NSX and the status match the Service");
        }
        _ => section.add("decision", decision(facts, wants)),
    }
    let Some(balancer) = &known.balancer else { return section };
    let state = balancer.state.as_ref();
    match state.map(|state| &state.next) {
        Some(Ok(planned)) if wants || planned.step.is_some() => {
            section.add("next step", planned.step.as_deref().unwrap_or("none: NSX matches the Service"));
            for change in &planned.changes {
                section.add("", clipped(change));
            }
        }
        Some(Err((reason, message))) => {
            section.add_finding("next step", format!("none, {reason}: {}", full_message(message)))
        }
        Some(Ok(_)) => {}
        None => section.add("next step", "not known before NSX is listed"),
    }
    if let Some(last) = &balancer.last_step {
        for (label, text) in last_steps(last, &known.age(last.at)) {
            section.add(label, text);
        }
    }
    section.add_some(
        "next attempt",
        match known.is_detached {
            true => Some("not known: only the leader knows when it syncs the Service".to_owned()),
            false => next_attempt(facts, balancer),
        },
    );
    for (reason, message) in &balancer.remarks {
        section.add("remark", format!("{reason}: {}", full_message(message)));
    }
    // A command without a daemon has no remarks of calls.
    if let (Some(Ok(PlannedStep { adopted_as_is: Some(message), .. })), true) =
        (state.map(|state| &state.next), known.is_detached)
    {
        section.add("remark", format!("{LoadBalancerAdoptedAsIs}: {}", full_message(message)));
    }
    section
}

fn decision(facts: &ServiceFacts, wants: bool) -> String {
    let decided = match &facts.plan {
        None => {
            "the remaining objects of the load balancer are deleted, after live reads confirm that the Service \
                 is gone"
        }
        Some(ServicePlan::LeaveAlone) if wants => "leave alone: this term has ensured exactly this",
        Some(ServicePlan::LeaveAlone) => "leave alone: no load balancer of this program is needed",
        Some(ServicePlan::Hold { .. }) => "hold until the Service changes",
        Some(ServicePlan::Ensure { adds_finalizer: true }) => "set the finalizer, then ensure the load balancer",
        Some(ServicePlan::Ensure { adds_finalizer: false }) => "ensure the load balancer",
        Some(ServicePlan::Delete) => "delete the load balancer, then remove finalizer and addresses",
    };
    let first =
        if facts.is_replaced { "delete the load balancer of the former Service of this name; then " } else { "" };
    format!("{first}{decided}")
}

/// Returns the steps of the last plan and the result of the last call, with labels.
fn last_steps(last: &LastStep, age: &str) -> Vec<(&'static str, String)> {
    let mut lines: Vec<(&'static str, String)> =
        last.steps.values().map(|step| ("last step", format!("{age} ago: {}", clipped(step)))).collect();
    if lines.is_empty() {
        lines.push(("last step", format!("none needed, {age} ago")));
    }
    let outcome = match &last.outcome {
        Some(Ok(())) => "as desired".to_owned(),
        Some(Err(message)) => full_message(message),
        None => "the call runs".to_owned(),
    };
    lines.push(("last result", outcome));
    lines
}

fn next_attempt(facts: &ServiceFacts, balancer: &LoadBalancerFacts) -> Option<String> {
    if facts.is_in_flight || balancer.is_in_flight {
        return Some("a call runs now".to_owned());
    }
    let is_open = matches!(facts.plan, Some(ServicePlan::Ensure { .. } | ServicePlan::Delete));
    match &facts.blocked {
        Some(blocked) => Some(match blocked.next_attempt.map(|rest| rest.as_secs()) {
            Some(0) => "now".to_owned(),
            Some(rest) => format!("in {}, or when the Service changes", duration(rest)),
            None => "when the Service, the Nodes or vsphere.conf change".to_owned(),
        }),
        None if balancer.waits_for_list => Some("after the next list of NSX".to_owned()),
        None => is_open.then(|| "within seconds".to_owned()),
    }
}

fn objects(known: &BalancedService) -> Section {
    let mut section = Section::new("Objects in NSX");
    let Some(balancer) = &known.balancer else { return section };
    let listed = match balancer.list.last {
        Some(last) => format!("{} ago, and later reads and writes", known.age(last)),
        None if known.is_detached => "never: the objects are not known".to_owned(),
        None => "never in this term: the objects are not known".to_owned(),
    };
    section.add("listed", listed);
    if let Some(failure) = &balancer.list.failure {
        section.add_finding("list", format!("failed: {}", full_message(failure)));
    }
    let Some(ObjectState { lb_service, objects, .. }) = &balancer.state else { return section };
    if !balancer.knows_cluster_uid {
        section.add("cluster", "its UID is not known, so tags with a cluster UID prove nothing");
    }
    match lb_service {
        Ok(Some(path)) => section.add("LB service", path.as_str()),
        Ok(None) => section.add("LB service", "none yet: it is created with the first load balancer"),
        Err(message) => section.add_finding("LB service", full_message(message)),
    }
    for object in objects.iter().take(MAX_OBJECTS) {
        section.add(label(object.kind), clipped(&object.path));
        section.add("", description(object));
    }
    match objects.len().saturating_sub(MAX_OBJECTS) {
        0 if objects.is_empty() => section.add("objects", "none that name the Service"),
        0 => {}
        more => section.add("objects", format!("{more} more")),
    }
    section
}

/// Returns a label that fits before a fact.
fn label(kind: &'static str) -> &'static str {
    match kind {
        "group of source ranges" => "source ranges",
        "persistence profile" => "persistence",
        kind => kind,
    }
}

fn description(object: &ObjectFacts) -> String {
    let parts = [
        object.port.clone(),
        object.address.map(|address| address.to_string()),
        object.members.map(|members| count(members, "member")),
        Some(owner(object.owner).to_owned()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn owner(owner: ObjectOwner) -> &'static str {
    match owner {
        ObjectOwner::ThisCluster(OwnershipProof::ClusterUid) => "ours by the tag cluster-uid",
        ObjectOwner::ThisCluster(OwnershipProof::ServiceUid) => "ours by the tag service-uid",
        ObjectOwner::ThisCluster(OwnershipProof::Id) => "ours by its id",
        ObjectOwner::ThisCluster(OwnershipProof::Address) => "ours by its address",
        ObjectOwner::ThisCluster(OwnershipProof::Members) => "ours by its members, which are our Nodes",
        ObjectOwner::ThisCluster(OwnershipProof::Reference) => "ours by the reference of another object of ours",
        ObjectOwner::AnotherCluster => "of another cluster by the tag cluster-uid: never changed",
        ObjectOwner::Unresolved => "decided when its address is read",
        ObjectOwner::Ambiguous => "of this or another cluster: never changed (docs/nsx/how-it-works.md)",
    }
}

fn nodes(known: &BalancedService) -> Section {
    let mut section = Section::new("Nodes behind it");
    let TermFacts::Current(facts) = &known.term else { return section };
    if !known.service.as_deref().is_some_and(service::wants_load_balancer) {
        return section;
    }
    let BackendNodes { targets, written, is_certain, differing, pausing } = &facts.nodes;
    section.add("targets", count(targets.len(), "Node"));
    let written = match written {
        Some(written) if *is_certain => Some(count(*written, "Node")),
        Some(written) => Some(format!("{}, and a later call whose result is not known", count(*written, "Node"))),
        None => (!known.is_detached).then(|| "nothing in this term".to_owned()),
    };
    section.add_some("written", written);
    let planned = known.balancer.as_ref().and_then(|balancer| balancer.state.as_ref()?.next.as_ref().ok());
    let members = planned.and_then(|planned| planned.desired_members);
    section.add_some("members", members.map(|members| format!("{members} expected for each port")));
    for name in differing.iter().take(MAX_NODES) {
        section.add_finding("waits", format!("a change of {name}, for the next update of all load balancers"));
    }
    for (name, rest) in pausing.iter().take(MAX_NODES) {
        let rest = duration(rest.as_secs());
        section.add_finding("waits", format!("a change of {name}, for {rest}: {}", reason::NodeFlapping));
    }
    let more = differing.len().saturating_sub(MAX_NODES) + pausing.len().saturating_sub(MAX_NODES);
    section.add_some("", (more > 0).then(|| format!("{more} more")));
    section
}
