//! Answers `deletions`: lists the Nodes that wait for their deletion, pauses deletions, ends the pause, and allows the
//! deletion of one Node.

use super::protocol::{Answer, DeletionsRequest, ExplainSubject, version};
use super::{Inquiries, election, explain, status, whole};
use crate::app::reports::deletions::{ChangeOutcome, DeletionsChange, DeletionsReport};
use crate::base::error_chain::chain;
use crate::controllers::node_lifecycle::candidacy::Candidacy;
use crate::controllers::node_lifecycle::pause_monitor::{PauseError, PauseMonitor};
use crate::controllers::node_lifecycle::{AllowanceError, NodeLifecycleReconciler};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// Returns the answer to a request.
///
/// # Errors
/// The controller does not run in this process, or the request is not valid. The text is for the command's user.
pub(super) async fn answer(process: &Inquiries, request: DeletionsRequest) -> Result<Answer, String> {
    let Some(pauses) = &process.terms.deletion_pauses else {
        return Err("cloud-node-lifecycle-controller does not run in this process, so it deletes no Nodes".to_owned());
    };
    match request {
        DeletionsRequest::List => Ok(with_change(process, pauses, None)),
        DeletionsRequest::Pause { seconds, cause } => {
            let change = pause(pauses, Duration::from_secs(seconds), &cause).await?;
            Ok(with_change(process, pauses, Some(change)))
        }
        DeletionsRequest::Resume => {
            let change = resume(pauses).await;
            Ok(with_change(process, pauses, Some(change)))
        }
        DeletionsRequest::Proof { node } => Ok(proof(process, pauses, &node)),
        DeletionsRequest::Allow { node, uid } => Ok(allow(process, pauses, &node, &uid).await),
    }
}

fn report(process: &Inquiries, pauses: &PauseMonitor) -> DeletionsReport {
    DeletionsReport {
        version: version(),
        time: whole(Timestamp::now()),
        host: process.host.clone(),
        leads: process.leadership.is_leader(),
        election: election::status(process),
        change: None,
        pause: status::deletion_pause(pauses),
        deletion: lifecycle(process).map(|term| status::deletion(process, term.status(), None)),
        explanation: None,
        uid: None,
    }
}

fn with_change(process: &Inquiries, pauses: &PauseMonitor, change: Option<DeletionsChange>) -> Answer {
    Answer::Deletions(Box::new(DeletionsReport { change, ..report(process, pauses) }))
}

fn change(outcome: ChangeOutcome, message: impl Into<String>) -> DeletionsChange {
    DeletionsChange { outcome, message: message.into() }
}

fn lifecycle(process: &Inquiries) -> Option<Arc<NodeLifecycleReconciler>> {
    process.terms.lifecycle.as_ref()?.get()
}

/// Pauses deletions, and waits until no deletion is under way.
async fn pause(pauses: &PauseMonitor, length: Duration, cause: &str) -> Result<DeletionsChange, String> {
    match pauses.start_pause(length, cause).await {
        Ok(until) => Ok(change(ChangeOutcome::Done, format!("no replica deletes a Node before {until}"))),
        Err(PauseError::Invalid(fault)) => Err(fault),
        Err(error @ (PauseError::NoServerTime | PauseError::Overwritten)) => {
            Ok(change(ChangeOutcome::Refused, format!("deletions are not paused by this command: {error}")))
        }
        Err(PauseError::Call(error)) => {
            let message = format!("the pause is not confirmed, run the command again: {}", chain(&error));
            Ok(change(ChangeOutcome::Unconfirmed, message))
        }
    }
}

async fn resume(pauses: &PauseMonitor) -> DeletionsChange {
    match pauses.end_pause().await {
        Ok(true) => change(ChangeOutcome::Done, "the pause is ended; the leader notices it within 30 s"),
        Ok(false) => change(ChangeOutcome::Done, "there was no pause to end"),
        Err(error) => {
            let message = format!("the end of the pause is not confirmed, run the command again: {}", chain(&error));
            change(ChangeOutcome::Unconfirmed, message)
        }
    }
}

/// Returns the rules and the proof about a Node, and its UID if the VM is proved to be deleted.
fn proof(process: &Inquiries, pauses: &PauseMonitor, node: &str) -> Answer {
    let report = report(process, pauses);
    let Some(term) = lifecycle(process) else {
        let report = DeletionsReport { change: Some(only_the_leader()), ..report };
        return Answer::Deletions(Box::new(report));
    };
    let explanation = match explain::answer(process, ExplainSubject::Deletion, node) {
        Answer::Explain(explanation) => explanation,
        other => return other,
    };
    let facts = term.explain(node).and_then(|facts| facts.node);
    let is_proved = |candidacy: &Option<Candidacy>| matches!(candidacy, Some(Candidacy::VmAbsent(_)));
    let uid = facts.filter(|facts| is_proved(&facts.candidacy)).map(|facts| facts.facts.uid);
    let refused = uid.is_none().then(|| change(ChangeOutcome::Refused, AllowanceError::NoProof.to_string()));
    Answer::Deletions(Box::new(DeletionsReport { change: refused, explanation: Some(*explanation), uid, ..report }))
}

fn only_the_leader() -> DeletionsChange {
    change(ChangeOutcome::NotLeader, "only the leader knows the proof, and writes to Nodes")
}

async fn allow(process: &Inquiries, pauses: &PauseMonitor, node: &str, uid: &str) -> Answer {
    let Some(term) = lifecycle(process) else { return with_change(process, pauses, Some(only_the_leader())) };
    let changed = match term.allow_deletion(node, uid).await {
        Ok(true) => change(ChangeOutcome::Done, format!("the deletion of Node {node} is allowed")),
        Ok(false) => change(ChangeOutcome::Done, format!("the deletion of Node {node} was allowed before")),
        Err(error @ (AllowanceError::OtherNode | AllowanceError::NoProof)) => {
            change(ChangeOutcome::Refused, format!("the deletion of Node {node} is not allowed: {error}"))
        }
        Err(AllowanceError::Call(error)) if error.is_not_leader() => only_the_leader(),
        Err(AllowanceError::Call(error)) if error.is_refusal() => {
            change(ChangeOutcome::Refused, format!("the deletion of Node {node} is not allowed: {}", chain(&error)))
        }
        Err(AllowanceError::Call(error)) => {
            let message = format!("it is not confirmed that the deletion of Node {node} is allowed: {}", chain(&error));
            change(ChangeOutcome::Unconfirmed, message)
        }
    };
    drop(term);
    with_change(process, pauses, Some(changed))
}
