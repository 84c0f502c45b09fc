//! Property over random histories of many Nodes: each deletion follows the rules, and only valid answers are reused.

use super::*;
use proptest::prelude::*;

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    Ready(usize),
    NotReady(usize),
    Absent(usize),
    Exists(usize),
    Unknown(usize),
    /// Starts a request to the provider. A change before the answer arrives makes the answer outdated.
    Ask(usize),
    Receive(usize, Said),
    Event(usize),
    EventAboutAll,
    Allow(usize, bool),
    Recreated(usize),
    Judge(usize, bool),
    Pass(u64),
    /// The VMs of the first Nodes become absent, up to this number.
    Mass(usize),
}

/// An answer of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Absent,
    Exists,
    Unknown,
}

impl Said {
    fn presence(self) -> Presence {
        match self {
            Self::Absent => gone(),
            Self::Exists => Presence::Exists(()),
            Self::Unknown => Presence::Unknown(Unknown::new(reason::CloudUnavailable, "down")),
        }
    }
}

const NODES: usize = 40;

fn step() -> impl Strategy<Value = Step> {
    let node = 0..NODES;
    // Only a few Nodes, so that each gets several of these steps.
    let few = 0..NODES / 5;
    let said = prop_oneof![2 => Just(Said::Absent), 1 => Just(Said::Exists), 2 => Just(Said::Unknown)];
    prop_oneof![
        2 => node.clone().prop_map(Step::Ready),
        3 => node.clone().prop_map(Step::NotReady),
        6 => node.clone().prop_map(Step::Absent),
        1 => node.clone().prop_map(Step::Exists),
        1 => node.clone().prop_map(Step::Unknown),
        4 => few.clone().prop_map(Step::Ask),
        4 => (few.clone(), said).prop_map(|(node, said)| Step::Receive(node, said)),
        1 => few.clone().prop_map(Step::Event),
        1 => Just(Step::EventAboutAll),
        2 => (few.clone(), prop::bool::weighted(0.2)).prop_map(|(node, is_allowed)| Step::Allow(node, is_allowed)),
        1 => few.prop_map(Step::Recreated),
        12 => (node, prop::bool::weighted(0.05)).prop_map(|(node, is_allowed)| Step::Judge(node, is_allowed)),
        6 => (0..90_u64).prop_map(Step::Pass),
        1 => (1..NODES).prop_map(Step::Mass),
    ]
}

/// An independent model of the policy.
struct Observer {
    nodes: Vec<Watched>,
    deletions: Vec<(usize, Instant, bool)>,
    /// End of the last mass hold, and end of the hold before it. `None` while only a few VMs are absent.
    mass: Option<(Instant, Option<Instant>)>,
}

/// The model of one Node.
#[derive(Clone, Debug)]
struct Watched {
    ready: bool,
    there: bool,
    absent_since: Option<Instant>,
    /// Number of times that the Node was recreated.
    made: usize,
    /// Start of the request in flight, and whether its answer will be outdated.
    asked: Option<(Instant, bool)>,
    /// The last answer that may be reused.
    last: Option<Last>,
    /// Number of consecutive unknown answers.
    failures: u32,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    said: Said,
    /// The policy must reuse the answer until this time.
    least: Instant,
    /// The policy must not reuse the answer from this time on.
    most: Instant,
}

impl Watched {
    /// Makes all answers about the Node invalid, including the answer in flight.
    fn is_overtaken(&mut self) {
        (self.last, self.failures) = (None, 0);
        self.asked = self.asked.map(|(asked, _)| (asked, true));
    }

    fn hear(&mut self, said: Said, at: Instant) {
        let Some((asked, is_late)) = self.asked.take() else { return };
        if said != Said::Absent {
            self.absent_since = None;
        }
        if is_late {
            return;
        }
        if said == Said::Absent {
            self.absent_since.get_or_insert(at);
        }
        self.failures = if said == Said::Unknown { self.failures + 1 } else { 0 };
        let pause = |failures: u32| Duration::from_secs(60.min(1 << (failures - 1).min(6)));
        let (least, most) = match said {
            Said::Exists => (at, at),
            Said::Absent => (at + pause(7), at + pause(7)),
            // An answer about another Node may shorten the pause.
            Said::Unknown => {
                ((at + pause(self.failures)).min(asked + Duration::from_secs(5)), at + pause(self.failures))
            }
        };
        self.last = (at < most).then_some(Last { said, least, most });
    }

    /// Records that the Node is Ready or not Ready.
    fn turns(&mut self, is_ready: bool) {
        if self.ready != is_ready {
            let failures = self.failures;
            self.is_overtaken();
            (self.ready, self.failures) = (is_ready, failures);
        }
        if is_ready {
            self.absent_since = None;
        }
    }
}

impl Observer {
    fn own(&self) -> usize {
        self.nodes.iter().filter(|node| node.there).count()
    }

    fn absent(&self) -> impl Iterator<Item = Instant> {
        self.nodes.iter().filter_map(|node| node.absent_since)
    }

    fn note_mass(&mut self, at: Instant) {
        let threshold = (self.own() / 5).max(5);
        let ended = self.mass.map(|(until, _)| until);
        let newcomers = self.absent().filter(|since| ended.is_none_or(|ended| *since >= ended)).count();
        if ended.is_some_and(|until| at < until) {
            return;
        }
        if self.absent().count() <= threshold {
            self.mass = None;
        } else if newcomers > threshold {
            self.mass = Some((at + HOLD, ended));
        }
    }

    /// Checks that the permitted deletion of the Node breaks no rule.
    fn check_deletion(&self, number: usize, by_hand: bool, case: &Case) -> Result<(), TestCaseError> {
        let (node, at) = (&self.nodes[number], case.at);
        prop_assert!(!node.ready, "a Ready one");
        let since = node.absent_since;
        prop_assert!(since.is_some(), "without a proof");
        let lately: Vec<_> = self.deletions.iter().filter(|(_, then, _)| at.duration_since(*then) < WINDOW).collect();
        if !by_hand {
            prop_assert!(since.unwrap() + GRACE <= at, "within the grace period");
            let is_paused =
                self.mass.is_some_and(|(until, from)| at < until && from.is_none_or(|from| since.unwrap() >= from));
            prop_assert!(!is_paused, "during the mass hold");
            let counted = lately.iter().filter(|(_, _, by_hand)| !by_hand).count();
            prop_assert!(counted < ((self.own() + lately.len()) / 10).max(5), "more than the limit");
            let first = at.duration_since(case.start) < WINDOW / 4;
            prop_assert!(!first || counted == 0, "more than a new leader may");
        }
        if number < 5 {
            let before = lately.iter().filter(|(number, ..)| *number < 5).count();
            let absent = self.nodes[..5].iter().filter(|node| node.absent_since.is_some()).count();
            let there = self.nodes[..5].iter().filter(|node| node.there).count();
            prop_assert!((before + absent) * 2 <= there + before, "a majority of the control plane");
        }
        Ok(())
    }

    /// Checks that the last answer is reused while it is valid, and not for longer.
    fn check_memory(&self, number: usize, case: &mut Case) -> Result<(), TestCaseError> {
        let (node, at) = (&self.nodes[number], case.at);
        let remembered = case.remembered(&name(number));
        if let Some(presence) = &remembered {
            let Some(last) = node.last else { panic!("{presence:?} does not count any more: {node:?}") };
            prop_assert_eq!(presence, &last.said.presence(), "the last one");
            prop_assert!(at < last.most, "the provider is to be asked: {:?}", node);
        } else if let Some(last) = node.last {
            prop_assert!(at >= last.least, "the provider is asked too often: {:?}", node);
        }
        Ok(())
    }
}

fn name(number: usize) -> String {
    if number < 5 { format!("control-{number}") } else { format!("n-{number}") }
}

impl Case {
    /// The Node becomes Ready or not Ready.
    fn turn(&mut self, observer: &mut Observer, number: usize, is_ready: bool) {
        let node = &mut observer.nodes[number];
        if !node.there {
            return;
        }
        node.turns(is_ready);
        let readiness = if is_ready { Readiness::True } else { Readiness::Unknown };
        let uid = format!("uid-{number}-{}", node.made);
        let is_allowed_by_hand = self.seen.get(&name(number)).is_some_and(|seen| seen.is_allowed_by_hand);
        self.saw(&name(number), Facts { uid, is_allowed_by_hand, ..facts(&name(number), readiness) });
    }

    /// Starts a request about a Node that is not Ready, if no request about it is in flight.
    fn begin(&mut self, observer: &mut Observer, number: usize) {
        let node = &mut observer.nodes[number];
        if node.there && !node.ready && node.asked.is_none() {
            node.asked = Some((self.at, false));
            self.ask(&name(number));
        }
    }

    fn end(&mut self, observer: &mut Observer, number: usize, said: Said) {
        if observer.nodes[number].asked.is_some() {
            observer.nodes[number].hear(said, self.at);
            self.receive(&name(number), &said.presence());
            observer.note_mass(self.at);
        }
    }

    fn say(&mut self, observer: &mut Observer, number: usize, said: Said) {
        self.begin(observer, number);
        self.end(observer, number, said);
    }

    /// Applies a step. Returns the number of its Node.
    fn take(&mut self, observer: &mut Observer, step: &Step) -> Result<usize, TestCaseError> {
        match *step {
            Step::Pass(seconds) => {
                self.pass(Duration::from_secs(seconds));
                self.guard.count_mass(self.at);
            }
            Step::Ready(number) => self.turn(observer, number, true),
            Step::NotReady(number) => self.turn(observer, number, false),
            Step::Absent(number) => self.say(observer, number, Said::Absent),
            Step::Exists(number) => self.say(observer, number, Said::Exists),
            Step::Unknown(number) => self.say(observer, number, Said::Unknown),
            Step::Mass(count) => (0..count).for_each(|number| {
                self.turn(observer, number, false);
                self.say(observer, number, Said::Absent);
            }),
            Step::Ask(number) => {
                self.turn(observer, number, false);
                self.begin(observer, number);
            }
            Step::Receive(number, said) => self.end(observer, number, said),
            Step::Event(number) => {
                observer.nodes[number].is_overtaken();
                self.event(&name(number));
            }
            Step::EventAboutAll => {
                observer.nodes.iter_mut().for_each(Watched::is_overtaken);
                self.event_about_all();
            }
            Step::Allow(number, is_allowed) => {
                let node = &mut observer.nodes[number];
                if node.there && self.seen[&name(number)].is_allowed_by_hand != is_allowed {
                    node.is_overtaken();
                    self.allow(&name(number), is_allowed);
                }
            }
            Step::Recreated(number) => {
                let node = &mut observer.nodes[number];
                if node.there {
                    node.is_overtaken();
                    (node.made, node.absent_since) = (node.made + 1, None);
                    let uid = format!("uid-{number}-{}", node.made);
                    let facts = Facts { uid, ..self.seen[&name(number)].clone() };
                    self.saw(&name(number), facts);
                }
            }
            Step::Judge(number, is_allowed) => {
                if is_allowed {
                    self.take(observer, &Step::Allow(number, true))?;
                }
                observer.note_mass(self.at);
                let is_asked = observer.nodes[number].asked.is_some();
                let by_hand = self.seen.get(&name(number)).is_some_and(|seen| seen.is_allowed_by_hand);
                if !is_asked && self.judge_as(&name(number), PermitOutcome::Deleted) == "deleted" {
                    observer.check_deletion(number, by_hand, self)?;
                    observer.deletions.push((number, self.at, by_hand));
                    let node = &mut observer.nodes[number];
                    node.is_overtaken();
                    (node.there, node.absent_since) = (false, None);
                    self.gone(&name(number));
                }
            }
        }
        Ok(match *step {
            Step::Ready(number) | Step::NotReady(number) | Step::Absent(number) | Step::Exists(number) => number,
            Step::Unknown(number) | Step::Ask(number) | Step::Receive(number, _) | Step::Event(number) => number,
            Step::Allow(number, _) | Step::Recreated(number) | Step::Judge(number, _) => number,
            Step::Pass(_) | Step::Mass(_) | Step::EventAboutAll => 0,
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_no_rule_is_broken(steps in prop::collection::vec(step(), 1..400)) {
        let mut case = Case::new(&settings());
        let node = Watched {
            ready: true, there: true, absent_since: None, made: 0, asked: None, last: None, failures: 0,
        };
        let mut observer = Observer { nodes: vec![node; NODES], deletions: Vec::new(), mass: None };
        (0..NODES).for_each(|number| case.turn(&mut observer, number, true));
        for step in steps {
            let number = case.take(&mut observer, &step)?;
            observer.note_mass(case.at);
            observer.check_memory(number, &mut case)?;
            let kept = &case.guard.nodes;
            let counted: Vec<_> = kept.all().filter(|known| !known.is_dry_run_reported).collect();
            let own = counted.iter().filter(|known| known.facts.is_own).count();
            let absent = counted.iter().filter(|known| known.absent_since().is_some()).count();
            prop_assert_eq!((kept.count(NodeCategory::Own), kept.count(NodeCategory::Absent)), (own, absent), "recounted");
            let costly = kept.all().filter(|record| record.is_costly()).count();
            prop_assert_eq!(kept.count(NodeCategory::Costly), costly, "recounted");
            let unanswered = kept.all().filter_map(NodeRecord::unanswered_since).filter(|existed| *existed < Some(case.at));
            prop_assert_eq!(kept.unanswered(case.at), unanswered.count(), "recounted");
        }
    }
}
