//! The node-lifecycle controller (`cloud-node-lifecycle-controller`): deletes Nodes whose VM is confirmed deleted, and
//! taints Nodes whose VM is shut down.
//!
//! A Ready Node without one of our taints costs no call: a reporting kubelet is the best proof that its VM exists.

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
use crate::controllers::instances::BoundedInstances;
use crate::controllers::reason_tracker::ReasonTracker;
use crate::controllers::{Context, UnsupportedController};
use crate::kubernetes::call::CallError;
use crate::kubernetes::stores::Nodes;
use crate::runtime::tasks::PanicError;
use metrics::NodeLifecycleMetrics;
use reconciler::{LifecycleContext, LifecycleOutcome, NodeLifecycleReconciler};

/// Number of Nodes reconciled concurrently.
const WORKERS: usize = 8;

/// The settings of this controller, from the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LifecycleSettings {
    /// `--node-monitor-period`: interval of the periodic reconcile of Nodes that are not Ready, in addition to events.
    pub period: Duration,
    /// `--node-deletion`: whether Nodes with absent VMs are deleted.
    pub deletion: DeletionMode,
    /// `--node-deletion-grace`: how long a Node has to be Ready=Unknown and its VM absent before the Node is deleted.
    pub grace: Duration,
    /// `--node-deletion-limit`: how many Nodes may be deleted within a window.
    pub limit: Limit,
    /// `--node-deletion-mass-hold`: how long deletions pause when many VMs are absent at once.
    pub mass_hold: Duration,
    /// `--out-of-service-after`: how long a Node has to be Ready=Unknown and its VM powered off before it gets the
    /// out-of-service taint; `None` if the flag is not set.
    pub out_of_service_after: Option<Duration>,
}

/// Whether Nodes with absent VMs are deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeletionMode {
    /// Deleted.
    Enforce,
    /// Reported, but not deleted.
    DryRun,
    /// Not deleted.
    Off {
        /// The flag or variable that turns deletion off.
        reason: &'static str,
    },
}

/// How many Nodes may be deleted within the window: the larger of `nodes` and `percent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Number of Nodes.
    pub nodes: u32,
    /// Percent of all Nodes, rounded down.
    pub percent: u32,
    /// Time in which the empty allowance refills.
    pub window: Duration,
}

/// Creates the controller. Fails if the provider has no instances.
pub fn controller(
    context: Context,
    nodes: Nodes,
    settings: LifecycleSettings,
) -> Result<Controller<NodeLifecycleReconciler>, UnsupportedController> {
    let instances = BoundedInstances::of(context.provider)?;
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
        // Without a refresh, a taint would follow an outdated power state.
        instances: Some(instances.clone()),
        series: metrics.series(),
    };
    let looks = Arc::new(LifecycleContext {
        store: nodes,
        api: Api::all(context.write),
        recorder: context.recorder.for_component("cloud-node-lifecycle-controller"),
        instances,
        settings,
        reasons: ReasonTracker::new(metrics.blocked.clone()),
        metrics,
    });
    Ok(Controller::new(spec, move || {
        if let DeletionMode::Off { reason: because } = looks.settings.deletion {
            tracing::info!("no Node is deleted, whatever becomes of its machine: {because}");
        }
        let term = NodeLifecycleReconciler::new(Arc::clone(&looks));
        looks.update_metrics(&term);
        term
    }))
}

impl Reconciler for NodeLifecycleReconciler {
    type Outcome = Result<LifecycleOutcome, CallError>;

    fn keys_of(&self, event: Event) -> Vec<String> {
        let looks = &self.context;
        match event {
            Event::Object(_, name) => {
                // Recorded now and not at the Node's reconcile: decisions about other Nodes depend on these facts.
                looks.observe(self, &name);
                vec![name]
            }
            Event::AllObjects(_) => looks.observe_all(self),
            Event::Instance(name) => {
                self.lock().policy.expire(&name);
                vec![name]
            }
            Event::AllInstances => {
                self.lock().policy.expire_all();
                looks.observe_all(self)
            }
            Event::Period => {
                let names = looks.tick(self);
                looks.update_metrics(self);
                names
            }
        }
    }

    async fn reconcile(self: Arc<Self>, name: String) -> Self::Outcome {
        self.context.reconcile(&self, &name).await
    }

    /// The only function that decides whether a Node is done, is retried or waits.
    async fn conclude(self: &Arc<Self>, name: &str, outcome: Result<Self::Outcome, PanicError>) -> Next {
        let looks = &self.context;
        looks.update_metrics(self);
        let outcome = match outcome {
            Ok(Ok(outcome)) => outcome,
            // Leadership is lost, so the driver stops this worker.
            Ok(Err(error)) if error.is_not_leader() => return Next::Wait(None),
            Ok(Err(error)) => LifecycleOutcome::failed(&error),
            Err(panic) => {
                looks.metrics.panics.inc();
                LifecycleOutcome::panicked(&panic)
            }
        };
        match &outcome.blocked {
            None => looks.reasons.clear(name),
            Some(blocked) => {
                if looks.reasons.set(name, blocked.reason, None) && !blocked.is_quiet {
                    looks.report(name, blocked);
                }
            }
        }
        outcome.next
    }

    fn end(&self) {
        self.context.reasons.forget_all();
        self.context.metrics.guard(None);
    }
}
