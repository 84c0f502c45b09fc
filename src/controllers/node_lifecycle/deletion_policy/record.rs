//! Pure: the state of one Node, with its facts and the provider's last answer about its VM.
//!
//! An answer is about the Node at the time of the query. A change of the UID, the provider ID, the condition `Ready` or
//! [`Facts::may_have_absent_vm`] clears the answer. After an event of the VM, the provider is queried again, and the
//! previous answer counts until the new answer arrives.

use std::fmt;
use std::time::{Duration, Instant};

use super::{Counts, Facts, HoldReason};
use crate::base::go_duration::spelled;
use crate::cloud::{Presence, Reason};
use crate::controllers::node_lifecycle::retries::CallBackoff;

#[derive(Debug)]
pub(super) struct NodeRecord {
    pub(super) facts: Facts,
    /// The provider's last answer about the Node's current state.
    pub(super) answer: Option<Box<LastAnswer>>,
    /// Start of the query in flight. An event during the query clears this field, because the answer may be outdated.
    pub(super) asking: Option<Instant>,
    /// Number of consecutive unknown answers.
    pub(super) failures: u32,
    /// Reason of the last unknown answer. An unknown answer with a transient reason does not replace this reason.
    pub(super) unknown_reason: Option<Reason>,
    /// Whether a dry run has reported the deletion of the Node. The Node then counts as deleted.
    pub(super) is_dry_run_reported: bool,
    /// Backoff of a deletion that the API server refused.
    pub(super) retry: CallBackoff,
    /// The last decision about the deletion of the Node in its current state.
    pub(super) last_decision: Option<Box<DeletionDecision>>,
}

/// The last decision about the deletion of a Node, with the inputs that are not in `NodeRecord`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletionDecision {
    /// Time of the decision.
    pub at: Instant,
    /// Time since which the VM is absent.
    pub since: Instant,
    /// The counts before the decision.
    pub counts: Counts,
    /// Whether a user has allowed the deletion, which overrides grace period, limit and mass pause.
    pub by_hand: bool,
    /// The numbers of lost and of all control plane Nodes; `None` if the Node is not one of them.
    pub control_plane: Option<(usize, usize)>,
    /// The reason not to delete the Node at this time; `None` if the deletion was permitted.
    pub hold: Option<HoldReason>,
}

impl fmt::Display for DeletionDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, since, counts, by_hand, control_plane, hold } = self;
        let result = hold.as_ref().map_or("permitted", |hold| hold.reason().as_str());
        let absent_for = Duration::from_secs(at.saturating_duration_since(*since).as_secs());
        write!(f, "{result}, VM absent for {}", spelled(absent_for))?;
        if *by_hand {
            write!(f, ", allowed by annotation")?;
        }
        let Counts { allowance, is_mass_held, absent, nodes } = counts;
        write!(f, ", allowance {allowance}, VMs of {absent} of {nodes} Nodes absent")?;
        if *is_mass_held {
            write!(f, ", mass hold")?;
        }
        if let Some((lost, all)) = control_plane {
            write!(f, ", {lost} of {all} control plane Nodes lost")?;
        }
        Ok(())
    }
}

/// The provider's last answer about the VM of a Node.
#[derive(Clone, Debug, PartialEq)]
pub struct LastAnswer {
    /// The answer.
    pub presence: Presence,
    /// Time of the answer. For an absent VM, the time of the first of the consecutive absent answers.
    pub since: Instant,
    /// Start of the query for this answer.
    pub requested_at: Instant,
    /// End of the validity; `None` if the provider must be queried again.
    pub due: Option<Instant>,
}

impl LastAnswer {
    fn is_absent(&self) -> bool {
        matches!(self.presence, Presence::Absent(_))
    }
}

impl NodeRecord {
    pub(super) fn new(facts: Facts) -> Self {
        Self {
            facts,
            answer: None,
            asking: None,
            failures: 0,
            unknown_reason: None,
            is_dry_run_reported: false,
            retry: CallBackoff::default(),
            last_decision: None,
        }
    }

    pub(super) fn update(&mut self, facts: Facts) {
        if !self.facts.is_same_node(&facts) {
            *self = Self::new(facts);
        } else if !self.facts.is_same_subject(&facts) {
            // The failures stay, because a report of the kubelet does not show that the provider can answer again.
            *self = Self { failures: self.failures, unknown_reason: self.unknown_reason, ..Self::new(facts) };
        } else {
            // A change of the annotation that allows the deletion keeps the answer, because decisions about other Nodes
            // count this Node.
            let has_permission_changed = self.facts.is_allowed_by_hand != facts.is_allowed_by_hand;
            self.facts = facts;
            if has_permission_changed {
                self.expire();
            }
        }
    }

    /// Requires a new query and restarts the pauses. Keeps `unknown_reason`, whose end also concerns other Nodes.
    pub(super) fn expire(&mut self) {
        (self.asking, self.failures) = (None, 0);
        if let Some(answer) = &mut self.answer {
            answer.due = None;
        }
    }

    /// Replaces the last answer. The time of the first absent answer stays only if the VM is absent in both answers.
    pub(super) fn set_answer(&mut self, answer: Option<LastAnswer>) {
        let since = self.answer.as_ref().filter(|last| last.is_absent()).map(|last| last.since);
        self.answer = answer.map(|answer| match since {
            Some(since) if answer.is_absent() => Box::new(LastAnswer { since, ..answer }),
            _ => Box::new(answer),
        });
        if self.absent_since().is_none() {
            (self.is_dry_run_reported, self.retry) = (false, CallBackoff::default());
            self.last_decision = None;
        }
    }

    /// Handles an answer that a change during the query outdated: clears the last answer, unless both report absence.
    pub(super) fn record_outdated_answer(&mut self, presence: &Presence) {
        let is_absent = matches!(presence, Presence::Absent(_));
        if !self.answer.as_ref().is_some_and(|last| is_absent && last.is_absent()) {
            self.set_answer(None);
        }
    }

    /// Returns the time since which the Node has been `Ready=Unknown` with an absent VM.
    pub(super) fn absent_since(&self) -> Option<Instant> {
        let answer = self.answer.as_ref().filter(|answer| answer.is_absent() && self.facts.may_have_absent_vm)?;
        Some(answer.since)
    }

    /// Whether another query about the VM may cost the cloud a search.
    pub(super) fn is_costly(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.due.is_some())
    }

    /// Returns the time at which the provider reported the VM as existing, or `Some(None)` without an answer. Returns
    /// `None` if the last answer was absent or unknown, or if `may_have_absent_vm` is false.
    pub(super) fn unanswered_since(&self) -> Option<Option<Instant>> {
        let existed = match &self.answer {
            None => None,
            Some(answer) if answer.presence == Presence::Exists(()) => Some(answer.since),
            Some(_) => return None,
        };
        self.facts.may_have_absent_vm.then_some(existed)
    }
}
