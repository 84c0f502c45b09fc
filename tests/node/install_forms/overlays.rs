//! The overlays, one after the other in the same cluster, each on a newly registered Node.

use support::real_node::add_pod_network;
use support::sandbox;

use super::{assert_initialized_without_a_network, delete, shell};
use crate::cluster::{Cluster, LIMIT, NODE, TEST_LIMIT, eventually, forward};
use crate::nodes::{K3S, KUBEADM, RKE2, label, readiness, register, taints};
use crate::pod::{name, restarts};

#[test]
fn each_overlay_initializes_the_node_that_it_runs_on_before_there_is_a_network() {
    sandbox::run(TEST_LIMIT, async |sandbox| {
        let mut cluster = Cluster::without_kubelet(sandbox).await;
        cluster.configure();

        register(&mut cluster, &KUBEADM).await;
        label(&cluster, &KUBEADM);
        shell(&cluster, "kubectl apply -k manifests/overlays/kubeadm");
        assert_initialized_without_a_network(&cluster, "kubeadm", &KUBEADM).await;
        // This command waits for readiness. It does not depend on taints.
        shell(&cluster, "kubectl -n kube-system rollout status daemonset/vsphere-cloud-controller-manager");
        delete(&cluster, "manifests/overlays/kubeadm").await;

        // From here on the address of the Service `kubernetes` is unreachable.
        cluster.stop_kube_proxy().await;
        let file = "manifests/components/api-server-address/kustomization.yaml";
        shell(&cluster, &format!("sed -i 's/edit-manifests-components-api-server-address/127.0.0.1/' {file}"));

        register(&mut cluster, &RKE2).await;
        label(&cluster, &RKE2);
        cluster.kustomization("my-rke2", "overlays/rke2", &["api-server-address"], "");
        shell(&cluster, "kubectl apply -k my-rke2");
        assert_initialized_without_a_network(&cluster, "RKE2", &RKE2).await;
        delete(&cluster, "my-rke2").await;

        // K3s applies the files in its folder as soon as the API server runs, before it has labelled the first Node.
        cluster.kustomization("my-k3s", "overlays/k3s", &["api-server-address"], "");
        shell(&cluster, "kubectl kustomize my-k3s >k3s.yaml && kubectl apply -f k3s.yaml");
        register(&mut cluster, &K3S).await;
        label(&cluster, &K3S);
        assert_initialized_without_a_network(&cluster, "K3s", &K3S).await;
        delete(&cluster, "my-k3s").await;

        // The port of KubePrism.
        drop(forward("127.0.0.1:7445", 6443).await);
        register(&mut cluster, &KUBEADM).await;
        label(&cluster, &KUBEADM);
        shell(&cluster, "kubectl apply -k manifests/overlays/talos");
        let pod = assert_initialized_without_a_network(&cluster, "Talos", &KUBEADM).await;

        add_pod_network();
        eventually(
            "with a network the Node is ready, and has the taint of its distribution alone",
            LIMIT,
            async || {
                let node = cluster.get(&["node", NODE]);
                let only = ["node-role.kubernetes.io/control-plane:NoSchedule"];
                let as_expected = readiness(&node) == "True" && taints(&node) == only;
                if as_expected { Ok(()) } else { Err(format!("{} {}", node["spec"], node["status"]["conditions"])) }
            },
        )
        .await;
        let later = cluster.get(&["pod", "-n", "kube-system", name(&pod)]);
        assert_eq!((&later["metadata"]["uid"], restarts(&later)), (&pod["metadata"]["uid"], 0));
    });
}
