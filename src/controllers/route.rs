//! The route controller (`node-route-controller`): one cloud route for each pod network of each Node.
//!
//! A pass lists the routes of the cloud, and plans the changes of each destination from the current Nodes. Each
//! destination is a separate queue key, so that a failed destination is retried alone, without another listing. A third
//! kind of key, after passes and destinations, writes the condition `NetworkUnavailable` of one Node, after all routes
//! of the Node were tried.

mod apply;
pub mod condition;
mod destinations;
mod failure;
mod key;
mod metrics;
pub mod plan;
pub mod pod_networks;
pub mod reason;
mod reconciler;
mod schedule;
mod tracked_nodes;
pub mod withdrawal;

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use kube::Api;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::controllers::capability::Capability;
use crate::controllers::decisions::{DecisionRecorder, SubjectKind};
use crate::controllers::driver::{Controller, Event, Reconciler, Requeue, Spec};
use crate::controllers::reason_tracker::ReasonTracker;
use crate::controllers::retry::Retry;
use crate::controllers::{BlockedObject, Context};
use crate::kubernetes::cluster::LiveApi;
use crate::kubernetes::stores::Nodes;
use crate::runtime::queue::Priority;
use crate::runtime::tasks::PanicError;
use apply::Cloud;
pub use destinations::{FailedAttempt, Routing};
use failure::RouteFailure;
use key::Key;
use metrics::RouteMetrics;
pub use pod_networks::PodNetworks;
pub use reconciler::{
    DestinationPreview, FirstRoutePass, NodeRoutePreview, PodNetworkFacts, PodNetworkPreview, RouteFacts, RouteListing,
    RoutePreview, RouteReconciler,
};
use reconciler::{Progress, RouteOutcome};
use schedule::Schedule;
pub use schedule::Trigger;

/// Number of concurrent cloud calls and condition writes. The Go program uses 200.
const WORKERS: usize = 20;

/// The driver's period yields no keys, because the schedule has its own period.
const DRIVER_PERIOD: Duration = Duration::from_secs(300);

/// The settings of this controller, from the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteSettings {
    /// `--cluster-name`: passed to the cloud, which lists the routes of this cluster.
    pub cluster_name: String,
    /// `--cluster-cidr`: the networks of the cluster. Routes to other networks are never deleted.
    pub networks: Vec<IpNet>,
    /// `--route-pod-networks`: the pod networks that get routes.
    pub pod_networks: PodNetworks,
    /// The trigger of a pass.
    pub trigger: Trigger,
    /// `--route-network-condition`: whether this controller writes the condition `NetworkUnavailable`. If false, the
    /// CNI writes the condition.
    pub writes_condition: bool,
}

/// The routes in the current leadership term.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutesStatus {
    /// Whether the routes were listed in this term.
    pub are_listed: bool,
    /// Reason why the routes cannot be listed now, if any.
    pub failure: Option<String>,
    /// Number of routes that match their Node.
    pub ready: usize,
    /// Number of destinations whose changes were not tried yet.
    pub pending: usize,
    /// The destinations that cannot be changed for a reason, ordered by network.
    pub blocked: Vec<BlockedObject>,
}

/// Creates the controller. The controller is idle while the provider has no routes.
pub fn controller(context: Context, nodes: Nodes, settings: RouteSettings) -> Controller<RouteReconciler> {
    let metrics = RouteMetrics::new();
    let spec = Spec {
        queue: "Routes",
        capability: Some(Capability::routes(Arc::clone(&context.provider))),
        workers: WORKERS,
        metrics: vec![Box::new(metrics.clone())],
        ..Spec::new("route", context.leadership.clone(), DRIVER_PERIOD, vec![Arc::new(nodes.clone())])
    };
    let recorder = context.recorder.for_component("route_controller");
    let reasons = Arc::new(ReasonTracker::new(metrics.routes.clone()));
    Controller::new(spec, move || RouteReconciler {
        cloud: Cloud {
            provider: Arc::clone(&context.provider),
            permit: context.leadership.permit(),
            cluster_name: settings.cluster_name.clone(),
            nodes: nodes.clone(),
            live: LiveApi::new(context.write.clone()),
        },
        api: Api::all(context.write.clone()),
        recorder: recorder.clone(),
        decisions: DecisionRecorder::new(
            context.decisions.clone(),
            SubjectKind::Route,
            context.leadership.term_number(),
        ),
        networks: settings.networks.clone(),
        pod_networks: settings.pod_networks,
        writes_condition: settings.writes_condition,
        reasons: Arc::clone(&reasons),
        metrics: metrics.clone(),
        progress: Mutex::new(Progress::new(Schedule::new(settings.trigger))),
        changed: Notify::new(),
    })
}

impl Reconciler for RouteReconciler {
    type Outcome = RouteOutcome;

    /// Records changes of Nodes. Returns no keys, because the schedule decides when these changes trigger a pass.
    fn keys_of(&self, event: Event) -> Vec<String> {
        match event {
            Event::Object(_, name) => self.observe(&name),
            Event::AllObjects(_) => self.observe_all(),
            Event::Instance(_) | Event::AllInstances | Event::Period => {}
        }
        Vec::new()
    }

    /// Routes precede conditions, because the first pass over a large cluster enqueues many conditions.
    fn priority(&self, key: &str) -> Priority {
        match Key::parse(key) {
            Some(Key::Pass | Key::Destination(_)) => Priority::First,
            Some(Key::Condition(_)) | None => Priority::Normal,
        }
    }

    async fn next_key(&self) -> String {
        self.next_due().await.to_string()
    }

    async fn reconcile(self: Arc<Self>, key: String) -> RouteOutcome {
        match Key::parse(&key) {
            Some(Key::Pass) => RouteOutcome::Pass(self.pass().await),
            Some(Key::Destination(network)) => {
                RouteOutcome::Destination(network, self.reconcile_destination(network).await)
            }
            Some(Key::Condition(node)) => {
                let written = self.reconcile_condition(&node).await;
                RouteOutcome::Condition(node, written)
            }
            None => RouteOutcome::Nothing,
        }
    }

    /// Decides whether a key is done, is retried or waits. No other function decides this.
    async fn conclude(self: &Arc<Self>, key: &str, outcome: Result<RouteOutcome, PanicError>) -> Requeue {
        match outcome {
            Ok(RouteOutcome::Pass(Ok(pass))) => self.conclude_pass(pass),
            Ok(RouteOutcome::Pass(Err(failure))) => self.conclude_failed_pass(&failure),
            Ok(RouteOutcome::Destination(network, applied)) => return self.conclude_destination(network, applied),
            Ok(RouteOutcome::Condition(node, written)) => return self.conclude_condition(&node, written),
            Ok(RouteOutcome::Nothing) => {}
            Err(panic) => {
                let message = format!("work on {key} failed: {panic}");
                let failure = RouteFailure { reason: reason::Panic, message, retry: Some(Retry::Backoff) };
                return self.conclude_panic(Key::parse(key), failure);
            }
        }
        Requeue::PERIOD
    }

    fn end(&self) {
        self.forget();
    }
}
