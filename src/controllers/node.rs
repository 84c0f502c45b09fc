//! The node controller (`cloud-node-controller`): initialises nodes and keeps their addresses true.
//!
//! The driver. Changes of Nodes, changes of instances and a period become names in a queue; workers take them while
//! this process leads. A standby holds no queue: whoever becomes the leader looks at every node.

pub mod apply;
pub mod metrics;
pub mod observe;
pub mod plan;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::cloud::{CloudProvider, InstanceEvent, InstancesV2, Reason, adapter, node};
use crate::controllers::reasons::Reasons;
use crate::controllers::{Context, Unsupported, reason_of, reference};
use crate::kubernetes::client::{CALL_LIMIT, CallError, limited};
use crate::kubernetes::events::{EventType, Recorder};
use crate::kubernetes::leader_election::Leadership;
use crate::kubernetes::stores::{NodeEvent, Nodes};
use crate::runtime::logging::chain;
use crate::runtime::queue::{Backoff, Priority, Queue, Work};
use crate::runtime::tasks::{BoxError, contain};
use metrics::Metrics;
use observe::{Observed, observe};
use plan::{Held, Outcome, Plan, Retry, plan};

/// The component in Events.
const COMPONENT: &str = "cloud-node-controller";

/// A node that fails is looked at again after this, twice this, and so on up to a minute.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(500), max: Duration::from_secs(60) };

/// How often a node is planned anew because somebody else changed it meanwhile, before it goes back into the queue.
const ATTEMPTS: u32 = 5;

/// The shortest pause before such an attempt; the longest is twice that.
const CONFLICT_PAUSE: Duration = Duration::from_millis(50);

/// A shorter period would leave no time for anything else.
const SHORTEST_PERIOD: Duration = Duration::from_millis(100);

/// What the flags say about this controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `--concurrent-node-syncs`: nodes worked on at the same time.
    pub workers: NonZeroUsize,
    /// `--node-status-update-frequency`: every node is looked at at least this often; at least 100 ms.
    pub period: Duration,
    /// What nodes are to look like.
    pub policy: Policy,
}

/// What nodes are to look like, as far as the flags say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// `--node-labels`: set at initialisation where the key does not exist.
    pub node_labels: BTreeMap<String, String>,
    /// `--zone-labels`
    pub zone_labels: LabelMode,
    /// `--instance-type`
    pub instance_type: LabelMode,
    /// `--adopt-untainted-nodes`: also nodes without taint and provider ID are initialised.
    pub adopts_untainted_nodes: bool,
}

/// How long the cloud decides about a label of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelMode {
    /// At initialisation, and while the node has none.
    #[default]
    Init,
    /// Always.
    Follow,
}

/// The controller. [`NodeController::run`] is its task.
pub struct NodeController {
    settings: Settings,
    leadership: Leadership,
    sync: Arc<Sync>,
}

impl NodeController {
    /// Fails when the provider has no instances.
    pub fn new(context: Context, settings: Settings) -> Result<Self, Unsupported> {
        let provider = context.provider;
        let instances = adapter::instances_v2_of(&*provider)
            .ok_or_else(|| Unsupported { provider: provider.provider_name(), capability: "instances" })?;
        let metrics = Metrics::new();
        let sync = Sync {
            store: context.nodes,
            api: Api::all(context.write),
            recorder: context.recorder.for_component(COMPONENT),
            provider,
            instances,
            reasons: Reasons::new(metrics.held()),
            metrics,
        };
        Ok(Self { settings, leadership: context.leadership, sync: Arc::new(sync) })
    }

    /// Adds this controller's series to `registry`.
    pub fn register(&self, registry: &prometheus::Registry) -> Result<(), prometheus::Error> {
        self.sync.metrics.register(registry)
    }

    /// Works whenever this process leads, until `stop`.
    pub async fn run(self, stop: CancellationToken) -> Result<(), BoxError> {
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = self.leadership.wait_until_leader() => {}
            }
            tokio::select! {
                // What waits or runs is dropped with this future.
                () = self.leadership.wait_until_lost() => self.sync.reasons.forget_all(),
                () = self.lead(&stop) => return Ok(()),
            }
        }
    }

    /// Works until `stop`, then finishes what is in hand.
    async fn lead(&self, stop: &CancellationToken) {
        let queue = Queue::new(BACKOFF);
        let workers = (0..self.settings.workers.get()).map(|_| self.work(&queue));
        let feed = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.feed(&queue) => {}
            }
            queue.close();
        };
        tokio::join!(feed, join_all(workers));
    }

    /// Turns events and the period into names. Never ends.
    async fn feed(&self, queue: &Queue<String>) {
        let mut node_events = self.sync.store.subscribe();
        let mut instance_events: BoxStream<'static, InstanceEvent> = match self.sync.provider.instance_events() {
            Some(events) => events.subscribe().chain(futures::stream::pending()).boxed(),
            None => futures::stream::pending().boxed(),
        };
        let length = self.settings.period.max(SHORTEST_PERIOD);
        let mut period = interval(length);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(event) = node_events.next() => match event {
                    NodeEvent::Applied(name) | NodeEvent::Deleted(name) => self.sync.enqueue(queue, name),
                    NodeEvent::All => self.sync.enqueue_all(queue),
                },
                Some(event) = instance_events.next() => match event {
                    InstanceEvent::Node(name) => self.sync.enqueue(queue, name),
                    InstanceEvent::All => self.sync.enqueue_all(queue),
                },
                _ = period.tick() => self.sync.enqueue_spread(queue, length),
            }
        }
    }

    async fn work(&self, queue: &Queue<String>) {
        while let Some(name) = queue.next().await {
            let sync = Arc::clone(&self.sync);
            let owned = name.clone();
            match contain(async move { sync.sync(&owned).await }).await {
                Ok(result) => self.conclude(queue, &name, result),
                Err(panic) => {
                    self.sync.metrics.panicked();
                    if self.sync.reasons.set(&name, Reason::Panic) {
                        tracing::error!(node = %*name, "looking at the node failed: {panic}");
                    }
                    queue.retry(name.clone());
                }
            }
        }
    }

    /// What comes next for a node: the one place that decides between waiting, retrying and being done.
    fn conclude(&self, queue: &Queue<String>, name: &Work<String>, result: Result<Outcome, CallError>) {
        let held = match result {
            Ok(Outcome::Settled) => {
                self.sync.metrics.synced(None);
                self.sync.reasons.clear(name);
                return queue.forget(name);
            }
            // The end of the term ends this worker.
            Err(error) if error.is_not_leader() => return,
            Ok(Outcome::Held(held)) => held,
            Err(error) => {
                Held { reason: reason_of(&error), message: chain(&error), retry: Retry::Backoff, is_quiet: false }
            }
        };
        self.sync.metrics.synced(Some(held.reason));
        let is_news = self.sync.reasons.set(name, held.reason);
        if is_news && !held.is_quiet {
            tracing::warn!(node = %**name, reason = %held.reason, "node left alone: {}", held.message);
        }
        match held.retry {
            Retry::Backoff => drop(queue.retry((*name).clone())),
            Retry::After(delay) => queue.add_after((*name).clone(), delay),
            Retry::Period => queue.forget(name),
        }
    }
}

/// What one look at a node needs.
struct Sync {
    store: Nodes,
    api: Api<Node>,
    recorder: Recorder,
    provider: Arc<dyn CloudProvider>,
    instances: Arc<dyn InstancesV2>,
    metrics: Metrics,
    reasons: Reasons,
}

impl Sync {
    fn enqueue(&self, queue: &Queue<String>, name: String) {
        // When many wait, the control plane comes first: the others need it to become ready.
        match self.store.get(&name) {
            Some(node) if node::is_control_plane(&node) => queue.add_with_priority(name, Priority::First),
            _ => queue.add_with_priority(name, Priority::Normal),
        }
    }

    fn enqueue_all(&self, queue: &Queue<String>) {
        for node in self.store.list() {
            self.enqueue(queue, node::name(&node).to_owned());
        }
    }

    /// Every node once within `period`, evenly, so that the provider is not asked about all of them at once.
    fn enqueue_spread(&self, queue: &Queue<String>, period: Duration) {
        let nodes = self.store.list();
        let step = period.div_f64(nodes.len().max(1) as f64);
        let mut delay = Duration::ZERO;
        for node in nodes {
            queue.add_after(node::name(&node).to_owned(), delay);
            delay += step;
        }
    }

    /// Looks at one node and makes it what it should be.
    async fn sync(&self, name: &str) -> Result<Outcome, CallError> {
        let mut observed = observe(self.store.get(name), &*self.provider, &*self.instances).await;
        let mut attempt = 1;
        loop {
            let plan = plan(&observed);
            let Observed::Ours { node, .. } = &observed else { return Ok(plan.outcome) };
            match apply::apply(&self.api, node, &plan.actions).await {
                Ok(written) => {
                    self.report(&written, &plan);
                    return Ok(plan.outcome);
                }
                Err(error) if error.is_not_found() => return Ok(Outcome::Settled),
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => {
                    tracing::debug!(node = name, attempt, "{}", chain(&error));
                }
                Err(error) => return Err(error),
            }
            attempt += 1;
            tokio::time::sleep(CONFLICT_PAUSE.mul_f64(1.0 + fastrand::f64())).await;
            observed = observe(self.read_live(name).await?, &*self.provider, &*self.instances).await;
        }
    }

    /// The node as the API server has it now; the cache may be what caused the conflict.
    async fn read_live(&self, name: &str) -> Result<Option<Arc<Node>>, CallError> {
        let node = limited(&format!("get node {name}"), CALL_LIMIT, self.api.get_opt(name)).await?;
        Ok(node.map(Arc::new))
    }

    fn report(&self, node: &Node, plan: &Plan) {
        let name = node::name(node);
        if plan.initialises() {
            let age = node
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(0.0, |created| jiff::Timestamp::now().duration_since(created.0).as_secs_f64().max(0.0));
            self.metrics.initialised(age);
            self.recorder.event(&reference(node), EventType::Normal, "Synced", "Node synced successfully");
            tracing::info!(node = name, provider_id = node::provider_id(node), age_seconds = age, "node initialised");
        } else if !plan.actions.is_empty() {
            tracing::info!(node = name, "node updated: {}", described(plan));
        }
        for note in &plan.notes {
            tracing::warn!(node = name, "{note}");
        }
    }
}

fn described(plan: &Plan) -> String {
    plan.actions.iter().map(plan::Action::describe).collect::<Vec<_>>().join(", ")
}
