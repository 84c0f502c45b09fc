//! Pure: the next change of the load balancer of a Service. A change is planned from what is there, so that a sync goes on
//! where an earlier one, or another process, ended.
//!
//! Order: for each port monitor, pool, address, load balancer service, virtual server; then what no longer serves a port:
//! virtual servers, pools, monitors; then addresses that no virtual server has. Never compared: names, descriptions, whether
//! something is enabled, algorithms, limits, weights and states of members, members of objects that this program does not
//! know.
//!
//! Mirrors `Process` of `pkg/cloudprovider/vsphere/loadbalancer/state.go`.

mod edit;
mod rows;

use std::collections::BTreeSet;
use std::net::IpAddr;

use rows::{Row, Rows};

use super::layout::{CLUSTER_UID, Layout, Owner, Port, Protocol, SERVICE_UID};
use super::members::{self, Member};
use super::objects::{Allocation, LbService, Marks, Monitor, Objects, Pool, VirtualServer};
use crate::providers::vsphere::nsx::tags::Tags;

/// The load balancer that a Service is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its ports, in the order of the Service.
    pub ports: Vec<WantedPort>,
    /// The nodes behind it.
    pub members: Vec<Member>,
    /// The addresses that the Service reports.
    pub ingress: Vec<IpAddr>,
    /// What identifies the cluster, if that is known.
    pub cluster_uid: Option<String>,
    /// What identifies the Service; none once it is gone.
    pub service_uid: Option<String>,
}

/// What is there.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The objects of the Service.
    pub ours: &'a Objects,
    /// Objects that name the Service, and that nothing shows to be of this cluster.
    pub held: &'a Objects,
    /// The load balancer service in use, if there is one.
    pub lb_service: Option<&'a LbService>,
    /// What gives objects their ids.
    pub layout: &'a Layout,
}

impl Known<'_> {
    /// Whether a virtual server has the address of an allocation; of one that was not read, whether it may.
    fn has_server_on(&self, allocation: &Allocation) -> bool {
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
    },
    /// Lets a monitor probe another port.
    ChangeMonitor {
        /// The monitor.
        monitor: &'a Monitor,
        /// The port of the Service, for its tag.
        port: Port,
        /// The port of the nodes.
        node_port: u16,
    },
    /// Creates the pool of a port.
    CreatePool {
        /// The port.
        port: &'a WantedPort,
        /// The path of its monitor.
        monitor: Option<&'a str>,
    },
    /// Gives a pool its members and its monitor.
    ChangePool {
        /// The pool.
        pool: &'a Pool,
        /// The port of the Service, for its tag.
        port: Port,
        /// The path of its monitor.
        monitor: Option<&'a str>,
    },
    /// Reserves an address.
    Allocate,
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
    },
    /// Gives a virtual server its port, its pool, the port of the nodes and its profile.
    ChangeServer {
        /// The virtual server.
        server: &'a VirtualServer,
        /// The port.
        port: &'a WantedPort,
        /// The path of its pool.
        pool: &'a str,
    },
    /// Tags an object with the Service and the cluster that it is of.
    Mark {
        /// The object.
        marks: &'a Marks,
    },
    /// Deletes a virtual server.
    DeleteServer(&'a VirtualServer),
    /// Deletes a pool.
    DeletePool(&'a Pool),
    /// Deletes a monitor.
    DeleteMonitor(&'a Monitor),
    /// Releases an address.
    Release(&'a Allocation),
    /// Nothing more can be done: NSX has another virtual server where the one of a port is to be. Always the last step.
    Obstructed {
        /// The port.
        port: &'a WantedPort,
        /// What is in the way.
        server: &'a VirtualServer,
    },
}

/// The next step towards `wanted`, or `None` when all is as it is to be. What is there is changed before anything is
/// created, so that a port that cannot be created keeps no other one from following its nodes.
pub fn next<'a>(wanted: &'a Wanted, known: &Known<'a>) -> Option<Step<'a>> {
    let address = address(wanted, known.ours);
    let rows = Rows::find(wanted, known, address);
    let change = rows.all().find_map(|row| change(row, wanted, known));
    let creation = || rows.ports.iter().find_map(|row| creation(row, address, known));
    let obstructed = |row: &Row<'a>| row.obstacle.map(|server| Step::Obstructed { port: row.port, server });
    change
        .or_else(creation)
        .or_else(|| surplus(&rows, wanted, address, known))
        .or_else(|| rows.ports.iter().find_map(obstructed))
}

/// The next change of what is there for a port.
fn change<'a>(row: &Row<'a>, wanted: &Wanted, known: &Known<'a>) -> Option<Step<'a>> {
    let Row { port, monitor, .. } = *row;
    if let Some(monitor) = monitor {
        let is_tagged = monitor.marks.port == Some(port.port);
        if monitor.number != Some(port.node_port) || !is_tagged {
            return Some(Step::ChangeMonitor { monitor, port: port.port, node_port: port.node_port });
        }
    }
    change_of_pool(row, wanted, known).or_else(|| change_of_server(row, wanted, known))
}

fn change_of_pool<'a>(row: &Row<'a>, wanted: &Wanted, known: &Known<'a>) -> Option<Step<'a>> {
    let (port, pool) = (row.port.port, row.pool?);
    let (before, path) = (pool.monitors.first().map(AsRef::as_ref), row.monitor.map(|monitor| &*monitor.marks.path));
    // While its monitor is missing it keeps what it has.
    let is_missing = port.protocol == Protocol::Tcp && row.monitor.is_none();
    let monitor = if is_missing { before } else { path };
    let change = Step::ChangePool { pool, port, monitor };
    let is_asked = is_missing || pool.monitors.iter().map(AsRef::as_ref).eq(monitor);
    if !is_asked && !pool.monitors.is_empty() {
        return Some(mark(wanted, known).unwrap_or(change));
    }
    let is_equal = members::are_equal(&pool.members, &wanted.members) && pool.marks.port == Some(port);
    (!is_asked || !is_equal).then_some(change)
}

fn change_of_server<'a>(row: &Row<'a>, wanted: &Wanted, known: &Known<'a>) -> Option<Step<'a>> {
    let Row { port, pool, .. } = *row;
    let server = row.server.filter(|_| row.obstacle.is_none())?;
    let path = pool.map_or(&*server.pool, |pool| &*pool.marks.path);
    let is_moved = *server.pool != *path;
    let is_edited = server.number != Some(port.port.number) || server.marks.port != Some(port.port);
    let is_changed = server.node_port != Some(port.node_port) || *server.profile != *port.profile || is_edited;
    let change = Step::ChangeServer { server, port, pool: path };
    match is_moved && !server.pool.is_empty() {
        true => Some(mark(wanted, known).unwrap_or(change)),
        false => (is_moved || is_changed).then_some(change),
    }
}

/// The next object that a port lacks.
fn creation<'a>(row: &Row<'a>, address: Option<IpAddr>, known: &Known<'a>) -> Option<Step<'a>> {
    let Row { port, server, pool, monitor, obstacle } = *row;
    if port.port.protocol == Protocol::Tcp && monitor.is_none() {
        return Some(Step::CreateMonitor { port });
    }
    let Some(pool) = pool else {
        return Some(Step::CreatePool { port, monitor: monitor.map(|monitor| &*monitor.marks.path) });
    };
    if server.is_some() || obstacle.is_some() {
        return None;
    }
    let unread = || known.ours.allocations.iter().find(|allocation| allocation.address.is_none());
    Some(match (address, known.lb_service) {
        (Some(address), Some(lb_service)) => {
            Step::CreateServer { port, address, pool: &pool.marks.path, lb_service: &lb_service.path }
        }
        (Some(_), None) => Step::CreateLbService,
        (None, _) => unread().map_or(Step::Allocate, |allocation| Step::ReadAddress { allocation }),
    })
}

/// The next of what serves no port.
fn surplus<'a>(rows: &Rows<'a>, wanted: &Wanted, address: Option<IpAddr>, known: &Known<'a>) -> Option<Step<'a>> {
    let ours = known.ours;
    if let Some(server) = ours.servers.iter().find(|server| !rows.have_server(server)) {
        return Some(mark(wanted, known).unwrap_or(Step::DeleteServer(server)));
    }
    let mut pools: BTreeSet<&str> = ours.servers.iter().map(|server| &*server.pool).collect();
    pools.extend(rows.all().filter_map(|row| row.pool).map(|pool| &*pool.marks.path));
    if let Some(pool) = ours.pools.iter().find(|pool| !pools.contains(&*pool.marks.path)) {
        return Some(Step::DeletePool(pool));
    }
    let mut monitors: BTreeSet<&str> = ours.pools.iter().flat_map(|pool| &pool.monitors).map(AsRef::as_ref).collect();
    monitors.extend(rows.all().filter_map(|row| row.monitor).map(|monitor| &*monitor.marks.path));
    if let Some(monitor) = ours.monitors.iter().find(|monitor| !monitors.contains(&*monitor.marks.path)) {
        return Some(Step::DeleteMonitor(monitor));
    }
    if ours.allocations.len() < 2 {
        return None;
    }
    // One whose address is not known yet may never get one: it comes last.
    let is_read = |allocation: &&Allocation| allocation.address.is_some() && allocation.address != address;
    let is_free = |allocation: &&Allocation| is_read(allocation) && !known.has_server_on(allocation);
    let unread = ours.allocations.iter().find(|allocation| allocation.address.is_none());
    let free = ours.allocations.iter().find(is_free);
    free.map(Step::Release).or_else(|| unread.map(|allocation| Step::ReadAddress { allocation }))
}

/// The next step towards a Service without load balancer, or `None` when nothing is left that may be deleted. An allocation
/// whose address was never read is released, too, unless a virtual server of the Service is left: it may have none.
pub fn next_deletion<'a>(wanted: &Wanted, known: &Known<'a>) -> Option<Step<'a>> {
    let ours = known.ours;
    // While a virtual server is there, it shows whose pools and monitors are.
    let marks = if ours.servers.is_empty() { None } else { mark(wanted, known) };
    let is_free = |allocation: &&Allocation| !known.has_server_on(allocation);
    marks
        .or_else(|| ours.servers.first().map(Step::DeleteServer))
        .or_else(|| ours.pools.first().map(Step::DeletePool))
        .or_else(|| ours.monitors.first().map(Step::DeleteMonitor))
        .or_else(|| ours.allocations.iter().find(is_free).map(Step::Release))
}

/// Marks a pool or monitor that only a virtual server shows to be ours: when that is gone, nothing would.
fn mark<'a>(wanted: &Wanted, known: &Known<'a>) -> Option<Step<'a>> {
    let Wanted { cluster_uid, service_uid, .. } = wanted;
    let is_of = |uid: &Option<String>, tagged: &Option<Box<str>>| uid.is_some() && uid.as_deref() == tagged.as_deref();
    let is_unmarked =
        |marks: &&Marks| !is_of(cluster_uid, &marks.cluster_uid) && !is_of(service_uid, &marks.service_uid);
    let of_pools = known.ours.pools.iter().map(|pool| &pool.marks);
    let all = of_pools.chain(known.ours.monitors.iter().map(|monitor| &monitor.marks));
    let has_uid = cluster_uid.is_some() || service_uid.is_some();
    all.filter(|_| has_uid).find(is_unmarked).map(|marks| Step::Mark { marks })
}

/// The tags of [`Step::Mark`].
pub fn marks_of(owner: &Owner<'_>, layout: &Layout) -> Tags {
    let tags = Tags::default().with(SERVICE_UID, owner.uid);
    match &layout.cluster_uid {
        Some(uid) => tags.with(CLUSTER_UID, uid),
        None => tags,
    }
}

/// The address of the load balancer: that of its virtual servers, one that the Service reports before others; without any
/// the one that is reserved, likewise. None while one that the Service reports may still be found among those that were not
/// read.
pub fn address(wanted: &Wanted, ours: &Objects) -> Option<IpAddr> {
    let of_servers = || ours.servers.iter().filter_map(|server| server.address);
    let of_allocations = || ours.allocations.iter().filter_map(|allocation| allocation.address);
    let are_read = ours.allocations.iter().all(|allocation| allocation.address.is_some());
    let is_reported = |address: &IpAddr| wanted.ingress.contains(address);
    of_servers()
        .find(is_reported)
        .or_else(|| of_servers().next())
        .or_else(|| of_allocations().find(is_reported))
        .or_else(|| of_allocations().next().filter(|_| are_read || wanted.ingress.is_empty()))
}

#[cfg(test)]
mod tests;
