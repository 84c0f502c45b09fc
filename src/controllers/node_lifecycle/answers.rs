//! Pure: what the provider said last about each node that is not Ready, and when it is worth asking again.
//!
//! To ask about a machine that nobody sees may cost the cloud a search everywhere. So an answer is kept for a while,
//! unless something happens: an event of the instance, or a change of what the answer was about.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;

use super::plan;
use crate::cloud::node::{self, Readiness};
use crate::cloud::{Presence, Unknown};

/// An answer that says nothing is asked for again after this, twice this, and so on.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// No answer is kept for longer, unless there are many. By how much it is shorter is left to chance, so that nodes which
/// were asked about together are not asked about together again.
const LONGEST: Duration = Duration::from_secs(60);
/// What each answer that may cost a search adds to the time of all, so that many of them cost one question a second. A
/// deletion rests on none of them: it asks anew.
const SHARE: Duration = Duration::from_secs(1);

/// See the file's header.
#[derive(Debug, Default)]
pub struct Answers {
    by_node: HashMap<String, Kept>,
    /// Being asked about. What happens meanwhile makes the answer late.
    asking: HashSet<String>,
}

#[derive(Debug)]
struct Kept {
    subject: Subject,
    presence: Presence,
    /// From when on it is not kept any more.
    due: Instant,
    /// Answers in a row that said nothing.
    failures: u32,
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
        (kept.subject == *subject && at < kept.due).then(|| kept.presence.clone())
    }

    /// The provider is being asked.
    pub fn ask(&mut self, name: &str) {
        self.asking.insert(name.to_owned());
    }

    /// Keeps the answer to what was asked, received at `at`, unless something happened since. `chance` in `0.0..1.0`
    /// shortens the time by up to a quarter.
    pub fn keep(&mut self, name: &str, subject: Subject, presence: &Presence, at: Instant, chance: f64) {
        if !self.asking.remove(name) {
            return;
        }
        let before = self.by_node.get(name).filter(|kept| kept.subject == subject).map_or(0, |kept| kept.failures);
        let shortened = 1.0 - chance.clamp(0.0, 1.0) / 4.0;
        let costly = self.by_node.values().filter(|kept| kept.presence != Presence::Exists(())).count();
        let longest = LONGEST.max(SHARE.saturating_mul(u32::try_from(costly).unwrap_or(u32::MAX)));
        let (failures, pause) = match presence {
            // It comes from what the provider sees anyway.
            Presence::Exists(()) => (0, Duration::ZERO),
            Presence::Absent(_) => (0, longest.mul_f64(shortened)),
            Presence::Unknown(unknown) => {
                (before.saturating_add(1), pause(unknown, before, longest).mul_f64(shortened))
            }
        };
        self.by_node.insert(name.to_owned(), Kept { subject, presence: presence.clone(), due: at + pause, failures });
    }

    /// The instance changed: its answer does not count any more.
    pub fn forget(&mut self, name: &str) {
        self.by_node.remove(name);
        self.asking.remove(name);
    }

    /// Any instance may have changed.
    pub fn forget_all(&mut self) {
        self.by_node.clear();
        self.asking.clear();
    }
}

fn pause(unknown: &Unknown, failures: u32, longest: Duration) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.min(16));
    unknown.retry_after.unwrap_or(doubled).clamp(FIRST_PAUSE, longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::{AbsenceProof, Reason};

    fn keep(answers: &mut Answers, presence: &Presence, at: Instant, chance: f64) {
        answers.ask("n");
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
            answers.ask(&name);
            answers.keep(&name, subject(), &Presence::Absent(AbsenceProof::new("gone", [])), start, 0.0);
        }
        let kept_at = |seconds| answers.kept("n999", &subject(), start + Duration::from_secs(seconds)).is_some();
        assert!(kept_at(998) && !kept_at(1_000));
        assert!(answers.kept("n0", &subject(), start + Duration::from_secs(60)).is_none(), "alone it was a minute");
    }

    #[test]
    fn answers_count_for_as_long_as_asking_again_would_cost_more_than_it_tells() {
        let start = Instant::now();
        let unknown = |retry_after| {
            Presence::Unknown(Unknown { retry_after, ..Unknown::new(Reason::VCenterUnavailable, "down") })
        };
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
        answers.ask("n");
        answers.forget("n");
        answers.keep("n", subject(), &gone, start, 0.0);
        assert_eq!(answers.kept("n", &subject(), start), None, "something happened while it was asked");
    }
}
