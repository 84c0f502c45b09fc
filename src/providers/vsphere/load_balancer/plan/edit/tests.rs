//! The edits of an object of NSX.

use serde_json::{Value, json};

use super::*;
use crate::providers::vsphere::load_balancer::layout::Protocol;
use crate::providers::vsphere::load_balancer::objects::{Marks, Monitor, Pool, VirtualServer};
use crate::providers::vsphere::load_balancer::plan::WantedPort;

const HTTP: Port = Port { protocol: Protocol::Tcp, number: 80 };

fn layout() -> Layout {
    Layout { cluster: "c".to_owned(), cluster_uid: None, configured: Default::default() }
}

/// The object after the step, which keeps a member and a tag that this program does not know.
fn edited(step: &Step<'_>, mut before: Value) -> Value {
    let of_others =
        [("other", json!("kept")), ("tags", json!([{"scope": "port", "tag": "x"}, {"scope": "a", "tag": "b"}]))];
    for (member, value) in of_others {
        before[member] = value;
    }
    let mut object = Object(serde_json::from_value(before).unwrap());
    let node = Member { node: "n".to_owned(), address: "10.0.0.1".parse().unwrap() };
    step.edit(&mut object, &layout(), &[node]);
    let mut after = Value::Object(object.0);
    assert_eq!(after["other"], "kept");
    assert_eq!(after["tags"], json!([{"scope": "port", "tag": "TCP/80"}, {"scope": "a", "tag": "b"}]));
    for member in ["other", "tags"] {
        after.as_object_mut().unwrap().remove(member);
    }
    after
}

fn marks() -> Marks {
    let (service_uid, cluster_uid) = (None, None);
    Marks { id: "x".into(), path: "/x".into(), service: "ns/s".into(), service_uid, cluster_uid, port: None }
}

#[test]
fn a_monitor_gets_its_port() {
    let monitor = Monitor { marks: marks(), number: None };
    let step = Step::ChangeMonitor { monitor: &monitor, port: HTTP, node_port: 30080 };
    assert_eq!(edited(&step, json!({"monitor_port": 1})), json!({"monitor_port": 30080}));
}

#[test]
fn a_pool_gets_its_members_and_its_monitor() {
    let pool = Pool { marks: marks(), members: Default::default(), monitors: Vec::new(), address_pool: "".into() };
    let member = json!([{"ip_address": "10.0.0.1", "display_name": "c:n", "admin_state": "ENABLED"}]);
    let step = |monitor| Step::ChangePool { pool: &pool, port: HTTP, monitor };
    assert_eq!(edited(&step(Some("/m")), json!({})), json!({"members": member, "active_monitor_paths": ["/m"]}));
    assert_eq!(edited(&step(None), json!({"active_monitor_paths": ["/m"]})), json!({"members": member}));
}

#[test]
fn a_virtual_server_gets_all_that_its_port_needs() {
    let server = VirtualServer {
        marks: marks(),
        address: None,
        number: None,
        node_port: None,
        profile: "".into(),
        pool: "".into(),
        lb_service: "".into(),
        class: "".into(),
        address_pool: "".into(),
    };
    let port = WantedPort { port: HTTP, node_port: 30080, profile: "/p".to_owned() };
    let step = Step::ChangeServer { server: &server, port: &port, pool: "/pool" };
    let expected = json!({
        "ports": ["80"], "default_pool_member_ports": ["30080"], "application_profile_path": "/p", "pool_path": "/pool",
    });
    assert_eq!(edited(&step, json!({"ports": ["1-2"]})), expected);
}
