//! Deletion with the real kube-controller-manager, which alone sets Ready=Unknown, and with kubelets that send
//! heartbeats.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use support::controller_manager::ControllerManager;
use support::nodes::NodeView;
use support::{ApiServer, Daemon, FakeVcenter, eventually};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::cluster::Cluster;
use crate::invariants::rules::{SHUTDOWN_TAINT, has_taint, ready};

/// Interval between two heartbeats. The default of kubelets is 10 s.
const BEAT: Duration = Duration::from_secs(2);
/// After this time without a heartbeat the controller manager sets Ready=Unknown. The default is 50 s.
const SILENT: Duration = Duration::from_secs(10);
/// Default of `--node-deletion-grace`.
const GRACE: Duration = Duration::from_secs(30);
/// Tolerance for all other steps, on a machine that also compiles.
const SLACK: Duration = Duration::from_secs(15);
const LIMIT: Duration = Duration::from_secs(120);

/// The machine of this node is destroyed, and its kubelet stops reporting.
const GONE: usize = 0;
/// The machine of this node is destroyed, and its kubelet reports that the node is not ready.
const REPORTS: usize = 1;
const OFF: usize = 2;
/// The kubelet of this node is silent for a while, and its machine exists.
const PAUSED: usize = 3;
const WELL: usize = 4;
const NODES: usize = 5;

/// Status that each kubelet reports; `None` while it is silent.
type Reports = Arc<Mutex<BTreeMap<usize, Option<&'static str>>>>;

/// The kubelets of all nodes. They end when this is dropped.
struct Kubelets {
    reports: Reports,
    task: JoinHandle<()>,
}

impl Kubelets {
    async fn start(cluster: &Cluster) -> Self {
        let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-node-lease");
        let nodes: Api<Node> = Api::all(cluster.client.clone());
        let names: Vec<String> = (0..NODES).map(|number| cluster.name(number)).collect();
        for (number, name) in names.iter().enumerate() {
            cluster.kubelet(number).ready().register(&cluster.client).await;
            let lease = json!({"metadata": {"name": name},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now()}});
            leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
        }
        let reports: Reports = Arc::new(Mutex::new((0..NODES).map(|number| (number, Some("True"))).collect()));
        let told = Arc::clone(&reports);
        let task = tokio::spawn(async move {
            let mut beat = interval(BEAT);
            beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                beat.tick().await;
                let reports = told.lock().unwrap().clone();
                for (name, status) in reports.into_iter().filter_map(|(number, status)| Some((&names[number], status?)))
                {
                    heartbeat(&leases, &nodes, name, status).await;
                }
            }
        });
        Self { reports, task }
    }

    fn set(&self, number: usize, status: Option<&'static str>) {
        self.reports.lock().unwrap().insert(number, status);
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Renews the Lease. Writes the status only if it has changed.
async fn heartbeat(leases: &Api<Lease>, nodes: &Api<Node>, name: &str, status: &str) {
    let renewal = Patch::Merge(json!({"spec": {"renewTime": now()}}));
    leases.patch(name, &PatchParams::default(), &renewal).await.unwrap();
    let Some(node) = nodes.get_opt(name).await.unwrap() else { return };
    if ready(&node) != status {
        let time = Timestamp::now().to_string();
        let condition = json!({"type": "Ready", "status": status, "reason": "Kubelet", "message": "",
            "lastHeartbeatTime": time, "lastTransitionTime": time});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        nodes.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Returns the current time as `metav1.MicroTime`.
fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

struct World<'a> {
    cluster: &'a Cluster,
    daemon: &'a Daemon,
    manager: &'a ControllerManager,
}

impl World<'_> {
    async fn node(&self, number: usize) -> Option<Node> {
        Api::<Node>::all(self.cluster.client.clone()).get_opt(&self.cluster.name(number)).await.unwrap()
    }

    /// Waits until the Node meets `is_expected`. Returns the time.
    async fn until(&self, what: &str, number: usize, is_expected: impl Fn(Option<&Node>) -> bool) -> Instant {
        eventually(&format!("{} {what}", self.cluster.name(number)), LIMIT, async || {
            let node = self.node(number).await;
            if is_expected(node.as_ref()) {
                return Ok(Instant::now());
            }
            let logs = [self.manager.output().tail(10), self.daemon.output().tail(30)].join("\n");
            Err(format!("{:?}\n{logs}", node.map(|node| (NodeView::of(&node), ready(&node).to_owned()))))
        })
        .await
    }

    async fn until_ready_is(&self, number: usize, status: &str) -> Instant {
        self.until(&format!("is Ready={status}"), number, |node| node.is_some_and(|node| ready(node) == status)).await
    }
}

#[tokio::test]
async fn only_the_silent_node_of_a_destroyed_machine_goes() {
    let server = ApiServer::start().await;
    let cluster = Cluster::on(&server).await;
    let fake = FakeVcenter::start(cluster.model(0..NODES)).await;
    let kubelets = Kubelets::start(&cluster).await;
    let manager = ControllerManager::start(&server, SILENT);
    let config = fake.ini_section("vc-1", "dc-1", server.folder());
    let daemon = cluster.start(&config, &["--node-monitor-period=1s"]);
    let world = World { cluster: &cluster, daemon: &daemon, manager: &manager };
    for number in 0..NODES {
        let is_initialized =
            |node: &Node| !NodeView::of(node).uninitialized && NodeView::of(node).provider_id.is_some();
        world.until("is initialized", number, |node| node.is_some_and(is_initialized)).await;
    }
    let before = cluster.nodes().await;

    kubelets.set(REPORTS, Some("False"));
    world.until_ready_is(REPORTS, "False").await;
    for number in [GONE, REPORTS] {
        fake.destroy_vm(&cluster.name(number));
    }
    fake.change_vm(&cluster.name(OFF), |vm| vm.power("poweredOff"));
    for number in [GONE, OFF, PAUSED] {
        kubelets.set(number, None);
    }
    let unknown = world.until_ready_is(GONE, "Unknown").await;
    let node = world.node(GONE).await.expect("it is not deleted before");
    let conditions = node.status.unwrap().conditions.unwrap();
    let reason = conditions.iter().find(|one| one.type_ == "Ready").unwrap().reason.clone();
    assert_eq!(reason.as_deref(), Some("NodeStatusUnknown"), "kube-controller-manager says so");
    world.until_ready_is(PAUSED, "Unknown").await;
    world.until("is shut down", OFF, |node| node.is_some_and(|node| has_taint(node, SHUTDOWN_TAINT))).await;

    let deleted = world.until("is deleted", GONE, |node| node.is_none()).await;
    let took = deleted - unknown;
    assert!(took + BEAT >= GRACE && took <= GRACE + SLACK, "it is deleted {took:?} after it was Unknown");
    kubelets.set(PAUSED, Some("True"));
    world.until_ready_is(PAUSED, "True").await;

    let after = cluster.nodes().await;
    for (number, status) in [(REPORTS, "False"), (OFF, "Unknown"), (PAUSED, "True"), (WELL, "True")] {
        let name = cluster.name(number);
        let node = after.get(&name).unwrap_or_else(|| panic!("{name} is deleted\n{}", daemon.output().tail(60)));
        assert_eq!((node.metadata.uid.as_ref(), ready(node)), (before[&name].metadata.uid.as_ref(), status), "{name}");
        assert_eq!(has_taint(node, SHUTDOWN_TAINT), number == OFF, "{name}");
    }
}
