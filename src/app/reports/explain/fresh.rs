//! Pure: what `explain --fresh` has read again, compared with what the process knows.

use super::Section;
use crate::app::reports::{Emphasis, Line};
use serde::{Deserialize, Serialize};

/// The title of the section.
const TITLE: &str = "Read again";

/// The objects that were read again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FreshReading {
    /// The calls, by server. Empty if no call was made.
    pub calls: Vec<ServerCalls>,
    /// The objects, in the order in which they were read.
    pub objects: Vec<FreshObject>,
    /// The reason why nothing, or not everything, was read.
    pub failure: Option<String>,
}

/// The number of calls to one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerCalls {
    /// The server, such as `vCenter vc.example.com:443`.
    pub server: String,
    /// The number of calls, with those that have failed.
    pub calls: u64,
}

/// One object that was read again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FreshObject {
    /// The kind, such as `VM`.
    pub kind: String,
    /// The name; may be empty.
    pub name: String,
    /// What differs from what the process knows.
    pub differences: Vec<FieldDifference>,
    /// What else was read; empty if it is not worth a text.
    pub text: String,
    /// The reason why the object was not read.
    pub failure: Option<String>,
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldDifference {
    /// The field, such as `power state`.
    pub field: String,
    /// What the process knows.
    pub known: String,
    /// What was read.
    pub read: String,
}

impl FieldDifference {
    /// Returns a difference.
    pub fn new(field: &str, known: impl Into<String>, read: impl Into<String>) -> Self {
        Self { field: field.to_owned(), known: known.into(), read: read.into() }
    }

    /// Returns the difference of an object of which only one side has seen the existence.
    pub fn of_existence(is_known: bool) -> Self {
        let text = |exists| if exists { "exists" } else { "does not exist" };
        Self::new("object", text(is_known), text(!is_known))
    }
}

impl FreshObject {
    /// Returns an object that was read.
    pub fn read(kind: &str, name: &str, differences: Vec<FieldDifference>) -> Self {
        Self { kind: kind.to_owned(), name: name.to_owned(), differences, ..Self::default() }
    }

    /// Returns an object that was not read.
    pub fn failed(kind: &str, name: &str, failure: impl Into<String>) -> Self {
        let failure = Some(failure.into());
        Self { kind: kind.to_owned(), name: name.to_owned(), failure, ..Self::default() }
    }

    /// Adds what else was read.
    #[must_use]
    pub fn with_text(self, text: String) -> Self {
        Self { text, ..self }
    }

    fn add_to(&self, section: &mut Section) {
        let prefix = if self.name.is_empty() { String::new() } else { format!("{}: ", self.name) };
        if let Some(failure) = &self.failure {
            section.add_finding(&self.kind, format!("{prefix}not read: {failure}"));
            return;
        }
        if self.differences.is_empty() {
            let text = if self.text.is_empty() { "as known" } else { self.text.as_str() };
            section.add(&self.kind, format!("{prefix}{text}"));
            return;
        }
        section.add_finding(&self.kind, format!("{prefix}differs from what this process knows"));
        for FieldDifference { field, known, read } in &self.differences {
            section.add_finding("", format!("{field}: {read}, known is {known}"));
        }
    }
}

impl FreshReading {
    /// Whether everything was read.
    pub fn is_complete(&self) -> bool {
        self.failure.is_none() && self.objects.iter().all(|object| object.failure.is_none())
    }

    /// Whether something differs from what the process knows.
    pub fn has_differences(&self) -> bool {
        self.objects.iter().any(|object| !object.differences.is_empty())
    }

    /// Returns the line with the number of calls, and the reason why not everything was read.
    pub fn summary(&self) -> Vec<Line> {
        let number = |calls: u64| if calls == 1 { "1 call".to_owned() } else { format!("{calls} calls") };
        let calls: Vec<String> =
            self.calls.iter().map(|server| format!("{} to {}", number(server.calls), server.server)).collect();
        let calls = if calls.is_empty() { "no call".to_owned() } else { calls.join(", ") };
        let mut lines = Line::wrapped(Emphasis::Notice, &[format!("read again: {calls}")]);
        if let Some(failure) = &self.failure {
            lines.extend(Line::wrapped(Emphasis::Finding, &[format!("not everything was read again: {failure}")]));
        }
        lines
    }

    /// Returns the section with the objects.
    pub fn section(&self) -> Section {
        let mut section = Section::new(TITLE);
        for object in &self.objects {
            object.add_to(&mut section);
        }
        section
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::reports::explain::{ExplainReport, SubjectState};
    use crate::app::reports::golden::assert_golden;
    use crate::app::reports::header::ReportHeader;

    fn facts(reading: &FreshReading) -> Vec<(String, bool)> {
        let fact = |fact: super::super::Fact| (format!("{} | {}", fact.label, fact.text), fact.is_finding);
        reading.section().facts.into_iter().map(fact).collect()
    }

    fn summary(reading: &FreshReading) -> Vec<String> {
        reading.summary().iter().map(|line| line.text().to_owned()).collect()
    }

    #[test]
    fn objects_are_as_known_or_differ_or_were_not_read() {
        let reading = FreshReading {
            calls: vec![
                ServerCalls { server: "vCenter vc:443".to_owned(), calls: 3 },
                ServerCalls { server: "the API server".to_owned(), calls: 1 },
            ],
            objects: vec![
                FreshObject::read("Node", "worker-7", Vec::new()),
                FreshObject::read("VM", "vm-3", vec![FieldDifference::new("power state", "on", "off")]),
                FreshObject::read("VMs", "", Vec::new()).with_text("vm-3 has the UUID".to_owned()),
                FreshObject::failed("tags", "vc:443", "no answer"),
            ],
            failure: None,
        };
        assert_eq!(summary(&reading), ["read again: 3 calls to vCenter vc:443, 1 call to the API server"]);
        let expected = [
            ("Node | worker-7: as known", false),
            ("VM | vm-3: differs from what this process knows", true),
            (" | power state: off, known is on", true),
            ("VMs | vm-3 has the UUID", false),
            ("tags | vc:443: not read: no answer", true),
        ];
        assert_eq!(facts(&reading), expected.map(|(text, is_finding)| (text.to_owned(), is_finding)));
        assert!(reading.has_differences() && !reading.is_complete());
    }

    #[test]
    fn a_reading_without_a_turn_says_so_and_made_no_call() {
        let reading = FreshReading { failure: Some("busy".to_owned()), ..FreshReading::default() };
        assert_eq!(summary(&reading), ["read again: no call", "not everything was read again: busy"]);
        assert!(!reading.is_complete() && !reading.has_differences());
        assert!(FreshReading::default().is_complete());
    }

    #[test]
    fn an_object_that_only_one_side_has_is_a_difference() {
        let texts = [true, false].map(FieldDifference::of_existence).map(|one| (one.known, one.read));
        let expected = [("exists", "does not exist"), ("does not exist", "exists")];
        assert_eq!(texts, expected.map(|(known, read)| (known.to_owned(), read.to_owned())));
    }

    #[test]
    fn the_json_is_documented_by_an_example() {
        let mut section = Section::new("VM");
        section.add("name", "worker-7 (vm-37) on vc.example.com:443, powered on, connected");
        section.add_finding("reconcile", "waits for the tags");
        let host = FieldDifference::new("host", "HostSystem:host-18", "HostSystem:host-27");
        let reading = FreshReading {
            calls: vec![
                ServerCalls { server: "vCenter vc.example.com:443".to_owned(), calls: 2 },
                ServerCalls { server: "the API server".to_owned(), calls: 1 },
            ],
            objects: vec![
                FreshObject::read("Node", "worker-7", Vec::new()),
                FreshObject::read("VM", "vm-37", vec![host]),
                FreshObject::read("search", "UUID 4211a1b2-c3d4-4e5f-8a9b-000000000007", Vec::new())
                    .with_text("vm-37 on vc.example.com:443".to_owned()),
                FreshObject::failed("tags", "vm-37", "no answer within 10 s"),
            ],
            failure: Some("the answers took longer than 20.0 s".to_owned()),
        };
        let report = ExplainReport {
            header: ReportHeader::of_test(),
            subject: "Node worker-7".to_owned(),
            summary: "initialized, up to date".to_owned(),
            state: SubjectState::Settled,
            sections: vec![section],
            fresh: Some(reading),
        };
        assert_golden("explain-fresh", ExplainReport::KIND, report.verdict(), &report);
    }
}
