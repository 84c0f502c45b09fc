//! Tests permissions of this process by SelfSubjectAccessReviews.

use std::fmt;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

use super::call::limited;
use crate::base::error_chain::chain;

/// A permission at the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural of the kind, such as `nodes`.
    pub resource: String,
    /// The subresource, such as `status`.
    pub subresource: Option<String>,
    /// The verb.
    pub verb: String,
    /// The namespace; `None` for all namespaces, and for objects without namespace.
    pub namespace: Option<String>,
    /// The name of the object; `None` for all objects.
    pub name: Option<String>,
}

/// Writes `patch nodes/status`, `watch secrets kube-system/vsphere-cloud-secret` or `create leases in kube-system`.
impl fmt::Display for Permission {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.verb, self.resource)?;
        if let Some(subresource) = &self.subresource {
            write!(formatter, "/{subresource}")?;
        }
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => write!(formatter, " {namespace}/{name}"),
            (Some(namespace), None) => write!(formatter, " in {namespace}"),
            (None, Some(name)) => write!(formatter, " {name}"),
            (None, None) => Ok(()),
        }
    }
}

/// Asks the API server whether this account has the permission.
///
/// # Errors
/// The API server does not answer, or cannot decide.
pub async fn is_allowed(client: &Client, permission: &Permission, limit: Duration) -> Result<bool, String> {
    let Permission { group, resource, subresource, verb, namespace, name } = permission.clone();
    let attributes = ResourceAttributes {
        group: Some(group),
        resource: Some(resource),
        subresource,
        verb: Some(verb),
        namespace,
        name,
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let parameters = PostParams::default();
    let reviews = Api::all(client.clone());
    let created = reviews.create(&parameters, &review);
    let review = limited("create a SelfSubjectAccessReview", limit, created).await.map_err(|error| chain(&error))?;
    let status = review.status.ok_or_else(|| "the API server gave no decision".to_owned())?;
    match status.evaluation_error {
        Some(error) if !status.allowed => Err(format!("the API server cannot decide: {error}")),
        _ => Ok(status.allowed),
    }
}

/// Returns the user name of this account, as the API server knows it.
///
/// # Errors
/// The API server does not answer, or tells no name.
pub async fn user_name(client: &Client, limit: Duration) -> Result<String, String> {
    let parameters = PostParams::default();
    let reviews = Api::all(client.clone());
    let review = SelfSubjectReview::default();
    let created = reviews.create(&parameters, &review);
    let review = limited("create a SelfSubjectReview", limit, created).await.map_err(|error| chain(&error))?;
    let user = review.status.and_then(|status| status.user_info).and_then(|user| user.username);
    user.ok_or_else(|| "the API server returned no user name".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_is_written_with_its_object() {
        let permission = |subresource: Option<&str>, namespace: Option<&str>, name: Option<&str>| {
            let text = |text: Option<&str>| text.map(str::to_owned);
            let permission = Permission {
                resource: "nodes".to_owned(),
                subresource: text(subresource),
                verb: "patch".to_owned(),
                namespace: text(namespace),
                name: text(name),
                ..Permission::default()
            };
            permission.to_string()
        };
        assert_eq!(permission(Some("status"), None, None), "patch nodes/status");
        assert_eq!(permission(None, Some("a"), Some("b")), "patch nodes a/b");
        assert_eq!(permission(None, Some("a"), None), "patch nodes in a");
    }
}
