//! What a proxy has seen.

use std::sync::Arc;

use super::Shared;

/// Requests since the start, and what is open now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyCounts {
    /// Requests that came, watches among them.
    pub requests: u64,
    /// Watch requests that came.
    pub watches: u64,
    /// Requests that the API server was asked.
    pub passed: u64,
    /// Requests that were answered here instead, watches that were told of too old a version not among them.
    pub refused: u64,
    /// Watches that were told that their version is too old.
    pub expired: u64,
    /// Connections that are open now.
    pub open_connections: u32,
    /// Watches that are open now.
    pub open_watches: u32,
    /// Requests that have no answer now because the proxy hangs.
    pub hanging: u32,
}

/// Counts something for as long as it lives.
pub(super) struct Open {
    shared: Arc<Shared>,
    which: fn(&mut ProxyCounts) -> &mut u32,
}

impl Open {
    pub(super) fn new(shared: &Arc<Shared>, which: fn(&mut ProxyCounts) -> &mut u32) -> Self {
        *which(&mut shared.state().counts) += 1;
        Self { shared: Arc::clone(shared), which }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        *(self.which)(&mut self.shared.state().counts) -= 1;
    }
}
