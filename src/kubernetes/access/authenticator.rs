//! Authenticates requests by client certificate or token, in the Go program's order.

use async_trait::async_trait;
use rustls::pki_types::UnixTime;
use tokio::time::Instant;

use super::certificates::ClientTrust;
use super::metrics::Metrics;
use super::token_reviews::TokenReviews;
use crate::base::error_chain::chain;
use crate::runtime::admin::access::{Authenticator, NotAuthenticated, RequestCredentials, User};

const AUTHENTICATED: &str = "system:authenticated";

const UNAUTHENTICATED: &str = "system:unauthenticated";

/// An [`Authenticator`] that tries the client certificate of a request, then its bearer token.
pub struct DelegatedAuthenticator {
    trust: ClientTrust,
    tokens: TokenReviews,
    metrics: Metrics,
}

impl DelegatedAuthenticator {
    /// Creates an authenticator. `trust` verifies client certificates, and `tokens` verifies bearer tokens.
    pub fn new(trust: ClientTrust, tokens: TokenReviews, metrics: Metrics) -> Self {
        Self { trust, tokens, metrics }
    }

    /// Tries the client certificate and then the token. Returns the first user found. A rejected certificate may be
    /// meant for another purpose, so it is an error only if the token yields no user. Ignores the identity headers of a
    /// front proxy (`X-Remote-User` and others), because no API server aggregates this port. The Go program reads these
    /// headers first.
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
        // The Go program counts an anonymous user as authenticated.
        let name = found.as_ref().ok().map(|user| user.as_ref().map_or("", |user| &user.name));
        self.metrics.count_authentication(name, begin.elapsed());
        found
    }
}

/// Adds the group `system:authenticated`, unless the user is anonymous or already in this group or in
/// `system:unauthenticated`. Mirrors `group.AuthenticatedGroupAdder` of `kubernetes/apiserver`.
fn known(mut user: User) -> User {
    let is_told = user.groups.iter().any(|group| group == AUTHENTICATED || group == UNAUTHENTICATED);
    if !is_told && user.name != User::anonymous().name {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}

#[cfg(test)]
mod tests;
