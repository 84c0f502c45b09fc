//! What may happen to Services, Nodes, NSX and the replicas, and in which order: a function of the seed alone.

use std::collections::BTreeSet;

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

/// The actions of a seed.
pub struct Script {
    random: Rng,
    services: usize,
    /// The Nodes that come and leave.
    nodes: std::ops::Range<usize>,
}

impl Script {
    /// For so many Services, and for these Nodes.
    pub fn new(seed: u64, services: usize, nodes: std::ops::Range<usize>) -> Self {
        Self { random: Rng::with_seed(seed), services, nodes }
    }

    /// The next one.
    pub fn next(&mut self) -> Action {
        match self.random.u32(..100) {
            0..51 => self.service(),
            51..71 => self.node(),
            71..80 => self.by_hand(),
            80..98 => self.nsx(),
            _ => self.replica(),
        }
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
        let what = match random.u32(..14) {
            0..2 => ByHand::RemoveMember,
            2 => ByHand::RemoveMembers,
            3 | 4 => ByHand::DeleteServer,
            5 => ByHand::DeletePool,
            6 => ByHand::DeleteMonitor,
            7 => ByHand::DeleteGroup,
            8 => ByHand::DeleteProfile,
            9 => ByHand::RenumberServer,
            10 => ByHand::RenumberMonitor,
            11 => ByHand::EditGroup,
            12 => ByHand::EditProfile,
            _ => ByHand::Disable,
        };
        Action::ByHand(what, random.usize(..100))
    }

    fn nsx(&mut self) -> Action {
        let random = &mut self.random;
        let operation = OPERATIONS[random.usize(..OPERATIONS.len())];
        let fault = FAULTS[random.usize(..FAULTS.len())];
        match random.u32(..36) {
            0..19 => Action::Break(operation, fault, random.u32(1..3)),
            19 => Action::Break(LISTS[random.usize(..LISTS.len())], Fault::Incomplete, 1),
            20 => Action::EndSessions,
            21 => Action::LateAddresses([0, 300, 2000, 12_000][random.usize(..4)]),
            22 => Action::Delay(random.u64(..30)),
            23 => Action::Exhaust(true),
            24..26 => Action::Exhaust(false),
            26 => Action::Down(true),
            27..30 => Action::Down(false),
            30 => Action::Password(random.usize(..2)),
            31 => Action::Deny(random.usize(..2), DENIABLE[random.usize(..DENIABLE.len())]),
            32 => Action::Allow,
            _ => Action::Sever,
        }
    }

    fn replica(&mut self) -> Action {
        let random = &mut self.random;
        let replica = random.usize(..2);
        match random.u32(..8) {
            0 => Action::Kill(replica),
            1 | 2 => Action::Restart(replica),
            3 => Action::Freeze(replica),
            _ => Action::Thaw,
        }
    }
}

#[test]
fn a_seed_gives_its_actions_again() {
    let script = |seed| {
        let mut script = Script::new(seed, 8, 2..6);
        (0..1000).map(move |_| script.next()).collect::<Vec<_>>()
    };
    assert_eq!(script(7), script(7));
    assert_ne!(script(7), script(8));
}

/// Within two thirds of the actions that `make test` has time for.
#[test]
fn the_seed_of_every_day_has_faults_of_all_kinds() {
    let mut script = Script::new(super::SEED, super::SERVICES, super::NODES);
    let letters = |text: String| text.chars().take_while(char::is_ascii_alphabetic).collect::<String>();
    let kind = |action: Action| match action {
        Action::Break(_, fault, _) => format!("{fault:?}"),
        Action::ByHand(what, _) => format!("{what:?}"),
        Action::Change(_, change) => letters(format!("{change:?}")),
        other => letters(format!("{other:?}")),
    };
    let drawn: BTreeSet<String> = (0..super::LEAST_ACTIONS).map(|_| kind(script.next())).collect();
    // Faults, changes by hand, and the other 24.
    assert_eq!(drawn.len(), FAULTS.len() + 1 + 12 + 24, "{drawn:?}");
}
