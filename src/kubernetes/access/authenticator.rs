//! Authenticates requests by client certificate or token, in the Go program's order.

use async_trait::async_trait;
use rustls::pki_types::UnixTime;
use tokio::time::Instant;

use super::certificates::ClientTrust;
use super::metrics::Metrics;
use super::token_reviews::TokenReviews;
use crate::base::error_chain::chain;
use crate::runtime::admin::access::{Authenticator, NotAuthenticated, RequestCredentials, User};

/// The group of all authenticated users.
const AUTHENTICATED: &str = "system:authenticated";

/// The group of all unauthenticated users.
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// An [`Authenticator`] that tries all credentials of a request.
pub struct DelegatedAuthenticator {
    trust: ClientTrust,
    tokens: TokenReviews,
    metrics: Metrics,
}

impl DelegatedAuthenticator {
    /// Accepts the client certificates that `trust` verifies, and bearer tokens by `tokens`.
    pub fn new(trust: ClientTrust, tokens: TokenReviews, metrics: Metrics) -> Self {
        Self { trust, tokens, metrics }
    }

    /// Tries the client certificate, then the token, and returns the user of the first one that names a user. A
    /// rejected certificate is an error only if no token names a user: it may be meant for another purpose. Identity
    /// headers of a proxy (`X-Remote-User` and the like), which the Go program reads first, are ignored: no API server
    /// aggregates this port.
    async fn user(&self, shown: RequestCredentials<'_>) -> Result<Option<User>, NotAuthenticated> {
        let by_certificate = self.trust.user(shown.certificates, UnixTime::now());
        if let Err(refusal) = &by_certificate {
            tracing::debug!("{}", chain(refusal));
        }
        if let Ok(Some(user)) = by_certificate {
            return Ok(Some(user));
        }
        match self.tokens.user_of_request(shown.headers).await? {
            None if by_certificate.is_err() => Err(NotAuthenticated::Invalid),
            found => Ok(found),
        }
    }
}

#[async_trait]
impl Authenticator for DelegatedAuthenticator {
    async fn authenticate(&self, shown: RequestCredentials<'_>) -> Result<Option<User>, NotAuthenticated> {
        let begin = Instant::now();
        let found = self.user(shown).await.map(|user| user.map(known));
        // The Go program counts the anonymous user as an authenticated one.
        let name = found.as_ref().ok().map(|user| user.as_ref().map_or("", |user| &user.name));
        self.metrics.count_authentication(name, begin.elapsed());
        found
    }
}

/// Adds the group of authenticated users, as `group.AuthenticatedGroupAdder` of `kubernetes/apiserver`.
fn known(mut user: User) -> User {
    let is_told = user.groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
    if !is_told && user.name != User::anonymous().name {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

#[cfg(test)]
mod tests;
