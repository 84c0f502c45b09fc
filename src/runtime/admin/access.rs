//! Who may ask for what: what a request shows to those who decide, and what they answer.

use std::collections::BTreeMap;

use async_trait::async_trait;
use http::HeaderMap;
use rustls::pki_types::CertificateDer;

use crate::runtime::tasks::BoxError;

/// Somebody who asks, in the words of Kubernetes' `user.Info`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// The name; never empty.
    pub name: String,
    /// Tells users of one name apart; may be empty.
    pub uid: String,
    /// The groups it is in.
    pub groups: Vec<String>,
    /// What else is known of it.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Whoever shows nothing.
    pub fn anonymous() -> Self {
        let groups = vec!["system:unauthenticated".to_owned()];
        Self { name: "system:anonymous".to_owned(), groups, ..Self::default() }
    }
}

/// What a request shows of who asks.
#[derive(Debug, Clone, Copy)]
pub struct RequestCredentials<'a> {
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The client's certificate chain, leaf first. Its holder has the leaf's key; nothing else is checked.
    pub certificates: &'a [CertificateDer<'static>],
}

/// Who asks is not known.
#[derive(Debug, thiserror::Error)]
pub enum NotAuthenticated {
    /// What was shown is not valid.
    #[error("the credentials are not valid")]
    Invalid,
    /// It could not be found out.
    #[error("the credentials cannot be checked")]
    Unknown(#[source] BoxError),
}

/// Says who asks.
#[async_trait]
pub trait Authenticator: Send + Sync {
    /// The user; nothing when nothing of its kind is shown.
    async fn authenticate(&self, shown: RequestCredentials<'_>) -> Result<Option<User>, NotAuthenticated>;
}

/// Says who may do what.
#[async_trait]
pub trait Authorizer: Send + Sync {
    /// Whether everybody may ask for this path, whoever it is. Asked before anything else, so that probes depend on
    /// nobody.
    fn is_open(&self, path: &str) -> bool;

    /// Whether `user` may do `verb` (an HTTP method in lower case) on `path`.
    async fn may(&self, user: &User, verb: &str, path: &str) -> Result<bool, BoxError>;
}
