//! Tests of edits of NSX objects.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::providers::vsphere::nsx::load_balancer::layout::{MonitorType, Protocol};
use crate::providers::vsphere::nsx::load_balancer::objects::{
    Group, Monitor, OwnerTags, PersistenceProfile, Pool, VirtualServer,
};
use crate::providers::vsphere::nsx::load_balancer::plan::WantedPort;

const HTTP: Port = Port { protocol: Protocol::Tcp, number: 80 };

fn layout() -> ClusterLayout {
    ClusterLayout { cluster: "c".to_owned(), cluster_uid: None, configured: Default::default(), secondary: None }
}

/// Returns the object after the step. Checks that an unknown JSON member and an unknown tag stay.
fn edited(step: &Step<'_>, mut before: Value) -> Value {
    let of_others =
        [("other", json!("kept")), ("tags", json!([{"scope": "port", "tag": "x"}, {"scope": "a", "tag": "b"}]))];
    for (member, value) in of_others {
        before[member] = value;
    }
    let mut object = Object(serde_json::from_value(before).unwrap());
    let node = Member { node: "n".to_owned(), address: "10.0.0.1".parse().unwrap(), is_confirmed: true };
    step.edit(&mut object, &layout(), &[node]);
    let mut after = Value::Object(object.0);
    assert_eq!(after["other"], "kept");
    assert_eq!(after["tags"], json!([{"scope": "port", "tag": "TCP/80"}, {"scope": "a", "tag": "b"}]));
    for member in ["other", "tags"] {
        after.as_object_mut().unwrap().remove(member);
    }
    after
}

fn marks() -> OwnerTags {
    let (service_uid, cluster_uid) = (None, None);
    OwnerTags {
        id: "x".into(),
        path: "/x".into(),
        service: "ns/s".into(),
        service_uid,
        cluster_uid,
        port: None,
        secondary: None,
    }
}

#[test]
fn a_monitor_gets_its_port() {
    let monitor_type = MonitorType::Tcp;
    let monitor = Monitor { tags: marks(), number: None, monitor_type, has_other_version: false };
    let step = |probe| Step::ChangeMonitor { monitor: &monitor, port: HTTP, probe };
    assert_eq!(edited(&step(Probe::Tcp(30080)), json!({"monitor_port": 1})), json!({"monitor_port": 30080}));
    let old = json!({"monitor_port": 1, "request_version": "HTTP_VERSION_1_1"});
    let expected = json!({"monitor_port": 32000, "request_version": "HTTP_VERSION_1_0"});
    assert_eq!(edited(&step(Probe::Http(32000)), old), expected);
    assert_eq!(edited(&step(Probe::Icmp), json!({})), json!({}));
}

#[test]
fn a_pool_gets_its_members_and_its_monitor() {
    let (members, monitors, address_pool) = (Default::default(), Vec::new(), "".into());
    let pool = Pool { tags: marks(), members, monitors, address_pool, is_snat_disabled: None, address: None };
    let member = json!([{"ip_address": "10.0.0.1", "display_name": "c:n", "admin_state": "ENABLED"}]);
    let step = |monitor| Step::ChangePool { pool: &pool, port: HTTP, monitor, is_snat_disabled: None };
    assert_eq!(edited(&step(Some("/m")), json!({})), json!({"members": member, "active_monitor_paths": ["/m"]}));
    assert_eq!(edited(&step(None), json!({"active_monitor_paths": ["/m"]})), json!({"members": member}));
    let disabled = Step::ChangePool { pool: &pool, port: HTTP, monitor: None, is_snat_disabled: Some(true) };
    let expected = json!({"members": member, "snat_translation": {"type": "LBSnatDisabled"}});
    assert_eq!(edited(&disabled, json!({})), expected);
    let added = json!({"type": "LBSnatAutoMap", "port_overload": 32});
    assert_eq!(edited(&disabled, json!({"snat_translation": added})), expected);
    let automap = Step::ChangePool { pool: &pool, port: HTTP, monitor: None, is_snat_disabled: Some(false) };
    let unchanged = json!({"members": member, "snat_translation": added});
    assert_eq!(edited(&automap, json!({"snat_translation": added})), unchanged, "it keeps what NSX has added");
}

#[test]
fn a_virtual_server_gets_all_that_its_port_needs() {
    let server = VirtualServer {
        tags: marks(),
        address: None,
        number: None,
        node_port: None,
        profile: "".into(),
        pool: "".into(),
        lb_service: "".into(),
        class: "".into(),
        address_pool: "".into(),
        group: "".into(),
        is_restricted: false,
        persistence: "".into(),
    };
    let port = WantedPort { port: HTTP, node_port: 30080, profile: "/p".to_owned() };
    let step = |reference| {
        let (group, persistence) = (reference, reference);
        Step::ChangeServer { server: &server, port: &port, pool: "/pool", group, persistence }
    };
    let expected = json!({
        "ports": ["80"], "default_pool_member_ports": ["30080"], "application_profile_path": "/p", "pool_path": "/pool",
    });
    assert_eq!(edited(&step(Reference::Unchanged), json!({"ports": ["1-2"]})), expected);
    let mut referring = expected.clone();
    referring["access_list_control"] = json!({"action": "ALLOW", "enabled": true, "group_path": "/x"});
    referring["lb_persistence_profile_path"] = json!("/x");
    assert_eq!(edited(&step(Reference::Path("/x")), json!({})), referring);
    assert_eq!(edited(&step(Reference::Unchanged), referring.clone()), referring);
    assert_eq!(edited(&step(Reference::Unset), referring), expected);
}

#[test]
fn a_group_gets_its_networks_and_a_persistence_profile_its_time() {
    let group = Group { tags: marks(), ranges: None };
    let ranges = ["10.0.0.0/8", "10.9.0.0/16"].map(|range| range.parse().unwrap()).into();
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
        Step::ChangeGroup { group: &group, ranges: &ranges }.edit(&mut object, &layout(), &[]);
        assert_eq!(Value::Object(object.0), json!({"expression": expected, "other": 1}));
    }
    let profile = PersistenceProfile { tags: marks(), timeout: None };
    let mut object = Object::default();
    let timeout = Duration::from_secs(60);
    Step::ChangePersistenceProfile { profile: &profile, timeout }.edit(&mut object, &layout(), &[]);
    assert_eq!(Value::Object(object.0), json!({"timeout": 60}));
}

#[test]
fn the_tag_with_the_address_of_a_pool_goes_and_the_others_stay() {
    let pool = Pool {
        tags: marks(),
        members: Default::default(),
        monitors: Vec::new(),
        address_pool: "".into(),
        is_snat_disabled: None,
        address: "192.0.2.5".parse().ok(),
    };
    let tags = json!([{"scope": "a", "tag": "b"}, {"scope": ADDRESS, "tag": "192.0.2.5"}, {"scope": "c", "tag": "d"}]);
    let mut object = Object(serde_json::from_value(json!({"tags": tags, "members": []})).unwrap());
    Step::Untag { pool: &pool }.edit(&mut object, &layout(), &[]);
    let expected = json!({"tags": [{"scope": "a", "tag": "b"}, {"scope": "c", "tag": "d"}], "members": []});
    assert_eq!(Value::Object(object.0), expected);
}
