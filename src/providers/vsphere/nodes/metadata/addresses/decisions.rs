//! Pure: the decision about each address that a guest reports, for readers.

use super::refusals::{Refusals, clip};
use super::{AddressPick, ChosenAddresses, has_virtual_nic};
use crate::base::addresses::parse_ip;
use crate::clients::vim::GuestNic;
use crate::providers::vsphere::config::address_rules::{AddressRules, IpFamily};

/// Maximum number of decisions. A guest may report hundreds of addresses.
const MAX_DECISIONS: usize = 32;

/// An address, and the decision about it.
#[derive(Clone, Debug, PartialEq)]
pub struct AddressDecision {
    /// The address as the guest spells it, at most 80 characters.
    pub text: String,
    /// The network of its interface, at most 80 characters. Empty if the interface has none.
    pub network: String,
    /// The decision.
    pub outcome: AddressOutcome,
}

/// The decision about an address.
#[derive(Clone, Debug, PartialEq)]
pub enum AddressOutcome {
    /// The Node gets the address, with these types.
    Chosen(Vec<AddressPick>),
    /// The rules allow the address, and another one takes precedence because this one may be virtual.
    Demoted,
    /// The rules allow the address, and another one takes precedence.
    NotPreferred,
    /// The rules refuse the address, for this reason.
    Refused(String),
}

/// Returns the decisions: first the chosen addresses, then the others in the guest's order, at most 32. `chosen` is
/// the result for these interfaces; `None` if the Node gets no address.
pub fn decisions(
    nics: &[GuestNic],
    chosen: Option<&ChosenAddresses>,
    families: &[IpFamily],
    rules: &AddressRules,
) -> Vec<AddressDecision> {
    let nothing = ChosenAddresses::default();
    let chosen = chosen.unwrap_or(&nothing);
    let refusals = Refusals { families, rules };
    let mut decisions: Vec<AddressDecision> = Vec::new();
    for nic in nics {
        let network = clip(nic.network.as_deref().unwrap_or_default());
        for text in &nic.ip_addresses {
            let outcome = outcome(nic, text, chosen, &refusals);
            let text = clip(text);
            if !decisions.iter().any(|decision| decision.text == text) {
                decisions.push(AddressDecision { text, network: network.clone(), outcome });
            }
        }
    }
    for pick in &chosen.picks {
        let text = &pick.address.address;
        if !decisions.iter().any(|decision| decision.text == *text) {
            let outcome = AddressOutcome::Chosen(picks_of(text, chosen));
            decisions.push(AddressDecision { text: text.clone(), network: String::new(), outcome });
        }
    }
    decisions.sort_by_key(|decision| !matches!(decision.outcome, AddressOutcome::Chosen(_)));
    decisions.truncate(MAX_DECISIONS);
    decisions
}

fn outcome(nic: &GuestNic, text: &str, chosen: &ChosenAddresses, refusals: &Refusals<'_>) -> AddressOutcome {
    let picks = picks_of(text, chosen);
    if !picks.is_empty() {
        return AddressOutcome::Chosen(picks);
    }
    let ip = parse_ip(text);
    let refused = chosen.refused_provided.iter().find(|(refused, _)| ip == Some(*refused));
    if let Some((_, why)) = refused {
        return AddressOutcome::Refused(why.clone());
    }
    if !has_virtual_nic(nic) {
        return AddressOutcome::Refused("its interface has no virtual NIC".to_owned());
    }
    match ip {
        Some(ip) if chosen.passed_over.contains(&ip) => AddressOutcome::Demoted,
        Some(ip) if chosen.allowed.contains(&ip) => AddressOutcome::NotPreferred,
        _ => AddressOutcome::Refused(refusals.refusal(&clip(text))),
    }
}

fn picks_of(text: &str, chosen: &ChosenAddresses) -> Vec<AddressPick> {
    chosen.picks.iter().filter(|pick| pick.address.address == *text).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::super::{AddressBasis, Preferences, build_addresses};
    use super::*;
    use crate::providers::vsphere::config::address_rules::AddressRule;
    use crate::providers::vsphere::config::address_rules::IpFamily::{V4, V6};

    fn nic(network: &str, addresses: &[&str]) -> GuestNic {
        let ip_addresses = addresses.iter().map(|text| (*text).to_owned()).collect();
        let device_config_id = if network.is_empty() { -1 } else { 4000 };
        GuestNic { network: Some(network.to_owned()), ip_addresses, device_config_id }
    }

    fn shown(nics: &[GuestNic], preferences: &Preferences, families: &[IpFamily], rules: &AddressRules) -> Vec<String> {
        let chosen = build_addresses("node-1", nics, preferences, families, rules).ok();
        let text = |AddressDecision { text, network, outcome }: AddressDecision| {
            let outcome = match outcome {
                AddressOutcome::Chosen(picks) => {
                    let picks: Vec<_> =
                        picks.iter().map(|pick| format!("{} {:?}", pick.address.type_, pick.basis)).collect();
                    picks.join(", ")
                }
                AddressOutcome::Demoted => "demoted".to_owned(),
                AddressOutcome::NotPreferred => "not preferred".to_owned(),
                AddressOutcome::Refused(why) => why,
            };
            format!("{network} {text}: {outcome}")
        };
        decisions(nics, chosen.as_ref(), families, rules).into_iter().map(text).collect()
    }

    #[test]
    fn each_address_has_the_rule_that_chose_or_refused_it() {
        let of_cidr = AddressRule { networks: vec!["10.1.0.0/16".parse().unwrap()], ..AddressRule::default() };
        let excluded = AddressRule { excluded: vec!["10.9.0.0/16".parse().unwrap()], ..of_cidr.clone() };
        let of_name = AddressRule { network_name: Some("dmz".to_owned()), ..AddressRule::default() };
        let nics = [
            nic("lan", &["10.1.0.7", "10.1.0.8", "10.1.0.9", "10.2.0.1", "fe80::1", "fd00::1"]),
            nic("dmz", &["192.0.2.7", "10.9.0.1"]),
            nic("", &["172.17.0.1"]),
        ];
        let demoted = Preferences { demoted: ["10.1.0.7".parse().unwrap()].into(), ..Preferences::default() };
        let rules = AddressRules { internal: excluded.clone(), external: of_name };
        assert_eq!(
            shown(&nics, &demoted, &[V4], &rules),
            [
                "lan 10.1.0.8: InternalIP Cidr",
                "dmz 192.0.2.7: ExternalIP NetworkName",
                "lan 10.1.0.7: demoted",
                "lan 10.1.0.9: not preferred",
                "lan 10.2.0.1: in no configured CIDR",
                "lan fe80::1: link-local",
                "lan fd00::1: of a family that is not requested",
                "dmz 10.9.0.1: not preferred",
                " 172.17.0.1: its interface has no virtual NIC",
            ]
        );
        let none = shown(&[nic("lan", &["10.9.0.1"])], &demoted, &[V6], &rules);
        assert_eq!(none, ["lan 10.9.0.1: of a family that is not requested"], "no address is chosen");
    }

    #[test]
    fn the_kubelets_address_a_kept_one_and_any_allowed_one_are_told_apart() {
        let rules = AddressRules::default();
        let provided = Preferences { provided: vec!["10.1.0.8".parse().unwrap()], ..Preferences::default() };
        let nics = [nic("lan", &["10.1.0.7", "10.1.0.8"])];
        assert_eq!(
            shown(&nics, &provided, &[V4], &rules),
            ["lan 10.1.0.7: ExternalIP AnyAllowed", "lan 10.1.0.8: InternalIP ProvidedNodeIp"]
        );
        let current = vec![super::super::node_address("InternalIP", "fd00::7")];
        let kept = Preferences { current, ..Preferences::default() };
        let shown = shown(&nics, &kept, &[V4, V6], &rules);
        assert!(shown.contains(&" fd00::7: InternalIP Kept".to_owned()), "{shown:?}");
        let many: Vec<String> = (0..99).map(|number| format!("10.1.1.{number}")).collect();
        let many = GuestNic { ip_addresses: many, ..nic("lan", &[]) };
        let chosen = build_addresses("n", std::slice::from_ref(&many), &kept, &[V4], &rules).unwrap();
        let shown = decisions(&[many], Some(&chosen), &[V4], &rules);
        assert_eq!(shown.len(), MAX_DECISIONS);
        let is_chosen = |decision: &AddressDecision| {
            matches!(&decision.outcome, AddressOutcome::Chosen(picks)
                if picks.iter().all(|pick| pick.basis == AddressBasis::AnyAllowed))
        };
        assert!(is_chosen(&shown[0]));
    }
}
