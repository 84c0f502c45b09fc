//! The chart, installed with helm as described on the page for installation.

use serde_json::json;
use support::sandbox;

use super::{assert_initialized_without_a_network, assert_plugin_asks_the_leader, assert_plugin_runs_a_job, shell};
use crate::cluster::{Cluster, TAG, TEST_LIMIT};
use crate::images::IMAGE;
use crate::nodes::{K3S, KUBEADM, label, register};

#[test]
fn the_chart_initializes_the_node_that_it_runs_on_before_there_is_a_network() {
    sandbox::run(TEST_LIMIT, async |sandbox| {
        let mut cluster = Cluster::without_kubelet(sandbox).await;
        cluster.create_secret();
        register(&mut cluster, &KUBEADM).await;
        label(&cluster, &KUBEADM);
        let notes = shell(&cluster, &install(&cluster));
        let pod = assert_initialized_without_a_network(&cluster, "chart", &KUBEADM).await;
        println!("{notes}");
        assert_plugin_asks_the_leader(&cluster);
        assert_plugin_runs_a_job(&cluster).await;

        // The cluster loses kube-proxy. A pod with the address of the API server replaces the first pod.
        cluster.stop_kube_proxy().await;
        shell(
            &cluster,
            "helm upgrade vsphere-cpi manifests/helm/vsphere-cpi --namespace kube-system --reuse-values \
             --set k8sServiceHost=127.0.0.1 --set k8sServicePort=6443
             kubectl -n kube-system rollout status daemonset/vsphere-cpi",
        );
        let next = cluster.wait_until_next_is_ready(&pod).await;
        let host = json!({ "name": "KUBERNETES_SERVICE_HOST", "value": "127.0.0.1" });
        assert_eq!(next["spec"]["containers"][0]["env"][0], host);

        shell(&cluster, "helm uninstall vsphere-cpi --namespace kube-system");
        cluster.wait_until_no_pod().await;
        register(&mut cluster, &K3S).await;
        label(&cluster, &K3S);
        shell(&cluster, &format!("{} --set k8sServiceHost=127.0.0.1", install(&cluster)));
        assert_initialized_without_a_network(&cluster, "chart on K3s", &K3S).await;
    });
}

/// Returns the command of the page, with the thumbprint from `govc`.
fn install(cluster: &Cluster) -> String {
    let thumbprint = cluster.vcenter.sha256_thumbprint();
    format!(
        "helm install vsphere-cpi manifests/helm/vsphere-cpi --namespace kube-system \
         --set image.repository={IMAGE} --set image.tag={TAG} \
         --set config.enabled=true --set config.vcenter=vcenter.example.com --set config.datacenter=dc-1 \
         --set config.existingSecret=vsphere-cloud-secret --set config.thumbprint=\"{thumbprint}\""
    )
}
