//! Tests of edits of NSX objects.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::providers::vsphere::nsx::load_balancer::layout::{Port, Probe, Protocol};

const HTTP: Port = Port { protocol: Protocol::Tcp, number: 80 };

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
