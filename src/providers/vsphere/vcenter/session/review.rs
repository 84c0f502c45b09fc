//! Ends the wait of a paused login early, when the ledger no longer requires it: an administrator deleted the failed
//! logins, or another replica's login was accepted.

use std::convert::Infallible;
use std::time::Duration;

use tracing::info;

use super::{Session, next_change};

/// Interval of reviews while a login waits; jitter adds up to a quarter.
const REVIEW: Duration = Duration::from_secs(30);

impl Session {
    /// Ends waits that the ledger no longer requires. Never ends itself, and sleeps while no login waits.
    pub(in super::super) async fn review(&self) -> Infallible {
        loop {
            tokio::time::sleep(REVIEW.mul_f64(1.0 + fastrand::f64() / 4.0)).await;
            let paused = self.state.lock().schedule.paused(self.began.elapsed());
            if paused.is_empty() {
                self.pauses.notified().await;
                continue;
            }
            for pause in paused {
                let attempt = self.state.lock().schedule.attempt(&pause.credential, &self.names.server);
                if self.ledger.can_retry(&attempt, pause.is_of_rejection).await {
                    info!(
                        vcenter = self.names.server,
                        "a paused login is tried again: the failed logins were deleted, or another replica logged in"
                    );
                    self.state.lock().schedule.release(&pause.credential, pause.interface);
                    self.released.send_modify(|count| *count = count.wrapping_add(1));
                }
            }
        }
    }

    /// Completes when the wait of a login ends early, after the time of the call.
    pub(in super::super) fn released(&self) -> impl Future<Output = ()> + use<> {
        next_change(self.released.subscribe())
    }
}
