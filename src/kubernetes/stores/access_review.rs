//! Asks the API server, before the first list, whether this account has permission to list and watch a kind. For an
//! optional permission, a denied list is not an error and must not count as one.

use std::time::Duration;

use kube::{Client, Resource};

use crate::kubernetes::permissions::{Permission, is_allowed};

const LIMIT: Duration = Duration::from_secs(10);

/// Whether this account lacks the verb `list` or `watch` for all objects of the kind. Returns false if the API server
/// does not answer or cannot decide. The list itself then shows whether it is permitted.
pub(super) async fn is_denied<K: Resource<DynamicType = ()>>(client: &Client) -> bool {
    for verb in ["list", "watch"] {
        let permission = Permission {
            group: K::group(&()).into_owned(),
            resource: K::plural(&()).into_owned(),
            verb: verb.to_owned(),
            ..Permission::default()
        };
        match is_allowed(client, &permission, LIMIT).await {
            Ok(true) => {}
            Ok(false) => return true,
            Err(reason) => tracing::debug!(kind = %K::plural(&()), verb, "{reason}"),
        }
    }
    false
}
