//! Tests of the steps, which are applied to objects in memory.

use std::sync::LazyLock;
use std::time::Duration;

use ipnet::IpNet;
use proptest::prelude::*;

use super::super::layout::ObjectKind::{Allocation, Group, Monitor, PersistenceProfile, Pool, VirtualServer};
use super::super::layout::{MonitorType, Protocol};
use super::super::service_call::PlannedStep;
use super::*;
use crate::providers::vsphere::config::address_rules::IpFamily;

const UID: &str = "u-1";
const CLUSTER: &str = "k";
const LBS: &str = "/infra/lb-services/l";

fn ip(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn tcp(number: u16) -> Port {
    Port { protocol: Protocol::Tcp, number }
}

fn udp(number: u16) -> Port {
    Port { protocol: Protocol::Udp, number }
}

fn wanted(ports: &[(Port, u16)], nodes: &[u8]) -> DesiredLoadBalancer {
    let port = |(port, node_port): &(Port, u16)| {
        let profile = if port.protocol == Protocol::Tcp { "/tcp" } else { "/udp" };
        WantedPort { port: *port, node_port: *node_port, profile: profile.to_owned() }
    };
    let member =
        |last: &u8| Member { node: format!("n{last}"), address: IpAddr::from([10, 0, 0, *last]), is_confirmed: true };
    DesiredLoadBalancer {
        ports: ports.iter().map(port).collect(),
        members: nodes.iter().map(member).collect(),
        ingress: Vec::new(),
        cluster_uid: Some(CLUSTER.to_owned()),
        service_uid: Some(UID.to_owned()),
        features: Features::default(),
        reported: None,
        has_unresolved: false,
        may_have_references: false,
        adopts_fully: false,
    }
}

fn lb_service() -> Resource {
    let mut lb_service = Resource::new(ObjectKind::LbService, None);
    lb_service.tags.id = "l".into();
    lb_service.tags.path = LBS.into();
    lb_service.tags.is_named_as_ours = true;
    lb_service.spec.tier1 = "/infra/tier-1s/t".into();
    lb_service
}

static NOTHING: LazyLock<ServiceResources> = LazyLock::new(ServiceResources::default);
static NO_PATHS: BTreeSet<Box<str>> = BTreeSet::new();
static NO_ADDRESSES: BTreeSet<IpAddr> = BTreeSet::new();

static LAYOUT: LazyLock<ClusterLayout> = LazyLock::new(|| ClusterLayout {
    cluster: "c".to_owned(),
    cluster_uid: Some(CLUSTER.to_owned()),
    configured: Default::default(),
    secondary: None,
});

const SECOND: Option<IpFamily> = Some(IpFamily::V6);
static SECOND_LAYOUT: LazyLock<ClusterLayout> = LazyLock::new(|| LAYOUT.of(SECOND));

/// Returns a current state without objects of unclear ownership.
fn known<'a>(ours: &'a ServiceResources, lb_service: Option<&'a Resource>) -> CurrentState<'a> {
    CurrentState {
        ours,
        ambiguous: &NOTHING,
        lb_service,
        layout: &LAYOUT,
        settled_paths: &NO_PATHS,
        addresses_in_use: &NO_ADDRESSES,
    }
}

/// Returns the next step for a Service with one load balancer.
fn next_for<'a>(wanted: &'a DesiredLoadBalancer, known: CurrentState<'a>) -> Option<Action<'a>> {
    next(&[(wanted, known)]).map(|(_, step)| step)
}

fn step<'a>(
    wanted: &'a DesiredLoadBalancer,
    ours: &'a ServiceResources,
    lb_service: Option<&'a Resource>,
) -> Option<Action<'a>> {
    next_for(wanted, known(ours, lb_service))
}

/// A model of NSX and of the inventory, which applies the steps.
#[derive(Clone, Default)]
struct World {
    objects: ServiceResources,
    lb_service: Option<Resource>,
    /// Paths of groups and persistence profiles in the inventory.
    listed: BTreeSet<Box<str>>,
    /// Paths of groups and persistence profiles that this sync has read.
    read: BTreeSet<Box<str>>,
    made: u32,
    reserved: u8,
    /// The load balancer of the next objects.
    second: Option<IpFamily>,
    log: Vec<String>,
}

impl World {
    /// Returns the tags of an object that this program creates with this id. Panics if another object has the id.
    fn own_marks(&mut self, id: String, kind: ObjectKind, port: Option<Port>) -> OwnerTags {
        let is_taken = self.objects.iter().any(|one| *one.tags.id == *id);
        assert!(!is_taken, "NSX refuses it: the id of the {kind:?} of {port:?} is taken");
        let parent = if kind.is_listed_rarely() { kind.parent() } else { "" };
        OwnerTags { path: format!("{parent}/{id}").into(), id: id.into(), ..self.marks(kind, port) }
    }

    /// Returns the tags of an object that another program created.
    fn marks(&mut self, kind: ObjectKind, port: Option<Port>) -> OwnerTags {
        self.made += 1;
        let id = format!("{kind:?}-{}", self.made);
        OwnerTags {
            path: format!("/{id}").into(),
            id: id.into(),
            is_named_as_ours: true,
            service: "ns/s".into(),
            service_uid: None,
            cluster_uid: Some(CLUSTER.into()),
            port,
            secondary: self.second,
        }
    }

    /// Returns an allocation that another program created.
    fn allocation(&mut self, address_pool: &str, address: Option<IpAddr>) -> Resource {
        let tags = self.marks(Allocation, None);
        Resource { tags, address, address_pool: address_pool.into(), ..Resource::new(Allocation, None) }
    }

    /// Returns the objects in the inventory.
    fn view(&self) -> ServiceResources {
        let mut objects = self.objects.clone();
        objects.0.retain(|one| !one.kind.is_listed_rarely() || self.listed.contains(&one.tags.path));
        objects
    }

    /// Puts all objects into the inventory, as after a full list.
    fn list(&mut self) {
        let listed = self.objects.iter().filter(|one| one.kind.is_listed_rarely());
        self.listed = listed.map(|one| one.tags.path.clone()).collect();
    }

    /// Empties the inventory, as after a restart.
    fn forget(&mut self) {
        self.listed.clear();
    }

    /// Panics if another virtual server listens on the address, port and protocol of a virtual server.
    fn assert_free(&self, server: &Resource) {
        let is_same = |one: &Resource| {
            one.address == server.address
                && one.spec.number == server.spec.number
                && one.spec.profile == server.spec.profile
        };
        let mut others = self.objects.servers().filter(|one| one.tags.path != server.tags.path);
        assert!(!others.any(is_same), "NSX refuses it: another virtual server is in the place of {server:?}");
    }

    /// Applies a step, and checks that it does what was announced.
    fn apply_announced(&mut self, announced: &PlannedStep, step: &Action<'_>, wanted: &DesiredLoadBalancer) {
        let before = self.objects.clone();
        self.apply(step, wanted);
        announcement::check(announced, step, &before, &self.objects);
    }

    /// Applies a step and adds its word to the log.
    fn apply(&mut self, step: &Action<'_>, wanted: &DesiredLoadBalancer) {
        let word = match step {
            Action::Create(new) => {
                self.create(new, wanted);
                word_of(new.kind).to_owned()
            }
            Action::Update { resource, desired } => self.update(resource, desired, wanted),
            Action::Delete(resource) => self.delete_object(resource),
            Action::Allocate(_) => {
                self.create(&Resource::new(Allocation, None), wanted);
                "allocate".to_owned()
            }
            Action::Reserve(server) => {
                self.create(&Resource { address: server.address, ..Resource::new(Allocation, None) }, wanted);
                "reserve".to_owned()
            }
            Action::ReadAddress(allocation) => {
                self.reserved += 1;
                let address = Some(ip(self.reserved));
                self.at(allocation).address = address;
                "read address".to_owned()
            }
            Action::Read { path, .. } => {
                assert!(!self.listed.contains(path.as_str()), "it is known already");
                self.read.insert(path.as_str().into());
                if self.objects.at(path).is_some() {
                    self.listed.insert(path.as_str().into());
                }
                "read".to_owned()
            }
            Action::Tag { resource, address } => {
                assert!([Pool, Monitor].contains(&resource.kind));
                let found = self.at(resource);
                let set = |known: &mut Option<Box<str>>, uid: &Option<String>| {
                    *known = uid.as_deref().map(Into::into).or(known.take());
                };
                set(&mut found.tags.service_uid, &wanted.service_uid);
                set(&mut found.tags.cluster_uid, &wanted.cluster_uid);
                found.address = address.or(found.address);
                "mark".to_owned()
            }
            Action::PortConflict { .. } => "obstructed".to_owned(),
        };
        self.log.push(word);
    }

    /// Returns the object that a step has as it was before.
    fn at(&mut self, before: &Resource) -> &mut Resource {
        self.objects.0.iter_mut().find(|one| one.tags.path == before.tags.path).unwrap()
    }

    /// Creates an object, unless it is left of an earlier creation.
    fn create(&mut self, new: &Resource, wanted: &DesiredLoadBalancer) {
        if new.kind == ObjectKind::LbService {
            self.lb_service = Some(lb_service());
            return;
        }
        let left = self.objects.of_kind(new.kind).find(|one| one.tags.secondary == self.second);
        if let Some(left) = left.filter(|_| new.kind.is_listed_rarely()) {
            self.listed.insert(left.tags.path.clone());
            return;
        }
        let (layout, port) = (LAYOUT.of(self.second), new.tags.port);
        let id = match new.spec.monitor_type {
            Some(monitor_type) => layout.monitor_id(monitor_type, UID, port.unwrap(), 0),
            None => layout.id(new.kind, UID, port, 0),
        };
        let tags = self.own_marks(id, new.kind, port);
        if new.kind.is_listed_rarely() {
            self.listed.insert(tags.path.clone());
            self.read.insert(tags.path.clone());
        }
        let mut resource = Resource { tags, address_pool: "p".into(), ..new.clone() };
        if new.kind == VirtualServer {
            let has_group = !new.reference(Group).is_empty();
            assert_eq!(has_group, wanted.features.source_ranges.is_some(), "it lets everybody in");
            assert_eq!(has_group, new.spec.is_restricted);
            self.assert_free(&resource);
            resource.spec.class = "default".into();
        }
        if new.kind == Pool {
            resource.spec.members = wanted.members.iter().map(|member| member.address).collect();
        }
        self.objects.0.push(resource);
    }

    /// Changes an object. Returns the word of the step.
    fn update(&mut self, resource: &Resource, desired: &Resource, wanted: &DesiredLoadBalancer) -> String {
        if resource.address != desired.address {
            if resource.kind == VirtualServer {
                self.assert_free(desired);
            }
            self.at(resource).address = desired.address;
            return if resource.kind == Pool { "unmark" } else { "set address" }.to_owned();
        }
        let mut after = desired.clone();
        match resource.kind {
            VirtualServer => self.assert_free(desired),
            Monitor => assert_eq!(resource.spec.monitor_type, desired.spec.monitor_type, "NSX changes no type"),
            Pool => {
                after.spec.members = wanted.members.iter().map(|member| member.address).collect();
                after.spec.is_snat_disabled = desired.spec.is_snat_disabled.or(resource.spec.is_snat_disabled);
            }
            _ => {}
        }
        *self.at(resource) = after;
        format!("change {}", word_of(resource.kind))
    }

    /// Deletes an object. Returns the word of the step.
    fn delete_object(&mut self, resource: &Resource) -> String {
        assert!(!self.objects.refer_to(&resource.tags.path), "NSX refuses it");
        if resource.kind.is_listed_rarely() {
            self.read.insert(resource.tags.path.clone());
            self.listed.remove(&resource.tags.path);
        }
        if resource.kind == Allocation {
            // An unknown address may be the address of any virtual server of the same load balancer.
            let is_known =
                |server: &Resource| resource.address.is_some() || server.tags.secondary != resource.tags.secondary;
            let is_other = |server: &Resource| is_known(server) && server.address != resource.address;
            assert!(self.objects.servers().all(is_other), "the address may be in use");
        }
        self.objects.0.retain(|one| one != resource);
        match resource.kind {
            Allocation => "release".to_owned(),
            kind => format!("delete {}", word_of(kind)),
        }
    }

    /// Applies steps until there is no next step. Returns the words of the steps.
    fn ensure(&mut self, wanted: &DesiredLoadBalancer) -> Vec<String> {
        self.begin(wanted, usize::MAX)
    }

    /// Applies up to `steps` steps. Returns the words of the steps.
    fn begin(&mut self, wanted: &DesiredLoadBalancer, steps: usize) -> Vec<String> {
        self.read.clear();
        for _ in 0..steps {
            let (objects, lb_service, read) = (self.view(), self.lb_service.clone(), self.read.clone());
            let known = CurrentState { settled_paths: &read, ..known(&objects, lb_service.as_ref()) };
            let announced = announcement::announced(&[(wanted, known)]);
            let Some(step) = next_for(wanted, known) else {
                assert_eq!(announced.step, None);
                break;
            };
            assert!(self.log.len() < 500, "it comes to no end: {:?}", self.log);
            let address = address(wanted, &self.objects);
            let served = self.served(wanted, address);
            self.apply_announced(&announced, &step, wanted);
            let is_deletion = matches!(step, Action::Delete(one) if one.kind == VirtualServer);
            assert!(
                !is_deletion || served == self.served(wanted, address),
                "a port loses its virtual server: {step:?}"
            );
            if matches!(step, Action::PortConflict { .. }) {
                break;
            }
        }
        std::mem::take(&mut self.log)
    }

    /// Applies up to `steps` steps for both load balancers of a Service.
    fn begin_both(&mut self, first: &DesiredLoadBalancer, second: &DesiredLoadBalancer, steps: usize) -> Vec<String> {
        self.read.clear();
        for _ in 0..steps {
            assert!(self.log.len() < 500, "it comes to no end: {:?}", self.log);
            let (objects, lb_service, read) = (self.view(), self.lb_service.clone(), self.read.clone());
            let (of_first, of_second) = (objects.of(None), objects.of(SECOND));
            let known =
                |ours, layout| CurrentState { ours, layout, settled_paths: &read, ..known(ours, lb_service.as_ref()) };
            let mut all = vec![(first, known(&of_first, &*LAYOUT)), (second, known(&of_second, &*SECOND_LAYOUT))];
            // A load balancer that neither exists nor is wanted has no plan.
            all.retain(|(wanted, known)| !wanted.ports.is_empty() || !known.ours.is_empty());
            let announced = announcement::announced(&all);
            let Some((at, step)) = next(&all) else {
                assert_eq!(announced.step, None);
                break;
            };
            let (wanted, known) = all[at];
            self.second = known.layout.secondary;
            self.apply_announced(&announced, &step, wanted);
            if matches!(step, Action::PortConflict { .. }) {
                break;
            }
        }
        self.second = None;
        std::mem::take(&mut self.log)
    }

    /// Returns the ports with a virtual server on this address. Without an address, on any address.
    fn served(&self, wanted: &DesiredLoadBalancer, address: Option<IpAddr>) -> BTreeSet<Port> {
        let is_served = |port: &&WantedPort| {
            self.objects.servers().any(|server| {
                let is_on = address.is_none() || server.address == address;
                is_on && server.spec.number == Some(port.port.number) && *server.spec.profile == *port.profile
            })
        };
        wanted.ports.iter().filter(is_served).map(|port| port.port).collect()
    }

    fn delete(&mut self, cluster_uid: Option<&str>) -> Vec<String> {
        self.delete_as(&DesiredLoadBalancer { cluster_uid: cluster_uid.map(str::to_owned), ..wanted(&[], &[]) })
    }

    fn delete_as(&mut self, nothing: &DesiredLoadBalancer) -> Vec<String> {
        self.read.clear();
        while let (objects, read) = (self.view(), self.read.clone())
            && let Some(step) = next_deletion(nothing, &CurrentState { settled_paths: &read, ..known(&objects, None) })
        {
            assert!(self.log.len() < 500, "it comes to no end: {:?}", self.log);
            let known = CurrentState { settled_paths: &read, ..known(&objects, None) };
            let deletion = DesiredLoadBalancer { ports: Vec::new(), ..nothing.clone() };
            let announced = announcement::announced(&[(&deletion, known)]);
            self.apply_announced(&announced, &step, nothing);
        }
        std::mem::take(&mut self.log)
    }
}

fn word_of(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::LbService => "lb service",
        VirtualServer => "server",
        Pool => "pool",
        Monitor => "monitor",
        Allocation => "allocation",
        Group => "group",
        PersistenceProfile => "profile",
    }
}

#[test]
fn steps_come_in_an_order_that_every_one_of_them_is_allowed_in() {
    let mut world = World::default();
    let first = wanted(&[(tcp(80), 30080)], &[1, 2]);
    let created = world.ensure(&first);
    assert_eq!(created, ["monitor", "pool", "allocate", "read address", "lb service", "server"]);
    assert_eq!(world.ensure(&first), [""; 0]);
    // A second port uses the same address and the same load balancer service.
    let two = wanted(&[(tcp(80), 30080), (tcp(81), 30081)], &[1, 2]);
    assert_eq!(world.ensure(&two), ["monitor", "pool", "server"]);
    assert!(world.objects.servers().all(|server| server.address == Some(ip(1))));
    assert_eq!(world.ensure(&first), ["delete server", "delete pool", "delete monitor"]);
    // The next changes are another node port, another port, and other nodes.
    assert_eq!(world.ensure(&wanted(&[(tcp(80), 30090)], &[1, 2])), ["change monitor", "change server"]);
    let moved = world.ensure(&wanted(&[(tcp(82), 30090)], &[1, 2]));
    assert_eq!(moved, ["monitor", "pool", "server", "delete server", "delete pool", "delete monitor"]);
    assert_eq!(world.ensure(&wanted(&[(tcp(82), 30090)], &[2, 3])), ["change pool"]);
    assert_eq!(world.delete(Some(CLUSTER)), ["delete server", "delete pool", "delete monitor", "release"]);
    assert!(world.objects.is_empty());
}

#[test]
fn udp_has_no_monitor_and_shares_the_address_with_tcp() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    let both = wanted(&[(tcp(80), 30080), (udp(80), 30081)], &[1]);
    assert_eq!(world.ensure(&both), ["monitor", "pool", "allocate", "read address", "server", "pool", "server"]);
    assert!(world.objects.servers().all(|server| server.address == Some(ip(1))));
    assert_eq!(world.objects.of_kind(Monitor).count(), 1);
}

#[test]
fn l_10_of_two_addresses_the_one_in_use_stays_and_the_other_is_released() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    let one = wanted(&[(tcp(80), 30080)], &[1]);
    world.ensure(&one);
    let allocation = world.allocation("q", None);
    world.objects.0.insert(0, allocation);
    assert_eq!(world.ensure(&one), ["read address", "release"]);
    let addresses: Vec<_> = world.objects.allocations().map(|allocation| allocation.address).collect();
    assert_eq!(addresses, [Some(ip(1))]);
}

#[test]
fn objects_of_the_go_program_are_marked_before_the_first_of_them_is_deleted() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    world.ensure(&wanted(&[(tcp(80), 30080)], &[1]));
    without_uids(&mut world.objects);
    for cluster_uid in [Some(CLUSTER), None] {
        let expected = ["mark", "mark", "delete server", "delete pool", "delete monitor", "release"];
        assert_eq!(world.clone().delete(cluster_uid), expected);
    }
}

/// If configured tags leave too few of the 30 tags of NSX, a deletion writes the tags that fit, and continues.
#[test]
fn a_deletion_waits_for_no_mark_that_has_no_room() {
    for (configured, marks) in [(24, 2), (25, 2), (26, 0), (30, 0)] {
        let mut world = World { lb_service: Some(lb_service()), ..World::default() };
        world.ensure(&wanted(&[(tcp(80), 30080)], &[1]));
        without_uids(&mut world.objects);
        world.objects[(Allocation, 0)].tags.id = "of-the-go-program".into();
        for kind in [Pool, Monitor] {
            let tags = &mut world.objects[(kind, 0)].tags;
            tags.id = format!("of-the-go-program-{}", tags.id).into();
        }
        let configured = (0..configured).map(|number| (format!("team-{number}"), "x".to_owned())).collect();
        let layout = ClusterLayout { configured, ..LAYOUT.clone() };
        let nothing = DesiredLoadBalancer { ports: Vec::new(), ..wanted(&[], &[]) };
        let mut made = 0;
        loop {
            let known = CurrentState { layout: &layout, ..known(&world.objects, None) };
            let Some(Action::Tag { resource, address: None }) = next_deletion(&nothing, &known) else { break };
            let (path, kind) = (resource.tags.path.clone(), Pool);
            let owner = Owner { service: "ns/s", uid: UID };
            let tags = tags_of(&owner, &layout, kind, None);
            let has = |scope: &str| tags.iter().find(|tag| tag.scope == scope).map(|tag| tag.tag.into());
            let one = world.objects.0.iter_mut().find(|one| one.tags.path == path).unwrap();
            (one.tags.service_uid, one.tags.cluster_uid) = (has(SERVICE_UID), has(CLUSTER_UID));
            made += 1;
            assert!(made <= 2, "it would be marked again and again");
        }
        assert_eq!(made, marks, "{}", layout.configured.len());
        let known = CurrentState { layout: &layout, ..known(&world.objects, None) };
        assert!(matches!(next_deletion(&nothing, &known), Some(Action::Delete(one)) if one.kind == VirtualServer));
    }
}

#[test]
fn an_address_that_only_a_pool_will_show_to_be_ours_is_released_before_the_pool_is_deleted() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    world.ensure(&wanted(&[(tcp(80), 30080), (tcp(443), 30443)], &[1]));
    without_uids(&mut world.objects);
    let tags = ["mark"; 4];
    let servers = ["delete server"; 2];
    let rest = ["delete pool", "delete pool", "delete monitor", "delete monitor"];
    let expected = [&tags[..], &servers, &["release"], &rest].concat();
    // The second id has the form of ids of this program, but is of another Service UID.
    for id in ["of-the-go-program", "8d5f6c1e-41a3-5b0e-9a57-2f6b7c90d3e4"] {
        world.objects[(Allocation, 0)].tags.id = id.into();
        assert_eq!(world.clone().delete(Some(CLUSTER)), expected, "{id}");
        assert_eq!(world.clone().delete(None), expected, "{id}");
    }
}

#[test]
fn the_address_that_a_pool_was_tagged_with_goes_once_it_is_served_again() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    let one = wanted(&[(tcp(80), 30080)], &[1]);
    world.ensure(&one);
    world.objects[(Pool, 0)].address = world.objects[(Allocation, 0)].address;
    assert_eq!(world.ensure(&one), ["unmark"]);
    world.objects.take(VirtualServer);
    world.objects[(Pool, 0)].address = world.objects[(Allocation, 0)].address;
    assert_eq!(world.ensure(&one), ["server", "unmark"], "until then it shows whose the allocation is");
}

#[test]
fn l_09_a_deletion_needs_no_address() {
    let mut world = World::default();
    let allocation = world.allocation("p", None);
    world.objects.0.push(allocation);
    assert_eq!(world.delete(Some(CLUSTER)), ["release"]);
}

/// Removes the cluster UIDs, as in objects of the Go program.
fn without_uids(objects: &mut ServiceResources) {
    for one in objects.0.iter_mut().filter(|one| !one.kind.is_listed_rarely()) {
        one.tags.cluster_uid = None;
    }
}

#[test]
fn objects_of_the_go_program_are_marked_before_a_port_loses_its_virtual_server() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    world.ensure(&wanted(&[(tcp(80), 30080)], &[1]));
    without_uids(&mut world.objects);
    let moved = world.ensure(&wanted(&[(tcp(81), 30080)], &[1]));
    let expected = ["monitor", "pool", "server", "mark", "mark", "delete server", "delete pool", "delete monitor"];
    assert_eq!(moved, expected);
}

#[test]
fn a_port_that_cannot_be_created_keeps_no_other_one_from_following() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    world.ensure(&wanted(&[(tcp(81), 30081)], &[1]));
    let more = wanted(&[(tcp(80), 30080), (tcp(81), 30082)], &[2]);
    let objects = world.objects.clone();
    for expected in ["change monitor", "change pool", "change server", "monitor"] {
        let (objects, lb_service) = (world.objects.clone(), world.lb_service.clone());
        let step = step(&more, &objects, lb_service.as_ref()).unwrap();
        world.apply(&step, &more);
        assert_eq!(world.log.last().unwrap(), expected, "{step:?}");
    }
    assert_ne!(world.objects, objects);
}

#[test]
fn an_address_is_not_released_while_a_virtual_server_that_is_not_ours_has_it() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    world.ensure(&wanted(&[(tcp(80), 30080)], &[1]));
    let held = world.objects.take(VirtualServer);
    world.objects = world.objects.only(Allocation);
    let nothing = wanted(&[], &[]);
    let known = CurrentState { ambiguous: &held, ..known(&world.objects, None) };
    assert_eq!(next_deletion(&nothing, &known), None);
    let mut unread = world.objects.clone();
    unread[(Allocation, 0)].address = None;
    assert_eq!(next_deletion(&nothing, &CurrentState { ours: &unread, ..known }), None);
    let free = ServiceResources::default();
    assert!(matches!(
        next_deletion(&nothing, &CurrentState { ambiguous: &free, ..known }),
        Some(Action::Delete(one)) if one.kind == Allocation
    ));
}

/// NSX would reject the deletion of the pool again and again.
#[test]
fn a_pool_is_not_deleted_while_a_virtual_server_that_is_not_ours_leads_to_it() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    world.ensure(&wanted(&[(tcp(80), 30080)], &[1]));
    let held = world.objects.take(VirtualServer);
    world.objects.take(Allocation);
    let nothing = wanted(&[], &[]);
    let known = known(&world.objects, None);
    assert_eq!(next_deletion(&nothing, &CurrentState { ambiguous: &held, ..known }), None, "nor its monitor");
    let mut ours = world.objects.clone();
    let held = ServiceResources([held.0, ours.take(Pool).0].concat());
    assert_eq!(
        next_deletion(&nothing, &CurrentState { ours: &ours, ambiguous: &held, ..known }),
        None,
        "a held pool needs it"
    );
    assert!(matches!(next_deletion(&nothing, &known), Some(Action::Delete(one)) if one.kind == Pool));
}

#[test]
fn all_addresses_are_read_before_one_that_the_service_does_not_report_is_used() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    for _ in 0..2 {
        let allocation = world.allocation("p", None);
        world.objects.0.push(allocation);
    }
    let reported = DesiredLoadBalancer { ingress: vec![ip(2)], ..wanted(&[(tcp(80), 30080)], &[1]) };
    let steps = world.ensure(&reported);
    assert_eq!(steps, ["monitor", "pool", "read address", "read address", "server", "release"]);
    assert_eq!(world.objects[(VirtualServer, 0)].address, Some(ip(2)));
}

#[test]
fn a_second_virtual_server_of_a_port_stays_with_its_pool_and_address() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    let one = wanted(&[(tcp(80), 30080)], &[1]);
    world.ensure(&one);
    let mut second = world.objects[(VirtualServer, 0)].clone();
    second.tags = world.marks(VirtualServer, Some(tcp(80)));
    second.address = Some(ip(9));
    world.objects.0.insert(0, second);
    let reported = DesiredLoadBalancer { ingress: vec![ip(1)], ..one };
    assert_eq!(world.ensure(&reported), [""; 0]);
    assert_eq!(address(&reported, &world.objects), Some(ip(1)));
}

#[test]
fn a_virtual_server_pool_or_monitor_that_an_administrator_edited_is_found_and_corrected() {
    type Edit = fn(&mut ServiceResources);
    let edits: [(&str, Edit); 6] = [
        ("other port", |objects| objects[(VirtualServer, 0)].spec.number = Some(8080)),
        ("several ports", |objects| objects[(VirtualServer, 0)].spec.number = None),
        ("other tag", |objects| objects[(VirtualServer, 0)].tags.port = Some(tcp(8080))),
        ("no tag", |objects| objects[(VirtualServer, 0)].tags.port = None),
        ("no tag of the pool", |objects| objects[(Pool, 0)].tags.port = None),
        ("other tag of the monitor", |objects| objects[(Monitor, 0)].tags.port = Some(udp(80))),
    ];
    for (name, edit) in edits {
        let mut world = World { lb_service: Some(lb_service()), ..World::default() };
        let one = wanted(&[(tcp(80), 30080)], &[1]);
        world.ensure(&one);
        let before = world.objects.clone();
        edit(&mut world.objects);
        let steps = world.ensure(&one);
        assert!(steps.len() == 1 && steps[0].starts_with("change"), "{name}: {steps:?}");
        assert_eq!(world.objects, before, "{name}");
    }
}

#[test]
fn a_virtual_server_of_the_go_program_whose_tag_was_edited_is_found_by_the_port_that_it_listens_on() {
    let two = wanted(&[(tcp(80), 30080), (udp(80), 30081)], &[1]);
    for tag in [None, Some(tcp(9000)), Some(udp(80))] {
        let mut world = World { lb_service: Some(lb_service()), ..World::default() };
        world.ensure(&two);
        world.objects[(VirtualServer, 0)].tags = world.marks(VirtualServer, tag);
        assert_eq!(world.ensure(&two), ["change server"], "{tag:?}");
        assert_eq!(world.objects[(VirtualServer, 0)].tags.port, Some(tcp(80)), "{tag:?}");
    }
}

#[test]
fn a_virtual_server_in_the_place_of_another_one_is_reported_and_the_rest_follows() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    world.ensure(&wanted(&[(tcp(80), 30080), (tcp(81), 30081)], &[1]));
    // The ports of the two virtual servers were exchanged.
    world.objects[(VirtualServer, 0)].spec.number = Some(81);
    world.objects[(VirtualServer, 1)].spec.number = Some(80);
    let moved = wanted(&[(tcp(80), 30080), (tcp(81), 30081)], &[2]);
    assert_eq!(world.ensure(&moved), ["change pool", "change pool", "obstructed"]);
}

#[test]
fn a_virtual_server_that_is_not_ours_is_reported_where_one_is_to_be() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    let one = wanted(&[(tcp(80), 30080)], &[1]);
    world.ensure(&one);
    let mut held = world.objects.take(VirtualServer);
    held[(VirtualServer, 0)].tags = world.marks(VirtualServer, Some(tcp(81)));
    let step = next_for(&one, CurrentState { ambiguous: &held, ..known(&world.objects, world.lb_service.as_ref()) });
    assert!(
        matches!(step, Some(Action::PortConflict { server, .. }) if *server == held[(VirtualServer, 0)]),
        "{step:?}"
    );
}

#[test]
fn a_second_virtual_server_of_a_port_follows_nodes_and_node_port() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    let one = DesiredLoadBalancer { ingress: vec![ip(1)], ..wanted(&[(tcp(80), 30080)], &[1]) };
    world.ensure(&one);
    let (mut server, mut pool, mut monitor) = (
        world.objects[(VirtualServer, 0)].clone(),
        world.objects[(Pool, 0)].clone(),
        world.objects[(Monitor, 0)].clone(),
    );
    server.tags = world.marks(VirtualServer, Some(tcp(80)));
    pool.tags = world.marks(Pool, Some(tcp(80)));
    monitor.tags = world.marks(Monitor, Some(tcp(80)));
    server.address = Some(ip(9));
    server.set_reference(Pool, &pool.tags.path);
    pool.set_reference(Monitor, &monitor.tags.path);
    world.objects.0.insert(0, server);
    world.objects.0.push(pool);
    world.objects.0.push(monitor);
    assert_eq!(world.ensure(&one), [""; 0]);
    let moved = DesiredLoadBalancer { ingress: vec![ip(1)], ..wanted(&[(tcp(80), 30090)], &[2]) };
    let expected = ["change monitor", "change pool", "change server"];
    assert_eq!(world.ensure(&moved), [expected, expected].concat());
    assert!(world.objects.servers().all(|server| server.spec.node_port == Some(30090)));
    assert!(world.objects.pools().all(|pool| members::are_equal(&pool.spec.members, &moved.members)));
    assert!(world.objects.of_kind(Monitor).all(|monitor| monitor.spec.number == Some(30090)));
}

#[test]
fn an_address_that_does_not_come_keeps_no_other_one_from_being_released_or_used() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    let one = wanted(&[(tcp(80), 30080)], &[1]);
    let allocation = |world: &mut World, address| {
        let allocation = world.allocation("p", address);
        world.objects.0.push(allocation);
    };
    allocation(&mut world, None);
    allocation(&mut world, Some(ip(5)));
    allocation(&mut world, Some(ip(6)));
    let mut steps = Vec::new();
    loop {
        let (objects, lb_service) = (world.objects.clone(), world.lb_service.clone());
        match step(&one, &objects, lb_service.as_ref()) {
            Some(Action::ReadAddress(_)) => break,
            Some(step) => world.apply(&step, &one),
            None => panic!("the address is read last"),
        }
        steps = world.log.clone();
    }
    assert_eq!(steps, ["monitor", "pool", "server", "release"]);
    let addresses: Vec<_> = world.objects.allocations().map(|allocation| allocation.address).collect();
    assert_eq!(addresses, [None, Some(ip(5))]);
}

mod addresses;
mod announcement;
mod features;
mod golden;
mod properties;
