//! Pure: the login record of one account at one server, and whether another login is allowed.
//!
//! A server locks an account after a number of rejections within a time. So any window has at most as many attempts as
//! the budget of the login's policy; one more with credentials that were accepted before, or if no attempt was
//! rejected. Beyond the budget, the pauses grow. Callers pass the ages of the attempts, which the ledger determines.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::backoff::Backoff;
use crate::cloud::login_ledger::{LoginPolicy, LoginRefusal, Outcome, PlannedLogin, SecretVersion};

/// Time limit of a claim in flight. An older claim without an outcome is taken for a lost answer.
pub const UNDER_WAY: Duration = Duration::from_secs(75);
/// How long a login waits for another replica's login with credentials that are not known to be accepted: if these are
/// wrong, one rejection shows it.
pub const CAUTION: Duration = Duration::from_secs(10);
/// Retry interval of a login that waits only for claims in flight, which are released when their logins are accepted.
pub const RECHECK_AFTER: Duration = Duration::from_secs(1);
/// Age at which an entry is dropped.
pub const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// How long credentials accepted for one replica count as proven for the others. Long against the 30 s after which
/// waiting logins are reviewed; short, because credentials without a version may be replaced.
pub const PROVEN_FOR: Duration = Duration::from_secs(10 * 60);
/// Maximum number of entries of one record; the youngest stay. The longest window of a product, 15 minutes, has room
/// for 20 attempts by the policy with the most attempts (four in 200 s), so no rejection is evicted while it counts for
/// another product.
pub const MAX_ENTRIES: usize = 24;
/// Maximum number of entries in earlier versions of this program: a record with this many may have dropped others.
const MAX_KNOWN_ENTRIES: usize = 16;
/// The longest backoff.
const LONGEST: Duration = Duration::from_secs(30 * 60);

const OTHERS_UNDER_WAY: &str = "other logins of the account are under way";

/// The state of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LoginState {
    /// Claimed, and no outcome is recorded: in flight, or its answer was lost with its process.
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
    /// Seconds since 1970, by the API server's clock if known.
    pub at: i64,
    /// The state of the attempt.
    pub state: LoginState,
    /// Whether the same process had logged in with these credentials before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub known: bool,
    /// The Secret version of the credentials, if they are from a Secret.
    #[serde(flatten)]
    pub version: Option<SecretVersion>,
    /// The host name of the pod of the claiming process, while the attempt is a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Distinguishes the claiming process from earlier ones in the pod.
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

/// The content of one Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The attempts, in the order in which they were made.
    pub entries: Vec<Entry>,
    /// The credentials accepted last, unless they were rejected since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<AcceptedLogin>,
}

/// Accepted credentials: proven for all replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedLogin {
    /// When the credentials were accepted, dated like an entry.
    pub at: i64,
    /// The Secret version of the credentials, if they are from a Secret.
    #[serde(flatten)]
    pub version: Option<SecretVersion>,
}

impl Record {
    /// Parses the text of [`Record::to_text`]. Unreadable text is an empty record: clearing the record by hand unlocks
    /// an account at once.
    pub fn from_text(text: &str) -> Self {
        let mut record: Self = serde_json::from_str(text).unwrap_or_default();
        record.bound();
        record
    }

    /// The text that is stored.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Adds a claim, or replaces the entry with its id.
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

    /// Applies the outcome of an attempt; returns whether its claim existed.
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

    /// Records that the server accepted credentials of this version, which count as proven for some time. Drops earlier
    /// unanswered attempts with them and claims that are `lost`: they were no rejections, and the server's count starts
    /// over. Without a version, drops those of all credentials. Rejections stay.
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

    /// Whether credentials of this version were accepted shortly before `moment`, and not rejected since. A date later
    /// than `moment` by more than the clock tolerance `margin` does not count: it would not expire.
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

    /// Whether these attempts, which were in the record, have been deleted from it by hand.
    pub fn has_lost(&self, ids: &[String]) -> bool {
        // A full record drops entries by itself.
        !ids.is_empty() && self.entries.len() < MAX_KNOWN_ENTRIES && !ids.iter().any(|id| self.holds(id))
    }

    fn bound(&mut self) {
        let surplus = self.entries.len().saturating_sub(MAX_ENTRIES);
        self.entries.drain(..surplus);
    }
}

/// Where an attempt was made, relative to the server of the login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// At the same server.
    This,
    /// At another server of the same product.
    SameProduct,
    /// At a server of another product.
    OtherProduct,
}

/// An entry as seen by one replica.
#[derive(Clone, Copy, Debug)]
pub struct AgedEntry<'a> {
    /// The entry.
    pub entry: &'a Entry,
    /// Minimum time since the entry entered its state. After hours without a read, the entry may be much older.
    pub age: Duration,
    /// Time since the entry entered its state, by the clock of the replica that wrote it.
    pub estimated_age: Duration,
    /// Where the attempt was made.
    pub endpoint: Endpoint,
    /// Whether the entry is a claim of a process that has ended.
    pub is_lost: bool,
}

impl AgedEntry<'_> {
    fn is_under_way(&self) -> bool {
        self.entry.state == LoginState::Claimed && self.age < UNDER_WAY && !self.is_lost
    }

    /// Whether the entry counts for a login at this server. Rejections count wherever they were made, those at another
    /// product only within the window. Logins in flight count everywhere, as they may still be rejected; a lost answer
    /// only at its own server.
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

/// The evidence about the logins of an account.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The attempts.
    pub entries: &'a [AgedEntry<'a>],
    /// Whether `entries` include the attempts of all replicas. Otherwise they are only this process's own, and the
    /// server may count as many of each other replica.
    pub is_shared: bool,
    /// Whether another replica has logged in with the credentials since their last rejection.
    pub is_accepted: bool,
}

/// Whether `attempt` is allowed. `random` in 0..1 lengthens a pause by up to a quarter.
///
/// # Errors
/// The login has to wait: for other logins in flight, whose outcome decides, or because logins have failed.
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
    // How long it stays doubtful that accepted credentials would still be accepted.
    let doubt = counted
        .iter()
        .filter(|aged| {
            is_evidence_against(aged, attempt) && !(evidence.is_accepted && aged.entry.version == attempt.version)
        })
        .map(|aged| policy.window.saturating_sub(aged.estimated_age))
        .max();
    // Without a version, other credentials may have been accepted: then the budget applies.
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
        // All unanswered attempts may turn out to have been rejected.
        false => (most(policy), "not answered"),
    };
    let last = in_window.get(budget.saturating_sub(1));
    if last.is_some() && in_window.iter().filter(|aged| !aged.is_under_way()).count() < budget {
        return queued(OTHERS_UNDER_WAY);
    }
    let reason = || too_often(what, budget, &counted, policy);
    let used_up = last.map(|last| (policy.window.saturating_sub(last.age), reason()));
    // A login with proven credentials waits no longer than the doubt about them lasts.
    let most = doubt.filter(|_| is_proven).unwrap_or(Duration::MAX);
    let slow_down = slow_down(&counted, attempt).filter(|_| !evidence.is_accepted);
    waits_longest(used_up, slow_down.map(|(pause, why)| (pause.min(most), why)))
}

/// Decides for a process that knows only its own attempts (`counted`, sorted by age): at most `budget_alone` attempts
/// in any window, and one login at a time. So with a `budget` of three and a `budget_alone` of one, three replicas
/// together keep to the budget. Accepted credentials do not wait long for another login in flight, which is most likely
/// accepted.
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

/// Whether accepted credentials may be tried: only so many concurrently that the account is not locked if they are no
/// longer accepted. An accepted login releases its slot at once. `counted` are the attempts that count. Uses their ages
/// by their writers' clocks, because correct credentials must not wait after hours without a read; where clocks differ
/// by minutes, more logins may fail.
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

/// Whether an entry makes accepted credentials doubtful: they were rejected a moment ago.
fn is_evidence_against(aged: &AgedEntry<'_>, attempt: &PlannedLogin) -> bool {
    let is_about_pair = match (&attempt.version, &aged.entry.version) {
        (Some(version), Some(rejected)) => version == rejected,
        // Without both versions, the entry may be about other credentials.
        _ => aged.entry.known,
    };
    aged.entry.state == LoginState::Rejected && aged.estimated_age < attempt.policy.window && is_about_pair
}

/// The number of attempts allowed in the window for credentials that were accepted before, or while none is known to be
/// rejected.
fn most(policy: LoginPolicy) -> usize {
    policy.budget.saturating_add(1)
}

/// The required pause since the last attempt, beyond the budget; `counted` is sorted by age. For another product only
/// window and budget apply: one Secret may contain other credentials for it.
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
    // Either nothing was rejected, or these may be other credentials than the rejected ones.
    let has_hope = attempt.is_new || !was_rejected;
    let backoff = Backoff::doubling(policy.window / 2, if has_hope { policy.window * 3 / 2 } else { LONGEST });
    let pause = pause_after(backoff, surplus).checked_sub(settled.first()?.age)?;
    Some((pause, "logins were rejected or not answered again and again".to_owned()))
}

/// The message for a used-up budget.
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

/// How long a login must wait after failed logins, and why.
type RequiredWait = (Duration, String);

/// Returns the longer wait; of equal waits, the first.
fn waits_longest(first: Option<RequiredWait>, second: Option<RequiredWait>) -> Result<(), LoginRefusal> {
    match [second, first].into_iter().flatten().max_by_key(|(pause, _)| *pause) {
        Some((pause, why)) => Err(LoginRefusal { pause, reason: why, is_lockout: true }),
        None => Ok(()),
    }
}

/// The refusal of a login that waits for other logins in flight.
fn queued(why: &str) -> Result<(), LoginRefusal> {
    Err(LoginRefusal { pause: RECHECK_AFTER, reason: why.to_owned(), is_lockout: false })
}

/// The pause after a failure that follows `earlier` failures. Jitter is added to the decision as a whole.
fn pause_after(backoff: Backoff, earlier: usize) -> Duration {
    backoff.pause(u32::try_from(earlier).unwrap_or(u32::MAX).saturating_add(1), 0.0)
}

#[cfg(test)]
mod tests;
