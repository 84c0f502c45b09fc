//! The node-lifecycle controller (`cloud-node-lifecycle-controller`): removes Nodes whose machine is proved to be gone,
//! and says on the others that their machine is shut down.
//!
//! The driver. Changes of Nodes, changes of instances and a period become names in a queue; workers take them while
//! this process leads. A Ready node without a taint of ours costs nothing: a kubelet that reports is the best proof.

pub mod answers;
pub mod apply;
mod deletion;
pub mod guard;
mod look;
pub mod metrics;
pub mod observe;
pub mod plan;
pub mod retries;
pub mod unreachable;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::BoxStream;
use kube::Api;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::base::backoff::Backoff;
use crate::cloud::{InstanceEvent, Reason};
use crate::controllers::instances::Instances;
use crate::controllers::reasons::Reasons;
use crate::controllers::{Context, Unsupported, reference};
use crate::kubernetes::client::CallError;
use crate::kubernetes::leader_election::Leadership;
use crate::kubernetes::stores::NodeEvent;
use crate::runtime::metrics::Registry;
use crate::runtime::queue::{Queue, Work};
use crate::runtime::tasks::{BoxError, contain};
use look::{Held, Looks, Next, Outcome, Term};
use metrics::Metrics;

/// The component in Events.
const COMPONENT: &str = "cloud-node-lifecycle-controller";

/// Nodes looked at at the same time.
const WORKERS: usize = 8;

/// A node that fails is looked at again after this, twice this, and so on up to a minute.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(500), Duration::from_secs(60)).shortened_by(0.5);

/// A shorter period would leave no time for anything else.
const SHORTEST_PERIOD: Duration = Duration::from_millis(100);
/// The pause between two looks at what every Node says. In between, that is known from the events.
const ALL_NOTED_AGAIN: Duration = Duration::from_secs(60);

/// What the flags say about this controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `--node-monitor-period`: pause between two looks at every node that is not Ready, beside the events.
    pub period: Duration,
    /// `--node-deletion`
    pub deletion: Deletion,
    /// `--node-deletion-grace`: how long a node has to be Ready=Unknown and proved absent before its Node is deleted.
    pub grace: Duration,
    /// `--node-deletion-limit`
    pub limit: Limit,
    /// `--node-deletion-mass-hold`: how long nothing is deleted when many machines are gone at once.
    pub mass_hold: Duration,
    /// `--out-of-service-after`; nothing when it is not asked for.
    pub out_of_service_after: Option<Duration>,
}

/// Whether Nodes are deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// They are.
    Enforce,
    /// It is said what would be deleted, and nothing is.
    DryRun,
    /// They are not.
    Off {
        /// The flag or variable that says so.
        because: &'static str,
    },
}

/// How many Nodes may be deleted: the larger of the two, within the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Nodes.
    pub nodes: u32,
    /// Percent of all nodes, rounded down.
    pub percent: u32,
    /// In which time the allowance is filled again from nothing.
    pub window: Duration,
}

/// The controller. [`NodeLifecycleController::run`] is its task.
pub struct NodeLifecycleController {
    leadership: Leadership,
    looks: Arc<Looks>,
    reasons: Reasons,
}

impl NodeLifecycleController {
    /// Fails when the provider has no instances.
    pub fn new(context: Context, settings: Settings) -> Result<Self, Unsupported> {
        let metrics = Metrics::new();
        let reasons = Reasons::new(metrics.held());
        let looks = Looks {
            store: context.nodes,
            api: Api::all(context.write),
            recorder: context.recorder.for_component(COMPONENT),
            instances: Instances::of(context.provider)?,
            settings,
            metrics,
        };
        Ok(Self { leadership: context.leadership, looks: Arc::new(looks), reasons })
    }

    /// Adds this controller's series to `registry`.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        self.looks.metrics.register(registry)
    }

    /// Works whenever this process leads, until `stop`.
    pub async fn run(self, stop: CancellationToken) -> Result<(), BoxError> {
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = self.leadership.wait_until_leader() => {}
            }
            if let Deletion::Off { because } = self.looks.settings.deletion {
                tracing::info!("no Node is deleted, whatever becomes of its machine: {because}");
            }
            tokio::select! {
                // What waits or runs is dropped with this future, and with it all that was known.
                () = self.leadership.wait_until_lost() => {
                    self.reasons.forget_all();
                    self.looks.metrics.guard(None);
                }
                () = self.lead(&stop) => return Ok(()),
            }
        }
    }

    /// Works until `stop`, then finishes what is in hand.
    async fn lead(&self, stop: &CancellationToken) {
        let _running = self.looks.metrics.running().begin();
        let queue = Queue::shown(BACKOFF, self.looks.metrics.queue());
        let term = Arc::new(Term::new(&self.looks.settings));
        let workers = (0..WORKERS).map(|_| self.work(&queue, &term));
        let feed = async {
            tokio::select! {
                () = stop.cancelled() => {}
                () = async {
                    // Else a taint would follow a power state of before.
                    self.looks.instances.confirm().await;
                    self.feed(&queue, &term).await;
                } => {}
            }
            queue.close();
        };
        tokio::join!(feed, join_all(workers));
    }

    /// Turns events and the period into names. Never ends.
    async fn feed(&self, queue: &Queue<String>, term: &Term) {
        let looks = &self.looks;
        let mut node_events = looks.store.subscribe();
        let mut instance_events: BoxStream<'static, InstanceEvent> = match looks.instances.provider.instance_events() {
            Some(events) => events.subscribe().chain(futures::stream::pending()).boxed(),
            None => futures::stream::pending().boxed(),
        };
        let length = looks.settings.period.max(SHORTEST_PERIOD);
        let mut period = interval(length);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut all_noted = Instant::now();
        loop {
            tokio::select! {
                Some(event) = node_events.next() => match event {
                    NodeEvent::Applied(name) | NodeEvent::Deleted(name) => {
                        // At once: whoever decides about another node has to know of this one.
                        looks.note(term, &name);
                        queue.add(name);
                    }
                    NodeEvent::All => looks.note_all(term).into_iter().for_each(|name| queue.add(name)),
                },
                Some(event) = instance_events.next() => match event {
                    InstanceEvent::Node(name) => {
                        term.lock().answers.forget(&name);
                        queue.add(name);
                    }
                    InstanceEvent::All => {
                        term.lock().answers.forget_all();
                        looks.note_all(term).into_iter().for_each(|name| queue.add(name));
                    }
                },
                _ = period.tick() => {
                    // Events have noted what each Node is; going through all of them only heals what they missed.
                    let names = if all_noted.elapsed() >= ALL_NOTED_AGAIN {
                        all_noted = Instant::now();
                        looks.note_all(term)
                    } else {
                        looks.busy(term)
                    };
                    // A node that failed waits for its backoff.
                    let names = names.into_iter().filter(|name| !queue.is_retried(name)).collect();
                    spread(queue, names, length);
                    looks.show(term);
                }
            }
        }
    }

    async fn work(&self, queue: &Queue<String>, term: &Arc<Term>) {
        while let Some(name) = queue.next().await {
            let (looks, known, owned) = (Arc::clone(&self.looks), Arc::clone(term), name.clone());
            let outcome = contain(async move { looks.look(&known, &owned).await }).await;
            // Not in the task of the look: a task that is stopped may run on for a moment, when the term is over.
            self.looks.show(term);
            match outcome {
                Ok(result) => self.conclude(queue, &name, result),
                Err(panic) => {
                    self.looks.metrics.panicked();
                    if self.reasons.set(&name, Reason::Panic, None) {
                        tracing::error!(node = %*name, "looking at the node's machine failed: {panic}");
                    }
                    queue.retry(name.clone());
                }
            }
        }
    }

    /// What comes next for a node: the one place that decides between waiting, retrying and being done.
    fn conclude(&self, queue: &Queue<String>, name: &Work<String>, result: Result<Outcome, CallError>) {
        let outcome = match result {
            Ok(outcome) => outcome,
            // The end of the term ends this worker.
            Err(error) if error.is_not_leader() => return,
            Err(error) => Outcome::failed(&error),
        };
        match &outcome.held {
            None => drop(self.reasons.clear(name)),
            Some(held) => {
                if self.reasons.set(name, held.reason, None) && !held.is_quiet {
                    self.tell(name, held);
                }
            }
        }
        match outcome.next {
            Next::Backoff => drop(queue.retry((*name).clone())),
            Next::After(delay) => {
                queue.forget(name);
                queue.add_after((*name).clone(), delay);
            }
            Next::Period => queue.forget(name),
        }
    }

    /// Says once why something is not done.
    fn tell(&self, name: &str, held: &Held) {
        let message = format!("{}: {}", held.what, held.message);
        if let Some(node) = self.looks.store.get(name) {
            self.looks.recorder.event(&reference(&node), held.event_type(), held.reason.as_str(), &message);
        }
        tracing::info!(node = name, reason = %held.reason, "{message}");
    }
}

/// Every node once within `period`, evenly, so that the provider is not asked about all of them at once.
fn spread(queue: &Queue<String>, names: Vec<String>, period: Duration) {
    let step = period.div_f64(names.len().max(1) as f64);
    let mut delay = Duration::ZERO;
    for name in names {
        queue.add_after(name, delay);
        delay += step;
    }
}
