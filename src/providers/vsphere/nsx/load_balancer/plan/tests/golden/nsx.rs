//! A model of NSX that applies the steps of syncs to JSON objects, and prints the requests.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::super::*;
use crate::clients::nsx::{Object, ObjectTag};
use crate::providers::vsphere::config::address_rules::IpFamily::{V4, V6};
use crate::providers::vsphere::nsx::load_balancer::body::{edit, new_object};
use crate::providers::vsphere::nsx::load_balancer::families::RequestedFamilies;
use crate::providers::vsphere::nsx::load_balancer::layout::{CLUSTER as CLUSTER_NAME, SERVICE};
use crate::providers::vsphere::nsx::load_balancer::ownership::{ClassifiedResources, ClusterContext, classify};
use crate::providers::vsphere::nsx::load_balancer::resource::LoadBalancerSpec;
use crate::providers::vsphere::nsx::load_balancer::resource_index::{ResourceIndex, Selection};
use crate::providers::vsphere::nsx::ownership::OWNER;

const TIER1: &str = "/infra/tier-1s/t";

/// A Service, as a sync requests it.
#[derive(Clone)]
pub struct Request {
    pub families: Vec<IpFamily>,
    pub desired: DesiredLoadBalancer,
}

/// The amount of text for each request.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Detail {
    None,
    Paths,
    #[default]
    Fields,
}

#[derive(Clone)]
pub struct Nsx {
    objects: BTreeMap<String, (ObjectKind, Object)>,
    /// The layout of the first load balancer. The program may not know the UID of the cluster.
    pub layout: ClusterLayout,
    /// The addresses that the Service reports.
    pub ingress: Vec<IpAddr>,
    /// Whether the IP pools have no free address.
    pub is_exhausted: bool,
    pub detail: Detail,
    /// Whether an earlier process may have left a group or persistence profile that this one does not know.
    may_have_references: bool,
    /// Paths of groups and persistence profiles in the cache of the program.
    listed: BTreeSet<String>,
    /// Paths for [`CurrentState::settled_paths`].
    read: BTreeSet<Box<str>>,
    /// Ids of objects, by name.
    ids: BTreeMap<String, String>,
    /// Names in the text, by id.
    names: BTreeMap<String, String>,
    allocated: u8,
    text: String,
}

impl Default for Nsx {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            layout: LAYOUT.clone(),
            ingress: Vec::new(),
            is_exhausted: false,
            detail: Detail::default(),
            may_have_references: false,
            listed: BTreeSet::new(),
            read: BTreeSet::new(),
            ids: BTreeMap::new(),
            names: BTreeMap::new(),
            allocated: 0,
            text: String::new(),
        }
    }
}

impl Nsx {
    /// Returns the text of all requests, with names instead of ids.
    pub fn text(&self) -> String {
        self.names.iter().fold(self.text.clone(), |text, (id, name)| text.replace(id, &format!("{{{name}}}")))
    }

    /// Adds a line to the text.
    pub fn say(&mut self, line: &str) {
        writeln!(self.text, "{line}").unwrap();
    }

    /// Syncs to the end without text.
    pub fn given(&mut self, request: &Request) {
        let detail = std::mem::replace(&mut self.detail, Detail::None);
        self.sync(request);
        self.detail = detail;
    }

    /// Syncs to the end.
    pub fn sync(&mut self, request: &Request) {
        self.sync_up_to(request, usize::MAX);
    }

    /// Restarts the program after each step of a sync, and shows the requests of the sync that follows.
    pub fn restart_after_each_step(&mut self, request: &Request) {
        let start = Self { text: String::new(), detail: Detail::None, ..self.clone() };
        for steps in 1.. {
            let mut nsx = start.clone();
            if nsx.sync_up_to(request, steps) {
                return;
            }
            nsx.restart();
            nsx.detail = Detail::Paths;
            nsx.sync(request);
            self.names.append(&mut nsx.names);
            self.say(&format!("restart after step {steps}"));
            self.text.push_str(&nsx.text);
        }
    }

    /// Empties the cache of the program. The next list has no groups and no persistence profiles.
    pub fn restart(&mut self) {
        self.listed.clear();
        self.may_have_references = true;
    }

    /// Applies up to `limit` steps. Returns whether the sync has ended.
    pub fn sync_up_to(&mut self, request: &Request, limit: usize) -> bool {
        self.read.clear();
        let mut steps = 0;
        loop {
            let index = self.index();
            let lb_service = index.lb_service(Selection { id: None, tier1: Some(TIER1) }, self.cluster_uid()).unwrap();
            let classified = self.classified(request, &index, lb_service);
            let is_unread = |one: &&Resource| !self.read.contains(&one.tags.path);
            if let Some(allocation) = classified.unresolved.iter().find(is_unread) {
                self.read_address(&allocation.tags.path);
                continue;
            }
            let targets = self.targets(request, &classified);
            let (addresses_in_use, settled_paths) = (self.addresses_in_use(&index, &classified), self.read.clone());
            let mut all = Vec::new();
            for (layout, ours, desired) in &targets {
                let ambiguous = &classified.ambiguous;
                let (settled_paths, addresses_in_use) = (&settled_paths, &addresses_in_use);
                all.push((
                    desired,
                    CurrentState { ours, ambiguous, lb_service, layout, settled_paths, addresses_in_use },
                ));
            }
            let Some((at, step)) = next(&all) else {
                self.end(&targets);
                return true;
            };
            if steps == limit {
                return false;
            }
            steps += 1;
            assert!(steps < 100, "the sync does not end: {}", self.text());
            let (layout, ours, desired) = &targets[at];
            if !self.apply(&step, layout, desired, !ours.has(ObjectKind::VirtualServer)) {
                return true;
            }
        }
    }

    fn classified(
        &self,
        request: &Request,
        index: &ResourceIndex,
        lb_service: Option<&Resource>,
    ) -> ClassifiedResources {
        let ports: Vec<Port> = request.desired.ports.iter().map(|port| port.port).collect();
        let context = ClusterContext {
            layout: &self.layout,
            service_uid: request.desired.service_uid.as_deref(),
            ports: &ports,
            ingress: &self.ingress,
            lb_service: lb_service.map(|one| &*one.tags.path),
            nodes: &nodes(&request.desired.members),
        };
        classify(&index.of_service("ns/s"), &context)
    }

    /// Ends a sync with the status of the Service.
    fn end(&mut self, targets: &[(ClusterLayout, ServiceResources, DesiredLoadBalancer)]) {
        let wanted = targets.iter().filter(|(.., desired)| !desired.ports.is_empty());
        let addresses: Vec<IpAddr> = wanted.filter_map(|(_, ours, desired)| address(desired, ours)).collect();
        if !addresses.is_empty() {
            self.ingress = addresses;
            self.may_have_references = false;
        }
        let addresses: Vec<String> = self.ingress.iter().map(IpAddr::to_string).collect();
        self.show(&format!("end of the sync, status: {}", list(&addresses)), None, None);
    }

    fn cluster_uid(&self) -> Option<&str> {
        self.layout.cluster_uid.as_deref()
    }

    /// Returns the cache of the program.
    fn index(&self) -> ResourceIndex {
        let mut index = ResourceIndex::default();
        for (path, (kind, object)) in &self.objects {
            let is_reference = kind.is_listed_rarely();
            if !is_reference || self.listed.contains(path) {
                index.add(*kind, object, &self.layout);
            }
        }
        index
    }

    fn addresses_in_use(&self, index: &ResourceIndex, classified: &ClassifiedResources) -> BTreeSet<IpAddr> {
        let own: Vec<Resource> = classified.owned.servers().chain(classified.ambiguous.servers()).cloned().collect();
        let addresses = classified.owned.allocations().filter_map(|one| one.address);
        addresses.filter(|address| index.other_server_on(*address, &own).is_some()).collect()
    }

    /// Returns the load balancers of the Service, with their objects and desired states.
    fn targets(
        &self,
        request: &Request,
        classified: &ClassifiedResources,
    ) -> Vec<(ClusterLayout, ServiceResources, DesiredLoadBalancer)> {
        let is_deletion = request.desired.ports.is_empty();
        let has_ipv6_pool = !is_deletion && request.families.contains(&V6);
        let asked = RequestedFamilies { families: &request.families, has_ipv6_pool };
        let mut targets = Vec::new();
        for balancer in asked.balancers(&classified.owned) {
            let mut desired = request.desired.clone();
            desired.cluster_uid.clone_from(&self.layout.cluster_uid);
            desired.ingress.clone_from(&self.ingress);
            desired.may_have_references = self.may_have_references;
            desired.has_unresolved = classified.unresolved.iter().any(|one| one.tags.secondary == balancer.secondary);
            if balancer.family == V6 {
                desired.members.iter_mut().for_each(|member| member.address = v6_of(member.address));
            }
            if balancer.is_wanted && !is_deletion {
                desired.reported = self.ingress.iter().find(|one| IpFamily::of(**one) == balancer.family).copied();
            } else {
                desired.ports.clear();
            }
            targets.push((self.layout.of(balancer.secondary), classified.owned.of(balancer.secondary), desired));
        }
        targets
    }

    /// Applies a step as the backend does. Returns false if the step fails, which ends the sync.
    fn apply(
        &mut self,
        step: &Action<'_>,
        layout: &ClusterLayout,
        desired: &DesiredLoadBalancer,
        is_unserved: bool,
    ) -> bool {
        let uid = desired.service_uid.as_deref().unwrap_or_default();
        let owner = Owner { service: "ns/s", uid };
        let address_pool = if layout.secondary.is_some() { "p6" } else { "p" };
        let spec = LoadBalancerSpec {
            class: "default".to_owned(),
            address_pool: address_pool.to_owned(),
            members: desired.members.clone(),
            size: "SMALL",
            tier1: Some(TIER1.to_owned()),
        };
        let allocations = format!("/infra/ip-pools/{address_pool}/ip-allocations");
        let allocation = |address| Resource { address, ..Resource::new(ObjectKind::Allocation, None) };
        match step {
            Action::Create(new) => {
                let port = new.tags.port;
                let id = match (new.kind, new.spec.monitor_type) {
                    (ObjectKind::LbService, _) => layout.lb_service_id(Some(TIER1), 0),
                    (_, Some(monitor_type)) => layout.monitor_id(monitor_type, uid, port.unwrap(), 0),
                    (kind, None) => layout.id(kind, uid, port, 0),
                };
                let of = if new.kind == ObjectKind::LbService { &layout.of(None) } else { layout };
                self.create(of, new.kind, port, (new.kind.parent(), id), new_object(layout, &owner, &spec, new));
            }
            Action::Allocate(request) => {
                let requested = match request {
                    AllocationRequest::Any => None,
                    AllocationRequest::Rather(address) | AllocationRequest::Only(address) => Some(*address),
                };
                if let AllocationRequest::Rather(address) = request {
                    self.show(&format!("prefer the address {address}"), None, None);
                }
                let place = (&*allocations, layout.id(ObjectKind::Allocation, uid, None, 0));
                let body = new_object(layout, &owner, &spec, &allocation(requested));
                self.create(layout, ObjectKind::Allocation, None, place, body);
            }
            Action::Reserve(server) => {
                let id = layout.id(ObjectKind::Allocation, uid, None, 0);
                let path = format!("{allocations}/{id}");
                let body = new_object(layout, &owner, &spec, &allocation(server.address));
                self.create(layout, ObjectKind::Allocation, None, (&allocations, id), body);
                self.read_address(&path);
            }
            Action::ReadAddress(allocation) => {
                if !self.read_address(&allocation.tags.path) && is_unserved {
                    self.show("the sync fails", None, None);
                    return false;
                }
            }
            Action::Update { resource, desired: after } => {
                let new = tags_at_write(&resource.tags, resource.kind, &owner, layout);
                self.change("update", resource, |object| {
                    edit(object, resource, after, &layout.cluster, &desired.members);
                    new.write_into(object);
                });
            }
            Action::Tag { resource, address } => {
                let new = tags_of(&owner, layout, resource.kind, *address);
                self.change("tag", resource, |object| new.write_into(object));
            }
            Action::Read { kind, path } => {
                let id = path.rsplit('/').next().unwrap();
                self.names.insert(id.to_owned(), name_of(*kind, &Object::default(), None, layout));
                self.read.insert(path.as_str().into());
                let is_here = self.objects.contains_key(path);
                if is_here {
                    self.listed.insert(path.clone());
                }
                self.show(&format!("read {path}: {}", if is_here { "exists" } else { "not found" }), None, None);
            }
            Action::Delete(resource) => self.delete(&resource.tags.path),
            Action::PortConflict { port, server } => {
                let path = &server.tags.path;
                self.show(&format!("report that {path} is in the place of {}", port.port), None, None);
                return false;
            }
        }
        true
    }

    fn create(
        &mut self,
        layout: &ClusterLayout,
        kind: ObjectKind,
        port: Option<Port>,
        (parent, id): (&str, String),
        mut object: Object,
    ) {
        let path = format!("{parent}/{id}");
        let name = name_of(kind, &object, port, layout);
        self.names.insert(id.clone(), name.clone());
        self.ids.insert(name, id.clone());
        if kind.is_listed_rarely() {
            self.listed.insert(path.clone());
            self.read.insert(path.as_str().into());
        }
        if self.objects.contains_key(&path) {
            self.show(&format!("create {path}: exists"), None, None);
            return;
        }
        object.0.insert("id".to_owned(), id.into());
        object.0.insert("path".to_owned(), path.as_str().into());
        self.show(&format!("create {path}"), None, Some(&object));
        self.objects.insert(path, (kind, object));
    }

    fn change(&mut self, verb: &str, resource: &Resource, edit: impl Fn(&mut Object)) {
        let path = &*resource.tags.path;
        let (kind, before) = self.objects[path].clone();
        let mut after = before.clone();
        edit(&mut after);
        self.layout.of(resource.tags.secondary).tags(kind).write_into(&mut after);
        self.show(&format!("{verb} {path}"), Some(&before), Some(&after));
        self.objects.insert(path.to_owned(), (kind, after));
    }

    /// Deletes an object. Panics if another object refers to it, which NSX refuses.
    fn delete(&mut self, path: &str) {
        self.show(&format!("delete {path}"), None, None);
        self.objects.remove(path);
        self.listed.remove(path);
        self.read.insert(path.into());
        self.may_have_references &= !path.starts_with(ObjectKind::VirtualServer.parent());
        let reference = format!("\"{path}\"");
        for (_, object) in self.objects.values() {
            let text = Value::Object(object.0.clone()).to_string();
            assert!(!text.contains(&reference), "NSX refuses the deletion of {path}: {text}");
        }
    }

    /// Reads the address of an allocation, which NSX gives unless the IP pools are exhausted. Returns whether it does.
    fn read_address(&mut self, path: &str) -> bool {
        let object = &mut self.objects.get_mut(path).unwrap().1;
        if self.is_exhausted {
            self.read.insert(path.into());
            self.show(&format!("read the address of {path}: none"), None, None);
            return false;
        }
        self.allocated += 1;
        let free = ip(self.allocated);
        let free = if path.contains("/p6/") { v6_of(free) } else { free };
        let requested = object.text("allocation_ip").parse();
        let address = requested.unwrap_or(free);
        object.0.insert("allocated_ip".to_owned(), address.to_string().into());
        // With another known address, allocations without an address may be surplus, so they are read again.
        self.read.retain(|path| !path.contains("/ip-allocations/"));
        self.show(&format!("read the address of {path}: {address}"), None, None);
        true
    }

    /// Shows a request, with the fields and tags that it changes.
    fn show(&mut self, line: &str, before: Option<&Object>, after: Option<&Object>) {
        if self.detail == Detail::None {
            return;
        }
        self.say(line);
        let Some(after) = after.filter(|_| self.detail == Detail::Fields) else { return };
        let nothing = Object::default();
        let before = before.unwrap_or(&nothing);
        let (old, new) = (fields_of(before), fields_of(after));
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for name in names.into_iter().filter(|name| old.get(*name) != new.get(*name)) {
            let value = new.get(name).map_or("removed", String::as_str);
            writeln!(self.text, "    {name}: {value}").unwrap();
        }
    }
}

/// Changes by other clients.
impl Nsx {
    /// Returns the object with this name in the text.
    pub fn object(&mut self, name: &str) -> &mut Object {
        let suffix = format!("/{}", self.ids[name]);
        let (_, (_, object)) = self.objects.iter_mut().find(|(path, _)| path.ends_with(&suffix)).unwrap();
        object
    }

    /// Sets a field of an object.
    pub fn set(&mut self, name: &str, field: &str, value: impl Into<Value>) {
        self.object(name).0.insert(field.to_owned(), value.into());
    }

    /// Removes a field of an object.
    pub fn unset(&mut self, name: &str, field: &str) {
        self.object(name).0.remove(field);
    }

    /// Sets or removes a tag of an object.
    pub fn tag(&mut self, name: &str, scope: &str, tag: Option<&str>) {
        let object = self.object(name);
        let before = object.clone();
        let new = tag.map(|tag| ObjectTag { scope, tag });
        object.set_tags(before.tags().filter(|tag| tag.scope != scope).chain(new));
    }

    /// Deletes an object.
    pub fn remove(&mut self, name: &str) {
        let path = self.object(name).path().to_owned();
        self.objects.remove(&path);
        self.listed.remove(&path);
    }

    /// Copies an object under another name and id, without the UIDs of cluster and Service.
    pub fn copy(&mut self, name: &str, copy: &str) {
        let mut object = self.object(name).clone();
        let (before, kind) = (object.path().to_owned(), self.objects[object.path()].0);
        let id = copy.replace([' ', '/'], "-");
        let path = before.replace(&self.ids[name], &id);
        object.0.insert("id".to_owned(), id.as_str().into());
        object.0.insert("path".to_owned(), path.as_str().into());
        self.objects.insert(path, (kind, object));
        self.ids.insert(copy.to_owned(), id);
        self.tag(copy, SERVICE_UID, None);
        self.tag(copy, CLUSTER_UID, None);
    }

    /// Gives all objects ids and tags as of the Go program.
    pub fn made_by_the_go_program(&mut self) {
        for (name, id) in &mut self.ids {
            let of_go = format!("go-{}", name.replace([' ', '/'], "-").to_lowercase());
            for (path, (kind, object)) in std::mem::take(&mut self.objects) {
                let text = Value::Object(object.0).to_string().replace(&*id, &of_go);
                let object = Object(serde_json::from_str(&text).unwrap());
                self.objects.insert(path.replace(&*id, &of_go), (kind, object));
            }
            *id = of_go;
        }
        for (_, object) in self.objects.values_mut() {
            let before = object.clone();
            object.set_tags(before.tags().filter(|tag| ![CLUSTER_UID, SERVICE_UID].contains(&tag.scope)));
        }
    }

    /// Shows the paths of all objects.
    pub fn say_what_is_left(&mut self) {
        let paths: Vec<String> = self.objects.keys().cloned().collect();
        self.say(&format!("left: {}", list(&paths)));
    }
}

fn list(all: &[String]) -> String {
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// Returns the name of an object of this program in the text.
fn name_of(kind: ObjectKind, object: &Object, port: Option<Port>, layout: &ClusterLayout) -> String {
    let port = port.map(|port| format!(" {port}")).unwrap_or_default();
    let family = layout.secondary.map(|family| format!(" {}", family.as_str())).unwrap_or_default();
    let name = match kind {
        ObjectKind::LbService => "lb-service",
        ObjectKind::VirtualServer => "server",
        ObjectKind::Pool => "pool",
        ObjectKind::Monitor => object.text("resource_type"),
        ObjectKind::Allocation => "allocation",
        ObjectKind::Group => "group",
        ObjectKind::PersistenceProfile => "profile",
    };
    format!("{name}{port}{family}")
}

/// Returns the fields of an object as text. A field of tags is shown for each scope, except those of all objects.
fn fields_of(object: &Object) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    for (name, value) in &object.0 {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if !["id", "path", "tags", "display_name", "description"].contains(&name.as_str()) {
            fields.insert(name.clone(), value);
        }
    }
    for tag in object.tags().filter(|tag| ![OWNER, CLUSTER_NAME, SERVICE].contains(&tag.scope)) {
        fields.insert(format!("tag {}", tag.scope), tag.tag.to_owned());
    }
    fields
}

fn nodes(members: &[Member]) -> BTreeSet<IpAddr> {
    members.iter().flat_map(|member| [member.address, v6_of(member.address)]).collect()
}

/// Returns the IPv6 address that ends like an IPv4 address.
fn v6_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(address.octets()[3])]),
        IpAddr::V6(_) => address,
    }
}

impl Request {
    /// Returns a Service of one family with these ports, node ports and Nodes.
    pub fn new(ports: &[(Port, u16)], nodes: &[u8]) -> Self {
        Self { families: vec![V4], desired: wanted(ports, nodes) }
    }

    pub fn with(&self, features: Features) -> Self {
        Self { desired: DesiredLoadBalancer { features, ..self.desired.clone() }, ..self.clone() }
    }

    pub fn of(&self, families: &[IpFamily]) -> Self {
        Self { families: families.to_vec(), ..self.clone() }
    }

    /// Returns the request with full adoption.
    pub fn adopting(&self) -> Self {
        Self { desired: DesiredLoadBalancer { adopts_fully: true, ..self.desired.clone() }, ..self.clone() }
    }

    /// Returns the request of the deletion.
    pub fn deleted(&self) -> Self {
        Self { desired: DesiredLoadBalancer { ports: Vec::new(), ..self.desired.clone() }, ..self.clone() }
    }
}
