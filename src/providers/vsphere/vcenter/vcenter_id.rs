//! Identity of a configured vCenter, and of a VM in it, within this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Identity of a vCenter entry from its configuration to its removal. An entry that is removed and configured again
/// gets a new identity, so that state of the earlier vCenter is never attributed to the later vCenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VcenterId(u64);

impl VcenterId {
    /// Returns a new identity, greater than all earlier identities.
    pub fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Key of a VM: its vCenter, and its id in this vCenter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VmKey {
    /// The vCenter.
    pub vcenter: VcenterId,
    /// The managed object id.
    pub id: Arc<str>,
}

#[cfg(test)]
impl std::fmt::Display for VcenterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
impl From<u64> for VcenterId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_identity_is_given_twice() {
        let (first, second, third) = (VcenterId::next(), VcenterId::next(), VcenterId::next());
        assert!(first < second && second < third);
    }
}
