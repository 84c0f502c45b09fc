//! The Secrets that the program may read, depending on the values.

use serde_json::json;

use super::{CONFIG, GO_VALUES, Rendered, refusal, render_all};

/// U12: the chart cannot read the names of Secrets in a user's own `vsphere.conf`.
#[tokio::test]
async fn the_secrets_of_an_own_vsphere_conf_have_to_be_named() {
    let image = "daemonset: {image: registry.test/ccm}";
    let secrets = |rendered: &Rendered| -> Vec<String> {
        let roles = rendered.objects.iter().filter(|object| object["kind"] == "Role");
        let of_secrets = roles.filter(|role| role["rules"][0]["resources"] == json!(["secrets"]));
        let shown = of_secrets.map(|role| {
            let rule = &role["rules"][0];
            assert_eq!(rule["verbs"], json!(["get", "watch"]));
            format!("{}: {}", role["metadata"]["namespace"].as_str().unwrap(), rule["resourceNames"])
        });
        shown.collect()
    };
    for values in ["", "config: {secret: {name: ''}}", "rbac: {secrets: null}", "rbac: {secrets: []}", "rbac: null"] {
        let refused = refusal(&[image, values], &[]).await;
        for part in ["config.existingSecret", "rbac.secrets", "config.enabled is false"] {
            assert!(refused.contains(part), "{values}: {refused}");
        }
    }
    let kept = |name: &str| format!("kube-system: [\"{name}\"]");
    let reused = ["--reused"];
    for (case, values, flags, expected) in [
        ("the rendered one", CONFIG, &[][..], vec![kept("vsphere-cloud-secret")]),
        ("named", "config: {secret: {name: mine}}", &[], vec![kept("mine")]),
        ("an existing one", "config: {existingSecret: mine}", &[], vec![kept("mine")]),
        ("the same twice", "{config: {existingSecret: a}, rbac: {secrets: [{name: a}]}}", &[], vec![kept("a")]),
        ("upstream's values, an existing one", "config: {existingSecret: mine}", &reused, vec![kept("mine")]),
        ("named as upstream's default", GO_VALUES, &[], vec![kept("vsphere-cloud-secret")]),
        ("others alone", "rbac: {secrets: [{name: a, namespace: b}]}", &[], vec!["b: [\"a\"]".to_owned()]),
        ("upstream's values", GO_VALUES, &reused, vec!["kube-system: null".to_owned()]),
        ("upstream's values, named", "config: {secret: {name: mine}}", &reused, vec![kept("mine")]),
        ("upstream's values, rendered", "config: {enabled: true}", &reused, vec![kept("vsphere-cloud-secret")]),
        ("ours, reused", "rbac: {secrets: [{name: a}], nodeDeletion: true}", &reused, vec![kept("a")]),
        ("nobody's", "rbac: {create: false}", &[], vec![]),
        ("upstream's values, nobody's", "rbac: {create: false}", &reused, vec![]),
    ] {
        let rendered = render_all(&[image, values], flags).await.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(secrets(&rendered), expected, "{case}");
        let is_wide = expected.iter().any(|shown| shown.ends_with("null"));
        assert_eq!(rendered.notes.contains("may read every\nSecret"), is_wide, "{case}: {}", rendered.notes);
    }
}
