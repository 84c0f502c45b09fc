//! What one process knows of logins by itself: its own attempts, and when it saw which entry of a record.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::record::{Entry, KEPT_FOR, LoginState, Record};
use super::{Clock, SharedReading};
use crate::cloud::login_ledger::{Outcome, SecretVersion};

/// The state of one process. Never locked over an await.
#[derive(Default)]
pub(super) struct Local {
    /// The servers that there are: the scope of their policy, and `host:port`.
    pub(super) servers: BTreeSet<(&'static str, String)>,
    /// By name of the record: this process's own attempts, for when the store is out of reach.
    pub(super) own: HashMap<String, Record>,
    /// Ids of those of them that the store was never told of, which it is told at the next write.
    pub(super) alone: BTreeSet<String>,
    /// Outcomes that the store does not hold yet: name of the record, id, and outcome.
    pub(super) pending: Vec<(String, String, Outcome)>,
    /// The scopes of the policies for which the store did not answer when it was asked last.
    pub(super) out_of_reach: BTreeSet<&'static str>,
    /// By name of the record: what was read for the review of paused logins.
    pub(super) readings: HashMap<String, SharedReading>,
    /// How many writes of this process the store has taken.
    pub(super) writes: u64,
    seen: HashMap<RecordKey, RecordView>,
}

/// The name of a record, and whether it is of what the process did by itself or of what the store holds.
type RecordKey = (String, bool);

/// What was seen in one record.
#[derive(Default)]
struct RecordView {
    /// When it was read last; nothing before the first time.
    last_read: Option<Instant>,
    /// When each entry took its state, at the latest.
    since: BTreeMap<(String, LoginState), Instant>,
    /// Claims of a process that ran in this pod before.
    lost: BTreeSet<String>,
}

/// An entry, as this process sees it.
pub(super) struct ObservedEntry<'a> {
    pub(super) entry: &'a Entry,
    /// How long ago it took its state, at least.
    pub(super) age: Duration,
    /// A claim whose process has ended.
    pub(super) is_lost: bool,
}

/// How an attempt of this process ended.
#[derive(Clone, Copy)]
pub(super) struct Settlement<'a> {
    /// That of the claim.
    pub(super) id: &'a str,
    pub(super) outcome: Outcome,
    /// The Secret the pair was from, if it was from one.
    pub(super) version: Option<&'a SecretVersion>,
}

impl<'a> Settlement<'a> {
    /// Nothing happened that counts.
    pub(super) fn harmless(id: &'a str) -> Self {
        Self { id, outcome: Outcome::Harmless, version: None }
    }
}

/// One process in one pod.
pub(super) struct Process {
    /// The pod's host name.
    pub(super) pod: String,
    /// Tells it from those that ran in the pod before.
    pub(super) start: String,
}

impl Process {
    /// Whether a claim is of a process that ran in this pod before, if it was there when this one first read the record.
    fn replaced(&self, entry: &Entry) -> bool {
        let is_other = entry.start.is_some() && entry.start.as_ref() != Some(&self.start);
        entry.state == LoginState::Claimed && entry.pod.as_ref() == Some(&self.pod) && is_other
    }
}

impl Local {
    /// How many records it remembers: of its own, and all that it has seen.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> (usize, usize) {
        (self.own.len(), self.seen.len())
    }

    /// An entry of this process took this state just now.
    fn saw(&mut self, name: &str, id: &str, state: LoginState) {
        for is_own in [true, false] {
            // In a record that was never read, what stands there already is still to be judged by its own times.
            if is_own || self.seen.contains_key(&(name.to_owned(), false)) {
                let seen = self.seen.entry((name.to_owned(), is_own)).or_default();
                seen.since.insert((id.to_owned(), state), Instant::now());
            }
        }
    }

    /// Writes an own attempt down, and that it was made just now.
    pub(super) fn note(&mut self, name: &str, entry: Entry) {
        self.saw(name, &entry.id, entry.state);
        self.own.entry(name.to_owned()).or_default().put(entry);
    }

    /// An attempt of this process ended so.
    pub(super) fn settle(&mut self, name: &str, settlement: Settlement<'_>, at: i64) {
        let Settlement { id, outcome, version } = settlement;
        if let Some(record) = self.own.get_mut(name) {
            record.apply(id, outcome, at);
            if outcome == Outcome::Accepted {
                record.clear_unanswered(version, at, |_| false);
            }
        }
        let Self { own, alone, seen, .. } = self;
        own.retain(|_, record| !record.entries.is_empty());
        // Older observations do not count. Accounts come and go while a process runs for months.
        let is_recent = |seen: &RecordView| seen.last_read.is_none_or(|last_read| last_read.elapsed() < KEPT_FOR);
        seen.retain(|(name, is_own), seen| if *is_own { own.contains_key(name) } else { is_recent(seen) });
        alone.retain(|id| own.values().any(|record| record.holds(id)));
        if let Some(state) = LoginState::after(outcome) {
            self.saw(name, id, state);
        }
    }

    /// The ids of this process's own rejections that the store was told of.
    pub(super) fn rejections(&self, name: &str) -> Vec<String> {
        let own = self.own.get(name).into_iter().flat_map(|record| &record.entries);
        let rejected = own.filter(|entry| entry.state == LoginState::Rejected && !self.alone.contains(&entry.id));
        rejected.map(|entry| entry.id.clone()).collect()
    }

    /// The own entry of this id, dated by this clock.
    pub(super) fn own_entry(&self, name: &str, id: &str, clock: Clock) -> Option<Entry> {
        let entry = self.own.get(name)?.entries.iter().find(|entry| entry.id == id)?.clone();
        let since = self.seen.get(&(name.to_owned(), true)).and_then(|seen| {
            let moment = seen.since.get(&(entry.id.clone(), entry.state))?;
            i64::try_from(moment.elapsed().as_secs()).ok()
        });
        Some(Entry { at: since.map_or(entry.at, |seconds| clock.now.saturating_sub(seconds)), ..entry })
    }

    /// How old the entries of a record are, at least, and which are lost. What appears between two readings is no older than
    /// the first of them; of anything the date is believed but for the clock's margin.
    pub(super) fn observe<'a>(
        &mut self,
        name: &str,
        record: &'a Record,
        is_own: bool,
        clock: Clock,
        process: Option<&Process>,
    ) -> Vec<ObservedEntry<'a>> {
        let now = Instant::now();
        let RecordView { last_read, since, lost } = self.seen.entry((name.to_owned(), is_own)).or_default();
        since.retain(|(id, state), _| record.entries.iter().any(|entry| entry.id == *id && entry.state == *state));
        lost.retain(|id| record.holds(id));
        if last_read.is_none() {
            let replaced = |entry: &&Entry| process.is_some_and(|process| process.replaced(entry));
            lost.extend(record.entries.iter().filter(replaced).map(|entry| entry.id.clone()));
        }
        let observed = |entry: &'a Entry| {
            let moment = *since.entry((entry.id.clone(), entry.state)).or_insert_with(|| {
                let believed = clock.since(entry).saturating_sub(clock.margin);
                let most = last_read.map_or(believed, |last_read| now.saturating_duration_since(last_read));
                now.checked_sub(believed.min(most)).unwrap_or(now)
            });
            let is_lost = entry.state == LoginState::Claimed && lost.contains(&entry.id);
            ObservedEntry { entry, age: now.saturating_duration_since(moment), is_lost }
        };
        let entries = record.entries.iter().map(observed).collect();
        *last_read = Some(now);
        entries
    }
}
