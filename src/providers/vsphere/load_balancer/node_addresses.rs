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
/// How many addresses are remembered for each Node behind the load balancers.
const MOST_FOR_EACH: usize = 4;

/// The addresses of Nodes that count.
pub struct NodeAddresses {
    usable: UsableAddressesOf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of the term.
    permit: Option<WritePermit>,
    /// The Node whose machine had this address when that was known last.
    owners: BTreeMap<IpAddr, Box<str>>,
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

    /// The members of pools of this family. An address that the machine of another Node had does not stay for a Node whose machine
    /// is not known: its kubelet could keep deleted Nodes in the pools.
    ///
    /// Only what vCenter reports makes an address that of a Node, and the Node keeps it while nothing is known of its machine.
    /// Otherwise another kubelet or guest could claim the address for a moment, and so have it removed.
    pub fn members(&self, nodes: &[Arc<Node>], family: IpFamily) -> Vec<Member> {
        let mut reported = BTreeSet::new();
        let mut members = members::of_nodes(nodes, family, |node| {
            let usable = self.of(node);
            if matches!(usable, UsableAddresses::Only(_)) {
                reported.insert(node::name(node));
            }
            usable
        });
        let owners = &mut self.state.lock().owners;
        if owners.len() > nodes.len() * MOST_FOR_EACH {
            owners.retain(|address, _| members.iter().any(|member| member.address == *address));
        }
        let (confirmed, unconfirmed): (Vec<&Member>, Vec<&Member>) = members.iter().partition(|one| one.is_confirmed);
        let unconfirmed: BTreeSet<(&str, IpAddr)> = unconfirmed.iter().map(|one| (&*one.node, one.address)).collect();
        for Member { node, address, .. } in confirmed.into_iter().filter(|one| reported.contains(&*one.node)) {
            if owners.get(address).is_none_or(|owner| !unconfirmed.contains(&(&**owner, *address))) {
                owners.insert(*address, node.as_str().into());
            }
        }
        let is_of_another = |member: &Member| owners.get(&member.address).is_some_and(|owner| **owner != *member.node);
        members.retain(|member| member.is_confirmed || !is_of_another(member));
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

        // The machine of the victim had it.
        let (addresses, known) = with(&[("guest", only("10.0.0.1")), ("victim", only("10.0.0.1"))]);
        members(&addresses, &[victim()]);
        known.lock().remove("victim");
        members(&addresses, &[node("guest", &["10.0.0.1"]), victim()]);
        assert_eq!(members(&addresses, &[node("guest", &[]), victim()]), ["victim 10.0.0.1"]);
        // It has another one by now.
        known.lock().insert("victim".to_owned(), only("10.0.0.2"));
        members(&addresses, &[node("guest", &["10.0.0.1"]), victim()]);
        known.lock().remove("victim");
        assert_eq!(members(&addresses, &[victim()]), Vec::<String>::new());
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
        let usable = |one: &Node| {
            UsableAddresses::Only(node::addresses::of(one).iter().filter_map(|one| one.address.parse().ok()).collect())
        };
        let addresses = NodeAddresses::new(Arc::new(usable));
        for last in 0..200 {
            addresses.members(&[node("a", &[&format!("10.0.0.{last}")])], IpFamily::V4);
        }
        assert!(addresses.state.lock().owners.len() <= MOST_FOR_EACH + 1);
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
