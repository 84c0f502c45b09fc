//! Pure: explains in messages why reported addresses were not chosen.

use std::net::IpAddr;

use ipnet::IpNet;

use super::has_virtual_nic;
use crate::base::addresses::parse_ip;
use crate::clients::vim::GuestNic;
use crate::providers::vsphere::config::address_rules::{AddressRules, IpFamily};

/// Maximum number of interfaces in a message, and of addresses per interface. A guest may report hundreds.
const MAX_DESCRIBED: usize = 8;

/// Maximum number of characters of a guest's text in a message. Addresses and network names are shorter.
const MAX_TEXT: usize = 80;

/// Returns the reason why no Node may have this address. `None` if the address is usable: it belongs to one VM, and
/// other hosts can reach it.
pub(super) fn unusable(ip: IpAddr) -> Option<&'static str> {
    let (is_link_local, is_broadcast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.is_broadcast()),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), false),
    };
    let rows = [
        (ip.is_unspecified(), "unspecified"),
        (ip.is_loopback(), "loopback"),
        (ip.is_multicast(), "multicast"),
        (is_broadcast, "broadcast"),
        (is_link_local, "link-local"),
    ];
    rows.into_iter().find_map(|(is_so, word)| is_so.then_some(word))
}

/// The configuration because of which addresses are refused.
pub(super) struct Refusals<'a> {
    pub(super) families: &'a [IpFamily],
    pub(super) rules: &'a AddressRules,
}

impl Refusals<'_> {
    /// Returns the interfaces and their addresses, each with the reason for its refusal.
    pub(super) fn describe(&self, nics: &[GuestNic]) -> String {
        let nic_text = |nic: &GuestNic| {
            let network = clip(nic.network.as_deref().unwrap_or_default());
            let ignored = if has_virtual_nic(nic) { "" } else { " (ignored: no virtual NIC)" };
            let address = |text: &String| {
                let text = clip(text);
                let refusal = if has_virtual_nic(nic) { self.refusal(&text) } else { String::new() };
                if refusal.is_empty() { text } else { format!("{text} ({refusal})") }
            };
            format!("{network:?}{ignored} [{}]", listed(&nic.ip_addresses, address))
        };
        listed(nics, nic_text)
    }

    /// Returns the reason why the rules refuse an address of an interface with a virtual NIC.
    pub(super) fn refusal(&self, text: &str) -> String {
        let Some(ip) = parse_ip(text) else { return "not an address".to_owned() };
        if let Some(what) = unusable(ip) {
            return what.to_owned();
        }
        if !self.families.contains(&IpFamily::of(ip)) {
            return "of a family that is not requested".to_owned();
        }
        let excluding = |excluded: &[IpNet]| excluded.iter().find(|network| network.contains(&ip)).copied();
        match (excluding(&self.rules.internal.excluded), excluding(&self.rules.external.excluded)) {
            (Some(internal), Some(external)) if internal == external => format!("excluded by {internal}"),
            (Some(internal), Some(external)) => {
                format!("excluded by {internal} as InternalIP and by {external} as ExternalIP")
            }
            // An address that is excluded for one type only is refused for the other type because no rule names it.
            (Some(internal), None) => format!("excluded by {internal} as InternalIP, not named for ExternalIP"),
            (None, Some(external)) => format!("excluded by {external} as ExternalIP, not named for InternalIP"),
            (None, None) => "in no configured CIDR".to_owned(),
        }
    }
}

/// Returns the text of the first `items`, and the number of further items.
fn listed<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    let shown: Vec<String> = items.iter().take(MAX_DESCRIBED).map(text).collect();
    let more = match items.len().saturating_sub(MAX_DESCRIBED) {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    format!("{}{more}", shown.join(", "))
}

/// Returns at most 80 characters of a guest's text.
pub(super) fn clip(text: &str) -> String {
    let clipped: String = text.chars().take(MAX_TEXT).collect();
    if clipped.len() < text.len() { format!("{clipped}…") } else { clipped }
}
