//! The timeline of a campaign. It depends on the seed and the length only.

use std::time::Duration;

use fastrand::Rng;

use super::fault::{Fault, TRACKS, Track};
use super::{LASTING_SERVICES, SERVICES, is_lasting};
use crate::invariants::machine::Power;
use crate::services::{POLICIES, PORTS, Policies, Ports, ServiceChange};

/// A fault with its times, counted from the start of the campaign.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    pub fault: Fault,
    pub track: Track,
    pub begins: Duration,
    pub ends: Duration,
}

/// A change of a machine or a Node, given by its number. A change that does not apply has no effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// A kubelet registers its Node, if there is none.
    Register(usize),
    /// The Node is deleted.
    DeleteNode(usize),
    /// The condition Ready gets this status.
    Ready(usize, &'static str),
    /// A machine appears, with the UUID of its predecessor.
    Create(usize),
    /// A machine is destroyed.
    Destroy(usize),
    /// A machine is destroyed, and its kubelet stops reporting.
    Lose(usize),
    /// A machine gets another name in the inventory, or its first name again.
    Rename(usize, bool),
    /// A machine is switched on, off, or suspended.
    Power(usize, Power),
    /// The guest gets another address.
    Address(usize, u8),
    /// A Service of type LoadBalancer is created, if there is none.
    CreateService(usize, Ports, Policies),
    /// A Service changes.
    ChangeService(usize, ServiceChange),
}

/// One step of the timeline, with the number of its fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// A fault begins.
    Begin(usize),
    /// The fault ends.
    End(usize),
    /// A machine, a Node or a Service changes.
    Act(Action),
}

/// Timeline of a campaign.
#[derive(Debug, PartialEq)]
pub struct Script {
    /// Faults in the order of their start times.
    pub faults: Vec<Planned>,
    /// All steps with their times, in order.
    pub steps: Vec<(Duration, Step)>,
}

/// Delay of the first faults, in milliseconds. Some nodes must have joined before.
const LEAD: u64 = 3_000;
/// Nodes register in this many waves, during this part of the campaign.
const WAVES: usize = 8;
const JOINING: f64 = 0.6;
/// Interval between two actions, in milliseconds.
const PACE: u64 = 120;
/// Interval between two actions of Services, and interval between their creations at the start, in milliseconds.
const SERVICE_PACE: u64 = 400;
const CREATION_PACE: u64 = 50;
/// Range of the node ports that a Service may change to.
const NODE_PORTS: std::ops::Range<u16> = 31_000..31_200;

impl Script {
    /// Draws the timeline for this seed, number of seconds and number of machines.
    pub fn new(seed: u64, seconds: u64, machines: usize) -> Self {
        let mut random = Rng::with_seed(seed);
        let end = seconds * 1_000;
        let mut faults = Vec::new();
        for track in TRACKS {
            draw(track, &mut random.fork(), end, machines, &mut faults);
        }
        faults.sort_by_key(|planned| planned.begins);
        let mut steps = joins(&mut random, end, machines);
        let mut at = LEAD;
        while at < end {
            steps.push((Duration::from_millis(at), Step::Act(action(&mut random, machines))));
            at += random.u64(1..2 * PACE);
        }
        steps.extend(services(&mut random, end));
        for (number, planned) in faults.iter().enumerate() {
            steps.push((planned.begins, Step::Begin(number)));
            steps.push((planned.ends, Step::End(number)));
        }
        steps.sort_by_key(|(at, _)| *at);
        Self { faults, steps }
    }
}

/// Draws the faults of one track: every kind once in a random order, then every kind again.
fn draw(track: Track, random: &mut Rng, end: u64, machines: usize, faults: &mut Vec<Planned>) {
    let mut at = LEAD + random.u64(..2_000);
    loop {
        let mut round = track.faults(random, machines, (end.saturating_sub(at)) / 1_000);
        random.shuffle(&mut round);
        for fault in round {
            let ends = at + random.u64(fault.duration());
            if ends > end {
                return;
            }
            let [begins, ends] = [at, ends].map(Duration::from_millis);
            faults.push(Planned { fault, track, begins, ends });
            at = u64::try_from(ends.as_millis()).unwrap_or(u64::MAX) + random.u64(track.pause());
        }
    }
}

/// Draws the time at which every node registers once, in waves.
fn joins(random: &mut Rng, end: u64, machines: usize) -> Vec<(Duration, Step)> {
    let mut numbers: Vec<usize> = (0..machines).collect();
    random.shuffle(&mut numbers);
    let waves = numbers.chunks(machines.div_ceil(WAVES)).enumerate();
    let begin = |wave: usize| Duration::from_millis(end).mul_f64(JOINING * wave as f64 / WAVES as f64);
    waves
        .flat_map(|(wave, numbers)| {
            numbers.iter().map(move |&number| (begin(wave), Step::Act(Action::Register(number))))
        })
        .collect()
}

/// Draws the changes of Services. The first Services are only created.
fn services(random: &mut Rng, end: u64) -> Vec<(Duration, Step)> {
    let ports = |random: &mut Rng| random.usize(1..1 << PORTS.len());
    // Half of the Services have no policies.
    let policies = |random: &mut Rng| if random.bool() { random.usize(..1 << POLICIES) } else { 0 };
    let mut steps = Vec::new();
    for number in 0..SERVICES {
        let created = Action::CreateService(number, ports(random), policies(random));
        steps.push((Duration::from_millis(number as u64 * CREATION_PACE), Step::Act(created)));
    }
    let mut at = LEAD;
    while at < end {
        let number = random.usize(LASTING_SERVICES..SERVICES);
        let change = match random.u32(..16) {
            0..4 => None,
            4..7 => Some(ServiceChange::Ports(ports(random))),
            7 | 8 => Some(ServiceChange::NodePort(random.u16(NODE_PORTS))),
            9..11 => Some(ServiceChange::Policies(policies(random))),
            11 => Some(ServiceChange::Type(false)),
            12 => Some(ServiceChange::Type(true)),
            _ => Some(ServiceChange::Delete),
        };
        let action = match change {
            None => Action::CreateService(number, ports(random), policies(random)),
            Some(change) => Action::ChangeService(number, change),
        };
        steps.push((Duration::from_millis(at), Step::Act(action)));
        at += random.u64(1..2 * SERVICE_PACE);
    }
    steps
}

/// Draws one change. Lasting machines never change.
fn action(random: &mut Rng, machines: usize) -> Action {
    let number = random.usize(..machines);
    let number = if is_lasting(number) { number + 1 } else { number };
    match random.u32(..42) {
        0..8 => Action::Create(number),
        8..10 => Action::Destroy(number),
        10..13 => Action::Rename(number, random.bool()),
        13..16 => Action::Power(number, Power::On),
        16 => Action::Power(number, Power::Off),
        17 => Action::Power(number, Power::Suspended),
        18..24 => Action::Address(number, random.u8(1..6)),
        24..29 => Action::Register(number),
        29 => Action::DeleteNode(number),
        30..35 => Action::Ready(number, "True"),
        35..38 => Action::Ready(number, "False"),
        38 | 39 => Action::Lose(number),
        _ => Action::Ready(number, "Unknown"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{MACHINES, SECONDS, SEED};
    use super::*;

    #[test]
    fn a_seed_says_all_that_happens() {
        assert_eq!(Script::new(7, 60, 40), Script::new(7, 60, 40));
        assert_ne!(Script::new(7, 60, 40).faults, Script::new(8, 60, 40).faults);
    }

    #[test]
    fn what_begins_ends_within_the_campaign_and_faults_of_a_track_follow_each_other() {
        for seed in 0..50 {
            let script = Script::new(seed, 90, 40);
            for track in TRACKS {
                let of_track: Vec<&Planned> = script.faults.iter().filter(|planned| planned.track == track).collect();
                assert!(!of_track.is_empty(), "{seed}: {track:?}");
                assert!(of_track.windows(2).all(|pair| pair[0].ends < pair[1].begins), "{seed}: {of_track:?}");
            }
            for (number, planned) in script.faults.iter().enumerate() {
                let at = |step| script.steps.iter().position(|(_, found)| *found == step).unwrap();
                assert!(at(Step::Begin(number)) < at(Step::End(number)), "{seed}: {planned:?}");
                assert!(planned.ends <= Duration::from_secs(90), "{seed}: {planned:?}");
            }
        }
    }

    #[test]
    fn every_node_joins_and_every_kind_of_action_is_drawn() {
        let script = Script::new(1, 90, 200);
        let registered: BTreeSet<usize> = script.steps.iter().filter_map(|(_, step)| registers(*step)).collect();
        assert_eq!(registered.len(), 200);
        let is_drawn = |is_it: fn(&Action) -> bool| {
            script.steps.iter().any(|(_, step)| matches!(step, Step::Act(action) if is_it(action)))
        };
        assert!(is_drawn(|action| matches!(action, Action::Create(_))));
        assert!(is_drawn(|action| matches!(action, Action::Destroy(_))));
        assert!(is_drawn(|action| matches!(action, Action::Lose(_))));
        assert!(is_drawn(|action| matches!(action, Action::Rename(..))));
        assert!(is_drawn(|action| matches!(action, Action::Power(_, Power::Off))));
        assert!(is_drawn(|action| matches!(action, Action::DeleteNode(_))));
        let created =
            |number| is_drawn_of(&script, |action| matches!(action, Action::CreateService(one, ..) if *one == number));
        assert!((0..SERVICES).all(created));
        assert!(is_drawn(|action| matches!(action, Action::ChangeService(_, ServiceChange::Ports(_)))));
        assert!(is_drawn(|action| matches!(action, Action::ChangeService(_, ServiceChange::Type(false)))));
        assert!(is_drawn(|action| matches!(action, Action::ChangeService(_, ServiceChange::Delete))));
    }

    fn is_drawn_of(script: &Script, is_it: impl Fn(&Action) -> bool) -> bool {
        script.steps.iter().any(|(_, step)| matches!(step, Step::Act(action) if is_it(action)))
    }

    /// Checks the seed of `make test` and `make chaos`.
    #[test]
    fn the_seed_of_every_day_draws_every_fault() {
        for seconds in [SECONDS, 600] {
            let script = Script::new(SEED, seconds, MACHINES);
            let drawn: BTreeSet<&str> = script.faults.iter().map(|planned| planned.fault.name()).collect();
            let mut random = Rng::with_seed(1);
            let all = TRACKS.iter().flat_map(|track| track.faults(&mut random, MACHINES, seconds));
            let missing: Vec<&str> = all.map(Fault::name).filter(|name| !drawn.contains(name)).collect();
            assert_eq!(missing, Vec::<&str>::new(), "{seconds} s");
        }
    }

    fn registers(step: Step) -> Option<usize> {
        match step {
            Step::Act(Action::Register(number)) => Some(number),
            _ => None,
        }
    }
}
