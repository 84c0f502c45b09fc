//! Ends the wait of a paused login early, if the ledger does not require the wait any more: an administrator deleted
//! the failed logins, or the server accepted a login of another replica.

use std::convert::Infallible;
use std::time::Duration;

use tracing::info;

use super::{Session, next_change};

/// Interval between two reviews while a login waits. Jitter adds up to a quarter.
const REVIEW: Duration = Duration::from_secs(30);

impl Session {
    /// Ends waits that the ledger does not require any more. Sleeps while no login waits. Never returns.
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

    /// Completes when the wait of a login ends early after this call.
    pub(in super::super) fn released(&self) -> impl Future<Output = ()> + use<> {
        next_change(self.released.subscribe())
    }
}
