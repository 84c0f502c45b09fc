//! Pure: the report of `check`: numbered checks of what the program needs, each with its result and a remedy.

pub mod catalogue;
pub mod configuration;
pub mod connections;
pub mod kubernetes;
pub mod nodes;
pub mod nsx;
pub mod nsx_plan;
pub mod nsx_resources;
pub mod observation;
pub mod permissions;
pub mod workloads;

use super::header::ReportHeader;
use super::text::{count, hanging, shell_word};
use super::{Emphasis, Line, Verdict};
use catalogue::{CheckGroup, CheckId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The beginning of a command that runs in the container of a process.
const IN_POD: &str = "kubectl -n kube-system exec POD -- /bin/vsphere-cloud-controller-manager";

/// The command that shows the Pods of cloud controller managers, one of which should hold the Lease.
const SHOW_PODS: &str = "kubectl get pods -A -l component=cloud-controller-manager -o wide";

/// Maximum number of characters of a message. Texts of guests, vCenter and NSX may be longer.
const MESSAGE: usize = 1000;

/// Indentation of the second and further lines of a check.
const INDENT: usize = 8;

/// The checks of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckReport {
    /// The process.
    #[serde(flatten)]
    pub header: ReportHeader,
    /// The results, in the order of [`catalogue::CHECKS`]. A check has several results if it has several subjects.
    pub checks: Vec<CheckResult>,
    /// The numbers of results.
    pub summary: CheckSummary,
}

/// The numbers of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckSummary {
    /// Number of passed results.
    pub passed: usize,
    /// Number of warnings.
    pub warnings: usize,
    /// Number of failed results.
    pub failed: usize,
    /// Number of results that do not apply, or that need a check that did not pass.
    pub skipped: usize,
    /// Number of results that this process does not know now.
    pub incomplete: usize,
}

/// The result of a check about one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckResult {
    /// The check.
    pub id: CheckId,
    /// The title of the check.
    pub title: String,
    /// The group of the check.
    pub group: CheckGroup,
    /// The status.
    pub status: CheckStatus,
    /// The subject, such as `Node worker-7`. Empty if the check is about the whole process.
    pub subject: String,
    /// The finding, or the facts with which the check passes.
    pub message: String,
    /// The steps of the remedy in their order: commands, and sentences about commands or what to do elsewhere. Empty for
    /// results without a finding.
    pub remedy: Vec<String>,
    /// The steps that are commands for a shell.
    pub commands: Vec<String>,
    /// The section about the check, such as `docs/checks.md#k04`.
    pub page: String,
    /// The check that this result waits for. The message names it, too.
    #[serde(skip)]
    needs: Option<CheckId>,
}

/// The status of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CheckStatus {
    /// As it should be.
    Passed,
    /// Works, and may not work later or not as intended.
    Warning,
    /// Not as it should be.
    Failed,
    /// Does not apply, or needs a check that did not pass.
    Skipped,
    /// Not known to this process now. Never counts as passed.
    Incomplete,
}

impl CheckResult {
    fn new(id: CheckId, status: CheckStatus, subject: &str, message: impl Into<String>) -> Self {
        debug_assert!(
            id.findings().contains(&status) || !matches!(status, CheckStatus::Warning | CheckStatus::Failed),
            "{id} has no result {status:?}"
        );
        let mut message = message.into();
        if let Some((end, _)) = message.char_indices().nth(MESSAGE) {
            message.truncate(end);
            message.push('…');
        }
        Self {
            id,
            title: id.title().to_owned(),
            group: id.group(),
            status,
            subject: subject.to_owned(),
            message,
            remedy: Vec::new(),
            commands: Vec::new(),
            page: id.page(),
            needs: None,
        }
    }

    /// Creates a passed result.
    pub fn passed(id: CheckId, subject: &str, message: impl Into<String>) -> Self {
        Self::new(id, CheckStatus::Passed, subject, message)
    }

    /// Creates a warning.
    pub fn warning(id: CheckId, subject: &str, message: impl Into<String>) -> Self {
        Self::new(id, CheckStatus::Warning, subject, message)
    }

    /// Creates a failed result.
    pub fn failed(id: CheckId, subject: &str, message: impl Into<String>) -> Self {
        Self::new(id, CheckStatus::Failed, subject, message)
    }

    /// Creates the result of a check that does not apply.
    pub fn skipped(id: CheckId, subject: &str, reason: impl Into<String>) -> Self {
        Self::new(id, CheckStatus::Skipped, subject, reason)
    }

    /// Creates the result of a check that depends on a check that did not pass.
    pub fn needs(id: CheckId, subject: &str, other: CheckId) -> Self {
        Self { needs: Some(other), ..Self::skipped(id, subject, format!("needs {other}")) }
    }

    /// Creates the result of a check whose facts this process does not know now.
    pub fn incomplete(id: CheckId, subject: &str, reason: impl Into<String>) -> Self {
        Self::new(id, CheckStatus::Incomplete, subject, reason)
    }

    /// Adds a sentence to the remedy.
    #[must_use]
    pub fn with_remedy(mut self, sentence: impl Into<String>) -> Self {
        self.remedy.push(sentence.into());
        self
    }

    /// Adds a command to the remedy. It has to run in a shell as it is, but for the placeholders that `docs/checks.md`
    /// explains.
    #[must_use]
    pub fn with_command(mut self, command: impl Into<String>) -> Self {
        let command = command.into();
        self.remedy.push(command.clone());
        self.commands.push(command);
        self
    }

    /// Adds the steps after which the kubelet registers this Node again, without the fields that never change.
    fn with_registration(self, node: &str) -> Self {
        self.with_command(format!("kubectl drain {node} --ignore-daemonsets --delete-emptydir-data"))
            .with_command(format!("kubectl delete node {node}"))
            .with_remedy("restart the kubelet on its host, which registers the Node again")
    }

    /// Whether the check passed, possibly with a warning, so that checks that depend on it apply.
    pub fn is_passed(&self) -> bool {
        matches!(self.status, CheckStatus::Passed | CheckStatus::Warning)
    }

    fn lines(&self) -> Vec<Line> {
        let Self { id, subject, message, .. } = self;
        let (symbol, emphasis, prefix) = match self.status {
            CheckStatus::Passed => ("✓", Emphasis::Plain, ""),
            CheckStatus::Warning => ("‼", Emphasis::Notice, ""),
            CheckStatus::Failed => ("×", Emphasis::Finding, ""),
            CheckStatus::Skipped => ("–", Emphasis::Plain, "skipped: "),
            CheckStatus::Incomplete => ("–", Emphasis::Notice, "not known: "),
        };
        let subject = if subject.is_empty() { String::new() } else { format!("{subject}: ") };
        let indent = " ".repeat(INDENT);
        let mut texts = hanging(&format!("  {symbol} {id} "), &format!("{subject}{prefix}{message}"), INDENT);
        for step in &self.remedy {
            match self.commands.contains(step) {
                // A line break would make the command useless.
                true => texts.push(format!("{indent}  {step}")),
                false => texts.extend(hanging(&format!("{indent}→ "), step, INDENT + 2)),
            }
        }
        if matches!(self.status, CheckStatus::Warning | CheckStatus::Failed) {
            texts.push(format!("{indent}{}", self.page));
        }
        texts.iter().map(|text| Line::new(emphasis, text)).collect()
    }
}

/// Returns the command that gives the account the role Read-only on everything in a vCenter. `user` is the user name of
/// the account, if it is known.
fn read_only(user: Option<&str>) -> String {
    let account = user.map_or_else(|| "ACCOUNT".to_owned(), shell_word);
    format!("govc permissions.set -principal {account} -role ReadOnly -propagate=true /")
}

/// Turns each result that needs another check into one that is not known, unless the other check shows the cause: it
/// failed, is not known, needs a third check that shows the cause, or does not apply at all. Otherwise nothing would
/// show that a part was not looked at.
pub fn resolve_needs(checks: &mut [CheckResult]) {
    let applies = |check: &&CheckResult| check.status != CheckStatus::Skipped || check.needs.is_some();
    let applying: BTreeSet<CheckId> = checks.iter().filter(applies).map(|check| check.id).collect();
    let is_cause = |check: &&CheckResult| {
        matches!(check.status, CheckStatus::Failed | CheckStatus::Incomplete) || !applying.contains(&check.id)
    };
    let mut explained: BTreeSet<CheckId> = checks.iter().filter(is_cause).map(|check| check.id).collect();
    loop {
        let is_known = |id: &CheckId| explained.contains(id);
        let follows = |check: &&CheckResult| !is_known(&check.id) && check.needs.as_ref().is_some_and(is_known);
        let more: Vec<CheckId> = checks.iter().filter(follows).map(|check| check.id).collect();
        if more.is_empty() {
            break;
        }
        explained.extend(more);
    }
    for check in checks {
        if let Some(other) = check.needs.filter(|other| !explained.contains(other)) {
            check.status = CheckStatus::Incomplete;
            check.message = format!("depends on {other}, which did not fail; run the command again");
        }
    }
}

impl CheckSummary {
    /// Counts results.
    pub fn new(checks: &[CheckResult]) -> Self {
        let mut summary = Self::default();
        for check in checks {
            match check.status {
                CheckStatus::Passed => summary.passed += 1,
                CheckStatus::Warning => summary.warnings += 1,
                CheckStatus::Failed => summary.failed += 1,
                CheckStatus::Skipped => summary.skipped += 1,
                CheckStatus::Incomplete => summary.incomplete += 1,
            }
        }
        summary
    }

    fn text(self) -> String {
        let Self { passed, warnings, failed, skipped, incomplete } = self;
        let warnings = count(warnings, "warning");
        format!("{passed} passed, {warnings}, {failed} failed, {skipped} skipped, {incomplete} not known")
    }
}

impl CheckReport {
    /// The `kind` of JSON and YAML.
    pub const KIND: &str = "CheckReport";

    /// Returns the result. Warnings are no findings.
    pub fn verdict(&self) -> Verdict {
        match self.summary {
            CheckSummary { failed: 1.., .. } => Verdict::Findings,
            CheckSummary { incomplete: 1.., .. } => Verdict::Incomplete,
            _ => Verdict::Ok,
        }
    }

    /// Returns the text.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = self.header.lines();
        let mut last = None;
        for check in &self.checks {
            if last != Some(check.group) {
                lines.push(Line::new(Emphasis::Plain, ""));
                lines.push(Line::new(Emphasis::Plain, check.group.title()));
                last = Some(check.group);
            }
            lines.extend(check.lines());
        }
        lines.push(Line::new(Emphasis::Plain, ""));
        lines.push(Line::new(Emphasis::Plain, &self.summary.text()));
        lines
    }
}

#[cfg(test)]
mod tests;
