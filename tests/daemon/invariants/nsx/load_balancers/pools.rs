//! No pool loses all members, or a Node that never leaves, while it has Nodes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Change, Kind, PORT, SERVICE, State};
use crate::invariants::nsx::routes::tag;

pub(super) fn check(change: &Change<'_>, state: &State) -> Result<(), String> {
    let (Kind::Pool, Some(before), Some((service, port))) = (change.kind, change.before, change.served()) else {
        return Ok(());
    };
    let before = members(before);
    if state.lasting.is_empty() || before.is_empty() || !state.intents.is_wanted(&service, &port, change.at) {
        return Ok(());
    }
    let Some(after) = change.after.map(members) else {
        let is_served_by = |object: &Value| {
            tag(object, SERVICE).as_ref() == Some(&service) && tag(object, PORT).as_ref() == Some(&port)
        };
        let mut others = state.all(Kind::Pool);
        let has_another = others.any(|(_, object)| is_served_by(object) && !members(object).is_empty());
        return match has_another {
            true => Ok(()),
            false => Err(format!("deleted the only pool of port {port}, which Service {service} asks for")),
        };
    };
    if after.is_empty() {
        return Err(format!("took all members from port {port} of Service {service}"));
    }
    match state.lasting.intersection(&before).find(|address| !after.contains(*address)) {
        Some(address) => Err(format!("took the Node {address} from port {port} of Service {service}")),
        None => Ok(()),
    }
}

/// Returns the addresses of the members.
pub fn members(pool: &Value) -> BTreeSet<String> {
    let all = pool["members"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter_map(|member| member["ip_address"].as_str()).map(str::to_owned).collect()
}

#[test]
fn a_pool_that_loses_its_nodes_is_reported() {
    use super::fixtures::*;
    // The Node with the address 10.0.0.1 never leaves.
    let full = by_replica(POOL, &pool("a", 80, &["10.0.0.1", "10.0.0.2"]));
    let second = by_replica("/infra/lb-pools/q", &pool("a", 80, &["10.0.0.1"]));
    let then = |step: Step| vec![full.clone(), step];
    let by_hand_first = vec![full.clone(), by_hand(POOL, &pool("a", 80, &["10.0.0.2"]))];
    let wanted = || vec![(0, "a", Some(vec!["TCP/80"]))];
    for (case, services, steps, is_kept) in [
        ("a node leaves", wanted(), then(by_replica(POOL, &pool("a", 80, &["10.0.0.1"]))), true),
        ("all leave", wanted(), then(by_replica(POOL, &pool("a", 80, &[]))), false),
        ("one that never leaves", wanted(), then(by_replica(POOL, &pool("a", 80, &["10.0.0.2"]))), false),
        ("deleted", wanted(), then(deleted(POOL)), false),
        ("deleted beside another one", wanted(), vec![full.clone(), second, deleted(POOL)], true),
        ("deleted with its Service", vec![(0, "a", None)], then(deleted(POOL)), true),
        ("emptied by hand", wanted(), then(by_hand(POOL, &pool("a", 80, &[]))), true),
        (
            "taken by hand, and another one leaves",
            wanted(),
            [by_hand_first, vec![by_replica(POOL, &pool("a", 80, &["10.0.0.3"]))]].concat(),
            true,
        ),
    ] {
        assert_eq!(broken(services, steps).is_none(), is_kept, "{case}");
    }
}
