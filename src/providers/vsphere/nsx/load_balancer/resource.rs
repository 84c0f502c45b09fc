//! Pure: the resources of load balancers: NSX objects, reduced to the fields that the plan compares.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde_json::Value;

use super::layout::{
    ADDRESS, ADDRESS_POOL, CLASS, ClusterLayout, MonitorType, ObjectKind, PORT, Port, Probe, SERVICE, SERVICE_UID,
};
use super::members::{self, Member};
use crate::base::addresses::{parse_ip, parse_network_sloppy};
use crate::clients::nsx::Object;
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::nsx::ownership::CLUSTER_UID;

/// HTTP version of monitor requests. kube-proxy answers 400 to an HTTP 1.1 request without a `Host` header, and NSX is
/// not documented to send this header.
pub const REQUEST_VERSION: &str = "HTTP_VERSION_1_0";

/// Identity of a resource: id, path and the tags with its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerTags {
    /// The id of the object.
    pub id: Box<str>,
    /// The path of the object.
    pub path: Box<str>,
    /// Whether the tags have our owner and cluster name.
    pub is_named_as_ours: bool,
    /// The Service (`namespace/name`), from its tag; empty if the tags do not name this cluster and a Service.
    pub service: Box<str>,
    /// The UID of the Service, from its tag.
    pub service_uid: Option<Box<str>>,
    /// The UID of the cluster, from its tag.
    pub cluster_uid: Option<Box<str>>,
    /// The port, from its tag.
    pub port: Option<Port>,
    /// The family of the second load balancer, for its objects; `None` for objects of the first load balancer.
    pub secondary: Option<IpFamily>,
}

/// An object of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The kind.
    pub kind: ObjectKind,
    /// The identity and the owner tags.
    pub tags: OwnerTags,
    /// The address of a virtual server or an allocation, if known. For a pool: the address in the tag [`ADDRESS`],
    /// which a deletion writes if only virtual servers show who owns the allocation of the address.
    pub address: Option<IpAddr>,
    /// The id of the IP pool; empty without one.
    pub address_pool: Box<str>,
    /// The kinds and paths of the objects to which this object refers.
    pub references: Vec<(ObjectKind, Box<str>)>,
    /// The other properties.
    pub spec: ResourceSpec,
}

/// Properties that only resources of some kinds have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceSpec {
    /// The port of a virtual server, if it has exactly one; the port that a monitor checks, if set.
    pub number: Option<u16>,
    /// The node port, if a virtual server has exactly one.
    pub node_port: Option<u16>,
    /// The path of the application profile of a virtual server.
    pub profile: Box<str>,
    /// The class, from the tag of a virtual server; empty without one.
    pub class: Box<str>,
    /// Whether access to a virtual server is restricted to the addresses of its group.
    pub is_restricted: bool,
    /// The addresses of the members of a pool.
    pub members: BTreeSet<IpAddr>,
    /// Whether SNAT of a pool is disabled, so that Nodes see client addresses; `None` for a setting other than disabled
    /// or automap.
    pub is_snat_disabled: Option<bool>,
    /// The type of a monitor.
    pub monitor_type: Option<MonitorType>,
    /// Whether the HTTP version of a monitor differs from [`REQUEST_VERSION`], as in monitors of earlier versions of
    /// this program.
    pub has_other_version: bool,
    /// The networks of a group; `None` if not all members are networks.
    pub ranges: Option<BTreeSet<IpNet>>,
    /// The idle timeout of a persistence profile, if set.
    pub timeout: Option<Duration>,
    /// The path of the tier-1 gateway of a load balancer service; empty without a gateway.
    pub tier1: Box<str>,
}

/// The resources of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceResources(pub Vec<Resource>);

impl ServiceResources {
    /// Whether the Service has no resources.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the resources.
    pub fn iter(&self) -> impl Iterator<Item = &Resource> + Clone {
        self.0.iter()
    }

    /// Returns the resources of a kind.
    pub fn of_kind(&self, kind: ObjectKind) -> impl Iterator<Item = &Resource> + Clone {
        self.iter().filter(move |one| one.kind == kind)
    }

    /// Returns the virtual servers.
    pub fn servers(&self) -> impl Iterator<Item = &Resource> + Clone {
        self.of_kind(ObjectKind::VirtualServer)
    }

    /// Returns the pools.
    pub fn pools(&self) -> impl Iterator<Item = &Resource> + Clone {
        self.of_kind(ObjectKind::Pool)
    }

    /// Returns the allocations.
    pub fn allocations(&self) -> impl Iterator<Item = &Resource> + Clone {
        self.of_kind(ObjectKind::Allocation)
    }

    /// Whether the Service has resources of a kind.
    pub fn has(&self, kind: ObjectKind) -> bool {
        self.of_kind(kind).next().is_some()
    }

    /// Returns the resource at this path.
    pub fn at(&self, path: &str) -> Option<&Resource> {
        self.iter().find(|one| *one.tags.path == *path)
    }

    /// Whether a resource refers to the object at this path.
    pub fn refer_to(&self, path: &str) -> bool {
        self.iter().any(|one| one.refers_to(path))
    }

    /// Returns the resources of the first load balancer (`None`), or of the second load balancer with this family.
    #[must_use]
    pub fn of(&self, secondary: Option<IpFamily>) -> Self {
        Self(self.iter().filter(|one| one.tags.secondary == secondary).cloned().collect())
    }

    /// Returns the paths of all resources.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|one| &*one.tags.path)
    }

    /// Returns the valid ids of the IP pools that tags and paths of allocations name.
    pub fn address_pools(&self) -> impl Iterator<Item = &str> {
        self.iter().filter_map(Resource::valid_address_pool)
    }
}

/// Properties of a load balancer, except its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadBalancerSpec {
    /// The class.
    pub class: String,
    /// The id of the IP pool.
    pub address_pool: String,
    /// The members of the pools behind the ports.
    pub members: Vec<Member>,
    /// The size of a new load balancer service.
    pub size: &'static str,
    /// The gateway of a new load balancer service.
    pub tier1: Option<String>,
}

impl OwnerTags {
    /// Reads the identity of an object; `None` if it has no path or is marked for deletion. An identity is no proof of
    /// ownership: the object may belong to another owner, or to another cluster of the same name.
    pub fn read(object: &Object, layout: &ClusterLayout) -> Option<Self> {
        let named = layout.load_balancer_of(object);
        let service = object.tag(SERVICE).filter(|service| service.contains('/') && !object.id().is_empty());
        let is_there = !object.path().is_empty() && !object.is_marked_for_delete();
        is_there.then(|| Self {
            id: object.id().into(),
            path: object.path().into(),
            is_named_as_ours: named.is_some(),
            service: service.filter(|_| named.is_some()).unwrap_or_default().into(),
            service_uid: object.tag(SERVICE_UID).map(Into::into),
            cluster_uid: object.tag(CLUSTER_UID).map(Into::into),
            port: object.tag(PORT).and_then(Port::parse),
            secondary: named.flatten(),
        })
    }

    /// Whether these are tags of the first load balancer, which the load balancer service of this cluster has, too.
    pub fn are_of_first_load_balancer(&self) -> bool {
        self.is_named_as_ours && self.secondary.is_none()
    }
}

impl Resource {
    /// Reads an object; `None` in the same cases as [`OwnerTags::read`], and for an object of a Service that has a type
    /// that this program does not use.
    pub fn read(kind: ObjectKind, object: &Object, layout: &ClusterLayout) -> Option<Self> {
        let mut tags = OwnerTags::read(object, layout)?;
        if kind == ObjectKind::LbService {
            tags.service = Box::default();
        }
        let spec = ResourceSpec::read(kind, object);
        let is_used = match kind {
            ObjectKind::Monitor => spec.monitor_type.is_some(),
            ObjectKind::PersistenceProfile => object.text("resource_type") == "LBSourceIpPersistenceProfile",
            _ => true,
        };
        if !is_used && !tags.service.is_empty() {
            return None;
        }
        let address = match kind {
            ObjectKind::VirtualServer => parse_ip(object.text("ip_address")),
            ObjectKind::Pool => object.tag(ADDRESS).and_then(parse_ip),
            // `allocation_ip` is only the requested address.
            ObjectKind::Allocation => parse_ip(object.text("allocated_ip")),
            _ => None,
        };
        let address_pool = match kind {
            ObjectKind::VirtualServer | ObjectKind::Pool => object.tag(ADDRESS_POOL).unwrap_or_default(),
            ObjectKind::Allocation => object.path().split('/').rev().nth(2).unwrap_or_default(),
            _ => "",
        };
        let address_pool = address_pool.into();
        Some(Self { kind, tags, address, address_pool, references: references_of(object), spec })
    }

    /// Returns an object to create, without its properties.
    pub fn new(kind: ObjectKind, port: Option<Port>) -> Self {
        Self {
            kind,
            tags: OwnerTags { port, ..OwnerTags::default() },
            address: None,
            address_pool: Box::default(),
            references: Vec::new(),
            spec: ResourceSpec::default(),
        }
    }

    /// Sets the health check of a monitor.
    pub fn set_probe(&mut self, probe: Probe) {
        self.spec.number = probe.port();
        self.spec.monitor_type = Some(probe.monitor_type());
        self.spec.has_other_version = false;
    }

    /// Sets the port, the node port and the application profile of a virtual server.
    pub fn set_port(&mut self, port: Port, node_port: u16, profile: &str) {
        self.tags.port = Some(port);
        self.spec.number = Some(port.number);
        self.spec.node_port = Some(node_port);
        self.spec.profile = profile.into();
    }

    /// Makes this resource refer to this path, and to no other object of the kind; to none if `path` is empty.
    pub fn set_reference(&mut self, kind: ObjectKind, path: &str) {
        if !self.has_only_reference(kind, path) {
            self.references.retain(|(of, _)| *of != kind);
            self.references.extend((!path.is_empty()).then(|| (kind, path.into())));
        }
    }

    /// Whether this resource refers to this path, and to no other object of the kind; to none if `path` is empty.
    pub fn has_only_reference(&self, kind: ObjectKind, path: &str) -> bool {
        let known = self.references.iter().filter(|(of, _)| *of == kind).map(|(_, path)| &**path);
        known.eq(Some(path).filter(|path| !path.is_empty()))
    }

    /// Returns the path of the object of a kind to which this resource refers; empty without one. A pool may refer to
    /// several monitors.
    pub fn reference(&self, kind: ObjectKind) -> &str {
        self.references.iter().find(|(of, _)| *of == kind).map(|(_, path)| &**path).unwrap_or_default()
    }

    /// Whether this resource refers to the object at this path.
    pub fn refers_to(&self, path: &str) -> bool {
        self.references.iter().any(|(_, known)| **known == *path)
    }

    /// Whether this resource is a virtual server or an allocation with this address.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.kind != ObjectKind::Pool && self.address == Some(address)
    }

    /// Returns the id of the IP pool, if it is valid.
    pub fn valid_address_pool(&self) -> Option<&str> {
        let id = &*self.address_pool;
        (!id.contains('/') && !["", ".", ".."].contains(&id)).then_some(id)
    }

    /// Whether this monitor performs this probe.
    pub fn asks(&self, probe: Probe) -> bool {
        let is_of_port = probe.port().is_none() || self.spec.number == probe.port();
        self.spec.monitor_type == Some(probe.monitor_type()) && is_of_port && !self.spec.has_other_version
    }
}

impl ResourceSpec {
    fn read(kind: ObjectKind, object: &Object) -> Self {
        let none = Self::default();
        match kind {
            ObjectKind::LbService => Self { tier1: object.text("connectivity_path").into(), ..none },
            ObjectKind::VirtualServer => Self {
                number: single_port(object, "ports"),
                node_port: single_port(object, "default_pool_member_ports"),
                profile: object.text("application_profile_path").into(),
                class: object.tag(CLASS).unwrap_or_default().into(),
                is_restricted: is_restricted(object),
                ..none
            },
            ObjectKind::Pool => Self {
                members: members::addresses_of(object.list("members")),
                is_snat_disabled: snat_of(object),
                ..none
            },
            ObjectKind::Monitor => {
                let number = object.0.get("monitor_port").and_then(Value::as_u64);
                let monitor_type = MonitorType::parse(object.text("resource_type"));
                let is_other = object.text("request_version") != REQUEST_VERSION;
                Self {
                    number: number.and_then(|port| u16::try_from(port).ok()),
                    monitor_type,
                    has_other_version: monitor_type == Some(MonitorType::Http) && is_other,
                    ..none
                }
            }
            ObjectKind::Allocation => none,
            ObjectKind::Group => Self { ranges: ranges(object.list("expression")), ..none },
            ObjectKind::PersistenceProfile => {
                let timeout = object.0.get("timeout").and_then(Value::as_u64);
                Self { timeout: timeout.map(Duration::from_secs), ..none }
            }
        }
    }
}

/// Returns the kinds and paths of the objects to which an object refers.
fn references_of(object: &Object) -> Vec<(ObjectKind, Box<str>)> {
    let monitors = object.list("active_monitor_paths").iter().filter_map(Value::as_str);
    let all = [
        (ObjectKind::Pool, object.text("pool_path")),
        (ObjectKind::LbService, object.text("lb_service_path")),
        (ObjectKind::Group, text_in(object, "access_list_control", "group_path")),
        (ObjectKind::PersistenceProfile, object.text("lb_persistence_profile_path")),
    ];
    let all = all.into_iter().chain(monitors.map(|path| (ObjectKind::Monitor, path)));
    all.filter(|(_, path)| !path.is_empty()).map(|(kind, path)| (kind, path.into())).collect()
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

fn single_port(object: &Object, member: &str) -> Option<u16> {
    match object.list(member) {
        [Value::String(port)] => port.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
