//! Opens, renews, replaces and ends the session with NSX. Only this module logs in to NSX.
//!
//! One task logs in for all calls, so that a cancelled call interrupts no login. Each login with a password first
//! claims an attempt in the login throttle, so that all replicas together do not lock the account. A standby does not
//! log in. A command that reads without a daemon does, as if it led without an end.

mod login;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::OptionFuture;
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::any_leader::AnyLeader;
use crate::base::backoff::Failures;
use crate::base::error_chain::chain;
use crate::clients::http;
use crate::clients::nsx::{AccessToken, Client, Kind, LogIn, Login, NoLogin, Scheme};
use crate::cloud::login_ledger::LoginThrottle;
use crate::providers::vsphere::login::LoginPause;
use crate::providers::vsphere::login::attempt::LoginAttempts;
use crate::providers::vsphere::login::credentials::{Credential, Offers};
use crate::providers::vsphere::login::policy::NSX_LOGIN_POLICY;
use crate::providers::vsphere::login::retry::PASSING;
use crate::providers::vsphere::login::schedule::{Better, Interface};
use login::HARMLESS;

/// Maximum wait of a call for a login.
const WAIT: Duration = Duration::from_secs(50);

/// Time after which a replaced login is ended. No call that uses the replaced login takes longer.
const USE: Duration = Duration::from_secs(30);

/// Time limit of logouts and, at shutdown, of a login in flight.
const END: Duration = Duration::from_secs(3);

/// Time limit of the count of rejected requests. The ledger gives up a write of its own after 5 s.
const COUNT: Duration = Duration::from_secs(6);

/// A session that ends sooner after its login counts as short-lived: it has served only a few calls.
const SHORT_LIFE: Duration = Duration::from_secs(5);

/// Number of consecutive short-lived sessions that indicates several NSX Managers without session affinity.
const SHORT_LIVES: u32 = 2;

/// Minimum interval between two logins that follow a web page as the answer to a call. A proxy in front of NSX may
/// answer the login with a web page, too, and each login counts in the login throttle.
const SUSPICION_WINDOW: Duration = NSX_LOGIN_POLICY.window;

/// Fraction of its lifetime after which a token is renewed.
const RENEWAL: f64 = 0.85;

/// Source of the credentials.
pub enum LoginSource {
    /// The client certificate of the TLS settings.
    Certificate,
    /// The refresh token of VMware Cloud, updated when its file changes.
    Token(watch::Receiver<Arc<Token>>),
    /// User and password.
    Pairs {
        /// The offered credentials, updated when the file or the Secret changes.
        offers: Offers,
        /// The authentication scheme for the kind of account.
        scheme: Scheme,
    },
}

/// A refresh token, and the service that exchanges it for access tokens.
pub struct Token {
    /// The token service.
    pub service: http::Client,
    /// The path of the exchange.
    pub path: String,
    /// The refresh token to exchange.
    pub refresh: SecretString,
}

/// State of the login, for status output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NsxSessionStatus {
    /// Whether a login is in use.
    pub is_logged_in: bool,
    /// Reason why the offered credentials are not used, while a login with earlier credentials is in use.
    pub rejected_credentials: Option<String>,
    /// Reason why the last attempt failed, while there is no login.
    pub failure: Option<String>,
}

/// The session with one NSX Manager.
pub struct NsxSession {
    /// `host:port`.
    server: String,
    source: LoginSource,
    attempts: LoginAttempts,
    leads: AnyLeader,
    login_requested: Notify,
    /// Signals that NSX rejected the password of a request.
    login_rejected: Notify,
    /// Signals that a web page answered a call.
    session_suspected: Notify,
    /// Number of finished login requests, with the failure of the last request.
    answers: watch::Sender<(u64, Option<NoLogin>)>,
    state: Mutex<NsxSessionState>,
}

/// Behavior of sessions, as observed in this term of leadership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SessionMode {
    /// Sessions work, or their behavior is unknown.
    #[default]
    Usable,
    /// Sessions end within seconds. The next login tries per-request authentication (user and password with each
    /// request).
    ShortLived,
    /// Per-request authentication works, and replaces sessions.
    PerRequest,
    /// Sessions end within seconds, and NSX refuses per-request authentication. Each new session waits for a backoff.
    Required,
}

/// State of the session. No task keeps its lock across an `await`.
#[derive(Default)]
struct NsxSessionState {
    in_use: Option<Arc<Credential>>,
    /// The login made with `in_use`, and the time of that login. Removed when the session ends.
    adopted: Option<(Login, Instant)>,
    /// Number of consecutive short-lived sessions, or of consecutive fresh tokens that NSX rejected.
    short_lived: u32,
    session_mode: SessionMode,
    /// Time of the last login that was requested because a web page answered a call; see `SUSPICION_WINDOW`.
    suspected_since: Option<Instant>,
    /// The refresh token that was exchanged for the access token in use.
    exchanged: Option<Arc<Token>>,
    renewal: Option<Instant>,
    /// Earliest time of the next attempt with better credentials, while a login is in use.
    not_before: Option<Instant>,
    /// Number of consecutive failed exchanges of a token or, with user and password, of consecutive failed attempts
    /// with better credentials, for the backoff.
    failures: Failures,
    /// Earliest time of the next login after a failure other than a rejection, or of the next token exchange.
    retry: Option<(Instant, NoLogin)>,
    /// Number of consecutive failed logins, except rejections, for the backoff.
    login_failures: Failures,
    /// Credentials that NSX rejected with a request and that the login throttle has not counted yet.
    unreported: Vec<Arc<Credential>>,
    /// Replaced logins that are not ended yet.
    closing: Vec<Leaving>,
    has_ended: bool,
    status: NsxSessionStatus,
}

struct Leaving {
    due: Instant,
    login: Login,
    credential: Option<Arc<Credential>>,
}

impl NsxSessionState {
    /// Records that NSX refused the login of a call, unless the client has a newer login: the refusal may arrive late.
    fn record_refusal(&mut self, client: &Client, reason: &str) {
        if client.login().is_none() {
            (self.status.is_logged_in, self.status.failure) = (false, Some(reason.to_owned()));
        }
    }
}

impl NsxSession {
    /// Creates the session. Sends nothing before a call needs a login, and nothing while this process is not the
    /// leader.
    pub fn new(
        server: impl Into<String>,
        source: LoginSource,
        throttle: Arc<dyn LoginThrottle>,
        leads: AnyLeader,
    ) -> Self {
        let server = server.into();
        if matches!(source, LoginSource::Pairs { .. }) {
            throttle.register_server(NSX_LOGIN_POLICY, &server);
        }
        Self {
            attempts: LoginAttempts::new(NSX_LOGIN_POLICY, &server, throttle),
            server,
            source,
            leads,
            login_requested: Notify::new(),
            login_rejected: Notify::new(),
            session_suspected: Notify::new(),
            answers: watch::Sender::default(),
            state: Mutex::default(),
        }
    }

    /// Returns the pause of logins that protects the account from lockout, if any.
    pub fn login_pause(&self) -> Option<LoginPause> {
        self.attempts.pause()
    }

    /// Returns the command that ends this pause for all replicas, if there is one.
    pub fn login_reset(&self) -> Option<String> {
        self.attempts.reset_of_pause()
    }

    /// Returns the state of the login.
    pub fn facts(&self) -> NsxSessionStatus {
        self.state.lock().status.clone()
    }

    /// Logs `client` in when a call needs a login, until `stop`. Then logs `client` out.
    pub async fn run(&self, client: &Client, stop: CancellationToken) {
        let mut leads = self.leads.clone();
        let mut tokens = match &self.source {
            LoginSource::Token(tokens) => Some(tokens.clone()),
            LoginSource::Certificate | LoginSource::Pairs { .. } => None,
        };
        let mut review = Instant::now() + LoginAttempts::review_pause();
        loop {
            let (leaving, renewal) = {
                let state = self.state.lock();
                (state.closing.iter().map(|leaving| leaving.due).min(), state.renewal)
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = leads.changed() => {
                    if !leads.is_leader() {
                        self.end_all(client).await;
                    }
                }
                () = self.login_rejected.notified() => self.count_refusals().await,
                () = self.session_suspected.notified() => self.run_with_grace(&stop, self.replace(client)).await,
                () = self.login_requested.notified() => self.run_with_grace(&stop, self.answer_request(client)).await,
                Some(()) = OptionFuture::from(renewal.map(sleep_until)) => self.run_with_grace(&stop, self.renew(client)).await,
                Some(()) = OptionFuture::from(leaving.map(sleep_until)) => self.end_replaced(client).await,
                () = another_token(&mut tokens) => {
                    self.state.lock().retry = None;
                    self.run_with_grace(&stop, self.renew(client)).await;
                }
                () = self.better_credentials() => self.run_with_grace(&stop, self.rotate(client)).await,
                () = sleep_until(review) => {
                    if self.attempts.review().await {
                        info!(
                            nsx = self.server,
                            "a paused login may be tried again: the failed logins were deleted, or another replica \
                             logged in"
                        );
                    }
                    review = Instant::now() + LoginAttempts::review_pause();
                }
            }
        }
        // Calls now fail immediately, because no login follows.
        self.state.lock().has_ended = true;
        self.answers.send_modify(|(count, failure)| (*count, *failure) = (count.wrapping_add(1), Some(ended())));
        // Other sessions of the account and other replicas need the count.
        tokio::join!(self.end_all(client), self.count_refusals());
    }

    /// Gives a login in flight up to 3 s after `stop`, so that a session can be ended.
    async fn run_with_grace(&self, stop: &CancellationToken, login: impl Future<Output = ()>) {
        let late = async {
            stop.cancelled().await;
            tokio::time::sleep(END).await;
        };
        tokio::select! {
            () = login => {}
            () = late => warn!(nsx = self.server, "a login was given up: it did not end within {END:?}"),
        }
    }

    /// Logs in unless the client has a login or this process is not the leader. Wakes the waiting calls.
    async fn answer_request(&self, client: &Client) {
        let result = match client.login() {
            Some(_) => Ok(()),
            None if !self.leads.is_leader() => Err(not_leading()),
            None => self.log_in_from_source(client).await,
        };
        {
            let facts = &mut self.state.lock().status;
            facts.is_logged_in = result.is_ok();
            facts.failure = result.as_ref().err().map(|failure| failure.reason.clone());
        }
        self.answers.send_modify(|(count, failure)| (*count, *failure) = (count.wrapping_add(1), result.err()));
    }

    async fn log_in_from_source(&self, client: &Client) -> Result<(), NoLogin> {
        match &self.source {
            LoginSource::Certificate => drop(client.adopt(Login::with_certificate())),
            LoginSource::Token(tokens) => self.exchange(client, tokens).await?,
            LoginSource::Pairs { offers, scheme } => {
                self.may_log_in()?;
                let (login, credential) = self.try_offered_credentials(client, offers, *scheme).await?;
                info!(nsx = self.server, from = %credential.origin, "logged in to NSX with a {login:?}");
                self.switch_to(client, login, credential);
            }
        }
        Ok(())
    }

    /// Fails while the next login, or the next exchange of tokens, has to wait.
    fn may_log_in(&self) -> Result<(), NoLogin> {
        let retry = self.state.lock().retry.clone();
        let Some((until, failure)) = retry.filter(|(until, _)| *until > Instant::now()) else { return Ok(()) };
        let seconds = until.saturating_duration_since(Instant::now()).as_secs();
        Err(NoLogin { reason: format!("the next login is in {seconds} s; {}", failure.reason), ..failure })
    }

    fn switch_to(&self, client: &Client, login: Login, credential: Arc<Credential>) {
        let before = client.adopt(login.clone());
        let mut state = self.state.lock();
        let used = state.in_use.replace(credential);
        let replaced = state.adopted.replace((login, Instant::now()));
        if replaced.is_some_and(|(_, made)| made.elapsed() >= SHORT_LIFE) {
            state.short_lived = 0;
        }
        (state.retry, state.login_failures) = (None, Failures::default());
        state.status = NsxSessionStatus { is_logged_in: true, ..NsxSessionStatus::default() };
        let leaving = |login| Leaving { due: Instant::now() + USE, login, credential: used };
        state.closing.extend(before.map(leaving));
    }

    /// Exchanges the offered refresh token for an access token, unless the backoff requires a wait. If the offered
    /// token is rejected, exchanges the last accepted refresh token.
    async fn exchange(&self, client: &Client, tokens: &watch::Receiver<Arc<Token>>) -> Result<(), NoLogin> {
        self.may_log_in()?;
        let (offered, before) = (Arc::clone(&tokens.borrow()), self.state.lock().exchanged.clone());
        let exchange =
            async |token: &Token| AccessToken::exchange(&token.service, &token.path, &token.refresh, USE).await;
        let mut token = Arc::clone(&offered);
        let mut result = exchange(&offered).await;
        let mut refused = None;
        if let (Err(error), Some(before)) = (&result, before.filter(|before| !Arc::ptr_eq(before, &offered)))
            && error.kind == Kind::Rejected
        {
            refused = Some(chain(error));
            (result, token) = (exchange(&before).await, before);
        }
        match result {
            Ok(_) if !self.leads.is_leader() => Err(not_leading()),
            Ok(access) => {
                drop(client.adopt(Login::with_token(&access)));
                let mut state = self.state.lock();
                (state.failures, state.retry) = (Failures::default(), None);
                state.renewal = Some(Instant::now() + access.lifetime.mul_f64(RENEWAL));
                state.exchanged = Some(token);
                if let Some(why) = &refused {
                    warn!(nsx = self.server, "the new token is not used, and the one of before is: {why}");
                }
                state.status = NsxSessionStatus { is_logged_in: true, rejected_credentials: refused, failure: None };
                Ok(())
            }
            Err(error) => {
                let why = format!("no token of VMware Cloud: {}", chain(&error));
                let failure = NoLogin { kind: error.kind.clone(), reason: why };
                let mut state = self.state.lock();
                let pause = state.failures.next_pause(&PASSING, fastrand::f64());
                state.retry = Some((Instant::now() + pause, failure.clone()));
                Err(failure)
            }
        }
    }

    /// Returns the error of a call whose certificate NSX rejects. Another login cannot help.
    fn refuse_certificate(&self, client: &Client) -> NoLogin {
        let why = "NSX does not accept the client certificate: it has to be that of a principal identity".to_owned();
        self.state.lock().record_refusal(client, &why);
        NoLogin { kind: Kind::Rejected, reason: why }
    }

    /// Returns the error of a call whose fresh token NSX rejects. The next exchange waits for a backoff.
    fn refuse_token(&self, client: &Client) -> NoLogin {
        let why = "NSX does not accept a fresh token of VMware Cloud".to_owned();
        let mut state = self.state.lock();
        state.record_refusal(client, &why);
        let failure = NoLogin { kind: Kind::Rejected, reason: why };
        // Hundreds of calls may fail at the same time, but only one failure counts.
        if state.retry.as_ref().is_none_or(|(until, _)| *until <= Instant::now()) {
            state.short_lived = state.short_lived.saturating_add(1);
            let pause = PASSING.pause(state.short_lived, fastrand::f64());
            state.retry = Some((Instant::now() + pause, failure.clone()));
        }
        failure
    }

    /// Renews the access token. If the renewal fails, the current token stays in use.
    async fn renew(&self, client: &Client) {
        self.state.lock().renewal = None;
        let LoginSource::Token(tokens) = &self.source else { return };
        if client.login().is_none() {
            return;
        }
        match self.exchange(client, tokens).await {
            // The previous token has worked until now, so it was not short-lived.
            Ok(()) => self.state.lock().short_lived = 0,
            Err(NoLogin { reason: why, .. }) => {
                warn!(nsx = self.server, "the token was not renewed: {why}");
                let mut state = self.state.lock();
                state.renewal = state.retry.as_ref().map(|(until, _)| *until);
                state.status.rejected_credentials = Some(why);
            }
        }
    }

    /// Waits for an offered credential that takes precedence over the credential in use and may be tried now.
    async fn better_credentials(&self) {
        let LoginSource::Pairs { offers, .. } = &self.source else { return std::future::pending().await };
        let mut changes = offers.clone();
        loop {
            changes.mark_unchanged();
            let (better, hold) = {
                let state = self.state.lock();
                let (offered, _) = offers.borrow().offered();
                // Without a login, the next call tries the offer. A standby makes no call.
                let in_use = state.in_use.clone().filter(|_| state.status.is_logged_in);
                let better = match in_use {
                    Some(in_use) => self.attempts.better(&offered, &in_use),
                    None => Better::Nothing,
                };
                (better, state.not_before.filter(|until| *until > Instant::now()))
            };
            let until = match better {
                Better::Nothing => None,
                Better::Same(credential) => {
                    self.state.lock().in_use = Some(credential);
                    None
                }
                Better::NotBefore(moment) => Some(Instant::now() + self.attempts.time_until(moment)),
                Better::Try(_) => match hold {
                    Some(until) => Some(until),
                    None => return,
                },
            };
            tokio::select! {
                changed = changes.changed() => {
                    if changed.is_err() {
                        std::future::pending::<()>().await;
                    }
                }
                Some(()) = OptionFuture::from(until.map(sleep_until)) => {}
            }
        }
    }

    /// Tries the better credential. If NSX refuses the credential, the current login stays in use.
    async fn rotate(&self, client: &Client) {
        let LoginSource::Pairs { offers, scheme } = &self.source else { return };
        let credential = {
            let Some(in_use) = self.state.lock().in_use.clone() else { return };
            let (offered, _) = offers.borrow().offered();
            match self.attempts.better(&offered, &in_use) {
                Better::Try(credential) => credential,
                Better::Nothing | Better::Same(_) | Better::NotBefore(_) => return,
            }
        };
        match self.try_credential(client, &credential, *scheme).await {
            // The switch happens even if a call has meanwhile observed the end of the previous login.
            Ok(login) if self.leads.is_leader() => {
                info!(nsx = self.server, from = %credential.origin, "the login to NSX is made with other credentials now");
                self.switch_to(client, login, credential);
                self.state.lock().failures = Failures::default();
            }
            Ok(login) => self.log_out(client, login).await,
            Err(NoLogin { reason: why, .. }) => {
                warn!(nsx = self.server, "new credentials are not used, and the login stays: {why}");
                let mut state = self.state.lock();
                let pause = state.failures.next_pause(&PASSING, fastrand::f64());
                state.not_before = Some(Instant::now() + pause);
                state.status.rejected_credentials = Some(why);
            }
        }
    }

    /// Logs in again after a web page answered a call, because the session may have ended. The session stays in use
    /// until NSX accepts the login.
    async fn replace(&self, client: &Client) {
        let in_use = self.state.lock().in_use.clone();
        if let (LoginSource::Pairs { scheme, .. }, Some(credential)) = (&self.source, in_use) {
            match self.try_credential(client, &credential, *scheme).await {
                Ok(login) if self.leads.is_leader() => {
                    info!(nsx = self.server, "a page came in place of an answer, and the session is replaced");
                    self.switch_to(client, login, credential);
                }
                Ok(login) => self.log_out(client, login).await,
                Err(NoLogin { reason: why, .. }) => {
                    warn!(nsx = self.server, "a page came in place of an answer, and the session stays: {why}");
                }
            }
        }
        self.answers.send_modify(|(count, _)| *count = count.wrapping_add(1));
    }

    /// Records the end of a session. Consecutive short-lived sessions must not cause a login per call. Therefore,
    /// per-request authentication replaces sessions or, if NSX refuses this, each new session waits for a backoff.
    fn record_over(&self, over: &Login) {
        let mut state = self.state.lock();
        let Some((login, made)) = state.adopted.take_if(|(adopted, _)| adopted.is(over)) else { return };
        if !login.is_session() {
            return;
        }
        if made.elapsed() >= SHORT_LIFE {
            state.short_lived = 0;
            return;
        }
        state.short_lived = state.short_lived.saturating_add(1);
        if state.short_lived < SHORT_LIVES {
            return;
        }
        let why = format!(
            "the last {} sessions were over within {} s each: the load balancer before the NSX Managers has no session \
             affinity; it has to send all requests of a client to the same manager",
            state.short_lived,
            SHORT_LIFE.as_secs()
        );
        if state.session_mode == SessionMode::Usable {
            warn!(nsx = self.server, "user and password are sent with each request from now on: {why}");
            state.session_mode = SessionMode::ShortLived;
        }
        if state.session_mode == SessionMode::Required {
            let pause = HARMLESS.pause(state.short_lived - SHORT_LIVES + 1, fastrand::f64());
            state.retry = Some((Instant::now() + pause, NoLogin { kind: Kind::Unavailable, reason: why }));
        }
    }

    /// Counts rejected requests in the login throttle, because each rejection was a failed login for the account.
    async fn count_refusals(&self) {
        let uncounted = std::mem::take(&mut self.state.lock().unreported);
        // Together, so that this process counts each of them, even if the shared record cannot be written.
        let counts = uncounted.iter().map(|credential| self.attempts.count_rejection(credential));
        if timeout(COUNT, futures::future::join_all(counts)).await.is_err() {
            warn!(nsx = self.server, "rejected requests were not counted for other replicas within {COUNT:?}");
        }
    }

    async fn end_replaced(&self, client: &Client) {
        let now = Instant::now();
        let due: Vec<Login> = {
            let mut state = self.state.lock();
            let (due, later) = std::mem::take(&mut state.closing).into_iter().partition(|leaving| leaving.due <= now);
            state.closing = later;
            let due: Vec<Leaving> = due;
            due.into_iter().map(|leaving| leaving.login).collect()
        };
        for login in due {
            self.log_out(client, login).await;
        }
    }

    /// Ends every login, in at most 3 s.
    async fn end_all(&self, client: &Client) {
        let logins: Vec<Login> = {
            let mut state = self.state.lock();
            state.renewal = None;
            // The next term of leadership observes again whether sessions work.
            (state.session_mode, state.short_lived) = (SessionMode::Usable, 0);
            state.status.is_logged_in = false;
            let leaving = std::mem::take(&mut state.closing);
            leaving.into_iter().map(|leaving| leaving.login).chain(client.take()).collect()
        };
        futures::future::join_all(logins.into_iter().map(|login| self.log_out(client, login))).await;
    }

    async fn log_out(&self, client: &Client, login: Login) {
        match timeout(END, client.end(login)).await {
            Ok(Ok(())) => debug!(nsx = self.server, "logged out of NSX"),
            Ok(Err(error)) => warn!(nsx = self.server, error = chain(&error), "the session could not be ended"),
            Err(_) => warn!(nsx = self.server, "the session could not be ended within {END:?}"),
        }
    }
}

#[async_trait]
impl LogIn for NsxSession {
    async fn log_in(&self, client: &Client, over: Option<&Login>) -> Result<(), NoLogin> {
        if over.is_some() && matches!(self.source, LoginSource::Certificate) {
            return Err(self.refuse_certificate(client));
        }
        if let Some(over) = over {
            self.record_over(over);
        }
        let mut tries = self.answers.subscribe();
        let before = tries.borrow_and_update().0;
        if self.state.lock().has_ended {
            return Err(ended());
        }
        self.login_requested.notify_one();
        let tried = tries.wait_for(|(count, _)| *count != before);
        match timeout(WAIT, tried).await {
            // The login may have succeeded and ended again after leadership was lost.
            Ok(Ok(_)) if client.login().is_none() && !self.leads.is_leader() => Err(not_leading()),
            Ok(Ok(tried)) if client.login().is_none() => {
                let unknown = || NoLogin { kind: Kind::Unavailable, reason: "the login was ended".to_owned() };
                Err(tried.1.clone().unwrap_or_else(unknown))
            }
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(ended()),
            Err(_) => {
                let reason = format!("no login within {} s", WAIT.as_secs());
                Err(NoLogin { kind: Kind::Unavailable, reason })
            }
        }
    }

    async fn log_in_otherwise(&self, client: &Client, over: &Login) -> Result<(), NoLogin> {
        match &self.source {
            LoginSource::Certificate => Err(self.refuse_certificate(client)),
            LoginSource::Token(_) => Err(self.refuse_token(client)),
            LoginSource::Pairs { .. } => {
                self.record_over(over);
                match self.state.lock().session_mode {
                    SessionMode::ShortLived | SessionMode::PerRequest => {}
                    // NSX has accepted the login, so the password is valid. The next call may log in again.
                    SessionMode::Usable | SessionMode::Required => {
                        let reason = "NSX accepts the login and refuses the requests after it".to_owned();
                        return Err(NoLogin { kind: Kind::SessionOver, reason });
                    }
                }
                LogIn::log_in(self, client, None).await
            }
        }
    }

    async fn recheck_login(&self, client: &Client, suspected: &Login) -> bool {
        let has_another = || client.login().is_some_and(|current| !current.is(suspected));
        if has_another() {
            return true;
        }
        let mut tries = self.answers.subscribe();
        let before = tries.borrow_and_update().0;
        {
            let mut state = self.state.lock();
            let is_of_age = |(login, made): &(Login, Instant)| login.is(suspected) && made.elapsed() >= SHORT_LIFE;
            let is_due = state.suspected_since.is_none_or(|at| at.elapsed() >= SUSPICION_WINDOW);
            if state.has_ended || !is_due || !state.adopted.as_ref().is_some_and(is_of_age) {
                return false;
            }
            state.suspected_since = Some(Instant::now());
        }
        self.session_suspected.notify_one();
        // Without a new login in time, the session stays in use.
        drop(timeout(WAIT, tries.wait_for(|(count, _)| *count != before)).await);
        has_another()
    }

    /// Counts the rejection of a previously accepted password. When the rejection arrives, another login may be in use.
    fn rejected(&self, login: &Login) {
        let mut state = self.state.lock();
        let is_adopted = state.adopted.as_ref().is_some_and(|(adopted, _)| adopted.is(login));
        let replaced = state.closing.iter().find(|leaving| leaving.login.is(login));
        let replaced = replaced.and_then(|leaving| leaving.credential.clone());
        let Some(presented) = replaced.or_else(|| state.in_use.clone().filter(|_| is_adopted)) else { return };
        let reason = "NSX refused user and password with a request".to_owned();
        warn!(nsx = self.server, "{reason}");
        self.attempts.reject(&presented, Interface::Primary, reason, Duration::ZERO);
        if is_adopted {
            state.status.is_logged_in = false;
            if state.session_mode == SessionMode::PerRequest {
                // If per-request authentication has worked for at least 5 s, sessions are tried again. Otherwise, NSX
                // refuses per-request authentication, and sessions are required.
                let has_served = state.adopted.as_ref().is_some_and(|(_, made)| made.elapsed() >= SHORT_LIFE);
                (state.session_mode, state.short_lived) =
                    if has_served { (SessionMode::Usable, 0) } else { (SessionMode::Required, state.short_lived) };
            }
        }
        state.unreported.push(presented);
        drop(state);
        self.login_rejected.notify_one();
    }
}

fn not_leading() -> NoLogin {
    NoLogin { kind: Kind::NotPermitted, reason: "this process is not the leader".to_owned() }
}

fn ended() -> NoLogin {
    NoLogin { kind: Kind::Unavailable, reason: "this connection to NSX has ended".to_owned() }
}

async fn another_token(tokens: &mut Option<watch::Receiver<Arc<Token>>>) {
    if let Some(offered) = tokens
        && offered.changed().await.is_ok()
    {
        return;
    }
    *tokens = None;
    std::future::pending().await
}

#[cfg(test)]
mod tests;
