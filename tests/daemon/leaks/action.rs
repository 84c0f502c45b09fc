//! The actions on Services, Nodes, NSX and the replicas, in their order. They depend on the seed only.

use fastrand::Rng;

use crate::services::{POLICIES, PORTS, Policies, Ports, ServiceChange};

/// One action. The first number is a Service, a Node or a replica. An action that does not apply has no effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Creates a Service of type LoadBalancer with these ports and policies. Every second Service is of the second
    /// class.
    Create(usize, Ports, Policies),
    /// Changes a Service.
    Change(usize, ServiceChange),

    /// Registers a Node.
    Register(usize),
    /// Deletes a Node.
    DeleteNode(usize),
    /// Excludes a Node from load balancers, or includes it again.
    Exclude(usize, bool),
    /// Gives the VM of a Node another address.
    Address(usize, u8),

    /// An administrator changes the object of this cluster with this number in NSX.
    ByHand(ByHand, usize),
    /// Other programs take all free addresses, or release them.
    Exhaust(bool),

    /// The next calls of this operation fail in this way. The last number is the number of calls.
    Break(&'static str, Fault, u32),
    /// Ends every session.
    EndSessions,
    /// Closes every connection, including those with calls that hang.
    Sever,
    /// Changes the password of a replica's account and of its configuration, and ends its sessions.
    Password(usize),
    /// Denies the account of a replica the permission to write these objects.
    Deny(usize, &'static str),
    /// Permits all accounts to write all objects.
    Allow,
    /// NSX assigns addresses after this many milliseconds.
    LateAddresses(u64),
    /// Delays every call by this many milliseconds.
    Delay(u64),
    /// NSX stops listening, or listens again.
    Down(bool),

    /// Kills a replica and starts it again.
    Kill(usize),
    /// Stops a replica with SIGTERM and starts it again.
    Restart(usize),
    /// Freezes a replica. If the other replica is frozen, it continues.
    Freeze(usize),
    /// Both replicas continue.
    Thaw,
}

/// A manual change by an administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByHand {
    /// Removes a member of a pool.
    RemoveMember,
    /// Removes all members of a pool.
    RemoveMembers,
    /// Deletes a virtual server.
    DeleteServer,
    /// Deletes a pool, though a virtual server refers to it.
    DeletePool,
    /// Deletes a monitor, though a pool refers to it.
    DeleteMonitor,
    /// Deletes a group, though a virtual server refers to it.
    DeleteGroup,
    /// Deletes a persistence profile, though a virtual server refers to it.
    DeleteProfile,
    /// Sets `enabled` of a virtual server to false.
    Disable,
    /// Changes the node port of a virtual server.
    RenumberServer,
    /// Changes the node port of a monitor.
    RenumberMonitor,
    /// Changes the networks of a group.
    EditGroup,
    /// Changes the timeout of a persistence profile.
    EditProfile,
}

/// Ways in which a call to NSX fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 429.
    Throttled,
    /// 503.
    Overloaded,
    /// 503 with the page of a proxy.
    Unavailable,
    /// 200 with the page of a login portal.
    Portal,
    /// No answer until the connection is closed.
    Hang,
    /// 500: the transaction was aborted.
    Aborted,
    /// Rejected for an old revision.
    Conflict,
    /// The call is executed, and the connection is closed without an answer.
    Lost,
    /// The connection is closed, and the call is not executed.
    Dropped,
    /// The call is executed, and the answer is truncated.
    Cut,
    /// The call is executed, and the answer is late.
    Late,
    /// The session has expired.
    Expired,
    /// A list lacks an object.
    Incomplete,
}

/// Load balancer classes of the configuration, and one that the configuration lacks.
pub const CLASSES: [&str; 3] = ["default", "web", "missing"];

/// Node ports that the ports of a Service may use.
const NODE_PORTS: std::ops::Range<u16> = 31_000..31_040;
const FAULTS: [Fault; 12] = [
    Fault::Throttled,
    Fault::Overloaded,
    Fault::Unavailable,
    Fault::Portal,
    Fault::Hang,
    Fault::Aborted,
    Fault::Conflict,
    Fault::Lost,
    Fault::Dropped,
    Fault::Cut,
    Fault::Late,
    Fault::Expired,
];
const CHANGES_BY_HAND: [ByHand; 12] = [
    ByHand::RemoveMember,
    ByHand::RemoveMembers,
    ByHand::DeleteServer,
    ByHand::DeletePool,
    ByHand::DeleteMonitor,
    ByHand::DeleteGroup,
    ByHand::DeleteProfile,
    ByHand::Disable,
    ByHand::RenumberServer,
    ByHand::RenumberMonitor,
    ByHand::EditGroup,
    ByHand::EditProfile,
];
/// Operations without a login. Failed logins are limited to a few in 15 minutes.
const OPERATIONS: [&str; 18] = [
    "PUT lb-virtual-servers",
    "PUT lb-pools",
    "PUT lb-monitor-profiles",
    "PUT lb-services",
    "PATCH ip-allocations",
    "PATCH infra",
    "PUT groups",
    "PUT lb-persistence-profiles",
    "DELETE groups",
    "DELETE lb-persistence-profiles",
    "DELETE lb-virtual-servers",
    "DELETE lb-pools",
    "DELETE lb-monitor-profiles",
    "DELETE ip-allocations",
    "DELETE lb-services",
    "GET lb-pools",
    "GET realized-entities",
    "LIST lb-virtual-servers",
];
const LISTS: [&str; 4] =
    ["LIST lb-virtual-servers", "LIST lb-pools", "LIST lb-monitor-profiles", "LIST ip-allocations"];

/// Kinds of objects that an account may lose the permission to write.
const DENIABLE: [&str; 5] = ["lb-virtual-servers", "lb-pools", "lb-monitor-profiles", "ip-allocations", "groups"];

/// Numbers of actions of a period with faults, by sort.
const FAULTS_IN_TROUBLE: usize = 20;
const BY_HAND_IN_TROUBLE: usize = 6;
const NODES_IN_TROUBLE: usize = 8;
const SERVICES_IN_TROUBLE: usize = 16;
/// Numbers of actions of a period without faults, with the same total.
const BY_HAND_IN_CALM: usize = 6;
const NODES_IN_CALM: usize = 14;
const SERVICES_IN_CALM: usize = 30;

/// The actions of a seed. Periods with faults and periods without alternate, each with the same number of actions.
/// Every kind of fault and of manual change occurs once before any kind occurs again.
pub struct Script {
    random: Rng,
    services: usize,
    /// Numbers of the Nodes that actions change.
    nodes: std::ops::Range<usize>,
    /// Remaining faults of the round.
    faults: Vec<Action>,
    /// Remaining manual changes of the round.
    by_hand: Vec<ByHand>,
}

impl Script {
    /// Creates a script for this number of Services and for these Nodes.
    pub fn new(seed: u64, services: usize, nodes: std::ops::Range<usize>) -> Self {
        Self { random: Rng::with_seed(seed), services, nodes, faults: Vec::new(), by_hand: Vec::new() }
    }

    /// Returns the actions of the next period with faults.
    pub fn trouble(&mut self) -> Vec<Action> {
        let faults: Vec<Action> = (0..FAULTS_IN_TROUBLE).map(|_| self.fault()).collect();
        self.shuffled(faults, [SERVICES_IN_TROUBLE, NODES_IN_TROUBLE, BY_HAND_IN_TROUBLE])
    }

    /// Returns the actions of the next period without faults.
    pub fn calm(&mut self) -> Vec<Action> {
        self.shuffled(Vec::new(), [SERVICES_IN_CALM, NODES_IN_CALM, BY_HAND_IN_CALM])
    }

    fn shuffled(&mut self, mut actions: Vec<Action>, [services, nodes, by_hand]: [usize; 3]) -> Vec<Action> {
        actions.extend((0..services).map(|_| self.service()));
        actions.extend((0..nodes).map(|_| self.node()));
        actions.extend((0..by_hand).map(|_| self.by_hand()));
        self.random.shuffle(&mut actions);
        actions
    }

    fn service(&mut self) -> Action {
        let random = &mut self.random;
        let (number, ports) = (random.usize(..self.services), random.usize(1..1 << PORTS.len()));
        let policies = random.usize(..1 << POLICIES);
        let change = match random.u32(..18) {
            // Half of the Services have no policies.
            0..5 => return Action::Create(number, ports, if random.bool() { policies } else { 0 }),
            5..8 => ServiceChange::Ports(ports),
            8..10 => ServiceChange::NodePort(random.u16(NODE_PORTS)),
            10..13 => ServiceChange::Policies(policies),
            13 => ServiceChange::Class(CLASSES[random.usize(..CLASSES.len())]),
            14 => ServiceChange::Type(false),
            15 => ServiceChange::Type(true),
            _ => ServiceChange::Delete,
        };
        Action::Change(number, change)
    }

    fn node(&mut self) -> Action {
        let random = &mut self.random;
        let number = random.usize(self.nodes.clone());
        match random.u32(..8) {
            0..3 => Action::Register(number),
            3 => Action::DeleteNode(number),
            4 => Action::Exclude(number, true),
            5 => Action::Exclude(number, false),
            _ => Action::Address(number, random.u8(1..5)),
        }
    }

    fn by_hand(&mut self) -> Action {
        let random = &mut self.random;
        if self.by_hand.is_empty() {
            self.by_hand = CHANGES_BY_HAND.to_vec();
            random.shuffle(&mut self.by_hand);
        }
        let what = self.by_hand.pop().expect("the round was drawn above");
        Action::ByHand(what, random.usize(..100))
    }

    fn fault(&mut self) -> Action {
        if self.faults.is_empty() {
            self.faults = round_of_faults(&mut self.random);
        }
        self.faults.pop().expect("the round was drawn above")
    }
}

/// Returns every kind of fault in a random order. Faults of single calls occur twice.
fn round_of_faults(random: &mut Rng) -> Vec<Action> {
    let (replica, other) = (random.usize(..2), random.usize(..2));
    let mut round = vec![
        Action::Break(LISTS[random.usize(..LISTS.len())], Fault::Incomplete, 1),
        Action::EndSessions,
        Action::LateAddresses([0, 300, 2000, 12_000][random.usize(..4)]),
        Action::Delay(random.u64(..30)),
        Action::Exhaust(true),
        Action::Exhaust(false),
        Action::Down(true),
        Action::Down(false),
        Action::Password(random.usize(..2)),
        Action::Deny(random.usize(..2), DENIABLE[random.usize(..DENIABLE.len())]),
        Action::Allow,
        Action::Sever,
        Action::Kill(replica),
        Action::Restart(other),
        Action::Freeze(random.usize(..2)),
        Action::Thaw,
    ];
    for fault in FAULTS.into_iter().chain(FAULTS) {
        round.push(Action::Break(OPERATIONS[random.usize(..OPERATIONS.len())], fault, random.u32(1..3)));
    }
    random.shuffle(&mut round);
    round
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the actions of this many periods with faults and periods without.
    fn actions(seed: u64, times: usize) -> Vec<Action> {
        let mut script = Script::new(seed, super::super::SERVICES, super::super::ACTION_NODES);
        (0..times).flat_map(|_| [script.trouble(), script.calm()].concat()).collect()
    }

    #[test]
    fn a_seed_gives_its_actions_again() {
        assert_eq!(actions(7, 9), actions(7, 9));
        assert_ne!(actions(7, 9), actions(8, 9));
    }

    #[test]
    fn half_of_the_actions_come_in_times_without_faults() {
        let mut script = Script::new(3, 8, 2..6);
        for _ in 0..20 {
            let (trouble, calm) = (script.trouble(), script.calm());
            assert!(calm.len() >= trouble.len());
            assert!(calm.iter().all(|action| is_work(action) || matches!(action, Action::ByHand(..))), "{calm:?}");
        }
    }

    /// Whether the action is neither a fault nor a manual change.
    fn is_work(action: &Action) -> bool {
        matches!(
            action,
            Action::Create(..)
                | Action::Change(..)
                | Action::Register(_)
                | Action::DeleteNode(_)
                | Action::Exclude(..)
                | Action::Address(..)
        )
    }

    fn kind(action: Action) -> String {
        let letters = |text: String| text.chars().take_while(char::is_ascii_alphabetic).collect::<String>();
        match action {
            Action::Break(_, fault, _) => format!("{fault:?}"),
            Action::ByHand(what, _) => format!("{what:?}"),
            Action::Change(_, change) => letters(format!("{change:?}")),
            other => letters(format!("{other:?}")),
        }
    }

    #[test]
    fn the_shortest_run_has_faults_of_all_kinds() {
        for seed in 0..50 {
            let drawn = actions(seed, super::super::LEAST_ROUNDS).into_iter().filter(|action| !is_work(action));
            let drawn: BTreeSet<String> = drawn.map(kind).collect();
            // Faults of single calls, manual changes, and the other 13 kinds.
            assert_eq!(drawn.len(), FAULTS.len() + 1 + CHANGES_BY_HAND.len() + 13, "seed {seed}: {drawn:?}");
        }
    }

    #[test]
    fn the_seed_of_every_day_has_actions_of_all_kinds() {
        let drawn = actions(super::super::SEED, super::super::LEAST_ROUNDS).into_iter().filter(is_work);
        let drawn: BTreeSet<String> = drawn.map(kind).collect();
        assert_eq!(drawn.len(), 11, "{drawn:?}");
    }
}
