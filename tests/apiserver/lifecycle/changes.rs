//! Disturbances during the work: other leaders, rejected requests, conflicts, panics.

use async_trait::async_trait;
use ccm::cloud::{CloudProvider, InstanceMetadata, InstancesV2, Power, PowerState, Presence};
use ccm::controllers::node_lifecycle::plan::TAINT_SHUTDOWN;
use ccm::controllers::node_lifecycle::{LifecycleSettings, Limit};
use ccm::kubernetes::leader_election::{LeaderElector, LeaseConfig};
use doubles::memory::{Instance, Memory};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use support::{ApiServer, eventually, unique};
use tokio_util::sync::CancellationToken;

use super::harness::{Form, LIMIT, Run, Start, instance, settings, several_passes, taints};

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);

/// A provider that counts proofs and can act during an answer.
#[derive(Clone)]
struct Wrapped {
    cloud: Memory,
    proofs: Arc<AtomicUsize>,
    /// From the proof with this number on the machine exists. No event announces the machine.
    exists_from: usize,
    /// Whether the provider panics.
    panics: Arc<AtomicBool>,
    /// If set, another client edits the requested node here between the controller's read and its write.
    meddler: Option<Api<Node>>,
    turns: Arc<AtomicUsize>,
    is_own: bool,
    /// Whether the confirmation at the start of a term was requested.
    is_confirmed: Arc<AtomicBool>,
    /// Number of requests before the confirmation.
    early: Arc<AtomicUsize>,
}

impl Wrapped {
    fn new(cloud: &Memory) -> Self {
        Self {
            cloud: cloud.clone(),
            proofs: Arc::default(),
            exists_from: usize::MAX,
            panics: Arc::default(),
            meddler: None,
            turns: Arc::default(),
            is_own: true,
            is_confirmed: Arc::default(),
            early: Arc::default(),
        }
    }
}

impl CloudProvider for Wrapped {
    fn provider_name(&self) -> &'static str {
        "wrapped"
    }

    fn owns_provider_id(&self, _: &str) -> bool {
        self.is_own
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl InstancesV2 for Wrapped {
    async fn instance_exists(&self, node: &Node) -> Presence {
        assert!(!self.panics.load(Ordering::SeqCst), "on purpose");
        self.early.fetch_add(usize::from(!self.is_confirmed.load(Ordering::SeqCst)), Ordering::SeqCst);
        let proof = self.proofs.fetch_add(1, Ordering::SeqCst) + 1;
        if proof >= self.exists_from { Presence::Exists(()) } else { self.cloud.instance_exists(node).await }
    }

    async fn instance_power(&self, node: &Node) -> Presence<Power> {
        let turn = self.turns.fetch_add(1, Ordering::SeqCst);
        if let (Some(nodes), true) = (&self.meddler, turn < 3) {
            let name = node.metadata.name.as_deref().unwrap();
            let mut live = nodes.get(name).await.unwrap();
            let taint = json!({"key": format!("other-{turn}"), "effect": "NoSchedule"});
            let spec = live.spec.get_or_insert_default();
            spec.taints.get_or_insert_default().push(serde_json::from_value(taint).unwrap());
            nodes.replace(name, &PostParams::default(), &live).await.unwrap();
        }
        self.cloud.instance_power(node).await
    }

    async fn read_instance_power(&self, node: &Node) -> Presence<PowerState> {
        self.cloud.read_instance_power(node).await
    }

    async fn instance_metadata(&self, node: &Node) -> Presence<InstanceMetadata> {
        self.cloud.instance_metadata(node).await
    }

    async fn refresh(&self) {
        tokio::task::yield_now().await;
        self.is_confirmed.store(true, Ordering::SeqCst);
    }
}

fn lose(cloud: &Memory, form: &Form) {
    cloud.put(instance(form, &form.provider_id));
    assert!(cloud.remove(&form.provider_id));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proof_is_made_once_more_before_the_deletion_and_not_more_often() {
    let cloud = Memory::default();
    let provider = Wrapped { exists_from: 2, ..Wrapped::new(&cloud) };
    let run = Run::with(ApiServer::shared().await, Start::of(provider.clone(), settings())).await;
    let form = Form::new("Unknown");
    lose(&cloud, &form);
    run.register(&form).await;
    eventually("it is found again", LIMIT, async || {
        let proofs = provider.proofs.load(Ordering::SeqCst);
        if proofs > 2 { Ok(()) } else { Err(format!("{proofs} proofs")) }
    })
    .await;
    let confirmed = (provider.is_confirmed.load(Ordering::SeqCst), provider.early.load(Ordering::SeqCst));
    assert_eq!(confirmed, (true, 0), "until then it may know less than the leader before");
    several_passes(&cloud).await;
    assert_eq!(run.count().await, 1);
    assert_eq!(run.metric("vsphere_ccm_node_deletions_total"), 0);

    // While the node is kept, passes make no proof.
    let cloud = Memory::default();
    let provider = Wrapped::new(&cloud);
    let run = Run::with(
        ApiServer::shared().await,
        Start::of(provider.clone(), LifecycleSettings { grace: NEVER, ..settings() }),
    )
    .await;
    let form = Form::new("Unknown");
    lose(&cloud, &form);
    run.register(&form).await;
    run.wait_for_held("the grace period runs", "DeletionGracePeriod", 1).await;
    let proofs = provider.proofs.load(Ordering::SeqCst);
    several_passes(&cloud).await;
    assert_eq!(provider.proofs.load(Ordering::SeqCst), proofs);
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
    let role = |verbs: &[&str]| -> ClusterRole {
        serde_json::from_value(json!({
            "metadata": {"name": user},
            "rules": [
                {"apiGroups": [""], "resources": ["nodes"], "verbs": verbs},
                {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
            ],
        }))
        .unwrap()
    };
    let reads = ["get", "list", "watch", "patch"];
    let roles: Api<ClusterRole> = Api::all(client.clone());
    roles.create(&PostParams::default(), &role(&reads)).await.unwrap();
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }))
    .unwrap();
    Api::<ClusterRoleBinding>::all(client).create(&PostParams::default(), &binding).await.unwrap();

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

    let more = json!({"rules": role(&["get", "list", "watch", "patch", "delete"]).rules});
    roles.patch(&user, &PatchParams::default(), &Patch::Merge(more)).await.unwrap();
    run.wait_for_deletion("it is allowed now", &form.name).await;
    let events = run.events(&form.name).await;
    let told = |reason: &str| {
        let of = events.iter().filter(|event| event.reason.as_deref() == Some(reason));
        of.map(|event| event.count.unwrap_or(1)).sum::<i32>()
    };
    assert_eq!((told("DeletingNode"), told("DeletionRefused")), (1, 1), "each is told once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_provider_and_one_that_is_not_initialised_are_kept() {
    let cloud = Memory::default();
    let foreign = Wrapped { is_own: false, ..Wrapped::new(&cloud) };
    let run = Run::with(ApiServer::shared().await, Start::of(foreign.clone(), settings())).await;
    let theirs = Form { taints: vec![format!("{TAINT_SHUTDOWN}:NoSchedule")], ..Form::new("Unknown") };
    let without = Form { provider_id: String::new(), ..Form::new("Unknown") };
    lose(&cloud, &theirs);
    let created = run.register(&theirs).await;
    run.register(&without).await;
    several_passes(&cloud).await;
    let after = run.api().get(&theirs.name).await.unwrap();
    assert_eq!(after.metadata.resource_version, created.metadata.resource_version, "it is not even tainted");

    let run = Run::start(&cloud, settings()).await;
    let joining = Form {
        taints: vec!["node.cloudprovider.kubernetes.io/uninitialized:NoSchedule".into()],
        ..Form::new("Unknown")
    };
    lose(&cloud, &joining);
    run.register(&joining).await;
    run.wait_for_event(&joining.name, "Uninitialized").await;
    several_passes(&cloud).await;
    assert_eq!(run.count().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn taints_that_others_add_meanwhile_survive() {
    let cloud = Memory::default();
    let form = Form::new("Unknown");
    cloud.put(Instance { power: PowerState::Off, ..instance(&form, &form.provider_id) });
    let server = ApiServer::shared().await;
    let provider = Wrapped { meddler: Some(Api::all(server.client().await)), ..Wrapped::new(&cloud) };
    let run = Run::with(server, Start::of(provider, settings())).await;
    run.register(&form).await;
    let shutdown = format!("{TAINT_SHUTDOWN}:NoSchedule");
    let node = run.wait("it is shut down", &form.name, |node| taints(node).contains(&shutdown)).await;
    assert_eq!(taints(&node), ["other-0:NoSchedule", "other-1:NoSchedule", "other-2:NoSchedule", &shutdown]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_the_provider_is_counted_and_tried_again() {
    let cloud = Memory::default();
    let provider = Wrapped::new(&cloud);
    provider.panics.store(true, Ordering::SeqCst);
    let run = Run::with(ApiServer::shared().await, Start::of(provider.clone(), settings())).await;
    let form = Form::new("Unknown");
    lose(&cloud, &form);
    run.register(&form).await;
    run.wait_for_held("it panicked", "Panic", 1).await;
    assert!(run.metric("vsphere_ccm_node_lifecycle_panics_total") > 0);
    provider.panics.store(false, Ordering::SeqCst);
    run.wait_for_deletion("it works again", &form.name).await;
    run.wait_for_held("it is over", "Panic", 0).await;
}
