//! A leading controller with its cloud and its API server. The clock of these tests is paused. It advances when all
//! tasks wait.

use async_trait::async_trait;
use http::Method;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::server::Server;
use ccm::cloud::{
    CloudProvider, InstanceEvents, InstanceMetadata, InstancesV2, Power, PowerState, Presence, Unknown, node,
};
use ccm::controllers::Context;
use ccm::controllers::decisions::DecisionHistory;
use ccm::controllers::node_lifecycle::pause_monitor::PauseMonitor;
use ccm::controllers::node_lifecycle::{self, DeletionMode, LifecycleSettings, Limit};
use ccm::kubernetes::deletion_lease::DeletionLease;
use ccm::kubernetes::events::recorder;
use ccm::kubernetes::leadership::Leadership;
use ccm::kubernetes::stores::watch_nodes;
use ccm::providers::vsphere::reason;
use ccm::runtime::metrics::Metrics;
use doubles::memory::{Instance, Memory};

/// Longer than any work without a wait for time.
pub const MOMENT: Duration = Duration::from_millis(500);

/// Returns the default settings.
pub fn settings() -> LifecycleSettings {
    LifecycleSettings {
        period: Duration::from_secs(5),
        deletion: DeletionMode::Enforce,
        grace: Duration::from_secs(30),
        limit: Limit { nodes: 5, percent: 10, window: Duration::from_secs(600) },
        mass_hold: Duration::from_secs(900),
        out_of_service_after: None,
    }
}

/// Called at the nth request about the existence of a node's machine. Returns the delay of the answer. The answer has
/// the state at the time of the request.
type Hook = Box<dyn FnMut(&str, usize) -> Duration + Send>;

/// A cloud in memory that can act during its answers. Clones share all state.
#[derive(Clone)]
pub struct Cloud {
    memory: Memory,
    hook: Arc<Mutex<Option<Hook>>>,
    asked: Arc<Mutex<BTreeMap<String, usize>>>,
    fresh: Arc<Mutex<Fresh>>,
}

/// Fresh reads of power states.
#[derive(Default)]
struct Fresh {
    /// Answer of fresh reads. `None` uses the state of the machine.
    answer: Option<Presence<PowerState>>,
    /// Duration of each read.
    pause: Duration,
    reads: usize,
}

impl CloudProvider for Cloud {
    fn provider_name(&self) -> &'static str {
        "hooked"
    }

    fn owns_provider_id(&self, provider_id: &str) -> bool {
        !provider_id.starts_with("foreign://")
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(self.clone()))
    }

    fn instance_events(&self) -> Option<Arc<dyn InstanceEvents>> {
        self.memory.instance_events()
    }
}

#[async_trait]
impl InstancesV2 for Cloud {
    async fn instance_exists(&self, node: &Node) -> Presence {
        let name = node::name(node);
        let number = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let number = asked.entry(name.to_owned()).or_default();
            *number += 1;
            *number
        };
        let pause = {
            let mut hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
            hook.as_mut().map(|hook| hook(name, number)).unwrap_or_default()
        };
        let answer = self.memory.instance_exists(node).await;
        pass(pause).await;
        answer
    }

    async fn instance_power(&self, node: &Node) -> Presence<Power> {
        self.memory.instance_power(node).await
    }

    async fn read_instance_power(&self, node: &Node) -> Presence<PowerState> {
        let (answer, pause) = {
            let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
            fresh.reads += 1;
            (fresh.answer.clone(), fresh.pause)
        };
        pass(pause).await;
        match answer {
            Some(answer) => answer,
            None => self.memory.read_instance_power(node).await,
        }
    }

    async fn instance_metadata(&self, node: &Node) -> Presence<InstanceMetadata> {
        self.memory.instance_metadata(node).await
    }
}

/// A leading controller with its cloud and its API server. Its tasks end when this is dropped.
pub struct World {
    pub server: Server,
    pub cloud: Memory,
    pub pauses: Arc<PauseMonitor>,
    hooked: Cloud,
    metrics: Metrics,
    decisions: DecisionHistory,
    _tasks: JoinSet<()>,
}

impl World {
    pub async fn start(settings: LifecycleSettings) -> Self {
        Self::on(Server::start(), Memory::default(), settings).await
    }

    /// Starts a controller on this server and cloud, which another controller may use, too. Each takes itself for the
    /// leader.
    pub async fn on(server: Server, cloud: Memory, settings: LifecycleSettings) -> Self {
        let hooked =
            Cloud { memory: cloud.clone(), hook: Arc::default(), asked: Arc::default(), fresh: Arc::default() };
        let (nodes, watch) = watch_nodes(server.client(), None);
        let (recorder, writer) = recorder(server.client(), "test");
        let decisions = DecisionHistory::default();
        let context = Context {
            write: server.client(),
            recorder,
            provider: Arc::new(hooked.clone()),
            leadership: Leadership::always(),
            decisions: decisions.clone(),
        };
        let lease = DeletionLease::new(server.client(), "kube-system");
        let pauses = Arc::new(PauseMonitor::new(lease, context.recorder.clone(), Leadership::always(), "host"));
        let mut controller = node_lifecycle::controller(context, nodes.clone(), Arc::clone(&pauses), settings).unwrap();
        let metrics = Metrics::new().unwrap();
        controller.register(metrics.registry()).unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async { drop(watch.await) });
        let reads = Arc::clone(&pauses).run();
        tasks.spawn(async { drop(reads.await) });
        tasks.spawn(async { drop(writer.run(CancellationToken::new()).await) });
        tasks.spawn(async { drop(controller.run(CancellationToken::new()).await) });
        nodes.wait_until_ready().await;
        pass(MOMENT).await;
        Self { server, cloud, pauses, hooked, metrics, decisions, _tasks: tasks }
    }

    /// Returns the words of the decisions about the deletion of this Node, the first one first.
    pub fn decisions(&self, name: &str) -> Vec<&'static str> {
        let decisions = self.decisions.last(usize::MAX, |decision| &*decision.name == name);
        decisions.iter().rev().map(|decision| decision.word).collect()
    }

    /// Sets an action during requests for the existence of a machine.
    pub fn hook(&self, hook: impl FnMut(&str, usize) -> Duration + Send + 'static) {
        *self.hooked.hook.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(hook));
    }

    /// Returns the number of requests for the existence of this node's machine.
    pub fn asked(&self, name: &str) -> usize {
        self.hooked.asked.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied().unwrap_or_default()
    }

    /// Sets the answer of fresh reads of any power state. `None` uses the state of the machine.
    pub fn set_fresh(&self, answer: Option<Presence<PowerState>>) {
        self.hooked.fresh.lock().unwrap_or_else(PoisonError::into_inner).answer = answer;
    }

    /// Sets the duration of each fresh read of a power state.
    pub fn set_fresh_pause(&self, pause: Duration) {
        self.hooked.fresh.lock().unwrap_or_else(PoisonError::into_inner).pause = pause;
    }

    /// Returns the number of fresh reads of power states.
    pub fn fresh_reads(&self) -> usize {
        self.hooked.fresh.lock().unwrap_or_else(PoisonError::into_inner).reads
    }

    /// Creates the Node and its machine.
    pub fn create(&self, name: &str, ready: &str, power: PowerState) -> String {
        let metadata = InstanceMetadata { provider_id: id(name), ..InstanceMetadata::default() };
        self.cloud.put(Instance { node_name: name.into(), metadata, power, ..Instance::default() });
        self.server.with(|state| state.put(node(name, ready)))
    }

    /// Destroys the machine.
    pub fn destroy(&self, name: &str) {
        assert!(self.cloud.remove(&id(name)), "{name} has no machine");
    }

    /// Creates a Node with Ready=Unknown and without a machine.
    pub fn lose(&self, name: &str) {
        self.create(name, "Unknown", PowerState::On);
        self.destroy(name);
    }

    /// Makes the state of the machine unknown.
    pub fn hide(&self, name: &str) {
        self.cloud.set_unknown(&id(name), Some(Unknown::new(reason::VCenterUnavailable, "the test says so")));
    }

    /// Makes the state of the machine known again.
    pub fn show(&self, name: &str) {
        self.cloud.set_unknown(&id(name), None);
    }

    pub fn set_ready(&self, name: &str, ready: &str) {
        self.server.with(|state| state.change(name, &is(ready)));
    }

    pub fn set_power(&self, name: &str, power: PowerState) {
        assert!(self.cloud.update(&id(name), |instance| instance.power = power), "{name} has no machine");
    }

    pub fn is_there(&self, name: &str) -> bool {
        self.server.node(name).is_some()
    }

    /// Returns the names of the Nodes in DELETE requests, in order.
    pub fn deletions(&self) -> Vec<String> {
        self.server.sent(&Method::DELETE).into_iter().map(|sent| sent.name).collect()
    }

    /// Returns the taints of a Node, as `key:effect`.
    pub fn taints(&self, name: &str) -> Vec<String> {
        let node: Node = serde_json::from_value(self.server.node(name).unwrap()).unwrap();
        node::taints(&node).iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect()
    }

    /// Returns the value of a series, or zero if the series does not exist.
    pub fn metric(&self, series: &str) -> u64 {
        let text = self.metrics.encode().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }

    pub fn held(&self, reason: &str) -> u64 {
        self.metric(&format!("vsphere_ccm_node_deletions_held{{reason=\"{reason}\"}}"))
    }
}

/// Advances the clock.
pub async fn pass(time: Duration) {
    if !time.is_zero() {
        let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
    }
}

pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn id(name: &str) -> String {
    format!("memory://{name}")
}

/// Returns an initialized Node.
pub fn node(name: &str, ready: &str) -> Value {
    let mut node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"providerID": id(name)}});
    node["status"] = is(ready)["status"].clone();
    node
}

/// Returns the condition Ready as of now. Each call uses another second.
pub fn is(ready: &str) -> Value {
    use std::sync::atomic::{AtomicI64, Ordering};
    static SECOND: AtomicI64 = AtomicI64::new(1_800_000_000);
    let since = jiff::Timestamp::from_second(SECOND.fetch_add(1, Ordering::SeqCst)).unwrap().to_string();
    let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": since});
    json!({"status": {"conditions": if ready.is_empty() { json!([]) } else { json!([condition]) }}})
}
