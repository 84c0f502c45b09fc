//! The chart with the Helm command line and a real API server.

use std::path::Path;

use serde_json::json;
use support::components::Component;
use support::{ApiServer, eventually};

use super::super::kustomize::{kubectl, objects, piped};
use super::super::pods;
use super::{ALL, DIGEST, GO_VALUES, IMAGE, config, monitoring, settings, workload};
use crate::cluster::LIMIT;

/// Folder of the chart.
pub const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/helm/vsphere-cpi");

/// Runs Helm in the namespace `kube-system` of this server. Returns its output or its error.
pub async fn helm_of(server: &ApiServer, arguments: &[&str]) -> Result<String, String> {
    // Helm keeps a cache in the home folder.
    let home = format!("HOME={}", server.folder().display());
    let (program, kubeconfig) = (Component::Helm.path(), server.kubeconfig());
    let fixed = [&home, program.to_str().unwrap(), "--kubeconfig", kubeconfig.to_str().unwrap()];
    let arguments = [&fixed[..], &["--namespace", "kube-system"], arguments].concat();
    let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
    piped(Path::new("/usr/bin/env"), &arguments, "").await
}

/// With and without required values: `helm lint` reports a missing value as information.
#[tokio::test]
async fn helm_lint_has_no_finding() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("values.yaml");
    for values in ["", IMAGE, ALL, settings::ALL, config::ALL, workload::ALL, workload::DEPLOYMENT, monitoring::ALL] {
        std::fs::write(&folder, format!("{values}\n")).unwrap();
        let home = format!("HOME={}", home.path().display());
        let (program, file) = (Component::Helm.path(), folder.to_str().unwrap());
        let arguments = [&home, program.to_str().unwrap(), "lint", "--strict", CHART, "--values", file];
        let arguments = arguments.map(str::to_owned);
        let printed =
            piped(Path::new("/usr/bin/env"), &arguments, "").await.unwrap_or_else(|error| panic!("{values}: {error}"));
        assert!(printed.contains("0 chart(s) failed") && !printed.contains("[WARNING]"), "{values}: {printed}");
        assert!(!printed.contains("[INFO] Chart.yaml"), "{printed}");
    }
}

/// Other tests use the `chart` renderer. Users run Helm.
#[tokio::test]
async fn helm_itself_installs_a_release_and_reuses_its_values() {
    let server = ApiServer::start().await;
    let values = server.folder().join("values.yaml");
    std::fs::write(&values, GO_VALUES).unwrap();
    let run = async |arguments: &[&str]| helm_of(&server, arguments).await;
    let helm = async |arguments: &[&str]| run(&[arguments, &["vsphere-cpi", CHART]].concat()).await;
    let install = ["install", "--values", values.to_str().unwrap()];
    let refused = helm(&install).await.unwrap_err();
    assert!(refused.contains("image.repository is not set"), "{refused}");
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
