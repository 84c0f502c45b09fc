//! Interfaces of authentication and authorization.

use std::collections::BTreeMap;

use async_trait::async_trait;
use http::HeaderMap;
use rustls::pki_types::CertificateDer;

use crate::runtime::tasks::BoxError;

/// An authenticated user, with the fields of Kubernetes' `user.Info`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// The name, which is never empty.
    pub name: String,
    /// Identifier that distinguishes users of the same name. May be empty.
    pub uid: String,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// Further attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Returns the user of requests without credentials.
    pub fn anonymous() -> Self {
        let groups = vec!["system:unauthenticated".to_owned()];
        Self { name: "system:anonymous".to_owned(), groups, ..Self::default() }
    }
}

/// The credentials of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestCredentials<'a> {
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The client's certificate chain, leaf first. TLS has verified only that the client has the key of the leaf.
    pub certificates: &'a [CertificateDer<'static>],
}

/// Failure of an authentication.
#[derive(Debug, thiserror::Error)]
pub enum NotAuthenticated {
    /// The credentials are not valid.
    #[error("the credentials are not valid")]
    Invalid,
    /// The credentials could not be checked.
    #[error("the credentials cannot be checked")]
    Unknown(#[source] BoxError),
}

/// An authenticator of requests.
#[async_trait]
pub trait Authenticator: Send + Sync {
    /// Returns the user. Returns `None` if the request has no credentials of a kind that this authenticator supports.
    async fn authenticate(&self, shown: RequestCredentials<'_>) -> Result<Option<User>, NotAuthenticated>;
}

/// An authorizer of requests.
#[async_trait]
pub trait Authorizer: Send + Sync {
    /// Whether the path is open to all users. Checked before authentication, so that probes depend on no other server.
    fn is_open(&self, path: &str) -> bool;

    /// Returns whether `user` is allowed to do `verb` (an HTTP method in lower case) on `path`.
    async fn is_allowed(&self, user: &User, verb: &str, path: &str) -> Result<bool, BoxError>;
}
