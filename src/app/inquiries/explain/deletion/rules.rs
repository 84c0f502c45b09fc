//! The rules about the deletion of one Node in their order: passed, holds, or not reached.

use super::advice::HoldAdvice;
use crate::app::inquiries::answer_time::AnswerTime;
use crate::app::reports::explain::Section;
use crate::app::reports::text::count;
use crate::cloud::Reason;
use crate::controllers::node_lifecycle::candidacy::Candidacy;
use crate::controllers::node_lifecycle::deletion_pause::DeletionPause;
use crate::controllers::node_lifecycle::deletion_policy::{DeletionChecks, DeletionRule};
use crate::controllers::node_lifecycle::{DeletionMode, NodeDeletionFacts};
use crate::providers::vsphere::reason;

/// The reasons of the rule about the identity of the Node.
const IDENTITY: [Reason; 3] = [reason::Uninitialized, reason::NoProviderID, reason::MalformedProviderID];

const PASSED: &str = "passed";
const HOLDS: &str = "holds";
const NOT_REACHED: &str = "not reached";
const NOT_KNOWN: &str = "not known";

/// The pause of deletions, as a command without a daemon has read it.
pub(super) enum PauseReading {
    /// The pause; `None` if deletions are not paused.
    Read(Option<DeletionPause>),
    /// The Lease could not be read, for this reason.
    Unread(String),
}

/// Returns the rules about a Node without an exemption, whose VM was looked up.
pub(super) fn section(node: &NodeDeletionFacts, hold: Option<&HoldAdvice>, time: &AnswerTime) -> Section {
    let mut section = Section::new("Rules (docs/node-lifecycle.md)");
    section.add(PASSED, "Ready=Unknown: its kubelet does not report");
    let Some(checks) = &node.checks else {
        add_rules_before_the_policy(&mut section, node, hold);
        return section;
    };
    section.add(PASSED, format!("{}: initialized, provider ID set", identity()));
    section.add(PASSED, "proof: the VM is confirmed deleted");
    let mut is_reached = true;
    for rule in DeletionRule::ALL {
        let word = rule.reason();
        let holds = checks.hold.as_ref().is_some_and(|(holding, _)| *holding == rule);
        if holds {
            let reported = hold.map(|hold| hold.word).filter(|reported| *reported != word);
            let reported = reported.map(|reported| format!(", reported as {reported}")).unwrap_or_default();
            section.add_finding(HOLDS, format!("{word}{reported}"));
            is_reached = false;
        } else if !is_reached {
            section.add(NOT_REACHED, word.as_str());
        } else if checks.inputs.by_hand && rule.is_overridden_by_hand() {
            section.add(PASSED, format!("{word}: does not apply, because the annotation allows the deletion"));
        } else {
            section.add(PASSED, format!("{word}: {}", passed(rule, node, checks, time)));
        }
    }
    section
}

/// As [`section`], without a term of leadership: the rules that depend on its clocks and limits are not known.
pub(super) fn section_without_term(
    node: &NodeDeletionFacts,
    hold: Option<&HoldAdvice>,
    pause: &PauseReading,
) -> Section {
    let mut section = Section::new("Rules (docs/node-lifecycle.md)");
    section.add(PASSED, "Ready=Unknown: its kubelet does not report");
    if !matches!(node.candidacy, Some(Candidacy::VmAbsent(_))) {
        add_rules_before_the_policy(&mut section, node, hold);
        return section;
    }
    section.add(PASSED, format!("{}: initialized, provider ID set", identity()));
    section.add(PASSED, "proof: the VM is confirmed deleted");
    let mut is_reached = true;
    for rule in DeletionRule::ALL {
        let word = rule.reason();
        let known = match (rule, pause) {
            (DeletionRule::Mode, _) => Some("deletion is not off"),
            (DeletionRule::Pause, PauseReading::Read(None)) => Some("deletions are not paused"),
            (DeletionRule::DryRun, _) if node.mode != DeletionMode::DryRun => Some("deletions are not only reported"),
            _ => None,
        };
        match known {
            _ if hold.is_some_and(|hold| hold.word == word) => {
                section.add_finding(HOLDS, word.as_str());
                is_reached = false;
            }
            _ if !is_reached => section.add(NOT_REACHED, word.as_str()),
            Some(known) => section.add(PASSED, format!("{word}: {known}")),
            None => section.add(NOT_KNOWN, word.as_str()),
        }
    }
    section
}

/// Adds the rules about a Node whose VM is not confirmed deleted. No rule of the deletion policy is reached.
fn add_rules_before_the_policy(section: &mut Section, node: &NodeDeletionFacts, hold: Option<&HoldAdvice>) {
    match hold {
        Some(hold) if IDENTITY.contains(&hold.word) => {
            section.add_finding(HOLDS, hold.word.as_str());
            section.add(NOT_REACHED, "proof");
        }
        Some(hold) => {
            section.add(PASSED, format!("{}: initialized, provider ID set", identity()));
            section.add_finding(HOLDS, format!("proof: {}", hold.word));
        }
        None => {
            let text = match &node.candidacy {
                Some(Candidacy::VmExists) => "proof: the VM exists",
                Some(_) | None => "proof",
            };
            section.add(NOT_REACHED, text);
        }
    }
    for rule in DeletionRule::ALL {
        section.add(NOT_REACHED, rule.reason().as_str());
    }
}

fn identity() -> String {
    IDENTITY.map(Reason::as_str).join(", ")
}

/// Returns the facts because of which a rule has passed.
fn passed(rule: DeletionRule, node: &NodeDeletionFacts, checks: &DeletionChecks, time: &AnswerTime) -> String {
    let counts = &checks.inputs.counts;
    match rule {
        DeletionRule::Mode => "deletion is not off".to_owned(),
        DeletionRule::Pause => "deletions are not paused".to_owned(),
        DeletionRule::DryRun if node.mode == DeletionMode::DryRun => "not reported yet".to_owned(),
        DeletionRule::DryRun => "deletions are not only reported".to_owned(),
        DeletionRule::Refusal => "no pause after a refusal of the API server".to_owned(),
        DeletionRule::Grace => format!("the grace period ended at {}", time.wall_clock(checks.grace_until)),
        DeletionRule::ControlPlane => match checks.inputs.control_plane {
            Some((lost, all)) => format!("{lost} of {all} control-plane nodes are lost, no majority"),
            None => "the Node is not one of the control plane".to_owned(),
        },
        DeletionRule::MassHold => {
            format!("the VMs of {} of {} are gone", counts.absent, count(counts.nodes, "node"))
        }
        DeletionRule::Limit => format!("{} of {} deletions are left", counts.allowance, checks.capacity),
    }
}
