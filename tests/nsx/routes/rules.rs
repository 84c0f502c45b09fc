//! Pure: the content of a route, its next hop, and its owner.

use std::net::IpAddr;

use ccm::clients::nsx::{Object, ObjectTag};
use ccm::providers::vsphere::nsx::routes::ownership::{Cluster, Ownership, ownership_of};
use ccm::providers::vsphere::nsx::routes::static_route::{ListedRoute, StaticRoute, id, name_hint, next_hop};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::NodeAddress;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::world::{NAME, UID_1};

fn object(value: Value) -> Object {
    Object(serde_json::from_value(value).unwrap())
}

fn addresses(all: &[(&str, &str)]) -> Vec<NodeAddress> {
    let address = |(kind, text): &(&str, &str)| NodeAddress { type_: (*kind).to_owned(), address: (*text).to_owned() };
    all.iter().map(address).collect()
}

fn hop(all: &[(&str, &str)], network: &str) -> Option<String> {
    next_hop(&addresses(all), &network.parse().unwrap()).map(|hop| hop.to_string())
}

/// RT-06 differs: the Go program uses a link-local address as the next hop. Other nodes cannot reach the node there.
// vectors: RT-06
#[test]
fn rt_06_the_next_hop_is_an_address_of_the_family_that_others_reach() {
    let vector = [
        ("", ""),
        ("", ""),
        ("HostName", "node1"),
        ("InternalIP", "172.50.0.13"),
        ("InternalIP", "fe80::20c:29ff:fe0b:b407"),
    ];
    assert_eq!(hop(&vector, "100.96.0.0/24").as_deref(), Some("172.50.0.13"));
    assert_eq!(hop(&vector, "fd00::/64"), None);
    for (spelled, expected) in [("::ffff:10.0.0.3", Some("10.0.0.3")), ("10.0.0.01", None)] {
        assert_eq!(hop(&[("InternalIP", spelled)], "10.9.0.0/24").as_deref(), expected);
    }
}

/// Addresses of all kinds, including unusable ones.
fn any_address() -> impl Strategy<Value = NodeAddress> {
    let special =
        ["169.254.7.7", "127.0.0.1", "0.0.0.0", "fe80::1", "::1", "::", "febf::1", "::ffff:127.0.0.1", "x", ""];
    let text = prop_oneof![
        any::<IpAddr>().prop_map(|ip| ip.to_string()),
        prop::sample::select(special.to_vec()).prop_map(str::to_owned),
    ];
    let kind = prop::sample::select(vec!["InternalIP", "ExternalIP", "Hostname", ""]);
    (kind, text).prop_map(|(kind, address)| NodeAddress { type_: kind.to_owned(), address })
}

fn any_network() -> impl Strategy<Value = IpNet> {
    any::<IpAddr>().prop_map(|ip| IpNet::new(ip.to_canonical(), 24).unwrap().trunc())
}

/// Any JSON of two levels.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-z_]{1,8}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

/// An object with fields, tags and next hops of any kind.
fn any_object() -> impl Strategy<Value = Object> {
    let scope =
        prop::sample::select(vec!["vsphere.k8s.io/cluster-name", "vsphere.k8s.io/node-name", "cluster-uid", "a", ""]);
    let tag = (scope, ".{0,8}").prop_map(|(scope, tag)| json!({"scope": scope, "tag": tag}));
    let tags = prop_oneof![prop::collection::vec(tag, 0..5).prop_map(Value::from), any_value()];
    let network = prop_oneof![Just(json!("10.9.0.0/24")), Just(json!("010.9.0.0/24")), any_value()];
    let hops =
        prop_oneof![Just(json!([{"ip_address": "10.0.0.9", "admin_distance": 3, "scope": ["/infra/x"]}])), any_value()];
    let members = prop::collection::hash_map("[a-z_]{1,8}", any_value(), 0..4);
    (members, tags, network, hops).prop_map(|(members, tags, network, hops)| {
        let mut object = object(json!(members));
        object.0.extend([("tags".to_owned(), tags), ("network".to_owned(), network), ("next_hops".to_owned(), hops)]);
        object.0.insert("id".to_owned(), json!("r"));
        object
    })
}

fn route<'a>(cluster_uid: Option<&'a str>, hop: &str) -> StaticRoute<'a> {
    let next_hop = hop.parse().unwrap();
    StaticRoute { cluster_name: NAME, cluster_uid, node: "node1", network: "10.9.0.0/24", next_hop }
}

const WRITTEN: [&str; 3] = ["tags", "network", "next_hops"];

proptest! {
    #[test]
    fn a_next_hop_is_an_address_of_the_node_that_others_reach(
        all in prop::collection::vec(any_address(), 0..6), network in any_network(),
    ) {
        if let Some(hop) = next_hop(&all, &network) {
            prop_assert_eq!(hop.is_ipv4(), network.addr().is_ipv4());
            prop_assert!(!hop.is_loopback() && !hop.is_unspecified());
            let is_link_local = match hop {
                IpAddr::V4(ip) => ip.is_link_local(),
                IpAddr::V6(ip) => ip.is_unicast_link_local(),
            };
            prop_assert!(!is_link_local);
            let is_it = |address: &NodeAddress| {
                ["InternalIP", "ExternalIP"].contains(&address.type_.as_str())
                    && address.address.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical() == hop)
            };
            prop_assert!(all.iter().any(is_it));
        }
    }

    /// L-24.
    #[test]
    fn l_24_a_rewrite_keeps_all_that_this_program_does_not_know_and_is_idempotent(
        before in any_object(), is_known in any::<bool>(),
    ) {
        let wanted = route(is_known.then_some("uid"), "10.0.0.1");
        let mut once = before.clone();
        wanted.write_into(&mut once);
        for (name, value) in before.0.iter().filter(|(name, _)| !WRITTEN.contains(&name.as_str())) {
            prop_assert_eq!(once.0.get(name), Some(value));
        }
        let own = wanted.tags();
        let is_foreign = |tag: &ObjectTag<'_>| own.iter().all(|own| own.scope != tag.scope);
        let foreign = |object: &Object| -> Vec<(String, String)> {
            object.tags().filter(is_foreign).map(|tag| (tag.scope.to_owned(), tag.tag.to_owned())).collect()
        };
        prop_assert_eq!(foreign(&once), foreign(&before));
        let listed = ListedRoute::read(&once);
        prop_assert!(listed.is_some_and(|listed| wanted.is_led_by(&listed)) && wanted.tags().are_on(&once));
        let mut twice = once.clone();
        wanted.write_into(&mut twice);
        prop_assert_eq!(twice, once);
    }

    /// L-13, R-08.
    #[test]
    fn l_13_any_object_is_read_without_a_panic(any in any_object()) {
        if let Some(listed) = ListedRoute::read(&any) {
            let of_node = |_: &str| Vec::new();
            let cluster = Cluster { name: NAME, uid: Some("uid"), is_node: &|_| false, addresses: &of_node };
            let is_named = any.tag("vsphere.k8s.io/cluster-name") == Some(NAME);
            prop_assert_eq!(ownership_of(&any, &listed, &cluster) == Ownership::Foreign, !is_named || any.tag("cluster-uid").is_some_and(|uid| uid != "uid"));
        }
    }

    /// R-10.
    #[test]
    fn r_10_long_names_fit_and_stay_different(one in "[a-zä.]{1,300}", other in "[a-zä.]{1,300}") {
        let name = |node: &str| {
            let written = StaticRoute { node, ..route(None, "10.0.0.1") }.object();
            written.text("display_name").to_owned()
        };
        let (of_one, of_other) = (name(&one), name(&other));
        prop_assert!(of_one.chars().count() <= 255);
        prop_assert_eq!(of_one == of_other, one == other);
        // One name that is longer than the maximum displayed length.
        let (long, longer) = ("n".repeat(300), "n".repeat(301));
        prop_assert_ne!(name(&long), name(&longer));
        prop_assert_eq!(name(&long).chars().count(), 255);
    }
}

#[test]
fn a_uid_in_an_id_is_found_again() {
    for network in ["100.96.0.0/24", "fd00:1::/64"] {
        assert_eq!(name_hint(&id(UID_1, network)), UID_1);
    }
    assert_eq!((name_hint("x"), name_hint("_x"), name_hint("")), ("", "", ""));
}

#[test]
fn hops_that_are_no_addresses_are_skipped_and_spellings_do_not_count() {
    let next_hops = json!([{"ip_address": "FD00::0001"}, {}, 7, {"ip_address": "x"}]);
    let listed = ListedRoute::read(&object(json!({"id": "r", "network": "fd00:9::/64", "next_hops": next_hops})));
    assert_eq!(listed.unwrap().next_hops, ["fd00::1".parse::<IpAddr>().unwrap()]);
}
