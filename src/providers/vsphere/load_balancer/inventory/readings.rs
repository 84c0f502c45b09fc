//! When everything is read, and what follows from it.

use super::*;
use crate::base::error_chain::chain;
use crate::providers::vsphere::load_balancer::backend::{Backend, Scope};
use futures::future::OptionFuture;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;
use tracing::info;

/// At most one reading begins in this time.
const BETWEEN: Duration = Duration::from_secs(10);
/// After failures in a row the pause grows up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// After this time everything is read again.
const AGAIN: Duration = Duration::from_secs(30 * 60);

impl State {
    /// When the next reading begins; none before the first one is asked for.
    fn next(&self, now: Instant) -> Option<Instant> {
        let (failures, said) = self.failure.as_ref().map_or((0, None), |failure| (failure.in_a_row, failure.after));
        let pause = BETWEEN.saturating_mul(1 << failures.saturating_sub(1).min(8)).min(LONGEST_PAUSE);
        let earliest = self.attempted.map_or(now, |attempted| attempted + pause.max(said.unwrap_or_default()));
        match self.is_asked {
            true => Some(earliest),
            false => self.begun.map(|begun| (begun + AGAIN).max(earliest)),
        }
    }
}

impl Inventory {
    /// Reads everything whenever it is time. Ends with `stop`.
    pub async fn run(&self, backend: &dyn Backend, layout: &Layout, scope: &Scope, stop: &CancellationToken) {
        loop {
            let (next, permit) = {
                let state = self.state.lock();
                (state.next(Instant::now()), state.permit.clone())
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = ended(permit.as_ref()) => self.state.lock().reset(None),
                () = self.wake.notified() => {}
                Some(()) = OptionFuture::from(next.map(sleep_until)) => tokio::select! {
                    () = stop.cancelled() => return,
                    () = ended(permit.as_ref()) => self.state.lock().reset(None),
                    () = self.read(backend, layout, scope) => {}
                },
            }
        }
    }

    async fn read(&self, backend: &dyn Backend, layout: &Layout, scope: &Scope) {
        let (epoch, began) = self.begin_reading();
        let mut contents = Contents::default();
        let read = self.read_all(backend, layout, scope, &mut contents).await;
        self.end_reading(epoch, began, read.map(|names| (contents, names)));
    }

    async fn read_all(
        &self,
        backend: &dyn Backend,
        layout: &Layout,
        scope: &Scope,
        contents: &mut Contents,
    ) -> Result<Names, Error> {
        let mut each = |kind, object| contents.add(kind, &object, layout);
        let names = backend.read(scope, &mut each).await?;
        let mut pools = self.state.lock().contents.address_pools();
        pools.extend(contents.address_pools());
        pools.extend(scope.pools.iter().cloned());
        pools.extend(names.pools.values().flatten().map(|id| id.as_str().into()));
        for pool in &pools {
            let mut each = |kind, object| contents.add(kind, &object, layout);
            backend.read_allocations(pool, &mut each).await?;
        }
        Ok(names)
    }

    fn begin_reading(&self) -> (u64, Instant) {
        let (mut state, now) = (self.state.lock(), Instant::now());
        state.attempted = Some(now);
        state.is_asked = false;
        state.touched = Some(BTreeSet::new());
        (state.epoch, now)
    }

    fn end_reading(&self, epoch: u64, began: Instant, read: Result<(Contents, Names), Error>) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        // The lead has ended meanwhile.
        if state.epoch != epoch {
            return;
        }
        let touched = state.touched.take().unwrap_or_default();
        let (contents, names) = match read {
            Ok(read) => read,
            Err(error) => {
                let in_a_row = state.failure.as_ref().map_or(0, |failure| failure.in_a_row) + 1;
                let (reason, message) = (error.reason(), chain(&error));
                if state.failure.as_ref().is_none_or(|failure| failure.reason != reason) {
                    warn!(%reason, "the load balancers in NSX cannot be listed: {message}");
                }
                state.failure = Some(Failure { reason, message, after: error.retry_after(), in_a_row });
                // Those that wait since then have the failure already, and ask again by themselves.
                if in_a_row == 1 {
                    self.announce(&std::mem::take(&mut state.waiting));
                }
                return;
            }
        };
        let before = Before { contents: &state.contents, touched: &touched, missed: &state.missed };
        let Merged { contents, missed, changed } = merge(contents, before);
        let is_first = state.readings == 0;
        if state.failure.is_some() {
            info!("the load balancers in NSX are listed again");
        }
        (state.contents, state.names, state.failure) = (contents, names, None);
        state.readings += 1;
        state.begun = Some(began);
        state.is_asked |= !missed.is_empty();
        state.missed = missed;
        self.announce(&std::mem::take(&mut state.waiting));
        if !is_first {
            self.announce(&changed);
        }
        drop(guard);
        self.completed.send_modify(|completed| *completed += 1);
    }
}

async fn ended(permit: Option<&WritePermit>) {
    match permit {
        Some(permit) => permit.ended().await,
        None => std::future::pending().await,
    }
}
