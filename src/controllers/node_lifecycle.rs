//! The node-lifecycle controller (`cloud-node-lifecycle-controller`): removes Nodes whose machine is proved to be gone,
//! and says on the others that their machine is shut down.
//!
//! A Ready node without a taint of ours costs nothing: a kubelet that reports is the best proof.

pub mod apply;
pub mod deletion_policy;
mod metrics;
pub mod plan;
pub mod reason;
mod reconciler;
pub mod retries;
pub mod unreachable;

use std::sync::Arc;
use std::time::Duration;

use kube::Api;

use crate::controllers::driver::{Controller, Event, Next, Reconciler, Spec};
use crate::controllers::instances::Instances;
use crate::controllers::reason_tracker::ReasonTracker;
use crate::controllers::{Context, UnsupportedController};
use crate::kubernetes::call::CallError;
use crate::kubernetes::stores::Nodes;
use crate::runtime::tasks::PanicError;
use metrics::NodeLifecycleMetrics;
use reconciler::{LeaderState, LifecycleOutcome, NodeLifecycleReconciler};

/// Nodes looked at at the same time.
const WORKERS: usize = 8;

/// What the flags say about this controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `--node-monitor-period`: pause between two looks at every node that is not Ready, beside the events.
    pub period: Duration,
    /// `--node-deletion`
    pub deletion: DeletionMode,
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
pub enum DeletionMode {
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

/// The controller. Fails when the provider has no instances.
pub fn controller(
    context: Context,
    nodes: Nodes,
    settings: Settings,
) -> Result<Controller<LeaderState>, UnsupportedController> {
    let instances = Instances::of(context.provider)?;
    let metrics = NodeLifecycleMetrics::new();
    let spec = Spec {
        name: "cloud-node-lifecycle",
        queue: "NodeLifecycle",
        leadership: context.leadership,
        capability: None,
        workers: WORKERS,
        side_queue: None,
        period: settings.period,
        caches: vec![Arc::new(nodes.clone())],
        // Unconfirmed, a taint would follow a power state of before.
        instances: Some(instances.clone()),
        series: metrics.series(),
    };
    let looks = Arc::new(NodeLifecycleReconciler {
        store: nodes,
        api: Api::all(context.write),
        recorder: context.recorder.for_component("cloud-node-lifecycle-controller"),
        instances,
        settings,
        reasons: ReasonTracker::new(metrics.held.clone()),
        metrics,
    });
    Ok(Controller::new(spec, move || {
        if let DeletionMode::Off { because } = looks.settings.deletion {
            tracing::info!("no Node is deleted, whatever becomes of its machine: {because}");
        }
        let term = LeaderState::new(Arc::clone(&looks));
        looks.show(&term);
        term
    }))
}

impl Reconciler for LeaderState {
    type Outcome = Result<LifecycleOutcome, CallError>;

    fn keys_of(&self, event: Event) -> Vec<String> {
        let looks = &self.looks;
        match event {
            Event::Object(_, name) => {
                // At once: whoever decides about another node has to know of this one.
                looks.note(self, &name);
                vec![name]
            }
            Event::AllObjects(_) => looks.note_all(self),
            Event::Instance(name) => {
                self.lock().guard.expire(&name);
                vec![name]
            }
            Event::AllInstances => {
                self.lock().guard.expire_all();
                looks.note_all(self)
            }
            Event::Period => {
                let names = looks.pass(self);
                looks.show(self);
                names
            }
        }
    }

    async fn reconcile(self: Arc<Self>, name: String) -> Self::Outcome {
        self.looks.reconcile(&self, &name).await
    }

    /// The one place that decides between waiting, retrying and being done.
    async fn conclude(self: &Arc<Self>, name: &str, outcome: Result<Self::Outcome, PanicError>) -> Next {
        let looks = &self.looks;
        looks.show(self);
        let outcome = match outcome {
            Ok(Ok(outcome)) => outcome,
            // The end of the term ends this worker.
            Ok(Err(error)) if error.is_not_leader() => return Next::Wait(None),
            Ok(Err(error)) => LifecycleOutcome::failed(&error),
            Err(panic) => {
                looks.metrics.panics.inc();
                LifecycleOutcome::panicked(&panic)
            }
        };
        match &outcome.held {
            None => looks.reasons.clear(name),
            Some(held) => {
                if looks.reasons.set(name, held.reason, None) && !held.is_quiet {
                    looks.tell(name, held);
                }
            }
        }
        outcome.next
    }

    fn end(&self) {
        self.looks.reasons.forget_all();
        self.looks.metrics.guard(None);
    }
}
