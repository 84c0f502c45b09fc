//! Who asks: one way of showing it after the other, in the Go program's order.

use async_trait::async_trait;
use tokio::time::Instant;

use super::metrics::{Authenticated, Metrics};
use super::token_reviews::TokenReviews;
use crate::runtime::admin::access::{Authenticator, NotAuthenticated, Shown, User};

/// The group of everybody who is known.
const KNOWN: &str = "system:authenticated";

/// The group of everybody who is not.
const UNKNOWN: &str = "system:unauthenticated";

/// An [`Authenticator`] that looks at all that a request shows.
pub struct Delegated {
    tokens: TokenReviews,
    metrics: Metrics,
}

impl Delegated {
    /// Asks `tokens` whose bearer tokens are.
    pub fn new(tokens: TokenReviews, metrics: Metrics) -> Self {
        Self { tokens, metrics }
    }
}

#[async_trait]
impl Authenticator for Delegated {
    async fn authenticate(&self, shown: Shown<'_>) -> Result<Option<User>, NotAuthenticated> {
        let begin = Instant::now();
        let found = self.tokens.user_of_request(shown.headers).await.map(|user| user.map(known));
        let outcome = match &found {
            Ok(Some(user)) => Authenticated::User(&user.name),
            // The Go program counts the anonymous user as one that is known.
            Ok(None) => Authenticated::User(""),
            Err(_) => Authenticated::Failed,
        };
        self.metrics.count_authentication(outcome, begin.elapsed());
        found
    }
}

/// Adds the group of those who are known, as `group.AuthenticatedGroupAdder` of `kubernetes/apiserver`.
fn known(mut user: User) -> User {
    let is_told = user.groups.iter().any(|group| group == KNOWN || group == UNKNOWN);
    if !is_told && user.name != User::anonymous().name {
        user.groups.push(KNOWN.to_owned());
    }
    user
}
