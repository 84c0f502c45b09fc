//! The first pass of a term, for a command without a term: what it would do, and what it knows about the routes of one
//! Node.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;

use super::explanation::{PodNetworkFacts, RouteFacts};
use super::preview::{NodeRoutePreview, RoutePreview};
use super::{Pass, Progress, RouteListing};
use crate::cloud::node;
use crate::controllers::BlockedObject;
use crate::controllers::route::RouteSettings;
use crate::controllers::route::pod_networks::{RefusedNetworks, refused, wanted_texts};
use crate::controllers::route::schedule::Schedule;

/// What the first pass of a term would do, for a command without a term.
pub struct FirstRoutePass {
    progress: Progress,
    refused: RefusedNetworks,
    writes_condition: bool,
}

impl FirstRoutePass {
    /// Plans as a pass does. `nodes` are the Nodes of this provider, `others` the other ones.
    pub fn plan(nodes: Vec<Arc<Node>>, others: &[Arc<Node>], listing: &RouteListing, settings: &RouteSettings) -> Self {
        let all = nodes.iter().chain(others).map(|node| &**node);
        let refused = refused(all, &settings.networks, settings.pod_networks);
        let Pass { nodes, targets, plan, rejected } = Pass::plan(nodes, listing, &settings.networks, &refused);
        let mut progress = Progress::new(Schedule::new(settings.trigger));
        progress.are_listed = true;
        let changed = progress.nodes.plan(&nodes, targets);
        let _due = progress.destinations.adopt(plan, &nodes, &rejected, &changed);
        Self { progress, refused, writes_condition: settings.writes_condition }
    }

    /// Returns the changes.
    pub fn preview(&self) -> RoutePreview {
        self.progress.preview()
    }

    /// Returns the routes of a Node of this provider. The condition is known only if no route has to be created for it.
    pub fn preview_of_node(&self, node: &Node) -> NodeRoutePreview {
        self.progress.preview_of_node(node, &self.refused, self.writes_condition)
    }

    /// Returns what the pass knows about the routes of a Node; `is_own` is whether it belongs to this provider.
    pub fn explain(&self, node: &Arc<Node>, is_own: bool) -> RouteFacts {
        let networks = wanted_texts(node).filter(|_| is_own).map(|text| self.explain_network(node, text)).collect();
        RouteFacts {
            node: Arc::clone(node),
            is_own,
            networks,
            next_pass: None,
            unwritten_condition: None,
            are_listed: true,
            listing_failure: None,
            has_term: false,
        }
    }

    fn explain_network(&self, node: &Node, text: &str) -> PodNetworkFacts {
        let mut facts = self.progress.network_facts(node, text, &self.refused);
        let refusal = facts.network.and_then(|network| Some((network, self.refused.of(node, network)?)));
        facts.blocked = refusal.map(|(network, refusal)| BlockedObject {
            key: network.to_string(),
            reason: refusal.reason(),
            blocked_for: Duration::ZERO,
            message: refusal.message(network, node::name(node)),
        });
        facts
    }
}
