//! The controllers and their shared parts.
//!
//! A controller maps the events of the [`driver`] to keys of objects. For each key, `observe` reads all inputs into one
//! value, `plan` maps this value to a list of changes without any I/O, and `apply` performs the changes. A reconcile
//! gets the key, not the event, so the next periodic resync makes up for a missed event.

pub mod capability;
pub mod decisions;
pub mod driver;
pub mod instances;
pub mod node;
pub mod node_lifecycle;
pub mod reason;
mod reason_tracker;
pub mod retry;
pub mod route;
mod running_gauge;
pub mod service;

pub use reason_tracker::BlockedObject;

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Node, ObjectReference};
use kube::{Api, Resource};

use crate::cloud::{CloudProvider, Reason};
use crate::controllers::decisions::DecisionHistory;
use crate::kubernetes::call::{CALL_LIMIT, CallError, get_opt};
use crate::kubernetes::events::{EventType, Recorder};
use crate::kubernetes::leadership::Leadership;
use crate::kubernetes::patch::{FIELD_MANAGER, preconditions};

/// Dependencies that all controllers share. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// Client for writes and live reads. It refuses writes while this process does not lead.
    pub write: kube::Client,
    /// Recorder of Events. Each controller sets its own component name.
    pub recorder: Recorder,
    /// The cloud provider.
    pub provider: Arc<dyn CloudProvider>,
    /// Leadership of this process. Only the leader is permitted to write.
    pub leadership: Leadership,
    /// The last decisions of all controllers.
    pub decisions: DecisionHistory,
}

/// Error: the provider of this name has no instances, which the controller needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cloud provider {0} does not support instances")]
pub struct UnsupportedController(pub &'static str);

/// Returns the time of the monotonic clock, which tests can pause.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Reads the Node from the API server, not from the cache.
async fn read_live(nodes: &Api<Node>, name: &str) -> Result<Option<Node>, CallError> {
    get_opt(&format!("get Node {name}"), CALL_LIMIT, nodes, name).await
}

fn reason_of(error: &CallError) -> Reason {
    match error {
        CallError::Refused { .. } if error.is_conflict() => reason::WriteConflict,
        CallError::Refused { .. } => reason::WriteRefused,
        CallError::NoToken(_, source) if source.is_refused => reason::WriteRefused,
        CallError::Failed { .. }
        | CallError::TimedOut { .. }
        | CallError::NotLeader { .. }
        | CallError::NoToken { .. } => reason::APIServerUnavailable,
    }
}

/// Records an Event about `object` and writes it to the log. The log line has the format of `StartStructuredLogging` in
/// client-go (`tools/record/event.go`), so that log rules for the Go program keep working.
fn record_event<K>(recorder: &Recorder, object: &K, event_type: EventType, reason: &'static str, message: &str)
where
    K: Resource<DynamicType = ()>,
{
    let reference = reference(object);
    recorder.event(&reference, event_type, reason, message);
    tracing::info!(
        object = shown(&reference),
        fieldPath = "",
        kind = reference.kind,
        apiVersion = reference.api_version,
        "type" = event_type.as_str(),
        reason,
        message,
        "Event occurred"
    );
}

/// Returns the name of the object in the log format of client-go: `namespace/name`, or `name` without a namespace.
fn shown(reference: &ObjectReference) -> String {
    let name = reference.name.as_deref().unwrap_or_default();
    reference.namespace.as_ref().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        namespace: object.meta().namespace.clone(),
        name: object.meta().name.clone(),
        uid: object.meta().uid.clone(),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Service;
    use kube::core::Status;
    use serde_json::json;

    #[test]
    fn a_write_that_is_not_taken_has_the_reason_that_the_pages_name() {
        let refused = |code: u16, reason: &str| {
            let status = Status { code, reason: reason.to_owned(), ..Status::default() };
            CallError::Refused("update node n".to_owned(), Box::new(status))
        };
        for (error, expected) in [
            (refused(409, "Conflict"), "WriteConflict"),
            (refused(403, "Forbidden"), "WriteRefused"),
            (refused(422, "Invalid"), "WriteRefused"),
            (CallError::TimedOut("update node n".to_owned(), CALL_LIMIT.into()), "APIServerUnavailable"),
        ] {
            assert_eq!(reason_of(&error).as_str(), expected, "{error}");
        }
    }

    #[test]
    fn events_name_objects_with_their_kind_and_namespace() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "a", "uid": "u"}})).unwrap();
        let expected = json!({"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "u"});
        assert_eq!((json!(reference(&node)), shown(&reference(&node))), (expected, "a".to_owned()));
        let metadata = json!({"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"});
        let service: Service = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        let expected = json!({"apiVersion": "v1", "kind": "Service", "namespace": "n", "name": "a", "uid": "u"});
        assert_eq!((json!(reference(&service)), shown(&reference(&service))), (expected, "n/a".to_owned()));
    }
}
