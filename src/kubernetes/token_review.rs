//! Whose bearer token it is, asked of the API server: delegated authentication by TokenReview.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::client::limited;
use crate::runtime::admin::access::{Authenticator, Authorizer, NotAuthenticated, Shown, User};
use crate::runtime::tasks::BoxError;

/// How long an answer is believed.
const BELIEVED: Duration = Duration::from_secs(10);

/// Bearer tokens are a few kilobytes.
const LONGEST_TOKEN: usize = 32 * 1024;

/// Answers remembered.
const REMEMBERED: usize = 256;

/// Questions on the wire at once.
const QUESTIONS: usize = 4;

/// How long one question may take.
const REVIEW_LIMIT: Duration = Duration::from_secs(10);

/// An [`Authenticator`] that asks the API server and believes its answer, valid or not, for ten seconds. Failures are
/// not remembered.
pub struct TokenReviews {
    api: Api<TokenReview>,
    questions: Semaphore,
    answers: Mutex<HashMap<TokenDigest, Answer>>,
}

/// Tokens themselves are not kept.
type TokenDigest = [u8; 32];

struct Answer {
    user: Option<String>,
    at: Instant,
}

impl TokenReviews {
    /// Asks by `client`, which must not be guarded by leadership.
    pub fn new(client: Client) -> Self {
        Self { api: Api::all(client), questions: Semaphore::new(QUESTIONS), answers: Mutex::default() }
    }

    fn find(&self, digest: &TokenDigest) -> Option<Option<String>> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = answers.get(digest).filter(|answer| answer.at.elapsed() < BELIEVED)?;
        Some(answer.user.clone())
    }

    fn remember(&self, digest: TokenDigest, user: Option<String>) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.retain(|_, answer| answer.at.elapsed() < BELIEVED);
        if answers.len() < REMEMBERED {
            answers.insert(digest, Answer { user, at: Instant::now() });
        }
    }

    async fn review(&self, token: &str) -> Result<Option<String>, BoxError> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let parameters = PostParams::default();
        let answer = limited("create a token review", REVIEW_LIMIT, self.api.create(&parameters, &review)).await?;
        let status = answer.status.unwrap_or_default();
        if status.authenticated != Some(true) {
            return Ok(None);
        }
        Ok(status.user.and_then(|user| user.username).filter(|name| !name.is_empty()))
    }
}

#[async_trait]
impl Authenticator for TokenReviews {
    async fn authenticate(&self, shown: Shown<'_>) -> Result<Option<User>, NotAuthenticated> {
        let Some(token) = bearer_token(shown.headers) else { return Ok(None) };
        if token.is_empty() || token.len() > LONGEST_TOKEN {
            return Err(NotAuthenticated::Invalid);
        }
        match self.user_of(token).await {
            Ok(Some(name)) => Ok(Some(User { name, ..User::default() })),
            Ok(None) => Err(NotAuthenticated::Invalid),
            Err(error) => Err(NotAuthenticated::Unknown(error)),
        }
    }
}

/// Everybody who is known may see everything.
pub struct AnyUser;

#[async_trait]
impl Authorizer for AnyUser {
    fn is_open(&self, _: &str) -> bool {
        false
    }

    async fn may(&self, user: &User, _: &str, _: &str) -> Result<bool, BoxError> {
        Ok(*user != User::anonymous())
    }
}

/// The token; nothing when there are no credentials of that kind.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

impl TokenReviews {
    /// The name of the user the token belongs to; nothing when it is not valid.
    pub async fn user_of(&self, token: &str) -> Result<Option<String>, BoxError> {
        let digest = Sha256::digest(token.as_bytes()).into();
        if let Some(user) = self.find(&digest) {
            return Ok(user);
        }
        let _turn = self.questions.acquire().await?;
        // Another may have asked the same while this one waited.
        if let Some(user) = self.find(&digest) {
            return Ok(user);
        }
        let user = self.review(token).await?;
        self.remember(digest, user.clone());
        Ok(user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tower::BoxError as ServiceError;

    /// Knows the token `good`, breaks on `broken`, and counts.
    fn reviews() -> (TokenReviews, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let counter = count.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            counter.fetch_add(1, Ordering::SeqCst);
            async move {
                let bytes = request.into_body().collect_bytes().await?;
                let mut review: serde_json::Value = serde_json::from_slice(&bytes)?;
                review["status"] = match review["spec"]["token"].as_str() {
                    Some("good") => serde_json::json!({"authenticated": true, "user": {"username": "prometheus"}}),
                    Some("broken") => return Err::<_, ServiceError>("broken".into()),
                    _ => serde_json::json!({"authenticated": false, "error": "no"}),
                };
                Ok(Response::new(Body::from(review.to_string().into_bytes())))
            }
        });
        (TokenReviews::new(Client::new(service, "default")), count)
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_believed_for_ten_seconds_and_failures_not_at_all() {
        let (reviews, count) = reviews();
        for round in 1..=2 {
            assert_eq!(reviews.user_of("good").await.unwrap().as_deref(), Some("prometheus"));
            assert_eq!(reviews.user_of("bad").await.unwrap(), None);
            assert!(reviews.user_of("broken").await.is_err());
            assert_eq!(count.load(Ordering::SeqCst), 2 + round, "round {round}");
        }
        tokio::time::advance(BELIEVED).await;
        assert_eq!(reviews.user_of("good").await.unwrap().as_deref(), Some("prometheus"));
        assert_eq!(count.load(Ordering::SeqCst), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_of_answers_is_bounded_and_holds_no_token() {
        let (reviews, _) = reviews();
        for index in 0..REMEMBERED + 10 {
            reviews.user_of(&format!("token{index}")).await.unwrap();
        }
        assert_eq!(reviews.answers.lock().unwrap().len(), REMEMBERED);
    }
}
