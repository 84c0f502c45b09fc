//! Upgrades with `--reuse-values` from upstream's chart and from chart 0.1.0: the chart gets only the values of the
//! release, recognizes their origin, and warns about old defaults.

use std::path::Path;

use serde_json::{Value, json};
use support::ApiServer;
use support::pages::page;

use super::super::kustomize::{kubectl, objects};
use super::super::pods;
use super::helm::{CHART, helm_of};
use super::{GO_VALUES, Rendered, refusal, render_all};

/// Chart 0.1.0 of this program.
const OLD_CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/chart-0.1.0");

const IMAGE: &str = "daemonset: {image: registry.test/ccm, tag: v9}";

/// Renders an upgrade that reuses these values.
async fn reused(values: &[&str]) -> Rendered {
    render_all(values, &["--reused"]).await.unwrap_or_else(|error| panic!("{values:?}: {error}"))
}

#[tokio::test]
async fn reused_values_of_upstreams_chart_keep_its_defaults_and_warn() {
    let rendered = reused(&[GO_VALUES, IMAGE, "config: {enabled: true}"]).await;
    for part in [
        "The values are reused from upstream's chart",
        "WARNING: vCenter's certificate is not verified, because the reused values do not have config.insecureFlag",
        "WARNING: config.vcenter is vcenter.local",
        "WARNING: config.username and config.password are user and pass",
        "WARNING: config.datacenter is dc",
        "WARNING: config.region and config.zone are k8s-region and k8s-zone",
    ] {
        assert!(rendered.notes.contains(part), "{part}: {}", rendered.notes);
    }
    let config = rendered.config().await;
    let entry = json!({"vcenter.local": {"server": "vcenter.local", "datacenters": ["dc"]}});
    let labels = json!({"region": "k8s-region", "zone": "k8s-zone"});
    assert_eq!((&config["vcenter"], &config["labels"]), (&entry, &labels));
    // Values that the release does not have are those of upstream's chart, too.
    let few = reused(&[IMAGE, "config: {enabled: true, secret: {create: false}}"]).await;
    assert_eq!(few.config().await["labels"], labels);
    assert_eq!(few.config().await["vcenter"], entry);

    let own = "config: {enabled: true, vcenter: vc.example.com, username: a, password: b, datacenter: '', region: '', \
               zone: '', thumbprint: 'AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD'}";
    let rendered = reused(&[GO_VALUES, IMAGE, own]).await;
    assert!(!rendered.notes.contains("WARNING"), "{}", rendered.notes);
    let entry = json!({"vc.example.com": {"server": "vc.example.com"}});
    assert_eq!(rendered.config().await["vcenter"], entry);
}

#[tokio::test]
async fn new_values_work_with_reused_values_of_upstreams_chart() {
    let vcenters = "config: {enabled: true, existingSecret: mine, vcenters: {vc-1.example.com: {}}}";
    let rendered = reused(&[GO_VALUES, IMAGE, vcenters]).await;
    let entry = json!({"server": "vc-1.example.com", "insecureFlag": true});
    assert_eq!(rendered.config().await["vcenter"], json!({"vc-1.example.com": entry}));
    // One category alone: the other is upstream's default.
    let refused = refusal(&[GO_VALUES, IMAGE, "config: {enabled: true, region: ''}"], &["--reused"]).await;
    assert!(refused.contains("config.zone is set, and config.region is not"), "{refused}");
    let rendered = reused(&[GO_VALUES, IMAGE, "{kind: Deployment, nodeDeletion: {mode: dry-run}}"]).await;
    assert_eq!(rendered.one("Deployment")["spec"]["replicas"], 2);
    assert_eq!(rendered.variable("CCM_NODE_DELETION"), Some("dry-run"));
}

#[tokio::test]
async fn reused_values_of_the_first_chart_are_enough() {
    let old = page("tests/golden/chart-0.1.0/values.yaml");
    let config = "config: {enabled: true, vcenter: vc.example.com, secret: {create: false}, thumbprint: \
                  'AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD'}";
    let rendered = reused(&[&old, IMAGE, config]).await;
    assert!(!rendered.notes.contains("upstream's chart (--reuse-values)"), "{}", rendered.notes);
    assert!(rendered.notes.contains("WARNING: config.datacenter is dc"), "{}", rendered.notes);
    assert_eq!(rendered.config().await["labels"], json!({"region": "k8s-region", "zone": "k8s-zone"}));
    let own = reused(&[&old, IMAGE, "config: {secret: {name: mine}}"]).await;
    assert!(!own.notes.contains("WARNING"), "{}", own.notes);
    // This chart knows whether the certificate is verified.
    let unknown = "config: {enabled: true, vcenter: vc.example.com, secret: {create: false}}";
    let refused = refusal(&[&old, IMAGE, unknown], &["--reused"]).await;
    assert!(refused.contains("config.insecureFlag=true"), "{refused}");
}

/// The reused values of a release of this chart have no other defaults.
#[tokio::test]
async fn reused_values_of_this_chart_are_not_taken_for_older_ones() {
    let values = page("manifests/helm/vsphere-cpi/values.yaml");
    let config = "config: {enabled: true, insecureFlag: true, username: a, password: b}";
    let refused = refusal(&[&values, IMAGE, config], &["--reused"]).await;
    assert!(refused.contains("set config.vcenter"), "{refused}");
    let config = "config: {enabled: true, insecureFlag: true, vcenter: vc.example.com}";
    let refused = refusal(&[&values, IMAGE, config], &["--reused"]).await;
    assert!(refused.contains("config.username"), "{refused}");
    let rendered = reused(&[&values, IMAGE, "config: {existingSecret: a}"]).await;
    assert!(!rendered.notes.contains("upstream's"), "{}", rendered.notes);
}

async fn daemon_set(server: &ApiServer) -> Value {
    let get = ["get", "daemonset", "vsphere-cpi", "--namespace=kube-system", "--output=yaml"];
    objects(&kubectl(Some(server), &get, "").await.unwrap()).await.remove(0)
}

#[tokio::test]
async fn helm_upgrades_a_release_of_the_first_chart() {
    let server = ApiServer::start().await;
    let thumbprint = "config.thumbprint=AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD";
    let set = [
        "daemonset.image=registry.test/ccm,daemonset.tag=v0.1.0,config.enabled=true,config.vcenter=vc.example.com",
        "config.datacenter=dc-1,config.secret.create=false,config.region=,config.zone=",
        thumbprint,
    ];
    let set: Vec<&str> = set.iter().flat_map(|text| ["--set", text]).collect();
    helm_of(&server, &[&["install", "vsphere-cpi", OLD_CHART], &set[..]].concat()).await.unwrap();
    let before = daemon_set(&server).await;
    let upgrade = ["upgrade", "vsphere-cpi", CHART, "--reuse-values", "--set", "nodeDeletion.mode=dry-run"];
    let notes = helm_of(&server, &upgrade).await.unwrap();
    assert!(!notes.contains("WARNING"), "{notes}");
    let after = daemon_set(&server).await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    let pod = |set: &Value| set["spec"]["template"]["spec"].clone();
    let mut expected = pod(&before);
    expected["containers"][0]["env"] = json!([{"name": "CCM_NODE_DELETION", "value": "dry-run"}]);
    assert_eq!(pod(&after), expected);
    // The kind changes in one upgrade, and back.
    helm_of(&server, &["upgrade", "vsphere-cpi", CHART, "--reuse-values", "--set", "kind=Deployment"]).await.unwrap();
    let list = async || {
        let get = ["get", "daemonsets,deployments", "--namespace=kube-system", "--output=name"];
        kubectl(Some(&server), &get, "").await.unwrap()
    };
    assert_eq!(list().await, "deployment.apps/vsphere-cpi\n");
    helm_of(&server, &["upgrade", "vsphere-cpi", CHART, "--reuse-values", "--set", "kind=DaemonSet"]).await.unwrap();
    assert_eq!(list().await, "daemonset.apps/vsphere-cpi\n");
}

/// Upstream's chart is not available here. This one has its values, its labels and its selector.
#[tokio::test]
async fn helm_upgrades_a_release_with_the_selector_of_upstreams_chart() {
    let server = ApiServer::start().await;
    let chart = server.folder().join("upstream");
    let write = |path: &Path, text: &str| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(&chart.join("Chart.yaml"), "apiVersion: v2\nname: vsphere-cpi\nversion: 1.36.0\n");
    let image = "daemonset:\n  image: registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere\n  tag: v1.36.0\n";
    write(&chart.join("values.yaml"), &GO_VALUES.replace("daemonset:\n", image));
    let labels = json!({"app": "vsphere-cpi", "component": "cloud-controller-manager", "tier": "control-plane",
        "release": "vsphere-cpi", "vsphere-cpi-infra": "daemonset"});
    let container =
        json!({"name": "vsphere-cpi", "image": "registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1.36.0"});
    let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "vsphere-cpi", "namespace": "kube-system", "labels": labels},
        "spec": {"selector": {"matchLabels": {"app": "vsphere-cpi"}}, "template": {"metadata": {"labels": labels},
            "spec": {"hostNetwork": true, "containers": [container]}}}});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"}});
    write(&chart.join("templates/daemonset.yaml"), &set.to_string());
    write(&chart.join("templates/account.yaml"), &account.to_string());
    helm_of(&server, &["install", "vsphere-cpi", chart.to_str().unwrap()]).await.unwrap();
    let before = daemon_set(&server).await;

    let upgrade = ["upgrade", "vsphere-cpi", CHART, "--reuse-values"];
    let refused = helm_of(&server, &upgrade).await.unwrap_err();
    assert!(refused.contains("the image of upstream's program"), "{refused}");
    let set = ["--set", "image.repository=registry.test/ccm,image.tag=v0.1.0,nodeDeletion.mode=dry-run"];
    let notes = helm_of(&server, &[&upgrade[..], &set].concat()).await.unwrap();
    assert!(notes.contains("The values are reused from upstream's chart"), "{notes}");
    let after = daemon_set(&server).await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(pods::containers(&after)[0]["image"], "registry.test/ccm:v0.1.0");
    // Upstream's chart has no requests, and these are its values.
    let gaps = pods::gaps(&after);
    assert!(gaps.iter().all(|gap| gap.starts_with("a request is")), "{gaps:?}");
}
