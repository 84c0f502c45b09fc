//! The pause after a failed accept of a server, and its log lines.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

/// Pause after a failed accept. Causes such as a lack of file descriptors do not disappear immediately.
const PAUSE: Duration = Duration::from_millis(200);

/// Delays the next accept of one listener after an error, so that the server neither ends nor spins.
pub(super) struct AcceptRetry {
    /// The listener in log lines, such as `the secure port`.
    listener: &'static str,
    is_failing: bool,
    next: Instant,
}

impl AcceptRetry {
    pub(super) fn new(listener: &'static str) -> Self {
        Self { listener, is_failing: false, next: Instant::now() }
    }

    /// Waits until the next accept may begin.
    pub(super) async fn wait(&self) {
        tokio::time::sleep_until(self.next).await;
    }

    /// Records that a connection was accepted.
    pub(super) fn record_success(&mut self) {
        if std::mem::take(&mut self.is_failing) {
            tracing::info!("{} accepts connections again", self.listener);
        }
    }

    /// Records that an accept failed. Warns about the first failure of a series.
    pub(super) fn record_failure(&mut self, error: &io::Error) {
        self.next = Instant::now() + PAUSE;
        if std::mem::replace(&mut self.is_failing, true) {
            tracing::debug!("{} cannot accept a connection: {error}", self.listener);
        } else {
            let listener = self.listener;
            tracing::warn!("{listener} cannot accept a connection: {error}; logged once until it works again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_failed_accept_delays_the_next_one() {
        let start = Instant::now();
        let mut retry = AcceptRetry::new("a listener");
        retry.wait().await;
        retry.record_success();
        retry.wait().await;
        assert_eq!(start.elapsed(), Duration::ZERO);

        let error = io::Error::from(io::ErrorKind::OutOfMemory);
        for failures in 1..=3 {
            retry.record_failure(&error);
            retry.wait().await;
            assert!(start.elapsed() >= PAUSE * failures, "{:?}", start.elapsed());
        }
        assert!(retry.is_failing);
        retry.record_success();
        assert!(!retry.is_failing);
    }
}
