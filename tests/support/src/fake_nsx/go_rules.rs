//! Writes of the Go program after a hand-back to it (`nsx.md` 4.5, 4.6 and 4.9, with the tags of 4.2 and the load
//! balancer service of 4.4). Pure functions: the input is the objects of `FakeNsx::objects`, Services and Nodes, the
//! output is the writes.
//!
//! They share no code with the program under test. Random choices of the Go program are made in one way: new members
//! follow in the order of the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, Service, ServicePort};
use serde_json::{Value, json};

use super::go::{PROGRAM, TCP_PROFILE, UDP_PROFILE, first_tag};

const CLASS: &str = "loadbalancer.vmware.io/class";

/// Label of a node that must not be a member.
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Taint of a node that must not be a member.
const LEAVING: &str = "ToBeDeletedByClusterAutoscaler";

/// A load balancer class with its names resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoClass {
    /// Id of the IP pool.
    pub ip_pool: String,
    /// Path of the application profile for TCP.
    pub tcp_profile_path: String,
    /// Path of the application profile for UDP.
    pub udp_profile_path: String,
}

impl GoClass {
    /// Makes a class with this IP pool and the predefined application profiles.
    #[must_use]
    pub fn of_pool(ip_pool: &str) -> Self {
        let (tcp_profile_path, udp_profile_path) = (TCP_PROFILE.to_owned(), UDP_PROFILE.to_owned());
        Self { ip_pool: ip_pool.to_owned(), tcp_profile_path, udp_profile_path }
    }
}

/// The configuration of the Go program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoProgram {
    /// Value of `--cluster-name`.
    pub cluster: String,
    /// Value of the tag `owner`.
    pub owner: String,
    /// Load balancer classes by name, including `default`.
    pub classes: BTreeMap<String, GoClass>,
    /// `lbServiceId`. If it is set, the program does not manage the load balancer service.
    pub lb_service_id: Option<String>,
    /// `tier1GatewayPath`.
    pub tier1_path: Option<String>,
}

/// One write of the Go program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoWrite {
    /// Creates an object of this collection, for this port (`TCP/80`) if the object has one.
    Create(&'static str, String),
    /// Changes these fields of the object with this path.
    Update(String, Vec<&'static str>),
    /// Deletes the object with this path.
    Delete(String),
}

impl fmt::Display for GoWrite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(collection, port) if port.is_empty() => write!(formatter, "create {collection}"),
            Self::Create(collection, port) => write!(formatter, "create {collection} for {port}"),
            Self::Update(path, fields) => write!(formatter, "update {path}: {}", fields.join(", ")),
            Self::Delete(path) => write!(formatter, "delete {path}"),
        }
    }
}

/// The load balancer of a Service as the Go program finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoFound {
    /// Paths of the virtual servers, by port (`TCP/80`).
    pub virtual_servers: BTreeMap<String, String>,
    /// Paths of the pools, by port.
    pub pools: BTreeMap<String, String>,
    /// Paths of the monitors, by port. Only TCP ports have one.
    pub monitors: BTreeMap<String, String>,
    /// Path of the allocation.
    pub allocation: String,
    /// Address of the virtual servers.
    pub address: String,
}

impl GoFound {
    /// Checks that the allocation has the address of the virtual servers. If the Service reports an address, it must be
    /// the same.
    fn check_address(&self, allocated: impl Fn(&str) -> Option<IpAddr>, service: &Service) -> Result<(), String> {
        let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let ingress = status.and_then(|status| status.ingress.as_deref()).unwrap_or_default();
        let reported: Vec<&str> = ingress.iter().filter_map(|ingress| ingress.ip.as_deref()).collect();
        let allocated = allocated(&self.allocation).map(|address| address.to_string()).unwrap_or_default();
        let is_reported = reported.is_empty() || reported.contains(&allocated.as_str());
        match allocated == self.address && is_reported {
            true => Ok(()),
            false => Err(format!("it has {}, {allocated:?} is allocated, and it reports {reported:?}", self.address)),
        }
    }
}

impl GoProgram {
    /// Makes the program for this cluster, with the class `default` on the IP pool `p1` and a managed load balancer
    /// service on the gateway `t1`, as in `GoBalancer::new`.
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            owner: PROGRAM.to_owned(),
            classes: [("default".to_owned(), GoClass::of_pool("p1"))].into(),
            lb_service_id: None,
            tier1_path: Some("/infra/tier-1s/t1".to_owned()),
        }
    }

    /// Returns the only load balancer of a Service: one virtual server and one pool for each port, one monitor for each
    /// TCP port, one common allocation and address, and no other objects.
    ///
    /// # Errors
    ///
    /// The objects that are missing or duplicate, or the reason why the program fails.
    pub fn found(&self, objects: &[Value], service: &Service) -> Result<GoFound, String> {
        let key = key(service);
        let inventory = Inventory::read(self, objects, &key)?;
        let allocation = inventory.allocation(&self.requested_class(service)?.ip_pool)?;
        let allocation = allocation.ok_or_else(|| format!("{key} has no allocation"))?;
        let ports = ports(service);
        let of_tcp = || ports.iter().filter(|port| protocol(port) == "TCP");
        let found = GoFound {
            virtual_servers: one_each(&inventory.servers, ports.iter(), "virtual server", is_server_of)?,
            pools: one_each(&inventory.pools, ports.iter(), "pool", is_of_port)?,
            monitors: one_each(&inventory.monitors, of_tcp(), "monitor", is_of_port)?,
            allocation: path(allocation).to_owned(),
            address: inventory.servers.first().map(|server| text(server, "ip_address")).unwrap_or_default().to_owned(),
        };
        match inventory.servers.iter().find(|server| text(server, "ip_address") != found.address) {
            Some(other) => Err(format!("{key} has {} and {}", found.address, text(other, "ip_address"))),
            None => Ok(found),
        }
    }

    /// Returns the writes of `EnsureLoadBalancer` for a Service with ports (4.5).
    ///
    /// # Errors
    ///
    /// The reason why it fails.
    pub fn ensure(&self, objects: &[Value], service: &Service, nodes: &[Node]) -> Result<Vec<GoWrite>, String> {
        self.process(objects, service, &ports(service), &addresses(nodes))
    }

    /// Returns the writes of `EnsureLoadBalancerDeleted`: those of [`GoProgram::ensure`] without ports and nodes, and
    /// the deletion of the allocation.
    ///
    /// # Errors
    ///
    /// The reason why it fails.
    pub fn ensure_deleted(&self, objects: &[Value], service: &Service) -> Result<Vec<GoWrite>, String> {
        let mut writes = self.process(objects, service, &[], &[])?;
        let inventory = Inventory::read(self, objects, &key(service))?;
        let allocation = inventory.allocation(&self.requested_class(service)?.ip_pool)?;
        writes.extend(allocation.map(|allocation| GoWrite::Delete(path(allocation).to_owned())));
        Ok(writes)
    }

    /// Returns the writes of `UpdateLoadBalancer` (4.1): members of the pools whose port tag matches.
    ///
    /// # Errors
    ///
    /// The reason why it fails.
    pub fn update(&self, objects: &[Value], service: &Service, nodes: &[Node]) -> Result<Vec<GoWrite>, String> {
        let (inventory, wanted) = (Inventory::read(self, objects, &key(service))?, addresses(nodes));
        let ports = ports(service);
        let of_port = ports.iter().flat_map(|port| inventory.pools.iter().filter(|pool| is_of_port(pool, port)));
        let changed = of_port.filter(|pool| members(pool, &wanted).is_some());
        Ok(changed.map(|pool| GoWrite::Update(path(pool).to_owned(), vec!["members"])).collect())
    }

    /// Returns the writes of the orphan clean-up (4.9). It deletes the load balancers whose Service is not in the list,
    /// or is not of type LoadBalancer.
    ///
    /// # Errors
    ///
    /// The reason why it fails. The first failure ends the run.
    pub fn cleanup(&self, objects: &[Value], services: &[Service]) -> Result<Vec<GoWrite>, String> {
        let valid: BTreeSet<String> = services.iter().filter(|service| is_load_balancer(service)).map(key).collect();
        let listed = Listed::read(objects)?;
        let is_ours = |object: &&&Value| self.is_ours(object);
        let servers: Vec<&&Value> = listed.servers.iter().filter(is_ours).collect();
        let of_classes = self.classes.values().map(|class| class.ip_pool.as_str());
        let of_tags = servers.iter().filter_map(|server| first_tag(server, "ippoolid"));
        let pools: BTreeSet<&str> = of_classes.chain(of_tags).collect();
        let allocations = pools.iter().flat_map(|pool| listed.allocations(pool));
        let with_ports = listed.pools.iter().chain(&listed.monitors).filter(is_ours).copied();
        let found = servers.into_iter().copied().chain(with_ports).chain(allocations.filter(|one| self.is_ours(one)));
        let keys: BTreeSet<&str> = found.filter_map(|object| first_tag(object, "service")).collect();
        let mut writes = Vec::new();
        for gone in keys.into_iter().filter(|key| !valid.contains(*key)) {
            let (namespace, name) = gone.split_once('/').ok_or_else(|| format!("panic: the tag service={gone}"))?;
            let mut service = Service::default();
            service.metadata.namespace = Some(namespace.to_owned());
            service.metadata.name = Some(name.to_owned());
            // The deletions are sequential, so that the last one finds no other virtual server of the cluster.
            let is_left = |object: &&Value| !writes.contains(&GoWrite::Delete(path(object).to_owned()));
            let left: Vec<Value> = objects.iter().filter(is_left).cloned().collect();
            writes.extend(self.ensure_deleted(&left, &service)?);
        }
        Ok(writes)
    }

    /// Returns everything that is wrong after a hand-back: Services without exactly one load balancer, failures, and
    /// writes of Ensure, Update and the clean-up. Empty if nothing is wrong. Services of another type or with
    /// `loadBalancerClass`, and those that are being deleted, are only checked by the clean-up. `allocated` returns the
    /// address of the allocation with a path, which the program writes into the status of its Service.
    #[must_use]
    pub fn hand_back(
        &self,
        objects: &[Value],
        allocated: impl Fn(&str) -> Option<IpAddr>,
        services: &[Service],
        nodes: &[Node],
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut note = |what: String, result: Result<Vec<GoWrite>, String>| match result {
            Ok(writes) => wrong.extend(writes.iter().map(|write| format!("{what}: {write}"))),
            Err(error) => wrong.push(format!("{what}: {error}")),
        };
        let is_handled = |service: &&Service| {
            let has_class = service.spec.as_ref().is_some_and(|spec| spec.load_balancer_class.is_some());
            is_load_balancer(service) && !has_class && service.metadata.deletion_timestamp.is_none()
        };
        for service in services.iter().filter(is_handled) {
            let key = key(service);
            let found = self.found(objects, service).and_then(|found| found.check_address(&allocated, service));
            note(format!("find {key}"), found.map(|()| Vec::new()));
            note(format!("Ensure {key}"), self.ensure(objects, service, nodes));
            note(format!("Update {key}"), self.update(objects, service, nodes));
        }
        note("cleanup".to_owned(), self.cleanup(objects, services));
        wrong
    }

    /// Returns true if owner and cluster are those of the program.
    fn is_ours(&self, object: &Value) -> bool {
        let has = |scope: &str, wanted: &str| first_tag(object, scope) == Some(wanted);
        has("owner", &self.owner) && has("cluster", &self.cluster)
    }

    fn requested_class(&self, service: &Service) -> Result<&GoClass, String> {
        let annotation = service.metadata.annotations.as_ref().and_then(|annotations| annotations.get(CLASS));
        let name = annotation.map(|name| name.trim()).filter(|name| !name.is_empty()).unwrap_or("default");
        self.classes.get(name).ok_or_else(|| format!("invalid load balancer class {name}"))
    }

    /// Does steps 1 to 7 of 4.5.
    fn process(
        &self,
        objects: &[Value],
        service: &Service,
        ports: &[ServicePort],
        addresses: &[String],
    ) -> Result<Vec<GoWrite>, String> {
        let class = self.requested_class(service)?;
        let inventory = Inventory::read(self, objects, &key(service))?;
        let (writes, pools, servers) = (Vec::new(), Vec::new(), Vec::new());
        let mut pass = Pass { program: self, class, inventory: &inventory, writes, pools, servers };
        let mut has_allocation = inventory.allocation(&class.ip_pool)?.is_some();
        for port in ports {
            let monitor = pass.ensure_monitor(port);
            let pool = pass.ensure_pool(port, monitor.as_deref(), addresses);
            pass.ensure_server(port, &pool, &mut has_allocation)?;
        }
        pass.delete_orphans(ports)?;
        Ok(pass.writes)
    }

    /// Returns the path of the load balancer service, if there is one (4.4).
    fn lb_service<'a>(&self, services: &[&'a Value]) -> Result<Option<&'a Value>, String> {
        let Some(id) = &self.lb_service_id else {
            let is_it = |service: &&&Value| {
                let on = service["connectivity_path"].as_str();
                (on.is_some() && on == self.tier1_path.as_deref()) || self.is_ours(service)
            };
            return Ok(services.iter().find(is_it).copied());
        };
        let found = services.iter().find(|service| text(service, "id") == id).copied();
        let found = found.ok_or_else(|| format!("the load balancer service {id} is not found"))?;
        let on = found["connectivity_path"].as_str();
        match &self.tier1_path {
            Some(wanted) if on != Some(wanted) => Err(format!(
                "load balancer service {id:?} is configured for router {:?} not {wanted:?}",
                on.unwrap_or("nil")
            )),
            _ => Ok(Some(found)),
        }
    }
}

/// The lists that the program reads: objects that are not marked for deletion, by name and id.
struct Listed<'a> {
    lb_services: Vec<&'a Value>,
    servers: Vec<&'a Value>,
    pools: Vec<&'a Value>,
    monitors: Vec<&'a Value>,
    allocations: Vec<&'a Value>,
}

impl<'a> Listed<'a> {
    fn read(objects: &'a [Value]) -> Result<Self, String> {
        let list = |resource_type: &str| {
            let is_it =
                |object: &&Value| object["resource_type"] == resource_type && object["marked_for_delete"] != true;
            let mut found: Vec<&Value> = objects.iter().filter(is_it).collect();
            found.sort_by_key(|object| (text(object, "display_name"), text(object, "id")));
            match found.iter().find(|object| has_half_a_tag(object)) {
                Some(object) => Err(format!("panic: a tag of {} has no scope or no value", path(object))),
                None => Ok(found),
            }
        };
        Ok(Self {
            lb_services: list("LBService")?,
            servers: list("LBVirtualServer")?,
            pools: list("LBPool")?,
            monitors: list("LBTcpMonitorProfile")?,
            allocations: list("IpAddressAllocation")?,
        })
    }

    fn allocations(&self, pool: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
        let folder = format!("/infra/ip-pools/{pool}/ip-allocations/");
        let allocations: Vec<&Value> =
            self.allocations.iter().filter(|allocation| path(allocation).starts_with(&folder)).copied().collect();
        allocations.into_iter()
    }
}

/// The lists, and their objects of one Service.
struct Inventory<'a> {
    service: String,
    listed: Listed<'a>,
    servers: Vec<&'a Value>,
    pools: Vec<&'a Value>,
    monitors: Vec<&'a Value>,
    /// Virtual servers of the cluster, of any Service.
    of_cluster: Vec<&'a Value>,
    /// Allocations of the Service, in any IP pool.
    allocations: Vec<&'a Value>,
}

impl<'a> Inventory<'a> {
    fn read(program: &GoProgram, objects: &'a [Value], service: &str) -> Result<Self, String> {
        let listed = Listed::read(objects)?;
        let is_of_it = |object: &&&Value| program.is_ours(object) && first_tag(object, "service") == Some(service);
        let of_it = |list: &[&'a Value]| list.iter().filter(is_of_it).copied().collect::<Vec<_>>();
        Ok(Self {
            service: service.to_owned(),
            servers: of_it(&listed.servers),
            pools: of_it(&listed.pools),
            monitors: of_it(&listed.monitors),
            of_cluster: listed.servers.iter().filter(|server| program.is_ours(server)).copied().collect(),
            allocations: of_it(&listed.allocations),
            listed,
        })
    }

    /// Returns the allocation of the Service in this IP pool.
    fn allocation(&self, pool: &str) -> Result<Option<&'a Value>, String> {
        let of_pool: Vec<&Value> = self
            .listed
            .allocations(pool)
            .filter(|one| self.allocations.iter().any(|own| path(own) == path(one)))
            .collect();
        match of_pool.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            _ => Err(format!("Multiple IP address allocations of {}", self.service)),
        }
    }
}

/// A virtual server or a pool after the steps for its port.
struct Settled {
    /// Its path. A created object has only a placeholder.
    path: String,
    /// Paths of its pool, or of its monitors.
    leads_to: Vec<String>,
}

struct Pass<'a> {
    program: &'a GoProgram,
    /// The class that the Service requests.
    class: &'a GoClass,
    inventory: &'a Inventory<'a>,
    writes: Vec<GoWrite>,
    pools: Vec<Settled>,
    servers: Vec<Settled>,
}

impl Pass<'_> {
    fn create(&mut self, collection: &'static str, port: &ServicePort) -> String {
        self.writes.push(GoWrite::Create(collection, tag(port)));
        format!("the new {collection} of {}", tag(port))
    }

    fn update(&mut self, object: &Value, fields: Vec<&'static str>) {
        if !fields.is_empty() {
            self.writes.push(GoWrite::Update(path(object).to_owned(), fields));
        }
    }

    /// Does step 4a. Returns the path of the monitor.
    fn ensure_monitor(&mut self, port: &ServicePort) -> Option<String> {
        if protocol(port) != "TCP" {
            return None;
        }
        let inventory = self.inventory;
        let Some(monitor) = inventory.monitors.iter().find(|monitor| is_of_port(monitor, port)) else {
            return Some(self.create("lb-monitor-profiles", port));
        };
        let is_right = monitor["monitor_port"] == json!(node_port(port));
        self.update(monitor, if is_right { Vec::new() } else { vec!["monitor_port"] });
        Some(path(monitor).to_owned())
    }

    /// Does step 4b. Returns the path of the pool.
    fn ensure_pool(&mut self, port: &ServicePort, monitor: Option<&str>, addresses: &[String]) -> String {
        let inventory = self.inventory;
        let found = inventory.pools.iter().find(|pool| is_of_port(pool, port));
        let pool = match found {
            Some(pool) => {
                let mut fields = Vec::new();
                fields.extend(members(pool, addresses).map(|_| "members"));
                // The program distinguishes an empty list from a missing one, so it writes such a pool in every pass
                // (L-26).
                let wanted = monitor.map_or(Value::Null, |monitor| json!([monitor]));
                fields.extend((pool["active_monitor_paths"] != wanted).then_some("active_monitor_paths"));
                self.update(pool, fields);
                path(pool).to_owned()
            }
            None => self.create("lb-pools", port),
        };
        let leads_to = monitor.map(str::to_owned).into_iter().collect();
        self.pools.push(Settled { path: pool.clone(), leads_to });
        pool
    }

    /// Does step 4c.
    fn ensure_server(&mut self, port: &ServicePort, pool: &str, has_allocation: &mut bool) -> Result<(), String> {
        let profile = match protocol(port) {
            "TCP" => &self.class.tcp_profile_path,
            "UDP" => &self.class.udp_profile_path,
            other => return Err(format!("unexpected protocol: {other}")),
        };
        let (inventory, program) = (self.inventory, self.program);
        let found = inventory.servers.iter().find(|server| is_server_of(server, port));
        let server = match found {
            Some(server) => {
                let is_other = |field: &'static str, wanted: Value| (server[field] != wanted).then_some(field);
                let fields = [
                    is_other("default_pool_member_ports", json!([node_port(port).to_string()])),
                    is_other("pool_path", json!(pool)),
                    is_other("application_profile_path", json!(profile)),
                ];
                self.update(server, fields.into_iter().flatten().collect());
                path(server).to_owned()
            }
            None => {
                if !std::mem::replace(has_allocation, true) {
                    self.writes.push(GoWrite::Create("ip-allocations", String::new()));
                }
                let service = GoWrite::Create("lb-services", String::new());
                let is_there = program.lb_service(&inventory.listed.lb_services)?.is_some();
                if !is_there && !self.writes.contains(&service) {
                    self.writes.push(service);
                }
                self.create("lb-virtual-servers", port)
            }
        };
        self.servers.push(Settled { path: server, leads_to: vec![pool.to_owned()] });
        Ok(())
    }

    /// Does steps 5 to 7.
    fn delete_orphans(&mut self, ports: &[ServicePort]) -> Result<(), String> {
        let inventory = self.inventory;
        let is_wanted = |server: &Value| ports.iter().any(|port| is_server_of(server, port));
        let (kept, orphans): (Vec<&Value>, Vec<&Value>) =
            inventory.servers.iter().copied().partition(|server| is_wanted(server));
        let is_orphan = |server: &Value| orphans.iter().any(|orphan| path(orphan) == path(server));
        self.delete(&orphans);
        let is_created = self.writes.iter().any(|write| matches!(write, GoWrite::Create("lb-virtual-servers", _)));
        let is_unused = !is_created && inventory.of_cluster.iter().all(|server| is_orphan(server));
        if !orphans.is_empty() && is_unused && self.program.lb_service_id.is_none() {
            let service = self.program.lb_service(&inventory.listed.lb_services)?;
            self.delete(service.as_slice());
        }
        let pools = led_to(&self.servers, &kept, |server| vec![text(server, "pool_path").to_owned()]);
        let has_port = |object: &Value| ports.iter().any(|port| is_of_port(object, port));
        let is_valid = |object: &Value, valid: &BTreeSet<String>| has_port(object) && valid.contains(path(object));
        let (kept, orphans): (Vec<&Value>, Vec<&Value>) =
            inventory.pools.iter().copied().partition(|pool| is_valid(pool, &pools));
        self.delete(&orphans);
        let monitors = led_to(&self.pools, &kept, |pool| {
            let paths = pool["active_monitor_paths"].as_array().into_iter().flatten();
            paths.filter_map(Value::as_str).map(str::to_owned).collect()
        });
        let orphans = inventory.monitors.iter().copied().filter(|monitor| !is_valid(monitor, &monitors));
        self.delete(&orphans.collect::<Vec<_>>());
        Ok(())
    }

    fn delete(&mut self, objects: &[&Value]) {
        self.writes.extend(objects.iter().map(|object| GoWrite::Delete(path(object).to_owned())));
    }
}

/// Returns the paths that the objects of this pass refer to, and those that the kept, unhandled objects refer to.
fn led_to(settled: &[Settled], kept: &[&Value], stored: impl Fn(&Value) -> Vec<String>) -> BTreeSet<String> {
    let is_other = |object: &&&Value| settled.iter().all(|handled| handled.path != path(object));
    let others = kept.iter().filter(is_other).flat_map(|object| stored(object));
    settled.iter().flat_map(|handled| handled.leads_to.clone()).chain(others).collect()
}

/// Returns the members of a pool after the merge of 4.6, if the merge changes the pool.
fn members(pool: &Value, wanted: &[String]) -> Option<Vec<String>> {
    let existing = pool["members"].as_array().map(Vec::as_slice).unwrap_or_default();
    let addresses = existing.iter().filter_map(|member| member["ip_address"].as_str());
    let (mut kept, dropped): (Vec<String>, Vec<String>) =
        addresses.map(str::to_owned).partition(|address| wanted.contains(address));
    let mut is_changed = !dropped.is_empty();
    if wanted.len() > kept.len() {
        let missing: Vec<String> = wanted.iter().filter(|address| !kept.contains(address)).cloned().collect();
        is_changed |= !missing.is_empty();
        kept.extend(missing);
    }
    is_changed.then_some(kept)
}

/// Returns the first `InternalIP` of each node that the framework passes to the program.
fn addresses(nodes: &[Node]) -> Vec<String> {
    let is_given = |node: &&Node| {
        let is_excluded = node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(EXCLUDED));
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        let is_leaving = taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == LEAVING));
        !is_excluded && !is_leaving && node.metadata.deletion_timestamp.is_none()
    };
    let address = |node: &Node| {
        let mut addresses = node.status.as_ref()?.addresses.as_ref()?.iter();
        addresses.find(|address| address.type_ == "InternalIP").map(|address| address.address.clone())
    };
    let mut seen = BTreeSet::new();
    nodes.iter().filter(is_given).filter_map(address).filter(|address| seen.insert(address.clone())).collect()
}

/// Returns the path of the only object of each port.
fn one_each<'a>(
    objects: &[&Value],
    ports: impl Iterator<Item = &'a ServicePort>,
    what: &str,
    is_it: impl Fn(&Value, &ServicePort) -> bool,
) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    for port in ports {
        let of_port: Vec<&str> =
            objects.iter().filter(|object| is_it(object, port)).map(|object| path(object)).collect();
        match of_port.as_slice() {
            [one] => drop(found.insert(tag(port), (*one).to_owned())),
            [] => return Err(format!("there is no {what} of {}", tag(port))),
            more => return Err(format!("there is more than one {what} of {}: {}", tag(port), more.join(", "))),
        }
    }
    match objects.iter().find(|object| !found.values().any(|path| path == self::path(object))) {
        Some(object) => Err(format!("{} is a {what} of no port", path(object))),
        None => Ok(found),
    }
}

/// Returns true if the port tag matches the port.
fn is_of_port(object: &Value, port: &ServicePort) -> bool {
    first_tag(object, "port") == Some(&tag(port))
}

/// Returns true if the port tag and the only port match the port.
fn is_server_of(server: &Value, port: &ServicePort) -> bool {
    server["ports"] == json!([port.port.to_string()]) && is_of_port(server, port)
}

fn has_half_a_tag(object: &Value) -> bool {
    let tags = object["tags"].as_array().into_iter().flatten();
    tags.into_iter().any(|tag| !tag["scope"].is_string() || !tag["tag"].is_string())
}

fn is_load_balancer(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
}

/// Returns `<namespace>/<name>`.
fn key(service: &Service) -> String {
    let (namespace, name) = (&service.metadata.namespace, &service.metadata.name);
    format!("{}/{}", namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default())
}

fn ports(service: &Service) -> Vec<ServicePort> {
    service.spec.as_ref().and_then(|spec| spec.ports.clone()).unwrap_or_default()
}

fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

fn node_port(port: &ServicePort) -> i32 {
    port.node_port.unwrap_or(0)
}

fn tag(port: &ServicePort) -> String {
    format!("{}/{}", protocol(port), port.port)
}

fn path(object: &Value) -> &str {
    text(object, "path")
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}
