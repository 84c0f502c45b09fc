//! The session with one vCenter: login, change of credentials during use, and logout. Only this module logs in.
//!
//! One caller logs in while other callers wait. Each login is claimed in the login throttle first, so that the replicas
//! together do not lock the account. New credentials are tried while the current session stays. The current session
//! ends after the new session has replaced it and its calls in flight have ended.

mod failure;
mod handle;
mod login;
mod logins;
mod reachability;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use self::reachability::Reachability;
use crate::base::backoff::Failures;
use crate::base::error_chain::chain;
use crate::clients::vim::{self, Timeouts};
use crate::clients::{http, vapi};
use crate::cloud::login_ledger::LoginThrottle;
use crate::providers::vsphere::login::LoginPause;
use crate::providers::vsphere::login::attempt::LoginAttempts;
use crate::providers::vsphere::login::credentials::{Credential, CredentialState, Offers};
use crate::providers::vsphere::login::policy::LOGIN_POLICY;
use crate::providers::vsphere::login::retry::PASSING;
use crate::providers::vsphere::login::schedule::{Better, Interface, place};
use crate::providers::vsphere::vcenter::spelling::Spelling;
pub(super) use failure::{ConnectionFailure, FailureCause, Pause, RestFailure, failed, text_of_read};
pub use handle::ClientInUse;
pub(super) use handle::SessionHandle;
pub(super) use logins::InFlightLogins;
pub use reachability::PROBES;

/// Time for the first read of a new credential source, before the log reports missing credentials.
const FIRST_READ_LIMIT: Duration = Duration::from_secs(5);
const LOGOUT_LIMIT: Duration = Duration::from_secs(3);
/// Maximum delay of the logout of a replaced session by its calls in flight. No call takes longer.
const USE_LIMIT: Duration = Duration::from_secs(120);
/// The first API version whose REST interface accepts a SOAP session.
const ONE_SESSION: [u32; 4] = [8, 0, 3, 0];

/// Start and counters of a session, for metrics and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStatus {
    /// Time when the current session was created.
    pub since: Option<Instant>,
    /// Accepted logins over SOAP.
    pub soap_logins: u64,
    /// Accepted logins over REST.
    pub rest_logins: u64,
    /// Rejected logins over SOAP and REST.
    pub rejections: u64,
    /// Logins without an answer.
    pub unanswered: u64,
}

/// The session with one vCenter.
pub struct Session {
    /// Host and port.
    server: String,
    /// The syntax of the vCenter's configuration entry. May change while the session stays.
    spelling: Mutex<Spelling>,
    http: http::Client,
    timeouts: Timeouts,
    offers: Offers,
    attempts: LoginAttempts,
    /// Acquired by the caller that logs in over SOAP.
    login_lock: Semaphore,
    /// Acquired by the caller that manages the REST session.
    rest_login_lock: Semaphore,
    logins: InFlightLogins,
    state: Mutex<VcenterSessionState>,
    /// Signals a new entry of `VcenterSessionState::closing`.
    closing_changed: Notify,
    reachability: Reachability,
}

/// Never locked across an await.
struct VcenterSessionState {
    current: Arc<SessionHandle>,
    /// A session with other credentials that is not in use yet.
    next: Option<Arc<SessionHandle>>,
    /// Sessions to end when they have no more users.
    closing: Vec<Arc<SessionHandle>>,
    /// The vCenter version that refused a SOAP session over REST, although this version should accept it.
    refuses_loans: Option<String>,
    status: SessionStatus,
}

/// Result of waiting for other credentials while a session is in use.
pub(super) enum Rotation {
    /// A session with the new credentials, for `Session::switch_to`.
    Accepted(Arc<SessionHandle>),
    /// The current session stays for this reason.
    Refused(String),
    /// The current session uses the offered credentials.
    Settled,
}

impl Session {
    /// Creates a session with this host and port that is not open yet. Sends nothing.
    pub fn new(
        http: http::Client,
        offers: Offers,
        throttle: Arc<dyn LoginThrottle>,
        server: String,
        timeouts: Timeouts,
    ) -> Self {
        throttle.register_server(LOGIN_POLICY, &server);
        let state = VcenterSessionState {
            current: new_handle(&http, timeouts),
            next: None,
            closing: Vec::new(),
            refuses_loans: None,
            status: SessionStatus::default(),
        };
        Self {
            attempts: LoginAttempts::new(LOGIN_POLICY, &server, throttle),
            server,
            spelling: Mutex::default(),
            http,
            timeouts,
            offers,
            login_lock: Semaphore::new(1),
            rest_login_lock: Semaphore::new(1),
            logins: InFlightLogins::default(),
            state: Mutex::new(state),
            closing_changed: Notify::new(),
            reachability: Reachability::default(),
        }
    }

    /// Returns the status of the server's certificate.
    pub fn certificate(&self) -> http::CertificateStatus {
        self.http.certificate_status()
    }

    /// Returns the pause of logins that protects the account from lockout, if any.
    pub fn login_pause(&self) -> Option<LoginPause> {
        self.attempts.pause()
    }

    /// Returns the command that ends this pause for all replicas, if there is one.
    pub fn login_reset(&self) -> Option<String> {
        self.attempts.reset_of_pause()
    }

    /// Returns the host and port of this vCenter.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the current syntax of the vCenter's configuration entry.
    pub fn spelling(&self) -> Spelling {
        self.spelling.lock().clone()
    }

    /// Changes the syntax of the vCenter's configuration entry.
    pub fn respell(&self, spelling: Spelling) {
        *self.spelling.lock() = spelling;
    }

    /// Returns the counters.
    pub fn facts(&self) -> SessionStatus {
        self.state.lock().status
    }

    /// Returns the client of the current session. Get it again for every call, because the client may change.
    pub fn soap(&self) -> ClientInUse<vim::Client> {
        self.current().soap()
    }

    pub(super) fn logins(&self) -> &InFlightLogins {
        &self.logins
    }

    fn current(&self) -> Arc<SessionHandle> {
        Arc::clone(&self.state.lock().current)
    }

    fn offered(&self) -> (Vec<Arc<Credential>>, Option<String>) {
        self.offers.borrow().offered()
    }

    /// Returns the reason why no login was tried.
    fn nothing_offered(&self) -> FailureCause {
        match &**self.offers.borrow() {
            CredentialState::Ready(_) => FailureCause::NoCredentials("there are no credentials".to_owned()),
            CredentialState::Missing { reason: why } => FailureCause::NoCredentials(why.clone()),
            CredentialState::Pending { reason: why } | CredentialState::Unreadable { reason: why } => {
                FailureCause::CredentialsUnread(why.clone())
            }
        }
    }

    /// Completes when the offer changes after the time of the call.
    pub(super) fn offer_changed(&self) -> impl Future<Output = ()> + use<> {
        let mut offers = self.offers.clone();
        offers.mark_unchanged();
        next_change(offers)
    }

    /// Completes when the wait of a login ends early after this call.
    pub(super) fn released(&self) -> impl Future<Output = ()> + use<> {
        next_change(self.attempts.released())
    }

    /// Ends waits that the login throttle does not require any more. Never returns.
    pub(super) async fn review(&self) -> Infallible {
        loop {
            tokio::time::sleep(LoginAttempts::review_pause()).await;
            if self.attempts.review().await {
                info!(
                    vcenter = self.server,
                    "a paused login is tried again: the failed logins were deleted, or another replica logged in"
                );
            }
        }
    }

    /// Connects, and logs in unless the previous session is still valid. One caller does this while other callers wait.
    pub(super) async fn open(&self) -> Result<vim::ServiceContent, ConnectionFailure> {
        let _turn = self.login_lock.acquire().await;
        let next = self.state.lock().next.take();
        if let Some(handle) = next {
            self.switch_to(handle);
        }
        let handle = self.current();
        let content = self.persist(|| self.connect(&handle)).await?;
        if handle.soap.session_secret().is_some() {
            // A failed check causes no new login, because the old session may still exist and would be leaked.
            let doing = format!("checking the session with vCenter {}", self.server);
            if self.persist(|| handle.soap.is_logged_in()).await.map_err(failed(&doing))? {
                return Ok(content);
            }
        }
        self.log_in(&handle).await.map(|()| content)
    }

    async fn connect(&self, handle: &SessionHandle) -> Result<vim::ServiceContent, ConnectionFailure> {
        let doing = format!(
            "connecting to vCenter {}; expected is a vCenter Server at the server and port of {}",
            self.server,
            self.spelling().place()
        );
        let content = handle.soap.connect().await.map_err(failed(&doing))?;
        handle.set_about(content.about.clone());
        Ok(content)
    }

    /// Tries [`LoginAttempts::candidates`] in order, until the server accepts one. Stops at a failure other than a
    /// rejected or paused login, or at a credential that may not be tried.
    async fn log_in(&self, handle: &Arc<SessionHandle>) -> Result<(), ConnectionFailure> {
        let in_use = handle.credential();
        let (offered, _) = self.offered();
        let mut last: Option<ConnectionFailure> = None;
        for credential in self.attempts.candidates(&offered, in_use.as_ref()) {
            if !self.attempts.schedule().may_be_tried(&credential, &offered) {
                break;
            }
            let failure = match self.try_credential(handle, &credential).await {
                Ok(()) => {
                    self.logged_in(handle, credential).await;
                    return Ok(());
                }
                Err(failure) if failure.pause == Pause::Backoff => return Err(failure),
                Err(failure) => failure,
            };
            last = Some(match last {
                Some(before) => soonest(before, failure),
                None => failure,
            });
        }
        Err(last.unwrap_or_else(|| ConnectionFailure {
            during: format!("logging in to vCenter {}", self.server),
            source: self.nothing_offered(),
            pause: Pause::UntilOffered,
        }))
    }

    async fn logged_in(&self, handle: &Arc<SessionHandle>, credential: Arc<Credential>) {
        let was_other = handle.credential().is_some_and(|before| before.login != credential.login);
        handle.set_credential(credential);
        if handle.is_borrowing() || was_other {
            // The REST session used the old SOAP session or other credentials. A failed logout is only logged.
            handle.set_borrowing(false);
            let ended = handle.rest.logout().await;
            debug!(
                vcenter = self.server,
                error = ended.as_ref().err().map(|error| chain(error)),
                "REST gets another session"
            );
        }
        self.state.lock().status.since = Some(Instant::now());
    }

    /// Waits for other credentials and logs in with them. The current session stays. Returns after each attempt, and
    /// also if no attempt is necessary or possible. `is_told`: the previous call returned a refusal.
    pub(super) async fn rotated(&self, retry: &mut Failures, is_told: bool) -> Rotation {
        loop {
            let (changed, released) = (self.offer_changed(), self.released());
            let (offered, nothing) = self.offered();
            let in_use = self.current().credential();
            let Some(in_use) = in_use else {
                changed.await;
                continue;
            };
            match (self.attempts.better(&offered, &in_use), nothing) {
                (Better::Nothing, Some(reason)) if !is_told => {
                    if timeout(FIRST_READ_LIMIT, changed).await.is_err() {
                        return Rotation::Refused(reason);
                    }
                }
                (Better::Nothing, None) if is_told => return Rotation::Settled,
                (Better::Nothing, _) => changed.await,
                (Better::Same(credential), _) => {
                    self.current().set_credential(credential);
                    return Rotation::Settled;
                }
                (Better::NotBefore(moment), _) => {
                    let pause = self.attempts.time_until(moment);
                    tokio::select! {
                        () = changed => {}
                        () = released => {}
                        () = tokio::time::sleep(pause) => {}
                    }
                }
                (Better::Try(credential), _) => match self.open_with(&credential).await {
                    Ok(handle) => return Rotation::Accepted(handle),
                    Err(failure) => {
                        let why = chain(&failure);
                        if failure.pause == Pause::Backoff {
                            let pause = retry.next_pause(&PASSING, fastrand::f64());
                            let blocked = self.attempts.now().wait(pause, why.clone());
                            self.attempts.schedule().block(&credential, Interface::Primary, blocked);
                        }
                        return Rotation::Refused(why);
                    }
                },
            }
        }
    }

    /// Connects and logs in with this credential in a new session, beside the current session.
    async fn open_with(&self, credential: &Arc<Credential>) -> Result<Arc<SessionHandle>, ConnectionFailure> {
        let _turn = self.login_lock.acquire().await;
        let handle = new_handle(&self.http, self.timeouts);
        self.connect(&handle).await?;
        self.try_credential(&handle, credential).await?;
        handle.set_credential(Arc::clone(credential));
        let before = self.state.lock().next.replace(Arc::clone(&handle));
        self.retire(before);
        Ok(handle)
    }

    /// Makes a session from [`Session::rotated`] the current session. The old session ends when it has no more users.
    pub(super) fn switch_to(&self, handle: Arc<SessionHandle>) {
        let location =
            handle.credential().map(|credential| place(&credential.origin, || self.spelling().credentials_place()));
        let before = {
            let mut state = self.state.lock();
            state.next = None;
            state.status.since = Some(Instant::now());
            std::mem::replace(&mut state.current, handle)
        };
        self.retire(Some(before));
        info!(vcenter = self.server, from = location, "the session is made with other credentials now");
    }

    /// Drops a session from [`Session::rotated`] that cannot be used.
    pub(super) fn discard(&self, handle: &Arc<SessionHandle>) {
        let next = self.state.lock().next.take_if(|next| Arc::ptr_eq(next, handle));
        self.retire(next);
    }

    /// Completes when the credentials of this session are no longer offered, but other credentials are.
    pub(super) async fn withdrawn(&self, handle: &SessionHandle) {
        let credential = handle.credential();
        let is_its = |offered: &Arc<Credential>| credential.as_ref().is_some_and(|own| own.login == offered.login);
        let is_other =
            |offer: &Arc<CredentialState>| matches!(&**offer, CredentialState::Ready(all) if !all.iter().any(is_its));
        if self.offers.clone().wait_for(is_other).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn retire(&self, handle: Option<Arc<SessionHandle>>) {
        if let Some(handle) = handle {
            self.state.lock().closing.push(handle);
            self.closing_changed.notify_one();
        }
    }

    /// Ends replaced sessions when their calls have ended, or after `USE_LIMIT`. Never returns.
    pub(super) async fn tend(&self) -> Infallible {
        loop {
            let next = self.state.lock().closing.first().cloned();
            let Some(handle) = next else {
                self.closing_changed.notified().await;
                continue;
            };
            let _ = timeout(USE_LIMIT, handle.unused()).await;
            self.log_out_of(&handle).await;
            self.state.lock().closing.retain(|other| !Arc::ptr_eq(other, &handle));
        }
    }

    /// Returns a client with a REST session. Uses the SOAP session if the server accepts it. Otherwise, opens a
    /// separate session with credentials that SOAP has accepted.
    pub(super) async fn rest(&self) -> Result<ClientInUse<vapi::Client>, RestFailure> {
        let _turn = self.rest_login_lock.acquire().await;
        let handle = self.current();
        if handle.rest.has_session() {
            return Ok(handle.rest());
        }
        let (Some(credential), Some(secret)) = (handle.credential(), handle.soap.session_secret()) else {
            return Err(RestFailure::NoSession);
        };
        let about = handle.about();
        let refuses = self.state.lock().refuses_loans.as_ref() == Some(&about.full_name);
        if login::is_shared(&credential) || about.is_api_at_least(ONE_SESSION) && !refuses {
            handle.rest.borrow_session(secret);
            handle.set_borrowing(true);
            return Ok(handle.rest());
        }
        self.enter_rest(&handle, &credential).await?;
        Ok(handle.rest())
    }

    /// Returns a client with the REST session in use; `None` if no REST session is open. Makes no call and no login.
    pub(super) fn rest_in_use(&self) -> Option<ClientInUse<vapi::Client>> {
        let handle = self.current();
        handle.rest.has_session().then(|| handle.rest())
    }

    /// Handles a refused REST session. The next [`Session::rest`] opens another session.
    pub(super) async fn rest_refused(&self, refused: &ClientInUse<vapi::Client>) {
        let _turn = self.rest_login_lock.acquire().await;
        let handle = &refused.handle;
        if !handle.is_borrowing() {
            // The refused session may still exist, so it is logged out. A failed logout is only logged.
            let ended = handle.rest.logout().await;
            debug!(
                vcenter = self.server,
                error = ended.as_ref().err().map(|error| chain(error)),
                "a new REST session is created"
            );
            return;
        }
        handle.rest.forget_session();
        handle.set_borrowing(false);
        let is_ours = handle.credential().is_some_and(|credential| !login::is_shared(&credential));
        // After the end of the SOAP session, a refusal proves nothing about other SOAP sessions.
        if is_ours && matches!(handle.soap.is_logged_in().await, Ok(true)) {
            let version = handle.about().full_name;
            debug!(vcenter = self.server, version, "REST does not take the SOAP session, and gets its own");
            self.state.lock().refuses_loans = Some(version);
        }
    }

    /// Ends all sessions within 3 s.
    pub(super) async fn log_out(&self) {
        let handles: Vec<Arc<SessionHandle>> = {
            let mut state = self.state.lock();
            let leaving = std::mem::take(&mut state.closing);
            leaving.into_iter().chain(state.next.take()).chain([Arc::clone(&state.current)]).collect()
        };
        futures::future::join_all(handles.iter().map(|handle| self.log_out_of(handle))).await;
    }

    async fn log_out_of(&self, handle: &SessionHandle) {
        let both = async {
            let rest = handle.rest.logout();
            let soap = async {
                match handle.soap.session_secret() {
                    Some(_) => handle.soap.logout().await,
                    None => Ok(()),
                }
            };
            let (rest, soap) = tokio::join!(rest, soap);
            if let Err(error) = soap {
                warn!(vcenter = self.server, error = chain(&error), "the session could not be ended");
            }
            if let Err(error) = rest {
                warn!(vcenter = self.server, error = chain(&error), "the REST session could not be ended");
            }
        };
        if timeout(LOGOUT_LIMIT, both).await.is_err() {
            warn!(vcenter = self.server, "the session could not be ended within {LOGOUT_LIMIT:?}");
        }
    }
}

/// Completes with the next change. Never completes if the sender is dropped.
async fn next_change<T>(mut watched: watch::Receiver<T>) {
    if watched.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn new_handle(http: &http::Client, timeouts: Timeouts) -> Arc<SessionHandle> {
    let soap = vim::Client::with_timeouts(http.clone(), timeouts);
    SessionHandle::new(soap, vapi::Client::with_timeouts(http.clone(), timeouts))
}

/// Returns the more informative failure, with the shorter of both pauses.
fn soonest(before: ConnectionFailure, after: ConnectionFailure) -> ConnectionFailure {
    let pause = match (before.pause, after.pause) {
        (Pause::For(before), Pause::For(after)) => Pause::For(before.min(after)),
        (Pause::For(pause), _) | (_, Pause::For(pause)) => Pause::For(pause),
        (pause, _) => pause,
    };
    ConnectionFailure { pause, ..if after.source.is_invalid_login() { after } else { before } }
}
