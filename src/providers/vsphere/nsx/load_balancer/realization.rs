//! Pure: schedules reads of the realized state. NSX answers a write before it realizes the object, and a deletion only
//! marks the object, so only the realized state shows the outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::clients::nsx::realization::{REVISION_LAG, Realization, RevisionStatus};

/// Times of the reads of the realized state, after the last write. After the last read, objects without an error count
/// as realized.
const ROLLOUT_READS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(10), Duration::from_secs(30)];
/// Pause after an error of NSX; doubles with each further error.
const FIRST_ERROR_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_ERROR_PAUSE: Duration = Duration::from_secs(300);

/// First interval between reads of the realized state of deleted virtual servers.
const FIRST_TEARDOWN_PAUSE: Duration = Duration::from_secs(2);
/// Time after the last deletion for which [`FIRST_TEARDOWN_PAUSE`] applies.
const FIRST_TEARDOWN_READS: Duration = Duration::from_secs(20);
/// Interval between reads of the realized state of deleted virtual servers after [`FIRST_TEARDOWN_READS`].
const TEARDOWN_PAUSE: Duration = Duration::from_secs(15);
/// Time limit of the reads for deleted virtual servers. NSX purges deleted objects every five minutes.
const TEARDOWN_LIMIT: Duration = Duration::from_secs(300);
/// Time after which NSX has purged a deleted object. Until then, the object may still refer to other objects.
const PURGE_LIMIT: Duration = Duration::from_secs(360);

/// Next action for the awaited objects.
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
    /// Evaluates a status. `asked` and `answered` are the times of the request and the response, since the last write.
    /// A status without revision is ignored until [`REVISION_LAG`]. Until the last read, the status of an older
    /// revision is ignored. At the last read, a failure of an older revision counts, because NSX may number revisions
    /// differently.
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

/// Whether a read at this time after the last write is the last read of [`ROLLOUT_READS`].
fn is_last_read(age: Duration) -> bool {
    ROLLOUT_READS.iter().all(|after| *after <= age)
}

/// Written objects of a Service that NSX may not have realized.
#[derive(Clone, Debug)]
pub struct Rollout {
    /// Time of the last write.
    since: Instant,
    /// Number of completed reads of [`ROLLOUT_READS`].
    reads: usize,
    /// The objects, by path.
    objects: BTreeMap<Box<str>, WrittenObject>,
    /// Number of reads that found errors for all awaited objects. Reset when no object has an error.
    failures: u32,
    /// Time of the next read after errors.
    next: Option<Instant>,
}

#[derive(Clone, Debug)]
struct WrittenObject {
    /// Revision that the last write produced; `None` if the write created the object.
    revision: Option<i64>,
    /// Awaited while `Open` or `Error`. An `Unreadable` object counts as realized without confirmation.
    effect: Effect,
}

impl WrittenObject {
    fn is_awaited(&self) -> bool {
        matches!(self.effect, Effect::Open | Effect::Error(_))
    }
}

impl Rollout {
    /// Starts a rollout in which nothing has been written yet.
    pub fn new(at: Instant) -> Self {
        Self { since: at, reads: 0, objects: BTreeMap::new(), failures: 0, next: None }
    }

    /// Records a write. `revision` is the revision that the write produced; `None` if the write created the object.
    pub fn written(&mut self, path: &str, revision: Option<i64>, at: Instant) {
        self.objects.insert(path.into(), WrittenObject { revision, effect: Effect::Open });
        self.since = at;
        self.reads = 0;
        self.failures = 0;
        self.next = None;
    }

    /// Adds an object that serves an unreported address and that another process may have written, unless the outcome
    /// of its realization is recorded.
    pub fn expect(&mut self, path: &str) {
        self.objects.entry(path.into()).or_insert(WrittenObject { revision: None, effect: Effect::Open });
    }

    /// Drops a deleted object.
    pub fn removed(&mut self, path: &str) {
        self.objects.remove(path);
    }

    /// Returns the revision that the last write of an object produced; `None` if the write created the object.
    pub fn revision(&self, path: &str) -> Option<i64> {
        self.objects.get(path)?.revision
    }

    /// Returns the time since the last write.
    pub fn age(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.since)
    }

    /// Returns the next action at this time.
    pub fn due(&self, at: Instant) -> NextCheck {
        let awaited = self.awaited();
        if awaited.is_empty() {
            return NextCheck::Complete;
        }
        let reads = ROLLOUT_READS.get(self.reads).map(|after| self.since + *after);
        let next = if self.is_decided() { self.next } else { reads };
        match next.map(|next| next.saturating_duration_since(at)) {
            None | Some(Duration::ZERO) => NextCheck::Read(awaited),
            Some(pause) if self.is_decided() => NextCheck::Errors(self.errors(), pause),
            Some(pause) => NextCheck::Wait(pause),
        }
    }

    fn awaited(&self) -> Vec<Box<str>> {
        self.objects.iter().filter(|(_, one)| one.is_awaited()).map(|(path, _)| path.clone()).collect()
    }

    fn errors(&self) -> BTreeMap<Box<str>, String> {
        let mut errors = BTreeMap::new();
        for (path, one) in &self.objects {
            if let Effect::Error(alarm) = &one.effect {
                errors.insert(path.clone(), alarm.clone());
            }
        }
        errors
    }

    /// Whether NSX reports an error for every awaited object. Until then, reads continue for the other objects: these
    /// may serve another address of the Service, which must not be reported yet.
    fn is_decided(&self) -> bool {
        self.objects.values().all(|one| one.effect != Effect::Open)
    }

    /// Records the realized state of each object that was read at `at`, by path. Ignores objects that are not awaited.
    pub fn note(&mut self, shown: BTreeMap<Box<str>, Effect>, at: Instant) {
        let age = self.age(at);
        self.reads = ROLLOUT_READS.iter().filter(|after| **after <= age).count();
        for (path, effect) in shown {
            if let Some(one) = self.objects.get_mut(&path).filter(|one| one.is_awaited()) {
                // An object that is still open at the last read counts as realized without confirmation.
                let is_late = effect == Effect::Open && is_last_read(age);
                one.effect = if is_late { Effect::Unreadable } else { effect };
            }
        }
        self.failures = match self.errors().is_empty() {
            true => 0,
            false => self.failures + u32::from(self.is_decided()),
        };
        let pause = FIRST_ERROR_PAUSE.saturating_mul(1 << self.failures.saturating_sub(1).min(8));
        self.next = (self.failures > 0).then(|| at + pause.min(LONGEST_ERROR_PAUSE));
    }

    /// Returns the objects that count as realized without confirmation by NSX.
    pub fn unconfirmed(&self) -> BTreeSet<Box<str>> {
        let is_unconfirmed = |one: &WrittenObject| one.effect == Effect::Unreadable;
        self.objects.iter().filter(|(_, one)| is_unconfirmed(one)).map(|(path, _)| path.clone()).collect()
    }

    /// Whether no object is awaited or unconfirmed.
    pub fn is_over(&self) -> bool {
        self.objects.values().all(|one| one.effect == Effect::Realized)
    }
}

/// Deleted virtual servers of a Service that NSX may still realize.
#[derive(Clone, Debug)]
pub struct PendingTeardown {
    /// Time of the last deletion or of the first read.
    since: Instant,
    next: Instant,
    /// The virtual servers, by path.
    servers: BTreeMap<Box<str>, RemovedServer>,
    has_deleted: bool,
    /// Time of the last deletion of any object of the Service.
    last_deletion: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct RemovedServer {
    /// Whether the virtual server was certainly deleted. Another one may never have existed, because ids are derived.
    is_deleted: bool,
    effect: TeardownEffect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TeardownEffect {
    /// NSX may still realize the virtual server.
    Awaited,
    /// NSX does not realize the virtual server.
    Gone,
    /// NSX may realize the virtual server, and the wait for it has ended.
    Remaining,
}

impl PendingTeardown {
    /// Starts a teardown in which nothing has been deleted yet.
    pub fn new(at: Instant) -> Self {
        Self { since: at, next: at, servers: BTreeMap::new(), has_deleted: false, last_deletion: None }
    }

    /// Records the deletion of a virtual server.
    pub fn deleted(&mut self, path: &str, at: Instant) {
        self.servers.insert(path.into(), RemovedServer { is_deleted: true, effect: TeardownEffect::Awaited });
        self.has_deleted = true;
        self.since = at;
        self.next = at + FIRST_TEARDOWN_PAUSE;
    }

    /// Records the deletion of any object of the Service. Until NSX purges the object, the object may block the
    /// deletion of other objects.
    pub fn deleted_any(&mut self, at: Instant) {
        self.last_deletion = Some(at);
    }

    /// Records that another process has deleted a virtual server, which NSX still realizes.
    pub fn was_deleted(&mut self, path: &str) {
        if let Some(server) = self.servers.get_mut(path) {
            server.is_deleted = true;
        }
    }

    /// Whether a virtual server is known to be deleted.
    pub fn is_deleted(&self, path: &str) -> bool {
        self.servers.get(path).is_some_and(|server| server.is_deleted)
    }

    /// Whether this process has deleted any virtual server.
    pub fn has_deleted(&self) -> bool {
        self.has_deleted
    }

    /// Adds a virtual server that another process may have deleted.
    pub fn expect(&mut self, path: &str) {
        let expected = RemovedServer { is_deleted: false, effect: TeardownEffect::Awaited };
        self.servers.entry(path.into()).or_insert(expected);
    }

    /// Returns the next action at this time.
    pub fn due(&self, at: Instant) -> NextCheck {
        let awaited: Vec<Box<str>> = self.all_in(TeardownEffect::Awaited).collect();
        match self.next.saturating_duration_since(at) {
            _ if awaited.is_empty() => NextCheck::Complete,
            Duration::ZERO => NextCheck::Read(awaited),
            pause => NextCheck::Wait(pause),
        }
    }

    fn all_in(&self, effect: TeardownEffect) -> impl Iterator<Item = Box<str>> {
        self.servers.iter().filter(move |(_, server)| server.effect == effect).map(|(path, _)| path.clone())
    }

    /// Records which awaited virtual servers NSX still realizes.
    pub fn note(&mut self, realized: BTreeSet<Box<str>>, at: Instant) {
        let age = at.saturating_duration_since(self.since);
        self.next = at + if age < FIRST_TEARDOWN_READS { FIRST_TEARDOWN_PAUSE } else { TEARDOWN_PAUSE };
        for (path, server) in &mut self.servers {
            if server.effect == TeardownEffect::Awaited && !realized.contains(path) {
                server.effect = TeardownEffect::Gone;
            }
        }
        if age >= TEARDOWN_LIMIT {
            self.give_up();
        }
    }

    /// Ends the wait for all virtual servers, because the realized state cannot be read.
    pub fn give_up(&mut self) {
        for server in self.servers.values_mut().filter(|server| server.effect == TeardownEffect::Awaited) {
            server.effect = TeardownEffect::Remaining;
        }
    }

    /// Returns the deleted virtual servers that may still be in effect in NSX. The deletion continues without waiting
    /// for them.
    pub fn left(&self) -> BTreeSet<Box<str>> {
        self.all_in(TeardownEffect::Remaining).collect()
    }

    /// Returns the pause before the retry of a deletion that a reference blocks; `None` without a recent deletion.
    pub fn until_purge(&self, at: Instant) -> Option<Duration> {
        until_purge(self.last_deletion?, at)
    }
}

/// Returns the pause before the retry of a deletion that a deleted object blocks; `None` after `PURGE_LIMIT`.
pub fn until_purge(deleted: Instant, at: Instant) -> Option<Duration> {
    let age = at.saturating_duration_since(deleted);
    let pause = if age < FIRST_TEARDOWN_READS { FIRST_TEARDOWN_PAUSE } else { TEARDOWN_PAUSE };
    (age < PURGE_LIMIT).then_some(pause)
}

#[cfg(test)]
mod tests;
