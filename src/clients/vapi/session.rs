//! One REST session: log in, borrow the SOAP session, log out.

use std::time::Duration;

use jiff::Timestamp;
use secrecy::SecretString;

use super::error::LOGIN;
use super::exchange::SESSION_HEADER;
use super::{Client, Error, Framing, Refusal, Session, signing};
use crate::clients::http::{self, Method, Request};
use crate::clients::token::Token;

fn session_path(framing: Framing) -> &'static str {
    match framing {
        Framing::Rest => "/rest/com/vmware/cis/session",
        Framing::Api => "/api/session",
    }
}

impl Client {
    /// Logs in, after dropping an earlier session. A server without the `/rest` form is tried in the `/api` form.
    ///
    /// # Errors
    /// [`Error::is_invalid_login`] for rejected credentials: repeating them locks the account.
    pub async fn login(&self, user: &str, password: &SecretString) -> Result<(), Error> {
        self.open_session(|_| Ok(http::authorization("Basic", user, password))).await
    }

    /// Logs in with a token, signed with the key it was issued for; otherwise as [`Client::login`].
    ///
    /// # Errors
    /// [`Error::is_invalid_login`] when the token or the signature is refused.
    pub async fn login_signed(&self, token: &Token, now: Timestamp) -> Result<(), Error> {
        self.open_session(|framing| {
            // The shift keeps the number below 2^63, since the server parses it as a signed one.
            let nonce = format!("{}:{}", now.as_millisecond(), fastrand::u64(..) >> 1);
            let signed = signing::authorization(token, "POST", session_path(framing), self.endpoint(), &nonce);
            signed.map_err(|error| {
                let endpoint = self.endpoint().to_owned();
                http::Error::Configuration { endpoint, message: error.to_string() }.into()
            })
        })
        .await
    }

    async fn open_session(&self, authorization: impl Fn(Framing) -> Result<SecretString, Error>) -> Result<(), Error> {
        // Real servers refuse a login on a session whose earlier login failed.
        self.forget_session();
        let (framing, id) = match self.create_session(Framing::Rest, authorization(Framing::Rest)?).await {
            Err(error) if error.is(Refusal::NotFound) => {
                (Framing::Api, self.create_session(Framing::Api, authorization(Framing::Api)?).await?)
            }
            other => (Framing::Rest, other?),
        };
        *self.inner.session.lock() = Some(Session { id, framing, is_borrowed: false });
        Ok(())
    }

    /// Uses the SOAP session's secret as session id, which vCenter 8.0 Update 3 and later accepts. The next call shows
    /// whether this vCenter does: [`Error::is_unauthenticated`] means that a separate login is needed.
    pub fn borrow_session(&self, id: SecretString) {
        *self.inner.session.lock() = Some(Session { id, framing: Framing::Rest, is_borrowed: true });
    }

    /// Whether there is a session as far as this client knows; the server may have dropped it.
    pub fn has_session(&self) -> bool {
        self.inner.session.lock().is_some()
    }

    /// Drops the session without telling the server.
    pub fn forget_session(&self) {
        *self.inner.session.lock() = None;
    }

    /// Ends the session, within 3 s; a borrowed one is only dropped.
    ///
    /// # Errors
    /// When the server could not be reached; it drops the session after its idle time.
    pub async fn logout(&self) -> Result<(), Error> {
        let ended = self.inner.session.lock().take();
        let Some(session) = ended.filter(|session| !session.is_borrowed) else {
            return Ok(());
        };
        let timeout: Duration = self.inner.timeouts.logout;
        let mut request = Request::new(Method::DELETE, session_path(session.framing), "session.delete", timeout);
        request.secret_headers.push((SESSION_HEADER, session.id.clone()));
        match self.send(request).await {
            Err(error) if error.is_unauthenticated() => Ok(()),
            other => other.map(|_| ()),
        }
    }

    async fn create_session(&self, framing: Framing, authorization: SecretString) -> Result<SecretString, Error> {
        let mut request = Request::new(Method::POST, session_path(framing), LOGIN, self.inner.timeouts.login);
        request.secret_headers.push(("Authorization", authorization));
        request.headers.push(("Accept", "application/json".to_owned()));
        // Asks the server for no cookie: this client sends back only the id in the header.
        request.headers.push(("vmware-use-header-authn", "true".to_owned()));
        let response = self.send(request).await?;
        let id: String = self.read_result(framing, LOGIN, &response)?;
        if id.is_empty() {
            return Err(Error::NoSession(self.inner.http.failed(LOGIN)));
        }
        Ok(id.into())
    }
}
