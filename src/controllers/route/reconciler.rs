//! The reconciler of the route controller, with the work of its three kinds of keys.

mod explanation;
mod first_pass;
mod preview;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::RoutesStatus;
use super::apply::{ApplyResult, Cloud, Listing};
use super::condition;
use super::destinations::{Destinations, FailedAttempt, Routing};
use super::failure::RouteFailure;
use super::key::Key;
use super::metrics::RouteMetrics;
use super::plan::{Creation, RefusedNetwork, RouteChanges, plan, refused_networks};
use super::pod_networks::{PodNetworks, RefusedNetworks, refused, wanted};
use super::schedule::Schedule;
use super::tracked_nodes::{TrackedNodes, Version};
use crate::base::backoff::Failures;
use crate::base::error_chain::chain;
use crate::cloud::{LiveReads, Presence, Reason, Route, node};
use crate::controllers::decisions::{ALL_ROUTES, DecisionRecorder, ROUTE_CREATED, ROUTE_DELETED, SETTLED};
use crate::controllers::driver::Requeue;
use crate::controllers::reason_tracker::ReasonTracker;
use crate::controllers::{now, reason_of, record_event};
use crate::kubernetes::call::CallError;
use crate::kubernetes::events::{EventType, Recorder};
use crate::kubernetes::patch::{patch_status, permits_retry};
pub use explanation::{PodNetworkFacts, RouteFacts};
pub use first_pass::FirstRoutePass;
pub use preview::{DestinationPreview, NodeRoutePreview, PodNetworkPreview, RoutePreview};

/// Interval between the checks of a kept route, unless its Node changes earlier.
const KEPT_ROUTE_PAUSE: Duration = Duration::from_secs(300);

/// The reconciler of one leadership term.
pub struct RouteReconciler {
    pub(super) cloud: Cloud,
    pub(super) api: Api<Node>,
    pub(super) recorder: Recorder,
    pub(super) decisions: DecisionRecorder,
    pub(super) networks: Vec<IpNet>,
    pub(super) pod_networks: PodNetworks,
    pub(super) writes_condition: bool,
    /// The reasons of destinations that cannot be changed.
    pub(super) reasons: Arc<ReasonTracker>,
    pub(super) metrics: RouteMetrics,
    pub(super) progress: Mutex<Progress>,
    /// Notified when the schedule or the due keys change.
    pub(super) changed: Notify,
}

pub(super) struct Progress {
    schedule: Schedule,
    listing_failures: Failures,
    /// Whether a listing was successful in this term.
    are_listed: bool,
    /// The failure of the last listing, if it failed.
    listing_failure: Option<String>,
    nodes: TrackedNodes,
    destinations: Destinations,
    /// The keys in `reasons` that belong to refused networks of the last pass.
    rejected: BTreeSet<String>,
    /// Refused networks that had a route in the last listing, each with its Node.
    kept_routes: BTreeSet<(IpNet, String)>,
    /// Nodes whose condition could not be written, with the reason.
    unwritten: BTreeMap<String, Reason>,
    /// The keys to enqueue.
    due: BTreeSet<Key>,
}

/// The result of a reconcile.
#[derive(Debug)]
pub enum RouteOutcome {
    /// All routes were listed, or the listing failed.
    Pass(Result<Pass, RouteFailure>),
    /// The changes for one destination were tried.
    Destination(IpNet, ApplyResult),
    /// The condition of this Node is up to date, or could not be written.
    Condition(String, Result<(), CallError>),
    /// The key was invalid.
    Nothing,
}

/// The routes of the cloud.
#[derive(Clone, Debug, Default)]
pub struct RouteListing {
    /// The routes.
    pub routes: Vec<Route>,
    /// Whether the cloud rewrites routes in place; see [`Routes::rewrites_in_place`].
    ///
    /// [`Routes::rewrites_in_place`]: crate::cloud::Routes::rewrites_in_place
    pub rewrites: bool,
}

/// One listing and its plan.
#[derive(Debug)]
pub struct Pass {
    nodes: Vec<Arc<Node>>,
    targets: BTreeSet<String>,
    plan: BTreeMap<IpNet, RouteChanges>,
    rejected: Vec<RefusedNetwork>,
}

impl Pass {
    /// Plans the changes. `networks` come from `--cluster-cidr`.
    fn plan(nodes: Vec<Arc<Node>>, listing: &RouteListing, networks: &[IpNet], refused: &RefusedNetworks) -> Self {
        let RouteListing { routes, rewrites } = listing;
        let own: Vec<&Node> = nodes.iter().map(|node| &**node).collect();
        let plan = plan(&own, routes, networks, refused, *rewrites);
        let rejected = refused_networks(&own, routes, refused);
        let led_to: BTreeSet<&str> = routes.iter().map(|route| route.target_node.as_str()).collect();
        let is_target = |node: &&Node| led_to.contains(node::name(node));
        let without_networks = own.into_iter().filter(|node| wanted(node).next().is_none());
        let targets = without_networks.filter(is_target).map(|node| node::name(node).to_owned()).collect();
        Self { nodes, targets, plan, rejected }
    }
}

impl Progress {
    pub(super) fn new(schedule: Schedule) -> Self {
        let (nodes, destinations) = (TrackedNodes::default(), Destinations::default());
        let listing_failures = Failures::default();
        let refused = BTreeSet::new();
        let kept = BTreeSet::new();
        let (unwritten, due) = (BTreeMap::new(), BTreeSet::new());
        Self {
            schedule,
            listing_failures,
            are_listed: false,
            listing_failure: None,
            nodes,
            destinations,
            rejected: refused,
            kept_routes: kept,
            unwritten,
            due,
        }
    }
}

impl RouteReconciler {
    /// Records that the Node of this name was added, changed or deleted.
    pub(super) fn observe(&self, name: &str) {
        let version = self.cloud.nodes.get(name).map(|node| self.version(&node));
        let mut progress = self.progress.lock();
        if progress.nodes.update(name, version) {
            progress.schedule.change(now());
            self.changed.notify_one();
        }
    }

    fn version(&self, node: &Node) -> Version {
        if self.cloud.provider.owns(node) { Version::of(node) } else { Version::of_other(node) }
    }

    /// Records that any Node may have changed, and requests a pass, as a resync of the Go program does.
    pub(super) fn observe_all(&self) {
        let all = self.cloud.nodes.list();
        let all = all.map(|node| (node::name(&node).to_owned(), self.version(&node))).collect();
        let mut progress = self.progress.lock();
        progress.nodes.replace_all(all);
        progress.schedule.all_known(now());
        self.changed.notify_one();
    }

    /// Returns the state of the routes in this term.
    pub fn status(&self) -> RoutesStatus {
        let progress = self.progress.lock();
        let (ready, pending) = progress.destinations.counts();
        let (are_listed, failure) = (progress.are_listed, progress.listing_failure.clone());
        drop(progress);
        RoutesStatus { are_listed, failure, ready, pending, blocked: self.reasons.list() }
    }

    pub(super) async fn next_due(&self) -> Key {
        loop {
            let changed = self.changed.notified();
            let due = {
                let mut progress = self.progress.lock();
                if let Some(key) = progress.due.pop_first() {
                    return key;
                }
                let due = progress.schedule.due();
                if due.is_some_and(|due| due <= now()) {
                    progress.schedule.queue();
                    return Key::Pass;
                }
                due
            };
            match due {
                Some(due) => drop(timeout_at(due.into(), changed).await),
                None => changed.await,
            }
        }
    }

    /// Lists all routes and plans the changes. Nodes that join during the listing wait for the next pass.
    pub(super) async fn pass(&self) -> Result<Pass, RouteFailure> {
        {
            let mut progress = self.progress.lock();
            progress.schedule.begin(now());
            progress.destinations.begin_listing();
        }
        let (nodes, others): (Vec<_>, Vec<_>) =
            self.cloud.nodes.list().partition(|node| self.cloud.provider.owns(node));
        let all_nodes = nodes.iter().chain(&others).map(|node| &**node);
        let refused = refused(all_nodes, &self.networks, self.pod_networks);
        let Listing { routes, rewrites, ambiguous: blocked } = self.cloud.list_routes().await?;
        self.metrics.show_blocked(blocked);
        Ok(Pass::plan(nodes, &RouteListing { routes, rewrites }, &self.networks, &refused))
    }

    pub(super) async fn reconcile_destination(&self, network: IpNet) -> ApplyResult {
        let changes = self.progress.lock().destinations.begin(network);
        self.cloud.apply(changes).await
    }

    pub(super) async fn reconcile_condition(&self, name: &str) -> Result<(), CallError> {
        let Some(cached) = self.cloud.nodes.get(name) else { return Ok(()) };
        let mut node = (*cached).clone();
        let what = format!("write the condition NetworkUnavailable of Node {name}");
        let mut attempts = 0;
        loop {
            let Some(patch) = self.condition_patch(&node) else { return Ok(()) };
            match patch_status(&what, &self.api, name, patch).await {
                Err(error) if permits_retry(&mut attempts, &error).await => {}
                Err(error) if error.is_not_found() => return Ok(()),
                written => return written.map(drop),
            }
            match self.cloud.live.node(name).await {
                Presence::Exists(live) => node = live,
                Presence::Absent(_) => return Ok(()),
                // The next attempt fails with the same error, or conflicts again.
                Presence::Unknown(unknown) => tracing::debug!(node = name, "{unknown}"),
            }
        }
    }

    /// Builds the patch. Returns `None` if the condition is up to date, if this process must not write the condition,
    /// or if a later pass must determine the condition.
    fn condition_patch(&self, node: &Node) -> Option<serde_json::Value> {
        if !self.writes_condition || !self.cloud.provider.owns(node) || self.cloud.permit.check().is_err() {
            return None;
        }
        let progress = self.progress.lock();
        let has_routes = progress.has_routes(node).filter(|_| progress.nodes.is_planned(node))?;
        condition::patch(node, has_routes, Timestamp::now())
    }

    pub(super) fn conclude_pass(&self, mut pass: Pass) {
        self.metrics.syncs.inc();
        let mut progress = self.progress.lock();
        // A single listing may lack a kept route by mistake. A second listing confirms that the route does not exist.
        let kept = std::mem::take(&mut progress.kept_routes);
        for refused in &mut pass.rejected {
            let place = (refused.network, refused.node.clone());
            if refused.has_route {
                progress.kept_routes.insert(place);
            } else if kept.contains(&place) {
                refused.has_route = true;
                progress.schedule.change(now());
            }
        }
        progress.listing_failures.reset();
        progress.are_listed = true;
        progress.listing_failure = None;
        let changed = progress.nodes.plan(&pass.nodes, pass.targets);
        let adopted = progress.destinations.adopt(pass.plan, &pass.nodes, &pass.rejected, &changed);
        if adopted.is_outdated {
            progress.schedule.change(now());
        }
        progress.due.extend(adopted.due.iter().copied().map(Key::Destination));
        let at = Timestamp::now();
        let is_to_be_written = |node: &&Arc<Node>| {
            let has_routes = progress.has_routes(node);
            has_routes.is_some_and(|has_routes| condition::patch(node, has_routes, at).is_some())
        };
        let conditions = pass.nodes.iter().filter(|_| self.writes_condition).filter(is_to_be_written);
        let conditions: Vec<_> = conditions.map(|node| Key::Condition(node::name(node).to_owned())).collect();
        progress.due.extend(conditions);
        self.metrics.show(progress.destinations.counts());
        let keys = pass.rejected.iter().map(RefusedNetwork::key).collect();
        let before = std::mem::replace(&mut progress.rejected, keys);
        let allowed: Vec<String> = before.difference(&progress.rejected).cloned().collect();
        drop(progress);
        self.changed.notify_one();
        for key in allowed {
            self.reasons.clear(&key);
        }
        for refused in &pass.rejected {
            self.report_refused(refused);
        }
        for network in adopted.due {
            self.reasons.clear(&network.to_string());
        }
        for network in adopted.done {
            self.clear(network);
        }
    }

    pub(super) fn conclude_failed_pass(&self, failure: &RouteFailure) {
        self.metrics.syncs.inc();
        let mut progress = self.progress.lock();
        let pause = failure.pause(&mut progress.listing_failures).unwrap_or_default();
        progress.schedule.fail(now(), pause);
        // Later failures of the same outage are the same decision.
        let is_first = progress.listing_failure.replace(failure.message.clone()).is_none();
        drop(progress);
        self.changed.notify_one();
        if failure.retry.is_some() {
            tracing::warn!(reason = %failure.reason, "{}", failure.message);
            if is_first {
                self.decisions.record(ALL_ROUTES, failure.reason.as_str(), &failure.message);
            }
        }
    }

    pub(super) fn conclude_destination(&self, network: IpNet, applied: ApplyResult) -> Requeue {
        for route in &applied.deleted {
            tracing::info!(node = route.target_node, destination = %network, route = route.name, "route deleted");
            self.decisions.record(&route.target_node, ROUTE_DELETED, &format!("to {network}"));
        }
        for Creation { route, .. } in &applied.created {
            tracing::info!(node = route.target_node, destination = %network, "route created");
            self.decisions.record(&route.target_node, ROUTE_CREATED, &format!("to {network}"));
        }
        let (is_left, created) = (!applied.remaining.is_empty(), applied.created);
        let is_tried = applied.failure.as_ref().is_none_or(|(failure, _)| failure.retry.is_some());
        let mut progress = self.progress.lock();
        if progress.destinations.finish(network, applied.remaining, is_tried) {
            progress.schedule.change(now());
        }
        let pause = match (&applied.failure, progress.destinations.failures(network)) {
            (Some((failure, _)), Some(failures)) => failure.pause(failures),
            (None, Some(failures)) => {
                failures.reset();
                is_left.then_some(KEPT_ROUTE_PAUSE)
            }
            (_, None) => is_left.then_some(KEPT_ROUTE_PAUSE),
        };
        let failure = applied.failure.as_ref().map(|(failure, _)| FailedAttempt {
            message: failure.message.clone(),
            next: pause.map(|pause| now() + pause),
        });
        progress.destinations.record_attempt(network, failure);
        if self.writes_condition {
            let waiting: Vec<String> = progress.destinations.waiting(network).map(str::to_owned).collect();
            let concerned = created.into_iter().map(|creation| creation.route.target_node).chain(waiting);
            progress.due.extend(concerned.map(Key::Condition));
        }
        self.metrics.show(progress.destinations.counts());
        drop(progress);
        self.changed.notify_one();
        if !is_tried {
            return Requeue::BACKOFF;
        }
        self.report(network, applied.failure);
        pause.map_or(Requeue::PERIOD, Requeue::after)
    }

    /// Reports why the routes of a destination cannot be changed. Reports once per change of the reason.
    fn report(&self, network: IpNet, failure: Option<(RouteFailure, Option<Creation>)>) {
        let key = network.to_string();
        let Some((failure, creation)) = failure else {
            return self.clear(network);
        };
        let RouteFailure { reason, message, .. } = failure;
        if !self.reasons.set(&key, reason, None) {
            return tracing::debug!(destination = key, %reason, "{message}");
        }
        let name = creation.as_ref().map_or(key.as_str(), |creation| creation.route.target_node.as_str());
        self.decisions.record(name, reason.as_str(), &message);
        let Some(Creation { name_hint, route }) = creation else {
            return tracing::warn!(destination = key, %reason, "{message}");
        };
        let metadata = ObjectMeta { name: Some(route.target_node), uid: Some(name_hint), ..ObjectMeta::default() };
        let node = Node { metadata, ..Node::default() };
        record_event(&self.recorder, &node, EventType::Warning, "FailedToCreateRoute", &message);
    }

    /// Clears the reason of a destination that is as planned.
    fn clear(&self, network: IpNet) {
        let key = network.to_string();
        if let Some(before) = self.reasons.clear(&key) {
            self.decisions.record(&key, SETTLED, &format!("blocked before by {before}"));
        }
    }

    /// Reports a refused network once per change. The network has no route, or a route that would not be created now.
    fn report_refused(&self, refused: &RefusedNetwork) {
        let RefusedNetwork { node, uid, network, refusal, has_route } = refused;
        let (reason, cause) = (refusal.reason(), refusal.message(*network, node));
        if !self.reasons.set(&refused.key(), reason, None) {
            return;
        }
        let metadata = ObjectMeta { name: Some(node.clone()), uid: Some(uid.clone()), ..ObjectMeta::default() };
        let target = Node { metadata, ..Node::default() };
        let (event, message) = match has_route {
            true => (reason.as_str(), format!("the route to {network} is kept, and would not be created now: {cause}")),
            false => ("FailedToCreateRoute", format!("no route to {network} is created: {cause}")),
        };
        tracing::warn!(node, destination = %network, %reason, "{message}");
        self.decisions.record(node, reason.as_str(), &message);
        record_event(&self.recorder, &target, EventType::Warning, event, &message);
    }

    pub(super) fn conclude_condition(&self, name: &str, written: Result<(), CallError>) -> Requeue {
        match written {
            Ok(()) => {
                self.progress.lock().unwritten.remove(name);
                Requeue::PERIOD
            }
            // Leadership is lost, so the driver stops this worker.
            Err(error) if error.is_not_leader() => Requeue::PERIOD,
            Err(error) => {
                let reason = reason_of(&error);
                if self.progress.lock().unwritten.insert(name.to_owned(), reason) != Some(reason) {
                    tracing::warn!(node = name, %reason, "{}", chain(&error));
                    self.decisions.record(name, reason.as_str(), &chain(&error));
                }
                Requeue::BACKOFF
            }
        }
    }

    pub(super) fn conclude_panic(&self, key: Option<Key>, failure: RouteFailure) -> Requeue {
        self.metrics.panics.inc();
        tracing::error!("{}", failure.message);
        match key {
            Some(Key::Pass) => self.conclude_failed_pass(&failure),
            Some(Key::Destination(network)) => {
                let left = self.progress.lock().destinations.left(network);
                return self.conclude_destination(
                    network,
                    ApplyResult { remaining: left, failure: Some((failure, None)), ..ApplyResult::default() },
                );
            }
            Some(Key::Condition(_)) => return Requeue::BACKOFF,
            None => {}
        }
        Requeue::PERIOD
    }

    /// Clears the gauges at the end of the leadership term.
    pub(super) fn forget(&self) {
        self.reasons.forget_all();
        self.metrics.show((0, 0));
        self.metrics.show_blocked(0);
    }
}

impl Progress {
    pub(super) fn destinations(&self) -> &Destinations {
        &self.destinations
    }

    /// Returns the time of the next pass; `None` while a pass is queued.
    pub(super) fn next_pass(&self) -> Option<Instant> {
        self.schedule.due()
    }

    /// Whether the last pass planned with this Node's current state.
    pub(super) fn is_planned(&self, node: &Node) -> bool {
        self.nodes.is_planned(node)
    }

    /// Returns the reason why the condition of this Node could not be written.
    pub(super) fn unwritten_condition(&self, name: &str) -> Option<Reason> {
        self.unwritten.get(name).copied()
    }

    /// Whether the Node has its routes; `None` if a route is untried, or if the Node neither has nor wants a route.
    fn has_routes(&self, node: &Node) -> Option<bool> {
        match self.destinations.routing(node) {
            Routing::Ready => Some(true),
            Routing::Failed => Some(false),
            Routing::Unwanted => self.nodes.is_target(node).then_some(false),
            Routing::Pending => None,
        }
    }
}
