//! Pure: the parts of a bundle, and the manifest that says what a bundle has and what it lacks.

pub mod anonymiser;
pub mod archive;

use super::text::count;
use super::{Emphasis, Line, Verdict};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Width of the names of parts, in columns.
const NAMES: usize = 18;

/// A part of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BundlePart {
    /// The screen of `status`.
    Screen,
    /// `status -o json`
    Status,
    /// `check -o json`
    Check,
    /// The active configuration without its secrets.
    Configuration,
    /// All flags with their values.
    Flags,
    /// The last decisions about Nodes, deletions, Services and routes.
    Decisions,
    /// The last lines of the log.
    Log,
    /// All metrics.
    Metrics,
    /// The Leases of the election, of deletions and of the login throttle.
    Leases,
    /// Events in the namespaces of Nodes and of the Lease.
    Events,
    /// The VMs behind Nodes.
    Inventory,
    /// The Nodes, with the fields that this program reads.
    Nodes,
}

impl BundlePart {
    /// All parts. The first ones matter most: if the archive becomes too large, the last parts are cut or left out.
    pub const ALL: [Self; 12] = [
        Self::Screen,
        Self::Status,
        Self::Check,
        Self::Configuration,
        Self::Flags,
        Self::Decisions,
        Self::Log,
        Self::Metrics,
        Self::Leases,
        Self::Events,
        Self::Inventory,
        Self::Nodes,
    ];

    /// Returns name and extension of the file with this part. A part of several pages has a file for each.
    pub fn file(self) -> (&'static str, &'static str) {
        match self {
            Self::Screen => ("status", "txt"),
            Self::Status => ("status", "json"),
            Self::Check => ("check", "json"),
            Self::Configuration => ("configuration", "txt"),
            Self::Flags => ("flags", "txt"),
            Self::Decisions => ("decisions", "json"),
            Self::Log => ("log", "txt"),
            Self::Metrics => ("metrics", "txt"),
            Self::Leases => ("leases", "json"),
            Self::Events => ("events", "json"),
            Self::Inventory => ("inventory", "json"),
            Self::Nodes => ("nodes", "json"),
        }
    }

    /// Whether the part may have more than one page.
    pub fn has_pages(self) -> bool {
        matches!(self, Self::Inventory | Self::Nodes)
    }
}

/// One page of a part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartPage {
    /// The content.
    pub content: PartContent,
    /// The place at which the next page begins; `None` for the last page.
    pub next: Option<String>,
    /// The reason why the content lacks something that could not be read; `None` if it lacks nothing.
    pub gap: Option<String>,
}

impl PartPage {
    /// Creates the only page of a part.
    pub fn only(content: PartContent) -> Self {
        Self { content, next: None, gap: None }
    }
}

/// The content of a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PartContent {
    /// A JSON document.
    Document(Value),
    /// Lines.
    Lines(String),
    /// The process has no such part, or may not read it. Contains the reason.
    Unavailable(String),
    /// The part could not be read. Contains the reason.
    Unread(String),
}

/// A name that the process knows, for `--anonymise`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownName {
    /// What has the name.
    pub kind: NameKind,
    /// The name.
    pub name: String,
}

/// What has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum NameKind {
    /// A Node.
    Node,
    /// A VM.
    Vm,
    /// A server, an ESXi host, a guest or a Pod.
    Host,
    /// A user of vCenter or NSX.
    User,
    /// A Service with its namespace.
    Service,
    /// An object of the inventory of vCenter above a VM.
    Object,
}

/// The list of what a bundle has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleManifest {
    /// Version of process and command.
    pub version: String,
    /// Time at which the command began.
    pub time: Timestamp,
    /// Whether names and addresses are replaced by tokens.
    pub is_anonymised: bool,
    /// The limit of the archive, in bytes.
    pub max_size: usize,
    /// The parts, the most important one first.
    pub parts: Vec<PartSummary>,
}

/// What a bundle has of one part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartSummary {
    /// The part.
    pub part: BundlePart,
    /// Number of files in the archive.
    pub files: usize,
    /// Size of the files before compression, in bytes.
    pub size: usize,
    /// Whether the part is there.
    pub state: BundlePartState,
    /// The reason why the part or its rest is missing, or another remark. May be empty.
    pub note: String,
}

/// Whether a part is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BundlePartState {
    /// All of it.
    Complete,
    /// The beginning only, or the end of the log, because of `--max-size`.
    Cut,
    /// None of it, because of `--max-size`.
    LeftOut,
    /// The process has no such part, or may not read it.
    Unavailable,
    /// The part, or a page of it, could not be read.
    Failed,
}

impl BundlePartState {
    fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Cut => "cut",
            Self::LeftOut => "left out",
            Self::Unavailable => "not available",
            Self::Failed => "failed",
        }
    }

    /// Whether the bundle lacks what it could have.
    fn is_incomplete(self) -> bool {
        matches!(self, Self::Cut | Self::LeftOut | Self::Failed)
    }
}

impl BundleManifest {
    /// The `kind` of JSON and YAML.
    pub const KIND: &str = "BundleManifest";

    /// Returns the result: missing permissions do not make a bundle incomplete.
    pub fn verdict(&self) -> Verdict {
        match self.parts.iter().any(|part| part.state.is_incomplete()) {
            true => Verdict::Incomplete,
            false => Verdict::Ok,
        }
    }

    /// Returns the text.
    pub fn lines(&self) -> Vec<Line> {
        let names = if self.is_anonymised { "replaced by tokens" } else { "not replaced: see --anonymise" };
        let head = [
            format!("bundle of version {}", self.version),
            self.time.to_string(),
            format!("at most {}", size_text(self.max_size)),
        ];
        let mut lines = Line::wrapped(Emphasis::Plain, &head);
        let fields = ["secrets masked".to_owned(), format!("names and addresses {names}")];
        lines.extend(Line::wrapped(Emphasis::Plain, &fields));
        lines.extend(self.parts.iter().flat_map(PartSummary::lines));
        lines
    }
}

impl PartSummary {
    fn lines(&self) -> Vec<Line> {
        let (name, extension) = self.part.file();
        let name = format!("{name}.{extension}");
        let mut field = format!("  {name:<NAMES$}  {}", self.state.as_str());
        if self.files > 1 {
            field = format!("{field}, {}", count(self.files, "file"));
        }
        if self.files > 0 {
            field = format!("{field}, {}", size_text(self.size));
        }
        if !self.note.is_empty() {
            field = format!("{field}: {}", self.note);
        }
        let emphasis = if self.state.is_incomplete() { Emphasis::Notice } else { Emphasis::Plain };
        Line::indented(emphasis, &[field], NAMES + 4)
    }
}

/// Returns a size in the largest unit in which it is at least one, rounded down.
fn size_text(bytes: usize) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| bytes >> shift > 0);
    unit.map_or_else(|| format!("{bytes} B"), |(shift, unit)| format!("{} {unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::reports::golden::assert_golden;

    fn manifest(parts: Vec<PartSummary>) -> BundleManifest {
        BundleManifest {
            version: "0.1.0".to_owned(),
            time: "2026-11-24T03:13:21Z".parse().unwrap(),
            is_anonymised: false,
            max_size: 16 << 20,
            parts,
        }
    }

    fn summary(part: BundlePart, state: BundlePartState, files: usize, note: &str) -> PartSummary {
        PartSummary { part, files, size: files * 3_000, state, note: note.to_owned() }
    }

    fn all() -> BundleManifest {
        manifest(vec![
            summary(BundlePart::Screen, BundlePartState::Complete, 1, ""),
            summary(BundlePart::Log, BundlePartState::Cut, 1, "the last 1 MiB because of --max-size"),
            summary(BundlePart::Events, BundlePartState::Unavailable, 0, "list events: forbidden"),
            summary(BundlePart::Inventory, BundlePartState::LeftOut, 0, "because of --max-size"),
            summary(BundlePart::Nodes, BundlePartState::Failed, 2, "no answer"),
        ])
    }

    #[test]
    fn the_manifest_names_each_part_with_what_is_missing() {
        let lines: Vec<_> = all().lines().into_iter().map(|line| (line.emphasis, line.text().to_owned())).collect();
        let plain = |text: &str| (Emphasis::Plain, text.to_owned());
        let notice = |text: &str| (Emphasis::Notice, text.to_owned());
        let expected = [
            plain("bundle of version 0.1.0   2026-11-24T03:13:21Z   at most 16 MiB"),
            plain("secrets masked   names and addresses not replaced: see --anonymise"),
            plain("  status.txt          complete, 2 KiB"),
            notice("  log.txt             cut, 2 KiB: the last 1 MiB because of --max-size"),
            plain("  events.json         not available: list events: forbidden"),
            notice("  inventory.json      left out: because of --max-size"),
            notice("  nodes.json          failed, 2 files, 5 KiB: no answer"),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_bundle_is_complete_without_what_nobody_may_read() {
        for (state, expected) in [
            (BundlePartState::Complete, Verdict::Ok),
            (BundlePartState::Unavailable, Verdict::Ok),
            (BundlePartState::Cut, Verdict::Incomplete),
            (BundlePartState::LeftOut, Verdict::Incomplete),
            (BundlePartState::Failed, Verdict::Incomplete),
        ] {
            assert_eq!(manifest(vec![summary(BundlePart::Log, state, 1, "")]).verdict(), expected, "{state:?}");
        }
    }

    #[test]
    fn each_part_has_a_file_of_its_own() {
        let files: std::collections::BTreeSet<_> = BundlePart::ALL.map(BundlePart::file).into();
        assert_eq!(files.len(), BundlePart::ALL.len());
        for (bytes, expected) in [(1023, "1023 B"), (1024, "1 KiB"), (16 << 20, "16 MiB"), (3 << 30, "3 GiB")] {
            assert_eq!(size_text(bytes), expected);
        }
    }

    /// The fields are part of the interface: scripts read them.
    #[test]
    fn the_document_is_the_golden_file() {
        let manifest = all();
        assert_golden("bundle-manifest", BundleManifest::KIND, manifest.verdict(), &manifest);
    }
}
