//! Pure: the condition `NetworkUnavailable`, which shows whether a Node has its routes. Mirrors
//! `updateNetworkingCondition` of `controllers/route/route_controller.go`.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use serde_json::{Value, json};

use crate::cloud::node;
use crate::controllers::preconditions;

const CONDITION: &str = "NetworkUnavailable";
const CREATED: &str = "RouteCreated";
const NOT_CREATED: &str = "NoRouteCreated";

/// Returns the Node's condition `NetworkUnavailable`, if any.
pub fn of(node: &Node) -> Option<&NodeCondition> {
    node::condition(node, CONDITION)
}

/// Returns status and reason that the condition gets. Returns `None` if the condition already has them. A reason of
/// another program is overwritten.
pub fn change(node: &Node, has_routes: bool) -> Option<(&'static str, &'static str)> {
    let (status, reason) = if has_routes { ("False", CREATED) } else { ("True", NOT_CREATED) };
    let is_same = |condition: &NodeCondition| condition.status == status && condition.reason.as_deref() == Some(reason);
    (!of(node).is_some_and(is_same)).then_some((status, reason))
}

/// Builds the patch of the Node's status. Returns `None` if the condition already has its status and reason.
pub fn patch(node: &Node, has_routes: bool, at: Timestamp) -> Option<Value> {
    let (status, reason) = change(node, has_routes)?;
    let message =
        if has_routes { "RouteController created a route" } else { "RouteController failed to create a route" };
    let condition = NodeCondition {
        type_: CONDITION.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(at)),
        last_transition_time: Some(Time(at)),
    };
    Some(status_patch(node, &json!(condition)))
}

/// Whether the condition reports a missing route. While routes are off, no route is created, so the condition is
/// obsolete.
pub fn is_obsolete(node: &Node) -> bool {
    of(node).is_some_and(|condition| condition.status == "True" && condition.reason.as_deref() == Some(NOT_CREATED))
}

/// Builds the patch that removes the condition, if the condition [is obsolete](is_obsolete) and `manager` wrote it.
/// `live` must be read live, because the cache drops `managedFields`.
pub fn removal(live: &Node, manager: &str) -> Option<Value> {
    let way = ["f:status", "f:conditions", &format!("k:{{\"type\":\"{CONDITION}\"}}")];
    let owns = |entry: &ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        let owned = fields.and_then(|fields| way.iter().try_fold(fields, |fields, field| fields.get(field)));
        entry.manager.as_deref() == Some(manager) && owned.is_some()
    };
    let entries = live.metadata.managed_fields.as_deref().unwrap_or_default();
    let is_ours = is_obsolete(live) && entries.iter().any(owns);
    is_ours.then(|| status_patch(live, &json!({"$patch": "delete", "type": CONDITION})))
}

fn status_patch(node: &Node, condition: &Value) -> Value {
    json!({"metadata": preconditions(&node.metadata), "status": {"conditions": [condition]}})
}

#[cfg(test)]
mod tests {
    use super::*;

    // vectors
    #[test]
    fn the_condition_is_written_as_in_the_go_program() {
        let created = Some(("False", "RouteCreated", "RouteController created a route"));
        let failed = Some(("True", "NoRouteCreated", "RouteController failed to create a route"));
        for (id, before, has_routes, expected) in [
            ("R-60", None, true, created),
            ("R-61", None, false, failed),
            ("R-62", Some(("False", "RouteCreated")), true, None),
            ("R-63", Some(("False", "CalicoIsUp")), true, created),
            ("R-64", Some(("False", "ExternalCNI")), true, created),
            ("R-65", Some(("True", "SomeOtherReason")), false, failed),
            ("R-66", Some(("False", "RouteCreated")), false, failed),
            ("R-67", Some(("True", "NoRouteCreated")), false, None),
        ] {
            let before = before.map(|(status, reason)| json!({"type": CONDITION, "status": status, "reason": reason}));
            let node = serde_json::from_value(json!({
                "metadata": {"name": "a", "uid": "u", "resourceVersion": "7"},
                "status": {"conditions": before.into_iter().collect::<Vec<_>>()},
            }))
            .unwrap();
            let patch = patch(&node, has_routes, Timestamp::UNIX_EPOCH);
            let written = patch.as_ref().map(|patch| {
                assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "7"}), "{id}");
                let condition = &patch["status"]["conditions"][0];
                assert_eq!(condition["type"], CONDITION, "{id}");
                assert_eq!(condition["lastTransitionTime"], condition["lastHeartbeatTime"], "{id}");
                let text = |field: &str| condition[field].as_str().unwrap();
                (text("status"), text("reason"), text("message"))
            });
            assert_eq!(written, expected, "{id}");
        }
    }
    #[test]
    fn a_condition_left_behind_is_removed_if_this_program_wrote_it() {
        let (ours, other) = ("ccm", "cni");
        let owned =
            json!({"f:status": {"f:conditions": {"k:{\"type\":\"NetworkUnavailable\"}": {".": {}, "f:status": {}}}}});
        let ready = json!({"f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {}}}});
        for (case, status, reason, entries, expected) in [
            ("ours", "True", NOT_CREATED, json!([{"manager": ours, "fieldsV1": owned}]), true),
            ("another's", "True", NOT_CREATED, json!([{"manager": other, "fieldsV1": owned}]), false),
            (
                "another's, and something else is ours",
                "True",
                NOT_CREATED,
                json!([{"manager": ours, "fieldsV1": ready}, {"manager": other, "fieldsV1": owned}]),
                false,
            ),
            ("unknown", "True", NOT_CREATED, json!([]), false),
            ("no fields", "True", NOT_CREATED, json!([{"manager": ours}]), false),
            ("routes are there", "False", CREATED, json!([{"manager": ours, "fieldsV1": owned}]), false),
            ("another reason", "True", "CalicoIsDown", json!([{"manager": ours, "fieldsV1": owned}]), false),
        ] {
            let node = serde_json::from_value(json!({
                "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "managedFields": entries},
                "status": {"conditions": [{"type": CONDITION, "status": status, "reason": reason}]},
            }))
            .unwrap();
            let patch = removal(&node, ours);
            let expected = expected.then(|| {
                json!({
                    "metadata": {"uid": "u", "resourceVersion": "7"},
                    "status": {"conditions": [{"$patch": "delete", "type": CONDITION}]},
                })
            });
            assert_eq!(patch, expected, "{case}");
        }
    }
}
