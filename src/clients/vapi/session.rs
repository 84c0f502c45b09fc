//! One REST session: log in, borrow the SOAP session, log out.

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
    /// Logs in, after dropping an earlier session. If the server does not have the `/rest` framing, the login uses
    /// `/api`.
    ///
    /// # Errors
    /// [`Error::is_invalid_login`] for rejected credentials. Repeated attempts lock the account.
    pub async fn login(&self, user: &str, password: &SecretString) -> Result<(), Error> {
        self.open_session(|_| Ok(http::authorization("Basic", user, password))).await
    }

    /// Logs in like [`Client::login`], but with a token, signed with the key of the token.
    ///
    /// # Errors
    /// [`Error::is_invalid_login`] if the token or the signature is rejected.
    pub async fn login_signed(&self, token: &Token, now: Timestamp) -> Result<(), Error> {
        self.open_session(|framing| {
            // The shift keeps the number below 2^63, because the server parses the nonce as a signed number.
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
        // If this login fails, the earlier session must not stay in use.
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

    /// Uses the SOAP session's secret as session id, which vCenter 8.0 Update 3 and later accepts. If the next call
    /// fails with [`Error::is_unauthenticated`], this vCenter needs a separate login.
    pub fn borrow_session(&self, id: SecretString) {
        *self.inner.session.lock() = Some(Session { id, framing: Framing::Rest, is_borrowed: true });
    }

    /// Whether this client has a session. The server may have dropped the session already.
    pub fn has_session(&self) -> bool {
        self.inner.session.lock().is_some()
    }

    /// Drops the session. Nothing is sent to the server.
    pub fn forget_session(&self) {
        *self.inner.session.lock() = None;
    }

    /// Ends the session, within `Timeouts::logout`; a borrowed session is only dropped. If the call fails, the server
    /// drops the session after its idle time.
    pub async fn logout(&self) -> Result<(), Error> {
        let ended = self.inner.session.lock().take();
        let Some(session) = ended.filter(|session| !session.is_borrowed) else {
            return Ok(());
        };
        let timeout = self.inner.timeouts.logout;
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
        // Asks the server not to set a cookie, because this client sends only the id in the header.
        request.headers.push(("vmware-use-header-authn", "true".to_owned()));
        let response = self.send(request).await?;
        let id: String = self.read_result(framing, LOGIN, &response)?;
        if id.is_empty() {
            return Err(Error::NoSession(self.inner.http.failed(LOGIN)));
        }
        Ok(id.into())
    }
}
