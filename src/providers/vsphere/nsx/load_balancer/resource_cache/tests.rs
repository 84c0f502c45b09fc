//! The remarks about load balancers, and the time of a deletion.

use std::collections::BTreeSet;
use std::time::Duration;

use super::ResourceCache;
use crate::providers::vsphere::nsx::AnyLeader;
use crate::providers::vsphere::nsx::load_balancer::realization::Due;
use crate::providers::vsphere::reason::{AddressUnavailable, LoadBalancerAdoptedAsIs};

fn all_of(inventory: &ResourceCache, service: &str) -> Vec<String> {
    let given = std::iter::from_fn(|| inventory.take_remark(service));
    given.map(|(reason, message)| format!("{reason}: {message}")).collect()
}

#[test]
fn each_remark_is_given_once_until_it_changes() {
    let inventory = ResourceCache::new(AnyLeader::new(Vec::new()));
    let remark = |reason, message: Option<&str>| inventory.remark("ns/s", reason, message.map(str::to_owned));
    remark(LoadBalancerAdoptedAsIs, Some("one"));
    remark(AddressUnavailable, Some("two"));
    assert_eq!(all_of(&inventory, "ns/other"), Vec::<String>::new());
    assert_eq!(all_of(&inventory, "ns/s"), ["AddressUnavailable: two", "LoadBalancerAdoptedAsIs: one"]);
    remark(LoadBalancerAdoptedAsIs, Some("one"));
    remark(AddressUnavailable, Some("three"));
    assert_eq!(all_of(&inventory, "ns/s"), ["AddressUnavailable: three"]);
    remark(LoadBalancerAdoptedAsIs, None);
    remark(LoadBalancerAdoptedAsIs, Some("one"));
    assert_eq!(all_of(&inventory, "ns/s"), ["LoadBalancerAdoptedAsIs: one"]);
    for _ in 0..2 {
        inventory.remark_event("ns/s", AddressUnavailable, "three".to_owned());
        assert_eq!(all_of(&inventory, "ns/s"), ["AddressUnavailable: three"]);
    }
    inventory.forget("ns/s");
    remark(LoadBalancerAdoptedAsIs, Some("one"));
    assert_eq!(all_of(&inventory, "ns/s"), ["LoadBalancerAdoptedAsIs: one"]);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_deletion_passes_whatever_becomes_of_other_services() {
    let inventory = ResourceCache::new(AnyLeader::new(Vec::new()));
    let deleted_before: BTreeSet<Box<str>> = ["/infra/lb-virtual-servers/a".into()].into();
    inventory.begin_deletion("ns/s");
    for _ in 0..330 {
        tokio::time::advance(Duration::from_secs(1)).await;
        if let Due::Read(paths) = inventory.teardown("ns/s", &deleted_before) {
            inventory.record_teardown("ns/s", Some(paths.into_iter().collect()));
        }
        inventory.completed("ns/other", Vec::new());
    }
    assert_eq!(inventory.left_in_effect("ns/s"), deleted_before);
    assert_eq!(inventory.teardown("ns/s", &deleted_before), Due::Complete);
}
