//! The Helm chart has the values of the Go program's chart with the same meaning, and names the value in its errors.

mod config;
mod helm;
mod image;
mod monitoring;
mod reference;
mod secrets;
mod settings;
mod test_hook;
mod upgrade;
mod workload;

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use support::ApiServer;
use support::components::Component;
use support::pages::page;

use super::kustomize::{form, objects, piped};
use super::rules::rules;
use super::{apply, pods};
use crate::cluster::BINARY;

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Default values of the Go program's chart 1.36.0, except image and tag.
pub const GO_VALUES: &str = include_str!("../../golden/go-program/chart-values.yaml");

/// A rendered release.
struct Rendered {
    objects: Vec<Value>,
    /// Objects that Helm creates for `helm test` only.
    hooks: Vec<Value>,
    notes: String,
}

impl Rendered {
    /// Returns the only object of this kind.
    fn one(&self, kind: &str) -> &Value {
        let found: Vec<&Value> = self.objects.iter().filter(|object| object["kind"] == kind).collect();
        assert_eq!(found.len(), 1, "{kind}: {found:?}");
        found[0]
    }

    fn kinds(&self) -> BTreeMap<&str, usize> {
        let mut kinds = BTreeMap::new();
        for object in &self.objects {
            *kinds.entry(object["kind"].as_str().unwrap()).or_default() += 1;
        }
        kinds
    }

    /// Returns the DaemonSet or Deployment.
    fn workload(&self) -> &Value {
        let kind = if self.kinds().contains_key("Deployment") { "Deployment" } else { "DaemonSet" };
        self.one(kind)
    }

    fn pod(&self) -> &Value {
        pods::pod(self.workload()).unwrap()
    }

    fn container(&self) -> &Value {
        &self.pod()["containers"][0]
    }

    fn image(&self) -> &str {
        self.container()["image"].as_str().unwrap()
    }

    /// Returns the value of this environment variable.
    fn variable(&self, name: &str) -> Option<&str> {
        let found = self.container()["env"].as_array()?.iter().find(|variable| variable["name"] == name)?;
        found["value"].as_str()
    }

    /// Returns `vsphere.conf`, and checks that the daemon accepts it. Bundles of the ConfigMap are files of its folder.
    async fn config(&self) -> Value {
        let data = self.one("ConfigMap")["data"].as_object().unwrap();
        let text = data["vsphere.conf"].as_str().unwrap();
        let folder = tempfile::tempdir().unwrap();
        for (key, value) in data {
            std::fs::write(folder.path().join(key), value.as_str().unwrap()).unwrap();
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let mounted = text.replace("/etc/cloud/", &format!("{}/", folder.path().display()));
        std::fs::write(file.path(), mounted).unwrap();
        let flags = [format!("--cloud-config={}", file.path().display()), "--kubeconfig=/none".to_owned()];
        // The daemon reports all mistakes at once, so this is the only one.
        let refused = piped(Path::new(BINARY), &flags, "").await.unwrap_err();
        assert!(refused.contains("invalid configuration: --kubeconfig=/none: "), "{text}: {refused}");
        objects(text).await.remove(0)
    }
}

/// An image and a Secret, because these values have no default.
const IMAGE: &str = "daemonset: {image: registry.test/ccm}\nconfig: {secret: {name: vsphere-cloud-secret}}";

/// Renders the chart with these values. Later values override earlier ones.
async fn render_all(values: &[&str], flags: &[&str]) -> Result<Rendered, String> {
    let folder = tempfile::tempdir().unwrap();
    let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/helm/vsphere-cpi");
    let mut arguments = vec!["render".to_owned(), chart.to_owned()];
    for (number, text) in values.iter().enumerate() {
        let file = folder.path().join(number.to_string());
        std::fs::write(&file, text).unwrap();
        arguments.extend(["--values".to_owned(), file.to_str().unwrap().to_owned()]);
    }
    arguments.extend(flags.iter().map(|&flag| flag.to_owned()));
    let printed = piped(&Component::Chart.path(), &arguments, "").await?;
    let mut printed: Value = serde_json::from_str(&printed).unwrap();
    let notes = printed["notes"].as_str().unwrap().to_owned();
    let all: Vec<Value> = serde_json::from_value(printed["objects"].take()).unwrap();
    let is_hook = |object: &Value| !object["metadata"]["annotations"]["helm.sh/hook"].is_null();
    let (hooks, objects) = all.into_iter().partition(is_hook);
    Ok(Rendered { objects, hooks, notes })
}

/// Renders the chart with these values, and with an image unless they name one.
async fn render(values: &str) -> Rendered {
    render_all(&[IMAGE, values], &[]).await.unwrap_or_else(|error| panic!("{values}: {error}"))
}

/// Returns the DaemonSet of a release with the default values.
pub async fn daemon_set() -> Value {
    render("").await.one("DaemonSet").clone()
}

/// Returns the Deployment of a release.
pub async fn deployment() -> Value {
    render("kind: Deployment").await.one("Deployment").clone()
}

/// Checks that each of these values is refused with a text that contains all parts.
async fn assert_refused(cases: &[(&str, &[&str])]) {
    for (values, parts) in cases {
        let refused = refusal(&[IMAGE, values], &[]).await;
        for part in *parts {
            assert!(refused.contains(part), "{values}: {part}: {refused}");
        }
    }
}

/// A configuration that is rendered.
const CONFIG: &str =
    "config: {enabled: true, vcenter: vc.example.com, username: ccm, password: secret, insecureFlag: true}";

/// Returns the error for these values.
async fn refusal(values: &[&str], flags: &[&str]) -> String {
    render_all(values, flags).await.err().unwrap_or_else(|| panic!("{values:?} {flags:?} is accepted"))
}

/// Every value once, different from its default.
const ALL: &str = r#"
config:
  enabled: true
  name: other-config
  vcenter: 10.0.0.1
  username: "ccm@vsphere.local"
  password: 'a"b: #'
  datacenter: "dc-1, dc-2"
  region: ""
  zone: ""
  thumbprint: "AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD"
  nodes:
    internalNetworkSubnetCidr: 10.0.0.0/16
    externalNetworkSubnetCidr: 10.1.0.0/16
    internalVmNetworkName: "007"
    externalVmNetworkName: "yes"
    excludeInternalNetworkSubnetCidr: 10.0.1.0/24
    excludeExternalNetworkSubnetCidr: 10.1.1.0/24
  secret: {create: true, name: other-secret}
global:
  config: {datacenter: dc-3}
podSecurityPolicy: {enabled: true, annotations: {a: b}}
securityContext: {enabled: true, runAsUser: 2000, fsGroup: 3000}
rbac:
  create: true
  nodeDeletion: false
  services: true
  nsx: true
  secrets: [{name: tenant-2, namespace: default}]
serviceAccount: {create: true, name: other-account}
daemonset:
  annotations: {set: annotated}
  image: elsewhere:5000/ccm
  tag: "1.10"
  digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
  pullPolicy: Always
  dnsPolicy: ClusterFirstWithHostNet
  cmdline:
    logging: 4
    cloudConfig: {dir: /etc/other, file: other.conf}
    additionalParams: {leader-elect: false, concurrent-node-syncs: 1000000, controllers: ["*", "-route"], profiling: "", kube-api-qps: 0}
  env: [{name: CCM_NODE_DELETION, value: dry-run}]
  replicaCount: 3
  resources: {limits: {cpu: 1}}
  podAnnotations: {pod: annotated}
  podLabels: {pod: labelled, app: not-mine, tier: not-mine}
  nodeSelector: {disk: fast}
  tolerations: [{key: mine, operator: Exists}]
  affinity: {nodeAffinity: {}}
  extraVolumes: [{name: a, emptyDir: {}}, {name: b, emptyDir: {}}]
  extraVolumeMounts: [{name: a, mountPath: /a, readOnly: true}]
  extraVolumesMounts: [{name: b, mountPath: /b, readOnly: true}]
  hostAliases: [{ip: 10.0.0.9, hostnames: [vcenter]}]
nameOverride: other-name
imagePullSecrets: [{name: registry-credentials}, {name: mirror}]
k8sServiceHost: api.example.com
k8sServicePort: 7445
service: {enabled: true}
"#;

#[tokio::test]
async fn releases_are_applied_to_a_real_api_server() {
    let server = ApiServer::shared().await;
    for (name, values) in [
        ("defaults", ""),
        ("the Go program's values", GO_VALUES),
        ("config", CONFIG),
        ("all values of upstream's chart", ALL),
        ("all settings", settings::ALL),
        ("all of the configuration", config::ALL),
        ("all of the workload", workload::ALL),
        ("as a Deployment", workload::DEPLOYMENT),
    ] {
        let rendered = render(values).await;
        let list = json!({"apiVersion": "v1", "kind": "List", "items": rendered.objects});
        apply(server, name, &list.to_string()).await;
        let workload = rendered.workload();
        assert_eq!(workload["metadata"]["namespace"], "kube-system");
        let kind = workload["kind"].as_str().unwrap().to_lowercase();
        assert!(rendered.notes.contains(&format!("rollout status {kind}/")), "{}", rendered.notes);
    }
}

/// An upgrade cannot change a selector or the `roleRef` of a binding.
#[tokio::test]
async fn an_upgrade_from_the_go_programs_chart_finds_its_objects() {
    let rendered = render(GO_VALUES).await;
    let set = rendered.one("DaemonSet");
    assert_eq!(set["metadata"]["name"], "vsphere-cpi");
    assert_eq!(set["spec"]["selector"], json!({"matchLabels": {"app": "vsphere-cpi"}}));
    let account = "cloud-controller-manager";
    assert_eq!(rendered.one("ServiceAccount")["metadata"]["name"], account);
    let bound = rendered.objects.iter().find(|object| object["kind"] == "ClusterRoleBinding");
    let bound = bound.filter(|object| object["metadata"]["name"] == account).unwrap();
    assert_eq!(bound["roleRef"]["name"], account);
    let volume = json!({"name": "vsphere-config-volume", "configMap": {"name": "cloud-config"}});
    assert_eq!(rendered.pod()["volumes"], json!([volume]));
    let expected = json!(["--cloud-provider=vsphere", "--v=2", "--cloud-config=/etc/cloud/vsphere.conf"]);
    assert_eq!(rendered.container()["args"], expected);
    assert_eq!(pods::gaps(set), Vec::<String>::new());
}

/// Returns the values that are no map, or an empty one, by their paths.
async fn leaves(values: &str) -> BTreeMap<String, Value> {
    fn add(path: &str, value: &Value, found: &mut BTreeMap<String, Value>) {
        match value.as_object().filter(|object| !object.is_empty()) {
            Some(object) => object.iter().for_each(|(key, value)| add(&format!("{path}.{key}"), value, found)),
            None => drop(found.insert(path.to_owned(), value.clone())),
        }
    }
    let mut found = BTreeMap::new();
    add("", &objects(values).await[0], &mut found);
    found
}

#[tokio::test]
async fn the_defaults_are_those_of_the_go_programs_chart() {
    let (before, now) = (leaves(GO_VALUES).await, leaves(&page("manifests/helm/vsphere-cpi/values.yaml")).await);
    assert_eq!(before.len(), 42, "{:?}", before.keys());
    for (path, value) in &before {
        match path.as_str() {
            ".daemonset.resources" => assert_eq!(now[".daemonset.resources.requests.memory"], "64Mi"),
            ".daemonset.tolerations" => {
                // The tolerations for control planes of RKE2 and K3s and of old clusters come first, before the
                // tolerations of the Go program.
                let (more, same) = now[path].as_array().unwrap().split_at(2);
                assert_eq!(*value, json!(same));
                let more: Vec<&Value> = more.iter().map(|toleration| &toleration["key"]).collect();
                assert_eq!(more, ["node-role.kubernetes.io/etcd", "node-role.kubernetes.io/master"]);
            }
            // Upstream ignores this value without config.enabled. Here it grants a permission.
            ".config.secret.name" => assert_eq!((value, &now[path]), (&json!("vsphere-cloud-secret"), &json!(""))),
            // A forgotten value must not cause logins at a server of this name, or Nodes that wait for tags.
            path if REQUIRED.contains(&path) => {
                assert!(*value != json!("") && now[path] == json!(""), "{path}");
            }
            path => assert_eq!(now.get(path), Some(value), "{path}"),
        }
    }
}

/// Values without a default. Upstream's chart has one for each.
const REQUIRED: [&str; 6] =
    [".config.vcenter", ".config.username", ".config.password", ".config.datacenter", ".config.region", ".config.zone"];

/// W54: `caFile` is used, both spellings of `extraVolumeMounts` work, false and zero count as values, and texts stay
/// texts.
#[tokio::test]
async fn w54_every_value_has_its_effect() {
    let rendered = render(ALL).await;
    let (pod, container) = (rendered.pod(), rendered.container());
    let set = rendered.one("DaemonSet");
    assert_eq!(set["metadata"]["name"], "other-name");
    assert_eq!(set["metadata"]["annotations"], json!({"set": "annotated"}));
    let labels = &set["spec"]["template"]["metadata"]["labels"];
    assert_eq!((&labels["pod"], &labels["app"]), (&json!("labelled"), &json!("other-name")));
    assert_eq!(labels["tier"], "control-plane", "the monitors select it");
    assert_eq!(set["spec"]["template"]["metadata"]["annotations"], json!({"pod": "annotated"}));
    assert_eq!(rendered.image(), format!("elsewhere:5000/ccm:1.10@{DIGEST}"));
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry-credentials"}, {"name": "mirror"}]));
    let expected = json!([
        "--cloud-provider=vsphere",
        "--v=4",
        "--cloud-config=/etc/other/other.conf",
        "--concurrent-node-syncs=1000000",
        "--controllers=*,-route",
        "--kube-api-qps=0",
        "--leader-elect=false",
        "--profiling",
    ]);
    assert_eq!(container["args"], expected);
    let variables = json!([
        {"name": "KUBERNETES_SERVICE_HOST", "value": "api.example.com"},
        {"name": "KUBERNETES_SERVICE_PORT", "value": "7445"},
        {"name": "CCM_NODE_DELETION", "value": "dry-run"},
    ]);
    assert_eq!(container["env"], variables);
    // Maps are merged.
    assert_eq!(container["resources"]["limits"], json!({"cpu": 1, "memory": "512Mi"}));
    let mounts: Vec<&Value> =
        container["volumeMounts"].as_array().unwrap().iter().map(|mount| &mount["mountPath"]).collect();
    assert_eq!(mounts, ["/etc/other", "/a", "/b"]);
    assert_eq!(pod["volumes"].as_array().unwrap().len(), 3);
    assert_eq!(pod["dnsPolicy"], "ClusterFirstWithHostNet");
    assert_eq!(
        (&pod["securityContext"]["runAsUser"], &pod["securityContext"]["fsGroup"]),
        (&json!(2000), &json!(3000))
    );
    assert_eq!((&pod["nodeSelector"], &pod["tolerations"][0]["key"]), (&json!({"disk": "fast"}), &json!("mine")));
    assert_eq!(pod["hostAliases"][0]["ip"], "10.0.0.9");
    assert_eq!(pod["serviceAccountName"], "other-account");

    let secret = rendered.one("Secret");
    assert_eq!(secret["metadata"]["name"], "other-secret");
    let pair = json!({"10.0.0.1.username": "ccm@vsphere.local", "10.0.0.1.password": "a\"b: #"});
    assert_eq!(secret["stringData"], pair);
    let config = objects(rendered.one("ConfigMap")["data"]["other.conf"].as_str().unwrap()).await.remove(0);
    let thumbprint = "AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD";
    let expected = json!({
        "global": {"port": 443, "thumbprint": thumbprint, "secretName": "other-secret", "secretNamespace": "kube-system"},
        "vcenter": {"10.0.0.1": {"server": "10.0.0.1", "datacenters": ["dc-3"]}},
        "labels": {"region": "", "zone": ""},
        "nodes": {
            "internalNetworkSubnetCidr": "10.0.0.0/16",
            "externalNetworkSubnetCidr": "10.1.0.0/16",
            "internalVmNetworkName": "007",
            "externalVmNetworkName": "yes",
            "excludeInternalNetworkSubnetCidr": "10.0.1.0/24",
            "excludeExternalNetworkSubnetCidr": "10.1.1.0/24",
        },
    });
    assert_eq!(config, expected);
    assert_eq!(rendered.one("ConfigMap")["metadata"]["name"], "other-config");
    for part in ["podSecurityPolicy.enabled", "daemonset.replicaCount", "service.enabled"] {
        assert!(rendered.notes.contains(&format!("{part} has no effect")), "{part}: {}", rendered.notes);
    }
    let all = rules(&rendered.objects);
    assert!(!all.iter().any(|right| right.verb == "delete"), "rbac.nodeDeletion is false");
    assert!(all.iter().any(|right| right.resource == "services"), "rbac.services is true");
    assert!(all.iter().any(|right| right.resource == "namespaces"), "rbac.nsx is true");
    for (namespace, name) in [("kube-system", "other-secret"), ("default", "tenant-2")] {
        let read = |right: &&super::rules::Right| right.name.as_deref() == Some(name);
        let found = all.iter().find(read).unwrap();
        assert_eq!((found.resource.as_str(), found.namespace.as_deref()), ("secrets", Some(namespace)));
    }
}

#[tokio::test]
async fn w54_trust_is_what_the_values_say() {
    let trust = async |values: &str| {
        let account = "vcenter: vc.example.com, username: ccm, password: secret";
        let rendered = render(&format!("config: {{enabled: true, {account}, {values}}}")).await;
        let config = rendered.config().await;
        let warned = rendered.notes.contains("WARNING: vCenter's certificate is not verified");
        assert_eq!(warned, config["global"]["insecureFlag"] == json!(true), "{}", rendered.notes);
        config["global"].clone()
    };
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vcenter/certificates/ca.pem");
    let found = trust(&format!("caFile: {file}")).await;
    assert_eq!((&found["caFile"], &found["insecureFlag"]), (&json!(file), &Value::Null));
    assert_eq!(trust("insecureFlag: true").await["insecureFlag"], json!(true));
    let beside = trust(&format!("caFile: {file}, insecureFlag: true")).await;
    assert_eq!((&beside["caFile"], &beside["insecureFlag"]), (&json!(file), &Value::Null));
    for values in [
        "config: {enabled: true, vcenter: a, username: b, password: c}",
        "config: {enabled: true, vcenter: a, username: b, password: c, insecureFlag: null}",
        "{global: {config: {enabled: true, vcenter: a, username: b, password: c}}}",
    ] {
        let refused = refusal(&[IMAGE, values], &[]).await;
        let expected = ["config.thumbprint", "config.caFile", "config.caBundle", "config.insecureFlag=true"];
        assert!(expected.into_iter().all(|part| refused.contains(part)), "{values}: {refused}");
    }
}

#[tokio::test]
async fn w54_an_ipv6_address_is_a_server_with_credentials() {
    let account = "username: ccm, password: secret";
    let rendered =
        render(&format!("config: {{enabled: true, insecureFlag: true, vcenter: 'fd00::1', {account}}}")).await;
    assert_eq!(rendered.config().await["vcenter"]["fd00::1"]["server"], "fd00::1");
    let keys = json!({"server_0": "fd00::1", "username_0": "ccm", "password_0": "secret"});
    assert_eq!(rendered.one("Secret")["stringData"], keys);
}

/// W54: with `helm upgrade --reuse-values` the chart gets only the values of an older release.
#[tokio::test]
async fn w54_values_of_an_older_release_are_enough() {
    for old in [
        "{}",
        "config: {enabled: true}",
        "config: {enabled: true, vcenter: v, datacenter: d}\ndaemonset: {cmdline: {}}\nrbac: {create: true}",
    ] {
        let rendered = render_all(&[IMAGE, old], &["--reused"]).await.unwrap_or_else(|error| panic!("{old}: {error}"));
        assert_eq!(rendered.container()["image"], render("").await.container()["image"], "{old}");
        assert_eq!(rendered.kinds().contains_key("Secret"), old != "{}", "{old}");
        let warned = rendered
            .notes
            .contains("WARNING: vCenter's certificate is not verified, because the reused values do not have");
        assert_eq!(warned, old != "{}", "{old}: {}", rendered.notes);
    }
}

#[tokio::test]
async fn the_api_server_has_the_address_of_the_values() {
    for (values, host, port) in [
        ("", None, None),
        ("k8sServiceHost: 10.0.0.10", Some("10.0.0.10"), Some("6443")),
        ("{k8sServiceHost: 'fd00::10', k8sServicePort: '443'}", Some("fd00::10"), Some("443")),
    ] {
        let rendered = render(values).await;
        let found = (rendered.variable("KUBERNETES_SERVICE_HOST"), rendered.variable("KUBERNETES_SERVICE_PORT"));
        assert_eq!(found, (host, port), "{values}");
    }
    let reused = render_all(&[IMAGE, "k8sServiceHost: localhost"], &["--reused"]).await.unwrap();
    assert_eq!(reused.variable("KUBERNETES_SERVICE_PORT"), Some("6443"));
    for (values, expected) in [
        ("k8sServicePort: 7445", "k8sServicePort is set without k8sServiceHost"),
        (
            "{k8sServiceHost: a, daemonset: {env: [{name: KUBERNETES_SERVICE_HOST, value: b}]}}",
            "KUBERNETES_SERVICE_HOST is in daemonset.env, and k8sServiceHost is set",
        ),
        (
            "{k8sServiceHost: a, daemonset: {env: [{name: KUBERNETES_SERVICE_PORT, value: '1'}]}}",
            "KUBERNETES_SERVICE_PORT is in daemonset.env, and k8sServiceHost is set",
        ),
    ] {
        let refused = refusal(&[IMAGE, values], &[]).await;
        assert!(refused.contains(expected), "{values}: {refused}");
    }
    // Without these values the release keeps its own variables.
    let rendered = render("daemonset: {env: [{name: KUBERNETES_SERVICE_HOST, value: b}]}").await;
    assert_eq!(rendered.variable("KUBERNETES_SERVICE_HOST"), Some("b"));
}

/// The chart has the tolerations of the overlays for these distributions.
#[tokio::test]
async fn pods_are_scheduled_to_control_planes_of_rke2_and_k3s() {
    let of_chart = render("").await.pod()["tolerations"].as_array().unwrap().clone();
    for overlay in ["overlays/rke2", "overlays/k3s"] {
        let set = form(overlay).await.objects.iter().find(|object| object["kind"] == "DaemonSet").unwrap();
        for toleration in pods::pod(set).unwrap()["tolerations"].as_array().unwrap() {
            assert!(of_chart.contains(toleration), "{overlay}: {toleration} is not in {of_chart:?}");
        }
    }
}

#[tokio::test]
async fn parts_can_be_left_out() {
    for (values, kind) in [
        ("rbac: {create: false}", "ClusterRole"),
        ("serviceAccount: {create: false}", "ServiceAccount"),
        ("config: {enabled: true, vcenter: a, insecureFlag: true, secret: {create: false}}", "Secret"),
        ("config: {enabled: true, vcenter: a, insecureFlag: true, existingSecret: vsphere-cloud-secret}", "Secret"),
    ] {
        assert!(!render(values).await.kinds().contains_key(kind), "{values}");
    }
    let rendered = render("securityContext: {enabled: false}").await;
    let context = &rendered.pod()["securityContext"];
    assert_eq!(*context, json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}));
    let rendered = render("daemonset: {cmdline: {additionalParams: {secure-port: 0}}}").await;
    assert_eq!((&rendered.container()["livenessProbe"], &rendered.container()["ports"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn mistakes_are_told_by_name() {
    for (values, expected) in [
        ("config: {vcentre: x}", "at '/config': additional properties 'vcentre' not allowed"),
        ("config: {vcenter: 'https://x/sdk'}", "at '/config/vcenter'"),
        ("config: {vcenter: 'x:443'}", "at '/config/vcenter'"),
        ("config: {enabled: 'yes'}", "at '/config/enabled': got string, want boolean"),
        ("config: {nodes: {internalCidr: x}}", "at '/config/nodes': additional properties 'internalCidr' not allowed"),
        ("global: {config: {usename: x}}", "at '/global/config': additional properties 'usename' not allowed"),
        ("daemonset: {tag: 1.10}", "at '/daemonset/tag': got number, want string"),
        ("daemonset: {pullPolicy: Sometimes}", "at '/daemonset/pullPolicy': value must be one of"),
        ("daemonset: {cmdline: {logging: loud}}", "at '/daemonset/cmdline/logging'"),
        ("daemonset: {cmdline: {additionalParams: {--v: 2}}}", "invalid propertyName '--v'"),
        ("daemonset: {cmdline: {additionalParams: {a: {b: c}}}}", "at '/daemonset/cmdline/additionalParams/a'"),
        (
            "daemonset: {extraVolumesMount: []}",
            "at '/daemonset': additional properties 'extraVolumesMount' not allowed",
        ),
        ("rbac: {secrets: [{namespace: x}]}", "at '/rbac/secrets/0': missing property 'name'"),
        (r#"rbac: {secrets: [{name: 'a"'}]}"#, "at '/rbac/secrets/0/name'"),
        ("rbac: {secrets: [{name: a, namespace: a.b}]}", "at '/rbac/secrets/0/namespace'"),
        (r#"nameOverride: 'a"b'"#, "at '/nameOverride'"),
        (r#"serviceAccount: {name: "a\n  b: c"}"#, "at '/serviceAccount/name'"),
        ("daemonset: {digest: sha256:abc}", "at '/daemonset/digest'"),
        (
            concat!(
                "daemonset: {image: r/x, tag: 'v1@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef', ",
                "digest: 'sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef'}"
            ),
            "image.tag (or daemonset.tag) and image.digest (or daemonset.digest) both name a digest",
        ),
        ("daemonset: {image: 'registry.test/ccm:v9'}", "at '/daemonset/image'"),
        ("imagePullSecrets: [registry-credentials]", "at '/imagePullSecrets/0': got string, want object"),
        ("imagePullSecrets: [{secret: a}]", "at '/imagePullSecrets/0'"),
        ("k8sServiceHost: 'https://api.example.com'", "at '/k8sServiceHost'"),
        ("k8sServiceHost: 'api.example.com:6443'", "at '/k8sServiceHost'"),
        ("k8sServicePort: 70000", "at '/k8sServicePort'"),
        ("k8sServicePort: https", "at '/k8sServicePort'"),
        ("replica: 2", "additional properties 'replica' not allowed"),
    ] {
        let refused = refusal(&[IMAGE, values], &[]).await;
        assert!(refused.contains(expected), "{values}: {refused}");
    }
}

#[tokio::test]
async fn the_chart_gives_the_rights_of_the_manifests() {
    let nsx = "rbac: {nsx: true, secrets: [{name: vsphere-nsx-secret, namespace: kube-system}]}";
    let cases = [
        ("", "rbac"),
        ("rbac: {services: true}", "base-with-services"),
        (nsx, "base-with-nsx"),
        (&config::with("nsx: {nsxt: {host: nsx, secretName: vsphere-nsx-secret}}"), "base-with-nsx"),
        ("nodeDeletion: {mode: dry-run}", "base-with-no-node-deletion"),
        ("nodeDeletion: {mode: 'off'}", "base-with-no-node-deletion"),
        ("nodeDeletion: {mode: enforce}", "rbac"),
    ];
    for (values, of_manifests) in cases {
        let mut of_chart = rules(&render(values).await.objects);
        let mut of_manifests = rules(&form(of_manifests).await.objects);
        of_chart.sort();
        of_manifests.sort();
        assert_eq!(of_chart, of_manifests, "{values}");
    }
}

/// A cluster without load balancers needs no permission for Services. A cluster without NSX needs no permission to
/// write them.
#[tokio::test]
async fn services_are_read_and_written_only_with_a_component() {
    let of_services = ["services list", "services watch"];
    let of_nsx = ["services list", "services watch", "services/status patch"];
    for (name, expected) in [("base", &[][..]), ("base-with-services", &of_services), ("base-with-nsx", &of_nsx)] {
        let rights = rules(&form(name).await.objects);
        let about_services = rights.iter().filter(|right| right.resource.starts_with("services"));
        let shown: Vec<String> = about_services.map(|right| format!("{} {}", right.resource, right.verb)).collect();
        assert_eq!(shown, expected, "{name}");
    }
}
