//! Disturbances of deletions: another leader, a rejected request, a finalizer.

use ccm::controllers::node_lifecycle::{LifecycleSettings, Limit};
use ccm::kubernetes::leader_election::{LeaderElector, LeaseConfig};
use doubles::memory::Memory;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::time::{Duration, Instant};
use support::rbac::{Subject, grant};
use support::{ApiServer, unique};
use tokio_util::sync::CancellationToken;

use super::harness::{Form, Run, Start, instance, settings, several_passes};

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);

/// Destroys the machine of this node.
pub fn lose(cloud: &Memory, form: &Form) {
    cloud.put(instance(form, &form.provider_id));
    assert!(cloud.remove(&form.provider_id));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_leader_begins_anew_and_a_former_one_deletes_nothing() {
    let server = ApiServer::shared().await;
    let config = LeaseConfig {
        namespace: "kube-system".into(),
        name: unique("lease"),
        identity: "first".into(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };
    let (elector, leadership) = LeaderElector::new(server.client().await, config).unwrap();
    let elected = tokio::spawn(elector.run(CancellationToken::new()));
    let cloud = Memory::default();
    let grace = Duration::from_secs(5);
    let limit = Limit { nodes: 5, percent: 10, window: NEVER };
    let own = LifecycleSettings { grace, limit, ..settings() };
    let start = Start { leadership: leadership.clone(), ..Start::of(cloud.clone(), own.clone()) };
    let first = Run::with(server, start).await;
    let forms: Vec<Form> = (0..3).map(|_| Form::new("Unknown")).collect();
    for form in &forms {
        lose(&cloud, form);
        first.register(form).await;
    }
    first.wait_for_held("the grace period runs", "DeletionGracePeriod", 3).await;
    elected.abort();
    leadership.wait_until_lost().await;
    first.wait_for_held("all is forgotten", "DeletionGracePeriod", 0).await;

    let began = Instant::now();
    let start = Start { group: Some(first.group.clone()), ..Start::of(cloud.clone(), own) };
    let second = Run::with(server, start).await;
    second.wait_for_metric("one goes", "vsphere_ccm_node_deletions_total", 1).await;
    assert!(began.elapsed() >= grace, "{:?}", began.elapsed());
    second.wait_for_held("a new leader has no more", "DeletionLimitReached", 2).await;
    several_passes(&cloud).await;
    assert_eq!(second.count().await, 2);
    assert_eq!(first.metric("vsphere_ccm_node_deletions_total"), 0);
    assert_eq!(first.metric("vsphere_ccm_node_deletion_allowance"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_deletion_is_told_and_tried_again() {
    let server = ApiServer::shared().await;
    let client = server.client().await;
    let user = unique("careful");
    let rules = |verbs: &[&str]| {
        json!([
            {"apiGroups": [""], "resources": ["nodes"], "verbs": verbs},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]},
        ])
    };
    let reads = rules(&["get", "list", "watch", "patch"]);
    grant(&client, None, &user, Subject::User(&user), reads).await;

    let cloud = Memory::default();
    let start = Start { kubeconfig: Some(server.kubeconfig_of(&user)), ..Start::of(cloud.clone(), settings()) };
    let run = Run::with(server, start).await;
    let form = Form::new("Unknown");
    lose(&cloud, &form);
    run.register(&form).await;
    let event = run.wait_for_event(&form.name, "DeletingNodeFailed").await;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let message = event.message.unwrap();
    assert!(message.starts_with(&format!("Failed deleting node {}: ", form.name)), "the words of upstream: {message}");
    assert!(message.contains("cannot delete resource"), "it says what is missing: {message}");
    run.wait_for_event(&form.name, "DeletionRefused").await;
    run.wait_for_held("and it is held", "DeletionRefused", 1).await;

    let more = json!({"rules": rules(&["get", "list", "watch", "patch", "delete"])});
    Api::<ClusterRole>::all(client).patch(&user, &PatchParams::default(), &Patch::Merge(more)).await.unwrap();
    run.wait_for_deletion("it is allowed now", &form.name).await;
    let events = run.events(&form.name).await;
    let told = |reason: &str| {
        let of = events.iter().filter(|event| event.reason.as_deref() == Some(reason));
        of.map(|event| event.count.unwrap_or(1)).sum::<i32>()
    };
    assert_eq!((told("DeletingNode"), told("DeletionRefused")), (1, 1), "each is told once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_waits_for_its_finalizers_is_deleted_once() {
    let cloud = Memory::default();
    let run = Run::start(&cloud, settings()).await;
    let form = Form::new("Unknown");
    cloud.put(instance(&form, &form.provider_id));
    run.register(&form).await;
    let finalizers = async |names: &[&str]| {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": names}}));
        run.api().patch(&form.name, &PatchParams::default(), &patch).await.unwrap()
    };
    finalizers(&["test.ccm/keep"]).await;
    assert!(cloud.remove(&form.provider_id));
    run.wait("it is deleted", &form.name, |node| node.metadata.deletion_timestamp.is_some()).await;
    several_passes(&cloud).await;
    assert_eq!(run.metric("vsphere_ccm_node_deletions_total"), 1);
    // The Event is written concurrently with the deletion.
    run.wait_for_event(&form.name, "DeletingNode").await;
    let events = run.events(&form.name).await;
    let told = events.iter().filter(|event| event.reason.as_deref() == Some("DeletingNode"));
    assert_eq!(told.map(|event| event.count.unwrap_or(1)).sum::<i32>(), 1);
    finalizers(&[]).await;
    run.wait_for_deletion("nobody holds it", &form.name).await;
}
