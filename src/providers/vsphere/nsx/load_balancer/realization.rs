//! Pure: what NSX has accepted and may not have put into effect. A write is an intent and a deletion is a mark: only the
//! realized state shows what became of them, and it is read at the times that are decided here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::clients::nsx::realization::{Realization, RevisionStatus, SETTLED};

/// When the realized state of written objects is read, counted from the last write. After the last time the objects are
/// treated as realized, because NSX has not reported an error.
const ROLLOUT_READS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10), Duration::from_secs(30)];
/// The pause after NSX has reported an error; it doubles with each further one.
const FIRST_ERROR_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_ERROR_PAUSE: Duration = Duration::from_secs(300);

/// How often the realized state of deleted virtual servers is read at first, and for how long.
const FIRST_TEARDOWN_PAUSE: Duration = Duration::from_secs(2);
const FIRST_TEARDOWN_READS: Duration = Duration::from_secs(20);
/// How often it is read afterwards, and for how long: NSX purges deleted objects every five minutes.
const TEARDOWN_PAUSE: Duration = Duration::from_secs(15);
const TEARDOWN_LIMIT: Duration = Duration::from_secs(300);
/// For how long an object may be referred to by one that was deleted: until the purge.
const PURGE_LIMIT: Duration = Duration::from_secs(360);

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing is open.
    Complete,
    /// The realized state of these objects is to be read.
    Read(Vec<Box<str>>),
    /// It is read after this time.
    Wait(Duration),
    /// NSX reports errors, by path. It is read again after this time.
    Errors(BTreeMap<Box<str>, String>, Duration),
}

/// What a read of the realized state of a written object shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The object is in effect.
    Realized,
    /// Not yet, or the read failed.
    Open,
    /// NSX could not put it into effect, with the text of its alarm.
    Error(String),
    /// This account may not read the realized state.
    Unreadable,
}

impl Effect {
    /// What a status of the revision that was written shows, which was asked for at one age of the write and answered at another.
    /// One of an older revision decides only with the last read, and only if that failed: NSX may number revisions otherwise.
    pub fn of(status: RevisionStatus, asked: Duration, answered: Duration) -> Self {
        let realization = match status {
            RevisionStatus::Known(realization) => realization,
            RevisionStatus::Unversioned(realization) if asked >= SETTLED => realization,
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

/// Whether the read at this age of the last write is the last one of [`ROLLOUT_READS`].
fn is_last_read(age: Duration) -> bool {
    ROLLOUT_READS.iter().all(|after| *after <= age)
}

/// Objects of a Service that were written and that NSX may not have put into effect.
#[derive(Clone, Debug)]
pub struct Rollout {
    /// The last write.
    since: Instant,
    /// How many of [`ROLLOUT_READS`] are over.
    reads: usize,
    open: BTreeSet<Box<str>>,
    /// The revisions of those that existed before.
    revisions: BTreeMap<Box<str>, i64>,
    errors: BTreeMap<Box<str>, String>,
    /// How many reads in a row have shown an error, and when the next one is.
    failures: u32,
    next: Option<Instant>,
    settled: BTreeSet<Box<str>>,
    /// Those that NSX has not confirmed.
    unconfirmed: BTreeSet<Box<str>>,
}

impl Rollout {
    /// Nothing was written.
    pub fn new(at: Instant) -> Self {
        Self {
            since: at,
            reads: 0,
            open: BTreeSet::new(),
            revisions: BTreeMap::new(),
            errors: BTreeMap::new(),
            failures: 0,
            next: None,
            settled: BTreeSet::new(),
            unconfirmed: BTreeSet::new(),
        }
    }

    /// An object was written; one that existed before has this revision now.
    pub fn written(&mut self, path: &str, revision: Option<i64>, at: Instant) {
        self.removed(path);
        self.open.insert(path.into());
        self.revisions.extend(revision.map(|revision| (path.into(), revision)));
        (self.since, self.reads, self.failures, self.next) = (at, 0, 0, None);
    }

    /// An object whose address is to be reported, which another process may have written.
    pub fn expect(&mut self, path: &str) {
        if !self.settled.contains(path) && !self.unconfirmed.contains(path) {
            self.open.insert(path.into());
        }
    }

    /// An object is gone.
    pub fn removed(&mut self, path: &str) {
        for paths in [&mut self.open, &mut self.settled, &mut self.unconfirmed] {
            paths.remove(path);
        }
        self.errors.remove(path);
        self.revisions.remove(path);
    }

    /// The revision of an object that is to be in effect, if it existed before it was written.
    pub fn revision(&self, path: &str) -> Option<i64> {
        self.revisions.get(path).copied()
    }

    /// The time since the last write.
    pub fn age(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.since)
    }

    /// What follows at this moment.
    pub fn due(&self, at: Instant) -> Due {
        if self.open.is_empty() {
            return Due::Complete;
        }
        let reads = ROLLOUT_READS.get(self.reads).map(|after| self.since + *after);
        let next = if self.is_decided() { self.next } else { reads };
        match next.map(|next| next.saturating_duration_since(at)) {
            None | Some(Duration::ZERO) => Due::Read(self.open.iter().cloned().collect()),
            Some(pause) if self.is_decided() => Due::Errors(self.errors.clone(), pause),
            Some(pause) => Due::Wait(pause),
        }
    }

    /// Whether NSX reports an error of all that is open. The others are waited for: one of them may be another address of the
    /// Service, which is not to be reported yet.
    fn is_decided(&self) -> bool {
        self.errors.len() == self.open.len()
    }

    /// Notes what a read has shown of the objects that were open.
    pub fn note(&mut self, shown: BTreeMap<Box<str>, Effect>, at: Instant) {
        let age = self.age(at);
        self.reads = ROLLOUT_READS.iter().filter(|after| **after <= age).count();
        let is_last = is_last_read(age);
        for (path, effect) in shown.into_iter().filter(|(path, _)| self.open.contains(path)).collect::<Vec<_>>() {
            self.errors.remove(&path);
            match effect {
                Effect::Error(alarm) => drop(self.errors.insert(path, alarm)),
                Effect::Open if !is_last => {}
                Effect::Realized => {
                    self.open.remove(&path);
                    self.settled.insert(path);
                }
                Effect::Open | Effect::Unreadable => {
                    self.open.remove(&path);
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

    /// The objects that NSX has not confirmed and that are treated as realized.
    pub fn unconfirmed(&self) -> &BTreeSet<Box<str>> {
        &self.unconfirmed
    }

    /// Whether nothing is open and nothing has to be remembered.
    pub fn is_over(&self) -> bool {
        self.open.is_empty() && self.unconfirmed.is_empty()
    }
}

/// Virtual servers of a Service that were deleted and that NSX may still realize.
#[derive(Clone, Debug)]
pub struct PendingTeardown {
    /// The last deletion, or the first read.
    since: Instant,
    next: Instant,
    open: BTreeSet<Box<str>>,
    gone: BTreeSet<Box<str>>,
    /// Those that are known to be deleted; of others only their ids are known.
    deleted: BTreeSet<Box<str>>,
    /// Whether this process has deleted one.
    has_deleted: bool,
    /// Those that NSX still realizes after [`TEARDOWN_LIMIT`].
    left: BTreeSet<Box<str>>,
    /// The last deletion of any object of the Service.
    last_deletion: Option<Instant>,
}

impl PendingTeardown {
    /// Nothing was deleted.
    pub fn new(at: Instant) -> Self {
        let none = BTreeSet::new;
        Self {
            since: at,
            next: at,
            open: none(),
            gone: none(),
            deleted: none(),
            has_deleted: false,
            left: none(),
            last_deletion: None,
        }
    }

    /// A virtual server was deleted.
    pub fn deleted(&mut self, path: &str, at: Instant) {
        self.gone.remove(path);
        self.left.remove(path);
        self.open.insert(path.into());
        self.deleted.insert(path.into());
        (self.has_deleted, self.since, self.next) = (true, at, at + FIRST_TEARDOWN_PAUSE);
    }

    /// An object of the Service was deleted: until its purge it may keep what it refers to from being deleted.
    pub fn deleted_any(&mut self, at: Instant) {
        self.last_deletion = Some(at);
    }

    /// A virtual server that is in effect and does not exist: another process has deleted it.
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

    /// A virtual server that another process may have deleted.
    pub fn expect(&mut self, path: &str) {
        if !self.gone.contains(path) && !self.left.contains(path) {
            self.open.insert(path.into());
        }
    }

    /// What follows at this moment.
    pub fn due(&self, at: Instant) -> Due {
        match self.next.saturating_duration_since(at) {
            _ if self.open.is_empty() => Due::Complete,
            Duration::ZERO => Due::Read(self.open.iter().cloned().collect()),
            pause => Due::Wait(pause),
        }
    }

    /// Notes which of the virtual servers that were open are still realized.
    pub fn note(&mut self, realized: BTreeSet<Box<str>>, at: Instant) {
        let age = at.saturating_duration_since(self.since);
        let gone: Vec<Box<str>> = self.open.difference(&realized).cloned().collect();
        self.open.retain(|path| realized.contains(path));
        self.gone.extend(gone);
        self.next = at + if age < FIRST_TEARDOWN_READS { FIRST_TEARDOWN_PAUSE } else { TEARDOWN_PAUSE };
        if age >= TEARDOWN_LIMIT {
            self.left.append(&mut self.open);
        }
    }

    /// The realized state cannot be read: nothing is open any more.
    pub fn give_up(&mut self) {
        self.left.append(&mut self.open);
    }

    /// Those that NSX still realizes, or may: the deletion goes on without them.
    pub fn left(&self) -> &BTreeSet<Box<str>> {
        &self.left
    }

    /// When a deletion that is refused, because something refers to the object, is tried again; none if nothing was
    /// deleted lately that may be what refers to it.
    pub fn until_purge(&self, at: Instant) -> Option<Duration> {
        until_purge(self.last_deletion?, at)
    }
}

/// The pause before the next attempt to delete what an object refers to that was deleted then; none once that is purged.
pub fn until_purge(deleted: Instant, at: Instant) -> Option<Duration> {
    let age = at.saturating_duration_since(deleted);
    let pause = if age < FIRST_TEARDOWN_READS { FIRST_TEARDOWN_PAUSE } else { TEARDOWN_PAUSE };
    (age < PURGE_LIMIT).then_some(pause)
}

#[cfg(test)]
mod tests;
