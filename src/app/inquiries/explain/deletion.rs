//! `explain deletion NAME`: the rules about the deletion of one Node, the proof about its VM, clocks and limits.

mod advice;
mod first_look;
mod rules;

#[cfg(test)]
mod tests;

use super::outside_text::{clipped, full_message};
use super::{Explanation, not_known};
use crate::app::inquiries::answer_time::AnswerTime;
use crate::app::inquiries::completeness::nodes_gap;
use crate::app::inquiries::plan::{DetachedPlanner, PlanSettings};
use crate::app::inquiries::{Inquiries, whole};
use crate::app::reports::explain::{Section, SubjectState, lasting};
use crate::app::reports::text::{count, duration};
use crate::base::error_chain::chain;
use crate::cloud::node::Readiness;
use crate::cloud::{AbsenceProof, CloudProvider as _, Presence};
use crate::controllers::driver::CurrentTerm;
use crate::controllers::node_lifecycle::candidacy::{Candidacy, Exemption};
use crate::controllers::node_lifecycle::deletion_history::{PastDeletion, past_deletions};
use crate::controllers::node_lifecycle::deletion_pause::PauseAnnotations;
use crate::controllers::node_lifecycle::deletion_policy::{DeletionChecks, DeletionDecision, LastAnswer};
use crate::controllers::node_lifecycle::plan::ANNOTATION_ALLOW_DELETION;
use crate::controllers::node_lifecycle::recent_deletions::NodeDeletion;
use crate::controllers::node_lifecycle::{
    DeletionFacts, DeletionMode, LifecycleInputs, NodeDeletionFacts, first_deletion_facts,
};
use crate::kubernetes::deletion_lease::DeletionLease;
use advice::HoldAdvice;
use first_look::FirstLook;
use rules::PauseReading;
use std::slice;

/// Explains the deletion of the Node with this name, also if this process has deleted the Node.
///
/// # Errors
/// The names of the Nodes that the process knows.
pub(super) fn explain(process: &Inquiries, name: &str) -> Result<Explanation, Vec<String>> {
    let past = past_deletion(process, name);
    let term = process.terms.lifecycle.as_ref().and_then(CurrentTerm::get);
    let Some(term) = term else { return Ok(unknown(name, past.as_ref())) };
    match (term.explain(name), past) {
        (Some(facts), past) => Ok(explanation(name, &facts, past.as_ref(), &AnswerTime::now())),
        (None, Some(past)) => Ok(of_past(name, &past)),
        (None, None) if process.terms.deletion_pauses.as_ref().is_some_and(|pauses| !pauses.report().is_known) => {
            Ok(not_known(subject(name), "the Lease with the last deletions is not read yet"))
        }
        (None, None) => Err(term.known_nodes()),
    }
}

/// Explains the deletion of the Node with this name by a command without a daemon: looks up its VM, and reads the Lease
/// of deletions.
///
/// # Errors
/// The names of the Nodes that the command has read.
pub(super) async fn explain_without_term(
    process: &Inquiries,
    settings: &PlanSettings,
    name: &str,
) -> Result<Explanation, Vec<String>> {
    let Some(mode) = settings.deletion() else {
        return Ok(not_known(subject(name), "the node-lifecycle controller does not run with these flags"));
    };
    let Some(provider) = process.vsphere.provider() else {
        return Ok(not_known(subject(name), "the command stops"));
    };
    let (pause, past) = read_lease(process, name).await;
    let Some(node) = process.nodes.get(name) else {
        return match (past, nodes_gap(process), pause) {
            (Some(past), _, _) => Ok(of_past(name, &past)),
            (None, Some(gap), _) => Ok(not_known(subject(name), &gap)),
            (None, None, PauseReading::Unread(cause)) => {
                Ok(not_known(subject(name), &format!("the Lease with the last deletions cannot be read: {cause}")))
            }
            (None, None, PauseReading::Read(_)) => Err(process.nodes.keys()),
        };
    };
    let planner = DetachedPlanner { process, settings, selected: Some(name) };
    let presence = planner.presences(&provider, slice::from_ref(&node)).await.remove(name);
    let inputs = LifecycleInputs { is_own: provider.owns(&node), presence, power: None, mode: mode.clone() };
    let look = FirstLook { node: first_deletion_facts(&node, inputs), pause, past };
    Ok(first_look::explanation(name, &look, &AnswerTime::now()))
}

/// Reads the pause of deletions and the last deletion of a Node of this name by any replica.
async fn read_lease(process: &Inquiries, name: &str) -> (PauseReading, Option<PastDeletion>) {
    let lease = DeletionLease::new(process.api_server.clone(), &process.lease_namespace);
    match lease.read().await {
        Ok(reading) => {
            let annotations = reading.annotations();
            let pause = PauseAnnotations::of(&annotations).pause_at(reading.server_time);
            let past = past_deletions(&annotations).into_iter().rev().find(|deletion| deletion.node == name);
            (PauseReading::Read(pause), past)
        }
        Err(error) => (PauseReading::Unread(chain(&error)), None),
    }
}

/// Returns the last deletion of a Node of this name by any replica, according to the Lease.
pub(super) fn past_deletion(process: &Inquiries, name: &str) -> Option<PastDeletion> {
    let past = process.terms.deletion_pauses.as_ref()?.past_deletions();
    let node = process.nodes.get(name);
    let existing = node.as_ref().and_then(|node| node.metadata.uid.as_deref());
    past.into_iter().rev().find(|deletion| deletion.node == name && !deletion.has_failed(existing))
}

fn subject(name: &str) -> String {
    format!("deletion of Node {name}")
}

/// Only the leader decides about deletions.
fn unknown(name: &str, past: Option<&PastDeletion>) -> Explanation {
    let summary = "not known: cloud-node-lifecycle-controller has no term of leadership in this process".to_owned();
    Explanation {
        subject: subject(name),
        summary,
        state: SubjectState::Unknown,
        sections: past.map(past_section).into_iter().collect(),
    }
}

fn explanation(name: &str, facts: &DeletionFacts, past: Option<&PastDeletion>, time: &AnswerTime) -> Explanation {
    let of_this_process = facts.deletion.as_ref();
    match &facts.node {
        Some(node) => {
            let mut explanation = of_node(name, node, of_this_process, time);
            // The record of this process has more than that on the Lease.
            explanation.sections.extend(past.filter(|_| of_this_process.is_none()).map(past_section));
            explanation
        }
        None => of_this_process.map_or_else(|| unknown(name, past), |deletion| of_deleted(name, deletion)),
    }
}

/// Returns the sentence about a Node that exists, for tests of other commands.
#[cfg(test)]
pub(in crate::app::inquiries) fn summary(name: &str, facts: &DeletionFacts) -> String {
    explanation(name, facts, None, &AnswerTime::now()).summary
}

/// Explains a Node that another replica, or an earlier process, has deleted.
fn of_past(name: &str, past: &PastDeletion) -> Explanation {
    let (summary, state) = (past_summary(past), SubjectState::Settled);
    Explanation { subject: subject(name), summary, state, sections: vec![past_section(past)] }
}

/// Returns the sentence about a deletion on the Lease.
pub(super) fn past_summary(past: &PastDeletion) -> String {
    let (replica, time) = (clipped(&past.replica), whole(past.time));
    match past.is_unanswered {
        false => format!("deleted by the replica on {replica} at {time}"),
        true => format!("gone: the API server did not answer the deletion by the replica on {replica} at {time}"),
    }
}

/// Returns what the Lease has about a deletion.
pub(super) fn past_section(past: &PastDeletion) -> Section {
    let mut section = Section::new("Last deletion of a Node of this name, by any replica");
    section.add("replica", clipped(&past.replica));
    section.add("UID", clipped(&past.uid));
    section.add("proof began", whole(past.time).to_string());
    section.add("proof", past.proof.as_str());
    if past.is_unanswered {
        section.add("API server", "no answer");
    }
    section
}

/// Explains a Node that exists.
fn of_node(name: &str, node: &NodeDeletionFacts, earlier: Option<&NodeDeletion>, time: &AnswerTime) -> Explanation {
    let hold = advice::of(name, node, time);
    let (state, summary) = standing(node, hold.as_ref());
    let mut sections = Vec::new();
    sections.extend(hold.as_ref().map(HoldAdvice::section));
    sections.push(node_section(node));
    if node.exemption.is_none() && node.candidacy.is_some() {
        sections.push(rules::section(node, hold.as_ref(), time));
    }
    sections
        .extend(node.answer.as_ref().filter(|_| node.exemption.is_none()).map(|answer| answer_section(answer, time)));
    sections.extend(node.checks.as_ref().map(|checks| clocks(&node.mode, checks, time)));
    sections.extend(earlier.map(|deletion| deletion_section("Earlier deletion of a Node of this name", deletion)));
    Explanation { subject: subject(name), summary, state, sections }
}

/// Returns the state of the Node, and the sentence about it.
fn standing(node: &NodeDeletionFacts, hold: Option<&HoldAdvice>) -> (SubjectState, String) {
    if let Some(hold) = hold {
        let reported = node.reported.as_ref().filter(|reported| reported.reason == hold.word);
        let lasting = reported.map(|reported| format!(" {}", lasting(reported.blocked_for.as_secs())));
        return (SubjectState::Held, format!("not deleted{}: {}", lasting.unwrap_or_default(), hold.word));
    }
    let settled = |text: &str| (SubjectState::Settled, text.to_owned());
    match (node.exemption, &node.candidacy) {
        (Some(Exemption::OtherProvider), _) => settled("not a candidate for deletion: it belongs to another provider"),
        (Some(Exemption::Ready), _) => settled("not a candidate for deletion: Ready=True, so its kubelet reports"),
        (Some(Exemption::NotReady), _) => settled("not a candidate for deletion: Ready=False, so its kubelet reports"),
        (Some(Exemption::Leaving), _) => settled("deleted already: it waits for its finalizers"),
        (None, Some(Candidacy::VmExists)) => settled("not a candidate for deletion: its VM exists"),
        (None, Some(Candidacy::VmAbsent(_))) if node.checks.is_none() => {
            (SubjectState::Unknown, "not known yet: its VM is looked up again at the next check".to_owned())
        }
        (None, Some(_)) if node.mode == DeletionMode::DryRun => {
            settled("would be deleted: every rule has passed. --node-deletion=dry-run reports it at the next check")
        }
        (None, Some(_)) => settled("is deleted at the next check: every rule has passed"),
        (None, None) => {
            (SubjectState::Unknown, "not known yet: its VM was not looked up since the last change".to_owned())
        }
    }
}

fn node_section(node: &NodeDeletionFacts) -> Section {
    let facts = &node.facts;
    let mut section = Section::new("Node");
    let ready = match facts.readiness {
        Readiness::True => "True",
        Readiness::False => "False",
        Readiness::Unknown => "Unknown",
    };
    let since = facts.transition.map(|since| format!(" since {}", whole(since))).unwrap_or_default();
    section.add("Ready", format!("{ready}{since}"));
    // A command without a daemon has not observed the Node.
    if facts.readiness == Readiness::Unknown && !node.unknown_for.is_zero() {
        section.add("seen so", format!("{}, by this leader", lasting(node.unknown_for.as_secs())));
    }
    section.add("UID", clipped(&facts.uid));
    section
        .add("provider ID", if facts.provider_id.is_empty() { "none".to_owned() } else { clipped(&facts.provider_id) });
    if facts.is_control_plane {
        section.add("control plane", "yes");
    }
    if facts.is_allowed_by_hand {
        let text =
            format!("by the annotation {ANNOTATION_ALLOW_DELETION}: grace period, mass hold and limit do not apply");
        section.add("allowed", text);
    }
    section
}

/// Returns the last answer about the VM, with its times.
fn answer_section(answer: &LastAnswer, time: &AnswerTime) -> Section {
    let mut section = presence_section(&answer.presence);
    if matches!(answer.presence, Presence::Absent(_)) {
        let since = time.wall_clock(answer.since);
        section.add("confirmed since", format!("{since}, {}", duration(time.seconds_since(answer.since))));
    }
    section.add("last looked up", time.wall_clock(answer.requested_at).to_string());
    let next = match answer.due.filter(|due| time.is_ahead(*due)) {
        Some(due) => format!("{}, at an event of the VM, and right before a deletion", time.wall_clock(due)),
        None => "at the next check".to_owned(),
    };
    section.add("next look-up", next);
    section
}

/// Returns the answer about the VM.
fn presence_section(presence: &Presence) -> Section {
    match presence {
        Presence::Absent(proof) => proof_section(proof),
        Presence::Exists(()) => {
            let mut section = Section::new("VM");
            section.add("answer", "it exists");
            section
        }
        Presence::Unknown(unknown) => {
            let mut section = Section::new("Proof");
            section.add("incomplete", format!("{}: {}", unknown.reason, full_message(&unknown.message)));
            section
        }
    }
}

/// Returns the proof, piece by piece.
fn proof_section(proof: &AbsenceProof) -> Section {
    let mut section = Section::new("Proof that the VM is deleted");
    for (number, piece) in (1..).zip(proof.evidence()) {
        section.add(&number.to_string(), full_message(piece));
    }
    section
}

fn mode_text(mode: &DeletionMode) -> String {
    match mode {
        DeletionMode::Enforce => "enforce".to_owned(),
        DeletionMode::DryRun => "dry-run: deletions are only reported".to_owned(),
        DeletionMode::Off { reason: because } => format!("off: {because}"),
    }
}

fn clocks(mode: &DeletionMode, checks: &DeletionChecks, time: &AnswerTime) -> Section {
    let mut section = Section::new("Clocks and limits");
    section.add("mode", mode_text(mode));
    let is_running = if time.is_ahead(checks.grace_until) { "until" } else { "ended at" };
    section.add("grace period", format!("{is_running} {}", time.wall_clock(checks.grace_until)));
    let counts = &checks.inputs.counts;
    let next = match checks.next_charge {
        Some(next) if time.is_ahead(next) => format!("; the next one at {}", time.wall_clock(next)),
        Some(_) | None => String::new(),
    };
    let window = duration(checks.window.as_secs());
    section.add("allowance", format!("{} of {} in {window}{next}", counts.allowance, checks.capacity));
    section.add("absent VMs", format!("{} of {}", counts.absent, count(counts.nodes, "Node")));
    let pause = checks.mass_hold_until.map(|until| format!("until {}", time.wall_clock(until)));
    section.add("mass hold", pause.unwrap_or_else(|| "none".to_owned()));
    let lost = checks.inputs.control_plane.map(|(lost, all)| format!("{lost} of {all} Nodes lost"));
    section.add_some("control plane", lost);
    section.add_some("refused until", checks.refused_until.map(|until| time.wall_clock(until).to_string()));
    let last = checks.last_decision.as_ref();
    section.add_some("last decision", last.map(|last| format!("{} at {}", result(last), time.wall_clock(last.at))));
    section
}

fn result(decision: &DeletionDecision) -> &'static str {
    decision.hold.as_ref().map_or("permitted", |hold| hold.reason().as_str())
}

/// Explains a Node that this process has deleted.
fn of_deleted(name: &str, deletion: &NodeDeletion) -> Explanation {
    let at = whole(deletion.proof_began);
    let (state, summary) = match deletion.is_confirmed {
        true => (SubjectState::Settled, format!("deleted by this process at {at}")),
        false => {
            let text = format!("may be deleted: the API server did not answer this process at {at}");
            (SubjectState::Unknown, text)
        }
    };
    let sections = vec![deletion_section("Decision", deletion), proof_section(&deletion.proof)];
    Explanation { subject: subject(name), summary, state, sections }
}

fn deletion_section(title: &str, deletion: &NodeDeletion) -> Section {
    let mut section = Section::new(title);
    section.add("UID", clipped(&deletion.uid));
    section.add("proof began", whole(deletion.proof_began).to_string());
    section.add("API server", if deletion.is_confirmed { "deleted" } else { "no answer" });
    let Some(decision) = &deletion.decision else { return section };
    let absent_for = decision.at.saturating_duration_since(decision.since);
    section.add("decision", format!("{}, VM absent {}", result(decision), lasting(absent_for.as_secs())));
    section.add("allowance", format!("{} before this deletion", decision.counts.allowance));
    section.add("absent VMs", format!("{} of {}", decision.counts.absent, count(decision.counts.nodes, "Node")));
    if decision.by_hand {
        section.add("allowed", format!("by the annotation {ANNOTATION_ALLOW_DELETION}"));
    }
    let lost = decision.control_plane.map(|(lost, all)| format!("{lost} of {all} Nodes lost"));
    section.add_some("control plane", lost);
    section
}
