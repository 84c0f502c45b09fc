//! Authorises requests with SubjectAccessReviews.

use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use kube::Client;
use tokio::time::Instant;

use super::Authorization;
use super::metrics::Metrics;
use super::open_paths::OpenPaths;
use super::review_client::{Kind, ReviewClient};
use crate::kubernetes::call::CallError;
use crate::runtime::admin::access::{Authorizer, User};
use crate::runtime::tasks::BoxError;

/// Group whose members have every permission, so no review is needed.
const MASTERS: &str = "system:masters";

const KIND: Kind = Kind {
    name: "SubjectAccessReview",
    effect: "requests to the secure port are refused, except open paths and the group system:masters",
};

/// An [`Authorizer`] that asks the API server. It caches decisions, but neither failures nor contradictory answers.
pub struct Permissions {
    always_allowed: OpenPaths,
    questions: ReviewClient<SubjectAccessReview, ReviewDecision>,
    allowed: Duration,
    denied_ttl: Duration,
    metrics: Metrics,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReviewDecision {
    Allowed,
    Denied,
    NoOpinion,
    Contradiction,
}

impl Permissions {
    /// Creates an authorizer. `client` must neither check leadership, because standbys also serve the secure port, nor
    /// retry.
    pub fn new(client: Client, settings: &Authorization, metrics: Metrics) -> Self {
        Self {
            always_allowed: settings.always_allow.clone(),
            questions: ReviewClient::new(client, KIND, metrics.authorization.clone()),
            allowed: settings.allowed_cache,
            denied_ttl: settings.refused_cache,
            metrics,
        }
    }

    async fn decide(&self, user: &User, verb: &str, path: &str) -> Result<ReviewDecision, CallError> {
        if user.groups.iter().any(|group| group == MASTERS) || self.always_allowed.contains(path) {
            return Ok(ReviewDecision::Allowed);
        }
        let spec = spec(user, verb, path);
        let subject = serde_json::to_vec(&spec).unwrap_or_default();
        let read = |review: SubjectAccessReview| {
            let decision = decision(&review.status.unwrap_or_default());
            let cache_duration = match decision {
                ReviewDecision::Allowed => Some(self.allowed),
                ReviewDecision::Denied | ReviewDecision::NoOpinion => Some(self.denied_ttl),
                ReviewDecision::Contradiction => None,
            };
            (decision, cache_duration)
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        self.questions.answer(&subject, &review, read).await
    }
}

#[async_trait]
impl Authorizer for Permissions {
    fn is_open(&self, path: &str) -> bool {
        let is_open = self.always_allowed.contains(path);
        if is_open {
            self.metrics.authorizations.count("allowed", Duration::ZERO);
        }
        is_open
    }

    async fn is_allowed(&self, user: &User, verb: &str, path: &str) -> Result<bool, BoxError> {
        let begin = Instant::now();
        let decided = self.decide(user, verb, path).await;
        let outcome = match &decided {
            Ok(ReviewDecision::Allowed) => "allowed",
            Ok(ReviewDecision::Denied) => "denied",
            Ok(ReviewDecision::NoOpinion) => "no-opinion",
            Ok(ReviewDecision::Contradiction) | Err(_) => "error",
        };
        self.metrics.authorizations.count(outcome, begin.elapsed());
        match decided? {
            ReviewDecision::Contradiction => Err("the API server both allows and denies it".into()),
            decision => Ok(decision == ReviewDecision::Allowed),
        }
    }
}

fn spec(user: &User, verb: &str, path: &str) -> SubjectAccessReviewSpec {
    let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some(verb.to_owned()) };
    SubjectAccessReviewSpec {
        user: Some(user.name.clone()),
        uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
        groups: Some(user.groups.clone()),
        extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
        non_resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    }
}

fn decision(status: &SubjectAccessReviewStatus) -> ReviewDecision {
    match (status.allowed, status.denied.unwrap_or_default()) {
        (true, true) => ReviewDecision::Contradiction,
        (true, false) => ReviewDecision::Allowed,
        (false, true) => ReviewDecision::Denied,
        (false, false) => ReviewDecision::NoOpinion,
    }
}

#[cfg(test)]
mod tests;
