//! The record of logins that were rejected or never answered, which all replicas share, so that together they do not
//! lock an account. Ours; `cloud.go` has no counterpart.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A Secret at one moment: tells a pair that was rejected from a newer one, and tells nothing of the pair itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretVersion {
    /// The Secret's UID.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
}

/// How many failed logins the accounts of one product allow. Each product has one policy. Rejections of accounts of the same
/// name are added up over all products, since the name may be that of one account of a directory; each product applies its
/// own window and budget to the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginPolicy {
    /// Tells the product from others in the names of records; an empty one is not part of them.
    pub scope: &'static str,
    /// The time in which the budget counts.
    pub window: Duration,
    /// How many attempts may count in the window; one more where the server accepted the pair before, or has rejected none.
    pub budget: usize,
    /// How many attempts of one process may count in the window while the replicas cannot count together.
    pub budget_alone: usize,
}

/// A login that is about to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// That of the server's product.
    pub policy: LoginPolicy,
    /// `host:port` of the server.
    pub server: String,
    /// The account. Accounts of the same name on several servers count as one.
    pub user: String,
    /// The Secret the pair is from, if it is from one.
    pub version: Option<SecretVersion>,
    /// This process has seen the pair accepted, and not refused since: the login is most likely accepted again, and does
    /// not wait for what others were refused.
    pub is_known: bool,
    /// This process has not tried the pair before: it may be another one than what was rejected.
    pub is_new: bool,
}

/// The permission to make one login. It counts until it is settled.
#[derive(Debug, PartialEq, Eq)]
pub struct LoginAttempt {
    /// As in the attempt.
    pub attempt: Attempt,
    /// Names it in the record.
    pub id: String,
    /// How long the pair must not be tried again if it is rejected, at least.
    pub pause_if_rejected: Duration,
}

/// The login must wait.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct LoginRefusal {
    /// For how long, jitter included.
    pub pause: Duration,
    /// What was counted.
    pub why: String,
    /// Whether failed logins are in the way, and one more could lock the account. Otherwise another login is under way,
    /// and the wait is over with it.
    pub is_lockout: bool,
}

/// How a login ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server accepted the pair.
    Accepted,
    /// The attempt never reached the server, or failed without a word on the pair: nothing to count.
    Harmless,
    /// The server refused the pair.
    Rejected,
    /// Nobody knows whether the server refused the pair.
    Unanswered,
}

/// Counts logins. Every method returns within seconds, also when what it counts in is out of reach.
#[async_trait]
pub trait LoginThrottle: Send + Sync {
    /// There is a server of this name (`host:port`): what is rejected there counts for accounts of the same name at all other
    /// servers, also those with another policy.
    fn know(&self, policy: LoginPolicy, server: &str);

    /// Asks for the permission to make one login, before it is made.
    async fn claim(&self, attempt: &Attempt) -> Result<LoginAttempt, LoginRefusal>;

    /// Whether an attempt that was refused may be made now after all, by what all replicas have counted; not, while that
    /// is out of reach. `was_rejected` says that it waits because the server rejected this process: then the rejection must
    /// have been deleted since, or the pair been accepted from another replica.
    async fn may_retry(&self, attempt: &Attempt, was_rejected: bool) -> bool;

    /// The command by which an administrator makes all replicas forget the failed logins of this account, at this server and
    /// all others of any product, where they count as well; none while each process counts its own.
    fn reset_command(&self, policy: LoginPolicy, server: &str, user: &str) -> Option<String>;

    /// Tells how the login ended. A claim that is never settled counts as unanswered.
    async fn settle(&self, claim: LoginAttempt, outcome: Outcome);
}
