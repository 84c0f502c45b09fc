//! One login with user and password: sends the login, and classifies its outcome.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio::time::Instant;

use tracing::warn;

use super::{NsxSession, SessionMode};
use crate::base::backoff::Backoff;
use crate::base::error_chain::chain;
use crate::clients::nsx::{Client, Error, Kind, Login, NoLogin, Scheme};
use crate::cloud::login_ledger::Outcome;
use crate::providers::vsphere::login::attempt::{LoginAttempt, is_of_gateway};
use crate::providers::vsphere::login::credentials::{self, Credential, Offers};
use crate::providers::vsphere::login::schedule::{Interface, account, place};

/// Backoff after a login that an overloaded or failing manager refused. Without a backoff, hundreds of calls would each
/// log in.
pub(super) const HARMLESS: Backoff =
    Backoff::doubling(Duration::from_secs(1), Duration::from_secs(10)).shortened_by(0.5);

/// Backoff after a login without an answer. NSX may have counted a rejection, so the login throttle grants only a few
/// unanswered logins in 15 minutes. With this backoff, these few logins cover an outage of one minute.
const UNANSWERED: Backoff = Backoff::doubling(Duration::from_secs(10), Duration::from_secs(60)).shortened_by(0.5);

impl NsxSession {
    /// Tries `LoginAttempts::candidates` in order, until NSX accepts one. Stops at an attempt that fails without a
    /// rejection, or at a credential that may not be tried.
    pub(super) async fn try_offered_credentials(
        &self,
        client: &Client,
        offers: &Offers,
        scheme: Scheme,
    ) -> Result<(Login, Arc<Credential>), NoLogin> {
        let (offered, nothing) = offers.borrow().offered();
        let in_use = self.state.lock().in_use.clone();
        let mut last = None;
        for credential in self.attempts.candidates(&offered, in_use.as_ref()) {
            if !self.attempts.schedule().may_be_tried(&credential, &offered) {
                break;
            }
            match self.try_credential(client, &credential, scheme).await {
                Ok(login) => return Ok((login, credential)),
                Err(failure) if failure.kind == Kind::Rejected => last = last.or(Some(failure)),
                Err(failure) => return Err(failure),
            }
        }
        Err(last.unwrap_or_else(|| NoLogin {
            kind: Kind::Unavailable,
            reason: nothing.unwrap_or_else(|| "there are no credentials for NSX".to_owned()),
        }))
    }

    /// Logs in with this credential, unless the schedule or the login throttle requires a wait. The login in use stays
    /// in use.
    pub(super) async fn try_credential(
        &self,
        client: &Client,
        credential: &Arc<Credential>,
        scheme: Scheme,
    ) -> Result<Login, NoLogin> {
        // The task may take the request for a login before the signal of a rejection, which the login throttle has to
        // count before it decides about another attempt.
        self.count_refusals().await;
        let credentials::Login::Password { user, password } = &credential.login else {
            let why = "expected a user name and a password for NSX, found a certificate or a URL".to_owned();
            return Err(NoLogin { kind: Kind::Unavailable, reason: why });
        };
        let attempt = match self.attempts.claim(credential, Interface::Primary).await {
            Ok(attempt) => attempt,
            Err(blocked) => {
                let why = self.attempts.why_blocked(credential, &blocked);
                let why = format!("{}: {why}", blocked.what(&self.login_of(credential)));
                let was_rejected = self.attempts.schedule().was_rejected(credential);
                let kind = if was_rejected { Kind::Rejected } else { Kind::Unavailable };
                return Err(NoLogin { kind, reason: why });
            }
        };
        let mode = self.state.lock().session_mode;
        match submit(client, mode, (scheme, user, password)).await {
            Ok(login) => {
                self.accepted(credential, mode);
                attempt.accepted().await;
                Ok(login)
            }
            Err(error)
                if mode == SessionMode::ShortLived && error.kind == Kind::Rejected && self.is_in_use(credential) =>
            {
                // NSX has just opened a session with the same password, so the password is valid. The login throttle
                // keeps the request as unanswered until NSX accepts the next login.
                attempt.counts_as(Outcome::Unanswered).await;
                Err(self.require_sessions(&error))
            }
            Err(error) => Err(self.failed(attempt, credential, &error).await),
        }
    }

    fn accepted(&self, credential: &Arc<Credential>, mode: SessionMode) {
        let mut state = self.state.lock();
        match mode {
            SessionMode::ShortLived => state.session_mode = SessionMode::PerRequest,
            // NSX refused per-request authentication while another password was in use. With the new password, sessions
            // and then per-request authentication are tried again.
            SessionMode::Required if state.in_use.as_ref().is_some_and(|in_use| in_use.login != credential.login) => {
                (state.session_mode, state.short_lived) = (SessionMode::Usable, 0);
            }
            _ => {}
        }
    }

    async fn failed(&self, attempt: LoginAttempt<'_>, credential: &Credential, error: &Error) -> NoLogin {
        let outcome = outcome(error);
        attempt.failed(outcome, chain(error)).await;
        let why = match outcome {
            Outcome::Rejected => format!(
                "login rejected by {}: wrong user or password, or the account is locked, disabled or expired: {}",
                self.login_of(credential),
                chain(error)
            ),
            _ => format!("failed to log in to {}: {}", self.login_of(credential), chain(error)),
        };
        let failure = NoLogin { kind: error.kind.clone(), reason: why };
        if outcome != Outcome::Rejected {
            let mut state = self.state.lock();
            let backoff = if outcome == Outcome::Unanswered { &UNANSWERED } else { &HARMLESS };
            let pause = state.login_failures.next_pause(backoff, fastrand::f64());
            let pause = pause.max(error.retry_after().unwrap_or_default());
            state.retry = Some((Instant::now() + pause, failure.clone()));
        }
        failure
    }

    fn is_in_use(&self, credential: &Credential) -> bool {
        self.state.lock().in_use.as_ref().is_some_and(|in_use| in_use.login == credential.login)
    }

    /// Requires sessions, because NSX refuses per-request authentication. The next session waits for a backoff.
    fn require_sessions(&self, refused: &Error) -> NoLogin {
        let why = format!(
            "sessions were over at once, and NSX does not accept user and password with each request: a load balancer before \
             the NSX Managers has to send all requests of a client to the same manager: {}",
            chain(refused)
        );
        warn!(nsx = self.server, "{why}");
        let failure = NoLogin { kind: Kind::Unavailable, reason: why };
        let mut state = self.state.lock();
        state.session_mode = SessionMode::Required;
        state.retry = Some((Instant::now() + HARMLESS.pause(1, fastrand::f64()), failure.clone()));
        failure
    }

    fn login_of(&self, credential: &Credential) -> String {
        let location = place(&credential.origin, || "[NSXT] in the cloud config".to_owned());
        format!("NSX {} as {:?} (credentials from {location})", self.server, account(&credential.login))
    }
}

/// Opens a session. Uses per-request authentication if sessions end within seconds or the manager has no sessions.
async fn submit(
    client: &Client,
    mode: SessionMode,
    (scheme, user, password): (Scheme, &str, &SecretString),
) -> Result<Login, Error> {
    if matches!(mode, SessionMode::Usable | SessionMode::Required)
        && let Some(login) = client.open_session(scheme, user, password).await?
    {
        return Ok(login);
    }
    client.try_basic(scheme, user, password).await
}

/// Returns the outcome of a failed login. After a lost answer or gateway timeout, NSX may have counted a rejection.
fn outcome(error: &Error) -> Outcome {
    match error.kind {
        Kind::Rejected => Outcome::Rejected,
        Kind::Unknown => Outcome::Unanswered,
        Kind::Unavailable if error.http_error().is_none() && error.status().is_none_or(is_of_gateway) => {
            Outcome::Unanswered
        }
        _ => Outcome::Harmless,
    }
}
