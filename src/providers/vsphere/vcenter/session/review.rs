//! Ends a pause of logins early when the ledger no longer asks for it: an administrator may have deleted what it counts,
//! and another replica may have been accepted.

use std::convert::Infallible;
use std::time::Duration;

use tracing::info;

use super::{Session, next_change};

/// The pause between two reviews while a login waits; up to a quarter is added by chance.
const REVIEW: Duration = Duration::from_secs(30);

impl Session {
    /// Ends waits that the ledger does not ask for any more. Never ends itself, and sleeps while nothing waits.
    pub(in super::super) async fn review(&self) -> Infallible {
        loop {
            tokio::time::sleep(REVIEW.mul_f64(1.0 + fastrand::f64() / 4.0)).await;
            let paused = self.state.lock().pairs.paused(self.began.elapsed());
            if paused.is_empty() {
                self.pauses.notified().await;
                continue;
            }
            for pause in paused {
                let attempt = self.state.lock().pairs.attempt(&pause.credential, &self.names.server);
                if self.ledger.may_retry(&attempt, pause.is_of_rejection).await {
                    info!(
                        vcenter = self.names.server,
                        "a paused login is tried again: the failed logins were deleted, or another replica logged in"
                    );
                    self.state.lock().pairs.release(&pause.credential, pause.interface);
                    self.released.send_modify(|count| *count = count.wrapping_add(1));
                }
            }
        }
    }

    /// Completes when a login that waits may be made after all, from the time of the call on.
    pub(in super::super) fn released(&self) -> impl Future<Output = ()> + use<> {
        next_change(self.released.subscribe())
    }
}
