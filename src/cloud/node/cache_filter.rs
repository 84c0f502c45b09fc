//! Pure: selects the fields of a Node that the cache drops because no code reads them. New code that needs a field must
//! accept it in [`is_read`], or read the Node live.

use k8s_openapi::api::core::v1::{Node, NodeCondition};

use super::{ANNOTATION_PROVIDED_NODE_IP, OWN_ANNOTATIONS};

/// The dropped conditions.
const UNREAD_CONDITIONS: [&str; 3] = ["MemoryPressure", "DiskPressure", "PIDPressure"];

/// The condition of a Node without routes. Of this condition, the cache keeps only type, status and reason.
const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// Returns true if the field at this path is decoded. Annotations of other programs may be large.
pub fn is_read(path: &[&str]) -> bool {
    match path {
        ["metadata", "managedFields"] => false,
        ["metadata", "annotations", key] => key.starts_with(OWN_ANNOTATIONS) || *key == ANNOTATION_PROVIDED_NODE_IP,
        ["status", "allocatable" | "capacity" | "config" | "daemonEndpoints" | "images"] => false,
        ["status", "runtimeHandlers" | "volumesAttached" | "volumesInUse"] => false,
        ["status", "nodeInfo", "architecture" | "bootID" | "containerRuntimeVersion" | "kernelVersion"] => false,
        ["status", "nodeInfo", "kubeProxyVersion" | "kubeletVersion" | "machineID"] => false,
        ["status", "nodeInfo", "operatingSystem" | "osImage"] => false,
        _ => true,
    }
}

/// Drops unread conditions, and unread fields of the condition `NetworkUnavailable`.
pub fn prune(node: &mut Node) {
    let Some(conditions) = node.status.as_mut().and_then(|status| status.conditions.as_mut()) else { return };
    conditions.retain(|condition| !UNREAD_CONDITIONS.contains(&condition.type_.as_str()));
    for condition in conditions.iter_mut().filter(|condition| condition.type_ == NETWORK_UNAVAILABLE) {
        let NodeCondition { type_, status, reason, .. } = std::mem::take(condition);
        *condition = NodeCondition { type_, status, reason, ..NodeCondition::default() };
    }
    conditions.shrink_to_fit();
}
