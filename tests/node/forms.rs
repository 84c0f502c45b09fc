//! Each form of the manifests, applied as its page says, on the node that it has to initialise: tainted, not ready, and
//! without a network for pods.

mod chart;
mod overlays;
mod static_pod;

use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};
use support::components::Component;
use support::real_node::{Kubelet, KubeletSettings};

use crate::cluster::{Cluster, LIMIT, NODE, eventually};

/// All pods of the product, in whatever form.
pub const PODS: [&str; 5] = ["pods", "-n", "kube-system", "-l", "component=cloud-controller-manager"];

/// Programs that the commands of the pages call.
const TOOLS: [(&str, Component); 3] =
    [("kubectl", Component::Kubectl), ("helm", Component::Helm), ("kubeadm", Component::Kubeadm)];

/// How a distribution marks the nodes of its control plane.
pub struct Marks {
    /// Labels, which it writes after the node has registered.
    pub labels: &'static [&'static str],
    /// Taints that the kubelet registers with: key, value and effect.
    pub taints: &'static [[&'static str; 3]],
}

/// kubeadm, and Talos.
pub const KUBEADM: Marks = Marks {
    labels: &["node-role.kubernetes.io/control-plane="],
    taints: &[["node-role.kubernetes.io/control-plane", "", "NoSchedule"]],
};

/// The name of control planes before Kubernetes 1.24, which a cluster of that time may have kept.
pub const MASTER: Marks = Marks {
    labels: &["node-role.kubernetes.io/master="],
    taints: &[["node-role.kubernetes.io/master", "", "NoSchedule"]],
};

/// RKE2 as Rancher sets it up, with etcd and the control plane on one node.
pub const RKE2: Marks = Marks {
    labels: &["node-role.kubernetes.io/control-plane=true", "node-role.kubernetes.io/etcd=true"],
    taints: &[
        ["node-role.kubernetes.io/control-plane", "true", "NoSchedule"],
        ["node-role.kubernetes.io/etcd", "true", "NoExecute"],
    ],
};

/// K3s as its page about high availability sets it up.
pub const K3S: Marks = Marks {
    labels: &["node-role.kubernetes.io/control-plane=true", "node-role.kubernetes.io/etcd=true"],
    taints: &[["CriticalAddonsOnly", "true", "NoExecute"]],
};

/// Starts a kubelet whose Node is new, and waits until it has registered. Nothing of the product runs.
pub async fn register(cluster: &mut Cluster, marks: &Marks) {
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

/// Writes the labels of the control plane, as the distribution does after the node has registered.
pub fn label(cluster: &Cluster, marks: &Marks) {
    cluster.kubectl(&[&["label", "--overwrite", "node", NODE], marks.labels].concat());
}

/// Starts the kubelet, with these fields of its configuration besides.
pub fn restart_kubelet(cluster: &mut Cluster, marks: &Marks, fields: &[(&str, Value)]) {
    let taint = |[key, value, effect]: &[&str; 3]| json!({ "key": key, "value": value, "effect": effect });
    let taints: Vec<_> = marks.taints.iter().map(taint).collect();
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    let configuration = fields.chain([("registerWithTaints".to_owned(), json!(taints))]).collect();
    let settings = KubeletSettings { configuration, ..KubeletSettings::default() };
    cluster.kubelet = None;
    cluster.kubelet = Some(Kubelet::start(&cluster.sandbox, &cluster.server, NODE, &settings));
}

/// Waits until the product has done its work on the Node: the pod is ready, and of the taints those are left that are not
/// its own to remove. Gives the pod.
pub async fn assert_initialised_without_a_network(cluster: &Cluster, form: &str, marks: &Marks) -> Value {
    let begin = Instant::now();
    let node = cluster.wait_until_initialised().await;
    let initialised = begin.elapsed();
    let pod = cluster.wait_until_ready().await;
    println!("{form}: the Node is initialised after {initialised:.1?}, the pod ready after {:.1?}", begin.elapsed());
    let uuid = support::real_node::system_uuid();
    assert_eq!(node["spec"]["providerID"], format!("vsphere://{uuid}"));
    let mut expected: Vec<String> = marks.taints.iter().map(|[key, _, effect]| format!("{key}:{effect}")).collect();
    expected.push("node.kubernetes.io/not-ready:NoSchedule".to_owned());
    expected.sort();
    eventually("of the taints those of the form and of a Node without a network are left", LIMIT, async || {
        let node = cluster.get(&["node", NODE]);
        let (mut taints, ready) = (taints(&node), condition(&node, "Ready"));
        // This one only comes where another Node is ready.
        taints.retain(|taint| taint != "node.kubernetes.io/not-ready:NoExecute");
        let waits = ready["status"] == "False" && ready["message"].to_string().contains("cni plugin not initialized");
        if taints == expected && waits { Ok(()) } else { Err(format!("taints {taints:?}, Ready {ready}")) }
    })
    .await;
    let pod = cluster.get(&["pod", "-n", "kube-system", &pod]);
    assert_eq!(restarts(&pod), 0);
    pod
}

/// Key and effect of each taint, sorted.
pub fn taints(node: &Value) -> Vec<String> {
    let text = |taint: &Value| format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap());
    let mut taints: Vec<_> = node["spec"]["taints"].as_array().into_iter().flatten().map(text).collect();
    taints.sort();
    taints
}

/// A condition of a Node or of a pod; null without it.
pub fn condition(object: &Value, name: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == name).cloned().unwrap_or_default()
}

/// How often the container of a pod was started again.
pub fn restarts(pod: &Value) -> u64 {
    pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or_default()
}

/// Deletes the workload, waits until its pods are gone, and deletes the rest of what this kustomization has.
pub async fn delete(cluster: &Cluster, kustomization: &str) {
    // With their rights the pods release the Lease.
    cluster.kubectl(&["-n", "kube-system", "delete", "daemonsets,deployments", "--all"]);
    wait_until_no_pod(cluster).await;
    shell(cluster, &format!("kubectl delete --ignore-not-found -k {kustomization}"));
}

/// Waits until no pod of the product is there.
pub async fn wait_until_no_pod(cluster: &Cluster) {
    eventually("the pods of the product are gone", LIMIT, async || {
        match cluster.get(&PODS)["items"].as_array().unwrap().is_empty() {
            true => Ok(()),
            false => Err("they are there"),
        }
    })
    .await;
}

/// Runs commands as a page has them, as an administrator, in a folder with a copy of the manifests; gives what they print.
#[track_caller]
pub fn shell(cluster: &Cluster, script: &str) -> String {
    let folder = cluster.sandbox.folder();
    let tools = folder.join("tools");
    if !tools.exists() {
        std::fs::create_dir(&tools).unwrap();
        TOOLS.iter().for_each(|(name, component)| symlink(component.path(), tools.join(name)).unwrap());
        cluster.manifests();
    }
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-euc", script]).current_dir(folder).env("HOME", folder).env("PATH", path);
    let output = command.env("KUBECONFIG", cluster.server.kubeconfig()).output().unwrap();
    let (printed, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{printed}\n{errors}");
    printed.into_owned()
}

/// A kustomization of a user's own with a form and components, as the page for installing writes it.
pub fn kustomization(cluster: &Cluster, name: &str, form: &str, components: &[&str]) {
    let components: String = components.iter().map(|name| format!("- ../manifests/components/{name}\n")).collect();
    let head = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n";
    let text = format!("{head}resources:\n- ../manifests/{form}\ncomponents:\n{components}");
    shell(cluster, &format!("mkdir -p {name}\ncat >{name}/kustomization.yaml <<'EOF'\n{text}EOF"));
}
