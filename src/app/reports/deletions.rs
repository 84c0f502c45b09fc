//! Pure: the report of `deletions`: the Nodes that wait for their deletion, the limit, the pause, and what the command
//! has changed.

use super::deletion_pause::DeletionPauseStatus;
use super::explain::ExplainReport;
use super::status::{DeletionStatus, ElectionStatus, HeldObject};
use super::text::duration;
use super::{Emphasis, Line, Verdict};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The deletion of Nodes, as one process knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionsReport {
    /// Version of the process.
    pub version: String,
    /// Time of the report.
    pub time: Timestamp,
    /// Name of the host, which is the name of the Pod unless the Pod uses the host network.
    pub host: String,
    /// Whether this process leads.
    pub leads: bool,
    /// The election; `None` with `--leader-elect=false`.
    pub election: Option<ElectionStatus>,
    /// What the command has changed; `None` for a command that changes nothing.
    pub change: Option<DeletionsChange>,
    /// The pause of deletions.
    pub pause: DeletionPauseStatus,
    /// The Nodes that wait, and the limit; `None` if this process does not run the node-lifecycle controller now.
    pub deletion: Option<DeletionStatus>,
    /// The rules and the proof about the Node of `deletions allow`.
    pub explanation: Option<ExplainReport>,
    /// UID of that Node, if its VM is proved to be deleted.
    pub uid: Option<String>,
}

/// The result of a command that changes something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionsChange {
    /// The result.
    pub outcome: ChangeOutcome,
    /// What was done, or the reason why not.
    pub message: String,
}

/// Whether a change was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeOutcome {
    /// The change is in effect, or was so before.
    Done,
    /// Nothing was changed, because a rule does not allow it.
    Refused,
    /// Another process has to make the change: the leader.
    NotLeader,
    /// The change is not confirmed. It may have been made.
    Unconfirmed,
}

impl DeletionsReport {
    /// The `kind` of JSON and YAML.
    pub const KIND: &str = "Deletions";

    /// Returns the result: that of the change, if the command makes one.
    pub fn verdict(&self) -> Verdict {
        match self.change.as_ref().map(|change| change.outcome) {
            Some(ChangeOutcome::Done) => return Verdict::Ok,
            Some(ChangeOutcome::Refused) => return Verdict::Findings,
            Some(ChangeOutcome::NotLeader | ChangeOutcome::Unconfirmed) => return Verdict::Incomplete,
            None => {}
        }
        let is_finding = self.lines().iter().any(|line| line.emphasis == Emphasis::Finding);
        let is_known = self.deletion.as_ref().is_some_and(|deletion| deletion.unanswered == 0);
        match self.pause.verdict() {
            Verdict::Findings => Verdict::Findings,
            _ if is_finding => Verdict::Findings,
            Verdict::Ok if is_known => Verdict::Ok,
            Verdict::Ok | Verdict::Incomplete | Verdict::NotFound => Verdict::Incomplete,
        }
    }

    /// Returns the text.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        if let Some(explanation) = &self.explanation {
            lines.extend(explanation.lines());
            lines.push(Line::new(Emphasis::Plain, ""));
        }
        if let Some(DeletionsChange { outcome, message }) = &self.change {
            let emphasis = if *outcome == ChangeOutcome::Done { Emphasis::Plain } else { Emphasis::Finding };
            lines.extend(Line::wrapped(emphasis, std::slice::from_ref(message)));
        }
        if self.deletion.is_none() {
            lines.extend(self.standby_lines());
        }
        lines.extend(self.pause_lines());
        if let Some(deletion) = self.deletion.as_ref().filter(|_| self.change.is_none()) {
            lines.extend(deletion_lines(deletion));
        }
        lines
    }

    fn pause_lines(&self) -> Vec<Line> {
        let lines = self.pause.lines(self.time);
        if !lines.is_empty() {
            return lines;
        }
        vec![Line::new(Emphasis::Plain, "deletions are not paused")]
    }

    /// Returns the lines about what only the leader knows, as soon as its controller works.
    fn standby_lines(&self) -> Vec<Line> {
        if self.leads {
            let text = format!("{} does not know yet which Nodes wait: the controller begins soon", self.host);
            return Line::wrapped(Emphasis::Notice, &[text]);
        }
        let text = format!("{} does not know which Nodes wait: it does not lead", self.host);
        let mut lines = Line::wrapped(Emphasis::Notice, &[text]);
        if let Some(election) = &self.election {
            lines.push(Line::new(Emphasis::Notice, "find the Pod of the leader with"));
            lines.push(Line::new(Emphasis::Notice, &format!("  {}", election.command())));
        }
        lines
    }
}

/// Widest column of the Nodes that wait. Longer texts move the rest of their line.
const MAX_COLUMN: usize = 40;

fn deletion_lines(deletion: &DeletionStatus) -> Vec<Line> {
    let mut fields = vec![format!("deletion {}", deletion.mode)];
    if deletion.mode != "off" {
        fields.push(format!("allowance {} of {}", deletion.allowance, deletion.limit));
    }
    let (pending, held) = deletion.parts();
    fields.push(format!("pending {}", pending.len()));
    if !held.is_empty() {
        fields.push(format!("held {}", held.len()));
    }
    if deletion.unanswered > 0 {
        fields.push(format!("not checked yet {}", deletion.unanswered));
    }
    fields.extend(deletion.last.as_ref().map(|last| format!("last: {} at {}", last.name, last.time)));
    let mut lines = Line::wrapped(Emphasis::Plain, &fields);
    if deletion.is_mass_held {
        let text = "deletions pause by themselves, because many VMs are absent at the same time";
        lines.extend(Line::wrapped(Emphasis::Finding, &[text.to_owned()]));
    }
    let width = |text: fn(&HeldObject) -> &str| {
        let widths = deletion.pending.iter().map(|held| text(held).chars().count());
        widths.max().unwrap_or_default().min(MAX_COLUMN)
    };
    let names = width(|held| &held.name);
    let reasons = width(|held| &held.reason);
    for HeldObject { name, reason, for_seconds, is_expected } in &deletion.pending {
        let emphasis = if *is_expected { Emphasis::Plain } else { Emphasis::Finding };
        let row = format!("  {name:<names$}   {reason:<reasons$}   for {}", duration(*for_seconds));
        lines.extend(Line::indented(emphasis, &[row], 4));
    }
    lines
}

#[cfg(test)]
mod tests;
