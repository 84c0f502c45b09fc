//! Authenticates bearer tokens with TokenReviews.

use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use kube::Client;

use super::metrics::Metrics;
use super::review_client::{Kind, ReviewClient};
use crate::kubernetes::call::CallError;
use crate::runtime::admin::access::{NotAuthenticated, User};

/// Maximum length of a bearer token, in bytes. Real tokens have a few kilobytes.
const LONGEST_TOKEN: usize = 32 * 1024;

const KIND: Kind = Kind { name: "TokenReview", effect: "bearer tokens at the secure port are refused" };

/// An authenticator of bearer tokens that asks the API server. It caches answers, but neither failures nor rejections
/// that contain an error.
pub struct TokenReviews {
    questions: ReviewClient<TokenReview, Option<User>>,
    cache_duration: Duration,
}

impl TokenReviews {
    /// Creates an authenticator that caches answers for the duration `believed`. `client` must neither check leadership
    /// nor retry.
    pub fn new(client: Client, believed: Duration, metrics: &Metrics) -> Self {
        Self { questions: ReviewClient::new(client, KIND, metrics.authentication.clone()), cache_duration: believed }
    }

    /// Returns the user of the request's bearer token, or `None` if the request has no token. Fails if the token is
    /// invalid or too long, or if the review fails.
    pub(super) async fn user_of_request(&self, headers: &HeaderMap) -> Result<Option<User>, NotAuthenticated> {
        let Some(token) = bearer_token(headers) else { return Ok(None) };
        if token.len() > LONGEST_TOKEN {
            return Err(NotAuthenticated::Invalid);
        }
        match self.user_of(token).await {
            Ok(Some(user)) => Ok(Some(user)),
            Ok(None) => Err(NotAuthenticated::Invalid),
            Err(error) => Err(NotAuthenticated::Unknown(error.into())),
        }
    }

    /// Returns the user of the token, or `None` if the token is invalid.
    pub async fn user_of(&self, token: &str) -> Result<Option<User>, CallError> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let read = |review: TokenReview| {
            let status = review.status.unwrap_or_default();
            let user = status.user.filter(|_| status.authenticated == Some(true)).and_then(user);
            // A negative answer with an error may be wrong: the API server may have failed to check the token.
            let is_sure = user.is_some() || status.error.is_none_or(|error| error.is_empty());
            (user, is_sure.then_some(self.cache_duration))
        };
        self.questions.answer(token.as_bytes(), &TokenReview { spec, ..TokenReview::default() }, read).await
    }
}

fn user(info: UserInfo) -> Option<User> {
    let name = info.username.filter(|name| !name.is_empty())?;
    let (groups, extra) = (info.groups.unwrap_or_default(), info.extra.unwrap_or_default());
    Some(User { name, uid: info.uid.unwrap_or_default(), groups, extra })
}

/// Returns the bearer token, if any. Ignores `Bearer` without a token, as `request/bearertoken` of
/// `kubernetes/apiserver`.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut parts = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().splitn(3, ' ');
    let is_bearer = parts.next()?.eq_ignore_ascii_case("bearer");
    parts.next().filter(|token| is_bearer && !token.is_empty())
}

#[cfg(test)]
mod tests;
