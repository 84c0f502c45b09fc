//! Follows a subscription: one wait for updates after the other, until the session is of no use any more.

use std::pin::pin;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info};

use super::{CLEAR_LIMIT, Subscription};
use crate::base::backoff::Failures;
use crate::base::error_chain::chain;
use crate::clients::vim::{self, UpdateSet};
use crate::providers::vsphere::login::retry::PASSING;
use crate::providers::vsphere::vcenter::mirror::{Mirror, TouchedObjects};
use crate::providers::vsphere::vcenter::session::{Cause, ConnectionFailure, Pause};
use crate::providers::vsphere::vcenter::snapshot::Trouble;

/// How long one `WaitForUpdatesEx` stays outstanding. Proxies cut idle connections at 60 s and more; and this bounds for
/// how long a wait that was lost on its way goes unnoticed, with the margin that the client gives an answer.
const WAIT: Duration = Duration::from_secs(20);
/// The wait for the first answer: with nothing to report a server may stay silent for the whole time.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// First answers without anything that are not believed while there are members. A server may answer early; one whose
/// members may all not be read never tells anything.
const EMPTY_ANSWERS: u32 = 3;
/// Objects per answer; bounds what one answer costs in memory.
const PAGE: u32 = 100;
/// Pause after an answer with changes, in which the server gathers more. It bounds the calls of a migration storm.
const COALESCE: Duration = Duration::from_millis(100);
/// How long a wait that is cancelled may take to end.
const CANCEL_LIMIT: Duration = Duration::from_millis(1_500);
/// The pause before it is cancelled once more, doubled from time to time: a cancellation may overtake the wait.
const CANCEL_AGAIN: Duration = Duration::from_millis(100);
/// Failures in a row after which the wait is not repeated on the same session.
const PATIENCE: u32 = 3;

/// How far a subscription was followed.
#[derive(Default)]
struct FollowProgress {
    /// The version of the last answer; empty before the first one.
    version: String,
    /// Whether there was a whole answer.
    is_complete: bool,
    /// Whether the last answer goes on with the next wait.
    is_truncated: bool,
    /// The first answer, as far as it came.
    first: Mirror,
    /// A later answer, as far as it came.
    pages: Vec<UpdateSet>,
    /// Failures since the last answer.
    failures: u32,
    /// First answers without anything.
    empty_answers: u32,
    /// The last request to synchronize from before the wait.
    request: u64,
}

impl FollowProgress {
    /// Whether the wait may be sent again on the same subscription: the server then reports everything since the last
    /// whole answer.
    fn may_repeat(&self, error: &vim::Error) -> bool {
        error.is_transient() && !self.is_truncated && self.is_complete && self.failures < PATIENCE
    }

    fn add(&mut self, set: UpdateSet) {
        self.version.clone_from(&set.version);
        self.is_truncated = set.truncated;
        if self.is_complete {
            self.pages.push(set);
        } else {
            self.first.apply(&[set]);
        }
    }
}

impl Subscription<'_> {
    /// Waits for updates and publishes them, until the session is of no use any more. `retry` is reset with each answer.
    pub(in super::super) async fn follow(&self, retry: &mut Failures) -> ConnectionFailure {
        let mut progress = FollowProgress::default();
        loop {
            let answer = match self.next_answer(&mut progress).await {
                None => continue,
                Some(Ok(answer)) => answer,
                Some(Err(error)) if progress.may_repeat(&error) => {
                    progress.failures += 1;
                    self.pause(progress.failures, &error).await;
                    continue;
                }
                Some(Err(error)) => return self.failure(error.into()),
            };
            progress.failures = 0;
            match answer {
                Some(set) => {
                    self.publisher.with(|state| state.reported = Some(Instant::now()));
                    progress.add(set);
                }
                None if progress.is_truncated => {
                    return self.failure(Cause::Other("the rest of a truncated answer is missing".to_owned()));
                }
                None => {}
            }
            if progress.is_truncated {
                continue;
            }
            // Half an answer may hold a machine without its ancestors; nobody sees it before it is whole.
            if self.take_in(&mut progress) {
                retry.reset();
                self.mark_live();
                self.fence.synced(progress.request);
            }
            sleep(COALESCE).await;
        }
    }

    fn failure(&self, source: Cause) -> ConnectionFailure {
        let during = format!("waiting for updates of vCenter {}", self.session.names().server);
        ConnectionFailure { during, source, pause: Pause::Backoff }
    }

    /// Sends one wait. None where it was ended, so that another one is sent.
    async fn next_answer(&self, progress: &mut FollowProgress) -> Option<Result<Option<UpdateSet>, vim::Error>> {
        if !progress.is_truncated {
            // Further pages tell of the same moment.
            progress.request = self.fence.last_request();
        }
        let wait = match progress.is_complete && progress.failures == 0 {
            true if self.fence.is_synced(progress.request) => WAIT,
            true => Duration::ZERO,
            // After a failure the question is whether vCenter answers at all, also where nothing changes for hours.
            false => FIRST_WAIT,
        };
        let may_be_ended = wait == WAIT && !progress.is_truncated;
        let returned = self.session.returned();
        tokio::select! {
            biased;
            answer = self.wait(&progress.version, wait, may_be_ended) => answer,
            // What was asked while vCenter was away gets no answer.
            () = returned, if wait == FIRST_WAIT && !progress.is_truncated => {
                self.cancel().await;
                None
            }
        }
    }

    /// Publishes a whole answer. Returns false for one that is not to be believed yet.
    fn take_in(&self, progress: &mut FollowProgress) -> bool {
        if progress.is_complete {
            let touched = self.publisher.apply(&std::mem::take(&mut progress.pages));
            if touched != TouchedObjects::default() {
                let (vms, left) = (touched.vms.len(), touched.left.len());
                debug!(vcenter = self.session.names().server, vms, left, "the inventory changed");
            }
            return true;
        }
        let has_members = self.publisher.with(|state| !state.members.is_empty());
        if progress.version.is_empty() && has_members && progress.empty_answers < EMPTY_ANSWERS {
            progress.empty_answers += 1;
            return false;
        }
        progress.is_complete = true;
        self.publisher.replace(std::mem::take(&mut progress.first));
        true
    }

    /// vCenter answers: what is known is true.
    fn mark_live(&self) {
        self.session.mark_reachable();
        if self.publisher.mark_live() {
            info!(vcenter = self.session.names().server, "vCenter answers, its inventory is known");
        }
    }

    /// Until the wait is sent again after so many failures in a row.
    async fn pause(&self, failures: u32, error: &vim::Error) {
        self.publisher.mark_stale(Trouble::unavailable(chain(error)));
        self.session.mark_unreachable();
        let returned = self.session.returned();
        let _ = timeout(PASSING.pause(failures, fastrand::f64()), returned).await;
        self.cancel().await;
    }

    /// One wait. If a synchronization is requested meanwhile, it is ended where it `may_be_ended`: with nothing,
    /// unless its answer was on its way. The next one asks for everything since the last version.
    async fn wait(
        &self,
        version: &str,
        wait: Duration,
        may_be_ended: bool,
    ) -> Option<Result<Option<UpdateSet>, vim::Error>> {
        let mut waiting = pin!(self.soap.wait_for_updates(&self.collector, version, wait, PAGE));
        tokio::select! {
            // First, so that it is on its way before it is ended.
            biased;
            answer = &mut waiting => return Some(answer),
            () = self.fence.requested(), if may_be_ended => {}
        }
        let mut answer = None;
        let ended = async {
            let mut pause = CANCEL_AGAIN;
            while answer.is_none() {
                // The cancellation is seen through, so that it does not meet the next wait.
                let ending = async { answer = timeout(pause, &mut waiting).await.ok() };
                tokio::join!(ending, self.cancel());
                pause = pause.saturating_mul(2);
            }
        };
        let _ = timeout(CANCEL_LIMIT, ended).await;
        if answer.is_none() {
            answer = waiting.now_or_never();
        }
        if answer.is_none() {
            debug!(vcenter = self.session.names().server, "the old wait did not end; another one is sent");
        }
        // An answer that was on its way already is true, and not every server tells the same twice.
        answer.filter(|answer| matches!(answer, Ok(Some(_))))
    }

    /// Ends a wait whose client is gone. Closing its connection does not, and until it ends by itself the server keeps
    /// the next one waiting. Best effort: the next one tells whether it helped.
    async fn cancel(&self) {
        let call = self.soap.cancel_wait_for_updates(&self.collector);
        if let Ok(Err(error)) = timeout(CLEAR_LIMIT, call).await {
            debug!(vcenter = self.session.names().server, error = chain(&error), "the old wait could not be cancelled");
        }
    }
}
