//! Probes an unreachable vCenter without a login, so that it is used again within seconds once it answers. The backoff
//! of connections and logins is independent of the probes.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;

use super::{Session, next_change};
use crate::clients::vim;

/// Interval between the starts of two probes; jitter of up to a quarter.
const INTERVAL: Duration = Duration::from_secs(2);
/// Limit for one probe, including the connection. If a vCenter answers more slowly, the usual connection attempts
/// notice its return.
const LIMIT: Duration = Duration::from_millis(1_500);
/// Maximum number of concurrent probes to all vCenters of a process.
pub const PROBES: usize = 16;

pub(super) struct Reachability {
    is_unreachable: AtomicBool,
    marked: Notify,
    /// Counts how often the vCenter came back.
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

    /// Stops the probes.
    pub(in super::super) fn mark_reachable(&self) {
        self.reachability.is_unreachable.store(false, Ordering::Relaxed);
    }

    /// Completes when vCenter comes back after the time of the call.
    pub(in super::super) fn returned(&self) -> impl Future<Output = ()> + use<> {
        next_change(self.reachability.returned.subscribe())
    }

    /// Makes a call, and repeats it whenever vCenter comes back meanwhile: a request sent during the outage gets no
    /// answer.
    pub(in super::super) async fn persist<F: Future>(&self, call: impl Fn() -> F) -> F::Output {
        loop {
            let returned = self.returned();
            tokio::select! {
                biased;
                answer = call() => return answer,
                () = returned => debug!(vcenter = self.names.server, "vCenter answers again; the call is repeated"),
            }
        }
    }

    /// Probes while the vCenter is marked unreachable. Never ends itself.
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
                // The semaphore is never closed. The permit is held during the probe.
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
