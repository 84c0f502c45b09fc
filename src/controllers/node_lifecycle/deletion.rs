//! Deletes one Node whose deletion is permitted: reads it live, has its machine's absence proved once more, and deletes
//! exactly what was read.

use k8s_openapi::api::core::v1::Node;

use super::guard::{Permit, Used};
use super::look::{Looks, Outcome, Term, now};
use super::plan;
use super::{Deletion, apply};
use crate::cloud::node::{self, Readiness};
use crate::cloud::{AbsenceProof, Presence};
use crate::controllers::reference;
use crate::kubernetes::client::CallError;
use crate::kubernetes::events::EventType;
use crate::runtime::logging::chain;
use std::time::Duration;

/// The cache needs a moment to show what a live read showed.
const CATCH_UP: Duration = Duration::from_secs(1);

/// What came of it.
enum Attempt {
    /// It is deleted, with this proof.
    Deleted(AbsenceProof),
    /// Somebody else has deleted it.
    Vanished,
    /// It would have been deleted.
    Told(AbsenceProof),
    /// Something is not as it was when it was permitted.
    Changed,
    /// It could not be read.
    Unread(CallError),
    /// The API server refused.
    Refused(CallError),
    /// There was no answer: it may be deleted.
    Unanswered(CallError),
}

impl Looks {
    /// Deletes `node`, which the guard has permitted.
    pub(super) async fn delete(&self, term: &Term, node: &Node, permit: Permit) -> Result<Outcome, CallError> {
        let attempt = self.attempt(term, node, &permit).await;
        let used = match &attempt {
            Attempt::Deleted(_) | Attempt::Unanswered(_) => Used::Yes,
            Attempt::Told(_) => Used::Told,
            Attempt::Vanished | Attempt::Changed | Attempt::Unread(_) => Used::No,
            Attempt::Refused(_) => Used::Refused,
        };
        term.lock().guard.settle(permit, used, now());
        self.conclude_deletion(node, attempt)
    }

    fn conclude_deletion(&self, node: &Node, attempt: Attempt) -> Result<Outcome, CallError> {
        let name = node::name(node);
        match attempt {
            Attempt::Deleted(proof) => {
                self.metrics.deleted();
                tracing::info!(node = name, uid = node.metadata.uid, "node deleted: {proof}");
                Ok(Outcome::default())
            }
            Attempt::Vanished => Ok(Outcome::default()),
            Attempt::Told(proof) => {
                self.metrics.would_delete();
                Ok(Outcome::told(&proof))
            }
            Attempt::Changed => Ok(Outcome::after(CATCH_UP)),
            Attempt::Refused(error) => {
                self.tell_failure(node, &error);
                Ok(Outcome::refused(&error))
            }
            Attempt::Unanswered(error) => {
                if error.is_not_leader() {
                    return Err(error);
                }
                self.tell_failure(node, &error);
                Ok(Outcome::failed(&error))
            }
            Attempt::Unread(error) => Ok(Outcome::failed(&error)),
        }
    }

    async fn attempt(&self, term: &Term, node: &Node, permit: &Permit) -> Attempt {
        let live = match apply::read_live(&self.api, node::name(node)).await {
            Ok(Some(live)) => live,
            Ok(None) => return Attempt::Vanished,
            Err(error) => return Attempt::Unread(error),
        };
        if !is_still(&live, node, permit) {
            return Attempt::Changed;
        }
        let Presence::Absent(proof) = self.ask(term, &live).await else { return Attempt::Changed };
        if !term.lock().guard.is_still_permitted(permit, now()) {
            return Attempt::Changed;
        }
        if self.settings.deletion != Deletion::Enforce {
            return Attempt::Told(proof);
        }
        if permit.is_first() {
            // The words of upstream, before the deletion as there.
            let message =
                format!("Deleting node {} because it does not exist in the cloud provider: {proof}", node::name(node));
            self.recorder.event(&reference(&live), EventType::Normal, "DeletingNode", &message);
        }
        match apply::delete(&self.api, &live).await {
            Ok(()) => Attempt::Deleted(proof),
            Err(error) if error.is_not_found() => Attempt::Vanished,
            Err(error) if error.is_conflict() => Attempt::Changed,
            Err(error) if error.code().is_some() => Attempt::Refused(error),
            Err(error) => Attempt::Unanswered(error),
        }
    }

    fn tell_failure(&self, node: &Node, error: &CallError) {
        self.metrics.failed();
        let message = format!("Deleting node {} failed: {}", node::name(node), chain(error));
        self.recorder.event(&reference(node), EventType::Warning, "DeletingNodeFailed", &message);
        tracing::warn!(node = node::name(node), "{}", chain(error));
    }
}

/// Whether the Node is, live, what the deletion was permitted for.
fn is_still(live: &Node, node: &Node, permit: &Permit) -> bool {
    live.metadata.uid == node.metadata.uid
        && node::provider_id(live) == node::provider_id(node)
        && node::readiness(live) != Readiness::True
        && !node::is_uninitialized(live)
        && (!permit.is_by_hand() || plan::is_allowed_by_hand(live))
}
