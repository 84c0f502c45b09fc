//! Pure: the next change of the load balancers of a Service. A change is planned from what is there, so that a sync goes on
//! where an earlier one, or another process, ended.
//!
//! Order: changes; group and persistence profile; for each port monitor, pool, address, load balancer service, virtual server;
//! then what no longer serves a port: virtual servers, pools, monitors, persistence profiles, groups; then addresses that no
//! virtual server has; then virtual servers whose address another client has edited, and addresses that nothing reserves. A
//! Service with two families has two load balancers, and both are changed before anything is created for either.
//!
//! Never compared: names, descriptions, whether something is enabled, algorithms, limits, weights and states of
//! members, members of objects that this program does not know.
//!
//! What the Go program ignores (source ranges, affinity, health checks other than TCP connections, SNAT) is compared only where this program
//! made the virtual server, or adopts fully; see [`ignored()`] for the others.
//!
//! Mirrors `Process` of `pkg/cloudprovider/vsphere/loadbalancer/state.go`.

mod addresses;
mod differences;
mod edits;
mod names;
mod port_states;
mod references;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

pub use addresses::{Wish, address, edited, is_doubtful, shown_address, unreserved};
pub use differences::ignored;
use port_states::{PortState, PortStates};
pub use references::Reference;
use references::References;

use super::layout::{ADDRESS, ClusterLayout, ObjectKind, Owner, Port, Probe, SERVICE_UID, has_own_form};
use super::members::{self, Member};
use super::objects::{
    Allocation, Group, LbService, Monitor, OwnerTags, PersistenceProfile, Pool, ServiceResources, VirtualServer,
};
use super::service_request::Features;
use crate::providers::vsphere::nsx::ownership::CLUSTER_UID;
use crate::providers::vsphere::nsx::tags::ScopedTags;

/// A load balancer that a Service is to have, or is no longer to have. A Service with two families has two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredLoadBalancer {
    /// Its ports, in the order of the Service; none if it is to be deleted.
    pub ports: Vec<WantedPort>,
    /// The nodes behind it.
    pub members: Vec<Member>,
    /// The addresses that the Service reports.
    pub ingress: Vec<IpAddr>,
    /// What identifies the cluster, if that is known.
    pub cluster_uid: Option<String>,
    /// What identifies the Service; none once it is gone.
    pub service_uid: Option<String>,
    /// What it asks for beside its ports.
    pub features: Features,
    /// The address that the Service reports for it, which is rather to be reserved than another one.
    pub reported: Option<IpAddr>,
    /// Whether an allocation may be its, and shows that only by its address, which was not read.
    pub has_unread: bool,
    /// For a deletion: whether a former process may have left a group or a persistence profile that nothing leads to.
    pub may_have_references: bool,
    /// Whether a load balancer that another program made follows [`Self::features`], too.
    pub adopts_fully: bool,
}

/// What is there.
#[derive(Clone, Copy, Debug)]
pub struct CurrentState<'a> {
    /// The objects of the load balancer.
    pub ours: &'a ServiceResources,
    /// Objects that name the Service, and that nothing shows to be of this cluster; those of other families, too.
    pub held: &'a ServiceResources,
    /// The load balancer service in use, if there is one.
    pub lb_service: Option<&'a LbService>,
    /// What gives objects their ids and tags.
    pub layout: &'a ClusterLayout,
    /// The paths of groups and persistence profiles that this sync has read, written or deleted: what is not among `ours` is
    /// not there, or is not ours. And of allocations that it has read in vain, and of virtual servers whose address it has tried
    /// to reserve.
    pub read: &'a BTreeSet<Box<str>>,
    /// Of the addresses of allocations, those that virtual servers have which are neither `ours` nor `held`.
    pub elsewhere: &'a BTreeSet<IpAddr>,
}

impl CurrentState<'_> {
    /// Whether the address of an allocation is in use by a virtual server of another owner.
    pub fn is_used_elsewhere(&self, allocation: &Allocation) -> bool {
        allocation.address.is_some_and(|address| self.elsewhere.contains(&address))
    }

    /// Whether a virtual server has the address of an allocation; of one that was not read, whether it may.
    pub fn has_server_on(&self, allocation: &Allocation) -> bool {
        let mut servers = self.ours.servers.iter().chain(&self.held.servers);
        servers.any(|server| allocation.address.is_none() || server.address == allocation.address)
    }
}

/// A port that is to be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedPort {
    /// The port of the Service.
    pub port: Port,
    /// The port of the nodes.
    pub node_port: u16,
    /// The path of the application profile.
    pub profile: String,
}

/// One change. Paths are of objects that are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Creates the monitor of a port.
    CreateMonitor {
        /// The port.
        port: &'a WantedPort,
        /// What it asks nodes for.
        probe: Probe,
    },
    /// Lets a monitor ask nodes for something else of the same type.
    ChangeMonitor {
        /// The monitor.
        monitor: &'a Monitor,
        /// The port of the Service, for its tag.
        port: Port,
        /// What it is to ask nodes for.
        probe: Probe,
    },
    /// Creates the pool of a port.
    CreatePool {
        /// The port.
        port: &'a WantedPort,
        /// The path of its monitor.
        monitor: Option<&'a str>,
        /// Whether nodes see the addresses of clients.
        is_snat_disabled: bool,
    },
    /// Gives a pool its members and its monitor.
    ChangePool {
        /// The pool.
        pool: &'a Pool,
        /// The port of the Service, for its tag.
        port: Port,
        /// The path of its monitor.
        monitor: Option<&'a str>,
        /// Whether nodes see the addresses of clients; none leaves it as it is.
        is_snat_disabled: Option<bool>,
    },
    /// Reserves an address for a load balancer that has none.
    Allocate {
        /// Which one.
        wish: Wish,
    },
    /// Reserves the address that a virtual server has: otherwise NSX may give it to another one.
    Reserve {
        /// The virtual server.
        server: &'a VirtualServer,
        /// Its address.
        address: IpAddr,
    },
    /// Gives a virtual server the address that is reserved for it: another client has edited it.
    SetAddress {
        /// The virtual server.
        server: &'a VirtualServer,
        /// The address.
        address: IpAddr,
    },
    /// Reads which address is reserved.
    ReadAddress {
        /// The allocation.
        allocation: &'a Allocation,
    },
    /// Creates the load balancer service.
    CreateLbService,
    /// Creates the virtual server of a port.
    CreateServer {
        /// The port.
        port: &'a WantedPort,
        /// The address.
        address: IpAddr,
        /// The path of its pool.
        pool: &'a str,
        /// The path of the load balancer service.
        lb_service: &'a str,
        /// The path of the group of addresses that may use it; none lets everybody.
        group: Option<&'a str>,
        /// The path of its persistence profile.
        persistence: Option<&'a str>,
    },
    /// Gives a virtual server its port, its pool, the port of the nodes, its profile and what it refers to.
    ChangeServer {
        /// The virtual server.
        server: &'a VirtualServer,
        /// The port.
        port: &'a WantedPort,
        /// The path of its pool.
        pool: &'a str,
        /// Its group of addresses.
        group: Reference<'a>,
        /// Its persistence profile.
        persistence: Reference<'a>,
    },
    /// Reads a group or persistence profile.
    Read {
        /// Which of both.
        kind: ObjectKind,
        /// Its path.
        path: String,
    },
    /// Creates the group of addresses that may use the load balancer.
    CreateGroup {
        /// The networks.
        ranges: &'a BTreeSet<IpNet>,
    },
    /// Gives a group other addresses.
    ChangeGroup {
        /// The group.
        group: &'a Group,
        /// The networks.
        ranges: &'a BTreeSet<IpNet>,
    },
    /// Creates the persistence profile of the load balancer.
    CreatePersistenceProfile {
        /// How long a client keeps its node.
        timeout: Duration,
    },
    /// Gives a persistence profile another time.
    ChangePersistenceProfile {
        /// The profile.
        profile: &'a PersistenceProfile,
        /// How long a client keeps its node.
        timeout: Duration,
    },
    /// Tags an object with the Service and the cluster that it is of.
    Tag {
        /// The object.
        marks: &'a OwnerTags,
        /// The address of the virtual server that a pool is of, if nothing else will show whose the allocation is.
        address: Option<IpAddr>,
    },
    /// Removes the address that a pool was tagged with before a deletion that was given up.
    Untag {
        /// The pool.
        pool: &'a Pool,
    },
    /// Deletes a virtual server.
    DeleteServer(&'a VirtualServer),
    /// Deletes a pool.
    DeletePool(&'a Pool),
    /// Deletes a monitor.
    DeleteMonitor(&'a Monitor),
    /// Deletes a persistence profile.
    DeletePersistenceProfile(&'a PersistenceProfile),
    /// Deletes a group.
    DeleteGroup(&'a Group),
    /// Releases an address.
    ReleaseAddress(&'a Allocation),
    /// Nothing more can be done: NSX has another virtual server where the one of a port is to be. Always the last step.
    PortConflict {
        /// The port.
        port: &'a WantedPort,
        /// What is in the way.
        server: &'a VirtualServer,
    },
}

impl Step<'_> {
    /// Whether it creates an object.
    pub fn is_creation(&self) -> bool {
        use Step::{
            Allocate, CreateGroup, CreateLbService, CreateMonitor, CreatePersistenceProfile, CreatePool, CreateServer,
        };
        matches!(
            self,
            CreateMonitor { .. }
                | CreatePool { .. }
                | CreateGroup { .. }
                | CreatePersistenceProfile { .. }
                | Allocate { .. }
                | CreateLbService
                | CreateServer { .. }
        )
    }

    /// Whether it deletes an object.
    pub fn is_deletion(&self) -> bool {
        use Step::{DeleteGroup, DeleteMonitor, DeletePersistenceProfile, DeletePool, DeleteServer, ReleaseAddress};
        matches!(
            self,
            DeleteServer(_)
                | DeletePool(_)
                | DeleteMonitor(_)
                | DeletePersistenceProfile(_)
                | DeleteGroup(_)
                | ReleaseAddress(_)
        )
    }
}

/// What is done for all load balancers of a Service before anything of the next phase is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// What is there is changed before anything is created, so that a port that cannot be created keeps no other one from
    /// following its nodes.
    Change,
    Create,
    Delete,
    /// Addresses that another client has edited or released are set back and reserved, after all that NSX may accept anyway.
    Address,
    /// What is in the way is reported.
    Report,
}

const PHASES: [Phase; 5] = [Phase::Change, Phase::Create, Phase::Delete, Phase::Address, Phase::Report];

/// The next step towards the load balancers of a Service, and for which of them; `None` when all are as they are to be.
pub fn next<'a>(all: &[(&'a DesiredLoadBalancer, CurrentState<'a>)]) -> Option<(usize, Step<'a>)> {
    let of = |phase, (at, (wanted, known)): (usize, &(&'a DesiredLoadBalancer, CurrentState<'a>))| {
        next_of(phase, wanted, known).map(|step| (at, step))
    };
    PHASES.into_iter().find_map(|phase| all.iter().enumerate().find_map(|one| of(phase, one)))
}

fn next_of<'a>(phase: Phase, wanted: &'a DesiredLoadBalancer, known: &CurrentState<'a>) -> Option<Step<'a>> {
    if wanted.ports.is_empty() {
        return next_deletion(wanted, known).filter(|_| phase == Phase::Delete);
    }
    // Which address it has follows from it.
    if let Some(allocation) = unread(known).filter(|_| is_doubtful(&wanted.ingress, known.ours)) {
        return Some(Step::ReadAddress { allocation });
    }
    let address = address(wanted, known.ours);
    let rows = PortStates::find(wanted, known, address);
    let references = References::find(&rows, wanted, known);
    match phase {
        Phase::Change => {
            let change = rows.all().find_map(|row| change(row, &references, wanted, known));
            change.or_else(|| references.change(&rows, wanted, known))
        }
        Phase::Create => {
            let creation = || rows.ports.iter().find_map(|row| creation(row, &references, wanted, known));
            references.creation(wanted).or_else(creation)
        }
        Phase::Delete => surplus(&rows, &references, wanted, known),
        Phase::Address => {
            let unreserved = || unreserved(wanted, known).map(|(server, address)| Step::Reserve { server, address });
            addresses::set_back(&rows, wanted, known, address?).or_else(unreserved)
        }
        Phase::Report => {
            let obstructed =
                |row: &PortState<'a>| row.obstacle.map(|server| Step::PortConflict { port: row.port, server });
            rows.ports.iter().find_map(obstructed)
        }
    }
}

/// The next change of what is there for a port.
fn change<'a>(
    row: &PortState<'a>,
    references: &References<'a>,
    wanted: &DesiredLoadBalancer,
    known: &CurrentState<'a>,
) -> Option<Step<'a>> {
    let port = row.port.port;
    if let Some((monitor, probe)) = row.monitor.zip(row.probe)
        && (!monitor.asks(probe) || monitor.marks.port != Some(port))
    {
        return Some(Step::ChangeMonitor { monitor, port, probe });
    }
    change_of_pool(row, wanted, known).or_else(|| change_of_server(row, references, wanted, known))
}

fn change_of_pool<'a>(row: &PortState<'a>, wanted: &DesiredLoadBalancer, known: &CurrentState<'a>) -> Option<Step<'a>> {
    let (port, pool) = (row.port.port, row.pool?);
    let is_missing = row.probe.is_some() && row.monitor.is_none();
    // Until a monitor of another type is created, the pool keeps the one that it has.
    let kept = || pool.monitors.iter().find_map(|path| known.ours.monitors.iter().find(|one| one.marks.path == *path));
    let monitor = if is_missing { kept() } else { row.monitor };
    // NSX may refuse each change of a pool whose monitor is gone: the monitor is created first.
    if is_missing && monitor.is_none() && !pool.monitors.is_empty() {
        return None;
    }
    let monitor = monitor.map(|monitor| &*monitor.marks.path);
    let is_snat_disabled = Some(wanted.features.is_snat_disabled).filter(|_| row.is_compared);
    let change = Step::ChangePool { pool, port, monitor, is_snat_disabled };
    let is_asked = is_missing || pool.monitors.iter().map(AsRef::as_ref).eq(monitor);
    if !is_asked && !pool.monitors.is_empty() {
        return Some(mark(wanted, known).unwrap_or(change));
    }
    let is_translated = is_snat_disabled.is_none() || pool.is_snat_disabled == is_snat_disabled;
    let is_tagged = pool.marks.port == Some(port);
    let is_equal = members::are_equal(&pool.members, &wanted.members) && is_tagged && is_translated;
    (!is_asked || !is_equal).then_some(change)
}

fn change_of_server<'a>(
    row: &PortState<'a>,
    references: &References<'a>,
    wanted: &DesiredLoadBalancer,
    known: &CurrentState<'a>,
) -> Option<Step<'a>> {
    let PortState { port, pool, .. } = *row;
    // NSX refuses each change of a virtual server that refers to what is gone: that is created first.
    let is_whole = !row.lacks_pool && !references.are_missing(row);
    let server = row.server.filter(|_| row.obstacle.is_none() && is_whole)?;
    let path = pool.map_or(&*server.pool, |pool| &*pool.marks.path);
    let is_moved = *server.pool != *path;
    let is_edited = server.number != Some(port.port.number) || server.marks.port != Some(port.port);
    let (group, persistence) = references.of(row, known);
    let is_referring = (group, persistence) == (Reference::Unchanged, Reference::Unchanged);
    let is_equal = server.node_port == Some(port.node_port) && *server.profile == *port.profile && is_referring;
    let change = Step::ChangeServer { server, port, pool: path, group, persistence };
    match is_moved && !server.pool.is_empty() {
        true => Some(mark(wanted, known).unwrap_or(change)),
        false => (is_moved || is_edited || !is_equal).then_some(change),
    }
}

/// The next object that a port lacks.
fn creation<'a>(
    row: &PortState<'a>,
    references: &References<'a>,
    wanted: &DesiredLoadBalancer,
    known: &CurrentState<'a>,
) -> Option<Step<'a>> {
    let PortState { port, server, pool, monitor, probe, obstacle, .. } = *row;
    if let Some(probe) = probe.filter(|_| monitor.is_none()) {
        return Some(Step::CreateMonitor { port, probe });
    }
    let Some(pool) = pool else {
        let monitor = monitor.map(|monitor| &*monitor.marks.path);
        return Some(Step::CreatePool { port, monitor, is_snat_disabled: wanted.features.is_snat_disabled });
    };
    if server.is_some() || obstacle.is_some() {
        return None;
    }
    let unread = unread(known).or_else(|| known.ours.allocations.iter().find(|one| one.address.is_none()));
    let (pool, group, persistence) = (&*pool.marks.path, references.group_path(), references.persistence_path());
    Some(match (address(wanted, known.ours), known.lb_service) {
        (Some(address), Some(lb_service)) => {
            Step::CreateServer { port, address, pool, lb_service: &lb_service.path, group, persistence }
        }
        (Some(_), None) => Step::CreateLbService,
        (None, _) => match unread {
            Some(allocation) => Step::ReadAddress { allocation },
            None => Step::Allocate { wish: Wish::of(wanted) },
        },
    })
}

/// The next of what serves no port.
fn surplus<'a>(
    rows: &PortStates<'a>,
    references: &References<'a>,
    wanted: &DesiredLoadBalancer,
    known: &CurrentState<'a>,
) -> Option<Step<'a>> {
    let ours = known.ours;
    if let Some(server) = ours.servers.iter().find(|server| !rows.have_server(server)) {
        return Some(mark(wanted, known).unwrap_or(Step::DeleteServer(server)));
    }
    let mut pools: BTreeSet<&str> = ours.servers.iter().map(|server| &*server.pool).collect();
    // NSX keeps what others use.
    pools.extend(known.held.servers.iter().map(|server| &*server.pool));
    pools.extend(rows.all().filter_map(|row| row.pool).map(|pool| &*pool.marks.path));
    if let Some(pool) = ours.pools.iter().find(|pool| !pools.contains(&*pool.marks.path)) {
        return Some(Step::DeletePool(pool));
    }
    let mut monitors: BTreeSet<&str> = ours.pools.iter().flat_map(|pool| &pool.monitors).map(AsRef::as_ref).collect();
    monitors.extend(known.held.pools.iter().flat_map(|pool| &pool.monitors).map(AsRef::as_ref));
    monitors.extend(rows.all().filter_map(|row| row.monitor).map(|monitor| &*monitor.marks.path));
    if let Some(monitor) = ours.monitors.iter().find(|monitor| !monitors.contains(&*monitor.marks.path)) {
        return Some(Step::DeleteMonitor(monitor));
    }
    let unmark = || ours.pools.iter().find(|pool| pool.address.is_some()).map(|pool| Step::Untag { pool });
    references.surplus(known).or_else(|| surplus_address(wanted, known)).or_else(unmark)
}

/// The next address beside the one in use.
fn surplus_address<'a>(wanted: &DesiredLoadBalancer, known: &CurrentState<'a>) -> Option<Step<'a>> {
    let (ours, address) = (known.ours, address(wanted, known.ours));
    if ours.allocations.len() < 2 {
        return None;
    }
    // One whose address is not known yet may never get one: it comes last.
    let is_read = |allocation: &&Allocation| allocation.address.is_some() && allocation.address != address;
    let is_free = |allocation: &&Allocation| {
        is_read(allocation) && !known.has_server_on(allocation) && !known.is_used_elsewhere(allocation)
    };
    let free = ours.allocations.iter().find(is_free);
    free.map(Step::ReleaseAddress).or_else(|| unread(known).map(|allocation| Step::ReadAddress { allocation }))
}

/// An allocation whose address is not known, and that this sync has not read in vain.
fn unread<'a>(known: &CurrentState<'a>) -> Option<&'a Allocation> {
    let is_unread = |one: &&Allocation| one.address.is_none() && !known.read.contains(&one.marks.path);
    known.ours.allocations.iter().find(is_unread)
}

/// The next step towards a Service without this load balancer, or `None` when nothing is left that may be deleted. An allocation
/// whose address was never read is released, too, unless a virtual server of the Service is left: it may have none.
fn next_deletion<'a>(wanted: &DesiredLoadBalancer, known: &CurrentState<'a>) -> Option<Step<'a>> {
    let ours = known.ours;
    // While a virtual server is there, it shows whose pools and monitors are.
    let marks = || mark_with_address(wanted, known).or_else(|| mark(wanted, known));
    let marks = if ours.servers.is_empty() { None } else { marks() };
    let is_free = |allocation: &&Allocation| !known.has_server_on(allocation) && !known.is_used_elsewhere(allocation);
    // The pool shows whose it is.
    let is_shown = |allocation: &&Allocation| is_free(allocation) && has_tagged_pool(allocation, known);
    let read = || references::read_for_deletion(wanted, known);
    let read_before = if ours.servers.is_empty() { None } else { read() };
    // NSX keeps what others use.
    let led_to: BTreeSet<&str> = known.held.servers.iter().map(|server| &*server.pool).collect();
    let pool = || ours.pools.iter().find(|pool| !led_to.contains(&*pool.marks.path));
    let pools = || ours.pools.iter().chain(&known.held.pools);
    let is_probing = |monitor: &Monitor| pools().any(|pool| pool.monitors.contains(&monitor.marks.path));
    marks
        .or(read_before)
        .or_else(|| ours.servers.first().map(Step::DeleteServer))
        .or_else(|| ours.allocations.iter().find(is_shown).map(Step::ReleaseAddress))
        .or_else(|| pool().map(Step::DeletePool))
        .or_else(|| ours.monitors.iter().find(|monitor| !is_probing(monitor)).map(Step::DeleteMonitor))
        .or_else(|| references::deletion(known, None, None))
        .or_else(read)
        .or_else(|| ours.allocations.iter().find(is_free).map(Step::ReleaseAddress))
}

/// Marks a pool or monitor that only a virtual server shows to be ours: when that is gone, nothing would. One of another
/// program gets all marks that are known: the next process may not know the same ones.
fn mark<'a>(wanted: &DesiredLoadBalancer, known: &CurrentState<'a>) -> Option<Step<'a>> {
    // What an object has no room for is not missing.
    let fits = |scope| known.layout.has_room(ObjectKind::Pool, scope);
    let cluster_uid = &wanted.cluster_uid.clone().filter(|_| fits(CLUSTER_UID));
    let service_uid = &wanted.service_uid.clone().filter(|_| fits(SERVICE_UID));
    let lacks = |uid: &Option<String>, tagged: &Option<Box<str>>| uid.is_some() && uid.as_deref() != tagged.as_deref();
    let is_unmarked = |marks: &&OwnerTags| match has_own_form(&marks.id) {
        // The id shows whose it is, too.
        true => !is_tagged(marks, wanted),
        false => lacks(cluster_uid, &marks.cluster_uid) || lacks(service_uid, &marks.service_uid),
    };
    let of_pools = known.ours.pools.iter().map(|pool| &pool.marks);
    let all = of_pools.chain(known.ours.monitors.iter().map(|monitor| &monitor.marks));
    let has_uid = cluster_uid.is_some() || service_uid.is_some();
    all.filter(|_| has_uid).find(is_unmarked).map(|marks| Step::Tag { marks, address: None })
}

/// Marks a pool with the address of an allocation that only a virtual server shows to be ours. An allocation cannot be tagged,
/// and the status of a Service whose type changed is empty.
fn mark_with_address<'a>(wanted: &DesiredLoadBalancer, known: &CurrentState<'a>) -> Option<Step<'a>> {
    let ours = known.ours;
    let is_reported = |one: &Allocation| one.address.is_some_and(|address| wanted.ingress.contains(&address));
    let has_own_id = |OwnerTags { id, second, .. }: &OwnerTags| {
        let uid = wanted.service_uid.as_deref();
        uid.is_some_and(|uid| known.layout.has_id(*second, ObjectKind::Allocation, uid, None, id))
    };
    let is_shown = |one: &Allocation| {
        has_own_id(&one.marks) || is_tagged(&one.marks, wanted) || is_reported(one) || has_tagged_pool(one, known)
    };
    let has_room = known.layout.has_room(ObjectKind::Pool, ADDRESS);
    let address = ours.allocations.iter().filter(|one| has_room && !is_shown(one)).find_map(|one| one.address)?;
    let pool = ours.pools.iter().find(|pool| pool.address.is_none())?;
    Some(Step::Tag { marks: &pool.marks, address: Some(address) })
}

/// Whether the tag of a pool gives the address of an allocation.
fn has_tagged_pool(allocation: &Allocation, known: &CurrentState<'_>) -> bool {
    allocation.address.is_some() && known.ours.pools.iter().any(|pool| pool.address == allocation.address)
}

/// Whether the tags of an object give this cluster or this Service.
fn is_tagged(marks: &OwnerTags, wanted: &DesiredLoadBalancer) -> bool {
    let is_of = |uid: &Option<String>, tagged: &Option<Box<str>>| uid.is_some() && uid.as_deref() == tagged.as_deref();
    is_of(&wanted.cluster_uid, &marks.cluster_uid) || is_of(&wanted.service_uid, &marks.service_uid)
}

/// The tags that an object gets with any write: those of [`Step::Tag`] if it is a pool or monitor of another program.
pub fn marks_at_write(marks: &OwnerTags, kind: ObjectKind, owner: &Owner<'_>, layout: &ClusterLayout) -> ScopedTags {
    match kind {
        ObjectKind::Pool | ObjectKind::Monitor if !has_own_form(&marks.id) => marks_of(owner, layout, kind, None),
        _ => ScopedTags::default(),
    }
}

/// The tags of [`Step::Tag`] that an object of this kind has room for.
pub fn marks_of(owner: &Owner<'_>, layout: &ClusterLayout, kind: ObjectKind, address: Option<IpAddr>) -> ScopedTags {
    let service_uid = Some(owner.uid.to_owned()).filter(|uid| !uid.is_empty());
    let address = address.map(|address| address.to_string());
    let all = [(SERVICE_UID, service_uid), (CLUSTER_UID, layout.cluster_uid.clone()), (ADDRESS, address)];
    let fitting = all.into_iter().filter(|(scope, _)| layout.has_room(kind, scope));
    fitting.fold(ScopedTags::default(), |tags, (scope, value)| match value {
        Some(value) => tags.with(scope, value),
        None => tags,
    })
}

#[cfg(test)]
mod tests;
