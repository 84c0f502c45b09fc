//! The actions on machines, Nodes, vCenter and the daemon, in their order. They depend on the seed only.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::{NODES, SEED};
use crate::invariants::machine::Power;

/// One action. A number is a machine and its node. An action that does not apply has no effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A machine appears. It is new for vCenter and has the UUID of its predecessor.
    Create(usize),
    /// A machine is destroyed.
    Destroy(usize),
    /// A machine is destroyed, and its kubelet stops reporting.
    Lose(usize),
    /// A machine is removed from the inventory and comes back with another id.
    Reregister(usize),
    /// A machine is switched on or off, or suspended.
    Power(usize, Power),
    /// The guest has a single, different address.
    Address(usize, u8),
    /// The guest has a further address.
    TwoAddresses(usize, u8),
    /// The guest reports no interface.
    NoAddress(usize),
    /// The guest reports its host name with or without a domain.
    HostName(usize, bool),
    /// vMotion to the host with this number.
    Move(usize, usize),
    /// The machine gets more or fewer CPUs.
    Resize(usize, i32),
    /// The ESXi host of a machine loses its connection to vCenter, or gets it back.
    Connection(usize, bool),
    /// A clone with the same UUID appears, powered on or off.
    Twin(usize, bool),
    /// The clone is destroyed.
    RemoveTwin(usize),
    /// The machine gets its own tag for a zone.
    Tag(usize, usize),
    /// The machine loses its own tag, so that it is in the zone of its host.
    Untag(usize, usize),

    /// A kubelet registers its Node, if there is none.
    Register(usize),
    /// The Node is deleted.
    DeleteNode(usize),
    /// The Node is deleted, and its kubelet registers it again immediately.
    Recreate(usize),
    /// The condition Ready gets this status.
    Ready(usize, &'static str),
    /// Another client adds this taint.
    Taint(usize, &'static str),
    /// Another client removes this taint.
    Untaint(usize, &'static str),
    /// Another client sets this label to this value.
    Label(usize, &'static str, &'static str),
    /// Another client removes this label.
    Unlabel(usize, &'static str),
    /// The kubelet restarts with another value of `--node-ip`.
    NodeIp(usize, NodeIp),
    /// The Node is cordoned, or uncordoned.
    Cordon(usize, bool),

    /// A replica is killed and started again.
    Kill(usize),
    /// A replica is stopped with SIGTERM and started again.
    Restart(usize),
    /// A replica is frozen. If the other replica is frozen, it continues.
    Freeze(usize),
    /// Both replicas continue.
    Thaw,

    /// Every session ends.
    EndSessions,
    /// The next calls of this operation fail in this way. The last number is the number of calls.
    Break(&'static str, Trouble, u32),
    /// Every call is delayed by this many milliseconds.
    Delay(u64),
    /// vCenter does not listen.
    Down,
    /// vCenter listens again.
    Up,
}

/// Value of the kubelet's `--node-ip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeIp {
    /// First address of the machine.
    Its,
    /// An address that no machine has.
    Foreign,
    /// No flag.
    None,
}

/// Ways in which a call to vCenter fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A SOAP fault of this type.
    Fault(&'static str),
    /// The connection is closed without an answer.
    Drop,
    /// The answer is truncated.
    Cut,
    /// A proxy answers in place of vCenter.
    Unavailable,
}

/// Number of kinds of failures that are drawn.
const TROUBLES: usize = 5;

impl Action {
    /// Whether the simulator may send an update in an answer that the daemon cannot read. Unlike a vCenter, the
    /// simulator does not send the update again when the daemon asks for the same version.
    pub fn loses_updates(&self) -> bool {
        matches!(self, Action::Break("WaitForUpdatesEx", Trouble::Cut, _))
    }
}

/// A taint of Kubernetes, a taint of an operator, and this program's taint, which no other client should write.
pub const TAINTS: [&str; 3] =
    ["node.kubernetes.io/unreachable", "test.example/maintenance", "node.cloudprovider.kubernetes.io/shutdown"];
/// A label of an operator, and stable labels of this program, which the daemon corrects from their beta forms.
const LABELS: [&str; 4] = [
    "test.example/colour",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];
/// Operations without a login. Failed logins count for minutes by design.
const OPERATIONS: [&str; 6] = [
    "FindAllByUuid",
    "ModifyListView",
    "WaitForUpdatesEx",
    "RetrievePropertiesEx",
    "CreateFilter",
    "REST:list-attached-tags-on-objects",
];

/// The actions of a seed.
pub struct Script {
    random: Rng,
    nodes: usize,
}

impl Script {
    /// Creates a script for this number of machines and nodes.
    pub fn new(seed: u64, nodes: usize) -> Self {
        Self { random: Rng::with_seed(seed), nodes }
    }

    /// Returns the next action on a machine or a Node.
    pub fn next_of_nodes(&mut self) -> Action {
        if self.random.bool() { self.machine() } else { self.node() }
    }

    /// Returns the next action.
    pub fn next(&mut self) -> Action {
        match self.random.u32(..200) {
            0..97 => self.machine(),
            97..194 => self.node(),
            194..198 => self.vcenter(),
            _ => self.daemon(),
        }
    }

    fn machine(&mut self) -> Action {
        let random = &mut self.random;
        let number = random.usize(..self.nodes);
        match random.u32(..23) {
            0..5 => Action::Create(number),
            5 => Action::Destroy(number),
            6 => Action::Reregister(number),
            7 | 8 => Action::Power(number, Power::On),
            9 => Action::Power(number, if random.bool() { Power::Off } else { Power::Suspended }),
            10 | 11 => Action::Address(number, random.u8(1..6)),
            12 => Action::TwoAddresses(number, random.u8(1..6)),
            13 => Action::NoAddress(number),
            14 => Action::HostName(number, random.bool()),
            15 => Action::Move(number, random.usize(1..4)),
            16 => Action::Resize(number, 2 * random.i32(1..4)),
            17 => Action::Connection(number, random.u32(..4) > 0),
            18 => Action::Twin(number, random.bool()),
            19 => Action::RemoveTwin(number),
            20 => Action::Tag(number, random.usize(..3)),
            21 => Action::Lose(number),
            _ => Action::Untag(number, random.usize(..3)),
        }
    }

    fn node(&mut self) -> Action {
        let random = &mut self.random;
        let number = random.usize(..self.nodes);
        let mut any = |words: &[&'static str]| words[random.usize(..words.len())];
        let (taint, label, colour) = (any(&TAINTS), any(&LABELS), any(&["red", "green"]));
        match random.u32(..20) {
            0..5 => Action::Register(number),
            5 => Action::DeleteNode(number),
            6 => Action::Recreate(number),
            7..10 => Action::Ready(number, "True"),
            10 => Action::Ready(number, "False"),
            11 => Action::Ready(number, "Unknown"),
            12 => Action::Taint(number, taint),
            13 => Action::Untaint(number, taint),
            14 => Action::Label(number, label, colour),
            15 => Action::Unlabel(number, label),
            16 => Action::NodeIp(number, [NodeIp::Its, NodeIp::Foreign][random.usize(..2)]),
            17 | 18 => Action::NodeIp(number, NodeIp::None),
            _ => Action::Cordon(number, random.bool()),
        }
    }

    fn vcenter(&mut self) -> Action {
        let random = &mut self.random;
        let operation = OPERATIONS[random.usize(..OPERATIONS.len())];
        let trouble = match random.u32(..5) {
            0 => Trouble::Fault("NotAuthenticated"),
            1 => Trouble::Fault("RuntimeFault"),
            2 => Trouble::Drop,
            3 => Trouble::Cut,
            _ => Trouble::Unavailable,
        };
        match random.u32(..14) {
            0 | 1 => Action::EndSessions,
            2..6 => Action::Break(operation, trouble, random.u32(1..3)),
            6 => Action::Delay(random.u64(1..40)),
            7 => Action::Delay(0),
            8 => Action::Down,
            _ => Action::Up,
        }
    }

    fn daemon(&mut self) -> Action {
        let random = &mut self.random;
        let replica = random.usize(..2);
        match random.u32(..10) {
            0 | 1 => Action::Kill(replica),
            2 | 3 => Action::Restart(replica),
            4 | 5 => Action::Freeze(replica),
            _ => Action::Thaw,
        }
    }
}

#[test]
fn a_seed_gives_its_actions_again() {
    let script = |seed| {
        let mut script = Script::new(seed, 24);
        (0..1000).map(move |_| script.next()).collect::<Vec<_>>()
    };
    assert_eq!(script(7), script(7));
    assert_ne!(script(7), script(8));
}

/// Checks the race of `make test`, within two thirds of its 500 actions. On a slow machine there are fewer actions.
#[test]
fn the_seed_of_every_day_has_every_trouble() {
    let mut script = Script::new(SEED, NODES);
    let trouble = |action: Action| match action {
        Action::Break(operation, trouble, _) => vec![operation.to_owned(), format!("{trouble:?}")],
        Action::EndSessions => vec!["sessions end".to_owned()],
        Action::Delay(1..) => vec!["slow".to_owned()],
        Action::Down => vec!["down".to_owned()],
        Action::Kill(_) => vec!["killed".to_owned()],
        Action::Restart(_) => vec!["restarted".to_owned()],
        Action::Freeze(_) => vec!["frozen".to_owned()],
        _ => Vec::new(),
    };
    let actions: Vec<Action> = (0..600).map(|_| script.next()).collect();
    let drawn: BTreeSet<String> = actions[..333].iter().cloned().flat_map(trouble).collect();
    assert_eq!(drawn.len(), OPERATIONS.len() + TROUBLES + 6, "{drawn:?}");
    assert!(!actions.iter().any(Action::loses_updates), "the run ends without a full read of the inventory");
}
