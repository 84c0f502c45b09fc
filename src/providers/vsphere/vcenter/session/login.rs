//! One login over SOAP or REST: sends the login, and classifies its outcome.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::timeout;

use super::Session;
use super::failure::{ConnectionFailure, FailureCause, Pause, RestFailure};
use super::handle::SessionHandle;
use crate::base::error_chain::chain;
use crate::clients::{http, session_manager, sts, vapi, vim};
use crate::cloud::login_ledger::Outcome;
use crate::providers::vsphere::login::attempt::is_of_gateway;
use crate::providers::vsphere::login::credentials::{Credential, Login};
use crate::providers::vsphere::login::schedule::{Interface, account, place};

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
        handle: &SessionHandle,
        credential: &Arc<Credential>,
    ) -> Result<(), ConnectionFailure> {
        // Begins before the claim, so that a stop does not leave a claim behind.
        let _under_way = self.logins.begin();
        let attempt = match self.attempts.claim(credential, Interface::Primary).await {
            Ok(attempt) => attempt,
            Err(blocked) => {
                let message = self.attempts.why_blocked(credential, &blocked);
                let was_rejected = self.attempts.schedule().was_rejected(credential);
                return Err(ConnectionFailure {
                    during: blocked.what(&self.login_of(credential)),
                    source: FailureCause::Held { message, was_rejected },
                    pause: Pause::For(self.attempts.time_until(blocked.until)),
                });
            }
        };
        match self.submit(&handle.soap, &credential.login).await {
            Ok(()) => {
                self.state.lock().status.soap_logins += 1;
                attempt.accepted().await;
                Ok(())
            }
            Err(cause) => {
                let outcome = if is_shared(credential) { Outcome::Harmless } else { outcome(&cause) };
                self.count(outcome);
                let pause = attempt.failed(outcome, chain(&cause)).await.map_or(Pause::Backoff, Pause::For);
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
        handle: &SessionHandle,
        credential: &Arc<Credential>,
    ) -> Result<(), RestFailure> {
        let _under_way = self.logins.begin();
        let attempt = match self.attempts.claim(credential, Interface::Rest).await {
            Ok(attempt) => attempt,
            Err(blocked) => {
                let why = self.attempts.why_blocked(credential, &blocked);
                return Err(RestFailure::Held {
                    message: format!("{}: {why}", blocked.what(&self.login_of(credential))),
                    pause: self.attempts.time_until(blocked.until),
                });
            }
        };
        match self.present_rest(&handle.rest, &credential.login).await {
            Ok(()) => {
                self.state.lock().status.rest_logins += 1;
                attempt.accepted().await;
                Ok(())
            }
            Err(error) => {
                let outcome = rest_outcome(&error);
                self.count(outcome);
                attempt.failed(outcome, chain(&error)).await;
                Err(error)
            }
        }
    }

    fn count(&self, outcome: Outcome) {
        let status = &mut self.state.lock().status;
        match outcome {
            Outcome::Rejected => status.rejections += 1,
            Outcome::Unanswered => status.unanswered += 1,
            Outcome::Accepted | Outcome::Harmless => {}
        }
    }

    fn login_of(&self, credential: &Credential) -> String {
        let server = &self.server;
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
        Status(_, status, _) => matches!(status, 429 | 503),
        _ => false,
    }
}
