//! Values for the image and for the settings of the program: they set its environment variables, and deletion of Nodes
//! with its permission.

use serde_json::json;

use super::super::rules::rules;
use super::{DIGEST, Rendered, assert_refused, render, render_all};

/// Each value of this group once, different from its default.
pub const ALL: &str = r#"
image:
  registry: registry.test
  repository: ccm
  tag: v9
  digest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
  pullPolicy: Always
  pullSecrets: [{name: registry-credentials}]
nodeDeletion: {mode: dry-run, grace: 1m30s, limit: "1,5%,20m", massHold: 1h}
zoneLabels: fill
adoptUntaintedNodes: true
nodeSelectorLabel: cloud=vsphere
outOfServiceAfter: 5m
topologyLabels: [cluster, esxi-host]
"#;

#[tokio::test]
async fn each_setting_is_an_environment_variable() {
    let rendered = render(ALL).await;
    for (variable, expected) in [
        ("CCM_NODE_DELETION", "dry-run"),
        ("CCM_NODE_DELETION_GRACE", "1m30s"),
        ("CCM_NODE_DELETION_LIMIT", "1,5%,20m"),
        ("CCM_NODE_DELETION_MASS_HOLD", "1h"),
        ("CCM_ZONE_LABELS", "fill"),
        ("CCM_ADOPT_UNTAINTED_NODES", "true"),
        ("CCM_NODE_SELECTOR", "cloud=vsphere"),
        ("CCM_OUT_OF_SERVICE_AFTER", "5m"),
        ("CCM_TOPOLOGY_LABELS", "cluster,esxi-host"),
    ] {
        assert_eq!(rendered.variable(variable), Some(expected), "{variable}");
    }
    assert_eq!(rendered.container()["env"].as_array().unwrap().len(), 9);
    assert_eq!(rendered.image(), format!("registry.test/ccm:v9@{DIGEST}"));
    assert_eq!(rendered.container()["imagePullPolicy"], "Always");
    assert_eq!(rendered.pod()["imagePullSecrets"], json!([{"name": "registry-credentials"}]));
    assert!(render("").await.container()["env"].is_null(), "the defaults set no variable");
}

/// M5: mode and permission are one decision.
#[tokio::test]
async fn the_mode_of_deletion_sets_the_permission() {
    let may_delete = |rendered: &Rendered| rules(&rendered.objects).iter().any(|right| right.verb == "delete");
    for (values, expected) in [
        ("", true),
        ("nodeDeletion: {mode: enforce}", true),
        ("nodeDeletion: {mode: dry-run}", false),
        ("nodeDeletion: {mode: 'off'}", false),
        ("rbac: {nodeDeletion: false}", false),
        ("{nodeDeletion: {mode: dry-run}, rbac: {nodeDeletion: false}}", false),
        // Old values keep their meaning.
        ("daemonset: {env: [{name: CCM_NODE_DELETION, value: dry-run}]}", true),
    ] {
        assert_eq!(may_delete(&render(values).await), expected, "{values}");
    }
    // Without the permission each deletion would fail, and an alert would fire.
    let env =
        |name: &str| format!("{{rbac: {{nodeDeletion: false}}, daemonset: {{env: [{{name: {name}, value: 'off'}}]}}}}");
    for (values, mode) in [
        ("rbac: {nodeDeletion: false}".to_owned(), Some("dry-run")),
        ("rbac: {nodeDeletion: true}".to_owned(), None),
        (env("CCM_NODE_DELETION"), Some("off")),
        (env("SKIP_NODE_DELETION"), None),
    ] {
        assert_eq!(render(&values).await.variable("CCM_NODE_DELETION"), mode, "{values}");
    }
}

#[tokio::test]
async fn a_setting_and_a_variable_or_flag_that_differ_are_refused() {
    assert_refused(&[
        ("{nodeDeletion: {mode: enforce}, rbac: {nodeDeletion: false}}", &["nodeDeletion.mode", "rbac.nodeDeletion"]),
        (
            "{nodeDeletion: {mode: enforce}, daemonset: {env: [{name: CCM_NODE_DELETION, value: dry-run}]}}",
            &["nodeDeletion.mode", "CCM_NODE_DELETION in daemonset.env"],
        ),
        (
            "{nodeDeletion: {mode: dry-run}, daemonset: {env: [{name: SKIP_NODE_DELETION, value: x}]}}",
            &["nodeDeletion.mode", "SKIP_NODE_DELETION in daemonset.env"],
        ),
        (
            "{zoneLabels: fill, daemonset: {cmdline: {additionalParams: {zone_labels: follow}}}}",
            &["zoneLabels", "zone-labels in daemonset.cmdline.additionalParams"],
        ),
        (
            "{outOfServiceAfter: 5m, daemonset: {env: [{name: CCM_OUT_OF_SERVICE_AFTER, valueFrom: {}}]}}",
            &["outOfServiceAfter", "CCM_OUT_OF_SERVICE_AFTER in daemonset.env"],
        ),
        (
            "{port: 10300, daemonset: {cmdline: {additionalParams: {secure-port: 10301}}}}",
            &["port", "secure-port in daemonset.cmdline.additionalParams"],
        ),
        (
            "{bindAddress: 10.0.0.1, daemonset: {cmdline: {additionalParams: {bind-address: 10.0.0.2}}}}",
            &["bindAddress", "bind-address in daemonset.cmdline.additionalParams"],
        ),
    ])
    .await;
    let both_off = "{nodeDeletion: {mode: 'off'}, daemonset: {env: [{name: SKIP_NODE_DELETION, value: x}]}}";
    assert_eq!(render(both_off).await.variable("CCM_NODE_DELETION"), Some("off"));
    // The same value twice is one variable.
    let same = "{nodeDeletion: {mode: dry-run}, daemonset: {env: [{name: CCM_NODE_DELETION, value: dry-run}]}}";
    let variable = json!([{"name": "CCM_NODE_DELETION", "value": "dry-run"}]);
    assert_eq!(render(same).await.container()["env"], variable);
    let same = "{port: 10300, daemonset: {cmdline: {additionalParams: {secure-port: 10300}}}}";
    let arguments = render(same).await.container()["args"].as_array().unwrap().clone();
    assert_eq!(arguments.iter().filter(|argument| **argument == json!("--secure-port=10300")).count(), 1);
}

#[tokio::test]
async fn a_setting_that_the_program_would_refuse_is_refused_by_name() {
    assert_refused(&[
        ("nodeDeletion: {mode: dryrun}", &["at '/nodeDeletion/mode'"]),
        ("nodeDeletion: {grace: '30'}", &["at '/nodeDeletion/grace'"]),
        ("nodeDeletion: {limit: '5'}", &["at '/nodeDeletion/limit'"]),
        ("nodeDeletion: {masshold: 1m}", &["'masshold' not allowed"]),
        ("zoneLabels: all", &["at '/zoneLabels'"]),
        ("adoptUntaintedNodes: 'yes'", &["at '/adoptUntaintedNodes'"]),
        ("nodeSelectorLabel: {a: b}", &["at '/nodeSelectorLabel'"]),
        ("outOfServiceAfter: 5", &["at '/outOfServiceAfter'"]),
        ("topologyLabels: [host]", &["at '/topologyLabels/0'"]),
        ("image: {tag: 1.10}", &["at '/image/tag'"]),
        ("image: {digest: sha256:abc}", &["at '/image/digest'"]),
        ("image: {repository: 'registry.test/ccm:v9'}", &["at '/image/repository'"]),
        ("image: {registry: 'https://registry.test'}", &["at '/image/registry'"]),
        ("image: {pullSecrets: [a]}", &["at '/image/pullSecrets/0'"]),
    ])
    .await;
}

/// Values of an older release have none of the new groups.
#[tokio::test]
async fn a_setting_works_with_reused_values() {
    let secret = "config: {secret: {name: a}}";
    let rendered = render_all(&[secret, ALL], &["--reused"]).await.unwrap();
    assert_eq!(rendered.variable("CCM_NODE_DELETION"), Some("dry-run"));
    assert_eq!(rendered.image(), format!("registry.test/ccm:v9@{DIGEST}"));
}
