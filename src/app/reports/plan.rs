//! Pure: the report of `plan`: what the controllers would create, update, delete, adopt or hold now, against what is
//! there. Objects that need nothing are counted and not listed.

use super::header::ReportHeader;
use super::text::{clean, count, hanging};
use super::{Emphasis, Line, Verdict};
use serde::{Deserialize, Serialize};

/// Maximum number of objects that a part lists.
const MAX_OBJECTS: usize = 1000;

/// Maximum number of changes that an object lists.
const MAX_CHANGES: usize = 40;

/// Maximum size of the texts that a part lists, in bytes. The local socket limits an answer to 8 MiB. JSON may double a
/// text without control characters, and a report has three parts.
const MAX_BYTES: usize = 1024 * 1024;

/// Size of the field names of an object or a change in JSON, in bytes, rounded up.
const FIELD_NAMES: usize = 120;

/// Maximum number of characters of a text. Texts of kubelets, guests and NSX may be longer.
const MAX_CHARS: usize = 300;

/// Width of the column with the kind of a change.
const KINDS: usize = 9;

/// The plan of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanReport {
    /// The process.
    #[serde(flatten)]
    pub header: ReportHeader,
    /// The only Node of the plan; `None` if the plan is about all objects.
    pub node: Option<String>,
    /// The Nodes: their fields, taints and deletion.
    pub nodes: PlanPart,
    /// The load balancers, by Service.
    pub load_balancers: PlanPart,
    /// The routes, by pod network.
    pub routes: PlanPart,
    /// The sums over all parts.
    pub counts: PlanCounts,
}

/// The plan for the objects of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanPart {
    /// Whether the part has a plan.
    pub state: PartState,
    /// The reason, if the part has no plan.
    pub message: Option<String>,
    /// The numbers of objects, including those that are not listed.
    pub counts: PlanCounts,
    /// The objects that need something, ordered by name.
    pub objects: Vec<ObjectPlan>,
    /// Number of further objects that need something.
    pub omitted: usize,
}

/// Whether a part has a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PartState {
    /// The part has a plan.
    Planned,
    /// This process changes no object of this kind, because of its settings or of `--node`.
    Off,
    /// This process does not know the plan now.
    Unknown,
}

/// Numbers of objects. An object with changes of several kinds is counted for each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanCounts {
    /// Number of all objects.
    pub objects: usize,
    /// Number of objects with something to create.
    pub created: usize,
    /// Number of objects with something to update.
    pub updated: usize,
    /// Number of objects with something to delete.
    pub deleted: usize,
    /// Number of objects with something to adopt.
    pub adopted: usize,
    /// Number of objects with something that a reason holds.
    pub held: usize,
    /// Number of objects about which something is not known.
    pub unknown: usize,
    /// Number of objects that need nothing.
    pub unchanged: usize,
}

/// The plan for one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectPlan {
    /// Name of the Node, namespace and name of the Service, or pod network of the routes.
    pub name: String,
    /// The changes, in the order in which they are made.
    pub changes: Vec<PlannedChange>,
    /// Number of further changes.
    pub omitted: usize,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedChange {
    /// The kind.
    pub kind: ChangeKind,
    /// The field or object that changes, such as `label topology.kubernetes.io/zone`.
    pub field: String,
    /// The present value; `None` if there is none.
    pub present: Option<String>,
    /// The value after the change; `None` if there is none then.
    pub planned: Option<String>,
    /// The reason, as in conditions and Events.
    pub reason: Option<String>,
    /// Details.
    pub message: Option<String>,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeKind {
    /// A new object is created.
    Create,
    /// A field or an object is written. A field without a value after the change is removed.
    Update,
    /// An object is deleted.
    Delete,
    /// An object of another program or of an earlier installation is taken over.
    Adopt,
    /// A reason prevents a change.
    Hold,
    /// The answer of the cloud is not known, or has to be read first.
    Unknown,
    /// The value stays, although the cloud has another one. Not a change, and no hold: a setting demands it.
    Keep,
}

impl ChangeKind {
    /// Returns the word in the text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Adopt => "adopt",
            Self::Hold => "hold",
            Self::Unknown => "unknown",
            Self::Keep => "keep",
        }
    }

    fn emphasis(self) -> Emphasis {
        match self {
            Self::Delete | Self::Hold => Emphasis::Finding,
            Self::Create | Self::Update | Self::Adopt | Self::Unknown => Emphasis::Notice,
            Self::Keep => Emphasis::Plain,
        }
    }
}

impl PlannedChange {
    /// Creates a change of this field without values.
    pub fn new(kind: ChangeKind, field: &str) -> Self {
        Self { kind, field: shown(field), present: None, planned: None, reason: None, message: None }
    }

    /// Creates an update of a field.
    pub fn update(field: &str, present: Option<&str>, planned: Option<&str>) -> Self {
        Self { present: present.map(shown), planned: planned.map(shown), ..Self::new(ChangeKind::Update, field) }
    }

    /// Sets the kind.
    #[must_use]
    pub fn with_kind(self, kind: ChangeKind) -> Self {
        Self { kind, ..self }
    }

    /// Sets the present value.
    #[must_use]
    pub fn with_present(self, present: &str) -> Self {
        Self { present: Some(shown(present)), ..self }
    }

    /// Sets the value after the change.
    #[must_use]
    pub fn with_planned(self, planned: &str) -> Self {
        Self { planned: Some(shown(planned)), ..self }
    }

    /// Sets the reason.
    #[must_use]
    pub fn with_reason(self, reason: &str) -> Self {
        Self { reason: Some(reason.to_owned()), ..self }
    }

    /// Sets the details.
    #[must_use]
    pub fn with_message(self, message: &str) -> Self {
        Self { message: Some(shown(message)), ..self }
    }

    fn size(&self) -> usize {
        let texts = [&self.present, &self.planned, &self.reason, &self.message];
        FIELD_NAMES + self.field.len() + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }

    fn lines(&self) -> Vec<Line> {
        let Self { kind, field, present, planned, reason, message } = self;
        let mut parts = Vec::new();
        if present.is_some() || planned.is_some() {
            let or_none = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
            parts.push(format!("{} -> {}", or_none(present), or_none(planned)));
        }
        let why: Vec<&str> = [reason, message].into_iter().flatten().map(String::as_str).collect();
        if !why.is_empty() {
            parts.push(why.join(": "));
        }
        let first = format!("    {:<KINDS$}", kind.as_str());
        let texts = hanging(&first, &format!("{field}: {}", parts.join("; ")), 4 + KINDS + 2);
        texts.iter().map(|text| Line::new(kind.emphasis(), text)).collect()
    }
}

/// Returns a text without control characters, cut after 300 characters.
fn shown(text: &str) -> String {
    let clean = clean(text);
    match clean.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", clean.get(..end).unwrap_or_default()),
        None => clean,
    }
}

impl ObjectPlan {
    /// Creates the plan for an object that needs nothing.
    pub fn new(name: &str) -> Self {
        Self { name: shown(name), ..Self::default() }
    }

    /// Adds a change.
    pub fn add(&mut self, change: PlannedChange) {
        self.changes.push(change);
    }

    fn has(&self, kind: ChangeKind) -> bool {
        self.changes.iter().any(|change| change.kind == kind)
    }

    fn counts(&self) -> PlanCounts {
        let number = |kind| usize::from(self.has(kind));
        let needs_nothing = self.changes.iter().all(|change| change.kind == ChangeKind::Keep);
        PlanCounts {
            objects: 1,
            created: number(ChangeKind::Create),
            updated: number(ChangeKind::Update),
            deleted: number(ChangeKind::Delete),
            adopted: number(ChangeKind::Adopt),
            held: number(ChangeKind::Hold),
            unknown: number(ChangeKind::Unknown),
            unchanged: usize::from(needs_nothing),
        }
    }

    fn size(&self) -> usize {
        FIELD_NAMES + self.name.len() + self.changes.iter().map(PlannedChange::size).sum::<usize>()
    }

    fn lines(&self, noun: &str) -> Vec<Line> {
        let mut lines = vec![Line::new(Emphasis::Plain, &format!("  {noun} {}", self.name))];
        lines.extend(self.changes.iter().flat_map(PlannedChange::lines));
        if self.omitted > 0 {
            lines.push(Line::new(Emphasis::Plain, &format!("    and {} more", self.omitted)));
        }
        lines
    }
}

impl PlanCounts {
    fn add(&mut self, other: Self) {
        self.objects += other.objects;
        self.created += other.created;
        self.updated += other.updated;
        self.deleted += other.deleted;
        self.adopted += other.adopted;
        self.held += other.held;
        self.unknown += other.unknown;
        self.unchanged += other.unchanged;
    }

    fn has_changes_or_holds(self) -> bool {
        [self.created, self.updated, self.deleted, self.adopted, self.held].iter().any(|number| *number > 0)
    }

    fn text(self) -> String {
        let Self { created, updated, deleted, adopted, held, unknown, unchanged, .. } = self;
        format!(
            "{created} created, {updated} updated, {deleted} deleted, {adopted} adopted, {held} held, \
             {unknown} unknown, {unchanged} need nothing"
        )
    }
}

/// Collects the objects of one part within its limits.
#[derive(Debug)]
pub struct PlanPartBuilder {
    part: PlanPart,
    /// Size of the listed objects.
    size: usize,
}

impl Default for PlanPartBuilder {
    fn default() -> Self {
        let part = PlanPart {
            state: PartState::Planned,
            message: None,
            counts: PlanCounts::default(),
            objects: Vec::new(),
            omitted: 0,
        };
        Self { part, size: 0 }
    }
}

impl PlanPartBuilder {
    /// Adds an object. It is counted, and listed if it has changes and the limits allow it.
    pub fn add(&mut self, mut object: ObjectPlan) {
        let part = &mut self.part;
        part.counts.add(object.counts());
        if object.changes.is_empty() {
            return;
        }
        object.omitted = object.changes.len().saturating_sub(MAX_CHANGES);
        object.changes.truncate(MAX_CHANGES);
        let size = object.size();
        // Once an object is not listed, the later ones are not listed either.
        if part.omitted > 0 || part.objects.len() >= MAX_OBJECTS || self.size + size > MAX_BYTES {
            part.omitted += 1;
            return;
        }
        self.size += size;
        part.objects.push(object);
    }

    /// Adds objects that need nothing.
    pub fn add_unchanged(&mut self, number: usize) {
        self.part.counts.add(PlanCounts { objects: number, unchanged: number, ..PlanCounts::default() });
    }

    /// Returns the part.
    pub fn build(self) -> PlanPart {
        self.part
    }
}

impl PlanPart {
    fn without_plan(state: PartState, message: &str) -> Self {
        let part = PlanPartBuilder::default().build();
        Self { state, message: Some(shown(message)), ..part }
    }

    /// Creates a part that this process does not change.
    pub fn off(message: &str) -> Self {
        Self::without_plan(PartState::Off, message)
    }

    /// Creates a part that this process does not know now.
    pub fn unknown(message: &str) -> Self {
        Self::without_plan(PartState::Unknown, message)
    }

    fn lines(&self, title: &str, noun: &str) -> Vec<Line> {
        let message = self.message.as_deref().unwrap_or_default();
        match self.state {
            PartState::Off => return Line::wrapped(Emphasis::Plain, &[format!("{title}: not planned: {message}")]),
            PartState::Unknown => return Line::wrapped(Emphasis::Notice, &[format!("{title}: not known: {message}")]),
            PartState::Planned => {}
        }
        let PlanCounts { objects, unchanged, .. } = self.counts;
        let title = format!("{title}: {}, {unchanged} need nothing", count(objects, noun));
        let mut lines = vec![Line::new(Emphasis::Plain, &title)];
        lines.extend(self.objects.iter().flat_map(|object| object.lines(noun)));
        if self.omitted > 0 {
            lines.push(Line::new(Emphasis::Notice, &format!("  and {} more", self.omitted)));
        }
        lines
    }
}

impl PlanReport {
    /// The `kind` of JSON and YAML.
    pub const KIND: &str = "Plan";

    /// Sets the sums over all parts.
    #[must_use]
    pub fn with_counts(mut self) -> Self {
        self.counts = PlanCounts::default();
        for part in [&self.nodes, &self.load_balancers, &self.routes] {
            self.counts.add(part.counts);
        }
        self
    }

    /// Returns the parts, each with its title and the noun for one object.
    fn parts(&self) -> [(&'static str, &'static str, &PlanPart); 3] {
        [
            ("Nodes", "Node", &self.nodes),
            ("Load balancers", "Service", &self.load_balancers),
            ("Routes", "network", &self.routes),
        ]
    }

    /// Returns the result. A change or a hold is a finding. What is not known is incomplete.
    pub fn verdict(&self) -> Verdict {
        let has_unknown_part = self.parts().iter().any(|(_, _, part)| part.state == PartState::Unknown);
        if self.counts.has_changes_or_holds() {
            Verdict::Findings
        } else if self.counts.unknown > 0 || has_unknown_part {
            Verdict::Incomplete
        } else {
            Verdict::Ok
        }
    }

    /// Returns the text. The last line is the verdict with the numbers of objects.
    pub fn lines(&self) -> Vec<Line> {
        let mut lines = self.header.lines();
        let mut unknown_parts = Vec::new();
        for (title, noun, part) in self.parts() {
            lines.push(Line::new(Emphasis::Plain, ""));
            lines.extend(part.lines(title, noun));
            if part.state == PartState::Unknown {
                unknown_parts.push(title);
            }
        }
        lines.push(Line::new(Emphasis::Plain, ""));
        if !unknown_parts.is_empty() {
            lines.push(Line::new(Emphasis::Notice, &format!("not known: {}", unknown_parts.join(", "))));
        }
        let (emphasis, verdict) = match self.verdict() {
            Verdict::Ok => (Emphasis::Plain, "no change"),
            Verdict::Findings => (Emphasis::Finding, "changes"),
            Verdict::Incomplete | Verdict::NotFound => (Emphasis::Notice, "incomplete"),
        };
        lines.push(Line::new(emphasis, &format!("{verdict}: {}", self.counts.text())));
        lines
    }
}

#[cfg(test)]
mod tests;
