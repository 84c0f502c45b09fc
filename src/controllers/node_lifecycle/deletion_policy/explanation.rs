//! Pure: the checks of all rules about one Node, for users. An explanation changes no state, and is no permission.

use std::time::{Duration, Instant};

use super::record::{LastAnswer, NodeRecord};
use super::rule::Suspect;
use super::{Bounds, DeletionDecision, DeletionPolicy, DeletionRule, Facts, HoldReason};

/// The checks of all rules about a Node with an absent VM, at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletionChecks {
    /// The first rule that holds the deletion, with the reason. The rules before it have passed, and the rules after it
    /// were not checked. `None` if all rules have passed.
    pub hold: Option<(DeletionRule, HoldReason)>,
    /// The inputs of the checks. The policy keeps the same inputs with each of its decisions.
    pub inputs: DeletionDecision,
    /// The last decision of the policy about the current state of the Node.
    pub last_decision: Option<DeletionDecision>,
    /// The end of the grace period.
    pub grace_until: Instant,
    /// The end of the pause because many VMs are absent, if deletions pause.
    pub mass_hold_until: Option<Instant>,
    /// The limit: maximum number of deletions within the window.
    pub capacity: usize,
    /// Length of the window.
    pub window: Duration,
    /// The end of the pause after a refusal of the API server, if the pause has not ended.
    pub refused_until: Option<Instant>,
    /// Time of the next deletion that the limit allows; `None` if the limit is zero.
    pub next_charge: Option<Instant>,
}

impl DeletionPolicy {
    /// Returns the checks that [`DeletionPolicy::verdict`] would make at `at`; `None` without a proof that the VM of
    /// the Node is absent.
    pub fn checks(&self, name: &str, at: Instant) -> Option<DeletionChecks> {
        let known = self.nodes.get(name)?;
        let suspect = Suspect::of(known)?;
        let hold = self.first_hold(&DeletionRule::ALL, &suspect, at);
        // A deletion that is under way must not be reported as held because of its own charge.
        let hold = hold.filter(|(rule, _)| *rule != DeletionRule::Limit || !self.is_charged(known));
        let inputs = self.inputs(known, at)?;
        let bounds @ Bounds { capacity, window } = self.bounds();
        Some(DeletionChecks {
            inputs: DeletionDecision { hold: hold.as_ref().map(|(_, hold)| hold.clone()), ..inputs },
            hold,
            last_decision: known.last_decision.as_deref().cloned(),
            grace_until: self.grace_end(suspect.since),
            mass_hold_until: self.mass_hold.as_ref().map(|mass| mass.until).filter(|until| at < *until),
            refused_until: known.retry.not_before(at),
            capacity,
            window,
            next_charge: self.allowance.next(bounds, at),
        })
    }

    /// Whether the limit already counts the deletion of this Node.
    fn is_charged(&self, known: &NodeRecord) -> bool {
        self.recently_deleted.iter().any(|gone| gone.uid == known.facts.uid)
    }

    /// Returns the provider's last answer about the Node in the state of `facts`. The answer may be invalid by now.
    pub fn stored_answer(&self, name: &str, facts: &Facts) -> Option<LastAnswer> {
        let record = self.nodes.get(name).filter(|record| record.facts.is_same_subject(facts))?;
        record.answer.as_deref().cloned()
    }
}
