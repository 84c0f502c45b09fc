//! Tests of the remarks about load balancers, and of the time of a deletion.

use std::collections::BTreeSet;
use std::time::Duration;

use super::ResourceCache;
use crate::providers::vsphere::nsx::AnyLeader;
use crate::providers::vsphere::nsx::load_balancer::realization::NextCheck;
use crate::providers::vsphere::reason::{AddressUnavailable, LoadBalancerAdoptedAsIs};

fn all_of(cache: &ResourceCache, service: &str) -> Vec<String> {
    let given = std::iter::from_fn(|| cache.take_message(service));
    given.map(|(reason, message)| format!("{reason}: {message}")).collect()
}

#[test]
fn each_remark_is_given_once_until_it_changes() {
    let cache = ResourceCache::new(AnyLeader::new(Vec::new()));
    let remark = |reason, message: Option<&str>| cache.set_event("ns/s", reason, message.map(str::to_owned));
    remark(LoadBalancerAdoptedAsIs, Some("one"));
    remark(AddressUnavailable, Some("two"));
    assert_eq!(all_of(&cache, "ns/other"), Vec::<String>::new());
    assert_eq!(all_of(&cache, "ns/s"), ["AddressUnavailable: two", "LoadBalancerAdoptedAsIs: one"]);
    remark(LoadBalancerAdoptedAsIs, Some("one"));
    remark(AddressUnavailable, Some("three"));
    assert_eq!(all_of(&cache, "ns/s"), ["AddressUnavailable: three"]);
    remark(LoadBalancerAdoptedAsIs, None);
    remark(LoadBalancerAdoptedAsIs, Some("one"));
    assert_eq!(all_of(&cache, "ns/s"), ["LoadBalancerAdoptedAsIs: one"]);
    for _ in 0..2 {
        cache.remark_event("ns/s", AddressUnavailable, "three".to_owned());
        assert_eq!(all_of(&cache, "ns/s"), ["AddressUnavailable: three"]);
    }
    cache.forget("ns/s");
    remark(LoadBalancerAdoptedAsIs, Some("one"));
    assert_eq!(all_of(&cache, "ns/s"), ["LoadBalancerAdoptedAsIs: one"]);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_deletion_passes_whatever_becomes_of_other_services() {
    let cache = ResourceCache::new(AnyLeader::new(Vec::new()));
    let deleted_before: BTreeSet<Box<str>> = ["/infra/lb-virtual-servers/a".into()].into();
    cache.begin_deletion("ns/s");
    for _ in 0..330 {
        tokio::time::advance(Duration::from_secs(1)).await;
        if let NextCheck::Read(paths) = cache.teardown("ns/s", &deleted_before) {
            cache.record_teardown("ns/s", Some(paths.into_iter().collect()));
        }
        cache.completed("ns/other", Vec::new());
    }
    assert_eq!(cache.left_in_effect("ns/s"), deleted_before);
    assert_eq!(cache.teardown("ns/s", &deleted_before), NextCheck::Complete);
}
