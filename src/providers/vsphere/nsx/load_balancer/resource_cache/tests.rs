//! Tests of the remarks about load balancers, of the time of a deletion, and of the claims of calls in flight.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{LastStep, LbServiceUsage, MAX_SERVICES, ResourceCache};
use crate::providers::vsphere::nsx::AnyLeader;
use crate::providers::vsphere::nsx::load_balancer::backend::Usage;
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
        cache.record_complete("ns/other", Vec::new());
    }
    assert_eq!(cache.left_in_effect("ns/s"), deleted_before);
    assert_eq!(cache.teardown("ns/s", &deleted_before), NextCheck::Complete);
}

#[test]
fn the_demand_of_a_call_counts_until_the_usage_has_what_it_created() {
    let cache = ResourceCache::new(AnyLeader::new(Vec::new()));
    let claim = |service, usage, before| cache.claim_capacity(service, Usage::of_ports(2, 1), usage, before);
    let usage = || LbServiceUsage::Reported(Usage::new((17, 20), (17, 60), (0, 300)));
    let [one, _two] = ["ns/a", "ns/b"].map(|service| cache.lock(service).unwrap());
    assert!(claim("ns/a", usage(), BTreeMap::new()));
    let before = cache.demands();
    assert!(claim("ns/a", usage(), before.clone()), "the second load balancer of the same Service");
    assert_eq!(cache.demands(), [("ns/a".into(), Usage::of_ports(4, 1))].into(), "both load balancers count");
    assert!(!claim("ns/b", usage(), BTreeMap::new()));
    assert!(!claim("ns/b", LbServiceUsage::NoLbService, BTreeMap::new()));
    drop(one);
    assert!(!claim("ns/b", usage(), before), "the usage was read before the call ended");
    assert!(claim("ns/b", usage(), cache.demands()));
    assert_eq!(cache.demands(), [("ns/b".into(), Usage::of_ports(2, 1))].into());
    let _three = cache.lock("ns/c").unwrap();
    assert!(claim("ns/c", LbServiceUsage::Unreadable, cache.demands()), "NSX decides");
    assert!(cache.demands().contains_key("ns/c"), "the load balancer service is not deleted meanwhile");
}

#[test]
fn an_address_is_claimed_by_one_call_until_the_call_ends() {
    let cache = ResourceCache::new(AnyLeader::new(Vec::new()));
    let [address, other] = ["192.0.2.5", "192.0.2.6"].map(|address| address.parse().unwrap());
    let [one, _two] = ["ns/a", "ns/b"].map(|service| cache.lock(service).unwrap());
    assert_eq!(cache.claim_address("ns/a", address), Ok(true));
    assert_eq!(cache.claim_address("ns/a", address), Ok(false));
    assert_eq!(cache.claim_address("ns/b", address), Err("ns/a".into()));
    assert_eq!(cache.claim_address("ns/b", other), Ok(true));
    drop(one);
    assert_eq!(cache.claim_address("ns/b", address), Ok(true));
    cache.unclaim_address("ns/b", address);
    let _one = cache.lock("ns/a").unwrap();
    assert_eq!(cache.claim_address("ns/a", address), Ok(true));
    assert_eq!(cache.claim_address("ns/a", other), Err("ns/b".into()), "the other claim stays");
}

#[tokio::test(start_paused = true)]
async fn the_oldest_of_too_many_last_steps_goes() {
    let cache = ResourceCache::new(AnyLeader::new(Vec::new()));
    let record = |service: &str| {
        let last = LastStep {
            at: tokio::time::Instant::now(),
            steps: BTreeMap::new(),
            desired_servers: 1,
            desired_members: 1,
            owned: 0,
            ambiguous: 0,
            outcome: None,
        };
        cache.record_step(service, last);
    };
    record("ns/z");
    tokio::time::advance(Duration::from_secs(1)).await;
    (1..MAX_SERVICES).for_each(|number| record(&format!("ns/s{number}")));
    record("ns/s1");
    assert!(cache.last_step("ns/z").is_some());
    record("ns/a");
    assert!(cache.last_step("ns/z").is_none());
    assert!(["ns/a", "ns/s1"].into_iter().all(|service| cache.last_step(service).is_some()));
}
