//! Reads what this term knows about the routes of one Node, for the command `explain`. Lists nothing, and changes
//! nothing.

use std::sync::Arc;
use std::time::Instant;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;

use super::{Progress, RouteReconciler};
use crate::base::addresses::parse_network_sloppy;
use crate::cloud::{Reason, node};
use crate::controllers::BlockedObject;
use crate::controllers::route::destinations::{FailedAttempt, Routing};
use crate::controllers::route::plan::RefusedNetwork;
use crate::controllers::route::pod_networks::{RefusedNetworks, refused, wanted_texts};

/// The routes of one Node.
#[derive(Clone, Debug)]
pub struct RouteFacts {
    /// The Node.
    pub node: Arc<Node>,
    /// Whether the Node belongs to this provider, or has no provider ID yet. Other Nodes get no routes.
    pub is_own: bool,
    /// The pod networks of the Node, in their order.
    pub networks: Vec<PodNetworkFacts>,
    /// Time of the next pass over all routes. `None` while a pass is queued.
    pub next_pass: Option<Instant>,
    /// The reason why the condition `NetworkUnavailable` could not be written.
    pub unwritten_condition: Option<Reason>,
    /// Whether the routes were listed in this term.
    pub are_listed: bool,
    /// The failure of the last listing, if it failed.
    pub listing_failure: Option<String>,
    /// Whether the facts are those of a term of leadership. A command without a daemon has one list, and knows no pass
    /// and no attempt.
    pub has_term: bool,
}

/// The route to one pod network of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodNetworkFacts {
    /// The network as in `spec.podCIDRs`.
    pub text: String,
    /// The network; `None` if the text is not a network.
    pub network: Option<IpNet>,
    /// The state of the route, according to the last pass.
    pub routing: Routing,
    /// The message about the reason why no new route is made, according to the current Nodes.
    pub refusal: Option<String>,
    /// The reported reason why the route is not as it should be.
    pub blocked: Option<BlockedObject>,
    /// The last attempt to change the routes to the network, if it failed.
    pub failure: Option<FailedAttempt>,
    /// The Nodes to which other routes to the network lead, which are deleted first.
    pub obstacles: Vec<String>,
}

impl RouteReconciler {
    /// Returns what this term knows about the routes of the Node with this name; `None` without such a Node.
    pub fn explain(&self, name: &str) -> Option<RouteFacts> {
        let node = self.cloud.nodes.get(name)?;
        let is_own = self.cloud.provider.owns(&node);
        let all: Vec<Arc<Node>> = self.cloud.nodes.list().collect();
        let refusals = refused(all.iter().map(|node| &**node), &self.networks, self.pod_networks);
        let progress = self.progress.lock();
        let networks = wanted_texts(&node).filter(|_| is_own);
        let networks = networks.map(|text| self.explain_network(&progress, &node, text, &refusals)).collect();
        let (next_pass, unwritten_condition) = (progress.next_pass(), progress.unwritten_condition(name));
        let (are_listed, listing_failure) = (progress.are_listed, progress.listing_failure.clone());
        drop(progress);
        let has_term = true;
        Some(RouteFacts {
            node,
            is_own,
            networks,
            next_pass,
            unwritten_condition,
            are_listed,
            listing_failure,
            has_term,
        })
    }

    /// Returns the names that [`RouteReconciler::explain`] knows, sorted.
    pub fn known_nodes(&self) -> Vec<String> {
        self.cloud.nodes.keys()
    }

    fn explain_network(
        &self,
        progress: &Progress,
        node: &Node,
        text: &str,
        refusals: &RefusedNetworks,
    ) -> PodNetworkFacts {
        let mut facts = progress.network_facts(node, text, refusals);
        let Some(network) = facts.network else { return facts };
        let name = node::name(node);
        let keys = [
            RefusedNetwork::key_of(network, name, false),
            RefusedNetwork::key_of(network, name, true),
            network.to_string(),
        ];
        facts.blocked = keys.iter().find_map(|key| self.reasons.get(key));
        facts
    }
}

impl Progress {
    /// Returns the facts without the reported reason.
    pub(super) fn network_facts(&self, node: &Node, text: &str, refusals: &RefusedNetworks) -> PodNetworkFacts {
        let mut facts = PodNetworkFacts {
            text: text.to_owned(),
            network: parse_network_sloppy(text),
            // A network that cannot be parsed never gets a route.
            routing: Routing::Failed,
            refusal: None,
            blocked: None,
            failure: None,
            obstacles: Vec::new(),
        };
        let Some(network) = facts.network else { return facts };
        let destinations = self.destinations();
        facts.routing = destinations.routing_of(node, &network);
        // A Node that has changed since the last pass waits for the next one.
        if !self.is_planned(node) {
            facts.routing = Routing::Pending;
        }
        let name = node::name(node);
        facts.refusal = refusals.of(node, network).map(|refusal| refusal.message(network, name));
        facts.failure = destinations.last_failure(network).cloned();
        let deletions = destinations.left(network).deletions.into_iter();
        let others = deletions.map(|deletion| deletion.route.target_node).filter(|target| target != name);
        facts.obstacles = others.collect();
        facts
    }
}
