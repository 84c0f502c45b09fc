//! Pure: what the guest reports and the rules of the configuration → node addresses.
//!
//! Mirrors `nodemanager.go:DiscoverNode`, `:discoverIPs` and `:sortStaticallyConfiguredAddressesFirst`.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::NodeAddress;

use crate::clients::vim::types::GuestNic;
use crate::cloud::Reason;

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
    /// Both network names are configured, no interface is on either, and no address is in the configured CIDRs.
    #[error(
        "unable to find suitable IP address for node: no interface is on the network {internal:?} or {external:?}, \
         and no address is in a configured CIDR; the guest reports {seen}"
    )]
    NoNetworkMatches {
        /// The configured name for internal addresses.
        internal: String,
        /// The configured name for external addresses.
        external: String,
        /// What the guest reports.
        seen: String,
    },
    /// Nothing is left after invalid, unspecified, loopback, link-local, multicast and broadcast addresses were dropped.
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
    /// The word for metrics, Events and conditions.
    pub fn reason(&self) -> Reason {
        match self {
            Self::NoGuestNics => Reason::NoGuestNics,
            Self::NoNetworkMatches { .. } => Reason::NoNetworkMatches,
            Self::NoUsableAddress { .. } => Reason::NoUsableAddress,
            Self::NoAddressOfFamily { .. } => Reason::NoAddressOfFamily,
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
        is_of(self.ip, family)
    }

    fn is_in(&self, networks: &[IpNet]) -> bool {
        networks.iter().any(|network| network.contains(&self.ip))
    }

    fn is_on(&self, network_name: &str) -> bool {
        self.network.is_some_and(|network| equal_fold(network, network_name))
    }
}

/// What is preferred among the addresses that the rules allow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preferences {
    /// What the node has now, as `InternalIP` or `ExternalIP`: preferred before all others for its type.
    pub held: Vec<NodeAddress>,
    /// Preferred next, for both types, in this order.
    pub listed: Vec<IpAddr>,
}

impl Preferences {
    /// The place of each address that is preferred for a type; lower is better.
    fn ranks(&self, type_: &str) -> HashMap<IpAddr, usize> {
        let held = self.held.iter().filter(|address| address.type_ == type_);
        let held = held.filter_map(|address| parse_ip(&address.address));
        let mut ranks = HashMap::new();
        for ip in held.chain(self.listed.iter().map(IpAddr::to_canonical)) {
            let next = ranks.len();
            ranks.entry(ip).or_insert(next);
        }
        ranks
    }
}

/// The addresses of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chosen {
    /// The host name, then per family the internal and the external address.
    pub addresses: Vec<NodeAddress>,
    /// The families of the configuration of which the guest has no address that the rules allow. The node goes on
    /// without them, or with what it has of them.
    pub missing: Vec<IpFamily>,
}

/// The addresses of a node: its host name, then per family of `families`, in that order, the internal and the external
/// address. Without families there is only the host name.
///
/// A family of which the guest reports nothing at all costs that family, not the node, and what the node has of it
/// stays: known addresses are never replaced by none.
///
/// # Errors
/// When the guest reports nothing usable, or no family has an address that the rules allow.
pub fn build_addresses(
    host_name: &str,
    nics: &[GuestNic],
    preferences: &Preferences,
    families: &[IpFamily],
    rules: &AddressRules,
) -> Result<Chosen, AddressError> {
    if nics.is_empty() {
        return Err(AddressError::NoGuestNics);
    }
    // Interfaces without a virtual NIC are the guest's own, for example those of a CNI plugin.
    let real: Vec<&GuestNic> = nics.iter().filter(|nic| nic.device_config_id != -1).collect();
    let names = check_network_names(&real, nics, rules);
    let candidates = find_candidates(&real);
    if candidates.is_empty() {
        names?;
        return Err(AddressError::NoUsableAddress { seen: describe(nics) });
    }

    let mut chosen = Chosen { addresses: vec![node_address("Hostname", host_name)], missing: Vec::new() };
    let mut is_any_picked = false;
    for &family in families {
        let picks = pick_pair(&candidates, family, preferences, rules, names.is_ok());
        let mut found: Vec<NodeAddress> = [("InternalIP", picks.0), ("ExternalIP", picks.1)]
            .into_iter()
            .filter_map(|(type_, pick)| pick.map(|pick| node_address(type_, pick.text)))
            .collect();
        is_any_picked |= !found.is_empty();
        if found.is_empty() {
            chosen.missing.push(family);
            if !candidates.iter().any(|candidate| candidate.is_of(family)) {
                found = held_of(family, preferences, rules);
            }
        }
        for address in found {
            if !chosen.addresses.contains(&address) {
                chosen.addresses.push(address);
            }
        }
    }
    if !is_any_picked {
        names?;
        if let Some(family) = chosen.missing.first() {
            return Err(no_address_of(*family, rules, nics));
        }
    }
    Ok(chosen)
}

/// Whether the configured network names leave a choice: only when both are configured and no interface is on either,
/// they do not. CIDRs are tried all the same; nothing is guessed then, because any guess could put the node on a wrong
/// network.
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

/// What the node has of a family and the rules do not exclude, internal before external.
fn held_of(family: IpFamily, preferences: &Preferences, rules: &AddressRules) -> Vec<NodeAddress> {
    [("InternalIP", &rules.internal), ("ExternalIP", &rules.external)]
        .into_iter()
        .flat_map(|(type_, rule)| {
            let is_allowed = |ip: IpAddr| {
                is_of(ip, family) && is_usable(ip) && !rule.excluded.iter().any(|network| network.contains(&ip))
            };
            let of_type = preferences.held.iter().filter(move |address| address.type_ == type_);
            of_type.filter(move |address| parse_ip(&address.address).is_some_and(is_allowed)).cloned()
        })
        .collect()
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

/// Both picks for one family; the default (the first address) only where neither was found by a rule, and only if it
/// `may_guess`.
fn pick_pair<'a>(
    candidates: &[Candidate<'a>],
    family: IpFamily,
    preferences: &Preferences,
    rules: &AddressRules,
    may_guess: bool,
) -> (Option<Candidate<'a>>, Option<Candidate<'a>>) {
    let allowed = |rule: &AddressRule, type_: &str| -> Vec<Candidate<'a>> {
        let mut allowed: Vec<_> =
            candidates.iter().filter(|c| c.is_of(family) && !c.is_in(&rule.excluded)).copied().collect();
        let ranks = preferences.ranks(type_);
        allowed.sort_by_key(|candidate| ranks.get(&candidate.ip).copied().unwrap_or(usize::MAX));
        allowed
    };
    let (internal, external) = (allowed(&rules.internal, "InternalIP"), allowed(&rules.external, "ExternalIP"));
    let picks = (pick_by_rule(&internal, &rules.internal), pick_by_rule(&external, &rules.external));
    match picks {
        (None, None) if may_guess => (internal.first().copied(), external.first().copied()),
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

fn is_of(ip: IpAddr, family: IpFamily) -> bool {
    ip.is_ipv4() == (family == IpFamily::V4)
}

/// Whether the address is one machine's and can be reached from others: no multicast, no broadcast.
fn is_usable(ip: IpAddr) -> bool {
    let is_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_local)
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
