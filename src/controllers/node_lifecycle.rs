//! The node-lifecycle controller (`cloud-node-lifecycle-controller`): deletes Nodes whose VM is confirmed deleted, and
//! taints Nodes whose VM is shut down.
//!
//! A `Ready` Node without a taint of this controller needs no provider call, because the condition `Ready` shows that
//! the VM runs.

pub mod apply;
pub mod candidacy;
pub mod deletion_history;
pub mod deletion_pause;
pub mod deletion_policy;
mod metrics;
pub mod pause_monitor;
pub mod plan;
pub mod reason;
pub mod recent_deletions;
mod reconciler;
pub mod retries;
pub mod unreachable;

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use parking_lot::Mutex;

use crate::controllers::decisions::{DecisionRecorder, SubjectKind};
use crate::controllers::driver::{Controller, Event, Reconciler, Requeue, Spec};
use crate::controllers::instances::BoundedInstances;
use crate::controllers::reason_tracker::ReasonTracker;
use crate::controllers::{BlockedObject, Context, UnsupportedController};
use crate::kubernetes::call::CallError;
use crate::kubernetes::stores::Nodes;
use crate::runtime::tasks::PanicError;
use metrics::NodeLifecycleMetrics;
use pause_monitor::PauseMonitor;
use recent_deletions::{NodeDeletion, RecentDeletions};
pub use reconciler::{
    AllowanceError, DeletionFacts, LifecycleInputs, LifecyclePreview, NodeDeletionFacts, NodeLifecycleReconciler,
    first_deletion_facts, first_preview, needs_presence,
};
use reconciler::{LifecycleOutcome, LifecycleState};

const WORKERS: usize = 8;

/// The settings of this controller, from the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LifecycleSettings {
    /// `--node-monitor-period`: interval of the periodic reconciles of Nodes that are not `Ready` or have a taint of
    /// this controller.
    pub period: Duration,
    /// `--node-deletion`: whether Nodes with absent VMs are deleted.
    pub deletion: DeletionMode,
    /// `--node-deletion-grace`: time for which a Node must be `Ready=Unknown` with an absent VM before the Node is
    /// deleted.
    pub grace: Duration,
    /// `--node-deletion-limit`: maximum number of Nodes that may be deleted or get the out-of-service taint within a
    /// window.
    pub limit: Limit,
    /// `--node-deletion-mass-hold`: length of the pause of deletions when many VMs are absent at the same time.
    pub mass_hold: Duration,
    /// `--out-of-service-after`: time after which a `Ready=Unknown` Node whose VM is powered off gets the
    /// out-of-service taint; `None` for never.
    pub out_of_service_after: Option<Duration>,
}

/// The handling of Nodes with absent VMs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeletionMode {
    /// The Nodes are deleted.
    Enforce,
    /// The deletions are only reported.
    DryRun,
    /// The Nodes are not deleted.
    Off {
        /// The flag or variable that turns deletion off.
        reason: &'static str,
    },
}

/// Limit of the deletions within a window: the larger of `nodes` and `percent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Number of Nodes.
    pub nodes: u32,
    /// Percentage of the Nodes of this provider, rounded down.
    pub percent: u32,
    /// Length of the window. Deletions before the window do not count.
    pub window: Duration,
}

/// The deletion of Nodes in the current leadership term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LifecycleStatus {
    /// Whether Nodes with absent VMs are deleted.
    pub mode: DeletionMode,
    /// Number of Nodes that may be deleted now within the limit.
    pub allowance: usize,
    /// The limit: maximum number of Nodes that may be deleted within the window.
    pub capacity: usize,
    /// Whether deletions pause because many VMs are absent.
    pub is_mass_held: bool,
    /// Number of Nodes whose VM may be absent, and about which the provider has not answered yet.
    pub unanswered: usize,
    /// The Nodes that are not deleted, or not taken out of service, for a reason; ordered by name.
    pub blocked: Vec<BlockedObject>,
    /// The last deletion by this process, also in an earlier term.
    pub last_deletion: Option<NodeDeletion>,
}

/// Creates the controller, which reads `pauses` right before each deletion. Fails if the provider has no instances.
pub fn controller(
    context: Context,
    nodes: Nodes,
    pauses: Arc<PauseMonitor>,
    settings: LifecycleSettings,
) -> Result<Controller<NodeLifecycleReconciler>, UnsupportedController> {
    let instances = BoundedInstances::of(context.provider)?;
    let metrics = NodeLifecycleMetrics::default();
    let spec = Spec {
        queue: "NodeLifecycle",
        workers: WORKERS,
        // Without a refresh, a taint could be based on an outdated power state.
        instances: Some(instances.clone()),
        metrics: vec![Box::new(metrics.clone()), Box::new(pauses.metric())],
        ..Spec::new("cloud-node-lifecycle", context.leadership, settings.period, vec![Arc::new(nodes.clone())])
    };
    let (api, recorder) = (Api::all(context.write), context.recorder.for_component("cloud-node-lifecycle-controller"));
    let reasons = Arc::new(ReasonTracker::new(metrics.blocked.clone()));
    let deletions = Arc::<RecentDeletions>::default();
    let (leadership, decisions) = (spec.leadership.clone(), context.decisions);
    Ok(Controller::new(spec, move || {
        if let DeletionMode::Off { reason: because } = settings.deletion {
            tracing::info!("node deletion is off, even for Nodes whose VM is gone: {because}");
        }
        let term = NodeLifecycleReconciler {
            store: nodes.clone(),
            api: api.clone(),
            recorder: recorder.clone(),
            instances: instances.clone(),
            settings: settings.clone(),
            reasons: Arc::clone(&reasons),
            deletions: Arc::clone(&deletions),
            pauses: Arc::clone(&pauses),
            decisions: DecisionRecorder::new(decisions.clone(), SubjectKind::Deletion, leadership.term_number()),
            metrics: metrics.clone(),
            state: Mutex::new(LifecycleState::new(&settings)),
        };
        term.update_metrics();
        term
    }))
}

impl Reconciler for NodeLifecycleReconciler {
    type Outcome = Result<LifecycleOutcome, CallError>;

    fn keys_of(&self, event: Event) -> Vec<String> {
        match event {
            Event::Object(_, name) => {
                // The facts are recorded before the reconcile, because decisions about other Nodes depend on them.
                self.observe(&name);
                vec![name]
            }
            Event::AllObjects(_) => self.observe_all(),
            Event::Instance(name) => {
                self.state.lock().policy.expire(&name);
                vec![name]
            }
            Event::AllInstances => {
                self.state.lock().policy.expire_all();
                self.observe_all()
            }
            Event::Period => {
                let names = self.tick();
                self.update_metrics();
                names
            }
        }
    }

    async fn reconcile(self: Arc<Self>, name: String) -> Self::Outcome {
        self.sync(&name).await
    }

    /// Reports the outcome of a reconcile and decides when the Node is reconciled again.
    async fn conclude(self: &Arc<Self>, name: &str, outcome: Result<Self::Outcome, PanicError>) -> Requeue {
        self.update_metrics();
        let outcome = match outcome {
            Ok(Ok(outcome)) => outcome,
            // Leadership is lost, so the driver stops this worker.
            Ok(Err(error)) if error.is_not_leader() => return Requeue::PERIOD,
            Ok(Err(error)) => LifecycleOutcome::failed(&error),
            Err(panic) => {
                self.metrics.panics.inc();
                LifecycleOutcome::panicked(&panic)
            }
        };
        match &outcome.blocked {
            None => self.clear(name),
            Some(blocked) => {
                if self.reasons.set(name, blocked.reason, None) && !blocked.is_quiet {
                    self.report(name, blocked);
                }
            }
        }
        outcome.next
    }

    fn end(&self) {
        self.reasons.forget_all();
        self.metrics.guard(None);
    }
}
