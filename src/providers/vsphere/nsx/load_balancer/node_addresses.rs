//! Selects the Node addresses that become pool members, and limits the wait of creations for VM lookups.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::members::{self, Member};
use crate::cloud::{LeaderToken, UsableAddresses, node};
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::nsx::UsableAddressesOf;

/// Maximum wait of creations for VM lookups of Nodes.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Minimum interval between the starts of two waits, so that a Node that changes constantly does not block Services.
const BETWEEN_WAITS: Duration = Duration::from_secs(300);
/// Maximum number of cached Nodes, as a multiple of the number of current Nodes.
const MAX_PER_NODE: usize = 4;
/// Maximum number of cached addresses per Node and family.
const MAX_ADDRESSES: usize = 64;

/// Function that returns true if the cluster has a Node with this name.
pub type HasNode = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// The usable addresses of Nodes.
pub struct NodeAddresses {
    usable: UsableAddressesOf,
    has_node: HasNode,
    state: Mutex<AddressState>,
}

#[derive(Default)]
struct AddressState {
    permit: Option<LeaderToken>,
    /// The addresses that vCenter last reported for the VM of each Node, by Node name. Includes deleted Nodes.
    reported: BTreeMap<Box<str>, BTreeSet<IpAddr>>,
    wait_began: Option<Instant>,
}

impl NodeAddresses {
    /// Starts without cached addresses. `usable` returns the usable addresses of a Node.
    pub fn new(usable: UsableAddressesOf, has_node: HasNode) -> Self {
        Self { usable, has_node, state: Mutex::default() }
    }

    /// Returns the usable addresses of this Node.
    pub fn of(&self, node: &Node) -> UsableAddresses {
        (self.usable)(node)
    }

    /// Starts a call. A new term clears the state, because addresses may have moved to other VMs.
    pub fn begin(&self, permit: &LeaderToken) {
        let mut state = self.state.lock();
        if state.permit.as_ref().is_none_or(|known| known.check().is_err()) {
            *state = AddressState { permit: Some(permit.clone()), ..AddressState::default() };
        }
    }

    /// Returns the pool members of this family. If the VM of a Node is unknown, drops addresses that vCenter has
    /// reported for a deleted Node but not for this Node. Otherwise, a kubelet could keep the address of a deleted Node
    /// in pools.
    ///
    /// Addresses that vCenter has reported only for existing Nodes stay, so no kubelet or guest can remove the address
    /// of another Node from pools by a temporary claim.
    pub fn members(&self, nodes: &[Arc<Node>], family: IpFamily) -> Vec<Member> {
        self.members_beside(&mut self.state.lock().reported, nodes, family)
    }

    /// Returns the same members as [`Self::members`], and leaves the cached addresses as they are.
    pub fn preview(&self, nodes: &[Arc<Node>], family: IpFamily) -> Vec<Member> {
        let mut reported = self.state.lock().reported.clone();
        self.members_beside(&mut reported, nodes, family)
    }

    fn members_beside(
        &self,
        reported: &mut BTreeMap<Box<str>, BTreeSet<IpAddr>>,
        nodes: &[Arc<Node>],
        family: IpFamily,
    ) -> Vec<Member> {
        if reported.len() > nodes.len() * MAX_PER_NODE {
            let present: BTreeSet<&str> = nodes.iter().map(|one| node::name(one)).collect();
            reported.retain(|name, _| present.contains(&**name));
        }
        let mut members = members::of_nodes(nodes, family, |one| {
            let usable = self.of(one);
            if let UsableAddresses::Only(known) = &usable {
                note(reported, node::name(one), known);
            }
            usable
        });
        let was_reported = |Member { node, address, .. }: &Member| {
            reported.get(node.as_str()).is_some_and(|addresses| addresses.contains(address))
        };
        let is_claim = |member: &Member| !member.is_confirmed && !was_reported(member);
        let claims: BTreeSet<IpAddr> = members.iter().filter(|one| is_claim(one)).map(|one| one.address).collect();
        if claims.is_empty() {
            return members;
        }
        let claimed = |addresses: &BTreeSet<IpAddr>| addresses.iter().any(|address| claims.contains(address));
        let gone = reported.iter().filter(|(name, addresses)| claimed(addresses) && !(self.has_node)(name));
        let of_gone: BTreeSet<IpAddr> = gone.flat_map(|(_, addresses)| addresses).copied().collect();
        members.retain(|member| !(is_claim(member) && of_gone.contains(&member.address)));
        members
    }

    /// Whether a creation may wait for a VM lookup: for `LONGEST_WAIT` in each period of `BETWEEN_WAITS`.
    pub fn may_wait(&self) -> bool {
        let wait_began = &mut self.state.lock().wait_began;
        let began = wait_began.filter(|began| began.elapsed() <= BETWEEN_WAITS).unwrap_or_else(Instant::now);
        *wait_began = Some(began);
        began.elapsed() < LONGEST_WAIT
    }
}

/// Records the reported addresses. Keeps the addresses of a missing family: a booting guest may report one family only.
fn note(reported: &mut BTreeMap<Box<str>, BTreeSet<IpAddr>>, name: &str, known: &BTreeSet<IpAddr>) {
    let before = reported.get(name);
    if before == Some(known) {
        return;
    }
    let now = [IpFamily::V4, IpFamily::V6].into_iter().flat_map(|family| {
        let of_family = |addresses: &BTreeSet<IpAddr>| -> Vec<IpAddr> {
            let all = addresses.iter().copied().filter(|address| IpFamily::of(*address) == family);
            all.take(MAX_ADDRESSES).collect()
        };
        match of_family(known) {
            none if none.is_empty() => before.map(of_family).unwrap_or_default(),
            some => some,
        }
    });
    let now = now.collect();
    reported.insert(name.into(), now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use serde_json::json;
    use tokio::time::advance;
    use tokio_util::sync::CancellationToken;

    fn node(name: &str, addresses: &[&str]) -> Arc<Node> {
        let addresses: Vec<_> = addresses.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name}, "status": {"addresses": addresses}})).unwrap(),
        )
    }

    /// Known addresses of Nodes, and deleted Nodes.
    #[derive(Default)]
    struct KnownAddresses {
        usable: BTreeMap<String, UsableAddresses>,
        removed_nodes: BTreeSet<String>,
    }

    /// Returns node addresses with these usable addresses. All other Nodes are unknown.
    fn with(known: &[(&str, UsableAddresses)]) -> (NodeAddresses, Arc<Mutex<KnownAddresses>>) {
        let usable = known.iter().map(|(name, usable)| ((*name).to_owned(), usable.clone())).collect();
        let known = Arc::new(Mutex::new(KnownAddresses { usable, ..KnownAddresses::default() }));
        let usable = {
            let known = Arc::clone(&known);
            move |one: &Node| known.lock().usable.get(node::name(one)).cloned().unwrap_or(UsableAddresses::Unknown)
        };
        let has_node = {
            let known = Arc::clone(&known);
            move |name: &str| !known.lock().removed_nodes.contains(name)
        };
        (NodeAddresses::new(Arc::new(usable), Box::new(has_node)), known)
    }

    /// Marks this Node as deleted.
    fn remove(known: &Mutex<KnownAddresses>, name: &str) {
        known.lock().removed_nodes.insert(name.to_owned());
    }

    fn only(address: &str) -> UsableAddresses {
        UsableAddresses::Only([address.parse().unwrap()].into())
    }

    /// Returns the IPv4 members.
    fn members(addresses: &NodeAddresses, nodes: &[Arc<Node>]) -> Vec<String> {
        let members = addresses.members(nodes, IpFamily::V4);
        members.iter().map(|member| format!("{} {}", member.node, member.address)).collect()
    }

    #[test]
    fn an_address_of_a_node_that_is_gone_does_not_stay_for_one_whose_machine_is_not_known() {
        let (addresses, known) = with(&[("a", only("10.0.0.1")), ("b", only("10.0.0.1"))]);
        let members = |nodes: &[Arc<Node>]| members(&addresses, nodes);
        let unknown = node("unknown", &["10.0.0.9", "10.0.0.1"]);
        assert_eq!(members(&[Arc::clone(&unknown)]), ["unknown 10.0.0.1", "unknown 10.0.0.9"]);
        members(&[node("a", &["10.0.0.1"]), Arc::clone(&unknown)]);
        addresses.preview(&[node("b", &["10.0.0.1"])], IpFamily::V4);
        remove(&known, "a");
        assert_eq!(addresses.preview(&[Arc::clone(&unknown)], IpFamily::V4).len(), 1);
        assert_eq!(members(&[Arc::clone(&unknown)]), ["unknown 10.0.0.9"], "a preview keeps no address");
        assert_eq!(members(&[node("b", &["10.0.0.1"]), unknown]), ["b 10.0.0.1", "unknown 10.0.0.9"]);
    }

    #[test]
    fn a_node_that_is_there_takes_no_address_from_one_whose_machine_is_not_known() {
        let victim = || node("victim", &["10.0.0.1"]);
        // No vCenter reports the address. Only a kubelet claims it.
        let (addresses, known) = with(&[("foreign", UsableAddresses::All)]);
        members(&addresses, &[node("foreign", &["10.0.0.1"]), victim()]);
        remove(&known, "foreign");
        assert_eq!(members(&addresses, &[victim()]), ["victim 10.0.0.1"]);

        // Another guest claims the address before vCenter reports it for the victim. Then the guest stops claiming it,
        // or its Node is excluded.
        let (addresses, known) = with(&[("other", only("10.0.0.1"))]);
        assert_eq!(
            members(&addresses, &[node("other", &["10.0.0.1"]), victim()]),
            ["other 10.0.0.1", "victim 10.0.0.1"]
        );
        known.lock().usable.clear();
        assert_eq!(members(&addresses, &[node("other", &[]), victim()]), ["victim 10.0.0.1"]);
        assert_eq!(members(&addresses, &[victim()]), ["victim 10.0.0.1"]);
    }

    #[test]
    fn an_address_that_was_reported_for_a_node_stays_with_it() {
        let victim = || node("victim", &["10.0.0.1"]);
        // The VM of the victim had the address before the other VM, after it, or at the same time.
        for other in ["another", "zealous"] {
            for is_before in [false, true] {
                let (addresses, known) = with(&[(other, only("10.0.0.1")), ("victim", only("10.0.0.1"))]);
                if is_before {
                    members(&addresses, &[node(other, &["10.0.0.1"])]);
                }
                members(&addresses, &[node(other, &["10.0.0.1"]), victim()]);
                for name in ["victim", other] {
                    known.lock().usable.remove(name);
                    members(&addresses, &[node(other, &["10.0.0.1"]), victim()]);
                }
                remove(&known, other);
                assert_eq!(members(&addresses, &[victim()]), ["victim 10.0.0.1"], "{other}");
                // The VM has another address now.
                known.lock().usable.insert("victim".to_owned(), only("10.0.0.2"));
                members(&addresses, &[victim()]);
                known.lock().usable.remove("victim");
                assert_eq!(members(&addresses, &[victim()]), Vec::<String>::new(), "{other}");
            }
        }
    }

    #[test]
    fn a_family_that_is_not_reported_keeps_what_was() {
        let (addresses, known) = with(&[("gone", only("10.0.0.1"))]);
        members(&addresses, &[node("gone", &["10.0.0.1"])]);
        remove(&known, "gone");
        let heir = || node("heir", &["10.0.0.1", "fd00::1"]);
        for reported in ["10.0.0.1", "fd00::1"] {
            known.lock().usable.insert("heir".to_owned(), only(reported));
            assert_eq!(members(&addresses, &[heir()]), ["heir 10.0.0.1"], "{reported}");
        }
        known.lock().usable.remove("heir");
        assert_eq!(members(&addresses, &[heir()]), ["heir 10.0.0.1"], "nothing is reported");
        // The VM of the Node has another address now.
        known.lock().usable.insert("heir".to_owned(), only("10.0.0.2"));
        members(&addresses, &[heir()]);
        known.lock().usable.insert("heir".to_owned(), only("fd00::1"));
        assert_eq!(members(&addresses, &[heir()]), Vec::<String>::new());
    }

    #[test]
    fn a_claim_that_is_taken_back_leaves_nothing() {
        let (addresses, known) = with(&[("other", only("10.0.0.1"))]);
        let victim = || node("victim", &["10.0.0.1"]);
        members(&addresses, &[node("other", &["10.0.0.1"]), victim()]);
        known.lock().usable.insert("other".to_owned(), only("10.0.0.7"));
        members(&addresses, &[node("other", &["10.0.0.7"]), victim()]);
        remove(&known, "other");
        assert_eq!(members(&addresses, &[victim()]), ["victim 10.0.0.1"]);
    }

    #[test]
    fn what_was_known_in_an_earlier_term_does_not_count() {
        let permit = |over: &CancellationToken| {
            let (over, ended) = (over.clone(), over.clone());
            LeaderToken::new(move || !over.is_cancelled(), move || ended.clone().cancelled_owned().boxed())
        };
        let (addresses, known) = with(&[("old", only("10.0.0.1"))]);
        let over = CancellationToken::new();
        addresses.begin(&permit(&over));
        members(&addresses, &[node("old", &["10.0.0.1"])]);
        remove(&known, "old");
        addresses.begin(&permit(&over));
        assert_eq!(members(&addresses, &[node("new", &["10.0.0.1"])]), Vec::<String>::new(), "in the same term");
        over.cancel();
        addresses.begin(&permit(&CancellationToken::new()));
        assert_eq!(members(&addresses, &[node("new", &["10.0.0.1"])]), ["new 10.0.0.1"]);
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let many = |_: &Node| {
            let v6 = (0..200).map(|last| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]));
            UsableAddresses::Only((0..200).map(|last| IpAddr::from([10, 0, 0, last])).chain(v6).collect())
        };
        let addresses = NodeAddresses::new(Arc::new(many), Box::new(|_| false));
        for number in 0..200 {
            addresses.members(&[node(&format!("n{number}"), &["10.0.0.1"])], IpFamily::V4);
        }
        let reported = &addresses.state.lock().reported;
        assert!(reported.len() <= MAX_PER_NODE + 1);
        assert!(reported.values().all(|known| known.len() == 2 * MAX_ADDRESSES));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_looked_up_without_end_holds_up_nothing_for_long() {
        let addresses = NodeAddresses::new(Arc::new(|_| UsableAddresses::Pending), Box::new(|_| true));
        assert!(addresses.may_wait());
        advance(LONGEST_WAIT).await;
        for _ in 0..9 {
            assert!(!addresses.may_wait());
            advance(BETWEEN_WAITS / 10).await;
        }
        advance(BETWEEN_WAITS / 10).await;
        assert!(addresses.may_wait());
    }
}
