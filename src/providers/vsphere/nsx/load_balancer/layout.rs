//! Pure: builds the NSX objects of load balancers. Names, descriptions and tags equal those of the Go program, so that
//! both programs find the same objects. Ids are deterministic: a repeated create finds the same object.
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

/// The name of this program in descriptions and, unless configured otherwise, in the owner tag.
pub const PROGRAM: &str = "vsphere-cloud-controller-manager";

/// Tag scope of the owner.
pub const OWNER: &str = "owner";
/// Tag scope of the cluster name.
pub const CLUSTER: &str = "cluster";
/// Tag scope of namespace and name of the Service.
pub const SERVICE: &str = "service";
/// Tag scope of protocol and port.
pub const PORT: &str = "port";
/// Tag scope of the IP pool id.
pub const ADDRESS_POOL: &str = "ippoolid";
/// Tag scope of the class.
pub const CLASS: &str = "lbclass";
/// Tag scope of the Service UID. Not used by the Go program.
pub const SERVICE_UID: &str = "service-uid";
/// Scope of the tag on a pool that keeps the address of its virtual server. Written before the virtual server is
/// deleted. Not used by the Go program.
pub const ADDRESS: &str = "virtual-server-address";

/// Tag scope of the family of a second load balancer. Not used by the Go program.
pub const FAMILY: &str = "ipfamily";

/// Suffix of the owner tag of a second load balancer. Hides the pools of this load balancer from the Go program.
const SECOND: &str = "-second-family";

/// Maximum number of tags per object in NSX.
const MAX_TAGS: usize = 30;

/// Number of alternative ids per object. An id stays in use for some time after its object is deleted.
pub const IDS: u8 = 10;

/// Path of the load balancer services.
pub const LB_SERVICES: &str = "/infra/lb-services";
/// Path of the virtual servers.
pub const SERVERS: &str = "/infra/lb-virtual-servers";
/// Path of the groups.
pub const GROUPS: &str = "/infra/domains/default/groups";
/// Path of the persistence profiles.
pub const PERSISTENCE_PROFILES: &str = "/infra/lb-persistence-profiles";

/// Type field of a group. Old versions of NSX reject this field.
pub const GROUP_TYPE: &str = "group_type";

/// URL path at which kube-proxy reports whether its Node has endpoints of a Service.
const HEALTH_CHECK_PATH: &str = "/healthz";

/// HTTP version of monitor requests. kube-proxy answers 400 to an HTTP 1.1 request without a `Host` header, and NSX is
/// not documented to send this header.
pub const REQUEST_VERSION: &str = "HTTP_VERSION_1_0";

/// Namespace UUID of the ids (version 5 of RFC 9562).
const SPACE: Uuid = Uuid::from_u128(0x8d5f_6c1e_41a3_4b0e_9a57_2f6b_7c90_d3e4);

/// Kind of NSX object in a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// A load balancer service, on which the virtual servers of a cluster run.
    LbService,
    /// A virtual server: one address and port.
    VirtualServer,
    /// A pool: the Nodes behind a port.
    Pool,
    /// A monitor: the health check of a pool.
    Monitor,
    /// An IP address allocation.
    Allocation,
    /// A group of networks that may use a load balancer.
    Group,
    /// A persistence profile, which sets the time for which a client stays on the same Node.
    PersistenceProfile,
}

impl ObjectKind {
    /// Returns the word in the ids of this kind. The words must not change, because existing ids depend on them.
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

    fn words(self) -> Vec<&'static str> {
        match self {
            ObjectKind::Monitor => vec![MONITOR, HTTP_MONITOR, ICMP_MONITOR],
            kind => vec![kind.word()],
        }
    }
}

/// Words in the ids of monitors. A new monitor type needs another id: NSX cannot change the type of a monitor, and the
/// old monitor stays in use until its pool has the new monitor.
const MONITOR: &str = "monitor";
const HTTP_MONITOR: &str = "http-monitor";
const ICMP_MONITOR: &str = "icmp-monitor";

/// Type of a monitor that this program uses.
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

    /// Returns the `resource_type` in NSX.
    pub fn resource_type(self) -> &'static str {
        match self {
            Self::Tcp => "LBTcpMonitorProfile",
            Self::Http => "LBHttpMonitorProfile",
            Self::Icmp => "LBIcmpMonitorProfile",
        }
    }

    /// Parses `resource_type`; `None` for a type that this program does not use.
    pub fn parse(resource_type: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.resource_type() == resource_type)
    }

    /// Returns the types that monitors of a port with this protocol may have.
    pub fn of(protocol: Protocol) -> [Self; 2] {
        match protocol {
            Protocol::Tcp => [Self::Tcp, Self::Http],
            Protocol::Udp => [Self::Http, Self::Icmp],
        }
    }

    /// Returns the word from which the id of a monitor is made. Existing ids depend on the words: never change them.
    fn word(self, protocol: Protocol) -> &'static str {
        match (self, protocol) {
            (Self::Tcp, _) | (Self::Http, Protocol::Udp) => MONITOR,
            (Self::Http, Protocol::Tcp) => HTTP_MONITOR,
            (Self::Icmp, _) => ICMP_MONITOR,
        }
    }
}

/// Health check that a monitor performs on Nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Probe {
    /// A TCP connection to this port.
    Tcp(u16),
    /// An HTTP request to this port, to check whether the Node has endpoints of the Service.
    Http(u16),
    /// An ICMP echo request.
    Icmp,
}

impl Probe {
    /// Returns the type of the monitor.
    pub fn monitor_type(self) -> MonitorType {
        match self {
            Self::Tcp(_) => MonitorType::Tcp,
            Self::Http(_) => MonitorType::Http,
            Self::Icmp => MonitorType::Icmp,
        }
    }

    /// Returns the checked port of the Nodes.
    pub fn port(self) -> Option<u16> {
        match self {
            Self::Tcp(port) | Self::Http(port) => Some(port),
            Self::Icmp => None,
        }
    }
}

/// Transport protocol of a port. NSX supports no other protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// A port of a Service. Its `Display` writes the tag value, such as `TCP/80`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Port {
    /// The protocol.
    pub protocol: Protocol,
    /// The port number.
    pub number: u16,
}

impl Port {
    /// Parses the tag value.
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

/// The Service of a load balancer.
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

/// Properties that all objects of a cluster share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterLayout {
    /// The name of the cluster.
    pub cluster: String,
    /// The UID of the cluster, if known.
    pub cluster_uid: Option<String>,
    /// Configured tags of all objects, by scope. A configured `owner` replaces the program name.
    pub configured: BTreeMap<String, String>,
    /// The family of the second load balancer of a dual-stack Service; `None` for the first load balancer.
    pub secondary: Option<IpFamily>,
}

/// Properties of a new virtual server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts<'a> {
    /// The port of the Service.
    pub port: Port,
    /// The node port.
    pub node_port: u16,
    /// The address.
    pub address: IpAddr,
    /// The class of the Service.
    pub class: &'a str,
    /// The id of the IP pool of the address.
    pub address_pool: &'a str,
    /// The path of the application profile.
    pub profile: &'a str,
    /// The path of the pool.
    pub pool: &'a str,
    /// The path of the load balancer service.
    pub lb_service: &'a str,
    /// The path of the group that may use the virtual server; `None` admits every client.
    pub group: Option<&'a str>,
    /// The path of the persistence profile, for session affinity.
    pub persistence: Option<&'a str>,
}

/// Properties of a new pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFacts<'a> {
    /// The port of the Service.
    pub port: Port,
    /// The id of the IP pool of the address.
    pub address_pool: &'a str,
    /// The members.
    pub members: &'a [Member],
    /// The path of the monitor, if there is one.
    pub monitor: Option<&'a str>,
    /// Whether SNAT is disabled, so that Nodes see client addresses.
    pub is_snat_disabled: bool,
}

/// Whether an id may belong to this program; the Go program uses random ids.
pub fn is_name_based(id: &str) -> bool {
    Uuid::parse_str(id).is_ok_and(|id| id.get_version_num() == 5)
}

impl ClusterLayout {
    /// Returns the layout of the first load balancer (`None`), or of the second load balancer with this family.
    #[must_use]
    pub fn of(&self, second: Option<IpFamily>) -> Self {
        Self { secondary: second, ..self.clone() }
    }

    /// Returns the value of the tag [`OWNER`].
    pub fn owner(&self) -> String {
        let owner = self.configured.get(OWNER).map_or(PROGRAM, String::as_str);
        if self.secondary.is_some() { format!("{owner}{SECOND}") } else { owner.to_owned() }
    }

    /// Returns the load balancer of an object: `Some(None)` for the first, and `Some` with the family for the second.
    /// Returns `None` if the owner tag or the cluster tag is not ours, or if the family tag of a second load balancer
    /// is invalid.
    pub fn load_balancer_of(&self, object: &Object) -> Option<Option<IpFamily>> {
        let owner = self.configured.get(OWNER).map_or(PROGRAM, String::as_str);
        let rest = object.tag(OWNER)?.strip_prefix(owner).filter(|_| object.tag(CLUSTER) == Some(&self.cluster))?;
        match rest {
            "" => Some(None),
            SECOND => object.tag(FAMILY).and_then(IpFamily::of_text).map(Some),
            _ => None,
        }
    }

    /// Returns the common tags of every object of a kind.
    pub fn tags(&self, kind: ObjectKind) -> ScopedTags {
        let tags = self.free().fold(ScopedTags::default(), |tags, (scope, tag)| tags.with(scope, tag));
        let tags = tags.with(OWNER, self.owner()).with(CLUSTER, &self.cluster);
        let tags = match self.secondary {
            Some(family) => tags.with(FAMILY, family.as_str()),
            None => tags,
        };
        match self.cluster_uid.as_ref().filter(|_| self.has_capacity(kind, CLUSTER_UID)) {
            Some(uid) => tags.with(CLUSTER_UID, uid),
            None => tags,
        }
    }

    /// Returns the configured tags, except those in scopes that only this program may write.
    fn free(&self) -> impl Iterator<Item = (&String, &String)> {
        // Changes overwrite existing tags. A configured `service` would assign objects to another Service, and a
        // configured cluster UID would assign them to another cluster.
        let own = [SERVICE, PORT, ADDRESS_POOL, CLASS, CLUSTER_UID, SERVICE_UID, ADDRESS, FAMILY];
        self.configured.iter().filter(move |(scope, _)| !own.contains(&scope.as_str()))
    }

    /// Whether an object of a kind has room for a tag that the Go program does not write. NSX allows 30 tags per
    /// object. The last scopes in `tags` are dropped first.
    pub fn has_capacity(&self, kind: ObjectKind, scope: &str) -> bool {
        let (of_go, tags): (usize, &[&str]) = match kind {
            ObjectKind::LbService => (2, &[CLUSTER_UID]),
            ObjectKind::VirtualServer => (6, &[CLUSTER_UID]),
            ObjectKind::Pool => (4, &[SERVICE_UID, CLUSTER_UID, ADDRESS, ADDRESS_POOL]),
            ObjectKind::Monitor => (4, &[SERVICE_UID, CLUSTER_UID]),
            ObjectKind::Allocation | ObjectKind::Group | ObjectKind::PersistenceProfile => (3, &[CLUSTER_UID]),
        };
        let Some(position) = tags.iter().position(|mark| *mark == scope) else { return false };
        let configured = self.free().filter(|(scope, _)| ![OWNER, CLUSTER].contains(&scope.as_str())).count();
        configured + usize::from(self.secondary.is_some()) + of_go + position < MAX_TAGS
    }

    /// Returns the id of an object of the Service with this UID. A copied cluster has the same UIDs, and would have the
    /// same ids without another cluster name. `attempt` is below [`IDS`].
    pub fn id(&self, kind: ObjectKind, uid: &str, port: Option<Port>, attempt: u8) -> String {
        id_of(self, self.secondary, kind.word(), uid, port, attempt)
    }

    /// Returns the id of a monitor of this type.
    pub fn monitor_id(&self, of: MonitorType, uid: &str, port: Port, attempt: u8) -> String {
        id_of(self, self.secondary, of.word(port.protocol), uid, Some(port), attempt)
    }

    /// Whether this program generates `id` for an object of this kind and port of the Service `uid`. `second` is the
    /// family of a second load balancer; `None` for the first.
    pub fn has_id(&self, second: Option<IpFamily>, kind: ObjectKind, uid: &str, port: Option<Port>, id: &str) -> bool {
        let mut all = kind.words().into_iter().flat_map(|word| (0..IDS).map(move |attempt| (word, attempt)));
        all.any(|(word, attempt)| id_of(self, second, word, uid, port, attempt) == id)
    }

    /// Returns the id of the load balancer service on this gateway.
    pub fn lb_service_id(&self, tier1: Option<&str>, attempt: u8) -> String {
        let uid = format!("{}{}", self.cluster_uid.as_deref().unwrap_or_default(), tier1.unwrap_or_default());
        id_of(self, None, ObjectKind::LbService.word(), &uid, None, attempt)
    }

    /// Builds a new load balancer service on this tier-1 gateway.
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

    /// Builds a new monitor of a port. The Go program only uses TCP connections to the node port.
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

    /// Builds a new pool.
    pub fn pool(&self, owner: &Owner<'_>, facts: &PoolFacts<'_>) -> Object {
        let description = format!("pool for cluster {}, service {owner} created by {PROGRAM}", self.cluster);
        let mut object = named(format!("cluster:{}:{owner}", self.cluster), description);
        set(&mut object, "snat_translation", snat_translation(facts.is_snat_disabled));
        set(&mut object, "members", members::merged(&[], facts.members, &self.cluster));
        if let Some(monitor) = facts.monitor {
            set(&mut object, "active_monitor_paths", json!([monitor]));
        }
        let mut tags = self.of_service(ObjectKind::Pool, owner).with(PORT, facts.port.to_string());
        if self.has_capacity(ObjectKind::Pool, ADDRESS_POOL) {
            tags = tags.with(ADDRESS_POOL, facts.address_pool);
        }
        tags.write_into(&mut object);
        object
    }

    /// Builds a new virtual server.
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

    /// Builds a new allocation of this address, or of any address of the IP pool.
    pub fn allocation(&self, owner: &Owner<'_>, address: Option<IpAddr>) -> Object {
        let mut object = Object::default();
        if let Some(address) = address {
            set(&mut object, "allocation_ip", address.to_string());
        }
        self.of_service(ObjectKind::Allocation, owner).write_into(&mut object);
        object
    }

    /// Builds a new group of the networks that may use the load balancer of a Service.
    pub fn group(&self, owner: &Owner<'_>, ranges: &BTreeSet<IpNet>) -> Object {
        let description = format!("source ranges for cluster {}, service {owner} created by {PROGRAM}", self.cluster);
        let mut object = named(format!("cluster:{}:{owner}", self.cluster), description);
        set(&mut object, "expression", expression(&[], ranges));
        set(&mut object, GROUP_TYPE, json!(["IPAddress"]));
        self.of_service(ObjectKind::Group, owner).write_into(&mut object);
        object
    }

    /// Builds a new persistence profile with this idle timeout.
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

/// Returns the id of an object; existing ids depend on the words in the hashed name. The first load balancer has one
/// word for both families, because its family may be unknown until some of its objects exist.
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

/// Whether an id has the form of the ids of this program. The Go program uses random ids.
pub fn has_own_form(id: &str) -> bool {
    Uuid::try_parse(id).is_ok_and(|id| id.get_version_num() == 5)
}

/// Builds an access list that admits only the addresses of this group.
pub fn access_list(group: &str) -> Value {
    json!({"action": "ALLOW", "enabled": true, "group_path": group})
}

/// Returns the SNAT setting of a pool.
pub fn snat_translation(is_disabled: bool) -> Value {
    json!({"type": if is_disabled { "LBSnatDisabled" } else { "LBSnatAutoMap" }})
}

/// Type of the single expression of a group. NSX advises against several expressions.
const EXPRESSION: &str = "IPAddressExpression";

/// Builds the expression of a group. Keeps the other fields of an `IPAddressExpression` in `before`, such as the path.
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
