//! The node controller (`cloud-node-controller`): initializes Nodes and keeps their addresses up to date.
//!
//! A standby process keeps no state. A new leader reconciles every Node.

pub mod apply;
mod memory;
mod metrics;
pub mod observe;
pub mod plan;
pub mod reason;
mod reconciler;
mod turns;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Api;

use crate::cloud::node;
use crate::controllers::decisions::{DecisionRecorder, GONE, SETTLED, SubjectKind};
use crate::controllers::driver::{Controller, Event, Reconciler, Requeue, Spec};
use crate::controllers::instances::BoundedInstances;
use crate::controllers::reason_tracker::ReasonTracker;
use crate::controllers::{BlockedObject, Context, UnsupportedController, reference};
use crate::kubernetes::call::CallError;
use crate::kubernetes::events::EventType;
use crate::kubernetes::stores::Nodes;
use crate::runtime::queue::Priority;
use crate::runtime::tasks::{PanicError, contain};
use memory::NodeMemory;
use metrics::{NodeMetrics, OldestUninitialized};
use plan::{NextStep, NodeBlocked};
pub use reconciler::NodeReconciler;
pub use reconciler::preview::{NodePreview, first_plan};
use turns::DeferredWrites;

/// The settings of this controller, from the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// `--concurrent-node-syncs`: number of Nodes reconciled concurrently.
    pub workers: NonZeroUsize,
    /// `--node-status-update-frequency`: longest interval between two reconciles of a Node; at least 100 ms.
    pub period: Duration,
    /// The rules for the desired state of Nodes.
    pub policy: Policy,
}

const CONDITION_AFTER: Duration = Duration::from_secs(30);

/// The rules for the desired state of Nodes. All rules except `condition_after` come from flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `--node-labels`: labels that a Node gets at initialization if it lacks the key.
    pub node_labels: BTreeMap<String, String>,
    /// The label keys of `--topology-labels`. The flag `--node-labels` does not set these keys.
    pub topology_labels: BTreeSet<String>,
    /// `--node-labels-on`: the Nodes that get missing labels of `--node-labels`.
    pub node_labels_on: NodeLabelsOn,
    /// `--zone-labels`: how zone and region labels follow the cloud.
    pub zone_labels: LabelMode,
    /// `--instance-type`: how the labels of the instance type follow the cloud.
    pub instance_type: LabelMode,
    /// `--adopt-untainted-nodes`: whether Nodes with neither the uninitialized taint nor a provider ID are also
    /// initialized.
    pub adopts_untainted_nodes: bool,
    /// Time for which a Node waits for initialization before its condition reports the reason; 30 s. No flag sets this
    /// time.
    pub condition_after: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            node_labels: BTreeMap::new(),
            topology_labels: BTreeSet::new(),
            node_labels_on: NodeLabelsOn::Join,
            zone_labels: LabelMode::Init,
            instance_type: LabelMode::Init,
            adopts_untainted_nodes: false,
            condition_after: CONDITION_AFTER,
        }
    }
}

/// The Nodes that get missing labels of `--node-labels`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeLabelsOn {
    /// Nodes that are being initialized.
    #[default]
    Join,
    /// All Nodes, including initialized Nodes.
    All,
}

/// The occasions on which a label of a Node gets the cloud's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelMode {
    /// At initialization only.
    #[default]
    Init,
    /// At initialization, and later if the Node lacks the label.
    Fill,
    /// Always.
    Follow,
}

/// The Nodes in the current leadership term.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodesStatus {
    /// Number of cached Nodes.
    pub nodes: usize,
    /// Number of Nodes that were up to date at their last reconcile. The remaining Nodes are blocked, or wait for their
    /// first reconcile.
    pub settled: usize,
    /// The Nodes that cannot be brought up to date, ordered by name.
    pub blocked: Vec<BlockedObject>,
}

/// Creates the controller. Fails if the provider has no instances.
pub fn controller(
    context: Context,
    nodes: Nodes,
    settings: NodeSettings,
) -> Result<Controller<NodeReconciler>, UnsupportedController> {
    let instances = BoundedInstances::of(context.provider)?;
    let metrics = NodeMetrics::default();
    let reasons = Arc::new(ReasonTracker::new(metrics.blocked.clone()));
    let [all, uninitialized] = metrics::node_counts(&nodes);
    let oldest = OldestUninitialized::new(nodes.clone(), Arc::clone(&reasons));
    let spec = Spec {
        queue: "Nodes",
        workers: settings.workers.get(),
        instances: Some(instances.clone()),
        metrics: vec![Box::new(metrics.clone()), Box::new(all), Box::new(uninitialized), Box::new(oldest)],
        ..Spec::new("cloud-node", context.leadership, settings.period, vec![Arc::new(nodes.clone())])
    };
    let (api, recorder) = (Api::all(context.write), context.recorder.for_component("cloud-node-controller"));
    let (leadership, decisions) = (spec.leadership.clone(), context.decisions);
    Ok(Controller::new(spec, move || NodeReconciler {
        decisions: DecisionRecorder::new(decisions.clone(), SubjectKind::Node, leadership.term_number()),
        store: nodes.clone(),
        api: api.clone(),
        recorder: recorder.clone(),
        instances: instances.clone(),
        policy: settings.policy.clone(),
        metrics: metrics.clone(),
        reasons: Arc::clone(&reasons),
        memory: NodeMemory::new(metrics.differing.clone()),
        record_moves: DeferredWrites::new(turns::MOVES_PACE),
        label_moves: DeferredWrites::new(turns::LABELS_PACE),
        are_missing_labels_logged: AtomicBool::new(false),
    }))
}

impl Reconciler for NodeReconciler {
    type Outcome = Result<NextStep, CallError>;

    fn keys_of(&self, event: Event) -> Vec<String> {
        match event {
            Event::Object(_, name) | Event::Instance(name) => vec![name],
            Event::Period => self.store.keys(),
            Event::AllObjects(_) | Event::AllInstances => {
                if matches!(event, Event::AllObjects(_))
                    && !self.are_missing_labels_logged.swap(true, Ordering::Relaxed)
                {
                    self.log_missing_labels();
                }
                let mut names = self.store.keys();
                // Adds deleted Nodes, so that a missed deletion event does not leave their state behind.
                let known = self.reasons.keys().into_iter().chain(self.memory.nodes());
                names.extend(known.filter(|name| !self.store.contains(name)));
                names
            }
        }
    }

    /// Puts control plane Nodes first, because other Nodes cannot become `Ready` without the control plane.
    fn priority(&self, name: &str) -> Priority {
        let is_first = self.store.get(name).is_some_and(|node| node::is_control_plane(&node));
        if is_first { Priority::First } else { Priority::Normal }
    }

    /// Waits for the next Node with a turn for a deferrable write: the VM of the Node moved, or the Node lacks labels.
    async fn next_key(&self) -> String {
        tokio::select! {
            node = self.record_moves.next() => node,
            node = self.label_moves.next() => node,
        }
    }

    async fn reconcile(self: Arc<Self>, name: String) -> Self::Outcome {
        self.sync(&name).await
    }

    async fn conclude(self: &Arc<Self>, name: &str, outcome: Result<Self::Outcome, PanicError>) -> Requeue {
        match outcome {
            Ok(outcome) => next(self, name, outcome),
            Err(panic) => {
                self.metrics.panics.inc();
                let message = format!("the sync of the node failed: {panic}");
                let blocked = NextStep::Blocked(NodeBlocked::new(reason::Panic, message.clone(), Requeue::BACKOFF));
                let (sync, owned) = (Arc::clone(self), name.to_owned());
                let reported = contain(async move { sync.panicked(&owned, message).await }).await;
                next(self, name, reported.unwrap_or(Ok(blocked)))
            }
        }
    }

    fn end(&self) {
        self.reasons.forget_all();
        self.memory.forget_all();
    }
}

/// Reports the outcome of a sync and decides when the Node is reconciled again. No other function decides this.
fn next(sync: &NodeReconciler, name: &str, outcome: Result<NextStep, CallError>) -> Requeue {
    let blocked = match outcome {
        Ok(NextStep::Done) => {
            sync.metrics.synced(None);
            let exists = sync.store.contains(name);
            if let Some(before) = sync.reasons.clear(name) {
                let word = if exists { SETTLED } else { GONE };
                sync.decisions.record(name, word, &format!("blocked before by {before}"));
            }
            sync.memory.set_settled(name, exists);
            return Requeue::PERIOD;
        }
        // An error means lost leadership. The next event of the cache enqueues a superseded Node.
        Err(_) | Ok(NextStep::Superseded) => return Requeue::PERIOD,
        Ok(NextStep::Blocked(held)) => held,
    };
    sync.metrics.synced(Some(blocked.reason));
    sync.memory.set_settled(name, false);
    let node = sync.store.get(name);
    let is_uninitialized = node.as_ref().is_some_and(|node| node::is_uninitialized(node));
    let initialized = if is_uninitialized { "false" } else { "true" };
    let is_news = sync.reasons.set(name, blocked.reason, Some(initialized));
    sync.reasons.set_message(name, &blocked.message);
    if is_news && !blocked.is_quiet {
        sync.decisions.record(name, blocked.reason.as_str(), &blocked.message);
    }
    match blocked.reason {
        _ if !is_news || blocked.is_quiet => {}
        reason::Panic => tracing::error!(node = %name, "{}", blocked.message),
        reason if is_uninitialized => {
            tracing::warn!(node = %name, %reason, "cannot initialize node: {}", blocked.message)
        }
        reason => tracing::warn!(node = %name, %reason, "cannot update node: {}", blocked.message),
    }
    if let Some(node) = node.filter(|_| is_news && blocked.has_event) {
        sync.recorder.event(&reference(&*node), EventType::Warning, blocked.reason.as_str(), &blocked.message);
    }
    blocked.report_after.map_or(blocked.next, |delay| blocked.next.or_after(delay))
}
