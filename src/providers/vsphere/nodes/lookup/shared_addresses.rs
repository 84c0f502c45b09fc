//! Pure: finds addresses that several running VMs report. Such an address is virtual, or belongs to a bridge that has
//! the same address in every VM.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// Maximum number of addresses of one VM that count. Further addresses never count as shared.
pub(super) const MAX_ADDRESSES: usize = 256;

/// Addresses, and the Nodes whose running VMs report them.
///
/// The cost of a change depends on the number of addresses of one Node, and not on the number of Nodes. An address
/// becomes shared when a second Node reports it, and stops being shared when only one Node is left. So a change of one
/// address affects at most one other Node.
#[derive(Debug, Default)]
pub(super) struct SharedAddresses {
    /// One entry per address and reporting Node.
    reported: BTreeSet<(IpAddr, Arc<str>)>,
    /// The addresses of each reporting Node, sorted. A list, because a set with one address is ten times as large.
    reporters: HashMap<Arc<str>, Box<[IpAddr]>>,
}

impl SharedAddresses {
    /// Replaces the addresses of the Node; a Node without a running VM has none. Returns the other Nodes for which an
    /// address became shared or stopped being shared.
    pub(super) fn set(&mut self, node: &str, addresses: impl Iterator<Item = IpAddr>) -> BTreeSet<Arc<str>> {
        let reported: BTreeSet<IpAddr> = addresses.take(MAX_ADDRESSES).collect();
        let mut concerned = BTreeSet::new();
        let before: BTreeSet<IpAddr> = self.reporters.get(node).into_iter().flatten().copied().collect();
        if before == reported {
            return concerned;
        }
        self.reporters.remove(node);
        let name: Arc<str> = node.into();
        for ip in before.difference(&reported) {
            self.reported.remove(&(*ip, Arc::clone(&name)));
            concerned.extend(self.only_other(*ip, node));
        }
        for ip in reported.difference(&before) {
            concerned.extend(self.only_other(*ip, node));
            self.reported.insert((*ip, Arc::clone(&name)));
        }
        if !reported.is_empty() {
            self.reporters.insert(name, reported.into_iter().collect());
        }
        concerned
    }

    /// Returns the addresses of the Node's VM that VMs of other Nodes also report.
    pub(super) fn of(&self, node: &str) -> impl Iterator<Item = IpAddr> {
        let addresses = self.reporters.get(node).into_iter().flatten().copied();
        addresses.filter(|ip| self.holders(*ip).nth(1).is_some())
    }

    fn holders(&self, ip: IpAddr) -> impl Iterator<Item = &Arc<str>> {
        let from = self.reported.range((ip, Arc::default())..);
        from.take_while(move |(reported, _)| *reported == ip).map(|(_, node)| node)
    }

    /// Returns the Node other than `node` that reports the address, if there is exactly one such Node.
    fn only_other(&self, ip: IpAddr, node: &str) -> Option<Arc<str>> {
        let mut others = self.holders(ip).filter(|other| ***other != *node);
        let only = others.next()?;
        others.next().is_none().then(|| Arc::clone(only))
    }
}

#[cfg(test)]
mod tests;
