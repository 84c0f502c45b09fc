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
    /// One entry per address and reporting Node. Node numbers in a flat set save memory with 5,000 Nodes of 100
    /// addresses each.
    reported: BTreeSet<(IpAddr, u32)>,
    reporters: HashMap<Arc<str>, Reporter>,
    /// Names of the Nodes by number.
    names: Vec<Option<Arc<str>>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Reporter {
    number: u32,
    addresses: Box<[IpAddr]>,
}

impl SharedAddresses {
    /// Replaces the addresses of the Node; a Node without a running VM has none. Returns the other Nodes for which an
    /// address became shared or stopped being shared.
    pub(super) fn set(&mut self, node: &str, addresses: impl Iterator<Item = IpAddr>) -> BTreeSet<Arc<str>> {
        let reported: BTreeSet<IpAddr> = addresses.take(MAX_ADDRESSES).collect();
        let before = self.reporters.get(node).map(|reporter| &*reporter.addresses).unwrap_or_default();
        if reported.iter().eq(before) {
            return BTreeSet::new();
        }
        let gone: Vec<IpAddr> = before.iter().filter(|ip| !reported.contains(ip)).copied().collect();
        let new: Vec<IpAddr> = reported.iter().filter(|ip| before.binary_search(ip).is_err()).copied().collect();
        let number = self.number(node);
        let mut concerned = BTreeSet::new();
        for ip in gone {
            self.reported.remove(&(ip, number));
            concerned.extend(self.only_other(ip, number));
        }
        for ip in new {
            concerned.extend(self.only_other(ip, number));
            self.reported.insert((ip, number));
        }
        if reported.is_empty() {
            self.forget(node);
        } else if let Some(reporter) = self.reporters.get_mut(node) {
            reporter.addresses = reported.into_iter().collect();
        }
        concerned
    }

    /// Returns the addresses of the Node's VM that VMs of other Nodes also report.
    pub(super) fn of(&self, node: &str) -> impl Iterator<Item = IpAddr> {
        let addresses = self.reporters.get(node).map(|reporter| &*reporter.addresses).unwrap_or_default();
        addresses.iter().copied().filter(|ip| self.holders(*ip).nth(1).is_some())
    }

    fn holders(&self, ip: IpAddr) -> impl Iterator<Item = u32> {
        self.reported.range((ip, 0)..=(ip, u32::MAX)).map(|(_, number)| *number)
    }

    /// Returns the Node other than `number` that reports the address, if there is exactly one such Node.
    fn only_other(&self, ip: IpAddr, number: u32) -> Option<Arc<str>> {
        let mut others = self.holders(ip).filter(|other| *other != number);
        let only = others.next().filter(|_| others.next().is_none())?;
        self.names.get(usize::try_from(only).ok()?)?.clone()
    }

    /// Returns the number of a Node, which is stable while the Node reports an address.
    fn number(&mut self, node: &str) -> u32 {
        if let Some(reporter) = self.reporters.get(node) {
            return reporter.number;
        }
        let name: Arc<str> = node.into();
        let number = self.free.pop().unwrap_or_else(|| {
            self.names.push(None);
            u32::try_from(self.names.len() - 1).unwrap_or(u32::MAX)
        });
        if let Some(place) = usize::try_from(number).ok().and_then(|at| self.names.get_mut(at)) {
            *place = Some(Arc::clone(&name));
        }
        self.reporters.insert(name, Reporter { number, addresses: Box::default() });
        number
    }

    fn forget(&mut self, node: &str) {
        let Some(reporter) = self.reporters.remove(node) else { return };
        if let Some(place) = usize::try_from(reporter.number).ok().and_then(|at| self.names.get_mut(at)) {
            *place = None;
        }
        self.free.push(reporter.number);
    }
}

#[cfg(test)]
mod tests;
