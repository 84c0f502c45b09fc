//! The data types of `vim25` that this program needs.

pub use crate::clients::object::MoRef;

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
