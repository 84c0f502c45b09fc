//! What may happen to machines, Nodes, vCenter and the daemon, and in which order: a function of the seed alone.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::{NODES, SEED};
use crate::invariants::machine::Power;

/// One thing that happens. A number is a machine and its node. Where it does not apply, nothing happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A machine appears; it is a new one for vCenter, with the UUID of the one before.
    Create(usize),
    /// A machine is destroyed.
    Destroy(usize),
    /// A machine is destroyed, and nobody hears of its kubelet any more.
    Lose(usize),
    /// A machine is taken out of the inventory and comes back with another id.
    Reregister(usize),
    /// A machine is switched on or off, or suspended.
    Power(usize, Power),
    /// The guest has one other address.
    Address(usize, u8),
    /// The guest has a further address.
    TwoAddresses(usize, u8),
    /// The guest reports no interface.
    NoAddress(usize),
    /// The guest has its name alone, or with a domain.
    HostName(usize, bool),
    /// vMotion to the host with this number.
    Move(usize, usize),
    /// More or fewer CPUs.
    Resize(usize, i32),
    /// The ESXi host of a machine is out of touch with vCenter, or back.
    Connection(usize, bool),
    /// A clone appears that has the same UUID; running or not.
    Twin(usize, bool),
    /// The clone is destroyed.
    RemoveTwin(usize),
    /// The machine itself is in a zone.
    Tag(usize, usize),
    /// It is in the zone of its host again.
    Untag(usize, usize),

    /// A kubelet registers its node, if there is none.
    Register(usize),
    /// The Node is deleted.
    DeleteNode(usize),
    /// The Node is deleted, and its kubelet registers it again at once.
    Recreate(usize),
    /// The condition Ready.
    Ready(usize, &'static str),
    /// Somebody adds this taint.
    Taint(usize, &'static str),
    /// Somebody takes it off.
    Untaint(usize, &'static str),
    /// Somebody sets this label to this value.
    Label(usize, &'static str, &'static str),
    /// Somebody removes this label.
    Unlabel(usize, &'static str),
    /// The kubelet runs with `--node-ip`: with the first address of the machine, one it does not have, or without.
    NodeIp(usize, NodeIp),
    /// The Node is cordoned, or not.
    Cordon(usize, bool),

    /// A replica is killed and started again.
    Kill(usize),
    /// A replica is stopped in order and started again.
    Restart(usize),
    /// A replica is frozen, and the other one goes on if it was.
    Freeze(usize),
    /// Both go on.
    Thaw,

    /// Every session ends.
    EndSessions,
    /// The next calls of this operation, so many, go wrong in this way.
    Break(&'static str, Trouble, u32),
    /// Every call is served so many milliseconds later.
    Delay(u64),
    /// vCenter does not listen.
    Down,
    /// It does again.
    Up,
}

/// What `--node-ip` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeIp {
    /// An address of the machine.
    Its,
    /// An address that no machine has.
    Foreign,
    /// Not given.
    None,
}

/// How a call to vCenter goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A SOAP fault of this type.
    Fault(&'static str),
    /// The connection is closed instead of an answer.
    Drop,
    /// The answer is cut half-way.
    Cut,
    /// A proxy answers instead.
    Unavailable,
}

/// How many kinds of it are drawn.
const TROUBLES: usize = 5;

impl Action {
    /// Whether the simulator may tell something in an answer that nobody reads. It does not tell it again, as a vCenter
    /// does when it is asked for the same version.
    pub fn loses_updates(&self) -> bool {
        matches!(self, Action::Break("WaitForUpdatesEx", Trouble::Cut, _))
    }
}

/// A taint that the rules of Kubernetes set, one of an operator, and ours, which nobody else should touch.
pub const TAINTS: [&str; 3] =
    ["node.kubernetes.io/unreachable", "test.example/maintenance", "node.cloudprovider.kubernetes.io/shutdown"];
/// Labels that are somebody's, and ours in the form that the older one corrects.
const LABELS: [&str; 4] = [
    "test.example/colour",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];
/// None that log in: what is lost of those is counted for minutes, by intent.
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
    /// For so many machines and nodes.
    pub fn new(seed: u64, nodes: usize) -> Self {
        Self { random: Rng::with_seed(seed), nodes }
    }

    /// The next one that happens to a machine or a Node.
    pub fn next_of_nodes(&mut self) -> Action {
        if self.random.bool() { self.machine() } else { self.node() }
    }

    /// The next one.
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

/// Of the race that is part of `make test`, within two thirds of its 500 actions: where they take long there are fewer.
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
