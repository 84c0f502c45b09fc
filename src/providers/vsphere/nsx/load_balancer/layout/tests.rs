//! Tests that each object is written as in the Go program.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::providers::vsphere::nsx::load_balancer::body::new_object;
use crate::providers::vsphere::nsx::load_balancer::members::Member;
use crate::providers::vsphere::nsx::load_balancer::plan;
use crate::providers::vsphere::nsx::load_balancer::resource::{LoadBalancerSpec, Resource};

const OWNER: Owner<'static> = Owner { service: "ns/s", uid: "u-1" };
const HTTP: Port = Port { protocol: Protocol::Tcp, number: 80 };

fn layout(cluster_uid: Option<&str>, configured: &[(&str, &str)]) -> ClusterLayout {
    ClusterLayout {
        cluster: "c".to_owned(),
        cluster_uid: cluster_uid.map(str::to_owned),
        configured: configured.iter().map(|(scope, tag)| ((*scope).to_owned(), (*tag).to_owned())).collect(),
        secondary: None,
    }
}

fn tags(pairs: &[(&str, &str)]) -> Value {
    pairs.iter().map(|(scope, tag)| json!({"scope": scope, "tag": tag})).collect()
}

fn body(object: Object) -> Value {
    Value::Object(object.0)
}

/// Returns a new object without members.
fn object(layout: &ClusterLayout, new: &Resource) -> Object {
    let of = LoadBalancerSpec {
        class: "default".to_owned(),
        address_pool: "p1".to_owned(),
        members: Vec::new(),
        size: "SMALL",
        tier1: Some("/infra/tier-1s/t".to_owned()),
    };
    new_object(layout, &OWNER, &of, new)
}

fn new_server() -> Resource {
    let mut server = Resource::new(ObjectKind::VirtualServer, Some(HTTP));
    server.address = "192.0.2.5".parse().ok();
    server.set_port(HTTP, 30080, "/infra/lb-app-profiles/default-tcp-lb-app-profile");
    server.set_reference(ObjectKind::Pool, "/infra/lb-pools/77aa");
    server.set_reference(ObjectKind::LbService, "/infra/lb-services/10be");
    server
}

fn server(layout: &ClusterLayout) -> Value {
    body(object(layout, &new_server()))
}

fn new_pool(is_snat_disabled: bool, monitor: Option<&str>) -> Resource {
    let mut pool = Resource::new(ObjectKind::Pool, Some(HTTP));
    pool.set_reference(ObjectKind::Monitor, monitor.unwrap_or_default());
    pool.spec.is_snat_disabled = Some(is_snat_disabled);
    pool
}

fn pool(layout: &ClusterLayout, is_snat_disabled: bool, monitor: Option<&str>) -> Value {
    let member = |node: &str, address: &str| Member {
        node: node.to_owned(),
        address: address.parse().unwrap(),
        is_confirmed: true,
    };
    let of = LoadBalancerSpec {
        class: String::new(),
        address_pool: "p1".to_owned(),
        members: vec![member("n1", "10.0.0.1"), member("n2", "10.0.0.2")],
        size: "SMALL",
        tier1: None,
    };
    body(new_object(layout, &OWNER, &of, &new_pool(is_snat_disabled, monitor)))
}

fn monitor(layout: &ClusterLayout, port: Port, probe: Probe) -> Object {
    let mut monitor = Resource::new(ObjectKind::Monitor, Some(port));
    monitor.set_probe(probe);
    object(layout, &monitor)
}

fn allocation(layout: &ClusterLayout) -> Object {
    object(layout, &Resource::new(ObjectKind::Allocation, None))
}

fn group(layout: &ClusterLayout, ranges: &[&str]) -> Object {
    let mut group = Resource::new(ObjectKind::Group, None);
    group.spec.ranges = Some(ranges.iter().map(|range| range.parse().unwrap()).collect());
    object(layout, &group)
}

// vectors: TAG-06
#[test]
fn tag_06_a_configured_tag_does_not_replace_one_of_the_program_but_the_owner() {
    let layout = layout(None, &[("cluster", "x"), ("owner", "them"), ("team", "blue")]);
    let expected = [("cluster", "c"), ("owner", "them"), ("service", "ns/s"), ("team", "blue")];
    assert_eq!(body(allocation(&layout)), json!({"tags": tags(&expected)}));
    assert_eq!(layout.owner(), "them");
}

/// An update writes the configured tags into an object that has tags of the program.
#[test]
fn a_configured_tag_with_a_scope_of_the_program_is_ignored() {
    let scopes = [SERVICE, PORT, ADDRESS_POOL, CLASS, CLUSTER_UID, SERVICE_UID, ADDRESS, FAMILY];
    let mut object = object(&layout(None, &scopes.map(|scope| (scope, "x"))), &new_pool(false, None));
    let before = object.clone();
    layout(None, &scopes.map(|scope| (scope, "x"))).tags(ObjectKind::Pool).write_into(&mut object);
    assert_eq!(body(object), body(before));
}

// vectors: TAG-07, W-08
#[test]
fn tag_07_and_w_08_a_virtual_server_is_that_of_the_go_program_with_the_uid_of_the_cluster() {
    let go = [
        ("cluster", "c"),
        ("ippoolid", "p1"),
        ("lbclass", "default"),
        ("owner", "vsphere-cloud-controller-manager"),
        ("port", "TCP/80"),
        ("service", "ns/s"),
    ];
    let expected = |tags: Value| {
        json!({
            "display_name": "cluster:c:ns/s",
            "description": "virtual server for cluster c, service ns/s created by vsphere-cloud-controller-manager",
            "ip_address": "192.0.2.5", "ports": ["80"], "default_pool_member_ports": ["30080"], "enabled": true,
            "application_profile_path": "/infra/lb-app-profiles/default-tcp-lb-app-profile",
            "pool_path": "/infra/lb-pools/77aa", "lb_service_path": "/infra/lb-services/10be", "tags": tags,
        })
    };
    assert_eq!(server(&layout(None, &[])), expected(tags(&go)), "TAG-07, W-08");
    let mut more = go.to_vec();
    more.insert(1, ("cluster-uid", "k"));
    assert_eq!(server(&layout(Some("k"), &[])), expected(tags(&more)), "TAG-07, W-08");
}

// vectors: W-06
#[test]
fn w_06_a_monitor_is_that_of_the_go_program() {
    let mut expected = json!({
        "resource_type": "LBTcpMonitorProfile", "display_name": "cluster:c:ns/s:30080", "monitor_port": 30080,
        "description":
            "tcp monitor for cluster c, service ns/s, port 30080 created by vsphere-cloud-controller-manager",
        "tags": tags(&[("cluster", "c"), ("owner", PROGRAM), ("port", "TCP/80"), ("service", "ns/s")]),
    });
    assert_eq!(body(monitor(&layout(None, &[]), HTTP, Probe::Tcp(30080))), expected, "W-06");
    let uid = ("cluster-uid", "k");
    expected["tags"] = tags(&[("cluster", "c"), uid, ("owner", PROGRAM), ("port", "TCP/80"), ("service", "ns/s")]);
    assert_eq!(body(monitor(&layout(Some("k"), &[]), HTTP, Probe::Tcp(30080))), expected, "W-06 with the UID");
}

// vectors: W-07
#[test]
fn w_07_a_pool_is_that_of_the_go_program_with_the_pool_of_its_address() {
    let member = |name: &str, ip: &str| json!({"admin_state": "ENABLED", "display_name": name, "ip_address": ip});
    let mut expected = json!({
        "display_name": "cluster:c:ns/s",
        "description": "pool for cluster c, service ns/s created by vsphere-cloud-controller-manager",
        "snat_translation": {"type": "LBSnatAutoMap"}, "active_monitor_paths": ["/m"],
        "members": [member("c:n1", "10.0.0.1"), member("c:n2", "10.0.0.2")],
        "tags": tags(&[
            ("cluster", "c"), ("ippoolid", "p1"), ("owner", PROGRAM), ("port", "TCP/80"), ("service", "ns/s"),
        ]),
    });
    assert_eq!(pool(&layout(None, &[]), false, Some("/m")), expected, "W-07");
    expected["snat_translation"]["type"] = json!("LBSnatDisabled");
    expected.as_object_mut().unwrap().remove("active_monitor_paths");
    assert_eq!(pool(&layout(None, &[]), true, None), expected, "W-07");
    let uid = ("cluster-uid", "k");
    expected["tags"] =
        tags(&[("cluster", "c"), uid, ("ippoolid", "p1"), ("owner", PROGRAM), ("port", "TCP/80"), ("service", "ns/s")]);
    assert_eq!(pool(&layout(Some("k"), &[]), true, None), expected, "W-07 with the UID");
}

// vectors: W-09
#[test]
fn w_09_an_allocation_has_tags_only() {
    let go = [("cluster", "c"), ("owner", PROGRAM), ("service", "ns/s")];
    assert_eq!(body(allocation(&layout(None, &[]))), json!({"tags": tags(&go)}), "W-09");
    let ours = [("cluster", "c"), ("cluster-uid", "k"), ("owner", PROGRAM), ("service", "ns/s")];
    assert_eq!(body(allocation(&layout(Some("k"), &[]))), json!({"tags": tags(&ours)}), "W-09");
}

#[test]
fn a_load_balancer_service_is_that_of_the_go_program() {
    let expected = json!({
        "display_name": "cluster:c", "size": "SMALL", "enabled": true, "connectivity_path": "/infra/tier-1s/t",
        "description": "virtual server pool for cluster c created by vsphere-cloud-controller-manager",
        "tags": tags(&[("cluster", "c"), ("owner", PROGRAM)]),
    });
    assert_eq!(body(object(&layout(None, &[]), &Resource::new(ObjectKind::LbService, None))), expected);
}

/// These ids must not change, because existing objects are found by them.
#[test]
fn ids_depend_on_cluster_name_service_kind_port_and_attempt_alone() {
    let ours = layout(None, &[]);
    let copy = ClusterLayout { cluster: "copy".to_owned(), ..ours.clone() };
    let udp = Port { protocol: Protocol::Udp, number: 80 };
    let ids = [
        ours.id(ObjectKind::Pool, "u-1", Some(HTTP), 0),
        ours.id(ObjectKind::Pool, "u-2", Some(HTTP), 0),
        ours.id(ObjectKind::Monitor, "u-1", Some(HTTP), 0),
        ours.id(ObjectKind::VirtualServer, "u-1", Some(HTTP), 0),
        ours.id(ObjectKind::Pool, "u-1", Some(udp), 0),
        ours.id(ObjectKind::Pool, "u-1", Some(HTTP), 1),
        ours.id(ObjectKind::Allocation, "u-1", None, 0),
        ours.id(ObjectKind::Group, "u-1", None, 0),
        ours.id(ObjectKind::PersistenceProfile, "u-1", None, 0),
        copy.id(ObjectKind::Pool, "u-1", Some(HTTP), 0),
        ours.lb_service_id(None, 0),
        ours.lb_service_id(Some("/infra/tier-1s/t"), 0),
        layout(Some("k"), &[]).lb_service_id(None, 0),
        copy.lb_service_id(None, 0),
    ];
    let different: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(different.len(), ids.len());
    assert!(ids.iter().all(|id| has_own_form(id)));
    assert!(
        !has_own_form("9f7e6b0e-0c0f-4d0f-8d6c-5b5f5b0f1f11") && !has_own_form("x"),
        "of the Go program, of others"
    );
    let pinned = [&ids[0], &ids[2], &ids[3], &ids[6], &ids[11], &ids[7], &ids[8]];
    assert_eq!(
        pinned,
        [
            "faaaef56-efb1-591a-a58f-e78b2784b491",
            "da2d7254-4b72-50d6-ac8a-0a419f21dc46",
            "0b05531b-a4b3-5cef-807c-53e6ae35d185",
            "d4de6e6c-7b60-5e3d-9a2f-28cb87d4bb7a",
            "aae0f21c-5b70-5595-a137-e7deb6988caf",
            "db9e6e0d-7d9c-58d9-bab8-fe235430d3bd",
            "689a70d7-002c-5131-8996-5f7db5454c4a"
        ]
    );
    assert_eq!(
        layout(Some("k"), &[]).id(ObjectKind::Pool, "u-1", Some(HTTP), 0),
        ids[0],
        "the UID may be unknown for a while"
    );
}

#[test]
fn a_udp_port_has_a_monitor_that_asks_for_endpoints() {
    let dns = Port { protocol: Protocol::Udp, number: 53 };
    let expected = json!({
        "resource_type": "LBHttpMonitorProfile", "display_name": "cluster:c:ns/s:32000", "monitor_port": 32000,
        "description":
            "http monitor for cluster c, service ns/s, port 32000 created by vsphere-cloud-controller-manager",
        "request_method": "GET", "request_url": "/healthz", "request_version": "HTTP_VERSION_1_0",
        "response_status_codes": [200], "tags": tags(&[("cluster", "c"), ("owner", PROGRAM), ("port", "UDP/53"), ("service", "ns/s")]),
    });
    assert_eq!(body(monitor(&layout(None, &[]), dns, Probe::Http(32000))), expected);
}

#[test]
fn a_udp_port_may_have_a_monitor_that_sends_icmp() {
    let dns = Port { protocol: Protocol::Udp, number: 53 };
    let expected = json!({
        "resource_type": "LBIcmpMonitorProfile", "display_name": "cluster:c:ns/s:icmp",
        "description": "icmp monitor for cluster c, service ns/s created by vsphere-cloud-controller-manager",
        "tags": tags(&[("cluster", "c"), ("owner", PROGRAM), ("port", "UDP/53"), ("service", "ns/s")]),
    });
    assert_eq!(body(monitor(&layout(None, &[]), dns, Probe::Icmp)), expected);
}

/// Monitors of earlier versions are found by their ids. A monitor of another type must have another id.
#[test]
fn monitors_of_one_port_have_an_id_for_each_type() {
    let (ours, dns) = (layout(None, &[]), Port { protocol: Protocol::Udp, number: 53 });
    for (port, [first, other]) in
        [(HTTP, [MonitorType::Tcp, MonitorType::Http]), (dns, [MonitorType::Http, MonitorType::Icmp])]
    {
        assert_eq!(MonitorType::of(port.protocol), [first, other]);
        let (one, two) = (ours.monitor_id(first, "u-1", port, 0), ours.monitor_id(other, "u-1", port, 0));
        assert_eq!(one, ours.id(ObjectKind::Monitor, "u-1", Some(port), 0), "as before there were others");
        assert_ne!(one, two);
        for id in [&one, &two] {
            assert!(ours.has_id(None, ObjectKind::Monitor, "u-1", Some(port), id) && has_own_form(id), "{port}");
            assert!(!ours.has_id(None, ObjectKind::Monitor, "u-2", Some(port), id), "{port}");
        }
    }
    assert_eq!(ours.monitor_id(MonitorType::Tcp, "u-1", HTTP, 0), "da2d7254-4b72-50d6-ac8a-0a419f21dc46");
}

#[test]
fn a_group_and_a_persistence_profile_have_the_tags_of_the_service() {
    let layout = layout(Some("k"), &[]);
    let tags = tags(&[("cluster", "c"), ("cluster-uid", "k"), ("owner", PROGRAM), ("service", "ns/s")]);
    let addresses = json!(["10.0.0.0/8", "192.0.2.0/24"]);
    let expected = json!({
        "display_name": "cluster:c:ns/s",
        "description": "source ranges for cluster c, service ns/s created by vsphere-cloud-controller-manager",
        "expression": [{"resource_type": "IPAddressExpression", "ip_addresses": addresses}],
        "group_type": ["IPAddress"], "tags": tags,
    });
    assert_eq!(body(group(&layout, &["10.0.0.0/8", "192.0.2.0/24"])), expected);
    let expected = json!({
        "display_name": "cluster:c:ns/s", "resource_type": "LBSourceIpPersistenceProfile", "timeout": 10800,
        "description": "session affinity for cluster c, service ns/s created by vsphere-cloud-controller-manager",
        "tags": tags,
    });
    let mut profile = Resource::new(ObjectKind::PersistenceProfile, None);
    profile.spec.timeout = Some(Duration::from_secs(10800));
    assert_eq!(body(object(&layout, &profile)), expected);
}

#[test]
fn a_virtual_server_refers_to_its_group_and_persistence_profile_and_an_allocation_asks_for_an_address() {
    let mut new = new_server();
    new.set_reference(ObjectKind::Group, "/g");
    new.set_reference(ObjectKind::PersistenceProfile, "/s");
    let server = body(object(&layout(None, &[]), &new));
    assert_eq!(server["access_list_control"], json!({"action": "ALLOW", "enabled": true, "group_path": "/g"}));
    assert_eq!(server["lb_persistence_profile_path"], "/s");
    let new = Resource { address: new.address, ..Resource::new(ObjectKind::Allocation, None) };
    let allocation = body(object(&layout(None, &[]), &new));
    assert_eq!(allocation["allocation_ip"], "192.0.2.5");
}

/// Returns the scopes of an object of each kind with this number of configured tags, without the configured scopes.
fn scopes_beside(configured: usize, second: Option<IpFamily>) -> Vec<(ObjectKind, Vec<String>)> {
    let tags: Vec<String> = (0..configured).map(|number| format!("team-{number:02}")).collect();
    let pairs: Vec<(&str, &str)> = tags.iter().map(|scope| (scope.as_str(), "x")).collect();
    let layout = ClusterLayout { secondary: second, ..layout(Some("k"), &pairs) };
    let Value::Object(server) = server(&layout) else { panic!() };
    let mut marked = [object(&layout, &new_pool(false, None)), monitor(&layout, HTTP, Probe::Tcp(1))];
    for (kind, object) in [ObjectKind::Pool, ObjectKind::Monitor].into_iter().zip(&mut marked) {
        let address = Some("192.0.2.5".parse().unwrap()).filter(|_| kind == ObjectKind::Pool);
        plan::tags_of(&OWNER, &layout, kind, address).write_into(object);
    }
    let [pool, monitor] = marked;
    let all = [
        (ObjectKind::VirtualServer, Object(server)),
        (ObjectKind::Pool, pool),
        (ObjectKind::Monitor, monitor),
        (ObjectKind::Allocation, allocation(&layout)),
        (ObjectKind::Group, group(&layout, &["10.0.0.0/8"])),
        (ObjectKind::LbService, object(&layout, &Resource::new(ObjectKind::LbService, None))),
    ];
    let scopes = |object: &Object| {
        let all: Vec<String> = object.tags().map(|tag| tag.scope.to_owned()).collect();
        assert!(all.len() <= 30 || configured > if second.is_none() { 24 } else { 23 }, "{configured}: {all:?}");
        all.into_iter().filter(|scope| !scope.starts_with("team-")).collect()
    };
    all.iter().map(|(kind, object)| (*kind, scopes(object))).collect()
}

/// NSX accepts 30 tags. The Go program needs 6 tags for a virtual server, so it works with 24 configured tags.
#[test]
fn marks_are_left_off_in_a_fixed_order_where_configured_tags_leave_no_room() {
    let whole = scopes_beside(0, None);
    for (configured, missing) in [
        (21, vec![]),
        (22, vec![]),
        (23, vec![(ObjectKind::Pool, ADDRESS_POOL)]),
        (
            24,
            vec![
                (ObjectKind::VirtualServer, CLUSTER_UID),
                (ObjectKind::Pool, ADDRESS),
                (ObjectKind::Pool, ADDRESS_POOL),
            ],
        ),
    ] {
        let mut expected = whole.clone();
        for (kind, scope) in missing {
            let (_, scopes) = expected.iter_mut().find(|(one, _)| *one == kind).unwrap();
            scopes.retain(|one| one != scope);
        }
        for (kind, scopes) in &mut expected {
            scopes.sort();
            assert!(*kind != ObjectKind::Pool || scopes.contains(&SERVICE_UID.to_owned()), "the last one");
        }
        let mut found = scopes_beside(configured, None);
        found.iter_mut().for_each(|(_, scopes)| scopes.sort());
        assert_eq!(found, expected, "{configured}");
    }
    // This number of configured tags always fits, also on a second load balancer.
    let most = crate::providers::vsphere::config::MAX_EXTRA_TAGS;
    let second = Some(IpFamily::V6);
    let counts =
        |configured| -> usize { scopes_beside(configured, second).iter().map(|(_, scopes)| scopes.len()).sum() };
    assert_eq!((most, counts(most)), (21, counts(0)));
    assert!(counts(most + 1) < counts(0));
    // Without the optional tags, more configured tags fit on a virtual server. NSX rejects one more.
    for (second, refused) in [(second, 24), (None, 25)] {
        let (kind, scopes) = scopes_beside(refused, second).swap_remove(0);
        assert_eq!((kind, refused + scopes.len()), (ObjectKind::VirtualServer, 31));
        scopes_beside(refused - 1, second);
    }
}

#[test]
fn a_configured_uid_is_not_written() {
    let layout = layout(None, &[("cluster-uid", "x"), ("service-uid", "y")]);
    let expected = [("cluster", "c"), ("owner", PROGRAM), ("service", "ns/s")];
    assert_eq!(body(allocation(&layout)), json!({"tags": tags(&expected)}));
}

#[test]
fn a_port_is_read_as_it_is_written_and_nothing_else_is() {
    for port in [HTTP, Port { protocol: Protocol::Udp, number: 65535 }] {
        assert_eq!(Port::parse(&port.to_string()), Some(port));
    }
    for wrong in ["", "TCP", "TCP/", "tcp/80", "SCTP/80", "TCP/65536", "TCP/80/1"] {
        assert_eq!(Port::parse(wrong), None, "{wrong}");
    }
}
