//! Pure: plans the next change of the load balancers of a Service. The plan depends only on the current state, so a
//! sync continues where an earlier sync or another process stopped.
//!
//! Order of the steps:
//! 1. Change of existing objects.
//! 2. Creation of the group and the persistence profile; then, for each port, of monitor, pool, address, load balancer
//!    service and virtual server.
//! 3. Deletion of unused virtual servers, pools, monitors, persistence profiles and groups; release of unused
//!    addresses.
//! 4. Repair of addresses of virtual servers that another client has edited or released.
//! 5. Report of ports whose address and port another virtual server occupies.
//!
//! For a Service with two families, both load balancers finish a phase before the next phase starts.
//!
//! Never compared: names, descriptions, enabled flag, algorithms, limits, weights and member states, unknown fields.
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

/// Desired state of one load balancer of a Service. A Service with two families has two load balancers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredLoadBalancer {
    /// The ports, in the order of the Service; empty for the deletion of the load balancer.
    pub ports: Vec<WantedPort>,
    /// The Nodes that receive the traffic.
    pub members: Vec<Member>,
    /// The addresses that the Service reports.
    pub ingress: Vec<IpAddr>,
    /// The UID of the cluster, if known.
    pub cluster_uid: Option<String>,
    /// The UID of the Service; `None` if the Service is deleted.
    pub service_uid: Option<String>,
    /// The requested features, except the ports.
    pub features: Features,
    /// The address that the Service reports for this load balancer. A reservation prefers this address.
    pub reported: Option<IpAddr>,
    /// Whether an allocation with an unknown address may belong to this load balancer.
    pub has_unread: bool,
    /// Whether an earlier process may have left a group or persistence profile without references. Used for deletions.
    pub may_have_references: bool,
    /// Whether [`Self::features`] also apply to a load balancer that another program created.
    pub adopts_fully: bool,
}

/// Current state of one load balancer.
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
    /// Paths that this sync does not read again: groups and persistence profiles that it has read, written or deleted;
    /// allocations without an address; virtual servers whose address it tried to reserve. A group or profile in this
    /// set that is not in `ours` does not exist or is not owned by this cluster.
    pub read_paths: &'a BTreeSet<Box<str>>,
    /// Addresses of allocations that virtual servers outside of `ours` and `ambiguous` use.
    pub addresses_in_use: &'a BTreeSet<IpAddr>,
}

impl CurrentState<'_> {
    /// Whether a virtual server of another owner uses the address of an allocation.
    pub fn is_used_elsewhere(&self, allocation: &Allocation) -> bool {
        allocation.address.is_some_and(|address| self.addresses_in_use.contains(&address))
    }

    /// Whether a virtual server of the Service has the address of an allocation; an unknown address may be any address.
    pub fn has_server_on(&self, allocation: &Allocation) -> bool {
        let mut servers = self.ours.servers.iter().chain(&self.ambiguous.servers);
        servers.any(|server| allocation.address.is_none() || server.address == allocation.address)
    }
}

/// A port of the Service, with the settings to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedPort {
    /// The port of the Service.
    pub port: Port,
    /// The node port.
    pub node_port: u16,
    /// The path of the application profile.
    pub profile: String,
}

/// One step of the plan: a change, a read or a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Creates the monitor of a port.
    CreateMonitor {
        /// The port.
        port: &'a WantedPort,
        /// The health check.
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
        /// The path of the monitor.
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
        /// The path of the monitor.
        monitor: Option<&'a str>,
        /// Whether SNAT is disabled; `None` keeps the setting.
        is_snat_disabled: Option<bool>,
    },
    /// Reserves an address for a load balancer that has none.
    Allocate {
        /// The address to reserve.
        allocation_request: AllocationRequest,
    },
    /// Reserves the address of a virtual server without an allocation. Otherwise, NSX may assign the address again.
    Reserve {
        /// The virtual server.
        server: &'a VirtualServer,
        /// The address.
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
        /// The path of the pool.
        pool: &'a str,
        /// The path of the load balancer service.
        lb_service: &'a str,
        /// The path of the group that may use the virtual server; `None` admits every client.
        group: Option<&'a str>,
        /// The path of the persistence profile.
        persistence: Option<&'a str>,
    },
    /// Sets port, pool, node port, profile and references of a virtual server.
    ChangeServer {
        /// The virtual server.
        server: &'a VirtualServer,
        /// The port.
        port: &'a WantedPort,
        /// The path of the pool.
        pool: &'a str,
        /// Change of the group.
        group: Reference<'a>,
        /// Change of the persistence profile.
        persistence: Reference<'a>,
    },
    /// Reads an object. The plan reads only groups and persistence profiles.
    Read {
        /// The kind of the object.
        kind: ObjectKind,
        /// The path of the object.
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
    /// Tags an object with the UIDs of its Service and cluster.
    Tag {
        /// The object.
        tags: &'a OwnerTags,
        /// For a pool: the address of an allocation that, without this tag, only the virtual servers would show to be
        /// ours.
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
    /// Reports that another virtual server occupies the address and port of a Service port. Always the last step.
    PortConflict {
        /// The port.
        port: &'a WantedPort,
        /// The other virtual server.
        server: &'a VirtualServer,
    },
}

impl Step<'_> {
    /// Whether the step creates an object. False for [`Step::Reserve`], although it creates an allocation.
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

    /// Whether the step deletes an object.
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

/// Phases of the plan, in order. All load balancers of the Service finish a phase before the next phase starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Changes come first, so that a port that cannot be created does not block Node updates of the other ports.
    Change,
    Create,
    Delete,
    /// Restores and reserves addresses that another client has edited or released. Runs late: NSX may refuse the write.
    Address,
    Report,
}

const PHASES: [Phase; 5] = [Phase::Change, Phase::Create, Phase::Delete, Phase::Address, Phase::Report];

/// Returns the next step, with the index of its load balancer; `None` if all load balancers have the desired state.
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
    // The pool keeps its monitor until a monitor of the new type exists.
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
    let pool = &*pool.tags.path;
    let group = references.group_path();
    let persistence = references.persistence_path();
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

/// Returns the next step of the deletion of objects that no port needs.
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
    // An allocation with an unknown address may never get an address, so such an allocation comes last.
    let is_read = |allocation: &&Allocation| allocation.address.is_some() && allocation.address != address;
    let is_free = |allocation: &&Allocation| {
        is_read(allocation) && !known.has_server_on(allocation) && !known.is_used_elsewhere(allocation)
    };
    let free = ours.allocations.iter().find(is_free);
    free.map(Step::ReleaseAddress).or_else(|| unread(known).map(|allocation| Step::ReadAddress { allocation }))
}

/// Returns an allocation with an unknown address, except allocations that this sync has read without result.
fn unread<'a>(known: &CurrentState<'a>) -> Option<&'a Allocation> {
    let is_unread = |one: &&Allocation| one.address.is_none() && !known.read_paths.contains(&one.tags.path);
    known.ours.allocations.iter().find(is_unread)
}

/// Returns the next step of the deletion of this load balancer; `None` if no object may be deleted. Allocations with an
/// unknown address are released unless a virtual server of the Service is left.
fn next_deletion<'a>(wanted: &DesiredLoadBalancer, known: &CurrentState<'a>) -> Option<Step<'a>> {
    let ours = known.ours;
    // Pools and monitors are tagged first. Tags may be the only sign of the owner after the virtual servers are
    // deleted.
    let tags = || mark_with_address(wanted, known).or_else(|| mark(wanted, known));
    let marks = if ours.servers.is_empty() { None } else { tags() };
    let is_free = |allocation: &&Allocation| !known.has_server_on(allocation) && !known.is_used_elsewhere(allocation);
    // The allocation is released before the pools are deleted, because only the tag of a pool may show its owner.
    let is_shown = |allocation: &&Allocation| is_free(allocation) && has_tagged_pool(allocation, known);
    let read = || references::read_for_deletion(wanted, known);
    let read_before = if ours.servers.is_empty() { None } else { read() };
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

/// Tags a pool or monitor before the deletion of the virtual server that proves its ownership. Objects of another
/// program get all known UIDs, because the next process may be able to read only one UID.
fn mark<'a>(wanted: &DesiredLoadBalancer, known: &CurrentState<'a>) -> Option<Step<'a>> {
    // A tag that has no room on the object does not count as missing.
    let fits = |scope| known.layout.has_capacity(ObjectKind::Pool, scope);
    let cluster_uid = &wanted.cluster_uid.clone().filter(|_| fits(CLUSTER_UID));
    let service_uid = &wanted.service_uid.clone().filter(|_| fits(SERVICE_UID));
    let lacks = |uid: &Option<String>, tagged: &Option<Box<str>>| uid.is_some() && uid.as_deref() != tagged.as_deref();
    let is_unmarked = |marks: &&OwnerTags| match has_own_form(&marks.id) {
        // The id also shows the owner, so one of the tags is enough.
        true => !is_tagged(marks, wanted),
        false => lacks(cluster_uid, &marks.cluster_uid) || lacks(service_uid, &marks.service_uid),
    };
    let of_pools = known.ours.pools.iter().map(|pool| &pool.tags);
    let all = of_pools.chain(known.ours.monitors.iter().map(|monitor| &monitor.tags));
    let has_uid = cluster_uid.is_some() || service_uid.is_some();
    all.filter(|_| has_uid).find(is_unmarked).map(|marks| Step::Tag { tags: marks, address: None })
}

/// Tags a pool with the address of an allocation if only a virtual server proves that the allocation is ours. An
/// allocation cannot be tagged, and the status of a Service whose type changed is empty.
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

fn has_tagged_pool(allocation: &Allocation, known: &CurrentState<'_>) -> bool {
    allocation.address.is_some() && known.ours.pools.iter().any(|pool| pool.address == allocation.address)
}

/// Whether the UID tags of an object match this cluster or Service.
fn is_tagged(tags: &OwnerTags, wanted: &DesiredLoadBalancer) -> bool {
    let is_of = |uid: &Option<String>, tagged: &Option<Box<str>>| uid.is_some() && uid.as_deref() == tagged.as_deref();
    is_of(&wanted.cluster_uid, &tags.cluster_uid) || is_of(&wanted.service_uid, &tags.service_uid)
}

/// Returns the tags that every write of an object adds: those of [`Step::Tag`] for a pool or monitor of another
/// program; otherwise none.
pub fn tags_at_write(tags: &OwnerTags, kind: ObjectKind, owner: &Owner<'_>, layout: &ClusterLayout) -> ScopedTags {
    match kind {
        ObjectKind::Pool | ObjectKind::Monitor if !has_own_form(&tags.id) => tags_of(owner, layout, kind, None),
        _ => ScopedTags::default(),
    }
}

/// Returns the UID and address tags that [`Step::Tag`] writes. Skips tags for which an object of this kind has no room.
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
