//! Values for monitoring: the chart renders the files of `manifests/monitoring`, of which it holds copies.

use std::path::Path;

use serde_json::{Value, json};
use support::ApiServer;
use support::pages::page;

use super::super::kustomize::{form, objects};
use super::super::{apply, define_foreign_kinds};
use super::{Rendered, assert_refused, render};

/// Each value of this group once, without the PodMonitor, which excludes the ServiceMonitor.
pub const ALL: &str = r#"
monitoring:
  runbookBaseUrl: https://docs.example.com/book/
  caConfigMap: metrics-ca
  serviceMonitor: {enabled: true, labels: {release: prometheus}}
  rules: {enabled: true, labels: {release: prometheus}}
  dashboard: {enabled: true, labels: {folder: vsphere}}
"#;

/// The values for a PodMonitor.
pub const POD_MONITOR: &str = "monitoring: {podMonitor: {enabled: true, labels: {release: prometheus}}}";

/// The copies in the chart, because Helm reads no file outside of it, and their originals.
const COPIES: [(&str, &str); 5] = [
    ("access.yaml", "access.yaml"),
    ("alerts.yaml", "alerts.yaml"),
    ("dashboard.json", "dashboard.json"),
    ("pod-monitor.yaml", "pod-monitor/pod-monitor.yaml"),
    ("service-monitor.yaml", "service-monitor.yaml"),
];

/// Returns the objects for monitoring.
fn monitoring(rendered: &Rendered) -> Vec<&Value> {
    let is_it = |object: &&Value| object["metadata"]["labels"]["vsphere-cpi-infra"] == "monitoring";
    rendered.objects.iter().filter(is_it).collect()
}

#[test]
fn the_copies_in_the_chart_are_the_files_for_kustomize() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (copy, original) in COPIES {
        let original = page(&format!("manifests/monitoring/{original}"));
        let path = format!("manifests/helm/vsphere-cpi/files/{copy}");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(root.join(&path), &original).unwrap();
        }
        assert!(page(&path) == original, "UPDATE_GOLDEN=1 cargo test --test daemon the_copies writes {path}");
    }
    let files = std::fs::read_dir(root.join("manifests/helm/vsphere-cpi/files")).unwrap();
    assert_eq!(files.count(), COPIES.len());
}

#[tokio::test]
async fn monitoring_of_the_chart_is_that_of_the_manifests() {
    let optional = ["  runbookBaseUrl: https://docs.example.com/book/\n", "  caConfigMap: metrics-ca\n"];
    let rendered = render(&optional.iter().fold(ALL.to_owned(), |values, line| values.replace(line, ""))).await;
    let found = monitoring(&rendered);
    let expected = &form("monitoring").await.objects;
    assert_eq!(found.len(), expected.len());
    for object in expected {
        let same = |other: &&&Value| {
            other["kind"] == object["kind"] && other["metadata"]["name"] == object["metadata"]["name"]
        };
        let mut found = (**found.iter().find(same).unwrap_or_else(|| panic!("{object} is not there"))).clone();
        assert_eq!(found["metadata"]["namespace"], object["metadata"]["namespace"]);
        for (key, value) in object["metadata"]["labels"].as_object().unwrap() {
            assert_eq!(found["metadata"]["labels"][key], *value, "{key}");
        }
        // The chart adds labels.
        found["metadata"]["labels"] = object["metadata"]["labels"].clone();
        assert_eq!(found, *object);
    }
}

#[tokio::test]
async fn with_an_authority_prometheus_verifies_the_certificate() {
    let config_map = json!({"name": "metrics-ca", "key": "ca.crt"});
    let tls = json!({"serverName": "vsphere-cloud-controller-manager", "ca": {"configMap": config_map}});
    let pod_monitor = POD_MONITOR.replace("{podMonitor", "{caConfigMap: metrics-ca, podMonitor");
    for (values, kind, endpoints) in
        [(ALL, "ServiceMonitor", "endpoints"), (&pod_monitor, "PodMonitor", "podMetricsEndpoints")]
    {
        let rendered = render(values).await;
        let endpoints = rendered.one(kind)["spec"][endpoints].as_array().unwrap();
        assert_eq!(endpoints.iter().map(|endpoint| &endpoint["tlsConfig"]).collect::<Vec<_>>(), [&tls]);
    }
    let by_default = render(POD_MONITOR).await;
    let tls = &by_default.one("PodMonitor")["spec"]["podMetricsEndpoints"][0]["tlsConfig"];
    assert_eq!(*tls, json!({"insecureSkipVerify": true}));
}

#[tokio::test]
async fn nothing_for_monitoring_is_rendered_by_default() {
    assert_eq!(monitoring(&render("").await), Vec::<&Value>::new());
}

#[tokio::test]
async fn each_part_is_rendered_with_its_labels() {
    let rendered = render(&format!("{ALL}\nport: 10300")).await;
    for (kind, label, value) in [
        ("ServiceMonitor", "release", "prometheus"),
        ("PrometheusRule", "release", "prometheus"),
        ("ConfigMap", "folder", "vsphere"),
        ("ConfigMap", "grafana_dashboard", "1"),
    ] {
        assert_eq!(rendered.one(kind)["metadata"]["labels"][label], value, "{kind}");
    }
    assert_eq!(rendered.one("Service")["spec"]["ports"][0]["port"], 10300);
    assert!(!rendered.kinds().contains_key("PodMonitor"));
    let dashboard = rendered.one("ConfigMap")["data"]["dashboard.json"].as_str().unwrap();
    assert_eq!(dashboard, page("manifests/monitoring/dashboard.json"));

    let rendered = render(POD_MONITOR).await;
    let monitor = rendered.one("PodMonitor");
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    let file = objects(&page("manifests/monitoring/pod-monitor/pod-monitor.yaml")).await.remove(0);
    assert_eq!(monitor["spec"], file["spec"]);
    for kind in ["Service", "ServiceMonitor", "PrometheusRule", "ConfigMap"] {
        assert!(!rendered.kinds().contains_key(kind), "{kind}");
    }
    // The labels of the Pods, and the name of their port.
    let labels = rendered.workload()["spec"]["template"]["metadata"]["labels"].as_object().unwrap();
    for (key, value) in monitor["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(labels.get(key), Some(value), "{key}");
    }
    assert_eq!(rendered.container()["ports"][0]["name"], monitor["spec"]["podMetricsEndpoints"][0]["port"]);
}

/// An older kube-prometheus-stack selects by the label app, and a sidecar of Grafana by another value of its label.
#[tokio::test]
async fn labels_of_the_values_take_precedence_and_cannot_add_others() {
    let parts = ["podMonitor", "rules"].map(|part| format!("{part}: {{enabled: true, labels: {{app: prometheus}}}}"));
    let dashboard = r#"dashboard: {enabled: true, labels: {grafana_dashboard: "true", "a: b\n    c": d}}"#;
    let rendered = render(&format!("monitoring: {{{}, {dashboard}}}", parts.join(", "))).await;
    for kind in ["PodMonitor", "PrometheusRule"] {
        assert_eq!(rendered.one(kind)["metadata"]["labels"]["app"], "prometheus", "{kind}");
    }
    let labels = &rendered.one("ConfigMap")["metadata"]["labels"];
    assert_eq!(labels["grafana_dashboard"], "true");
    assert_eq!((&labels["a: b\n    c"], &labels["c"]), (&json!("d"), &Value::Null));
}

#[tokio::test]
async fn runbooks_have_the_address_of_the_values() {
    let rendered = render(ALL).await;
    let groups = rendered.one("PrometheusRule")["spec"]["groups"].as_array().unwrap().clone();
    let rules: Vec<&Value> = groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
    let alerts: Vec<&&Value> = rules.iter().filter(|rule| rule["alert"].is_string()).collect();
    assert!(alerts.len() > 30, "{}", alerts.len());
    for alert in alerts {
        let name = alert["alert"].as_str().unwrap().to_lowercase();
        let expected = format!("https://docs.example.com/book/alerts.md#{name}");
        assert_eq!(alert["annotations"]["runbook_url"], json!(expected));
    }
}

/// Otherwise no series of kube-state-metrics has the name in the expression, and the alert cannot fire.
#[tokio::test]
async fn the_alert_about_missing_replicas_has_the_name_of_the_workload() {
    let rendered = render("{nameOverride: other, monitoring: {rules: {enabled: true}}}").await;
    let rules = rendered.one("PrometheusRule")["spec"]["groups"][0]["rules"].as_array().unwrap().clone();
    let rule = rules.iter().find(|rule| rule["alert"] == "VsphereCcmReplicasMissing").unwrap();
    let expression = rule["expr"].as_str().unwrap();
    for kind in ["daemonset", "deployment"] {
        let selector = format!(r#"{{{kind}=~"vsphere-cloud-controller-manager|other"}}"#);
        assert_eq!(expression.matches(&selector).count(), 2, "{expression}");
    }
    assert_eq!(rendered.workload()["metadata"]["name"], "other");
}

#[tokio::test]
async fn monitoring_is_applied_to_a_real_api_server() {
    let server = ApiServer::start().await;
    define_foreign_kinds(&server.client().await).await;
    for values in [ALL, POD_MONITOR] {
        let rendered = render(values).await;
        let list = json!({"apiVersion": "v1", "kind": "List", "items": monitoring(&rendered)});
        apply(&server, values, &list.to_string()).await;
    }
}

#[tokio::test]
async fn monitors_that_exclude_each_other_or_have_no_port_are_refused() {
    assert_refused(&[
        (
            "monitoring: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}}",
            &["monitoring.podMonitor.enabled", "monitoring.serviceMonitor.enabled"],
        ),
        ("{port: 0, monitoring: {podMonitor: {enabled: true}}}", &["monitoring.podMonitor.enabled", "port is 0"]),
        (
            "{port: 0, monitoring: {serviceMonitor: {enabled: true}}}",
            &["monitoring.serviceMonitor.enabled", "port is 0"],
        ),
        (
            "{bindAddress: 127.0.0.1, monitoring: {podMonitor: {enabled: true}}}",
            &["monitoring.podMonitor.enabled", "bindAddress is 127.0.0.1"],
        ),
        (
            "{bindAddress: '::1', monitoring: {serviceMonitor: {enabled: true}}}",
            &["monitoring.serviceMonitor.enabled", "bindAddress is ::1"],
        ),
        ("monitoring: {runbookBaseUrl: docs}", &["at '/monitoring/runbookBaseUrl'"]),
        ("monitoring: {rules: {enable: true}}", &["'enable' not allowed"]),
        ("monitoring: {dashboard: {labels: {a: 1}}}", &["at '/monitoring/dashboard/labels/a'"]),
        (
            "monitoring: {rules: {labels: {helm.sh/chart: a}}}",
            &["monitoring.rules.labels has the label helm.sh/chart,"],
        ),
    ])
    .await;
}
