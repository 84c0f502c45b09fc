//! Login state of one process: its own attempts, and its observations of records.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::record::{Entry, LoginState, RETENTION, Record};
use super::{Clock, SharedReading};
use crate::cloud::login_ledger::{Outcome, SecretVersion};

/// The state of one process. Never locked across an await.
#[derive(Default)]
pub(super) struct LocalState {
    /// Registered servers: the scope of their login policy, and `host:port`.
    pub(super) servers: BTreeSet<(&'static str, String)>,
    /// Attempts of this process, by record name. Only they count while the store is out of reach.
    pub(super) own_entries: HashMap<String, Record>,
    /// Ids of attempts of this process that the store lacks. The next write adds them.
    pub(super) without_leases: BTreeSet<String>,
    /// Outcomes that the store lacks: record name, id and outcome.
    pub(super) pending: Vec<(String, String, Outcome)>,
    /// Scopes of the policies whose last store call failed.
    pub(super) out_of_reach: BTreeSet<&'static str>,
    /// Records that the reviews of paused logins share, by record name.
    pub(super) last_reads: HashMap<String, SharedReading>,
    /// Number of successful writes to the store.
    pub(super) writes: u64,
    views: HashMap<RecordKey, RecordView>,
}

/// Name of a record, and whether the record contains only this process's own attempts.
type RecordKey = (String, bool);

#[derive(Default)]
struct RecordView {
    /// Time of the last read; `None` before the first read.
    last_read: Option<Instant>,
    /// Latest time at which each entry can have entered its state.
    since: BTreeMap<(String, LoginState), Instant>,
    /// Ids of claims of an earlier process in this pod.
    lost_entries: BTreeSet<String>,
}

pub(super) struct ObservedEntry<'a> {
    pub(super) entry: &'a Entry,
    /// Minimum time since the entry entered its state.
    pub(super) age: Duration,
    /// Whether the entry is a claim of a process that has ended.
    pub(super) is_lost: bool,
}

/// The outcome of an attempt of this process.
#[derive(Clone, Copy)]
pub(super) struct AttemptOutcome<'a> {
    pub(super) id: &'a str,
    pub(super) outcome: Outcome,
    /// Secret version of the credentials, if they come from a Secret.
    pub(super) version: Option<&'a SecretVersion>,
}

impl<'a> AttemptOutcome<'a> {
    /// Returns an outcome that does not count.
    pub(super) fn harmless(id: &'a str) -> Self {
        Self { id, outcome: Outcome::Harmless, version: None }
    }
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
        entry.state == LoginState::Claimed && entry.pod.as_ref() == Some(&self.pod) && is_other
    }
}

impl LocalState {
    /// Number of remembered records: own ones, and observed ones.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> (usize, usize) {
        (self.own_entries.len(), self.views.len())
    }

    /// Records that an entry of this process enters this state now.
    fn record_state(&mut self, name: &str, id: &str, state: LoginState) {
        for is_own in [true, false] {
            // Creates no view of the store's record. `observe` creates the view at the first read, and derives the ages
            // of existing entries from their dates.
            if is_own || self.views.contains_key(&(name.to_owned(), false)) {
                let seen = self.views.entry((name.to_owned(), is_own)).or_default();
                seen.since.insert((id.to_owned(), state), Instant::now());
            }
        }
    }

    /// Records an attempt of this process that is made now.
    pub(super) fn note(&mut self, name: &str, entry: Entry) {
        self.record_state(name, &entry.id, entry.state);
        self.own_entries.entry(name.to_owned()).or_default().put(entry);
    }

    pub(super) fn apply_outcome(&mut self, name: &str, settlement: AttemptOutcome<'_>, at: i64) {
        let AttemptOutcome { id, outcome, version } = settlement;
        if let Some(record) = self.own_entries.get_mut(name) {
            record.apply(id, outcome, at);
            if outcome == Outcome::Accepted {
                record.clear_unanswered(version, at, |_| false);
            }
        }
        let Self { own_entries: own, without_leases: alone, views: seen, .. } = self;
        own.retain(|_, record| !record.entries.is_empty());
        // Drops old observations, because accounts come and go while a process runs for months.
        let is_recent = |seen: &RecordView| seen.last_read.is_none_or(|last_read| last_read.elapsed() < RETENTION);
        seen.retain(|(name, is_own), seen| if *is_own { own.contains_key(name) } else { is_recent(seen) });
        alone.retain(|id| own.values().any(|record| record.holds(id)));
        if let Some(state) = LoginState::after(outcome) {
            self.record_state(name, id, state);
        }
    }

    /// Returns the ids of this process's own rejections that are in the store.
    pub(super) fn rejections(&self, name: &str) -> Vec<String> {
        let own = self.own_entries.get(name).into_iter().flat_map(|record| &record.entries);
        let rejected =
            own.filter(|entry| entry.state == LoginState::Rejected && !self.without_leases.contains(&entry.id));
        rejected.map(|entry| entry.id.clone()).collect()
    }

    /// Returns this process's entry with this id, dated by `clock`.
    pub(super) fn own_entry(&self, name: &str, id: &str, clock: Clock) -> Option<Entry> {
        let entry = self.own_entries.get(name)?.entries.iter().find(|entry| entry.id == id)?.clone();
        let since = self.views.get(&(name.to_owned(), true)).and_then(|seen| {
            let moment = seen.since.get(&(entry.id.clone(), entry.state))?;
            i64::try_from(moment.elapsed().as_secs()).ok()
        });
        Some(Entry { at: since.map_or(entry.at, |seconds| clock.now.saturating_sub(seconds)), ..entry })
    }

    /// Returns the entries of a record with their minimum ages, and marks lost claims. The age of a new entry follows
    /// from its date, minus the margin of `clock`. A new entry is never older than the previous read of the record.
    pub(super) fn observe<'a>(
        &mut self,
        name: &str,
        record: &'a Record,
        is_own: bool,
        clock: Clock,
        process: Option<&Process>,
    ) -> Vec<ObservedEntry<'a>> {
        let now = Instant::now();
        let RecordView { last_read, since, lost_entries: lost } =
            self.views.entry((name.to_owned(), is_own)).or_default();
        since.retain(|(id, state), _| record.entries.iter().any(|entry| entry.id == *id && entry.state == *state));
        lost.retain(|id| record.holds(id));
        if last_read.is_none() {
            let replaced = |entry: &&Entry| process.is_some_and(|process| process.replaced(entry));
            lost.extend(record.entries.iter().filter(replaced).map(|entry| entry.id.clone()));
        }
        let observed = |entry: &'a Entry| {
            let moment = *since.entry((entry.id.clone(), entry.state)).or_insert_with(|| {
                let cache_duration = clock.since(entry).saturating_sub(clock.margin);
                let most = last_read.map_or(cache_duration, |last_read| now.saturating_duration_since(last_read));
                now.checked_sub(cache_duration.min(most)).unwrap_or(now)
            });
            let is_lost = entry.state == LoginState::Claimed && lost.contains(&entry.id);
            ObservedEntry { entry, age: now.saturating_duration_since(moment), is_lost }
        };
        let entries = record.entries.iter().map(observed).collect();
        *last_read = Some(now);
        entries
    }
}
