//! Only a change of its own Service may delete the virtual server of an existing Service, or change its address or its
//! pool.

use serde_json::Value;

use super::{Change, Kind, State};

pub(super) fn check(change: &Change<'_>, state: &State) -> Result<(), String> {
    let (Kind::Server, Some(before), Some((service, port))) = (change.kind, change.before, change.served()) else {
        return Ok(());
    };
    if !state.intents.is_wanted(&service, &port, change.at) {
        return Ok(());
    }
    let Some(after) = change.after else {
        return Err(format!("deleted the virtual server of port {port}, which Service {service} asks for"));
    };
    if before["ip_address"] != after["ip_address"] {
        return Err(format!("changed the address of Service {service}"));
    }
    let (old, new) = (text(before, "pool_path"), text(after, "pool_path"));
    let is_there = state.objects.contains_key(old);
    match old != new && !old.is_empty() && (new.is_empty() || is_there) {
        true => Err(format!("took the pool from port {port} of Service {service}")),
        false => Ok(()),
    }
}

fn text<'a>(object: &'a Value, member: &str) -> &'a str {
    object[member].as_str().unwrap_or_default()
}

#[test]
fn a_virtual_server_that_a_service_loses_is_reported() {
    use super::fixtures::*;
    let whole = || vec![by_replica(POOL, &pool("a", 80, &["10.0.0.1"])), by_replica(VS, &server("a", 80, "1", POOL))];
    let then = |step: Step| [whole(), vec![step]].concat();
    let (other_pool, none) = (server("a", 80, "1", "/infra/lb-pools/q"), server("a", 80, "1", ""));
    let without_old = [whole(), vec![deleted_by_hand(POOL), by_replica(VS, &other_pool)]].concat();
    let wanted = || vec![(0, "a", Some(vec!["TCP/80"]))];
    let moved_port = || vec![(0, "a", Some(vec!["TCP/80"])), (1, "a", Some(vec!["TCP/81"]))];
    let gone = || vec![(0, "a", Some(vec!["TCP/80"])), (1, "a", None)];
    let back = || vec![(0, "a", Some(vec!["TCP/80"])), (1, "a", None), (2, "a", Some(vec!["TCP/80"]))];
    let long_ago = || vec![(-900, "a", None), (-800, "a", Some(vec!["TCP/80"]))];
    for (case, services, steps, is_kept) in [
        ("deleted", wanted(), then(deleted(VS)), false),
        ("deleted, and last changed long ago", long_ago(), then(deleted(VS)), false),
        ("its port was removed", moved_port(), then(deleted(VS)), true),
        ("its Service was deleted", gone(), then(deleted(VS)), true),
        ("its Service was deleted and created again", back(), then(deleted(VS)), true),
        ("by hand", wanted(), then(deleted_by_hand(VS)), true),
        ("another address", wanted(), then(by_replica(VS, &server("a", 80, "2", POOL))), false),
        ("another pool", wanted(), then(by_replica(VS, &other_pool)), false),
        ("another pool in place of one that is gone", wanted(), without_old, true),
        ("no pool", wanted(), then(by_replica(VS, &none)), false),
        ("another port of the nodes", wanted(), then(by_replica(VS, &moved(server("a", 80, "1", POOL)))), true),
    ] {
        assert_eq!(broken(services, steps).is_none(), is_kept, "{case}");
    }
}
