//! Pure: when the provider's last answer about a Node with Ready=Unknown is reused, and when the provider is asked
//! again.
//!
//! A query about a VM that is not found may cost the cloud a search everywhere. So an answer stays valid for a while,
//! unless the instance or the Node changes, or an answer about another Node shows that the reason for unknown answers
//! has ended.

use std::time::{Duration, Instant};

use super::node_table::NodeCategory;
use super::record::{LastAnswer, NodeRecord};
use super::{DeletionPolicy, Facts};
use crate::base::backoff::Backoff;
use crate::cloud::{Presence, Reason};

/// Pause after the first unknown answer; it doubles after each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest validity of an answer, unless `SHARE` requires more. A random part is subtracted, so that queries made
/// together are not repeated together.
const LONGEST: Duration = Duration::from_secs(60);
/// Lower bound of the longest validity, for each Node whose query may cost a search: 100 s with 100 such Nodes, so that
/// their queries are limited to one per second. A deletion never relies on a reused answer: it asks again.
const SHARE: Duration = Duration::from_secs(1);
/// Shortest interval between two queries about a VM after the reason for unknown answers has ended.
const SOON: Duration = Duration::from_secs(5);
/// Lower bound of the interval `SOON`, for each Node with the same reason: limits these queries to twenty per second.
const SOON_SHARE: Duration = Duration::from_millis(50);

/// The end of a reason for unknown answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReasonEnd {
    /// When an answer last showed that the reason has ended.
    shown_until: Instant,
    /// When the validity of the unknown answers with that reason was last shortened.
    shortened: Instant,
}

impl DeletionPolicy {
    /// The last answer about the Node while it is valid; `None` if the provider must be asked.
    pub fn last_answer(&self, name: &str, facts: &Facts, at: Instant) -> Option<Presence> {
        let record = self.nodes.get(name).filter(|record| record.facts.is_same_subject(facts))?;
        let answer = record.answer.as_ref().filter(|answer| answer.due.is_some_and(|due| at < due))?;
        Some(answer.presence.clone())
    }

    /// Records a query about the Node that begins at `at`.
    pub fn ask(&mut self, name: &str, facts: &Facts, at: Instant) {
        self.nodes.change(name, |record| record.asking = record.facts.is_same_subject(facts).then_some(at));
    }

    /// Records the provider's answer, received at `at`. It is reused unless the Node or its VM changed since the query.
    /// `chance` in `0.0..1.0` shortens its validity by up to a quarter.
    pub fn record_answer(&mut self, name: &str, presence: &Presence, at: Instant, chance: f64) {
        let Some(record) = self.nodes.get(name) else { return };
        let Some(asked) = record.asking else {
            self.nodes.change(name, |record| record.record_outdated_answer(presence));
            return self.count_mass(at);
        };
        let longest = LONGEST.max(SHARE.saturating_mul(many(self.nodes.count(NodeCategory::Costly))));
        let backoff = Backoff::doubling(FIRST_PAUSE, longest).shortened_by(0.25);
        let (before, mut failures, mut reason) = (record.unknown_reason, 0, None);
        let due = match presence {
            // Not reused: the provider answers for an existing VM from its cache, without a search.
            Presence::Exists(()) => None,
            Presence::Absent(_) => Some(at + backoff.jittered(longest, chance)),
            Presence::Unknown(unknown) => {
                failures = record.failures.saturating_add(1);
                reason = if unknown.is_passing { before } else { Some(unknown.reason) };
                let pause = unknown.retry_after.unwrap_or_else(|| backoff.pause(failures, 0.0));
                let due = at + backoff.jittered(pause.clamp(FIRST_PAUSE, longest), chance);
                // The query began before an answer about another VM showed the end of the same reason.
                let is_old =
                    reason.and_then(|trouble| self.ended.get(&trouble)).is_some_and(|ended| ended.shown_until >= asked);
                Some(if is_old { due.min(at + SOON) } else { due })
            }
        };
        let answer = LastAnswer { presence: presence.clone(), since: at, requested_at: asked, due };
        self.nodes.change(name, |record| {
            (record.asking, record.failures, record.unknown_reason) = (None, failures, reason);
            record.set_answer(Some(answer));
        });
        if let (Some(before), Presence::Exists(()) | Presence::Absent(_)) = (before, presence) {
            self.end(before, at);
        }
        self.count_mass(at);
    }

    /// Records that a reason for unknown answers has ended, as the answer about one VM shows. Unknown answers about
    /// other VMs for the same reason become invalid soon, one after the other.
    fn end(&mut self, reason: Reason, at: Instant) {
        // After an outage every answer shows its end. Answers since the last shortening are recent enough.
        let recent = |ended: &&mut ReasonEnd| at.saturating_duration_since(ended.shortened) < SOON;
        if let Some(ended) = self.ended.get_mut(&reason).filter(recent) {
            ended.shown_until = at;
            return;
        }
        self.ended.insert(reason, ReasonEnd { shown_until: at, shortened: at });
        let is_alike = |record: &NodeRecord| record.unknown_reason == Some(reason);
        let alike = self.nodes.all().filter(|record| is_alike(record)).count();
        let least = SOON.max(SOON_SHARE.saturating_mul(many(alike)));
        let mut turn = at;
        self.nodes.change_all(|record| {
            let is_alike = is_alike(record);
            if let Some(answer) = record.answer.as_mut().filter(|_| is_alike) {
                answer.due = answer.due.map(|due| due.min(turn.max(answer.requested_at + least)));
                turn += SOON_SHARE;
            }
        });
    }

    /// Handles a change of the instance: the last answer is not reused, and pauses after unknown answers start over.
    pub fn expire(&mut self, name: &str) {
        self.nodes.change(name, NodeRecord::expire);
    }

    /// Handles changes of all instances, as `expire` does for one.
    pub fn expire_all(&mut self) {
        self.nodes.change_all(NodeRecord::expire);
    }
}

fn many(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
