//! Whether everything that vCenter knew at a moment is in the snapshot. Waits for updates are sent one after the
//! other, and one whose answer was lost looks like one with nothing to report. Only the answer to a wait that was sent
//! after that moment proves it.

use tokio::sync::watch;

/// Requests to synchronize with vCenter, by number, and which of them are fulfilled.
#[derive(Debug, Default)]
pub(super) struct Fence {
    /// The number of the last request.
    requested: watch::Sender<u64>,
    /// The number of the last request that is fulfilled. The ones before it are, too.
    synced: watch::Sender<u64>,
}

impl Fence {
    /// Requests a synchronization that begins after this call. Its number is for [`Fence::wait`].
    pub(super) fn request_sync(&self) -> u64 {
        self.requested.send_modify(|number| *number += 1);
        self.last_request()
    }

    /// The last request. A wait for updates that is sent afterwards fulfills it once its whole answer is published.
    pub(super) fn last_request(&self) -> u64 {
        *self.requested.borrow()
    }

    /// This request is fulfilled, and so are the ones before it.
    pub(super) fn synced(&self, number: u64) {
        self.synced.send_replace(number);
    }

    /// Whether this request is fulfilled.
    pub(super) fn is_synced(&self, number: u64) -> bool {
        *self.synced.borrow() >= number
    }

    /// Completes when there is a request that is not fulfilled.
    pub(super) async fn requested(&self) {
        let mut requested = self.requested.subscribe();
        // The sender is here, so this waits for nothing else.
        let _ = requested.wait_for(|number| !self.is_synced(*number)).await;
    }

    /// Completes when this request is fulfilled.
    pub(super) async fn wait(&self, number: u64) {
        let mut synced = self.synced.subscribe();
        let _ = synced.wait_for(|synced| *synced >= number).await;
    }
}
