//! Pure: schedules reads of the realized state. NSX answers a write before it has realized the object, and a deletion
//! only marks the object: only the realized state shows the outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::clients::nsx::realization::{REVISION_LAG, Realization, RevisionStatus};

/// Times at which the realized state is read after the last write. After the last read, the objects count as realized,
/// because NSX has reported no error.
const ROLLOUT_READS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10), Duration::from_secs(30)];
/// Pause after NSX reported an error; doubles with each further one.
const FIRST_ERROR_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_ERROR_PAUSE: Duration = Duration::from_secs(300);

/// Initial interval of reading the realized state of deleted virtual servers, and the time for which it applies.
const FIRST_TEARDOWN_PAUSE: Duration = Duration::from_secs(2);
const FIRST_TEARDOWN_READS: Duration = Duration::from_secs(20);
/// Later interval, and total duration: NSX purges deleted objects every five minutes.
const TEARDOWN_PAUSE: Duration = Duration::from_secs(15);
const TEARDOWN_LIMIT: Duration = Duration::from_secs(300);
/// Time after which NSX has purged a deleted object. Until then, the object may still refer to other objects.
const PURGE_LIMIT: Duration = Duration::from_secs(360);

/// Next action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextCheck {
    /// No object is awaited.
    Complete,
    /// Read the realized state of these objects.
    Read(Vec<Box<str>>),
    /// Read the realized state after this time.
    Wait(Duration),
    /// NSX reports these errors, by path. Read again after this time.
    Errors(BTreeMap<Box<str>, String>, Duration),
}

/// Result of reading the realized state of a written object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// NSX has realized the object.
    Realized,
    /// Not realized yet, or the read failed.
    Open,
    /// NSX failed to realize the object, with the text of the alarm.
    Error(String),
    /// This account may not read the realized state.
    Unreadable,
}

impl Effect {
    /// Evaluates a status, requested at `asked` and received at `answered` after the last write. The status of an older
    /// revision counts only if it is a failure at the last read: NSX may number revisions differently.
    pub fn of(status: RevisionStatus, asked: Duration, answered: Duration) -> Self {
        let realization = match status {
            RevisionStatus::Known(realization) => realization,
            RevisionStatus::Unversioned(realization) if asked >= REVISION_LAG => realization,
            RevisionStatus::Older(_, failed @ Realization::Failed(_)) if is_last_read(answered) => failed,
            RevisionStatus::Unversioned(_) | RevisionStatus::Older(..) => Realization::Pending,
        };
        match realization {
            Realization::Realized => Self::Realized,
            Realization::Pending => Self::Open,
            Realization::Failed(alarm) => Self::Error(alarm),
        }
    }
}

/// Whether a read this long after the last write is the last one of [`ROLLOUT_READS`].
fn is_last_read(age: Duration) -> bool {
    ROLLOUT_READS.iter().all(|after| *after <= age)
}

/// Written objects of a Service that NSX may not have realized.
#[derive(Clone, Debug)]
pub struct Rollout {
    /// Time of the last write.
    since: Instant,
    /// Number of [`ROLLOUT_READS`] that are done.
    reads: usize,
    pending: BTreeSet<Box<str>>,
    /// Written revisions of objects that existed before.
    revisions: BTreeMap<Box<str>, i64>,
    errors: BTreeMap<Box<str>, String>,
    /// Consecutive reads with errors, and time of the next read.
    failures: u32,
    next: Option<Instant>,
    realized: BTreeSet<Box<str>>,
    /// Objects that count as realized without confirmation.
    unconfirmed: BTreeSet<Box<str>>,
}

impl Rollout {
    /// A rollout without writes.
    pub fn new(at: Instant) -> Self {
        Self {
            since: at,
            reads: 0,
            pending: BTreeSet::new(),
            revisions: BTreeMap::new(),
            errors: BTreeMap::new(),
            failures: 0,
            next: None,
            realized: BTreeSet::new(),
            unconfirmed: BTreeSet::new(),
        }
    }

    /// Records a write. `revision` is the written revision, if the object existed before.
    pub fn written(&mut self, path: &str, revision: Option<i64>, at: Instant) {
        self.removed(path);
        self.pending.insert(path.into());
        self.revisions.extend(revision.map(|revision| (path.into(), revision)));
        (self.since, self.reads, self.failures, self.next) = (at, 0, 0, None);
    }

    /// Adds an object whose address is to be reported and that another process may have written.
    pub fn expect(&mut self, path: &str) {
        if !self.realized.contains(path) && !self.unconfirmed.contains(path) {
            self.pending.insert(path.into());
        }
    }

    /// Drops a deleted object.
    pub fn removed(&mut self, path: &str) {
        for paths in [&mut self.pending, &mut self.realized, &mut self.unconfirmed] {
            paths.remove(path);
        }
        self.errors.remove(path);
        self.revisions.remove(path);
    }

    /// The written revision of an object that existed before.
    pub fn revision(&self, path: &str) -> Option<i64> {
        self.revisions.get(path).copied()
    }

    /// Time since the last write.
    pub fn age(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.since)
    }

    /// The next action at this time.
    pub fn due(&self, at: Instant) -> NextCheck {
        if self.pending.is_empty() {
            return NextCheck::Complete;
        }
        let reads = ROLLOUT_READS.get(self.reads).map(|after| self.since + *after);
        let next = if self.is_decided() { self.next } else { reads };
        match next.map(|next| next.saturating_duration_since(at)) {
            None | Some(Duration::ZERO) => NextCheck::Read(self.pending.iter().cloned().collect()),
            Some(pause) if self.is_decided() => NextCheck::Errors(self.errors.clone(), pause),
            Some(pause) => NextCheck::Wait(pause),
        }
    }

    /// Whether NSX reports an error for every awaited object. If not, the other objects are awaited first: they may
    /// serve another address of the Service, which must not be reported yet.
    fn is_decided(&self) -> bool {
        self.errors.len() == self.pending.len()
    }

    /// Records the realized state of each object that was read at `at`, by path. Ignores objects whose realization is
    /// no longer awaited.
    pub fn note(&mut self, shown: BTreeMap<Box<str>, Effect>, at: Instant) {
        let age = self.age(at);
        self.reads = ROLLOUT_READS.iter().filter(|after| **after <= age).count();
        let is_last = is_last_read(age);
        for (path, effect) in shown.into_iter().filter(|(path, _)| self.pending.contains(path)).collect::<Vec<_>>() {
            self.errors.remove(&path);
            match effect {
                Effect::Error(alarm) => drop(self.errors.insert(path, alarm)),
                Effect::Open if !is_last => {}
                Effect::Realized => {
                    self.pending.remove(&path);
                    self.realized.insert(path);
                }
                Effect::Open | Effect::Unreadable => {
                    self.pending.remove(&path);
                    self.unconfirmed.insert(path);
                }
            }
        }
        self.failures = match self.errors.is_empty() {
            true => 0,
            false => self.failures + u32::from(self.is_decided()),
        };
        let pause = FIRST_ERROR_PAUSE.saturating_mul(1 << self.failures.saturating_sub(1).min(8));
        self.next = (self.failures > 0).then(|| at + pause.min(LONGEST_ERROR_PAUSE));
    }

    /// The objects that count as realized without confirmation by NSX.
    pub fn unconfirmed(&self) -> &BTreeSet<Box<str>> {
        &self.unconfirmed
    }

    /// Whether no object is awaited and none is unconfirmed.
    pub fn is_over(&self) -> bool {
        self.pending.is_empty() && self.unconfirmed.is_empty()
    }
}

/// Deleted virtual servers of a Service that NSX may still realize.
#[derive(Clone, Debug)]
pub struct PendingTeardown {
    /// Time of the last deletion or of the first read.
    since: Instant,
    next: Instant,
    pending: BTreeSet<Box<str>>,
    removed: BTreeSet<Box<str>>,
    /// Virtual servers known to be deleted. Whether the others ever existed is unknown: their ids are derived.
    deleted: BTreeSet<Box<str>>,
    /// Whether this process has deleted a virtual server.
    has_deleted: bool,
    /// Virtual servers that NSX still realizes after [`TEARDOWN_LIMIT`].
    remaining: BTreeSet<Box<str>>,
    /// Time of the last deletion of any object of the Service.
    last_deletion: Option<Instant>,
}

impl PendingTeardown {
    /// A teardown without deletions.
    pub fn new(at: Instant) -> Self {
        let none = BTreeSet::new;
        Self {
            since: at,
            next: at,
            pending: none(),
            removed: none(),
            deleted: none(),
            has_deleted: false,
            remaining: none(),
            last_deletion: None,
        }
    }

    /// Records the deletion of a virtual server.
    pub fn deleted(&mut self, path: &str, at: Instant) {
        self.removed.remove(path);
        self.remaining.remove(path);
        self.pending.insert(path.into());
        self.deleted.insert(path.into());
        (self.has_deleted, self.since, self.next) = (true, at, at + FIRST_TEARDOWN_PAUSE);
    }

    /// Records the deletion of any object of the Service. Until its purge, it may block the deletion of other objects.
    pub fn deleted_any(&mut self, at: Instant) {
        self.last_deletion = Some(at);
    }

    /// Records that another process has deleted a virtual server: it is realized but does not exist.
    pub fn was_deleted(&mut self, path: &str) {
        self.deleted.insert(path.into());
    }

    /// Whether a virtual server is known to be deleted.
    pub fn is_deleted(&self, path: &str) -> bool {
        self.deleted.contains(path)
    }

    /// Whether this process has deleted any virtual server.
    pub fn has_deleted(&self) -> bool {
        self.has_deleted
    }

    /// Adds a virtual server that another process may have deleted.
    pub fn expect(&mut self, path: &str) {
        if !self.removed.contains(path) && !self.remaining.contains(path) {
            self.pending.insert(path.into());
        }
    }

    /// The next action at this time.
    pub fn due(&self, at: Instant) -> NextCheck {
        match self.next.saturating_duration_since(at) {
            _ if self.pending.is_empty() => NextCheck::Complete,
            Duration::ZERO => NextCheck::Read(self.pending.iter().cloned().collect()),
            pause => NextCheck::Wait(pause),
        }
    }

    /// Records which open virtual servers NSX still realizes.
    pub fn note(&mut self, realized: BTreeSet<Box<str>>, at: Instant) {
        let age = at.saturating_duration_since(self.since);
        let gone: Vec<Box<str>> = self.pending.difference(&realized).cloned().collect();
        self.pending.retain(|path| realized.contains(path));
        self.removed.extend(gone);
        self.next = at + if age < FIRST_TEARDOWN_READS { FIRST_TEARDOWN_PAUSE } else { TEARDOWN_PAUSE };
        if age >= TEARDOWN_LIMIT {
            self.remaining.append(&mut self.pending);
        }
    }

    /// Ends the wait for all virtual servers, because the realized state cannot be read.
    pub fn give_up(&mut self) {
        self.remaining.append(&mut self.pending);
    }

    /// Virtual servers that NSX still realizes, or may. The deletion continues without waiting for them.
    pub fn left(&self) -> &BTreeSet<Box<str>> {
        &self.remaining
    }

    /// Pause before retrying a deletion that was refused because another object refers to its target. `None` if no
    /// recent deletion can be the cause.
    pub fn until_purge(&self, at: Instant) -> Option<Duration> {
        until_purge(self.last_deletion?, at)
    }
}

/// Pause before retrying to delete an object that a deleted object refers to; `None` once NSX has purged the latter.
pub fn until_purge(deleted: Instant, at: Instant) -> Option<Duration> {
    let age = at.saturating_duration_since(deleted);
    let pause = if age < FIRST_TEARDOWN_READS { FIRST_TEARDOWN_PAUSE } else { TEARDOWN_PAUSE };
    (age < PURGE_LIMIT).then_some(pause)
}

#[cfg(test)]
mod tests;
