//! Pure: what the cache drops of a Node, because neither controllers nor providers read it. A reader that needs more of the
//! Node takes it out of this list, or reads the Node live.

use serde_json::Value;

use super::{ANNOTATION_PROVIDED_NODE_IP, OWN_ANNOTATIONS};

/// The fields that are not kept, as ways from the root.
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

/// The conditions that are not kept.
const UNREAD_CONDITIONS: [&str; 3] = ["MemoryPressure", "DiskPressure", "PIDPressure"];

/// Says whether the Node lacks routes. Its times and its message are not kept.
const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// Whether an annotation of this key is kept. Those of others may be large.
pub fn keeps_annotation(key: &str) -> bool {
    key.starts_with(OWN_ANNOTATIONS) || key == ANNOTATION_PROVIDED_NODE_IP
}

/// Drops what is not read of the conditions.
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
