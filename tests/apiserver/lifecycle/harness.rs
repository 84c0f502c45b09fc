//! A running node-lifecycle controller with its own nodes.

use ccm::cloud::{CloudProvider, InstanceMetadata};
use ccm::controllers::Context;
use ccm::controllers::node_lifecycle::pause_monitor::PauseMonitor;
use ccm::controllers::node_lifecycle::{self, DeletionMode, LifecycleSettings, Limit};
use ccm::kubernetes::client::{self, Clients, Identity, purpose};
use ccm::kubernetes::deletion_lease::DeletionLease;
use ccm::kubernetes::events::recorder;
use ccm::kubernetes::leadership::Leadership;
use ccm::kubernetes::stores::watch_nodes;
use ccm::runtime::metrics::Metrics;
use ccm::runtime::tasks::Tasks;
use doubles::memory::{Instance, Memory};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use support::{ApiServer, eventually, unique};
use tokio_util::sync::CancellationToken;

/// Label that separates the nodes of tests.
const GROUP: &str = "test.ccm/group";
pub const LIMIT: Duration = Duration::from_secs(60);

/// Returns settings with short periods, and with limits that are never reached.
pub fn settings() -> LifecycleSettings {
    LifecycleSettings {
        period: Duration::from_millis(200),
        deletion: DeletionMode::Enforce,
        grace: Duration::from_millis(300),
        limit: Limit { nodes: 1000, percent: 100, window: Duration::from_millis(100) },
        mass_hold: Duration::ZERO,
        out_of_service_after: None,
    }
}

/// A node in the form of a vector.
#[derive(Clone, Debug, Default)]
pub struct Form {
    pub name: String,
    /// Status of the condition Ready. Empty if the condition is absent.
    pub ready: String,
    pub provider_id: String,
    /// Taints as `key:effect`.
    pub taints: Vec<String>,
    pub annotations: Vec<(String, String)>,
}

impl Form {
    pub fn new(ready: &str) -> Self {
        let name = unique("n");
        Self { provider_id: format!("memory://{name}"), name, ready: ready.into(), ..Self::default() }
    }

    fn node(&self, group: &str) -> Node {
        let taints: Vec<Value> = self.taints.iter().map(|text| taint(text)).collect();
        let annotations: serde_json::Map<_, _> =
            self.annotations.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        let mut spec = json!({"taints": taints});
        if !self.provider_id.is_empty() {
            spec["providerID"] = json!(self.provider_id);
        }
        serde_json::from_value(json!({
            "metadata": {"name": self.name, "labels": {GROUP: group}, "annotations": annotations},
            "spec": spec, "status": {"conditions": conditions(&self.ready)},
        }))
        .unwrap()
    }
}

/// Parses `key:effect` and `key=value:effect`.
fn taint(text: &str) -> Value {
    let (key, effect) = text.split_once(':').unwrap();
    match key.split_once('=') {
        Some((key, value)) => json!({"key": key, "value": value, "effect": effect}),
        None => json!({"key": key, "effect": effect}),
    }
}

fn conditions(ready: &str) -> Value {
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    match ready {
        "" => json!([]),
        _ => json!([{"type": "Ready", "status": ready, "reason": "Test", "message": "",
            "lastTransitionTime": now, "lastHeartbeatTime": now}]),
    }
}

/// Returns the taints as `key=value:effect`.
pub fn taints(node: &Node) -> Vec<String> {
    ccm::cloud::node::taints(node)
        .iter()
        .map(|taint| match &taint.value {
            Some(value) => format!("{}={value}:{}", taint.key, taint.effect),
            None => format!("{}:{}", taint.key, taint.effect),
        })
        .collect()
}

pub fn instance(form: &Form, provider_id: &str) -> Instance {
    let metadata = InstanceMetadata { provider_id: provider_id.into(), ..InstanceMetadata::default() };
    Instance { node_name: form.name.clone(), metadata, ..Instance::default() }
}

/// Waits for 20 more requests of the controller to the cloud. With one node these are 20 passes.
pub async fn several_passes(cloud: &Memory) {
    let asked = cloud.calls();
    eventually("several passes", LIMIT, async || {
        if cloud.calls() > asked + 20 { Ok(()) } else { Err(cloud.calls().to_string()) }
    })
    .await;
}

/// A running controller. Its tasks end when this is dropped.
pub struct Run {
    /// Client with the rights of an administrator.
    pub client: Client,
    pub group: String,
    pub pauses: Arc<PauseMonitor>,
    metrics: Metrics,
    _tasks: Tasks,
}

/// Parameters of a run.
pub struct Start {
    pub provider: Arc<dyn CloudProvider>,
    pub settings: LifecycleSettings,
    pub leadership: Leadership,
    /// Group of another run, to use the same nodes.
    pub group: Option<String>,
    /// Kubeconfig of the controller. The default is an administrator's.
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the Lease about the pause of deletions. A test that pauses them has one of its own.
    pub lease_namespace: String,
}

impl Start {
    pub fn of(provider: impl CloudProvider + 'static, settings: LifecycleSettings) -> Self {
        Self {
            provider: Arc::new(provider),
            settings,
            leadership: Leadership::always(),
            group: None,
            kubeconfig: None,
            lease_namespace: "kube-system".to_owned(),
        }
    }
}

impl Run {
    pub async fn start(cloud: &Memory, settings: LifecycleSettings) -> Self {
        Self::with(ApiServer::shared().await, Start::of(cloud.clone(), settings)).await
    }

    pub async fn with(server: &ApiServer, start: Start) -> Self {
        let kubeconfig = start.kubeconfig.unwrap_or_else(|| server.kubeconfig());
        let access = client::Settings { kubeconfig: Some(kubeconfig), ..client::Settings::default() };
        let config = client::read_config(&access).await.unwrap();
        let clients = Clients::new(&config).unwrap();
        let identity = Identity::Process(purpose::PROCESS);
        let write = client::writer(&config, None, start.leadership.clone(), identity).unwrap();
        let group = start.group.unwrap_or_else(|| unique("group"));
        let (nodes, watch) = watch_nodes(clients.watch.clone(), Some(format!("{GROUP}={group}")));
        let (recorder, writer) = recorder(clients.auxiliary.clone(), "test");
        let (provider, leadership) = (start.provider, start.leadership);
        let context = Context { write, recorder, provider, leadership, decisions: Default::default() };
        let lease = DeletionLease::new(clients.auxiliary.clone(), &start.lease_namespace);
        let pauses = Arc::new(PauseMonitor::new(lease, context.recorder.clone(), context.leadership.clone(), "host"));
        let mut controller = node_lifecycle::controller(context, nodes, Arc::clone(&pauses), start.settings).unwrap();
        let metrics = Metrics::new().unwrap();
        controller.register(metrics.registry()).unwrap();
        let mut tasks = Tasks::default();
        tasks.spawn("watch", watch);
        tasks.spawn("events", writer.run(CancellationToken::new()));
        tasks.spawn("lifecycle", controller.run(CancellationToken::new()));
        tasks.spawn("pause", Arc::clone(&pauses).run());
        Self { client: server.client().await, group, pauses, metrics, _tasks: tasks }
    }

    pub fn api(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub async fn register(&self, form: &Form) -> Node {
        self.api().create(&PostParams::default(), &form.node(&self.group)).await.unwrap()
    }

    /// Waits until the node meets `is_expected`.
    pub async fn wait(&self, what: &str, name: &str, is_expected: impl Fn(&Node) -> bool) -> Node {
        eventually(what, LIMIT, async || {
            let node = self.api().get(name).await.map_err(|error| error.to_string())?;
            if is_expected(&node) { Ok(node) } else { Err(format!("{:?} {:?}", taints(&node), node.metadata)) }
        })
        .await
    }

    pub async fn wait_for_deletion(&self, what: &str, name: &str) {
        eventually(what, LIMIT, async || match self.api().get_opt(name).await {
            Ok(None) => Ok(()),
            Ok(Some(node)) => Err(format!("it is there: {:?}; {}", taints(&node), self.text())),
            Err(error) => Err(error.to_string()),
        })
        .await;
    }

    /// Counts the group's nodes.
    pub async fn count(&self) -> usize {
        let chosen = ListParams::default().labels(&format!("{GROUP}={}", self.group));
        self.api().list_metadata(&chosen).await.unwrap().items.len()
    }

    pub fn text(&self) -> String {
        self.metrics.encode().unwrap()
    }

    /// Returns the value of a series, or zero if the series does not exist.
    pub fn metric(&self, series: &str) -> u64 {
        let text = self.text();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }

    pub async fn wait_for_metric(&self, what: &str, series: &str, value: u64) {
        eventually(what, LIMIT, async || {
            let is = self.metric(series);
            if is == value { Ok(()) } else { Err(format!("{series} is {is}\n{}", self.text())) }
        })
        .await;
    }

    pub async fn wait_for_held(&self, what: &str, reason: &str, count: u64) {
        self.wait_for_metric(what, &format!("vsphere_ccm_node_deletions_held{{reason=\"{reason}\"}}"), count).await;
    }

    /// Returns the Events about a node, sorted by reason.
    pub async fn events(&self, name: &str) -> Vec<Event> {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
        events.list(&about).await.unwrap().items
    }

    pub async fn wait_for_event(&self, name: &str, reason: &str) -> Event {
        eventually(&format!("Event {reason}"), LIMIT, async || {
            let events = self.events(name).await;
            let reasons: Vec<_> = events.iter().map(|event| event.reason.clone().unwrap_or_default()).collect();
            let found = events.into_iter().find(|event| event.reason.as_deref() == Some(reason));
            found.ok_or_else(|| format!("{reasons:?}"))
        })
        .await
    }
}
