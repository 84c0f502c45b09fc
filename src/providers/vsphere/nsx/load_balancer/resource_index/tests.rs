//! Tests with objects in the form in which NSX lists them.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::body::new_object;
use super::super::layout::ObjectKind::{Allocation, Group, Monitor, PersistenceProfile, Pool, VirtualServer};
use super::super::layout::{MonitorType, Owner};
use super::super::resource::LoadBalancerSpec;
use super::*;
use crate::clients::nsx::ObjectTag;
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::nsx::ownership::CLUSTER_UID;
use crate::providers::vsphere::nsx::tags::ScopedTags;

fn layout() -> ClusterLayout {
    ClusterLayout { cluster: "c".to_owned(), cluster_uid: None, configured: BTreeMap::new(), secondary: None }
}

fn object(path: &str, service: Option<&str>, more: Value) -> Object {
    let id = path.rsplit('/').next().unwrap();
    let mut tags = vec![
        json!({"scope": "cluster", "tag": "c"}),
        json!({"scope": "owner", "tag": "vsphere-cloud-controller-manager"}),
        json!({"scope": "port", "tag": "TCP/80"}),
    ];
    tags.extend(service.map(|service| json!({"scope": "service", "tag": service})));
    let mut object = json!({"id": id, "path": path, "tags": tags});
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Object(serde_json::from_value(object).unwrap())
}

fn server(id: &str, service: Option<&str>, lb_service: &str) -> Object {
    let more = json!({"ip_address": "192.0.2.5", "ports": ["80"], "lb_service_path": lb_service});
    object(&format!("/infra/lb-virtual-servers/{id}"), service, more)
}

fn contents(entries: &[(ObjectKind, Object)]) -> ResourceIndex {
    let mut contents = ResourceIndex::default();
    entries.iter().for_each(|(kind, object)| contents.add(*kind, object, &layout()));
    contents
}

#[test]
fn objects_are_found_by_the_service_of_their_tag_in_the_order_of_their_paths() {
    let pool = |id: &str| object(&format!("/infra/lb-pools/{id}"), Some("ns/s"), json!({}));
    let allocation = object("/infra/ip-pools/p1/ip-allocations/a", Some("ns/s"), json!({}));
    let contents = contents(&[
        (Pool, pool("b")),
        (Pool, pool("a")),
        (VirtualServer, server("v", Some("ns/s"), "/l")),
        (VirtualServer, server("w", Some("ns/other"), "/l")),
        (Allocation, allocation),
    ]);
    let found = contents.of_service("ns/s");
    let paths: Vec<&str> = found.pools().map(|pool| &*pool.tags.path).collect();
    assert_eq!(paths, ["/infra/lb-pools/a", "/infra/lb-pools/b"]);
    assert_eq!((found.servers().count(), found[(Allocation, 0)].address_pool.as_ref()), (1, "p1"));
    assert_eq!(contents.services(), ["ns/other", "ns/s"].into());
    assert!(contents.of_service("ns/none").is_empty());
}

#[test]
fn what_the_go_program_does_not_make_is_read() {
    let control = json!({"action": "ALLOW", "enabled": true, "group_path": "/g"});
    let restricted = |control: Value| {
        let more = json!({"access_list_control": control, "lb_persistence_profile_path": "/s"});
        let server =
            Resource::read(VirtualServer, &object("/infra/lb-virtual-servers/v", Some("ns/s"), more), &layout())
                .unwrap();
        assert_eq!(server.reference(PersistenceProfile), "/s");
        (server.reference(Group).to_owned(), server.spec.is_restricted)
    };
    assert_eq!(restricted(control), ("/g".to_owned(), true));
    assert_eq!(restricted(json!({"action": "ALLOW", "enabled": false, "group_path": "/g"})), ("/g".to_owned(), false));
    assert_eq!(restricted(json!({"action": "DROP", "enabled": true, "group_path": "/g"})), ("/g".to_owned(), false));
    assert_eq!(restricted(Value::Null), (String::new(), false));
    for (snat, expected) in [
        (Value::Null, Some(false)),
        (json!({"type": "LBSnatAutoMap"}), Some(false)),
        (json!({"type": "LBSnatDisabled"}), Some(true)),
        (json!({"type": "LBSnatIpPool"}), None),
    ] {
        let pool = object("/infra/lb-pools/p", Some("ns/s"), json!({"snat_translation": snat}));
        assert_eq!(Resource::read(Pool, &pool, &layout()).unwrap().spec.is_snat_disabled, expected, "{snat}");
    }
    for (resource_type, version, expected) in [
        ("LBTcpMonitorProfile", Value::Null, Some((MonitorType::Tcp, false))),
        ("LBHttpMonitorProfile", json!("HTTP_VERSION_1_0"), Some((MonitorType::Http, false))),
        ("LBHttpMonitorProfile", json!("HTTP_VERSION_1_1"), Some((MonitorType::Http, true))),
        ("LBHttpMonitorProfile", Value::Null, Some((MonitorType::Http, true))),
        ("LBIcmpMonitorProfile", Value::Null, Some((MonitorType::Icmp, false))),
        ("LBUdpMonitorProfile", Value::Null, None),
    ] {
        let members = json!({"resource_type": resource_type, "request_version": version});
        let monitor = object("/infra/lb-monitor-profiles/m", Some("ns/s"), members);
        let read = Resource::read(Monitor, &monitor, &layout());
        let read = read.map(|monitor| (monitor.spec.monitor_type.unwrap(), monitor.spec.has_other_version));
        assert_eq!(read, expected, "{resource_type}");
    }
}

#[test]
fn groups_and_persistence_profiles_are_read_as_they_are_written() {
    let owner = Owner { service: "ns/s", uid: "u" };
    let ranges = ["10.0.0.0/8", "192.0.2.1/32", "fd00::/8"].map(|range| range.parse().unwrap()).into();
    let of = LoadBalancerSpec {
        class: String::new(),
        address_pool: String::new(),
        members: Vec::new(),
        size: "SMALL",
        tier1: None,
    };
    let (mut group, mut profile) = (Resource::new(Group, None), Resource::new(PersistenceProfile, None));
    group.spec.ranges = Some(ranges);
    profile.spec.timeout = Some(Duration::from_secs(60));
    let ranges = group.spec.ranges.clone();
    let mut group = new_object(&layout(), &owner, &of, &group);
    let mut profile = new_object(&layout(), &owner, &of, &profile);
    for (object, parent) in [(&mut group, Group.parent()), (&mut profile, PersistenceProfile.parent())] {
        object.0.insert("id".to_owned(), "x".into());
        object.0.insert("path".to_owned(), format!("{parent}/x").into());
    }
    let mut contents = contents(&[(Group, group.clone()), (PersistenceProfile, profile)]);
    let found = contents.of_service("ns/s");
    assert_eq!((&found[(Group, 0)].spec.ranges, found.of_kind(PersistenceProfile).count()), (&ranges, 1));
    assert_eq!(found[(PersistenceProfile, 0)].spec.timeout, Some(Duration::from_secs(60)));
    for (expression, expected) in [
        (json!([{"resource_type": "IPAddressExpression", "ip_addresses": ["10.0.0.7"]}]), Some("10.0.0.7/32")),
        (json!([{"resource_type": "IPAddressExpression", "ip_addresses": ["10.0.0.1-10.0.0.9"]}]), None),
        (json!([{"resource_type": "Condition"}]), None),
    ] {
        group.0.insert("expression".to_owned(), expression);
        let expected: Option<BTreeSet<ipnet::IpNet>> = expected.map(|range| [range.parse().unwrap()].into());
        assert_eq!(Resource::read(Group, &group, &layout()).unwrap().spec.ranges, expected);
    }
    contents.remove(&format!("{}/x", Group.parent()));
    contents.remove(&format!("{}/x", PersistenceProfile.parent()));
    assert_eq!(contents, ResourceIndex::default());
}

#[test]
fn a_write_takes_the_place_of_what_was_listed_and_a_deletion_removes_it() {
    let mut contents = contents(&[(VirtualServer, server("v", Some("ns/s"), "/l"))]);
    contents.record(VirtualServer, &server("v", Some("ns/s"), "/m"), &layout());
    assert_eq!((contents.servers_on("/l"), contents.servers_on("/m")), (0, 1));
    contents.remove("/infra/lb-virtual-servers/v");
    assert_eq!(contents, ResourceIndex::default());
    // An object that waits for its purge counts as deleted.
    let mut marked = server("v", Some("ns/s"), "/l");
    marked.0.insert("marked_for_delete".to_owned(), true.into());
    contents.record(VirtualServer, &marked, &layout());
    assert_eq!(contents, ResourceIndex::default());
}

#[test]
fn virtual_servers_of_others_are_counted() {
    let mut foreign = server("f", Some("ns/s"), "/l");
    foreign.set_tags([]);
    let contents = contents(&[
        (VirtualServer, foreign),
        (VirtualServer, server("g", None, "/l")),
        (VirtualServer, server("v", Some("ns/s"), "/l")),
    ]);
    assert_eq!((contents.servers_on("/l"), contents.servers_on("/m")), (3, 0));
}

#[test]
fn a_virtual_server_of_another_owner_counts_once_and_until_it_is_gone() {
    let address = "192.0.2.5".parse().unwrap();
    let own = server("f", Some("ns/s"), "/l");
    let mut foreign = own.clone();
    foreign.set_tags([]);
    let mut contents = ResourceIndex::default();
    for (object, expected) in [(&own, true), (&foreign, false), (&foreign, false), (&own, true), (&foreign, false)] {
        contents.record(VirtualServer, object, &layout());
        assert_eq!(contents.servers_on("/l"), 1);
        assert_eq!(
            (contents.of_service("ns/s").servers().count(), contents.has_other_servers()),
            (usize::from(expected), !expected)
        );
        assert_eq!(contents.other_server_on(address, &[]).as_deref(), Some(foreign.path()));
    }
    contents.remove(foreign.path());
    assert_eq!((contents.servers_on("/l"), contents.other_server_on(address, &[])), (0, None));
}

/// The virtual server has no owner, belongs to another Service, or belongs to a Service of another cluster.
#[test]
fn a_virtual_server_of_another_owner_has_an_address() {
    let address: IpAddr = "192.0.2.5".parse().unwrap();
    let mut without_tags = server("v", Some("ns/s"), "/l");
    without_tags.set_tags([]);
    let mut of_another_cluster = server("v", Some("ns/s"), "/l");
    of_another_cluster.set_tags([("cluster", "d"), ("service", "ns/s")].map(|(scope, tag)| ObjectTag { scope, tag }));
    for other in [without_tags, of_another_cluster, server("v", Some("ns/other"), "/l")] {
        let contents = contents(&[(VirtualServer, other)]);
        let found = contents.other_server_on(address, &contents.of_service("ns/s").0);
        assert_eq!(found.as_deref(), Some("/infra/lb-virtual-servers/v"), "{contents:?}");
        assert_eq!(contents.other_server_on("192.0.2.6".parse().unwrap(), &[]), None);
    }
    let contents = contents(&[(VirtualServer, server("v", Some("ns/s"), "/l"))]);
    assert_eq!(contents.other_server_on(address, &contents.of_service("ns/s").0), None, "its own");
}

#[test]
fn the_load_balancer_service_is_the_configured_one_or_that_of_the_gateway_or_of_this_cluster() {
    let lb_service = |id: &str, tier1: &str, tags: &[(&str, &str)]| {
        let tags: Vec<Value> = tags.iter().map(|(scope, tag)| json!({"scope": scope, "tag": tag})).collect();
        let value = json!({
            "id": id, "path": format!("/infra/lb-services/{id}"), "connectivity_path": tier1, "tags": tags,
        });
        (ObjectKind::LbService, Object(serde_json::from_value(value).unwrap()))
    };
    let own = [("cluster", "c"), ("owner", "vsphere-cloud-controller-manager")];
    let of_another = [own[0], own[1], ("cluster-uid", "k-2")];
    let tagged = [own[0], own[1], ("cluster-uid", "k-1")];
    let all = contents(&[
        lb_service("another", "/t3", &of_another),
        lb_service("named", "/t2", &own),
        lb_service("ours", "/t4", &tagged),
        lb_service("untagged", "/t1", &[]),
    ]);
    let others = [Some("k-1"), None].map(|uid| all.count_of_other_clusters(uid));
    assert_eq!(others, [1, 0], "without a UID of this cluster, no other cluster is known");
    let id =
        |selection| all.lb_service(selection, Some("k-1")).map(|found| found.map(|found| found.tags.id.to_string()));
    let some = |id: &str| Ok(Some(id.to_owned()));
    assert_eq!(id(Selection { id: None, tier1: Some("/t1") }), some("untagged"));
    assert_eq!(id(Selection { id: None, tier1: Some("/t9") }), some("ours"));
    assert_eq!(id(Selection { id: None, tier1: Some("/t2") }), some("named"));
    assert_eq!(id(Selection { id: None, tier1: None }), some("named"));
    assert_eq!(
        contents(&[lb_service("another", "/t3", &of_another)])
            .lb_service(Selection { id: None, tier1: Some("/t1") }, Some("k-1"),),
        Ok(None)
    );
    assert_eq!(id(Selection { id: Some("untagged"), tier1: Some("/t1") }), some("untagged"));
    assert_eq!(id(Selection { id: Some("untagged"), tier1: None }), some("untagged"));
    let error = id(Selection { id: Some("untagged"), tier1: Some("/t2") }).unwrap_err();
    assert_eq!(error, r#"load balancer service "untagged" is configured for router "/t1" not "/t2""#);
    let error = id(Selection { id: Some("none"), tier1: None }).unwrap_err();
    assert_eq!(error, "no load balancer service found with id none");
}

#[test]
fn an_allocation_without_address_is_surplus_only_beside_one_of_the_same_load_balancer() {
    let allocation = |id: &str, address: &str, second: bool| {
        let mut one = object(&format!("/infra/ip-pools/p/ip-allocations/{id}"), Some("ns/s"), json!({}));
        one.0.insert("allocated_ip".to_owned(), address.into());
        if second {
            layout().of(Some(IpFamily::V6)).tags(Monitor).write_into(&mut one);
        }
        (Allocation, one)
    };
    let count = |all: &[(ObjectKind, Object)]| contents(all).with_surplus_allocations().len();
    let first = || allocation("a", "192.0.2.5", false);
    assert_eq!(count(&[first(), allocation("b", "", false)]), 1);
    assert_eq!(count(&[first(), allocation("b", "", true)]), 0);
    assert_eq!(count(&[first(), allocation("b", "192.0.2.6", false)]), 0);
    assert_eq!(count(&[allocation("b", "", false)]), 0);
}

#[test]
fn what_names_this_cluster_and_no_service_is_known_by_its_path() {
    let tagged = |id: &str, uid: &str| {
        let mut pool = object(&format!("/infra/lb-pools/{id}"), None, json!({}));
        ScopedTags::default().with(CLUSTER_UID, uid).write_into(&mut pool);
        (Pool, pool)
    };
    let mut foreign = object("/infra/lb-pools/f", None, json!({}));
    foreign.set_tags([]);
    let plain = object("/infra/lb-pools/a", None, json!({}));
    let group = object(&format!("{}/g", Group.parent()), None, json!({}));
    let named = object("/infra/lb-pools/n", Some("ns/s"), json!({}));
    let pools = [plain, foreign, named].map(|pool| (Pool, pool));
    let mut contents = contents(&[&pools[..], &[tagged("k1", "k-1"), tagged("k2", "k-2"), (Group, group)]].concat());
    let paths = |contents: &ResourceIndex, uid| {
        contents.without_service(uid).iter().map(|path| path.to_string()).collect::<Vec<_>>()
    };
    let group = format!("{}/g", Group.parent());
    assert_eq!(paths(&contents, Some("k-1")), [&group, "/infra/lb-pools/a", "/infra/lb-pools/k1"]);
    assert_eq!(paths(&contents, None), [&group, "/infra/lb-pools/a"]);
    contents.remove("/infra/lb-pools/a");
    contents.forget_references();
    assert_eq!(paths(&contents, None), [""; 0]);
}
