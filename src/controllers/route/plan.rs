//! Pure: compares Nodes and cloud routes. Plans the routes to create, and the possible deletions.
//!
//! Mirrors `reconcile` and `isResponsibleForRoute` of `controllers/route/route_controller.go`. Networks are compared as
//! networks, not as text. A deletion is only proposed, because the cached Nodes may be stale.
//! [`RouteDeletion::verdict`] decides after a live read of the Node.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, NodeAddress};

use super::pod_networks::{Refusal, RefusedNetworks, is_ours, wanted, wanted_texts};
use crate::base::addresses::parse_network_sloppy;
use crate::cloud::node::{self, addresses};
use crate::cloud::{Presence, Route, Unknown};

/// The changes for one destination, independent of other destinations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteChanges {
    /// Applied first. If a deletion fails, nothing is created, because two routes to one destination must not lead to
    /// different Nodes.
    pub deletions: Vec<RouteDeletion>,
    /// Applied after the deletions.
    pub creations: Vec<Creation>,
}

/// The proposed deletion of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteDeletion {
    /// The route, as the cloud listed it.
    pub route: Route,
    /// The reason why the route may have to be deleted.
    pub reason: DeletionReason,
}

/// The reason why a route may have to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionReason {
    /// The route is a blackhole or has no target.
    NoTarget,
    /// No cached Node of this controller has the target's name.
    NodeMissing,
    /// The cached Node does not want the route.
    NotWanted,
    /// The Node wants the route with other addresses.
    OtherAddresses,
}

/// A route that a Node wants but the cloud does not have.
#[derive(Clone, Debug, PartialEq)]
pub struct Creation {
    /// The UID of the Node, from which clouds derive the route's name.
    pub name_hint: String,
    /// The route.
    pub route: Route,
}

/// The decision about a deletion after a live read of the target Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveReadVerdict {
    /// Delete the route.
    Delete,
    /// Keep the route: its Node wants it, or is not one of this controller's Nodes.
    Keep,
    /// The live read failed.
    Unknown(Unknown),
}

/// Plans the changes of each destination. `nodes` are this controller's Nodes, and `networks` come from
/// `--cluster-cidr`. If `rewrites`, a creation replaces a route with outdated addresses. Such a route is then deleted
/// only if the Node also has a correct route. A network in `refused` gets no new route, but its existing route may be
/// replaced.
pub fn plan(
    nodes: &[&Node],
    routes: &[Route],
    networks: &[IpNet],
    refused: &RefusedNetworks,
    rewrites: bool,
) -> BTreeMap<IpNet, RouteChanges> {
    let by_name: BTreeMap<&str, &Node> = nodes.iter().map(|node| (node::name(node), *node)).collect();
    let by_target = by_target(routes);
    let mut changes = BTreeMap::<IpNet, RouteChanges>::new();
    for route in routes {
        let Some(network) = parse_network_sloppy(&route.destination_cidr).filter(|one| is_ours(one, networks)) else {
            continue;
        };
        let target = by_name.get(route.target_node.as_str());
        let found = ground(route, network, target.copied());
        // If the Node also has a correct route, the old route is deleted and not rewritten. As a second route, the old
        // route would get half of the traffic.
        let has_twin = || {
            let led_there = by_target.get(route.target_node.as_str()).map(Vec::as_slice).unwrap_or_default();
            led_there.iter().any(|other| {
                parse_network_sloppy(&other.destination_cidr) == Some(network)
                    && ground(other, network, target.copied()).is_none()
            })
        };
        let is_rewritten =
            |ground: &DeletionReason| rewrites && *ground == DeletionReason::OtherAddresses && !has_twin();
        if let Some(ground) = found.filter(|ground| !is_rewritten(ground)) {
            changes.entry(network).or_default().deletions.push(RouteDeletion { route: route.clone(), reason: ground });
        }
    }
    for node in nodes {
        let led_here = by_target.get(node::name(node)).map(Vec::as_slice).unwrap_or_default();
        for (text, network) in wanted_texts(node).filter_map(|text| Some((text, parse_network_sloppy(text)?))) {
            let group = changes.get(&network);
            // A route that is about to be deleted does not count.
            let stays =
                |route: &Route| !group.is_some_and(|group| group.deletions.iter().any(|one| one.route == *route));
            let is_it = |route: &Route| {
                leads_to(route, network) && ground(route, network, Some(node)) != Some(DeletionReason::OtherAddresses)
            };
            let is_planned = group.is_some_and(|group| group.creations.iter().any(|one| one.is_for(node)));
            let is_refused =
                refused.of(node, network).is_some() && !led_here.iter().any(|route| leads_to(route, network));
            if !is_refused && !is_planned && !led_here.iter().any(|route| stays(route) && is_it(route)) {
                changes.entry(network).or_default().creations.push(creation(node, text));
            }
        }
    }
    changes
}

/// A refused network of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedNetwork {
    /// The name of the Node.
    pub node: String,
    /// The UID of the Node.
    pub uid: String,
    /// The network.
    pub network: IpNet,
    /// The reason for the refusal.
    pub refusal: Refusal,
    /// Whether the cloud has a route to the network with this Node as target. This route is kept.
    pub has_route: bool,
}

/// Returns the refused networks of these Nodes.
pub fn refused_networks(nodes: &[&Node], routes: &[Route], refused: &RefusedNetworks) -> Vec<RefusedNetwork> {
    let by_target = by_target(routes);
    let describe = |node: &Node, network: IpNet, refusal: &Refusal| {
        let name = node::name(node);
        let has_route = by_target.get(name).is_some_and(|routes| routes.iter().any(|route| leads_to(route, network)));
        let uid = node.metadata.uid.clone().unwrap_or_default();
        RefusedNetwork { node: name.to_owned(), uid, network, refusal: refusal.clone(), has_route }
    };
    let of = |node: &&Node| -> Vec<RefusedNetwork> {
        let networks: BTreeSet<IpNet> = wanted(node).flatten().collect();
        let refusals = networks.into_iter().filter_map(|one| Some((one, refused.of(node, one)?)));
        refusals.map(|(network, refusal)| describe(node, network, refusal)).collect()
    };
    nodes.iter().flat_map(of).collect()
}

impl RefusedNetwork {
    /// Returns the key of the report about this network.
    pub fn key(&self) -> String {
        Self::key_of(self.network, &self.node, self.has_route)
    }

    /// Returns the key of the report about a network of a Node. `has_route` is [`RefusedNetwork::has_route`].
    pub fn key_of(network: IpNet, node: &str, has_route: bool) -> String {
        let kept = if has_route { " kept" } else { "" };
        format!("{network} {node}{kept}")
    }
}

fn by_target(routes: &[Route]) -> BTreeMap<&str, Vec<&Route>> {
    let mut by_target = BTreeMap::<&str, Vec<&Route>>::new();
    for route in routes {
        by_target.entry(&route.target_node).or_default().push(route);
    }
    by_target
}

/// Whether the route leads to this network, with any addresses. False for a blackhole.
fn leads_to(route: &Route, network: IpNet) -> bool {
    !route.blackhole && parse_network_sloppy(&route.destination_cidr) == Some(network)
}

fn ground(route: &Route, network: IpNet, target: Option<&Node>) -> Option<DeletionReason> {
    match target {
        _ if route.blackhole || route.target_node.is_empty() => Some(DeletionReason::NoTarget),
        None => Some(DeletionReason::NodeMissing),
        Some(node) if !wants(node, network) => Some(DeletionReason::NotWanted),
        Some(node)
            if route.enable_node_addresses && !is_same_set(&route.target_node_addresses, addresses::of(node)) =>
        {
            Some(DeletionReason::OtherAddresses)
        }
        Some(_) => None,
    }
}

fn wants(node: &Node, network: IpNet) -> bool {
    wanted(node).any(|wanted| wanted == Ok(network))
}

/// Returns the creation of a route. The route has the network text of the Node, because the Go program compares the
/// texts.
fn creation(node: &Node, network: &str) -> Creation {
    let route = Route {
        target_node: node::name(node).to_owned(),
        target_node_addresses: addresses::of(node).to_vec(),
        destination_cidr: network.to_owned(),
        ..Route::default()
    };
    Creation { name_hint: node.metadata.uid.clone().unwrap_or_default(), route }
}

/// Whether both lists have the same length, and `have` contains all addresses of `wanted` in any order.
fn is_same_set(have: &[NodeAddress], wanted: &[NodeAddress]) -> bool {
    have.len() == wanted.len() && wanted.iter().all(|address| have.contains(address))
}

impl RouteChanges {
    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.deletions.is_empty() && self.creations.is_empty()
    }
}

impl Creation {
    /// Whether this Node wants exactly this route, with the Node's current addresses.
    pub fn is_wanted_by(&self, node: &Node) -> bool {
        wanted_texts(node).any(|network| creation(node, network) == *self)
    }

    fn is_for(&self, node: &Node) -> bool {
        self.route.target_node == node::name(node)
    }
}

impl RouteDeletion {
    /// Whether [`RouteDeletion::verdict`] needs a live read of the Node.
    pub fn needs_live_node(&self) -> bool {
        self.reason != DeletionReason::NoTarget
    }

    /// Decides with the live target Node. `live` is `None` if the live Node [is not needed](Self::needs_live_node).
    pub fn verdict(&self, live: Option<&Presence<Node>>) -> LiveReadVerdict {
        match (self.reason, live) {
            (DeletionReason::NoTarget, _) | (_, Some(Presence::Absent(_))) => LiveReadVerdict::Delete,
            (_, Some(Presence::Unknown(unknown))) => LiveReadVerdict::Unknown(unknown.clone()),
            (DeletionReason::NotWanted | DeletionReason::OtherAddresses, Some(Presence::Exists(node)))
                if self.is_unwanted_by(node) =>
            {
                LiveReadVerdict::Delete
            }
            // A live Node that the cache lacks does not match `--node-selector`.
            (
                DeletionReason::NodeMissing | DeletionReason::NotWanted | DeletionReason::OtherAddresses,
                Some(Presence::Exists(_)) | None,
            ) => LiveReadVerdict::Keep,
        }
    }

    /// Whether the target `node` does not want the route, or wants it with other addresses.
    fn is_unwanted_by(&self, node: &Node) -> bool {
        let network = parse_network_sloppy(&self.route.destination_cidr);
        network.is_some_and(|network| ground(&self.route, network, Some(node)).is_some())
    }
}
