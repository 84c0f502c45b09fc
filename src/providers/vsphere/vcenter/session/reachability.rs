//! Asks a vCenter that is away, without a login, whether it answers again, so that it is used within seconds of its
//! return. How often connections and logins are tried has nothing to do with it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;

use super::{Session, next_change};
use crate::clients::vim;

/// The pause between the beginnings of two questions; a quarter more or less by chance.
const INTERVAL: Duration = Duration::from_secs(2);
/// How long one question may take, connecting included. A vCenter that needs longer is found by the usual tries.
const LIMIT: Duration = Duration::from_millis(1_500);
/// Questions under way to all vCenters of a process together.
pub const PROBES: usize = 16;

/// Whether one vCenter answers.
pub(super) struct Reachability {
    is_unreachable: AtomicBool,
    marked: Notify,
    /// Counts how often it has come back.
    returned: watch::Sender<u64>,
    /// Shared by all vCenters.
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
    /// Asks no more at once than these permits, which all vCenters of a process share.
    #[must_use]
    pub fn with_probes(mut self, probes: Arc<Semaphore>) -> Self {
        self.reach.probes = probes;
        self
    }

    /// vCenter may not answer: it is probed every 2 s until it answers, or [`Session::mark_reachable`] says that it does.
    pub(in super::super) fn mark_unreachable(&self) {
        self.reach.is_unreachable.store(true, Ordering::Relaxed);
        self.reach.marked.notify_one();
    }

    /// vCenter answers.
    pub(in super::super) fn mark_reachable(&self) {
        self.reach.is_unreachable.store(false, Ordering::Relaxed);
    }

    /// Completes when it has come back, from the time of the call on.
    pub(in super::super) fn returned(&self) -> impl Future<Output = ()> + use<> {
        next_change(self.reach.returned.subscribe())
    }

    /// Makes a call, and once more whenever vCenter comes back meanwhile: what was sent while it was away gets no answer.
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
            self.reach.marked.notified().await;
            let mut was_away = false;
            let mut next = Instant::now();
            loop {
                next = (next + INTERVAL.mul_f64(0.75 + fastrand::f64() / 2.0)).max(Instant::now());
                sleep_until(next).await;
                if !self.reach.is_unreachable.load(Ordering::Relaxed) {
                    break;
                }
                // Never closed. The permit is kept for the time of the question.
                let permit = self.reach.probes.acquire().await;
                let answers = matches!(timeout(LIMIT, client.probe()).await, Ok(Ok(())));
                drop(permit);
                if answers {
                    if was_away {
                        self.reach.returned.send_modify(|count| *count = count.wrapping_add(1));
                    }
                    break;
                }
                was_away = true;
            }
        }
    }
}
