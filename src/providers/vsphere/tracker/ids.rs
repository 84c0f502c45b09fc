//! Names of vCenters and virtual machines within this process.

use std::sync::Arc;

/// The number of a vCenter for as long as it is configured. It is never given twice, so that what was found out about
/// one is never taken for something about another.
pub type Slot = usize;

/// A virtual machine: the number of its vCenter, and its id there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VmKey {
    /// The vCenter.
    pub vcenter: Slot,
    /// The managed object id.
    pub id: Arc<str>,
}
