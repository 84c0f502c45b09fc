//! The last deletions of Nodes by this process. They outlast the Nodes, and the leadership term.

use std::collections::VecDeque;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::deletion_policy::DeletionDecision;
use crate::cloud::AbsenceProof;

/// Number of deletions that are kept.
const MAX_DELETIONS: usize = 64;

/// The deletion of one Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDeletion {
    /// The name of the Node.
    pub node: String,
    /// The UID of the Node.
    pub uid: String,
    /// The decision that permitted the deletion.
    pub decision: Option<DeletionDecision>,
    /// The proof that the VM is absent, obtained right before the deletion.
    pub proof: AbsenceProof,
    /// Start of the query for the proof.
    pub proof_began: Timestamp,
    /// Whether the API server accepted the deletion: it answered so, or a later read showed that the Node is deleted.
    pub is_confirmed: bool,
}

/// The last deletions, up to `MAX_DELETIONS` and one for each UID. The oldest one is first.
#[derive(Debug, Default)]
pub struct RecentDeletions(Mutex<VecDeque<NodeDeletion>>);

impl RecentDeletions {
    /// Adds a deletion, in place of an earlier one of the same Node. Drops the oldest one if there are too many.
    pub fn record(&self, deletion: NodeDeletion) {
        let mut deletions = self.0.lock();
        deletions.retain(|known| known.uid != deletion.uid);
        deletions.push_back(deletion);
        if deletions.len() > MAX_DELETIONS {
            deletions.pop_front();
        }
    }

    /// Confirms an unconfirmed deletion of the Node with this UID if the Node is deleted, and drops it otherwise.
    pub fn resolve(&self, uid: &str, is_deleted: bool) {
        let mut deletions = self.0.lock();
        deletions.iter_mut().filter(|known| known.uid == uid).for_each(|known| known.is_confirmed |= is_deleted);
        deletions.retain(|known| known.uid != uid || known.is_confirmed);
    }

    /// Returns the last confirmed deletion.
    pub fn last(&self) -> Option<NodeDeletion> {
        self.0.lock().iter().rev().find(|deletion| deletion.is_confirmed).cloned()
    }

    /// Returns the names of the Nodes.
    pub fn nodes(&self) -> Vec<String> {
        self.0.lock().iter().map(|deletion| deletion.node.clone()).collect()
    }

    /// Returns the last deletion of a Node of this name.
    pub fn find(&self, node: &str) -> Option<NodeDeletion> {
        self.0.lock().iter().rev().find(|deletion| deletion.node == node).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deletion(node: &str, uid: usize) -> NodeDeletion {
        NodeDeletion {
            node: node.to_owned(),
            uid: uid.to_string(),
            decision: None,
            proof: AbsenceProof::new("gone", []),
            proof_began: "2026-01-09T07:05:03.000042999Z".parse().unwrap(),
            is_confirmed: uid != 0,
        }
    }

    #[test]
    fn the_last_deletions_are_found_by_the_names_of_their_nodes() {
        let deletions = RecentDeletions::default();
        assert_eq!(deletions.find("a"), None);
        deletions.record(deletion("a", 0));
        assert_eq!(deletions.find("a"), Some(deletion("a", 0)));
        deletions.record(deletion("a", 1));
        assert_eq!(deletions.find("a"), Some(deletion("a", 1)));
        assert_eq!(deletions.nodes(), ["a", "a"]);
        (2..=MAX_DELETIONS).for_each(|uid| deletions.record(deletion("b", uid)));
        assert!(deletions.find("a").is_some(), "this is the oldest one of {MAX_DELETIONS}");
        deletions.record(deletion("b", MAX_DELETIONS + 1));
        assert_eq!(deletions.find("a"), None);
        assert_eq!(deletions.0.lock().len(), MAX_DELETIONS);
    }

    #[test]
    fn a_node_has_one_deletion_which_is_unconfirmed_until_the_node_is_read_again() {
        let confirmed = |deletions: &RecentDeletions| {
            deletions.0.lock().iter().map(|deletion| deletion.is_confirmed).collect::<Vec<_>>()
        };
        for (is_deleted, expected) in [(true, vec![true, true]), (false, vec![true])] {
            let deletions = RecentDeletions::default();
            deletions.record(deletion("other", 1));
            deletions.record(deletion("a", 0));
            deletions.record(deletion("a", 0));
            assert_eq!(confirmed(&deletions), [true, false], "a retry has no further entry");
            deletions.resolve("0", is_deleted);
            assert_eq!(confirmed(&deletions), expected);
            deletions.resolve("1", false);
            assert_eq!(confirmed(&deletions), expected, "the other one is confirmed already");
        }
    }
}
