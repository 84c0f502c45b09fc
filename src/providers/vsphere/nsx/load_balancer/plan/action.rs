//! Pure: the steps of a plan, and their names for messages.

use std::fmt;
use std::net::IpAddr;

use super::{DesiredLoadBalancer, WantedPort};
use crate::providers::vsphere::nsx::load_balancer::layout::ObjectKind;
use crate::providers::vsphere::nsx::load_balancer::resource::Resource;

/// One step of the plan: a change, a read or a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Creates an object, which has no id and path yet.
    Create(Box<Resource>),
    /// Changes an object: its address if the addresses differ, otherwise its other properties.
    Update {
        /// The object.
        resource: &'a Resource,
        /// The object after the change.
        desired: Box<Resource>,
    },
    /// Deletes an object. The deletion of an allocation releases its address.
    Delete(&'a Resource),
    /// Reads an object. The plan reads only groups and persistence profiles.
    Read {
        /// The kind of the object.
        kind: ObjectKind,
        /// The path of the object.
        path: String,
    },
    /// Reads the address of an allocation.
    ReadAddress(&'a Resource),
    /// Tags an object with the UIDs of its Service and cluster.
    Tag {
        /// The object.
        resource: &'a Resource,
        /// For a pool: the address of an allocation that, without this tag, only the virtual servers would show to be
        /// ours.
        address: Option<IpAddr>,
    },
    /// Reserves an address for a load balancer that has none.
    Allocate(AllocationRequest),
    /// Reserves the address of a virtual server without an allocation. Otherwise, NSX may assign the address again.
    Reserve(&'a Resource),
    /// Reports that another virtual server occupies the address and port of a Service port. Always the last step.
    PortConflict {
        /// The port.
        port: &'a WantedPort,
        /// The other virtual server.
        server: &'a Resource,
    },
}

/// The address to reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationRequest {
    /// Any free address.
    Any,
    /// Preferably this address, otherwise any address.
    Rather(IpAddr),
    /// Only this address.
    Only(IpAddr),
}

impl AllocationRequest {
    /// Returns the address to reserve. The requested address takes precedence over the reported address.
    pub fn of(desired: &DesiredLoadBalancer) -> Self {
        match (desired.features.address, desired.reported) {
            (Some(address), _) => Self::Only(address),
            (None, Some(address)) => Self::Rather(address),
            (None, None) => Self::Any,
        }
    }
}

impl<'a> Action<'a> {
    /// Returns the step that changes an object.
    pub fn update(resource: &'a Resource, desired: Resource) -> Self {
        Self::Update { resource, desired: Box::new(desired) }
    }

    /// Whether the step creates an object. False for [`Action::Reserve`], although it creates an allocation.
    pub fn is_creation(&self) -> bool {
        matches!(self, Self::Create(_) | Self::Allocate(_))
    }

    /// Whether the step releases an address.
    pub fn is_release(&self) -> bool {
        matches!(self, Self::Delete(one) if one.kind == ObjectKind::Allocation)
    }

    /// Returns the address of the virtual server that the step creates.
    pub fn address_of_new_server(&self) -> Option<IpAddr> {
        match self {
            Self::Create(new) if new.kind == ObjectKind::VirtualServer => new.address,
            _ => None,
        }
    }
}

impl fmt::Display for Action<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(new) => match (new.kind.name(), new.tags.port) {
                (name, Some(port)) => write!(f, "create the {name} of port {port}"),
                (name, None) => write!(f, "create the {name}"),
            },
            Self::Update { resource, desired } if resource.address == desired.address => {
                write!(f, "change {}", resource.tags.path)
            }
            Self::Update { resource, desired } => match desired.address {
                Some(_) => write!(f, "set the address of {} back", resource.tags.path),
                None => write!(f, "remove the tag with the address of {}", resource.tags.path),
            },
            Self::Delete(resource) => write!(f, "delete {}", resource.tags.path),
            Self::Read { path, .. } => write!(f, "read {path}"),
            Self::ReadAddress(allocation) => write!(f, "read the address of {}", allocation.tags.path),
            Self::Tag { resource, .. } => write!(f, "tag {}", resource.tags.path),
            Self::Allocate(_) => write!(f, "reserve an address"),
            Self::Reserve(server) => write!(f, "reserve the address of {}", server.tags.path),
            Self::PortConflict { server, .. } => write!(f, "leave {} as it is", server.tags.path),
        }
    }
}
