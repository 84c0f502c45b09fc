//! The forms of `manifests/`: each is applied to a real API server, and the pods have the documented restrictions.

pub mod chart;
pub mod kustomize;
mod plugin;
pub mod pods;
mod release;
pub mod rules;

use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};
use support::components::{Component, kubernetes_release};
use support::{ApiServer, eventually};

use crate::cluster::LIMIT;
use kustomize::{Tree, form, forms, kubectl, objects, parsed, piped};

/// Kinds that other software defines.
const FOREIGN: [(&str, &str); 3] =
    [("PrometheusRule", "prometheusrules"), ("ServiceMonitor", "servicemonitors"), ("PodMonitor", "podmonitors")];

/// Files that no kustomization names. They are examples for the setup of nodes, and no API server has their kinds.
const HINTS: [&str; 6] = [
    "overlays/k3s/config.yaml",
    "overlays/kubeadm/init.yaml",
    "overlays/kubeadm/join-control-plane.yaml",
    "overlays/kubeadm/join.yaml",
    "overlays/rke2/config.yaml",
    "overlays/talos/machine-config.yaml",
];

/// Value in `image` before it is edited.
const UNSET_IMAGE: &str = "image-not-set/EDIT/manifests/image/kustomization.yaml";

/// Value in `components/api-server-address` before it is edited.
const UNSET_ADDRESS: &str = "edit-manifests-components-api-server-address";

/// Creates definitions without a schema for the kinds of other software.
async fn define_foreign_kinds(client: &Client) {
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions = Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    for (kind, plural) in FOREIGN {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
            "spec": {
                "group": "monitoring.coreos.com",
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "scope": "Namespaced",
                "versions": [version],
            },
        });
        definitions.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
        eventually(&format!("{plural} are served"), LIMIT, async || {
            let path = format!("/apis/monitoring.coreos.com/v1/{plural}");
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            client.request_text(request).await.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }
}

/// Applies a manifest with `--dry-run` first, and then really. The API server rejects unknown fields.
pub async fn apply(server: &ApiServer, name: &str, manifest: &str) {
    for mode in [&["--dry-run=server"][..], &[]] {
        let flags = [&["apply", "--validate=strict", "-f", "-"][..], mode].concat();
        let told = kubectl(Some(server), &flags, manifest).await;
        let told = told.unwrap_or_else(|error| panic!("{name}, {mode:?}: {error}"));
        let applied = told.lines().filter(|line| !line.is_empty()).count();
        assert_eq!(applied, objects(manifest).await.len(), "{name}: {told}");
    }
}

#[tokio::test]
async fn every_form_is_applied_to_a_real_api_server() {
    let server = ApiServer::shared().await;
    define_foreign_kinds(&server.client().await).await;
    for form in forms().await {
        apply(server, &form.name, &form.manifest).await;
        if form.name.ends_with("-with-no-node-deletion") {
            let is_off = !form.manifest.contains("- delete\n") && form.manifest.contains("CCM_NODE_DELETION");
            assert!(is_off, "{}: {}", form.name, form.manifest);
        }
    }
}

/// Otherwise a file could exist that was never applied to an API server.
#[test]
fn every_file_is_part_of_a_form_or_known_to_be_none() {
    let tree = Tree::copy();
    let named = tree.named();
    for file in tree.files() {
        let is_other = ["helm/", "monitoring/", "plugin/"].iter().any(|folder| file.starts_with(folder))
            || [".md", ".env"].iter().any(|ending| file.ends_with(ending));
        let is_named = file.ends_with("kustomization.yaml") || named.contains(&file);
        assert!(is_other || is_named || HINTS.contains(&file.as_str()), "{file} is in no kustomization");
    }
    for hint in HINTS {
        assert!(tree.files().iter().any(|file| file == hint), "{hint} is not there");
    }
}

#[tokio::test]
async fn hints_for_nodes_are_well_formed() {
    let tree = Tree::copy();
    for hint in HINTS {
        let documents = objects(&tree.read(hint)).await;
        assert!(!documents.is_empty() && documents.iter().all(Value::is_object), "{hint}: {documents:?}");
    }
}

/// The validation command in the files' headers accepts them.
#[tokio::test]
async fn kubeadm_accepts_its_configuration_files() {
    let folder = tempfile::tempdir().unwrap();
    let validate = async |text: &str| {
        let file = folder.path().join("kubeadm.yaml");
        std::fs::write(&file, text).unwrap();
        let flags = ["config", "validate", "--config", file.to_str().unwrap()].map(str::to_owned);
        piped(&Component::Kubeadm.path(), &flags, "").await
    };
    let tree = Tree::copy();
    for hint in HINTS.iter().filter(|hint| hint.starts_with("overlays/kubeadm/")) {
        // Without a version kubeadm would fetch the latest one from the internet.
        let version = format!("kind: ClusterConfiguration\nkubernetesVersion: v{}\n", kubernetes_release());
        let text = tree.read(hint).replace("kind: ClusterConfiguration\n", &version);
        validate(&text).await.unwrap_or_else(|error| panic!("{hint}: {error}"));
        assert!(text.contains("kubeletExtraArgs:\n  - name: cloud-provider\n    value: external\n"), "{hint}: {text}");
        let refused = validate(&text.replace("kubeletExtraArgs:", "kubeletExtraFlags:")).await.unwrap_err();
        assert!(refused.contains("unknown field \"nodeRegistration.kubeletExtraFlags\""), "{hint}: {refused}");
    }
    let join = tree.read("overlays/kubeadm/join.yaml");
    let (before, rest) = join.split_once("\ndiscovery:\n").unwrap();
    let (_, after) = rest.split_once("\nnodeRegistration:\n").unwrap();
    let refused = validate(&format!("{before}\nnodeRegistration:\n{after}")).await.unwrap_err();
    assert!(refused.contains("bootstrapToken or file must be set"), "{refused}");
}

#[tokio::test]
async fn there_is_one_image_and_its_version_is_the_programs() {
    let expected = format!("{UNSET_IMAGE}:v{}", env!("CARGO_PKG_VERSION"));
    for form in forms().await {
        for object in &form.objects {
            for container in pods::containers(object) {
                assert_eq!(container["image"], json!(expected), "{}", form.name);
            }
        }
    }
}

/// The kubelet rejects the reference without a request to a registry, and the pod's status shows the file.
#[tokio::test]
async fn an_image_that_is_not_set_is_invalid_and_names_the_file_to_edit() {
    let refused = parsed(&format!("{UNSET_IMAGE}:v{}", env!("CARGO_PKG_VERSION"))).await.unwrap_err();
    let expected = format!("invalid reference format: repository name ({UNSET_IMAGE}) must be lowercase");
    assert!(refused.contains(&expected), "{refused}");
    let file = UNSET_IMAGE.split_once("/EDIT/manifests/").unwrap().1;
    assert!(Tree::copy().read(file).contains(&format!("newName: {UNSET_IMAGE}\n")), "{file}");
    // Proves that the check can succeed.
    let valid = "registry.example.com/vsphere-cloud-controller-manager:v1";
    assert_eq!(parsed(valid).await.as_deref(), Ok(valid));
}

/// Follows the headers of `image` and of the components. Their files stay unchanged.
#[tokio::test]
async fn an_overlay_of_ones_own_sets_image_and_addresses() {
    let digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let tree = Tree::copy();
    let address = tree.read("components/api-server-address/kustomization.yaml");
    let (_, patch) = address.split_once("\npatches:\n").unwrap();
    let patch = patch.replace(UNSET_ADDRESS, "api.example.com");
    for (form, components) in [
        ("overlays/kubeadm", "../components/image-pull-secret"),
        ("deployment", "../components/api-server-address, ../components/image-pull-secret"),
    ] {
        let text = format!(
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../{form}]\n\
             components: [{components}]\nimages:\n- name: {UNSET_IMAGE}\n  newName: registry.test/ccm\n  newTag: v9\n  \
             digest: {digest}\npatches:\n{patch}"
        );
        let objects = objects(&tree.built_with("mine", &text).await).await;
        let pod = objects.iter().find_map(pods::pod).unwrap();
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry-credentials"}]), "{form}");
        let container = &pod["containers"][0];
        assert_eq!(container["image"], json!(format!("registry.test/ccm:v9@{digest}")), "{form}");
        let expected = json!([
            {"name": "KUBERNETES_SERVICE_HOST", "value": "api.example.com"},
            {"name": "KUBERNETES_SERVICE_PORT", "value": "6443"},
        ]);
        assert_eq!(container["env"], expected, "{form}");
    }
}

/// The name in an unedited component cannot be resolved, and the error shows the component.
#[tokio::test]
async fn the_component_for_the_api_servers_address_works_with_every_workload() {
    for name in ["base-with-api-server-address", "deployment-with-api-server-address"] {
        let pod = form(name).await.objects.iter().find_map(pods::pod).unwrap();
        assert_eq!(pod["containers"][0]["env"][0]["value"], UNSET_ADDRESS, "{name}");
    }
}

/// The pods tolerate nodes without routes, nodes with little memory, and the nodes of each distribution.
#[tokio::test]
async fn as_a_deployment_the_pods_of_each_overlay_run_where_those_of_the_daemon_set_do() {
    // The DaemonSet controller adds these tolerations to pods with `hostNetwork`. Tolerations of drained or lost nodes
    // are excluded.
    let added = ["network-unavailable", "disk-pressure", "memory-pressure", "pid-pressure"]
        .map(|key| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoSchedule"}));
    for overlay in ["base", "kubeadm", "k3s", "rke2", "talos"] {
        let of = async |name: &str, kind: &str| {
            let workloads = ["DaemonSet", "Deployment"];
            let objects = &form(name).await.objects;
            let found: Vec<_> =
                objects.iter().filter(|object| workloads.iter().any(|one| object["kind"] == *one)).collect();
            assert!(found.len() == 1 && found[0]["kind"] == kind, "{name}");
            found[0]["spec"]["template"].clone()
        };
        let name = if overlay == "base" { "base".to_owned() } else { format!("overlays/{overlay}") };
        let mut expected = of(&name, "DaemonSet").await;
        let deployment = of(&format!("{overlay}-with-deployment"), "Deployment").await;
        let spec = &mut expected["spec"];
        spec["tolerations"].as_array_mut().unwrap().extend(added.clone());
        spec["affinity"]["podAntiAffinity"] = deployment["spec"]["affinity"]["podAntiAffinity"].clone();
        assert!(spec["affinity"]["podAntiAffinity"].is_object(), "{overlay}");
        assert_eq!(deployment, expected, "{overlay}");
    }
}

/// Returns the endpoint of the only monitor of a form.
fn endpoint<'a>(name: &str, objects: &'a [Value]) -> &'a Value {
    let monitors = objects.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Monitor"));
    let endpoints: Vec<&Value> =
        monitors.flat_map(|one| ["endpoints", "podMetricsEndpoints"].map(|key| &one["spec"][key][0])).collect();
    let endpoints: Vec<&Value> = endpoints.into_iter().filter(|endpoint| endpoint.is_object()).collect();
    let [endpoint] = endpoints[..] else { panic!("{name}: two monitors count each process twice: {endpoints:?}") };
    endpoint
}

#[tokio::test]
async fn a_monitor_sends_a_token_that_permits_nothing_but_the_metrics_and_verifies_where_a_ca_is_given() {
    let forms: Vec<_> = forms().await.iter().filter(|form| form.name.starts_with("monitoring")).collect();
    assert_eq!(forms.len(), 4);
    for form in forms {
        let find = |kind: &str| form.objects.iter().find(|object| object["kind"] == kind).unwrap();
        let (account, secret) = (&find("ServiceAccount")["metadata"]["name"], find("Secret"));
        assert_eq!(secret["type"], "kubernetes.io/service-account-token", "{}", form.name);
        assert_eq!(&secret["metadata"]["annotations"]["kubernetes.io/service-account.name"], account);
        assert_eq!(find("ClusterRole")["rules"], json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]));
        let binding = find("ClusterRoleBinding");
        assert_eq!(binding["roleRef"]["name"], find("ClusterRole")["metadata"]["name"]);
        let subject = json!([{"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}]);
        assert_eq!(binding["subjects"], subject);

        let endpoint = endpoint(&form.name, &form.objects);
        let credentials = json!({"credentials": {"name": secret["metadata"]["name"], "key": "token"}});
        assert_eq!(endpoint["authorization"], credentials, "{}", form.name);
        assert_eq!((&endpoint["scheme"], endpoint.get("bearerTokenFile")), (&json!("https"), None), "{}", form.name);
        let verified = json!({
            "serverName": "vsphere-cloud-controller-manager",
            "ca": {"configMap": {"name": "vsphere-cloud-controller-manager-metrics-ca", "key": "ca.crt"}},
        });
        let is_verified = form.name.ends_with("verified");
        let expected = if is_verified { verified } else { json!({"insecureSkipVerify": true}) };
        assert_eq!(endpoint["tlsConfig"], expected, "{}", form.name);
        let has_service = form.objects.iter().any(|object| object["kind"] == "Service");
        assert_eq!(has_service, !form.name.contains("pod-monitor"), "{}", form.name);
    }
}

/// An apply of an overlay must not overwrite an operator's configuration with a sample.
#[tokio::test]
async fn no_form_but_the_sample_has_configuration_or_secrets() {
    for form in forms().await.iter().filter(|form| !form.name.starts_with("monitoring")) {
        // The token and the dashboard of the component for monitoring.
        let is_monitoring = |object: &Value| {
            let labels = &object["metadata"]["labels"];
            let is_dashboard = !labels["grafana_dashboard"].is_null();
            is_dashboard || object["type"] == "kubernetes.io/service-account-token"
        };
        let is_one =
            |object: &Value| (object["kind"] == "Secret" || object["kind"] == "ConfigMap") && !is_monitoring(object);
        assert_eq!(form.objects.iter().any(is_one), form.name == "config", "{}", form.name);
    }
}

#[tokio::test]
async fn the_components_for_monitoring_add_what_their_names_say() {
    let kinds = async |name: &str| {
        let (with, base) = (&form(name).await.objects, &form("base").await.objects);
        let mut added: Vec<&str> = with
            .iter()
            .filter(|object| !base.contains(object))
            .map(|object| object["kind"].as_str().unwrap())
            .collect();
        added.sort_unstable();
        added
    };
    assert_eq!(kinds("base-with-monitoring-rules").await, ["PrometheusRule"]);
    let mut all: Vec<&str> =
        form("monitoring").await.objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    all.sort_unstable();
    assert_eq!(kinds("base-with-monitoring").await, all);
    assert!(
        all.contains(&"ServiceMonitor") && all.contains(&"PrometheusRule") && all.contains(&"ConfigMap"),
        "{all:?}"
    );
}

/// Follows the header of `components/monitoring`.
#[tokio::test]
async fn an_overlay_of_ones_own_has_a_pod_monitor_with_a_label() {
    let tree = Tree::copy();
    let header = tree.read("components/monitoring/kustomization.yaml");
    let patch: Vec<&str> = header.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
    let (first, patch) = patch.split_first().unwrap();
    assert_eq!(*first, "patches:");
    let text = format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../base]\ncomponents: \
         [../components/monitoring, ../monitoring/pod-monitor, ../monitoring/verified]\npatches:\n{}\n",
        patch.join("\n")
    );
    let objects = objects(&tree.built_with("mine", &text).await).await;
    let named = |kind: &str| objects.iter().find(|object| object["kind"] == kind);
    for kind in ["PodMonitor", "PrometheusRule"] {
        assert_eq!(named(kind).unwrap()["metadata"]["labels"]["release"], "NAME", "{kind}");
    }
    assert!(named("ServiceMonitor").is_none() && named("ConfigMap").is_some());
    assert!(named("DaemonSet").unwrap()["metadata"]["labels"]["release"].is_null());
}
