//! One login with user and password: claims an attempt in the ledger, sends the login, and records the outcome.

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio::time::Instant;

use tracing::warn;

use super::{NsxSession, Sessions};
use crate::base::backoff::Backoff;
use crate::base::error_chain::chain;
use crate::clients::nsx::{Client, Error, Kind, Login, NoLogin, Scheme};
use crate::cloud::login_ledger::{LoginClaim, Outcome};
use crate::providers::vsphere::login::credentials::{self, Credential, CredentialState, Offers, Origin};
use crate::providers::vsphere::login::policy::NSX_LOGIN_POLICY;
use crate::providers::vsphere::login::schedule::{Interface, LoginBlocked, LoginSchedule, Rejection, account, place};

/// Backoff after a login that an overloaded or failing manager refused. Without a backoff, hundreds of calls would each
/// log in.
pub(super) const HARMLESS: Backoff =
    Backoff::doubling(Duration::from_secs(1), Duration::from_secs(10)).shortened_by(0.5);

/// Backoff after a login without an answer. NSX may have counted a rejection, so the ledger grants only a few
/// unanswered logins in 15 minutes. With this backoff, these few logins cover an outage of one minute.
const UNANSWERED: Backoff = Backoff::doubling(Duration::from_secs(10), Duration::from_secs(60)).shortened_by(0.5);

impl NsxSession {
    /// Tries [`LoginSchedule::candidates`] in order, until NSX accepts one. Stops at an attempt that fails without a
    /// rejection, or at a credential that may not be tried.
    pub(super) async fn log_in_with(
        &self,
        client: &Client,
        offers: &Offers,
        scheme: Scheme,
    ) -> Result<(Login, Arc<Credential>), NoLogin> {
        let (offered, nothing) = match &**offers.borrow() {
            CredentialState::Ready(credentials) => (credentials.clone(), None),
            CredentialState::Pending { reason: why } | CredentialState::Missing { reason: why } => {
                (Vec::new(), Some(why.clone()))
            }
        };
        let in_use = {
            let mut state = self.state.lock();
            let in_use = state.in_use.clone();
            state.schedule.forget_others(&offered, in_use.as_ref());
            in_use
        };
        let mut last = None;
        for credential in LoginSchedule::candidates(&offered, in_use.as_ref()) {
            if !self.state.lock().schedule.may_be_tried(&credential, &offered) {
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

    /// Logs in with this credential, unless the schedule or the ledger requires a wait. The login in use stays in use.
    pub(super) async fn try_credential(
        &self,
        client: &Client,
        credential: &Arc<Credential>,
        scheme: Scheme,
    ) -> Result<Login, NoLogin> {
        let credentials::Login::Password { user, password } = &credential.login else {
            let why = "expected a user name and a password for NSX, found a certificate or a URL".to_owned();
            return Err(NoLogin { kind: Kind::Unavailable, reason: why });
        };
        let claim = match self.claim_attempt(credential).await {
            Ok(claim) => claim,
            Err(blocked) => {
                let why =
                    format!("{}: {}", blocked.what(&self.login_of(credential)), self.why_blocked(credential, &blocked));
                let was_rejected = self.state.lock().schedule.was_rejected(credential);
                let kind = if was_rejected { Kind::Rejected } else { Kind::Unavailable };
                return Err(NoLogin { kind, reason: why });
            }
        };
        let sessions = self.state.lock().sessions;
        match submit(client, sessions, (scheme, user, password)).await {
            Ok(login) => {
                self.accepted(credential, sessions);
                self.ledger.record_outcome(claim, Outcome::Accepted).await;
                Ok(login)
            }
            Err(error) if sessions == Sessions::End && error.kind == Kind::Rejected && self.is_in_use(credential) => {
                // NSX has just opened a session with the same password, so the password is valid. The ledger keeps the
                // request as unanswered until NSX accepts the next login.
                self.ledger.record_outcome(claim, Outcome::Unanswered).await;
                Err(self.require_sessions(&error))
            }
            Err(error) => Err(self.settle_failed(claim, credential, &error).await),
        }
    }

    fn accepted(&self, credential: &Arc<Credential>, sessions: Sessions) {
        let mut state = self.state.lock();
        state.schedule.accepted(credential, Interface::Primary);
        match sessions {
            Sessions::End => state.sessions = Sessions::Replaced,
            // NSX refused per-request authentication while another password was in use. With the new password, sessions
            // and then per-request authentication are tried again.
            Sessions::Required if state.in_use.as_ref().is_some_and(|in_use| in_use.login != credential.login) => {
                (state.sessions, state.short_lived) = (Sessions::Serve, 0);
            }
            _ => {}
        }
    }

    async fn settle_failed(&self, claim: LoginClaim, credential: &Arc<Credential>, error: &Error) -> NoLogin {
        let outcome = outcome(error);
        self.account_for(&claim, credential, outcome, chain(error));
        self.ledger.record_outcome(claim, outcome).await;
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
        state.sessions = Sessions::Required;
        state.retry = Some((Instant::now() + HARMLESS.pause(1, fastrand::f64()), failure.clone()));
        failure
    }

    /// Checks the local schedule, then claims an attempt in the shared ledger.
    async fn claim_attempt(&self, credential: &Arc<Credential>) -> Result<LoginClaim, LoginBlocked> {
        let attempt = {
            let state = self.state.lock();
            if let Some(blocked) = state.schedule.blocked(credential, Interface::Primary, self.began.elapsed()) {
                return Err(blocked);
            }
            state.schedule.attempt(credential, &self.server)
        };
        self.ledger.claim(&attempt).await.map_err(|refused| {
            let held = match refused.is_lockout {
                true => self.now().lockout(refused.pause, refused.reason),
                false => self.now().wait(refused.pause, refused.reason),
            };
            self.state.lock().schedule.hold(credential, Interface::Primary, held.clone());
            held
        })
    }

    fn account_for(&self, claim: &LoginClaim, credential: &Arc<Credential>, outcome: Outcome, reason: String) {
        let mut state = self.state.lock();
        match outcome {
            Outcome::Rejected => {
                let rejection = self.rejection(reason, claim.pause_if_rejected);
                state.schedule.rejected(credential, Interface::Primary, rejection, fastrand::f64());
            }
            Outcome::Unanswered => state.schedule.unanswered(credential),
            Outcome::Accepted | Outcome::Harmless => {}
        }
    }

    pub(super) fn rejection(&self, why: String, least: Duration) -> Rejection {
        Rejection { moment: self.now(), reason: why, min_pause: least }
    }

    fn login_of(&self, credential: &Credential) -> String {
        let location = place(&credential.origin, || "[NSXT] in the cloud config".to_owned());
        format!("NSX {} as {:?} (credentials from {location})", self.server, account(&credential.login))
    }

    fn why_blocked(&self, credential: &Credential, blocked: &LoginBlocked) -> String {
        let reset = self.ledger.reset_command(NSX_LOGIN_POLICY, &self.server, account(&credential.login));
        blocked.why(NSX_LOGIN_POLICY, matches!(credential.origin, Origin::Secret { .. }), reset.as_deref())
    }
}

/// Opens a session. Uses per-request authentication if sessions end within seconds or the manager has no sessions.
async fn submit(
    client: &Client,
    sessions: Sessions,
    (scheme, user, password): (Scheme, &str, &SecretString),
) -> Result<Login, Error> {
    if matches!(sessions, Sessions::Serve | Sessions::Required)
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

fn is_of_gateway(status: u16) -> bool {
    matches!(status, 408 | 502 | 504)
}
