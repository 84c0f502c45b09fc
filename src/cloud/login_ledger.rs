//! The record of rejected and unanswered logins that all replicas share, so that together they do not lock an account.
//! `cloud.go` has no counterpart.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Version of a Secret. Distinguishes rejected credentials from newer ones without disclosing them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretVersion {
    /// The Secret's UID.
    pub uid: String,
    /// The Secret's resourceVersion.
    pub resource_version: String,
}

/// How many failed logins the accounts of one product allow; each product has one policy. Rejections of accounts with
/// the same name are added up over all products, since they may be one directory account; each product applies its own
/// window and budget to the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginPolicy {
    /// Names the product in the names of records; left out if empty.
    pub scope: &'static str,
    /// The time window of the budget.
    pub window: Duration,
    /// Maximum number of attempts per window; one more if the server accepted the credentials before, or rejected none.
    pub budget: usize,
    /// Maximum number of attempts per window of one process while the replicas cannot share their counts.
    pub budget_alone: usize,
}

/// A planned login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedLogin {
    /// The policy of the server's product.
    pub policy: LoginPolicy,
    /// `host:port` of the server.
    pub server: String,
    /// The account. Accounts of the same name on several servers count as one.
    pub user: String,
    /// The Secret that the credentials come from, if any.
    pub version: Option<SecretVersion>,
    /// Whether the server accepted the credentials from this process, and has not rejected them since: the login will
    /// most likely succeed, and does not wait for the rejections of others.
    pub was_accepted: bool,
    /// Whether this process has not tried the credentials before: they may differ from the rejected ones.
    pub is_new: bool,
}

/// The permission for one login. It counts as an attempt until its outcome is recorded.
#[derive(Debug, PartialEq, Eq)]
pub struct LoginClaim {
    /// The planned login.
    pub attempt: PlannedLogin,
    /// The unique id under which the shared record of logins counts this attempt.
    pub id: String,
    /// Minimum time before the credentials may be retried after a rejection.
    pub pause_if_rejected: Duration,
}

/// The login must wait.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct LoginRefusal {
    /// How long the login has to wait, including jitter.
    pub pause: Duration,
    /// The counted attempts, for messages.
    pub reason: String,
    /// Whether failed logins block the login, because one more could lock the account. Otherwise another login is in
    /// flight, and the wait ends when that login does.
    pub is_lockout: bool,
}

/// The result of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server accepted the credentials.
    Accepted,
    /// The attempt did not reach the server, or failed for another reason than the credentials: not counted.
    Harmless,
    /// The server rejected the credentials.
    Rejected,
    /// It is unknown whether the server rejected the credentials.
    Unanswered,
}

/// Counts logins. Every method returns within seconds, even if the shared record is unreachable.
#[async_trait]
pub trait LoginThrottle: Send + Sync {
    /// Registers a server (`host:port`): its rejections count for accounts of the same name at all other servers, also
    /// those with another policy.
    fn know(&self, policy: LoginPolicy, server: &str);

    /// Requests the permission for one login, before it is made.
    async fn claim(&self, attempt: &PlannedLogin) -> Result<LoginClaim, LoginRefusal>;

    /// Whether a refused attempt may now be made, given the counts of all replicas; false while these cannot be read.
    /// `was_rejected`: the server rejected the credentials of this process. Then the rejection must have been deleted
    /// since, or another replica must have logged in with the credentials.
    async fn can_retry(&self, attempt: &PlannedLogin, was_rejected: bool) -> bool;

    /// The command that makes all replicas forget the failed logins of this account, at this server and, because they
    /// count here as well, at all other servers of any product. `None` while each process counts only its own.
    fn reset_command(&self, policy: LoginPolicy, server: &str, user: &str) -> Option<String>;

    /// Reports the result of the login. A claim whose outcome is never recorded counts as unanswered.
    async fn record_outcome(&self, claim: LoginClaim, outcome: Outcome);
}
