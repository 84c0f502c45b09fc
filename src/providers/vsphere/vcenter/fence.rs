//! Waits until the answers about one vCenter are as new as a given moment, such as the start of leadership.
//!
//! Two steps: everything that vCenter knew at that moment is in the snapshot, and the snapshot is applied to what the
//! answers are read from. Waits for updates are sent one after the other, and one whose answer was lost looks like one
//! with nothing to report. Only the answer to a wait that was sent after that moment proves the first step.

use tokio::sync::watch;

/// Requests to synchronize with vCenter, by number, and which of them are fulfilled; snapshots, by number, and which of
/// them are applied.
#[derive(Debug, Default)]
pub(super) struct Fence {
    /// The number of the last request.
    requested: watch::Sender<u64>,
    /// The number of the last request that is fulfilled. The ones before it are, too.
    synced: watch::Sender<u64>,
    /// The number of the last snapshot that is applied. The ones before it are, too.
    applied: watch::Sender<u64>,
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

    /// This snapshot is applied, and so are the ones before it.
    pub(super) fn applied(&self, snapshot: u64) {
        self.applied.send_replace(snapshot);
    }

    /// Completes when this snapshot, or a later one, is applied.
    pub(super) async fn wait_applied(&self, snapshot: u64) {
        let mut applied = self.applied.subscribe();
        let _ = applied.wait_for(|applied| *applied >= snapshot).await;
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Poll;

    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn a_request_is_waited_for_until_it_or_a_later_one_is_fulfilled() {
        let fence = Fence::default();
        let requests = [fence.request_sync(), fence.request_sync(), fence.request_sync()];
        let mut waiting = pin!(fence.wait(requests[1]));
        assert_eq!(poll!(&mut waiting), Poll::Pending);
        fence.synced(requests[0]);
        assert_eq!((poll!(&mut waiting), fence.is_synced(requests[1])), (Poll::Pending, false), "an earlier request");
        fence.synced(requests[2]);
        assert_eq!((poll!(&mut waiting), fence.is_synced(requests[1])), (Poll::Ready(()), true));
    }

    #[tokio::test]
    async fn a_snapshot_is_waited_for_until_it_or_a_later_one_is_applied() {
        let fence = Fence::default();
        let mut waiting = pin!(fence.wait_applied(3));
        assert_eq!(poll!(&mut waiting), Poll::Pending);
        for (snapshot, expected) in [(2, Poll::Pending), (4, Poll::Ready(()))] {
            fence.applied(snapshot);
            assert_eq!(poll!(&mut waiting), expected, "{snapshot}");
        }
    }
}
