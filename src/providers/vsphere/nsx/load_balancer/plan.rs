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
//! An object is deleted after the objects that refer to it.
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

mod action;
mod addresses;
mod differences;
mod port_states;
mod references;

use std::collections::BTreeSet;
use std::net::IpAddr;

pub use action::{Action, AllocationRequest};
pub use addresses::{address, edited, is_doubtful, shown_address, unreserved};
pub use differences::ignored;
use port_states::{PortState, PortStates};
use references::References;

use super::layout::{ADDRESS, ClusterLayout, ObjectKind, Owner, Port, SERVICE_UID, has_own_form};
use super::members::{self, Member};
use super::resource::{OwnerTags, Resource, ServiceResources};
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
    pub has_unresolved: bool,
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
    pub lb_service: Option<&'a Resource>,
    /// The layout, for ids and tags.
    pub layout: &'a ClusterLayout,
    /// Paths that this sync does not read again, or for which it does not try again: groups and persistence profiles
    /// that it has read or written, or may not read; objects of all kinds that it has deleted or not found; allocations
    /// without an address; virtual servers whose address it tried to reserve. A group or profile in this set that is
    /// not in `ours` does not exist or is not owned by this cluster.
    pub settled_paths: &'a BTreeSet<Box<str>>,
    /// Addresses of allocations that virtual servers outside of `ours` and `ambiguous` use.
    pub addresses_in_use: &'a BTreeSet<IpAddr>,
}

impl<'a> CurrentState<'a> {
    /// Whether a virtual server of another owner uses the address of an allocation.
    pub fn is_used_elsewhere(&self, allocation: &Resource) -> bool {
        allocation.address.is_some_and(|address| self.addresses_in_use.contains(&address))
    }

    /// Whether a virtual server of the load balancer, or an ambiguous one, has the address of an allocation; an unknown
    /// address may be any address.
    pub fn has_server_on(&self, allocation: &Resource) -> bool {
        self.servers().any(|server| allocation.address.is_none() || server.address == allocation.address)
    }

    /// Returns the virtual servers of the load balancer, and ambiguous ones.
    pub fn servers(&self) -> impl Iterator<Item = &'a Resource> + use<'a> {
        self.ours.servers().chain(self.ambiguous.servers())
    }

    /// Whether a resource of the load balancer, or an ambiguous one, refers to the object at this path.
    fn refers_to(&self, path: &str) -> bool {
        self.ours.refer_to(path) || self.ambiguous.refer_to(path)
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
pub fn next<'a>(all: &[(&'a DesiredLoadBalancer, CurrentState<'a>)]) -> Option<(usize, Action<'a>)> {
    let of = |phase, (at, (desired, current)): (usize, &(&'a DesiredLoadBalancer, CurrentState<'a>))| {
        next_of(phase, desired, current).map(|step| (at, step))
    };
    PHASES.into_iter().find_map(|phase| all.iter().enumerate().find_map(|one| of(phase, one)))
}

fn next_of<'a>(phase: Phase, desired: &'a DesiredLoadBalancer, current: &CurrentState<'a>) -> Option<Action<'a>> {
    if desired.ports.is_empty() {
        return next_deletion(desired, current).filter(|_| phase == Phase::Delete);
    }
    // The address of the load balancer depends on the address of this allocation.
    if let Some(allocation) = unread_allocation(current).filter(|_| is_doubtful(&desired.ingress, current.ours)) {
        return Some(Action::ReadAddress(allocation));
    }
    let address = address(desired, current.ours);
    let rows = PortStates::find(desired, current, address);
    let references = References::find(&rows, desired, current);
    match phase {
        Phase::Change => {
            let change = rows.all().find_map(|row| change(row, &references, desired, current));
            change.or_else(|| references.change(&rows, desired, current))
        }
        Phase::Create => {
            let creation = || rows.ports.iter().find_map(|row| creation(row, &references, desired, current));
            references.creation().or_else(creation)
        }
        Phase::Delete => surplus(&rows, &references, desired, current),
        Phase::Address => {
            let unreserved = || unreserved(desired, current).map(Action::Reserve);
            addresses::set_back(&rows, desired, current, address?).or_else(unreserved)
        }
        Phase::Report => {
            let obstructed =
                |row: &PortState<'a>| row.conflict.map(|server| Action::PortConflict { port: row.port, server });
            rows.ports.iter().find_map(obstructed)
        }
    }
}

fn change<'a>(
    row: &PortState<'a>,
    references: &References<'a>,
    desired: &DesiredLoadBalancer,
    current: &CurrentState<'a>,
) -> Option<Action<'a>> {
    let port = row.port.port;
    if let Some((monitor, probe)) = row.monitor.zip(row.probe)
        && (!monitor.asks(probe) || monitor.tags.port != Some(port))
    {
        let mut changed = monitor.clone();
        changed.tags.port = Some(port);
        changed.set_probe(probe);
        return Some(Action::update(monitor, changed));
    }
    change_of_pool(row, desired, current).or_else(|| change_of_server(row, references, desired, current))
}

fn change_of_pool<'a>(
    row: &PortState<'a>,
    desired: &DesiredLoadBalancer,
    current: &CurrentState<'a>,
) -> Option<Action<'a>> {
    let pool = row.pool?;
    let is_missing = row.probe.is_some() && row.monitor.is_none();
    let has_monitor = !pool.reference(ObjectKind::Monitor).is_empty();
    // The pool keeps its monitor until a monitor of the new type exists.
    let kept = || pool.references.iter().find_map(|(_, path)| current.ours.at(path));
    let monitor = if is_missing { kept() } else { row.monitor };
    // NSX may refuse all changes of a pool whose monitor does not exist, so the monitor is created first.
    if is_missing && monitor.is_none() && has_monitor {
        return None;
    }
    let monitor = monitor.map(|monitor| &*monitor.tags.path).unwrap_or_default();
    let snat = Some(desired.features.is_snat_disabled).filter(|_| row.is_compared);
    let is_asked = is_missing || pool.has_only_reference(ObjectKind::Monitor, monitor);
    let is_translated = !row.is_compared || pool.spec.is_snat_disabled == snat;
    let has_members = members::are_equal(&pool.spec.members, &desired.members);
    if is_asked && is_translated && has_members && pool.tags.port == Some(row.port.port) {
        return None;
    }
    // Only a change copies the pool, which may have thousands of members.
    let mut changed = pool.clone();
    changed.tags.port = Some(row.port.port);
    changed.spec.is_snat_disabled = snat;
    changed.set_reference(ObjectKind::Monitor, monitor);
    let change = Action::update(pool, changed);
    Some(if !is_asked && has_monitor { mark(desired, current).unwrap_or(change) } else { change })
}

fn change_of_server<'a>(
    row: &PortState<'a>,
    references: &References<'a>,
    desired: &DesiredLoadBalancer,
    current: &CurrentState<'a>,
) -> Option<Action<'a>> {
    // NSX refuses all changes of a virtual server with a missing reference, so the missing object is created first.
    let is_whole = !row.is_pool_missing && !references.are_missing(row);
    let server = row.server.filter(|_| row.conflict.is_none() && is_whole)?;
    let mut changed = server.clone();
    changed.set_port(row.port.port, row.port.node_port, &row.port.profile);
    if let Some(pool) = row.pool {
        changed.set_reference(ObjectKind::Pool, &pool.tags.path);
    }
    references.apply(row, current, &mut changed);
    if changed == *server {
        return None;
    }
    let pool = server.reference(ObjectKind::Pool);
    let is_moved = !pool.is_empty() && pool != changed.reference(ObjectKind::Pool);
    let change = Action::update(server, changed);
    Some(if is_moved { mark(desired, current).unwrap_or(change) } else { change })
}

fn creation<'a>(
    row: &PortState<'a>,
    references: &References<'a>,
    desired: &DesiredLoadBalancer,
    current: &CurrentState<'a>,
) -> Option<Action<'a>> {
    let PortState { port, server, pool, monitor, probe, conflict: obstacle, .. } = *row;
    if let Some(probe) = probe.filter(|_| monitor.is_none()) {
        let mut monitor = Resource::new(ObjectKind::Monitor, Some(port.port));
        monitor.set_probe(probe);
        return Some(Action::Create(Box::new(monitor)));
    }
    let Some(pool) = pool else {
        let mut pool = Resource::new(ObjectKind::Pool, Some(port.port));
        pool.set_reference(ObjectKind::Monitor, monitor.map(|monitor| &*monitor.tags.path).unwrap_or_default());
        pool.spec.is_snat_disabled = Some(desired.features.is_snat_disabled);
        return Some(Action::Create(Box::new(pool)));
    };
    if server.is_some() || obstacle.is_some() {
        return None;
    }
    let unread = unread_allocation(current).or_else(|| current.ours.allocations().find(|one| one.address.is_none()));
    Some(match (address(desired, current.ours), current.lb_service) {
        (Some(address), Some(lb_service)) => {
            let mut server = Resource::new(ObjectKind::VirtualServer, Some(port.port));
            server.address = Some(address);
            server.set_port(port.port, port.node_port, &port.profile);
            server.set_reference(ObjectKind::Pool, &pool.tags.path);
            server.set_reference(ObjectKind::LbService, &lb_service.tags.path);
            references.refer(&mut server);
            Action::Create(Box::new(server))
        }
        (Some(_), None) => Action::Create(Box::new(Resource::new(ObjectKind::LbService, None))),
        (None, _) => match unread {
            Some(allocation) => Action::ReadAddress(allocation),
            None => Action::Allocate(AllocationRequest::of(desired)),
        },
    })
}

/// Returns the next step of the deletion of objects that no port needs.
fn surplus<'a>(
    rows: &PortStates<'a>,
    references: &References<'a>,
    desired: &DesiredLoadBalancer,
    current: &CurrentState<'a>,
) -> Option<Action<'a>> {
    let ours = current.ours;
    if let Some(server) = ours.servers().find(|server| !rows.have(server)) {
        return Some(mark(desired, current).unwrap_or(Action::Delete(server)));
    }
    let unmark = || {
        let pool = ours.pools().find(|pool| pool.address.is_some())?;
        Some(Action::update(pool, Resource { address: None, ..pool.clone() }))
    };
    let unused = unreferenced(current).find(|one| !rows.have(one) && !references.need(one));
    unused.map(Action::Delete).or_else(|| surplus_address(desired, current)).or_else(unmark)
}

/// Returns the objects that nothing refers to, each before those to which it may have referred. NSX does not delete an
/// object that another object refers to, even an ambiguous one.
fn unreferenced<'a>(current: &CurrentState<'a>) -> impl Iterator<Item = &'a Resource> {
    let kinds = [ObjectKind::Pool, ObjectKind::Monitor, ObjectKind::PersistenceProfile, ObjectKind::Group];
    let ours = current.ours;
    kinds.into_iter().flat_map(move |kind| ours.of_kind(kind)).filter(move |one| !current.refers_to(&one.tags.path))
}

fn surplus_address<'a>(desired: &DesiredLoadBalancer, current: &CurrentState<'a>) -> Option<Action<'a>> {
    let (ours, address) = (current.ours, address(desired, current.ours));
    if ours.allocations().count() < 2 {
        return None;
    }
    // An allocation with an unknown address may never get an address, so such an allocation comes last.
    let is_read = |allocation: &Resource| allocation.address.is_some() && allocation.address != address;
    let free = ours.allocations().find(|one| is_read(one) && is_free(one, current));
    free.map(Action::Delete).or_else(|| unread_allocation(current).map(Action::ReadAddress))
}

/// Whether no known virtual server uses the address of an allocation.
fn is_free(allocation: &Resource, current: &CurrentState<'_>) -> bool {
    !current.has_server_on(allocation) && !current.is_used_elsewhere(allocation)
}

/// Returns an allocation with an unknown address, except allocations that this sync has read without result.
fn unread_allocation<'a>(current: &CurrentState<'a>) -> Option<&'a Resource> {
    current.ours.allocations().find(|one| one.address.is_none() && !current.settled_paths.contains(&one.tags.path))
}

/// Returns the next step of the deletion of this load balancer; `None` if no object may be deleted. Allocations with an
/// unknown address are released unless a virtual server of the Service is left.
fn next_deletion<'a>(desired: &DesiredLoadBalancer, current: &CurrentState<'a>) -> Option<Action<'a>> {
    let ours = current.ours;
    let read = || references::read_for_deletion(desired, current);
    if let Some(server) = ours.servers().next() {
        // Pools and monitors are tagged first. Tags may be the only sign of the owner after the virtual servers are
        // deleted.
        let tags = mark_with_address(desired, current).or_else(|| mark(desired, current));
        return tags.or_else(read).or(Some(Action::Delete(server)));
    }
    // The allocation is released before the pools are deleted, because only the tag of a pool may show its owner.
    let shown = ours.allocations().find(|one| is_free(one, current) && has_tagged_pool(one, current));
    let part = || unreferenced(current).next();
    let free = || ours.allocations().find(|one| is_free(one, current));
    shown.or_else(part).map(Action::Delete).or_else(read).or_else(|| free().map(Action::Delete))
}

/// Tags a pool or monitor before the deletion of the virtual server that proves its ownership. Objects of another
/// program get all known UIDs, because the next process may be able to read only one UID.
fn mark<'a>(desired: &DesiredLoadBalancer, current: &CurrentState<'a>) -> Option<Action<'a>> {
    // A tag that has no room on the object does not count as missing.
    let fits = |scope| current.layout.has_tag_room(ObjectKind::Pool, scope);
    let cluster_uid = &desired.cluster_uid.clone().filter(|_| fits(CLUSTER_UID));
    let service_uid = &desired.service_uid.clone().filter(|_| fits(SERVICE_UID));
    let lacks = |uid: &Option<String>, tagged: &Option<Box<str>>| uid.is_some() && uid.as_deref() != tagged.as_deref();
    let is_unmarked = |one: &&Resource| match has_own_form(&one.tags.id) {
        // The id also shows the owner, so one of the tags is enough.
        true => !is_tagged(&one.tags, desired),
        false => lacks(cluster_uid, &one.tags.cluster_uid) || lacks(service_uid, &one.tags.service_uid),
    };
    let mut all = current.ours.pools().chain(current.ours.of_kind(ObjectKind::Monitor));
    let has_uid = cluster_uid.is_some() || service_uid.is_some();
    let resource = all.find(is_unmarked).filter(|_| has_uid)?;
    Some(Action::Tag { resource, address: None })
}

/// Tags a pool with the address of an allocation if only a virtual server proves that the allocation is ours. An
/// allocation cannot be tagged, and the status of a Service whose type changed is empty.
fn mark_with_address<'a>(desired: &DesiredLoadBalancer, current: &CurrentState<'a>) -> Option<Action<'a>> {
    let ours = current.ours;
    let is_reported = |one: &Resource| one.address.is_some_and(|address| desired.ingress.contains(&address));
    let has_own_id = |OwnerTags { id, secondary, .. }: &OwnerTags| {
        let uid = desired.service_uid.as_deref();
        uid.is_some_and(|uid| current.layout.has_id(*secondary, ObjectKind::Allocation, uid, None, id))
    };
    let is_shown = |one: &Resource| {
        has_own_id(&one.tags) || is_tagged(&one.tags, desired) || is_reported(one) || has_tagged_pool(one, current)
    };
    let has_room = current.layout.has_tag_room(ObjectKind::Pool, ADDRESS);
    let address = ours.allocations().filter(|one| has_room && !is_shown(one)).find_map(|one| one.address)?;
    let resource = ours.pools().find(|pool| pool.address.is_none())?;
    Some(Action::Tag { resource, address: Some(address) })
}

fn has_tagged_pool(allocation: &Resource, current: &CurrentState<'_>) -> bool {
    allocation.address.is_some() && current.ours.pools().any(|pool| pool.address == allocation.address)
}

/// Whether the UID tags of an object match this cluster or Service.
fn is_tagged(tags: &OwnerTags, desired: &DesiredLoadBalancer) -> bool {
    let is_of = |uid: &Option<String>, tagged: &Option<Box<str>>| uid.is_some() && uid.as_deref() == tagged.as_deref();
    is_of(&desired.cluster_uid, &tags.cluster_uid) || is_of(&desired.service_uid, &tags.service_uid)
}

/// Returns the tags that every write of an object adds: those of [`Action::Tag`] for a pool or monitor of another
/// program; otherwise none.
pub fn tags_at_write(tags: &OwnerTags, kind: ObjectKind, owner: &Owner<'_>, layout: &ClusterLayout) -> ScopedTags {
    match kind {
        ObjectKind::Pool | ObjectKind::Monitor if !has_own_form(&tags.id) => tags_of(owner, layout, kind, None),
        _ => ScopedTags::default(),
    }
}

/// Returns the UID and address tags that [`Action::Tag`] writes. Skips tags for which an object of this kind has no room.
pub fn tags_of(owner: &Owner<'_>, layout: &ClusterLayout, kind: ObjectKind, address: Option<IpAddr>) -> ScopedTags {
    let service_uid = Some(owner.uid.to_owned()).filter(|uid| !uid.is_empty());
    let address = address.map(|address| address.to_string());
    let all = [(SERVICE_UID, service_uid), (CLUSTER_UID, layout.cluster_uid.clone()), (ADDRESS, address)];
    let fitting = all.into_iter().filter(|(scope, _)| layout.has_tag_room(kind, scope));
    fitting.fold(ScopedTags::default(), |tags, (scope, value)| match value {
        Some(value) => tags.with(scope, value),
        None => tags,
    })
}

#[cfg(test)]
mod tests;
