//! What may happen to Services, Nodes, NSX and the replicas, and in which order: a function of the seed alone.

use std::collections::BTreeSet;

use fastrand::Rng;

/// One thing that happens. The first number is a Service, a Node or a replica. Where it does not apply, nothing happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A Service of type LoadBalancer is created with these ports.
    Create(usize, Ports),
    /// A Service has these ports.
    Ports(usize, Ports),
    /// The first port of a Service is on this port of the nodes.
    NodePort(usize, u16),
    /// A Service is of type LoadBalancer, or of type ClusterIP.
    Type(usize, bool),
    /// A Service is deleted.
    Delete(usize),

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
    /// Sets `enabled` of a virtual server to false.
    Disable,
}

/// How a call to NSX goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 429.
    Throttled,
    /// 503.
    Overloaded,
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

/// The ports of a Service: one bit for each of [`PORTS`].
pub type Ports = usize;

/// Protocol and number.
pub const PORTS: [(&str, u16); 4] = [("TCP", 80), ("TCP", 443), ("UDP", 53), ("UDP", 80)];
/// The ports of a Service change on this many of the ports of the nodes.
const NODE_PORTS: std::ops::Range<u16> = 31_000..31_040;
const FAULTS: [Fault; 9] = [
    Fault::Throttled,
    Fault::Overloaded,
    Fault::Aborted,
    Fault::Conflict,
    Fault::Lost,
    Fault::Dropped,
    Fault::Cut,
    Fault::Late,
    Fault::Expired,
];
/// None that log in: failed logins are limited to a few in 15 minutes.
const OPERATIONS: [&str; 14] = [
    "PUT lb-virtual-servers",
    "PUT lb-pools",
    "PUT lb-monitor-profiles",
    "PUT lb-services",
    "PATCH ip-allocations",
    "PATCH infra",
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
        match random.u32(..14) {
            0..5 => Action::Create(number, ports),
            5..8 => Action::Ports(number, ports),
            8..10 => Action::NodePort(number, random.u16(NODE_PORTS)),
            10 => Action::Type(number, false),
            11 => Action::Type(number, true),
            _ => Action::Delete(number),
        }
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
        let what = match random.u32(..8) {
            0..2 => ByHand::RemoveMember,
            2 => ByHand::RemoveMembers,
            3 | 4 => ByHand::DeleteServer,
            5 => ByHand::DeletePool,
            6 => ByHand::DeleteMonitor,
            _ => ByHand::Disable,
        };
        Action::ByHand(what, random.usize(..100))
    }

    fn nsx(&mut self) -> Action {
        let random = &mut self.random;
        let operation = OPERATIONS[random.usize(..OPERATIONS.len())];
        let fault = FAULTS[random.usize(..FAULTS.len())];
        match random.u32(..28) {
            0..15 => Action::Break(operation, fault, random.u32(1..3)),
            15 => Action::Break(LISTS[random.usize(..LISTS.len())], Fault::Incomplete, 1),
            16 => Action::EndSessions,
            17 => Action::LateAddresses([0, 300, 2000, 12_000][random.usize(..4)]),
            18 => Action::Delay(random.u64(..30)),
            19 => Action::Exhaust(true),
            20..22 => Action::Exhaust(false),
            22 => Action::Down(true),
            _ => Action::Down(false),
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
    let kind = |action: Action| match action {
        Action::Break(_, fault, _) => format!("{fault:?}"),
        Action::ByHand(what, _) => format!("{what:?}"),
        other => format!("{other:?}").chars().take_while(char::is_ascii_alphabetic).collect(),
    };
    let drawn: BTreeSet<String> = (0..super::LEAST_ACTIONS).map(|_| kind(script.next())).collect();
    // Faults, changes by hand, and the other 18.
    assert_eq!(drawn.len(), FAULTS.len() + 1 + 6 + 18, "{drawn:?}");
}
