//! The data types of `vim25` that this program needs.

use std::fmt;

/// A managed object reference: the concrete type and the id, unique per vCenter only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MoRef {
    /// The concrete class, for example `VirtualMachine` or `ClusterComputeResource`.
    pub kind: String,
    /// The id without the type, for example `vm-42`.
    pub id: String,
}

impl MoRef {
    /// A reference of this class and id.
    pub fn new(kind: impl Into<String>, id: impl Into<String>) -> Self {
        Self { kind: kind.into(), id: id.into() }
    }
}

impl fmt::Display for MoRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.id)
    }
}

/// One interface the guest reports; `GuestNicInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestNic {
    /// The port group; missing for interfaces without a virtual NIC.
    pub network: Option<String>,
    /// The addresses as reported: not checked, not canonical.
    pub ip_addresses: Vec<String>,
    /// The MAC address as reported.
    pub mac_address: Option<String>,
    /// Whether the virtual NIC is connected.
    pub connected: bool,
    /// The key of the virtual NIC (4000…), or -1 for an interface that has none.
    pub device_config_id: i32,
}
