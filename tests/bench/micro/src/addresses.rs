//! The selection of a node's addresses, with a guest with a pod network and with rules that exclude most addresses.

use std::hint::black_box;

use ccm::clients::vim::GuestNic;
use ccm::providers::vsphere::config::{AddressRule, AddressRules, IpFamily};
use ccm::providers::vsphere::nodes::metadata::addresses::{Preferences, build_addresses};
use criterion::Criterion;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::NodeAddress;

/// Measures the selection of addresses.
pub fn measure(criterion: &mut Criterion) {
    let networks = |list: &[&str]| -> Vec<IpNet> { list.iter().map(|text| text.parse().expect("a network")).collect() };
    let excluded = networks(&["fe80::/10", "172.16.0.0/12"]);
    let rules = AddressRules {
        internal: AddressRule {
            networks: networks(&["10.10.0.0/16", "2001:db8:10::/64"]),
            excluded,
            network_name: None,
        },
        external: AddressRule { network_name: Some("k8s-workload".to_owned()), ..AddressRule::default() },
    };
    let families = [IpFamily::V4, IpFamily::V6];
    let held = [("InternalIP", "10.10.0.7"), ("InternalIP", "2001:db8:10::7")];
    let held = held.map(|(type_, address)| NodeAddress { type_: type_.to_owned(), address: address.to_owned() });
    let nics = interfaces();
    for (name, preferences) in [
        ("joining", Preferences::default()),
        ("held", Preferences { current: held.to_vec(), ..Preferences::default() }),
    ] {
        criterion.bench_function(&format!("addresses/{name}"), |bencher| {
            bencher.iter(|| {
                let chosen = build_addresses("node-1", black_box(&nics), &preferences, &families, &rules);
                assert!(chosen.as_ref().is_ok_and(|chosen| chosen.missing.is_empty()), "{chosen:?}");
                chosen
            });
        });
    }
}

fn interfaces() -> Vec<GuestNic> {
    let interface = |network: Option<&str>, key, addresses: &[String]| GuestNic {
        network: network.map(str::to_owned),
        ip_addresses: addresses.to_vec(),
        device_config_id: key,
    };
    let own = ["10.10.0.7", "2001:db8:10::7", "fe80::250:56ff:fe00:7"].map(str::to_owned);
    let mut all = vec![
        interface(Some("k8s-workload"), 4000, &own),
        interface(Some("k8s-storage"), 4001, &["192.168.0.7".to_owned()]),
    ];
    all.extend(
        (0..4).map(|pod| interface(None, -1, &[format!("fe80::ecee:eeff:fe00:{pod}"), format!("10.244.{pod}.1")])),
    );
    all
}
