//! What the controller knows of one Service in this term, for commands: the decision that its next sync makes, what
//! blocks it, and the Nodes behind its load balancer. Changes nothing, and makes no call.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Service};
use tokio::time::Instant;

use super::ServiceReconciler;
use crate::cloud::{LoadBalancer, Reason};
use crate::controllers::retry::Retry;
use crate::controllers::service::failure::{ServiceAction, ServiceBlocked};
use crate::controllers::service::inputs::Inputs;
use crate::controllers::service::node_set::NodeSet;
use crate::controllers::service::plan::{ServicePlan, ServiceRecord, plan};
use crate::controllers::service::records::RecordView;

/// What the controller knows of one Service.
#[derive(Clone, Debug, Default)]
pub struct ServiceFacts {
    /// The cached Service. The cache has only Services that may need or have a load balancer.
    pub service: Option<Arc<Service>>,
    /// Whether this term has a record of the Service.
    pub has_record: bool,
    /// Whether the record is of another Service of the same name, whose load balancer is deleted first.
    pub is_replaced: bool,
    /// The action of the next sync; `None` without a cached Service, or if the provider has no load balancers.
    pub plan: Option<ServicePlan>,
    /// Whether a sync of the Service has completed in this term.
    pub is_synced: bool,
    /// Whether this term has ensured the load balancer.
    pub was_ensured: bool,
    /// Whether a call for the Service is in flight.
    pub is_in_flight: bool,
    /// The reason why the Service is not up to date, if any.
    pub blocked: Option<BlockedService>,
    /// The Nodes behind the load balancer.
    pub nodes: BackendNodes,
}

/// Why a Service is not up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedService {
    /// The reason.
    pub reason: Reason,
    /// The message, as in the Event.
    pub message: String,
    /// Time for which the reason has blocked the Service.
    pub blocked_for: Duration,
    /// Whether only the Nodes are not up to date.
    pub is_of_nodes: bool,
    /// Time until the next attempt; `None` if a change of the Service, of the configuration or of the Nodes leads to
    /// it.
    pub next_attempt: Option<Duration>,
}

/// The Nodes behind the load balancer of a Service.
#[derive(Clone, Debug, Default)]
pub struct BackendNodes {
    /// The Nodes that load balancers use, in the state that load balancers use.
    pub targets: Vec<Arc<Node>>,
    /// Number of Nodes that a call of this term has set last; `None` before the first of these calls.
    pub written: Option<usize>,
    /// Whether the load balancer certainly has the Nodes of that call.
    pub is_certain: bool,
    /// Names of the Nodes whose changes are not written yet.
    pub differing: Vec<String>,
    /// Names of the Nodes whose changes wait because they are too frequent, with the rest of each pause.
    pub pausing: Vec<(String, Duration)>,
}

impl ServiceReconciler {
    /// Returns what this term knows of the Service with this key (`namespace/name`). Without a cached Service and
    /// without a record, the Service is not known.
    pub fn explain(&self, key: &str) -> ServiceFacts {
        let view = self.records.view(key);
        let nodes = self.backend_nodes(view.as_ref());
        ServiceFacts { nodes, ..self.facts(key, view.as_ref()) }
    }

    /// As [`ServiceReconciler::explain`], but without the Nodes behind the load balancer, which are the same for all
    /// Services.
    pub fn decision(&self, key: &str) -> ServiceFacts {
        self.facts(key, self.records.view(key).as_ref())
    }

    /// Returns the keys of all Services that this term knows, including those that do not exist any more.
    pub fn known_services(&self) -> Vec<String> {
        self.all_keys()
    }

    /// Returns the Nodes that load balancers use.
    pub fn target_nodes(&self) -> Vec<Arc<Node>> {
        self.targets.list().nodes.clone()
    }

    /// Returns reason and message if load balancers are not ensured because these Nodes are too few.
    pub fn hold_of_targets(&self, targets: &[Arc<Node>]) -> Option<(Reason, String)> {
        self.write_blocked(targets.is_empty()).map(|blocked| (blocked.reason, blocked.message))
    }

    /// Returns the facts without the Nodes.
    fn facts(&self, key: &str, view: Option<&RecordView>) -> ServiceFacts {
        let service = self.services.get(key);
        let is_replaced = match (view, &service) {
            (Some(view), Some(service)) => view.uid != service.metadata.uid,
            _ => false,
        };
        let plan = service.as_deref().zip(self.provider.load_balancer()).map(|(service, balancer)| {
            let record = view.filter(|_| !is_replaced).map(|view| view.plan_input.clone());
            planned(&*balancer, service, &record.unwrap_or_default())
        });
        ServiceFacts {
            has_record: view.is_some(),
            is_replaced,
            plan,
            is_synced: view.is_some_and(|view| view.is_synced),
            was_ensured: view.is_some_and(|view| view.was_ensured),
            is_in_flight: view.is_some_and(|view| view.is_locked),
            blocked: self.blocked_service(key, view),
            nodes: BackendNodes::default(),
            service,
        }
    }

    /// Whether the caches of Services and Nodes are filled.
    pub fn are_caches_filled(&self) -> bool {
        self.services.is_ready() && self.targets.store.is_ready()
    }

    fn blocked_service(&self, key: &str, view: Option<&RecordView>) -> Option<BlockedService> {
        let tracked = self.reasons.get(key);
        // Without a record, only the tracker has the reason.
        let of_tracker = || {
            tracked
                .as_ref()
                .map(|tracked| ServiceBlocked::new(tracked.reason, "the log has the message", Retry::Backoff))
        };
        let ServiceBlocked { reason, message, retry, action, .. } = self.records.blocked(key).or_else(of_tracker)?;
        let is_of_nodes = action == ServiceAction::UpdateNodes;
        let not_before = view.and_then(|view| if is_of_nodes { view.nodes_not_before } else { view.sync_not_before });
        let rest = not_before.map(|end| end.saturating_duration_since(Instant::now()));
        let is_due = retry != Retry::OnChange;
        let tracked = tracked.filter(|tracked| tracked.reason == reason);
        Some(BlockedService {
            reason,
            message,
            blocked_for: tracked.map(|tracked| tracked.blocked_for).unwrap_or_default(),
            is_of_nodes,
            next_attempt: rest.or_else(|| is_due.then_some(Duration::ZERO)),
        })
    }

    fn backend_nodes(&self, view: Option<&RecordView>) -> BackendNodes {
        let list = self.targets.list();
        let written = view.and_then(|view| view.written.as_deref());
        let now = Instant::now();
        let pauses = self.targets.pauses().into_iter();
        BackendNodes {
            targets: list.nodes.clone(),
            written: written.map(NodeSet::count),
            is_certain: view.is_some_and(|view| view.is_certain),
            differing: written.map(|written| written.differences(&list.set)).unwrap_or_default(),
            pausing: pauses.map(|(name, until)| (name, until.saturating_duration_since(now))).collect(),
        }
    }
}

/// Returns what is known of a Service without a term: the decision of the first sync.
pub fn first_decision(service: Arc<Service>, balancer: &dyn LoadBalancer) -> ServiceFacts {
    let plan = planned(balancer, &service, &ServiceRecord::default());
    ServiceFacts { service: Some(service), plan: Some(plan), ..ServiceFacts::default() }
}

/// Decides as a sync does.
fn planned(balancer: &dyn LoadBalancer, service: &Service, record: &ServiceRecord) -> ServicePlan {
    let inputs = Inputs::of(service, balancer.annotation_prefixes());
    plan(service, &balancer.handles(service), &inputs, record)
}
