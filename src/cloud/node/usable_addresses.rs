//! The addresses of a Node that load balancers are allowed to send traffic to. A kubelet writes the addresses to the
//! status of its Node, and could write the addresses of another VM.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Node, NodeAddress};

use super::addresses;
use crate::base::addresses::parse_ip;

/// The cloud's view of the addresses in `Node.status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UsableAddresses {
    /// All addresses are used, because the cloud has no data about the Node.
    #[default]
    All,
    /// Only these addresses of the Node's VM are used. If the set has no address of an IP family, the Node's addresses
    /// of that family are unconfirmed: existing targets stay, and no target is added.
    Only(BTreeSet<IpAddr>),
    /// The VM or its addresses are unknown: existing targets stay, and no target is added.
    Unknown,
    /// Like `Unknown`, but the answer is in progress.
    Pending,
}

/// An address in the status of a Node.
#[derive(Clone, Copy, Debug)]
pub struct UsableAddress<'a> {
    /// The entry of the status.
    pub entry: &'a NodeAddress,
    /// The address.
    pub ip: IpAddr,
    /// Whether the cloud confirms that the Node's VM has the address. An unconfirmed address gets no new targets.
    pub is_confirmed: bool,
}

impl UsableAddresses {
    /// Returns the usable and unconfirmed addresses in the status of this Node, in the order of the status.
    pub fn of<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = UsableAddress<'a>> {
        addresses::of(node).iter().filter_map(|entry| {
            let ip = parse_ip(&entry.address)?;
            Some(UsableAddress { entry, ip, is_confirmed: self.confirms(ip)? })
        })
    }

    /// Returns whether the address is confirmed. Returns `None` if the Node's VM does not have the address.
    fn confirms(&self, ip: IpAddr) -> Option<bool> {
        match self {
            Self::All => Some(true),
            Self::Unknown | Self::Pending => Some(false),
            Self::Only(known) if known.contains(&ip.to_canonical()) => Some(true),
            Self::Only(known) => known.iter().all(|one| one.is_ipv4() != ip.to_canonical().is_ipv4()).then_some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_addresses_that_are_on_the_machine_count() {
        let all = ["10.0.0.1", "10.0.0.9", "fd00::9", "n"];
        let entries: Vec<_> = all.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
        let node: Node = serde_json::from_value(json!({"status": {"addresses": entries}})).unwrap();
        let only = |known: &[&str]| UsableAddresses::Only(known.iter().map(|ip| ip.parse().unwrap()).collect());
        for (usable, expected) in [
            (UsableAddresses::All, &[("10.0.0.1", true), ("10.0.0.9", true), ("fd00::9", true)][..]),
            (UsableAddresses::Unknown, &[("10.0.0.1", false), ("10.0.0.9", false), ("fd00::9", false)]),
            // The set has no IPv6 address, so no IPv6 address is confirmed.
            (only(&["10.0.0.1", "10.0.0.2"]), &[("10.0.0.1", true), ("fd00::9", false)]),
            (only(&["10.0.0.1", "fd00::1"]), &[("10.0.0.1", true)]),
            (only(&["10.0.0.2", "fd00::9"]), &[("fd00::9", true)]),
        ] {
            let found: Vec<_> = usable.of(&node).map(|one| (one.entry.address.as_str(), one.is_confirmed)).collect();
            assert_eq!(found, expected, "{usable:?}");
        }
    }
}
