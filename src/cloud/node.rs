//! Pure functions on Nodes that controllers and providers need: taints, conditions, labels and annotations.

pub mod addresses;
pub mod cache_filter;
pub mod usable_addresses;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};

/// The taint of a Node registered by a kubelet with `--cloud-provider=external`.
pub const TAINT_UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The annotation with the kubelet's `--node-ip`.
pub const ANNOTATION_PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";
/// The prefix of this program's annotations.
pub const OWN_ANNOTATIONS: &str = "vsphere-ccm.dev/";
/// The annotation that records the VM of the Node.
pub const ANNOTATION_VM: &str = "vsphere-ccm.dev/vm";

/// A label and its older name. Both labels are always written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelPair {
    /// The current name.
    pub current: &'static str,
    /// The older name. If the Node has this label, the value of this label takes precedence, as in the Go program.
    pub legacy: &'static str,
}

/// The labels with the failure domain of a Node.
pub const ZONE: LabelPair =
    LabelPair { current: "topology.kubernetes.io/zone", legacy: "failure-domain.beta.kubernetes.io/zone" };
/// The labels with the region of a Node.
pub const REGION: LabelPair =
    LabelPair { current: "topology.kubernetes.io/region", legacy: "failure-domain.beta.kubernetes.io/region" };
/// The labels with the instance type of a Node.
pub const INSTANCE_TYPE: LabelPair =
    LabelPair { current: "node.kubernetes.io/instance-type", legacy: "beta.kubernetes.io/instance-type" };

/// Labels that mark a Node of the control plane; the second is the older name.
const CONTROL_PLANE_LABELS: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Status of the condition `Ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// The kubelet reports ready.
    True,
    /// The kubelet reports not ready, or the status is one that Kubernetes does not define.
    False,
    /// The kubelet stopped reporting, or never reported.
    Unknown,
}

/// Returns the Node's name. Empty only for an object that never was on an API server.
pub fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}

/// Returns the provider ID. Empty if the Node has none.
pub fn provider_id(node: &Node) -> &str {
    node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default()
}

/// Returns the UUID that the kubelet read from the firmware. Empty if the kubelet reported none.
pub fn system_uuid(node: &Node) -> &str {
    node.status
        .as_ref()
        .and_then(|status| status.node_info.as_ref())
        .map(|info| info.system_uuid.as_str())
        .unwrap_or_default()
}

/// Returns the taints, in the Node's order.
pub fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Returns true if the Node has a taint with this key, any value and any effect.
pub fn has_taint(node: &Node, key: &str) -> bool {
    taints(node).iter().any(|taint| taint.key == key)
}

/// Returns the taints except those with this key and, if given, this effect. Keeps the Node's order.
pub fn taints_without(node: &Node, key: &str, effect: Option<&str>) -> Vec<Taint> {
    let goes = |taint: &Taint| taint.key == key && effect.is_none_or(|effect| taint.effect == effect);
    taints(node).iter().filter(|taint| !goes(taint)).cloned().collect()
}

/// Returns true if a cloud controller still has to initialize the Node.
pub fn is_uninitialized(node: &Node) -> bool {
    has_taint(node, TAINT_UNINITIALIZED)
}

/// Returns the status of the Node's condition `Ready`.
pub fn readiness(node: &Node) -> Readiness {
    match condition(node, "Ready").map(|condition| condition.status.as_str()) {
        Some("True") => Readiness::True,
        Some("Unknown") | None => Readiness::Unknown,
        Some(_) => Readiness::False,
    }
}

/// Returns the time of the last transition of `Ready`, by the clock of the component that wrote the condition.
pub fn ready_since(node: &Node) -> Option<Timestamp> {
    condition(node, "Ready")?.last_transition_time.as_ref().map(|time| time.0)
}

/// Returns the Node's condition of this type, if any.
pub fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Returns true if the Node belongs to the control plane.
pub fn is_control_plane(node: &Node) -> bool {
    CONTROL_PLANE_LABELS.iter().any(|key| label(node, key).is_some())
}

/// Returns the value of a label.
pub fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str)
}

/// Returns the value of an annotation.
pub fn annotation<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(key)).map(String::as_str)
}

/// Returns true if a provider must not set this label through `InstanceMetadata::additional_labels`. The prefix of such
/// a label is `kubernetes.io`, `k8s.io` or a subdomain. Upstream matches `(^|\.)(kubernetes|k8s)\.io/`.
pub fn is_reserved_label(key: &str) -> bool {
    ["kubernetes.io/", "k8s.io/"].iter().any(|domain| {
        key.match_indices(domain)
            .any(|(start, _)| key.get(..start).is_some_and(|before| before.is_empty() || before.ends_with('.')))
    })
}
