//! What a fake vCenter counts.

use std::collections::BTreeMap;
use std::time::Duration;

/// How often each operation arrived (refused calls too), and who is logged in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FakeCounts {
    /// Calls by operation, named as in [`crate::Rule`].
    pub operations: BTreeMap<String, u32>,
    /// SOAP logins that were accepted.
    pub soap_logins: u32,
    /// SOAP logins that were refused for the user or the password.
    pub soap_refusals: u32,
    /// REST logins that were accepted.
    pub rest_logins: u32,
    /// REST logins that were refused for the user or the password.
    pub rest_refusals: u32,
    /// SOAP sessions that are open now.
    pub soap_sessions: usize,
    /// REST sessions that are open now.
    pub rest_sessions: usize,
    /// The most SOAP sessions that were ever open at once.
    pub most_soap_sessions: usize,
    /// The most REST sessions that were ever open at once.
    pub most_rest_sessions: usize,
    /// `WaitForUpdatesEx` calls that are pending now.
    pub pending_waits: u32,
    /// Property collectors that hang on the open sessions.
    pub collectors: usize,
    /// Views that hang on the open sessions.
    pub views: usize,
    /// SOAP calls with the cookie of another session than that of the last login.
    pub old_cookies: u32,
    /// Bytes of the bodies of requests.
    pub bytes_received: u64,
    /// Bytes of the bodies of answers.
    pub bytes_sent: u64,
    /// How long calls were delayed by `FakeVcenter::delay_calls`, all together.
    pub delayed: Duration,
    /// How long the server itself worked on calls.
    pub busy: Duration,
}

impl FakeCounts {
    /// How often this operation arrived.
    #[must_use]
    pub fn of(&self, operation: &str) -> u32 {
        self.operations.get(operation).copied().unwrap_or(0)
    }
}
