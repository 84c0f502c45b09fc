//! Login state of one process: its own attempts, and the claims of earlier processes in its pod.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::FetchedRecord;
use super::record::{Clock, Entry, EntryState, MAX_ENTRIES, RETENTION, Record};
use crate::cloud::login_ledger::{Outcome, SecretVersion};

/// The state of one process. Never locked across an await.
#[derive(Default)]
pub(super) struct LocalState {
    /// Registered servers: the scope of their login policy, and `host:port`.
    pub(super) servers: BTreeSet<(&'static str, String)>,
    /// Longest window of the policies of the registered servers.
    pub(super) longest_window: Duration,
    /// Scopes of the policies whose last store call failed.
    pub(super) out_of_reach: BTreeSet<&'static str>,
    /// Records that the reviews of paused logins share, by record name.
    pub(super) last_reads: HashMap<String, FetchedRecord>,
    /// Number of successful writes to the store.
    pub(super) writes: u64,
    /// Attempts of this process, by record name. Only they count while the store is out of reach.
    own_attempts: HashMap<String, Vec<OwnAttempt>>,
    /// By record name.
    inherited_claims: HashMap<String, InheritedClaims>,
}

struct OwnAttempt {
    entry: Entry,
    /// Time when the attempt entered its state.
    since: Instant,
    /// Whether the attempt counts. Otherwise the store may still hold its claim.
    counts: bool,
    /// Whether the store has this state. If not, the next write of the record adds it.
    is_stored: bool,
}

/// Claims of earlier processes in this pod, which have ended.
struct InheritedClaims {
    /// Time when this process last read the record.
    last_read: Instant,
    ids: BTreeSet<String>,
}

pub(super) struct Process {
    pub(super) pod: String,
    /// Id that distinguishes this process from earlier processes in the pod.
    pub(super) start: String,
}

impl Process {
    /// Whether `entry` is a claim of an earlier process in this pod. Valid only at the first read of the record.
    fn replaced(&self, entry: &Entry) -> bool {
        let is_other = entry.start.is_some() && entry.start.as_ref() != Some(&self.start);
        entry.state == EntryState::Claimed && entry.pod.as_ref() == Some(&self.pod) && is_other
    }
}

impl LocalState {
    /// Number of remembered records: those with own attempts, and those that were read.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> (usize, usize) {
        (self.own_attempts.len(), self.inherited_claims.len())
    }

    /// Records an attempt of this process that is made now.
    pub(super) fn put(&mut self, name: &str, entry: Entry, is_stored: bool) {
        let attempts = self.own_attempts.entry(name.to_owned()).or_default();
        attempts.retain(|own| own.entry.id != entry.id);
        attempts.push(OwnAttempt { entry, since: Instant::now(), counts: true, is_stored });
        if attempts.len() > MAX_ENTRIES {
            let dispensable = attempts.iter().position(|own| !own.counts).unwrap_or(0);
            attempts.remove(dispensable);
        }
    }

    /// Applies the outcome of an attempt of this process. `version` is that of its credentials.
    pub(super) fn settle(&mut self, name: &str, id: &str, outcome: Outcome, version: Option<&SecretVersion>) {
        let attempts = self.own_attempts.entry(name.to_owned()).or_default();
        if outcome == Outcome::Accepted {
            let is_its = |own: &OwnAttempt| version.is_none() || own.entry.version.as_ref() == version;
            attempts.retain(|own| own.entry.state != EntryState::Unanswered || !is_its(own));
        }
        if let Some(own) = attempts.iter_mut().find(|own| own.entry.id == id) {
            own.since = Instant::now();
            own.is_stored = false;
            match EntryState::after(outcome) {
                Some(state) => own.entry.settle(state),
                None => own.counts = false,
            }
        }
        self.forget_old();
    }

    /// Returns the attempts of this process that count, with their ages.
    pub(super) fn attempts(&self, name: &str) -> impl Iterator<Item = (&Entry, Duration)> {
        let counting = self.own_attempts.get(name).into_iter().flatten().filter(|own| own.counts);
        counting.map(|own| (&own.entry, own.since.elapsed()))
    }

    /// Returns the ids of this process's own rejections that are in the store.
    pub(super) fn rejections(&self, name: &str) -> Vec<String> {
        let own = self.own_attempts.get(name).into_iter().flatten();
        let rejected = own.filter(|own| own.is_stored && own.entry.state == EntryState::Rejected);
        rejected.map(|own| own.entry.id.clone()).collect()
    }

    /// Returns the age of an entry in a record of the store. It is exact for an attempt of this process.
    pub(super) fn age(&self, name: &str, entry: &Entry, clock: Clock) -> Duration {
        let own = self.attempts(name).find(|(own, _)| own.id == entry.id && own.state == entry.state);
        own.map_or_else(|| clock.age(entry), |(_, age)| age)
    }

    /// Completes a record that was just read: adds the attempts and outcomes of this process that the store lacks, and
    /// marks the claims of earlier processes in this pod as unanswered.
    pub(super) fn complete(&mut self, name: &str, record: &mut Record, clock: Clock, process: Option<&Process>) {
        let inherited = self.inherited_claims.entry(name.to_owned()).or_insert_with(|| {
            let replaced = |entry: &&Entry| process.is_some_and(|process| process.replaced(entry));
            let ids = record.entries.iter().filter(replaced).map(|entry| entry.id.clone()).collect();
            InheritedClaims { last_read: Instant::now(), ids }
        });
        inherited.last_read = Instant::now();
        for entry in &mut record.entries {
            if entry.state == EntryState::Claimed && inherited.ids.contains(&entry.id) {
                entry.settle(EntryState::Unanswered);
            }
        }
        for own in self.own_attempts.get(name).into_iter().flatten().filter(|own| !own.is_stored) {
            if own.counts {
                record.put(Entry { at: clock.date(own.since.elapsed()), ..own.entry.clone() });
            } else {
                record.remove(&own.entry.id);
            }
        }
    }

    /// Records that the store has this record.
    pub(super) fn mark_stored(&mut self, name: &str, record: &Record) {
        for own in self.own_attempts.get_mut(name).into_iter().flatten() {
            own.is_stored |= record.state_of(&own.entry.id) == own.counts.then_some(own.entry.state);
        }
        self.forget_old();
    }

    /// Drops what no login depends on. Accounts come and go while a process runs for months.
    fn forget_old(&mut self) {
        self.own_attempts.retain(|_, attempts| {
            attempts.retain(|own| own.since.elapsed() < RETENTION && (own.counts || !own.is_stored));
            !attempts.is_empty()
        });
        self.inherited_claims.retain(|_, claims| claims.last_read.elapsed() < RETENTION);
    }
}
