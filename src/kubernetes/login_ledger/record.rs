//! Pure: what is remembered of the logins of one account at one server, and whether one more may be made.
//!
//! A server locks an account after some rejections in a time, so at most the budget of the attempt's policy counts in any
//! window, one more only with credentials that were accepted before, or if none was rejected; then the backoff grows. Ages
//! are handed in: how they are known is the ledger's.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::backoff::Backoff;
use crate::cloud::login_ledger::{Attempt, LoginPolicy, LoginRefusal, Outcome, SecretVersion};

/// How long a claim may be under way. An older one that was not settled has lost its answer.
pub const UNDER_WAY: Duration = Duration::from_secs(75);
/// For how long a login of another replica is awaited whose pair nobody has seen accepted yet: if it is wrong, one
/// rejection tells it.
pub const CAUTION: Duration = Duration::from_secs(10);
/// How soon to ask again when only claims under way are in the way, which are given back when the login is accepted.
pub const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// After this an entry is forgotten.
pub const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);
/// For how long a pair that one replica was accepted with is proven for the others. Long against the 30 s after which
/// those that wait look again; short, because a pair without a version may be exchanged for another one.
pub const PROVEN_FOR: Duration = Duration::from_secs(10 * 60);
/// Entries of one record; the youngest stay. The longest window of a product, 15 minutes, has room for 20 attempts by the
/// policy with the most attempts (four in 200 s), so that no rejection is displaced while it counts at another product.
pub const MOST_ENTRIES: usize = 24;
/// As many entries a version of this program before the second product keeps: a record that has them may have lost others.
const MOST_BEFORE: usize = 16;
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(30 * 60);

const OTHERS_UNDER_WAY: &str = "other logins of the account are under way";

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LoginState {
    /// Claimed and not settled: under way, or its answer was lost with its process.
    Claimed,
    /// The server refused the pair.
    Rejected,
    /// Nobody knows whether the server refused the pair.
    Unanswered,
}

impl LoginState {
    /// That of an attempt with this outcome, if it counts.
    pub(super) fn after(outcome: Outcome) -> Option<Self> {
        match outcome {
            Outcome::Accepted | Outcome::Harmless => None,
            Outcome::Rejected => Some(LoginState::Rejected),
            Outcome::Unanswered => Some(LoginState::Unanswered),
        }
    }
}

/// One attempt that counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Names it among the attempts of all replicas.
    pub id: String,
    /// Seconds since 1970, by the clock of the API server where it tells the time.
    pub at: i64,
    /// How far it has come.
    pub state: LoginState,
    /// The pair was accepted earlier in the same process.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub known: bool,
    /// The Secret the pair was from, if it was from one.
    #[serde(flatten)]
    pub version: Option<SecretVersion>,
    /// The pod that has claimed it, by its host name, as long as it is a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// Tells the process that has claimed it from those that ran in the pod before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
}

impl Entry {
    /// A claim.
    pub fn claim(id: String, at: i64, attempt: &Attempt) -> Self {
        let (known, version) = (attempt.is_known, attempt.version.clone());
        Self { id, at, state: LoginState::Claimed, known, version, pod: None, start: None }
    }

    fn is_of(&self, version: &SecretVersion) -> bool {
        self.version.as_ref() == Some(version)
    }
}

/// What one Lease holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The attempts, in the order in which they were made.
    pub entries: Vec<Entry>,
    /// The pair that was accepted last, unless it was rejected since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<AcceptedLogin>,
}

/// A pair that the server has accepted: it is proven for all replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedLogin {
    /// When, as in an entry.
    pub at: i64,
    /// The Secret the pair was from, if it was from one.
    #[serde(flatten)]
    pub version: Option<SecretVersion>,
}

impl Record {
    /// Reads what [`Record::to_text`] wrote. What cannot be read holds nothing: emptying the record by hand is the way
    /// to let an account go at once.
    pub fn from_text(text: &str) -> Self {
        let mut record: Self = serde_json::from_str(text).unwrap_or_default();
        record.bound();
        record
    }

    /// The text that is stored.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Adds a claim, or replaces the entry of its id.
    pub fn put(&mut self, entry: Entry) {
        self.take(&entry.id);
        self.entries.push(entry);
        self.bound();
    }

    /// Whether there is an entry of this id.
    pub fn holds(&self, id: &str) -> bool {
        self.entries.iter().any(|entry| entry.id == id)
    }

    /// Takes an entry out.
    pub fn take(&mut self, id: &str) -> Option<Entry> {
        let at = self.entries.iter().position(|entry| entry.id == id)?;
        Some(self.entries.remove(at))
    }

    /// Puts the outcome of an attempt in; whether there is a claim of it.
    pub fn apply(&mut self, id: &str, outcome: Outcome, at: i64) -> bool {
        let Some(entry) = self.take(id) else { return false };
        if let Some(state) = LoginState::after(outcome) {
            let is_its = |accepted: &AcceptedLogin| accepted.version == entry.version;
            if state == LoginState::Rejected && self.accepted.as_ref().is_some_and(is_its) {
                self.accepted = None;
            }
            // The server counts from when it refused.
            self.put(Entry { state, at, pod: None, start: None, ..entry });
        }
        true
    }

    /// The server accepted a pair of this version. What it did not answer before was no rejection of that pair, and its
    /// own count starts over: such attempts are forgotten, and claims that are `lost`. Without a version those of all
    /// pairs are. Rejections stay. For some time the pair counts as proven.
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

    /// Whether a pair of this version was accepted a short time before `moment`, and not rejected since. A date that is
    /// later than `moment` by more than `margin`, the tolerance for clocks, does not count: it would not expire.
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

    /// Whether these attempts stood here, and somebody has deleted them.
    pub fn has_lost(&self, ids: &[String]) -> bool {
        // A full record forgets by itself.
        !ids.is_empty() && self.entries.len() < MOST_BEFORE && !ids.iter().any(|id| self.holds(id))
    }

    fn bound(&mut self) {
        let surplus = self.entries.len().saturating_sub(MOST_ENTRIES);
        self.entries.drain(..surplus);
    }
}

/// Where an attempt was made, as seen from the server that is to be logged in to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// At the same server.
    This,
    /// At another server of the same product.
    SameProduct,
    /// At a server of another product.
    OtherProduct,
}

/// An entry, as one replica sees it.
#[derive(Clone, Copy, Debug)]
pub struct Aged<'a> {
    /// The entry.
    pub entry: &'a Entry,
    /// How long ago it took its state, at least. What was not looked at for hours seems young.
    pub age: Duration,
    /// The same as far as the clock of the replica that wrote it can be believed.
    pub likely_age: Duration,
    /// Where it was made.
    pub endpoint: Endpoint,
    /// Whether it is a claim of a process that has ended.
    pub is_lost: bool,
}

impl Aged<'_> {
    fn is_under_way(&self) -> bool {
        self.entry.state == LoginState::Claimed && self.age < UNDER_WAY && !self.is_lost
    }

    /// Rejections count wherever they were made, those at another product for no longer than the window. A lost answer says
    /// something of its own server only; a login under way may still be rejected.
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

/// What is known of the logins of an account.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The attempts.
    pub entries: &'a [Aged<'a>],
    /// Whether they are those of all replicas. Otherwise this process knows only its own, and as many of other replicas
    /// may count at the server as well.
    pub is_shared: bool,
    /// Whether the pair was accepted from another replica, after whatever was rejected of it.
    pub is_accepted: bool,
}

/// Whether `attempt` may be made. `random` is in 0..1 and makes a pause up to a quarter longer.
///
/// # Errors
/// It has to wait: for other logins under way, whose outcome decides, or because logins have failed.
pub fn decide(evidence: Evidence<'_>, attempt: &Attempt, random: f64) -> Result<(), LoginRefusal> {
    let longer = |refused: LoginRefusal| LoginRefusal { pause: refused.pause.mul_f64(1.0 + random / 4.0), ..refused };
    decide_without_jitter(evidence, attempt).map_err(longer)
}

fn decide_without_jitter(evidence: Evidence<'_>, attempt: &Attempt) -> Result<(), LoginRefusal> {
    let policy = attempt.policy;
    let mut counted: Vec<&Aged<'_>> = evidence.entries.iter().filter(|aged| aged.counts(policy.window)).collect();
    counted.sort_by_key(|aged| aged.age);
    if !evidence.is_shared {
        return decide_alone(&counted, attempt);
    }
    // For how long there is doubt whether a pair that was accepted still would be.
    let doubt = counted
        .iter()
        .filter(|aged| casts_doubt(aged, attempt) && !(evidence.is_accepted && aged.entry.version == attempt.version))
        .map(|aged| policy.window.saturating_sub(aged.likely_age))
        .max();
    // Without a version it may be another pair that was accepted: then it keeps to the budget.
    let is_proven = attempt.is_known || evidence.is_accepted && attempt.version.is_some();
    if is_proven && doubt.is_none() {
        return of_known(&counted, policy);
    }
    let is_awaited = |aged: &&Aged<'_>| {
        aged.endpoint == Endpoint::This && aged.is_under_way() && !aged.entry.known && aged.age < CAUTION
    };
    if counted.iter().any(is_awaited) {
        return queued("another login of the account is under way");
    }
    let in_window: Vec<&&Aged<'_>> = counted.iter().filter(|aged| aged.age < policy.window).collect();
    let (budget, what) = match in_window.iter().any(|aged| aged.entry.state == LoginState::Rejected) {
        true => (policy.budget, "rejected or not answered"),
        // As many may turn out to have been rejected.
        false => (most(policy), "not answered"),
    };
    let last = in_window.get(budget.saturating_sub(1));
    if last.is_some() && in_window.iter().filter(|aged| !aged.is_under_way()).count() < budget {
        return queued(OTHERS_UNDER_WAY);
    }
    let why = || too_often(what, budget, &counted, policy);
    let used_up = last.map(|last| (policy.window.saturating_sub(last.age), why()));
    // Without doubt it does not wait, so it waits no longer than there is doubt.
    let most = doubt.filter(|_| is_proven).unwrap_or(Duration::MAX);
    let slow_down = slow_down(&counted, attempt).filter(|_| !evidence.is_accepted);
    waits_longest(used_up, slow_down.map(|(pause, why)| (pause.min(most), why)))
}

/// The same for a process that knows its own attempts only, `counted` and sorted by age: its own budget in any window, and
/// logins one after the other, so that with a budget of three, and of one alone, three replicas make no more together. A
/// pair that was accepted does not wait long for another login that is under way, which is most likely accepted as well.
fn decide_alone(counted: &[&Aged<'_>], attempt: &Attempt) -> Result<(), LoginRefusal> {
    let LoginPolicy { window, budget_alone, .. } = attempt.policy;
    let longest = if attempt.is_known { CAUTION } else { UNDER_WAY };
    if counted.iter().any(|aged| aged.is_under_way() && aged.age < longest) {
        return queued(OTHERS_UNDER_WAY);
    }
    let mut in_window = counted.iter().filter(|aged| !aged.is_under_way() && aged.age < window);
    let failed = in_window.nth(budget_alone.saturating_sub(1)).map(|last| {
        let often = too_often("rejected or not answered", budget_alone, counted, attempt.policy);
        (window.saturating_sub(last.age), format!("{often}, and the replicas cannot count together"))
    });
    waits_longest(failed, slow_down(counted, attempt).filter(|_| !attempt.is_known))
}

/// Whether a pair that was accepted may be tried: so many at a time that the account is not locked if it is accepted no
/// longer. One that is accepted gives its place back at once. `counted` are the attempts that count. Their age by their
/// writers' clocks is believed here, since a pair that is right must not wait for hours that this process did not look;
/// where clocks are minutes apart, more may fail.
fn of_known(counted: &[&Aged<'_>], policy: LoginPolicy) -> Result<(), LoginRefusal> {
    let mut recent: Vec<&&Aged<'_>> = counted.iter().filter(|aged| aged.likely_age < policy.window).collect();
    recent.sort_by_key(|aged| aged.likely_age);
    let settled = recent.iter().filter(|aged| !aged.is_under_way()).count();
    let Some(last) = recent.get(policy.budget) else { return Ok(()) };
    if settled < most(policy) {
        return queued(OTHERS_UNDER_WAY);
    }
    let why = too_often("rejected or not answered", most(policy), counted, policy);
    waits_longest(Some((policy.window.saturating_sub(last.likely_age), why)), None)
}

/// Whether an entry says that a pair which was accepted is so no longer: such a pair was refused a moment ago.
fn casts_doubt(aged: &Aged<'_>, attempt: &Attempt) -> bool {
    let is_about_pair = match (&attempt.version, &aged.entry.version) {
        (Some(version), Some(rejected)) => version == rejected,
        // It may be another pair.
        _ => aged.entry.known,
    };
    aged.entry.state == LoginState::Rejected && aged.likely_age < attempt.policy.window && is_about_pair
}

/// The attempts that may count in the window where pairs are tried that were accepted before, or none of them is known to be
/// rejected.
fn most(policy: LoginPolicy) -> usize {
    policy.budget.saturating_add(1)
}

/// How long the pause since the last attempt has to be, beyond the budget; `counted` is sorted by age. Of another product
/// only the window and the budget apply: one Secret may hold other credentials for it.
fn slow_down(counted: &[&Aged<'_>], attempt: &Attempt) -> Option<RequiredWait> {
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
    let settled: Vec<&&Aged<'_>> = of_product().filter(|aged| !aged.is_under_way()).collect();
    let was_rejected = settled.iter().any(|aged| aged.entry.state == LoginState::Rejected);
    let surplus = settled.len().checked_sub(if was_rejected { policy.budget } else { most(policy) })?;
    // Nothing was rejected, or the pair may be another one than what was.
    let has_hope = attempt.is_new || !was_rejected;
    let backoff = Backoff::doubling(policy.window / 2, if has_hope { policy.window * 3 / 2 } else { LONGEST });
    let pause = pause_after(backoff, surplus).checked_sub(settled.first()?.age)?;
    Some((pause, "logins were rejected or not answered again and again".to_owned()))
}

/// Why a budget is used up.
fn too_often(what: &str, times: usize, counted: &[&Aged<'_>], policy: LoginPolicy) -> String {
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
        Some((pause, why)) => Err(LoginRefusal { pause, why, is_lockout: true }),
        None => Ok(()),
    }
}

/// The wait for other logins under way.
fn queued(why: &str) -> Result<(), LoginRefusal> {
    Err(LoginRefusal { pause: LOOK_AGAIN, why: why.to_owned(), is_lockout: false })
}

/// The pause after a failure with so many before it. Jitter is added to the decision as a whole.
fn pause_after(backoff: Backoff, earlier: usize) -> Duration {
    backoff.pause(u32::try_from(earlier).unwrap_or(u32::MAX).saturating_add(1), 0.0)
}

#[cfg(test)]
mod tests;
