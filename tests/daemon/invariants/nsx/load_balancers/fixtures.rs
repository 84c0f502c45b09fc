//! Histories of load balancers, for the tests of the rules. The Node with the address 10.0.0.1 never leaves.
#![cfg(test)]

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::fake_nsx::ObjectVersion;

use super::{CLUSTER_UID, Cluster, Rules};

pub const VS: &str = "/infra/lb-virtual-servers/v";
pub const VS_2: &str = "/infra/lb-virtual-servers/w";
pub const POOL: &str = "/infra/lb-pools/p";
pub const GROUP: &str = "/infra/domains/default/groups/g";
pub const IP: &str = "/infra/ip-pools/p1/ip-allocations/i";

/// The user, the path and the object.
pub type Step = (&'static str, &'static str, Option<Value>);
/// Time in seconds, the Service, and the ports that it asks for from then on.
pub type Services = Vec<(i64, &'static str, Option<Vec<&'static str>>)>;

pub fn no_services() -> Services {
    Vec::new()
}

fn tagged(service: &str, port: Option<u16>, mut object: Value) -> Value {
    let tag = |scope: &str, tag: String| json!({"scope": scope, "tag": tag});
    let port = port.map(|port| tag("port", format!("TCP/{port}")));
    let own = [tag("cluster", "c".to_owned()), tag(CLUSTER_UID, "u".to_owned()), tag("service", service.to_owned())];
    object["tags"] = own.into_iter().chain(port).collect();
    object
}

/// Returns a virtual server of this cluster with the address `192.0.2.<last>`.
pub fn server(service: &str, port: u16, last: &str, pool: &str) -> Value {
    tagged(service, Some(port), json!({"ip_address": format!("192.0.2.{last}"), "pool_path": pool}))
}

pub fn pool(service: &str, port: u16, members: &[&str]) -> Value {
    let members: Vec<Value> = members.iter().map(|address| json!({"ip_address": address})).collect();
    tagged(service, Some(port), json!({"members": members}))
}

pub fn allocation(service: &str) -> Value {
    tagged(service, None, json!({}))
}

/// Moves an object to the cluster with this UID.
pub fn of_uid(uid: &str, mut object: Value) -> Value {
    object["tags"][1]["tag"] = json!(uid);
    object
}

/// Returns a virtual server with the name of the cluster and without its UID.
pub fn held(service: &str) -> Value {
    let mut object = server(service, 80, "9", "p");
    object["tags"].as_array_mut().unwrap().remove(1);
    object
}

/// Moves a virtual server to another port of the nodes.
pub fn moved(mut object: Value) -> Value {
    object["default_pool_member_ports"] = json!(["30999"]);
    object
}

pub fn by_replica(path: &'static str, object: &Value) -> Step {
    ("replica", path, Some(object.clone()))
}

pub fn deleted(path: &'static str) -> Step {
    ("replica", path, None)
}

pub fn by_hand(path: &'static str, object: &Value) -> Step {
    ("operator", path, Some(object.clone()))
}

pub fn deleted_by_hand(path: &'static str) -> Step {
    ("operator", path, None)
}

/// Returns the rule that the last step breaks, if any. The earlier steps must break none.
pub fn broken(services: Services, steps: Vec<Step>) -> Option<String> {
    broken_with(services, steps, None)
}

/// As [`broken`], with this address for the allocation [`IP`].
pub fn broken_with(services: Services, steps: Vec<Step>, address: Option<&str>) -> Option<String> {
    // The start leaves room for the times of all steps before it.
    let start = Instant::now() + Duration::from_secs(10_000);
    let cluster = Cluster { name: "c".to_owned(), uid: "u".to_owned() };
    let mut rules = Rules::new(vec!["replica".to_owned()], cluster, ["10.0.0.1".to_owned()].into());
    for (second, service, ports) in services {
        let at = seconds_after(start, second);
        rules.intend(at, service, ports.map(|ports| ports.into_iter().map(str::to_owned).collect()));
    }
    if let Some(address) = address {
        rules.allocated(IP, address.parse().unwrap());
    }
    let last = steps.len() - 1;
    for (number, (user, path, object)) in steps.into_iter().enumerate() {
        let (user, path, at) = (user.to_owned(), path.to_owned(), start + Duration::from_secs(10));
        let judged = rules.take(&ObjectVersion { at, user, request: None, path, object });
        match judged {
            Err(broken) if number == last => return Some(broken),
            judged => assert_eq!(judged, Ok(()), "step {number}"),
        }
    }
    None
}

fn seconds_after(start: Instant, seconds: i64) -> Instant {
    let span = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { start - span } else { start + span }
}
