//! An upgrade from upstream's chart that reuses its values.

use std::path::Path;

use serde_json::json;
use support::components::Component;

use super::{ACCOUNT, CHART_SET, HELM, PASSWORD, Reader, prepared};
use crate::cluster::LIMIT;
use crate::manifests::chart::GO_VALUES;
use crate::manifests::kustomize::{kubectl, piped};

/// U12: upstream's chart lets the program read every Secret. By default the user creates `vsphere.conf` and its Secret,
/// and the values do not contain their names.
#[tokio::test]
async fn an_upgrade_from_upstreams_chart_reads_the_secret_that_its_own_vsphere_conf_names() {
    let reader = Reader::new(HELM, prepared).await;
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("upstream");
    std::fs::create_dir(&chart).unwrap();
    let image = "  image: registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere\n  tag: v1.36.0\n";
    let values = GO_VALUES.replace("daemonset:\n", &format!("daemonset:\n{image}"));
    std::fs::write(chart.join("Chart.yaml"), "apiVersion: v2\nname: vsphere-cpi\nversion: 1.36.0\n").unwrap();
    std::fs::write(chart.join("values.yaml"), values).unwrap();
    let helm = async |arguments: &[&str]| {
        let (home, program) = (format!("HOME={}", folder.path().display()), Component::Helm.path());
        let kubeconfig = reader.server.kubeconfig();
        let fixed = [&home, program.to_str().unwrap(), "--kubeconfig", kubeconfig.to_str().unwrap()];
        let arguments = [&fixed[..], &["--namespace=kube-system"], arguments].concat();
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        piped(Path::new("/usr/bin/env"), &arguments, "").await.unwrap()
    };
    helm(&["install", "vsphere-cpi", chart.to_str().unwrap()]).await;
    let host = reader.vcenter.host();
    let text = format!(
        "global:\n  port: 443\n  thumbprint: \"{}\"\nvcenter:\n  vc:\n    server: {host}\n    secretName: my-vcenter\n    \
         secretNamespace: kube-system\n    datacenters: [dc-1]\n",
        reader.vcenter.sha1_thumbprint()
    );
    let metadata = |name: &str| json!({"name": name, "namespace": "kube-system"});
    let pair = json!({format!("{host}.username"): ACCOUNT, format!("{host}.password"): PASSWORD});
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("cloud-config"),
        "data": {"vsphere.conf": text}});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("my-vcenter"), "stringData": pair});
    for object in [config, secret] {
        kubectl(Some(&reader.server), &["create", "--filename=-"], &object.to_string()).await.unwrap();
    }
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/helm/vsphere-cpi");
    let set = "daemonset.image=registry.test/ccm,daemonset.tag=v0.1.0";
    let notes = helm(&["upgrade", "vsphere-cpi", ours, "--reuse-values", "--set", set]).await;
    reader.cluster.register(0..2).await;
    let daemon = reader.start_pod(CHART_SET).await;
    reader.until_initialized(&daemon).await;
    drop(daemon);

    // After the restriction from the notes the program reads only that Secret.
    assert!(notes.contains("--set 'rbac.secrets[0].name=NAME'"), "{notes}");
    let named = "rbac.secrets[0].name=my-vcenter";
    helm(&["upgrade", "vsphere-cpi", ours, "--reuse-values", "--set", named]).await;
    let may_get = async |secret: &str| {
        let account = "--as=system:serviceaccount:kube-system:cloud-controller-manager";
        let what = format!("secrets/{secret}");
        let arguments = ["auth", "can-i", "get", &what, "--namespace=kube-system", account];
        kubectl(Some(&reader.server), &arguments, "").await.is_ok_and(|answer| answer.trim() == "yes")
    };
    assert_eq!((may_get("my-vcenter").await, may_get("others").await), (true, false));
    let mut daemon = reader.start_pod(CHART_SET).await;
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
}
