//! Counts logins across replicas and restarts. Each pair of server and account has a Lease, which is written by
//! compare-and-swap with the permissions of the leader election (get, create, update).
//!
//! The API server's clock dates the entries in the store, because the clocks of replicas are not trusted. A date is
//! trusted up to an error of [`MARGIN`], so an entry counts for its full time, or a little longer. A process measures
//! the ages of its own entries itself. Only its own entries count while the store is out of reach.

mod lease;
mod local;
pub mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use self::local::{LocalState, Process};
use self::record::{AgedEntry, Clock, Entry, RETENTION, Record, ServerRelation, decide};
use crate::base::backoff::Backoff;
use crate::cloud::login_ledger::{LoginClaim, LoginPolicy, LoginRefusal, LoginThrottle, Outcome, PlannedLogin};
use async_trait::async_trait;
use jiff::Timestamp;
pub use lease::LeaseStore;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Tolerance for dates of the store. The clocks of the API servers of one cluster differ by less, and an answer takes a
/// few seconds.
pub const MARGIN: Duration = Duration::from_secs(30);
/// Tolerance for dates of a store without a clock. Replicas then use their own clocks.
pub const SKEW: Duration = Duration::from_secs(10 * 60);
const PREFIX: &str = "vsphere-ccm-logins-";
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of tries of a conflicting write. The login then has to wait.
const TRIES: u32 = 8;
/// Minimum pause of a login after `TRIES` conflicts.
const CONTENTION: Duration = Duration::from_secs(1);
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(25), Duration::from_millis(800)).shortened_by(0.5);
/// Time for which reviews of paused logins reuse a record, because the logins of one account at all vCenters depend on
/// the same records. A login is reviewed again after 30 to 37.5 s, so a deletion is noticed within a minute.
const SERVES_FOR: Duration = Duration::from_secs(15);
/// Maximum number of remembered servers of one product.
const MAX_SERVERS: usize = 256;

/// Function that returns the wall clock time in seconds since 1970. Tests replace it.
pub type UnixClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// The login ledger of one process.
pub struct Ledger {
    store: Box<dyn LedgerStore>,
    wall_clock: UnixClock,
    process: Option<Process>,
    local: Mutex<LocalState>,
    /// Permit of the review that reads records. Other reviews wait for it and reuse the records.
    review_turn: Semaphore,
}

/// A record as read from the store, completed with the attempts and outcomes of this process.
#[derive(Clone)]
struct FetchedRecord {
    name: String,
    record: Record,
    /// The stored text, and its version. `None` if the store has no such record.
    stored: Option<StoredText>,
    clock: Clock,
    /// Time when the read began.
    read_at: Instant,
}

/// Returns the record name of an account at a server. `scope` is that of the login policy. The name is a hash, so that
/// server and user name do not leave the process.
pub fn record_name(scope: &str, server: &str, user: &str) -> String {
    let mut hash = Sha256::new();
    if !scope.is_empty() {
        hash.update(scope);
        hash.update([1]);
    }
    hash.update(server.to_lowercase());
    hash.update([0]);
    hash.update(user.to_lowercase());
    format!("{PREFIX}{:.32x}", hash.finalize())
}

impl Ledger {
    /// Creates a ledger that shares its counts through `store`.
    pub fn new(store: impl LedgerStore + 'static) -> Self {
        Self::with_clock(store, Arc::new(|| Timestamp::now().as_second()))
    }

    /// Creates a ledger that uses `wall_clock` as clock of this process.
    pub fn with_clock(store: impl LedgerStore + 'static, wall_clock: UnixClock) -> Self {
        let store = Box::new(store);
        Self { store, wall_clock, process: None, local: Mutex::default(), review_turn: Semaphore::new(1) }
    }

    /// Adds this pod's name to future claims. If a process replaces a killed process in the same pod, it recognizes
    /// that the claims of the killed process are no longer in flight.
    #[must_use]
    pub fn in_pod(mut self, host_name: &str) -> Self {
        let start = uuid::Uuid::new_v4().simple().to_string();
        self.process = Some(Process { pod: host_name.to_owned(), start });
        self
    }

    fn own_clock(&self) -> Clock {
        Clock { time: (self.wall_clock)(), margin: SKEW }
    }

    fn entry(&self, id: &str, at: i64, planned: &PlannedLogin) -> Entry {
        let entry = Entry::claim(id.to_owned(), at, planned);
        match &self.process {
            Some(Process { pod, start }) => Entry { pod: Some(pod.clone()), start: Some(start.clone()), ..entry },
            None => entry,
        }
    }

    /// Claims a login, based only on the attempts of this process.
    fn claim_alone(&self, planned: &PlannedLogin, id: &str) -> Result<(), LoginRefusal> {
        let account = self.records_of(planned.policy, &planned.server, &planned.user);
        let here = record_name(planned.policy.scope, &planned.server, &planned.user);
        let entry = self.entry(id, (self.wall_clock)(), planned);
        // One lock for the decision and the claim, so that of two concurrent claims one sees the other.
        let mut local = self.local.lock();
        let mut aged: Vec<AgedEntry<'_>> = Vec::new();
        for (name, relation) in &account {
            let others = local.attempts(name).filter(|(entry, _)| entry.id != id);
            aged.extend(others.map(|(entry, age)| AgedEntry { entry, age, relation: *relation }));
        }
        let judged = decide(&aged, false, planned, fastrand::f64());
        local.put(&here, entry, false);
        judged
    }

    /// Claims a login in the store. Returns whether the login is allowed, or the error of the store. Logs a change of the
    /// store's availability, unless it returns the error.
    async fn claim_shared(&self, planned: &PlannedLogin, id: &str) -> Result<Result<(), LoginRefusal>, StoreError> {
        let account = self.records_of(planned.policy, &planned.server, &planned.user);
        let here = &record_name(planned.policy.scope, &planned.server, &planned.user);
        for turn in 0..TRIES {
            let mut fetched = self.fetch(here).await?;
            if let Err(refused) = self.decide(std::slice::from_ref(&fetched), &account, planned, None) {
                // The cause may be attempts of this process that the store lacks, and other replicas need them. If the
                // write fails, the refusal holds, and the next claim repeats the write.
                let saved = self.save(&fetched).await;
                self.log_availability(planned, saved.err().as_ref());
                return Ok(Err(refused));
            }
            let entry = self.entry(id, fetched.clock.time, planned);
            fetched.record.put(entry.clone());
            match self.save(&fetched).await {
                Err(StoreError::Conflict) => {
                    pause_between(turn).await;
                    continue;
                }
                other => other?,
            }
            self.local.lock().put(here, entry, true);
            // The own claim is already written: of two concurrent claims at two servers, at least one sees the other.
            let mut records = vec![fetched];
            for name in account.keys().filter(|name| *name != here) {
                records.push(self.fetch(name).await?);
            }
            let judged = self.decide(&records, &account, planned, Some(id));
            if judged.is_err() {
                self.settle(planned, id, Outcome::Harmless).await;
            }
            self.log_availability(planned, None);
            return Ok(judged);
        }
        Ok(Err(LoginRefusal {
            pause: CONTENTION.mul_f64(1.0 + fastrand::f64()),
            reason: "other replicas claim logins, too".into(),
            is_lockout: false,
        }))
    }

    /// Returns the records of an account at all registered servers and `server`, with their relations to `server`.
    fn records_of(&self, policy: LoginPolicy, server: &str, user: &str) -> BTreeMap<String, ServerRelation> {
        let of_server = |(scope, server): &(&'static str, String)| {
            let relation =
                if *scope == policy.scope { ServerRelation::SameProduct } else { ServerRelation::OtherProduct };
            (record_name(scope, server, user), relation)
        };
        let mut records: BTreeMap<_, _> = self.local.lock().servers.iter().map(of_server).collect();
        records.insert(record_name(policy.scope, server, user), ServerRelation::SameServer);
        records
    }

    /// Reads a record, and completes it with the attempts and outcomes of this process.
    async fn fetch(&self, name: &str) -> Result<FetchedRecord, StoreError> {
        let read_at = Instant::now();
        let StoreReading { stored, server_time } = within(CALL_LIMIT, self.store.read(name)).await?;
        let clock = server_time.map_or_else(|| self.own_clock(), |time| Clock { time, margin: MARGIN });
        let mut record = stored.as_ref().map(|stored| Record::from_text(&stored.text)).unwrap_or_default();
        record.correct_dates(clock.time);
        self.local.lock().complete(name, &mut record, clock, self.process.as_ref());
        Ok(FetchedRecord { name: name.to_owned(), record, stored, clock, read_at })
    }

    /// Returns these records. Each record was read at most [`SERVES_FOR`] ago, and after this process last wrote the
    /// record.
    async fn read_for_review(&self, names: impl Iterator<Item = &String>) -> Result<Vec<FetchedRecord>, StoreError> {
        let is_recent = |fetched: &FetchedRecord| fetched.read_at.elapsed() < SERVES_FOR;
        let all = async {
            // One review reads at a time, and other reviews reuse its records. The semaphore is never closed.
            let _turn = self.review_turn.acquire().await;
            let mut records = Vec::new();
            for name in names {
                let (known, writes) = {
                    let mut local = self.local.lock();
                    local.last_reads.retain(|_, fetched| is_recent(fetched));
                    (local.last_reads.get(name).cloned(), local.writes)
                };
                let fetched = match known {
                    Some(fetched) => fetched,
                    None => {
                        let fetched = self.fetch(name).await?;
                        // An outcome may not have reached the store, and other replicas need it before the next claim.
                        // If the write fails, the next review repeats it.
                        let _ = self.save(&fetched).await;
                        fetched
                    }
                };
                let mut local = self.local.lock();
                // A read that overlaps a write of this process may lack the attempt, which would then seem deleted.
                if local.writes == writes {
                    local.last_reads.insert(name.clone(), fetched.clone());
                }
                records.push(fetched);
            }
            Ok(records)
        };
        within(CALL_LIMIT, all).await
    }

    /// Writes a record, unless the store has it already.
    async fn save(&self, fetched: &FetchedRecord) -> Result<(), StoreError> {
        let FetchedRecord { name, record, stored, clock, .. } = fetched;
        let mut kept = record.clone();
        kept.entries.retain(|entry| clock.age(entry) < RETENTION);
        let is_stored = match stored {
            Some(stored) => Record::from_text(&stored.text) == kept,
            None => kept.entries.is_empty(),
        };
        if !is_stored {
            let version = stored.as_ref().map(|stored| stored.version.as_str());
            within(CALL_LIMIT, self.store.write(name, version, &kept.to_text())).await?;
        }
        let mut local = self.local.lock();
        if !is_stored {
            local.last_reads.remove(name);
            local.writes += 1;
        }
        local.mark_stored(name, record);
        Ok(())
    }

    /// Decides about `planned` by the records, without the entry `except`, which is the claim of the attempt itself.
    fn decide(
        &self,
        records: &[FetchedRecord],
        account: &BTreeMap<String, ServerRelation>,
        planned: &PlannedLogin,
        except: Option<&str>,
    ) -> Result<(), LoginRefusal> {
        let mut aged: Vec<AgedEntry<'_>> = Vec::new();
        let local = self.local.lock();
        for FetchedRecord { name, record, clock, .. } in records {
            let relation = account.get(name).copied().unwrap_or(ServerRelation::SameProduct);
            for entry in &record.entries {
                let age = local.age(name, entry, *clock);
                if except != Some(entry.id.as_str()) && age < RETENTION {
                    aged.push(AgedEntry { entry, age, relation });
                }
            }
        }
        decide(&aged, true, planned, fastrand::f64())
    }

    /// Applies the outcome of an attempt of this process, here and in the store. If the store is out of reach, a later
    /// write adds the outcome. It then drops only the claim of an accepted login, because there may be newer failures.
    async fn settle(&self, planned: &PlannedLogin, id: &str, outcome: Outcome) {
        let name = &record_name(planned.policy.scope, &planned.server, &planned.user);
        let version = planned.version.as_ref();
        let window = {
            let mut local = self.local.lock();
            local.settle(name, id, outcome, version);
            local.longest_window.max(planned.policy.window)
        };
        let written = async {
            for turn in 0..TRIES {
                let mut fetched = self.fetch(name).await?;
                if outcome == Outcome::Accepted {
                    fetched.record.accept(version, fetched.clock, window);
                }
                match self.save(&fetched).await {
                    Err(StoreError::Conflict) => pause_between(turn).await,
                    other => return other,
                }
            }
            Err(StoreError::Conflict)
        };
        let written = within(CALL_LIMIT, written).await;
        self.log_availability(planned, written.as_ref().err());
    }

    /// Logs once per product that the store is out of reach, and once that it is available again.
    fn log_availability(&self, planned: &PlannedLogin, problem: Option<&StoreError>) {
        let PlannedLogin { policy, server, .. } = planned;
        let LoginPolicy { scope, window, budget_alone, .. } = *policy;
        match problem {
            Some(error @ StoreError::OutOfReach(_)) if self.local.lock().out_of_reach.insert(scope) => tracing::warn!(
                server,
                %error,
                "rejected logins cannot be counted together with other replicas; until a login is accepted, this process \
                 makes at most {budget_alone} in {} s at servers of this product",
                window.as_secs()
            ),
            None if self.local.lock().out_of_reach.remove(scope) => {
                tracing::info!(server, "rejected logins are counted together with other replicas again");
            }
            _ => {}
        }
    }
}

#[async_trait]
impl LoginThrottle for Ledger {
    fn register_server(&self, policy: LoginPolicy, server: &str) {
        let mut local = self.local.lock();
        if local.servers.iter().filter(|(scope, _)| *scope == policy.scope).count() < MAX_SERVERS {
            local.servers.insert((policy.scope, server.to_owned()));
        }
        local.longest_window = local.longest_window.max(policy.window);
    }

    fn reset_command(&self, policy: LoginPolicy, server: &str, user: &str) -> Option<String> {
        if self.local.lock().out_of_reach.contains(policy.scope) {
            return None;
        }
        // Rejections count at every server of the account, so all records of the account must be deleted.
        self.store.delete_command(&self.records_of(policy, server, user).into_keys().collect())
    }

    async fn claim(&self, planned: &PlannedLogin) -> Result<LoginClaim, LoginRefusal> {
        let id = uuid::Uuid::new_v4().to_string();
        let claim = |pause_if_rejected| LoginClaim { planned: planned.clone(), id: id.clone(), pause_if_rejected };
        match self.claim_shared(planned, &id).await {
            Ok(judged) => judged.map(|()| claim(Duration::ZERO)),
            Err(error) => {
                self.log_availability(planned, Some(&error));
                let alone = self.claim_alone(planned, &id);
                if alone.is_err() {
                    // The claim may have reached the store.
                    self.settle(planned, &id, Outcome::Harmless).await;
                }
                alone.map(|()| claim(planned.policy.window))
            }
        }
    }

    async fn count_rejection(&self, planned: &PlannedLogin) {
        let id = uuid::Uuid::new_v4().to_string();
        let name = record_name(planned.policy.scope, &planned.server, &planned.user);
        let entry = self.entry(&id, (self.wall_clock)(), planned);
        self.local.lock().put(&name, entry, false);
        self.settle(planned, &id, Outcome::Rejected).await;
    }

    async fn can_retry(&self, planned: &PlannedLogin, was_rejected: bool) -> bool {
        let account = self.records_of(planned.policy, &planned.server, &planned.user);
        let here = &record_name(planned.policy.scope, &planned.server, &planned.user);
        let Ok(records) = self.read_for_review(account.keys()).await else { return false };
        let is_deleted = |fetched: &FetchedRecord| {
            let rejections = self.local.lock().rejections(here);
            fetched.name == *here && fetched.record.has_lost(&rejections)
        };
        if was_rejected && !records.iter().any(is_deleted) {
            return false;
        }
        !self.decide(&records, &account, planned, None).is_err_and(|refused| refused.is_lockout)
    }

    async fn record_outcome(&self, claim: LoginClaim, outcome: Outcome) {
        self.settle(&claim.planned, &claim.id, outcome).await;
    }
}

/// A stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredText {
    /// Text of a [`Record`].
    pub text: String,
    /// Version that the next write must pass to the store.
    pub version: String,
}

/// Result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreReading {
    /// The stored record; `None` before the first write.
    pub stored: Option<StoredText>,
    /// Time by the store's clock, in seconds since 1970, if the store has a clock.
    pub server_time: Option<i64>,
}

/// Reason for a failed store call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The record was written or deleted since the read.
    #[error("another replica has written in between")]
    Conflict,
    /// The call failed for another reason than a conflict: the store does not answer, denies access or returns an
    /// error.
    #[error("{0}")]
    OutOfReach(String),
}

/// Store of texts by name, which all replicas share.
#[async_trait]
pub trait LedgerStore: Send + Sync {
    /// Reads the record and the store's time.
    async fn read(&self, name: &str) -> Result<StoreReading, StoreError>;

    /// Returns the command with which an administrator deletes these records, or `None` if there is none.
    fn delete_command(&self, _names: &BTreeSet<String>) -> Option<String> {
        None
    }

    /// Writes the record if its version is still `version`. With `None`, the record must not exist. Otherwise fails
    /// with [`StoreError::Conflict`].
    async fn write(&self, name: &str, version: Option<&str>, text: &str) -> Result<(), StoreError>;
}

async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let no_answer = |_| Err(StoreError::OutOfReach(format!("no answer within {} s", limit.as_secs())));
    tokio::time::timeout(limit, call).await.unwrap_or_else(no_answer)
}

async fn pause_between(turn: u32) {
    tokio::time::sleep(BACKOFF.pause(turn.saturating_add(1), fastrand::f64())).await;
}

#[cfg(test)]
mod tests;
