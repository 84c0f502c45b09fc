//! One login: claims an attempt in the ledger, sends the login, and records the outcome.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::timeout;

use super::Session;
use super::failure::{ConnectionFailure, FailureCause, Pause, RestFailure};
use super::handle::SessionHandle;
use crate::base::error_chain::chain;
use crate::clients::{http, session_manager, sts, vapi, vim};
use crate::cloud::login_ledger::{LoginClaim, Outcome};
use crate::providers::vsphere::login::credentials::{Credential, Login, Origin};
use crate::providers::vsphere::login::policy::LOGIN_POLICY;
use crate::providers::vsphere::login::schedule::{Interface, LoginBlocked, Rejection, account, place};

/// Time limit for reading a token from a file.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// Whether the session is a clone of a shared session, for which REST has no login.
pub(super) fn is_shared(credential: &Credential) -> bool {
    matches!(credential.login, Login::SharedSession { .. })
}

impl Session {
    /// Logs in over SOAP, unless the login has to wait.
    pub(super) async fn try_credential(
        &self,
        link: &SessionHandle,
        credential: &Arc<Credential>,
    ) -> Result<(), ConnectionFailure> {
        // Begins before the claim, so that a stop does not leave a claim behind.
        let _under_way = self.logins.begin();
        let claim = match self.claim_attempt(credential, Interface::Primary).await {
            Ok(claim) => claim,
            Err(blocked) => {
                let pause = blocked.until.saturating_sub(self.began.elapsed());
                let was_rejected = self.state.lock().schedule.was_rejected(credential);
                let source = FailureCause::Held { message: self.why_blocked(credential, &blocked), was_rejected };
                let during = blocked.what(&self.login_of(credential));
                return Err(ConnectionFailure { during, source, pause: Pause::For(pause) });
            }
        };
        match self.submit(&link.soap, &credential.login).await {
            Ok(()) => {
                {
                    let mut state = self.state.lock();
                    state.schedule.accepted(credential, Interface::Primary);
                    state.status.soap_logins += 1;
                }
                self.ledger.record_outcome(claim, Outcome::Accepted).await;
                Ok(())
            }
            Err(cause) => {
                let outcome = if is_shared(credential) { Outcome::Harmless } else { outcome(&cause) };
                let pause = self.account_for(&claim, credential, Interface::Primary, outcome, || chain(&cause));
                self.ledger.record_outcome(claim, outcome).await;
                let during = match cause.is_invalid_login() {
                    true => self.rejected(credential),
                    false => format!("failed to log in to {}", self.login_of(credential)),
                };
                Err(ConnectionFailure { during, source: cause, pause })
            }
        }
    }

    /// Logs in over REST, unless the login has to wait.
    pub(super) async fn enter_rest(
        &self,
        link: &SessionHandle,
        credential: &Arc<Credential>,
    ) -> Result<(), RestFailure> {
        let _under_way = self.logins.begin();
        let claim = self.claim_attempt(credential, Interface::Rest).await.map_err(|blocked| RestFailure::Held {
            pause: blocked.until.saturating_sub(self.began.elapsed()),
            message: format!(
                "{}: {}",
                blocked.what(&self.login_of(credential)),
                self.why_blocked(credential, &blocked)
            ),
        })?;
        match self.present_rest(&link.rest, &credential.login).await {
            Ok(()) => {
                {
                    let mut state = self.state.lock();
                    state.schedule.accepted(credential, Interface::Rest);
                    state.status.rest_logins += 1;
                }
                self.ledger.record_outcome(claim, Outcome::Accepted).await;
                Ok(())
            }
            Err(error) => {
                let outcome = rest_outcome(&error);
                self.account_for(&claim, credential, Interface::Rest, outcome, || chain(&error));
                self.ledger.record_outcome(claim, outcome).await;
                Err(error)
            }
        }
    }

    /// Checks the local schedule, then claims an attempt in the shared ledger.
    async fn claim_attempt(
        &self,
        credential: &Arc<Credential>,
        interface: Interface,
    ) -> Result<LoginClaim, LoginBlocked> {
        let attempt = {
            let state = self.state.lock();
            if let Some(blocked) = state.schedule.blocked(credential, interface, self.began.elapsed()) {
                return Err(blocked);
            }
            state.schedule.attempt(credential, &self.names.server)
        };
        self.ledger.claim(&attempt).await.map_err(|refused| {
            let held = match refused.is_lockout {
                true => self.now().lockout(refused.pause, refused.reason),
                false => self.now().wait(refused.pause, refused.reason),
            };
            self.state.lock().schedule.hold(credential, interface, held.clone());
            self.pauses.notify_one();
            held
        })
    }

    /// Records the outcome of a failed login. Returns the pause before the next attempt.
    fn account_for(
        &self,
        claim: &LoginClaim,
        credential: &Arc<Credential>,
        interface: Interface,
        outcome: Outcome,
        why: impl FnOnce() -> String,
    ) -> Pause {
        let mut state = self.state.lock();
        match outcome {
            Outcome::Rejected => {
                state.status.rejections += 1;
                self.pauses.notify_one();
                let rejection = Rejection { moment: self.now(), reason: why(), min_pause: claim.pause_if_rejected };
                Pause::For(state.schedule.rejected(credential, interface, rejection, fastrand::f64()))
            }
            Outcome::Unanswered => {
                state.status.unanswered += 1;
                state.schedule.unanswered(credential);
                Pause::Backoff
            }
            Outcome::Accepted | Outcome::Harmless => Pause::Backoff,
        }
    }

    fn login_of(&self, credential: &Credential) -> String {
        let server = &self.names.server;
        let location = place(&credential.origin, || self.spelling().credentials_place());
        match &credential.login {
            Login::Password { .. } => {
                format!("vCenter {server} as {:?} (credentials from {location})", account(&credential.login))
            }
            Login::Certificate { .. } => format!("vCenter {server} with the certificate of {location}"),
            Login::SharedSession { .. } => format!("vCenter {server} through the session manager of {location}"),
        }
    }

    /// Returns the text for rejected credentials. vCenter does not distinguish wrong passwords from locked accounts.
    fn rejected(&self, credential: &Credential) -> String {
        let causes = match credential.login {
            Login::Password { .. } => ": wrong user or password, or the account is locked, disabled or expired",
            Login::Certificate { .. } | Login::SharedSession { .. } => "",
        };
        format!("login rejected by {}{causes}", self.login_of(credential))
    }

    /// Returns a text with the reason of a wait and the way to end the wait.
    fn why_blocked(&self, credential: &Credential, blocked: &LoginBlocked) -> String {
        let reset = self.ledger.reset_command(LOGIN_POLICY, &self.names.server, account(&credential.login));
        blocked.why(LOGIN_POLICY, matches!(credential.origin, Origin::Secret { .. }), reset.as_deref())
    }

    async fn submit(&self, soap: &vim::Client, login: &Login) -> Result<(), FailureCause> {
        match login {
            Login::Password { user, password } => Ok(soap.login(user, password).await.map(drop)?),
            Login::Certificate { certificate, key } => {
                let token = sts::issue(&self.http, certificate, key, Timestamp::now()).await?;
                Ok(soap.login_by_token(&token, Timestamp::now()).await.map(drop)?)
            }
            Login::SharedSession { url, token } => {
                let late = |_| Err(format!("the token was not read within {} s", READ_LIMIT.as_secs()));
                let token = timeout(READ_LIMIT, token.read())
                    .await
                    .unwrap_or_else(late)
                    .map_err(FailureCause::NoCredentials)?;
                let ticket = session_manager::fetch_ticket(&self.http, url, &token).await?;
                Ok(soap.clone_session(&ticket).await.map(drop)?)
            }
        }
    }

    async fn present_rest(&self, rest: &vapi::Client, login: &Login) -> Result<(), RestFailure> {
        match login {
            Login::Password { user, password } => Ok(rest.login(user, password).await?),
            Login::Certificate { certificate, key } => {
                let token = sts::issue(&self.http, certificate, key, Timestamp::now()).await?;
                Ok(rest.login_signed(&token, Timestamp::now()).await?)
            }
            // A shared session has no REST login, because REST uses the SOAP session.
            Login::SharedSession { .. } => Err(RestFailure::NoSession),
        }
    }
}

/// Classifies a failed login by its effect on the server: rejected, unanswered or harmless. Only an invalid-login fault
/// proves that the credentials are wrong; any other fault is harmless. A rejected ticket of a session manager is
/// harmless, because each login fetches a new ticket.
fn outcome(cause: &FailureCause) -> Outcome {
    match cause {
        FailureCause::Soap(error) if error.is_invalid_login() => Outcome::Rejected,
        FailureCause::Soap(vim::Error::Fault { .. } | vim::Error::NotVcenter { .. }) => Outcome::Harmless,
        FailureCause::Soap(vim::Error::Http(error)) if was_never_checked(error) => Outcome::Harmless,
        FailureCause::Soap(vim::Error::Http(_) | vim::Error::Malformed { .. }) => Outcome::Unanswered,
        FailureCause::Token(error) => token_outcome(error),
        FailureCause::Ticket(_) => Outcome::Harmless,
        FailureCause::Held { .. }
        | FailureCause::NoCredentials(_)
        | FailureCause::CredentialsUnread(_)
        | FailureCause::Other(_) => Outcome::Harmless,
    }
}

fn rest_outcome(failure: &RestFailure) -> Outcome {
    match failure {
        RestFailure::Rest(error) if error.is_invalid_login() => Outcome::Rejected,
        RestFailure::Rest(vapi::Error::Http(error)) if was_never_checked(error) => Outcome::Harmless,
        RestFailure::Rest(vapi::Error::Refused { status, .. }) if is_of_gateway(*status) => Outcome::Unanswered,
        RestFailure::Rest(vapi::Error::Refused { .. } | vapi::Error::NoSession { .. }) => Outcome::Harmless,
        RestFailure::Rest(vapi::Error::Http(_) | vapi::Error::Malformed { .. }) => Outcome::Unanswered,
        RestFailure::Token(error) => token_outcome(error),
        RestFailure::Held { .. } | RestFailure::NoSession => Outcome::Harmless,
    }
}

fn token_outcome(error: &sts::Error) -> Outcome {
    match error {
        _ if error.is_invalid_login() => Outcome::Rejected,
        sts::Error::Key(_) | sts::Error::NotThere { .. } | sts::Error::Fault { .. } => Outcome::Harmless,
        sts::Error::Http(error) if was_never_checked(error) => Outcome::Harmless,
        sts::Error::Http(_) | sts::Error::Malformed { .. } => Outcome::Unanswered,
    }
}

/// Whether the credentials were never checked, because nothing was sent or a busy server refused the request.
fn was_never_checked(error: &http::Error) -> bool {
    use http::Error::{Certificate, Configuration, Connect, Proxy, Resolve, Status, Tls};
    match error {
        Configuration { .. } | Resolve { .. } | Connect { .. } | Proxy { .. } => true,
        Certificate { .. } | Tls { .. } => true,
        Status(_, status, _) => is_busy(*status),
        _ => false,
    }
}

fn is_busy(status: u16) -> bool {
    matches!(status, 429 | 503)
}

/// Whether a gateway sent this status, so that the outcome of the login is unknown.
fn is_of_gateway(status: u16) -> bool {
    matches!(status, 408 | 502 | 504)
}
