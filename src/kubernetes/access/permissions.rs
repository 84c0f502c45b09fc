//! What somebody may, asked of the API server by SubjectAccessReview.

use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use kube::Client;
use tokio::time::Instant;

use super::Authorization;
use super::metrics::{Authorized, Metrics};
use super::open_paths::OpenPaths;
use super::questions::{Kind, Questions};
use super::remembered::{Question, Remembered, question};
use crate::kubernetes::call::CallError;
use crate::runtime::admin::access::{Authorizer, User};
use crate::runtime::tasks::BoxError;

/// Whoever is in it may do everything, in every Kubernetes.
const MASTERS: &str = "system:masters";

/// Answers remembered.
const REMEMBERED: usize = 1024;

const KIND: Kind = Kind {
    name: "SubjectAccessReview",
    effect: "what is asked for at the secure port is refused, open paths and the group system:masters apart",
};

/// An [`Authorizer`] that asks the API server and believes its answer for a while. Failures are not remembered.
pub struct Permissions {
    open: OpenPaths,
    questions: Questions,
    answers: Remembered<Decision>,
    allowed: Duration,
    refused: Duration,
    metrics: Metrics,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    Allowed,
    Denied,
    NoOpinion,
}

/// It could not be found out what somebody may.
#[derive(Debug, thiserror::Error)]
enum Unknown {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the API server both allows and denies it")]
    Contradiction,
}

impl Permissions {
    /// Asks by `client`, which must not be guarded by leadership.
    pub fn new(client: Client, settings: &Authorization, metrics: Metrics) -> Self {
        Self {
            open: settings.always_allow.clone(),
            questions: Questions::new(client, KIND, metrics.authorization.clone()),
            answers: Remembered::new(REMEMBERED),
            allowed: settings.allowed_cache,
            refused: settings.refused_cache,
            metrics,
        }
    }

    async fn decide(&self, user: &User, verb: &str, path: &str) -> Result<Decision, Unknown> {
        if user.groups.iter().any(|group| group == MASTERS) || self.open.contains(path) {
            return Ok(Decision::Allowed);
        }
        let spec = spec(user, verb, path);
        let asked = question(&serde_json::to_vec(&spec).unwrap_or_default());
        if let Some(decision) = self.answers.find(&asked) {
            return Ok(decision);
        }
        let asking = async {
            let _turn = self.questions.turn().await;
            // Another may have asked the same while this one waited.
            match self.answers.find(&asked) {
                Some(decision) => Ok(Ok(decision)),
                None => self.review(spec, asked).await,
            }
        };
        self.questions.within_limit(asking).await?
    }

    async fn review(&self, spec: SubjectAccessReviewSpec, asked: Question) -> kube::Result<Result<Decision, Unknown>> {
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let decided = decision(&self.questions.ask(&review).await?.status.unwrap_or_default());
        if let Ok(decision) = decided {
            let believed = if decision == Decision::Allowed { self.allowed } else { self.refused };
            self.answers.remember(asked, decision, believed);
        }
        Ok(decided)
    }
}

#[async_trait]
impl Authorizer for Permissions {
    fn is_open(&self, path: &str) -> bool {
        let is_open = self.open.contains(path);
        if is_open {
            self.metrics.count_authorization(Authorized::Allowed, Duration::ZERO);
        }
        is_open
    }

    async fn may(&self, user: &User, verb: &str, path: &str) -> Result<bool, BoxError> {
        let begin = Instant::now();
        let decided = self.decide(user, verb, path).await;
        let outcome = match &decided {
            Ok(Decision::Allowed) => Authorized::Allowed,
            Ok(Decision::Denied) => Authorized::Denied,
            Ok(Decision::NoOpinion) => Authorized::NoOpinion,
            Err(_) => Authorized::Failed,
        };
        self.metrics.count_authorization(outcome, begin.elapsed());
        Ok(decided? == Decision::Allowed)
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

fn decision(status: &SubjectAccessReviewStatus) -> Result<Decision, Unknown> {
    match (status.allowed, status.denied.unwrap_or_default()) {
        (true, true) => Err(Unknown::Contradiction),
        (true, false) => Ok(Decision::Allowed),
        (false, true) => Ok(Decision::Denied),
        (false, false) => Ok(Decision::NoOpinion),
    }
}

#[cfg(test)]
mod tests;
