//! The static pod, with the commands in the headers of its files.

use std::fs;
use std::process::Command;

use support::real_node::STATIC_PODS;
use support::sandbox;

use super::{assert_initialized_without_a_network, assert_plugin_asks_the_leader, shell};
use crate::cluster::{Cluster, LIMIT, TEST_LIMIT, eventually};
use crate::nodes::{KUBEADM, label, register};
use crate::pod::name;

const POD: &str = include_str!("../../../manifests/static-pod/pod/pod.yaml");
const KUSTOMIZATION: &str = include_str!("../../../manifests/static-pod/pod/kustomization.yaml");

#[test]
fn the_static_pod_initializes_the_node_whose_kubelet_starts_it() {
    sandbox::run(TEST_LIMIT, async |sandbox| {
        let mut cluster = Cluster::without_kubelet(sandbox).await;
        be_a_node_of_kubeadm(&cluster);
        cluster.configure();
        let print = "kubectl -n kube-system get configmap vsphere-cloud-config -o jsonpath='{.data.vsphere\\.conf}'";
        shell(
            &cluster,
            &format!("{print} >vsphere.conf && kubectl -n kube-system delete configmap vsphere-cloud-config"),
        );

        register(&mut cluster, &KUBEADM).await;
        label(&cluster, &KUBEADM);
        shell(&cluster, "kubectl apply -k manifests/static-pod");
        shell(&cluster, &commands(POD, "#   "));
        shell(&cluster, &commands(KUSTOMIZATION, "# "));
        let pod = assert_initialized_without_a_network(&cluster, "static pod", &KUBEADM).await;
        assert!(pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string(), "{pod}");
        assert_plugin_asks_the_leader(&cluster);
        // The pod has no service account, and no objects of the other forms exist.
        let accounts = cluster.kubectl(&["get", "serviceaccounts", "-n", "kube-system", "--output=name"]);
        assert!(!accounts.contains("serviceaccount/cloud-controller-manager"), "{accounts}");

        // The deletion of the mirror pod does not delete the pod.
        let name = name(&pod);
        cluster.kubectl(&["-n", "kube-system", "delete", "pod", name, "--wait=false"]);
        let container = &pod["status"]["containerStatuses"][0]["containerID"];
        eventually("the mirror is back, of the same container", LIMIT, async || {
            let back = cluster.try_kubectl(&["-n", "kube-system", "get", "pod", name, "--output=json"])?;
            let back: serde_json::Value = serde_json::from_str(&back).unwrap();
            let is_back = back["metadata"]["uid"] != pod["metadata"]["uid"]
                && back["status"]["containerStatuses"][0]["containerID"] == *container;
            if is_back { Ok(()) } else { Err(back["status"].to_string()) }
        })
        .await;

        fs::remove_file(format!("{STATIC_PODS}/vsphere-cloud-controller-manager.yaml")).unwrap();
        cluster.wait_until_no_pod().await;
    });
}

/// Creates the files that kubeadm finds on a node that it has set up.
fn be_a_node_of_kubeadm(cluster: &Cluster) {
    cluster.server.write_authority(std::path::Path::new("/etc/kubernetes/pki"));
    fs::create_dir_all(STATIC_PODS).unwrap();
    // kubeadm uses the address of the default route, and looks up the Kubernetes release on the internet. Without a
    // name server that lookup fails immediately.
    let status = Command::new("ip").args(["route", "add", "default", "dev", "lo"]).status().unwrap();
    assert!(status.success());
    fs::write("/etc/resolv.conf", "nameserver 127.0.0.1\n").unwrap();
}

/// Returns the commands in a file's header that begin with this text.
fn commands(file: &str, begin: &str) -> String {
    let head = file.lines().take_while(|line| line.starts_with('#'));
    let commands: String = head.filter_map(|line| line.strip_prefix(begin)).map(|line| format!("{line}\n")).collect();
    assert!(commands.lines().all(|line| line.starts_with(['k', 'c', 'i'])), "not only commands: {commands}");
    commands
}
