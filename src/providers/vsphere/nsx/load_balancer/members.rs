//! Pure: computes the members of a pool. Remaining members keep their order and fields; new ones follow by Node name.
//!
//! Mirrors `updatedPoolMembers` of `pkg/cloudprovider/vsphere/loadbalancer/state.go`, which appends new members in
//! random order and uses the first internal address of any family.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::base::addresses::parse_ip;
use crate::clients::nsx::Object;
use crate::cloud::UsableAddresses;
use crate::cloud::node::{self, addresses};
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::nsx::names::{LONGEST_NAME, shortened};

/// An address of a Node, as a member of pools.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The name of the Node.
    pub node: String,
    /// The address of the Node.
    pub address: IpAddr,
    /// Whether the address is confirmed to belong to the Node. Pools keep unconfirmed addresses but never gain them.
    pub is_confirmed: bool,
}

/// Returns the internal addresses of this family, sorted by Node name: the first confirmed address of each Node or,
/// without a confirmed address, all addresses of the Node.
pub fn of_nodes<'n>(
    nodes: &'n [Arc<Node>],
    family: IpFamily,
    mut usable: impl FnMut(&'n Node) -> UsableAddresses,
) -> Vec<Member> {
    let mut members = Vec::new();
    for node in nodes {
        let usable = usable(node);
        let internal = usable.of(node).filter(|one| one.entry.type_ == addresses::INTERNAL_IP);
        let of_family = internal.filter(|one| IpFamily::of(one.ip) == family);
        let mut of_node: Vec<Member> = of_family
            .map(|one| Member { node: node::name(node).to_owned(), address: one.ip, is_confirmed: one.is_confirmed })
            .collect();
        if of_node.iter().any(|member| member.is_confirmed) {
            of_node.truncate(1);
        }
        members.append(&mut of_node);
    }
    members.sort();
    members
}

/// Returns the addresses of members in NSX. Skips invalid members.
pub fn addresses_of(members: &[Value]) -> BTreeSet<IpAddr> {
    members.iter().filter_map(address_of).collect()
}

/// Whether a pool with these addresses has every confirmed member of `wanted`, and only addresses in `wanted`.
pub fn are_equal(addresses: &BTreeSet<IpAddr>, wanted: &[Member]) -> bool {
    let all: BTreeSet<IpAddr> = wanted.iter().map(|member| member.address).collect();
    addresses.is_subset(&all) && confirmed(wanted).is_subset(addresses)
}

/// Returns the confirmed addresses. Unconfirmed addresses are never added to pools.
fn confirmed(wanted: &[Member]) -> BTreeSet<IpAddr> {
    wanted.iter().filter(|member| member.is_confirmed).map(|member| member.address).collect()
}

/// Returns the members that a pool with the members `existing` has after an update to `wanted`.
pub fn merged(existing: &[Value], wanted: &[Member], cluster: &str) -> Vec<Value> {
    let mut missing = confirmed(wanted);
    let wants: BTreeSet<IpAddr> = wanted.iter().map(|member| member.address).collect();
    let mut members = Vec::new();
    for member in existing {
        if let Some(address) = address_of(member).filter(|address| wants.contains(address)) {
            missing.remove(&address);
            members.push(member.clone());
        }
    }
    for member in wanted {
        if missing.remove(&member.address) {
            members.push(json!({
                "ip_address": member.address.to_string(),
                "display_name": shortened(format!("{cluster}:{}", member.node), LONGEST_NAME),
                "admin_state": "ENABLED",
            }));
        }
    }
    members
}

/// Sets the members of a pool. Returns true if the members changed.
pub fn set(pool: &mut Object, wanted: &[Member], cluster: &str) -> bool {
    let existing = pool.list("members");
    let is_changed = !are_equal(&addresses_of(existing), wanted);
    if is_changed {
        let members = merged(existing, wanted, cluster);
        pool.0.insert("members".to_owned(), Value::Array(members));
    }
    is_changed
}

/// Returns the number of staying members, which come first in [`merged`]. If NSX refuses an update, the caller may
/// write only these members. Returns `None` unless the update both removes and adds members, and if no member would
/// stay, because the pool must not become empty.
pub fn staying(pool: &Object, wanted: &[Member]) -> Option<usize> {
    let existing = addresses_of(pool.list("members"));
    let stays = |address: &&IpAddr| wanted.iter().any(|member| member.address == **address);
    let count = existing.iter().filter(stays).count();
    let gets_others = !confirmed(wanted).is_subset(&existing);
    (count > 0 && count < existing.len() && gets_others).then_some(count)
}

fn address_of(member: &Value) -> Option<IpAddr> {
    member.get("ip_address")?.as_str().and_then(parse_ip)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn member(node: &str, address: &str) -> Member {
        Member { node: node.to_owned(), address: address.parse().unwrap(), is_confirmed: true }
    }

    fn node(name: &str, internal: &[&str]) -> Arc<Node> {
        let addresses: Vec<_> = internal.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
        let value = json!({"metadata": {"name": name}, "status": {"addresses": addresses}});
        Arc::new(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn l_26_members_are_sorted_and_of_the_family_of_the_address() {
        let nodes =
            [node("n2", &["10.0.0.2", "10.0.0.3"]), node("n3", &["fd00::3"]), node("n1", &["fd00::1", "10.0.0.1"])];
        let of_nodes = |family| of_nodes(&nodes, family, |_| UsableAddresses::All);
        assert_eq!(of_nodes(IpFamily::V4), [member("n1", "10.0.0.1"), member("n2", "10.0.0.2")]);
        assert_eq!(of_nodes(IpFamily::V6), [member("n1", "fd00::1"), member("n3", "fd00::3")]);
    }

    #[test]
    fn of_a_node_whose_machine_is_not_known_a_pool_keeps_what_it_has_and_gets_nothing() {
        let nodes = [node("n1", &["10.0.0.1"]), node("n2", &["10.0.0.9", "10.0.0.2"]), node("n3", &["10.0.0.3"])];
        let usable = |node: &Node| match node::name(node) {
            "n2" => UsableAddresses::Only(["10.0.0.2".parse().unwrap()].into()),
            "n3" => UsableAddresses::Unknown,
            _ => UsableAddresses::All,
        };
        let wanted = of_nodes(&nodes, IpFamily::V4, usable);
        let unconfirmed = Member { is_confirmed: false, ..member("n3", "10.0.0.3") };
        assert_eq!(wanted, [member("n1", "10.0.0.1"), member("n2", "10.0.0.2"), unconfirmed]);
        for (existing, expected) in [
            (&["10.0.0.1", "10.0.0.2", "10.0.0.3"][..], &["10.0.0.1", "10.0.0.2", "10.0.0.3"][..]),
            (&["10.0.0.1", "10.0.0.2"], &["10.0.0.1", "10.0.0.2"]),
            (&["10.0.0.3", "10.0.0.9"], &["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
            (&[], &["10.0.0.1", "10.0.0.2"]),
        ] {
            let members: Vec<Value> = existing.iter().map(|address| json!({"ip_address": address})).collect();
            let merged = addresses_of(&merged(&members, &wanted, "c"));
            assert_eq!(merged, expected.iter().map(|ip| ip.parse().unwrap()).collect(), "{existing:?}");
            assert_eq!(are_equal(&addresses_of(&members), &wanted), merged == addresses_of(&members), "{existing:?}");
        }
    }

    #[test]
    fn members_that_stay_keep_their_places_and_fields_and_new_ones_follow() {
        let kept = json!({"ip_address": "10.0.0.1", "display_name": "other", "weight": 7, "admin_state": "DISABLED"});
        let existing = [json!({"ip_address": "10.0.0.2"}), kept.clone(), json!("x"), json!({"ip_address": 5})];
        let wanted = [member("n1", "10.0.0.1"), member("n3", "10.0.0.3"), member("n4", "10.0.0.3")];
        let new = json!({"ip_address": "10.0.0.3", "display_name": "c:n3", "admin_state": "ENABLED"});
        let merged = merged(&existing, &wanted, "c");
        assert_eq!(merged, [kept, new]);
        assert!(are_equal(&addresses_of(&merged), &wanted));
    }

    #[test]
    fn members_that_stay_are_counted_where_some_go_and_others_come() {
        let wanted = [member("n1", "10.0.0.1"), member("n3", "10.0.0.3")];
        for (existing, expected) in [
            (&["10.0.0.1", "10.0.0.2"][..], Some(1)),
            (&["10.0.0.2", "10.0.0.3", "10.0.0.4"], Some(1)),
            (&["10.0.0.1"], None),
            (&["10.0.0.1", "10.0.0.2", "10.0.0.3"], None),
            (&["10.0.0.2"], None),
            (&[], None),
        ] {
            let members: Vec<Value> = existing.iter().map(|address| json!({"ip_address": address})).collect();
            let mut pool = Object(serde_json::from_value(json!({"members": members})).unwrap());
            assert_eq!(staying(&pool, &wanted), expected, "{existing:?}");
            if let Some(count) = expected {
                set(&mut pool, &wanted, "c");
                let first: Vec<_> = pool.0["members"].as_array().unwrap()[..count].to_vec();
                assert!(addresses_of(&first).is_subset(&addresses_of(&members)), "{existing:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn merging_is_idempotent_and_leads_to_the_wanted_nodes(
            before in prop::collection::vec((0u8..9, any::<u8>()), 0..9), wanted in prop::collection::vec(0u8..9, 0..9),
        ) {
            let value = |(ip, weight): &(u8, u8)| json!({"ip_address": format!("10.0.0.{ip}"), "weight": weight});
            let before: Vec<Value> = before.iter().map(value).collect();
            let wanted: Vec<Member> =
                wanted.iter().map(|ip| member(&format!("n{ip}"), &format!("10.0.0.{ip}"))).collect();
            let once = merged(&before, &wanted, "c");
            prop_assert!(are_equal(&addresses_of(&once), &wanted));
            prop_assert_eq!(merged(&once, &wanted, "c"), once);
        }
    }
}
