//! Nodes: their registration by a distribution, and access to their fields.

use serde_json::{Value, json};
use support::real_node::{Kubelet, KubeletSettings};

use crate::cluster::{Cluster, LIMIT, NODE, eventually};

/// Labels and taints of a distribution's control-plane nodes.
pub struct ControlPlaneMarks {
    /// Labels that the distribution writes after the registration of the node.
    pub labels: &'static [&'static str],
    /// Taints that the kubelet registers with: key, value and effect.
    pub taints: &'static [[&'static str; 3]],
}

/// The marks of kubeadm, and of Talos.
pub const KUBEADM: ControlPlaneMarks = ControlPlaneMarks {
    labels: &["node-role.kubernetes.io/control-plane="],
    taints: &[["node-role.kubernetes.io/control-plane", "", "NoSchedule"]],
};

/// The marks of control planes before Kubernetes 1.24, which an older cluster may still have.
pub const MASTER: ControlPlaneMarks = ControlPlaneMarks {
    labels: &["node-role.kubernetes.io/master="],
    taints: &[["node-role.kubernetes.io/master", "", "NoSchedule"]],
};

/// The marks of RKE2 as set up by Rancher, with etcd and the control plane on one node.
pub const RKE2: ControlPlaneMarks = ControlPlaneMarks {
    labels: &["node-role.kubernetes.io/control-plane=true", "node-role.kubernetes.io/etcd=true"],
    taints: &[
        ["node-role.kubernetes.io/control-plane", "true", "NoSchedule"],
        ["node-role.kubernetes.io/etcd", "true", "NoExecute"],
    ],
};

/// The marks of K3s as described on its page about high availability.
pub const K3S: ControlPlaneMarks = ControlPlaneMarks {
    labels: &["node-role.kubernetes.io/control-plane=true", "node-role.kubernetes.io/etcd=true"],
    taints: &[["CriticalAddonsOnly", "true", "NoExecute"]],
};

/// Starts a kubelet with a new Node, and waits until the Node is registered. The product does not run.
pub async fn register(cluster: &mut Cluster, marks: &ControlPlaneMarks) {
    cluster.kubelet = None;
    cluster.kubectl(&["delete", "node", NODE, "--ignore-not-found"]);
    restart_kubelet(cluster, marks, &[]);
    eventually("the kubelet registers its Node", LIMIT, async || {
        let node = cluster.try_kubectl(&["get", "node", NODE, "--output=jsonpath={.spec.taints}"])?;
        match node.contains("node.cloudprovider.kubernetes.io/uninitialized") {
            true => Ok(()),
            false => Err(format!("its taints are {node}")),
        }
    })
    .await;
}

/// Writes the labels of the control plane, as the distribution does after the registration of the node.
pub fn label(cluster: &Cluster, marks: &ControlPlaneMarks) {
    cluster.kubectl(&[&["label", "--overwrite", "node", NODE], marks.labels].concat());
}

/// Starts the kubelet, with these additional fields in its configuration.
pub fn restart_kubelet(cluster: &mut Cluster, marks: &ControlPlaneMarks, fields: &[(&str, Value)]) {
    let taint = |[key, value, effect]: &[&str; 3]| json!({ "key": key, "value": value, "effect": effect });
    let taints: Vec<_> = marks.taints.iter().map(taint).collect();
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    let configuration = fields.chain([("registerWithTaints".to_owned(), json!(taints))]).collect();
    let settings = KubeletSettings { configuration, ..KubeletSettings::default() };
    cluster.kubelet = None;
    cluster.kubelet = Some(Kubelet::start(&cluster.sandbox, &cluster.server, NODE, &settings));
}

/// Returns key and effect of each taint, sorted.
pub fn taints(node: &Value) -> Vec<String> {
    let text = |taint: &Value| format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap());
    sorted(&node["spec"]["taints"], text)
}

/// Returns the addresses as `Type=address`, sorted.
pub fn addresses(node: &Value) -> Vec<String> {
    let text = |one: &Value| format!("{}={}", one["type"].as_str().unwrap(), one["address"].as_str().unwrap());
    sorted(&node["status"]["addresses"], text)
}

fn sorted(list: &Value, text: impl Fn(&Value) -> String) -> Vec<String> {
    let mut texts: Vec<_> = list.as_array().into_iter().flatten().map(text).collect();
    texts.sort();
    texts
}

/// Returns a condition of a Node or of a pod, or null without it.
pub fn condition(object: &Value, name: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == name).cloned().unwrap_or_default()
}

/// Returns the status of the condition `Ready`. Empty without it.
pub fn readiness(object: &Value) -> String {
    condition(object, "Ready")["status"].as_str().unwrap_or_default().to_owned()
}
