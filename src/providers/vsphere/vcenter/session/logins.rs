//! Prevents the cancellation of logins in flight, because only the answer identifies the new session. An unidentified
//! session cannot be logged out and stays open until vCenter's idle timeout.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Maximum wait for a login in flight when its task is cancelled.
const FINISH_LIMIT: Duration = Duration::from_secs(3);

/// Counts the logins in flight, over SOAP and REST.
#[derive(Default)]
pub(in super::super) struct InFlightLogins {
    under_way: watch::Sender<u32>,
}

pub(in super::super) struct LoginInFlight<'a>(&'a InFlightLogins);

impl InFlightLogins {
    /// Counts a login. The caller must keep the guard from before the request until the answer is processed.
    pub(in super::super) fn begin(&self) -> LoginInFlight<'_> {
        self.under_way.send_modify(|count| *count = count.saturating_add(1));
        LoginInFlight(self)
    }

    /// Cancels `work` after the logins in flight have finished. Takes at most 3 s.
    pub(in super::super) async fn give_up(&self, work: impl Future) {
        let mut under_way = self.under_way.subscribe();
        let end = async {
            tokio::select! {
                biased;
                over = under_way.wait_for(|count| *count == 0) => drop(over),
                _ = work => {}
            }
        };
        // A login that takes longer is cancelled. vCenter ends the new session after the idle timeout.
        let _ = timeout(FINISH_LIMIT, end).await;
    }
}

impl Drop for LoginInFlight<'_> {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|count| *count = count.saturating_sub(1));
    }
}
