//! Pure: what the provider said last about each node with Ready=Unknown, and when it is worth asking again.
//!
//! To ask about a machine that nobody sees may cost the cloud a search everywhere. So an answer is kept for a while,
//! unless something happens: an event of the instance, a change of what the answer was about, or the end of what kept the
//! provider from saying anything, as the answer about another node shows.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;

use super::plan;
use crate::base::backoff::Backoff;
use crate::cloud::node::{self, Readiness};
use crate::cloud::{Presence, Reason};

/// An answer that says nothing is asked for again after this, twice this, and so on.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// No answer is kept for longer, unless there are many. By how much it is shorter is left to chance, so that nodes which
/// were asked about together are not asked about together again.
const LONGEST: Duration = Duration::from_secs(60);
/// What each answer that may cost a search adds to the time of all, so that many of them cost one question a second. A
/// deletion rests on none of them: it asks anew.
const SHARE: Duration = Duration::from_secs(1);
/// What kept the provider from saying anything is over: it is asked about the others again, but not so soon after it was
/// asked about the same one.
const SOON: Duration = Duration::from_secs(5);
/// What each of the others adds to that, so that many of them cost twenty questions a second.
const SOON_SHARE: Duration = Duration::from_millis(50);

/// See the file's header.
#[derive(Debug, Default)]
pub struct Answers {
    by_node: HashMap<String, Kept>,
    /// How many of them may cost a search when they are asked for again.
    costly: u32,
    /// Being asked about, since then. What happens meanwhile makes the answer late.
    asking: HashMap<String, Instant>,
    /// The reasons for unknown answers that are over.
    over: BTreeMap<Reason, Over>,
}

/// Since when the reason for unknown answers is over.
#[derive(Clone, Copy, Debug)]
struct Over {
    /// When an answer showed it last.
    shown: Instant,
    /// When the answers about others were last gone through for it.
    shortened: Instant,
}

#[derive(Debug)]
struct Kept {
    subject: Subject,
    /// None when it does not count any more.
    presence: Option<Presence>,
    /// When it was asked for.
    asked: Instant,
    /// From when on it is not kept any more.
    due: Instant,
    /// Answers in a row that said nothing.
    failures: u32,
    /// Why the last answer said nothing, if it did not. While the next one is on its way that is what it was before.
    trouble: Option<Reason>,
}

/// What an answer is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    uid: String,
    provider_id: String,
    readiness: Readiness,
    by_hand: bool,
}

impl Subject {
    /// That of the Node as it is.
    pub fn of(node: &Node) -> Self {
        Self {
            uid: node.metadata.uid.clone().unwrap_or_default(),
            provider_id: node::provider_id(node).to_owned(),
            readiness: node::readiness(node),
            by_hand: plan::is_allowed_by_hand(node),
        }
    }
}

impl Answers {
    /// The last answer, while it counts; without one the provider is to be asked.
    pub fn kept(&self, name: &str, subject: &Subject, at: Instant) -> Option<Presence> {
        let kept = self.by_node.get(name)?;
        kept.presence.clone().filter(|_| kept.subject == *subject && at < kept.due)
    }

    /// The provider is being asked from `at` on.
    pub fn ask(&mut self, name: &str, at: Instant) {
        self.asking.insert(name.to_owned(), at);
    }

    /// Keeps the answer to what was asked, received at `at`, unless something happened since: whether it is kept.
    /// `chance` in `0.0..1.0` shortens the time by up to a quarter.
    pub fn keep(&mut self, name: &str, subject: Subject, presence: &Presence, at: Instant, chance: f64) -> bool {
        let Some(asked) = self.asking.remove(name) else { return false };
        let before = self.by_node.get(name).filter(|kept| kept.subject == subject);
        let (failures, trouble) = before.map_or((0, None), |kept| (kept.failures, kept.trouble));
        let longest = LONGEST.max(SHARE.saturating_mul(self.costly));
        let backoff = Backoff::doubling(FIRST_PAUSE, longest).shortened_by(0.25);
        let mut kept = Kept { subject, presence: Some(presence.clone()), asked, due: at, failures: 0, trouble: None };
        match presence {
            // It comes from what the provider sees anyway.
            Presence::Exists(()) => {}
            Presence::Absent(_) => kept.due += backoff.jittered(longest, chance),
            Presence::Unknown(unknown) => {
                kept.failures = failures.saturating_add(1);
                let pause = unknown.retry_after.unwrap_or_else(|| backoff.pause(kept.failures, 0.0));
                kept.due += backoff.jittered(pause.clamp(FIRST_PAUSE, longest), chance);
                kept.trouble = if unknown.is_passing { trouble } else { Some(unknown.reason) };
                if kept.trouble.and_then(|trouble| self.over.get(&trouble)).is_some_and(|over| over.shown >= asked) {
                    // It was asked before that was over.
                    kept.due = kept.due.min(at + SOON);
                }
            }
        }
        let is_known = !matches!(presence, Presence::Unknown(_));
        self.costly += u32::from(kept.is_costly());
        if let Some(old) = self.by_node.insert(name.to_owned(), kept) {
            self.costly -= u32::from(old.is_costly());
        }
        if let Some(trouble) = trouble.filter(|_| is_known) {
            self.end(trouble, at);
        }
        true
    }

    /// The provider said something of a machine of which it could say nothing for this reason. The answers about others
    /// that said nothing for the same reason are not kept for long: one after the other they do not count any more.
    fn end(&mut self, trouble: Reason, at: Instant) {
        // After an outage the answer about every Node shows it. What was asked for since the last time is recent.
        let recent = |over: &&mut Over| at.saturating_duration_since(over.shortened) < SOON;
        if let Some(over) = self.over.get_mut(&trouble).filter(recent) {
            over.shown = at;
            return;
        }
        self.over.insert(trouble, Over { shown: at, shortened: at });
        let is_alike = |kept: &Kept| kept.trouble == Some(trouble);
        let least = SOON.max(SOON_SHARE.saturating_mul(self.count(is_alike)));
        let mut turn = at;
        for kept in self.by_node.values_mut().filter(|kept| is_alike(kept)) {
            kept.due = kept.due.min(turn.max(kept.asked + least));
            turn += SOON_SHARE;
        }
    }

    fn count(&self, which: impl Fn(&Kept) -> bool) -> u32 {
        u32::try_from(self.by_node.values().filter(|kept| which(kept)).count()).unwrap_or(u32::MAX)
    }

    /// The instance changed: its answer does not count any more, and the next one that says nothing is the first.
    pub fn forget(&mut self, name: &str) {
        if let Some(kept) = self.by_node.get_mut(name) {
            self.costly -= u32::from(kept.is_costly());
            kept.forget();
        }
        self.asking.remove(name);
    }

    /// Any instance may have changed.
    pub fn forget_all(&mut self) {
        self.by_node.values_mut().for_each(Kept::forget);
        self.costly = 0;
        self.asking.clear();
    }

    /// The Node is there no more.
    pub fn remove(&mut self, name: &str) {
        if let Some(kept) = self.by_node.remove(name) {
            self.costly -= u32::from(kept.is_costly());
        }
        self.asking.remove(name);
    }
}

impl Kept {
    /// What kept the provider from answering is not forgotten: that it is over tells something about others.
    fn forget(&mut self) {
        (self.presence, self.failures) = (None, 0);
    }

    fn is_costly(&self) -> bool {
        self.presence.as_ref().is_some_and(|presence| *presence != Presence::Exists(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::{AbsenceProof, Unknown};
    use crate::controllers::node_lifecycle::reason;

    fn keep(answers: &mut Answers, presence: &Presence, at: Instant, chance: f64) {
        answers.ask("n", at);
        answers.keep("n", subject(), presence, at, chance);
    }

    fn subject() -> Subject {
        Subject { uid: "u".into(), provider_id: "p".into(), readiness: Readiness::False, by_hand: false }
    }

    #[test]
    fn many_answers_count_for_longer_so_that_all_together_cost_one_question_a_second() {
        let start = Instant::now();
        let mut answers = Answers::default();
        for number in 0..1_000 {
            let name = format!("n{number}");
            answers.ask(&name, start);
            answers.keep(&name, subject(), &Presence::Absent(AbsenceProof::new("gone", [])), start, 0.0);
        }
        let kept_at = |seconds| answers.kept("n999", &subject(), start + Duration::from_secs(seconds)).is_some();
        assert!(kept_at(998) && !kept_at(1_000));
        assert!(answers.kept("n0", &subject(), start + Duration::from_secs(60)).is_none(), "alone it was a minute");
    }

    #[test]
    fn answers_count_for_as_long_as_asking_again_would_cost_more_than_it_tells() {
        let start = Instant::now();
        let unknown =
            |retry_after| Presence::Unknown(Unknown { retry_after, ..Unknown::new(reason::CloudUnavailable, "down") });
        let seconds = Duration::from_secs;
        let cases = [
            ("exists", Presence::Exists(()), 0, 0),
            ("absent", Presence::Absent(AbsenceProof::new("gone", [])), 0, 60),
            ("unknown", unknown(None), 0, 1),
            ("unknown for the fourth time", unknown(None), 3, 8),
            ("unknown for long", unknown(None), 90, 60),
            ("unknown with a time", unknown(Some(seconds(20))), 0, 20),
            ("unknown with a long time", unknown(Some(seconds(3600))), 0, 60),
        ];
        for (case, presence, failures, expected) in cases {
            let mut answers = Answers::default();
            for _ in 0..failures {
                keep(&mut answers, &unknown(None), start, 0.0);
            }
            keep(&mut answers, &presence, start, 0.0);
            let before = start + seconds(expected).saturating_sub(Duration::from_millis(1));
            let is_kept = answers.kept("n", &subject(), before).is_some();
            assert_eq!(is_kept, expected > 0, "{case}");
            assert_eq!(answers.kept("n", &subject(), start + seconds(expected)), None, "{case}");
            keep(&mut answers, &presence, start, 1.0);
            assert_eq!(answers.kept("n", &subject(), start + seconds(60).mul_f64(0.75)), None, "{case}: by chance");
        }
    }

    #[test]
    fn an_answer_is_about_one_machine_of_one_node_in_one_state() {
        let start = Instant::now();
        let mut answers = Answers::default();
        let gone = Presence::Absent(AbsenceProof::new("gone", []));
        keep(&mut answers, &gone, start, 0.0);
        for (case, other) in [
            ("recreated", Subject { uid: "v".into(), ..subject() }),
            ("another machine", Subject { provider_id: "q".into(), ..subject() }),
            ("Ready changed", Subject { readiness: Readiness::Unknown, ..subject() }),
            ("somebody allowed it", Subject { by_hand: true, ..subject() }),
        ] {
            assert_eq!(answers.kept("n", &other, start), None, "{case}");
        }
        assert!(answers.kept("n", &subject(), start).is_some());
        answers.forget("n");
        assert_eq!(answers.kept("n", &subject(), start), None);
        answers.ask("n", start);
        answers.forget("n");
        assert!(!answers.keep("n", subject(), &gone, start, 0.0), "something happened while it was asked");
        assert_eq!(answers.kept("n", &subject(), start), None);
        answers.ask("n", start);
        assert!(answers.keep("n", subject(), &gone, start, 0.0));
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The answers about one node after another say nothing, so often that the pause cannot grow any more.
    fn troubled(names: &[&str], reason: Reason, start: Instant) -> Answers {
        let mut answers = Answers::default();
        for _ in 0..12 {
            for name in names {
                answer(&mut answers, name, &Presence::Unknown(Unknown::new(reason, "")), start);
            }
        }
        answers
    }

    fn answer(answers: &mut Answers, name: &str, presence: &Presence, at: Instant) {
        answers.ask(name, at);
        answers.keep(name, subject(), presence, at, 0.0);
    }

    fn counts(answers: &Answers, name: &str, at: Instant) -> bool {
        answers.kept(name, &subject(), at).is_some()
    }

    #[test]
    fn an_event_makes_the_next_answer_that_says_nothing_the_first() {
        let start = Instant::now();
        let mut answers = troubled(&["a"], reason::CloudUnavailable, start);
        assert!(counts(&answers, "a", start + seconds(59)));
        answers.forget("a");
        assert!(!counts(&answers, "a", start));
        answer(&mut answers, "a", &Presence::Unknown(Unknown::new(reason::CloudUnavailable, "")), start);
        assert!(!counts(&answers, "a", start + seconds(1)), "and not after a minute");
    }

    #[test]
    fn an_answer_that_ends_the_silence_shortens_the_pause_of_those_who_wait_for_the_same() {
        let gone = || Presence::Absent(AbsenceProof::new("gone", []));
        let passing = || Presence::Unknown(Unknown::passing(reason::LookupPending, "asked"));
        let denied = || Presence::Unknown(Unknown::new(reason::NoPermission, ""));
        let start = Instant::now();
        let at = start + seconds(20);
        // What is told of a, whether an event comes right before the last of it, and how long the answer about b counts.
        let cases = [
            ("its machine is gone", vec![gone()], false, 20),
            ("its machine exists", vec![Presence::Exists(())], false, 20),
            ("it is gone, after an event and a look-up", vec![passing(), gone()], true, 20),
            ("still nothing", vec![passing()], false, 60),
            ("something else stands in the way", vec![denied()], false, 60),
            ("that is over, and not what b waits for", vec![denied(), gone()], false, 60),
        ];
        for (case, told, is_announced, until) in cases {
            let mut answers = troubled(&["a", "b"], reason::CloudUnavailable, start);
            answer(&mut answers, "c", &denied(), start);
            let last = told.len() - 1;
            for (number, presence) in told.iter().enumerate() {
                if is_announced && number == last {
                    answers.forget("a");
                }
                answer(&mut answers, "a", presence, at);
            }
            let until = start + seconds(until);
            assert!(counts(&answers, "b", until - Duration::from_millis(1)), "{case}");
            assert!(!counts(&answers, "b", until + SOON_SHARE), "{case}");
        }
    }

    #[test]
    fn those_who_wait_are_asked_about_one_after_the_other_and_not_again_and_again() {
        let start = Instant::now();
        let names: Vec<String> = (0..1_000).map(|number| format!("n{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut answers = troubled(&names, reason::CloudUnavailable, start);
        let due = |answers: &Answers, at| names.iter().filter(|name| !counts(answers, name, at)).count();
        let at = start + seconds(55);
        let gone = Presence::Absent(AbsenceProof::new("gone", []));
        answer(&mut answers, names[0], &gone, at);
        assert!(due(&answers, at + seconds(10)) <= 201 && due(&answers, at + seconds(51)) >= 999);
        // Another one is asked about, and it says nothing.
        answers = troubled(&["a", "b", "c"], reason::CloudUnavailable, start);
        answer(&mut answers, "b", &Presence::Unknown(Unknown::new(reason::CloudUnavailable, "")), at);
        answer(&mut answers, "a", &gone, at);
        assert!(counts(&answers, "b", at + SOON - Duration::from_millis(1)), "it was asked about just now");
        assert!(!counts(&answers, "b", at + SOON));
    }

    #[test]
    fn answers_that_end_the_silence_one_after_the_other_go_through_all_others_once_in_a_while() {
        let start = Instant::now();
        let reason = reason::CloudUnavailable;
        let mut answers = troubled(&["a", "b", "c", "d"], reason, start);
        let at = start + seconds(20);
        answer(&mut answers, "a", &Presence::Exists(()), at);
        assert!(!counts(&answers, "d", at + SOON));
        // Asked since then, and its vCenter still says nothing.
        answer(&mut answers, "d", &Presence::Unknown(Unknown::new(reason, "")), at + seconds(1));
        answer(&mut answers, "b", &Presence::Exists(()), at + seconds(2));
        assert!(counts(&answers, "d", at + seconds(60)), "the others were gone through just now");
        answer(&mut answers, "c", &Presence::Exists(()), at + SOON);
        assert!(!counts(&answers, "d", at + seconds(1) + SOON), "and now again");
    }

    #[test]
    fn an_answer_that_was_asked_for_before_the_silence_ended_is_not_kept_for_long() {
        let start = Instant::now();
        let mut answers = troubled(&["a", "b"], reason::CloudUnavailable, start);
        let silent = Presence::Unknown(Unknown::new(reason::CloudUnavailable, ""));
        answers.ask("b", start + seconds(60));
        answer(&mut answers, "a", &Presence::Exists(()), start + seconds(70));
        answers.keep("b", subject(), &silent, start + seconds(85), 0.0);
        assert!(!counts(&answers, "b", start + seconds(90)));
        answer(&mut answers, "b", &silent, start + seconds(90));
        assert!(counts(&answers, "b", start + seconds(149)), "asked since then, it counts as ever");
    }

    #[test]
    fn costly_answers_are_counted_as_they_come_and_go() {
        let start = Instant::now();
        let mut answers = Answers::default();
        let told = [
            Presence::Exists(()),
            Presence::Absent(AbsenceProof::new("gone", [])),
            Presence::Unknown(Unknown::new(reason::CloudUnavailable, "")),
        ];
        let mut random = fastrand::Rng::with_seed(15);
        for _ in 0..2_000 {
            let name = format!("n{}", random.u8(..20));
            match random.u8(..20) {
                0 => answers.forget_all(),
                1..3 => answers.forget(&name),
                3..5 => answers.remove(&name),
                _ => answer(&mut answers, &name, &told[random.usize(..3)], start),
            }
            let counted = answers.count(Kept::is_costly);
            assert_eq!(answers.costly, counted, "{answers:?}");
        }
    }

    #[test]
    fn a_node_that_is_gone_leaves_nothing() {
        let mut answers = troubled(&["a"], reason::CloudUnavailable, Instant::now());
        answers.ask("a", Instant::now());
        answers.remove("a");
        assert!(answers.by_node.is_empty() && answers.asking.is_empty());
    }
}
