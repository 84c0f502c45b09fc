//! Tests of the load balancers of a Service, and of their address pools.

use uuid::Uuid;

use super::*;
use crate::providers::vsphere::nsx::load_balancer::resource::{OwnerTags, Resource};

const A4: &str = "192.0.2.1";
const A6: &str = "2001:db8::1";

fn allocation(address: &str, second: Option<IpFamily>, id: Uuid) -> Resource {
    let marks = OwnerTags {
        id: id.to_string().into(),
        path: format!("/{address}").into(),
        is_named_as_ours: true,
        service: "ns/s".into(),
        service_uid: None,
        cluster_uid: None,
        port: None,
        secondary: second,
    };
    let address = address.parse().ok();
    Resource { tags: marks, address_pool: "p".into(), address, ..Resource::new(ObjectKind::Allocation, None) }
}

/// Returns load balancers of this program with these addresses.
fn made_here(first: Option<&str>, second: Option<&str>) -> ServiceResources {
    let id = |address: &str| Uuid::new_v5(&Uuid::NAMESPACE_OID, address.as_bytes());
    let first = first.map(|address| allocation(address, None, id(address)));
    let second = second.map(|address| allocation(address, Some(SECOND), id(address)));
    ServiceResources(first.into_iter().chain(second).collect())
}

/// Returns a load balancer of the Go program.
fn of_go(first: &str) -> ServiceResources {
    ServiceResources(vec![allocation(first, None, Uuid::from_u128(4 << 76))])
}

/// Returns the families of the first and second load balancer. One that is to be deleted is in brackets.
fn shown(families: &[IpFamily], has_ipv6_pool: bool, ours: &ServiceResources) -> String {
    let asked = RequestedFamilies { families, has_ipv6_pool };
    let word = |one: &FamilyLoadBalancer| {
        assert!(one.secondary.is_none_or(|second| second == one.family));
        let which = if one.secondary.is_some() { "second " } else { "" };
        let word = format!("{which}{}", one.family.as_str());
        if one.is_wanted { word } else { format!("({word})") }
    };
    asked.balancers(ours).iter().map(word).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_service_has_one_load_balancer_for_each_family_that_there_is_a_pool_for() {
    for (families, has_pool, expected) in [
        (&[V4][..], false, "IPv4"),
        (&[V4], true, "IPv4"),
        (&[V6], false, "IPv6"),
        (&[V6], true, "second IPv6"),
        (&[V4, V6], false, "IPv4"),
        (&[V6, V4], false, "IPv4"),
        (&[V4, V6], true, "IPv4, second IPv6"),
        (&[V6, V4], true, "IPv4, second IPv6"),
    ] {
        assert_eq!(shown(families, has_pool, &ServiceResources::default()), expected, "{families:?} {has_pool}");
    }
}

#[test]
fn a_family_comes_and_goes_and_the_other_one_stays() {
    for (families, has_pool, ours, expected) in [
        (&[V4, V6][..], true, made_here(Some(A4), None), "IPv4, second IPv6"),
        (&[V4], true, made_here(Some(A4), Some(A6)), "IPv4, (second IPv6)"),
        (&[V6, V4], true, made_here(None, Some(A6)), "IPv4, second IPv6"),
        (&[V6], true, made_here(Some(A4), Some(A6)), "(IPv4), second IPv6"),
        // The pool of the class has IPv6 addresses.
        (&[V4], false, made_here(Some(A6), None), "IPv6"),
        (&[V6], true, made_here(Some(A6), None), "IPv6"),
        (&[V4, V6], true, made_here(Some(A6), None), "IPv6"),
        // The address of the first load balancer is not known yet, and may be an IPv6 address.
        (&[V6], true, made_here(Some("unread"), None), "IPv6"),
        (&[V4, V6], true, made_here(Some("unread"), None), "IPv4"),
        (&[V6], true, made_here(Some("unread"), Some(A6)), "(IPv6), second IPv6"),
        // The IPv6 pool was removed from the configuration. An existing load balancer stays as long as its family.
        (&[V4, V6], false, made_here(Some(A4), Some(A6)), "IPv4, second IPv6"),
        (&[V6], false, made_here(None, Some(A6)), "second IPv6"),
        (&[V4], false, made_here(Some(A4), Some(A6)), "IPv4, (second IPv6)"),
        // A load balancer of the Go program stays, whatever families the Service requests.
        (&[V6], false, of_go(A4), "IPv4"),
        (&[V6], true, of_go(A4), "IPv4, second IPv6"),
        (&[V6], true, of_go(A6), "IPv6"),
        (&[V6, V4], true, of_go(A4), "IPv4, second IPv6"),
    ] {
        assert_eq!(shown(families, has_pool, &ours), expected, "{families:?} {has_pool} {ours:?}");
    }
}

#[test]
fn a_pool_has_to_have_the_family_unless_the_class_has_one_pool_for_all() {
    let first = FamilyLoadBalancer { secondary: None, family: V4, is_wanted: true };
    let second = FamilyLoadBalancer { secondary: Some(SECOND), family: SECOND, is_wanted: true };
    for (families, has_pool, expected) in [
        (&[V4][..], false, None),
        (&[V4], true, None),
        (&[V4, V6], false, None),
        (&[V4, V6], true, Some(V4)),
        (&[V6, V4], true, Some(V4)),
        (&[V6], false, Some(V6)),
    ] {
        let asked = RequestedFamilies { families, has_ipv6_pool: has_pool };
        assert_eq!(asked.required(&first), expected, "{families:?} {has_pool}");
        assert_eq!(asked.required(&second), Some(V6));
    }
}

#[test]
fn addresses_come_in_the_order_of_the_families_of_the_service() {
    let both: Vec<IpAddr> = [A4, A6].iter().map(|address| address.parse().unwrap()).collect();
    assert_eq!(in_order(&[V4, V6], both.clone()), both);
    assert_eq!(in_order(&[V6, V4], both.clone()), [both[1], both[0]]);
    assert_eq!(in_order(&[V6], both.clone()), [both[1], both[0]], "what is not asked for comes last");
}
