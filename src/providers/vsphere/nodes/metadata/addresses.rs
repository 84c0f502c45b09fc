//! Pure: chooses Node addresses from the guest's report by the configured rules.
//!
//! Mirrors `nodemanager.go:DiscoverNode`, `:discoverIPs` and `:sortStaticallyConfiguredAddressesFirst`.

pub mod decisions;
mod families;
mod refusals;
pub mod rule_matches;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::NodeAddress;

pub use self::families::{AwaitedFamily, awaited};
use self::refusals::{Refusals, unusable};
use crate::base::addresses::parse_ip;
use crate::clients::vim::GuestNic;
use crate::cloud::Reason;
use crate::cloud::node::addresses::{EXTERNAL_IP, INTERNAL_IP};
use crate::providers::vsphere::config::address_rules::{AddressRule, AddressRules, IpFamily, equal_fold, name_parts};
use crate::providers::vsphere::reason;

/// Returns the network names of a rule. A text with commas is one name if the guest has an interface on a network of
/// this name; otherwise each part is a name.
fn network_names<'a>(rule: &'a AddressRule, nics: &[GuestNic]) -> Vec<&'a str> {
    let Some(name) = rule.network_name.as_deref() else { return Vec::new() };
    let parts = name_parts(name);
    let is_whole = || networks(nics).any(|network| equal_fold(network, name));
    if parts.is_empty() || is_whole() { vec![name] } else { parts }
}

/// Returns the networks of the interfaces with a virtual NIC.
fn networks(nics: &[GuestNic]) -> impl Iterator<Item = &str> {
    nics.iter().filter(|nic| has_virtual_nic(nic)).filter_map(|nic| nic.network.as_deref())
}

/// Reason why a Node gets no addresses. Messages list the refused candidates with reasons, up to a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The guest reports no interface: VMware Tools are not running, or have not reported yet.
    #[error("unable to find addresses: the guest reports no network interface; is VMware Tools running?")]
    NoGuestNics,
    /// Both network names are configured, no interface is on either network, and no address is in the configured CIDRs.
    #[error(
        "unable to find suitable IP address for node: no interface is on the network {internal:?} or {external:?}, \
         and no address is in a configured CIDR; the guest reports {found}"
    )]
    NoNetworkMatches {
        /// The configured name for internal addresses.
        internal: String,
        /// The configured name for external addresses.
        external: String,
        /// The guest's interfaces and addresses, each with the reason for its refusal.
        found: String,
    },
    /// All addresses are invalid, unspecified, loopback, link-local, multicast or broadcast, or on interfaces without a
    /// virtual NIC.
    #[error(
        "unable to find suitable IP address for node after filtering out localhost IPs: no usable address among {found}"
    )]
    NoUsableAddress {
        /// The guest's interfaces and addresses, each with the reason for its refusal.
        found: String,
    },
    /// A configured family has no address that the rules allow.
    #[error(
        "unable to find suitable IP address for node with IP family {family}: no address of that family that the \
         rules allow among {found}"
    )]
    NoAddressOfFamily {
        /// The family without an address.
        family: IpFamily,
        /// The guest's interfaces and addresses, each with the reason for its refusal.
        found: String,
    },
}

impl AddressError {
    /// Returns the reason for metrics, Events and conditions.
    pub fn reason(&self) -> Reason {
        match self {
            Self::NoGuestNics => reason::NoGuestNics,
            Self::NoNetworkMatches { .. } => reason::NoNetworkMatches,
            Self::NoUsableAddress { .. } => reason::NoUsableAddress,
            Self::NoAddressOfFamily { .. } => reason::NoAddressOfFamily,
        }
    }
}

#[derive(Clone, Copy)]
struct AddressCandidate<'a> {
    /// The guest's spelling of the address, which is also used in the Node.
    text: &'a str,
    ip: IpAddr,
    network: Option<&'a str>,
}

impl AddressCandidate<'_> {
    fn is_in(&self, networks: &[IpNet]) -> bool {
        networks.iter().any(|network| network.contains(&self.ip))
    }

    fn is_on(&self, network_name: &str) -> bool {
        self.network.is_some_and(|network| equal_fold(network, network_name))
    }
}

/// Preferences among the addresses that the rules allow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preferences {
    /// The kubelet's `--node-ip`. The first address of a family takes precedence over all preferences and rules, if the
    /// guest reports it and it is not excluded. It becomes the `InternalIP`, unless the rules choose it as
    /// `ExternalIP`.
    pub provided: Vec<IpAddr>,
    /// The Node's present `InternalIP` and `ExternalIP` addresses. Each is preferred over all others for its type.
    pub current: Vec<NodeAddress>,
    /// Possibly virtual addresses. They rank behind other allowed addresses, unless the Node already has them.
    pub demoted: HashSet<IpAddr>,
    /// The static addresses of the guest metadata, in order. They are preferred after `current`, for both types.
    pub listed: Vec<IpAddr>,
}

impl Preferences {
    /// Returns the rank of each address that is preferred for either type; lower is better.
    fn ranks(&self) -> HashMap<IpAddr, usize> {
        let held = self.current.iter().filter_map(|address| parse_ip(&address.address));
        let mut ranks = HashMap::new();
        for ip in held.chain(self.listed.iter().map(IpAddr::to_canonical)) {
            let next = ranks.len();
            ranks.entry(ip).or_insert(next);
        }
        ranks
    }
}

/// The addresses of a Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChosenAddresses {
    /// The host name, then per family the internal and the external address.
    pub addresses: Vec<NodeAddress>,
    /// Configured families without an address that the rules allow.
    pub missing: Vec<IpFamily>,
    /// Addresses that were not chosen only because they are demoted.
    pub passed_over: Vec<IpAddr>,
    /// Provided addresses that the guest reports but that were refused, with the reason.
    pub refused_provided: Vec<(IpAddr, String)>,
    /// Each address except the host name, with the rule that chose it.
    pub picks: Vec<AddressPick>,
    /// The addresses that the rules allowed for either type, among which the preferences decided.
    pub allowed: Vec<IpAddr>,
}

/// An address of a Node, and the rule that chose it.
#[derive(Clone, Debug, PartialEq)]
pub struct AddressPick {
    /// The address.
    pub address: NodeAddress,
    /// The rule.
    pub basis: AddressBasis,
}

/// The rule by which an address was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressBasis {
    /// The address is the kubelet's `--node-ip`.
    ProvidedNodeIp,
    /// The address is in a configured CIDR.
    Cidr,
    /// The interface of the address is on the configured network.
    NetworkName,
    /// The rules name no reported address of the family, so any address is allowed that is not excluded.
    AnyAllowed,
    /// The guest reports no address of the family, so the Node keeps the address that it has.
    Kept,
}

/// Chooses the addresses of a Node: its host name, then the internal and the external address per family, in the order
/// of `families`. Without families, the result is only the host name and the provided addresses.
///
/// If the guest reports no address of a family, only this family is missing. The Node then keeps its present addresses
/// of the family, because known addresses are never replaced by none.
///
/// # Errors
/// Fails if the guest reports no usable address, or if no family has an address that the rules allow.
pub fn build_addresses(
    host_name: &str,
    nics: &[GuestNic],
    preferences: &Preferences,
    families: &[IpFamily],
    rules: &AddressRules,
) -> Result<ChosenAddresses, AddressError> {
    if nics.is_empty() {
        return Err(AddressError::NoGuestNics);
    }
    let refusals = Refusals { families, rules };
    let names = check_network_names(nics, rules, &refusals);
    let candidates: Vec<AddressCandidate<'_>> = candidates(nics).collect();
    if candidates.is_empty() {
        names?;
        return Err(AddressError::NoUsableAddress { found: refusals.describe(nics) });
    }

    let ranks = preferences.ranks();
    let mut chosen =
        ChosenAddresses { addresses: vec![node_address("Hostname", host_name)], ..ChosenAddresses::default() };
    let mut is_any_picked = false;
    let queried = IpFamily::ALL.into_iter().filter(|family| !families.contains(family));
    let provided_only = queried.filter(|family| preferences.provided.iter().any(|ip| IpFamily::of(*ip) == *family));
    for family in families.iter().copied().chain(provided_only) {
        let picker = Picker { candidates: &candidates, nics, family, preferences, ranks: &ranks };
        let mut picks = Picks::default();
        if families.contains(&family) {
            picks = picker.pick_pair(rules, names.is_ok(), &mut chosen);
        }
        if let Some((ip, refusal)) = picker.take_provided(&mut picks, rules) {
            chosen.refused_provided.push((ip, refusal));
        }
        let mut found: Vec<AddressPick> = [(INTERNAL_IP, picks.internal), (EXTERNAL_IP, picks.external)]
            .into_iter()
            .filter_map(|(type_, pick)| {
                let Pick { candidate, basis } = pick?;
                Some(AddressPick { address: node_address(type_, candidate.text), basis })
            })
            .collect();
        is_any_picked |= !found.is_empty();
        if found.is_empty() && families.contains(&family) {
            chosen.missing.push(family);
            if !candidates.iter().any(|candidate| IpFamily::of(candidate.ip) == family) {
                let kept = reported_of(family, preferences, rules).into_iter();
                found = kept.map(|address| AddressPick { address, basis: AddressBasis::Kept }).collect();
            }
        }
        for pick in found {
            if !chosen.addresses.contains(&pick.address) {
                chosen.addresses.push(pick.address.clone());
                chosen.picks.push(pick);
            }
        }
    }
    if !is_any_picked {
        names?;
        if let Some(family) = chosen.missing.first() {
            return Err(AddressError::NoAddressOfFamily { family: *family, found: refusals.describe(nics) });
        }
    }
    Ok(chosen)
}

/// Returns the error for a `family` that [`build_addresses`] reported as missing.
pub fn missing_family(
    family: IpFamily,
    nics: &[GuestNic],
    families: &[IpFamily],
    rules: &AddressRules,
) -> AddressError {
    AddressError::NoAddressOfFamily { family, found: Refusals { families, rules }.describe(nics) }
}

/// Returns the guest's interfaces, plus an interface with the provided addresses that the guest reports without a
/// virtual NIC, such as on a bond. Such an address is accepted only if kubelet and guest agree.
pub fn with_guest_interfaces<'a>(nics: &'a [GuestNic], provided: &[IpAddr]) -> Cow<'a, [GuestNic]> {
    let guests_own = nics.iter().filter(|nic| !has_virtual_nic(nic)).flat_map(|nic| &nic.ip_addresses);
    let is_provided = |text: &&String| parse_ip(text).is_some_and(|ip| provided.contains(&ip));
    let believed: Vec<String> = guests_own.filter(is_provided).cloned().collect();
    if believed.is_empty() {
        return Cow::Borrowed(nics);
    }
    let more = GuestNic { ip_addresses: believed, device_config_id: 0, ..GuestNic::default() };
    Cow::Owned(nics.iter().cloned().chain([more]).collect())
}

/// Returns the usable addresses that the guest reports on interfaces with a virtual NIC, before any rule applies.
pub fn candidate_ips(nics: &[GuestNic]) -> impl Iterator<Item = IpAddr> {
    candidates(nics).map(|candidate| candidate.ip)
}

/// Fails if both network names are configured and no interface is on either network. CIDRs still apply then, but no
/// other address is chosen, because such an address could be on a wrong network.
fn check_network_names(nics: &[GuestNic], rules: &AddressRules, refusals: &Refusals<'_>) -> Result<(), AddressError> {
    let (Some(internal), Some(external)) = (&rules.internal.network_name, &rules.external.network_name) else {
        return Ok(());
    };
    let names = [&rules.internal, &rules.external].map(|rule| network_names(rule, nics)).concat();
    if networks(nics).any(|network| names.iter().any(|name| equal_fold(network, name))) {
        return Ok(());
    }
    let observed = refusals.describe(nics);
    Err(AddressError::NoNetworkMatches { internal: internal.clone(), external: external.clone(), found: observed })
}

/// Returns the Node's present addresses of this family without excluded and unusable ones, internal before external.
fn reported_of(family: IpFamily, preferences: &Preferences, rules: &AddressRules) -> Vec<NodeAddress> {
    [(INTERNAL_IP, &rules.internal), (EXTERNAL_IP, &rules.external)]
        .into_iter()
        .flat_map(|(type_, rule)| {
            let is_allowed = |ip: IpAddr| {
                IpFamily::of(ip) == family
                    && unusable(ip).is_none()
                    && !rule.excluded.iter().any(|network| network.contains(&ip))
            };
            let of_type = preferences.current.iter().filter(move |address| address.type_ == type_);
            of_type.filter(move |address| parse_ip(&address.address).is_some_and(is_allowed)).cloned()
        })
        .collect()
}

/// Returns false for an interface that belongs to the guest, such as that of a CNI plugin.
fn has_virtual_nic(nic: &GuestNic) -> bool {
    nic.device_config_id != -1
}

fn candidates(nics: &[GuestNic]) -> impl Iterator<Item = AddressCandidate<'_>> {
    nics.iter()
        .filter(|nic| has_virtual_nic(nic))
        .flat_map(|nic| nic.ip_addresses.iter().map(|text| (text.as_str(), nic.network.as_deref())))
        .filter_map(|(text, network)| {
            let ip = parse_ip(text)?;
            unusable(ip).is_none().then_some(AddressCandidate { text, ip, network })
        })
}

#[derive(Clone, Copy)]
struct Pick<'a> {
    candidate: AddressCandidate<'a>,
    basis: AddressBasis,
}

#[derive(Clone, Copy, Default)]
struct Picks<'a> {
    internal: Option<Pick<'a>>,
    external: Option<Pick<'a>>,
}

/// The candidates for one type, and the rule that allows them.
struct Pool<'a> {
    candidates: Vec<AddressCandidate<'a>>,
    basis: AddressBasis,
}

struct Picker<'a, 'b> {
    candidates: &'b [AddressCandidate<'a>],
    nics: &'b [GuestNic],
    family: IpFamily,
    preferences: &'b Preferences,
    ranks: &'b HashMap<IpAddr, usize>,
}

impl<'a> Picker<'a, '_> {
    /// Chooses the internal and the external address. Addresses that the rules name come first, with CIDRs before
    /// network names. If `may_guess` is set and the rules name no reported address for either type, any address that is
    /// not excluded is a candidate.
    fn pick_pair(&self, rules: &AddressRules, may_guess: bool, chosen: &mut ChosenAddresses) -> Picks<'a> {
        let (internal, external) = (self.allowed(&rules.internal), self.allowed(&rules.external));
        let mut of_internal = self.named_by(&rules.internal, &internal);
        let mut of_external = self.named_by(&rules.external, &external);
        if may_guess && of_internal.candidates.is_empty() && of_external.candidates.is_empty() {
            of_internal = Pool { candidates: internal, basis: AddressBasis::AnyAllowed };
            of_external = Pool { candidates: external, basis: AddressBasis::AnyAllowed };
        }
        for candidate in of_internal.candidates.iter().chain(&of_external.candidates) {
            if !chosen.allowed.contains(&candidate.ip) {
                chosen.allowed.push(candidate.ip);
            }
        }
        Picks {
            internal: self.pick(&of_internal, INTERNAL_IP, &rules.internal, &mut chosen.passed_over),
            external: self.pick(&of_external, EXTERNAL_IP, &rules.external, &mut chosen.passed_over),
        }
    }

    fn allowed(&self, rule: &AddressRule) -> Vec<AddressCandidate<'a>> {
        let is_allowed = |c: &&AddressCandidate<'_>| IpFamily::of(c.ip) == self.family && !c.is_in(&rule.excluded);
        self.candidates.iter().filter(is_allowed).copied().collect()
    }

    /// Returns the addresses in the rule's CIDRs or, if there are none, on its named networks.
    fn named_by(&self, rule: &AddressRule, allowed: &[AddressCandidate<'a>]) -> Pool<'a> {
        let in_networks: Vec<_> = allowed.iter().filter(|c| c.is_in(&rule.networks)).copied().collect();
        if !in_networks.is_empty() {
            return Pool { candidates: in_networks, basis: AddressBasis::Cidr };
        }
        let names = network_names(rule, self.nics);
        let candidates = allowed.iter().filter(|c| names.iter().any(|name| c.is_on(name))).copied().collect();
        Pool { candidates, basis: AddressBasis::NetworkName }
    }

    /// Returns the best address of `pool`: first the Node's present address of this type, then addresses that are not
    /// demoted, then by the order of the CIDRs or network names, then by the rank for either type, then by the guest's
    /// order.
    fn pick(
        &self,
        pool: &Pool<'a>,
        type_: &str,
        rule: &AddressRule,
        passed_over: &mut Vec<IpAddr>,
    ) -> Option<Pick<'a>> {
        let held: Vec<(Option<IpAddr>, &str)> = self
            .preferences
            .current
            .iter()
            .filter(|address| address.type_ == type_)
            .map(|address| (parse_ip(&address.address), address.address.as_str()))
            .collect();
        let names = network_names(rule, self.nics);
        let best = |demoted: &HashSet<IpAddr>| {
            pool.candidates.iter().min_by_key(|candidate| {
                let held_at = held.iter().position(|(ip, _)| *ip == Some(candidate.ip)).unwrap_or(usize::MAX);
                // Of two spellings of one address, the Node's spelling takes precedence.
                let is_respelled = !held.iter().any(|(_, text)| *text == candidate.text);
                let network = rule.networks.iter().position(|network| network.contains(&candidate.ip));
                // A pool consists either of CIDR matches or of name matches.
                let network = network.or_else(|| names.iter().position(|name| candidate.is_on(name)));
                let rank = self.ranks.get(&candidate.ip).copied().unwrap_or(usize::MAX);
                (held_at, is_respelled, demoted.contains(&candidate.ip), network.unwrap_or(usize::MAX), rank)
            })
        };
        let chosen = best(&self.preferences.demoted)?;
        let first = best(&HashSet::new())?;
        if first.ip != chosen.ip && !passed_over.contains(&first.ip) {
            passed_over.push(first.ip);
        }
        Some(Pick { candidate: *chosen, basis: pool.basis })
    }

    /// Makes the provided address of this family the InternalIP, unless it already is the InternalIP or the rules
    /// choose it as ExternalIP. Returns the reason if the address is refused although the guest reports it.
    fn take_provided(&self, picks: &mut Picks<'a>, rules: &AddressRules) -> Option<(IpAddr, String)> {
        let provided = self.preferences.provided.iter().copied().find(|ip| IpFamily::of(*ip) == self.family)?;
        let is = |pick: Option<Pick<'a>>| pick.is_some_and(|pick| pick.candidate.ip == provided);
        // If the rules do not name the address, it may have been chosen only because it is the ExternalIP already.
        let is_named = || {
            let named = self.named_by(&rules.external, &self.allowed(&rules.external));
            named.candidates.iter().any(|candidate| candidate.ip == provided)
        };
        if is(picks.internal) || is(picks.external) && is_named() {
            return None;
        }
        match self.candidates.iter().find(|candidate| candidate.ip == provided) {
            Some(candidate) => match rules.internal.excluded.iter().find(|network| network.contains(&provided)) {
                Some(_) if is(picks.external) => None,
                Some(network) => Some((provided, format!("{network} is excluded for InternalIP"))),
                None => {
                    picks.internal = Some(Pick { candidate: *candidate, basis: AddressBasis::ProvidedNodeIp });
                    None
                }
            },
            None => {
                let is_reported = |nic: &GuestNic| nic.ip_addresses.iter().any(|text| parse_ip(text) == Some(provided));
                let nic = self.nics.iter().find(|nic| is_reported(nic))?;
                let no_nic = || {
                    let network = nic.network.as_deref().unwrap_or_default();
                    format!("its interface ({network:?}) has no virtual NIC; --trust-guest-interfaces believes it")
                };
                Some((provided, unusable(provided).map_or_else(no_nic, |what| format!("it is {what}"))))
            }
        }
    }
}

fn node_address(type_: &str, address: &str) -> NodeAddress {
    NodeAddress { type_: type_.to_owned(), address: address.to_owned() }
}

#[cfg(test)]
mod tests;
