//! Collects the plan of a command without a daemon, which has no terms of leadership: from the answers of the provider
//! and the pure plans of the controllers. Reads the cloud with limits, and writes nothing. Clocks, limits and backoff
//! of a leader are not known.

use super::nodes::{NodePlanFacts, node_plan, unknown_answer};
use super::parts::{ONE_NODE, PlanParts, Slices, first_step, next_hop_of_rewrite, part_with_orphans, selected_nodes};
use super::routes::RoutePlans;
use super::services::{ServicePlanFacts, SyncPurpose, service_plan};
use crate::app::catalogue::ControllerKind;
use crate::app::inquiries::Inquiries;
use crate::app::reports::plan::{ObjectPlan, PlanPart, PlanPartBuilder};
use crate::app::reports::status::StatusNote;
use crate::app::settings::Settings;
use crate::base::error_chain::chain;
use crate::cloud::{CloudProvider as _, InstanceMetadata, Presence, Unknown, node};
use crate::controllers::node::{NodePreview, Policy, first_plan};
use crate::controllers::node_lifecycle::{DeletionMode, LifecycleInputs, first_preview, needs_presence};
use crate::controllers::reason;
use crate::controllers::route::{FirstRoutePass, RouteListing, RouteSettings};
use crate::controllers::service::explanation::first_decision;
use crate::controllers::service::node_set::is_target;
use crate::providers::vsphere::Provider;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum number of Nodes whose VM is proved to be deleted. Each proof makes several calls to each vCenter.
const MAX_PROOFS: usize = 50;

/// Maximum number of concurrent proofs.
const PROOFS: usize = 2;

/// Time limit of the list of routes.
const LIST_LIMIT: Duration = Duration::from_secs(30);

/// The settings of the controllers, for a plan without terms. A controller that is not selected has none.
pub(in crate::app::inquiries) struct PlanSettings {
    node: Option<Policy>,
    deletion: Option<DeletionMode>,
    route: Option<RouteSettings>,
    has_service_controller: bool,
}

impl PlanSettings {
    /// Returns the plan of a new leader's node controller if the answer of the provider is `answer`; `None` if the
    /// controller is not selected.
    pub(in crate::app::inquiries) fn node_preview(
        &self,
        node: &Arc<Node>,
        answer: Presence<InstanceMetadata>,
        provider: &Provider,
    ) -> Option<NodePreview> {
        self.node.as_ref().map(|policy| NodePreview {
            blocked: None,
            is_settled: false,
            waiting_time: Duration::ZERO,
            plan: first_plan(node, answer, provider, policy),
            defers_record: false,
            defers_labels: false,
        })
    }

    /// Returns the mode of the node-lifecycle controller; `None` if the controller is not selected.
    pub(in crate::app::inquiries) fn deletion(&self) -> Option<&DeletionMode> {
        self.deletion.as_ref()
    }

    /// Whether the service controller is selected.
    pub(in crate::app::inquiries) fn has_service_controller(&self) -> bool {
        self.has_service_controller
    }

    /// Takes the settings of the selected controllers.
    pub(in crate::app::inquiries) fn new(settings: &Settings) -> Self {
        let has = |kind| settings.controllers.iter().any(|controller| controller.kind == kind);
        let mut policy = settings.nodes.policy.clone();
        policy.node_labels.retain(|key, _| !node::is_reserved_label(key));
        Self {
            node: has(ControllerKind::Node).then_some(policy),
            deletion: has(ControllerKind::NodeLifecycle).then(|| settings.node_lifecycle.deletion.clone()),
            route: settings.routes.clone().filter(|_| has(ControllerKind::Route)),
            has_service_controller: has(ControllerKind::Service),
        }
    }
}

/// Plans without terms.
pub(in crate::app::inquiries) struct DetachedPlanner<'a> {
    pub(in crate::app::inquiries) process: &'a Inquiries,
    pub(in crate::app::inquiries) settings: &'a PlanSettings,
    /// The only Node to plan for.
    pub(in crate::app::inquiries) selected: Option<&'a str>,
}

impl DetachedPlanner<'_> {
    /// Returns the plan for all objects, or only for the selected Node and its routes.
    pub(super) async fn parts(&self, slices: &mut Slices) -> PlanParts {
        let Some(provider) = self.process.vsphere.provider() else {
            let stops = || PlanPart::unknown("the command stops");
            return PlanParts { nodes: stops(), load_balancers: stops(), routes: stops() };
        };
        let load_balancers = match self.selected {
            Some(_) => PlanPart::off(ONE_NODE),
            None => self.load_balancers(slices).await,
        };
        if !self.process.nodes.is_ready() {
            let unread = || PlanPart::unknown("the Nodes could not be read");
            return PlanParts { nodes: unread(), load_balancers, routes: unread() };
        }
        let pass = self.first_pass(&provider).await;
        let nodes = self.nodes(&provider, pass.as_ref().ok(), slices).await;
        let routes = match pass {
            Ok(pass) => self.routes(&provider, &pass),
            Err(part) => part,
        };
        PlanParts { nodes, load_balancers, routes }
    }

    /// Returns the plan for what is in NSX: load balancers, and routes.
    pub(in crate::app::inquiries) async fn nsx_parts(
        &self,
        provider: &Provider,
        slices: &mut Slices,
    ) -> (PlanPart, PlanPart) {
        let load_balancers = self.load_balancers(slices).await;
        let is_logged_in = self.process.vsphere.nsx_report().is_some_and(|report| report.login.is_logged_in);
        let routes = match self.process.nodes.is_ready() && is_logged_in {
            true => match self.first_pass(provider).await {
                Ok(pass) => self.routes(provider, &pass),
                Err(part) => part,
            },
            false => PlanPart::unknown("the Nodes could not be read, or there is no login"),
        };
        (load_balancers, routes)
    }

    /// Lists the routes and plans their changes.
    ///
    /// # Errors
    /// The part of a plan without routes.
    pub(in crate::app::inquiries) async fn first_pass(&self, provider: &Provider) -> Result<FirstRoutePass, PlanPart> {
        let Some(settings) = &self.settings.route else {
            return Err(PlanPart::off("no route controller runs with these flags"));
        };
        let Some(routes) = provider.routes() else {
            return Err(match provider.routes_are_off() {
                true => PlanPart::off("routes are not configured"),
                false => PlanPart::unknown("routes are configured, and NSX is not available"),
            });
        };
        let listed = match timeout(LIST_LIMIT, routes.list_routes(&settings.cluster_name)).await {
            Ok(Ok(listed)) => listed,
            Ok(Err(error)) => {
                return Err(PlanPart::unknown(&format!("the routes cannot be listed: {}", chain(&error))));
            }
            Err(_) => {
                let message = format!("the routes were not listed within {} s", LIST_LIMIT.as_secs());
                return Err(PlanPart::unknown(&message));
            }
        };
        let (own, others): (Vec<Arc<Node>>, Vec<Arc<Node>>) =
            self.process.nodes.list().partition(|node| provider.owns(node));
        let listing = RouteListing { routes: listed, rewrites: routes.rewrites_in_place() };
        Ok(FirstRoutePass::plan(own, &others, &listing, settings))
    }

    fn routes(&self, provider: &Provider, pass: &FirstRoutePass) -> PlanPart {
        let mut plans = RoutePlans::default();
        plans.add_outstanding(&pass.preview(), self.selected);
        plans.mark_rewrites(|node, network| next_hop_of_rewrite(self.process, node, network));
        for node in selected_nodes(self.process, self.selected).iter().filter(|node| provider.owns(node)) {
            for network in pass.preview_of_node(node).networks {
                plans.add_network(node::name(node), &network, "of the leader");
            }
        }
        plans.build()
    }

    async fn nodes(&self, provider: &Arc<Provider>, pass: Option<&FirstRoutePass>, slices: &mut Slices) -> PlanPart {
        if self.settings.node.is_none() && self.settings.deletion.is_none() {
            return PlanPart::off("no controller for Nodes runs with these flags");
        }
        let nodes = selected_nodes(self.process, self.selected);
        let mut answers = self.presences(provider, &nodes).await;
        let mut part = PlanPartBuilder::default();
        for node in nodes {
            let presence = answers.remove(node::name(&node));
            part.add(self.plan_of(provider, pass, &node, presence));
            slices.next().await;
        }
        part.build()
    }

    fn plan_of(
        &self,
        provider: &Provider,
        pass: Option<&FirstRoutePass>,
        node: &Arc<Node>,
        presence: Option<Presence>,
    ) -> ObjectPlan {
        let answer = provider.metadata(node);
        let unknown = unknown_answer(&answer);
        let is_own = provider.owns(node);
        let preview = self.settings.node_preview(node, answer, provider);
        let lifecycle = self.settings.deletion.as_ref().and_then(|mode| {
            let power = provider.power(node).found();
            first_preview(node, LifecycleInputs { is_own, presence, power, mode: mode.clone() })
        });
        node_plan(&NodePlanFacts {
            node,
            unknown,
            preview,
            lifecycle,
            has_term: false,
            end_of: &|_| None,
            network_condition: pass.filter(|_| is_own).and_then(|pass| pass.preview_of_node(node).condition),
        })
    }

    /// Looks up whether the VMs of Nodes whose kubelet does not report exist. Returns the answers by Node; a Node
    /// beyond the limit has none.
    pub(in crate::app::inquiries) async fn presences(
        &self,
        provider: &Arc<Provider>,
        nodes: &[Arc<Node>],
    ) -> BTreeMap<String, Presence> {
        let Some(instances) = provider.instances_v2().filter(|_| self.settings.deletion.is_some()) else {
            return BTreeMap::new();
        };
        let silent: Vec<Arc<Node>> =
            nodes.iter().filter(|node| needs_presence(node, provider.owns(node))).take(MAX_PROOFS).cloned().collect();
        let instances = &instances;
        let answers = silent.into_iter().map(|node| async move {
            let presence = timeout(LIST_LIMIT, instances.instance_exists(&node)).await.unwrap_or_else(|_| {
                Presence::Unknown(Unknown::new(reason::ProviderTimeout, "the cloud provider gave no answer in time"))
            });
            (node::name(&node).to_owned(), presence)
        });
        futures::stream::iter(answers).buffered(PROOFS).collect().await
    }

    async fn load_balancers(&self, slices: &mut Slices) -> PlanPart {
        if !self.settings.has_service_controller {
            return PlanPart::off("no service controller runs with these flags");
        }
        let Some(balancers) = self.process.vsphere.load_balancers() else {
            return match self.process.vsphere.rejected_parts().first() {
                Some(StatusNote { subject, message, .. }) => PlanPart::unknown(&format!("{subject} is {message}")),
                None => PlanPart::off("load balancers are not configured"),
            };
        };
        let Some(services) = self.process.services.as_ref().filter(|services| services.is_ready()) else {
            return PlanPart::unknown("the Services could not be read");
        };
        if !balancers.is_listed() {
            let failure = self.process.vsphere.nsx_report().and_then(|report| report.balancer_list.failure);
            let failure = failure.map(|failure| format!(": {failure}")).unwrap_or_default();
            return PlanPart::unknown(&format!("the objects in NSX could not be listed{failure}"));
        }
        let targets: Vec<Arc<Node>> = self.process.nodes.list().filter(|node| is_target(node)).collect();
        let members = balancers.target_members(&targets);
        let mut objects: BTreeMap<String, ObjectPlan> = BTreeMap::new();
        for key in services.keys() {
            let Some(service) = services.get(&key) else { continue };
            let facts = first_decision(Arc::clone(&service), &*balancers);
            let step = first_step(&balancers, &members, &key, (SyncPurpose::of(&facts), Some(&service)));
            let plan = service_plan(&ServicePlanFacts {
                key: &key,
                term: &facts,
                step,
                is_listed: true,
                hold_of_targets: None,
            });
            objects.insert(key, plan);
            slices.next().await;
        }
        part_with_orphans(objects, &balancers)
    }
}
