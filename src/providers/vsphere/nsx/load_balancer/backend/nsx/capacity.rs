//! Pure: parses the usage of a load balancer service, the subnets of an IP pool, and route advertisement.

use std::net::IpAddr;

use serde_json::{Map, Value};

use crate::base::addresses::{parse_ip, parse_network_sloppy};
use crate::clients::nsx::Object;
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::nsx::load_balancer::backend::Usage;
use crate::providers::vsphere::nsx::load_balancer::layout::ADDRESS_POOLS;

/// Parses the usage of a load balancer service. If NSX returns one result per enforcement point, the first counts.
pub(super) fn usage_of(answer: &Map<String, Value>) -> Option<Usage> {
    let first = answer.get("results").and_then(|results| results.get(0)).and_then(Value::as_object);
    let answer = first.unwrap_or(answer);
    let number =
        |member: &str| answer.get(member).and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok());
    let of = |used: &str, allowed: &str| number(used).zip(number(allowed));
    Some(Usage::new(
        of("current_virtual_server_count", "virtual_server_capacity")?,
        of("current_pool_count", "pool_capacity")?,
        of("current_pool_member_count", "pool_member_capacity")?,
    ))
}

pub(super) fn advertises_addresses(gateway: &Object) -> bool {
    gateway.list("route_advertisement_types").iter().any(|one| one == "TIER1_LB_VIP")
}

pub(super) fn subnets_of(pool: &str) -> String {
    format!("{ADDRESS_POOLS}/{pool}/ip-subnets")
}

fn end(range: &Value, name: &str) -> Option<IpAddr> {
    range.get(name).and_then(Value::as_str).and_then(parse_ip)
}

pub(super) fn family_of(subnet: &Object) -> Option<IpFamily> {
    let of_network = parse_network_sloppy(subnet.text("cidr")).map(|network| network.addr());
    let of_range = || subnet.list("allocation_ranges").iter().find_map(|range| end(range, "start"));
    of_network.or_else(of_range).map(IpFamily::of)
}

/// Whether a range of a subnet may contain the address. True for a subnet from an IP block, whose ranges are unknown.
pub(super) fn may_have_address(subnet: &Object, address: IpAddr) -> bool {
    let ranges = subnet.list("allocation_ranges");
    let has_it = |range: &Value| {
        let ends = end(range, "start").zip(end(range, "end"));
        ends.is_some_and(|(start, end)| start <= address && address <= end)
    };
    match ranges.is_empty() {
        true => parse_network_sloppy(subnet.text("cidr")).is_none_or(|network| network.contains(&address)),
        false => ranges.iter().any(has_it),
    }
}
