//! Counts of a proxy.

use std::sync::Arc;

use super::Shared;

/// Requests since the start, and current open connections and watches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyCounts {
    /// Received requests, including watches.
    pub requests: u64,
    /// Received watch requests.
    pub watches: u64,
    /// Requests sent to the API server.
    pub passed: u64,
    /// Requests that the proxy answered itself, except for watches with a version that is too old.
    pub refused: u64,
    /// Watches that were rejected because their version is too old.
    pub expired: u64,
    /// Connections that are currently open.
    pub open_connections: u32,
    /// Watches that are currently open.
    pub open_watches: u32,
    /// Requests that currently get no answer because the proxy hangs.
    pub hanging: u32,
}

/// Keeps a count increased for as long as it lives.
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
