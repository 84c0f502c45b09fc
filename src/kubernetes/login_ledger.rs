//! Counts logins across replicas and restarts. Each pair of server and account has a Lease, which is written by
//! compare-and-swap with the permissions of the leader election (get, create, update).
//!
//! The API server's clock dates the entries in the store, because the clocks of replicas are not trusted. While the
//! store is out of reach, a process dates its own entries by its own clock until it writes them to the store. A date is
//! trusted up to an error of [`MARGIN`], and an entry that appears between two reads was made after the first read. So
//! an entry counts for its full time, or a little longer.

mod lease;
mod local;
pub mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use self::local::{AttemptOutcome, LocalState, ObservedEntry, Process};
use self::record::{AgedEntry, Endpoint, Entry, Evidence, LoginState, RETENTION, Record, UNDER_WAY, decide};
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
/// Shorter time limit of the store, for a login with credentials that were accepted before, or to withdraw a claim.
const KNOWN_LIMIT: Duration = Duration::from_secs(1);
/// Maximum number of tries of a conflicting write. The login then has to wait.
const TRIES: u32 = 8;
/// Minimum pause of a login after `TRIES` conflicts.
const CONTENTION: Duration = Duration::from_secs(1);
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(25), Duration::from_millis(800)).shortened_by(0.5);
/// Maximum number of unwritten outcomes. The next claim writes them.
const MAX_PENDING: usize = 16;
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

/// Clock that dates the entries of a record.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Current time, in seconds since 1970.
    now: i64,
    margin: Duration,
}

impl Clock {
    fn since(self, entry: &Entry) -> Duration {
        u64::try_from(self.now.saturating_sub(entry.at)).map_or(Duration::ZERO, Duration::from_secs)
    }
}

/// Record names of one account, as seen from one server.
struct AccountRecords {
    endpoint: String,
    /// Location of each record of the account, by record name. Contains all registered servers of all products.
    endpoints: BTreeMap<String, Endpoint>,
}

impl AccountRecords {
    fn names(&self) -> BTreeSet<String> {
        self.endpoints.keys().cloned().collect()
    }

    fn others(&self) -> impl Iterator<Item = &String> {
        self.endpoints.keys().filter(|name| **name != self.endpoint)
    }
}

#[derive(Clone)]
struct FetchedRecord {
    record: Record,
    version: Option<String>,
    clock: Clock,
}

impl FetchedRecord {
    /// Whether a replica has recently logged in with the attempt's credentials.
    fn is_accepted(&self, attempt: &PlannedLogin) -> bool {
        self.record.is_accepted(attempt.version.as_ref(), self.clock.now, self.clock.margin)
    }
}

struct SharedReading {
    started: Instant,
    fetched: FetchedRecord,
}

impl SharedReading {
    fn serves(&self) -> bool {
        self.started.elapsed() < SERVES_FOR
    }
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

    /// Adds this pod's name to future claims. If a process replaces a killed process in the same pod, it recognises
    /// that the claims of the killed process are no longer in flight.
    #[must_use]
    pub fn in_pod(mut self, host_name: &str) -> Self {
        let start = uuid::Uuid::new_v4().simple().to_string();
        self.process = Some(Process { pod: host_name.to_owned(), start });
        self
    }

    fn own_clock(&self) -> Clock {
        Clock { now: (self.wall_clock)(), margin: SKEW }
    }

    fn entry(&self, id: &str, at: i64, attempt: &PlannedLogin) -> Entry {
        let entry = Entry::claim(id.to_owned(), at, attempt);
        match &self.process {
            Some(Process { pod, start }) => Entry { pod: Some(pod.clone()), start: Some(start.clone()), ..entry },
            None => entry,
        }
    }

    /// Claims a login, based only on the attempts of this process.
    fn claim_alone(&self, attempt: &PlannedLogin, id: &str) -> Result<(), LoginRefusal> {
        let account = self.records(attempt.policy, &attempt.server, &attempt.user);
        let here = &account.endpoint;
        let clock = self.own_clock();
        // The entry is recorded first, so that of two concurrent claims at least one sees the other claim.
        self.local.lock().note(here, self.entry(id, clock.now, attempt));
        let records: Vec<(String, FetchedRecord)> = {
            let local = self.local.lock();
            let own = |name: &String| {
                let record = local.own_entries.get(name).cloned().unwrap_or_default();
                (name.clone(), FetchedRecord { record, version: None, clock })
            };
            account.endpoints.keys().map(own).collect()
        };
        let judged = self.decide(&records, &account, attempt, Some(id), true);
        let mut local = self.local.lock();
        if judged.is_err() {
            local.apply_outcome(here, AttemptOutcome::harmless(id), clock.now);
        } else {
            local.without_leases.insert(id.to_owned());
        }
        judged
    }

    /// Claims a login in the store. Returns whether the login is allowed, or the error of the store.
    async fn claim_shared(&self, attempt: &PlannedLogin, id: &str) -> Result<Result<(), LoginRefusal>, StoreError> {
        let account = self.records(attempt.policy, &attempt.server, &attempt.user);
        let here = &account.endpoint;
        for turn in 0..TRIES {
            let mut records = vec![(here.clone(), self.fetch(here).await?)];
            if let Err(refused) = self.decide(&records, &account, attempt, None, false) {
                return Ok(Err(refused));
            }
            let Some((_, fetched)) = records.first_mut() else { continue };
            let entry = self.entry(id, fetched.clock.now, attempt);
            fetched.record.put(entry.clone());
            match self.save(here, fetched).await {
                Err(StoreError::Conflict) => {
                    pause_between(turn).await;
                    continue;
                }
                other => other?,
            }
            self.local.lock().note(here, entry);
            // The own claim is already written: of two concurrent claims at two servers, at least one sees the other.
            for name in account.others() {
                records.push((name.clone(), self.fetch(name).await?));
            }
            let judged = self.decide(&records, &account, attempt, Some(id), false);
            if judged.is_err() {
                self.apply_outcome_everywhere(attempt, AttemptOutcome::harmless(id), KNOWN_LIMIT).await;
            }
            return Ok(judged);
        }
        Ok(Err(LoginRefusal {
            pause: CONTENTION.mul_f64(1.0 + fastrand::f64()),
            reason: "other replicas claim logins, too".into(),
            is_lockout: false,
        }))
    }

    fn records(&self, policy: LoginPolicy, server: &str, user: &str) -> AccountRecords {
        let here = record_name(policy.scope, server, user);
        let of_server = |(scope, server): &(&'static str, String)| {
            let endpoint = if *scope == policy.scope { Endpoint::SameProduct } else { Endpoint::OtherProduct };
            (record_name(scope, server, user), endpoint)
        };
        let mut endpoints: BTreeMap<_, _> = self.local.lock().servers.iter().map(of_server).collect();
        endpoints.insert(here.clone(), Endpoint::This);
        AccountRecords { endpoint: here, endpoints }
    }

    /// Reads a record, and adds the attempts and outcomes of this process that the store lacks.
    async fn fetch(&self, name: &str) -> Result<FetchedRecord, StoreError> {
        let Reading { stored, server_time } = within(CALL_LIMIT, self.store.read(name)).await?;
        let clock = server_time.map_or_else(|| self.own_clock(), |now| Clock { now, margin: MARGIN });
        let (mut record, version) = match stored {
            Some(stored) => (Record::from_text(&stored.text), Some(stored.version)),
            None => (Record::default(), None),
        };
        let local = self.local.lock();
        for (_, id, outcome) in local.pending.iter().filter(|(of, ..)| of == name) {
            record.apply(id, *outcome, clock.now);
        }
        for id in local.without_leases.iter().filter(|id| !record.holds(id)).cloned().collect::<Vec<_>>() {
            if let Some(entry) = local.own_entry(name, &id, clock) {
                record.put(entry);
            }
        }
        Ok(FetchedRecord { record, version, clock })
    }

    /// Returns these records. Each record was read at most [`SERVES_FOR`] ago, and after this process last wrote the
    /// record.
    async fn read_for_review(&self, names: BTreeSet<String>) -> Result<Vec<(String, FetchedRecord)>, StoreError> {
        let all = async {
            // One review reads at a time, and other reviews reuse its records. The semaphore is never closed.
            let _turn = self.review_turn.acquire().await;
            let mut records = Vec::new();
            for name in names {
                let known =
                    self.local.lock().last_reads.get(&name).filter(|one| one.serves()).map(|one| one.fetched.clone());
                let fetched = match known {
                    Some(fetched) => fetched,
                    None => self.fetch_for_all(&name).await?,
                };
                records.push((name, fetched));
            }
            Ok(records)
        };
        within(CALL_LIMIT, all).await
    }

    async fn fetch_for_all(&self, name: &str) -> Result<FetchedRecord, StoreError> {
        let (began, writes) = (Instant::now(), self.local.lock().writes);
        let fetched = self.fetch(name).await?;
        let mut local = self.local.lock();
        local.last_reads.retain(|_, reading| reading.serves());
        // A read that overlaps a write of this process may lack the attempt, which would then seem deleted.
        if local.writes == writes {
            local.last_reads.insert(name.to_owned(), SharedReading { started: began, fetched: fetched.clone() });
        }
        Ok(fetched)
    }

    async fn save(&self, name: &str, fetched: &FetchedRecord) -> Result<(), StoreError> {
        let FetchedRecord { record, version, clock } = fetched;
        let (kept, pending) = {
            let mut local = self.local.lock();
            let observed = local.observe(name, record, false, *clock, self.process.as_ref());
            let young = observed.into_iter().filter(|observed| observed.age < RETENTION);
            let entries = young.map(|observed| observed.entry.clone()).collect();
            let pending: Vec<String> =
                local.pending.iter().filter(|(of, ..)| of == name).map(|(_, id, _)| id.clone()).collect();
            (Record { entries, accepted: record.accepted.clone() }, pending)
        };
        within(CALL_LIMIT, self.store.write(name, version.as_deref(), &kept.to_text())).await?;
        let mut local = self.local.lock();
        local.last_reads.remove(name);
        local.writes += 1;
        local.pending.retain(|(of, id, _)| of != name || !pending.contains(id));
        local.without_leases.retain(|id| !record.holds(id));
        Ok(())
    }

    /// Decides about `attempt` by the records, without the entry `except`, which is the claim of the attempt itself.
    fn decide(
        &self,
        records: &[(String, FetchedRecord)],
        account: &AccountRecords,
        attempt: &PlannedLogin,
        except: Option<&str>,
        is_own: bool,
    ) -> Result<(), LoginRefusal> {
        let mut aged: Vec<AgedEntry<'_>> = Vec::new();
        let mut local = self.local.lock();
        for (name, FetchedRecord { record, clock, .. }) in records {
            let endpoint = account.endpoints.get(name).copied().unwrap_or(Endpoint::SameProduct);
            for observed in local.observe(name, record, is_own, *clock, self.process.as_ref()) {
                let ObservedEntry { entry, age, is_lost } = observed;
                if except != Some(entry.id.as_str()) && age < RETENTION {
                    let likely_age = age.max(clock.since(entry));
                    aged.push(AgedEntry { entry, age, estimated_age: likely_age, endpoint, is_lost });
                }
            }
        }
        let of_here = records.iter().find(|(name, _)| *name == account.endpoint);
        let is_accepted = of_here.is_some_and(|(_, fetched)| fetched.is_accepted(attempt));
        let evidence = Evidence { entries: &aged, is_shared: !is_own, is_accepted };
        decide(evidence, attempt, fastrand::f64())
    }

    async fn apply_outcome_everywhere(&self, attempt: &PlannedLogin, settlement: AttemptOutcome<'_>, limit: Duration) {
        let name = &record_name(attempt.policy.scope, &attempt.server, &attempt.user);
        self.local.lock().apply_outcome(name, settlement, (self.wall_clock)());
        let written = async {
            for turn in 0..TRIES {
                let mut fetched = self.fetch(name).await?;
                if !self.merge_outcome(name, &mut fetched, settlement) {
                    return Ok(());
                }
                match self.save(name, &fetched).await {
                    Err(StoreError::Conflict) => pause_between(turn).await,
                    other => return other,
                }
            }
            Err(StoreError::Conflict)
        };
        let written = within(limit, written).await;
        self.log_availability(attempt, written.as_ref().err());
        if written.is_err() {
            let mut local = self.local.lock();
            let surplus = (local.pending.len() + 1).saturating_sub(MAX_PENDING);
            local.pending.drain(..surplus);
            // A late write must not clear newer failures.
            let outcome = match settlement.outcome {
                Outcome::Accepted => Outcome::Harmless,
                outcome => outcome,
            };
            local.pending.push((name.to_owned(), settlement.id.to_owned(), outcome));
        }
    }

    /// Applies the outcome of an attempt of this process to a record. Returns whether the record changes.
    fn merge_outcome(&self, name: &str, fetched: &mut FetchedRecord, settlement: AttemptOutcome<'_>) -> bool {
        let AttemptOutcome { id, outcome, version } = settlement;
        let FetchedRecord { record, clock, .. } = fetched;
        let mut local = self.local.lock();
        let was_claimed = record.apply(id, outcome, clock.now);
        // The claim was never written, or another process removed it as lost. The own entry then replaces the claim,
        // except for an accepted login, which only clears earlier unanswered logins.
        if !was_claimed && outcome != Outcome::Accepted {
            let Some(entry) = local.own_entry(name, id, *clock).filter(|_| LoginState::after(outcome).is_some()) else {
                return false;
            };
            record.put(entry);
        }
        if outcome == Outcome::Accepted {
            let lost: BTreeSet<String> = local
                .observe(name, record, false, *clock, self.process.as_ref())
                .into_iter()
                .filter(|observed| observed.is_lost || observed.age >= UNDER_WAY)
                .map(|observed| observed.entry.id.clone())
                .collect();
            record.clear_unanswered(version, clock.now, |entry| lost.contains(&entry.id));
        }
        true
    }

    /// Logs once per product that the store is out of reach, and once that it is available again.
    fn log_availability(&self, attempt: &PlannedLogin, problem: Option<&StoreError>) {
        let PlannedLogin { policy, server, .. } = attempt;
        let is_out_of_reach = match problem {
            Some(StoreError::Conflict) => return,
            Some(StoreError::OutOfReach(_)) => true,
            None => false,
        };
        let is_other = {
            let out_of_reach = &mut self.local.lock().out_of_reach;
            if is_out_of_reach { out_of_reach.insert(policy.scope) } else { out_of_reach.remove(policy.scope) }
        };
        let LoginPolicy { window, budget_alone, .. } = policy;
        match problem {
            Some(error) if is_other => tracing::warn!(
                server,
                %error,
                "rejected logins cannot be counted together with other replicas; until a login is accepted, this process \
                 makes at most {budget_alone} in {} s at servers of this product",
                window.as_secs()
            ),
            None if is_other => {
                tracing::info!(server, "rejected logins are counted together with other replicas again");
            }
            _ => {}
        }
    }
}

#[async_trait]
impl LoginThrottle for Ledger {
    fn know(&self, policy: LoginPolicy, server: &str) {
        let mut local = self.local.lock();
        if local.servers.iter().filter(|(scope, _)| *scope == policy.scope).count() < MAX_SERVERS {
            local.servers.insert((policy.scope, server.to_owned()));
        }
    }

    fn reset_command(&self, policy: LoginPolicy, server: &str, user: &str) -> Option<String> {
        if self.local.lock().out_of_reach.contains(policy.scope) {
            return None;
        }
        // Rejections count at every server of the account, so all records of the account must be deleted.
        self.store.delete_command(&self.records(policy, server, user).names())
    }

    async fn claim(&self, attempt: &PlannedLogin) -> Result<LoginClaim, LoginRefusal> {
        let id = uuid::Uuid::new_v4().to_string();
        let claim = |pause_if_rejected| LoginClaim { attempt: attempt.clone(), id: id.clone(), pause_if_rejected };
        let shared = self.claim_shared(attempt, &id);
        let answer = if attempt.was_accepted { within(KNOWN_LIMIT, shared).await } else { shared.await };
        match answer {
            Ok(judged) => {
                self.log_availability(attempt, None);
                judged.map(|()| claim(Duration::ZERO))
            }
            Err(error) => {
                self.log_availability(attempt, Some(&error));
                let alone = self.claim_alone(attempt, &id);
                if alone.is_err() {
                    // The claim may have reached the store.
                    self.apply_outcome_everywhere(attempt, AttemptOutcome::harmless(&id), KNOWN_LIMIT).await;
                }
                alone.map(|()| claim(attempt.policy.window))
            }
        }
    }

    async fn can_retry(&self, attempt: &PlannedLogin, was_rejected: bool) -> bool {
        let account = self.records(attempt.policy, &attempt.server, &attempt.user);
        let here = &account.endpoint;
        let Ok(records) = self.read_for_review(account.names()).await else { return false };
        let is_over = |(_, fetched): &(String, FetchedRecord)| {
            let own = self.local.lock().rejections(here);
            fetched.is_accepted(attempt) || fetched.record.has_lost(&own)
        };
        let is_bound = was_rejected && !records.iter().filter(|(name, _)| name == here).any(is_over);
        !is_bound && !self.decide(&records, &account, attempt, None, false).is_err_and(|refused| refused.is_lockout)
    }

    async fn record_outcome(&self, claim: LoginClaim, outcome: Outcome) {
        // The login hardly waits for the API server if its credentials were accepted before and its outcome does not
        // count. Otherwise the write gets the full limit: without a recorded outcome, the attempt still counts and may
        // block further logins.
        let is_quick = claim.attempt.was_accepted && LoginState::after(outcome).is_none();
        let limit = if is_quick { KNOWN_LIMIT } else { CALL_LIMIT };
        let settlement = AttemptOutcome { id: &claim.id, outcome, version: claim.attempt.version.as_ref() };
        self.apply_outcome_everywhere(&claim.attempt, settlement, limit).await;
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
pub struct Reading {
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
    async fn read(&self, name: &str) -> Result<Reading, StoreError>;

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
