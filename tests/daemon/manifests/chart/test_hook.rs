//! `helm test`: the pod with `check --preflight`.

use serde_json::{Value, json};
use support::ApiServer;

use super::{ALL, Rendered, config, render, settings};
use crate::manifests::kustomize::kubectl;

fn check(rendered: &Rendered) -> &Value {
    assert_eq!(rendered.hooks.len(), 1, "{:?}", rendered.hooks);
    &rendered.hooks[0]
}

#[tokio::test]
async fn the_pod_of_the_test_is_that_of_the_daemon_set_without_ports_and_probes() {
    for values in [
        "",
        ALL,
        settings::ALL,
        config::ALL,
        "securityContext: {runAsUser: 1000680000}",
        "daemonset: {affinity: null, tolerations: []}",
    ] {
        let rendered = render(values).await;
        let mut expected = rendered.pod().clone();
        expected["restartPolicy"] = json!("Never");
        expected["activeDeadlineSeconds"] = json!(300);
        let container = expected["containers"][0].as_object_mut().unwrap();
        for field in ["ports", "livenessProbe", "readinessProbe"] {
            assert!(container.remove(field).is_some(), "{field}");
        }
        let flags = container["args"].as_array().unwrap().clone();
        let words = ["check", "--preflight", "--detached", "--"].map(Value::from);
        container.insert("args".to_owned(), words.into_iter().chain(flags).collect());
        assert_eq!(check(&rendered)["spec"], expected, "{values}");
    }
}

/// Otherwise the DaemonSet would adopt the pod, and the plugin would take it for the leader.
#[tokio::test]
async fn the_pod_of_the_test_has_none_of_the_labels_of_the_daemon_set() {
    let rendered = render("").await;
    let of_set = rendered.one("DaemonSet")["spec"]["template"]["metadata"]["labels"].as_object().unwrap();
    let of_check = check(&rendered)["metadata"]["labels"].as_object().unwrap();
    assert!(!of_check.iter().any(|(key, value)| of_set.get(key) == Some(value)), "{of_check:?} {of_set:?}");
    let with_team = render("commonLabels: {team: platform}").await;
    assert_eq!(check(&with_team)["metadata"]["labels"]["team"], "platform");
    let anti = "daemonset: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: []}}}";
    let rendered = render(anti).await;
    let affinity = &check(&rendered)["spec"]["affinity"];
    assert!(affinity["podAntiAffinity"].is_null() && affinity["nodeAffinity"].is_object(), "{affinity}");
}

#[tokio::test]
async fn a_real_api_server_accepts_the_pod_of_the_test() {
    let server = ApiServer::start().await;
    for values in ["", ALL] {
        let rendered = render(values).await;
        let account = rendered.one("ServiceAccount").to_string();
        kubectl(Some(&server), &["create", "-f", "-"], &account).await.unwrap();
        let flags = ["create", "--dry-run=server", "--validate=strict", "-f", "-"];
        kubectl(Some(&server), &flags, &check(&rendered).to_string()).await.unwrap();
    }
}
