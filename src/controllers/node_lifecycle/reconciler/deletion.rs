//! Deletes one Node whose deletion is permitted. The deletion reads the Node live, proves again that the VM is absent,
//! reads live whether an operator has paused deletions, and deletes exactly the version that was read.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use super::{LifecycleOutcome, NodeLifecycleReconciler, now};
use crate::base::error_chain::chain;
use crate::cloud::node;
use crate::cloud::{AbsenceProof, Presence};
use crate::controllers::decisions::{DELETED, DELETED_ELSEWHERE, DecisionRecorder, PERMITTED, UNANSWERED};
use crate::controllers::node_lifecycle::deletion_pause::DeletionPause;
use crate::controllers::node_lifecycle::deletion_policy::{DeletionPermit, Facts, HoldReason, PermitOutcome};
use crate::controllers::node_lifecycle::pause_monitor::PauseMonitor;
use crate::controllers::node_lifecycle::plan;
use crate::controllers::node_lifecycle::recent_deletions::{NodeDeletion, RecentDeletions};
use crate::controllers::node_lifecycle::{DeletionMode, apply};
use crate::controllers::{read_live, record_event};
use crate::kubernetes::call::CallError;
use crate::kubernetes::events::EventType;

/// Pause in which the cache can catch up with a live read.
const CATCH_UP: Duration = Duration::from_secs(1);

enum DeletionResult {
    /// The Node was deleted.
    Deleted(Box<NodeDeletion>),
    /// Another client has deleted the Node.
    Vanished,
    /// Dry run: the Node would have been deleted.
    Told(AbsenceProof),
    /// The Node or its VM has changed since the permit.
    Changed,
    /// A live read failed: that of the Node, or that of the pause.
    Unread(CallError),
    Refused(CallError),
    /// The API server did not answer, or failed and a live read failed, too. The Node may have been deleted.
    Unanswered(CallError),
}

impl NodeLifecycleReconciler {
    /// Deletes `node`, whose deletion the policy has permitted.
    pub(super) async fn delete(&self, node: &Node, permit: DeletionPermit) -> Result<LifecycleOutcome, CallError> {
        let attempt = self.attempt(node, &permit).await;
        let used = match &attempt {
            DeletionResult::Deleted(_) | DeletionResult::Unanswered(_) => PermitOutcome::Deleted,
            DeletionResult::Told(_) => PermitOutcome::DryRun,
            DeletionResult::Vanished | DeletionResult::Changed | DeletionResult::Unread(_) => PermitOutcome::Unused,
            DeletionResult::Refused(_) => PermitOutcome::Rejected,
        };
        self.state.lock().policy.settle(permit, used, now());
        self.conclude_deletion(node, attempt)
    }

    fn conclude_deletion(&self, node: &Node, attempt: DeletionResult) -> Result<LifecycleOutcome, CallError> {
        let name = node::name(node);
        match attempt {
            DeletionResult::Deleted(deletion) => {
                self.metrics.deletions.inc();
                let NodeDeletion { uid, proof, proof_began, .. } = &*deletion;
                let proof_began = rfc3339(*proof_began);
                tracing::info!(node = name, uid, proof_began, "node deleted: {proof}");
                self.pauses.add_deletion(&deletion);
                self.decisions.record(name, DELETED, &format!("UID {uid}: {proof}"));
                self.deletions.record(*deletion);
                Ok(LifecycleOutcome::default())
            }
            DeletionResult::Vanished => {
                self.decisions.record(name, DELETED_ELSEWHERE, "another client has deleted the Node");
                Ok(LifecycleOutcome::default())
            }
            DeletionResult::Told(proof) => {
                self.metrics.dry_run_deletions.inc();
                Ok(LifecycleOutcome::by(&HoldReason::DryRun).with(&proof))
            }
            DeletionResult::Changed => Ok(LifecycleOutcome::after(CATCH_UP)),
            DeletionResult::Refused(error) => {
                self.report_failure(node, &error);
                Ok(LifecycleOutcome::refused(&error))
            }
            DeletionResult::Unanswered(error) => {
                if error.is_not_leader() {
                    return Err(error);
                }
                self.report_failure(node, &error);
                Ok(LifecycleOutcome::failed(&error))
            }
            DeletionResult::Unread(error) => Ok(LifecycleOutcome::failed(&error)),
        }
    }

    async fn attempt(&self, node: &Node, permit: &DeletionPermit) -> DeletionResult {
        let read = match read_live(&self.api, node::name(node)).await {
            Ok(read) => read,
            Err(error) => return DeletionResult::Unread(error),
        };
        self.deletions.resolve(node.metadata.uid.as_deref().unwrap_or_default(), is_deleted(node, read.as_ref()));
        let Some(live) = read else { return DeletionResult::Vanished };
        if !is_still(&live, node, permit.by_hand) {
            return DeletionResult::Changed;
        }
        let began = Timestamp::now();
        let Presence::Absent(proof) = self.query_provider(&live).await else { return DeletionResult::Changed };
        // From here to the request there is no other wait.
        let (pause, window) = match self.pauses.read_live().await {
            Ok(read) => read,
            Err(error) => return DeletionResult::Unread(error),
        };
        if !self.is_still_permitted(&live, permit, pause) {
            return DeletionResult::Changed;
        }
        if self.settings.deletion != DeletionMode::Enforce {
            return DeletionResult::Told(proof);
        }
        if permit.is_first {
            // Upstream's text. As in upstream, the Event is recorded before the deletion.
            let message =
                format!("Deleting node {} because it does not exist in the cloud provider: {proof}", node::name(node));
            record_event(&self.recorder, &live, EventType::Normal, "DeletingNode", &message);
        }
        let deletion = Box::new(NodeDeletion {
            node: node::name(&live).to_owned(),
            uid: live.metadata.uid.clone().unwrap_or_default(),
            decision: self.state.lock().policy.last_decision(node::name(&live)).cloned(),
            proof,
            proof_began: began,
            is_confirmed: true,
        });
        if permit.is_first {
            self.decisions.record(&deletion.node, PERMITTED, &permitted(&deletion));
        }
        let mut sent = DeleteRequest {
            recent: &self.deletions,
            pauses: &self.pauses,
            decisions: &self.decisions,
            deletion: deletion.clone(),
            has_outcome: false,
        };
        let attempt = match apply::delete(&self.api, &live, &window).await {
            Ok(()) => DeletionResult::Deleted(deletion),
            Err(error) if error.is_not_found() => DeletionResult::Vanished,
            Err(error) if error.is_conflict() => DeletionResult::Changed,
            Err(error) if error.is_refusal() => DeletionResult::Refused(error),
            Err(error) if error.code().is_some() => {
                let after = read_live(&self.api, node::name(node)).await;
                after_failure(after, &live, deletion, error)
            }
            Err(error) => DeletionResult::Unanswered(error),
        };
        sent.has_outcome = !matches!(attempt, DeletionResult::Unanswered(_));
        attempt
    }

    /// Whether every rule that is checked again still holds, and the proof is valid. `pause` was read live.
    fn is_still_permitted(&self, live: &Node, permit: &DeletionPermit, pause: Option<DeletionPause>) -> bool {
        let facts = self.facts(live);
        // One lock, because another worker may record an earlier reading of the pause.
        let mut state = self.state.lock();
        state.policy.observe_pause(pause);
        // An event of the VM during the query or the read may have outdated the proof.
        state.policy.last_answer(node::name(live), &facts, now()).is_some()
            && state.policy.is_still_permitted(permit, now())
    }

    fn report_failure(&self, node: &Node, error: &CallError) {
        self.metrics.refusals.inc();
        // Upstream's text.
        let message = format!("Failed deleting node {}: {}", node::name(node), chain(error));
        record_event(&self.recorder, node, EventType::Warning, "DeletingNodeFailed", &message);
    }
}

/// A `DELETE` request. The request has no outcome if it times out, or if this process stops or loses leadership. The
/// log, the recent deletions and the Lease then report that the Node may have been deleted.
struct DeleteRequest<'a> {
    recent: &'a RecentDeletions,
    pauses: &'a PauseMonitor,
    decisions: &'a DecisionRecorder,
    deletion: Box<NodeDeletion>,
    has_outcome: bool,
}

impl Drop for DeleteRequest<'_> {
    fn drop(&mut self) {
        if !self.has_outcome {
            let unconfirmed = NodeDeletion { is_confirmed: false, ..*self.deletion.clone() };
            self.pauses.add_deletion(&unconfirmed);
            self.recent.record(unconfirmed);
            let NodeDeletion { node, uid, proof_began, .. } = &*self.deletion;
            let proof_began = rfc3339(*proof_began);
            self.decisions.record(node, UNANSWERED, &format!("the Node with UID {uid} may be deleted"));
            tracing::warn!(
                node,
                uid,
                proof_began,
                "the API server did not answer the deletion; the node may be deleted"
            );
        }
    }
}

/// Returns the decision that permitted the deletion, with the proof.
fn permitted(deletion: &NodeDeletion) -> String {
    let decision = deletion.decision.as_ref().map(|decision| format!("{decision}; ")).unwrap_or_default();
    format!("{decision}{}", deletion.proof)
}

/// Formats the time with microseconds, like the timestamps of the log.
fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Whether the live Node still has the state for which the deletion was permitted. The cache may be stale.
fn is_still(live: &Node, node: &Node, is_by_hand: bool) -> bool {
    let [before, after] = [node, live].map(|node| Facts::of(node, true));
    before.is_same_subject(&after)
        && before.is_control_plane == after.is_control_plane
        && (!is_by_hand || plan::is_allowed_by_hand(live))
}

/// Whether the API server has accepted a deletion of `node`. `live` is the Node of its name as read later.
fn is_deleted(node: &Node, live: Option<&Node>) -> bool {
    live.is_none_or(|live| live.metadata.uid != node.metadata.uid || live.metadata.deletion_timestamp.is_some())
}

/// Returns the result of a failed request to delete `live`. `after` is the Node as read after the request.
fn after_failure(
    after: Result<Option<Node>, CallError>,
    live: &Node,
    deletion: Box<NodeDeletion>,
    error: CallError,
) -> DeletionResult {
    match after {
        Ok(after) if is_deleted(live, after.as_ref()) => DeletionResult::Deleted(deletion),
        Ok(_) => DeletionResult::Refused(error),
        Err(_) => DeletionResult::Unanswered(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::controllers::decisions::{DecisionHistory, SubjectKind};
    use crate::kubernetes::call::CALL_LIMIT;
    use crate::kubernetes::deletion_lease::DeletionLease;
    use crate::kubernetes::events;
    use crate::kubernetes::leadership::Leadership;
    use http::{Method, Request, Response};
    use kube::Client;
    use kube::client::Body;
    use kube::core::Status;
    use serde_json::{Value, json};
    use tokio::sync::mpsc;
    use tower::BoxError;
    use tracing::field::Field;
    use tracing::{Event, Subscriber};
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::{Context, SubscriberExt};

    fn node(change: &Value) -> Node {
        let mut node = json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "1"},
            "spec": {"providerID": "p://1"},
            "status": {"conditions": [
                {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        });
        json_patch(&mut node, change);
        serde_json::from_value(node).unwrap()
    }

    /// Applies `change` to `target`: merges objects, and replaces all other values.
    fn json_patch(target: &mut Value, change: &Value) {
        match (target, change) {
            (Value::Object(target), Value::Object(change)) => {
                for (key, value) in change {
                    json_patch(target.entry(key).or_insert(Value::Null), value);
                }
            }
            (target, change) => *target = change.clone(),
        }
    }

    fn deletion() -> NodeDeletion {
        NodeDeletion {
            node: "n".to_owned(),
            uid: "u".to_owned(),
            decision: None,
            proof: AbsenceProof::new("gone", []),
            proof_began: Timestamp::UNIX_EPOCH,
            is_confirmed: true,
        }
    }

    fn ready(status: &str, since: &str) -> Value {
        json!({"status": {"conditions": [{"type": "Ready", "status": status, "lastTransitionTime": since}]}})
    }

    #[test]
    fn a_live_read_that_shows_anything_new_stops_the_deletion() {
        let began = "2026-01-01T00:00:00Z";
        let control_plane = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
        let initializing = json!({"spec": {"taints": [
            {"key": node::TAINT_UNINITIALIZED, "effect": "NoSchedule"},
        ]}});
        let allowed = json!({"metadata": {"annotations": {plan::ANNOTATION_ALLOW_DELETION: "true"}}});
        let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z"}});
        let cases = [
            ("nothing", json!({}), false, true),
            ("a newer version", json!({"metadata": {"resourceVersion": "2"}}), false, true),
            ("from Unknown to False", ready("False", "2026-01-01T00:05:00Z"), false, false),
            ("another Node of the name", json!({"metadata": {"uid": "v"}}), false, false),
            ("another machine", json!({"spec": {"providerID": "p://2"}}), false, false),
            ("Ready", ready("True", began), false, false),
            ("Ready in between", ready("Unknown", "2026-01-01T00:05:00Z"), false, false),
            ("it waits to be initialized", initializing, false, false),
            ("it joined the control plane", control_plane, false, false),
            ("it is deleted already", leaving, false, false),
            ("the word is taken back", json!({}), true, false),
            ("the word stands", allowed, true, true),
        ];
        for (case, change, is_by_hand, expected) in cases {
            assert_eq!(is_still(&node(&change), &node(&json!({})), is_by_hand), expected, "{case}");
        }
    }

    /// Collects the logged values.
    struct Log(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Log {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            event.record(&mut |field: &Field, value: &dyn Debug| {
                self.0.lock().unwrap().push(format!("{field}={value:?}"));
            });
        }
    }

    /// Returns a monitor whose Lease does not exist, and the Lease that it creates.
    fn monitor() -> (Arc<PauseMonitor>, mpsc::UnboundedReceiver<Value>) {
        let (created, receiver) = mpsc::unbounded_channel();
        let server = tower::service_fn(move |request: Request<Body>| {
            let created = created.clone();
            async move {
                let is_read = request.method() == Method::GET;
                let body = request.into_body().collect_bytes().await?;
                let absent = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"});
                let (code, answer) = match is_read {
                    true => (404, absent.to_string().into_bytes()),
                    false => (201, body.to_vec()),
                };
                created.send(serde_json::from_slice(&body).unwrap_or_default()).unwrap();
                Ok::<_, BoxError>(Response::builder().status(code).body(Body::from(answer))?)
            }
        });
        let client = Client::new(server, "kube-system");
        let (recorder, _) = events::recorder(client.clone(), "probe");
        let lease = DeletionLease::new(client, "kube-system");
        (Arc::new(PauseMonitor::new(lease, recorder, Leadership::never(), "cp-1")), receiver)
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_without_an_outcome_is_written_to_the_lease() {
        let (pauses, mut leases) = monitor();
        let decisions = &DecisionRecorder::new(DecisionHistory::default(), SubjectKind::Deletion, 1);
        let recent = &RecentDeletions::default();
        let sent =
            DeleteRequest { recent, pauses: &pauses, decisions, deletion: Box::new(deletion()), has_outcome: false };
        drop(sent);
        let written = async {
            loop {
                let lease = leases.recv().await.unwrap();
                if lease.is_object() {
                    return lease;
                }
            }
        };
        let lease = tokio::select! {
            lease = tokio::time::timeout(Duration::from_secs(300), written) => lease.unwrap(),
            ended = Arc::clone(&pauses).run() => panic!("{ended:?}"),
        };
        let annotation = lease["metadata"]["annotations"]["vsphere-ccm.dev/deletions"].as_str().unwrap();
        let expected = json!([{"node": "n", "uid": "u", "time": "1970-01-01T00:00:00Z", "replica": "cp-1",
            "proof": deletion().proof.to_string(), "isUnanswered": true}]);
        assert_eq!(serde_json::from_str::<Value>(annotation).unwrap(), expected);
    }

    #[tokio::test]
    async fn a_deletion_without_an_outcome_is_logged_with_its_proof() {
        let (pauses, _leases) = monitor();
        let proof_began = "2026-01-09T07:05:03.000042999Z".parse().unwrap();
        let deletion = NodeDeletion { proof_began, ..deletion() };
        for (has_outcome, expected) in
            [(false, vec!["node=\"n\"", "uid=\"u\"", "proof_began=\"2026-01-09T07:05:03.000042Z\""]), (true, vec![])]
        {
            let seen = Arc::default();
            let log = tracing_subscriber::registry().with(Log(Arc::clone(&seen)));
            let recent = RecentDeletions::default();
            let history = DecisionHistory::default();
            let decisions = &DecisionRecorder::new(history.clone(), SubjectKind::Deletion, 1);
            let deletion = Box::new(deletion.clone());
            let sent = DeleteRequest { recent: &recent, pauses: &pauses, decisions, deletion, has_outcome };
            tracing::subscriber::with_default(log, || drop(sent));
            let mut seen = seen.lock().unwrap().clone();
            seen.retain(|value| !value.starts_with("message="));
            assert_eq!(seen, expected, "{has_outcome}");
            let kept = recent.find("n").map(|deletion| deletion.is_confirmed);
            assert_eq!(kept, if has_outcome { None } else { Some(false) }, "{has_outcome}");
            let words: Vec<_> = history.last(9, |_| true).iter().map(|decision| decision.word).collect();
            assert_eq!(words, if has_outcome { vec![] } else { vec![UNANSWERED] }, "{has_outcome}");
        }
    }

    #[test]
    fn a_deletion_at_which_the_api_server_failed_counts_if_the_node_is_gone() {
        let status = || Status::failure("timeout", "Timeout").with_code(504).boxed();
        let failure = || CallError::Refused("delete node n".into(), status());
        assert!(!failure().is_refusal());
        let live = node(&json!({}));
        let silent = CallError::TimedOut("get node n".into(), CALL_LIMIT.into());
        let leaving = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z"}});
        let cases = [
            ("it is gone", Ok(None), "deleted"),
            ("it is another one", Ok(Some(node(&json!({"metadata": {"uid": "v"}})))), "deleted"),
            ("it waits for its finalizers", Ok(Some(node(&leaving))), "deleted"),
            ("it is there", Ok(Some(live.clone())), "refused"),
            ("nobody knows", Err(silent), "unanswered"),
        ];
        for (case, after, expected) in cases {
            let word = match after_failure(after, &live, Box::new(deletion()), failure()) {
                DeletionResult::Deleted(_) => "deleted",
                DeletionResult::Refused(_) => "refused",
                DeletionResult::Unanswered(_) => "unanswered",
                _ => "something else",
            };
            assert_eq!(word, expected, "{case}");
        }
    }
}
