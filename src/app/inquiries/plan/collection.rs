//! Collects the report of `plan`: loops over the functions with which the controllers plan. Makes no call, and yields
//! between the objects, so that a large cluster does not hold up other tasks of the runtime.

use super::nodes::{NodePlanFacts, node_plan, unknown_answer};
use super::observer_plan::DetachedPlanner;
use super::parts::{ONE_NODE, PlanParts, Slices, first_step, next_hop_of_rewrite, part_with_orphans, selected_nodes};
use super::routes::RoutePlans;
use super::services::{ServicePlanFacts, SyncPurpose, service_plan};
use crate::app::catalogue;
use crate::app::controllers::ControllerSource;
use crate::app::inquiries::answer_time::AnswerTime;
use crate::app::inquiries::protocol::Answer;
use crate::app::inquiries::{DetachedSettings, Inquiries, status};
use crate::app::reports::plan::{ObjectPlan, PlanCounts, PlanPart, PlanPartBuilder, PlanReport};
use crate::app::reports::status::{ControllerState, StatusNote};
use crate::cloud::{Reason, node};
use crate::controllers::driver::{CurrentTerm, Reconciler};
use crate::controllers::node::NodeReconciler;
use crate::controllers::node_lifecycle::NodeLifecycleReconciler;
use crate::controllers::node_lifecycle::deletion_policy::HoldReason;
use crate::controllers::route::RouteReconciler;
use crate::controllers::route::pod_networks::RefusedNetworks;
use crate::controllers::service::ServiceReconciler;
use crate::providers::vsphere::Provider;
use crate::providers::vsphere::nsx::load_balancer::NsxLoadBalancers;
use crate::providers::vsphere::nsx::load_balancer::preview::TargetMembers;
use k8s_openapi::api::core::v1::Node;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns the plan of the process, or only that for one Node and its routes.
pub(in crate::app::inquiries) async fn answer(process: &Inquiries, node: Option<&str>) -> Answer {
    if let Err(unknown) = status::require_known(process, None, node) {
        return unknown;
    }
    let header = process.report_header();
    let mut slices = Slices::new();
    let PlanParts { nodes, load_balancers, routes } = match &process.detached {
        Some(DetachedSettings { plan: settings, .. }) => {
            DetachedPlanner { process, settings, selected: node }.parts(&mut slices).await
        }
        None => attached_parts(process, node, &mut slices).await,
    };
    let report = PlanReport {
        header,
        node: node.map(str::to_owned),
        nodes,
        load_balancers,
        routes,
        counts: PlanCounts::default(),
    };
    Answer::Plan(Box::new(report.with_counts()))
}

/// Returns the plan of the controllers of this process.
async fn attached_parts(process: &Inquiries, node: Option<&str>, slices: &mut Slices) -> PlanParts {
    let nodes = nodes(process, node, slices).await;
    let load_balancers = match node {
        Some(_) => PlanPart::off(ONE_NODE),
        None => load_balancers(process, slices).await,
    };
    PlanParts { nodes, load_balancers, routes: routes(process, node, slices).await }
}

/// The term of a controller in this process.
enum PlanTerm<R> {
    /// The controller works.
    Current(Arc<R>),
    /// The controller has no term now.
    Missing,
    /// The controller does not run in this process.
    NoController,
}

impl<R: Reconciler> PlanTerm<R> {
    fn of(term: Option<&CurrentTerm<R>>) -> Self {
        match term.map(CurrentTerm::get) {
            Some(Some(term)) => Self::Current(term),
            Some(None) => Self::Missing,
            None => Self::NoController,
        }
    }

    fn current(&self) -> Option<&Arc<R>> {
        match self {
            Self::Current(term) => Some(term),
            Self::Missing | Self::NoController => None,
        }
    }
}

/// Returns the part of a controller that has no term.
fn without_term(process: &Inquiries, controller: &str) -> PlanPart {
    let source = process.terms.sources.iter().find(|source| source.name == controller);
    let (state, reason) = source.map_or((ControllerState::Starting, None), ControllerSource::state);
    let reason = reason.unwrap_or("the controller has no work").trim_start_matches("idle: ");
    match (state, process.vsphere.rejected_parts().first()) {
        (ControllerState::Standby, _) => PlanPart::unknown("this process does not lead, and only the leader plans"),
        (ControllerState::Idle, None) => PlanPart::off(reason),
        (ControllerState::Idle, Some(StatusNote { subject, message, .. })) => {
            PlanPart::unknown(&format!("{reason}; {subject} is {message}"))
        }
        (ControllerState::Refused, _) => PlanPart::unknown(reason),
        (ControllerState::Starting | ControllerState::Working, _) => {
            PlanPart::unknown(&format!("{controller} begins soon"))
        }
    }
}

/// The sources of the plan for a Node.
struct NodePlanners {
    provider: Arc<Provider>,
    node: Option<Arc<NodeReconciler>>,
    lifecycle: Option<Arc<NodeLifecycleReconciler>>,
    /// With the pod networks that get no route.
    route: Option<(Arc<RouteReconciler>, RefusedNetworks)>,
    time: AnswerTime,
}

impl NodePlanners {
    fn plan(&self, node: &Arc<Node>) -> ObjectPlan {
        let answer = self.provider.metadata(node);
        let unknown = unknown_answer(&answer);
        let power = || self.provider.power(node).found();
        let route = self.route.as_ref().and_then(|(term, refused)| term.preview_of_node(node, refused)?.condition);
        let end_of = |hold: &HoldReason| hold.until().map(|until| self.time.wall_clock(until).to_string());
        node_plan(&NodePlanFacts {
            node,
            unknown,
            has_term: true,
            preview: self.node.as_ref().map(|term| term.complete_preview(node, answer)),
            lifecycle: self.lifecycle.as_ref().and_then(|term| term.preview(node, power())),
            end_of: &end_of,
            network_condition: route,
        })
    }
}

/// The reason why nothing is known of Nodes right after the start.
const NODES_NOT_READ: &str = "the Nodes were not read yet";

async fn nodes(process: &Inquiries, selected: Option<&str>, slices: &mut Slices) -> PlanPart {
    let node = PlanTerm::of(process.terms.node.as_ref());
    let lifecycle = PlanTerm::of(process.terms.lifecycle.as_ref());
    match (&node, &lifecycle) {
        (PlanTerm::NoController, PlanTerm::NoController) => {
            return PlanPart::off("no controller for Nodes runs in this process");
        }
        (PlanTerm::Missing, _) => return without_term(process, catalogue::NODE),
        (_, PlanTerm::Missing) => return without_term(process, catalogue::NODE_LIFECYCLE),
        _ => {}
    }
    let Some(provider) = process.vsphere.provider() else { return PlanPart::unknown("the process stops") };
    if !process.nodes.is_ready() {
        return PlanPart::unknown(NODES_NOT_READ);
    }
    let route = PlanTerm::of(process.terms.route.as_ref());
    let planners = NodePlanners {
        provider,
        node: node.current().cloned(),
        lifecycle: lifecycle.current().cloned(),
        route: route.current().map(|term| (Arc::clone(term), term.refused_networks())),
        time: AnswerTime::now(),
    };
    let mut part = PlanPartBuilder::default();
    for node in selected_nodes(process, selected) {
        part.add(planners.plan(&node));
        slices.next().await;
    }
    part.build()
}

async fn routes(process: &Inquiries, selected: Option<&str>, slices: &mut Slices) -> PlanPart {
    let term = match PlanTerm::of(process.terms.route.as_ref()) {
        PlanTerm::Current(term) => term,
        PlanTerm::NoController => return PlanPart::off("no route controller runs in this process"),
        PlanTerm::Missing => return without_term(process, catalogue::ROUTE),
    };
    let preview = term.preview();
    if !preview.are_listed {
        let failure = preview.listing_failure.unwrap_or_else(|| "they were not listed yet in this term".to_owned());
        return PlanPart::unknown(&failure);
    }
    let refused = term.refused_networks();
    let time = AnswerTime::now();
    let next_pass = preview.next_pass.map(|pass| format!("at {}", time.wall_clock(pass)));
    let next_pass = next_pass.unwrap_or_else(|| "which is queued".to_owned());
    let mut plans = RoutePlans::default();
    plans.add_outstanding(&preview, selected);
    plans.mark_rewrites(|node, network| next_hop_of_rewrite(process, node, network));
    for node in selected_nodes(process, selected) {
        for network in term.preview_of_node(&node, &refused).into_iter().flat_map(|routes| routes.networks) {
            plans.add_network(node::name(&node), &network, &next_pass);
        }
        slices.next().await;
    }
    plans.build()
}

async fn load_balancers(process: &Inquiries, slices: &mut Slices) -> PlanPart {
    let term = match PlanTerm::of(process.terms.service.as_ref()) {
        PlanTerm::Current(term) => term,
        PlanTerm::NoController => return PlanPart::off("no service controller runs in this process"),
        PlanTerm::Missing => return without_term(process, catalogue::SERVICE),
    };
    let Some(balancers) = process.vsphere.load_balancers() else {
        return PlanPart::unknown("the load balancers are being configured");
    };
    if !term.are_caches_filled() {
        return PlanPart::unknown("the Services and Nodes were not read yet");
    }
    let targets = term.target_nodes();
    let planners = ServicePlanners {
        hold_of_targets: term.hold_of_targets(&targets),
        members: balancers.target_members(&targets),
        is_listed: balancers.is_listed(),
        balancers,
        term,
    };
    let mut objects = BTreeMap::new();
    for key in planners.term.known_services() {
        let plan = planners.plan(&key);
        objects.insert(key, plan);
        slices.next().await;
    }
    part_with_orphans(objects, &planners.balancers)
}

/// The sources of the plan for a Service.
struct ServicePlanners {
    term: Arc<ServiceReconciler>,
    balancers: Arc<NsxLoadBalancers>,
    members: TargetMembers,
    hold_of_targets: Option<(Reason, String)>,
    is_listed: bool,
}

impl ServicePlanners {
    fn plan(&self, key: &str) -> ObjectPlan {
        let facts = self.term.decision(key);
        let purpose = SyncPurpose::of(&facts);
        let step = first_step(&self.balancers, &self.members, key, (purpose, facts.service.as_deref()));
        service_plan(&ServicePlanFacts {
            key,
            term: &facts,
            step,
            is_listed: self.is_listed,
            hold_of_targets: self.hold_of_targets.as_ref(),
        })
    }
}
