//! Logins of a client, and the trait that decides when and how to log in.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use secrecy::SecretString;

use super::answer::PresentedCredentials;
use super::error::Kind;
use super::token::AccessToken;
use super::{Client, http};
use crate::clients::http::Request;

/// The directory in which NSX finds the user, sent as the scheme of the `Authorization` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// The accounts of NSX, or of the directory that NSX is connected to. The scheme is `Basic`.
    Basic,
    /// VMware Identity Manager. The scheme is `Remote`.
    Remote,
}

impl Scheme {
    fn as_str(self) -> &'static str {
        match self {
            Scheme::Basic => "Basic",
            Scheme::Remote => "Remote",
        }
    }

    /// Returns the value of the `Authorization` header.
    pub fn authorization(self, user: &str, password: &SecretString) -> SecretString {
        http::authorization(self.as_str(), user, password)
    }
}

/// A policy that decides when and how a client logs in.
#[async_trait]
pub trait LogIn: Send + Sync {
    /// Logs in, and returns once the client has another login. Called if a call finds no login, or if the manager
    /// rejects the login `over`. An implementation must make concurrent callers wait for each other.
    ///
    /// # Errors
    /// The reason that there is no login. The call that needs the login fails with this error.
    async fn log_in(&self, client: &Client, over: Option<&Login>) -> Result<(), NoLogin>;

    /// Logs in with another form of login, and returns once the client has that login. Called if the manager also
    /// rejected the renewed login of a call. The client has dropped both logins.
    ///
    /// # Errors
    /// The reason that there is no login. The call fails with this error.
    async fn log_in_otherwise(&self, _client: &Client, _over: &Login) -> Result<(), NoLogin> {
        Err(NoLogin { kind: Kind::SessionOver, reason: "the next session was over at once, too".to_owned() })
    }

    /// Tries to get another login while this login stays in use. Called if the answer to a request was a web page: the
    /// login may have ended, or an intermediary may have answered. Returns whether the client now has another login.
    async fn recheck_login(&self, _client: &Client, _doubted: &Login) -> bool {
        false
    }

    /// Records that the manager rejected the credentials of a request. The client has already dropped this login.
    fn rejected(&self, login: &Login);
}

/// The reason that a client is not logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoLogin {
    /// The kind of error with which the call fails.
    pub kind: Kind,
    /// The reason as text.
    pub reason: String,
}

/// The credentials or the session that authenticate requests. `Debug` prints no secrets.
#[derive(Clone)]
pub struct Login(pub(super) Arc<RequestAuth>);

pub(super) enum RequestAuth {
    Session {
        cookie: SecretString,
        xsrf: SecretString,
    },
    Basic(SecretString),
    Token(SecretString),
    /// The TLS library has the certificate.
    Certificate,
}

impl Login {
    /// Builds a login that sends the token with each request.
    pub fn with_token(token: &AccessToken) -> Self {
        Self(Arc::new(RequestAuth::Token(token.secret.clone())))
    }

    /// Builds a login that relies on the client certificate of the TLS settings.
    pub fn with_certificate() -> Self {
        Self(Arc::new(RequestAuth::Certificate))
    }

    /// Whether the login is a session of the manager.
    pub fn is_session(&self) -> bool {
        matches!(*self.0, RequestAuth::Session { .. })
    }

    pub(super) fn is_certificate(&self) -> bool {
        matches!(*self.0, RequestAuth::Certificate)
    }

    /// Whether both values are the same login.
    pub fn is(&self, other: &Login) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn authenticate(&self, request: &mut Request) {
        let headers = &mut request.secret_headers;
        match &*self.0 {
            RequestAuth::Session { cookie, xsrf } => {
                headers.push(("Cookie", cookie.clone()));
                headers.push(("X-XSRF-TOKEN", xsrf.clone()));
            }
            RequestAuth::Basic(authorization) => headers.push(("Authorization", authorization.clone())),
            RequestAuth::Token(token) => headers.push(("csp-auth-token", token.clone())),
            RequestAuth::Certificate => {}
        }
    }

    pub(super) fn presents(&self) -> PresentedCredentials {
        match *self.0 {
            RequestAuth::Basic(_) => PresentedCredentials::EachTime,
            RequestAuth::Session { .. } | RequestAuth::Token(_) | RequestAuth::Certificate => {
                PresentedCredentials::Nothing
            }
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self.0 {
            RequestAuth::Session { .. } => "session",
            RequestAuth::Basic(_) => "basic",
            RequestAuth::Token(_) => "token",
            RequestAuth::Certificate => "certificate",
        })
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::Scheme;

    #[test]
    fn w_01_and_w_02_the_scheme_is_that_of_the_account() {
        for (scheme, expected) in
            [(Scheme::Basic, "Basic YWRtaW46c2VjcmV0"), (Scheme::Remote, "Remote YWRtaW46c2VjcmV0")]
        {
            assert_eq!(scheme.authorization("admin", &"secret".into()).expose_secret(), expected);
        }
    }
}
