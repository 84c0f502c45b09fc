//! Tests of the plan for the routes.

use super::*;
use crate::app::reports::plan::PlanCounts;
use crate::cloud::Route;
use crate::controllers::route::plan::RouteChanges;
use crate::controllers::route::reason;
use ipnet::IpNet;

fn network(number: u8) -> IpNet {
    format!("10.244.{number}.0/24").parse().unwrap()
}

fn route(target: &str, number: u8) -> Route {
    Route { target_node: target.to_owned(), destination_cidr: network(number).to_string(), ..Route::default() }
}

fn creation(target: &str, number: u8) -> Creation {
    Creation { name_hint: "u".to_owned(), route: route(target, number) }
}

fn deletion(target: &str, number: u8, reason: DeletionReason) -> RouteDeletion {
    RouteDeletion { route: route(target, number), reason }
}

fn destination(number: u8, deletions: Vec<RouteDeletion>, creations: Vec<Creation>) -> DestinationPreview {
    let changes = RouteChanges { deletions, creations };
    DestinationPreview { network: network(number), changes, is_tried: false, reason: None, failure: None }
}

fn pod_network(number: u8) -> PodNetworkPreview {
    let network = network(number);
    PodNetworkPreview { text: network.to_string(), network: Some(network), refusal: None, is_planned: true }
}

fn planned(destinations: Vec<DestinationPreview>, networks: &[(&str, PodNetworkPreview)]) -> RoutePlans {
    let mut plans = RoutePlans::default();
    plans.add_outstanding(&RoutePreview { are_listed: true, destinations, ..RoutePreview::default() }, None);
    for (node, network) in networks {
        plans.add_network(node, network, "at 03:13Z");
    }
    plans
}

/// Returns network, kind, field and message or reason of each change.
fn rows(part: &PlanPart) -> Vec<String> {
    let of = |object: &ObjectPlan| {
        let row = |change: &PlannedChange| {
            let why = change.reason.as_ref().or(change.message.as_ref()).cloned().unwrap_or_default();
            format!("{} {} {}: {why}", object.name, change.kind.as_str(), change.field)
        };
        object.changes.iter().map(row).collect::<Vec<_>>()
    };
    part.objects.iter().flat_map(of).collect()
}

#[test]
fn each_destination_has_its_changes_and_the_others_are_counted() {
    let kept = DestinationPreview {
        is_tried: true,
        ..destination(3, vec![deletion("worker-3", 3, DeletionReason::NodeMissing)], vec![])
    };
    let failed = DestinationPreview {
        is_tried: true,
        reason: Some(reason::CloudError),
        failure: Some("NSX said no".to_owned()),
        ..destination(4, vec![], vec![creation("worker-4", 4)])
    };
    let destinations = vec![
        destination(1, vec![], vec![creation("worker-1", 1)]),
        destination(2, vec![deletion("", 2, DeletionReason::NoTarget)], vec![]),
        kept,
        failed,
    ];
    let networks = [("worker-0", pod_network(0)), ("worker-1", pod_network(1)), ("worker-4", pod_network(4))];
    let part = planned(destinations, &networks).build();
    assert_eq!(
        rows(&part),
        [
            "10.244.1.0/24 create route to worker-1: ",
            "10.244.2.0/24 delete route without a target: it leads to no Node",
            "10.244.3.0/24 hold route to worker-3: kept: a live read shows that the Node wants it, or is outside of the \
             Nodes of this controller",
            "10.244.4.0/24 create route to worker-4: ",
            "10.244.4.0/24 hold last attempt: CloudError",
        ]
    );
    let expected = PlanCounts { objects: 5, created: 2, deleted: 1, held: 2, unchanged: 1, ..PlanCounts::default() };
    assert_eq!(part.counts, expected);
}

#[test]
fn a_network_without_a_route_says_why() {
    let refusal = Some((reason::PodNetworkForeign, "it is not within --cluster-cidr".to_owned()));
    let networks = [
        ("worker-0", PodNetworkPreview { refusal, ..pod_network(0) }),
        ("worker-1", PodNetworkPreview { is_planned: false, ..pod_network(1) }),
        ("worker-2", PodNetworkPreview { text: "garbage".to_owned(), network: None, ..pod_network(2) }),
        ("worker-3", PodNetworkPreview { is_planned: false, ..pod_network(3) }),
    ];
    let part = planned(vec![destination(3, vec![], vec![creation("worker-3", 3)])], &networks).build();
    assert_eq!(
        rows(&part),
        [
            "10.244.0.0/24 hold route to worker-0: PodNetworkForeign",
            "10.244.1.0/24 unknown route to worker-1: the Node or the route has changed; planned with the next pass, \
             at 03:13Z",
            "10.244.3.0/24 create route to worker-3: ",
            "garbage hold route to worker-2: the text in spec.podCIDRs is not a network",
        ]
    );
}

#[test]
fn a_selected_node_has_only_its_routes() {
    let both = vec![deletion("worker-1", 1, DeletionReason::NotWanted), deletion("x", 1, DeletionReason::NodeMissing)];
    let failed =
        DestinationPreview { failure: Some("no".to_owned()), ..destination(2, vec![], vec![creation("x", 2)]) };
    let destinations = vec![destination(1, both, vec![]), failed];
    let mut plans = RoutePlans::default();
    let preview = RoutePreview { are_listed: true, destinations, ..RoutePreview::default() };
    plans.add_outstanding(&preview, Some("worker-1"));
    let rows = rows(&plans.build());
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert!(rows[0].starts_with("10.244.1.0/24 delete route to worker-1: "), "{rows:?}");
}

#[test]
fn a_creation_of_a_route_that_exists_is_an_update() {
    let created = vec![creation("worker-1", 1)];
    let mut plans = planned(
        vec![destination(1, Vec::new(), created), destination(2, Vec::new(), vec![creation("worker-2", 2)])],
        &[],
    );
    plans.mark_rewrites(|node, network| (node == "worker-1").then(|| format!("10.1.0.1 to {network}")));
    let part = plans.build();
    let kinds: Vec<ChangeKind> = part.objects.iter().map(|object| object.changes[0].kind).collect();
    assert_eq!(kinds, [ChangeKind::Update, ChangeKind::Create]);
    let message = part.objects[0].changes[0].message.as_deref();
    assert_eq!(message, Some("rewritten in place with the next hop 10.1.0.1 to 10.244.1.0/24"));
}
