//! Follows a subscription: sends one wait for updates after the other, until a failure.

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
use crate::providers::vsphere::vcenter::session::{ConnectionFailure, FailureCause, Pause};
use crate::providers::vsphere::vcenter::snapshot::VcenterFailure;

/// Duration of one `WaitForUpdatesEx`. Proxies cut idle connections after 60 s or more. A lost call is detected after
/// this time plus the client's margin for an answer.
const WAIT: Duration = Duration::from_secs(20);
/// Duration of the wait for the first answer, and of a wait after a failure. A server without changes may not answer
/// earlier.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Number of empty first answers to ignore while the view has members. A server may answer too early. The number
/// is limited, because all answers are empty if the account may read no member.
const EMPTY_ANSWERS: u32 = 3;
/// Maximum number of objects per answer. Limits the memory of one answer.
const PAGE: u32 = 100;
/// Pause after an answer, during which the server collects changes. Limits the number of calls while many VMs migrate.
const COALESCE: Duration = Duration::from_millis(100);
const CANCEL_LIMIT: Duration = Duration::from_millis(1_500);
/// Pause before a cancellation is repeated, doubled each time. A cancellation may overtake the wait, and has no effect
/// then.
const CANCEL_AGAIN: Duration = Duration::from_millis(100);
/// Maximum number of consecutive failures after which the wait is repeated.
const PATIENCE: u32 = 3;

#[derive(Default)]
struct FollowProgress {
    /// The version of the last answer; empty before the first answer.
    version: String,
    is_complete: bool,
    /// Whether the next wait continues the last answer.
    is_truncated: bool,
    /// The parts of the first answer.
    first: Mirror,
    /// The parts of a later answer.
    pages: Vec<UpdateSet>,
    failures: u32,
    empty_answers: u32,
    /// Number of the last synchronization request before the wait.
    request: u64,
}

impl FollowProgress {
    /// Whether the wait may be repeated. The server then reports all changes since the last complete answer.
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
    /// Publishes updates until a failure ends the subscription. Each published answer resets `retry`.
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
                    return self.failure(FailureCause::Other("the rest of a truncated answer is missing".to_owned()));
                }
                None => {}
            }
            if progress.is_truncated {
                continue;
            }
            // An answer is published only when complete, because a part may have a VM without its ancestors.
            if self.take_in(&mut progress) {
                retry.reset();
                self.mark_live();
                self.fence.synced(progress.request);
            }
            sleep(COALESCE).await;
        }
    }

    fn failure(&self, source: FailureCause) -> ConnectionFailure {
        let during = format!("waiting for updates of vCenter {}", self.session.server());
        ConnectionFailure { during, source, pause: Pause::Backoff }
    }

    /// Sends one wait. Returns `None` if the wait was cancelled, so that another wait follows.
    async fn next_answer(&self, progress: &mut FollowProgress) -> Option<Result<Option<UpdateSet>, vim::Error>> {
        if !progress.is_truncated {
            // Further pages of an answer describe the same moment, so they complete no later request.
            progress.request = self.fence.last_request();
        }
        let wait = match progress.is_complete && progress.failures == 0 {
            true if self.fence.is_synced(progress.request) => WAIT,
            true => Duration::ZERO,
            // After a failure, a short wait shows whether vCenter answers, even if nothing changes for hours.
            false => FIRST_WAIT,
        };
        let may_be_ended = wait == WAIT && !progress.is_truncated;
        let returned = self.session.returned();
        tokio::select! {
            biased;
            answer = self.wait(&progress.version, wait, may_be_ended) => answer,
            // A wait that was sent during the outage gets no answer, so it is cancelled.
            () = returned, if wait == FIRST_WAIT && !progress.is_truncated => {
                self.cancel().await;
                None
            }
        }
    }

    /// Publishes a complete answer. Returns false for an empty first answer that is ignored.
    fn take_in(&self, progress: &mut FollowProgress) -> bool {
        if progress.is_complete {
            let touched = self.publisher.apply(&std::mem::take(&mut progress.pages));
            if touched != TouchedObjects::default() {
                let (vms, left) = (touched.vms.len(), touched.removed.len());
                debug!(vcenter = self.session.server(), vms, left, "the inventory changed");
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

    fn mark_live(&self) {
        self.session.mark_reachable();
        if self.publisher.mark_live() {
            info!(vcenter = self.session.server(), "vCenter answers, its inventory is known");
        }
    }

    /// Marks the snapshot stale. After the backoff, or when vCenter is reachable again, cancels the old wait.
    async fn pause(&self, failures: u32, error: &vim::Error) {
        self.publisher.mark_stale(VcenterFailure::unavailable(chain(error)));
        self.session.mark_unreachable();
        let returned = self.session.returned();
        let _ = timeout(PASSING.pause(failures, fastrand::f64()), returned).await;
        self.cancel().await;
    }

    /// Sends one wait. If `may_be_ended`, a synchronization request cancels the wait, and the result is `None` unless
    /// the answer was already on the way. The next wait requests all changes since the last version.
    async fn wait(
        &self,
        version: &str,
        wait: Duration,
        may_be_ended: bool,
    ) -> Option<Result<Option<UpdateSet>, vim::Error>> {
        let mut waiting = pin!(self.soap.wait_for_updates(&self.collector, version, wait, PAGE));
        tokio::select! {
            // Polled first, so that the wait is sent before its cancellation.
            biased;
            answer = &mut waiting => return Some(answer),
            () = self.fence.requested(), if may_be_ended => {}
        }
        let mut answer = None;
        let ended = async {
            let mut pause = CANCEL_AGAIN;
            while answer.is_none() {
                // The cancellation runs to its end, because it could otherwise cancel the next wait.
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
            debug!(vcenter = self.session.server(), "the old wait did not end; another one is sent");
        }
        // An answer that was on its way is valid, and some servers do not repeat it.
        answer.filter(|answer| matches!(answer, Ok(Some(_))))
    }

    /// Cancels the outstanding wait on the server. A closed connection does not cancel the wait, and the server delays
    /// the next wait until the outstanding wait ends. A failed cancellation is only logged.
    async fn cancel(&self) {
        let call = self.soap.cancel_wait_for_updates(&self.collector);
        if let Ok(Err(error)) = timeout(CLEAR_LIMIT, call).await {
            debug!(vcenter = self.session.server(), error = chain(&error), "the old wait could not be cancelled");
        }
    }
}
