//! Pure: how load balancers are written in NSX. Names, descriptions and tags are those of the Go program, so that either
//! program finds what the other wrote. Ids are this program's own: a create that is repeated meets the same object.
//!
//! Mirrors `access.go` and `tag.go` of `pkg/cloudprovider/vsphere/loadbalancer`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde_json::{Value, json};
use uuid::Uuid;

use super::members::{self, Member};
use crate::clients::nsx::Object;
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::nsx::names::{LONGEST_DESCRIPTION, LONGEST_NAME, shortened};
use crate::providers::vsphere::nsx::ownership::CLUSTER_UID;
use crate::providers::vsphere::nsx::tags::ScopedTags;

/// The name of this program in descriptions and, unless the configuration has another, in the tag of the owner.
pub const PROGRAM: &str = "vsphere-cloud-controller-manager";

/// The scope of the tag with the owner.
pub const OWNER: &str = "owner";
/// The scope of the tag with the cluster's name.
pub const CLUSTER: &str = "cluster";
/// The scope of the tag with namespace and name of the Service.
pub const SERVICE: &str = "service";
/// The scope of the tag with protocol and port.
pub const PORT: &str = "port";
/// The scope of the tag with the id of the pool of addresses.
pub const ADDRESS_POOL: &str = "ippoolid";
/// The scope of the tag with the class.
pub const CLASS: &str = "lbclass";
/// The scope of the tag with the UID of the Service. The Go program does not know it.
pub const SERVICE_UID: &str = "service-uid";
/// The scope of the tag with the address of the virtual server that a pool is of, which is written before that is deleted. The
/// Go program does not know it.
pub const ADDRESS: &str = "virtual-server-address";

/// The scope of the tag with the family of a second load balancer. The Go program does not know it.
pub const FAMILY: &str = "ipfamily";

/// What follows the owner in the tag of a second load balancer: the Go program, which takes the first pool with the tag of a
/// port, does not find it.
const SECOND: &str = "-second-family";

/// How many tags an object of NSX may have.
const MOST_TAGS: usize = 30;

/// How many ids one object may have: an id is in use for a while after its object was deleted.
pub const IDS: u8 = 10;

/// The path of all load balancer services, without the id.
pub const LB_SERVICES: &str = "/infra/lb-services";
/// The path of all virtual servers, without the id.
pub const SERVERS: &str = "/infra/lb-virtual-servers";
/// The path of all groups, without the id.
pub const GROUPS: &str = "/infra/domains/default/groups";
/// The path of all persistence profiles, without the id.
pub const PERSISTENCE_PROFILES: &str = "/infra/lb-persistence-profiles";

/// The member of a group with its type, which old versions of NSX do not have.
pub const GROUP_TYPE: &str = "group_type";

/// Where a node says whether it has endpoints of a Service.
const HEALTH_CHECK_PATH: &str = "/healthz";

/// The version of the requests of HTTP monitors: kube-proxy answers 400 to a request of HTTP 1.1 without the header `Host`, and
/// no document says whether NSX sends one.
pub const REQUEST_VERSION: &str = "HTTP_VERSION_1_0";

/// The space of the ids, version 5 of RFC 9562.
const SPACE: Uuid = Uuid::from_u128(0x8d5f_6c1e_41a3_4b0e_9a57_2f6b_7c90_d3e4);

/// The kinds of objects that a load balancer consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// What the virtual servers of a cluster run on.
    LbService,
    /// An address with a port.
    VirtualServer,
    /// The nodes behind a port.
    Pool,
    /// The health check of a pool.
    Monitor,
    /// An address that is reserved.
    Allocation,
    /// The addresses that may use a load balancer.
    Group,
    /// How long a client keeps its node.
    PersistenceProfile,
}

impl ObjectKind {
    /// The word in ids. Never changed: ids of objects that exist depend on it.
    fn word(self) -> &'static str {
        match self {
            ObjectKind::LbService => "lb-service",
            ObjectKind::VirtualServer => "virtual-server",
            ObjectKind::Pool => "pool",
            ObjectKind::Monitor => MONITOR,
            ObjectKind::Allocation => "allocation",
            ObjectKind::Group => "group",
            ObjectKind::PersistenceProfile => "persistence-profile",
        }
    }

    /// All words in ids.
    fn words(self) -> Vec<&'static str> {
        match self {
            ObjectKind::Monitor => vec![MONITOR, HTTP_MONITOR, ICMP_MONITOR],
            kind => vec![kind.word()],
        }
    }
}

/// The words in the ids of monitors. A port that gets a monitor of another type needs another id: the monitor of before is in use
/// until its pool has the new one, and NSX does not change the type of a monitor.
const MONITOR: &str = "monitor";
const HTTP_MONITOR: &str = "http-monitor";
const ICMP_MONITOR: &str = "icmp-monitor";

/// The types of health checks. NSX has more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MonitorType {
    /// Opens TCP connections.
    Tcp,
    /// Sends HTTP requests.
    Http,
    /// Sends ICMP echo requests.
    Icmp,
}

impl MonitorType {
    const ALL: [Self; 3] = [Self::Tcp, Self::Http, Self::Icmp];

    /// `resource_type` in NSX.
    pub fn resource_type(self) -> &'static str {
        match self {
            Self::Tcp => "LBTcpMonitorProfile",
            Self::Http => "LBHttpMonitorProfile",
            Self::Icmp => "LBIcmpMonitorProfile",
        }
    }

    /// The one with this `resource_type`.
    pub fn parse(resource_type: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.resource_type() == resource_type)
    }

    /// The types that monitors of a port may have.
    pub fn of(protocol: Protocol) -> [Self; 2] {
        match protocol {
            Protocol::Tcp => [Self::Tcp, Self::Http],
            Protocol::Udp => [Self::Http, Self::Icmp],
        }
    }

    /// The word in the ids of such monitors of a port. The types that ports had first share the word of the kind.
    fn word(self, protocol: Protocol) -> &'static str {
        match (self, protocol) {
            (Self::Tcp, _) | (Self::Http, Protocol::Udp) => MONITOR,
            (Self::Http, Protocol::Tcp) => HTTP_MONITOR,
            (Self::Icmp, _) => ICMP_MONITOR,
        }
    }
}

/// What a monitor asks nodes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probe {
    /// A connection to this port.
    Tcp(u16),
    /// Whether they have endpoints of the Service, at this port.
    Http(u16),
    /// An answer to an ICMP echo request.
    Icmp,
}

impl Probe {
    /// The type of the monitor.
    pub fn monitor_type(self) -> MonitorType {
        match self {
            Self::Tcp(_) => MonitorType::Tcp,
            Self::Http(_) => MonitorType::Http,
            Self::Icmp => MonitorType::Icmp,
        }
    }

    /// The port of the nodes.
    pub fn port(self) -> Option<u16> {
        match self {
            Self::Tcp(port) | Self::Http(port) => Some(port),
            Self::Icmp => None,
        }
    }
}

/// The transport protocol of a port. NSX has no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// A port of a Service. Prints as the value of its tag, such as `TCP/80`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// Its protocol.
    pub protocol: Protocol,
    /// Its number.
    pub number: u16,
}

impl Port {
    /// From the value of a tag.
    pub fn parse(text: &str) -> Option<Self> {
        let (protocol, number) = text.split_once('/')?;
        let protocol = match protocol {
            "TCP" => Protocol::Tcp,
            "UDP" => Protocol::Udp,
            _ => return None,
        };
        Some(Self { protocol, number: number.parse().ok()? })
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = match self.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
        };
        write!(f, "{protocol}/{}", self.number)
    }
}

/// The Service that a load balancer is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    /// The namespace of the Service.
    pub namespace: &'a str,
    /// The name of the Service.
    pub name: &'a str,
    /// The UID of the Service.
    pub uid: &'a str,
}

impl fmt::Display for Owner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What all objects of a cluster have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterLayout {
    /// The name of the cluster.
    pub cluster: String,
    /// What identifies the cluster, if that is known.
    pub cluster_uid: Option<String>,
    /// Tags of all objects by scope, as they are configured. `owner` replaces the name of this program.
    pub configured: BTreeMap<String, String>,
    /// A Service with two families has two load balancers. The family of the second one, if it is about that; the first one
    /// is as the Go program makes it, of whatever family.
    pub second: Option<IpFamily>,
}

/// Where a new virtual server listens, and what it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts<'a> {
    /// The port of the Service.
    pub port: Port,
    /// The port of the nodes.
    pub node_port: u16,
    /// The address.
    pub address: IpAddr,
    /// The class of the Service.
    pub class: &'a str,
    /// The id of the pool that the address is from.
    pub address_pool: &'a str,
    /// The path of the application profile.
    pub profile: &'a str,
    /// The path of the pool of nodes.
    pub pool: &'a str,
    /// The path of the load balancer service.
    pub lb_service: &'a str,
    /// The path of the group of addresses that may use it; none lets everybody.
    pub group: Option<&'a str>,
    /// The path of the persistence profile, if clients keep their nodes.
    pub persistence: Option<&'a str>,
}

/// What is behind a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFacts<'a> {
    /// The port of the Service.
    pub port: Port,
    /// The id of the pool that the address is from.
    pub address_pool: &'a str,
    /// The nodes.
    pub members: &'a [Member],
    /// The path of the monitor, if there is one.
    pub monitor: Option<&'a str>,
    /// Whether nodes see the addresses of clients.
    pub is_snat_disabled: bool,
}

/// Whether an id may be one of this program; those of the Go program are random.
pub fn is_name_based(id: &str) -> bool {
    Uuid::parse_str(id).is_ok_and(|id| id.get_version_num() == 5)
}

impl ClusterLayout {
    /// The same for the first load balancer of a Service, or for the second one, which is of this family.
    #[must_use]
    pub fn of(&self, second: Option<IpFamily>) -> Self {
        Self { second, ..self.clone() }
    }

    /// The value of the tag [`OWNER`].
    pub fn owner(&self) -> String {
        let owner = self.configured.get(OWNER).map_or(PROGRAM, String::as_str);
        if self.second.is_some() { format!("{owner}{SECOND}") } else { owner.to_owned() }
    }

    /// Of which load balancer of its Service an object is: the family if it is the second one. None if owner or cluster of its
    /// tags are not ours.
    pub fn load_balancer_of(&self, object: &Object) -> Option<Option<IpFamily>> {
        let owner = self.configured.get(OWNER).map_or(PROGRAM, String::as_str);
        let rest = object.tag(OWNER)?.strip_prefix(owner).filter(|_| object.tag(CLUSTER) == Some(&self.cluster))?;
        match rest {
            "" => Some(None),
            SECOND => object.tag(FAMILY).and_then(IpFamily::of_text).map(Some),
            _ => None,
        }
    }

    /// The tags that every object of a kind has.
    pub fn tags(&self, kind: ObjectKind) -> ScopedTags {
        let tags = self.free().fold(ScopedTags::default(), |tags, (scope, tag)| tags.with(scope, tag));
        let tags = tags.with(OWNER, self.owner()).with(CLUSTER, &self.cluster);
        let tags = match self.second {
            Some(family) => tags.with(FAMILY, family.as_str()),
            None => tags,
        };
        match self.cluster_uid.as_ref().filter(|_| self.has_room(kind, CLUSTER_UID)) {
            Some(uid) => tags.with(CLUSTER_UID, uid),
            None => tags,
        }
    }

    /// The configured tags that objects get.
    fn free(&self) -> impl Iterator<Item = (&String, &String)> {
        // A change writes these tags over those of the object: a configured `service` would give it to another Service. Without
        // a UID, a configured one would be taken for that of another cluster later.
        let own = [SERVICE, PORT, ADDRESS_POOL, CLASS, CLUSTER_UID, SERVICE_UID, ADDRESS, FAMILY];
        self.configured.iter().filter(move |(scope, _)| !own.contains(&scope.as_str()))
    }

    /// Whether an object of a kind has room for a tag of this scope that the Go program does not write, beside the configured
    /// ones: an object may have 30. What comes last in the order below is left off first.
    pub fn has_room(&self, kind: ObjectKind, scope: &str) -> bool {
        let (of_go, marks): (usize, &[&str]) = match kind {
            ObjectKind::LbService => (2, &[CLUSTER_UID]),
            ObjectKind::VirtualServer => (6, &[CLUSTER_UID]),
            ObjectKind::Pool => (4, &[SERVICE_UID, CLUSTER_UID, ADDRESS, ADDRESS_POOL]),
            ObjectKind::Monitor => (4, &[SERVICE_UID, CLUSTER_UID]),
            ObjectKind::Allocation | ObjectKind::Group | ObjectKind::PersistenceProfile => (3, &[CLUSTER_UID]),
        };
        let Some(place) = marks.iter().position(|mark| *mark == scope) else { return false };
        let configured = self.free().filter(|(scope, _)| ![OWNER, CLUSTER].contains(&scope.as_str())).count();
        configured + usize::from(self.second.is_some()) + of_go + place < MOST_TAGS
    }

    /// The id of an object of the Service with this UID. A copy of a cluster has the same UIDs, and has to have another
    /// name. `attempt` is below [`IDS`].
    pub fn id(&self, kind: ObjectKind, uid: &str, port: Option<Port>, attempt: u8) -> String {
        id_of(self, self.second, kind.word(), uid, port, attempt)
    }

    /// The same of a monitor of this type.
    pub fn monitor_id(&self, of: MonitorType, uid: &str, port: Port, attempt: u8) -> String {
        id_of(self, self.second, of.word(port.protocol), uid, Some(port), attempt)
    }

    /// Whether an object of the Service with this UID has this id. `second` is the family if it is of the second load
    /// balancer.
    pub fn has_id(&self, second: Option<IpFamily>, kind: ObjectKind, uid: &str, port: Option<Port>, id: &str) -> bool {
        let mut all = kind.words().into_iter().flat_map(|word| (0..IDS).map(move |attempt| (word, attempt)));
        all.any(|(word, attempt)| id_of(self, second, word, uid, port, attempt) == id)
    }

    /// The id of the load balancer service of this cluster on this gateway.
    pub fn lb_service_id(&self, tier1: Option<&str>, attempt: u8) -> String {
        let uid = format!("{}{}", self.cluster_uid.as_deref().unwrap_or_default(), tier1.unwrap_or_default());
        id_of(self, None, ObjectKind::LbService.word(), &uid, None, attempt)
    }

    /// A load balancer service on this tier-1 gateway.
    pub fn lb_service(&self, size: &str, tier1: Option<&str>) -> Object {
        let description = format!("virtual server pool for cluster {} created by {PROGRAM}", self.cluster);
        let mut object = named(format!("cluster:{}", self.cluster), description);
        set(&mut object, "size", size);
        set(&mut object, "enabled", true);
        if let Some(tier1) = tier1 {
            set(&mut object, "connectivity_path", tier1);
        }
        self.of(None).tags(ObjectKind::LbService).write_into(&mut object);
        object
    }

    /// The health check of a port. The Go program has TCP connections to the port of the nodes only.
    pub fn monitor(&self, owner: &Owner<'_>, port: Port, probe: Probe) -> Object {
        let word = match probe.monitor_type() {
            MonitorType::Tcp => "tcp",
            MonitorType::Http => "http",
            MonitorType::Icmp => "icmp",
        };
        let of_port = probe.port().map(|number| format!(", port {number}")).unwrap_or_default();
        let description =
            format!("{word} monitor for cluster {}, service {owner}{of_port} created by {PROGRAM}", self.cluster);
        let last = probe.port().map_or(word.to_owned(), |number| number.to_string());
        let mut object = named(format!("cluster:{}:{owner}:{last}", self.cluster), description);
        set(&mut object, "resource_type", probe.monitor_type().resource_type());
        if let Some(number) = probe.port() {
            set(&mut object, "monitor_port", number);
        }
        if let Probe::Http(_) = probe {
            set(&mut object, "request_method", "GET");
            set(&mut object, "request_url", HEALTH_CHECK_PATH);
            set(&mut object, "request_version", REQUEST_VERSION);
            set(&mut object, "response_status_codes", json!([200]));
        }
        self.of_service(ObjectKind::Monitor, owner).with(PORT, port.to_string()).write_into(&mut object);
        object
    }

    /// The nodes behind a port.
    pub fn pool(&self, owner: &Owner<'_>, facts: &PoolFacts<'_>) -> Object {
        let description = format!("pool for cluster {}, service {owner} created by {PROGRAM}", self.cluster);
        let mut object = named(format!("cluster:{}:{owner}", self.cluster), description);
        set(&mut object, "snat_translation", snat_translation(facts.is_snat_disabled));
        set(&mut object, "members", members::merged(&[], facts.members, &self.cluster));
        if let Some(monitor) = facts.monitor {
            set(&mut object, "active_monitor_paths", json!([monitor]));
        }
        let mut tags = self.of_service(ObjectKind::Pool, owner).with(PORT, facts.port.to_string());
        if self.has_room(ObjectKind::Pool, ADDRESS_POOL) {
            tags = tags.with(ADDRESS_POOL, facts.address_pool);
        }
        tags.write_into(&mut object);
        object
    }

    /// The address and port of a Service.
    pub fn virtual_server(&self, owner: &Owner<'_>, facts: &ServerFacts<'_>) -> Object {
        let description = format!("virtual server for cluster {}, service {owner} created by {PROGRAM}", self.cluster);
        let mut object = named(format!("cluster:{}:{owner}", self.cluster), description);
        set(&mut object, "ip_address", facts.address.to_string());
        set(&mut object, "ports", json!([facts.port.number.to_string()]));
        set(&mut object, "default_pool_member_ports", json!([facts.node_port.to_string()]));
        set(&mut object, "enabled", true);
        set(&mut object, "application_profile_path", facts.profile);
        set(&mut object, "pool_path", facts.pool);
        set(&mut object, "lb_service_path", facts.lb_service);
        if let Some(group) = facts.group {
            set(&mut object, "access_list_control", access_list(group));
        }
        if let Some(persistence) = facts.persistence {
            set(&mut object, "lb_persistence_profile_path", persistence);
        }
        let tags = self.of_service(ObjectKind::VirtualServer, owner);
        let tags = tags.with(PORT, facts.port.to_string()).with(CLASS, facts.class);
        tags.with(ADDRESS_POOL, facts.address_pool).write_into(&mut object);
        object
    }

    /// A reserved address: this one, or any one of its pool.
    pub fn allocation(&self, owner: &Owner<'_>, address: Option<IpAddr>) -> Object {
        let mut object = Object::default();
        if let Some(address) = address {
            set(&mut object, "allocation_ip", address.to_string());
        }
        self.of_service(ObjectKind::Allocation, owner).write_into(&mut object);
        object
    }

    /// The networks that may use the load balancer of a Service.
    pub fn group(&self, owner: &Owner<'_>, ranges: &BTreeSet<IpNet>) -> Object {
        let description = format!("source ranges for cluster {}, service {owner} created by {PROGRAM}", self.cluster);
        let mut object = named(format!("cluster:{}:{owner}", self.cluster), description);
        set(&mut object, "expression", expression(&[], ranges));
        set(&mut object, GROUP_TYPE, json!(["IPAddress"]));
        self.of_service(ObjectKind::Group, owner).write_into(&mut object);
        object
    }

    /// How long a client of a Service keeps its node without a connection.
    pub fn persistence_profile(&self, owner: &Owner<'_>, timeout: Duration) -> Object {
        let description =
            format!("session affinity for cluster {}, service {owner} created by {PROGRAM}", self.cluster);
        let mut object = named(format!("cluster:{}:{owner}", self.cluster), description);
        set(&mut object, "resource_type", "LBSourceIpPersistenceProfile");
        set(&mut object, "timeout", timeout.as_secs());
        self.of_service(ObjectKind::PersistenceProfile, owner).write_into(&mut object);
        object
    }

    fn of_service(&self, kind: ObjectKind, owner: &Owner<'_>) -> ScopedTags {
        self.tags(kind).with(SERVICE, owner.to_string())
    }
}

/// The words never change: ids of objects that exist depend on them. The first load balancer has one word, of whatever family
/// it is: that may be known only when some of its objects are there.
fn id_of(
    layout: &ClusterLayout,
    second: Option<IpFamily>,
    word: &str,
    uid: &str,
    port: Option<Port>,
    attempt: u8,
) -> String {
    let port = port.map(|port| port.to_string()).unwrap_or_default();
    let family = match second {
        None => "ipv4",
        Some(IpFamily::V4) => "second-ipv4",
        Some(IpFamily::V6) => "second-ipv6",
    };
    let name = format!("{}/{uid}/{word}/{port}/{family}/{attempt}", layout.cluster);
    Uuid::new_v5(&SPACE, name.as_bytes()).to_string()
}

/// Whether an id has the form of the ids of this program. Those of the Go program are random.
pub fn has_own_form(id: &str) -> bool {
    Uuid::try_parse(id).is_ok_and(|id| id.get_version_num() == 5)
}

/// Lets only the addresses of this group use a virtual server.
pub fn access_list(group: &str) -> Value {
    json!({"action": "ALLOW", "enabled": true, "group_path": group})
}

/// Whether nodes see the addresses of clients.
pub fn snat_translation(is_disabled: bool) -> Value {
    json!({"type": if is_disabled { "LBSnatDisabled" } else { "LBSnatAutoMap" }})
}

/// The type of the only expression of a group. NSX advises against several.
const EXPRESSION: &str = "IPAddressExpression";

/// The members of a group with these networks. `before` is its expression, whose other members stay: NSX has added an id and
/// a path.
pub fn expression(before: &[Value], ranges: &BTreeSet<IpNet>) -> Value {
    let is_one = |one: &&Value| one.get("resource_type").and_then(Value::as_str) == Some(EXPRESSION);
    let mut one = before.iter().find(is_one).cloned().unwrap_or_else(|| json!({"resource_type": EXPRESSION}));
    if let Some(members) = one.as_object_mut() {
        let texts: Vec<String> = ranges.iter().map(IpNet::to_string).collect();
        members.insert("ip_addresses".to_owned(), texts.into());
    }
    json!([one])
}

fn named(name: String, description: String) -> Object {
    let mut object = Object::default();
    set(&mut object, "display_name", shortened(name, LONGEST_NAME));
    set(&mut object, "description", shortened(description, LONGEST_DESCRIPTION));
    object
}

fn set(object: &mut Object, member: &str, value: impl Into<Value>) {
    object.0.insert(member.to_owned(), value.into());
}

#[cfg(test)]
mod tests;
