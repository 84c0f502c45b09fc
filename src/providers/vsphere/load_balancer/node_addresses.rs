//! Which addresses of Nodes are members of pools, and for how long the creation of load balancers waits for them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::members::{self, Member};
use crate::cloud::UsableAddresses;
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

    /// The members of pools of this family. An address that the machine of another Node had does not stay for a Node whose machine
    /// is not known: its kubelet could keep deleted Nodes in the pools.
    pub fn members(&self, nodes: &[Arc<Node>], family: IpFamily) -> Vec<Member> {
        let mut members = members::of_nodes(nodes, family, |node| self.of(node));
        let owners = &mut self.state.lock().owners;
        if owners.len() > nodes.len() * MOST_FOR_EACH {
            owners.retain(|address, _| members.iter().any(|member| member.address == *address));
        }
        for member in members.iter().filter(|member| member.is_confirmed) {
            owners.insert(member.address, member.node.as_str().into());
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
    use serde_json::json;
    use tokio::time::advance;

    fn node(name: &str, addresses: &[&str]) -> Arc<Node> {
        let addresses: Vec<_> = addresses.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name}, "status": {"addresses": addresses}})).unwrap(),
        )
    }

    #[test]
    fn an_address_of_another_node_does_not_stay_for_one_whose_machine_is_not_known() {
        let usable = |node: &Node| match node.metadata.name.as_deref() {
            Some("unknown") => UsableAddresses::Unknown,
            _ => UsableAddresses::All,
        };
        let addresses = NodeAddresses::new(Arc::new(usable));
        let members = |nodes: &[Arc<Node>]| -> Vec<String> {
            let members = addresses.members(nodes, IpFamily::V4);
            members.iter().map(|member| format!("{} {}", member.node, member.address)).collect()
        };
        let unknown = node("unknown", &["10.0.0.9", "10.0.0.1"]);
        assert_eq!(members(&[Arc::clone(&unknown)]), ["unknown 10.0.0.1", "unknown 10.0.0.9"]);
        assert_eq!(members(&[node("a", &["10.0.0.1"]), Arc::clone(&unknown)]), ["a 10.0.0.1", "unknown 10.0.0.9"]);
        assert_eq!(members(&[Arc::clone(&unknown)]), ["unknown 10.0.0.9"], "a is gone");
        assert_eq!(members(&[node("b", &["10.0.0.1"]), unknown]), ["b 10.0.0.1", "unknown 10.0.0.9"]);
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let addresses = NodeAddresses::new(Arc::new(|_| UsableAddresses::All));
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
