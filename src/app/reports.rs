//! Pure: the reports that commands print. Each report is data (`-o json`, `-o yaml`) and lines of text.

pub mod bundle;
pub mod check;
pub mod deletion_pause;
pub mod deletions;
pub mod explain;
#[cfg(test)]
pub mod golden;
pub mod header;
pub mod plan;
pub mod status;
pub mod text;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// `apiVersion` of every report. Fields may be added; a field that is removed or changes its meaning needs another
/// version.
pub const API_VERSION: &str = "cli.vsphere-ccm.dev/v1";

/// The result of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Everything is as it should be.
    Ok,
    /// Something is not as it should be.
    Findings,
    /// Nothing is known to be wrong, but a part is not known.
    Incomplete,
    /// The subject does not exist. What is left to show is its history.
    NotFound,
}

impl Verdict {
    /// Returns the exit code of the command.
    pub fn exit_code(self) -> u8 {
        match self {
            Verdict::Ok => 0,
            Verdict::Findings => 1,
            // As for a subject that was never known: how long a history is kept does not change the exit code.
            Verdict::NotFound => 2,
            Verdict::Incomplete => 3,
        }
    }
}

/// The importance of a line of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emphasis {
    /// As it should be.
    Plain,
    /// Worth knowing.
    Notice,
    /// Not as it should be.
    Finding,
}

/// A line of text without control characters: names and messages come from other programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The importance.
    pub emphasis: Emphasis,
    text: String,
}

impl Line {
    /// Returns a line as it is, but for control characters, which become spaces.
    pub fn new(emphasis: Emphasis, line: &str) -> Self {
        Self { emphasis, text: text::clean(line) }
    }

    /// Returns lines of this importance, each at most 100 columns wide unless one word is wider. Continued lines are
    /// indented.
    pub fn wrapped(emphasis: Emphasis, fields: &[String]) -> Vec<Self> {
        Self::indented(emphasis, fields, text::INDENT)
    }

    /// As [`Line::wrapped`], with continued lines indented by this number of columns.
    pub fn indented(emphasis: Emphasis, fields: &[String], indent: usize) -> Vec<Self> {
        text::wrapped(fields, indent).into_iter().map(|text| Self { emphasis, text }).collect()
    }

    /// Returns the text, without a line break.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Returns the document of a report for `-o json` and `-o yaml`. `fields` is the report as an object.
pub fn document(kind: &str, verdict: Verdict, fields: Value) -> Value {
    let mut document = json!({"apiVersion": API_VERSION, "kind": kind, "result": verdict});
    if let (Some(document), Value::Object(fields)) = (document.as_object_mut(), fields) {
        document.extend(fields);
    }
    document
}
