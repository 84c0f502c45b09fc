//! Tests that each object is written as in the Go program, and of edits of NSX objects.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::nsx::load_balancer::layout::{FAMILY, Port, Probe, Protocol, SERVICE_UID};
use crate::providers::vsphere::nsx::load_balancer::plan;
use crate::providers::vsphere::nsx::ownership::CLUSTER_UID;

const HTTP: Port = Port { protocol: Protocol::Tcp, number: 80 };
const OWNER: Owner<'static> = Owner { service: "ns/s", uid: "u-1" };

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

/// Returns the object after a change. Checks that an unknown JSON member and an unknown tag stay.
fn edited(resource: &Resource, desired: &Resource, mut before: Value) -> Value {
    let of_others =
        [("other", json!("kept")), ("tags", json!([{"scope": "port", "tag": "x"}, {"scope": "a", "tag": "b"}]))];
    for (member, value) in of_others {
        before[member] = value;
    }
    let mut object = Object(serde_json::from_value(before).unwrap());
    let node = Member { node: "n".to_owned(), address: "10.0.0.1".parse().unwrap(), is_confirmed: true };
    edit(&mut object, resource, desired, "c", &[node]);
    let mut after = Value::Object(object.0);
    assert_eq!(after["other"], "kept");
    assert_eq!(after["tags"], json!([{"scope": "port", "tag": "TCP/80"}, {"scope": "a", "tag": "b"}]));
    for member in ["other", "tags"] {
        after.as_object_mut().unwrap().remove(member);
    }
    after
}

#[test]
fn a_monitor_gets_its_port() {
    let monitor = Resource::new(ObjectKind::Monitor, None);
    let edited = |probe, before| {
        let mut desired = Resource::new(ObjectKind::Monitor, Some(HTTP));
        desired.set_probe(probe);
        edited(&monitor, &desired, before)
    };
    assert_eq!(edited(Probe::Tcp(30080), json!({"monitor_port": 1})), json!({"monitor_port": 30080}));
    let old = json!({"monitor_port": 1, "request_version": "HTTP_VERSION_1_1"});
    let expected = json!({"monitor_port": 32000, "request_version": "HTTP_VERSION_1_0"});
    assert_eq!(edited(Probe::Http(32000), old), expected);
    assert_eq!(edited(Probe::Icmp, json!({})), json!({}));
}

#[test]
fn a_pool_gets_its_members_and_its_monitor() {
    let pool = Resource::new(ObjectKind::Pool, None);
    let member = json!([{"ip_address": "10.0.0.1", "display_name": "c:n", "admin_state": "ENABLED"}]);
    let edited = |monitor, is_snat_disabled, before| {
        let mut desired = Resource::new(ObjectKind::Pool, Some(HTTP));
        desired.set_reference(ObjectKind::Monitor, monitor);
        desired.spec.is_snat_disabled = is_snat_disabled;
        edited(&pool, &desired, before)
    };
    assert_eq!(edited("/m", None, json!({})), json!({"members": member, "active_monitor_paths": ["/m"]}));
    assert_eq!(edited("", None, json!({"active_monitor_paths": ["/m"]})), json!({"members": member}));
    let expected = json!({"members": member, "snat_translation": {"type": "LBSnatDisabled"}});
    assert_eq!(edited("", Some(true), json!({})), expected);
    let added = json!({"type": "LBSnatAutoMap", "port_overload": 32});
    assert_eq!(edited("", Some(true), json!({"snat_translation": added})), expected);
    let unchanged = json!({"members": member, "snat_translation": added});
    assert_eq!(edited("", Some(false), json!({"snat_translation": added})), unchanged, "it keeps what NSX has added");
    assert_eq!(edited("", None, json!({"snat_translation": added})), unchanged);
}

#[test]
fn a_virtual_server_gets_all_that_its_port_needs() {
    let server = |reference| {
        let mut server = Resource::new(ObjectKind::VirtualServer, Some(HTTP));
        server.set_port(HTTP, 30080, "/p");
        server.set_reference(ObjectKind::Pool, "/pool");
        server.set_reference(ObjectKind::Group, reference);
        server.set_reference(ObjectKind::PersistenceProfile, reference);
        server.spec.is_restricted = !reference.is_empty();
        server
    };
    let (without, with) = (server(""), server("/x"));
    let expected = json!({
        "ports": ["80"], "default_pool_member_ports": ["30080"], "application_profile_path": "/p", "pool_path": "/pool",
    });
    assert_eq!(edited(&without, &without, json!({"ports": ["1-2"]})), expected);
    let mut referring = expected.clone();
    referring["access_list_control"] = json!({"action": "ALLOW", "enabled": true, "group_path": "/x"});
    referring["lb_persistence_profile_path"] = json!("/x");
    assert_eq!(edited(&without, &with, json!({})), referring);
    assert_eq!(edited(&with, &with, referring.clone()), referring);
    assert_eq!(edited(&with, &without, referring), expected);
}

#[test]
fn a_virtual_server_gets_its_address_back_and_nothing_else() {
    let server = Resource::new(ObjectKind::VirtualServer, None);
    let desired = Resource { address: "192.0.2.5".parse().ok(), ..server.clone() };
    let mut object = Object(serde_json::from_value(json!({"ip_address": "192.0.2.9", "ports": ["1-2"]})).unwrap());
    edit(&mut object, &server, &desired, "c", &[]);
    assert_eq!(Value::Object(object.0), json!({"ip_address": "192.0.2.5", "ports": ["1-2"]}));
}

#[test]
fn a_group_gets_its_networks_and_a_persistence_profile_its_time() {
    let group = Resource::new(ObjectKind::Group, None);
    let mut desired = group.clone();
    desired.spec.ranges = Some(["10.0.0.0/8", "10.9.0.0/16"].map(|range| range.parse().unwrap()).into());
    let texts = json!(["10.0.0.0/8", "10.9.0.0/16"]);
    let or = json!({"resource_type": "ConjunctionOperator", "conjunction_operator": "OR"});
    let of = |range: &str, id: &str| json!({"resource_type": "IPAddressExpression", "ip_addresses": [range], "id": id});
    let others = json!({"resource_type": "PathExpression", "paths": ["/infra/domains/default/groups/x"]});
    for (before, expected) in [
        (json!([]), json!([{"resource_type": "IPAddressExpression", "ip_addresses": texts}])),
        // NSX added an id. An earlier version of this program wrote the other family.
        (
            json!([of("192.0.2.0/24", "one"), or, of("fd00::/8", "two")]),
            json!([{"resource_type": "IPAddressExpression", "ip_addresses": texts, "id": "one"}]),
        ),
        (json!([others]), json!([{"resource_type": "IPAddressExpression", "ip_addresses": texts}])),
    ] {
        let mut object = Object(serde_json::from_value(json!({"expression": before, "other": 1})).unwrap());
        edit(&mut object, &group, &desired, "c", &[]);
        assert_eq!(Value::Object(object.0), json!({"expression": expected, "other": 1}));
    }
    let profile = Resource::new(ObjectKind::PersistenceProfile, None);
    let mut desired = profile.clone();
    desired.spec.timeout = Some(Duration::from_secs(60));
    let mut object = Object::default();
    edit(&mut object, &profile, &desired, "c", &[]);
    assert_eq!(Value::Object(object.0), json!({"timeout": 60}));
}

#[test]
fn the_tag_with_the_address_of_a_pool_goes_and_the_others_stay() {
    let desired = Resource::new(ObjectKind::Pool, None);
    let pool = Resource { address: "192.0.2.5".parse().ok(), ..desired.clone() };
    let tags = json!([{"scope": "a", "tag": "b"}, {"scope": ADDRESS, "tag": "192.0.2.5"}, {"scope": "c", "tag": "d"}]);
    let mut object = Object(serde_json::from_value(json!({"tags": tags, "members": []})).unwrap());
    edit(&mut object, &pool, &desired, "c", &[]);
    let expected = json!({"tags": [{"scope": "a", "tag": "b"}, {"scope": "c", "tag": "d"}], "members": []});
    assert_eq!(Value::Object(object.0), expected);
}

/// The plan ends only if an object reads as the plan wanted it to be.
#[test]
fn an_object_is_read_as_it_was_to_be_after_its_change() {
    type Change = fn(&mut Resource);
    let layout = layout(None, &[]);
    let udp = Port { protocol: Protocol::Udp, number: 53 };
    let node = Member { node: "n".to_owned(), address: "10.0.0.1".parse().unwrap(), is_confirmed: true };
    let mut server = new_server();
    server.set_reference(ObjectKind::Group, "/old");
    server.spec.is_restricted = true;
    let mut other_monitor = Resource::new(ObjectKind::Monitor, Some(HTTP));
    other_monitor.set_probe(Probe::Http(32000));
    let mut tcp_monitor = Resource::new(ObjectKind::Monitor, Some(HTTP));
    tcp_monitor.set_probe(Probe::Tcp(30080));
    let mut restricted = Resource::new(ObjectKind::Group, None);
    restricted.spec.ranges = Some(["10.0.0.0/8".parse().unwrap()].into());
    let mut profile = Resource::new(ObjectKind::PersistenceProfile, None);
    profile.spec.timeout = Some(Duration::from_secs(10800));
    let lb_service = Resource::new(ObjectKind::LbService, None);
    let cases: [(&str, Resource, Change); 10] = [
        ("load balancer service", lb_service, |_| {}),
        ("virtual server", server.clone(), |server| {
            let (port, path) = (Port { protocol: Protocol::Udp, number: 53 }, "/infra/lb-app-profiles/udp");
            server.set_port(port, 30053, path);
            server.set_reference(ObjectKind::Pool, "/infra/lb-pools/other");
            server.set_reference(ObjectKind::Group, "/new");
            server.set_reference(ObjectKind::PersistenceProfile, "/profile");
        }),
        ("virtual server without restriction", server.clone(), |server| {
            server.set_reference(ObjectKind::Group, "");
            server.spec.is_restricted = false;
        }),
        ("address of a virtual server", server, |server| server.address = "192.0.2.6".parse().ok()),
        ("pool", new_pool(false, Some("/old")), |pool| {
            pool.set_reference(ObjectKind::Monitor, "/new");
            pool.spec.is_snat_disabled = Some(true);
            pool.spec.members = ["10.0.0.1".parse().unwrap()].into();
        }),
        ("HTTP monitor", other_monitor, |monitor| monitor.set_probe(Probe::Http(32001))),
        ("TCP monitor", tcp_monitor, |monitor| monitor.set_probe(Probe::Tcp(30081))),
        ("allocation", Resource::new(ObjectKind::Allocation, None), |_| {}),
        ("group", restricted, |group| group.spec.ranges = Some(["192.0.2.0/24".parse().unwrap()].into())),
        ("persistence profile", profile, |profile| profile.spec.timeout = Some(Duration::from_secs(60))),
    ];
    for (name, new, change) in cases {
        let kind = new.kind;
        let mut object = object(&layout, &new);
        object.0.insert("id".to_owned(), "x".into());
        object.0.insert("path".to_owned(), format!("{}/p/ip-allocations/x", kind.parent()).into());
        let before = Resource::read(kind, &object, &layout).unwrap();
        let mut desired = before.clone();
        change(&mut desired);
        if matches!(kind, ObjectKind::Pool | ObjectKind::Monitor) {
            desired.tags.port = Some(udp);
        }
        edit(&mut object, &before, &desired, "c", std::slice::from_ref(&node));
        let mut after = Resource::read(kind, &object, &layout).unwrap();
        // The order of references has no meaning.
        after.references.sort();
        desired.references.sort();
        assert_eq!(after, desired, "{name}");
    }
    let marked = Resource { address: "192.0.2.5".parse().ok(), ..new_pool(false, None) };
    let mut object = object(&layout, &new_pool(false, None));
    object.0.insert("path".to_owned(), "/infra/lb-pools/x".into());
    ScopedTags::default().with(ADDRESS, "192.0.2.5").write_into(&mut object);
    let before = Resource::read(marked.kind, &object, &layout).unwrap();
    let desired = Resource { address: None, ..before.clone() };
    edit(&mut object, &before, &desired, "c", &[]);
    assert_eq!((before.address, Resource::read(marked.kind, &object, &layout)), (marked.address, Some(desired)));
}
