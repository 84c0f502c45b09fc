//! A period without faults, with work that even slow replicas complete.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::eventually;

use super::action::Action;
use super::world::World;
use super::{NODES, RECOVERY, SERVICES};
use crate::invariants::nsx::load_balancers::{Kind, pools};
use crate::services::{PORTS, ServiceChange};

/// The Node that leaves the load balancer and comes back.
const NODE: usize = NODES.start;
/// Maximum number of times that [`NODE`] leaves in a [`MINUTE`]. After more than five changes in a minute, the changes of
/// a Node apply after a pause of up to five minutes, longer than [`RECOVERY`].
const DEPARTURES: usize = 2;
const MINUTE: Duration = Duration::from_secs(60);
/// Source ranges and session affinity, which need a group and a persistence profile.
const POLICIES: usize = 0b11;

/// The load balancer of one Service in NSX.
#[derive(Debug)]
struct Balancer {
    servers: usize,
    allocations: usize,
    /// Members of each pool.
    pools: Vec<BTreeSet<String>>,
}

impl Balancer {
    fn of(objects: &[Value]) -> Self {
        let kind = |object: &Value| object["path"].as_str().and_then(Kind::of);
        let all = |wanted: Kind| objects.iter().filter(move |object| kind(object) == Some(wanted));
        Self {
            servers: all(Kind::Server).count(),
            allocations: all(Kind::Allocation).count(),
            pools: all(Kind::Pool).map(pools::members).collect(),
        }
    }

    /// Whether every port has its virtual server, and every pool has this member (or lacks it).
    fn has_member(&self, address: &str, is_member: bool) -> bool {
        let is_so = |pool: &BTreeSet<String>| !pool.is_empty() && pool.contains(address) == is_member;
        self.servers == PORTS.len() && self.pools.len() == PORTS.len() && self.pools.iter().all(is_so)
    }

    fn is_gone(&self) -> bool {
        self.servers + self.allocations + self.pools.len() == 0
    }
}

impl World {
    /// Ends the faults of NSX. Then a Service without other changes gets a load balancer, a Node leaves the load
    /// balancer and comes back, and the Service is deleted. The Node leaves at most [`DEPARTURES`] times in a minute. A
    /// frozen replica stays frozen, so the other one leads.
    pub async fn complete_one(&mut self) {
        self.end_faults().await;
        let number = SERVICES + self.completed;
        self.completed += 1;
        self.act(Action::Register(NODE)).await;
        self.act(Action::Exclude(NODE, false)).await;
        self.act(Action::Create(number, (1 << PORTS.len()) - 1, POLICIES)).await;
        self.until("it has its load balancer", number, |balancer, node| balancer.has_member(node, true)).await;
        self.departures.retain(|at| at.elapsed() < MINUTE);
        if self.departures.len() < DEPARTURES {
            self.departures.push(Instant::now());
            self.act(Action::Exclude(NODE, true)).await;
            self.until("a Node has left it", number, |balancer, node| balancer.has_member(node, false)).await;
            self.act(Action::Exclude(NODE, false)).await;
            self.until("the Node has come back", number, |balancer, node| balancer.has_member(node, true)).await;
        }
        self.act(Action::Change(number, ServiceChange::Delete)).await;
        self.until("nothing of it is left", number, |balancer, _| balancer.is_gone()).await;
    }

    /// Waits until the load balancer of a Service and the address of the Node meet `is_done`.
    async fn until(&mut self, what: &str, number: usize, is_done: impl Fn(&Balancer, &str) -> bool) {
        eventually(&format!("Service {number}: {what}"), RECOVERY, async || {
            self.check().await;
            let (balancer, node) = (Balancer::of(&self.objects_of(number)), self.internal_ip(NODE).await);
            match node.as_deref().is_some_and(|node| is_done(&balancer, node)) {
                true => Ok(()),
                false => Err(format!("Node {node:?}, {balancer:?}")),
            }
        })
        .await;
    }
}
