//! Pure: typed NSX objects of load balancers, reduced to the fields that the plan compares.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde_json::Value;

use super::layout::{
    ADDRESS, ADDRESS_POOL, CLASS, ClusterLayout, MonitorType, PORT, Port, Probe, REQUEST_VERSION, SERVICE, SERVICE_UID,
};
use super::members;
use crate::base::addresses::{parse_ip, parse_network_sloppy};
use crate::clients::nsx::Object;
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::nsx::ownership::CLUSTER_UID;

/// Identity of an object: id, path and the tags with its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerTags {
    /// The id of the object.
    pub id: Box<str>,
    /// The path of the object.
    pub path: Box<str>,
    /// The Service (`namespace/name`), from its tag.
    pub service: Box<str>,
    /// The UID of the Service, from its tag.
    pub service_uid: Option<Box<str>>,
    /// The UID of the cluster, from its tag.
    pub cluster_uid: Option<Box<str>>,
    /// The port, from its tag.
    pub port: Option<Port>,
    /// The family, for objects of the second load balancer of the Service.
    pub secondary: Option<IpFamily>,
}

/// A load balancer service, on which virtual servers run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LbService {
    /// The id of the object.
    pub id: Box<str>,
    /// The path of the object.
    pub path: Box<str>,
    /// The path of the tier-1 gateway; empty without a gateway.
    pub tier1: Box<str>,
    /// Whether the tags have our owner and cluster name.
    pub is_named_as_ours: bool,
    /// The UID of the cluster, from its tag.
    pub cluster_uid: Option<Box<str>>,
}

/// A virtual server: one address and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualServer {
    /// The identity and the owner tags.
    pub tags: OwnerTags,
    /// The address, if valid.
    pub address: Option<IpAddr>,
    /// The port, if the virtual server has exactly one port.
    pub number: Option<u16>,
    /// The node port, if the virtual server has exactly one node port.
    pub node_port: Option<u16>,
    /// The path of the application profile.
    pub profile: Box<str>,
    /// The path of the pool; empty without one.
    pub pool: Box<str>,
    /// The path of the load balancer service; empty without one.
    pub lb_service: Box<str>,
    /// The class, from its tag; empty without one.
    pub class: Box<str>,
    /// The id of the IP pool, from its tag; empty without one.
    pub address_pool: Box<str>,
    /// The path of the group in the access list; empty without a group.
    pub group: Box<str>,
    /// Whether access is restricted to the addresses of `group`.
    pub is_restricted: bool,
    /// The path of the persistence profile; empty without one.
    pub persistence: Box<str>,
}

/// A pool: the Nodes behind a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The identity and the owner tags.
    pub tags: OwnerTags,
    /// The addresses of the members.
    pub members: BTreeSet<IpAddr>,
    /// The paths of the active monitors.
    pub monitors: Vec<Box<str>>,
    /// The id of the IP pool, from its tag; empty without one.
    pub address_pool: Box<str>,
    /// Whether SNAT is disabled, so that Nodes see client addresses; `None` for a setting other than disabled or
    /// automap.
    pub is_snat_disabled: Option<bool>,
    /// The address in the tag [`ADDRESS`]. A deletion writes this tag if only virtual servers show who owns the
    /// allocation of the address.
    pub address: Option<IpAddr>,
}

/// A monitor: the health check of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// The identity and the owner tags.
    pub tags: OwnerTags,
    /// The checked port, if set.
    pub number: Option<u16>,
    /// The type.
    pub monitor_type: MonitorType,
    /// Whether the HTTP version differs from [`REQUEST_VERSION`], as in monitors of earlier versions of this program.
    pub has_other_version: bool,
}

impl Monitor {
    /// Whether the monitor performs this probe.
    pub fn asks(&self, probe: Probe) -> bool {
        let is_of_port = probe.port().is_none() || self.number == probe.port();
        self.monitor_type == probe.monitor_type() && is_of_port && !self.has_other_version
    }
}

/// An IP address allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The identity and the owner tags.
    pub tags: OwnerTags,
    /// The id of the IP pool.
    pub address_pool: Box<str>,
    /// The address, if known.
    pub address: Option<IpAddr>,
}

/// A group of networks that may use a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The identity and the owner tags.
    pub tags: OwnerTags,
    /// The networks; `None` if not all members are networks.
    pub ranges: Option<BTreeSet<IpNet>>,
}

/// A persistence profile, which sets the time for which NSX keeps a client on the same Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistenceProfile {
    /// The identity and the owner tags.
    pub tags: OwnerTags,
    /// The idle timeout, if set.
    pub timeout: Option<Duration>,
}

/// The objects of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceResources {
    /// The virtual servers, by path.
    pub servers: Vec<VirtualServer>,
    /// The pools, by path.
    pub pools: Vec<Pool>,
    /// The monitors, by path.
    pub monitors: Vec<Monitor>,
    /// The allocations, by path.
    pub allocations: Vec<Allocation>,
    /// The groups, by path, if known: most lists do not include groups.
    pub groups: Vec<Group>,
    /// The persistence profiles, by path, if known: most lists do not include persistence profiles.
    pub persistence_profiles: Vec<PersistenceProfile>,
}

impl ServiceResources {
    /// Whether the Service has no objects.
    pub fn is_empty(&self) -> bool {
        let Self { servers, pools, monitors, allocations, groups, persistence_profiles } = self;
        let is_unused = servers.is_empty() && pools.is_empty() && monitors.is_empty() && allocations.is_empty();
        is_unused && groups.is_empty() && persistence_profiles.is_empty()
    }
}

impl ServiceResources {
    /// Returns the objects of the first load balancer (`None`), or of the second load balancer with this family.
    #[must_use]
    pub fn of(&self, second: Option<IpFamily>) -> Self {
        fn of<T: Clone>(all: &[T], is_of: impl Fn(&T) -> bool) -> Vec<T> {
            all.iter().filter(|one| is_of(one)).cloned().collect()
        }
        Self {
            servers: of(&self.servers, |one| one.tags.secondary == second),
            pools: of(&self.pools, |one| one.tags.secondary == second),
            monitors: of(&self.monitors, |one| one.tags.secondary == second),
            allocations: of(&self.allocations, |one| one.tags.secondary == second),
            groups: of(&self.groups, |one| one.tags.secondary == second),
            persistence_profiles: of(&self.persistence_profiles, |one| one.tags.secondary == second),
        }
    }

    /// Returns the paths of all objects.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.marks().map(|tags| &*tags.path)
    }

    /// Returns the valid ids of the IP pools that tags and paths of allocations name.
    pub fn address_pools(&self) -> impl Iterator<Item = &str> {
        let Self { servers, pools, allocations, .. } = self;
        let tagged = servers.iter().map(|one| &one.address_pool).chain(pools.iter().map(|one| &one.address_pool));
        let all = tagged.chain(allocations.iter().map(|one| &one.address_pool)).map(AsRef::as_ref);
        all.filter(|id: &&str| !id.contains('/') && !["", ".", ".."].contains(id))
    }

    /// Returns the identities of all objects.
    pub fn marks(&self) -> impl Iterator<Item = &OwnerTags> {
        let Self { servers, pools, monitors, allocations, groups, persistence_profiles } = self;
        let tags = servers.iter().map(|one| &one.tags).chain(pools.iter().map(|one| &one.tags));
        let marks = tags.chain(monitors.iter().map(|one| &one.tags)).chain(allocations.iter().map(|one| &one.tags));
        let marks = marks.chain(groups.iter().map(|one| &one.tags));
        marks.chain(persistence_profiles.iter().map(|one| &one.tags))
    }
}

impl OwnerTags {
    /// Reads the identity of an object; `None` if its tags do not name this cluster and a Service, if it has no id or
    /// path, or if it is marked for deletion.
    pub fn read(object: &Object, layout: &ClusterLayout) -> Option<Self> {
        let (service, second) = (object.tag(SERVICE)?, layout.load_balancer_of(object)?);
        let is_complete = service.contains('/') && !object.id().is_empty() && !object.path().is_empty();
        let is_considered = is_complete && !object.is_marked_for_delete();
        is_considered.then(|| Self {
            id: object.id().into(),
            path: object.path().into(),
            service: service.into(),
            service_uid: object.tag(SERVICE_UID).map(Into::into),
            cluster_uid: object.tag(CLUSTER_UID).map(Into::into),
            port: object.tag(PORT).and_then(Port::parse),
            secondary: second,
        })
    }
}

impl LbService {
    /// Reads a load balancer service; `None` if the object has no path or is marked for deletion.
    pub fn read(object: &Object, layout: &ClusterLayout) -> Option<Self> {
        let is_there = !object.path().is_empty() && !object.is_marked_for_delete();
        is_there.then(|| Self {
            id: object.id().into(),
            path: object.path().into(),
            tier1: object.text("connectivity_path").into(),
            is_named_as_ours: layout.load_balancer_of(object) == Some(None),
            cluster_uid: object.tag(CLUSTER_UID).map(Into::into),
        })
    }
}

impl VirtualServer {
    /// Reads a virtual server; `None` in the same cases as [`OwnerTags::read`].
    pub fn read(object: &Object, layout: &ClusterLayout) -> Option<Self> {
        Some(Self {
            tags: OwnerTags::read(object, layout)?,
            address: parse_ip(object.text("ip_address")),
            number: single_port(object, "ports"),
            node_port: single_port(object, "default_pool_member_ports"),
            profile: object.text("application_profile_path").into(),
            pool: object.text("pool_path").into(),
            lb_service: object.text("lb_service_path").into(),
            class: object.tag(CLASS).unwrap_or_default().into(),
            address_pool: object.tag(ADDRESS_POOL).unwrap_or_default().into(),
            group: text_in(object, "access_list_control", "group_path").into(),
            is_restricted: is_restricted(object),
            persistence: object.text("lb_persistence_profile_path").into(),
        })
    }
}

impl Pool {
    /// Reads a pool; `None` in the same cases as [`OwnerTags::read`].
    pub fn read(object: &Object, layout: &ClusterLayout) -> Option<Self> {
        Some(Self {
            tags: OwnerTags::read(object, layout)?,
            members: members::addresses_of(list(object, "members")),
            monitors: texts(object, "active_monitor_paths").map(Into::into).collect(),
            address_pool: object.tag(ADDRESS_POOL).unwrap_or_default().into(),
            is_snat_disabled: snat_of(object),
            address: object.tag(ADDRESS).and_then(parse_ip),
        })
    }
}

impl Monitor {
    /// Reads a monitor; `None` in the same cases as [`OwnerTags::read`], and for types that this program does not use.
    pub fn read(object: &Object, layout: &ClusterLayout) -> Option<Self> {
        let marks = OwnerTags::read(object, layout)?;
        let number = object.0.get("monitor_port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        let monitor_type = MonitorType::parse(object.text("resource_type"))?;
        let has_other_version = monitor_type == MonitorType::Http && object.text("request_version") != REQUEST_VERSION;
        Some(Self { tags: marks, number, monitor_type, has_other_version })
    }
}

impl Allocation {
    /// Reads an allocation, with the IP pool from its path; `None` in the same cases as [`OwnerTags::read`].
    pub fn read(object: &Object, layout: &ClusterLayout) -> Option<Self> {
        let marks = OwnerTags::read(object, layout)?;
        // `allocation_ip` is only the requested address.
        let address = parse_ip(object.text("allocated_ip"));
        let address_pool = marks.path.split('/').rev().nth(2).unwrap_or_default().into();
        Some(Self { tags: marks, address_pool, address })
    }
}

impl Group {
    /// Reads a group; `None` in the same cases as [`OwnerTags::read`].
    pub fn read(object: &Object, layout: &ClusterLayout) -> Option<Self> {
        Some(Self { tags: OwnerTags::read(object, layout)?, ranges: ranges(list(object, "expression")) })
    }
}

impl PersistenceProfile {
    /// Reads a persistence profile; `None` in the cases of [`OwnerTags::read`], and for types other than source IP.
    pub fn read(object: &Object, layout: &ClusterLayout) -> Option<Self> {
        let marks = OwnerTags::read(object, layout)?;
        let timeout = object.0.get("timeout").and_then(Value::as_u64).map(Duration::from_secs);
        (object.text("resource_type") == "LBSourceIpPersistenceProfile").then_some(Self { tags: marks, timeout })
    }
}

/// Returns true if SNAT of the pool is disabled, and false for automap (the default). `None` for any other SNAT
/// setting.
pub fn snat_of(pool: &Object) -> Option<bool> {
    match text_in(pool, "snat_translation", "type") {
        "" | "LBSnatAutoMap" => Some(false),
        "LBSnatDisabled" => Some(true),
        _ => None,
    }
}

/// Whether access is restricted. An access list that is disabled or has an action other than `ALLOW` does not count.
fn is_restricted(object: &Object) -> bool {
    let enabled = object.0.get("access_list_control").and_then(|control| control.get("enabled"));
    let is_enabled = enabled.and_then(Value::as_bool).unwrap_or_default();
    is_enabled && text_in(object, "access_list_control", "action") == "ALLOW"
}

fn ranges(expression: &[Value]) -> Option<BTreeSet<IpNet>> {
    let text = |value: &Value, member: &str| value.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut ranges = BTreeSet::new();
    for part in expression {
        match text(part, "resource_type").as_str() {
            "ConjunctionOperator" if text(part, "conjunction_operator") == "OR" => {}
            "IPAddressExpression" => {
                for address in part.get("ip_addresses")?.as_array()? {
                    let text = address.as_str()?;
                    ranges.insert(parse_network_sloppy(text).or_else(|| parse_ip(text).map(IpNet::from))?);
                }
            }
            _ => return None,
        }
    }
    Some(ranges)
}

fn text_in<'a>(object: &'a Object, outer: &str, member: &str) -> &'a str {
    object.0.get(outer).and_then(|value| value.get(member)).and_then(Value::as_str).unwrap_or_default()
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
