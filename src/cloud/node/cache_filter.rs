//! Pure: selects the fields of a Node that the cache drops because no code reads them. New code that needs a field must
//! accept it in [`is_read`], or read the Node live.

use k8s_openapi::api::core::v1::{Node, NodeCondition};

use super::{ANNOTATION_PROVIDED_NODE_IP, OWN_ANNOTATIONS};

/// The condition that the kubelet or the node lifecycle controller writes. The cache keeps type, status and transition.
const READY: &str = "Ready";

/// The condition of a Node without routes. The cache keeps type, status and reason.
const NETWORK_UNAVAILABLE: &str = "NetworkUnavailable";

/// The condition that this program writes on a Node that is not initialized. The cache keeps all of it.
pub const INITIALIZED: &str = "VSphereInitialized";

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

/// Drops the conditions that no code reads, such as those of a problem detector, and unread fields of the others.
pub fn prune(node: &mut Node) {
    let Some(conditions) = node.status.as_mut().and_then(|status| status.conditions.as_mut()) else { return };
    let all = std::mem::take(conditions);
    conditions.extend(all.into_iter().filter_map(read_fields));
    conditions.shrink_to_fit();
}

fn read_fields(condition: NodeCondition) -> Option<NodeCondition> {
    if condition.type_ == INITIALIZED {
        return Some(condition);
    }
    let NodeCondition { type_, status, reason, last_transition_time, .. } = condition;
    match type_.as_str() {
        READY => Some(NodeCondition { type_, status, last_transition_time, ..NodeCondition::default() }),
        NETWORK_UNAVAILABLE => Some(NodeCondition { type_, status, reason, ..NodeCondition::default() }),
        _ => None,
    }
}
