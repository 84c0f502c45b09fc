//! Pure: the report of `explain`: one subject, what is known of it, and what follows from that.

pub mod fresh;

use super::header::ReportHeader;
use super::text::{INDENT, duration};
use super::{Emphasis, Line, Verdict};
use fresh::FreshReading;
use serde::{Deserialize, Serialize};

/// Width of the labels in a section, in columns.
const LABELS: usize = 18;

/// The explanation of one subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainReport {
    /// The process.
    #[serde(flatten)]
    pub header: ReportHeader,
    /// The subject, such as `Node worker-7`.
    pub subject: String,
    /// The state of the subject in one sentence.
    pub summary: String,
    /// The state of the subject.
    pub state: SubjectState,
    /// What is known, in order.
    pub sections: Vec<Section>,
    /// What was read again; missing without `--fresh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh: Option<FreshReading>,
}

/// The state of a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SubjectState {
    /// As it should be.
    Settled,
    /// Something has to happen first; the summary names it.
    Held,
    /// This process does not know, for example because it does not lead.
    Unknown,
    /// The subject does not exist any more.
    Gone,
}

/// A part of an explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Section {
    /// The title, such as `Addresses`.
    pub title: String,
    /// The facts, in order.
    pub facts: Vec<Fact>,
}

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fact {
    /// The label, such as `InternalIP`. May be empty.
    pub label: String,
    /// The fact.
    pub text: String,
    /// Whether the fact blocks the subject.
    pub is_finding: bool,
}

impl Section {
    /// Creates a section without facts.
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), facts: Vec::new() }
    }

    /// Adds a fact.
    pub fn add(&mut self, label: &str, text: impl Into<String>) {
        self.facts.push(Fact { label: label.to_owned(), text: text.into(), is_finding: false });
    }

    /// Adds a fact that blocks the subject.
    pub fn add_finding(&mut self, label: &str, text: impl Into<String>) {
        self.facts.push(Fact { label: label.to_owned(), text: text.into(), is_finding: true });
    }

    /// Adds a fact if there is one.
    pub fn add_some(&mut self, label: &str, text: Option<impl Into<String>>) {
        if let Some(text) = text {
            self.add(label, text);
        }
    }

    fn lines(&self) -> Vec<Line> {
        let mut lines = vec![Line::new(Emphasis::Plain, "")];
        lines.extend(Line::wrapped(Emphasis::Plain, std::slice::from_ref(&self.title)));
        for Fact { label, text, is_finding } in &self.facts {
            let emphasis = if *is_finding { Emphasis::Finding } else { Emphasis::Plain };
            // A label as wide as its column needs its own gap.
            let gap = if label.chars().count() >= LABELS { "  " } else { "" };
            let field = format!("  {label:<LABELS$}{gap}{text}");
            lines.extend(Line::indented(emphasis, &[field], INDENT + LABELS));
        }
        lines
    }
}

impl ExplainReport {
    /// The `kind` of JSON and YAML.
    pub const KIND: &str = "Explanation";

    /// Returns the result. What was not read again is not known, and a difference is a finding.
    pub fn verdict(&self) -> Verdict {
        if self.fresh.as_ref().is_some_and(|fresh| !fresh.is_complete()) {
            return Verdict::Incomplete;
        }
        let has_differences = self.fresh.as_ref().is_some_and(FreshReading::has_differences);
        match self.state {
            SubjectState::Settled if has_differences => Verdict::Findings,
            SubjectState::Settled => Verdict::Ok,
            SubjectState::Held => Verdict::Findings,
            SubjectState::Unknown => Verdict::Incomplete,
            // The process has not learnt yet that the subject exists again.
            SubjectState::Gone if has_differences => Verdict::Incomplete,
            SubjectState::Gone => Verdict::NotFound,
        }
    }

    /// Returns the text.
    pub fn lines(&self) -> Vec<Line> {
        let emphasis = match self.state {
            SubjectState::Settled => Emphasis::Plain,
            SubjectState::Held => Emphasis::Finding,
            SubjectState::Unknown | SubjectState::Gone => Emphasis::Notice,
        };
        let ReportHeader { host, leads, is_detached, find_leader, .. } = &self.header;
        let mut lines = Vec::new();
        if !is_detached && !leads {
            let text = format!("{host} does not lead: it shows what a standby knows");
            lines.extend(Line::wrapped(Emphasis::Notice, &[text]));
        }
        if let Some(command) = find_leader {
            lines.extend(Line::wrapped(Emphasis::Notice, &["find the Pod of the leader with".to_owned()]));
            lines.push(Line::new(Emphasis::Notice, &format!("  {command}")));
        }
        lines.extend(Line::wrapped(emphasis, &[self.subject.clone(), self.summary.clone()]));
        if *is_detached {
            let text = format!("read from {host}: what the leader waits for is not known here");
            lines.extend(Line::wrapped(Emphasis::Notice, &[text]));
        }
        let fresh = self.fresh.as_ref().map(FreshReading::section);
        lines.extend(self.fresh.iter().flat_map(FreshReading::summary));
        let sections = fresh.iter().chain(&self.sections).filter(|section| !section.facts.is_empty());
        lines.extend(sections.flat_map(Section::lines));
        lines
    }
}

/// Returns `for 6 m 12 s`.
pub fn lasting(seconds: u64) -> String {
    format!("for {}", duration(seconds))
}

/// Returns up to three of these names that are most similar to `wanted`, the most similar one first.
pub fn nearest(wanted: &str, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let wanted = wanted.to_lowercase();
    let near = names.into_iter().filter_map(|name| Some((near_distance(&wanted, &name.to_lowercase())?, name)));
    let mut near: Vec<(usize, String)> = near.collect();
    near.sort();
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Returns the number of edits between two names; `None` if they are not similar.
fn near_distance(wanted: &str, name: &str) -> Option<usize> {
    // A part of a name is near, whatever the length of the name.
    if name.contains(wanted) {
        return Some(usize::from(name != wanted));
    }
    let lengths = (wanted.chars().count(), name.chars().count());
    let limit = lengths.0.max(lengths.1) / 2;
    // Every missing character is an edit, and the number of all edits takes long to compute for long names.
    if lengths.0.abs_diff(lengths.1) > limit {
        return None;
    }
    Some(strsim::levenshtein(wanted, name)).filter(|edits| *edits <= limit)
}

#[cfg(test)]
mod tests {
    use super::fresh::{FieldDifference, FreshObject};
    use super::*;

    #[test]
    fn sections_stand_below_the_summary_and_empty_ones_are_left_out() {
        let mut section = Section::new("Addresses");
        section.add("InternalIP", "10.20.0.17, the first usable address");
        section.add_finding("", "no ExternalIP");
        section.add("label of 18 chars.", "apart");
        section.add_some("refused", None::<&str>);
        let report = ExplainReport {
            header: ReportHeader { host: "cp-2".to_owned(), ..ReportHeader::of_standby() },
            subject: "Node worker-7".to_owned(),
            summary: "not initialized for 6 m 12 s: NoZoneTags".to_owned(),
            state: SubjectState::Held,
            sections: vec![Section::new("VM"), section],
            fresh: None,
        };
        let lines: Vec<_> = report.lines().into_iter().map(|line| (line.emphasis, line.text().to_owned())).collect();
        assert_eq!(
            lines,
            [
                (Emphasis::Notice, "cp-2 does not lead: it shows what a standby knows".to_owned()),
                (Emphasis::Notice, "find the Pod of the leader with".to_owned()),
                (Emphasis::Notice, "  kubectl -n kube-system get pods -o wide | grep -w cp-2".to_owned()),
                (Emphasis::Finding, "Node worker-7   not initialized for 6 m 12 s: NoZoneTags".to_owned()),
                (Emphasis::Plain, String::new()),
                (Emphasis::Plain, "Addresses".to_owned()),
                (Emphasis::Plain, "  InternalIP        10.20.0.17, the first usable address".to_owned()),
                (Emphasis::Finding, "                    no ExternalIP".to_owned()),
                (Emphasis::Plain, "  label of 18 chars.  apart".to_owned()),
            ]
        );
        let header = ReportHeader { is_detached: true, find_leader: None, ..report.header.clone() };
        let detached = ExplainReport { header, ..report.clone() };
        assert_eq!(detached.lines()[1].text(), "read from cp-2: what the leader waits for is not known here");
        let verdict = |state| ExplainReport { state, ..report.clone() }.verdict().exit_code();
        let states = [SubjectState::Settled, SubjectState::Held, SubjectState::Unknown, SubjectState::Gone];
        assert_eq!(states.map(verdict), [0, 1, 3, 2]);
    }

    #[test]
    fn what_was_read_again_stands_first_and_counts_for_the_result() {
        let report = |state, objects: Vec<FreshObject>| ExplainReport {
            header: ReportHeader::of_test(),
            subject: "Node worker-7".to_owned(),
            summary: "up to date".to_owned(),
            state,
            sections: Vec::new(),
            fresh: Some(FreshReading { objects, ..FreshReading::default() }),
        };
        let same = || FreshObject::read("Node", "worker-7", Vec::new());
        let other = || FreshObject::read("VM", "vm-3", vec![FieldDifference::new("name", "a", "b")]);
        let failed = || FreshObject::failed("VM", "vm-3", "no answer");
        for (state, objects, expected) in [
            (SubjectState::Settled, vec![same()], Verdict::Ok),
            (SubjectState::Settled, vec![same(), other()], Verdict::Findings),
            (SubjectState::Settled, vec![other(), failed()], Verdict::Incomplete),
            (SubjectState::Held, vec![same()], Verdict::Findings),
            (SubjectState::Held, vec![failed()], Verdict::Incomplete),
            (SubjectState::Unknown, vec![other()], Verdict::Incomplete),
            (SubjectState::Gone, vec![same()], Verdict::NotFound),
            (SubjectState::Gone, vec![other()], Verdict::Incomplete),
            (SubjectState::Gone, vec![failed()], Verdict::Incomplete),
        ] {
            assert_eq!(report(state, objects.clone()).verdict(), expected, "{state:?} {objects:?}");
        }
        let lines: Vec<String> =
            report(SubjectState::Settled, vec![same()]).lines().iter().map(|line| line.text().to_owned()).collect();
        let expected = ["Node worker-7   up to date", "read again: no call", "", "Read again"];
        assert_eq!(lines[..4], expected);
        assert_eq!(lines[4], "  Node              worker-7: as known");
    }

    #[test]
    fn near_names_are_the_similar_ones_and_those_that_contain_the_word() {
        let names = ["worker-1", "worker-2", "cp-1", "worker-17", "storage.example.com"].map(str::to_owned);
        assert_eq!(nearest("workr-1", names.clone()), ["worker-1", "worker-17", "worker-2"]);
        assert_eq!(nearest("storage", names.clone()), ["storage.example.com"]);
        assert_eq!(nearest("Worker-2", names.clone())[0], "worker-2");
        assert_eq!(nearest("xyzxyzxyz", names), [""; 0]);
        let many = (0..100_000).map(|number| format!("worker-{number}"));
        let began = std::time::Instant::now();
        assert_eq!(nearest(&"w".repeat(60_000), many), [""; 0], "no edits are counted for names of other lengths");
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }
}
