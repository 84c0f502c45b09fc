//! Pure: the objects of load balancers as this program remembers them: what a comparison needs, and no more.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::layout::{ADDRESS_POOL, CLASS, CLUSTER, CLUSTER_UID, Layout, OWNER, PORT, Port, SERVICE, SERVICE_UID};
use super::members;
use crate::base::addresses::parse_ip;
use crate::clients::nsx::Object;

/// What says whose an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// Its id.
    pub id: Box<str>,
    /// Its path.
    pub path: Box<str>,
    /// Namespace and name of the Service that its tag gives.
    pub service: Box<str>,
    /// The UID of the Service, if it has that tag.
    pub service_uid: Option<Box<str>>,
    /// The UID of the cluster, if it has that tag.
    pub cluster_uid: Option<Box<str>>,
    /// The port that its tag gives.
    pub port: Option<Port>,
}

/// What virtual servers run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LbService {
    /// Its id.
    pub id: Box<str>,
    /// Its path.
    pub path: Box<str>,
    /// The path of its tier-1 gateway; empty without one.
    pub tier1: Box<str>,
    /// Whether owner and cluster name of its tags are ours.
    pub is_named_as_ours: bool,
    /// The UID of the cluster, if it has that tag.
    pub cluster_uid: Option<Box<str>>,
}

/// An address with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualServer {
    /// Whose it is.
    pub marks: Marks,
    /// The address, if it is one.
    pub address: Option<IpAddr>,
    /// The port, if it is a single one.
    pub number: Option<u16>,
    /// The port of the nodes, if it is a single one.
    pub node_port: Option<u16>,
    /// The path of the application profile.
    pub profile: Box<str>,
    /// The path of the pool; empty without one.
    pub pool: Box<str>,
    /// The path of the load balancer service; empty without one.
    pub lb_service: Box<str>,
    /// The class that its tag gives; empty without one.
    pub class: Box<str>,
    /// The id of the pool of addresses that its tag gives; empty without one.
    pub address_pool: Box<str>,
}

/// The nodes behind a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Whose it is.
    pub marks: Marks,
    /// The addresses of its members.
    pub members: BTreeSet<IpAddr>,
    /// The paths of its active monitors.
    pub monitors: Vec<Box<str>>,
    /// The id of the pool of addresses that its tag gives; empty without one.
    pub address_pool: Box<str>,
}

/// A health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// Whose it is.
    pub marks: Marks,
    /// The port that it asks.
    pub number: Option<u16>,
}

/// A reserved address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Whose it is.
    pub marks: Marks,
    /// The id of the pool that it is from.
    pub address_pool: Box<str>,
    /// The address, if it was read.
    pub address: Option<IpAddr>,
}

/// The objects of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    /// Its virtual servers, by path.
    pub servers: Vec<VirtualServer>,
    /// Its pools, by path.
    pub pools: Vec<Pool>,
    /// Its monitors, by path.
    pub monitors: Vec<Monitor>,
    /// Its addresses, by path.
    pub allocations: Vec<Allocation>,
}

impl Objects {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        let Self { servers, pools, monitors, allocations } = self;
        servers.is_empty() && pools.is_empty() && monitors.is_empty() && allocations.is_empty()
    }
}

impl Objects {
    /// The path of each.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let Self { servers, pools, monitors, allocations } = self;
        let marks = servers.iter().map(|one| &one.marks).chain(pools.iter().map(|one| &one.marks));
        let marks = marks.chain(monitors.iter().map(|one| &one.marks)).chain(allocations.iter().map(|one| &one.marks));
        marks.map(|marks| &*marks.path)
    }
}

impl Marks {
    /// `None` for an object of another owner or cluster name, for one without a Service, and for one that only waits for its
    /// purge.
    pub fn read(object: &Object, layout: &Layout) -> Option<Self> {
        let service = object.tag(SERVICE)?;
        let is_complete = service.contains('/') && !object.id().is_empty() && !object.path().is_empty();
        let is_considered = is_complete && is_named_as_ours(object, layout) && !object.is_marked_for_delete();
        is_considered.then(|| Self {
            id: object.id().into(),
            path: object.path().into(),
            service: service.into(),
            service_uid: object.tag(SERVICE_UID).map(Into::into),
            cluster_uid: object.tag(CLUSTER_UID).map(Into::into),
            port: object.tag(PORT).and_then(Port::parse),
        })
    }
}

impl LbService {
    /// `None` for what has no path, or only waits for its purge.
    pub fn read(object: &Object, layout: &Layout) -> Option<Self> {
        let is_there = !object.path().is_empty() && !object.is_marked_for_delete();
        is_there.then(|| Self {
            id: object.id().into(),
            path: object.path().into(),
            tier1: object.text("connectivity_path").into(),
            is_named_as_ours: is_named_as_ours(object, layout),
            cluster_uid: object.tag(CLUSTER_UID).map(Into::into),
        })
    }
}

impl VirtualServer {
    /// See [`Marks::read`].
    pub fn read(object: &Object, layout: &Layout) -> Option<Self> {
        Some(Self {
            marks: Marks::read(object, layout)?,
            address: parse_ip(object.text("ip_address")),
            number: single_port(object, "ports"),
            node_port: single_port(object, "default_pool_member_ports"),
            profile: object.text("application_profile_path").into(),
            pool: object.text("pool_path").into(),
            lb_service: object.text("lb_service_path").into(),
            class: object.tag(CLASS).unwrap_or_default().into(),
            address_pool: object.tag(ADDRESS_POOL).unwrap_or_default().into(),
        })
    }
}

impl Pool {
    /// See [`Marks::read`].
    pub fn read(object: &Object, layout: &Layout) -> Option<Self> {
        Some(Self {
            marks: Marks::read(object, layout)?,
            members: members::addresses_of(list(object, "members")),
            monitors: texts(object, "active_monitor_paths").map(Into::into).collect(),
            address_pool: object.tag(ADDRESS_POOL).unwrap_or_default().into(),
        })
    }
}

impl Monitor {
    /// See [`Marks::read`]. Monitors of other types than TCP are none of the Go program's.
    pub fn read(object: &Object, layout: &Layout) -> Option<Self> {
        let marks = Marks::read(object, layout)?;
        let number = object.0.get("monitor_port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        (object.text("resource_type") == "LBTcpMonitorProfile").then_some(Self { marks, number })
    }
}

impl Allocation {
    /// See [`Marks::read`]. The pool is that of the path.
    pub fn read(object: &Object, layout: &Layout) -> Option<Self> {
        let marks = Marks::read(object, layout)?;
        let address = ["allocation_ip", "allocated_ip"].into_iter().find_map(|member| parse_ip(object.text(member)));
        let address_pool = marks.path.split('/').rev().nth(2).unwrap_or_default().into();
        Some(Self { marks, address_pool, address })
    }
}

fn is_named_as_ours(object: &Object, layout: &Layout) -> bool {
    object.tag(OWNER) == Some(layout.owner()) && object.tag(CLUSTER) == Some(&layout.cluster)
}

fn list<'a>(object: &'a Object, member: &str) -> &'a [Value] {
    object.0.get(member).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn texts<'a>(object: &'a Object, member: &str) -> impl Iterator<Item = &'a str> {
    list(object, member).iter().filter_map(Value::as_str)
}

fn single_port(object: &Object, member: &str) -> Option<u16> {
    match list(object, member) {
        [Value::String(port)] => port.parse().ok(),
        _ => None,
    }
}
