//! The node controller (`cloud-node-controller`): initialises nodes and keeps their addresses true.
//!
//! The driver: changes of Nodes, changes of instances and a period become names in a queue; workers take them while
//! this process leads. A standby holds no queue: whoever becomes the leader looks at every node.

pub mod apply;
mod census;
pub mod metrics;
mod moves;
pub mod observe;
pub mod plan;
mod remembered;
mod sync;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::BoxStream;
use kube::Api;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use crate::base::backoff::Backoff;
use crate::cloud::{InstanceEvent, Reason, node};
use crate::controllers::instances::Instances;
use crate::controllers::reasons::Reasons;
use crate::controllers::{Context, Unsupported};
use crate::kubernetes::client::CallError;
use crate::kubernetes::leader_election::Leadership;
use crate::kubernetes::stores::NodeEvent;
use crate::runtime::metrics::Registry;
use crate::runtime::queue::{Priority, Queue, Work};
use crate::runtime::tasks::{BoxError, contain};
use census::Census;
use metrics::Metrics;
use plan::{Held, Outcome, Retry};
use remembered::Remembered;
use sync::Sync;

/// The component in Events.
const COMPONENT: &str = "cloud-node-controller";

/// A node that fails is looked at again after this, twice this, and so on up to a minute.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(60)).shortened_by(0.5);

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

/// For how long a node waits to be initialised before it says why.
const CONDITION_AFTER: Duration = Duration::from_secs(30);

/// What nodes are to look like, as far as the flags say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `--node-labels`: set at initialisation where the key does not exist.
    pub node_labels: BTreeMap<String, String>,
    /// `--zone-labels`
    pub zone_labels: LabelMode,
    /// `--instance-type`
    pub instance_type: LabelMode,
    /// `--adopt-untainted-nodes`: also nodes without taint and provider ID are initialised.
    pub adopts_untainted_nodes: bool,
    /// A node that waits to be initialised for this long carries the condition that says why. No flag; 30 s.
    pub condition_after: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            node_labels: BTreeMap::new(),
            zone_labels: LabelMode::Init,
            instance_type: LabelMode::Init,
            adopts_untainted_nodes: false,
            condition_after: CONDITION_AFTER,
        }
    }
}

/// How long the cloud decides about a label of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelMode {
    /// At initialisation only.
    #[default]
    Init,
    /// At initialisation, and while the node has none.
    Fill,
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
        let metrics = Metrics::new();
        let sync = Sync {
            store: context.nodes,
            api: Api::all(context.write),
            recorder: context.recorder.for_component(COMPONENT),
            instances: Instances::of(context.provider)?,
            policy: settings.policy.clone(),
            reasons: Arc::new(Reasons::new(metrics.held())),
            remembered: Arc::new(Remembered::new(metrics.differing())),
            moves: Arc::default(),
            metrics,
        };
        Ok(Self { settings, leadership: context.leadership, sync: Arc::new(sync) })
    }

    /// Adds this controller's series to `registry`.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(Census::new(self.sync.store.clone())))?;
        self.sync.metrics.register(registry)
    }

    /// Works whenever this process leads, until `stop`.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), BoxError> {
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = self.leadership.wait_until_leader() => {}
            }
            tokio::select! {
                // What waits or runs is dropped with this future.
                () = self.leadership.wait_until_lost() => {
                    self.sync.reasons.forget_all();
                    self.sync.remembered.forget_all();
                    self.sync = Arc::new(self.sync.for_next_term());
                }
                () = self.lead(&stop) => return Ok(()),
            }
        }
    }

    /// Works until `stop`, then finishes what is in hand.
    async fn lead(&self, stop: &CancellationToken) {
        let _running = self.sync.metrics.running().begin();
        let queue = Queue::shown(BACKOFF, self.sync.metrics.queue());
        let workers = (0..self.settings.workers.get()).map(|_| self.work(&queue));
        let feed = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = async {
                    self.sync.instances.confirm().await;
                    self.feed(&queue).await;
                } => {}
            }
            queue.close();
        };
        tokio::join!(feed, join_all(workers));
    }

    /// Turns events and the period into names. Never ends.
    async fn feed(&self, queue: &Queue<String>) {
        let mut node_events = self.sync.store.subscribe();
        let mut instance_events: BoxStream<'static, InstanceEvent> =
            match self.sync.instances.provider.instance_events() {
                Some(events) => events.subscribe().chain(futures::stream::pending()).boxed(),
                None => futures::stream::pending().boxed(),
            };
        let length = self.settings.period.max(SHORTEST_PERIOD);
        // The first thing a subscription says is to look at everything.
        let mut period = interval_at(Instant::now() + length, length);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(event) = node_events.next() => match event {
                    NodeEvent::Applied(name) | NodeEvent::Deleted(name) => self.enqueue(queue, name),
                    NodeEvent::All => self.enqueue_all(queue),
                },
                Some(event) = instance_events.next() => match event {
                    InstanceEvent::Node(name) => self.enqueue(queue, name),
                    InstanceEvent::All => self.enqueue_all(queue),
                },
                name = self.sync.moves.next() => self.enqueue(queue, name),
                _ = period.tick() => self.enqueue_spread(queue, length),
            }
        }
    }

    fn enqueue(&self, queue: &Queue<String>, name: String) {
        // When many wait, the control plane comes first: the others need it to become ready.
        match self.sync.store.get(&name) {
            Some(node) => self.enqueue_node(queue, &node),
            None => queue.add_with_priority(name, Priority::Normal),
        }
    }

    fn enqueue_node(&self, queue: &Queue<String>, node: &k8s_openapi::api::core::v1::Node) {
        let priority = if node::is_control_plane(node) { Priority::First } else { Priority::Normal };
        queue.add_with_priority(node::name(node).to_owned(), priority);
    }

    fn enqueue_all(&self, queue: &Queue<String>) {
        for node in self.sync.store.list() {
            self.enqueue_node(queue, &node);
        }
        // Nobody may have heard that a node is gone; the look at it forgets it.
        let known = self.sync.reasons.nodes().into_iter().chain(self.sync.remembered.nodes());
        for name in known.filter(|name| !self.sync.store.contains(name)) {
            queue.add(name);
        }
    }

    /// Every node once within `period`, evenly, so that the provider is not asked about all of them at once.
    fn enqueue_spread(&self, queue: &Queue<String>, period: Duration) {
        let nodes = self.sync.store.keys();
        let step = period.div_f64(nodes.len().max(1) as f64);
        let mut delay = Duration::ZERO;
        for name in nodes {
            queue.add_after(name, delay);
            delay += step;
        }
    }

    async fn work(&self, queue: &Queue<String>) {
        while let Some(name) = queue.next().await {
            let result = match contain(self.look(&name)).await {
                Ok(result) => result,
                Err(panic) => {
                    self.sync.metrics.panicked();
                    let message = format!("looking at the node failed: {panic}");
                    let held = Outcome::Held(Held::new(Reason::Panic, message.clone(), Retry::Backoff));
                    contain(self.tell_of_panic(&name, message)).await.unwrap_or(Ok(held))
                }
            };
            self.conclude(queue, &name, result);
        }
    }

    fn look(&self, name: &str) -> impl Future<Output = Result<Outcome, CallError>> + Send + 'static {
        let (sync, name) = (Arc::clone(&self.sync), name.to_owned());
        async move { sync.sync(&name).await }
    }

    fn tell_of_panic(
        &self,
        name: &str,
        message: String,
    ) -> impl Future<Output = Result<Outcome, CallError>> + Send + 'static {
        let (sync, name) = (Arc::clone(&self.sync), name.to_owned());
        async move { sync.panicked(&name, message).await }
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
            Err(_) | Ok(Outcome::Superseded) => return,
            Ok(Outcome::Held(held)) => held,
        };
        self.sync.metrics.synced(Some(held.reason));
        let is_uninitialized = self.sync.store.get(name).is_some_and(|node| node::is_uninitialized(&node));
        let is_news = self.sync.reasons.set(name, held.reason, Some(Metrics::initialized(!is_uninitialized)));
        match held.reason {
            _ if !is_news || held.is_quiet => {}
            Reason::Panic => tracing::error!(node = %**name, "{}", held.message),
            reason if is_uninitialized => {
                tracing::warn!(node = %**name, %reason, "cannot initialize node: {}", held.message);
            }
            reason => tracing::warn!(node = %**name, %reason, "cannot update node: {}", held.message),
        }
        match held.retry {
            Retry::Backoff => drop(queue.retry((*name).clone())),
            Retry::After(delay) => queue.add_after((*name).clone(), delay),
            Retry::Period => queue.forget(name),
        }
        if let Some(delay) = held.tell_after {
            queue.add_after((*name).clone(), delay);
        }
    }
}
