//! Waits until the state of one vCenter is as new as a given moment, such as the start of leadership.
//!
//! The wait has two steps. First, the snapshot contains all changes in vCenter before that moment. Second, the state
//! derived from the snapshots includes this snapshot. `WaitForUpdatesEx` calls are sent one after the other, and a call
//! whose answer was lost looks like a call without changes. Only the answer to a call sent after that moment proves the
//! first step.

use tokio::sync::watch;

/// Counters of requested and completed synchronizations with vCenter, and of applied snapshots.
#[derive(Debug, Default)]
pub(super) struct Fence {
    requested: watch::Sender<u64>,
    /// Number of the last completed request. All earlier requests are also completed.
    synced: watch::Sender<u64>,
    /// Number of the last applied snapshot. All earlier snapshots are also applied.
    applied: watch::Sender<u64>,
}

impl Fence {
    /// Requests a synchronization that begins after this call. Returns its number for [`Fence::wait`].
    pub(super) fn request_sync(&self) -> u64 {
        self.requested.send_modify(|number| *number += 1);
        self.last_request()
    }

    /// Returns the number of the last request. A wait for updates that is sent after this call completes the request
    /// when its whole answer is published.
    pub(super) fn last_request(&self) -> u64 {
        *self.requested.borrow()
    }

    pub(super) fn synced(&self, number: u64) {
        self.synced.send_replace(number);
    }

    pub(super) fn is_synced(&self, number: u64) -> bool {
        *self.synced.borrow() >= number
    }

    /// Waits for a request that is not completed yet.
    pub(super) async fn requested(&self) {
        let mut requested = self.requested.subscribe();
        // Cannot fail, because `self` owns the sender.
        let _ = requested.wait_for(|number| !self.is_synced(*number)).await;
    }

    pub(super) async fn wait(&self, number: u64) {
        let mut synced = self.synced.subscribe();
        let _ = synced.wait_for(|synced| *synced >= number).await;
    }

    pub(super) fn applied(&self, snapshot: u64) {
        self.applied.send_replace(snapshot);
    }

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
