//! Pure: what the guest reports and the rules of the configuration → node addresses.
//!
//! Mirrors `nodemanager.go:DiscoverNode`, `:discoverIPs` and `:sortStaticallyConfiguredAddressesFirst`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::NodeAddress;

use crate::clients::vim::types::GuestNic;

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpFamily {
    /// IPv4, also when written as an IPv4-mapped IPv6 address.
    V4,
    /// IPv6.
    V6,
}

/// The text names no family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected ipv4 or ipv6")]
pub struct InvalidIpFamily;

impl FromStr for IpFamily {
    type Err = InvalidIpFamily;

    /// Blanks around the word and its case do not matter.
    fn from_str(text: &str) -> Result<Self, InvalidIpFamily> {
        match text.trim().to_ascii_lowercase().as_str() {
            "ipv4" => Ok(Self::V4),
            "ipv6" => Ok(Self::V6),
            _ => Err(InvalidIpFamily),
        }
    }
}

impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        })
    }
}

/// How one type of address (internal or external) is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRule {
    /// The networks to choose from, in order of preference; host bits do not matter.
    pub networks: Vec<IpNet>,
    /// The port group or network to choose from when no address is in `networks`; never empty text.
    pub network_name: Option<String>,
    /// Networks never chosen from.
    pub excluded: Vec<IpNet>,
}

/// The rules of the section `Nodes`; they hold for all vCenters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// For `InternalIP`.
    pub internal: AddressRule,
    /// For `ExternalIP`.
    pub external: AddressRule,
}

/// Why a node gets no addresses. The messages say what was looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The guest reports no interface: VMware Tools are not running, or have not reported yet.
    #[error("unable to find addresses: the guest reports no network interface; is VMware Tools running?")]
    NoGuestNics,
    /// Both network names are configured, and no interface is on either.
    #[error(
        "unable to find suitable IP address for node: no interface is on the network {internal:?} or {external:?}; \
         the guest reports {seen}"
    )]
    NoNetworkMatches {
        /// The configured name for internal addresses.
        internal: String,
        /// The configured name for external addresses.
        external: String,
        /// What the guest reports.
        seen: String,
    },
    /// Nothing is left after invalid, unspecified, loopback and link-local addresses were dropped.
    #[error(
        "unable to find suitable IP address for node after filtering out localhost IPs: no usable address among {seen}"
    )]
    NoUsableAddress {
        /// What the guest reports.
        seen: String,
    },
    /// A family of the configuration has no address that the rules allow.
    #[error(
        "unable to find suitable IP address for node with IP family {family}: no address of that family outside the \
         excluded networks (internal: {excluded_internal}; external: {excluded_external}) among {seen}"
    )]
    NoAddressOfFamily {
        /// The family without an address.
        family: IpFamily,
        /// The networks that internal addresses may not be in.
        excluded_internal: String,
        /// The networks that external addresses may not be in.
        excluded_external: String,
        /// What the guest reports.
        seen: String,
    },
}

impl AddressError {
    /// A stable word for metrics, events and conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoGuestNics => "NoGuestNics",
            Self::NoNetworkMatches { .. } => "NoNetworkMatches",
            Self::NoUsableAddress { .. } => "NoUsableAddress",
            Self::NoAddressOfFamily { .. } => "NoAddressOfFamily",
        }
    }
}

/// One address that may be chosen.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    /// As the guest wrote it, and as it is emitted.
    text: &'a str,
    ip: IpAddr,
    network: Option<&'a str>,
}

impl Candidate<'_> {
    fn is_of(&self, family: IpFamily) -> bool {
        self.ip.is_ipv4() == (family == IpFamily::V4)
    }

    fn is_in(&self, networks: &[IpNet]) -> bool {
        networks.iter().any(|network| network.contains(&self.ip))
    }

    fn is_on(&self, network_name: &str) -> bool {
        self.network.is_some_and(|network| equal_fold(network, network_name))
    }
}

/// The addresses of a node: its host name, then per family of `families`, in that order, the internal and the external
/// address.
///
/// `static_order` are the addresses of the guest metadata (canonical text): candidates among them are preferred, in
/// that order. Without families there is only the host name.
///
/// # Errors
/// When the guest reports nothing usable, or a family has no address that the rules allow: one missing family fails
/// the whole node, as in the Go program.
pub fn build_addresses(
    host_name: &str,
    nics: &[GuestNic],
    static_order: &[String],
    families: &[IpFamily],
    rules: &AddressRules,
) -> Result<Vec<NodeAddress>, AddressError> {
    if nics.is_empty() {
        return Err(AddressError::NoGuestNics);
    }
    // Interfaces without a virtual NIC are the guest's own, for example those of a CNI plugin.
    let real: Vec<&GuestNic> = nics.iter().filter(|nic| nic.device_config_id != -1).collect();
    check_network_names(&real, nics, rules)?;
    let mut candidates = find_candidates(&real);
    if candidates.is_empty() {
        return Err(AddressError::NoUsableAddress { seen: describe(nics) });
    }
    candidates
        .sort_by_key(|candidate| static_order.iter().position(|text| text == candidate.text).unwrap_or(usize::MAX));

    let mut addresses = vec![node_address("Hostname", host_name)];
    for &family in families {
        let (internal, external) = pick_pair(&candidates, family, rules);
        if internal.is_none() && external.is_none() {
            return Err(no_address_of(family, rules, nics));
        }
        for (type_, pick) in [("InternalIP", internal), ("ExternalIP", external)] {
            let Some(pick) = pick else { continue };
            let address = node_address(type_, pick.text);
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    Ok(addresses)
}

/// Only when both names are configured, and even when CIDRs would match; as in the Go program.
fn check_network_names(real: &[&GuestNic], nics: &[GuestNic], rules: &AddressRules) -> Result<(), AddressError> {
    let (Some(internal), Some(external)) = (&rules.internal.network_name, &rules.external.network_name) else {
        return Ok(());
    };
    let matches = real
        .iter()
        .filter_map(|nic| nic.network.as_deref())
        .any(|network| equal_fold(network, internal) || equal_fold(network, external));
    if matches {
        return Ok(());
    }
    Err(AddressError::NoNetworkMatches { internal: internal.clone(), external: external.clone(), seen: describe(nics) })
}

fn find_candidates<'a>(nics: &[&'a GuestNic]) -> Vec<Candidate<'a>> {
    nics.iter()
        .flat_map(|nic| nic.ip_addresses.iter().map(|text| (text.as_str(), nic.network.as_deref())))
        .filter_map(|(text, network)| {
            let ip = parse_ip(text)?;
            is_usable(ip).then_some(Candidate { text, ip, network })
        })
        .collect()
}

/// Both picks for one family; the default (the first address) only where neither was found by a rule.
fn pick_pair<'a>(
    candidates: &[Candidate<'a>],
    family: IpFamily,
    rules: &AddressRules,
) -> (Option<Candidate<'a>>, Option<Candidate<'a>>) {
    let allowed = |rule: &AddressRule| -> Vec<Candidate<'a>> {
        candidates.iter().filter(|c| c.is_of(family) && !c.is_in(&rule.excluded)).copied().collect()
    };
    let (internal, external) = (allowed(&rules.internal), allowed(&rules.external));
    let picks = (pick_by_rule(&internal, &rules.internal), pick_by_rule(&external, &rules.external));
    match picks {
        (None, None) => (internal.first().copied(), external.first().copied()),
        picks => picks,
    }
}

/// The order of the networks beats the order of the addresses, and any network beats the name.
fn pick_by_rule<'a>(allowed: &[Candidate<'a>], rule: &AddressRule) -> Option<Candidate<'a>> {
    let by_network = rule.networks.iter().find_map(|network| allowed.iter().find(|c| network.contains(&c.ip)));
    let by_name = || rule.network_name.as_ref().and_then(|name| allowed.iter().find(|c| c.is_on(name)));
    by_network.or_else(by_name).copied()
}

fn no_address_of(family: IpFamily, rules: &AddressRules, nics: &[GuestNic]) -> AddressError {
    let list = |networks: &[IpNet]| match networks {
        [] => "none".to_owned(),
        networks => networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    AddressError::NoAddressOfFamily {
        family,
        excluded_internal: list(&rules.internal.excluded),
        excluded_external: list(&rules.external.excluded),
        seen: describe(nics),
    }
}

/// Reads an address as strictly as Go's `net.ParseIP`: no leading zeros, no zone ids. An IPv4-mapped IPv6 address is
/// an IPv4 address.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical())
}

/// Whether an address can be reached from other machines. Other multicast and the broadcast address stay, as in Go.
fn is_usable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !(ip.is_unspecified() || ip.is_loopback() || ip.is_link_local() || is_local_multicast_v4(ip)),
        IpAddr::V6(ip) => {
            !(ip.is_unspecified() || ip.is_loopback() || ip.is_unicast_link_local() || is_local_multicast_v6(ip))
        }
    }
}

/// `224.0.0.0/24`.
fn is_local_multicast_v4(ip: Ipv4Addr) -> bool {
    matches!(ip.octets(), [224, 0, 0, _])
}

/// `ff?2::/16`.
fn is_local_multicast_v6(ip: Ipv6Addr) -> bool {
    matches!(ip.octets(), [0xff, scope, ..] if scope & 0x0f == 2)
}

/// Compares without case, character by character, as Go's `strings.EqualFold`: `ß` is not `SS`.
pub(super) fn equal_fold(one: &str, other: &str) -> bool {
    one.chars().map(fold).eq(other.chars().map(fold))
}

fn fold(c: char) -> char {
    let upper = single(c.to_uppercase()).unwrap_or(c);
    single(upper.to_lowercase()).unwrap_or(upper)
}

fn single(mut chars: impl Iterator<Item = char>) -> Option<char> {
    let first = chars.next();
    if chars.next().is_none() { first } else { None }
}

/// How many interfaces and how many addresses of each an error message names; a guest may report hundreds.
const MAX_DESCRIBED: usize = 8;

/// The interfaces and their addresses, for messages.
fn describe(nics: &[GuestNic]) -> String {
    let more = |rest: usize| if rest > 0 { format!(" and {rest} more") } else { String::new() };
    let nic_text = |nic: &GuestNic| {
        let network = nic.network.as_deref().unwrap_or_default();
        let ignored = if nic.device_config_id == -1 { " (ignored: no virtual NIC)" } else { "" };
        let shown = nic.ip_addresses.iter().take(MAX_DESCRIBED).map(String::as_str).collect::<Vec<_>>().join(", ");
        format!("{network:?}{ignored} [{shown}{}]", more(nic.ip_addresses.len().saturating_sub(MAX_DESCRIBED)))
    };
    let shown = nics.iter().take(MAX_DESCRIBED).map(nic_text).collect::<Vec<_>>().join(", ");
    format!("{shown}{}", more(nics.len().saturating_sub(MAX_DESCRIBED)))
}

fn node_address(type_: &str, address: &str) -> NodeAddress {
    NodeAddress { type_: type_.to_owned(), address: address.to_owned() }
}

#[cfg(test)]
mod tests;
