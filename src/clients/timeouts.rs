//! The time limits of a vCenter's calls, which its SOAP and REST clients share.

use std::time::Duration;

/// Time limits of the calls to a vCenter, over SOAP and REST, including connecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Limit of ordinary calls.
    pub call: Duration,
    /// Limit of a login, which may involve a directory service.
    pub login: Duration,
    /// Limit of a logout, which must not delay a shutdown.
    pub logout: Duration,
    /// Time that `WaitForUpdatesEx` may take beyond its requested wait.
    pub wait_margin: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            call: Duration::from_secs(30),
            login: Duration::from_secs(60),
            logout: Duration::from_secs(3),
            wait_margin: Duration::from_secs(20),
        }
    }
}
