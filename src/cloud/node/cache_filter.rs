//! Pure: selects the fields of a Node that the cache drops because no code reads them. New code that needs a field must
//! remove it from [`UNREAD`], or read the Node live.

use serde_json::Value;

use super::{ANNOTATION_PROVIDED_NODE_IP, OWN_ANNOTATIONS};

/// Paths of the dropped fields.
pub const UNREAD: &[&[&str]] = &[
    &["metadata", "managedFields"],
    &["status", "allocatable"],
    &["status", "capacity"],
    &["status", "config"],
    &["status", "daemonEndpoints"],
    &["status", "images"],
    &["status", "nodeInfo", "architecture"],
    &["status", "nodeInfo", "bootID"],
    &["status", "nodeInfo", "containerRuntimeVersion"],
    &["status", "nodeInfo", "kernelVersion"],
    &["status", "nodeInfo", "kubeProxyVersion"],
    &["status", "nodeInfo", "kubeletVersion"],
    &["status", "nodeInfo", "machineID"],
    &["status", "nodeInfo", "operatingSystem"],
    &["status", "nodeInfo", "osImage"],
    &["status", "runtimeHandlers"],
    &["status", "volumesAttached"],
    &["status", "volumesInUse"],
];

/// The dropped conditions.
const UNREAD_CONDITIONS: [&str; 3] = ["MemoryPressure", "DiskPressure", "PIDPressure"];

/// The condition of a Node without routes. Of this condition, the cache keeps only type, status and reason.
const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// Returns true if the cache keeps an annotation with this key. Annotations of other programs may be large.
pub fn keeps_annotation(key: &str) -> bool {
    key.starts_with(OWN_ANNOTATIONS) || key == ANNOTATION_PROVIDED_NODE_IP
}

/// Drops unread conditions, and unread fields of the condition `NetworkUnavailable`.
pub fn prune(node: &mut Value) {
    if let Some(conditions) = node.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
        conditions.retain_mut(|condition| match condition.get("type").and_then(Value::as_str) {
            Some(NETWORK_UNAVAILABLE) => {
                if let Some(condition) = condition.as_object_mut() {
                    condition.retain(|field, _| matches!(field.as_str(), "type" | "status" | "reason"));
                }
                true
            }
            Some(kind) => !UNREAD_CONDITIONS.contains(&kind),
            None => true,
        });
    }
}
