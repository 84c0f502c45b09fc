//! The chart with the Helm command line and a real API server.

use std::path::Path;

use serde_json::json;
use support::components::Component;
use support::{ApiServer, eventually};

use super::super::kustomize::{kubectl, objects, piped};
use super::super::pods;
use super::{DIGEST, GO_VALUES};
use crate::cluster::LIMIT;

/// Other tests use the `chart` renderer. Users run Helm.
#[tokio::test]
async fn helm_itself_installs_a_release_and_reuses_its_values() {
    let server = ApiServer::start().await;
    let values = server.folder().join("values.yaml");
    std::fs::write(&values, GO_VALUES).unwrap();
    let run = async |arguments: &[&str]| {
        // Helm keeps a cache in the home folder.
        let home = format!("HOME={}", server.folder().display());
        let (program, kubeconfig) = (Component::Helm.path(), server.kubeconfig());
        let fixed = [&home, program.to_str().unwrap(), "--kubeconfig", kubeconfig.to_str().unwrap()];
        let arguments = [&fixed[..], &["--namespace", "kube-system"], arguments].concat();
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        piped(Path::new("/usr/bin/env"), &arguments, "").await
    };
    let helm = async |arguments: &[&str]| {
        let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/helm/vsphere-cpi");
        run(&[arguments, &["vsphere-cpi", chart]].concat()).await
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

    // The result of the test is that of its pod. There is no kubelet, so the test itself ends the pod.
    for (phase, told) in [("Succeeded", "Phase:          Succeeded"), ("Failed", "pod vsphere-cpi-check failed")] {
        let tested = async { run(&["test", "vsphere-cpi"]).await };
        let ended = eventually("the pod of the test ends", LIMIT, async || {
            // Helm deletes the pod of the test before.
            let get = ["get", "pod", "vsphere-cpi-check", "-n=kube-system", "--output=jsonpath={.status.phase}"];
            let found = kubectl(Some(&server), &get, "").await?;
            if found != "Pending" {
                return Err(found);
            }
            let patch = format!("--patch={}", json!({"status": {"phase": phase}}));
            let flags = ["patch", "pod", "vsphere-cpi-check", "-n=kube-system", "--subresource=status", "--type=merge"];
            kubectl(Some(&server), &[&flags[..], &[&patch]].concat(), "").await
        });
        let (tested, _) = tokio::join!(tested, ended);
        assert_eq!(tested.is_ok(), phase == "Succeeded", "{tested:?}");
        let printed = tested.unwrap_or_else(|error| error);
        assert!(printed.contains(told), "{printed}");
    }
}
