//! The rights that the Go program's manifests give are enough, and so are the fewer ones that our page names.

use k8s_openapi::api::core::v1::{Event, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use support::{ApiServer, Vcenter, eventually};

use crate::cluster::{ANSWERS, Cluster, LIMIT};

/// The rules of ClusterRole `system:cloud-controller-manager` in the Go program's release manifest.
fn rules() -> Value {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    json!([
        rule("", &["events"], &["create", "patch", "update"]),
        rule("", &["nodes"], &["*"]),
        rule("", &["nodes/status"], &["patch"]),
        rule("", &["services"], &["list", "patch", "update", "watch"]),
        rule("", &["services/status"], &["patch"]),
        rule("", &["serviceaccounts"], &["create", "get", "list", "watch", "update"]),
        rule("", &["persistentvolumes"], &["get", "list", "update", "watch"]),
        rule("", &["endpoints"], &["create", "get", "list", "watch", "update"]),
        rule("discovery.k8s.io", &["endpointslices"], &["get", "list", "watch"]),
        rule("", &["secrets"], &["get", "list", "watch"]),
        rule("coordination.k8s.io", &["leases"], &["create", "get", "list", "watch", "update"]),
    ])
}

/// The rules of the page about configuration.
fn fewest() -> Value {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md")).unwrap();
    let (_, section) = page.split_once("## Rights in Kubernetes").unwrap();
    let mut rules: Vec<Value> = Vec::new();
    // `- apiGroups: [""]`, then `resources: [nodes]` and `verbs: [get]`.
    for line in section.split("```").nth(1).unwrap().lines() {
        let Some((key, list)) = line.split_once(": [") else { continue };
        let items = list.split_once(']').unwrap().0.split(", ").map(|item| item.trim_matches('"'));
        let items: Value = items.collect::<Vec<_>>().into();
        match key.strip_prefix("- ") {
            Some(key) => rules.push(json!({ key: items })),
            None => rules.last_mut().unwrap()[key.trim()] = items,
        }
    }
    assert!(rules.len() > 3, "{rules:?}");
    Value::Array(rules)
}

/// A service account with these rights; the flag with its kubeconfig.
async fn account(cluster: &Cluster) -> String {
    account_with(cluster, rules()).await
}

/// The same without any right to Secrets.
pub async fn account_without_secrets(cluster: &Cluster) -> String {
    let Value::Array(mut rules) = rules() else { panic!("rules are a list") };
    rules.retain(|rule| rule["resources"] != json!(["secrets"]));
    account_with(cluster, Value::Array(rules)).await
}

async fn account_with(cluster: &Cluster, rules: Value) -> String {
    let (client, name) = (cluster.client.clone(), cluster.pool());
    let account = json!({"metadata": {"name": name}});
    let role = json!({"metadata": {"name": name}, "rules": rules});
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}],
    });
    let parameters = PostParams::default();
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "kube-system");
    accounts.create(&parameters, &serde_json::from_value(account).unwrap()).await.unwrap();
    let roles = Api::<ClusterRole>::all(client.clone());
    roles.create(&parameters, &serde_json::from_value(role).unwrap()).await.unwrap();
    let bindings = Api::<ClusterRoleBinding>::all(client);
    bindings.create(&parameters, &serde_json::from_value(binding).unwrap()).await.unwrap();
    let kubeconfig = ApiServer::shared().await.kubeconfig_of_service_account("kube-system", name).await;
    format!("--kubeconfig={}", kubeconfig.display())
}

#[tokio::test]
async fn the_rights_and_the_yaml_file_of_the_go_programs_manifest_are_enough() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..3)).await;
    let config = format!(
        "global:\n  port: {}\n  caFile: {}\nvcenter:\n  vc-1:\n    server: 127.0.0.1\n    user: {}\n    password: {}\n    \
         datacenters:\n    - dc-1\nlabels:\n  region: k8s-region\n  zone: k8s-zone\n",
        vcenter.port(),
        vcenter.ca_file().display(),
        vcenter.user(),
        vcenter.password()
    );
    let lease = format!("--leader-elect-resource-name={}", cluster.pool());
    let kubeconfig = account(&cluster).await;
    let mut daemon = cluster.start(&config, &["-v=6", "--leader-elect=true", &lease, &kubeconfig]);
    daemon.wait_for_line(ANSWERS, LIMIT).await;
    cluster.register(0..3).await;
    cluster.wait_until_initialised(0..3, &daemon).await;
    let name = cluster.name(0);
    vcenter.set_ip(&name, "10.9.9.9").await;
    eventually("the new address is on the Node", LIMIT, async || {
        let view = &cluster.views().await[&name];
        if view.addresses[1] == "InternalIP=10.9.9.9" { Ok(()) } else { Err(format!("{view:?}")) }
    })
    .await;
    let events = Api::<Event>::all(cluster.client.clone());
    for (about, reason) in [(name.as_str(), "Synced"), (cluster.pool(), "LeaderElection")] {
        let fields = ListParams::default().fields(&format!("involvedObject.name={about},reason={reason}"));
        eventually(&format!("there is an Event {reason}"), LIMIT, async || {
            match events.list(&fields).await.unwrap().items {
                found if found.len() == 1 => Ok(()),
                found => Err(format!("{found:?}\n{}", daemon.output().tail(20))),
            }
        })
        .await;
    }
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    let refused: Vec<_> =
        daemon.output().lines().into_iter().filter(|line| line.to_lowercase().contains("forbidden")).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// A Node is deleted with them, too.
#[tokio::test]
async fn the_rights_that_the_page_names_are_enough() {
    let cluster = Cluster::new().await;
    let vcenter = Vcenter::start(&cluster.scenario(0..4)).await;
    let config = Cluster::zoned(&[vcenter.ini_section("vc-1", "dc-1")]);
    let lease = format!("--leader-elect-resource-name={}", cluster.pool());
    let kubeconfig = account_with(&cluster, fewest()).await;
    let flags =
        ["-v=6", "--leader-elect=true", &lease, &kubeconfig, "--node-deletion-grace=1s", "--node-monitor-period=1s"];
    let mut daemon = cluster.start(&config, &flags);
    daemon.wait_for_line(ANSWERS, LIMIT).await;
    cluster.register(0..4).await;
    cluster.wait_until_initialised(0..4, &daemon).await;
    vcenter.destroy_vm(&cluster.name(3)).await;
    eventually("the Node of the machine that is gone is deleted", LIMIT, async || {
        let nodes = cluster.nodes().await;
        let are_left = (0..3).all(|number| nodes.contains_key(&cluster.name(number)));
        assert!(are_left, "{:?}", nodes.keys());
        if nodes.len() == 3 { Ok(()) } else { Err(daemon.output().tail(20)) }
    })
    .await;
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    let refused: Vec<_> =
        daemon.output().lines().into_iter().filter(|line| line.to_lowercase().contains("forbidden")).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}
