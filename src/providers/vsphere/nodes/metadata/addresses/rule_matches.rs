//! Pure: finds the parts of the address rules that match nothing at any VM, which are most likely mistyped.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;

use super::{network_names, networks};
use crate::base::addresses::parse_ip;
use crate::clients::vim::GuestNic;
use crate::providers::vsphere::config::address_rules::{AddressRule, AddressRules, equal_fold};
use crate::providers::vsphere::vcenter::snapshot::VmRecord;

/// The parts of the address rules that match no interface and no address of the VMs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnmatchedRules {
    /// Number of VMs with interfaces.
    pub vms: usize,
    /// The network names, each with its address type: `internal` or `external`.
    pub network_names: Vec<(&'static str, String)>,
    /// The CIDRs, each with its address type.
    pub subnets: Vec<(&'static str, IpNet)>,
    /// The networks of the interfaces.
    pub attached_networks: BTreeSet<String>,
}

/// Finds the parts of `rules` that match nothing at these VMs.
pub fn unmatched_rules(rules: &AddressRules, vms: &[Arc<VmRecord>]) -> UnmatchedRules {
    let vms: Vec<&[GuestNic]> = vms.iter().map(|vm| vm.nics.as_slice()).filter(|nics| !nics.is_empty()).collect();
    let mut unmatched = UnmatchedRules { vms: vms.len(), ..UnmatchedRules::default() };
    for nics in &vms {
        unmatched.attached_networks.extend(networks(nics).map(str::to_owned));
    }
    for (kind, rule) in [("internal", &rules.internal), ("external", &rules.external)] {
        if let Some(name) = rule.network_name.as_ref().filter(|_| !vms.iter().any(|nics| is_attached(rule, nics))) {
            unmatched.network_names.push((kind, name.clone()));
        }
        let is_used = |network: &IpNet| vms.iter().any(|nics| has_address_in(network, nics));
        unmatched.subnets.extend(rule.networks.iter().filter(|network| !is_used(network)).map(|one| (kind, *one)));
    }
    unmatched
}

fn is_attached(rule: &AddressRule, nics: &[GuestNic]) -> bool {
    let names = network_names(rule, nics);
    networks(nics).any(|network| names.iter().any(|name| equal_fold(network, name)))
}

fn has_address_in(network: &IpNet, nics: &[GuestNic]) -> bool {
    let mut addresses = nics.iter().flat_map(|nic| &nic.ip_addresses).filter_map(|address| parse_ip(address));
    addresses.any(|address| network.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm(network: &str, address: &str) -> Arc<VmRecord> {
        let nic = GuestNic {
            network: Some(network.to_owned()),
            ip_addresses: vec![address.to_owned()],
            device_config_id: 4000,
        };
        Arc::new(VmRecord { nics: vec![nic], ..VmRecord::default() })
    }

    #[test]
    fn a_name_or_subnet_that_no_vm_has_is_unmatched() {
        let vms = [vm("K8S-Prod", "10.20.0.7"), vm("Mgmt", "192.168.1.7"), Arc::default()];
        let rule = |name: &str, networks: &[&str]| AddressRule {
            network_name: Some(name.to_owned()),
            networks: networks.iter().map(|network| network.parse().unwrap()).collect(),
            ..AddressRule::default()
        };
        let matched = AddressRules {
            internal: rule("k8s-prod", &["10.20.0.0/16"]),
            external: rule("dmz, mgmt", &["192.168.0.0/16"]),
        };
        let found = unmatched_rules(&matched, &vms);
        assert_eq!((found.vms, found.network_names, found.subnets), (2, Vec::new(), Vec::new()));
        let mistyped = AddressRules {
            internal: rule("k8s-net", &["10.20.0.0/16", "fd00::/8"]),
            external: rule("dmz", &["10.30.0.0/16"]),
        };
        let found = unmatched_rules(&mistyped, &vms);
        assert_eq!(found.network_names, [("internal", "k8s-net".to_owned()), ("external", "dmz".to_owned())]);
        let subnets = [("internal", "fd00::/8".parse().unwrap()), ("external", "10.30.0.0/16".parse().unwrap())];
        assert_eq!(found.subnets, subnets);
        assert_eq!(Vec::from_iter(found.attached_networks), ["K8S-Prod", "Mgmt"]);
    }
}
