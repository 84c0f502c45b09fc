//! Whose bearer token it is, asked of the API server by TokenReview.

use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use kube::Client;

use super::metrics::Metrics;
use super::questions::{Kind, Questions};
use super::remembered::{Question, Remembered, question};
use crate::kubernetes::call::CallError;
use crate::runtime::admin::access::{NotAuthenticated, User};

/// Bearer tokens are a few kilobytes.
const LONGEST_TOKEN: usize = 32 * 1024;

/// Answers remembered.
const REMEMBERED: usize = 1024;

const KIND: Kind = Kind { name: "TokenReview", effect: "bearer tokens at the secure port are refused" };

/// Asks the API server and believes its answer for a while. Failures are not remembered.
pub struct TokenReviews {
    questions: Questions,
    answers: Remembered<Option<User>>,
    believed: Duration,
}

impl TokenReviews {
    /// Asks by `client`, which must not be guarded by leadership, and believes an answer so long.
    pub fn new(client: Client, believed: Duration, metrics: &Metrics) -> Self {
        let questions = Questions::new(client, KIND, metrics.authentication.clone());
        Self { questions, answers: Remembered::new(REMEMBERED), believed }
    }

    /// The user whose token a request has; nothing without a token.
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

    /// The user the token belongs to; nothing when it is not valid.
    ///
    /// # Errors
    /// The API server refused to say, or did not answer within ten seconds.
    pub async fn user_of(&self, token: &str) -> Result<Option<User>, CallError> {
        let asked = question(token.as_bytes());
        if let Some(user) = self.answers.find(&asked) {
            return Ok(user);
        }
        let asking = async {
            let _turn = self.questions.turn().await;
            // Another may have asked the same while this one waited.
            match self.answers.find(&asked) {
                Some(user) => Ok(user),
                None => self.review(token, asked).await,
            }
        };
        self.questions.within_limit(asking).await
    }

    async fn review(&self, token: &str, asked: Question) -> kube::Result<Option<User>> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = self.questions.ask(&TokenReview { spec, ..TokenReview::default() }).await?;
        let status = review.status.unwrap_or_default();
        let user = match status.authenticated {
            Some(true) => status.user.and_then(user),
            _ => None,
        };
        // With an error it is not sure that the token is wrong: part of the API server may not have been able to tell.
        if user.is_some() || status.error.is_none_or(|error| error.is_empty()) {
            self.answers.remember(asked, user.clone(), self.believed);
        }
        Ok(user)
    }
}

/// Nobody without a name.
fn user(info: UserInfo) -> Option<User> {
    let name = info.username.filter(|name| !name.is_empty())?;
    let (groups, extra) = (info.groups.unwrap_or_default(), info.extra.unwrap_or_default());
    Some(User { name, uid: info.uid.unwrap_or_default(), groups, extra })
}

/// The token; nothing when there are no credentials of that kind. As `request/bearertoken` of `kubernetes/apiserver`,
/// for which `Bearer` without a token shows nothing.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let mut parts = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().splitn(3, ' ');
    let is_bearer = parts.next()?.eq_ignore_ascii_case("bearer");
    parts.next().filter(|token| is_bearer && !token.is_empty())
}

#[cfg(test)]
mod tests;
