//! Tests of shared addresses: the addresses, the Nodes that a change affects, and the state after all Nodes are gone.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::*;

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn set(shared: &mut SharedAddresses, node: &str, texts: &[&str]) -> Vec<String> {
    shared.set(node, ips(texts).into_iter()).iter().map(ToString::to_string).collect()
}

fn of(shared: &SharedAddresses, node: &str) -> Vec<String> {
    shared.of(node).map(|ip| ip.to_string()).collect()
}

#[test]
fn an_address_is_shared_while_two_nodes_report_it() {
    let mut shared = SharedAddresses::default();
    assert_eq!(set(&mut shared, "a", &["10.0.0.1", "10.0.0.9"]), [""; 0]);
    assert_eq!(of(&shared, "a"), [""; 0], "one node alone shares nothing");
    assert_eq!(set(&mut shared, "b", &["10.0.0.2", "10.0.0.9"]), ["a"], "it became shared for the first one, too");
    assert_eq!((of(&shared, "a"), of(&shared, "b")), (vec!["10.0.0.9".into()], vec!["10.0.0.9".into()]));
    assert_eq!(set(&mut shared, "c", &["10.0.0.9", "fd00::9"]), [""; 0], "for the others it was shared already");
    assert_eq!(set(&mut shared, "a", &["10.0.0.1"]), [""; 0], "two are left");
    assert_eq!(set(&mut shared, "b", &[]), ["c"], "one is left");
    assert_eq!(of(&shared, "c"), [""; 0]);
}

#[test]
fn what_is_reported_again_or_twice_changes_nothing() {
    let mut shared = SharedAddresses::default();
    set(&mut shared, "a", &["10.0.0.1", "10.0.0.1"]);
    assert_eq!(of(&shared, "a"), [""; 0], "twice by one node is not by two");
    set(&mut shared, "b", &["10.0.0.1", "10.0.0.2"]);
    assert_eq!(set(&mut shared, "b", &["10.0.0.2", "10.0.0.1"]), [""; 0], "the order does not matter");
    assert_eq!(of(&shared, "b"), ["10.0.0.1"]);
}

#[test]
fn only_so_many_addresses_of_a_node_count() {
    let mut shared = SharedAddresses::default();
    let many = || (0..10_000_u32).map(|at| IpAddr::from(Ipv4Addr::from(at)));
    shared.set("a", many());
    assert_eq!(shared.reported.len(), MAX_ADDRESSES);
}

/// 5,000 Nodes with 100 addresses each. Three addresses are the same on all Nodes, like those of bridges. One further
/// address is the same on one other Node.
#[test]
fn in_a_large_cluster_a_change_concerns_one_other_node_at_most() {
    const NODES: u32 = 5_000;
    const OWN: u32 = 96;
    let own = |node: u32| (0..OWN).map(move |at| IpAddr::from(Ipv4Addr::from(0x0a00_0000 + node * OWN + at)));
    let bridges = || ips(&["172.17.0.1", "172.18.0.1", "fd00::1"]);
    let pair = |node: u32| IpAddr::from(Ipv4Addr::from(0x0b00_0000 + node / 2));
    let report = |node: u32| own(node).chain(bridges()).chain([pair(node)]);
    let mut shared = SharedAddresses::default();
    let mut concerned = 0;
    for node in 0..NODES {
        concerned += shared.set(&node.to_string(), report(node)).len();
    }
    assert_eq!(concerned, 2_500, "the second of each pair concerns the first one, and nobody is asked about bridges");
    assert_eq!(shared.reported.len(), 500_000);
    assert_eq!(shared.of("77").count(), 4);
    for node in 0..NODES {
        assert_eq!(shared.set(&node.to_string(), report(node)).len(), 0, "nothing changed");
    }
    assert_eq!(shared.set("77", own(77)), BTreeSet::from(["76".into()]), "its pair, and none of the 4,999");
    for node in 0..NODES {
        shared.set(&node.to_string(), std::iter::empty());
    }
    assert!(shared.reported.is_empty() && shared.reporters.is_empty());
}

proptest! {
    /// Compares the index with a simple implementation: an address is shared if two Nodes report it. A change returns
    /// all other Nodes for which the shared addresses changed.
    #[test]
    fn the_index_is_the_plain_answer(
        steps in proptest::collection::vec((0u8..6, proptest::collection::btree_set(0u8..8, 0..5)), 1..60),
    ) {
        let ip = |at: u8| IpAddr::from([10, 0, 0, at]);
        let mut shared = SharedAddresses::default();
        let mut plain: HashMap<u8, BTreeSet<u8>> = HashMap::new();
        let of_plain = |plain: &HashMap<u8, BTreeSet<u8>>, node: u8| -> Vec<IpAddr> {
            let holders = |at: u8| plain.values().filter(|reported| reported.contains(&at)).count();
            plain.get(&node).into_iter().flatten().filter(|at| holders(**at) > 1).map(|at| ip(*at)).collect()
        };
        for (node, reported) in steps {
            let before: Vec<_> = (0..6).map(|other| of_plain(&plain, other)).collect();
            let told = shared.set(&node.to_string(), reported.iter().map(|at| ip(*at)));
            plain.insert(node, reported);
            for other in 0..6 {
                let now = of_plain(&plain, other);
                prop_assert_eq!(shared.of(&other.to_string()).collect::<Vec<_>>(), now.clone());
                let is_changed = other != node && before[usize::from(other)] != now;
                prop_assert_eq!(told.contains(other.to_string().as_str()), is_changed);
            }
        }
    }
}
