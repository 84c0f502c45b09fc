//! The chart with the Helm command line and a real API server.

use std::path::Path;

use serde_json::json;
use support::ApiServer;
use support::components::Component;

use super::super::kustomize::{kubectl, objects, piped};
use super::super::pods;
use super::{DIGEST, GO_VALUES};

/// Other tests use the `chart` renderer. Users run Helm.
#[tokio::test]
async fn helm_itself_installs_a_release_and_reuses_its_values() {
    let server = ApiServer::start().await;
    let values = server.folder().join("values.yaml");
    std::fs::write(&values, GO_VALUES).unwrap();
    let helm = async |arguments: &[&str]| {
        let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/helm/vsphere-cpi");
        // Helm keeps a cache in the home folder.
        let home = format!("HOME={}", server.folder().display());
        let (program, kubeconfig) = (Component::Helm.path(), server.kubeconfig());
        let fixed = [&home, program.to_str().unwrap(), "--kubeconfig", kubeconfig.to_str().unwrap()];
        let arguments = [&fixed[..], &["--namespace", "kube-system"], arguments, &["vsphere-cpi", chart]].concat();
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        piped(Path::new("/usr/bin/env"), &arguments, "").await
    };
    let install = ["install", "--values", values.to_str().unwrap()];
    let refused = helm(&install).await.unwrap_err();
    assert!(refused.contains("daemonset.image is not set"), "{refused}");
    helm(&[&install[..], &["--set", "daemonset.image=registry.test/ccm"]].concat()).await.unwrap();
    let digest = format!("daemonset.digest={DIGEST}");
    let notes =
        helm(&["upgrade", "--reuse-values", "--set", &digest, "--set", "k8sServiceHost=10.0.0.10"]).await.unwrap();
    assert!(notes.contains("rollout status daemonset/vsphere-cpi"), "{notes}");
    let get = ["get", "daemonset", "vsphere-cpi", "--namespace=kube-system", "--output=yaml"];
    let set = objects(&kubectl(Some(&server), &get, "").await.unwrap()).await.remove(0);
    let container = &pods::containers(&set)[0];
    assert_eq!(container["image"], json!(format!("registry.test/ccm@{DIGEST}")));
    assert_eq!(container["env"][1], json!({"name": "KUBERNETES_SERVICE_PORT", "value": "6443"}));
}
