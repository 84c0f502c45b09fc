//! Pure: the reuse of the provider's last answer about a Node with `Ready=Unknown`, and the time of the next query.
//!
//! A query about a missing VM may cost the cloud a full search, so an answer is reused for a while. The answer becomes
//! invalid earlier if the instance or the Node changes, or if an answer about another Node shows that the reason for
//! unknown answers no longer applies.

use std::time::{Duration, Instant};

use super::node_table::NodeCategory;
use super::record::{LastAnswer, NodeRecord};
use super::{DeletionPolicy, Facts};
use crate::base::backoff::Backoff;
use crate::cloud::{Presence, Reason};

/// Pause after the first unknown answer. The pause doubles with each further unknown answer.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest validity of an answer, unless `SHARE` requires a longer validity. A random part is subtracted to spread the
/// queries.
const LONGEST: Duration = Duration::from_secs(60);
/// Part of the longest validity for each Node whose query may cost a search: the longest validity is at least the sum
/// of these parts. So the queries about these Nodes are limited to about one per second. A deletion never relies on a
/// reused answer.
const SHARE: Duration = Duration::from_secs(1);
/// Shortest interval between two queries about a VM after the reason for unknown answers no longer applies.
const SOON: Duration = Duration::from_secs(5);
/// Part of `SOON` for each Node with the same reason: `SOON` is at least the sum of these parts. So there are at most
/// twenty queries per second.
const SOON_SHARE: Duration = Duration::from_millis(50);

/// The end of a reason for unknown answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReasonEnd {
    /// Time of the last answer that showed that the reason no longer applies.
    shown_until: Instant,
    /// Time at which the validity of the unknown answers with this reason was last shortened.
    shortened: Instant,
}

impl DeletionPolicy {
    /// Returns the last answer about the Node if the answer is still valid, or `None` if the provider must be queried.
    pub fn last_answer(&self, name: &str, facts: &Facts, at: Instant) -> Option<Presence> {
        let record = self.nodes.get(name).filter(|record| record.facts.is_same_subject(facts))?;
        let answer = record.answer.as_ref().filter(|answer| answer.due.is_some_and(|due| at < due))?;
        Some(answer.presence.clone())
    }

    /// Records a query about the Node that begins at `at`.
    pub fn record_query(&mut self, name: &str, facts: &Facts, at: Instant) {
        self.nodes.change(name, |record| record.asking = record.facts.is_same_subject(facts).then_some(at));
    }

    /// Records an answer, received at `at`. `chance` in `0.0..1.0` shortens the validity by up to a quarter.
    pub fn record_answer(&mut self, name: &str, presence: &Presence, at: Instant, chance: f64) {
        let Some(record) = self.nodes.get(name) else { return };
        let Some(asked) = record.asking else {
            self.nodes.change(name, |record| record.record_outdated_answer(presence));
            return self.count_mass(at);
        };
        let longest = LONGEST.max(SHARE.saturating_mul(many(self.nodes.count(NodeCategory::Costly))));
        let backoff = Backoff::doubling(FIRST_PAUSE, longest).shortened_by(0.25);
        let before = record.unknown_reason;
        let mut failures = 0;
        let mut reason = None;
        let due = match presence {
            // Not reused, because the provider answers for an existing VM from its cache, without a search.
            Presence::Exists(()) => None,
            Presence::Absent(_) => Some(at + backoff.jittered(longest, chance)),
            Presence::Unknown(unknown) => {
                failures = record.failures.saturating_add(1);
                reason = if unknown.is_transient { before } else { Some(unknown.reason) };
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
            record.asking = None;
            record.failures = failures;
            record.unknown_reason = reason;
            record.set_answer(Some(answer));
        });
        if let (Some(before), Presence::Exists(()) | Presence::Absent(_)) = (before, presence) {
            self.end(before, at);
        }
        self.count_mass(at);
    }

    /// Handles the end of a reason: other unknown answers with this reason become invalid soon, one after the other.
    fn end(&mut self, reason: Reason, at: Instant) {
        // Many answers show the end of one outage. The validities are shortened at most once per `SOON`.
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

    /// Handles a change of the instance: requires a new query, and restarts the pauses after unknown answers.
    pub fn expire(&mut self, name: &str) {
        self.nodes.change(name, NodeRecord::expire);
    }

    /// Handles a change of all instances, like `expire` for one instance.
    pub fn expire_all(&mut self) {
        self.nodes.change_all(NodeRecord::expire);
    }
}

fn many(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
