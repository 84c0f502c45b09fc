//! Tests of the steps, which are applied to objects in memory.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::super::layout::{GROUPS, MonitorType, PERSISTENCE_PROFILES, Protocol, has_own_form};
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
        has_unread: false,
        may_have_references: false,
        adopts_fully: false,
    }
}

fn lb_service() -> LbService {
    LbService {
        id: "l".into(),
        path: LBS.into(),
        tier1: "/infra/tier-1s/t".into(),
        is_named_as_ours: true,
        cluster_uid: None,
    }
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
fn known<'a>(ours: &'a ServiceResources, lb_service: Option<&'a LbService>) -> CurrentState<'a> {
    CurrentState {
        ours,
        ambiguous: &NOTHING,
        lb_service,
        layout: &LAYOUT,
        read_paths: &NO_PATHS,
        addresses_in_use: &NO_ADDRESSES,
    }
}

/// Returns the next step for a Service with one load balancer.
fn next_for<'a>(wanted: &'a DesiredLoadBalancer, known: CurrentState<'a>) -> Option<Step<'a>> {
    next(&[(wanted, known)]).map(|(_, step)| step)
}

fn step<'a>(
    wanted: &'a DesiredLoadBalancer,
    ours: &'a ServiceResources,
    lb_service: Option<&'a LbService>,
) -> Option<Step<'a>> {
    next_for(wanted, known(ours, lb_service))
}

/// A model of NSX and of the inventory, which applies the steps.
#[derive(Clone, Default)]
struct World {
    objects: ServiceResources,
    lb_service: Option<LbService>,
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
    /// Returns the tags of an object that this program creates. Panics if another object has the same id.
    fn own_marks(&mut self, kind: ObjectKind, port: Option<Port>) -> OwnerTags {
        let id = LAYOUT.of(self.second).id(kind, UID, port, 0);
        self.marks_with(id, kind, port)
    }

    /// Returns the tags of an object that this program creates with this id.
    fn marks_with(&mut self, id: String, kind: ObjectKind, port: Option<Port>) -> OwnerTags {
        let ServiceResources { servers, pools, monitors, allocations, .. } = &self.objects;
        let ids = servers.iter().map(|one| &one.tags.id).chain(pools.iter().map(|one| &one.tags.id));
        let ids = ids.chain(monitors.iter().map(|one| &one.tags.id));
        let mut ids = ids.chain(allocations.iter().map(|one| &one.tags.id));
        assert!(ids.all(|taken| **taken != *id), "NSX refuses it: the id of the {kind:?} of {port:?} is taken");
        let parent = match kind {
            ObjectKind::Group => GROUPS,
            ObjectKind::PersistenceProfile => PERSISTENCE_PROFILES,
            _ => "",
        };
        OwnerTags { path: format!("{parent}/{id}").into(), id: id.into(), ..self.marks(kind, port) }
    }

    /// Returns the tags of an object that another program created.
    fn marks(&mut self, kind: ObjectKind, port: Option<Port>) -> OwnerTags {
        self.made += 1;
        let id = format!("{kind:?}-{}", self.made);
        OwnerTags {
            path: format!("/{id}").into(),
            id: id.into(),
            service: "ns/s".into(),
            service_uid: None,
            cluster_uid: Some(CLUSTER.into()),
            port,
            secondary: self.second,
        }
    }

    /// Returns the objects in the inventory.
    fn view(&self) -> ServiceResources {
        let mut objects = self.objects.clone();
        objects.groups.retain(|one| self.listed.contains(&one.tags.path));
        objects.persistence_profiles.retain(|one| self.listed.contains(&one.tags.path));
        objects
    }

    /// Enters a group or persistence profile into the inventory. Returns its tags.
    fn enter(&mut self, kind: ObjectKind) -> OwnerTags {
        let tags = self.own_marks(kind, None);
        self.listed.insert(tags.path.clone());
        self.read.insert(tags.path.clone());
        tags
    }

    /// Puts all objects into the inventory, as after a full list.
    fn list(&mut self) {
        let ServiceResources { groups, persistence_profiles, .. } = &self.objects;
        let groups = groups.iter().map(|one| &one.tags.path);
        let paths = groups.chain(persistence_profiles.iter().map(|one| &one.tags.path));
        self.listed = paths.cloned().collect();
    }

    /// Empties the inventory, as after a restart.
    fn forget(&mut self) {
        self.listed.clear();
    }

    fn assert_free(&self, address: IpAddr, port: &WantedPort, but: &str) {
        let is_there = |one: &&VirtualServer| one.address == Some(address) && one.number == Some(port.port.number);
        let mut others = self.objects.servers.iter().filter(is_there);
        let is_other = |one: &VirtualServer| *one.tags.path != *but && *one.profile == *port.profile;
        assert!(!others.any(is_other), "NSX refuses it: {address} has {} already", port.port);
    }

    /// Applies a step and adds its word to the log.
    fn apply(&mut self, step: &Step<'_>, wanted: &DesiredLoadBalancer) {
        let objects = &mut self.objects;
        let members = || wanted.members.iter().map(|member| member.address).collect();
        let at = |path: &str, paths: Vec<&str>| paths.iter().position(|known| *known == path).unwrap();
        let word = match step {
            Step::CreateMonitor { port, probe } => {
                let (number, monitor_type) = (probe.port(), probe.monitor_type());
                let id = LAYOUT.of(self.second).monitor_id(monitor_type, UID, port.port, 0);
                let marks = self.marks_with(id, ObjectKind::Monitor, Some(port.port));
                self.objects.monitors.push(Monitor { tags: marks, number, monitor_type, has_other_version: false });
                "monitor"
            }
            Step::ChangeMonitor { monitor, port, probe } => {
                assert_eq!(monitor.monitor_type, probe.monitor_type(), "NSX changes no type");
                let at = at(&monitor.tags.path, objects.monitors.iter().map(|one| &*one.tags.path).collect());
                objects.monitors[at].tags.port = Some(*port);
                objects.monitors[at].number = probe.port();
                objects.monitors[at].has_other_version = false;
                "change monitor"
            }
            Step::CreatePool { port, monitor, is_snat_disabled } => {
                let (monitors, members) = (monitor.iter().map(|path| (*path).into()).collect(), members());
                let marks = self.own_marks(ObjectKind::Pool, Some(port.port));
                let (address_pool, is_snat_disabled) = ("p".into(), Some(*is_snat_disabled));
                let pool = Pool { tags: marks, members, monitors, address_pool, is_snat_disabled, address: None };
                self.objects.pools.push(pool);
                "pool"
            }
            Step::ChangePool { pool, port, monitor, is_snat_disabled } => {
                let at = at(&pool.tags.path, objects.pools.iter().map(|one| &*one.tags.path).collect());
                objects.pools[at].tags.port = Some(*port);
                objects.pools[at].members = members();
                objects.pools[at].is_snat_disabled = is_snat_disabled.or(objects.pools[at].is_snat_disabled);
                objects.pools[at].monitors = monitor.iter().map(|path| (*path).into()).collect();
                "change pool"
            }
            Step::Allocate { .. } => {
                let marks = self.own_marks(ObjectKind::Allocation, None);
                self.objects.allocations.push(Allocation { tags: marks, address_pool: "p".into(), address: None });
                "allocate"
            }
            Step::Reserve { server, address } => {
                assert_eq!(server.address, Some(*address));
                let marks = self.own_marks(ObjectKind::Allocation, None);
                self.objects.allocations.push(Allocation {
                    tags: marks,
                    address_pool: "p".into(),
                    address: Some(*address),
                });
                "reserve"
            }
            Step::SetAddress { server, address } => {
                let at = at(&server.tags.path, objects.servers.iter().map(|one| &*one.tags.path).collect());
                let is_same = |one: &VirtualServer| one.number == server.number && one.profile == server.profile;
                let is_there = |one: &&VirtualServer| is_same(one) && one.address == Some(*address);
                assert_eq!(objects.servers.iter().find(is_there), None, "NSX refuses it");
                objects.servers[at].address = Some(*address);
                "set address"
            }
            Step::ReadAddress { allocation } => {
                let at = at(&allocation.tags.path, objects.allocations.iter().map(|one| &*one.tags.path).collect());
                self.reserved += 1;
                objects.allocations[at].address = Some(ip(self.reserved));
                "read address"
            }
            Step::CreateLbService => {
                self.lb_service = Some(lb_service());
                "lb service"
            }
            Step::CreateServer { port, address, pool, lb_service, group, persistence } => {
                assert_eq!(group.is_some(), wanted.features.source_ranges.is_some(), "it lets everybody in");
                self.assert_free(*address, port, "");
                let marks = self.own_marks(ObjectKind::VirtualServer, Some(port.port));
                self.objects.servers.push(VirtualServer {
                    tags: marks,
                    address: Some(*address),
                    number: Some(port.port.number),
                    node_port: Some(port.node_port),
                    profile: port.profile.as_str().into(),
                    pool: (*pool).into(),
                    lb_service: (*lb_service).into(),
                    class: "default".into(),
                    address_pool: "p".into(),
                    group: group.unwrap_or_default().into(),
                    is_restricted: group.is_some(),
                    persistence: persistence.unwrap_or_default().into(),
                });
                "server"
            }
            Step::ChangeServer { server, port, pool, group, persistence } => {
                let at = at(&server.tags.path, objects.servers.iter().map(|one| &*one.tags.path).collect());
                self.assert_free(server.address.unwrap(), port, &server.tags.path);
                let objects = &mut self.objects;
                objects.servers[at].tags.port = Some(port.port);
                objects.servers[at].number = Some(port.port.number);
                objects.servers[at].node_port = Some(port.node_port);
                objects.servers[at].profile = port.profile.as_str().into();
                objects.servers[at].pool = (*pool).into();
                if let Some(path) = referred(*group) {
                    objects.servers[at].is_restricted = !path.is_empty();
                    objects.servers[at].group = path;
                }
                objects.servers[at].persistence = referred(*persistence).unwrap_or(server.persistence.clone());
                "change server"
            }
            Step::Read { path, .. } => {
                assert!(!self.listed.contains(path.as_str()), "it is known already");
                self.read.insert(path.as_str().into());
                let groups = objects.groups.iter().map(|one| &one.tags.path);
                let mut all = groups.chain(objects.persistence_profiles.iter().map(|one| &one.tags.path));
                if all.any(|known| **known == **path) {
                    self.listed.insert(path.as_str().into());
                }
                "read"
            }
            Step::CreateGroup { ranges } => {
                let mut left = objects.groups.iter().filter(|one| one.tags.secondary == self.second);
                let left = left.next().map(|one| one.tags.path.clone());
                match left {
                    Some(path) => drop(self.listed.insert(path)),
                    None => {
                        let (marks, ranges) = (self.enter(ObjectKind::Group), Some((*ranges).clone()));
                        self.objects.groups.push(Group { tags: marks, ranges });
                    }
                }
                "group"
            }
            Step::ChangeGroup { group, ranges } => {
                let at = at(&group.tags.path, objects.groups.iter().map(|one| &*one.tags.path).collect());
                objects.groups[at].ranges = Some((*ranges).clone());
                "change group"
            }
            Step::CreatePersistenceProfile { timeout } => {
                let mut left = objects.persistence_profiles.iter().filter(|one| one.tags.secondary == self.second);
                let left = left.next().map(|one| one.tags.path.clone());
                match left {
                    Some(path) => drop(self.listed.insert(path)),
                    None => {
                        let (marks, timeout) = (self.enter(ObjectKind::PersistenceProfile), Some(*timeout));
                        self.objects.persistence_profiles.push(PersistenceProfile { tags: marks, timeout });
                    }
                }
                "profile"
            }
            Step::ChangePersistenceProfile { profile, timeout } => {
                let paths = objects.persistence_profiles.iter().map(|one| &*one.tags.path).collect();
                let at = at(&profile.tags.path, paths);
                objects.persistence_profiles[at].timeout = Some(*timeout);
                "change profile"
            }
            Step::DeleteGroup(group) => {
                assert!(objects.servers.iter().all(|server| server.group != group.tags.path), "NSX refuses it");
                self.read.insert(group.tags.path.clone());
                self.listed.remove(&group.tags.path);
                objects.groups.retain(|one| one != *group);
                "delete group"
            }
            Step::DeletePersistenceProfile(profile) => {
                let is_free = objects.servers.iter().all(|server| server.persistence != profile.tags.path);
                assert!(is_free, "NSX refuses it");
                self.read.insert(profile.tags.path.clone());
                self.listed.remove(&profile.tags.path);
                objects.persistence_profiles.retain(|one| one != *profile);
                "delete profile"
            }
            Step::Tag { tags: marks, address } => {
                let ServiceResources { pools, monitors, .. } = objects;
                let all = pools.iter_mut().map(|one| &mut one.tags);
                let mut all = all.chain(monitors.iter_mut().map(|one| &mut one.tags));
                let found = all.find(|one| one.path == marks.path).unwrap();
                let set = |known: &mut Option<Box<str>>, uid: &Option<String>| {
                    *known = uid.as_deref().map(Into::into).or(known.take());
                };
                set(&mut found.service_uid, &wanted.service_uid);
                set(&mut found.cluster_uid, &wanted.cluster_uid);
                if let Some(pool) = objects.pools.iter_mut().find(|one| one.tags.path == marks.path) {
                    pool.address = address.or(pool.address);
                }
                "mark"
            }
            Step::Untag { pool } => {
                objects.pools.iter_mut().filter(|one| one == pool).for_each(|one| one.address = None);
                "unmark"
            }
            Step::DeleteServer(server) => {
                objects.servers.retain(|one| one != *server);
                "delete server"
            }
            Step::DeletePool(pool) => {
                assert!(objects.servers.iter().all(|server| server.pool != pool.tags.path), "NSX refuses it");
                objects.pools.retain(|one| one != *pool);
                "delete pool"
            }
            Step::DeleteMonitor(monitor) => {
                let is_free = objects.pools.iter().all(|pool| !pool.monitors.contains(&monitor.tags.path));
                assert!(is_free, "NSX refuses it");
                objects.monitors.retain(|one| one != *monitor);
                "delete monitor"
            }
            Step::ReleaseAddress(allocation) => {
                // An unknown address may be the address of any virtual server of the same load balancer.
                let is_known = |server: &VirtualServer| {
                    allocation.address.is_some() || server.tags.secondary != allocation.tags.secondary
                };
                let is_other = |server: &VirtualServer| is_known(server) && server.address != allocation.address;
                assert!(objects.servers.iter().all(is_other), "the address may be in use");
                objects.allocations.retain(|one| one != *allocation);
                "release"
            }
            Step::PortConflict { .. } => "obstructed",
        };
        self.log.push(word.to_owned());
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
            let known = CurrentState { read_paths: &read, ..known(&objects, lb_service.as_ref()) };
            let Some(step) = next_for(wanted, known) else { break };
            assert!(self.log.len() < 500, "it comes to no end: {:?}", self.log);
            let address = address(wanted, &self.objects);
            let served = self.served(wanted, address);
            self.apply(&step, wanted);
            let is_deletion = matches!(step, Step::DeleteServer(_));
            assert!(
                !is_deletion || served == self.served(wanted, address),
                "a port loses its virtual server: {step:?}"
            );
            if matches!(step, Step::PortConflict { .. }) {
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
                |ours, layout| CurrentState { ours, layout, read_paths: &read, ..known(ours, lb_service.as_ref()) };
            let mut all = vec![(first, known(&of_first, &*LAYOUT)), (second, known(&of_second, &*SECOND_LAYOUT))];
            // A load balancer that neither exists nor is wanted has no plan.
            all.retain(|(wanted, known)| !wanted.ports.is_empty() || !known.ours.is_empty());
            let Some((at, step)) = next(&all) else { break };
            let (wanted, known) = all[at];
            self.second = known.layout.secondary;
            self.apply(&step, wanted);
            if matches!(step, Step::PortConflict { .. }) {
                break;
            }
        }
        self.second = None;
        std::mem::take(&mut self.log)
    }

    /// Returns the ports with a virtual server on this address. Without an address, on any address.
    fn served(&self, wanted: &DesiredLoadBalancer, address: Option<IpAddr>) -> BTreeSet<Port> {
        let is_served = |port: &&WantedPort| {
            self.objects.servers.iter().any(|server| {
                let is_on = address.is_none() || server.address == address;
                is_on && server.number == Some(port.port.number) && *server.profile == *port.profile
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
            && let Some(step) = next_deletion(nothing, &CurrentState { read_paths: &read, ..known(&objects, None) })
        {
            assert!(self.log.len() < 500, "it comes to no end: {:?}", self.log);
            self.apply(&step, nothing);
        }
        std::mem::take(&mut self.log)
    }
}

fn referred(reference: Reference<'_>) -> Option<Box<str>> {
    match reference {
        Reference::Unchanged => None,
        Reference::Unset => Some("".into()),
        Reference::Path(path) => Some(path.into()),
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
    assert!(world.objects.servers.iter().all(|server| server.address == Some(ip(1))));
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
    assert!(world.objects.servers.iter().all(|server| server.address == Some(ip(1))));
    assert_eq!(world.objects.monitors.len(), 1);
}

#[test]
fn l_10_of_two_addresses_the_one_in_use_stays_and_the_other_is_released() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    let one = wanted(&[(tcp(80), 30080)], &[1]);
    world.ensure(&one);
    let marks = world.marks(ObjectKind::Allocation, None);
    world.objects.allocations.insert(0, Allocation { tags: marks, address_pool: "q".into(), address: None });
    assert_eq!(world.ensure(&one), ["read address", "release"]);
    let addresses: Vec<_> = world.objects.allocations.iter().map(|allocation| allocation.address).collect();
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
        world.objects.allocations[0].tags.id = "of-the-go-program".into();
        for marks in [&mut world.objects.pools[0].tags, &mut world.objects.monitors[0].tags] {
            marks.id = format!("of-the-go-program-{}", marks.id).into();
        }
        let configured = (0..configured).map(|number| (format!("team-{number}"), "x".to_owned())).collect();
        let layout = ClusterLayout { configured, ..LAYOUT.clone() };
        let nothing = DesiredLoadBalancer { ports: Vec::new(), ..wanted(&[], &[]) };
        let mut made = 0;
        loop {
            let known = CurrentState { layout: &layout, ..known(&world.objects, None) };
            let Some(Step::Tag { tags: marks, address: None }) = next_deletion(&nothing, &known) else { break };
            let (path, kind) = (marks.path.clone(), ObjectKind::Pool);
            let owner = Owner { namespace: "ns", name: "s", uid: UID };
            let tags = tags_of(&owner, &layout, kind, None);
            let has = |scope: &str| tags.iter().find(|tag| tag.scope == scope).map(|tag| tag.tag.into());
            let pools = world.objects.pools.iter_mut().map(|one| &mut one.tags);
            let mut all = pools.chain(world.objects.monitors.iter_mut().map(|one| &mut one.tags));
            let one = all.find(|marks| marks.path == path).unwrap();
            (one.service_uid, one.cluster_uid) = (has(SERVICE_UID), has(CLUSTER_UID));
            made += 1;
            assert!(made <= 2, "it would be marked again and again");
        }
        assert_eq!(made, marks, "{}", layout.configured.len());
        let known = CurrentState { layout: &layout, ..known(&world.objects, None) };
        assert!(matches!(next_deletion(&nothing, &known), Some(Step::DeleteServer(_))));
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
        world.objects.allocations[0].tags.id = id.into();
        assert_eq!(world.clone().delete(Some(CLUSTER)), expected, "{id}");
        assert_eq!(world.clone().delete(None), expected, "{id}");
    }
}

#[test]
fn the_address_that_a_pool_was_tagged_with_goes_once_it_is_served_again() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    let one = wanted(&[(tcp(80), 30080)], &[1]);
    world.ensure(&one);
    world.objects.pools[0].address = world.objects.allocations[0].address;
    assert_eq!(world.ensure(&one), ["unmark"]);
    world.objects.servers.clear();
    world.objects.pools[0].address = world.objects.allocations[0].address;
    assert_eq!(world.ensure(&one), ["server", "unmark"], "until then it shows whose the allocation is");
}

#[test]
fn l_09_a_deletion_needs_no_address() {
    let mut world = World::default();
    let marks = world.marks(ObjectKind::Allocation, None);
    world.objects.allocations.push(Allocation { tags: marks, address_pool: "p".into(), address: None });
    assert_eq!(world.delete(Some(CLUSTER)), ["release"]);
}

/// Removes the cluster UIDs, as in objects of the Go program.
fn without_uids(objects: &mut ServiceResources) {
    let ServiceResources { servers, pools, monitors, allocations, .. } = objects;
    let tags = servers.iter_mut().map(|one| &mut one.tags).chain(pools.iter_mut().map(|one| &mut one.tags));
    let marks = tags.chain(monitors.iter_mut().map(|one| &mut one.tags));
    for marks in marks.chain(allocations.iter_mut().map(|one| &mut one.tags)) {
        marks.cluster_uid = None;
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
    for expected in ["ChangeMonitor", "ChangePool", "ChangeServer", "CreateMonitor"] {
        let (objects, lb_service) = (world.objects.clone(), world.lb_service.clone());
        let step = step(&more, &objects, lb_service.as_ref()).unwrap();
        assert!(format!("{step:?}").starts_with(expected), "{step:?}");
        world.apply(&step, &more);
    }
    assert_ne!(world.objects, objects);
}

#[test]
fn an_address_is_not_released_while_a_virtual_server_that_is_not_ours_has_it() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    world.ensure(&wanted(&[(tcp(80), 30080)], &[1]));
    let held = ServiceResources { servers: std::mem::take(&mut world.objects.servers), ..ServiceResources::default() };
    world.objects = ServiceResources { allocations: world.objects.allocations.clone(), ..ServiceResources::default() };
    let nothing = wanted(&[], &[]);
    let known = CurrentState { ambiguous: &held, ..known(&world.objects, None) };
    assert_eq!(next_deletion(&nothing, &known), None);
    let mut unread = world.objects.clone();
    unread.allocations[0].address = None;
    assert_eq!(next_deletion(&nothing, &CurrentState { ours: &unread, ..known }), None);
    let free = ServiceResources::default();
    assert!(matches!(
        next_deletion(&nothing, &CurrentState { ambiguous: &free, ..known }),
        Some(Step::ReleaseAddress(_))
    ));
}

/// NSX would reject the deletion of the pool again and again.
#[test]
fn a_pool_is_not_deleted_while_a_virtual_server_that_is_not_ours_leads_to_it() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    world.ensure(&wanted(&[(tcp(80), 30080)], &[1]));
    let held = ServiceResources { servers: std::mem::take(&mut world.objects.servers), ..ServiceResources::default() };
    world.objects.allocations.clear();
    let nothing = wanted(&[], &[]);
    let known = known(&world.objects, None);
    assert_eq!(next_deletion(&nothing, &CurrentState { ambiguous: &held, ..known }), None, "nor its monitor");
    let ours = ServiceResources { pools: Vec::new(), ..world.objects.clone() };
    let held = ServiceResources { pools: world.objects.pools.clone(), ..held };
    assert_eq!(
        next_deletion(&nothing, &CurrentState { ours: &ours, ambiguous: &held, ..known }),
        None,
        "a held pool needs it"
    );
    assert!(matches!(next_deletion(&nothing, &known), Some(Step::DeletePool(_))));
}

#[test]
fn all_addresses_are_read_before_one_that_the_service_does_not_report_is_used() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    for _ in 0..2 {
        let marks = world.marks(ObjectKind::Allocation, None);
        world.objects.allocations.push(Allocation { tags: marks, address_pool: "p".into(), address: None });
    }
    let reported = DesiredLoadBalancer { ingress: vec![ip(2)], ..wanted(&[(tcp(80), 30080)], &[1]) };
    let steps = world.ensure(&reported);
    assert_eq!(steps, ["monitor", "pool", "read address", "read address", "server", "release"]);
    assert_eq!(world.objects.servers[0].address, Some(ip(2)));
}

#[test]
fn a_second_virtual_server_of_a_port_stays_with_its_pool_and_address() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    let one = wanted(&[(tcp(80), 30080)], &[1]);
    world.ensure(&one);
    let mut second = world.objects.servers[0].clone();
    second.tags = world.marks(ObjectKind::VirtualServer, Some(tcp(80)));
    second.address = Some(ip(9));
    world.objects.servers.insert(0, second);
    let reported = DesiredLoadBalancer { ingress: vec![ip(1)], ..one };
    assert_eq!(world.ensure(&reported), [""; 0]);
    assert_eq!(address(&reported, &world.objects), Some(ip(1)));
}

#[test]
fn a_virtual_server_pool_or_monitor_that_an_administrator_edited_is_found_and_corrected() {
    type Edit = fn(&mut ServiceResources);
    let edits: [(&str, Edit); 6] = [
        ("other port", |objects| objects.servers[0].number = Some(8080)),
        ("several ports", |objects| objects.servers[0].number = None),
        ("other tag", |objects| objects.servers[0].tags.port = Some(tcp(8080))),
        ("no tag", |objects| objects.servers[0].tags.port = None),
        ("no tag of the pool", |objects| objects.pools[0].tags.port = None),
        ("other tag of the monitor", |objects| objects.monitors[0].tags.port = Some(udp(80))),
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
        world.objects.servers[0].tags = world.marks(ObjectKind::VirtualServer, tag);
        assert_eq!(world.ensure(&two), ["change server"], "{tag:?}");
        assert_eq!(world.objects.servers[0].tags.port, Some(tcp(80)), "{tag:?}");
    }
}

#[test]
fn a_virtual_server_in_the_place_of_another_one_is_reported_and_the_rest_follows() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    world.ensure(&wanted(&[(tcp(80), 30080), (tcp(81), 30081)], &[1]));
    // The ports of the two virtual servers were exchanged.
    world.objects.servers[0].number = Some(81);
    world.objects.servers[1].number = Some(80);
    let moved = wanted(&[(tcp(80), 30080), (tcp(81), 30081)], &[2]);
    assert_eq!(world.ensure(&moved), ["change pool", "change pool", "obstructed"]);
}

#[test]
fn a_virtual_server_that_is_not_ours_is_reported_where_one_is_to_be() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    let one = wanted(&[(tcp(80), 30080)], &[1]);
    world.ensure(&one);
    let mut held =
        ServiceResources { servers: std::mem::take(&mut world.objects.servers), ..ServiceResources::default() };
    held.servers[0].tags = world.marks(ObjectKind::VirtualServer, Some(tcp(81)));
    let step = next_for(&one, CurrentState { ambiguous: &held, ..known(&world.objects, world.lb_service.as_ref()) });
    assert!(matches!(step, Some(Step::PortConflict { server, .. }) if *server == held.servers[0]), "{step:?}");
}

#[test]
fn a_second_virtual_server_of_a_port_follows_nodes_and_node_port() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    let one = DesiredLoadBalancer { ingress: vec![ip(1)], ..wanted(&[(tcp(80), 30080)], &[1]) };
    world.ensure(&one);
    let (mut server, mut pool, mut monitor) =
        (world.objects.servers[0].clone(), world.objects.pools[0].clone(), world.objects.monitors[0].clone());
    server.tags = world.marks(ObjectKind::VirtualServer, Some(tcp(80)));
    pool.tags = world.marks(ObjectKind::Pool, Some(tcp(80)));
    monitor.tags = world.marks(ObjectKind::Monitor, Some(tcp(80)));
    (server.address, server.pool) = (Some(ip(9)), pool.tags.path.clone());
    pool.monitors = vec![monitor.tags.path.clone()];
    world.objects.servers.insert(0, server);
    world.objects.pools.push(pool);
    world.objects.monitors.push(monitor);
    assert_eq!(world.ensure(&one), [""; 0]);
    let moved = DesiredLoadBalancer { ingress: vec![ip(1)], ..wanted(&[(tcp(80), 30090)], &[2]) };
    let expected = ["change monitor", "change pool", "change server"];
    assert_eq!(world.ensure(&moved), [expected, expected].concat());
    assert!(world.objects.servers.iter().all(|server| server.node_port == Some(30090)));
    assert!(world.objects.pools.iter().all(|pool| members::are_equal(&pool.members, &moved.members)));
    assert!(world.objects.monitors.iter().all(|monitor| monitor.number == Some(30090)));
}

#[test]
fn an_address_that_does_not_come_keeps_no_other_one_from_being_released_or_used() {
    let mut world = World { lb_service: Some(lb_service()), ..World::default() };
    let one = wanted(&[(tcp(80), 30080)], &[1]);
    let allocation = |world: &mut World, address| {
        let marks = world.marks(ObjectKind::Allocation, None);
        world.objects.allocations.push(Allocation { tags: marks, address_pool: "p".into(), address });
    };
    allocation(&mut world, None);
    allocation(&mut world, Some(ip(5)));
    allocation(&mut world, Some(ip(6)));
    let mut steps = Vec::new();
    loop {
        let (objects, lb_service) = (world.objects.clone(), world.lb_service.clone());
        match step(&one, &objects, lb_service.as_ref()) {
            Some(Step::ReadAddress { .. }) => break,
            Some(step) => world.apply(&step, &one),
            None => panic!("the address is read last"),
        }
        steps = world.log.clone();
    }
    assert_eq!(steps, ["monitor", "pool", "server", "release"]);
    let addresses: Vec<_> = world.objects.allocations.iter().map(|allocation| allocation.address).collect();
    assert_eq!(addresses, [None, Some(ip(5))]);
}

mod addresses;
mod features;
mod golden;
mod properties;
