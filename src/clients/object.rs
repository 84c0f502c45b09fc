//! A managed object's reference: the one thing both of vCenter's protocols speak of.

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
