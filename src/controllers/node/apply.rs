//! Sends the changes to the API server, in the order of the plan.
//!
//! At an initialization, the first write puts the addresses into the status. Then one patch makes all other changes and
//! removes the taint, so that no pod is scheduled to a Node without addresses. The condition is written last. Each
//! patch carries the UID and the latest `resourceVersion`, because the removal of the taint replaces the whole list of
//! taints and could drop concurrent changes.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::{Map, Value, json};

use super::plan::{Metadata, NodeAction};
use crate::cloud::node::{self, TAINT_UNINITIALIZED};
use crate::kubernetes::call::CallError;
use crate::kubernetes::patch::{patch, patch_status, preconditions};

/// Progress of a list of actions.
#[derive(Debug)]
pub struct ApplyProgress {
    /// The Node as the API server returned it last.
    pub node: Node,
    /// The `resourceVersion`s that the writes replaced.
    pub replaced: Vec<String>,
    /// Number of completed actions.
    pub done: usize,
    /// The error of the first failed action, if any. A conflict means that the plan is based on a stale Node.
    pub error: Option<CallError>,
}

/// Performs `actions` on `node`, and stops at the first action that fails.
pub async fn apply(nodes: &Api<Node>, node: &Node, actions: &[NodeAction]) -> ApplyProgress {
    let mut applied = ApplyProgress { node: node.clone(), replaced: Vec::new(), done: 0, error: None };
    for action in actions {
        match write(nodes, &applied.node, action).await {
            Ok(node) => {
                let before = std::mem::replace(&mut applied.node, node).metadata.resource_version;
                // A write that changes nothing creates no new version.
                if before != applied.node.metadata.resource_version {
                    applied.replaced.extend(before);
                }
                applied.done += 1;
            }
            Err(error) => return ApplyProgress { error: Some(error), ..applied },
        }
    }
    applied
}

async fn write(nodes: &Api<Node>, current: &Node, action: &NodeAction) -> Result<Node, CallError> {
    let name = node::name(current);
    let (verb, is_status) = match action {
        NodeAction::WriteAddresses(_) => ("write the addresses of", true),
        NodeAction::SetCondition(_) => ("write the condition of", true),
        NodeAction::Initialize { .. } => ("initialize", false),
        NodeAction::SetMetadata(_) => ("set labels and annotations of", false),
    };
    let (what, body) = (format!("{verb} Node {name}"), body(current, action));
    match is_status {
        true => patch_status(&what, nodes, name, body).await,
        false => patch(&what, nodes, name, body).await,
    }
}

fn body(current: &Node, action: &NodeAction) -> Value {
    match action {
        NodeAction::WriteAddresses(addresses) => {
            // Without `$patch: replace`, the API server merges the list by type, so two addresses of one type become
            // one.
            let mut list: Vec<Value> = addresses.iter().map(|address| json!(address)).collect();
            list.push(json!({"$patch": "replace"}));
            json!({"metadata": metadata(current, None), "status": {"addresses": list}})
        }
        NodeAction::SetCondition(condition) => {
            json!({"metadata": metadata(current, None), "status": {"conditions": [condition]}})
        }
        NodeAction::Initialize { provider_id, metadata: changes } => {
            let mut spec = Map::new();
            if node::is_uninitialized(current) {
                let taints = node::taints_without(current, TAINT_UNINITIALIZED, None);
                spec.insert("taints".into(), if taints.is_empty() { Value::Null } else { json!(taints) });
            }
            if let Some(provider_id) = provider_id {
                spec.insert("providerID".into(), json!(provider_id));
            }
            json!({"metadata": metadata(current, Some(changes)), "spec": spec})
        }
        NodeAction::SetMetadata(changes) => json!({"metadata": metadata(current, Some(changes))}),
    }
}

/// Returns the patch's `metadata`: the preconditions UID and `resourceVersion`, and the changes. `null` removes a key.
fn metadata(current: &Node, changes: Option<&Metadata>) -> Map<String, Value> {
    let mut metadata = preconditions(&current.metadata);
    if let Some(Metadata { labels, annotations, removed_annotations }) = changes {
        if !labels.is_empty() {
            metadata.insert("labels".into(), json!(labels));
        }
        let removed = removed_annotations.iter().map(|key| ((*key).to_owned(), Value::Null));
        let all: Map<String, Value> =
            annotations.iter().map(|(key, value)| (key.clone(), json!(value))).chain(removed).collect();
        if !all.is_empty() {
            metadata.insert("annotations".into(), Value::Object(all));
        }
    }
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::NodeCondition;
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
        let labels = BTreeMap::from([("a".to_owned(), Some("b".to_owned())), ("c".to_owned(), None)]);
        let annotations = BTreeMap::from([("vm".to_owned(), "1".to_owned())]);
        let metadata = Metadata { labels, annotations, removed_annotations: ["gone"].into() };
        let address = serde_json::from_value(json!({"type": "InternalIP", "address": "10.0.0.1"})).unwrap();
        let condition = NodeCondition { type_: "T".into(), status: "True".into(), ..NodeCondition::default() };
        let full = NodeAction::Initialize { provider_id: Some("fake://1".into()), metadata: metadata.clone() };
        let cases = [
            (
                "addresses",
                NodeAction::WriteAddresses(vec![address]),
                json!({
                    "metadata": {"uid": "u", "resourceVersion": "7"},
                    "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"$patch": "replace"}]},
                }),
            ),
            (
                "initialize",
                full,
                json!({
                    "metadata": {
                        "uid": "u", "resourceVersion": "7", "labels": {"a": "b", "c": null},
                        "annotations": {"vm": "1", "gone": null},
                    },
                    "spec": {"providerID": "fake://1", "taints": [{"key": "other", "effect": "NoSchedule"}]},
                }),
            ),
            (
                "labels and annotations",
                NodeAction::SetMetadata(metadata),
                json!({
                    "metadata": {
                        "uid": "u", "resourceVersion": "7", "labels": {"a": "b", "c": null},
                        "annotations": {"vm": "1", "gone": null},
                    },
                }),
            ),
            (
                "condition",
                NodeAction::SetCondition(condition),
                json!({
                    "metadata": {"uid": "u", "resourceVersion": "7"},
                    "status": {"conditions": [{"type": "T", "status": "True"}]},
                }),
            ),
        ];
        for (case, action, expected) in cases {
            assert_eq!(body(&node_with_taints(&[TAINT_UNINITIALIZED, "other"]), &action), expected, "{case}");
        }
    }

    #[test]
    fn taints_of_a_node_that_is_adopted_are_not_written() {
        let adopt = NodeAction::Initialize { provider_id: Some("fake://1".into()), metadata: Metadata::default() };
        let body = body(&node_with_taints(&["other"]), &adopt);
        let metadata = json!({"uid": "u", "resourceVersion": "7"});
        assert_eq!(body, json!({"metadata": metadata, "spec": {"providerID": "fake://1"}}));
    }

    #[test]
    fn the_last_taint_is_removed_with_null() {
        let initialize = NodeAction::Initialize { provider_id: None, metadata: Metadata::default() };
        let body = body(&node_with_taints(&[TAINT_UNINITIALIZED]), &initialize);
        assert_eq!(body, json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"taints": null}}));
    }
}
