//! Counts of a fake vCenter.

use std::collections::BTreeMap;
use std::time::Duration;

/// Counts of operations, including rejected calls, and of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FakeCounts {
    /// Calls by operation, named as in [`crate::Rule`].
    pub operations: BTreeMap<String, u32>,
    /// Accepted SOAP logins.
    pub soap_logins: u32,
    /// SOAP logins that were rejected because of the user or the password.
    pub soap_refusals: u32,
    /// Accepted REST logins.
    pub rest_logins: u32,
    /// REST logins that were rejected because of the user or the password.
    pub rest_refusals: u32,
    /// SOAP sessions that are currently open.
    pub soap_sessions: usize,
    /// REST sessions that are currently open.
    pub rest_sessions: usize,
    /// Highest number of SOAP sessions that were open at the same time.
    pub most_soap_sessions: usize,
    /// Highest number of REST sessions that were open at the same time.
    pub most_rest_sessions: usize,
    /// `WaitForUpdatesEx` calls that are currently pending.
    pub pending_waits: u32,
    /// Property collectors of the open sessions.
    pub collectors: usize,
    /// Views of the open sessions.
    pub views: usize,
    /// SOAP calls with a cookie other than that of the last login, from a second after the first call with that one.
    pub old_cookies: u32,
    /// Bytes of request bodies.
    pub bytes_received: u64,
    /// Bytes of answer bodies.
    pub bytes_sent: u64,
    /// Total delay of calls by `FakeVcenter::delay_calls`.
    pub delayed: Duration,
    /// Total time that the server itself worked on calls.
    pub busy: Duration,
}

impl FakeCounts {
    /// Returns the number of calls of this operation.
    #[must_use]
    pub fn of(&self, operation: &str) -> u32 {
        self.operations.get(operation).copied().unwrap_or(0)
    }
}
