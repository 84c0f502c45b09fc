//! The service controller (`service-lb-controller`): manages the load balancer of each Service that requests one, and
//! the Nodes behind the load balancer.
//!
//! A sync of one Service ensures or deletes its load balancer. Changed Nodes are sent to the provider in rounds, with
//! one call for all Services. The records are empty at the beginning of each leadership term, so the first sync of each
//! Service calls the provider.

mod api;
pub mod cloud_calls;
mod damping;
mod failure;
pub mod inputs;
mod metrics;
pub mod no_load_balancers;
pub mod node_set;
mod node_sync;
mod outcome;
pub mod plan;
mod provider_resyncs;
pub mod reason;
mod reconciler;
mod records;
mod targets;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::cloud::service;
use crate::controllers::capability::Capability;
use crate::controllers::decisions::{DecisionRecorder, SubjectKind};
use crate::controllers::driver::{Cache, CacheKind, Controller, Event, Reconciler, Requeue, Spec};
use crate::controllers::instances::BoundedInstances;
use crate::controllers::reason_tracker::ReasonTracker;
use crate::controllers::retry::Retry;
use crate::controllers::{BlockedObject, Context};
use crate::kubernetes::stores::{Nodes, Services};
use crate::runtime::queue::Priority;
use crate::runtime::tasks::PanicError;
use api::ServiceApi;
use failure::ServiceBlocked;
use metrics::ServiceMetrics;
use node_sync::NodeSyncSchedule;
use outcome::ServiceOutcome;
use provider_resyncs::ProviderResyncs;
pub use reconciler::{ServiceReconciler, explanation};
use targets::{TargetChange, Targets};

/// Resync period of all Services. A resync of an unchanged Service makes no cloud call.
const PERIOD: Duration = Duration::from_secs(300);

/// The queue key of a round of node updates. A Service's key contains a slash, so the keys cannot collide.
const ROUND: &str = "nodes";

/// The settings of this controller, from the flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSettings {
    /// `--concurrent-service-syncs`: number of Services synced concurrently.
    pub workers: NonZeroUsize,
    /// `--cluster-name`: distinguishes the load balancers of different clusters in the cloud.
    pub cluster_name: String,
    /// `--service-selector`: label selector of the Services that this process manages.
    pub selector: Option<String>,
    /// Whether `--node-selector` is set. If so, an empty set of Nodes is never written, because a mistyped selector
    /// would empty every load balancer.
    pub has_node_selector: bool,
}

/// The load balancers in the current leadership term.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadBalancersStatus {
    /// Number of Services whose load balancer this term has ensured.
    pub ensured: usize,
    /// Number of Services that need a load balancer, and wait for their first sync or for a list of the cloud's objects.
    pub waiting: usize,
    /// The Services whose load balancer is not up to date for a reason, ordered by namespace and name.
    pub blocked: Vec<BlockedObject>,
}

/// Creates the controller. The controller is idle while the provider has no load balancers.
pub fn controller(
    context: Context,
    services: Services,
    nodes: Nodes,
    settings: ServiceSettings,
) -> Controller<ServiceReconciler> {
    let metrics = ServiceMetrics::default();
    let Context { write, recorder, provider, leadership, decisions } = context;
    let caches: Vec<Arc<dyn Cache>> =
        vec![Arc::new(services.clone()), Arc::new(nodes.clone()), Arc::new(ProviderResyncs(Arc::clone(&provider)))];
    let spec = Spec {
        capability: Some(Capability::load_balancer(Arc::clone(&provider))),
        workers: settings.workers.get(),
        // Rounds of node updates have their own queue, because a burst of new Services must not delay the rounds.
        side_queue: Some("node"),
        // The same as in the records. The pause in the records decides; a key that comes earlier only waits for its
        // rest, which resets the queue's count.
        backoff: records::BACKOFF,
        // If the provider has no instances, the addresses in the status of the Nodes are used.
        instances: BoundedInstances::of(Arc::clone(&provider)).ok(),
        metrics: vec![Box::new(metrics.clone()), Box::new(no_load_balancers::gauge(Arc::clone(&provider)))],
        ..Spec::new("service", leadership.clone(), PERIOD, caches)
    };
    let reasons = Arc::new(ReasonTracker::new(metrics.blocked.clone()));
    let recorder = recorder.for_component("service-controller");
    Controller::new(spec, move || ServiceReconciler {
        services: services.clone(),
        targets: Targets::new(nodes.clone(), Arc::clone(&provider)),
        api: ServiceApi::new(write.clone(), settings.selector.clone()),
        recorder: recorder.clone(),
        decisions: DecisionRecorder::new(decisions.clone(), SubjectKind::Service, leadership.term_number()),
        provider: Arc::clone(&provider),
        permit: leadership.permit(),
        settings: settings.clone(),
        metrics: metrics.clone(),
        reasons: Arc::clone(&reasons),
        records: Arc::default(),
        rounds: NodeSyncSchedule::default(),
    })
}

impl Reconciler for ServiceReconciler {
    type Outcome = ServiceOutcome;

    fn keys_of(&self, event: Event) -> Vec<String> {
        match event {
            Event::Object(CacheKind::Services, key) => {
                self.records.observe(&key, self.services.get(&key).as_ref());
                vec![key]
            }
            Event::Object(CacheKind::ProviderResyncs, key) => {
                self.records.resync_requested(Some(&key));
                vec![key]
            }
            Event::Object(CacheKind::Nodes, node) | Event::Instance(node) => match self.targets.observe(&node) {
                TargetChange::Nothing => Vec::new(),
                TargetChange::Changed => {
                    self.rounds.nodes_changed();
                    Vec::new()
                }
                TargetChange::Waits { until, is_first } => {
                    self.rounds.again_at(until);
                    if is_first {
                        self.record_flapping(&node, until);
                    }
                    Vec::new()
                }
                TargetChange::NoLongerEmpty => {
                    self.rounds.nodes_changed();
                    // Resumes syncs that the empty set blocked.
                    self.services.keys()
                }
            },
            Event::AllObjects(CacheKind::ProviderResyncs) => {
                self.records.resync_requested(None);
                self.services.keys()
            }
            Event::AllObjects(CacheKind::Nodes) | Event::Period => {
                self.targets.observe_all();
                self.rounds.nodes_changed();
                self.all_keys()
            }
            Event::AllObjects(CacheKind::Services) => {
                for key in self.records.keys() {
                    self.records.observe(&key, self.services.get(&key).as_ref());
                }
                self.all_keys()
            }
            Event::AllInstances => {
                self.targets.observe_all();
                self.rounds.nodes_changed();
                Vec::new()
            }
        }
    }

    /// Gives priority to Services that wait for an address or for their deletion.
    fn priority(&self, key: &str) -> Priority {
        let waits = match self.services.get(key) {
            None => true,
            Some(service) => service::needs_cleanup(&service) || service::ingress(&service).is_empty(),
        };
        if waits { Priority::First } else { Priority::Normal }
    }

    fn uses_side_queue(&self, key: &str) -> bool {
        key == ROUND
    }

    /// Returns the next round of node updates, or the next sync that a round requested.
    async fn next_key(&self) -> String {
        self.rounds.next().await.unwrap_or_else(|| ROUND.to_owned())
    }

    async fn reconcile(self: Arc<Self>, key: String) -> ServiceOutcome {
        match key.as_str() {
            ROUND => self.update_nodes().await,
            key => self.sync(key).await,
        }
    }

    async fn conclude(self: &Arc<Self>, key: &str, outcome: Result<ServiceOutcome, PanicError>) -> Requeue {
        let blocked = match outcome {
            Ok(ServiceOutcome::Nothing) => return Requeue::PERIOD,
            Ok(ServiceOutcome::Wait(delay)) => return Requeue::after(delay),
            Ok(ServiceOutcome::Round(round)) => {
                self.conclude_round(&round);
                return Requeue::PERIOD;
            }
            Ok(ServiceOutcome::Synced(blocked)) => blocked,
            Err(panic) => {
                self.metrics.panics.inc();
                tracing::error!(key, "syncing load balancers failed: {panic}");
                if key == ROUND {
                    return Requeue::BACKOFF;
                }
                Some(ServiceBlocked::new(reason::Panic, format!("syncing the Service failed: {panic}"), Retry::Backoff))
            }
        };
        let pause = self.records.synced(key, blocked.as_ref());
        self.metrics.show_ensured(self.records.count_ensured());
        if self.records.is_due(key, &self.targets.current()) {
            // The Nodes changed during the sync, or a round skipped the Service because the sync had locked it.
            self.rounds.nodes_changed();
        }
        // After a failed sync, the records lack the reason only if the Service has no record.
        match (&blocked, self.records.blocked(key)) {
            (Some(held), None) => self.hold(key, self.services.get(key).as_deref(), held),
            _ => self.show(key, None),
        }
        let Some(held) = blocked else { return Requeue::PERIOD };
        Requeue { after: pause, counts_as_failure: held.retry == Retry::Backoff }
    }

    fn end(&self) {
        self.reasons.forget_all();
        self.metrics.show_ensured(0);
    }
}
