//! `explain route NODE`: the routes to the pod networks of one Node.

use super::actors::{CLUSTER, GUEST, NSX};
use super::outside_text::{clipped, full_message};
use super::{Explanation, not_known};
use crate::app::catalogue;
use crate::app::inquiries::answer_time::AnswerTime;
use crate::app::inquiries::completeness::nodes_gap;
use crate::app::inquiries::plan::{DetachedPlanner, PlanSettings};
use crate::app::inquiries::{Inquiries, status};
use crate::app::reports::explain::{Section, SubjectState, lasting};
use crate::app::reports::text::count;
use crate::cloud::{CloudProvider as _, Reason, node};
use crate::controllers::driver::CurrentTerm;
use crate::controllers::route::{PodNetworkFacts, RouteFacts, Routing, condition, reason};
use crate::providers::vsphere::nsx::routes::KnownRoute;
use crate::providers::vsphere::reason::NoNextHop;

/// Explains the routes of the Node with this name.
///
/// # Errors
/// The names of the Nodes that the process knows.
pub(super) fn explain(process: &Inquiries, name: &str) -> Result<Explanation, Vec<String>> {
    let term = process.terms.route.as_ref().and_then(CurrentTerm::get);
    let Some(term) = term else {
        if process.nodes.contains(name) || nodes_gap(process).is_some() {
            return Ok(not_known(subject(name), &idle_reason(process)));
        }
        return Err(process.nodes.keys());
    };
    let Some(facts) = term.explain(name) else { return Err(term.known_nodes()) };
    Ok(with_known_routes(process, &facts))
}

/// Explains the routes of the Node with this name by a command without a daemon: lists the routes, and plans them as
/// the first pass of a new leader.
///
/// # Errors
/// The names of the Nodes that the command has read.
pub(super) async fn explain_without_term(
    process: &Inquiries,
    settings: &PlanSettings,
    name: &str,
) -> Result<Explanation, Vec<String>> {
    let Some(node) = process.nodes.get(name) else {
        return match nodes_gap(process) {
            Some(gap) => Ok(not_known(subject(name), &gap)),
            None => Err(process.nodes.keys()),
        };
    };
    let Some(provider) = process.vsphere.provider() else {
        return Ok(not_known(subject(name), "the command stops"));
    };
    let planner = DetachedPlanner { process, settings, selected: Some(name) };
    match planner.first_pass(&provider).await {
        Ok(pass) => Ok(with_known_routes(process, &pass.explain(&node, provider.owns(&node)))),
        Err(part) => Ok(not_known(subject(name), &clipped(part.message.as_deref().unwrap_or_default()))),
    }
}

fn with_known_routes(process: &Inquiries, facts: &RouteFacts) -> Explanation {
    let known = facts.networks.iter().map(|one| process.vsphere.known_route(&facts.node, &one.network?));
    explanation(facts, &known.collect::<Vec<_>>(), &AnswerTime::now())
}

fn subject(name: &str) -> String {
    format!("routes of Node {name}")
}

/// Returns the reason why the route controller has no term in this process.
fn idle_reason(process: &Inquiries) -> String {
    if !process.leadership.is_leader() {
        return "only the leader has the routes".to_owned();
    }
    let mut controllers = status::controllers(process).into_iter();
    let controller = controllers.find(|controller| controller.name == catalogue::ROUTE);
    let reason = controller.and_then(|controller| controller.reason);
    reason.unwrap_or_else(|| format!("{} has not begun, or is turned off by --controllers", catalogue::ROUTE))
}

/// Makes the explanation. `known` has the known route of each network.
fn explanation(facts: &RouteFacts, known: &[Option<KnownRoute>], time: &AnswerTime) -> Explanation {
    let name = node::name(&facts.node);
    let of_networks = facts.networks.iter().zip(known);
    let is_unrealized = |known: &Option<KnownRoute>| known.as_ref().is_some_and(|known| known.is_unrealized);
    let unrealized = of_networks.clone().find(|(_, known)| is_unrealized(known)).map(|(network, _)| network);
    let (state, summary) = standing(facts, unrealized);
    let mut sections: Vec<Section> = Vec::new();
    for (network, known) in of_networks {
        sections.push(network_section(name, network, known.as_ref(), facts, time));
    }
    sections.push(node_section(facts, time));
    Explanation { subject: subject(name), summary, state, sections }
}

/// Returns the word of the reason why the route is not as it should be; `None` if it is Ready or waits for its turn.
fn hold(network: &PodNetworkFacts) -> Option<&'static str> {
    match (&network.blocked, network.network) {
        (Some(blocked), _) => Some(blocked.reason.as_str()),
        (None, None) => Some("not a network"),
        (None, Some(_)) => None,
    }
}

/// Returns the state of the routes, and the sentence about them. `unrealized` is the first network with a route that NSX
/// has not realized yet.
fn standing(facts: &RouteFacts, unrealized: Option<&PodNetworkFacts>) -> (SubjectState, String) {
    if !facts.is_own {
        return (SubjectState::Settled, "none: the Node belongs to another provider".to_owned());
    }
    if facts.networks.is_empty() {
        return (SubjectState::Settled, "none: the Node has no network in spec.podCIDRs".to_owned());
    }
    if let Some((network, word)) = facts.networks.iter().find_map(|network| Some((network, hold(network)?))) {
        let blocked = network.blocked.as_ref().filter(|_| facts.has_term);
        let lasting = blocked.map(|blocked| format!(" {}", lasting(blocked.blocked_for.as_secs())));
        let lasting = lasting.unwrap_or_default();
        return (SubjectState::Held, format!("{} held{lasting}: {word}", clipped(&network.text)));
    }
    if !facts.are_listed {
        let why = facts.listing_failure.as_deref().map(|failure| format!(": {}", full_message(failure)));
        let why = why.unwrap_or_default();
        return (SubjectState::Unknown, format!("not known: the routes were not listed yet in this term{why}"));
    }
    let is_ready = |network: &PodNetworkFacts| network.routing == Routing::Ready;
    match facts.networks.iter().find(|network| !is_ready(network)) {
        Some(network) => (SubjectState::Held, format!("{} pending", clipped(&network.text))),
        None if unrealized.is_some() => {
            let network = unrealized.map(|network| clipped(&network.text)).unwrap_or_default();
            (SubjectState::Held, format!("{network} pending: NSX has not realized the route yet"))
        }
        None if facts.unwritten_condition.is_some() => {
            (SubjectState::Held, "Ready, but the condition NetworkUnavailable cannot be written".to_owned())
        }
        None => {
            let ready = format!("{} Ready", count(facts.networks.len(), "route"));
            match &facts.listing_failure {
                Some(failure) => {
                    let text =
                        format!("not known: {ready} in the last list, and no list succeeds: {}", full_message(failure));
                    (SubjectState::Unknown, text)
                }
                None => (SubjectState::Settled, ready),
            }
        }
    }
}

fn network_section(
    name: &str,
    facts: &PodNetworkFacts,
    known: Option<&KnownRoute>,
    node: &RouteFacts,
    time: &AnswerTime,
) -> Section {
    let mut section = Section::new(&format!("Network {}", clipped(&facts.text)));
    let word = hold(facts);
    match (&word, facts.routing) {
        (Some(word), Routing::Ready) => section.add_finding("state", format!("Ready, and held: {word}")),
        (Some(word), _) => section.add_finding("state", format!("held: {word}")),
        (None, Routing::Ready) => section.add("state", "Ready"),
        (None, _) if !node.has_term => section.add("state", "pending: a new leader would create or rewrite the route"),
        (None, _) => section.add("state", "pending: not tried since the last change"),
    }
    section.add_some("network", facts.refusal.as_deref().map(clipped));
    section.add_some("failure", facts.failure.as_ref().map(|failure| full_message(&failure.message)));
    if let Some(known) = known {
        add_known_route(&mut section, known);
    }
    for target in &facts.obstacles {
        section.add("deleted first", format!("the route to the same network by Node {}", clipped(target)));
    }
    if facts.routing != Routing::Ready || word.is_some() {
        section.add("next attempt", next_attempt(facts, node, time));
    }
    if let Some(blocked) = &facts.blocked {
        add_remedy(&mut section, name, blocked.reason, known);
    }
    section
}

fn add_known_route(section: &mut Section, known: &KnownRoute) {
    match &known.next_hop {
        Ok(hop) => section.add("next hop", hop.to_string()),
        Err(why) => section.add_finding("next hop", format!("none: {}", full_message(why))),
    }
    section.add("router", known.router.as_str());
    match &known.id {
        Some(id) => {
            section.add("route", format!("static-routes/{id}"));
            section.add("owner", "this cluster, by the tags or the id of the route");
        }
        None => section.add("route", "none of this cluster was listed"),
    }
    if known.is_unrealized {
        section.add("realized", "not yet, as far as NSX has reported");
    }
}

/// Returns when the routes to the network are changed or looked at again.
fn next_attempt(facts: &PodNetworkFacts, node: &RouteFacts, time: &AnswerTime) -> String {
    let retry = facts.failure.as_ref().and_then(|failure| failure.next);
    let pass = match node.next_pass {
        Some(pass) => format!("with the next pass at {}", time.wall_clock(pass)),
        None if node.has_term => "with the pass that is queued".to_owned(),
        None => "not known: only the leader knows its next pass".to_owned(),
    };
    match (retry, &facts.failure) {
        (Some(retry), _) => format!("at {}", time.wall_clock(retry)),
        (None, Some(_)) => "when the Node or its addresses change".to_owned(),
        (None, None) if facts.network.is_none() => "when spec.podCIDRs changes".to_owned(),
        (None, None) => pass,
    }
}

/// Adds who acts, and the command that shows the cause.
fn add_remedy(section: &mut Section, name: &str, word: Reason, known: Option<&KnownRoute>) {
    let (actor, command) = if word == reason::PodNetworkForeign || word == reason::PodNetworkInUse {
        let columns = "NAME:.metadata.name,NETWORKS:.spec.podCIDRs";
        (CLUSTER.to_owned(), format!("kubectl get nodes -o custom-columns='{columns}'"))
    } else if word == NoNextHop {
        let paths = "{.status.addresses} {.spec.podCIDRs}";
        (GUEST.to_owned(), format!("kubectl get node {name} -o jsonpath='{paths}'"))
    } else {
        let id = known.and_then(|known| Some((known.router.as_str(), known.id.as_ref()?)));
        let of_route = id.map(|(router, id)| format!(" of {router}/static-routes/{id}")).unwrap_or_default();
        let events = format!("kubectl get events -n default --field-selector involvedObject.name={name}");
        let actor = format!("{NSX}, unless the next attempt succeeds");
        (actor, format!("{events} shows the failure{of_route}"))
    };
    section.add("who acts", actor);
    section.add("check", command);
    section.add("page", format!("docs/reasons.md#{}", word.as_str().to_lowercase()));
}

fn node_section(facts: &RouteFacts, time: &AnswerTime) -> Section {
    let mut section = Section::new("Node");
    let condition = condition::of(&facts.node);
    let condition = condition.map(|condition| {
        let reason = condition.reason.as_deref().unwrap_or("no reason");
        clipped(&format!("NetworkUnavailable={}, {reason}", condition.status))
    });
    section.add("condition", condition.unwrap_or_else(|| "NetworkUnavailable is not set".to_owned()));
    if let Some(reason) = facts.unwritten_condition {
        section.add_finding("", format!("the condition cannot be written: {reason}"));
    }
    section.add_some("next pass", facts.next_pass.map(|pass| time.wall_clock(pass).to_string()));
    if let Some(failure) = &facts.listing_failure {
        section.add_finding("list", format!("failed: {}", full_message(failure)));
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::reports::explain::ExplainReport;
    use crate::app::reports::golden::assert_golden;
    use crate::controllers::BlockedObject;
    use crate::controllers::route::FailedAttempt;
    use serde_json::json;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    const ROUTER: &str = "/infra/tier-1s/t1";

    fn facts(networks: Vec<PodNetworkFacts>, now: Instant) -> RouteFacts {
        let condition = json!({"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated"});
        let node = json!({"metadata": {"name": "worker-7"}, "status": {"conditions": [condition]}});
        RouteFacts {
            node: Arc::new(serde_json::from_value(node).unwrap()),
            is_own: true,
            networks,
            next_pass: Some(now + Duration::from_secs(300)),
            unwritten_condition: None,
            are_listed: true,
            listing_failure: None,
            has_term: true,
        }
    }

    fn network(text: &str, routing: Routing) -> PodNetworkFacts {
        PodNetworkFacts {
            text: text.to_owned(),
            network: text.parse().ok(),
            routing,
            refusal: None,
            blocked: None,
            failure: None,
            obstacles: Vec::new(),
        }
    }

    fn known(id: Option<&str>) -> KnownRoute {
        KnownRoute {
            router: ROUTER.to_owned(),
            id: id.map(str::to_owned),
            next_hop: Ok("10.1.0.7".parse().unwrap()),
            is_unrealized: false,
        }
    }

    fn blocked(reason: crate::cloud::Reason) -> Option<BlockedObject> {
        let blocked_for = Duration::from_secs(372);
        Some(BlockedObject { key: String::new(), reason, blocked_for, message: String::new() })
    }

    fn text(facts: &RouteFacts, known: Vec<Option<KnownRoute>>, now: Instant) -> (SubjectState, String) {
        let report = explanation(facts, &known, &AnswerTime::of(now, "2026-11-24T03:12:40Z")).report_of_test();
        let lines: Vec<String> = report.lines().iter().map(|line| line.text().to_owned()).collect();
        (report.state, lines.join("\n"))
    }

    #[test]
    fn a_ready_route_has_its_next_hop_and_its_object() {
        let now = Instant::now();
        let facts = facts(vec![network("10.244.7.0/24", Routing::Ready)], now);
        let expected = format!(
            "routes of Node worker-7   1 route Ready\n\n\
             Network 10.244.7.0/24\n  state             Ready\n  next hop          10.1.0.7\n  \
             router            {ROUTER}\n  route             static-routes/u-7_10.244.7.0_24\n  \
             owner             this cluster, by the tags or the id of the route\n\n\
             Node\n  condition         NetworkUnavailable=False, RouteCreated\n  \
             next pass         2026-11-24T03:17:40Z"
        );
        assert_eq!(text(&facts, vec![Some(known(Some("u-7_10.244.7.0_24")))], now), (SubjectState::Settled, expected));
    }

    #[test]
    fn what_is_not_ready_says_why_and_when_it_is_tried_again() {
        let now = Instant::now();
        let wanted = || network("10.244.7.0/24", Routing::Failed);
        let attempt = |next| Some(FailedAttempt { message: "NSX said: ".to_owned() + &"x".repeat(2_400), next });
        let retry = Some(now + Duration::from_secs(60));
        let in_use = PodNetworkFacts {
            blocked: blocked(reason::PodNetworkInUse),
            refusal: Some("it overlaps that of worker-1".to_owned()),
            ..wanted()
        };
        let failed =
            |next| PodNetworkFacts { blocked: blocked(reason::CloudError), failure: attempt(next), ..wanted() };
        let obstacle =
            PodNetworkFacts { obstacles: vec!["worker-1".to_owned()], ..network("10.244.7.0/24", Routing::Pending) };
        let held = "10.244.7.0/24 held for 6 m 12 s: ";
        for (case, summary, expected) in [
            (in_use, format!("{held}PodNetworkInUse"), "custom-columns='NAME:.metadata.name,NETWORKS:.spec.podCIDRs'"),
            (failed(retry), format!("{held}CloudError"), "next attempt      at 2026-11-24T03:13:40Z"),
            (failed(None), format!("{held}CloudError"), "next attempt      when the Node or its addresses change"),
            (
                obstacle,
                "10.244.7.0/24 pending".to_owned(),
                "deleted first     the route to the same network by Node worker-1",
            ),
            (
                network("garbage", Routing::Failed),
                "garbage held: not a network".to_owned(),
                "when spec.podCIDRs changes",
            ),
            (network("10.244.7.0/24", Routing::Pending), "10.244.7.0/24 pending".to_owned(), "with the next pass at "),
        ] {
            let facts = facts(vec![network("10.244.8.0/24", Routing::Ready), case], now);
            let (state, text) = text(&facts, vec![None, None], now);
            assert_eq!(state, SubjectState::Held, "{text}");
            assert!(text.starts_with(&format!("routes of Node worker-7   {summary}\n")), "{text}");
            assert!(text.contains(expected), "{expected}: {text}");
            assert!(!text.contains(&"x".repeat(2_001)), "long messages are clipped");
        }
    }

    #[test]
    fn the_document_is_the_golden_file() {
        let now = Instant::now();
        let failed = PodNetworkFacts {
            blocked: blocked(reason::CloudError),
            failure: Some(FailedAttempt { message: "no answer".to_owned(), next: Some(now + Duration::from_secs(60)) }),
            obstacles: vec!["worker-1".to_owned()],
            ..network("10.244.7.0/24", Routing::Failed)
        };
        let facts = facts(vec![failed, network("fd00:7::/64", Routing::Ready)], now);
        let known = [Some(known(None)), Some(known(Some("u-7_fd00")))];
        let time = AnswerTime::of(now, "2026-11-24T03:12:40Z");
        let report = explanation(&facts, &known, &time).report_of_test();
        assert_golden("explain-route", ExplainReport::KIND, report.verdict(), &report);
    }

    #[test]
    fn a_next_hop_that_is_missing_and_a_route_that_is_not_realized_are_shown() {
        let now = Instant::now();
        let network =
            PodNetworkFacts { blocked: blocked(reason::CloudError), ..network("10.244.7.0/24", Routing::Ready) };
        let known = KnownRoute { next_hop: Err("no IPv4 address".to_owned()), is_unrealized: true, ..known(None) };
        let (state, text) = text(&facts(vec![network], now), vec![Some(known)], now);
        assert_eq!(state, SubjectState::Held);
        for part in ["Ready, and held: CloudError", "none: no IPv4 address", "realized          not yet", ROUTER] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn without_a_term_no_pass_and_no_duration_are_known() {
        let now = Instant::now();
        let pending = network("10.244.7.0/24", Routing::Pending);
        let without_term = |networks| RouteFacts { has_term: false, next_pass: None, ..facts(networks, now) };
        let (state, pending) = text(&without_term(vec![pending]), vec![Some(known(None))], now);
        assert_eq!(state, SubjectState::Held);
        for part in ["a new leader would create or rewrite the route", "not known: only the leader knows its next pass"]
        {
            assert!(pending.contains(part), "{part}: {pending}");
        }
        let refused =
            PodNetworkFacts { blocked: blocked(reason::PodNetworkInUse), ..network("10.244.7.0/24", Routing::Failed) };
        let (_, refused) = text(&without_term(vec![refused]), vec![None], now);
        assert!(refused.contains("10.244.7.0/24 held: PodNetworkInUse\n"), "{refused}");
    }

    #[test]
    fn a_node_without_routes_says_why() {
        let now = Instant::now();
        let ready = || vec![network("10.244.7.0/24", Routing::Ready)];
        let other = RouteFacts { is_own: false, networks: Vec::new(), ..facts(Vec::new(), now) };
        let unwritten = RouteFacts { unwritten_condition: Some(reason::WriteRefused), ..facts(ready(), now) };
        for (facts, state, summary) in [
            (other, SubjectState::Settled, "none: the Node belongs to another provider"),
            (facts(Vec::new(), now), SubjectState::Settled, "none: the Node has no network in spec.podCIDRs"),
            (unwritten, SubjectState::Held, "Ready, but the condition NetworkUnavailable cannot be written"),
        ] {
            assert_eq!(standing(&facts, None), (state, summary.to_owned()));
        }
        let off = not_known(subject("worker-7"), "the cloud provider has no routes");
        assert_eq!(
            (off.state, off.summary.as_str()),
            (SubjectState::Unknown, "not known: the cloud provider has no routes")
        );
    }

    #[test]
    fn while_routes_cannot_be_listed_or_are_not_realized_no_route_is_settled() {
        let now = Instant::now();
        let ready = || vec![network("10.244.7.0/24", Routing::Ready)];
        let failure = Some("NSX does not answer".to_owned());
        let failing = RouteFacts { listing_failure: failure.clone(), ..facts(ready(), now) };
        let unlisted = RouteFacts { are_listed: false, ..facts(vec![network("10.244.7.0/24", Routing::Pending)], now) };
        let never = RouteFacts { listing_failure: failure, ..unlisted.clone() };
        let unrealized = KnownRoute { is_unrealized: true, ..known(Some("id")) };
        for (facts, known, state, summary) in [
            (
                failing,
                known(Some("id")),
                SubjectState::Unknown,
                "not known: 1 route Ready in the last list, and no list succeeds: NSX does not answer",
            ),
            (unlisted, known(None), SubjectState::Unknown, "not known: the routes were not listed yet in this term"),
            (
                never,
                known(None),
                SubjectState::Unknown,
                "not known: the routes were not listed yet in this term: NSX does not answer",
            ),
            (
                facts(ready(), now),
                unrealized,
                SubjectState::Held,
                "10.244.7.0/24 pending: NSX has not realized the route yet",
            ),
        ] {
            let has_failed = facts.listing_failure.is_some();
            let explained = explanation(&facts, &[Some(known)], &AnswerTime::now());
            assert_eq!((explained.state, explained.summary.as_str()), (state, summary));
            let of_node = explained.sections.last().unwrap();
            let is_shown = of_node.facts.iter().any(|fact| fact.text == "failed: NSX does not answer");
            assert_eq!(is_shown, has_failed, "{of_node:?}");
        }
    }
}
