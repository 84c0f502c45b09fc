//! Logins counted across replicas and restarts: a Lease per server and account, written by compare-and-swap with the
//! rights that the leader election has (get, create, update).
//!
//! Clocks of replicas are not trusted. An entry that appears between two looks was made after the first of them; of
//! what stood there at the first look, the writer's time is believed to [`SKEW`]. So an entry counts for as long as it
//! should, or longer.

mod lease;
mod memory;
pub mod record;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use self::record::{Aged, Decision, Entry, Evidence, KEPT_FOR, Record, State, WINDOW, decide};
use crate::cloud::login_ledger::{Attempt, Claim, LoginLedger, Outcome, Refused};
pub use lease::LeaseStore;
pub use memory::MemoryStore;

/// How far the clocks of two replicas may be apart before an entry may be taken for older than it is, which matters
/// only to a process that has just started.
pub const SKEW: Duration = Duration::from_secs(10 * 60);
/// How long one question to the store may take.
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// How long the store may take when the login is made in any case.
const KNOWN_LIMIT: Duration = Duration::from_secs(1);
/// How often a write that another replica overtook is made again before the login has to wait.
const TRIES: u32 = 8;
/// The pause after that, and the longest one between two tries.
const CONTENTION: Duration = Duration::from_secs(1);
/// Settled claims that could not be written, which are written with the next claim.
const MOST_PENDING: usize = 16;
/// Servers that are remembered.
const MOST_SERVERS: usize = 256;

/// What a store holds under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The text of a [`Record`].
    pub text: String,
    /// To be given back at the next write.
    pub version: String,
}

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Another has written in between.
    #[error("another replica has written in between")]
    Conflict,
    /// It does not answer, or may not be used.
    #[error("{0}")]
    OutOfReach(String),
}

/// Keeps texts under names, for all replicas.
#[async_trait]
pub trait Store: Send + Sync {
    /// What stands there; nothing when nobody has written there yet.
    async fn read(&self, name: &str) -> Result<Option<Stored>, StoreError>;

    /// The command by which an administrator deletes what is stored under this name; none where there is no such command.
    fn delete_command(&self, _name: &str) -> Option<String> {
        None
    }

    /// Writes, if what stands there is still `version`: nothing, or what was read.
    async fn write(&self, name: &str, version: Option<&str>, text: &str) -> Result<(), StoreError>;
}

/// Tells the time of day, in seconds since 1970. In tests, one that is made up.
pub type WallClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The ledger of one process.
pub struct Ledger {
    /// Nothing when there is nobody to share it with.
    store: Option<Box<dyn Store>>,
    wall_clock: WallClock,
    state: Mutex<Local>,
}

/// What this process knows by itself. Never locked over an await.
#[derive(Default)]
struct Local {
    servers: BTreeSet<String>,
    /// By name of the record: this process's own attempts, for when the store is out of reach.
    own: HashMap<String, Record>,
    /// Ids of those of them that the store was never told of, which it is told at the next write.
    alone: BTreeSet<String>,
    /// By name, and whether it is of what the process did by itself or of what the store holds.
    seen: HashMap<(String, bool), Seen>,
    /// Outcomes that the store does not hold yet.
    pending: Vec<(String, String, Outcome)>,
    is_out_of_reach: bool,
}

/// What was seen in one record: when each entry took its state, at the latest.
type Seen = BTreeMap<(String, State), Instant>;

impl Local {
    /// An entry of this process took this state just now.
    fn saw(&mut self, name: &str, id: &str, state: State) {
        for is_own in [true, false] {
            // In a record that was never read, what stands there already is still to be judged by its own times.
            if is_own || self.seen.contains_key(&(name.to_owned(), false)) {
                let seen = self.seen.entry((name.to_owned(), is_own)).or_default();
                seen.insert((id.to_owned(), state), Instant::now());
            }
        }
    }

    /// An own attempt ended so.
    fn settle(&mut self, name: &str, id: &str, outcome: Outcome, at: i64) {
        if let Some(record) = self.own.get_mut(name) {
            apply(record, id, outcome, at);
        }
        self.own.retain(|_, record| !record.entries.is_empty());
        let Self { own, alone, .. } = self;
        alone.retain(|id| own.values().any(|record| record.holds(id)));
        if let Some(state) = state_after(outcome) {
            self.saw(name, id, state);
        }
    }
}

/// The name of the record of an account at a server. Nothing else of the two leaves the process.
pub fn record_name(server: &str, user: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(server.to_lowercase());
    hash.update([0]);
    hash.update(user.to_lowercase());
    let mut name = "vsphere-ccm-logins-".to_owned();
    for byte in hash.finalize().iter().take(16) {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

impl Ledger {
    /// A ledger that shares what it counts through `store`.
    pub fn new(store: impl Store + 'static) -> Self {
        Self::with_clock(Some(Box::new(store)), Arc::new(|| Timestamp::now().as_second()))
    }

    /// A ledger of this process alone.
    pub fn in_process() -> Self {
        Self::with_clock(None, Arc::new(|| Timestamp::now().as_second()))
    }

    /// The same with another clock.
    pub fn with_clock(store: Option<Box<dyn Store>>, wall_clock: WallClock) -> Self {
        Self { store, wall_clock, state: Mutex::default() }
    }

    fn local(&self) -> MutexGuard<'_, Local> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims by what this process alone has done.
    fn claim_alone(&self, attempt: &Attempt, id: &str) -> Result<(), Refused> {
        let (names, here) = self.names(attempt);
        // Noted first: of two who claim at once, one sees the other.
        self.note(&here, Entry::claim(id.to_owned(), (self.wall_clock)(), attempt));
        let records: Vec<(String, Record)> = {
            let local = self.local();
            names.iter().map(|name| (name.clone(), local.own.get(name).cloned().unwrap_or_default())).collect()
        };
        let judged = self.judge(&records, &here, attempt, Some(id), true);
        let mut local = self.local();
        if judged.is_err() {
            local.settle(&here, id, Outcome::Harmless, 0);
        } else if self.store.is_some() {
            local.alone.insert(id.to_owned());
        }
        judged
    }

    /// Claims in the store.
    async fn claim_shared(&self, store: &dyn Store, attempt: &Attempt, id: &str) -> Result<(), Problem> {
        let (names, here) = self.names(attempt);
        for turn in 0..TRIES {
            let (mut record, version) = self.fetch(store, &here).await?;
            self.judge(&[(here.clone(), record.clone())], &here, attempt, None, false)?;
            let entry = Entry::claim(id.to_owned(), (self.wall_clock)(), attempt);
            record.put(entry.clone());
            match self.save(store, &here, version.as_deref(), &record).await {
                Err(StoreError::Conflict) => {
                    pause_between(turn).await;
                    continue;
                }
                other => other?,
            }
            self.note(&here, entry);
            // Only after the own claim stands there: of two who claim at two servers at once, one sees the other.
            let mut records = vec![(here.clone(), record)];
            for name in names.iter().filter(|name| **name != here) {
                records.push((name.clone(), self.fetch(store, name).await?.0));
            }
            return match self.judge(&records, &here, attempt, Some(id), false) {
                Ok(()) => Ok(()),
                Err(refused) => {
                    self.settle_everywhere(&here, id, Outcome::Harmless, KNOWN_LIMIT).await;
                    Err(refused.into())
                }
            };
        }
        Err(Refused {
            pause: CONTENTION.mul_f64(1.0 + fastrand::f64()),
            why: "other replicas claim logins, too".into(),
            is_lockout: false,
        }
        .into())
    }

    /// The records of the account at all servers, and the one at the attempt's server.
    fn names(&self, attempt: &Attempt) -> (BTreeSet<String>, String) {
        let here = record_name(&attempt.server, &attempt.user);
        let mut names: BTreeSet<String> =
            self.local().servers.iter().map(|server| record_name(server, &attempt.user)).collect();
        names.insert(here.clone());
        (names, here)
    }

    /// Reads a record, brought up to date with what could not be written earlier.
    async fn fetch(&self, store: &dyn Store, name: &str) -> Result<(Record, Option<String>), StoreError> {
        let stored = limited(store.read(name)).await?;
        let (mut record, version) = match stored {
            Some(stored) => (Record::from_text(&stored.text), Some(stored.version)),
            None => (Record::default(), None),
        };
        let at = (self.wall_clock)();
        let local = self.local();
        for (_, id, outcome) in local.pending.iter().filter(|(of, ..)| of == name) {
            apply(&mut record, id, *outcome, at);
        }
        for entry in local.own.get(name).into_iter().flat_map(|own| &own.entries) {
            if local.alone.contains(&entry.id) && !record.holds(&entry.id) {
                record.put(entry.clone());
            }
        }
        Ok((record, version))
    }

    async fn save(
        &self,
        store: &dyn Store,
        name: &str,
        version: Option<&str>,
        record: &Record,
    ) -> Result<(), StoreError> {
        let young = self.look_at(name, record, false).into_iter().filter(|(_, age)| *age < KEPT_FOR);
        let kept = Record { entries: young.map(|(entry, _)| entry.clone()).collect() };
        let pending: Vec<String> = {
            let local = self.local();
            local.pending.iter().filter(|(of, ..)| of == name).map(|(_, id, _)| id.clone()).collect()
        };
        limited(store.write(name, version, &kept.to_text())).await?;
        let mut local = self.local();
        local.pending.retain(|(of, id, _)| of != name || !pending.contains(id));
        local.alone.retain(|id| !record.holds(id));
        Ok(())
    }

    /// Decides on what the records hold, `except` for one entry.
    fn judge(
        &self,
        records: &[(String, Record)],
        here: &str,
        attempt: &Attempt,
        except: Option<&str>,
        is_own: bool,
    ) -> Result<(), Refused> {
        let wall = (self.wall_clock)();
        let mut aged: Vec<Aged<'_>> = Vec::new();
        for (name, record) in records {
            for (entry, age) in self.look_at(name, record, is_own) {
                if except != Some(entry.id.as_str()) && age < KEPT_FOR {
                    let likely_age = age.max(since(entry, wall));
                    aged.push(Aged { entry, age, likely_age, is_here: name == here });
                }
            }
        }
        let evidence = Evidence { entries: &aged, is_shared: !is_own || self.store.is_none() };
        match decide(evidence, attempt, fastrand::f64()) {
            Decision::Granted => Ok(()),
            Decision::Queue { pause, why } => Err(Refused { pause, why: why.to_owned(), is_lockout: false }),
            Decision::Wait { pause, why } => Err(Refused { pause, why: why.to_owned(), is_lockout: true }),
        }
    }

    /// How old the entries of a record are, at least.
    fn look_at<'a>(&self, name: &str, record: &'a Record, is_own: bool) -> Vec<(&'a Entry, Duration)> {
        let (now, wall) = (Instant::now(), (self.wall_clock)());
        let mut local = self.local();
        let key = (name.to_owned(), is_own);
        let is_first_look = !local.seen.contains_key(&key);
        let seen = local.seen.entry(key).or_default();
        seen.retain(|(id, state), _| record.entries.iter().any(|entry| entry.id == *id && entry.state == *state));
        let age = |entry: &'a Entry| {
            let moment = *seen.entry((entry.id.clone(), entry.state)).or_insert_with(|| {
                let believed = if is_first_look { since(entry, wall).saturating_sub(SKEW) } else { Duration::ZERO };
                now.checked_sub(believed).unwrap_or(now)
            });
            (entry, now.saturating_duration_since(moment))
        };
        record.entries.iter().map(age).collect()
    }

    /// Writes an own attempt down, and that it was made just now.
    fn note(&self, name: &str, entry: Entry) {
        let mut local = self.local();
        local.saw(name, &entry.id, entry.state);
        local.own.entry(name.to_owned()).or_default().put(entry);
    }

    async fn settle_everywhere(&self, name: &str, id: &str, outcome: Outcome, limit: Duration) {
        let at = (self.wall_clock)();
        self.local().settle(name, id, outcome, at);
        let Some(store) = self.store.as_deref() else { return };
        let written = async {
            for turn in 0..TRIES {
                let (mut record, version) = self.fetch(store, name).await?;
                if !apply(&mut record, id, outcome, at) {
                    return Ok(());
                }
                match self.save(store, name, version.as_deref(), &record).await {
                    Err(StoreError::Conflict) => pause_between(turn).await,
                    other => return other,
                }
            }
            Err(StoreError::Conflict)
        };
        let written = within(limit, written).await;
        self.tell(written.as_ref().err());
        if written.is_err() {
            let mut local = self.local();
            let surplus = (local.pending.len() + 1).saturating_sub(MOST_PENDING);
            local.pending.drain(..surplus);
            local.pending.push((name.to_owned(), id.to_owned(), outcome));
        }
    }

    /// Says once that the store is out of reach, and once that it is not any more.
    fn tell(&self, problem: Option<&StoreError>) {
        let is_out_of_reach = match problem {
            Some(StoreError::Conflict) => return,
            Some(StoreError::OutOfReach(_)) => true,
            None => false,
        };
        let was = std::mem::replace(&mut self.local().is_out_of_reach, is_out_of_reach);
        match problem {
            Some(error) if !was => tracing::warn!(
                %error,
                "rejected logins cannot be counted together with other replicas; this process makes one login in 200 s until \
                 one is accepted"
            ),
            None if was => tracing::info!("rejected logins are counted together with other replicas again"),
            _ => {}
        }
    }
}

#[async_trait]
impl LoginLedger for Ledger {
    fn know(&self, server: &str) {
        let mut local = self.local();
        if local.servers.len() < MOST_SERVERS {
            local.servers.insert(server.to_owned());
        }
    }

    fn reset_command(&self, server: &str, user: &str) -> Option<String> {
        let store = self.store.as_ref().filter(|_| !self.local().is_out_of_reach)?;
        store.delete_command(&record_name(server, user))
    }

    async fn claim(&self, attempt: &Attempt) -> Result<Claim, Refused> {
        let id = uuid::Uuid::new_v4().to_string();
        let claim = |pause_if_rejected| Claim { attempt: attempt.clone(), id: id.clone(), pause_if_rejected };
        let Some(store) = self.store.as_deref() else {
            return self.claim_alone(attempt, &id).map(|()| claim(Duration::ZERO));
        };
        let shared = self.claim_shared(store, attempt, &id);
        let answer = if attempt.is_known {
            match tokio::time::timeout(KNOWN_LIMIT, shared).await {
                Ok(answer) => answer,
                Err(_) => Err(no_answer_within(KNOWN_LIMIT).into()),
            }
        } else {
            shared.await
        };
        match answer {
            Ok(()) => {
                self.tell(None);
                Ok(claim(Duration::ZERO))
            }
            Err(Problem::Refused(refused)) => {
                self.tell(None);
                Err(refused)
            }
            Err(Problem::Store(error)) => {
                self.tell(Some(&error));
                let alone = self.claim_alone(attempt, &id);
                if alone.is_err() {
                    // It may stand in the store.
                    let name = record_name(&attempt.server, &attempt.user);
                    self.settle_everywhere(&name, &id, Outcome::Harmless, KNOWN_LIMIT).await;
                }
                alone.map(|()| claim(WINDOW))
            }
        }
    }

    async fn settle(&self, claim: Claim, outcome: Outcome) {
        let name = record_name(&claim.attempt.server, &claim.attempt.user);
        // A pair that was accepted before does not wait for the API server. Another one's claim makes the others wait
        // if it is not given back, and a slow API server was waited for when it was made.
        let is_quick = claim.attempt.is_known && outcome == Outcome::Harmless;
        self.settle_everywhere(&name, &claim.id, outcome, if is_quick { KNOWN_LIMIT } else { CALL_LIMIT }).await;
    }
}

/// Why a claim was not made in the store.
enum Problem {
    Refused(Refused),
    Store(StoreError),
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        Problem::Refused(refused)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Problem::Store(error)
    }
}

fn state_after(outcome: Outcome) -> Option<State> {
    match outcome {
        Outcome::Harmless => None,
        Outcome::Rejected => Some(State::Rejected),
        Outcome::Unanswered => Some(State::Unanswered),
    }
}

/// Puts an outcome into a record; whether that changes it.
fn apply(record: &mut Record, id: &str, outcome: Outcome, at: i64) -> bool {
    let Some(mut entry) = record.take(id) else { return false };
    if let Some(state) = state_after(outcome) {
        // The server counts from when it refused.
        entry.state = state;
        entry.at = at;
        record.put(entry);
    }
    true
}

/// How old an entry is by the clock of its writer.
fn since(entry: &Entry, wall: i64) -> Duration {
    u64::try_from(wall.saturating_sub(entry.at)).map_or(Duration::ZERO, Duration::from_secs)
}

async fn limited<T>(call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    within(CALL_LIMIT, call).await
}

async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    tokio::time::timeout(limit, call).await.unwrap_or_else(|_| Err(no_answer_within(limit)))
}

fn no_answer_within(limit: Duration) -> StoreError {
    StoreError::OutOfReach(format!("no answer within {} s", limit.as_secs()))
}

async fn pause_between(turn: u32) {
    let longest = Duration::from_millis(25).saturating_mul(1 << turn.min(5)).min(CONTENTION);
    tokio::time::sleep(longest.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
}

#[cfg(test)]
mod tests;
