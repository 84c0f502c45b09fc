//! The login record of one account at one server, and the decision about another login. Pure.
//!
//! A server locks an account after a number of rejections within a time. So the ledger allows in each window at most as
//! many attempts as the login policy's budget. One more attempt is allowed if no attempt was rejected. Beyond the
//! budget, the pauses grow. The ledger determines the ages of the attempts.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::backoff::Backoff;
use crate::cloud::login_ledger::{LoginPolicy, LoginRefusal, Outcome, PlannedLogin, SecretVersion};

/// Time limit of a claim in flight. An older claim without an outcome counts as a lost answer.
pub const UNDER_WAY: Duration = Duration::from_secs(75);
/// Age up to which a claim in flight delays the next login at its server, because its outcome tells whether the
/// credentials are right. The claim of a killed process delays other processes no longer than this.
pub const QUEUE_LIMIT: Duration = Duration::from_secs(10);
/// Retry interval of a login that waits only for claims in flight. A claim is released when its login is accepted.
pub const RECHECK_AFTER: Duration = Duration::from_secs(1);
/// Age at which an entry is dropped.
pub const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// Largest plausible difference between two clocks that date entries, in seconds. Larger than each tolerance for dates.
const MAX_AHEAD: i64 = 60 * 60;
/// Maximum number of entries of one record; the youngest stay. The longest window (15 minutes) has room for 20 attempts
/// by the policy with the most attempts (four in 200 s), so no rejection is evicted while it counts.
pub const MAX_ENTRIES: usize = 24;
/// Maximum number of entries in earlier versions of this program. A record with this many entries may have dropped
/// some.
const MAX_KNOWN_ENTRIES: usize = 16;
/// Maximum pause of the backoff.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// State of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EntryState {
    /// Claimed without a recorded outcome: the attempt is in flight, or its answer was lost with its process.
    Claimed,
    /// The server rejected the credentials.
    Rejected,
    /// It is unknown whether the server rejected the credentials.
    Unanswered,
}

impl EntryState {
    pub(super) fn after(outcome: Outcome) -> Option<Self> {
        match outcome {
            Outcome::Accepted | Outcome::Harmless => None,
            Outcome::Rejected => Some(EntryState::Rejected),
            Outcome::Unanswered => Some(EntryState::Unanswered),
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
    pub state: EntryState,
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
    pub fn claim(id: String, at: i64, planned: &PlannedLogin) -> Self {
        Self { id, at, state: EntryState::Claimed, version: planned.version.clone(), pod: None, start: None }
    }

    /// Changes the state. A settled attempt names no process.
    pub fn settle(&mut self, state: EntryState) {
        self.state = state;
        self.pod = None;
        self.start = None;
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
        self.remove(&entry.id);
        self.entries.push(entry);
        self.bound();
    }

    /// Returns the state of the entry with this id.
    pub fn state_of(&self, id: &str) -> Option<EntryState> {
        self.entries.iter().find(|entry| entry.id == id).map(|entry| entry.state)
    }

    /// Removes the entry with this id.
    pub fn remove(&mut self, id: &str) {
        self.entries.retain(|entry| entry.id != id);
    }

    /// Applies an accepted login with credentials of this version, because the server's count of rejections starts
    /// over. Drops the unanswered attempts of this version, and its claims that have outlived their login. Without a
    /// version, drops those of all credentials. Drops also the rejections of this version that are older than `window`,
    /// so that they lengthen no pause. Younger rejections stay, because the budget limits all rejections of the account
    /// within a window, also those of other replicas with other credentials.
    pub fn accept(&mut self, version: Option<&SecretVersion>, clock: Clock, window: Duration) {
        self.entries.retain(|entry| {
            let is_its = version.is_none_or(|version| entry.is_of(version));
            match entry.state {
                EntryState::Unanswered => !is_its,
                EntryState::Claimed => !is_its || clock.age(entry) < UNDER_WAY,
                EntryState::Rejected => entry.version.as_ref() != version || clock.age(entry) < window,
            }
        });
    }

    /// Replaces dates that are far in the future by `time`, because the clock that dated the entries has been set back.
    /// Otherwise, these entries would count until the clock reaches their dates.
    pub fn correct_dates(&mut self, time: i64) {
        for entry in self.entries.iter_mut().filter(|entry| entry.at.saturating_sub(time) > MAX_AHEAD) {
            entry.at = time;
        }
    }

    /// Whether an administrator has deleted all these attempts, which were in the record. Returns false for no
    /// attempts, and for a record that may itself have dropped entries.
    pub fn has_lost(&self, ids: &[String]) -> bool {
        // A full record drops entries by itself.
        let is_full = self.entries.len() >= MAX_KNOWN_ENTRIES;
        !ids.is_empty() && !is_full && ids.iter().all(|id| self.state_of(id).is_none())
    }

    fn bound(&mut self) {
        let surplus = self.entries.len().saturating_sub(MAX_ENTRIES);
        self.entries.drain(..surplus);
    }
}

/// Clock that dates the entries of a record.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Current time, in seconds since 1970.
    pub time: i64,
    /// Tolerance for the dates of entries.
    pub margin: Duration,
}

impl Clock {
    /// Returns the minimum time since the entry entered its state.
    pub fn age(self, entry: &Entry) -> Duration {
        let seconds = u64::try_from(self.time.saturating_sub(entry.at)).unwrap_or(0);
        Duration::from_secs(seconds).saturating_sub(self.margin)
    }

    /// Returns the date of a state that was entered this long ago.
    pub fn date(self, age: Duration) -> i64 {
        self.time.saturating_sub(i64::try_from(age.as_secs()).unwrap_or(i64::MAX))
    }
}

/// Relation of the server of an attempt to the server of the login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRelation {
    /// The same server.
    SameServer,
    /// Another server of the same product.
    SameProduct,
    /// A server of another product.
    OtherProduct,
}

/// An entry with its age.
#[derive(Clone, Copy, Debug)]
pub struct AgedEntry<'a> {
    /// The entry.
    pub entry: &'a Entry,
    /// Minimum time since the entry entered its state.
    pub age: Duration,
    /// Relation of the server of the attempt to the server of the login.
    pub relation: ServerRelation,
}

impl AgedEntry<'_> {
    fn is_under_way(&self) -> bool {
        self.entry.state == EntryState::Claimed && self.age < UNDER_WAY
    }

    /// Whether the next login at this server waits for this login.
    fn delays_the_next(&self) -> bool {
        self.relation == ServerRelation::SameServer && self.is_under_way() && self.age < QUEUE_LIMIT
    }

    /// Whether the entry counts for a login at this server. Rejections count at all servers, but rejections at another
    /// product count only within the window. Logins in flight count at all servers, because they may still be rejected.
    /// A lost answer counts only at its own server.
    fn counts(&self, window: Duration) -> bool {
        match self.relation {
            ServerRelation::SameServer => true,
            ServerRelation::SameProduct => self.entry.state == EntryState::Rejected || self.is_under_way(),
            ServerRelation::OtherProduct => {
                self.entry.state == EntryState::Rejected && self.age < window || self.is_under_way()
            }
        }
    }

    fn is_of_other_product(&self) -> bool {
        self.relation == ServerRelation::OtherProduct
    }
}

/// Decides whether `planned` is allowed after the attempts `entries` of its account. `is_shared` means that these are
/// the attempts of all replicas. Otherwise they are those of this process, and each other replica may have made as
/// many. `random` in 0..1 lengthens a pause by up to a quarter.
///
/// # Errors
/// The login has to wait for other logins in flight, or because logins have failed.
pub fn decide(
    entries: &[AgedEntry<'_>],
    is_shared: bool,
    planned: &PlannedLogin,
    random: f64,
) -> Result<(), LoginRefusal> {
    let policy = planned.policy;
    let mut counted: Vec<&AgedEntry<'_>> = entries.iter().filter(|aged| aged.counts(policy.window)).collect();
    counted.sort_by_key(|aged| aged.age);
    if counted.iter().any(|aged| aged.delays_the_next()) {
        return queued("another login of the account is under way", random);
    }
    let in_window: Vec<&&AgedEntry<'_>> = counted.iter().filter(|aged| aged.age < policy.window).collect();
    let was_rejected = in_window.iter().any(|aged| aged.entry.state == EntryState::Rejected);
    let (budget, what) = match (is_shared, was_rejected) {
        // With a `budget` of three and a `budget_alone` of one, three replicas together keep to the budget.
        (false, _) => (policy.budget_alone, "rejected or not answered"),
        (true, true) => (policy.budget, "rejected or not answered"),
        // Each unanswered attempt may have been a rejection.
        (true, false) => (budget_without_rejections(policy), "not answered"),
    };
    let in_flight = in_window.iter().filter(|aged| aged.is_under_way()).count();
    let settled = in_window.len() - in_flight;
    // Logins in flight may all be rejected, so together with this one they keep to the budget of rejections. Example
    // for a policy with a budget of 3: after three lost answers, a fourth login is allowed. After two lost answers and
    // with a third login in flight, the fourth login waits for the outcome of the third.
    let limit = if in_flight > 0 { budget.min(policy.budget) } else { budget };
    if in_window.len() >= limit && settled < budget {
        return queued("other logins of the account are under way", random);
    }
    // The youngest attempts use up the budget until the oldest of them leaves the window.
    let oldest_in_budget = in_window.get(budget.saturating_sub(1));
    let used_up = oldest_in_budget.map(|oldest| {
        let alone = if is_shared { "" } else { ", and the replicas cannot count together" };
        let why = format!("{}{alone}", too_often(what, budget, &counted, policy));
        (policy.window.saturating_sub(oldest.age), why)
    });
    match [slow_down(&counted, planned), used_up].into_iter().flatten().max_by_key(|(pause, _)| *pause) {
        Some((pause, why)) => Err(LoginRefusal { pause: lengthened(pause, random), reason: why, is_lockout: true }),
        None => Ok(()),
    }
}

/// Returns the budget of a window without rejections.
fn budget_without_rejections(policy: LoginPolicy) -> usize {
    policy.budget.saturating_add(1)
}

/// Returns the remaining pause after rejections of the attempt's Secret version or, without a version, after attempts
/// beyond the budget. `counted` is sorted by age. Attempts at another product do not cause this pause, because one
/// Secret may contain other credentials for that product.
fn slow_down(counted: &[&AgedEntry<'_>], planned: &PlannedLogin) -> Option<RequiredWait> {
    let policy = planned.policy;
    let of_product = || counted.iter().filter(|aged| !aged.is_of_other_product());
    if let Some(version) = &planned.version {
        let mut same =
            of_product().filter(|aged| aged.entry.state == EntryState::Rejected && aged.entry.is_of(version));
        let youngest = same.next()?;
        let backoff = Backoff::doubling(policy.window * 7 / 20, LONGEST);
        let pause = pause_after(backoff, same.count()).checked_sub(youngest.age)?;
        let most = match planned.was_accepted {
            // The server may accept it again. So the wait ends with the window.
            true => policy.window.checked_sub(youngest.age).filter(|rest| !rest.is_zero())?,
            false => Duration::MAX,
        };
        return Some((pause.min(most), "this version of the Secret was rejected".to_owned()));
    }
    // Credentials that were accepted before are most likely not the ones that are rejected again and again.
    if planned.was_accepted {
        return None;
    }
    let settled: Vec<&&AgedEntry<'_>> = of_product().filter(|aged| !aged.is_under_way()).collect();
    let was_rejected = settled.iter().any(|aged| aged.entry.state == EntryState::Rejected);
    let budget = if was_rejected { policy.budget } else { budget_without_rejections(policy) };
    let surplus = settled.len().checked_sub(budget)?;
    // The maximum pause is shorter if no attempt was rejected, or if the credentials may differ from the rejected ones.
    let has_hope = planned.is_new || !was_rejected;
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

/// Refuses a login that waits for other logins in flight.
fn queued(why: &str, random: f64) -> Result<(), LoginRefusal> {
    Err(LoginRefusal { pause: lengthened(RECHECK_AFTER, random), reason: why.to_owned(), is_lockout: false })
}

/// Adds jitter of up to a quarter.
fn lengthened(pause: Duration, random: f64) -> Duration {
    pause.mul_f64(1.0 + random / 4.0)
}

/// Returns the pause after a failure that follows `earlier` failures. [`decide`] adds the jitter.
fn pause_after(backoff: Backoff, earlier: usize) -> Duration {
    backoff.pause(u32::try_from(earlier).unwrap_or(u32::MAX).saturating_add(1), 0.0)
}

#[cfg(test)]
mod tests;
