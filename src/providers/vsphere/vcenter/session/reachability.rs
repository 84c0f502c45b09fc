//! Probes an unreachable vCenter without a login, so that the vCenter is used again within seconds after it answers.
//! The probes are independent of the backoff of connections and logins.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;

use super::{Session, next_change};
use crate::clients::vim;

/// Average interval between the starts of two probes. The jitter is at most a quarter.
const INTERVAL: Duration = Duration::from_secs(2);
/// Time limit for one probe with its connection. The usual connection attempts detect slower vCenters.
const LIMIT: Duration = Duration::from_millis(1_500);
/// Maximum number of concurrent probes to all vCenters of a process.
pub const PROBES: usize = 16;

pub(super) struct Reachability {
    is_unreachable: AtomicBool,
    marked: Notify,
    /// Counts how often the vCenter became reachable again.
    returned: watch::Sender<u64>,
    /// Permits for probes, shared by all vCenters.
    probes: Arc<Semaphore>,
}

impl Default for Reachability {
    fn default() -> Self {
        Self {
            is_unreachable: AtomicBool::new(false),
            marked: Notify::new(),
            returned: watch::Sender::default(),
            probes: Arc::new(Semaphore::new(PROBES)),
        }
    }
}

impl Session {
    /// Limits concurrent probes by these permits, which all vCenters of a process share.
    #[must_use]
    pub fn with_probes(mut self, probes: Arc<Semaphore>) -> Self {
        self.reachability.probes = probes;
        self
    }

    /// Starts probes every 2 s, until vCenter answers or [`Session::mark_reachable`] is called.
    pub(in super::super) fn mark_unreachable(&self) {
        self.reachability.is_unreachable.store(true, Ordering::Relaxed);
        self.reachability.marked.notify_one();
    }

    pub(in super::super) fn mark_reachable(&self) {
        self.reachability.is_unreachable.store(false, Ordering::Relaxed);
    }

    /// Completes when vCenter becomes reachable again after this call.
    pub(in super::super) fn returned(&self) -> impl Future<Output = ()> + use<> {
        next_change(self.reachability.returned.subscribe())
    }

    /// Makes a call. Repeats the call if vCenter becomes reachable again before the answer, because the
    /// request may be lost.
    pub(in super::super) async fn persist<F: Future>(&self, call: impl Fn() -> F) -> F::Output {
        loop {
            let returned = self.returned();
            tokio::select! {
                biased;
                answer = call() => return answer,
                () = returned => debug!(vcenter = self.server, "vCenter answers again; the call is repeated"),
            }
        }
    }

    /// Probes while the vCenter is marked unreachable. Never returns.
    pub(in super::super) async fn probe(&self) -> Infallible {
        let limits = vim::Timeouts { call: LIMIT, ..vim::Timeouts::default() };
        let client = vim::Client::with_timeouts(self.http.clone(), limits);
        loop {
            self.reachability.marked.notified().await;
            let mut was_away = false;
            let mut next = Instant::now();
            loop {
                next = (next + INTERVAL.mul_f64(0.75 + fastrand::f64() / 2.0)).max(Instant::now());
                sleep_until(next).await;
                if !self.reachability.is_unreachable.load(Ordering::Relaxed) {
                    break;
                }
                // The semaphore is never closed. The permit is kept during the probe.
                let permit = self.reachability.probes.acquire().await;
                let answers = matches!(timeout(LIMIT, client.probe()).await, Ok(Ok(())));
                drop(permit);
                if answers {
                    if was_away {
                        self.reachability.returned.send_modify(|count| *count = count.wrapping_add(1));
                    }
                    break;
                }
                was_away = true;
            }
        }
    }
}
