//! What may happen to Services, Nodes, NSX and the replicas, and in which order: a function of the seed alone.

use fastrand::Rng;

use crate::services::{POLICIES, PORTS, Policies, Ports, ServiceChange};

/// One thing that happens. The first number is a Service, a Node or a replica. Where it does not apply, nothing happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A Service of type LoadBalancer is created with these ports and policies; every other one is of the second class.
    Create(usize, Ports, Policies),
    /// Something happens to a Service.
    Change(usize, ServiceChange),

    /// A Node is registered.
    Register(usize),
    /// A Node is deleted.
    DeleteNode(usize),
    /// A Node is kept out of load balancers, or not.
    Exclude(usize, bool),
    /// The VM of a Node has another address.
    Address(usize, u8),

    /// An administrator changes an object of this cluster in NSX, the one with this number.
    ByHand(ByHand, usize),
    /// Other programs take all addresses that are left, or give them back.
    Exhaust(bool),

    /// The next calls of this operation, so many, go wrong in this way.
    Break(&'static str, Fault, u32),
    /// Every session ends.
    EndSessions,
    /// Every connection is closed, also those of calls that hang.
    Sever,
    /// The account of a replica has another password, its sessions end, and its configuration follows.
    Password(usize),
    /// The account of a replica may not write these objects.
    Deny(usize, &'static str),
    /// All accounts may write everything.
    Allow,
    /// Addresses take so many milliseconds.
    LateAddresses(u64),
    /// Every call is served so many milliseconds later.
    Delay(u64),
    /// NSX does not listen, or does again.
    Down(bool),

    /// A replica is killed and started again.
    Kill(usize),
    /// A replica is stopped in order and started again.
    Restart(usize),
    /// A replica is frozen, and the other one continues if it was.
    Freeze(usize),
    /// Both continue.
    Thaw,
}

/// What an administrator does by hand.
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
    /// Lets a virtual server send to another port of the nodes.
    RenumberServer,
    /// Lets a monitor ask another port of the nodes.
    RenumberMonitor,
    /// Gives a group other networks.
    EditGroup,
    /// Gives a persistence profile another time.
    EditProfile,
}

/// How a call to NSX goes wrong.
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
    /// There is no answer before the connection is closed.
    Hang,
    /// 500: the transaction was aborted.
    Aborted,
    /// The revision is old.
    Conflict,
    /// The call takes effect, and the connection is closed without an answer.
    Lost,
    /// The connection is closed, and the call does nothing.
    Dropped,
    /// The call takes effect, and the answer is cut off.
    Cut,
    /// The call takes effect, and the answer is late.
    Late,
    /// The session has expired.
    Expired,
    /// A list misses an object.
    Incomplete,
}

/// Those of the configuration, and one that it does not have.
pub const CLASSES: [&str; 3] = ["default", "web", "missing"];

/// The ports of a Service change on this many of the ports of the nodes.
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
/// None that log in: failed logins are limited to a few in 15 minutes.
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

/// What an account may be kept from writing.
const DENIABLE: [&str; 5] = ["lb-virtual-servers", "lb-pools", "lb-monitor-profiles", "ip-allocations", "groups"];

/// Actions of one time with faults: so many in all, and of each sort.
const FAULTS_IN_TROUBLE: usize = 20;
const BY_HAND_IN_TROUBLE: usize = 6;
const NODES_IN_TROUBLE: usize = 8;
const SERVICES_IN_TROUBLE: usize = 16;
/// Actions of one time without faults, as many in all.
const BY_HAND_IN_CALM: usize = 6;
const NODES_IN_CALM: usize = 14;
const SERVICES_IN_CALM: usize = 30;

/// The actions of a seed. Times with faults and times without alternate, each with as many actions. Every kind of fault and
/// of change by hand comes once before any comes again.
pub struct Script {
    random: Rng,
    services: usize,
    /// The Nodes that actions change.
    nodes: std::ops::Range<usize>,
    /// Left of the round of faults.
    faults: Vec<Action>,
    /// Left of the round of changes by hand.
    by_hand: Vec<ByHand>,
}

impl Script {
    /// For so many Services, and for these Nodes.
    pub fn new(seed: u64, services: usize, nodes: std::ops::Range<usize>) -> Self {
        Self { random: Rng::with_seed(seed), services, nodes, faults: Vec::new(), by_hand: Vec::new() }
    }

    /// The actions of the next time with faults.
    pub fn trouble(&mut self) -> Vec<Action> {
        let faults: Vec<Action> = (0..FAULTS_IN_TROUBLE).map(|_| self.fault()).collect();
        self.shuffled(faults, [SERVICES_IN_TROUBLE, NODES_IN_TROUBLE, BY_HAND_IN_TROUBLE])
    }

    /// The actions of the next time without faults.
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
            // Half of them are plain.
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

/// Every kind of fault in an order of its own, those of single calls twice.
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

    /// The actions of so many times with faults and times without.
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

    /// What no fault is, nor a change by hand.
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
            // Of single calls, changes by hand, and the other 13.
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
