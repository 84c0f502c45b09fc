//! A window of time in which a request may be sent. A process or host that was suspended sends nothing after the window.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::call::{CallError, limited};

/// A window that began with another request, whose answer permits the request in the window.
#[derive(Clone, Copy, Debug)]
pub struct RequestWindow {
    began: Instant,
    began_by_wall_clock: SystemTime,
    length: Duration,
}

impl RequestWindow {
    /// Opens a window of this length. The caller sends the first request afterwards.
    pub fn open(length: Duration) -> Self {
        Self { began: Instant::now(), began_by_wall_clock: SystemTime::now(), length }
    }

    /// Runs a call, and drops it at the end of the window. After the end, the call is not polled, so that it sends
    /// nothing. `what` is as in [`limited`].
    ///
    /// # Errors
    /// The call fails, or has no answer within the window. A write may have happened nevertheless.
    pub async fn limited<T>(&self, what: &str, call: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
        let left = self.length.saturating_sub(self.began.elapsed());
        let mut call = std::pin::pin!(call);
        // Any poll can send the request, and the timer lags behind after the process was suspended.
        let checked = poll_fn(|context| match self.is_over() {
            true => Poll::Pending,
            false => call.as_mut().poll(context),
        });
        limited(what, left, checked).await
    }

    /// Whether the window is over by either clock. The monotonic clock stops while the host is suspended.
    fn is_over(&self) -> bool {
        let by_wall_clock = SystemTime::now().duration_since(self.began_by_wall_clock).unwrap_or_default();
        self.began.elapsed() >= self.length || by_wall_clock >= self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const LENGTH: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_call_in_the_window_is_made_and_dropped_at_its_end() {
        let window = RequestWindow::open(LENGTH);
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(window.limited("delete a", async { Ok(7) }).await.unwrap(), 7);
        let began = Instant::now();
        let silent = window.limited("delete a", std::future::pending::<kube::Result<()>>()).await.unwrap_err();
        assert!(matches!(silent, CallError::TimedOut(..)), "{silent}");
        assert_eq!(began.elapsed(), Duration::from_secs(6));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_sent_after_the_window_by_either_clock() {
        let late = RequestWindow::open(LENGTH);
        tokio::time::advance(LENGTH).await;
        let resumed = RequestWindow { began_by_wall_clock: SystemTime::now() - LENGTH, ..RequestWindow::open(LENGTH) };
        for window in [late, resumed] {
            let is_sent = Cell::new(false);
            let call = async {
                is_sent.set(true);
                Ok(())
            };
            window.limited("delete a", call).await.unwrap_err();
            assert!(!is_sent.get());
        }
    }
}
