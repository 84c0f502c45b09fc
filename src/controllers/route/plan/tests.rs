//! Tests of passes with the upstream vectors, and properties over random Nodes and routes.

use super::*;
use crate::cloud::AbsenceProof;
use crate::controllers::reason;
use crate::controllers::route::pod_networks::{PodNetworks, refused};
use proptest::prelude::*;
use serde_json::json;

fn node(name: &str, uid: &str, networks: &[&str], address: &str) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": name, "uid": uid},
        "spec": {"podCIDRs": networks},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }))
    .unwrap()
}

/// Returns a route in the form in which the cloud lists it.
fn route(target: &str, network: &str) -> Route {
    let name = format!("{target}-{network}");
    Route { name, target_node: target.into(), destination_cidr: network.into(), ..Route::default() }
}

/// Returns a route of a cloud that compares node addresses.
fn addressed(target: &str, network: &str, address: Option<&str>) -> Route {
    let address = address.map(|address| NodeAddress { type_: "InternalIP".into(), address: address.into() });
    let target_node_addresses = address.into_iter().collect();
    Route { enable_node_addresses: true, target_node_addresses, ..route(target, network) }
}

fn networks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Returns the routes after a pass in which all changes succeed. The API server has the same Nodes as the cache.
fn after(nodes: &[Node], routes: &[Route], cluster: &[&str]) -> Vec<Route> {
    let cached: Vec<&Node> = nodes.iter().collect();
    let mut routes = routes.to_vec();
    for changes in plan(&cached, &routes.clone(), &networks(cluster), &RefusedNetworks::default(), false).into_values()
    {
        for deletion in &changes.deletions {
            let target = nodes.iter().find(|node| node::name(node) == deletion.route.target_node);
            let absent = || Presence::Absent(AbsenceProof::new("none", []));
            let live = target.map_or_else(absent, |node| Presence::Exists(node.clone()));
            assert_eq!(deletion.verdict(Some(&live)), LiveReadVerdict::Delete, "{deletion:?}");
            routes.retain(|route| *route != deletion.route);
        }
        routes.extend(changes.creations.into_iter().map(|creation| creation.route));
    }
    routes
}

/// Returns target, destination and addresses of each route, sorted.
fn shown(routes: &[Route]) -> Vec<String> {
    let mut shown: Vec<String> = routes
        .iter()
        .map(|route| {
            let addresses: Vec<&str> =
                route.target_node_addresses.iter().map(|address| address.address.as_str()).collect();
            format!("{} {} {}", route.target_node, route.destination_cidr, addresses.join(","))
        })
        .collect();
    shown.sort();
    shown
}

// vectors
#[test]
fn a_route_is_ours_if_the_cluster_has_its_network() {
    for (id, cluster, destination, expected) in [
        ("R-01", "10.244.0.0/16", "10.244.0.0/24", true),
        ("R-02", "10.244.0.0/16", "10.244.10.0/24", true),
        ("R-03", "10.244.0.0/16", "10.244.255.0/24", true),
        ("R-04", "10.244.0.0/14", "10.244.0.0/24", true),
        ("R-05", "10.244.0.0/14", "10.247.255.0/24", true),
        ("R-06", "a00:100::/10", "a00:100::/24", true),
        ("R-07", "10.244.0.0/16", "10.224.0.0/24", false),
        ("R-08", "10.244.0.0/16", "10.0.10.0/24", false),
        ("R-09", "10.244.0.0/16", "10.255.255.0/24", false),
        ("R-10", "10.244.0.0/14", "10.248.0.0/24", false),
        ("R-11", "10.244.0.0/14", "10.243.255.0/24", false),
        ("R-12", "a00:100::/10", "b00:100::/24", false),
        ("R-13", "10.244.0.0/16", "10.0.0.0/8", false),
        ("a larger network that begins with the cluster's", "10.244.0.0/16", "10.244.0.0/14", false),
        ("R-14", "10.244.0.0/16", "garbage", false),
    ] {
        let cluster: IpNet = parse_network_sloppy(cluster).unwrap();
        // No Node needs the route, so it is deleted if it belongs to the cluster.
        let planned = plan(&[], &[route("gone", destination)], &[cluster], &RefusedNetworks::default(), false);
        assert_eq!(!planned.is_empty(), expected, "{id}");
    }
}

/// R-36 differs. If a Node has the same network twice, the Go program calls the cloud twice and reports the second
/// failure. This program has one route for each destination.
// vectors
#[test]
fn routes_follow_the_nodes_as_in_the_go_program() {
    let cluster = ["10.120.0.0/16", "a00::/8"];
    let (v4, v6) = (["10.120.0.0/24", "10.120.1.0/24"], ["a00:100::/24", "a00:200::/24"]);
    let n1 = node("node-1", "01", &v4[..1], "10.0.1.1");
    let n2 = node("node-2", "02", &v4[1..], "10.0.2.1");
    let n2x = node("node-2", "02", &[], "10.0.2.1");
    let n3 = node("node-3", "03", &[v4[0], v6[0]], "10.0.3.1");
    let n4 = node("node-4", "04", &[v4[1], v6[1]], "10.0.4.1");
    let n4d = node("node-4", "04", &[v4[1], v4[1]], "10.0.4.1");
    let dual = [n3.clone(), n4.clone()];
    let single = [n1.clone(), n2.clone()];
    let full = |nodes: &[Node]| -> Vec<Route> {
        nodes.iter().flat_map(|node| wanted_texts(node).map(|network| creation(node, network).route)).collect()
    };
    let changed = |nodes: &[Node], address: fn(&str) -> Option<&'static str>| -> Vec<Route> {
        let route = |route: Route| addressed(&route.target_node, &route.destination_cidr, address(&route.target_node));
        full(nodes).into_iter().map(route).collect()
    };
    let with = |nodes: &[Node], more: &[Route]| [full(nodes), more.to_vec()].concat();
    let blackhole = |network: &str| Route { blackhole: true, ..route("", network) };
    for (id, nodes, before, expected) in [
        ("R-20", &dual[..], changed(&dual, |_| None), full(&dual)),
        (
            "R-21",
            &dual,
            changed(&dual, |name| Some(if name == "node-3" { "10.0.13.1" } else { "10.0.14.1" })),
            full(&dual),
        ),
        ("R-22", &dual, vec![], full(&dual)),
        ("R-23", &dual, full(&dual), full(&dual)),
        (
            "R-24",
            &dual,
            vec![route("node-4", v4[0]), route("node-3", v4[1]), route("node-4", v6[0]), route("node-3", v6[1])],
            full(&dual),
        ),
        ("R-25", &dual, vec![full(&dual)[0].clone(), full(&dual)[3].clone()], full(&dual)),
        ("R-26", &dual, with(&dual, &[route("node-x", "10.120.2.0/24"), route("node-y", "a00:300::/24")]), full(&dual)),
        ("R-27", &single, full(&single), full(&single)),
        (
            "R-28",
            &single,
            changed(&single, |name| Some(if name == "node-1" { "10.0.1.2" } else { "10.0.2.2" })),
            full(&single),
        ),
        ("R-29", &single, full(&single[..1]), full(&single)),
        ("R-30", &single, vec![], full(&single)),
        (
            "R-31",
            &single,
            with(&single, &[route("node-3", "10.120.2.0/24"), route("node-4", "10.120.3.0/24")]),
            full(&single),
        ),
        ("R-32", &single, with(&single[..1], &[route("node-3", "10.120.2.0/24")]), full(&single)),
        ("R-33", &[n1.clone(), n2x][..], vec![], full(&single[..1])),
        ("R-34", &single, with(&single, &[blackhole("10.120.2.0/24")]), full(&single)),
        ("R-35", &single, with(&single, &[blackhole("10.1.2.0/24")]), with(&single, &[blackhole("10.1.2.0/24")])),
        (
            "R-36 differs: the same network twice is one route",
            &[n4d][..],
            vec![],
            full(std::slice::from_ref(&n2))
                .into_iter()
                .map(|one| Route {
                    target_node: "node-4".into(),
                    target_node_addresses: addresses::of(&n4).to_vec(),
                    ..one
                })
                .collect(),
        ),
    ] {
        assert_eq!(shown(&after(nodes, &before, &cluster)), shown(&expected), "{id}");
    }
    let unchanged = plan(&[&n1, &n2], &full(&single), &networks(&cluster), &RefusedNetworks::default(), false);
    assert_eq!(unchanged, BTreeMap::new(), "R-27");
    let [creation] = plan(&[&n1], &[], &networks(&cluster), &RefusedNetworks::default(), false)
        .into_values()
        .next()
        .unwrap()
        .creations
        .try_into()
        .unwrap();
    assert_eq!((creation.name_hint.as_str(), creation.route.name.as_str()), ("01", ""));
}

#[test]
fn networks_are_compared_as_networks() {
    let node = node("a", "u", &["10.120.000.0/24", "garbage"], "10.0.0.1");
    let routes = [route("a", "10.120.0.7/24")];
    assert_eq!(
        plan(&[&node], &routes, &networks(&["10.120.0.0/16"]), &RefusedNetworks::default(), false),
        BTreeMap::new(),
        "W-48"
    );
    assert_eq!(wanted(&node).filter_map(Result::err).collect::<Vec<_>>(), ["garbage"]);
}

#[test]
fn a_network_is_written_as_the_node_has_it() {
    let spelled = node("a", "u", &["010.120.0.0/24", "10.120.0.0/24", "A00::/64"], "10.0.0.1");
    let planned = plan(&[&spelled], &[], &networks(&["10.120.0.0/16", "a00::/8"]), &RefusedNetworks::default(), false);
    let texts = planned.values().flat_map(|changes| &changes.creations).map(|one| one.route.destination_cidr.as_str());
    assert_eq!(texts.collect::<Vec<_>>(), ["010.120.0.0/24", "A00::/64"]);
    let creations = planned.values().flat_map(|changes| &changes.creations);
    assert!(creations.into_iter().all(|creation| creation.is_wanted_by(&spelled)));
}

#[test]
fn a_cloud_that_rewrites_gets_an_old_route_deleted_only_if_another_one_leads_there() {
    let wanted = node("a", "u", &["10.120.0.0/24"], "10.0.0.1");
    let cluster = networks(&["10.120.0.0/16"]);
    let old = addressed("a", "10.120.0.0/24", None);
    let current = Route { name: "b".into(), ..addressed("a", "10.120.0.0/24", Some("10.0.0.1")) };
    for (routes, rewrites, deletions, creations) in [
        (vec![old.clone()], true, 0, 1),
        (vec![old.clone()], false, 1, 1),
        (vec![current.clone(), old.clone()], true, 1, 0),
        (vec![old.clone(), old.clone()], true, 0, 1),
        (vec![current], true, 0, 0),
    ] {
        let changes = plan(&[&wanted], &routes, &cluster, &RefusedNetworks::default(), rewrites)
            .into_values()
            .next()
            .unwrap_or_default();
        assert_eq!((changes.deletions.len(), changes.creations.len()), (deletions, creations), "{routes:?} {rewrites}");
        assert!(changes.deletions.iter().all(|deletion| deletion.route == old), "{changes:?}");
    }
}

#[test]
fn only_what_a_live_read_confirms_is_deleted() {
    let wants = node("a", "u", &["10.120.0.0/24"], "10.0.0.1");
    let other = node("a", "u", &["10.120.1.0/24"], "10.0.0.1");
    let elsewhere = node("a", "u", &["10.120.0.0/24"], "10.0.0.2");
    let absent = Presence::Absent(AbsenceProof::new("the API server has no node a", []));
    let unknown = Unknown::new(reason::APIServerUnavailable, "no answer");
    let exists = |node: &Node| Some(Presence::Exists(node.clone()));
    let silent = || Some(Presence::Unknown(unknown.clone()));
    for (case, ground, live, expected) in [
        ("no target", DeletionReason::NoTarget, None, LiveReadVerdict::Delete),
        ("other addresses", DeletionReason::OtherAddresses, exists(&elsewhere), LiveReadVerdict::Delete),
        ("other addresses, and gone", DeletionReason::OtherAddresses, Some(absent.clone()), LiveReadVerdict::Delete),
        ("other addresses, and not wanted", DeletionReason::OtherAddresses, exists(&other), LiveReadVerdict::Delete),
        (
            "other addresses, and the cache is behind",
            DeletionReason::OtherAddresses,
            exists(&wants),
            LiveReadVerdict::Keep,
        ),
        (
            "other addresses, and no answer",
            DeletionReason::OtherAddresses,
            silent(),
            LiveReadVerdict::Unknown(unknown.clone()),
        ),
        ("no Node, and there is none", DeletionReason::NodeMissing, Some(absent.clone()), LiveReadVerdict::Delete),
        (
            "no Node in the cache, outside of the selection",
            DeletionReason::NodeMissing,
            exists(&wants),
            LiveReadVerdict::Keep,
        ),
        ("the same, and it wants another one", DeletionReason::NodeMissing, exists(&other), LiveReadVerdict::Keep),
        ("no Node, and no answer", DeletionReason::NodeMissing, silent(), LiveReadVerdict::Unknown(unknown.clone())),
        ("not wanted", DeletionReason::NotWanted, exists(&other), LiveReadVerdict::Delete),
        ("not wanted, and gone", DeletionReason::NotWanted, Some(absent), LiveReadVerdict::Delete),
        ("the cache is behind", DeletionReason::NotWanted, exists(&wants), LiveReadVerdict::Keep),
        ("not wanted, and no answer", DeletionReason::NotWanted, silent(), LiveReadVerdict::Unknown(unknown.clone())),
        ("never read", DeletionReason::NotWanted, None, LiveReadVerdict::Keep),
    ] {
        let route = match ground {
            DeletionReason::OtherAddresses => addressed("a", "10.120.0.0/24", Some("10.0.0.1")),
            DeletionReason::NoTarget | DeletionReason::NodeMissing | DeletionReason::NotWanted => {
                route("a", "10.120.0.0/24")
            }
        };
        let deletion = RouteDeletion { route, reason: ground };
        assert_eq!(deletion.verdict(live.as_ref()), expected, "{case}");
        assert!(!deletion.needs_live_node() || live.is_some() || case == "never read", "{case}");
    }
}

#[test]
fn a_route_to_another_node_is_deleted_before_the_wanted_one_is_created() {
    let node = node("a", "u", &["10.120.0.0/24"], "10.0.0.1");
    let routes = [route("b", "10.120.0.0/24"), route("a", "10.120.0.0/24")];
    let planned = plan(&[&node], &routes[..1], &networks(&["10.120.0.0/16"]), &RefusedNetworks::default(), false);
    let [changes] = planned.into_values().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((changes.deletions.len(), changes.creations.len()), (1, 1), "in one group");
    let planned = plan(&[&node], &routes, &networks(&["10.120.0.0/16"]), &RefusedNetworks::default(), false);
    let [changes] = planned.into_values().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((changes.deletions.len(), changes.creations.len()), (1, 0), "what is there stays");
}

prop_compose! {
    fn any_node()(name in 0..4_u8, networks in prop::collection::vec(0..4_u8, 0..3), address in 0..2_u8) -> Node {
        let networks: Vec<String> = networks.iter().map(|network| format!("10.120.{network}.0/24")).collect();
        let networks: Vec<&str> = networks.iter().map(String::as_str).collect();
        node(&format!("n{name}"), &format!("u{name}"), &networks, &format!("10.0.0.{address}"))
    }
}

prop_compose! {
    fn any_route()(
        target in 0..6_u8,
        network in prop::sample::select(vec!["10.120.0.0/24", "10.120.1.0/24", "10.120.9.0/24", "10.1.0.0/24", "odd"]),
        address in prop::option::of(0..2_u8),
        blackhole: bool,
    ) -> Route {
        let target = if target == 5 { String::new() } else { format!("n{target}") };
        match address {
            Some(address) => Route { blackhole, ..addressed(&target, network, Some(&format!("10.0.0.{address}"))) },
            None => Route { blackhole, ..route(&target, network) },
        }
    }
}

proptest! {
    /// After a pass in which all changes succeed, the next plan is empty, each Node has its routes, and routes outside
    /// the networks of the cluster are unchanged.
    #[test]
    fn a_plan_is_idempotent(
        nodes in prop::collection::vec(any_node(), 0..4),
        routes in prop::collection::vec(any_route(), 0..6),
    ) {
        let mut nodes = nodes;
        nodes.sort_by(|a, b| node::name(a).cmp(node::name(b)));
        nodes.dedup_by(|a, b| node::name(a) == node::name(b));
        let cluster = ["10.120.0.0/16"];
        let after = after(&nodes, &routes, &cluster);
        let cached: Vec<&Node> = nodes.iter().collect();
        prop_assert_eq!(plan(&cached, &after, &networks(&cluster), &RefusedNetworks::default(), false), BTreeMap::new());
        for node in &nodes {
            for network in wanted(node).flatten() {
                let leads_there = |route: &&Route| {
                    let is_it = parse_network_sloppy(&route.destination_cidr) == Some(network);
                    is_it && route.target_node == node::name(node) && !route.blackhole
                };
                prop_assert!(after.iter().any(|route| leads_there(&route)));
            }
        }
        for foreign in routes.iter().filter(|route| !route.destination_cidr.starts_with("10.120.")) {
            prop_assert!(after.contains(foreign));
        }
    }

    /// A route is created only within the networks of the cluster and for the oldest Node that claims the network. The
    /// exception is a Node that already has a route for the network.
    #[test]
    fn nothing_is_created_for_a_network_that_is_refused(
        nodes in prop::collection::vec(any_node(), 0..4),
        routes in prop::collection::vec(any_route(), 0..6),
        rewrites: bool,
    ) {
        let mut nodes = nodes;
        nodes.sort_by(|a, b| node::name(a).cmp(node::name(b)));
        nodes.dedup_by(|a, b| node::name(a) == node::name(b));
        // The Nodes have four networks. Two of them are in the network of the cluster.
        let cluster = networks(&["10.120.0.0/23"]);
        let cached: Vec<&Node> = nodes.iter().collect();
        let refused = refused(&nodes, &cluster, PodNetworks::ClusterCidr);
        let planned = plan(&cached, &routes, &cluster, &refused, rewrites);
        for creation in planned.values().flat_map(|changes| &changes.creations) {
            let network = parse_network_sloppy(&creation.route.destination_cidr).unwrap();
            let target = nodes.iter().find(|node| node::name(node) == creation.route.target_node).unwrap();
            let has_one = routes.iter().any(|route| route.target_node == node::name(target) && leads_to(route, network));
            let is_oldest = nodes.iter().find(|node| wants(node, network)) == Some(target);
            prop_assert!(has_one || (is_ours(&network, &cluster) && is_oldest), "{creation:?}");
        }
        let reported = refused_networks(&cached, &routes, &refused);
        for node in &nodes {
            for network in wanted(node).flatten() {
                let named = reported.iter().find(|one| one.node == node::name(node) && one.network == network);
                prop_assert_eq!(named.is_some(), refused.of(node, network).is_some());
                let has_one = routes.iter().any(|route| route.target_node == node::name(node) && leads_to(route, network));
                prop_assert!(named.is_none_or(|one| one.has_route == has_one));
            }
        }
    }
}
