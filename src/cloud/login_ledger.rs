//! The record of rejected and unanswered logins, which all replicas share so that their logins together do not lock an
//! account. `cloud.go` has no counterpart.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Version of a Secret. Distinguishes rejected credentials from newer credentials without disclosing them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretVersion {
    /// The Secret's UID.
    pub uid: String,
    /// The Secret's resourceVersion.
    pub resource_version: String,
}

/// Limits for failed logins at the servers of one product. Each product has one policy. Rejections of accounts with the
/// same name are added up over all products, because these accounts may be one directory account. Each product applies
/// its own window and budget to the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginPolicy {
    /// Name of the product in the names of records. Omitted if empty.
    pub scope: &'static str,
    /// The time window of the budget.
    pub window: Duration,
    /// Maximum number of attempts per window. A window without rejections allows one more attempt.
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
    /// Version of the Secret with the credentials, if they come from a Secret.
    pub version: Option<SecretVersion>,
    /// Whether the server accepted the credentials from this process and has not rejected them since. If true,
    /// rejections of other processes delay the login only within the window.
    pub was_accepted: bool,
    /// Whether this process has not tried the credentials before. New credentials may differ from rejected credentials.
    pub is_new: bool,
}

/// Permission for one login. Counts as an attempt until the outcome is recorded.
#[derive(Debug, PartialEq, Eq)]
pub struct LoginClaim {
    /// The planned login.
    pub planned: PlannedLogin,
    /// Unique id of this attempt in the shared record of logins.
    pub id: String,
    /// Minimum time between a rejection and a retry of the credentials.
    pub pause_if_rejected: Duration,
}

/// Refusal of a login, which must wait.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct LoginRefusal {
    /// Time that the login must wait, including jitter.
    pub pause: Duration,
    /// The counted attempts, for messages.
    pub reason: String,
    /// Whether failed logins block the login, because another failure could lock the account. If false, another login
    /// is in flight, and the wait ends when that login ends.
    pub is_lockout: bool,
}

/// The result of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server accepted the credentials.
    Accepted,
    /// The attempt did not reach the server, or failed for a reason other than the credentials. Not counted.
    Harmless,
    /// The server rejected the credentials.
    Rejected,
    /// It is unknown whether the server rejected the credentials.
    Unanswered,
}

/// Counter of logins. Each method returns within seconds, even if the shared record is unreachable. Only `claim` may
/// take longer, if the record is slow: it sends several requests, each with its own time limit.
#[async_trait]
pub trait LoginThrottle: Send + Sync {
    /// Registers a server (`host:port`). Rejections of this server count for accounts of the same name at all other
    /// servers, even servers with another policy.
    fn register_server(&self, policy: LoginPolicy, server: &str);

    /// Requests the permission for one login. The caller must request the permission before the login.
    async fn claim(&self, planned: &PlannedLogin) -> Result<LoginClaim, LoginRefusal>;

    /// Counts a rejection that follows no claim: the server rejected a request with credentials that it had accepted.
    async fn count_rejection(&self, planned: &PlannedLogin);

    /// Returns true if the counts of all replicas now allow an attempt that was refused before. Returns false while the
    /// counts cannot be read. If the server rejected the credentials of this process (`was_rejected`), the rejection
    /// must have been deleted.
    async fn can_retry(&self, planned: &PlannedLogin, was_rejected: bool) -> bool;

    /// Returns the command that deletes the failed logins of this account for all replicas, at this server and at all
    /// other servers of any product. Returns `None` while each process counts only its own logins.
    fn reset_command(&self, policy: LoginPolicy, server: &str, user: &str) -> Option<String>;

    /// Records the result of the login. A claim without a recorded outcome counts as unanswered.
    async fn record_outcome(&self, claim: LoginClaim, outcome: Outcome);
}
