//! One vCenter: its session, its snapshot, and fresh reads and searches.

pub mod account;
mod datacenters;
mod fresh_read;
mod power;
pub mod reads;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use self::reads::READ_PRIVILEGE;
use super::fence::Fence;
use super::outage::{Outage, cause_of};
use super::publisher::Publisher;
use super::session::{ClientInUse, ConnectionFailure, Pause, Rotation, Session, SessionHandle, text_of_read};
use super::snapshot::{Freshness, Snapshot, VcenterFailure};
use super::subscription::{PreparedSubscription, Subscription, clear_leftovers};
use super::tags::{TagReader, TagReads, TagRetry, TagSettings};
use crate::base::backoff::Failures;
use crate::base::error_chain::chain;
use crate::base::go_duration::whole_seconds;
use crate::clients::vim;
use crate::providers::vsphere::login::retry::PASSING;

/// The end of each log line about an unusable vCenter.
const KEPT: &str = "the last known state stays in use";
/// Time limit for vCenter to confirm that the snapshot is current.
const CONFIRM_LIMIT: Duration = Duration::from_secs(3);
/// Time limit for the application of a snapshot to all nodes.
const APPLY_LIMIT: Duration = Duration::from_secs(2);
/// Interval after which the same cause of a failed read is logged again, if vCenter answered reads since then.
const READ_LOG_INTERVAL: Duration = Duration::from_secs(600);
/// Interval after which the same cause is logged again, even without answered reads.
const READ_LOG_MAX_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// Time limit for the check of the account's privileges.
const RIGHTS_LIMIT: Duration = Duration::from_secs(5);

/// One vCenter. Shared by its actor ([`Vcenter::run`]) and its readers.
pub struct Vcenter {
    settings: watch::Sender<Arc<TagSettings>>,
    session: Session,
    publisher: Publisher,
    tag_retry: TagRetry,
    fence: Fence,
    /// Whether vCenter answered the check of the account's privileges.
    are_privileges_checked: AtomicBool,
    /// The configured datacenters if some of them may not exist in vCenter; otherwise empty.
    suspected_datacenters: watch::Sender<Vec<String>>,
    read_failures: ReadFailureLog,
    /// Time of the next attempt to connect; `None` while a connection is open or attempted, or until the credentials
    /// change.
    next_attempt: Mutex<Option<Instant>>,
}

impl Vcenter {
    /// Creates a vCenter that is not connected yet.
    pub fn new(settings: TagSettings, session: Session) -> Arc<Self> {
        Arc::new(Self {
            settings: watch::Sender::new(Arc::new(settings)),
            session,
            publisher: Publisher::default(),
            tag_retry: TagRetry::default(),
            fence: Fence::default(),
            are_privileges_checked: AtomicBool::new(false),
            suspected_datacenters: watch::Sender::default(),
            read_failures: ReadFailureLog::default(),
            next_attempt: Mutex::default(),
        })
    }

    /// Returns the current settings.
    pub fn settings(&self) -> Arc<TagSettings> {
        self.settings.borrow().clone()
    }

    /// Changes the settings. The session and the snapshot stay.
    pub fn reconfigure(&self, settings: TagSettings) {
        let settings = Arc::new(settings);
        self.settings.send_if_modified(|now| {
            let is_other = **now != *settings;
            *now = settings;
            is_other
        });
    }

    /// Returns the host and port of this vCenter.
    pub fn server(&self) -> &str {
        self.session.server()
    }

    /// Returns the session with this vCenter.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the current snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.publisher.snapshot()
    }

    /// Returns the time of the last inventory update from vCenter. The snapshot may not contain this update yet,
    /// because an answer in several parts is published when it is complete.
    pub fn last_report(&self) -> Option<Instant> {
        self.publisher.with(|state| state.reported)
    }

    /// Returns the time of the next attempt to connect; `None` while a connection is open or attempted, or if the next
    /// attempt waits for other credentials.
    pub fn next_attempt(&self) -> Option<Instant> {
        *self.next_attempt.lock()
    }

    /// Returns the times of the last and of the next poll of tags.
    pub fn tag_reads(&self) -> TagReads {
        self.tag_retry.reads()
    }

    /// Subscribes to the snapshots.
    pub fn changes(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.publisher.subscribe()
    }

    /// Makes vCenter confirm that the snapshot (except its tags) is current: a lost `WaitForUpdatesEx` looks like a
    /// call without changes. If the snapshot is live on return, it contains all changes before this function was
    /// called. If vCenter does not confirm within 3 s, the snapshot becomes stale. Does nothing if the snapshot is not
    /// live.
    pub async fn refresh(&self) {
        let mut changes = self.changes();
        if changes.borrow_and_update().freshness != Freshness::Live {
            return;
        }
        let request = self.fence.request_sync();
        let answered = async {
            tokio::select! {
                () = self.fence.wait(request) => {}
                _ = changes.wait_for(|now| now.freshness != Freshness::Live) => {}
            }
        };
        let is_late = timeout(CONFIRM_LIMIT, answered).await.is_err();
        if is_late && !self.fence.is_synced(request) {
            let why = format!("it did not say within {} s whether its inventory is as known", CONFIRM_LIMIT.as_secs());
            warn!(vcenter = self.server(), reason = why, "{}; {KEPT}", Outage::NoAnswer.headline());
            self.publisher.mark_stale(VcenterFailure::unavailable(why));
            // The answer to this request makes the snapshot live again.
            self.fence.request_sync();
        }
    }

    /// Records that all state derived from the snapshots includes the snapshot with this number.
    pub fn mark_applied(&self, snapshot: u64) {
        self.fence.applied(snapshot);
    }

    /// Waits until the current snapshot is applied; see [`Vcenter::mark_applied`]. Takes at most 2 s.
    pub async fn wait_applied(&self) {
        if timeout(APPLY_LIMIT, self.fence.wait_applied(self.snapshot().number)).await.is_err() {
            let (vcenter, seconds) = (self.server(), APPLY_LIMIT.as_secs());
            warn!(
                vcenter,
                "the newest snapshot is not applied to all nodes after {seconds} s; nodes may be handled with older data"
            );
        }
    }

    /// Adds VMs to watch, and retries those that vCenter did not resolve before. Additions are batched.
    pub fn want(&self, ids: impl IntoIterator<Item = Arc<str>>) {
        if self.publisher.with(|state| state.members.want(ids)) {
            self.publisher.members_changed.notify_one();
        }
    }

    /// Removes VMs from the view and adds them again, so that vCenter reports whether they exist. Used for VMs that
    /// were never reported or may have disappeared silently.
    pub fn rewatch(&self, ids: &[Arc<str>]) {
        self.publisher.with(|state| state.members.renew(ids));
        self.publisher.members_changed.notify_one();
    }

    /// Stops watching a VM.
    pub fn unwant(&self, id: &str) {
        if self.publisher.with(|state| state.members.unwant(id)) {
            self.publisher.members_changed.notify_one();
        }
    }

    /// Keeps the session open and the snapshot current until `stop`. Then logs out and returns.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        {
            let mut keeping = pin!(self.keep());
            let mut tending = pin!(self.session.tend());
            let mut reviewing = pin!(self.session.review());
            let mut probing = pin!(self.session.probe());
            let mut checking = pin!(self.check_datacenters());
            tokio::select! {
                () = stop.cancelled() => {}
                never = &mut keeping => match never {},
                never = &mut tending => match never {},
                never = &mut reviewing => match never {},
                never = &mut probing => match never {},
                never = &mut checking => match never {},
            }
            self.session.logins().give_up(keeping).await;
        }
        self.session.log_out().await;
    }

    async fn keep(&self) -> Infallible {
        let mut retry = Failures::default();
        loop {
            // Subscribed before the offer is read, so that no change is missed.
            let (offer_changed, released) = (self.session.offer_changed(), self.session.released());
            let returned = self.session.returned();
            let failure = self.serve(&mut retry).await;
            if failure.pause != Pause::Backoff {
                // The server answers. Only the login has to wait.
                self.session.mark_reachable();
            }
            let pause = match failure.pause {
                Pause::Backoff => Some(retry.next_pause(&PASSING, fastrand::f64())),
                Pause::For(pause) => Some(pause),
                Pause::UntilOffered => None,
            };
            self.mark_down(&failure, pause);
            let next_attempt = pause.and_then(|pause| Instant::now().checked_add(pause));
            *self.next_attempt.lock() = next_attempt;
            let over = async {
                match next_attempt {
                    Some(next_attempt) => tokio::time::sleep_until(next_attempt).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = over => {}
                () = offer_changed => {}
                () = released => {}
                () = returned, if failure.pause == Pause::Backoff => {
                    retry.reset();
                    // The reset does not shorten the wait of a paused login, which the login schedule enforces.
                    self.tag_retry.reset();
                }
            }
            *self.next_attempt.lock() = None;
        }
    }

    /// Serves one connection until its first failure.
    async fn serve(&self, retry: &mut Failures) -> ConnectionFailure {
        // Every call below has its own time limit.
        let mut subscription = match self.open().await {
            Ok(subscription) => subscription,
            Err(failure) => return failure,
        };
        let Self { settings, session, publisher, tag_retry, .. } = self;
        let reader = TagReader { session, publisher, settings, retry: tag_retry };
        let mut tags = pin!(reader.run());
        let mut rotation = Box::pin(self.rotate());
        let failure = loop {
            let failure = tokio::select! {
                failure = subscription.follow(retry) => failure,
                Err(failure) = subscription.keep_members() => failure,
                never = &mut tags => match never {},
                (handle, prepared) = &mut rotation => {
                    // The old subscription ends with its session. The new subscription reports all objects again.
                    self.session.switch_to(handle);
                    subscription = prepared.begin();
                    rotation.set(self.rotate());
                    continue;
                }
            };
            break failure;
        };
        tag_retry.disconnected();
        self.session.logins().give_up(futures::future::join(tags, rotation)).await;
        if !failure.source.is_not_authenticated() {
            subscription.clear().await;
        }
        failure
    }

    async fn open(&self) -> Result<Subscription<'_>, ConnectionFailure> {
        self.session.mark_unreachable();
        self.session.open().await?;
        let prepared = self.session.persist(|| self.prepare(self.session.soap())).await;
        clear_leftovers(&self.session.soap(), self.server()).await;
        if prepared.is_ok() {
            self.report_missing_privileges().await;
        }
        prepared.map(PreparedSubscription::begin)
    }

    /// Logs once if the account may not see every folder. Without an answer, the next connection repeats the check.
    async fn report_missing_privileges(&self) {
        if self.are_privileges_checked.load(Ordering::Relaxed) {
            return;
        }
        let (vcenter, soap) = (self.server(), self.session.soap());
        let answer = timeout(RIGHTS_LIMIT, soap.has_privilege_on_root(READ_PRIVILEGE)).await;
        self.are_privileges_checked.store(matches!(answer, Ok(Ok(_))), Ordering::Relaxed);
        match answer {
            Ok(Ok(Some(false))) => info!(
                vcenter,
                "the account has no System.Read on the root folder, so it may not see every folder. If a VM is \
                 registered again in a folder that the account cannot see, it appears to be destroyed, and its Node \
                 is deleted once the Node is Ready=Unknown. Keep the VMs of Nodes in folders that the account can \
                 read, or grant it the role Read-only on the root folder, with propagation"
            ),
            Ok(Ok(Some(true) | None)) => {}
            Err(_) => debug!(vcenter, "the permissions of the account are not known: no answer in time"),
            Ok(Err(error)) => debug!(vcenter, "the permissions of the account are not known: {}", chain(&error)),
        }
    }

    fn prepare(
        &self,
        soap: ClientInUse<vim::Client>,
    ) -> impl Future<Output = Result<PreparedSubscription<'_>, ConnectionFailure>> {
        Subscription::prepare(&self.session, &self.publisher, &self.fence, soap)
    }

    /// Waits for a session with other credentials, and subscribes on that session while the old subscription continues.
    /// A rejected login is reported and changes nothing.
    async fn rotate(&self) -> (Arc<SessionHandle>, PreparedSubscription<'_>) {
        let mut retry = Failures::default();
        loop {
            let is_told = self.snapshot().credential_failure.is_some();
            match self.session.rotated(&mut retry, is_told).await {
                Rotation::Refused(reason) => self.report_credential_failure(Some(reason)),
                Rotation::Settled => self.report_credential_failure(None),
                Rotation::Accepted(handle) => match self.prepare_on(&handle).await {
                    Some(prepared) => {
                        self.report_credential_failure(None);
                        return (handle, prepared);
                    }
                    None => self.session.discard(&handle),
                },
            }
        }
    }

    /// Subscribes on a session that is not in use yet; `None` if the session ended or its credentials were withdrawn.
    async fn prepare_on(&self, handle: &Arc<SessionHandle>) -> Option<PreparedSubscription<'_>> {
        let mut retry = Failures::default();
        loop {
            let failure = match self.prepare(handle.soap()).await {
                Ok(prepared) => return Some(prepared),
                Err(failure) if failure.source.is_not_authenticated() => return None,
                Err(failure) => failure,
            };
            clear_leftovers(&handle.soap(), self.server()).await;
            self.report_credential_failure(Some(chain(&failure)));
            let pause = retry.next_pause(&PASSING, fastrand::f64());
            if timeout(pause, self.session.withdrawn(handle)).await.is_ok() {
                return None;
            }
        }
    }

    fn report_credential_failure(&self, failure: Option<String>) {
        if self.snapshot().credential_failure == failure {
            return;
        }
        if let Some(reason) = &failure {
            let vcenter = self.server();
            error!(
                vcenter,
                reason, "the new credentials are not used; the current session, with the previous ones, stays"
            );
        }
        self.publisher.publish(|state| state.next.credential_failure = failure);
    }

    /// Logs a failed read if the messages of Nodes refer to the log for its cause. The subscription does not log such
    /// failures while its own connection works.
    fn report_failed_read(&self, error: &vim::Error) {
        let outage = Outage::of_soap(error);
        if !outage.is_logged() {
            return;
        }
        if self.read_failures.is_news(&cause_of(error)) {
            let (vcenter, reason) = (self.server(), text_of_read(error, &self.session.spelling()));
            warn!(vcenter, reason, "{}; {KEPT}", outage.headline());
        }
    }

    /// Marks the snapshot stale and logs the reason, unless the snapshot already has this reason.
    fn mark_down(&self, failure: &ConnectionFailure, pause: Option<Duration>) {
        let trouble = failure.vcenter_failure(&self.session.spelling());
        let reason = trouble.message.as_str();
        if self.snapshot().freshness.failure() == Some(reason) {
            return;
        }
        let (vcenter, outage) = (self.server(), failure.source.outage());
        let (headline, next_try) = (outage.headline(), next_try(pause));
        match outage {
            Outage::LoginRejected => error!(vcenter, reason, next_try, "{headline}; {KEPT}"),
            _ => warn!(vcenter, reason, next_try, "{headline}; {KEPT}"),
        }
        self.publisher.mark_stale(trouble);
    }
}

/// The cause of the last logged read failure, so that the same cause is logged once.
#[derive(Default)]
struct ReadFailureLog(Mutex<Option<LoggedCause>>);

struct LoggedCause {
    cause: String,
    logged_at: Instant,
    /// Whether vCenter answered a read since `logged_at`.
    has_ended: bool,
}

impl ReadFailureLog {
    fn answered(&self) {
        if let Some(logged) = &mut *self.0.lock() {
            logged.has_ended = true;
        }
    }

    /// Whether to log this cause; if so, records it as logged. The same cause is logged again only after an interval.
    /// The interval is shorter, but not zero, if vCenter answered reads in between: some connections may work while new
    /// connections fail.
    fn is_news(&self, cause: &str) -> bool {
        let mut last = self.0.lock();
        let is_known = |last: &LoggedCause| {
            let until = if last.has_ended { READ_LOG_INTERVAL } else { READ_LOG_MAX_INTERVAL };
            last.cause == cause && last.logged_at.elapsed() < until
        };
        if last.as_ref().is_some_and(is_known) {
            return false;
        }
        *last = Some(LoggedCause { cause: cause.to_owned(), logged_at: Instant::now(), has_ended: false });
        true
    }
}

fn next_try(pause: Option<Duration>) -> String {
    pause.map_or_else(|| "when the credentials change".to_owned(), whole_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failed_read_is_logged_once_for_each_cause_and_again_when_reads_answered_in_between() {
        let log = ReadFailureLog::default();
        assert_eq!([log.is_news("a"), log.is_news("a"), log.is_news("b")], [true, false, true]);
        tokio::time::advance(READ_LOG_INTERVAL * 3).await;
        assert!(!log.is_news("b"), "the cause is the same");
        tokio::time::advance(READ_LOG_MAX_INTERVAL).await;
        assert_eq!([log.is_news("b"), log.is_news("b")], [true, false], "after a day");
        tokio::time::advance(READ_LOG_INTERVAL).await;
        log.answered();
        assert_eq!([log.is_news("b"), log.is_news("b")], [true, false], "it was gone");
        log.answered();
        assert!(!log.is_news("b"), "some reads answer and some fail: not with each of them");
        tokio::time::advance(READ_LOG_INTERVAL).await;
        assert_eq!([log.is_news("b"), log.is_news("b")], [true, false], "it answered since the last line");
    }

    #[test]
    fn the_next_attempt_is_shown_in_seconds_or_by_what_it_waits_for() {
        assert_eq!(next_try(Some(Duration::from_millis(71_557))), "72s");
        assert_eq!(next_try(None), "when the credentials change");
    }
}
