//! A pause of deletions on a real API server: its clock, its Lease and its permissions.

use std::sync::Arc;
use std::time::Duration;

use ccm::controllers::node_lifecycle::deletion_pause::{ANNOTATION_CAUSE, ANNOTATION_UNTIL};
use ccm::controllers::node_lifecycle::pause_monitor::PauseMonitor;
use ccm::kubernetes::deletion_lease::{DeletionLease, NAME};
use ccm::kubernetes::events::recorder;
use ccm::kubernetes::leadership::Leadership;
use doubles::memory::Memory;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use support::rbac::{Subject, grant};
use support::{ApiServer, eventually, unique};

use super::changes::lose;
use super::harness::{Form, LIMIT, Run, Start, settings};

/// Creates a namespace for the Lease, because a pause in `kube-system` would hold the deletions of other tests.
async fn namespace(server: &ApiServer) -> String {
    let name = unique("pause");
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    Api::all(server.client().await).create(&PostParams::default(), &namespace).await.unwrap();
    name
}

/// Returns the monitor of a replica that never leads.
async fn standby(server: &ApiServer, namespace: &str) -> PauseMonitor {
    let client = server.client().await;
    let lease = DeletionLease::new(client.clone(), namespace);
    PauseMonitor::new(lease, recorder(client, "standby").0, Leadership::never(), "standby")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_that_a_standby_has_acknowledged_holds_the_leader() {
    let server = ApiServer::shared().await;
    let namespace = namespace(server).await;
    let cloud = Memory::default();
    let start = Start { lease_namespace: namespace.clone(), ..Start::of(cloud.clone(), settings()) };
    let run = Run::with(server, start).await;
    let before = Form::new("Unknown");
    lose(&cloud, &before);
    run.register(&before).await;
    run.wait_for_deletion("there is no Lease, so there is no pause", &before.name).await;

    let standby = standby(server, &namespace).await;
    let until = standby.start_pause(Duration::from_secs(3600), "vCenter upgrade").await.unwrap();
    let leases = Api::<Lease>::namespaced(server.client().await, &namespace);
    let annotations = leases.get(NAME).await.unwrap().metadata.annotations.unwrap();
    assert_eq!(annotations[ANNOTATION_UNTIL], until.to_string());
    assert_eq!(annotations[ANNOTATION_CAUSE], "vCenter upgrade");
    let after = [Form::new("Unknown"), Form::new("Unknown")];
    for form in &after {
        lose(&cloud, form);
        run.register(form).await;
    }
    run.wait_for_held("the live read shows the pause", "DeletionPaused", 2).await;
    let event = run.wait_for_event(&after[0].name, "DeletionPaused").await;
    assert!(event.message.unwrap().contains("(vCenter upgrade)"));
    run.wait_for_metric("it is paused", "vsphere_ccm_node_deletions_paused", 1).await;
    let events = Api::<Event>::namespaced(server.client().await, &namespace);
    eventually("the leader announces the pause on the Lease", LIMIT, async || {
        let all = events.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let is_told = |event: &Event| {
            event.reason.as_deref() == Some("NodeDeletionsPaused")
                && event.involved_object.name.as_deref() == Some(NAME)
        };
        if all.iter().any(is_told) { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
    assert_eq!(run.metric("vsphere_ccm_node_deletions_total"), 1, "only the one before the pause");

    assert!(standby.end_pause().await.unwrap());
    // The leader reads the Lease again within 30 s.
    for form in &after {
        run.wait_for_deletion("the pause is over", &form.name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_permission_to_read_the_lease_nothing_is_deleted() {
    let server = ApiServer::shared().await;
    let client = server.client().await;
    let user = unique("blind");
    let rules = |leases: &[&str]| {
        json!([
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch", "delete"]},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": leases},
        ])
    };
    grant(&client, None, &user, Subject::User(&user), rules(&["create"])).await;
    let cloud = Memory::default();
    let start = Start {
        kubeconfig: Some(server.kubeconfig_of(&user)),
        lease_namespace: namespace(server).await,
        ..Start::of(cloud.clone(), settings())
    };
    let run = Run::with(server, start).await;
    let form = Form::new("Unknown");
    lose(&cloud, &form);
    run.register(&form).await;
    run.wait_for_held("the Lease cannot be read", "WriteRefused", 1).await;
    let message = run.wait_for_event(&form.name, "WriteRefused").await.message.unwrap();
    assert!(message.contains(NAME) && message.contains("cannot get resource"), "{message}");
    assert_eq!((run.count().await, run.metric("vsphere_ccm_node_deletions_total")), (1, 0));

    let more = json!({"rules": rules(&["create", "get"])});
    Api::<ClusterRole>::all(client).patch(&user, &PatchParams::default(), &Patch::Merge(more)).await.unwrap();
    run.wait_for_deletion("it can be read now", &form.name).await;
    assert_eq!(Arc::clone(&run.pauses).report().failure, None);
}
