//! What this term would do with the routes now, for the command `plan`: the outstanding changes of the last pass. Lists
//! nothing, and changes nothing.

use std::sync::Arc;
use std::time::Instant;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;

use super::{Progress, RouteReconciler};
use crate::base::addresses::parse_network_sloppy;
use crate::cloud::{Reason, node};
use crate::controllers::route::condition;
use crate::controllers::route::plan::RouteChanges;
use crate::controllers::route::pod_networks::{RefusedNetworks, refused, wanted_texts};

/// What this term would do with all routes.
#[derive(Clone, Debug, Default)]
pub struct RoutePreview {
    /// Whether the routes were listed in this term.
    pub are_listed: bool,
    /// Reason why the routes cannot be listed now, if any.
    pub listing_failure: Option<String>,
    /// Time of the next pass over all routes. `None` while a pass is queued.
    pub next_pass: Option<Instant>,
    /// The destinations with outstanding changes.
    pub destinations: Vec<DestinationPreview>,
}

/// The outstanding changes of one destination.
#[derive(Clone, Debug, PartialEq)]
pub struct DestinationPreview {
    /// The destination.
    pub network: IpNet,
    /// The changes. A live read of the Node comes before each deletion.
    pub changes: RouteChanges,
    /// Whether the changes were tried. A deletion that was tried and did not fail is of a route that is kept.
    pub is_tried: bool,
    /// The reported reason why the changes cannot be made.
    pub reason: Option<Reason>,
    /// The message of the last attempt, if it failed.
    pub failure: Option<String>,
}

/// The routes of one Node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRoutePreview {
    /// The pod networks of the Node, in their order.
    pub networks: Vec<PodNetworkPreview>,
    /// Status and reason that the condition `NetworkUnavailable` gets; `None` if it stays as it is.
    pub condition: Option<(&'static str, &'static str)>,
}

/// A pod network of a Node.
#[derive(Clone, Debug, PartialEq)]
pub struct PodNetworkPreview {
    /// The network as in `spec.podCIDRs`.
    pub text: String,
    /// The network; `None` if the text is not a network, and so never gets a route.
    pub network: Option<IpNet>,
    /// Reason and message why no new route is made.
    pub refusal: Option<(Reason, String)>,
    /// Whether the last pass planned with the current state of the Node, and its list covers the network.
    pub is_planned: bool,
}

impl RouteReconciler {
    /// Returns the outstanding changes.
    pub fn preview(&self) -> RoutePreview {
        let mut preview = self.progress.lock().preview();
        for destination in &mut preview.destinations {
            let blocked = self.reasons.get(&destination.network.to_string());
            destination.reason = blocked.map(|blocked| blocked.reason);
        }
        preview
    }

    /// Returns the pod networks that get no new route, according to the current Nodes.
    pub fn refused_networks(&self) -> RefusedNetworks {
        let all: Vec<Arc<Node>> = self.cloud.nodes.list().collect();
        refused(all.iter().map(|node| &**node), &self.networks, self.pod_networks)
    }

    /// Returns the routes of `node`; `None` for a Node of another provider. `refused` is the result of
    /// [`RouteReconciler::refused_networks`].
    pub fn preview_of_node(&self, node: &Node, refused: &RefusedNetworks) -> Option<NodeRoutePreview> {
        let is_own = self.cloud.provider.owns(node);
        is_own.then(|| self.progress.lock().preview_of_node(node, refused, self.writes_condition))
    }
}

impl Progress {
    pub(super) fn preview(&self) -> RoutePreview {
        let destinations = self.destinations.outstanding().map(|outstanding| DestinationPreview {
            network: outstanding.network,
            changes: outstanding.changes.clone(),
            is_tried: outstanding.is_tried,
            reason: None,
            failure: outstanding.failure.map(|failure| failure.message.clone()),
        });
        RoutePreview {
            are_listed: self.are_listed,
            listing_failure: self.listing_failure.clone(),
            next_pass: self.next_pass(),
            destinations: destinations.collect(),
        }
    }

    pub(super) fn preview_of_node(
        &self,
        node: &Node,
        refused: &RefusedNetworks,
        writes_condition: bool,
    ) -> NodeRoutePreview {
        let is_node_planned = self.is_planned(node);
        let has_routes = self.has_routes(node).filter(|_| is_node_planned && writes_condition);
        let preview = |text: &str| {
            let network = parse_network_sloppy(text);
            let refusal = network.and_then(|network| Some((network, refused.of(node, network)?)));
            PodNetworkPreview {
                text: text.to_owned(),
                network,
                refusal: refusal.map(|(network, why)| (why.reason(), why.message(network, node::name(node)))),
                is_planned: is_node_planned && network.is_none_or(|one| self.destinations.is_listed(&one)),
            }
        };
        NodeRoutePreview {
            networks: wanted_texts(node).map(preview).collect(),
            condition: has_routes.and_then(|has_routes| condition::change(node, has_routes)),
        }
    }
}
