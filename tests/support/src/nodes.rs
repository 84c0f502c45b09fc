//! Nodes as kubelets register them with `--cloud-provider=external`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

/// Taint of a Node that no cloud-controller-manager has initialized yet.
pub const UNINITIALIZED_TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Annotation with the value of a kubelet's `--node-ip`.
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";

/// Builds a Node as a kubelet does. Mirrors `pkg/kubelet/kubelet_node_status.go`, `initialNode` and
/// `pkg/kubelet/nodestatus/setters.go`, `NodeAddress`.
#[derive(Clone, Debug)]
pub struct KubeletNode(Node);

impl KubeletNode {
    /// Makes a joining node: tainted, not ready, and without addresses, because without `--node-ip` the
    /// cloud-controller-manager sets them. `system_uuid` is the UUID of the guest's firmware.
    #[must_use]
    pub fn new(name: &str, system_uuid: &str) -> Self {
        let labels = [
            ("kubernetes.io/hostname", name),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", "amd64"),
        ];
        let node = Node {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: Some(vec![Taint {
                    key: UNINITIALIZED_TAINT.to_owned(),
                    value: Some("true".to_owned()),
                    effect: "NoSchedule".to_owned(),
                    ..Taint::default()
                }]),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                node_info: Some(NodeSystemInfo {
                    system_uuid: system_uuid.to_owned(),
                    machine_id: system_uuid.replace('-', ""),
                    kubelet_version: "v1.34.4".to_owned(),
                    operating_system: "linux".to_owned(),
                    architecture: "amd64".to_owned(),
                    ..NodeSystemInfo::default()
                }),
                ..NodeStatus::default()
            }),
        };
        Self(node).condition("False")
    }

    /// Sets the kubelet's Ready condition to True.
    #[must_use]
    pub fn ready(self) -> Self {
        self.condition("True")
    }

    /// Sets the Ready condition to Unknown, as when the kubelet is silent.
    #[must_use]
    pub fn unheard(self) -> Self {
        self.condition("Unknown")
    }

    /// Makes the Node of a kubelet with `--node-ip`: it has the annotation, and this address and its host name until
    /// the cloud-controller-manager writes addresses.
    #[must_use]
    pub fn provided_ip(mut self, ip: &str) -> Self {
        let name = self.0.metadata.name.clone().unwrap_or_default();
        self.0.metadata.annotations.get_or_insert_default().insert(PROVIDED_NODE_IP.to_owned(), ip.to_owned());
        let address = |kind: &str, value: &str| NodeAddress { type_: kind.to_owned(), address: value.to_owned() };
        self.0.status.get_or_insert_default().addresses =
            Some(vec![address("InternalIP", ip), address("Hostname", &name)]);
        self
    }

    /// Sets the pod network that kube-controller-manager assigns.
    #[must_use]
    pub fn pod_cidr(mut self, network: &str) -> Self {
        let spec = self.0.spec.get_or_insert_default();
        (spec.pod_cidr, spec.pod_cidrs) = (Some(network.to_owned()), Some(vec![network.to_owned()]));
        self
    }

    /// Adds this label, for example for a `--node-selector`.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0.metadata.labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds these labels.
    #[must_use]
    pub fn labels(mut self, labels: &BTreeMap<String, String>) -> Self {
        self.0.metadata.labels.get_or_insert_default().extend(labels.clone());
        self
    }

    /// Adds the taint and the label of a control-plane node, as kubeadm sets them.
    #[must_use]
    pub fn control_plane(mut self) -> Self {
        const KEY: &str = "node-role.kubernetes.io/control-plane";
        self.0.spec.get_or_insert_default().taints.get_or_insert_default().push(Taint {
            key: KEY.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        });
        self.label(KEY, "")
    }

    /// Sets these pod networks, as `--allocate-node-cidrs` assigns them.
    #[must_use]
    pub fn pod_cidrs(mut self, networks: &[&str]) -> Self {
        let spec = self.0.spec.get_or_insert_default();
        spec.pod_cidr = networks.first().map(|network| (*network).to_owned());
        spec.pod_cidrs = Some(networks.iter().map(|network| (*network).to_owned()).collect());
        self
    }

    fn condition(mut self, ready: &str) -> Self {
        let condition = ready_condition(&self.0, ready, Timestamp::now());
        self.0.status.get_or_insert_default().conditions = Some(vec![condition]);
        self
    }

    /// Returns the object.
    #[must_use]
    pub fn build(self) -> Node {
        self.0
    }

    /// Registers it, as the kubelet does with its first request.
    ///
    /// # Panics
    ///
    /// If the API server rejects it.
    pub async fn register(self, client: &Client) -> Node {
        let name = self.0.metadata.name.clone().unwrap_or_default();
        Api::<Node>::all(client.clone())
            .create(&PostParams::default(), &self.0)
            .await
            .unwrap_or_else(|error| panic!("failed to register node {name}: {error}"))
    }
}

/// Returns the condition Ready of a Node, if it has one.
#[must_use]
pub fn ready_of(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_deref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready")
}

/// Returns the condition Ready that follows the one of `node`. A kubelet reports True and False, each with a heartbeat.
/// The node-lifecycle controller of kube-controller-manager sets Unknown and keeps the last heartbeat. The transition
/// time changes only with the status. Mirrors `ReadyCondition` of `pkg/kubelet/nodestatus/setters.go` and
/// `tryUpdateNodeHealth` of `pkg/controller/nodelifecycle/node_lifecycle_controller.go`.
#[must_use]
pub fn ready_condition(node: &Node, status: &str, now: Timestamp) -> NodeCondition {
    let (before, now) = (ready_of(node), Some(Time(now)));
    let same = before.filter(|condition| condition.status == status);
    let is_reported = status != "Unknown";
    let last_heartbeat = before.map_or(&node.metadata.creation_timestamp, |condition| &condition.last_heartbeat_time);
    let reason = match status {
        "True" => "KubeletReady",
        "False" => "KubeletNotReady",
        _ => "NodeStatusUnknown",
    };
    NodeCondition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: None,
        last_heartbeat_time: if is_reported { now.clone() } else { last_heartbeat.clone() },
        last_transition_time: same.map_or(now, |condition| condition.last_transition_time.clone()),
    }
}

/// Writes the condition Ready that follows the one of the Node. A message distinguishes writes of one status; it may be
/// empty.
///
/// # Errors
///
/// The error of the API server, also if there is no such Node.
pub async fn set_ready(nodes: &Api<Node>, name: &str, status: &str, message: &str) -> kube::Result<Node> {
    let node = nodes.get(name).await?;
    let condition = ready_condition(&node, status, Timestamp::now());
    let message = Some(message.to_owned()).filter(|message| !message.is_empty());
    let condition = NodeCondition { message, ..condition };
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    nodes.patch_status(name, &PatchParams::default(), &patch).await
}

/// The state of a Node's initialization, for conditions and failure messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// `spec.providerID`.
    pub provider_id: Option<String>,
    /// `status.addresses` as `Type=address`, in order.
    pub addresses: Vec<String>,
    /// Whether the Node has the uninitialized taint.
    pub uninitialized: bool,
    /// All labels.
    pub labels: BTreeMap<String, String>,
}

impl NodeView {
    /// Reads the fields of a Node.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        let spec = node.spec.clone().unwrap_or_default();
        let addresses = node.status.clone().unwrap_or_default().addresses.unwrap_or_default();
        Self {
            provider_id: spec.provider_id,
            addresses: addresses.iter().map(|address| format!("{}={}", address.type_, address.address)).collect(),
            uninitialized: spec.taints.unwrap_or_default().iter().any(|taint| taint.key == UNINITIALIZED_TAINT),
            labels: node.metadata.labels.clone().unwrap_or_default(),
        }
    }

    /// Returns the label's value, or an empty text.
    #[must_use]
    pub fn label(&self, key: &str) -> &str {
        self.labels.get(key).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_and_transitions_are_those_of_a_kubelet_and_of_the_lifecycle_controller() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut node = Node::default();
        node.metadata.creation_timestamp = Some(Time(at(1)));
        let steps = [
            ("Unknown", 2, (1, 2)),
            ("Unknown", 3, (1, 2)),
            ("True", 4, (4, 4)),
            ("True", 5, (5, 4)),
            ("False", 6, (6, 6)),
            ("Unknown", 7, (6, 7)),
            ("True", 8, (8, 8)),
        ];
        for (status, now, (heartbeat, transition)) in steps {
            let condition = ready_condition(&node, status, at(now));
            assert_eq!(condition.last_heartbeat_time, Some(Time(at(heartbeat))), "{status} at {now}");
            assert_eq!(condition.last_transition_time, Some(Time(at(transition))), "{status} at {now}");
            node.status.get_or_insert_default().conditions = Some(vec![condition]);
        }
    }
}
