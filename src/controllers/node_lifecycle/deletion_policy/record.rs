//! Pure: state of one Node: its facts, the provider's last answer about its VM, and whether that answer is still valid.
//!
//! An answer is about the Node at the time of the query. If UID, provider ID or status of Ready change, even for a
//! moment that this process did not see, the answer is dropped. After an event of the VM the provider is asked again,
//! and the previous answer counts until the new one arrives.

use std::time::Instant;

use super::Facts;
use crate::cloud::{Presence, Reason};
use crate::controllers::node_lifecycle::retries::CallBackoff;

#[derive(Debug)]
pub(super) struct NodeRecord {
    pub(super) facts: Facts,
    /// The provider's last answer about the Node's current state.
    pub(super) answer: Option<Box<LastAnswer>>,
    /// Start of the query in flight. An event during the query clears it, because the answer may be outdated.
    pub(super) asking: Option<Instant>,
    /// Number of unknown answers in a row.
    pub(super) failures: u32,
    /// The reason of the last answer, if it was unknown. Kept while the next answer is pending.
    pub(super) unknown_reason: Option<Reason>,
    /// A dry run has reported the Node's deletion: it counts as deleted.
    pub(super) is_dry_run_reported: bool,
    /// Backoff of a deletion that the API server refused.
    pub(super) retry: CallBackoff,
}

#[derive(Debug)]
pub(super) struct LastAnswer {
    pub(super) presence: Presence,
    /// When it was received; for an absent VM, when the first such answer was received.
    pub(super) since: Instant,
    /// When the query for this answer began.
    pub(super) requested_at: Instant,
    /// End of its validity; `None` if the provider must be asked again.
    pub(super) due: Option<Instant>,
}

impl LastAnswer {
    fn is_absent(&self) -> bool {
        matches!(self.presence, Presence::Absent(_))
    }
}

impl NodeRecord {
    pub(super) fn new(facts: Facts) -> Self {
        let (is_told, retry) = (false, CallBackoff::default());
        Self {
            facts,
            answer: None,
            asking: None,
            failures: 0,
            unknown_reason: None,
            is_dry_run_reported: is_told,
            retry,
        }
    }

    /// Records the current facts of the Node.
    pub(super) fn update(&mut self, facts: Facts) {
        if !self.facts.is_same_node(&facts) {
            *self = Self::new(facts);
        } else if !self.facts.is_same_subject(&facts) {
            // The failures are kept: a report of the kubelet does not show that the provider can answer again.
            *self = Self { failures: self.failures, unknown_reason: self.unknown_reason, ..Self::new(facts) };
        } else {
            // A change of the annotation that allows the deletion does not end the Node's suspicion, because decisions
            // about other Nodes count suspected ones.
            let has_permission_changed = self.facts.is_allowed_by_hand != facts.is_allowed_by_hand;
            self.facts = facts;
            if has_permission_changed {
                self.expire();
            }
        }
    }

    /// Makes the provider be asked again and restarts the pauses after unknown answers. Keeps the reason of the last
    /// unknown answer, because the end of that reason also concerns other Nodes.
    pub(super) fn expire(&mut self) {
        (self.asking, self.failures) = (None, 0);
        if let Some(answer) = &mut self.answer {
            answer.due = None;
        }
    }

    /// Replaces the last answer; with `None`, the provider must be asked. The time of the first absent answer is kept
    /// only if both answers say that the VM is absent.
    pub(super) fn set_answer(&mut self, answer: Option<LastAnswer>) {
        let since = self.answer.as_ref().filter(|last| last.is_absent()).map(|last| last.since);
        self.answer = answer.map(|answer| match since {
            Some(since) if answer.is_absent() => Box::new(LastAnswer { since, ..answer }),
            _ => Box::new(answer),
        });
        if self.absent_since().is_none() {
            (self.is_dry_run_reported, self.retry) = (false, CallBackoff::default());
        }
    }

    /// Handles an answer about a Node or VM that changed during the query. The answer is not recorded; it only clears
    /// the last answer, unless both say that the VM is absent.
    pub(super) fn record_outdated_answer(&mut self, presence: &Presence) {
        let is_absent = matches!(presence, Presence::Absent(_));
        if !self.answer.as_ref().is_some_and(|last| is_absent && last.is_absent()) {
            self.set_answer(None);
        }
    }

    /// Since when the Node is Ready=Unknown and its VM absent.
    pub(super) fn absent_since(&self) -> Option<Instant> {
        let answer = self.answer.as_ref().filter(|answer| answer.is_absent() && self.facts.may_have_absent_vm)?;
        Some(answer.since)
    }

    /// Whether another query about the VM may cost the cloud a search.
    pub(super) fn is_costly(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.due.is_some())
    }

    /// For a Node that may be suspected, without an absent or unknown answer: when the provider reported its VM as
    /// existing; `Some(None)` if it was not asked.
    pub(super) fn unanswered_since(&self) -> Option<Option<Instant>> {
        let existed = match &self.answer {
            None => None,
            Some(answer) if answer.presence == Presence::Exists(()) => Some(answer.since),
            Some(_) => return None,
        };
        self.facts.may_have_absent_vm.then_some(existed)
    }
}
