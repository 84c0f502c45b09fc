//! The rights in the Go program's manifests are sufficient, and the rights in this program's manifests are exactly the
//! used ones.

pub mod site;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use support::rbac::{self, Subject};
use support::{ApiServer, AuditEvent};

use crate::cluster::Cluster;
use crate::manifests::kustomize::{form, objects};
use crate::manifests::rules::{Right, rules};
use site::Site;

/// The Go program's release manifest.
pub const GO_RELEASE: &str = include_str!("../golden/go-program/release.yaml");

/// Returns the rules of the manifest's ClusterRole.
async fn go_rules() -> Value {
    let objects = objects(GO_RELEASE).await;
    objects.iter().find(|object| object["kind"] == "ClusterRole").unwrap()["rules"].clone()
}

/// Creates a service account with the rights of the Go program's release manifest, except those for Secrets. Returns
/// the flag with its kubeconfig.
pub async fn account_without_secrets(cluster: &Cluster) -> String {
    let Value::Array(mut rules) = go_rules().await else { panic!("rules are a list") };
    rules.retain(|rule| rule["resources"] != json!(["secrets"]));
    let name = cluster.pool();
    let (kubeconfig, _) = ApiServer::shared().await.create_service_account("kube-system", name).await;
    let account = Subject::ServiceAccount("kube-system", name);
    rbac::grant(&cluster.client, None, name, account, Value::Array(rules)).await;
    format!("--kubeconfig={}", kubeconfig.display())
}

/// Returns the requests of the daemon's account.
fn asked(server: &ApiServer) -> Vec<AuditEvent> {
    let events = server.audit();
    let own = |event: &AuditEvent| event.user.username == "system:serviceaccount:kube-system:cloud-controller-manager";
    let asked: Vec<AuditEvent> = events.into_iter().filter(own).collect();
    assert!(asked.len() > 30, "{asked:#?}");
    asked
}

/// Returns the resources of the requests that were rejected for a missing right.
fn refused(asked: &[AuditEvent]) -> BTreeSet<String> {
    let refused = asked.iter().filter(|event| event.response_status.code == 403);
    refused.map(|event| Right::used_by(event).map_or_else(|| event.uri.clone(), |right| right.resource)).collect()
}

/// Arguments and variables are unchanged. Only file paths and ports differ in a test.
#[tokio::test]
async fn a_cluster_set_up_for_the_go_program_needs_no_change() {
    let site = Site::of_the_go_program().await;
    let (statuses, lines) = site.live().await;
    let refused = refused(&asked(&site.server));
    let allowed = BTreeSet::from(["tokenreviews".to_owned(), "subjectaccessreviews".to_owned()]);
    assert!(refused.is_subset(&allowed), "{refused:?}");
    assert_eq!(refused, allowed);
    // The daemon cannot authorize any client, with or without a token. As in the Go program, a missing right of the
    // daemon is not reported as the client's error.
    assert!(statuses.iter().all(|status| *status != 200 && *status != 403), "{statuses:?}");
    // After several requests, each of the two missing rights is logged once.
    let told: Vec<&String> = lines.iter().filter(|line| line.to_lowercase().contains("forbidden")).collect();
    assert!((1..=2).contains(&told.len()), "{told:#?}");
}

/// The manifests grant no unused right, and the daemon uses no right that is not granted.
#[tokio::test]
async fn the_rights_of_our_manifests_are_exactly_the_ones_that_are_used() {
    let site = Site::ours("base").await;
    let (statuses, lines) = site.live().await;
    assert_eq!(statuses, [403, 200, 200, 200], "without a token, and with one: {lines:#?}");
    // Without load balancers the daemon needs no Services. Each replica logs once that it may not list them, and does
    // not retry.
    let told = lines.iter().filter(|line| line.contains("no permission to list and watch services"));
    assert!((1..=2).contains(&told.count()), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.to_lowercase().contains("forbidden")), "{lines:#?}");
    let asked = asked(&site.server);
    assert_eq!(refused(&asked), BTreeSet::new());
    let used: BTreeSet<Right> = asked.iter().filter_map(Right::used_by).collect();

    // The roles of Kubernetes itself stay as they are.
    let mut granted = form("rbac").await.objects.clone();
    let ours = rules(&granted).len();
    for path in
        ["clusterroles/system:auth-delegator", "namespaces/kube-system/roles/extension-apiserver-authentication-reader"]
    {
        let kind = if path.starts_with("cluster") { "ClusterRole" } else { "Role" };
        granted.push(site.read(&format!("/apis/rbac.authorization.k8s.io/v1/{path}"), kind).await);
    }
    let granted = rules(&granted);
    let basic = async |kind: &str| {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{}s/system:basic-user", kind.to_lowercase());
        site.read(&path, kind).await
    };
    let everybodys = rules(&[basic("ClusterRole").await, basic("ClusterRoleBinding").await]);
    assert!(granted.len() > ours && granted.iter().all(|right| right.verb != "bind"), "{granted:#?}");

    let is_granted = |used: &&Right| granted.iter().chain(&everybodys).any(|right| right.covers(used));
    let missing: Vec<&Right> = used.iter().filter(|used| !is_granted(used)).collect();
    assert!(missing.is_empty(), "used and not granted: {missing:#?}");
    let is_used = |right: &&Right| used.iter().any(|used| right.covers(used));
    // The Role for the ConfigMap with the client CAs belongs to Kubernetes, so its verbs are fixed.
    let own: Vec<&Right> = granted.iter().filter(|right| right.resource != "configmaps").collect();
    // From 1.34 on a watch begins with the existing objects. Older API servers need a list.
    let is_for_older_servers = |right: &Right| (right.resource.as_str(), right.verb.as_str()) == ("nodes", "list");
    let idle: Vec<&&Right> = own.iter().filter(|right| !is_used(right) && !is_for_older_servers(right)).collect();
    assert!(idle.is_empty(), "granted and not used: {idle:#?}\nused: {used:#?}");

    // A right for every name must be used for several names. Event names always differ.
    let is_wide = |right: &Right| right.namespace.is_some() && right.name.is_none() && right.verb != "create";
    for right in own.iter().filter(|right| is_wide(right) && right.resource != "events") {
        let names: BTreeSet<_> = used.iter().filter(|used| right.covers(used)).map(|used| &used.name).collect();
        assert!(names.len() > 1, "{right:?} could be limited to {names:?}");
    }
}

/// The component adds exactly the rights that Services need.
#[tokio::test]
async fn the_rights_of_the_component_for_services_are_used() {
    let site = Site::ours("base-with-services").await;
    site.leave_a_service_waiting().await;
    let checks = site.wait_with_the_service().await;
    assert!(checks.contains("[+]service-lb-controller idle: the cloud provider has no load balancers"), "{checks}");
    let asked = asked(&site.server);
    assert_eq!(refused(&asked), BTreeSet::new());
    let used: BTreeSet<Right> = asked.iter().filter_map(Right::used_by).collect();
    let rights = |objects: &[Value]| rules(objects).into_iter().collect::<BTreeSet<_>>();
    let (with, without) = (rights(&form("base-with-services").await.objects), rights(&form("base").await.objects));
    let added: Vec<&Right> = with.difference(&without).collect();
    let verbs: Vec<_> = added.iter().map(|right| (right.resource.as_str(), right.verb.as_str())).collect();
    assert_eq!(verbs, [("events", "create"), ("events", "patch"), ("services", "list"), ("services", "watch")]);
    assert!(added.iter().all(|right| right.namespace.is_none() && right.name.is_none()), "{added:#?}");
    // The list right is for API servers before 1.34. The patch right is for a repeated Event.
    for (resource, verb) in [("events", "create"), ("services", "watch")] {
        let right = added.iter().find(|right| (right.resource.as_str(), right.verb.as_str()) == (resource, verb));
        let is_needed = |used: &&Right| right.unwrap().covers(used) && !without.iter().any(|have| have.covers(used));
        assert!(used.iter().any(|used| is_needed(&used)), "{verb} {resource} is not used: {used:#?}");
    }
}

/// The component adds exactly the rights that load balancers and routes on NSX need.
#[tokio::test]
async fn the_rights_of_the_component_for_nsx_are_used() {
    let site = Site::ours("base-with-nsx").await.with_nsx().await;
    let lines = site.route_a_node().await;
    site.serve_a_service().await;
    let asked = asked(&site.server);
    assert_eq!(refused(&asked), BTreeSet::new(), "{lines:#?}");
    assert!(site.tags_of_the_route().contains(&"cluster-uid".to_owned()));
    let used: BTreeSet<Right> = asked.iter().filter_map(Right::used_by).collect();
    let rights = |objects: &[Value]| rules(objects).into_iter().collect::<BTreeSet<_>>();
    let (with, without) = (rights(&form("base-with-nsx").await.objects), rights(&form("base").await.objects));
    let added: Vec<&Right> = with.difference(&without).collect();
    let shown = |right: &&Right| {
        let parts = [right.namespace.as_deref(), Some(&right.resource), right.name.as_deref(), Some(&right.verb)];
        parts.map(Option::unwrap_or_default).join(" ")
    };
    let expected = [
        " events  create",
        " events  patch",
        " services  list",
        " services  watch",
        " services/status  patch",
        "kube-system namespaces kube-system get",
        "kube-system secrets vsphere-nsx-secret get",
        "kube-system secrets vsphere-nsx-secret watch",
    ];
    assert_eq!(added.iter().map(shown).collect::<Vec<_>>(), expected);
    // The patch right is for a repeated Event.
    let is_idle = |right: &&&Right| !used.iter().any(|used| right.covers(used)) && shown(right) != " events  patch";
    let idle: Vec<&&Right> = added.iter().filter(is_idle).collect();
    assert!(idle.is_empty(), "granted and not used: {idle:#?}\nused: {used:#?}");
}

/// The Go program reads no Namespace. Its role is sufficient for routes without the tag for the cluster's UID.
#[tokio::test]
async fn with_nsx_a_cluster_set_up_for_the_go_program_lacks_the_namespace_only() {
    let site = Site::of_the_go_program().await.with_nsx().await;
    let lines = site.route_a_node().await;
    let expected = ["namespaces", "tokenreviews", "subjectaccessreviews"].map(str::to_owned);
    assert_eq!(refused(&asked(&site.server)), BTreeSet::from(expected), "{lines:#?}");
    assert!(!site.tags_of_the_route().contains(&"cluster-uid".to_owned()));
    let told: Vec<&String> = lines.iter().filter(|line| line.contains("get no tag with the UID")).collect();
    assert_eq!(told.len(), 1, "{told:#?}");
}

/// An operator who goes back by a change of the image only keeps all rights of the Go program's role.
#[tokio::test]
async fn the_way_back_keeps_the_rights_of_the_go_program() {
    let form = form("base-with-way-back").await;
    let role = |name: &str| {
        form.objects.iter().find(|object| object["kind"] == "ClusterRole" && object["metadata"]["name"] == name)
    };
    assert_eq!(role("system:cloud-controller-manager:way-back").unwrap()["rules"], go_rules().await);
    let set = form.objects.iter().find(|object| object["kind"] == "DaemonSet").unwrap();
    let go = objects(GO_RELEASE).await;
    let go = go.iter().find(|object| object["kind"] == "DaemonSet").unwrap();
    for same in [
        "/metadata/name",
        "/spec/selector",
        "/spec/template/metadata/labels",
        "/spec/template/spec/serviceAccountName",
        "/spec/template/spec/volumes",
    ] {
        assert_eq!(set.pointer(same), go.pointer(same), "{same}");
    }
    let container = |set: &Value| set["spec"]["template"]["spec"]["containers"][0].clone();
    let (ours, theirs) = (container(set), container(go));
    assert_eq!((&ours["name"], &ours["args"]), (&theirs["name"], &theirs["args"]));
    // The Go program answers no other probe.
    for probe in ["livenessProbe", "readinessProbe"] {
        assert_eq!(ours[probe]["httpGet"]["path"], "/healthz");
    }
}
