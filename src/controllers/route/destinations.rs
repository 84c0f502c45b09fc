//! Pure: the outstanding changes of each destination, from one pass to the next.
//!
//! A listing may miss changes that workers make during the listing. A destination that was changed during a listing
//! keeps its previous plan, and another pass is requested after its worker has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;

use super::plan::{RefusedNetwork, RouteChanges};
use super::pod_networks::wanted;
use crate::base::backoff::Failures;
use crate::cloud::node;

#[derive(Debug, Default)]
pub(super) struct Destinations {
    by_network: BTreeMap<IpNet, Destination>,
    /// Destinations that a worker is changing.
    in_flight: BTreeSet<IpNet>,
    /// Destinations that a worker has changed, or tried to change, since the listing began.
    changed: BTreeSet<IpNet>,
    /// Destinations for which the last listing is outdated, because a worker changed them during the listing.
    unlisted: BTreeSet<IpNet>,
    /// By network, the names of the Nodes whose route to the network is refused.
    rejected: BTreeMap<IpNet, BTreeSet<String>>,
    ready: usize,
}

#[derive(Debug, Default)]
struct Destination {
    changes: RouteChanges,
    failures: Failures,
    is_tried: bool,
    /// Whether the target Node of a route to delete was added, changed or deleted since the plan.
    is_stale: bool,
    /// The last attempt, if it failed.
    last_failure: Option<FailedAttempt>,
}

/// An attempt to change the routes to one destination that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAttempt {
    /// The failure.
    pub message: String,
    /// Time of the next attempt, unless a change causes an earlier one; `None` if it waits for a change.
    pub next: Option<Instant>,
}

/// The outstanding changes of one destination.
pub(super) struct OutstandingChanges<'a> {
    pub(super) network: IpNet,
    pub(super) changes: &'a RouteChanges,
    /// Whether the changes were tried.
    pub(super) is_tried: bool,
    /// The last attempt, if it failed.
    pub(super) failure: Option<&'a FailedAttempt>,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct DestinationUpdate {
    pub(super) due: Vec<IpNet>,
    /// Destinations that are up to date.
    pub(super) done: Vec<IpNet>,
    /// Whether another listing is needed, because the listing is outdated for a destination whose worker has ended.
    pub(super) is_outdated: bool,
}

/// The state of the routes of a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// The Node wants no route.
    Unwanted,
    /// A route was not tried yet.
    Pending,
    /// A route could not be created, or is refused.
    Failed,
    /// All routes match the Node.
    Ready,
}

impl Destinations {
    pub(super) fn begin_listing(&mut self) {
        self.changed.clone_from(&self.in_flight);
    }

    /// Adopts the plan of the last listing. `nodes` are the planned Nodes. `refused` are the networks of these Nodes
    /// that get no new route. `changed` are the names of the Nodes added, changed or deleted since the last pass; kept
    /// routes to these Nodes are checked again.
    pub(super) fn adopt(
        &mut self,
        mut plan: BTreeMap<IpNet, RouteChanges>,
        nodes: &[Arc<Node>],
        refused: &[RefusedNetwork],
        changed: &BTreeSet<String>,
    ) -> DestinationUpdate {
        let mut adopted = DestinationUpdate {
            is_outdated: self.changed.iter().any(|one| !self.in_flight.contains(one)),
            ..DestinationUpdate::default()
        };
        self.unlisted.clone_from(&self.changed);
        plan.retain(|network, _| !self.unlisted.contains(network));
        for (network, mut destination) in std::mem::take(&mut self.by_network) {
            destination.is_stale |= destination.leads_to_any(changed);
            // A failed change waits for its backoff.
            let is_due = destination.is_stale && destination.failures.is_none();
            let is_same = plan.get(&network) == Some(&destination.changes) && !is_due;
            if self.unlisted.contains(&network) || is_same {
                // The destination keeps its plan, because the plan is the same or the listing is outdated for the
                // destination.
                plan.remove(&network);
                self.by_network.insert(network, destination);
            } else if !plan.contains_key(&network) {
                adopted.done.push(network);
            }
        }
        adopted.due = plan.keys().copied().collect();
        let planned = |changes| Destination { changes, ..Destination::default() };
        self.by_network.extend(plan.into_iter().map(|(network, changes)| (network, planned(changes))));
        self.rejected.clear();
        for one in refused.iter().filter(|one| !one.has_route) {
            self.rejected.entry(one.network).or_default().insert(one.node.clone());
        }
        let created = |node| wanted(node).flatten().filter(|network| !self.is_refused(node, network));
        let wanted: BTreeSet<IpNet> = nodes.iter().map(|node| &**node).flat_map(created).collect();
        let is_ready = |network: &&IpNet| {
            let is_there = self.by_network.get(network).is_none_or(|one| one.changes.creations.is_empty());
            is_there && !self.unlisted.contains(network)
        };
        self.ready = wanted.iter().filter(is_ready).count();
        adopted
    }

    /// Begins a worker's changes of a destination. Returns the changes.
    pub(super) fn begin(&mut self, network: IpNet) -> RouteChanges {
        self.in_flight.insert(network);
        self.changed.insert(network);
        self.left(network)
    }

    /// Ends a worker's changes. `left` are the remaining changes. Returns whether another listing is needed.
    #[must_use]
    pub(super) fn finish(&mut self, network: IpNet, left: RouteChanges, is_tried: bool) -> bool {
        self.in_flight.remove(&network);
        if left.is_empty() {
            let done = self.by_network.remove(&network);
            self.ready += usize::from(done.is_some_and(|done| !done.changes.creations.is_empty()));
        } else if let Some(destination) = self.by_network.get_mut(&network) {
            destination.changes = left;
            destination.is_tried |= is_tried;
        }
        self.unlisted.contains(&network)
    }

    pub(super) fn left(&self, network: IpNet) -> RouteChanges {
        self.by_network.get(&network).map(|destination| destination.changes.clone()).unwrap_or_default()
    }

    pub(super) fn failures(&mut self, network: IpNet) -> Option<&mut Failures> {
        self.by_network.get_mut(&network).map(|destination| &mut destination.failures)
    }

    /// Records an attempt; `failure` is `None` if the attempt did not fail.
    pub(super) fn record_attempt(&mut self, network: IpNet, failure: Option<FailedAttempt>) {
        if let Some(destination) = self.by_network.get_mut(&network) {
            destination.last_failure = failure;
        }
    }

    /// Returns the last attempt to change this destination, if it failed.
    pub(super) fn last_failure(&self, network: IpNet) -> Option<&FailedAttempt> {
        self.by_network.get(&network)?.last_failure.as_ref()
    }

    /// Returns the destinations with outstanding changes.
    pub(super) fn outstanding(&self) -> impl Iterator<Item = OutstandingChanges<'_>> {
        self.by_network.iter().map(|(network, destination)| OutstandingChanges {
            network: *network,
            changes: &destination.changes,
            is_tried: destination.is_tried,
            failure: destination.last_failure.as_ref(),
        })
    }

    /// Whether the last listing is valid for this destination.
    pub(super) fn is_listed(&self, network: &IpNet) -> bool {
        !self.unlisted.contains(network)
    }

    /// Returns the names of the Nodes that wait for a route to this destination.
    pub(super) fn waiting(&self, network: IpNet) -> impl Iterator<Item = &str> {
        let creations = self.by_network.get(&network).into_iter().flat_map(|one| &one.changes.creations);
        creations.map(|creation| creation.route.target_node.as_str())
    }

    /// Returns the state of the Node's routes according to the last plan.
    pub(super) fn routing(&self, node: &Node) -> Routing {
        let mut routing = Routing::Unwanted;
        for network in wanted(node) {
            // A network that cannot be parsed never gets a route.
            let next = network.map_or(Routing::Failed, |network| self.routing_of(node, &network));
            routing = match (routing, next) {
                (Routing::Pending, _) | (_, Routing::Pending) => Routing::Pending,
                (Routing::Failed, _) | (_, Routing::Failed) => Routing::Failed,
                (Routing::Ready | Routing::Unwanted, Routing::Ready | Routing::Unwanted) => Routing::Ready,
            };
        }
        routing
    }

    fn is_refused(&self, node: &Node, network: &IpNet) -> bool {
        self.rejected.get(network).is_some_and(|nodes| nodes.contains(node::name(node)))
    }

    /// Returns the state of the Node's route to this network according to the last plan.
    pub(super) fn routing_of(&self, node: &Node, network: &IpNet) -> Routing {
        if self.is_refused(node, network) {
            return Routing::Failed;
        }
        match self.by_network.get(network).filter(|destination| destination.waits(node)) {
            Some(destination) if destination.is_tried => Routing::Failed,
            None if !self.unlisted.contains(network) => Routing::Ready,
            Some(_) | None => Routing::Pending,
        }
    }

    /// Returns the number of destinations without a missing route, and the number of destinations with untried changes.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.ready, self.by_network.values().filter(|destination| !destination.is_tried).count())
    }
}

impl Destination {
    fn waits(&self, node: &Node) -> bool {
        self.changes.creations.iter().any(|creation| creation.route.target_node == node::name(node))
    }

    /// Whether the target of a route to be deleted is one of these Nodes.
    fn leads_to_any(&self, nodes: &BTreeSet<String>) -> bool {
        self.changes.deletions.iter().any(|deletion| nodes.contains(&deletion.route.target_node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::backoff::Backoff;
    use crate::cloud::Route;
    use crate::controllers::route::plan::{Creation, DeletionReason, RouteDeletion};
    use serde_json::json;
    use std::time::Duration;

    fn network(number: u8) -> IpNet {
        format!("10.120.{number}.0/24").parse().unwrap()
    }

    fn creation(node: &str, number: u8) -> RouteChanges {
        let destination_cidr = network(number).to_string();
        let route = Route { target_node: node.into(), destination_cidr, ..Route::default() };
        RouteChanges { creations: vec![Creation { name_hint: "u".into(), route }], ..RouteChanges::default() }
    }

    fn node(name: &str, networks: &[&str]) -> Arc<Node> {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"podCIDRs": networks}}))
            .map(Arc::new)
            .unwrap()
    }

    fn plan(numbers: &[u8]) -> BTreeMap<IpNet, RouteChanges> {
        numbers.iter().map(|number| (network(*number), creation("a", *number))).collect()
    }

    #[test]
    fn what_failed_waits_for_its_backoff_whatever_is_listed() {
        let mut destinations = Destinations::default();
        assert_eq!(destinations.adopt(plan(&[0, 1]), &[], &[], &BTreeSet::new()).due, [network(0), network(1)]);
        let left = destinations.begin(network(0));
        assert!(!destinations.finish(network(0), left, true));
        destinations.begin_listing();
        assert_eq!(
            destinations.adopt(plan(&[0, 1]), &[], &[], &BTreeSet::new()),
            DestinationUpdate::default(),
            "the same again"
        );
        let mut changed = plan(&[0]);
        changed.insert(network(0), creation("b", 0));
        destinations.begin_listing();
        let expected = DestinationUpdate { due: vec![network(0)], done: vec![network(1)], is_outdated: false };
        assert_eq!(destinations.adopt(changed, &[], &[], &BTreeSet::new()), expected);
    }

    #[test]
    fn a_kept_route_is_checked_again_after_its_node_has_changed() {
        let route = Route { target_node: "a".into(), ..Route::default() };
        let deletion = RouteDeletion { route, reason: DeletionReason::NodeMissing };
        let changes = RouteChanges { deletions: vec![deletion], ..RouteChanges::default() };
        let plan = || BTreeMap::from([(network(0), changes.clone())]);
        let (nobody, its) = (BTreeSet::new(), BTreeSet::from(["a".to_owned()]));
        let mut destinations = Destinations::default();
        let mut pass = |changed: &BTreeSet<String>, during: fn(&mut Destinations)| {
            destinations.begin_listing();
            during(&mut destinations);
            let due = destinations.adopt(plan(), &[], &[], changed).due;
            let left = destinations.begin(network(0));
            let _is_outdated = destinations.finish(network(0), left, true);
            !due.is_empty()
        };
        assert!(pass(&nobody, |_| {}) && !pass(&nobody, |_| {}), "it is kept, and waits");
        assert!(pass(&its, |_| {}) && !pass(&nobody, |_| {}));
        let work = |destinations: &mut Destinations| drop(destinations.begin(network(0)));
        assert!(!pass(&its, work), "the plan is older than the work");
        assert!(pass(&nobody, |_| {}), "a change of the Node during the work is checked in the next pass");
        let fail = |destinations: &mut Destinations| {
            let failures = destinations.failures(network(0)).unwrap();
            failures.next_pause(&Backoff::doubling(Duration::from_secs(1), Duration::from_secs(9)), 0.5);
        };
        assert!(!pass(&its, fail), "what failed waits for its backoff");
        let succeed = |destinations: &mut Destinations| destinations.failures(network(0)).unwrap().reset();
        assert!(pass(&nobody, succeed) && !pass(&nobody, |_| {}), "the change is checked after the next success");
    }

    #[test]
    fn a_failed_attempt_is_kept_until_the_destination_succeeds_or_gets_another_plan() {
        let failed = || FailedAttempt { message: "no answer".to_owned(), next: Some(Instant::now()) };
        let plan = |node| BTreeMap::from([(network(0), creation(node, 0))]);
        let mut destinations = Destinations::default();
        destinations.record_attempt(network(0), Some(failed()));
        assert_eq!(destinations.last_failure(network(0)), None, "there is no such destination");
        let adopt = |destinations: &mut Destinations, node| {
            destinations.begin_listing();
            destinations.adopt(plan(node), &[], &[], &BTreeSet::new())
        };
        let _due = adopt(&mut destinations, "a");
        destinations.record_attempt(network(0), Some(failed()));
        let _due = adopt(&mut destinations, "a");
        assert_eq!(destinations.last_failure(network(0)).map(|one| one.message.as_str()), Some("no answer"));
        destinations.record_attempt(network(0), None);
        assert_eq!(destinations.last_failure(network(0)), None);
        destinations.record_attempt(network(0), Some(failed()));
        let _due = adopt(&mut destinations, "b");
        assert_eq!(destinations.last_failure(network(0)), None, "the plan is another one");
    }

    #[test]
    fn a_listing_is_outdated_for_destinations_that_changed_during_it() {
        let mut destinations = Destinations::default();
        destinations.adopt(plan(&[0, 1]), &[], &[], &BTreeSet::new());
        destinations.begin(network(0));
        destinations.begin_listing();
        destinations.begin(network(1));
        assert!(!destinations.finish(network(1), RouteChanges::default(), true), "nothing was listed yet");
        // The change of destination 0 is in flight, and that of destination 1 has ended.
        let adopted = destinations.adopt(BTreeMap::from([(network(1), creation("a", 1))]), &[], &[], &BTreeSet::new());
        assert_eq!(adopted, DestinationUpdate { is_outdated: true, ..DestinationUpdate::default() });
        let routed = |number: u8| node("b", &[&network(number).to_string()]);
        assert_eq!(destinations.routing(&routed(0)), Routing::Pending, "what is not known is not there");
        assert!(destinations.finish(network(0), RouteChanges::default(), true), "its state is unknown");
        assert_eq!(destinations.routing(&routed(0)), Routing::Pending);
        destinations.begin_listing();
        assert_eq!(destinations.adopt(BTreeMap::new(), &[], &[], &BTreeSet::new()), DestinationUpdate::default());
        assert_eq!(destinations.routing(&routed(0)), Routing::Ready);
    }

    #[test]
    fn a_node_is_routed_when_all_its_routes_are_there() {
        let nodes =
            [node("a", &["10.120.0.0/24", "10.120.1.0/24"]), node("b", &["10.120.2.0/24"]), node("c", &["garbage"])];
        let mut destinations = Destinations::default();
        destinations.adopt(plan(&[0, 1]), &nodes, &[], &BTreeSet::new());
        let routing =
            |destinations: &Destinations| nodes.iter().map(|node| destinations.routing(node)).collect::<Vec<_>>();
        assert_eq!(routing(&destinations), [Routing::Pending, Routing::Ready, Routing::Failed]);
        assert_eq!(destinations.counts(), (1, 2));
        let left = destinations.begin(network(0));
        assert!(!destinations.finish(network(0), left, true));
        assert_eq!(destinations.waiting(network(0)).collect::<Vec<_>>(), ["a"]);
        assert_eq!(routing(&destinations)[0], Routing::Pending, "the other one was not tried");
        for (number, expected) in [(1, Routing::Failed), (0, Routing::Ready)] {
            destinations.begin(network(number));
            assert!(!destinations.finish(network(number), RouteChanges::default(), true));
            assert_eq!(routing(&destinations)[0], expected);
        }
        assert_eq!((destinations.counts(), destinations.routing(&node("d", &[]))), ((3, 0), Routing::Unwanted));
        destinations.begin_listing();
        destinations.adopt(plan(&[0]), &nodes, &[], &BTreeSet::new());
        let left = destinations.begin(network(0));
        assert_eq!(left, destinations.left(network(0)), "all of it, until the worker ends");
        assert!(!destinations.finish(network(0), left, false));
        assert_eq!(routing(&destinations)[0], Routing::Pending, "it was not tried");
    }
}
