//! Pure: when the provider's last answer about a node with Ready=Unknown is used again, and when the provider is asked.
//!
//! To ask about a VM that is not found may cost the cloud a search everywhere. So an answer is valid for a while,
//! unless something happens: an event of the instance, a change of what the answer was about, or the end of what kept the
//! provider from saying anything, as the answer about another node shows.

use std::time::{Duration, Instant};

use super::node_table::NodeCategory;
use super::record::{LastAnswer, NodeRecord};
use super::{DeletionPolicy, Facts};
use crate::base::backoff::Backoff;
use crate::cloud::{Presence, Reason};

/// After an unknown answer the provider is asked again after this time, then twice this time, and so on.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// No answer is kept for longer, unless there are many. By how much it is shorter is left to chance, so that nodes which
/// were asked about together are not asked about together again.
const LONGEST: Duration = Duration::from_secs(60);
/// What each answer that may cost a search adds to the time of all, so that many of them cost one question a second. A
/// deletion relies on none of them: it asks again.
const SHARE: Duration = Duration::from_secs(1);
/// The reason for unknown answers has ended: the provider is asked about the others again, but not so soon after it was
/// asked about the same one.
const SOON: Duration = Duration::from_secs(5);
/// What each of the others adds to that, so that many of them cost twenty questions a second.
const SOON_SHARE: Duration = Duration::from_millis(50);

/// When a reason for unknown answers ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReasonEnd {
    /// When an answer showed it last.
    shown: Instant,
    /// When the answers about others were last gone through for it.
    shortened: Instant,
}

impl DeletionPolicy {
    /// The last answer about the Node, while it is valid; without one the provider is to be asked.
    pub fn last_answer(&self, name: &str, facts: &Facts, at: Instant) -> Option<Presence> {
        let record = self.nodes.get(name).filter(|record| record.facts.is_same_subject(facts))?;
        let answer = record.answer.as_ref().filter(|answer| answer.due.is_some_and(|due| at < due))?;
        Some(answer.presence.clone())
    }

    /// The provider is being asked about the Node from `at` on.
    pub fn ask(&mut self, name: &str, facts: &Facts, at: Instant) {
        self.nodes.change(name, |record| record.asking = record.facts.is_same_subject(facts).then_some(at));
    }

    /// The provider's answer to what was asked, received at `at`. It is used unless the Node or its VM changed since. `chance` in
    /// `0.0..1.0` shortens the time for which it is used again by up to a quarter.
    pub fn answered(&mut self, name: &str, presence: &Presence, at: Instant, chance: f64) {
        let Some(record) = self.nodes.get(name) else { return };
        let Some(asked) = record.asking else {
            self.nodes.change(name, |record| record.note_outdated_answer(presence));
            return self.count_mass(at);
        };
        let longest = LONGEST.max(SHARE.saturating_mul(many(self.nodes.count(NodeCategory::Costly))));
        let backoff = Backoff::doubling(FIRST_PAUSE, longest).shortened_by(0.25);
        let (before, mut failures, mut trouble) = (record.trouble, 0, None);
        let due = match presence {
            // It comes from what the provider sees anyway.
            Presence::Exists(()) => None,
            Presence::Absent(_) => Some(at + backoff.jittered(longest, chance)),
            Presence::Unknown(unknown) => {
                failures = record.failures.saturating_add(1);
                trouble = if unknown.is_passing { before } else { Some(unknown.reason) };
                let pause = unknown.retry_after.unwrap_or_else(|| backoff.pause(failures, 0.0));
                let due = at + backoff.jittered(pause.clamp(FIRST_PAUSE, longest), chance);
                // The provider was asked before that reason ended.
                let is_old =
                    trouble.and_then(|trouble| self.ended.get(&trouble)).is_some_and(|ended| ended.shown >= asked);
                Some(if is_old { due.min(at + SOON) } else { due })
            }
        };
        let answer = LastAnswer { presence: presence.clone(), since: at, asked, due };
        self.nodes.change(name, |record| {
            (record.asking, record.failures, record.trouble) = (None, failures, trouble);
            record.set_answer(Some(answer));
        });
        if let (Some(before), Presence::Exists(()) | Presence::Absent(_)) = (before, presence) {
            self.end(before, at);
        }
        self.count_mass(at);
    }

    /// The provider gave an answer about a VM whose last answer was unknown for this reason. Unknown answers about
    /// others for the same reason are not used for long: one after the other they become invalid.
    fn end(&mut self, trouble: Reason, at: Instant) {
        // After an outage the answer about every Node shows it. Answers since the last time are recent.
        let recent = |ended: &&mut ReasonEnd| at.saturating_duration_since(ended.shortened) < SOON;
        if let Some(ended) = self.ended.get_mut(&trouble).filter(recent) {
            ended.shown = at;
            return;
        }
        self.ended.insert(trouble, ReasonEnd { shown: at, shortened: at });
        let is_alike = |record: &NodeRecord| record.trouble == Some(trouble);
        let alike = self.nodes.all().filter(|record| is_alike(record)).count();
        let least = SOON.max(SOON_SHARE.saturating_mul(many(alike)));
        let mut turn = at;
        self.nodes.change_all(|record| {
            let is_alike = is_alike(record);
            if let Some(answer) = record.answer.as_mut().filter(|_| is_alike) {
                answer.due = answer.due.map(|due| due.min(turn.max(answer.asked + least)));
                turn += SOON_SHARE;
            }
        });
    }

    /// The instance changed: its last answer is not used again, and the pauses after unknown answers begin again.
    pub fn expire(&mut self, name: &str) {
        self.nodes.change(name, NodeRecord::expire);
    }

    /// Any instance may have changed.
    pub fn expire_all(&mut self) {
        self.nodes.change_all(NodeRecord::expire);
    }
}

fn many(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
