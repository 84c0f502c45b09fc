//! Logins are not abandoned half-way: only the answer names the session that a login makes, and a session that nobody
//! can name stays open until vCenter's idle time is over.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// How long a login that is under way is waited for when its work is given up.
const FINISH_LIMIT: Duration = Duration::from_secs(3);

/// Counts the logins under way, over SOAP and REST.
#[derive(Default)]
pub(in super::super) struct InFlightLogins {
    under_way: watch::Sender<u32>,
}

/// A login under way, until dropped.
pub(in super::super) struct LoginInFlight<'a>(&'a InFlightLogins);

impl InFlightLogins {
    /// To be held from before a login is sent until its answer is taken in.
    pub(in super::super) fn begin(&self) -> LoginInFlight<'_> {
        self.under_way.send_modify(|count| *count = count.saturating_add(1));
        LoginInFlight(self)
    }

    /// Gives `work` up; if it is in the middle of a login, after that. Takes at most 3 s.
    pub(in super::super) async fn give_up(&self, work: impl Future) {
        let mut under_way = self.under_way.subscribe();
        let end = async {
            tokio::select! {
                biased;
                over = under_way.wait_for(|count| *count == 0) => drop(over),
                _ = work => {}
            }
        };
        // Too slow to wait for: vCenter ends the session when it was idle for long enough.
        let _ = timeout(FINISH_LIMIT, end).await;
    }
}

impl Drop for LoginInFlight<'_> {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|count| *count = count.saturating_sub(1));
    }
}
