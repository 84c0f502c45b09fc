//! Services of type LoadBalancer with changes by users, and the rules for their load balancers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use ccm::controllers::service::node_set::is_target;
use ccm::providers::vsphere::nsx::load_balancer::service_request::{ANNOTATION_CLASS, ANNOTATION_SNAT};
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use support::fake_nsx::{FakeNsx, Model, ObjectVersion};

use crate::cluster::Cluster;
use crate::invariants::nsx::leadership::NsxWrite;
use crate::invariants::nsx::load_balancers::addresses::{Reported, shared};
use crate::invariants::nsx::load_balancers::intents::{Intent, intent};
use crate::invariants::nsx::load_balancers::results::{Results, addresses, key};
use crate::invariants::nsx::load_balancers::{self, Kind, Rules, SERVICE};
use crate::invariants::nsx::routes::tag;
use crate::invariants::rules::addresses as node_addresses;

/// Ports of a Service: one bit for each of [`PORTS`].
pub type Ports = usize;

/// Protocols and port numbers.
pub const PORTS: [(&str, u16); 4] = [("TCP", 80), ("TCP", 443), ("UDP", 53), ("UDP", 80)];

/// Policies of a Service: one bit for each of source ranges, session affinity, `externalTrafficPolicy: Local` and SNAT.
pub type Policies = usize;

/// Number of policies.
pub const POLICIES: usize = 4;

/// Number of object versions that a failed run prints.
const SHOWN_VERSIONS: usize = 25;

/// A change of a Service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServiceChange {
    /// The Service gets these ports.
    Ports(Ports),
    /// The first port gets this node port.
    NodePort(u16),
    /// The Service gets these policies.
    Policies(Policies),
    /// The Service asks for this class.
    Class(&'static str),
    /// The Service becomes of type LoadBalancer, or of type ClusterIP.
    Type(bool),
    /// The Service is deleted.
    Delete,
}

/// The Services of one namespace, which has the name of the cluster.
pub struct Services {
    /// Services, with the rights of an administrator.
    pub api: Api<Service>,
    /// Identity of the checked cluster.
    pub cluster: load_balancers::Cluster,
    /// The rules for every version of every object.
    pub rules: Rules,
    reported: Reported,
    /// UIDs of Services that temporarily had another type. They may get another address.
    retyped: BTreeSet<String>,
}

impl Services {
    /// Creates the namespace. `accounts` are the replicas' accounts at NSX, and `lasting` are the addresses of Nodes
    /// that never leave.
    pub async fn new(cluster: &Cluster, accounts: Vec<String>, lasting: BTreeSet<String>) -> Self {
        let namespaces = Api::<Namespace>::all(cluster.client.clone());
        let namespace = serde_json::from_value(json!({"metadata": {"name": cluster.pool()}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let uid = namespaces.get("kube-system").await.unwrap().metadata.uid.unwrap();
        let judged = load_balancers::Cluster { name: cluster.pool().to_owned(), uid };
        Self {
            api: Api::namespaced(cluster.client.clone(), cluster.pool()),
            rules: Rules::new(accounts, judged.clone(), lasting),
            cluster: judged,
            reported: Reported::default(),
            retyped: BTreeSet::new(),
        }
    }

    /// Returns the name of the Service with this number.
    pub fn name(number: usize) -> String {
        format!("s-{number}")
    }

    /// Returns all Services.
    pub async fn list(&self) -> Vec<Service> {
        self.api.list(&ListParams::default()).await.unwrap().items
    }

    fn intend(&mut self, number: usize, intent: Intent) {
        let service = format!("{}/{}", self.cluster.name, Self::name(number));
        self.rules.intend(Instant::now(), &service, intent);
    }

    /// Creates a Service. Returns false if it existed.
    pub async fn create(&mut self, number: usize, ports: Ports, policies: Policies, class: &str) -> bool {
        let mut service = policies_of(policies);
        service["metadata"]["name"] = json!(Self::name(number));
        service["metadata"]["annotations"][ANNOTATION_CLASS] = json!(class);
        service["spec"]["type"] = json!("LoadBalancer");
        service["spec"]["ports"] = json!(ports_of(ports, None));
        without_nulls(&mut service);
        let service = serde_json::from_value(service).unwrap();
        match self.api.create(&PostParams::default(), &service).await {
            Ok(service) => self.intend(number, intent(&service)),
            created => return done(created),
        }
        true
    }

    /// Changes or deletes an existing Service. The next request of the Service is recorded before a replica can observe
    /// it.
    pub async fn change(&mut self, number: usize, change: ServiceChange) -> bool {
        let name = Self::name(number);
        let Some(before) = self.api.get_opt(&name).await.unwrap() else { return false };
        let patch = match change {
            ServiceChange::Ports(ports) => {
                let next = ports_of(ports, Some(&before));
                let tags: BTreeSet<String> =
                    numbers(ports).map(|(protocol, port)| format!("{protocol}/{port}")).collect();
                self.intend(number, intent(&before).map(|_| tags));
                json!({"spec": {"ports": next}})
            }
            ServiceChange::NodePort(node_port) => {
                let mut ports = json!(before.spec.as_ref().unwrap().ports);
                ports[0]["nodePort"] = json!(node_port);
                json!({"spec": {"ports": ports}})
            }
            ServiceChange::Policies(policies) => policies_of(policies),
            ServiceChange::Class(class) => json!({"metadata": {"annotations": {ANNOTATION_CLASS: class}}}),
            ServiceChange::Type(true) => json!({"spec": {"type": "LoadBalancer"}}),
            ServiceChange::Type(false) => {
                self.intend(number, None);
                self.retyped.extend(before.metadata.uid.clone());
                json!({"spec": {"type": "ClusterIP", "loadBalancerSourceRanges": null}})
            }
            ServiceChange::Delete => {
                self.intend(number, None);
                return done(self.api.delete(&name, &DeleteParams::default()).await);
            }
        };
        match self.api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(after) => self.intend(number, intent(&after)),
            changed => {
                self.intend(number, intent(&before));
                return done(changed);
            }
        }
        true
    }

    /// Checks new versions of objects.
    ///
    ///
    /// If a version breaks a rule.
    pub fn judge(&mut self, nsx: &FakeNsx, versions: &[ObjectVersion]) {
        for path in self.rules.unknown_allocations() {
            if let Some(address) = nsx.allocated_address(&path) {
                self.rules.allocated(&path, address);
            }
        }
        for version in versions {
            if let Err(broken) = self.rules.take(version) {
                panic!("{broken}\n{}", story(nsx, version));
            }
        }
    }

    /// Checks the addresses that Services report now.
    ///
    ///
    /// If a Service has got another address, or two Services have the same.
    pub async fn judge_addresses(&mut self) {
        let services = self.list().await;
        let wanting = services.iter().filter(|service| intent(service).is_some());
        if let Some(address) = shared(wanting.flat_map(addresses)) {
            panic!("two Services report {address}: {services:#?}");
        }
        for service in services {
            let uid = service.metadata.uid.clone().unwrap();
            let keeps_address = intent(&service).is_some() && !self.retyped.contains(&uid);
            if let Err(broken) = self.reported.take(&uid, keeps_address, addresses(&service).first().copied()) {
                panic!("Service {}: {broken}", service.name_any());
            }
        }
    }

    /// Follows the advice of the Events: gives a Service the class of its load balancer, or an existing class.
    pub async fn set_classes_back(&self, nsx: &FakeNsx, classes: &[&str]) {
        let objects = nsx.objects();
        let own = objects.iter().filter(|object| self.cluster.owns(object));
        let known: BTreeMap<Option<String>, String> =
            own.filter_map(|object| Some((tag(object, SERVICE), tag(object, "lbclass")?))).collect();
        for service in self.list().await {
            let class = known.get(&Some(key(&service))).map(String::as_str);
            let asked = service.annotations().get(ANNOTATION_CLASS).map(String::as_str);
            let is_unknown = asked.is_none_or(|asked| !classes.contains(&asked));
            let next = class.or_else(|| is_unknown.then_some(classes[0]));
            if intent(&service).is_some() && next.is_some() && next != asked {
                let patch = Patch::Merge(json!({"metadata": {"annotations": {ANNOTATION_CLASS: next}}}));
                let patched = self.api.patch(&service.name_any(), &PatchParams::default(), &patch).await;
                assert!(done(patched), "{} keeps the class {asked:?}", service.name_any());
            }
        }
    }

    /// Returns the groups and persistence profiles without a virtual server.
    pub fn unused(&self, nsx: &FakeNsx) -> Vec<String> {
        let (objects, nodes, allocated) = (nsx.objects(), BTreeSet::new(), BTreeMap::new());
        let cluster = &self.cluster;
        let results = Results { cluster, services: &[], nodes: &nodes, objects: &objects, allocated: &allocated };
        results.unused().into_iter().map(str::to_owned).collect()
    }

    /// Returns the differences between the objects of NSX and the requests of Services, with these Nodes behind every
    /// load balancer.
    pub async fn differences<'a>(&self, nsx: &FakeNsx, nodes: impl Iterator<Item = &'a Node>) -> Vec<String> {
        let internal = |node: &Node| {
            let address = node_addresses(node).iter().find(|address| address.type_ == "InternalIP");
            address.map(|address| address.address.clone())
        };
        let nodes: BTreeSet<String> = nodes.filter(|node| is_target(node)).filter_map(internal).collect();
        let services = self.list().await;
        let objects = nsx.objects();
        let paths = objects.iter().filter_map(|object| object["path"].as_str());
        let allocations = paths.filter(|path| Kind::of(path) == Some(Kind::Allocation));
        let allocated: BTreeMap<_, _> =
            allocations.filter_map(|path| Some((path.to_owned(), nsx.allocated_address(path)?))).collect();
        let (cluster, services) = (&self.cluster, services.as_slice());
        Results { cluster, services, nodes: &nodes, objects: &objects, allocated: &allocated }.differences()
    }
}

/// Returns the last versions of all objects of one Service, given the path of one of them.
pub fn story_of(nsx: &FakeNsx, path: &str) -> String {
    let history = nsx.history();
    let last = history.iter().rev().find(|version| version.path == path);
    last.map(|version| story(nsx, version)).unwrap_or_default()
}

/// Returns the last versions of all objects of the Service of `broken`.
fn story(nsx: &FakeNsx, broken: &ObjectVersion) -> String {
    let history = nsx.history();
    let service_of = |version: &ObjectVersion| version.object.as_ref().and_then(|object| tag(object, SERVICE));
    let same_path = |version: &&ObjectVersion| version.path == broken.path;
    let service = history.iter().rev().filter(same_path).find_map(service_of);
    let paths: BTreeSet<&str> = history
        .iter()
        .filter(|version| service.is_some() && service_of(version) == service)
        .map(|version| version.path.as_str())
        .collect();
    let own: Vec<&ObjectVersion> = history.iter().filter(|version| paths.contains(version.path.as_str())).collect();
    let lines = own.iter().skip(own.len().saturating_sub(SHOWN_VERSIONS)).map(|version| line(version));
    format!("history of {service:?}:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

fn line(version: &ObjectVersion) -> String {
    let ago = version.at.elapsed().as_secs_f32();
    let ObjectVersion { user, path, object, .. } = version;
    let Some(object) = object else { return format!("{ago:.2} s ago {user} deleted {path}") };
    let brief = [
        "ip_address",
        "ports",
        "pool_path",
        "members",
        "active_monitor_paths",
        "monitor_port",
        "access_list_control",
        "lb_persistence_profile_path",
    ];
    let brief: Vec<String> = brief
        .iter()
        .filter(|member| !object[**member].is_null())
        .map(|member| format!("{member}={}", object[*member]))
        .collect();
    format!("{ago:.2} s ago {user} wrote {path} {}", brief.join(" "))
}

/// Returns the versions that requests of these accounts wrote, each with the time of its request.
pub fn writes_of(nsx: &FakeNsx, versions: &[ObjectVersion], accounts: &[String]) -> Vec<(Instant, NsxWrite)> {
    let first = versions.iter().filter_map(|version| version.request).min();
    let requests = first.map(|first| nsx.requests_from(first)).unwrap_or_default();
    let write = |version: &ObjectVersion| {
        let number = version.request.filter(|_| accounts.contains(&version.user))?;
        let request = &requests[requests.binary_search_by_key(&number, |request| request.number).unwrap()];
        let received = Timestamp::now() - SignedDuration::try_from(request.at.elapsed()).unwrap();
        Some((request.at, NsxWrite { user: version.user.clone(), path: version.path.clone(), received }))
    };
    versions.iter().filter_map(write).collect()
}

/// Adds a pool with this id, network and number of addresses. Released addresses are soon available again.
pub fn with_addresses(model: Model, id: &str, network: &str, count: usize) -> Model {
    let ranges = json!([{"start": format!("{network}.1"), "end": format!("{network}.{count}")}]);
    let subnet = json!({
        "resource_type": "IpAddressPoolStaticSubnet", "cidr": format!("{network}.0/24"), "allocation_ranges": ranges,
    });
    let pool = json!({"display_name": format!("pool {id}"), "ip_release_delay": 500});
    let path = format!("/infra/ip-pools/{id}");
    model.object(&path, pool).object(&format!("{path}/ip-subnets/s1"), subnet)
}

/// Makes another program take all free addresses of a pool, or release them.
pub fn exhaust(nsx: &FakeNsx, user: &str, (id, count): (&str, usize), is_on: bool) {
    for number in 0..count {
        let path = format!("/infra/ip-pools/{id}/ip-allocations/taken-{number}");
        match is_on {
            true if nsx.object(&path).is_none() => nsx.put_by_hand(user, &path, json!({})),
            true => {}
            false => drop(nsx.delete_by_hand(user, &path)),
        }
    }
}

/// Returns the section of `vsphere.conf` for the manager, with this account.
pub fn nsx_section(nsx: &FakeNsx, ca_file: &Path, user: &str, password: &str) -> String {
    let (host, ca) = (nsx.address(), ca_file.display());
    format!("[NSXT]\nhost = \"{host}\"\nuser = \"{user}\"\npassword = \"{password}\"\nca-file = \"{ca}\"\n")
}

/// Returns the section of `vsphere.conf` for load balancers on the gateway `t1` with addresses of this pool.
pub fn section(ip_pool: &str, size: &str) -> String {
    format!(
        "[LoadBalancer]\nsize = {size}\ntier1-gateway-path = /infra/tier-1s/t1\nip-pool-id = {ip_pool}\n\
         tcp-app-profile-path = /infra/lb-app-profiles/default-tcp-lb-app-profile\n\
         udp-app-profile-path = /infra/lb-app-profiles/default-udp-lb-app-profile\n"
    )
}

/// Whether a request was executed. It returns false if the object has changed too much for the request.
///
///
/// If there is no answer.
pub fn done<T>(answer: kube::Result<T>) -> bool {
    match answer {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => false,
        Err(error) => panic!("the API server does not answer: {error}"),
    }
}

/// Returns the change that sets these policies and removes the others.
fn policies_of(policies: Policies) -> Value {
    let when = |bit: usize, value: Value, otherwise: Value| if policies & (1 << bit) != 0 { value } else { otherwise };
    json!({
        "metadata": {"annotations": {ANNOTATION_SNAT: when(3, json!("disabled"), Value::Null)}},
        "spec": {
            "loadBalancerSourceRanges": when(0, json!(["10.0.0.0/8", "192.0.2.0/24"]), Value::Null),
            "sessionAffinity": when(1, json!("ClientIP"), json!("None")),
            "sessionAffinityConfig": when(1, json!({"clientIP": {"timeoutSeconds": 600}}), Value::Null),
            "externalTrafficPolicy": when(2, json!("Local"), json!("Cluster")),
        },
    })
}

/// Removes null members, because a new object has no members to remove.
fn without_nulls(value: &mut Value) {
    if let Value::Object(members) = value {
        members.retain(|_, member| !member.is_null());
        members.values_mut().for_each(without_nulls);
    }
}

fn numbers(ports: Ports) -> impl Iterator<Item = (&'static str, u16)> {
    PORTS.into_iter().enumerate().filter(move |(index, _)| ports & (1 << index) != 0).map(|(_, port)| port)
}

/// Returns the ports for a spec. Existing ports keep their node ports.
fn ports_of(ports: Ports, before: Option<&Service>) -> Vec<Value> {
    let known = before.and_then(|service| service.spec.as_ref()?.ports.clone()).unwrap_or_default();
    let port = |(protocol, number): (&str, u16)| {
        let name = format!("{protocol}-{number}").to_lowercase();
        let before = known.iter().find(|port| port.name.as_ref() == Some(&name));
        json!({"name": name, "protocol": protocol, "port": number, "nodePort": before.and_then(|port| port.node_port)})
    };
    numbers(ports).map(port).collect()
}
