//! Pure: the next change of the load balancer of a Service. A change is planned from what is there, so that a sync goes on
//! where an earlier one, or another process, ended.
//!
//! Order: for each port monitor, pool, address, load balancer service, virtual server; then what serves no port any more:
//! virtual servers, pools, monitors; then addresses that no virtual server has. Never compared: names, descriptions, whether
//! something is enabled, algorithms, limits, weights and states of members, members of objects that this program does not
//! know.
//!
//! Mirrors `Process` of `pkg/cloudprovider/vsphere/loadbalancer/state.go`.

use std::collections::BTreeSet;
use std::net::IpAddr;

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
    /// Lets a monitor ask another port.
    ChangeMonitor {
        /// The monitor.
        monitor: &'a Monitor,
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
    /// Gives a virtual server its pool, the port of the nodes and its profile.
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
}

/// The next step towards `wanted`, or `None` when all is as it is to be. `ours` are the objects of this Service.
pub fn next<'a>(wanted: &'a Wanted, ours: &'a Objects, lb_service: Option<&'a LbService>) -> Option<Step<'a>> {
    let address = address(wanted, ours);
    let (mut servers, mut pools) = (BTreeSet::new(), BTreeSet::new());
    let mut monitors: BTreeSet<&str> = BTreeSet::new();
    for port in &wanted.ports {
        let server = server_of(ours, port.port, address);
        let pool = pool_of(ours, port.port, server);
        let monitor = match port.port.protocol {
            Protocol::Udp => None,
            Protocol::Tcp => match monitor_of(ours, port.port, pool) {
                None => return Some(Step::CreateMonitor { port }),
                Some(monitor) if monitor.number != Some(port.node_port) => {
                    return Some(Step::ChangeMonitor { monitor, node_port: port.node_port });
                }
                Some(monitor) => Some(&*monitor.marks.path),
            },
        };
        let Some(pool) = pool else { return Some(Step::CreatePool { port, monitor }) };
        let is_asked = pool.monitors.iter().map(AsRef::as_ref).eq(monitor);
        if !is_asked || !members::are_equal(&pool.members, &wanted.members) {
            return Some(Step::ChangePool { pool, monitor });
        }
        let path = &*pool.marks.path;
        let Some(server) = server else { return Some(create_server(port, path, ours, address, lb_service)) };
        let is_as_wanted =
            server.node_port == Some(port.node_port) && *server.pool == *path && *server.profile == *port.profile;
        if !is_as_wanted {
            return Some(Step::ChangeServer { server, port, pool: path });
        }
        servers.insert(&*server.marks.path);
        pools.insert(path);
        monitors.extend(monitor);
    }
    surplus(wanted, ours, address, &servers, pools, monitors)
}

/// The next step towards a Service without load balancer, or `None` when nothing is left. `cluster_uid` and `service_uid` are
/// what objects of the Go program are marked with before the first of them is deleted. An allocation whose address was never
/// read is released, too: it may have none.
pub fn next_deletion<'a>(ours: &'a Objects, cluster_uid: Option<&str>, service_uid: Option<&str>) -> Option<Step<'a>> {
    let is_unmarked = |marks: &Marks| {
        let is_of_cluster = marks.cluster_uid.is_some() && marks.cluster_uid.as_deref() == cluster_uid;
        !is_of_cluster && service_uid.is_some() && marks.service_uid.as_deref() != service_uid
    };
    let of_pools = ours.pools.iter().map(|pool| &pool.marks);
    let of_monitors = ours.monitors.iter().map(|monitor| &monitor.marks);
    // While a virtual server is there, it shows whose they are.
    let to_mark = of_pools.chain(of_monitors).find(|marks| !ours.servers.is_empty() && is_unmarked(marks));
    let marks = to_mark.map(|marks| Step::Mark { marks });
    marks
        .or_else(|| ours.servers.first().map(Step::DeleteServer))
        .or_else(|| ours.pools.first().map(Step::DeletePool))
        .or_else(|| ours.monitors.first().map(Step::DeleteMonitor))
        .or_else(|| ours.allocations.first().map(Step::Release))
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
/// the one that is reserved.
pub fn address(wanted: &Wanted, ours: &Objects) -> Option<IpAddr> {
    let of_servers = || ours.servers.iter().filter_map(|server| server.address);
    let of_allocations = || ours.allocations.iter().filter_map(|allocation| allocation.address);
    let is_reported = |address: &IpAddr| wanted.ingress.contains(address);
    of_servers()
        .find(is_reported)
        .or_else(|| of_servers().next())
        .or_else(|| of_allocations().find(is_reported))
        .or_else(|| of_allocations().next())
}

/// The virtual server of a port: on the address of the load balancer before others.
fn server_of(ours: &Objects, port: Port, address: Option<IpAddr>) -> Option<&VirtualServer> {
    let is_of_port = |server: &&VirtualServer| server.marks.port == Some(port) && server.number == Some(port.number);
    let mut all = ours.servers.iter().filter(is_of_port);
    let mut first = ours.servers.iter().filter(is_of_port);
    all.find(|server| server.address == address).or_else(|| first.next())
}

/// The pool of a port: that of its virtual server before others.
fn pool_of<'a>(ours: &'a Objects, port: Port, server: Option<&VirtualServer>) -> Option<&'a Pool> {
    let of_port = || ours.pools.iter().filter(|pool| pool.marks.port == Some(port));
    let of_server = |pool: &&Pool| server.is_some_and(|server| server.pool == pool.marks.path);
    of_port().find(of_server).or_else(|| of_port().next())
}

/// The monitor of a port: that of its pool before others.
fn monitor_of<'a>(ours: &'a Objects, port: Port, pool: Option<&Pool>) -> Option<&'a Monitor> {
    let of_port = || ours.monitors.iter().filter(|monitor| monitor.marks.port == Some(port));
    let of_pool = |monitor: &&Monitor| pool.is_some_and(|pool| pool.monitors.contains(&monitor.marks.path));
    of_port().find(of_pool).or_else(|| of_port().next())
}

fn create_server<'a>(
    port: &'a WantedPort,
    pool: &'a str,
    ours: &'a Objects,
    address: Option<IpAddr>,
    lb_service: Option<&'a LbService>,
) -> Step<'a> {
    match (address, lb_service) {
        (Some(address), Some(lb_service)) => Step::CreateServer { port, address, pool, lb_service: &lb_service.path },
        (Some(_), None) => Step::CreateLbService,
        (None, _) => match ours.allocations.first() {
            Some(allocation) => Step::ReadAddress { allocation },
            None => Step::Allocate,
        },
    }
}

/// The next of what serves no port. A second virtual server of a port stays with all that it leads to: nothing says which
/// one clients use.
fn surplus<'a>(
    wanted: &Wanted,
    ours: &'a Objects,
    address: Option<IpAddr>,
    servers: &BTreeSet<&str>,
    mut pools: BTreeSet<&'a str>,
    mut monitors: BTreeSet<&'a str>,
) -> Option<Step<'a>> {
    let serves = |server: &VirtualServer| {
        let is_wanted =
            |port: &WantedPort| server.marks.port == Some(port.port) && server.number == Some(port.port.number);
        servers.contains(&*server.marks.path) || wanted.ports.iter().any(is_wanted)
    };
    if let Some(server) = ours.servers.iter().find(|server| !serves(server)) {
        return Some(Step::DeleteServer(server));
    }
    pools.extend(ours.servers.iter().map(|server| &*server.pool));
    if let Some(pool) = ours.pools.iter().find(|pool| !pools.contains(&*pool.marks.path)) {
        return Some(Step::DeletePool(pool));
    }
    monitors.extend(ours.pools.iter().flat_map(|pool| &pool.monitors).map(AsRef::as_ref));
    if let Some(monitor) = ours.monitors.iter().find(|monitor| !monitors.contains(&*monitor.marks.path)) {
        return Some(Step::DeleteMonitor(monitor));
    }
    if ours.allocations.len() < 2 {
        return None;
    }
    if let Some(allocation) = ours.allocations.iter().find(|allocation| allocation.address.is_none()) {
        return Some(Step::ReadAddress { allocation });
    }
    let is_used = |allocation: &&Allocation| {
        allocation.address == address || ours.servers.iter().any(|server| server.address == allocation.address)
    };
    ours.allocations.iter().find(|allocation| !is_used(allocation)).map(Step::Release)
}

#[cfg(test)]
mod tests;
