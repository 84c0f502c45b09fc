//! No two Services have the same address at once. No address is released while its virtual servers exist. No Service
//! gets another address while it asks for a load balancer.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Change, Kind, SERVICE, State};
use crate::invariants::nsx::routes::{CLUSTER_UID, tag};

pub(super) fn check(change: &Change<'_>, state: &State) -> Result<(), String> {
    match (change.kind, change.before, change.after) {
        (Kind::Server, _, Some(after)) => check_server(after, state),
        (Kind::Allocation, Some(before), None) => check_release(change.path, before, state),
        _ => Ok(()),
    }
}

/// Returns the cluster and the Service in the tags of an object.
fn owner(object: &Value) -> (Option<String>, Option<String>) {
    (tag(object, CLUSTER_UID), tag(object, SERVICE))
}

fn check_server(after: &Value, state: &State) -> Result<(), String> {
    let has_same = |other: &Value| other["ip_address"] == after["ip_address"] && owner(other) != owner(after);
    match state.all(Kind::Server).find(|(_, other)| has_same(other)) {
        Some((path, _)) => Err(format!("gave a Service the address {}, which {path} has", after["ip_address"])),
        None => Ok(()),
    }
}

fn check_release(path: &str, before: &Value, state: &State) -> Result<(), String> {
    let address = state.allocated.get(path).map(ToString::to_string);
    let is_of_service = |other: &Value| owner(other) == owner(before);
    // An unrecorded address belongs to the Service if the Service has no other allocation.
    let is_only = !state.all(Kind::Allocation).any(|(_, other)| is_of_service(other));
    let uses = |server: &Value| match &address {
        Some(address) => server["ip_address"] == address.as_str(),
        None => is_only && is_of_service(server),
    };
    match state.all(Kind::Server).find(|(_, server)| uses(server)) {
        Some((server, _)) => Err(format!("released the address {address:?} of {server}")),
        None => Ok(()),
    }
}

/// The addresses that Services report.
#[derive(Debug, Default)]
pub struct Reported(BTreeMap<String, String>);

impl Reported {
    /// Records the address that a Service reports now. `wants` is true if the Service has asked for a load balancer
    /// since the last call.
    pub fn take(&mut self, uid: &str, wants: bool, address: Option<&str>) -> Result<(), String> {
        let Some(address) = address.filter(|_| wants) else {
            if !wants {
                self.0.remove(uid);
            }
            return Ok(());
        };
        match self.0.insert(uid.to_owned(), address.to_owned()) {
            Some(before) if before != address => Err(format!("{uid} had the address {before}, and has {address}")),
            _ => Ok(()),
        }
    }
}

/// Returns an address that occurs twice in these addresses of Services with a load balancer.
pub fn shared<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = BTreeSet::new();
    addresses.into_iter().find(|address| !seen.insert(*address))
}

#[test]
fn an_address_that_two_services_report_is_reported() {
    assert_eq!(shared(["192.0.2.1", "192.0.2.2"]), None);
    assert_eq!(shared(["192.0.2.1", "192.0.2.2", "192.0.2.1"]), Some("192.0.2.1"));
}

#[test]
fn an_address_of_two_services_or_released_too_early_is_reported() {
    use super::fixtures::*;
    let (of_a, of_b) = (server("a", 80, "1", "p"), server("b", 443, "1", "p"));
    let allocations = || vec![by_replica(IP, &allocation("a")), by_replica(VS, &of_a)];
    let second = by_replica("/infra/ip-pools/p1/ip-allocations/j", &allocation("a"));
    for (case, steps, is_kept) in [
        ("two ports of one Service", vec![by_replica(VS, &of_a), by_replica(VS_2, &server("a", 443, "1", "p"))], true),
        ("two Services", vec![by_replica(VS, &of_a), by_replica(VS_2, &of_b)], false),
        ("that of another cluster", vec![by_hand(VS, &of_uid("o", of_b.clone())), by_replica(VS_2, &of_a)], false),
        ("one after the other", vec![by_replica(VS, &of_a), deleted(VS), by_replica(VS_2, &of_b)], true),
        ("released too early", [allocations(), vec![deleted(IP)]].concat(), false),
        ("released at the end", [allocations(), vec![deleted(VS), deleted(IP)]].concat(), true),
        ("a second one that was not seen", [allocations(), vec![second, deleted(IP)]].concat(), true),
        ("by hand", [allocations(), vec![deleted_by_hand(IP)]].concat(), true),
    ] {
        assert_eq!(broken(no_services(), steps).is_none(), is_kept, "{case}");
    }
    // The address of the allocation is recorded.
    let second = by_replica("/infra/ip-pools/p1/ip-allocations/j", &allocation("a"));
    for (address, is_kept) in [("192.0.2.1", false), ("192.0.2.2", true)] {
        let steps = [
            vec![by_replica(VS, &server("a", 80, "1", "p")), second.clone()],
            vec![by_replica(IP, &allocation("a")), deleted(IP)],
        ];
        assert_eq!(broken_with(no_services(), steps.concat(), Some(address)).is_none(), is_kept, "{address}");
    }
}

#[test]
fn another_address_of_a_service_that_keeps_its_load_balancer_is_reported() {
    let judge = |steps: &[(bool, Option<&str>)]| {
        let mut reported = Reported::default();
        steps.iter().all(|(wants, address)| reported.take("u", *wants, *address).is_ok())
    };
    assert!(judge(&[(true, None), (true, Some("1")), (true, Some("1"))]));
    assert!(judge(&[(true, Some("1")), (false, Some("1")), (false, None), (true, Some("2"))]));
    assert!(!judge(&[(true, Some("1")), (true, Some("2"))]));
    assert!(!judge(&[(true, Some("1")), (true, None), (true, Some("2"))]));
}
