//! Reads what this term knows about the deletion of one Node, for the command `explain`. Queries nothing, and changes
//! nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;

use super::{NodeLifecycleReconciler, now};
use crate::cloud::Reason;
use crate::cloud::node;
use crate::controllers::BlockedObject;
use crate::controllers::node_lifecycle::DeletionMode;
use crate::controllers::node_lifecycle::candidacy::{self, Candidacy, Exemption};
use crate::controllers::node_lifecycle::deletion_policy::{DeletionChecks, DeletionRule, Facts, LastAnswer};
use crate::controllers::node_lifecycle::recent_deletions::NodeDeletion;

/// The deletion of the Nodes with one name. At least one of the fields is not `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct DeletionFacts {
    /// The existing Node.
    pub node: Option<NodeDeletionFacts>,
    /// The last deletion of a Node of this name by this process, also in an earlier term.
    pub deletion: Option<NodeDeletion>,
}

/// The inputs of the decision about one Node, and what follows from them at this time.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeDeletionFacts {
    /// `--node-deletion`.
    pub mode: DeletionMode,
    /// The properties of the Node.
    pub facts: Facts,
    /// Time for which the Node has been `Ready=Unknown`, as this leader has observed it.
    pub unknown_for: Duration,
    /// The reason why the Node is not deleted, whatever becomes of its VM.
    pub exemption: Option<Exemption>,
    /// The last answer about the VM of the Node in its current state.
    pub answer: Option<LastAnswer>,
    /// The consequence of the answer. `None` with an exemption, or without an answer.
    pub candidacy: Option<Candidacy>,
    /// The checks of the deletion policy. `None` without a proof that the VM is absent.
    pub checks: Option<DeletionChecks>,
    /// The reason that is reported on the Node, if any. May concern the out-of-service taint.
    pub reported: Option<BlockedObject>,
}

impl NodeDeletionFacts {
    /// Returns the reported reason of a Node about which every rule has passed: the last attempt has failed. `None` if
    /// the reason is older than the current state of the rules.
    pub fn failed_attempt(&self) -> Option<&BlockedObject> {
        let has_passed = self.checks.as_ref().is_some_and(|checks| checks.hold.is_none());
        // A reason of the deletion policy is replaced at the next check, which nothing holds.
        let is_of_rule = |reason: Reason| DeletionRule::ALL.iter().any(|rule| rule.reason() == reason);
        self.reported.as_ref().filter(|reported| has_passed && !is_of_rule(reported.reason))
    }
}

impl NodeLifecycleReconciler {
    /// Returns what this term knows about the deletion of the Node with this name; `None` for an unknown name.
    pub fn explain(&self, name: &str) -> Option<DeletionFacts> {
        let node = self.store.get(name).map(|node| self.explain_node(&node));
        let deletion = self.deletions.find(name);
        (node.is_some() || deletion.is_some()).then_some(DeletionFacts { node, deletion })
    }

    /// Returns the names that [`NodeLifecycleReconciler::explain`] knows, sorted.
    pub fn known_nodes(&self) -> Vec<String> {
        let names: BTreeSet<String> = self.store.keys().into_iter().chain(self.deletions.nodes()).collect();
        names.into_iter().collect()
    }

    pub(super) fn explain_node(&self, node: &Node) -> NodeDeletionFacts {
        let name = node::name(node);
        let facts = self.facts(node);
        let exemption = candidacy::exemption(node, facts.is_own);
        let at = now();
        let pause = self.pauses.pause();
        let mut state = self.state.lock();
        state.policy.observe_pause(pause);
        let unknown_for = state.unreachable.lasting(node, at);
        let answer = state.policy.stored_answer(name, &facts);
        // The checks are about the same state of the Node as the answer.
        let checks = answer.as_ref().and_then(|_| state.policy.checks(name, at));
        drop(state);
        let candidacy = match (&exemption, &answer) {
            (None, Some(answer)) => Some(candidacy::candidacy(node, answer.presence.clone(), self.is_off())),
            (Some(_), _) | (_, None) => None,
        };
        let checks = checks.filter(|_| matches!(candidacy, Some(Candidacy::VmAbsent(_))));
        let reported = self.reasons.get(name);
        NodeDeletionFacts {
            mode: self.settings.deletion.clone(),
            facts,
            unknown_for,
            exemption,
            answer,
            candidacy,
            checks,
            reported,
        }
    }
}
