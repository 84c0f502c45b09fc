//! Pure: fields of a Node that the cache drops because no controller or provider reads them. A reader that needs one
//! removes it from this list or reads the Node live.

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

/// The condition of a Node without routes. Only type, status and reason are kept.
const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// Whether an annotation of this key is kept. Annotations of other programs may be large.
pub fn keeps_annotation(key: &str) -> bool {
    key.starts_with(OWN_ANNOTATIONS) || key == ANNOTATION_PROVIDED_NODE_IP
}

/// Drops unread conditions and fields of conditions.
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
