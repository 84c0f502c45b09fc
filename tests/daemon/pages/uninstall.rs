//! A reader who operates an installed program: another password, no deletions, and at last the removal.

use serde_json::{Value, json};
use support::components::Component;
use support::pages::page;
use tokio::process::Command;

use super::blocks::OPERATE;
use super::{ACCOUNT, ADMINISTRATOR, ADMINISTRATOR_PASSWORD, PASSWORD, Reader, SET, image_and_variables, prepared};
use crate::cluster::LIMIT;
use crate::manifests::kustomize::kubectl;

const OVERLAY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/overlays/kubeadm");
const STATIC_POD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/static-pod");
const OTHER_PASSWORD: &str = "S3cret-4712";

/// Texts of the program that no Node has after the removal.
const LEFTOVERS: [&str; 5] = [
    "vsphere-ccm.dev",
    "VSphereInitialized",
    "NoRouteCreated",
    "node.cloudprovider.kubernetes.io",
    "node.kubernetes.io/out-of-service",
];

/// The command of the page for a Service whose load balancer was deleted by hand.
const REMOVE_FINALIZERS: &str = "kubectl patch service -n NAMESPACE SERVICE --subresource=status --type=merge -p \
                                 '{\"metadata\":{\"finalizers\":null}}'";

#[tokio::test]
async fn a_reader_changes_the_password_stops_deletions_and_removes_the_program() {
    let mut reader = Reader::new(OPERATE, prepared).await;
    install(&reader).await;
    let mut daemon = reader.start_pod(SET).await;
    reader.cluster.register(0..2).await;
    reader.until_initialized(&daemon).await;

    reader.vcenter.set_login(ACCOUNT, OTHER_PASSWORD).await;
    let printed = reader.run("Change the password of vCenter", 0, &format!("{OTHER_PASSWORD}\n")).await;
    assert!(printed.contains("secret/vsphere-cloud-secret patched"), "{printed}");
    daemon.wait_for_line("the session is made with other credentials now", LIMIT).await;
    reader.run("Deletion must stop", 0, "").await;
    assert_eq!(image_and_variables(&reader, SET).await.1, ["CCM_NODE_DELETION=off"]);

    remove_services(&mut reader).await;
    assert_eq!(daemon.stop(LIMIT).await.code(), Some(0));
    leave_all_traces(&reader).await;
    remove_program(&mut reader).await;
    clean_up_nodes(&mut reader).await;
    remove_account(&mut reader).await;
    reader.end();
}

/// Installs the overlay with the configuration and the credentials of this vCenter.
async fn install(reader: &Reader) {
    let host = reader.vcenter.host();
    let text = format!(
        "global:\n  port: 443\n  thumbprint: \"{}\"\n  secretName: vsphere-cloud-secret\n  secretNamespace: \
         kube-system\nvcenter:\n  vc:\n    server: {host}\n    datacenters: [dc-1]\n",
        reader.vcenter.sha256_thumbprint()
    );
    let metadata = |name: &str| json!({"name": name, "namespace": "kube-system"});
    create(
        reader,
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("vsphere-cloud-config"),
            "data": {"vsphere.conf": text}}),
    )
    .await;
    create(
        reader,
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("vsphere-cloud-secret"),
            "stringData": {format!("{host}.username"): ACCOUNT, format!("{host}.password"): PASSWORD}}),
    )
    .await;
    run(reader, &["apply", "-k", OVERLAY]).await;
}

/// Runs kubectl as an administrator.
async fn run(reader: &Reader, arguments: &[&str]) -> String {
    kubectl(Some(&reader.server), arguments, "").await.unwrap()
}

async fn create(reader: &Reader, object: &Value) {
    kubectl(Some(&reader.server), &["create", "-f", "-"], &object.to_string()).await.unwrap();
}

/// A Service that is being deleted, and whose finalizer no program removes.
async fn remove_services(reader: &mut Reader) {
    let metadata = json!({"name": "web", "namespace": "default",
        "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]});
    let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
    create(reader, &json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})).await;
    let balanced = reader.run("Remove load balancers", 0, "").await;
    assert!(balanced.contains("web") && !balanced.contains("kubernetes"), "{balanced}");
    run(reader, &["delete", "service", "web", "--namespace=default", "--wait=false"]).await;
    let waiting = reader.run("Remove load balancers", 1, "").await;
    assert!(waiting.starts_with("default/web ") && waiting.contains("load-balancer-cleanup"), "{waiting}");

    assert!(page("docs/operate/uninstall.md").contains(REMOVE_FINALIZERS), "the page has not {REMOVE_FINALIZERS}");
    let patch = ["patch", "service", "-n", "default", "web", "--subresource=status", "--type=merge", "-p"];
    run(reader, &[&patch[..], &["{\"metadata\":{\"finalizers\":null}}"]].concat()).await;
    assert_eq!(reader.run("Remove load balancers", 1, "").await, "");
}

/// Puts everything there that the program can leave in a cluster. The first Node keeps what the program wrote.
async fn leave_all_traces(reader: &Reader) {
    let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason, "message": ""});
    let taint = |key: &str, effect: &str| json!({"key": key, "value": "nodeshutdown", "effect": effect});
    let traces = json!({
        "metadata": {
            "annotations": {
                "vsphere-ccm.dev/out-of-service": "2026-11-22T03:14:20Z",
                "vsphere-ccm.dev/reported": "{}",
                "vsphere-ccm.dev/allow-deletion": "true",
            },
            "labels": {
                "topology.vsphere-ccm.dev/cluster": "cluster-1",
                "topology.vsphere-ccm.dev/esxi-host": "host-1",
            },
        },
        "spec": {"taints": [
            taint("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule"),
            taint("node.kubernetes.io/out-of-service", "NoExecute"),
        ]},
        "status": {"conditions": [
            condition("VSphereInitialized", "Initialized"),
            condition("NetworkUnavailable", "NoRouteCreated"),
        ]},
    });
    reader.patch_node(1, traces).await;
    // A kubelet with the flag that registers its Node after the removal.
    reader.cluster.register(2..3).await;
    let nodes = run(reader, &["get", "nodes", "--output=yaml"]).await;
    let missing: Vec<_> = LEFTOVERS.iter().filter(|text| !nodes.contains(*text)).collect();
    assert!(missing.is_empty(), "{missing:?} in {nodes}");

    let metadata = json!({"name": "vsphere-ccm-deletions", "namespace": "kube-system"});
    create(reader, &json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata})).await;
}

async fn remove_program(reader: &mut Reader) {
    let removed = reader.run("Remove the program", 0, "").await;
    assert!(removed.contains("daemonset.apps \"vsphere-cloud-controller-manager\""), "{removed}");
    // The permissions of a static pod have the same names.
    run(reader, &["apply", "-k", STATIC_POD]).await;
    let removed = reader.run("Remove the program", 2, "").await;
    assert!(removed.contains("clusterrole.rbac.authorization.k8s.io \"system:cloud-controller-manager\""), "{removed}");
    assert_eq!(reader.run("Remove the program", 3, "").await, "");

    assert!(leases(reader).await >= 3, "election, deletions, logins");
    for number in 0..3 {
        reader.run("Remove Leases and configuration", number, "").await;
    }
    assert_eq!(leases(reader).await, 0);
    let stored = run(reader, &["get", "configmaps,secrets", "--namespace=kube-system", "--output=name"]).await;
    assert!(!stored.contains("vsphere-cloud"), "{stored}");
}

/// Returns the number of the program's Leases.
async fn leases(reader: &Reader) -> usize {
    let names = run(reader, &["get", "leases", "--namespace=kube-system", "--output=name"]).await;
    names.lines().filter(|name| name.contains("vsphere-ccm") || name.contains("cloud-controller")).count()
}

async fn clean_up_nodes(reader: &mut Reader) {
    let before = reader.cluster.views().await;
    for number in 0..6 {
        reader.run("Clean up Nodes", number, "").await;
    }
    assert_eq!(reader.run("Clean up Nodes", 6, "").await, "the Nodes are clean\n");
    let nodes = run(reader, &["get", "nodes", "--output=yaml"]).await;
    let left: Vec<_> = LEFTOVERS.iter().filter(|text| nodes.contains(*text)).collect();
    assert!(left.is_empty(), "{left:?} in {nodes}");
    // The page names what stays.
    let after = reader.cluster.views().await;
    for number in 0..2 {
        let (before, after) = (&before[&reader.cluster.name(number)], &after[&reader.cluster.name(number)]);
        assert!(after.provider_id.is_some() && !after.addresses.is_empty(), "{after:?}");
        assert_eq!((&after.provider_id, &after.addresses), (&before.provider_id, &before.addresses));
        let label = "node.kubernetes.io/instance-type";
        assert!(!after.label(label).is_empty() && after.label(label) == before.label(label), "{after:?}");
    }
}

/// Removes the account as the administrator, whom the simulator accepts from now on.
async fn remove_account(reader: &mut Reader) {
    reader.vcenter.set_login(ADMINISTRATOR, ADMINISTRATOR_PASSWORD).await;
    govc(reader, &["sso.user.create", "-p", OTHER_PASSWORD, "k8s-ccm"]).await;
    govc(reader, &["permissions.set", "-principal", ACCOUNT, "-role", "ReadOnly", "/"]).await;
    let known = format!("{}:{} {}\n", reader.vcenter.host(), reader.vcenter.port(), reader.vcenter.sha256_thumbprint());
    reader.shell.write("known_hosts", &known);
    let before = users(reader).await;
    reader.run("Remove the accounts", 0, &format!("{ADMINISTRATOR_PASSWORD}\n")).await;
    assert_eq!(users(reader).await + 1, before);
    let permissions = govc(reader, &["permissions.ls", "/"]).await;
    assert!(!permissions.contains(ACCOUNT), "{permissions}");
}

/// Returns the number of accounts in vCenter.
async fn users(reader: &Reader) -> usize {
    govc(reader, &["sso.user.ls"]).await.lines().count()
}

/// Runs govc as the administrator.
async fn govc(reader: &Reader, arguments: &[&str]) -> String {
    let mut command = Command::new(Component::Govc.path());
    command.args(arguments).envs(reader.vcenter.govc_environment());
    command.env("GOVC_USERNAME", ADMINISTRATOR).env("GOVC_PASSWORD", ADMINISTRATOR_PASSWORD);
    let output = support::command::output(command, "").await;
    assert!(output.status.success(), "govc {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
