//! Writes the taints and deletes Nodes. Each write carries the UID and the `resourceVersion` of the observed Node.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use serde_json::{Value, json};

use super::pause_monitor::DeletionWindow;
use super::plan::{ANNOTATION_OUT_OF_SERVICE, Change, taints_after};
use crate::cloud::node;
use crate::kubernetes::call::CallError;
use crate::kubernetes::patch::{patch, preconditions};

/// Performs `changes` in one patch. `time` (RFC 3339) is the value of the out-of-service annotation.
pub async fn write_taints(nodes: &Api<Node>, node: &Node, changes: &[Change], time: &str) -> Result<(), CallError> {
    let name = node::name(node);
    let what = format!("write the taints of Node {name}");
    patch(&what, nodes, name, body(node, changes, time)).await.map(drop)
}

/// Deletes only this version of the Node, with UID and `resourceVersion` as preconditions, and only within the window
/// after the read that told whether deletions pause.
pub async fn delete(nodes: &Api<Node>, node: &Node, window: &DeletionWindow) -> Result<(), CallError> {
    let name = node::name(node);
    let preconditions =
        Preconditions { uid: node.metadata.uid.clone(), resource_version: node.metadata.resource_version.clone() };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    window.limited(&format!("delete Node {name}"), nodes.delete(name, &parameters)).await.map(drop)
}

/// Returns the strategic merge patch, with the whole list of taints because the list is atomic.
fn body(node: &Node, changes: &[Change], time: &str) -> Value {
    let mut metadata = preconditions(&node.metadata);
    let annotation = changes.iter().find_map(|change| match change {
        Change::AddOutOfService => Some(json!(time)),
        Change::RemoveOutOfService => Some(Value::Null),
        Change::AddShutdown | Change::RemoveShutdown => None,
    });
    if let Some(value) = annotation {
        metadata.insert("annotations".into(), json!({ANNOTATION_OUT_OF_SERVICE: value}));
    }
    let taints = taints_after(node, changes);
    let taints = if taints.is_empty() { Value::Null } else { json!(taints) };
    json!({"metadata": metadata, "spec": {"taints": taints}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::node_lifecycle::plan::{TAINT_OUT_OF_SERVICE, TAINT_SHUTDOWN};

    #[test]
    fn patches_carry_the_whole_list_and_preconditions() {
        let other = json!({"key": "other", "effect": "NoExecute"});
        let shutdown = json!({"key": TAINT_SHUTDOWN, "effect": "NoSchedule"});
        let out = json!({"key": TAINT_OUT_OF_SERVICE, "effect": "NoExecute", "value": "nodeshutdown"});
        let cases: [(&str, &[Change], Value, Value, Value); 4] = [
            ("add", &[Change::AddShutdown], json!([other]), json!([other, shutdown]), json!(null)),
            ("remove the last", &[Change::RemoveShutdown], json!([shutdown]), json!(null), json!(null)),
            (
                "both",
                &[Change::AddShutdown, Change::AddOutOfService],
                json!([]),
                json!([shutdown, out]),
                json!({ANNOTATION_OUT_OF_SERVICE: "2026-01-01T00:00:00Z"}),
            ),
            (
                "none of them",
                &[Change::RemoveShutdown, Change::RemoveOutOfService],
                json!([other, out, shutdown]),
                json!([other]),
                json!({ANNOTATION_OUT_OF_SERVICE: null}),
            ),
        ];
        for (case, changes, before, after, annotations) in cases {
            let node: Node = serde_json::from_value(json!({
                "metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}, "spec": {"taints": before},
            }))
            .unwrap();
            let mut metadata = json!({"uid": "u", "resourceVersion": "7"});
            if !annotations.is_null() {
                metadata["annotations"] = annotations;
            }
            let expected = json!({"metadata": metadata, "spec": {"taints": after}});
            assert_eq!(body(&node, changes, "2026-01-01T00:00:00Z"), expected, "{case}");
        }
    }
}
