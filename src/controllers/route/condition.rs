//! Pure: the condition `NetworkUnavailable`, which says whether a Node has its routes. Mirrors `updateNetworkingCondition` of
//! `controllers/route/route_controller.go`.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

const CONDITION: &str = "NetworkUnavailable";

/// The patch of the Node's status; none if the condition has this status and reason. A reason of another program is
/// overwritten.
pub fn patch(node: &Node, has_routes: bool, at: Timestamp) -> Option<Value> {
    let (status, reason, message) = match has_routes {
        true => ("False", "RouteCreated", "RouteController created a route"),
        false => ("True", "NoRouteCreated", "RouteController failed to create a route"),
    };
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let current = conditions.iter().find(|condition| condition.type_ == CONDITION);
    let is_same = |condition: &NodeCondition| condition.status == status && condition.reason.as_deref() == Some(reason);
    if current.is_some_and(is_same) {
        return None;
    }
    let condition = NodeCondition {
        type_: CONDITION.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(at)),
        last_transition_time: Some(Time(at)),
    };
    let metadata = json!({"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version});
    Some(json!({"metadata": metadata, "status": {"conditions": [condition]}}))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
