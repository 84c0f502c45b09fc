//! Compares the writes of the controllers with the announcements, as long as no input of an announcement has changed.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::super::{FieldValues, announced, differences, fields};
use super::cloud::{Cloud, Question};
use super::server::Outcome;
use super::world::{Announcement, OUT_OF_SERVICE_AFTER, World, parsed};
use crate::app::reports::plan::{ChangeKind, ObjectPlan, PlannedChange};
use crate::cloud::node;
use crate::controllers::node::plan::CONDITION;
use crate::controllers::node_lifecycle::DeletionMode;
use crate::controllers::node_lifecycle::deletion_policy::HoldReason;
use crate::controllers::node_lifecycle::plan::{ANNOTATION_OUT_OF_SERVICE, TAINT_OUT_OF_SERVICE, TAINT_SHUTDOWN};

/// After this time without a change of the inputs, all announced writes must have been made. It is longer than three
/// periods of the controllers with slow answers.
const WRITTEN_AFTER: Duration = Duration::from_secs(25);
/// An older announcement is not compared with further writes.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(90);
/// A failed request may have consequences for this time.
const FAILURE_LASTS: Duration = Duration::from_secs(40);
/// Interval between two reads of the Lease about the pause of deletions, and the time of a read.
const PAUSE_READ_AFTER: Duration = Duration::from_secs(45);
/// Tolerance of times.
const INSTANT: Duration = Duration::from_millis(20);

/// Numbers of the writes to one Node that precede a version, by writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Inputs {
    of_others: u32,
    of_node: u32,
    of_lifecycle: u32,
}

impl Inputs {
    /// Whether no other writer than `writer` has written in between.
    fn are_same_for(self, writer: Writer, other: Self) -> bool {
        self.of_others == other.of_others
            && match writer {
                Writer::Node => self.of_lifecycle == other.of_lifecycle,
                Writer::Lifecycle => self.of_node == other.of_node,
            }
    }
}

/// The controller that wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    Node,
    Lifecycle,
}

/// The number of comparisons.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Announcements that are compared at all.
    pub announcements: usize,
    /// Writes of fields that an announcement names with the same inputs.
    pub writes: usize,
    /// Deletions that an announcement names with the same inputs.
    pub deletions: usize,
    /// Deletions that came after an announced hold, because it ended.
    pub held: usize,
    /// Announcements whose writes were all made.
    pub completed: usize,
    /// Announcements without a change, after which nothing was written.
    pub unchanged: usize,
    /// Announcements with an unknown answer.
    pub unknown: usize,
}

impl Seen {
    pub fn add(&mut self, other: Self) {
        self.announcements += other.announcements;
        self.writes += other.writes;
        self.deletions += other.deletions;
        self.held += other.held;
        self.completed += other.completed;
        self.unchanged += other.unchanged;
        self.unknown += other.unknown;
    }

    /// Whether no number is less than that of `least`.
    pub fn has(&self, least: &Self) -> bool {
        self.announcements >= least.announcements
            && self.writes >= least.writes
            && self.deletions >= least.deletions
            && self.held >= least.held
            && self.completed >= least.completed
            && self.unchanged >= least.unchanged
            && self.unknown >= least.unknown
    }
}

/// The announcements and the inputs of one race.
#[derive(Default)]
pub struct Judge {
    pub seen: Seen,
    /// The first fault of each kind.
    pub faults: BTreeMap<&'static str, String>,
    /// Inputs by `resourceVersion`, which is unique in the API server in memory.
    inputs: BTreeMap<String, Inputs>,
    open: Vec<OpenAnnouncement>,
    /// Time of the last change of a Node by others, or of its machine.
    changed_at: BTreeMap<String, Instant>,
    failed_at: BTreeMap<String, Instant>,
    /// Time of the last change that may concern the deletion of every Node.
    deletions_changed_at: Option<Instant>,
    paused_at: Option<Instant>,
}

struct OpenAnnouncement {
    announcement: Announcement,
    inputs: Inputs,
    /// Whether the cache had the version of the API server.
    is_current: bool,
    /// Whether a write with other inputs came after the announcement.
    is_overtaken: bool,
    is_concluded: bool,
}

impl Judge {
    /// Records a change of a Node by others.
    pub fn node_changed(&mut self, world: &World, name: &str, before: Option<&Node>) {
        let now = Instant::now();
        self.changed_at.insert(name.to_owned(), now);
        self.deletions_changed_at = Some(now);
        let Some(after) = world.live(name) else { return };
        let inputs = before.map(|before| self.inputs_of(before)).unwrap_or_default();
        self.inputs.insert(version(&after), Inputs { of_others: inputs.of_others + 1, ..inputs });
    }

    /// Records a change of the machine of a Node.
    pub fn machine_changed(&mut self, name: &str) {
        let now = Instant::now();
        self.changed_at.insert(name.to_owned(), now);
        self.deletions_changed_at = Some(now);
    }

    /// Records that others have started or ended a pause of deletions.
    pub fn pause_changed(&mut self) {
        self.paused_at = Some(Instant::now());
    }

    /// Keeps an announcement, and compares its parts with each other.
    pub fn announce(&mut self, world: &World, announcement: Announcement) {
        if let Some((kind, text)) = disagreement(world, &announcement) {
            self.fault(kind, format!("{text}\n{announcement}"));
        }
        self.seen.announcements += 1;
        self.seen.unknown += usize::from(announcement.is_unknown);
        let live = world.live(announcement.name());
        let is_current = live.is_some_and(|live| version(&live) == version(&announcement.node));
        let inputs = self.inputs_of(&announcement.node);
        let is_behind = announcement.is_behind;
        self.open.push(OpenAnnouncement {
            announcement,
            inputs,
            is_current,
            is_overtaken: is_behind,
            is_concluded: false,
        });
    }

    /// Compares what was done since the last call with the announcements.
    pub fn check(&mut self, world: &World) {
        for outcome in world.server.with(|state| std::mem::take(&mut state.outcomes)) {
            self.take(world, outcome);
        }
        self.conclude(world);
    }

    fn inputs_of(&self, node: &Node) -> Inputs {
        self.inputs.get(&version(node)).copied().unwrap_or_default()
    }

    fn take(&mut self, world: &World, outcome: Outcome) {
        let Outcome { at, method, name, before, after, is_success } = outcome;
        let before = before.map(parsed);
        let after = after.map(parsed);
        match (&before, &after) {
            (Some(before), Some(after)) if version(before) != version(after) => {
                let writer = writer_of(before, after);
                self.check_write(world, at, (before, after), writer);
                let mut inputs = self.inputs_of(before);
                match writer {
                    Writer::Node => inputs.of_node += 1,
                    Writer::Lifecycle => inputs.of_lifecycle += 1,
                }
                self.inputs.insert(version(after), inputs);
            }
            (Some(before), None) => {
                assert_eq!(method, Method::DELETE);
                self.check_deletion(world, at, before);
                self.changed_at.insert(name.clone(), at);
                self.deletions_changed_at = Some(at);
            }
            _ => {}
        }
        if !is_success {
            self.failed_at.insert(name, at);
        }
    }

    /// Checks that each announcement with the inputs of this write has announced it. A write with other inputs is
    /// itself an input that changed.
    fn check_write(&mut self, world: &World, at: Instant, (before, after): (&Node, &Node), writer: Writer) {
        let written = differences(before, after);
        let inputs = self.inputs_of(before);
        let mut all = std::mem::take(&mut self.open);
        let earlier = |open: &&mut OpenAnnouncement| open.is_about(before) && open.announcement.at <= at;
        for open in all.iter_mut().filter(earlier).filter(|open| !open.is_overtaken) {
            let announcement = &open.announcement;
            let has_same_inputs =
                open.inputs.are_same_for(writer, inputs) && open.knows_machine(&world.cloud, writer, at);
            if !has_same_inputs || self.has_failed(announcement.name(), announcement.at) {
                open.is_overtaken = true;
                continue;
            }
            let surprises = announcement.surprises(world, &written, at);
            let later = at.duration_since(announcement.at);
            self.seen.writes += 1;
            if !surprises.is_empty() {
                let text = format!("{writer:?} wrote {surprises:?} {later:?} after\n{announcement}");
                self.fault("a write was not announced", text);
            }
        }
        self.open = all;
    }

    /// Checks that each announcement with the inputs of this deletion has announced it.
    fn check_deletion(&mut self, world: &World, at: Instant, before: &Node) {
        let name = node::name(before);
        let inputs = self.inputs_of(before);
        let presence = world.cloud.answered(name, Question::Presence, at);
        let earlier = |open: &&OpenAnnouncement| open.is_about(before) && open.announcement.at <= at;
        let all = std::mem::take(&mut self.open);
        for open in all.iter().filter(earlier).filter(|open| !open.is_overtaken) {
            let announcement = &open.announcement;
            let has_same_inputs =
                open.inputs.are_same_for(Writer::Lifecycle, inputs) && announcement.presence == presence;
            if !has_same_inputs || self.has_failed(name, announcement.at) {
                continue;
            }
            let is_of_deletion =
                |change: &&PlannedChange| change.kind == ChangeKind::Delete || change.field == "deletion";
            let changes: Vec<ChangeKind> =
                announcement.plan.changes.iter().filter(is_of_deletion).map(|change| change.kind).collect();
            let is_expected = match (changes.as_slice(), &announcement.hold) {
                ([ChangeKind::Delete], None) => true,
                ([ChangeKind::Unknown], _) => continue,
                ([ChangeKind::Hold], Some(HoldReason::Grace { until })) => at.into_std() + INSTANT >= *until,
                ([ChangeKind::Hold], Some(HoldReason::DryRun | HoldReason::Off { .. })) => false,
                ([ChangeKind::Hold], Some(HoldReason::Paused(_))) => self.was_paused(announcement.at),
                ([ChangeKind::Hold], Some(hold)) => {
                    let others = world.cloud.last_presence_of_others(name);
                    let changed = [self.deletions_changed_at, others].into_iter().flatten().max();
                    hold.until().is_some_and(|until| at.into_std() + INSTANT >= until)
                        || changed.is_some_and(|changed| changed >= announcement.at)
                }
                _ => false,
            };
            let later = at.duration_since(announcement.at);
            self.seen.deletions += usize::from(changes.contains(&ChangeKind::Delete));
            self.seen.held += usize::from(changes.contains(&ChangeKind::Hold));
            if !is_expected {
                self.fault("a deletion was not announced", format!("{later:?} after\n{announcement}"));
            }
        }
        self.open = all;
    }

    fn fault(&mut self, kind: &'static str, text: String) {
        self.faults.entry(kind).or_insert(text);
    }

    /// Whether a request about this Node failed shortly before `at`, or later.
    fn has_failed(&self, name: &str, at: Instant) -> bool {
        self.failed_at.get(name).is_some_and(|failed| *failed + FAILURE_LASTS >= at)
    }

    /// Whether others have started or ended a pause that the process may not have read before `at`.
    fn was_paused(&self, at: Instant) -> bool {
        self.paused_at.is_some_and(|paused| paused + PAUSE_READ_AFTER >= at)
    }

    /// Checks that all that was announced is written when the inputs did not change for a while.
    fn conclude(&mut self, world: &World) {
        let now = Instant::now();
        let mut open = std::mem::take(&mut self.open);
        for open in open.iter_mut().filter(|open| !open.is_concluded && open.announcement.at.elapsed() >= WRITTEN_AFTER)
        {
            open.is_concluded = true;
            let announcement = &open.announcement;
            let name = announcement.name();
            let is_changed = self.changed_at.get(name).is_some_and(|changed| *changed >= announcement.at);
            if !is_changed && open.is_current && !open.is_overtaken && !self.failed_at.contains_key(name) {
                self.check_completion(world, announcement);
            }
        }
        open.retain(|open| now.duration_since(open.announcement.at) < FORGOTTEN_AFTER);
        self.open = open;
    }

    fn check_completion(&mut self, world: &World, announcement: &Announcement) {
        let name = announcement.name();
        let is_deletion = announcement.plan.changes.iter().any(|change| change.kind == ChangeKind::Delete);
        let live = world.live(name);
        if is_deletion && world.deletion == DeletionMode::Enforce {
            let is_changed = self.deletions_changed_at.is_some_and(|changed| changed >= announcement.at)
                || self.was_paused(announcement.at);
            if live.is_some() && !is_changed {
                self.fault("an announced deletion was not made", announcement.to_string());
            }
            return;
        }
        let Some(live) = live else { return };
        let (gone, new) = announced(&announcement.plan);
        let present = fields(&live);
        let is_written = |field: &&(String, String), is_new: bool| {
            // The limit on deletions may hold this taint meanwhile.
            field.0.contains("out-of-service") || present.contains(*field) == is_new
        };
        let missing: Vec<_> = new
            .iter()
            .filter(|field| !is_written(field, true))
            .chain(gone.iter().filter(|field| !is_written(field, false) && !new.contains(*field)))
            .filter(|_| !announcement.has_deferred)
            .collect();
        if !missing.is_empty() {
            let text = format!("{missing:?} in {present:?}\n{announcement}");
            self.fault("an announced write was not made", text);
        }
        match gone.is_empty() && new.is_empty() {
            true => self.seen.unchanged += 1,
            false => self.seen.completed += 1,
        }
    }
}

impl OpenAnnouncement {
    fn is_about(&self, node: &Node) -> bool {
        self.announcement.node.metadata.uid == node.metadata.uid
    }

    /// Whether the announcement and the last answer for this writer are about the same version of the machine.
    fn knows_machine(&self, cloud: &Cloud, writer: Writer, at: Instant) -> bool {
        let question = match writer {
            Writer::Node => Question::Metadata,
            Writer::Lifecycle if self.announcement.is_ready() => return true,
            Writer::Lifecycle => Question::Power,
        };
        cloud.answered(self.announcement.name(), question, at) == Some(self.announcement.machine)
    }
}

impl Announcement {
    /// Returns the written values that are neither announced nor due to time alone.
    fn surprises(&self, world: &World, written: &(FieldValues, FieldValues), at: Instant) -> Vec<String> {
        let (announced_gone, announced_new) = announced(&self.plan);
        let mut surprises = Vec::new();
        for (word, values, announced) in [("gone", &written.0, announced_gone), ("new", &written.1, announced_new)] {
            let announced = without_time(&announced);
            for (field, value) in without_time(values).difference(&announced) {
                if !self.excuses(world, field, at) {
                    surprises.push(format!("{word}: {field} {value}"));
                }
            }
        }
        surprises
    }

    /// Whether time alone has led to the write of this field.
    fn excuses(&self, world: &World, field: &str, at: Instant) -> bool {
        let later = at.duration_since(self.at) + INSTANT;
        let is_out_of_service =
            [format!("taint {TAINT_OUT_OF_SERVICE}"), format!("annotation {ANNOTATION_OUT_OF_SERVICE}")];
        if is_out_of_service.iter().any(|own| own == field) {
            let is_held = self.plan.changes.iter().any(|change| change.field == "out-of-service taint");
            let is_due = |off_for: Duration| off_for < OUT_OF_SERVICE_AFTER && off_for + later >= OUT_OF_SERVICE_AFTER;
            return world.out_of_service_after.is_some() && (is_held || self.off_for.is_some_and(is_due));
        }
        let (waited, due) = self.waiting;
        field == format!("condition {CONDITION}") && waited < due && waited + later >= due
    }
}

/// Returns the kind and the text of a contradiction between the commands, or of something unknown that is announced as
/// unchanged.
fn disagreement(world: &World, announcement: &Announcement) -> Option<(&'static str, String)> {
    let plan = &announcement.plan;
    let has_kind = |kind: ChangeKind| plan.changes.iter().any(|change| change.kind == kind);
    let has_field = |field: &str| plan.changes.iter().any(|change| change.field == field);
    if announcement.is_unknown && !has_kind(ChangeKind::Unknown) {
        return Some(("something unknown is announced as unchanged", String::new()));
    }
    let of = |plan: &ObjectPlan| {
        let (gone, new) = announced(plan);
        gone.union(&new).cloned().collect::<FieldValues>()
    };
    let (next, complete) = (of(&announcement.next), of(plan));
    if !next.is_subset(&complete) || !announcement.has_deferred && next != complete {
        return Some(("`plan` and `explain node` differ", format!("{next:?}")));
    }
    let deletion = announcement.deletion.as_deref()?;
    let is_expected = if has_field("last attempt") && has_kind(ChangeKind::Delete) {
        deletion.starts_with("not deleted")
    } else if has_kind(ChangeKind::Delete) {
        deletion.starts_with("is deleted at the next check")
    } else if has_field("deletion") {
        let is_told = deletion.starts_with("not deleted") || deletion.starts_with("not known yet");
        is_told || world.deletion == DeletionMode::DryRun && deletion.starts_with("would be deleted")
    } else {
        // With deletions off, an unknown answer concerns only the other fields.
        let is_off = matches!(world.deletion, DeletionMode::Off { .. });
        !deletion.starts_with("is deleted") && (is_off || !deletion.starts_with("not deleted"))
    };
    (!is_expected).then(|| ("`plan` and `explain deletion` differ", deletion.to_owned()))
}

fn version(node: &Node) -> String {
    node.metadata.resource_version.clone().unwrap_or_default()
}

/// Returns the controller that has made these changes.
fn writer_of(before: &Node, after: &Node) -> Writer {
    let (gone, new) = differences(before, after);
    let own = [
        format!("taint {TAINT_SHUTDOWN}"),
        format!("taint {TAINT_OUT_OF_SERVICE}"),
        format!("annotation {ANNOTATION_OUT_OF_SERVICE}"),
    ];
    let is_of_lifecycle = gone.iter().chain(&new).any(|(field, _)| own.contains(field));
    if is_of_lifecycle { Writer::Lifecycle } else { Writer::Node }
}

/// Returns the values without that of the annotation that is the time of the write.
fn without_time(values: &FieldValues) -> FieldValues {
    let annotation = format!("annotation {ANNOTATION_OUT_OF_SERVICE}");
    let shown = |(field, value): &(String, String)| {
        (field.clone(), if *field == annotation { String::new() } else { value.clone() })
    };
    values.iter().map(shown).collect()
}
