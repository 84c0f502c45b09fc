//! Each form of the manifests, applied as described on its page, on an uninitialized node: tainted, not ready, and
//! without a pod network.

mod chart;
mod overlays;
mod static_pod;

use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use support::components::Component;

use crate::cluster::{Cluster, LIMIT, NODE, eventually};
use crate::nodes::{ControlPlaneMarks, condition, taints};
use crate::pod::{name, restarts};

/// Programs in the commands of the pages.
const TOOLS: [(&str, Component); 3] =
    [("kubectl", Component::Kubectl), ("helm", Component::Helm), ("kubeadm", Component::Kubeadm)];

/// The kubectl plugin, in the copy of the manifests.
const PLUGIN: &str = "manifests/plugin/kubectl-vsphere_ccm";

/// Waits until the product has initialized the Node: the pod is ready, and only the taints of other programs remain.
/// Returns the pod.
pub async fn assert_initialized_without_a_network(cluster: &Cluster, form: &str, marks: &ControlPlaneMarks) -> Value {
    let begin = Instant::now();
    let node = cluster.wait_until_initialized().await;
    let initialized = begin.elapsed();
    let pod = cluster.wait_until_ready().await;
    println!("{form}: the Node is initialized after {initialized:.1?}, the pod ready after {:.1?}", begin.elapsed());
    let uuid = support::real_node::system_uuid();
    assert_eq!(node["spec"]["providerID"], format!("vsphere://{uuid}"));
    let mut expected: Vec<String> = marks.taints.iter().map(|[key, _, effect]| format!("{key}:{effect}")).collect();
    expected.push("node.kubernetes.io/not-ready:NoSchedule".to_owned());
    expected.sort();
    eventually("of the taints those of the form and of a Node without a network are left", LIMIT, async || {
        let node = cluster.get(&["node", NODE]);
        let (mut taints, ready) = (taints(&node), condition(&node, "Ready"));
        // This taint exists only if another Node is ready.
        taints.retain(|taint| taint != "node.kubernetes.io/not-ready:NoExecute");
        let waits = ready["status"] == "False" && ready["message"].to_string().contains("cni plugin not initialized");
        if taints == expected && waits { Ok(()) } else { Err(format!("taints {taints:?}, Ready {ready}")) }
    })
    .await;
    let pod = cluster.get(&["pod", "-n", "kube-system", name(&pod)]);
    assert_eq!(restarts(&pod), 0);
    pod
}

/// Checks that the kubectl plugin asks this process, which leads.
pub fn assert_plugin_asks_the_leader(cluster: &Cluster) {
    // A finding, or a part that is not known yet, is an answer, too.
    let ask = format!("code=0; {PLUGIN} status -o json || code=$?; [ \"$code\" -ne 2 ]");
    let status: Value = serde_json::from_str(&shell(cluster, &ask)).unwrap();
    assert_eq!((&status["kind"], &status["leads"]), (&"Status".into(), &true.into()), "{status:#}");
    let unknown = shell(cluster, &format!("code=0; {PLUGIN} explain node no-such-node >&2 || code=$?; echo $code"));
    assert_eq!(unknown, "2\n");
}

/// Checks that the plugin runs a command in a Job, and leaves nothing behind. The help needs no vCenter.
pub async fn assert_plugin_runs_a_job(cluster: &Cluster) {
    let help = shell(cluster, &format!("{PLUGIN} --job check --help"));
    assert!(help.contains("Usage: vsphere-cloud-controller-manager check "), "{help}");
    let wrong = shell(cluster, &format!("code=0; {PLUGIN} --job check --no-such-option || code=$?; echo $code"));
    assert!(wrong.contains("--no-such-option") && wrong.ends_with("\n2\n"), "{wrong}");
    assert_eq!(cluster.get(&["jobs", "-n", "kube-system"])["items"], Value::Array(Vec::new()));
    eventually("the pods of the Jobs are gone", LIMIT, async || {
        let pods = cluster.kubectl(&["get", "pods", "-n", "kube-system", "-l", "job-name", "--output=name"]);
        if pods.is_empty() { Ok(()) } else { Err(pods) }
    })
    .await;
}

/// Deletes the workload, waits until its pods are deleted, and deletes the rest of this kustomization.
pub async fn delete(cluster: &Cluster, kustomization: &str) {
    // The pods still have the rights to release the Lease.
    cluster.kubectl(&["-n", "kube-system", "delete", "daemonsets,deployments", "--all"]);
    cluster.wait_until_no_pod().await;
    shell(cluster, &format!("kubectl delete --ignore-not-found -k {kustomization}"));
}

/// Runs commands of a page as an administrator, in a folder with a copy of the manifests. Returns their output.
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
