//! Pure: the explanation of the deletion of one Node by a command without a daemon. The VM was looked up just now. The
//! clocks and limits of the leader are not known, so no Node is said to be deleted.

use super::advice::{self, HoldAdvice};
use super::rules::{self, PauseReading};
use super::{node_section, past_section, presence_section, standing, subject};
use crate::app::inquiries::answer_time::AnswerTime;
use crate::app::inquiries::explain::Explanation;
use crate::app::inquiries::explain::outside_text::{clipped, full_message};
use crate::app::reports::explain::{Section, SubjectState};
use crate::controllers::node_lifecycle::candidacy::Candidacy;
use crate::controllers::node_lifecycle::deletion_history::PastDeletion;
use crate::controllers::node_lifecycle::deletion_policy::HoldReason;
use crate::controllers::node_lifecycle::{DeletionMode, NodeDeletionFacts};

/// What the command has read about one Node.
pub(super) struct FirstLook {
    /// The Node, with the answer about its VM. There are no checks of the deletion policy.
    pub(super) node: NodeDeletionFacts,
    /// The pause of deletions.
    pub(super) pause: PauseReading,
    /// The last deletion of a Node of this name by any replica, if the Lease could be read.
    pub(super) past: Option<PastDeletion>,
}

/// Explains the Node with this name.
pub(super) fn explanation(name: &str, look: &FirstLook, time: &AnswerTime) -> Explanation {
    let FirstLook { node, pause, past } = look;
    let is_absent = matches!(node.candidacy, Some(Candidacy::VmAbsent(_)));
    let hold = match is_absent {
        true => known_hold(node, pause).map(|hold| advice::by_policy(name, &hold, time)),
        false => advice::of(name, node, time),
    };
    let (state, summary) = match &hold {
        None if is_absent => {
            let text = "not known: its VM is deleted, and only the leader knows whether and when the Node is deleted";
            (SubjectState::Unknown, text.to_owned())
        }
        hold => standing(node, hold.as_ref()),
    };
    let mut sections = Vec::new();
    sections.extend(hold.as_ref().map(HoldAdvice::section));
    sections.push(node_section(node));
    if node.exemption.is_none() && node.candidacy.is_some() {
        sections.push(rules::section_without_term(node, hold.as_ref(), pause));
    }
    let answer = node.answer.as_ref().filter(|_| node.exemption.is_none());
    sections.extend(answer.map(|answer| presence_section(&answer.presence)));
    sections.push(clocks(&node.mode, pause));
    sections.extend(past.as_ref().map(past_section));
    Explanation { subject: subject(name), summary, state, sections }
}

/// Returns the first rule of the deletion policy that is known to hold a Node whose VM is deleted.
fn known_hold(node: &NodeDeletionFacts, pause: &PauseReading) -> Option<HoldReason> {
    match (&node.mode, pause) {
        (DeletionMode::Off { reason }, _) => Some(HoldReason::Off { reason }),
        (_, PauseReading::Read(Some(pause))) => Some(HoldReason::Paused(pause.clone())),
        (DeletionMode::DryRun, _) => Some(HoldReason::DryRun),
        (DeletionMode::Enforce, _) => None,
    }
}

fn clocks(mode: &DeletionMode, pause: &PauseReading) -> Section {
    let mut section = Section::new("Clocks and limits");
    section.add("mode", super::mode_text(mode));
    match pause {
        PauseReading::Read(Some(pause)) => section.add("pause", clipped(&pause.to_string())),
        PauseReading::Read(None) => section.add("pause", "none"),
        PauseReading::Unread(why) => section.add_finding("pause", format!("not known: {}", full_message(why))),
    }
    section.add("others", "not known: only the leader has the grace period and the limits");
    section
}
