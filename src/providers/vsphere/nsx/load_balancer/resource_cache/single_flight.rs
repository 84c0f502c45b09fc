//! Runs an operation once for all calls that need it at the same time.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

/// Maximum wait for an operation of another call.
const LIMIT: Duration = Duration::from_secs(30);

/// Lock of one operation whose result all callers share.
pub struct SingleFlight {
    /// No task keeps this lock across an `await`.
    is_under_way: Mutex<bool>,
    /// Number of completed operations.
    ended: watch::Sender<u64>,
}

/// Guard of the running operation. Other calls wait until the guard is dropped.
pub struct Flight<'a>(&'a SingleFlight);

impl Default for SingleFlight {
    fn default() -> Self {
        Self { is_under_way: Mutex::default(), ended: watch::Sender::new(0) }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        *self.0.is_under_way.lock() = false;
        self.0.ended.send_modify(|ended| *ended += 1);
    }
}

impl SingleFlight {
    /// Starts the operation. If it is already running, waits for its end, but at most for [`LIMIT`], and returns
    /// `None`.
    pub async fn start_or_wait(&self) -> Option<Flight<'_>> {
        // The subscription starts before the check, so that the end of a running operation is not missed.
        let mut ended = self.ended.subscribe();
        if !std::mem::replace(&mut *self.is_under_way.lock(), true) {
            return Some(Flight(self));
        }
        drop(timeout(LIMIT, ended.changed()).await);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_others_wait_for_the_one() {
        let single = SingleFlight::default();
        let first = single.start_or_wait().await.unwrap();
        let waits = timeout(Duration::from_secs(5), single.start_or_wait()).await;
        assert!(waits.is_err());
        let (other, ()) = tokio::join!(single.start_or_wait(), async { drop(first) });
        assert!(other.is_none(), "the first has done it");
        let second = single.start_or_wait().await.unwrap();
        assert!(single.start_or_wait().await.is_none(), "no wait is endless");
        drop(second);
        assert!(single.start_or_wait().await.is_some());
    }
}
