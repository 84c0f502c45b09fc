//! Asks the API server, before the first list, whether this account has permission to list and watch a kind. For an
//! optional permission, a denied list is not an error and must not count as one.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client, Resource};

use crate::base::error_chain::chain;
use crate::kubernetes::call::limited;

const LIMIT: Duration = Duration::from_secs(10);

/// Whether this account lacks the verb `list` or `watch` for all objects of the kind. Returns false if the API server
/// does not answer or cannot decide. The list itself then shows whether it is permitted.
pub(super) async fn is_denied<K: Resource<DynamicType = ()>>(client: &Client) -> bool {
    let reviews = Api::all(client.clone());
    for verb in ["list", "watch"] {
        let attributes = ResourceAttributes {
            group: Some(K::group(&()).into_owned()),
            resource: Some(K::plural(&()).into_owned()),
            verb: Some(verb.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let parameters = PostParams::default();
        let created = reviews.create(&parameters, &review);
        match limited("create a SelfSubjectAccessReview", LIMIT, created).await.map(|review| review.status) {
            Ok(Some(status)) if !status.allowed && status.evaluation_error.is_none() => return true,
            Ok(_) => {}
            Err(error) => tracing::debug!(kind = %K::plural(&()), verb, "{}", chain(&error)),
        }
    }
    false
}
