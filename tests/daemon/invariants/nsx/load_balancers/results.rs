//! At the end NSX has exactly the objects that Services ask for.

mod policies;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ccm::cloud::service;
use k8s_openapi::api::core::v1::Service;
use serde_json::{Value, json};

use super::intents::{intent, ports};
use super::{Cluster, Kind, PORT, SERVICE, pools};
use crate::invariants::nsx::routes::tag;
use policies::Policies;

/// The final state.
pub struct Results<'a> {
    pub cluster: &'a Cluster,
    /// All Services of the cluster that may have a load balancer.
    pub services: &'a [Service],
    /// The addresses of the Nodes behind every load balancer.
    pub nodes: &'a BTreeSet<String>,
    /// All objects of NSX.
    pub objects: &'a [Value],
    /// The addresses of allocations, by path.
    pub allocated: &'a BTreeMap<String, IpAddr>,
}

/// Namespace and name of a Service.
pub fn key(service: &Service) -> String {
    let metadata = &service.metadata;
    format!("{}/{}", metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

/// Returns the addresses that a Service reports.
pub fn addresses(service: &Service) -> Vec<&str> {
    service::ingress(service).iter().filter_map(|ingress| ingress.ip.as_deref()).collect()
}

impl Results<'_> {
    fn own(&self) -> BTreeMap<&str, &Value> {
        let is_ours = |object: &&Value| object["marked_for_delete"] != json!(true) && self.cluster.owns(object);
        self.objects.iter().filter(is_ours).map(|object| (text(object, "path"), object)).collect()
    }

    /// Returns the groups and persistence profiles without a virtual server. The daemon lists them only every half an
    /// hour. Therefore objects of a terminated process can stay until the next list.
    pub fn unused(&self) -> BTreeSet<&str> {
        let own = self.own();
        let servers = own.iter().filter(|(path, _)| Kind::of(path) == Some(Kind::Server));
        let used: BTreeSet<&str> = servers
            .flat_map(|(_, server)| {
                [&server["access_list_control"]["group_path"], &server["lb_persistence_profile_path"]]
            })
            .filter_map(Value::as_str)
            .collect();
        let may_be_unused = |path: &str| matches!(Kind::of(path), Some(Kind::Group | Kind::Profile));
        own.into_keys().filter(|path| may_be_unused(path) && !used.contains(path)).collect()
    }

    /// Returns the differences from the expected state, except [`Self::unused`].
    pub fn differences(&self) -> Vec<String> {
        let unused = self.unused();
        let mut left = self.own();
        left.retain(|path, _| !unused.contains(path));
        let mut found = Vec::new();
        for service in self.services {
            if let Err(difference) = self.check(service, &mut left) {
                found.push(format!("{}: {difference}", key(service)));
            }
        }
        let own = self.own();
        let used: BTreeSet<&str> = own.values().map(|object| text(object, "lb_service_path")).collect();
        left.retain(|path, _| !(used.contains(path) && Kind::of(path) == Some(Kind::LbService)));
        found.extend(left.keys().map(|path| format!("no Service needs {path}")));
        found
    }

    /// Removes the objects that a Service needs from `left`.
    fn check<'a>(&self, service: &Service, left: &mut BTreeMap<&'a str, &'a Value>) -> Result<(), String> {
        if intent(service).is_none() {
            let is_clean = !service::has_finalizer(service) && addresses(service).is_empty();
            return is_clean.then_some(()).ok_or_else(|| "it keeps a finalizer or an address".to_owned());
        }
        let [address] = addresses(service)[..] else {
            return Err(format!("it reports the addresses {:?}", addresses(service)));
        };
        if !service::has_finalizer(service) {
            return Err("it has no finalizer".to_owned());
        }
        let key = key(service);
        let policies = Policies::take(service, &key, left)?;
        for (port, node_port) in ports(service) {
            self.check_port(&key, (&port, node_port), (address, &policies), left)?;
        }
        let allocation = take(left, |path, object| {
            Kind::of(path) == Some(Kind::Allocation) && tag(object, SERVICE).as_ref() == Some(&key)
        })?;
        let allocated = self.allocated.get(allocation.0).map(ToString::to_string);
        (allocated.as_deref() == Some(address)).then_some(()).ok_or_else(|| format!("{allocated:?} is allocated"))
    }

    fn check_port<'a>(
        &self,
        key: &str,
        (port, node_port): (&str, i32),
        (address, policies): (&str, &Policies),
        left: &mut BTreeMap<&'a str, &'a Value>,
    ) -> Result<(), String> {
        let number = port.rsplit('/').next().unwrap_or_default();
        let mut take_one = |kind| {
            take(left, |path, object| {
                let is_of_port = tag(object, PORT).as_deref() == Some(port);
                Kind::of(path) == Some(kind) && tag(object, SERVICE).as_deref() == Some(key) && is_of_port
            })
        };
        let (_, server) = take_one(Kind::Server)?;
        let (pool_path, pool) = take_one(Kind::Pool)?;
        let of_tcp = Some(("LBTcpMonitorProfile", node_port)).filter(|_| port.starts_with("TCP/"));
        let probe = policies.health_check.map(|health_check| ("LBHttpMonitorProfile", health_check)).or(of_tcp);
        let monitor = probe.map(|_| take_one(Kind::Monitor)).transpose()?;
        let expected = json!([address, [number], [node_port.to_string()], pool_path]);
        let members = ["ip_address", "ports", "default_pool_member_ports", "pool_path"];
        let has: Value = members.iter().map(|member| server[*member].clone()).collect();
        if has != expected {
            return Err(format!("port {port}: {has}, expected {expected}"));
        }
        policies.check(server, pool).map_err(|difference| format!("port {port}: {difference}"))?;
        if pools::members(pool) != *self.nodes {
            return Err(format!("port {port}: {:?}, expected {:?}", pools::members(pool), self.nodes));
        }
        let monitors: Value = monitor.iter().map(|(path, _)| json!(path)).collect();
        let has = pool.get("active_monitor_paths").cloned().unwrap_or_else(|| json!([]));
        let asked = |monitor: &Value| json!([monitor["resource_type"], monitor["monitor_port"]]);
        let is_asked = monitor.is_none_or(|(_, monitor)| asked(monitor) == json!(probe));
        let is_right = has == monitors && is_asked;
        is_right.then_some(()).ok_or_else(|| format!("port {port}: the monitor {monitor:?} of {has}"))
    }
}

/// Removes the only object that meets `is_it`.
fn take<'a>(
    left: &mut BTreeMap<&'a str, &'a Value>,
    is_it: impl Fn(&str, &Value) -> bool,
) -> Result<(&'a str, &'a Value), String> {
    let found: Vec<&str> = left.iter().filter(|(path, object)| is_it(path, object)).map(|(path, _)| *path).collect();
    match found[..] {
        [path] => left.remove_entry(path).ok_or_else(String::new),
        [] => Err("an object is missing".to_owned()),
        _ => Err(format!("there are {found:?}")),
    }
}

fn text<'a>(object: &'a Value, member: &str) -> &'a str {
    object[member].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::CLUSTER_UID;
    use super::*;

    const IP: &str = "/infra/ip-pools/p1/ip-allocations/i";

    fn object(path: &str, port: Option<&str>, more: &Value) -> Value {
        let tags = [Some(("cluster", "c")), Some((CLUSTER_UID, "u")), Some(("service", "ns/a"))];
        let tags = tags.into_iter().chain([port.map(|port| ("port", port))]).flatten();
        let tags: Vec<Value> = tags.map(|(scope, tag)| json!({"scope": scope, "tag": tag})).collect();
        let mut object = json!({"path": path, "tags": tags});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object
    }

    fn monitor(resource_type: &str, port: u16) -> Value {
        json!({"resource_type": resource_type, "monitor_port": port})
    }

    /// Returns the objects of a Service with the ports TCP/80 and UDP/53.
    fn objects() -> Vec<Value> {
        let members = json!([{"ip_address": "10.0.0.1"}]);
        let server = |number: &str, node_port: &str, pool: &str| {
            json!({"ip_address": "192.0.2.1", "ports": [number], "default_pool_member_ports": [node_port],
                   "pool_path": format!("/infra/lb-pools/{pool}"), "lb_service_path": "/infra/lb-services/l"})
        };
        let snat = json!({"type": "LBSnatAutoMap"});
        let monitored = json!({
            "members": members, "snat_translation": snat, "active_monitor_paths": ["/infra/lb-monitor-profiles/m"],
        });
        vec![
            object("/infra/lb-services/l", None, &json!({})),
            object("/infra/lb-virtual-servers/v", Some("TCP/80"), &server("80", "30080", "p")),
            object("/infra/lb-virtual-servers/w", Some("UDP/53"), &server("53", "30053", "q")),
            object("/infra/lb-pools/p", Some("TCP/80"), &monitored),
            object("/infra/lb-pools/q", Some("UDP/53"), &json!({"members": members, "snat_translation": snat})),
            object("/infra/lb-monitor-profiles/m", Some("TCP/80"), &monitor("LBTcpMonitorProfile", 30080)),
            object(IP, None, &json!({})),
        ]
    }

    fn service(change: impl FnOnce(&mut Value)) -> Service {
        let mut service = json!({
            "metadata": {"namespace": "ns", "name": "a", "finalizers": [service::FINALIZER]},
            "spec": {"type": "LoadBalancer", "ports": [
                {"protocol": "TCP", "port": 80, "nodePort": 30080}, {"protocol": "UDP", "port": 53, "nodePort": 30053}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
        });
        change(&mut service);
        serde_json::from_value(service).unwrap()
    }

    fn cluster() -> Cluster {
        Cluster { name: "c".to_owned(), uid: "u".to_owned() }
    }

    fn differences(service: Service, objects: &[Value], allocated: &str) -> usize {
        let cluster = cluster();
        let allocated = [(IP.to_owned(), allocated.parse().unwrap())].into();
        let nodes = ["10.0.0.1".to_owned()].into();
        let services = [service];
        Results { cluster: &cluster, services: &services, nodes: &nodes, objects, allocated: &allocated }
            .differences()
            .len()
    }

    #[test]
    fn every_part_of_a_load_balancer_that_is_missing_or_wrong_is_reported() {
        let whole = service(|_| {});
        assert_eq!(differences(whole.clone(), &objects(), "192.0.2.1"), 0);
        assert!(differences(whole.clone(), &objects(), "192.0.2.2") > 0, "another address");
        for index in 1..objects().len() {
            let mut objects = objects();
            let removed = objects.remove(index);
            assert!(differences(whole.clone(), &objects, "192.0.2.1") > 0, "without {removed}");
        }
        for (index, member, value) in [
            (1, "ip_address", json!("192.0.2.9")),
            (1, "ports", json!(["81"])),
            (2, "default_pool_member_ports", json!(["30054"])),
            (2, "pool_path", json!("/infra/lb-pools/p")),
            (3, "members", json!([])),
            (3, "active_monitor_paths", json!([])),
            (4, "active_monitor_paths", json!(["/infra/lb-monitor-profiles/m"])),
            (5, "monitor_port", json!(30081)),
        ] {
            let mut objects = objects();
            objects[index][member] = value;
            assert!(differences(whole.clone(), &objects, "192.0.2.1") > 0, "{index} {member}");
        }
    }

    /// Returns the same Service with all policies.
    fn service_with_policies() -> Service {
        service(|service| {
            service["metadata"]["annotations"] = json!({"loadbalancer.vsphere-ccm.dev/snat": "disabled"});
            let spec = service["spec"].as_object_mut().unwrap();
            let policies = json!({
                "loadBalancerSourceRanges": ["10.0.0.0/8"], "externalTrafficPolicy": "Local", "healthCheckNodePort": 32000,
                "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
            });
            spec.extend(policies.as_object().unwrap().clone());
        })
    }

    /// Returns the objects of the Service with all policies.
    fn objects_with_policies() -> Vec<Value> {
        let mut objects = objects();
        for server in [1, 2] {
            objects[server]["access_list_control"] =
                json!({"action": "ALLOW", "enabled": true, "group_path": "/infra/domains/default/groups/g"});
            objects[server]["lb_persistence_profile_path"] = json!("/infra/lb-persistence-profiles/s");
        }
        for pool in [3, 4] {
            objects[pool]["snat_translation"] = json!({"type": "LBSnatDisabled"});
        }
        objects[4]["active_monitor_paths"] = json!(["/infra/lb-monitor-profiles/h"]);
        let http = monitor("LBHttpMonitorProfile", 32000);
        objects[5].as_object_mut().unwrap().extend(http.as_object().unwrap().clone());
        let networks = json!([{"resource_type": "IPAddressExpression", "ip_addresses": ["10.0.0.0/8"]}]);
        objects.extend([
            object("/infra/lb-monitor-profiles/h", Some("UDP/53"), &monitor("LBHttpMonitorProfile", 32000)),
            object("/infra/domains/default/groups/g", None, &json!({"expression": networks})),
            object("/infra/lb-persistence-profiles/s", None, &json!({"timeout": 60})),
        ]);
        objects
    }

    #[test]
    fn every_policy_that_a_load_balancer_lacks_or_keeps_is_reported() {
        let (whole, plain) = (service_with_policies(), service(|_| {}));
        assert_eq!(differences(whole.clone(), &objects_with_policies(), "192.0.2.1"), 0);
        assert!(differences(whole.clone(), &objects(), "192.0.2.1") > 0, "none of them");
        assert!(differences(plain, &objects_with_policies(), "192.0.2.1") > 0, "all of them are left");
        for (index, member, value) in [
            (1, "access_list_control", Value::Null),
            (2, "lb_persistence_profile_path", Value::Null),
            (3, "snat_translation", json!({"type": "LBSnatAutoMap"})),
            (4, "active_monitor_paths", json!([])),
            (7, "monitor_port", json!(30053)),
            (8, "expression", json!([])),
            (9, "timeout", json!(61)),
        ] {
            let mut objects = objects_with_policies();
            objects[index][member] = value;
            assert!(differences(whole.clone(), &objects, "192.0.2.1") > 0, "{index} {member}");
        }
    }

    #[test]
    fn a_group_that_no_virtual_server_refers_to_is_counted_apart() {
        let group = object("/infra/domains/default/groups/g", None, &json!({}));
        let unused = |objects: &[Value]| {
            let (cluster, nodes, allocated) = (cluster(), BTreeSet::new(), BTreeMap::new());
            Results { cluster: &cluster, services: &[], nodes: &nodes, objects, allocated: &allocated }.unused().len()
        };
        assert_eq!(unused(&objects_with_policies()), 0);
        assert_eq!(unused(&[objects(), vec![group]].concat()), 1);
        // The Service asks for a policy that its objects lack.
        let mut objects = objects_with_policies();
        (1..3).for_each(|server| objects[server]["access_list_control"] = Value::Null);
        assert!(differences(service_with_policies(), &objects, "192.0.2.1") > 0);
    }

    #[test]
    fn what_no_service_needs_is_reported() {
        let whole = || service(|_| {});
        let second = object("/infra/lb-pools/second", Some("TCP/80"), &json!({}));
        let other = object("/infra/lb-services/other", None, &json!({}));
        let (stranger, mut foreign) = (object("/infra/lb-pools/x", Some("TCP/81"), &json!({})), second.clone());
        foreign["tags"][1]["tag"] = json!("v");
        for (case, more, expected) in [
            ("a second pool", second, 1),
            ("a port", stranger, 1),
            ("a second load balancer service", other, 1),
            ("foreign", foreign, 0),
        ] {
            let found = differences(whole(), &[objects(), vec![more]].concat(), "192.0.2.1").min(1);
            assert_eq!(found, expected, "{case}");
        }
        let plain = |finalizers: Value| {
            service(|service| {
                service["spec"]["type"] = json!("ClusterIP");
                service["metadata"]["finalizers"] = finalizers;
                service["status"] = json!({});
            })
        };
        assert_eq!(differences(plain(json!([])), &[], "192.0.2.1"), 0);
        assert_eq!(differences(plain(json!([service::FINALIZER])), &[], "192.0.2.1"), 1, "a finalizer is left");
        assert_eq!(
            differences(plain(json!([])), &objects(), "192.0.2.1"),
            6,
            "everything is left but the load balancer service that it runs on"
        );
        let deleted = service(|service| service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
        assert_eq!(differences(deleted, &[], "192.0.2.1"), 1, "it waits for its deletion");
        let unreported = service(|service| service["status"] = json!({}));
        assert!(differences(unreported, &objects(), "192.0.2.1") > 0);
    }
}
