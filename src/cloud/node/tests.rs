//! Tests of the functions for Nodes, as tables. The ids are those of the upstream test vectors.

use super::addresses::*;
use super::*;
use k8s_openapi::api::core::v1::{NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Parses a text such as `Int 10.0.0.1, Hostname a` into addresses.
fn list(text: &str) -> Vec<NodeAddress> {
    text.split(", ")
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (type_, address) = part.split_once(' ').unwrap();
            let type_ = match type_ {
                "Int" => INTERNAL_IP,
                "Ext" => EXTERNAL_IP,
                "hn" => HOSTNAME,
                other => other,
            };
            NodeAddress { type_: type_.into(), address: address.into() }
        })
        .collect()
}

fn node_with(addresses: &str, provided: Option<&str>) -> Node {
    Node {
        metadata: ObjectMeta {
            annotations: provided.map(|ip| BTreeMap::from([(ANNOTATION_PROVIDED_NODE_IP.to_owned(), ip.to_owned())])),
            ..ObjectMeta::default()
        },
        status: Some(NodeStatus { addresses: Some(list(addresses)), ..NodeStatus::default() }),
        ..Node::default()
    }
}

// vectors: H-01–H-14
#[test]
fn provided_node_ips_select_as_upstream() {
    let dns = "InternalDNS ip-10-1-1-1.us-west-2.compute.internal, ExternalDNS ec2-55.us-west-2.compute.amazonaws.com";
    let h04 = format!("Int 10.1.1.1, Ext 55.55.55.55, {dns}, hn hostname");
    let long = "2600:1f14:1d4:d101:0:0:0:ba3d";
    let h07 = format!("Int 10.1.1.1, Int {long}, hn hostname");
    let h07_result = format!("Int {long}, hn hostname");
    let cases: &[(&str, &str, &str, Option<&str>)] = &[
        ("H-01", "10.1.1.1", "Int 10.1.1.1, hn hostname", Some("Int 10.1.1.1, hn hostname")),
        (
            "H-02",
            "55.55.55.55",
            "Int 10.1.1.1, Ext 55.55.55.55, hn hostname",
            Some("Ext 55.55.55.55, Int 10.1.1.1, hn hostname"),
        ),
        (
            "H-03",
            "55.55.55.55",
            "Int 44.44.44.44, Ext 44.44.44.44, Int 55.55.55.55, Ext 55.55.55.55, hn hostname",
            Some("Int 55.55.55.55, Ext 55.55.55.55, hn hostname"),
        ),
        ("H-04", "10.1.1.1", &h04, Some(&h04)),
        (
            "H-05",
            "10.1.1.1",
            "Int 10.1.1.1, Int 10.2.2.2, Int 10.3.3.3, Ext 55.55.55.55, hn hostname",
            Some("Int 10.1.1.1, Ext 55.55.55.55, hn hostname"),
        ),
        ("H-06", "10.2.2.2", "Int 10.1.1.1, Ext 55.55.55.55, hn hostname", None),
        ("H-07", "2600:1f14:1d4:d101::ba3d", &h07, Some(&h07_result)),
        ("H-08", "10.1.1.1,fc01:1234::5678", "Int 10.1.1.1, hn hostname", None),
        (
            "H-09",
            "10.1.1.1,fc01:1234::5678",
            "Int 10.1.1.1, Int fc01:1234::5678, hn hostname",
            Some("Int 10.1.1.1, Int fc01:1234::5678, hn hostname"),
        ),
        (
            "H-10",
            "10.1.1.1,fc01:1234::5678",
            "Int fc01:1234::5678, Int 10.1.1.1, hn hostname",
            Some("Int 10.1.1.1, Int fc01:1234::5678, hn hostname"),
        ),
        (
            "H-11",
            "10.1.1.1,fc01:1234::5678",
            "Int 10.1.1.1, Int 10.1.1.2, Int fc01:1234::1234, Int fc01:1234::5678, hn hostname",
            Some("Int 10.1.1.1, Int fc01:1234::5678, hn hostname"),
        ),
        (
            "H-12",
            "10.1.1.1,fc01:1234::5678",
            "Int 10.1.1.1, Ext 55.55.55.55, Int fc01:1234::1234, Int fc01:1234::5678, hn hostname",
            Some("Int 10.1.1.1, Int fc01:1234::5678, Ext 55.55.55.55, hn hostname"),
        ),
        (
            "H-13",
            "fc01:1234::5678,10.1.1.1",
            "Int 10.1.1.1, Ext 55.55.55.55, Int fc01:1234::5678, Ext 2001:db1::1, hn hostname",
            Some("Int fc01:1234::5678, Int 10.1.1.1, Ext 55.55.55.55, Ext 2001:db1::1, hn hostname"),
        ),
        (
            "H-14",
            "55.55.55.55,fc01:1234::5678",
            "Int 10.1.1.1, Ext 55.55.55.55, Int fc01:1234::5678, Ext 2001:db1::1, hn hostname",
            Some("Ext 55.55.55.55, Int fc01:1234::5678, hn hostname"),
        ),
    ];
    for (id, provided, cloud, expected) in cases {
        let merged = merge(&node_with("", Some(provided)), &list(cloud));
        assert_eq!(merged.ok(), expected.map(list), "{id}");
    }
}

// vectors: H-20–H-26
#[test]
fn provided_node_ips_parse_as_upstream() {
    let unparsable = [
        "",
        " ",
        "blah",
        " 1.2.3.4   ",
        "1.2.3",
        "1.2.3.0/24",
        "1.2.3.4,not-an-IPv6-address",
        "abcd::ef01 , 1.2.3.4",
        "abcd::ef01 , 1.2.3.4, something else",
        "1.2.3.256",
        "1.2.3.",
        "+1.2.3.4",
        "fe80::1%eth0",
    ];
    for text in unparsable {
        let message = parse_provided_node_ips(text).unwrap_err().to_string();
        assert!(message.contains("could not parse"), "H-20 {text:?}: {message}");
    }
    let valid: &[(&str, &str, &[&str])] = &[
        ("H-21", "1.2.3.4", &["1.2.3.4"]),
        ("H-21", "01.2.3.004", &["1.2.3.4"]),
        ("H-22", "0.0.0.0", &["0.0.0.0"]),
        ("H-23", "abcd::ef01", &["abcd::ef01"]),
        ("H-23", "abcd:0abc:00ab:0000:0000::1", &["abcd:abc:ab::1"]),
        ("H-24", "1.2.3.4,abcd::ef01", &["1.2.3.4", "abcd::ef01"]),
    ];
    for (id, text, expected) in valid {
        let parsed: Vec<String> = parse_provided_node_ips(text).unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(parsed, *expected, "{id} {text}");
    }
    for text in ["1.2.3.4,5.6.7.8", "abcd::1,abcd::2", "1.2.3.4,abcd::1,5.6.7.8"] {
        let message = parse_provided_node_ips(text).unwrap_err().to_string();
        assert!(message.contains("either a single IP or a dual-stack pair of IPs"), "H-25 {text}: {message}");
    }
    for text in ["1.2.3.4,::", "0.0.0.0,abcd::1"] {
        let message = parse_provided_node_ips(text).unwrap_err().to_string();
        assert!(message.contains("cannot include '0.0.0.0' or '::'"), "H-26 {text}: {message}");
    }
}

// vectors: H-30–H-33
#[test]
fn addresses_are_appended_once() {
    for (id, existing, more, expected) in [
        ("H-30", "", "", ""),
        ("H-31", "", "Ext 1.1.1.1, hn localhost", "Ext 1.1.1.1, hn localhost"),
        ("H-32", "", "Ext 1.1.1.1, Ext 1.1.1.1", "Ext 1.1.1.1"),
        ("H-33", "Ext 1.1.1.1, Int 10.1.1.1", "Ext 1.1.1.1, hn localhost", "Ext 1.1.1.1, Int 10.1.1.1, hn localhost"),
    ] {
        let mut addresses = list(existing);
        append_unique(&mut addresses, &list(more));
        assert_eq!(addresses, list(expected), "{id}");
    }
}

// vectors: N-40–N-45
#[test]
fn a_change_of_addresses_is_told_from_none() {
    for (id, old, new, expected) in [
        ("N-40", "Int 10.0.0.1, Ext 132.143.154.163", "Int 10.0.0.1, Ext 132.143.154.163", false),
        ("N-41", "Int 10.0.0.1, Ext 132.143.154.164", "Int 10.0.0.1, Ext 132.143.154.163", true),
        ("N-42", "Int 10.0.0.1, Ext 132.143.154.164, hn h", "Int 10.0.0.1, Ext 132.143.154.164", true),
        ("N-43", "Int 10.0.0.1, Ext 132.143.154.164", "Int 10.0.0.1, Ext 132.143.154.164, hn h", true),
        ("N-44", "Ext 10.0.0.1, Int 132.143.154.163", "Int 10.0.0.1, Ext 132.143.154.163", true),
        ("N-45 differs: no change is no change", "Int a, Int b", "Int a, Int b", false),
        ("order of types", "hn h, Int a", "Int a, hn h", false),
        ("order within a type", "Int b, Int a", "Int a, Int b", true),
        ("one twice", "Int a, Int a", "Int a, Int b", true),
        ("gone", "Int a", "", true),
    ] {
        assert_eq!(differ(&list(old), &list(new)), expected, "{id}");
    }
}

#[test]
fn addresses_on_the_node_stay_while_the_cloud_reports_them() {
    for (id, present, provided, cloud, expected) in [
        ("an empty report keeps all", "Int 10.0.0.1, hn h", None, "", "Int 10.0.0.1, hn h"),
        ("the cloud's hostname wins", "hn kubelet", None, "hn cloud, Int 10.0.0.1", "hn cloud, Int 10.0.0.1"),
        ("the node's hostnames are kept", "hn a, hn b", None, "Int 10.0.0.1", "Int 10.0.0.1, hn a, hn b"),
        (
            "the present one stays first",
            "Int 10.0.0.2",
            None,
            "Int 10.0.0.1, Int 10.0.0.2",
            "Int 10.0.0.2, Int 10.0.0.1",
        ),
        ("a gone one goes", "Int 10.0.0.2", None, "Int 10.0.0.1", "Int 10.0.0.1"),
        (
            "families keep the cloud's order",
            "Int fc01::1, Int 10.0.0.2",
            None,
            "Int 10.0.0.1, Int 10.0.0.2, Int fc01::1",
            "Int 10.0.0.2, Int 10.0.0.1, Int fc01::1",
        ),
        (
            "the annotation wins over the present one",
            "Int 10.0.0.2",
            Some("10.0.0.1"),
            "Int 10.0.0.2, Int 10.0.0.1",
            "Int 10.0.0.1",
        ),
        (
            "another order of types writes nothing",
            "hn h, Int 10.0.0.1",
            None,
            "Int 10.0.0.1, hn h",
            "hn h, Int 10.0.0.1",
        ),
    ] {
        assert_eq!(merge(&node_with(present, provided), &list(cloud)).unwrap(), list(expected), "{id}");
    }
}

// vectors: H-40–H-45
#[test]
fn taints_are_told_apart_by_key_and_effect() {
    let node = |taints: &[(&str, &str)]| {
        let taint = |(key, effect): &(&str, &str)| Taint {
            key: (*key).into(),
            value: Some("bar".into()),
            effect: (*effect).into(),
            ..Taint::default()
        };
        let taints = Some(taints.iter().map(taint).collect());
        Node { spec: Some(NodeSpec { taints, ..NodeSpec::default() }), ..Node::default() }
    };
    let two: &[(&str, &str)] = &[("foo_1", "NoExecute"), ("foo_2", "NoSchedule")];
    let one: &[(&str, &str)] = &[("foo", "NoSchedule")];
    for (id, taints, key, effect, left) in [
        ("H-40: it is there", two, "foo_1", Some("NoExecute"), &two[1..]),
        ("H-41: no such key", two, "no_such_key", Some("NoExecute"), two),
        ("H-41: another effect", two, "foo_1", Some("NoSchedule"), two),
        ("H-42", one, "foo_1", None, one),
        ("H-43", one, "foo", Some("NoSchedule"), &[]),
        ("H-44", &[], "foo", None, &[]),
        ("H-45", one, "foo", Some("NoExecute"), one),
        ("every effect", &[("foo", "NoSchedule"), ("foo", "NoExecute")], "foo", None, &[]),
    ] {
        let before = node(taints);
        let after = taints_without(&before, key, effect);
        assert_eq!(after, super::taints(&node(left)), "{id}");
        let is_by_key = taints.iter().any(|(other, _)| *other == key);
        assert_eq!(has_taint(&before, key), is_by_key, "{id}");
    }
}

#[test]
fn reserved_label_domains_are_recognized() {
    for (key, expected) in [
        ("topology.kubernetes.io/region", true),
        ("topology.k8s.io/region", true),
        ("kubernetes.io/region", true),
        ("k8s.io/region", true),
        ("topology.k8s.cp/zone-id", false),
        ("my.custom.label/foo", false),
        ("app.k8snio/bar", false),
        ("k8snio/bar", false),
        ("mykubernetes.io/bar", false),
        ("kubernetes.io", false),
        ("", false),
    ] {
        assert_eq!(is_reserved_label(key), expected, "{key}");
    }
}

#[test]
fn readiness_is_unknown_unless_the_kubelet_reported() {
    for (status, expected) in [
        (Some("True"), Readiness::True),
        (Some("False"), Readiness::False),
        (Some("Unknown"), Readiness::Unknown),
        (Some("Maybe"), Readiness::False),
        (Some(""), Readiness::False),
        (None, Readiness::Unknown),
    ] {
        let condition =
            |status: &str| NodeCondition { type_: "Ready".into(), status: status.into(), ..NodeCondition::default() };
        let pressure = NodeCondition { type_: "MemoryPressure".into(), status: "True".into(), ..Default::default() };
        let conditions = [pressure].into_iter().chain(status.map(condition)).collect();
        let node = Node {
            status: Some(NodeStatus { conditions: Some(conditions), ..NodeStatus::default() }),
            ..Node::default()
        };
        assert_eq!(readiness(&node), expected, "{status:?}");
    }
}

#[test]
fn an_empty_node_answers_with_nothing() {
    let node = Node::default();
    assert_eq!((name(&node), provider_id(&node), system_uuid(&node)), ("", "", ""));
    assert!(taints(&node).is_empty() && !is_uninitialized(&node) && !is_control_plane(&node));
    assert_eq!((label(&node, "a"), annotation(&node, "a")), (None, None));
}

#[test]
fn facts_are_read_from_a_full_node() {
    let node = Node {
        metadata: ObjectMeta {
            labels: Some(BTreeMap::from([("node-role.kubernetes.io/control-plane".into(), String::new())])),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some("a://1".into()),
            taints: Some(vec![Taint {
                key: TAINT_UNINITIALIZED.into(),
                effect: "NoExecute".into(),
                ..Taint::default()
            }]),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            node_info: Some(NodeSystemInfo { system_uuid: "u".into(), ..NodeSystemInfo::default() }),
            ..NodeStatus::default()
        }),
    };
    assert_eq!((provider_id(&node), system_uuid(&node)), ("a://1", "u"));
    assert!(is_uninitialized(&node) && is_control_plane(&node) && !has_taint(&node, "other"));
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "[0-9a-f.:,/% ]{0,40}") {
        let _ = parse_provided_node_ips(&text);
    }

    #[test]
    fn merging_again_changes_nothing(
        present in prop::collection::vec((0..3usize, 0..4usize), 0..6),
        cloud in prop::collection::vec((0..3usize, 0..4usize), 0..6),
        provided in prop::option::of(prop::sample::select(vec!["10.0.0.2", "10.0.0.1,fc01::1", "fc01::1"])),
    ) {
        let build = |parts: &[(usize, usize)]| -> Vec<NodeAddress> {
            let values = ["10.0.0.1", "10.0.0.2", "fc01::1", "name"];
            let types = [INTERNAL_IP, EXTERNAL_IP, HOSTNAME];
            let make = |(t, v): &(usize, usize)| NodeAddress { type_: types[*t].into(), address: values[*v].into() };
            parts.iter().map(make).collect()
        };
        let mut node = node_with("", provided);
        node.status.as_mut().unwrap().addresses = Some(build(&present));
        let Ok(once) = merge(&node, &build(&cloud)) else { return Ok(()) };
        node.status.as_mut().unwrap().addresses = Some(once.clone());
        prop_assert_eq!(merge(&node, &build(&cloud)).unwrap(), once);
    }
}
