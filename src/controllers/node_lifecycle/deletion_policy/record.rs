//! Pure: what is known of one Node, what the provider said last of its VM, and whether that is still valid.
//!
//! An answer is about the Node as it was when the provider was asked: with another UID, provider ID or status of Ready,
//! even a short one that this process did not see, it is forgotten. After an event of the VM the provider is asked
//! again, and the answer counts until then.

use std::time::Instant;

use super::Facts;
use crate::cloud::{Presence, Reason};
use crate::controllers::node_lifecycle::retries::CallBackoff;

/// See the file's header.
#[derive(Debug)]
pub(super) struct NodeRecord {
    pub(super) facts: Facts,
    /// The provider's last answer about the Node as it is, if there is one.
    pub(super) answer: Option<Box<LastAnswer>>,
    /// Being asked about, since then. What happens meanwhile makes the answer late.
    pub(super) asking: Option<Instant>,
    /// Unknown answers in a row.
    pub(super) failures: u32,
    /// Why the last answer was unknown, if it was. Kept while the next answer is awaited.
    pub(super) trouble: Option<Reason>,
    /// `--node-deletion=dry-run` has said it. It counts as deleted.
    pub(super) is_told: bool,
    /// Of a deletion that the API server refused.
    pub(super) retry: CallBackoff,
}

/// What the provider said last.
#[derive(Debug)]
pub(super) struct LastAnswer {
    pub(super) presence: Presence,
    /// When it was received; of a VM that is gone, when the provider said so first.
    pub(super) since: Instant,
    /// When it was asked for.
    pub(super) asked: Instant,
    /// The answer is used until then; `None` if the provider must be asked again.
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
        Self { facts, answer: None, asking: None, failures: 0, trouble: None, is_told, retry }
    }

    /// The Node is like this now.
    pub(super) fn note(&mut self, facts: Facts) {
        if !self.facts.is_same_node(&facts) {
            *self = Self::new(facts);
        } else if !self.facts.is_same_subject(&facts) {
            // That the kubelet reported does not show that the provider can answer again.
            *self = Self { failures: self.failures, trouble: self.trouble, ..Self::new(facts) };
        } else {
            // A change of the annotation that allows the deletion does not end a suspicion: it counts for other Nodes.
            let has_permission_changed = self.facts.is_allowed_by_hand != facts.is_allowed_by_hand;
            self.facts = facts;
            if has_permission_changed {
                self.expire();
            }
        }
    }

    /// Something happened: the provider is asked again, and the pauses after unknown answers begin again. The reason of
    /// the last one is kept: its end also concerns other Nodes.
    pub(super) fn expire(&mut self) {
        (self.asking, self.failures) = (None, 0);
        if let Some(answer) = &mut self.answer {
            answer.due = None;
        }
    }

    /// The provider's answer takes the place of the last one; without one the provider is to be asked. A suspicion goes on
    /// only while answers say the same.
    pub(super) fn set_answer(&mut self, answer: Option<LastAnswer>) {
        let since = self.answer.as_ref().filter(|last| last.is_absent()).map(|last| last.since);
        self.answer = answer.map(|answer| match since {
            Some(since) if answer.is_absent() => Box::new(LastAnswer { since, ..answer }),
            _ => Box::new(answer),
        });
        if self.suspected_since().is_none() {
            (self.is_told, self.retry) = (false, CallBackoff::default());
        }
    }

    /// An answer about a Node or VM that changed meanwhile is not kept. It ends a suspicion, unless it says absent too.
    pub(super) fn note_outdated_answer(&mut self, presence: &Presence) {
        let is_absent = matches!(presence, Presence::Absent(_));
        if !self.answer.as_ref().is_some_and(|last| is_absent && last.is_absent()) {
            self.set_answer(None);
        }
    }

    /// Since when the node is both Ready=Unknown and proved absent.
    pub(super) fn suspected_since(&self) -> Option<Instant> {
        let answer = self.answer.as_ref().filter(|answer| answer.is_absent() && self.facts.may_be_suspected)?;
        Some(answer.since)
    }

    /// Whether it may cost a search to ask again.
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
        self.facts.may_be_suspected.then_some(existed)
    }
}
