//! The login record of one account at one server, and the decision about another login. Pure.
//!
//! A server locks an account after a number of rejections within a time. So the ledger allows in each window at most as
//! many attempts as the login policy's budget. One more attempt is allowed with credentials that were accepted before,
//! or if no attempt was rejected. Beyond the budget, the pauses grow. The ledger determines the ages of the attempts.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::backoff::Backoff;
use crate::cloud::login_ledger::{LoginPolicy, LoginRefusal, Outcome, PlannedLogin, SecretVersion};

/// Time limit of a claim in flight. An older claim without an outcome counts as a lost answer.
pub const UNDER_WAY: Duration = Duration::from_secs(75);
/// Maximum wait for another login in flight whose credentials are not known to be accepted.
pub const CAUTION: Duration = Duration::from_secs(10);
/// Retry interval of a login that waits only for claims in flight. A claim is released when its login is accepted.
pub const RECHECK_AFTER: Duration = Duration::from_secs(1);
/// Age at which an entry is dropped.
pub const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// Time for which accepted credentials count as proven for all replicas. Much longer than the 30 s between reviews of
/// waiting logins. Not longer than necessary, because credentials without a version may be replaced.
pub const PROVEN_FOR: Duration = Duration::from_secs(10 * 60);
/// Maximum number of entries of one record; the youngest stay. The longest window (15 minutes) has room for 20 attempts
/// by the policy with the most attempts (four in 200 s), so no rejection is evicted while it counts.
pub const MAX_ENTRIES: usize = 24;
/// Maximum number of entries in earlier versions of this program. A record with this many entries may have dropped
/// some.
const MAX_KNOWN_ENTRIES: usize = 16;
/// Maximum pause of the backoff.
const LONGEST: Duration = Duration::from_secs(30 * 60);

const OTHERS_UNDER_WAY: &str = "other logins of the account are under way";

/// State of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LoginState {
    /// Claimed without a recorded outcome: the attempt is in flight, or its answer was lost with its process.
    Claimed,
    /// The server rejected the credentials.
    Rejected,
    /// It is unknown whether the server rejected the credentials.
    Unanswered,
}

impl LoginState {
    pub(super) fn after(outcome: Outcome) -> Option<Self> {
        match outcome {
            Outcome::Accepted | Outcome::Harmless => None,
            Outcome::Rejected => Some(LoginState::Rejected),
            Outcome::Unanswered => Some(LoginState::Unanswered),
        }
    }
}

/// An attempt that counts towards the limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Unique id across all replicas.
    pub id: String,
    /// Time of the state change in seconds since 1970, by the API server's clock if known.
    pub at: i64,
    /// State of the attempt.
    pub state: LoginState,
    /// Whether the same process had logged in with these credentials before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub known: bool,
    /// Secret version of the credentials, if they come from a Secret.
    #[serde(flatten)]
    pub version: Option<SecretVersion>,
    /// Host name of the claiming process's pod. Set only while the attempt is a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Id that distinguishes the claiming process from earlier processes in the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
}

impl Entry {
    /// Creates a claim.
    pub fn claim(id: String, at: i64, attempt: &PlannedLogin) -> Self {
        let (known, version) = (attempt.was_accepted, attempt.version.clone());
        Self { id, at, state: LoginState::Claimed, known, version, pod: None, start: None }
    }

    fn is_of(&self, version: &SecretVersion) -> bool {
        self.version.as_ref() == Some(version)
    }
}

/// Content of one Lease: the login record of one account at one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Attempts, in the order of their last state change.
    pub entries: Vec<Entry>,
    /// Credentials that were accepted last, unless they were rejected since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<AcceptedLogin>,
}

/// Accepted credentials, which count as proven for all replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedLogin {
    /// Time of the accepted login, dated like an entry.
    pub at: i64,
    /// Secret version of the credentials, if they come from a Secret.
    #[serde(flatten)]
    pub version: Option<SecretVersion>,
}

impl Record {
    /// Parses the text of [`Record::to_text`]. Unreadable text yields an empty record, so an administrator can unlock
    /// an account immediately by clearing the record.
    pub fn from_text(text: &str) -> Self {
        let mut record: Self = serde_json::from_str(text).unwrap_or_default();
        record.bound();
        record
    }

    /// Returns the text that is stored.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Adds an entry, or replaces the entry with the same id.
    pub fn put(&mut self, entry: Entry) {
        self.take(&entry.id);
        self.entries.push(entry);
        self.bound();
    }

    /// Whether there is an entry with this id.
    pub fn holds(&self, id: &str) -> bool {
        self.entries.iter().any(|entry| entry.id == id)
    }

    /// Removes and returns an entry.
    pub fn take(&mut self, id: &str) -> Option<Entry> {
        let at = self.entries.iter().position(|entry| entry.id == id)?;
        Some(self.entries.remove(at))
    }

    /// Applies the outcome of an attempt. Returns whether the record had an entry of the attempt.
    pub fn apply(&mut self, id: &str, outcome: Outcome, at: i64) -> bool {
        let Some(entry) = self.take(id) else { return false };
        if let Some(state) = LoginState::after(outcome) {
            let is_its = |accepted: &AcceptedLogin| accepted.version == entry.version;
            if state == LoginState::Rejected && self.accepted.as_ref().is_some_and(is_its) {
                self.accepted = None;
            }
            // The server counts from the time of the rejection.
            self.put(Entry { state, at, pod: None, start: None, ..entry });
        }
        true
    }

    /// Records that the server accepted credentials of this version, which count as proven for [`PROVEN_FOR`]. Drops
    /// earlier unanswered attempts of this version, and claims of this version for which `lost` returns true, because
    /// the server's count of rejections starts over. Without a version, drops the unanswered attempts and lost claims
    /// of all credentials. Rejections stay.
    pub fn clear_unanswered(&mut self, version: Option<&SecretVersion>, at: i64, lost: impl Fn(&Entry) -> bool) {
        self.accepted = Some(AcceptedLogin { at, version: version.cloned() });
        self.entries.retain(|entry| {
            let is_its = version.is_none_or(|version| entry.is_of(version));
            let is_open = match entry.state {
                LoginState::Unanswered => true,
                LoginState::Claimed => lost(entry),
                LoginState::Rejected => false,
            };
            !(is_its && is_open)
        });
    }

    /// Whether the server accepted credentials of this version shortly before `moment`, and has not rejected them
    /// since. Ignores a date that is later than `moment` by more than `margin`, because it would not expire.
    pub fn is_accepted(&self, version: Option<&SecretVersion>, moment: i64, margin: Duration) -> bool {
        self.accepted.as_ref().is_some_and(|accepted| {
            let is_same = accepted.version.as_ref() == version;
            let age = moment.saturating_sub(accepted.at);
            let is_recent = match u64::try_from(age) {
                Ok(seconds) => seconds < PROVEN_FOR.as_secs(),
                Err(_) => age.unsigned_abs() <= margin.as_secs(),
            };
            is_same && is_recent
        })
    }

    /// Whether an administrator has deleted all these attempts, which were in the record. Returns false for no
    /// attempts, and for a record that may itself have dropped entries.
    pub fn has_lost(&self, ids: &[String]) -> bool {
        // A full record drops entries by itself.
        !ids.is_empty() && self.entries.len() < MAX_KNOWN_ENTRIES && !ids.iter().any(|id| self.holds(id))
    }

    fn bound(&mut self) {
        let surplus = self.entries.len().saturating_sub(MAX_ENTRIES);
        self.entries.drain(..surplus);
    }
}

/// Location of an attempt, relative to the server of the login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The same server.
    This,
    /// Another server of the same product.
    SameProduct,
    /// A server of another product.
    OtherProduct,
}

/// An entry with its age, as observed by one replica.
#[derive(Clone, Copy, Debug)]
pub struct AgedEntry<'a> {
    /// The observed entry.
    pub entry: &'a Entry,
    /// Minimum time since the entry entered its state. After hours without a read, the entry may be much older.
    pub age: Duration,
    /// Time since the entry entered its state, according to the date of the entry.
    pub estimated_age: Duration,
    /// Location of the attempt.
    pub endpoint: Endpoint,
    /// Whether the entry is a claim of a process that has ended.
    pub is_lost: bool,
}

impl AgedEntry<'_> {
    fn is_under_way(&self) -> bool {
        self.entry.state == LoginState::Claimed && self.age < UNDER_WAY && !self.is_lost
    }

    /// Whether the entry counts for a login at this server. Rejections count at all servers, but rejections at another
    /// product count only within the window. Logins in flight count at all servers, because they may still be rejected.
    /// A lost answer counts only at its own server.
    fn counts(&self, window: Duration) -> bool {
        match self.endpoint {
            Endpoint::This => true,
            Endpoint::SameProduct => self.entry.state == LoginState::Rejected || self.is_under_way(),
            Endpoint::OtherProduct => {
                self.entry.state == LoginState::Rejected && self.age < window || self.is_under_way()
            }
        }
    }

    fn is_of_other_product(&self) -> bool {
        self.endpoint == Endpoint::OtherProduct
    }
}

/// Evidence about the logins of an account.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// Attempts of the account.
    pub entries: &'a [AgedEntry<'a>],
    /// Whether `entries` includes the attempts of all replicas. Otherwise it includes only the attempts of this
    /// process, and each other replica may have made as many.
    pub is_shared: bool,
    /// Whether a replica has recently logged in with the credentials, without a rejection of them since then.
    pub is_accepted: bool,
}

/// Decides whether `attempt` is allowed. `random` in 0..1 lengthens a pause by up to a quarter.
///
/// # Errors
/// The login has to wait for other logins in flight, or because logins have failed.
pub fn decide(evidence: Evidence<'_>, attempt: &PlannedLogin, random: f64) -> Result<(), LoginRefusal> {
    let longer = |refused: LoginRefusal| LoginRefusal { pause: refused.pause.mul_f64(1.0 + random / 4.0), ..refused };
    decide_without_jitter(evidence, attempt).map_err(longer)
}

fn decide_without_jitter(evidence: Evidence<'_>, attempt: &PlannedLogin) -> Result<(), LoginRefusal> {
    let policy = attempt.policy;
    let mut counted: Vec<&AgedEntry<'_>> = evidence.entries.iter().filter(|aged| aged.counts(policy.window)).collect();
    counted.sort_by_key(|aged| aged.age);
    if !evidence.is_shared {
        return decide_alone(&counted, attempt);
    }
    // Remaining time in which recent rejections outweigh an earlier acceptance of the credentials.
    let doubt = counted
        .iter()
        .filter(|aged| {
            is_evidence_against(aged, attempt) && !(evidence.is_accepted && aged.entry.version == attempt.version)
        })
        .map(|aged| policy.window.saturating_sub(aged.estimated_age))
        .max();
    // Without a version, other credentials may have been accepted, so the budget applies.
    let is_proven = attempt.was_accepted || evidence.is_accepted && attempt.version.is_some();
    if is_proven && doubt.is_none() {
        return decide_proven(&counted, policy);
    }
    let is_awaited = |aged: &&AgedEntry<'_>| {
        aged.endpoint == Endpoint::This && aged.is_under_way() && !aged.entry.known && aged.age < CAUTION
    };
    if counted.iter().any(is_awaited) {
        return queued("another login of the account is under way");
    }
    let in_window: Vec<&&AgedEntry<'_>> = counted.iter().filter(|aged| aged.age < policy.window).collect();
    let (budget, what) = match in_window.iter().any(|aged| aged.entry.state == LoginState::Rejected) {
        true => (policy.budget, "rejected or not answered"),
        // Each unanswered attempt may have been a rejection.
        false => (most(policy), "not answered"),
    };
    let last = in_window.get(budget.saturating_sub(1));
    if last.is_some() && in_window.iter().filter(|aged| !aged.is_under_way()).count() < budget {
        return queued(OTHERS_UNDER_WAY);
    }
    let reason = || too_often(what, budget, &counted, policy);
    let used_up = last.map(|last| (policy.window.saturating_sub(last.age), reason()));
    // A login with proven credentials waits only until the rejections are older than the window.
    let most = doubt.filter(|_| is_proven).unwrap_or(Duration::MAX);
    let slow_down = slow_down(&counted, attempt).filter(|_| !evidence.is_accepted);
    waits_longest(used_up, slow_down.map(|(pause, why)| (pause.min(most), why)))
}

/// Decides for a process that sees only its own attempts (`counted`, sorted by age): at most `budget_alone` attempts in
/// any window, and one login at a time. With a `budget` of three and a `budget_alone` of one, three replicas together
/// keep to the budget. Accepted credentials wait at most [`CAUTION`] for another login in flight.
fn decide_alone(counted: &[&AgedEntry<'_>], attempt: &PlannedLogin) -> Result<(), LoginRefusal> {
    let LoginPolicy { window, budget_alone, .. } = attempt.policy;
    let longest = if attempt.was_accepted { CAUTION } else { UNDER_WAY };
    if counted.iter().any(|aged| aged.is_under_way() && aged.age < longest) {
        return queued(OTHERS_UNDER_WAY);
    }
    let mut in_window = counted.iter().filter(|aged| !aged.is_under_way() && aged.age < window);
    let failed = in_window.nth(budget_alone.saturating_sub(1)).map(|last| {
        let often = too_often("rejected or not answered", budget_alone, counted, attempt.policy);
        (window.saturating_sub(last.age), format!("{often}, and the replicas cannot count together"))
    });
    waits_longest(failed, slow_down(counted, attempt).filter(|_| !attempt.was_accepted))
}

/// Decides for accepted credentials. Limits the logins in flight, so that the account is not locked if the server now
/// rejects the credentials. An accepted login releases its slot immediately.
///
/// `counted` are the attempts that count. Their ages follow from their dates, because correct credentials must not wait
/// after hours without a read. If clocks differ by minutes, more logins may fail.
fn decide_proven(counted: &[&AgedEntry<'_>], policy: LoginPolicy) -> Result<(), LoginRefusal> {
    let mut recent: Vec<&&AgedEntry<'_>> = counted.iter().filter(|aged| aged.estimated_age < policy.window).collect();
    recent.sort_by_key(|aged| aged.estimated_age);
    let settled = recent.iter().filter(|aged| !aged.is_under_way()).count();
    let Some(last) = recent.get(policy.budget) else { return Ok(()) };
    if settled < most(policy) {
        return queued(OTHERS_UNDER_WAY);
    }
    let reason = too_often("rejected or not answered", most(policy), counted, policy);
    waits_longest(Some((policy.window.saturating_sub(last.estimated_age), reason)), None)
}

/// Whether the entry is a recent rejection that counts against the attempt's credentials.
fn is_evidence_against(aged: &AgedEntry<'_>, attempt: &PlannedLogin) -> bool {
    let is_about_pair = match (&attempt.version, &aged.entry.version) {
        (Some(version), Some(rejected)) => version == rejected,
        // Without both versions, the entry may be about other credentials. It then counts only if its process had
        // logged in with them before.
        _ => aged.entry.known,
    };
    aged.entry.state == LoginState::Rejected && aged.estimated_age < attempt.policy.window && is_about_pair
}

/// Returns the budget for credentials that were accepted before, or for a window without rejections.
fn most(policy: LoginPolicy) -> usize {
    policy.budget.saturating_add(1)
}

/// Returns the remaining pause after rejections of the attempt's Secret version or, without a version, after attempts
/// beyond the budget. `counted` is sorted by age. Attempts at another product do not cause this pause, because one
/// Secret may contain other credentials for that product.
fn slow_down(counted: &[&AgedEntry<'_>], attempt: &PlannedLogin) -> Option<RequiredWait> {
    let policy = attempt.policy;
    let of_product = || counted.iter().filter(|aged| !aged.is_of_other_product());
    if let Some(version) = &attempt.version {
        let mut same =
            of_product().filter(|aged| aged.entry.state == LoginState::Rejected && aged.entry.is_of(version));
        let youngest = same.next()?;
        let backoff = Backoff::doubling(policy.window * 7 / 20, LONGEST);
        let pause = pause_after(backoff, same.count()).checked_sub(youngest.age)?;
        return Some((pause, "this version of the Secret was rejected".to_owned()));
    }
    let settled: Vec<&&AgedEntry<'_>> = of_product().filter(|aged| !aged.is_under_way()).collect();
    let was_rejected = settled.iter().any(|aged| aged.entry.state == LoginState::Rejected);
    let surplus = settled.len().checked_sub(if was_rejected { policy.budget } else { most(policy) })?;
    // The maximum pause is shorter if no attempt was rejected, or if the credentials may differ from the rejected ones.
    let has_hope = attempt.is_new || !was_rejected;
    let backoff = Backoff::doubling(policy.window / 2, if has_hope { policy.window * 3 / 2 } else { LONGEST });
    let pause = pause_after(backoff, surplus).checked_sub(settled.first()?.age)?;
    Some((pause, "logins were rejected or not answered again and again".to_owned()))
}

/// Returns the message for a used-up budget.
fn too_often(what: &str, times: usize, counted: &[&AgedEntry<'_>], policy: LoginPolicy) -> String {
    let seconds = policy.window.as_secs();
    let often = match times {
        0 | 1 => format!("a login was {what}"),
        3 => format!("logins were {what} three times"),
        4 => format!("logins were {what} four times"),
        times => format!("logins were {what} {times} times"),
    };
    let is_sum = counted.iter().any(|aged| aged.is_of_other_product() && !aged.is_under_way());
    let sum = if is_sum { ", those of the same user name at another product included" } else { "" };
    format!("{often} within {seconds} s{sum}")
}

/// Required wait after failed logins, and its reason.
type RequiredWait = (Duration, String);

/// Refuses the login with the longer wait, or with `first` if both are equal. Allows the login if there is no wait.
fn waits_longest(first: Option<RequiredWait>, second: Option<RequiredWait>) -> Result<(), LoginRefusal> {
    match [second, first].into_iter().flatten().max_by_key(|(pause, _)| *pause) {
        Some((pause, why)) => Err(LoginRefusal { pause, reason: why, is_lockout: true }),
        None => Ok(()),
    }
}

/// Refuses a login that waits for other logins in flight.
fn queued(why: &str) -> Result<(), LoginRefusal> {
    Err(LoginRefusal { pause: RECHECK_AFTER, reason: why.to_owned(), is_lockout: false })
}

/// Returns the pause after a failure that follows `earlier` failures. [`decide`] adds the jitter.
fn pause_after(backoff: Backoff, earlier: usize) -> Duration {
    backoff.pause(u32::try_from(earlier).unwrap_or(u32::MAX).saturating_add(1), 0.0)
}

#[cfg(test)]
mod tests;
