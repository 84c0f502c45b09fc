//! Pure: plans the next change of the load balancers of a Service. The plan depends only on the current state, so a
//! sync continues where an earlier sync or another process stopped.
//!
//! Order of the steps: change of existing objects; creation of group and persistence profile; for each port, creation
//! of monitor, pool, address, load balancer service, virtual server; deletion of unused virtual servers, pools,
//! monitors, persistence profiles, groups; release of unused addresses; repair of addresses of virtual servers that
//! another client has edited or released. Both load balancers of a Service with two families are changed before
//! anything is created for either.
//!
//! Never compared: names, descriptions, the enabled flag, algorithms, limits, weights and states of members, and
//! unknown fields.
//!
//! Features that the Go program ignores (source ranges, affinity, health checks other than TCP, SNAT) are compared only
//! for virtual servers of this program or with full adoption. For other virtual servers, [`ignored()`] lists the
//! settings that are not applied.
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

pub use addresses::{AllocationRequest, address, edited, is_doubtful, shown_address, unreserved};
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

/// The desired state of one load balancer of a Service. A Service with two families has two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredLoadBalancer {
    /// Its ports, in the order of the Service; empty for a load balancer that is to be deleted.
    pub ports: Vec<WantedPort>,
    /// The Nodes behind it.
    pub members: Vec<Member>,
    /// The addresses that the Service reports.
    pub ingress: Vec<IpAddr>,
    /// The UID of the cluster, if known.
    pub cluster_uid: Option<String>,
    /// The UID of the Service; `None` once it is deleted.
    pub service_uid: Option<String>,
    /// Requested features besides the ports.
    pub features: Features,
    /// The address that the Service reports for this load balancer, which is reserved in preference to others.
    pub reported: Option<IpAddr>,
    /// Whether an allocation with an unknown address may belong to this load balancer.
    pub has_unread: bool,
    /// For a deletion: whether an earlier process may have left a group or persistence profile without references.
    pub may_have_references: bool,
    /// Whether [`Self::features`] also apply to a load balancer that another program created.
    pub adopts_fully: bool,
}

/// The current state of one load balancer.
#[derive(Clone, Copy, Debug)]
pub struct CurrentState<'a> {
    /// The objects of the load balancer.
    pub ours: &'a ServiceResources,
    /// Ambiguous objects that name the Service, of any family.
    pub ambiguous: &'a ServiceResources,
    /// The load balancer service in use, if there is one.
    pub lb_service: Option<&'a LbService>,
    /// The layout, for ids and tags.
    pub layout: &'a ClusterLayout,
    /// Paths of groups and persistence profiles that this sync has read, written or deleted: if not in `ours`, they are
    /// missing or not ours. Also paths of allocations whose address this sync has read without result, and of virtual
    /// servers whose address it has tried to reserve.
    pub read_paths: &'a BTreeSet<Box<str>>,
    /// Addresses of allocations that virtual servers outside of `ours` and `held` use.
    pub addresses_in_use: &'a BTreeSet<IpAddr>,
}

impl CurrentState<'_> {
    /// Whether a virtual server of another owner uses the address of an allocation.
    pub fn is_used_elsewhere(&self, allocation: &Allocation) -> bool {
        allocation.address.is_some_and(|address| self.addresses_in_use.contains(&address))
    }

    /// Whether a virtual server of the Service has the address of an allocation, or may have it if it is unknown.
    pub fn has_server_on(&self, allocation: &Allocation) -> bool {
        let mut servers = self.ours.servers.iter().chain(&self.ambiguous.servers);
        servers.any(|server| allocation.address.is_none() || server.address == allocation.address)
    }
}

/// A port to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedPort {
    /// The port of the Service.
    pub port: Port,
    /// The node port.
    pub node_port: u16,
    /// The path of the application profile.
    pub profile: String,
}

/// One change. Paths are those of existing objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Creates the monitor of a port.
    CreateMonitor {
        /// The port.
        port: &'a WantedPort,
        /// Its health check.
        probe: Probe,
    },
    /// Changes the health check of a monitor within the same type.
    ChangeMonitor {
        /// The monitor.
        monitor: &'a Monitor,
        /// The port of the Service, for its tag.
        port: Port,
        /// The new health check.
        probe: Probe,
    },
    /// Creates the pool of a port.
    CreatePool {
        /// The port.
        port: &'a WantedPort,
        /// The path of its monitor.
        monitor: Option<&'a str>,
        /// Whether SNAT is disabled, so that Nodes see client addresses.
        is_snat_disabled: bool,
    },
    /// Sets members, monitor and SNAT of a pool.
    ChangePool {
        /// The pool.
        pool: &'a Pool,
        /// The port of the Service, for its tag.
        port: Port,
        /// The path of its monitor.
        monitor: Option<&'a str>,
        /// Whether SNAT is disabled; `None` keeps the setting.
        is_snat_disabled: Option<bool>,
    },
    /// Reserves an address for a load balancer that has none.
    Allocate {
        /// The address to reserve.
        allocation_request: AllocationRequest,
    },
    /// Reserves the address of a virtual server without an allocation: NSX may assign the address again otherwise.
    Reserve {
        /// The virtual server.
        server: &'a VirtualServer,
        /// Its address.
        address: IpAddr,
    },
    /// Restores the reserved address of a virtual server that another client has edited.
    SetAddress {
        /// The virtual server.
        server: &'a VirtualServer,
        /// The address.
        address: IpAddr,
    },
    /// Reads the address of an allocation.
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
        /// The path of the group that may use it; `None` admits every client.
        group: Option<&'a str>,
        /// The path of its persistence profile.
        persistence: Option<&'a str>,
    },
    /// Sets port, pool, node port, profile and references of a virtual server.
    ChangeServer {
        /// The virtual server.
        server: &'a VirtualServer,
        /// The port.
        port: &'a WantedPort,
        /// The path of its pool.
        pool: &'a str,
        /// Change of its group.
        group: Reference<'a>,
        /// Change of its persistence profile.
        persistence: Reference<'a>,
    },
    /// Reads a group or persistence profile.
    Read {
        /// The kind of the object.
        kind: ObjectKind,
        /// Its path.
        path: String,
    },
    /// Creates the group of source ranges.
    CreateGroup {
        /// The networks.
        ranges: &'a BTreeSet<IpNet>,
    },
    /// Changes the networks of a group.
    ChangeGroup {
        /// The group.
        group: &'a Group,
        /// The networks.
        ranges: &'a BTreeSet<IpNet>,
    },
    /// Creates the persistence profile.
    CreatePersistenceProfile {
        /// The idle timeout.
        timeout: Duration,
    },
    /// Changes the timeout of a persistence profile.
    ChangePersistenceProfile {
        /// The profile.
        profile: &'a PersistenceProfile,
        /// The idle timeout.
        timeout: Duration,
    },
    /// Tags an object with its Service and cluster.
    Tag {
        /// The object.
        tags: &'a OwnerTags,
        /// For a pool: the address of its virtual server, if only this tag will show the owner of the allocation once
        /// the virtual server is deleted.
        address: Option<IpAddr>,
    },
    /// Removes the address tag of a pool after an abandoned deletion.
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
    /// Reports that another virtual server occupies the address and port of a port to serve. Always the last step.
    PortConflict {
        /// The port.
        port: &'a WantedPort,
        /// The other virtual server.
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

/// Phases run in this order. A phase finishes for every load balancer of the Service before the next one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Changes come first, so that a port that cannot be created does not block Node updates of the other ports.
    Change,
    Create,
    Delete,
    /// Restores and reserves addresses that another client has edited or released. Runs late: NSX may refuse this.
    Address,
    Report,
}

const PHASES: [Phase; 5] = [Phase::Change, Phase::Create, Phase::Delete, Phase::Address, Phase::Report];

/// The next step, with the index of its load balancer; `None` when all have the desired state.
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
    // The address of the load balancer depends on the address of this allocation.
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
                |row: &PortState<'a>| row.conflict.map(|server| Step::PortConflict { port: row.port, server });
            rows.ports.iter().find_map(obstructed)
        }
    }
}

/// The next change of the existing objects of a port.
fn change<'a>(
    row: &PortState<'a>,
    references: &References<'a>,
    wanted: &DesiredLoadBalancer,
    known: &CurrentState<'a>,
) -> Option<Step<'a>> {
    let port = row.port.port;
    if let Some((monitor, probe)) = row.monitor.zip(row.probe)
        && (!monitor.asks(probe) || monitor.tags.port != Some(port))
    {
        return Some(Step::ChangeMonitor { monitor, port, probe });
    }
    change_of_pool(row, wanted, known).or_else(|| change_of_server(row, references, wanted, known))
}

fn change_of_pool<'a>(row: &PortState<'a>, wanted: &DesiredLoadBalancer, known: &CurrentState<'a>) -> Option<Step<'a>> {
    let (port, pool) = (row.port.port, row.pool?);
    let is_missing = row.probe.is_some() && row.monitor.is_none();
    // Until a monitor of another type exists, the pool keeps its monitor.
    let kept = || pool.monitors.iter().find_map(|path| known.ours.monitors.iter().find(|one| one.tags.path == *path));
    let monitor = if is_missing { kept() } else { row.monitor };
    // NSX may refuse all changes of a pool whose monitor does not exist, so the monitor is created first.
    if is_missing && monitor.is_none() && !pool.monitors.is_empty() {
        return None;
    }
    let monitor = monitor.map(|monitor| &*monitor.tags.path);
    let is_snat_disabled = Some(wanted.features.is_snat_disabled).filter(|_| row.is_compared);
    let change = Step::ChangePool { pool, port, monitor, is_snat_disabled };
    let is_asked = is_missing || pool.monitors.iter().map(AsRef::as_ref).eq(monitor);
    if !is_asked && !pool.monitors.is_empty() {
        return Some(mark(wanted, known).unwrap_or(change));
    }
    let is_translated = is_snat_disabled.is_none() || pool.is_snat_disabled == is_snat_disabled;
    let is_tagged = pool.tags.port == Some(port);
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
    // NSX refuses all changes of a virtual server with a missing reference, so the missing object is created first.
    let is_whole = !row.is_pool_missing && !references.are_missing(row);
    let server = row.server.filter(|_| row.conflict.is_none() && is_whole)?;
    let path = pool.map_or(&*server.pool, |pool| &*pool.tags.path);
    let is_moved = *server.pool != *path;
    let is_edited = server.number != Some(port.port.number) || server.tags.port != Some(port.port);
    let (group, persistence) = references.of(row, known);
    let is_referring = (group, persistence) == (Reference::Unchanged, Reference::Unchanged);
    let is_equal = server.node_port == Some(port.node_port) && *server.profile == *port.profile && is_referring;
    let change = Step::ChangeServer { server, port, pool: path, group, persistence };
    match is_moved && !server.pool.is_empty() {
        true => Some(mark(wanted, known).unwrap_or(change)),
        false => (is_moved || is_edited || !is_equal).then_some(change),
    }
}

/// Creates the next missing object of a port.
fn creation<'a>(
    row: &PortState<'a>,
    references: &References<'a>,
    wanted: &DesiredLoadBalancer,
    known: &CurrentState<'a>,
) -> Option<Step<'a>> {
    let PortState { port, server, pool, monitor, probe, conflict: obstacle, .. } = *row;
    if let Some(probe) = probe.filter(|_| monitor.is_none()) {
        return Some(Step::CreateMonitor { port, probe });
    }
    let Some(pool) = pool else {
        let monitor = monitor.map(|monitor| &*monitor.tags.path);
        return Some(Step::CreatePool { port, monitor, is_snat_disabled: wanted.features.is_snat_disabled });
    };
    if server.is_some() || obstacle.is_some() {
        return None;
    }
    let unread = unread(known).or_else(|| known.ours.allocations.iter().find(|one| one.address.is_none()));
    let (pool, group, persistence) = (&*pool.tags.path, references.group_path(), references.persistence_path());
    Some(match (address(wanted, known.ours), known.lb_service) {
        (Some(address), Some(lb_service)) => {
            Step::CreateServer { port, address, pool, lb_service: &lb_service.path, group, persistence }
        }
        (Some(_), None) => Step::CreateLbService,
        (None, _) => match unread {
            Some(allocation) => Step::ReadAddress { allocation },
            None => Step::Allocate { allocation_request: AllocationRequest::of(wanted) },
        },
    })
}

/// Deletes the next object that serves no port.
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
    // NSX does not delete a pool that a virtual server uses, so pools of ambiguous virtual servers are skipped.
    pools.extend(known.ambiguous.servers.iter().map(|server| &*server.pool));
    pools.extend(rows.all().filter_map(|row| row.pool).map(|pool| &*pool.tags.path));
    if let Some(pool) = ours.pools.iter().find(|pool| !pools.contains(&*pool.tags.path)) {
        return Some(Step::DeletePool(pool));
    }
    let mut monitors: BTreeSet<&str> = ours.pools.iter().flat_map(|pool| &pool.monitors).map(AsRef::as_ref).collect();
    monitors.extend(known.ambiguous.pools.iter().flat_map(|pool| &pool.monitors).map(AsRef::as_ref));
    monitors.extend(rows.all().filter_map(|row| row.monitor).map(|monitor| &*monitor.tags.path));
    if let Some(monitor) = ours.monitors.iter().find(|monitor| !monitors.contains(&*monitor.tags.path)) {
        return Some(Step::DeleteMonitor(monitor));
    }
    let unmark = || ours.pools.iter().find(|pool| pool.address.is_some()).map(|pool| Step::Untag { pool });
    references.surplus(known).or_else(|| surplus_address(wanted, known)).or_else(unmark)
}

fn surplus_address<'a>(wanted: &DesiredLoadBalancer, known: &CurrentState<'a>) -> Option<Step<'a>> {
    let (ours, address) = (known.ours, address(wanted, known.ours));
    if ours.allocations.len() < 2 {
        return None;
    }
    // An allocation with an unknown address may never get one, so it comes last.
    let is_read = |allocation: &&Allocation| allocation.address.is_some() && allocation.address != address;
    let is_free = |allocation: &&Allocation| {
        is_read(allocation) && !known.has_server_on(allocation) && !known.is_used_elsewhere(allocation)
    };
    let free = ours.allocations.iter().find(is_free);
    free.map(Step::ReleaseAddress).or_else(|| unread(known).map(|allocation| Step::ReadAddress { allocation }))
}

/// An allocation with an unknown address, except those that this sync has read without result.
fn unread<'a>(known: &CurrentState<'a>) -> Option<&'a Allocation> {
    let is_unread = |one: &&Allocation| one.address.is_none() && !known.read_paths.contains(&one.tags.path);
    known.ours.allocations.iter().find(is_unread)
}

/// The next step of the deletion of this load balancer; `None` when no object may be deleted any more. Allocations with
/// an unknown address, which may have none, are released unless a virtual server of the Service is left.
fn next_deletion<'a>(wanted: &DesiredLoadBalancer, known: &CurrentState<'a>) -> Option<Step<'a>> {
    let ours = known.ours;
    // Pools and monitors are tagged first: without the virtual servers, nothing else may show that they are ours.
    let tags = || mark_with_address(wanted, known).or_else(|| mark(wanted, known));
    let marks = if ours.servers.is_empty() { None } else { tags() };
    let is_free = |allocation: &&Allocation| !known.has_server_on(allocation) && !known.is_used_elsewhere(allocation);
    // Released before the pools are deleted, because only the tag of a pool may show that the allocation is ours.
    let is_shown = |allocation: &&Allocation| is_free(allocation) && has_tagged_pool(allocation, known);
    let read = || references::read_for_deletion(wanted, known);
    let read_before = if ours.servers.is_empty() { None } else { read() };
    // NSX does not delete a pool that a virtual server uses, so pools of ambiguous virtual servers are skipped.
    let led_to: BTreeSet<&str> = known.ambiguous.servers.iter().map(|server| &*server.pool).collect();
    let pool = || ours.pools.iter().find(|pool| !led_to.contains(&*pool.tags.path));
    let pools = || ours.pools.iter().chain(&known.ambiguous.pools);
    let is_probing = |monitor: &Monitor| pools().any(|pool| pool.monitors.contains(&monitor.tags.path));
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

/// Tags a pool or monitor that only a virtual server shows to be ours, before the virtual server is deleted. Objects of
/// another program get the tags of all known UIDs: the next process may know only one of the UIDs.
fn mark<'a>(wanted: &DesiredLoadBalancer, known: &CurrentState<'a>) -> Option<Step<'a>> {
    // A tag that does not fit on the object does not count as missing.
    let fits = |scope| known.layout.has_capacity(ObjectKind::Pool, scope);
    let cluster_uid = &wanted.cluster_uid.clone().filter(|_| fits(CLUSTER_UID));
    let service_uid = &wanted.service_uid.clone().filter(|_| fits(SERVICE_UID));
    let lacks = |uid: &Option<String>, tagged: &Option<Box<str>>| uid.is_some() && uid.as_deref() != tagged.as_deref();
    let is_unmarked = |marks: &&OwnerTags| match has_own_form(&marks.id) {
        // The id shows the owner, too, so one of the tags is enough.
        true => !is_tagged(marks, wanted),
        false => lacks(cluster_uid, &marks.cluster_uid) || lacks(service_uid, &marks.service_uid),
    };
    let of_pools = known.ours.pools.iter().map(|pool| &pool.tags);
    let all = of_pools.chain(known.ours.monitors.iter().map(|monitor| &monitor.tags));
    let has_uid = cluster_uid.is_some() || service_uid.is_some();
    all.filter(|_| has_uid).find(is_unmarked).map(|marks| Step::Tag { tags: marks, address: None })
}

/// Tags a pool with the address of an allocation that only a virtual server shows to be ours. An allocation cannot be
/// tagged, and the status of a Service whose type changed is empty.
fn mark_with_address<'a>(wanted: &DesiredLoadBalancer, known: &CurrentState<'a>) -> Option<Step<'a>> {
    let ours = known.ours;
    let is_reported = |one: &Allocation| one.address.is_some_and(|address| wanted.ingress.contains(&address));
    let has_own_id = |OwnerTags { id, secondary: second, .. }: &OwnerTags| {
        let uid = wanted.service_uid.as_deref();
        uid.is_some_and(|uid| known.layout.has_id(*second, ObjectKind::Allocation, uid, None, id))
    };
    let is_shown = |one: &Allocation| {
        has_own_id(&one.tags) || is_tagged(&one.tags, wanted) || is_reported(one) || has_tagged_pool(one, known)
    };
    let has_room = known.layout.has_capacity(ObjectKind::Pool, ADDRESS);
    let address = ours.allocations.iter().filter(|one| has_room && !is_shown(one)).find_map(|one| one.address)?;
    let pool = ours.pools.iter().find(|pool| pool.address.is_none())?;
    Some(Step::Tag { tags: &pool.tags, address: Some(address) })
}

/// Whether a pool has the address of this allocation in its tag.
fn has_tagged_pool(allocation: &Allocation, known: &CurrentState<'_>) -> bool {
    allocation.address.is_some() && known.ours.pools.iter().any(|pool| pool.address == allocation.address)
}

/// Whether the UID tags of an object match this cluster or Service.
fn is_tagged(tags: &OwnerTags, wanted: &DesiredLoadBalancer) -> bool {
    let is_of = |uid: &Option<String>, tagged: &Option<Box<str>>| uid.is_some() && uid.as_deref() == tagged.as_deref();
    is_of(&wanted.cluster_uid, &tags.cluster_uid) || is_of(&wanted.service_uid, &tags.service_uid)
}

/// The tags to add with any write: those of [`Step::Tag`] for a pool or monitor of another program, otherwise none.
pub fn tags_at_write(tags: &OwnerTags, kind: ObjectKind, owner: &Owner<'_>, layout: &ClusterLayout) -> ScopedTags {
    match kind {
        ObjectKind::Pool | ObjectKind::Monitor if !has_own_form(&tags.id) => tags_of(owner, layout, kind, None),
        _ => ScopedTags::default(),
    }
}

/// The UID and address tags that [`Step::Tag`] writes, as far as an object of this kind has room for them.
pub fn tags_of(owner: &Owner<'_>, layout: &ClusterLayout, kind: ObjectKind, address: Option<IpAddr>) -> ScopedTags {
    let service_uid = Some(owner.uid.to_owned()).filter(|uid| !uid.is_empty());
    let address = address.map(|address| address.to_string());
    let all = [(SERVICE_UID, service_uid), (CLUSTER_UID, layout.cluster_uid.clone()), (ADDRESS, address)];
    let fitting = all.into_iter().filter(|(scope, _)| layout.has_capacity(kind, scope));
    fitting.fold(ScopedTags::default(), |tags, (scope, value)| match value {
        Some(value) => tags.with(scope, value),
        None => tags,
    })
}

#[cfg(test)]
mod tests;
