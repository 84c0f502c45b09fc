//! Names of virtual machines within this process.

use std::sync::Arc;

use crate::providers::vsphere::inventory::VcenterId;

/// A virtual machine: its vCenter, and its id there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VmKey {
    /// The vCenter.
    pub vcenter: VcenterId,
    /// The managed object id.
    pub id: Arc<str>,
}
