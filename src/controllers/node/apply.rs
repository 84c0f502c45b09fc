//! Writes: sends the changes, in the plan's order.
//!
//! Addresses go first and into the status; everything else follows in one patch together with the removal of the taint.
//! So no pod lands on a node without addresses, and a process that dies in between leaves a node that is still tainted
//! and is simply planned again. Every patch carries UID and resourceVersion, the second one that which the first
//! returned: the list of taints is written whole, and would otherwise drop what others added meanwhile.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Map, Value, json};

use super::plan::{Action, Initialise, other_taints};
use crate::cloud::node;
use crate::controllers::FIELD_MANAGER;
use crate::kubernetes::client::{CALL_LIMIT, CallError, limited};

/// Performs `actions` on `node` and gives the node as the API server has it afterwards. Stops at the first refusal; a
/// conflict means that the plan was made for another state.
pub async fn apply(nodes: &Api<Node>, node: &Node, actions: &[Action]) -> Result<Node, CallError> {
    let mut current = node.clone();
    for action in actions {
        current = write(nodes, &current, action).await?;
    }
    Ok(current)
}

async fn write(nodes: &Api<Node>, current: &Node, action: &Action) -> Result<Node, CallError> {
    let name = node::name(current);
    let parameters = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Strategic(body(current, action));
    match action {
        Action::WriteAddresses(_) => {
            let what = format!("write the addresses of node {name}");
            limited(&what, CALL_LIMIT, nodes.patch_status(name, &parameters, &patch)).await
        }
        Action::Initialise(_) => {
            let what = format!("initialise node {name}");
            limited(&what, CALL_LIMIT, nodes.patch(name, &parameters, &patch)).await
        }
        Action::SetLabels(_) => {
            let what = format!("set labels of node {name}");
            limited(&what, CALL_LIMIT, nodes.patch(name, &parameters, &patch)).await
        }
    }
}

/// The strategic merge patch that does `action` to `current` and to nothing else.
fn body(current: &Node, action: &Action) -> Value {
    let mut metadata = Map::new();
    metadata.insert("uid".into(), json!(current.metadata.uid));
    metadata.insert("resourceVersion".into(), json!(current.metadata.resource_version));
    match action {
        Action::WriteAddresses(addresses) => {
            // The field merges by type: without the directive, two addresses of one type become one.
            let mut list: Vec<Value> = addresses.iter().map(|address| json!(address)).collect();
            list.push(json!({"$patch": "replace"}));
            json!({"metadata": metadata, "status": {"addresses": list}})
        }
        Action::Initialise(Initialise { provider_id, labels, annotations }) => {
            if !labels.is_empty() {
                metadata.insert("labels".into(), json!(labels));
            }
            if !annotations.is_empty() {
                metadata.insert("annotations".into(), json!(annotations));
            }
            let taints = other_taints(current);
            let mut spec = Map::new();
            spec.insert("taints".into(), if taints.is_empty() { Value::Null } else { json!(taints) });
            if let Some(provider_id) = provider_id {
                spec.insert("providerID".into(), json!(provider_id));
            }
            json!({"metadata": metadata, "spec": spec})
        }
        Action::SetLabels(labels) => {
            metadata.insert("labels".into(), json!(labels));
            json!({"metadata": metadata})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::node::TAINT_UNINITIALIZED;
    use std::collections::BTreeMap;

    fn node_with_taints(keys: &[&str]) -> Node {
        let taints: Vec<Value> = keys.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
        serde_json::from_value(json!({
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}, "spec": {"taints": taints},
        }))
        .unwrap()
    }

    #[test]
    fn patches_have_the_wire_format_of_the_go_program_and_preconditions() {
        let labels = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        let address = serde_json::from_value(json!({"type": "InternalIP", "address": "10.0.0.1"})).unwrap();
        let full = Initialise {
            provider_id: Some("fake://1".into()),
            labels: labels.clone(),
            annotations: BTreeMap::from([("vm".to_owned(), "1".to_owned())]),
        };
        let cases = [
            (
                "addresses",
                Action::WriteAddresses(vec![address]),
                json!({
                    "metadata": {"uid": "u", "resourceVersion": "7"},
                    "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"$patch": "replace"}]},
                }),
            ),
            (
                "initialise",
                Action::Initialise(full),
                json!({
                    "metadata": {
                        "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}, "annotations": {"vm": "1"},
                    },
                    "spec": {"providerID": "fake://1", "taints": [{"key": "other", "effect": "NoSchedule"}]},
                }),
            ),
            (
                "labels",
                Action::SetLabels(labels),
                json!({"metadata": {"uid": "u", "resourceVersion": "7", "labels": {"a": "b"}}}),
            ),
        ];
        for (case, action, expected) in cases {
            assert_eq!(body(&node_with_taints(&[TAINT_UNINITIALIZED, "other"]), &action), expected, "{case}");
        }
    }

    #[test]
    fn the_last_taint_is_removed_with_null() {
        let body = body(&node_with_taints(&[TAINT_UNINITIALIZED]), &Action::Initialise(Initialise::default()));
        assert_eq!(body, json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"taints": null}}));
    }
}
