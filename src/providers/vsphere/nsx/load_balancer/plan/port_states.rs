//! Pure: assigns the existing objects to the ports of a Service.
//!
//! An id that this program generates for a port determines the port of the object. A virtual server with any other id
//! is assigned by its address and port, because NSX allows only one virtual server per address and port. Otherwise, the
//! tag decides.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{CurrentState, DesiredLoadBalancer, WantedPort};
use crate::providers::vsphere::nsx::load_balancer::layout::{
    IDS, MonitorType, ObjectKind, Port, Probe, Protocol, has_own_form,
};
use crate::providers::vsphere::nsx::load_balancer::resource::{OwnerTags, Resource};
use crate::providers::vsphere::nsx::load_balancer::service_request::Features;
use crate::providers::vsphere::nsx::ownership::{OfCluster, by_cluster_uid};

/// The existing objects of a port.
#[derive(Clone, Copy)]
pub struct PortState<'a> {
    pub port: &'a WantedPort,
    pub server: Option<&'a Resource>,
    pub pool: Option<&'a Resource>,
    /// Whether the virtual server refers to a missing pool and the port has no other pool. A pool is then created.
    pub is_pool_missing: bool,
    pub monitor: Option<&'a Resource>,
    /// The probe of the monitor; `None` for a port without monitor.
    pub probe: Option<Probe>,
    /// Whether all features are enforced: false only for a virtual server of another program without full adoption.
    pub is_compared: bool,
    /// Another virtual server of the Service that occupies the required address and port.
    pub conflict: Option<&'a Resource>,
}

/// The existing objects of all ports.
pub struct PortStates<'a> {
    /// The state of each port, in the order of the Service.
    pub ports: Vec<PortState<'a>>,
    /// Further virtual servers of the ports, on other addresses. Clients may use them, so all are updated.
    pub extra: Vec<PortState<'a>>,
}

impl<'a> PortStates<'a> {
    /// Finds the objects of each port. Prefers virtual servers on the address of the load balancer.
    pub fn find(desired: &'a DesiredLoadBalancer, current: &CurrentState<'a>, address: Option<IpAddr>) -> Self {
        let search = PortSearch { desired, current: *current, address, ids: ids(desired, current) };
        let obstructed = |row: PortState<'a>| PortState { conflict: obstacle(&row, current, address), ..row };
        let ports: Vec<PortState<'a>> = desired.ports.iter().map(|port| obstructed(search.row(port))).collect();
        let mut rows = Self { ports, extra: Vec::new() };
        for server in current.ours.servers() {
            if let Some(row) = search.further(server, &rows) {
                rows.extra.push(obstructed(row));
            }
        }
        rows
    }

    pub fn all(&self) -> impl Iterator<Item = &PortState<'a>> {
        self.ports.iter().chain(&self.extra)
    }

    /// Whether a port has this object.
    pub fn have(&self, resource: &Resource) -> bool {
        let mut all = self.all().flat_map(|row| [row.server, row.pool, row.monitor]).flatten();
        all.any(|one| one.tags.path == resource.tags.path)
    }
}

struct PortSearch<'a> {
    desired: &'a DesiredLoadBalancer,
    current: CurrentState<'a>,
    address: Option<IpAddr>,
    ids: BTreeMap<String, Port>,
}

impl<'a> PortSearch<'a> {
    fn row(&self, port: &'a WantedPort) -> PortState<'a> {
        let servers = self.current.ours.servers().filter(|server| self.is_on(server, port));
        let server = servers.min_by_key(|server| {
            let is_listening = server.spec.number == Some(port.port.number);
            (server.address != self.address, !is_listening, *server.spec.profile != *port.profile)
        });
        let pools = self.current.ours.pools().filter(|pool| self.port_of(&pool.tags) == Some(port.port));
        let is_of_server = |pool: &Resource| server.is_some_and(|server| server.refers_to(&pool.tags.path));
        let pool = pools.min_by_key(|pool| !is_of_server(pool));
        let row = self.empty(port, server);
        let lacks_pool = pool.is_none() && server.is_some_and(|server| !server.reference(ObjectKind::Pool).is_empty());
        PortState {
            pool,
            is_pool_missing: lacks_pool,
            monitor: row.probe.and_then(|probe| self.monitor(port, probe, pool)),
            ..row
        }
    }

    /// Returns the state of a port, with pool and monitor still unset.
    fn empty(&self, port: &'a WantedPort, server: Option<&'a Resource>) -> PortState<'a> {
        let is_compared = self.desired.adopts_fully || server.is_none_or(|server| self.is_made_here(server));
        let Features { health_check, has_icmp_check, .. } = &self.desired.features;
        let asked = health_check.map(Probe::Http).filter(|_| is_compared);
        let probe = match port.port.protocol {
            Protocol::Tcp => asked.or(Some(Probe::Tcp(port.node_port))),
            Protocol::Udp => asked.or(Some(Probe::Icmp).filter(|_| *has_icmp_check && is_compared)),
        };
        PortState {
            port,
            server,
            pool: None,
            is_pool_missing: false,
            monitor: None,
            probe,
            is_compared,
            conflict: None,
        }
    }

    /// Whether this program created the virtual server. The cluster UID tag is no proof: adopted objects get it, too.
    fn is_made_here(&self, server: &Resource) -> bool {
        let OwnerTags { id, cluster_uid, .. } = &server.tags;
        let of_cluster = by_cluster_uid(self.current.layout.cluster_uid.as_deref(), cluster_uid.as_deref());
        self.ids.contains_key(&**id) || (of_cluster == OfCluster::This && has_own_form(id))
    }

    /// Returns the state of a further virtual server of a port, which is on another address; `None` for other virtual
    /// servers. The pool is `None` if another virtual server in `rows` already has the pool.
    fn further(&self, server: &'a Resource, rows: &PortStates<'a>) -> Option<PortState<'a>> {
        let is_of = |port: &&WantedPort| self.is_on(server, port) && server.spec.number == Some(port.port.number);
        let port = self.desired.ports.iter().find(is_of).filter(|_| !rows.have(server))?;
        let first = rows.ports.iter().find(|row| row.port.port == port.port).and_then(|row| row.server);
        first.filter(|first| first.address != server.address)?;
        let is_its = |pool: &&Resource| server.refers_to(&pool.tags.path) && !rows.have(pool);
        let pool = self.current.ours.pools().find(is_its);
        let row = self.empty(port, Some(server));
        let monitor = row.probe.zip(pool).and_then(|(probe, pool)| self.monitor(port, probe, Some(pool)));
        let monitor = monitor.filter(|monitor| pool.is_some_and(|pool| pool.refers_to(&monitor.tags.path)));
        Some(PortState { pool, monitor, ..row })
    }

    /// Returns the monitor of a port, preferably the monitor of its pool.
    fn monitor(&self, port: &WantedPort, probe: Probe, pool: Option<&Resource>) -> Option<&'a Resource> {
        let is_of_port = |monitor: &&Resource| {
            monitor.spec.monitor_type == Some(probe.monitor_type()) && self.port_of(&monitor.tags) == Some(port.port)
        };
        let is_of_pool = |monitor: &Resource| pool.is_some_and(|pool| pool.refers_to(&monitor.tags.path));
        self.current.ours.of_kind(ObjectKind::Monitor).filter(is_of_port).min_by_key(|monitor| !is_of_pool(monitor))
    }

    fn port_of(&self, tags: &OwnerTags) -> Option<Port> {
        self.ids.get(&*tags.id).copied().or(tags.port)
    }

    fn is_on(&self, server: &Resource, port: &WantedPort) -> bool {
        let listens = |one: &&WantedPort| self.address.is_some_and(|address| listens(server, one, address));
        let by_place = || self.desired.ports.iter().find(listens).map(|one| one.port);
        let by_id = self.ids.get(&*server.tags.id).copied();
        by_id.or_else(by_place).or(server.tags.port) == Some(port.port)
    }
}

/// Returns all ids that this program gives to the objects of each port.
fn ids(desired: &DesiredLoadBalancer, current: &CurrentState<'_>) -> BTreeMap<String, Port> {
    let mut ids = BTreeMap::new();
    for (uid, port) in desired.service_uid.iter().flat_map(|uid| desired.ports.iter().map(move |port| (uid, port.port)))
    {
        for attempt in 0..IDS {
            for kind in [ObjectKind::VirtualServer, ObjectKind::Pool] {
                ids.insert(current.layout.id(kind, uid, Some(port), attempt), port);
            }
            for monitor_type in MonitorType::of(port.protocol) {
                ids.insert(current.layout.monitor_id(monitor_type, uid, port, attempt), port);
            }
        }
    }
    ids
}

/// Whether a virtual server occupies this address, port and protocol; the application profile determines the protocol.
pub fn listens(server: &Resource, port: &WantedPort, address: IpAddr) -> bool {
    let is_there = server.address == Some(address) && server.spec.number == Some(port.port.number);
    is_there && *server.spec.profile == *port.profile
}

fn obstacle<'a>(row: &PortState<'a>, current: &CurrentState<'a>, address: Option<IpAddr>) -> Option<&'a Resource> {
    let is_in_place = row.server.is_some_and(|server| {
        server.spec.number == Some(row.port.port.number) && *server.spec.profile == *row.port.profile
    });
    let address = row.server.map_or(address, |server| server.address).filter(|_| !is_in_place)?;
    current.servers().find(|other| {
        listens(other, row.port, address) && row.server.is_none_or(|server| server.tags.path != other.tags.path)
    })
}
