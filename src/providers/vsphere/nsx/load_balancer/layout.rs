//! Pure: kinds, paths, ids and tags of the NSX objects of load balancers. Tags equal those of the Go program, so that both
//! programs find the same objects. Ids are deterministic: a repeated create finds the same object.
//!
//! Mirrors `access.go` and `tag.go` of `pkg/cloudprovider/vsphere/loadbalancer`.

use std::collections::BTreeMap;
use std::fmt;

use uuid::Uuid;

use crate::clients::nsx::Object;
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::nsx::ownership::{CLUSTER_UID, OWNER, PROGRAM};
use crate::providers::vsphere::nsx::tags::ScopedTags;

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

/// Path of the IP pools.
pub const ADDRESS_POOLS: &str = "/infra/ip-pools";

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
    /// Whether most lists do not include this kind.
    pub fn is_listed_rarely(self) -> bool {
        matches!(self, ObjectKind::Group | ObjectKind::PersistenceProfile)
    }

    /// Returns the path without the id. Allocations are below the path of their IP pool.
    pub fn parent(self) -> &'static str {
        match self {
            ObjectKind::LbService => "/infra/lb-services",
            ObjectKind::VirtualServer => "/infra/lb-virtual-servers",
            ObjectKind::Pool => "/infra/lb-pools",
            ObjectKind::Monitor => "/infra/lb-monitor-profiles",
            ObjectKind::Allocation => ADDRESS_POOLS,
            ObjectKind::Group => "/infra/domains/default/groups",
            ObjectKind::PersistenceProfile => "/infra/lb-persistence-profiles",
        }
    }

    /// Returns the name for messages.
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::LbService => "load balancer service",
            ObjectKind::VirtualServer => "virtual server",
            ObjectKind::Pool => "pool",
            ObjectKind::Monitor => "monitor",
            ObjectKind::Allocation => "allocation",
            ObjectKind::Group => "group of source ranges",
            ObjectKind::PersistenceProfile => "persistence profile",
        }
    }

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
    /// The Service (`namespace/name`).
    pub service: &'a str,
    /// The UID of the Service.
    pub uid: &'a str,
}

/// Properties that all objects of one load balancer share. Only `secondary` differs between the load balancers of a
/// cluster.
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

impl ClusterLayout {
    /// Returns the layout of the first load balancer (`None`), or of the second load balancer with this family.
    #[must_use]
    pub fn of(&self, secondary: Option<IpFamily>) -> Self {
        Self { secondary, ..self.clone() }
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
        let tags = self.configured_tags().fold(ScopedTags::default(), |tags, (scope, tag)| tags.with(scope, tag));
        let tags = tags.with(OWNER, self.owner()).with(CLUSTER, &self.cluster);
        let tags = match self.secondary {
            Some(family) => tags.with(FAMILY, family.as_str()),
            None => tags,
        };
        match self.cluster_uid.as_ref().filter(|_| self.has_tag_room(kind, CLUSTER_UID)) {
            Some(uid) => tags.with(CLUSTER_UID, uid),
            None => tags,
        }
    }

    /// Returns the configured tags, except those in scopes that only this program may write.
    fn configured_tags(&self) -> impl Iterator<Item = (&String, &String)> {
        // Changes overwrite existing tags. A configured `service` would assign objects to another Service, and a
        // configured cluster UID would assign them to another cluster.
        let own = [SERVICE, PORT, ADDRESS_POOL, CLASS, CLUSTER_UID, SERVICE_UID, ADDRESS, FAMILY];
        self.configured.iter().filter(move |(scope, _)| !own.contains(&scope.as_str()))
    }

    /// Whether an object of a kind has room for a tag that the Go program does not write. NSX allows 30 tags per
    /// object. The last scopes in `tags` are dropped first.
    pub fn has_tag_room(&self, kind: ObjectKind, scope: &str) -> bool {
        let (of_go, tags): (usize, &[&str]) = match kind {
            ObjectKind::LbService => (2, &[CLUSTER_UID]),
            ObjectKind::VirtualServer => (6, &[CLUSTER_UID]),
            ObjectKind::Pool => (4, &[SERVICE_UID, CLUSTER_UID, ADDRESS, ADDRESS_POOL]),
            ObjectKind::Monitor => (4, &[SERVICE_UID, CLUSTER_UID]),
            ObjectKind::Allocation | ObjectKind::Group | ObjectKind::PersistenceProfile => (3, &[CLUSTER_UID]),
        };
        let Some(position) = tags.iter().position(|mark| *mark == scope) else { return false };
        let configured =
            self.configured_tags().filter(|(scope, _)| ![OWNER, CLUSTER].contains(&scope.as_str())).count();
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

    /// Whether this program generates `id` for an object of this kind and port of the Service `uid`. `secondary` is the
    /// family of a second load balancer; `None` for the first.
    pub fn has_id(
        &self,
        secondary: Option<IpFamily>,
        kind: ObjectKind,
        uid: &str,
        port: Option<Port>,
        id: &str,
    ) -> bool {
        let mut all = kind.words().into_iter().flat_map(|word| (0..IDS).map(move |attempt| (word, attempt)));
        all.any(|(word, attempt)| id_of(self, secondary, word, uid, port, attempt) == id)
    }

    /// Returns the id of the load balancer service on this gateway.
    pub fn lb_service_id(&self, tier1: Option<&str>, attempt: u8) -> String {
        let uid = format!("{}{}", self.cluster_uid.as_deref().unwrap_or_default(), tier1.unwrap_or_default());
        id_of(self, None, ObjectKind::LbService.word(), &uid, None, attempt)
    }
}

/// Returns the id of an object; existing ids depend on the words in the hashed name. The first load balancer has one
/// word for both families, because its family may be unknown until some of its objects exist.
fn id_of(
    layout: &ClusterLayout,
    secondary: Option<IpFamily>,
    word: &str,
    uid: &str,
    port: Option<Port>,
    attempt: u8,
) -> String {
    let port = port.map(|port| port.to_string()).unwrap_or_default();
    let family = match secondary {
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

#[cfg(test)]
mod tests;
