//! Which addresses of Nodes are members of pools, and for how long the creation of load balancers waits for them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::members::{self, Member};
use crate::cloud::{UsableAddresses, WritePermit, node};
use crate::providers::vsphere::UsableAddressesOf;
use crate::providers::vsphere::addresses::IpFamily;

/// How long creations wait for the machines of Nodes that are being looked up.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The least time between the beginnings of two such waits. After the first wait nothing waits until then, so that a Node that
/// changes all the time does not hold up Services.
const BETWEEN_WAITS: Duration = Duration::from_secs(300);
/// For how many Nodes it is remembered what vCenter reported, for each Node behind the load balancers.
const MOST_FOR_EACH: usize = 4;
/// How many addresses of a Node are remembered.
const MOST_ADDRESSES: usize = 64;

/// The addresses of Nodes that count.
pub struct NodeAddresses {
    usable: UsableAddressesOf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of the term.
    permit: Option<WritePermit>,
    /// What vCenter reported last for the machines of Nodes, also of Nodes that are gone, by the name of the Node.
    reported: BTreeMap<Box<str>, BTreeSet<IpAddr>>,
    /// When the last wait began.
    wait_began: Option<Instant>,
}

impl NodeAddresses {
    /// Asks `usable` which addresses of a Node count.
    pub fn new(usable: UsableAddressesOf) -> Self {
        Self { usable, state: Mutex::default() }
    }

    /// Which addresses of this Node count.
    pub fn of(&self, node: &Node) -> UsableAddresses {
        (self.usable)(node)
    }

    /// Begins a call. In another term nothing of an earlier one counts: addresses may have gone to other machines.
    pub fn begin(&self, permit: &WritePermit) {
        let mut state = self.state.lock();
        if state.permit.as_ref().is_none_or(|known| known.check().is_err()) {
            *state = State { permit: Some(permit.clone()), ..State::default() };
        }
    }

    /// The members of pools of this family. An address that vCenter reported for other Nodes and never for this one does not stay
    /// for a Node whose machine is not known: its kubelet could keep the addresses of deleted Nodes in the pools.
    ///
    /// A Node for which it was reported keeps it, whoever claims it meanwhile. What only a kubelet says counts for nobody, so that
    /// no kubelet can have an address of another Node removed.
    pub fn members(&self, nodes: &[Arc<Node>], family: IpFamily) -> Vec<Member> {
        let reported = &mut self.state.lock().reported;
        if reported.len() > nodes.len() * MOST_FOR_EACH {
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
        if members.iter().all(|member| member.is_confirmed) {
            return members;
        }
        let all: BTreeSet<IpAddr> = reported.values().flatten().copied().collect();
        let has = |Member { node, address, .. }: &Member| {
            reported.get(node.as_str()).is_some_and(|addresses| addresses.contains(address))
        };
        members.retain(|member| member.is_confirmed || !all.contains(&member.address) || has(member));
        members
    }

    /// Whether a creation waits for a machine that is being looked up.
    pub fn may_wait(&self) -> bool {
        let wait_began = &mut self.state.lock().wait_began;
        let began = wait_began.filter(|began| began.elapsed() <= BETWEEN_WAITS).unwrap_or_else(Instant::now);
        *wait_began = Some(began);
        began.elapsed() < LONGEST_WAIT
    }
}

fn note(reported: &mut BTreeMap<Box<str>, BTreeSet<IpAddr>>, name: &str, known: &BTreeSet<IpAddr>) {
    let known = || known.iter().take(MOST_ADDRESSES);
    if !reported.get(name).is_some_and(|before| before.iter().eq(known())) {
        reported.insert(name.into(), known().copied().collect());
    }
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

    /// The addresses of all Nodes, of which this is known; of others nothing is.
    fn with(known: &[(&str, UsableAddresses)]) -> (NodeAddresses, Arc<Mutex<BTreeMap<String, UsableAddresses>>>) {
        let known: BTreeMap<_, _> = known.iter().map(|(name, usable)| ((*name).to_owned(), usable.clone())).collect();
        let known = Arc::new(Mutex::new(known));
        let usable = {
            let known = Arc::clone(&known);
            move |one: &Node| known.lock().get(node::name(one)).cloned().unwrap_or(UsableAddresses::Unknown)
        };
        (NodeAddresses::new(Arc::new(usable)), known)
    }

    fn only(address: &str) -> UsableAddresses {
        UsableAddresses::Only([address.parse().unwrap()].into())
    }

    fn members(addresses: &NodeAddresses, nodes: &[Arc<Node>]) -> Vec<String> {
        let members = addresses.members(nodes, IpFamily::V4);
        members.iter().map(|member| format!("{} {}", member.node, member.address)).collect()
    }

    #[test]
    fn an_address_of_another_node_does_not_stay_for_one_whose_machine_is_not_known() {
        let (addresses, _) = with(&[("a", only("10.0.0.1")), ("b", only("10.0.0.1"))]);
        let members = |nodes: &[Arc<Node>]| members(&addresses, nodes);
        let unknown = node("unknown", &["10.0.0.9", "10.0.0.1"]);
        assert_eq!(members(&[Arc::clone(&unknown)]), ["unknown 10.0.0.1", "unknown 10.0.0.9"]);
        assert_eq!(members(&[node("a", &["10.0.0.1"]), Arc::clone(&unknown)]), ["a 10.0.0.1", "unknown 10.0.0.9"]);
        assert_eq!(members(&[Arc::clone(&unknown)]), ["unknown 10.0.0.9"], "a is gone");
        assert_eq!(members(&[node("b", &["10.0.0.1"]), unknown]), ["b 10.0.0.1", "unknown 10.0.0.9"]);
    }

    #[test]
    fn another_kubelet_or_guest_that_claims_an_address_for_a_moment_removes_it_from_no_pool() {
        let victim = || node("victim", &["10.0.0.1"]);
        // What no vCenter reports is the claim of a kubelet.
        let (addresses, _) = with(&[("foreign", UsableAddresses::All)]);
        members(&addresses, &[node("foreign", &["10.0.0.1"]), victim()]);
        assert_eq!(members(&addresses, &[node("foreign", &[]), victim()]), ["victim 10.0.0.1"]);

        // The machine of the victim had it, before the other one or after it, and at the same time.
        for other in ["another", "zealous"] {
            for is_before in [false, true] {
                let (addresses, known) = with(&[(other, only("10.0.0.1")), ("victim", only("10.0.0.1"))]);
                if is_before {
                    members(&addresses, &[node(other, &["10.0.0.1"])]);
                }
                members(&addresses, &[node(other, &["10.0.0.1"]), victim()]);
                for name in ["victim", other] {
                    known.lock().remove(name);
                    members(&addresses, &[node(other, &["10.0.0.1"]), victim()]);
                }
                assert_eq!(members(&addresses, &[node(other, &[]), victim()]), ["victim 10.0.0.1"], "{other}");
                assert_eq!(members(&addresses, &[victim()]), ["victim 10.0.0.1"], "{other}");
                // It has another one by now, and the other Node is gone.
                known.lock().insert("victim".to_owned(), only("10.0.0.2"));
                members(&addresses, &[victim()]);
                known.lock().remove("victim");
                assert_eq!(members(&addresses, &[victim()]), Vec::<String>::new(), "{other}");
            }
        }
    }

    #[test]
    fn a_claim_that_is_taken_back_leaves_nothing() {
        let (addresses, known) = with(&[("other", only("10.0.0.1"))]);
        let both = || [node("other", &["10.0.0.1"]), node("victim", &["10.0.0.1"])];
        assert_eq!(members(&addresses, &both()), ["other 10.0.0.1"]);
        known.lock().insert("other".to_owned(), only("10.0.0.7"));
        assert_eq!(members(&addresses, &both()), ["victim 10.0.0.1"]);
    }

    #[test]
    fn what_was_known_in_an_earlier_term_does_not_count() {
        let permit = |over: &CancellationToken| {
            let (over, ended) = (over.clone(), over.clone());
            WritePermit::new(move || !over.is_cancelled(), move || ended.clone().cancelled_owned().boxed())
        };
        let (addresses, _) = with(&[("old", only("10.0.0.1"))]);
        let over = CancellationToken::new();
        addresses.begin(&permit(&over));
        members(&addresses, &[node("old", &["10.0.0.1"])]);
        addresses.begin(&permit(&over));
        assert_eq!(members(&addresses, &[node("new", &["10.0.0.1"])]), Vec::<String>::new(), "in the same term");
        over.cancel();
        addresses.begin(&permit(&CancellationToken::new()));
        assert_eq!(members(&addresses, &[node("new", &["10.0.0.1"])]), ["new 10.0.0.1"]);
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let many = |_: &Node| UsableAddresses::Only((0..200).map(|last| IpAddr::from([10, 0, 0, last])).collect());
        let addresses = NodeAddresses::new(Arc::new(many));
        for number in 0..200 {
            addresses.members(&[node(&format!("n{number}"), &["10.0.0.1"])], IpFamily::V4);
        }
        let reported = &addresses.state.lock().reported;
        assert!(reported.len() <= MOST_FOR_EACH + 1);
        assert!(reported.values().all(|known| known.len() == MOST_ADDRESSES));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_looked_up_without_end_holds_up_nothing_for_long() {
        let addresses = NodeAddresses::new(Arc::new(|_| UsableAddresses::Pending));
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
