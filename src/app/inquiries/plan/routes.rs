//! Pure: the plan for the routes, by destination.

use crate::app::reports::plan::{ChangeKind, ObjectPlan, PlanPart, PlanPartBuilder, PlannedChange};
use crate::controllers::route::plan::{Creation, DeletionReason, RouteDeletion};
use crate::controllers::route::{DestinationPreview, PodNetworkPreview, RoutePreview};
use std::collections::{BTreeMap, BTreeSet};

/// Collects the plan of each destination.
#[derive(Debug, Default)]
pub(super) struct RoutePlans {
    by_network: BTreeMap<String, ObjectPlan>,
    /// The networks that Nodes have in `spec.podCIDRs`.
    wanted: BTreeSet<String>,
    /// The planned routes, each by network and Node.
    created: BTreeSet<(String, String)>,
}

impl RoutePlans {
    /// Adds the outstanding changes of the last pass; with `node`, only those of the routes to this Node.
    pub(super) fn add_outstanding(&mut self, preview: &RoutePreview, node: Option<&str>) {
        let is_selected = |target: &str| node.is_none_or(|name| name == target);
        for destination in &preview.destinations {
            let DestinationPreview { network, changes, is_tried, reason, failure } = destination;
            let network = network.to_string();
            let is_kept = *is_tried && failure.is_none() && changes.creations.is_empty();
            let before = self.number_of_changes(&network);
            for deletion in changes.deletions.iter().filter(|deletion| is_selected(&deletion.route.target_node)) {
                self.add(&network, deletion_change(deletion, is_kept));
            }
            for Creation { route, .. } in &changes.creations {
                if is_selected(&route.target_node) {
                    let change = PlannedChange::new(ChangeKind::Create, &route_to(&route.target_node));
                    self.add(&network, change.with_planned(&route.destination_cidr));
                    self.created.insert((network.clone(), route.target_node.clone()));
                }
            }
            let is_selected = self.number_of_changes(&network) > before;
            if let Some(failure) = failure.as_ref().filter(|_| is_selected) {
                let change = PlannedChange::new(ChangeKind::Hold, "last attempt").with_message(failure);
                self.add(
                    &network,
                    match reason {
                        Some(reason) => change.with_reason(reason.as_str()),
                        None => change,
                    },
                );
            }
        }
    }

    /// Shows creations of routes that exist as updates. `next_hop_of` gets a Node and a network, and returns the next
    /// hop with which their route is rewritten; `None` if there is no route yet.
    pub(super) fn mark_rewrites(&mut self, next_hop_of: impl Fn(&str, &str) -> Option<String>) {
        for (network, node) in &self.created {
            let Some(next_hop) = next_hop_of(node, network) else { continue };
            let Some(object) = self.by_network.get_mut(network) else { continue };
            let field = route_to(node);
            let message = format!("rewritten in place with the next hop {next_hop}");
            for change in &mut object.changes {
                if change.kind == ChangeKind::Create && change.field == field {
                    *change = PlannedChange::new(ChangeKind::Update, &field).with_message(&message);
                }
            }
        }
    }

    /// Adds a pod network of a Node. `next_pass` is the time of the next pass as text.
    pub(super) fn add_network(&mut self, node: &str, preview: &PodNetworkPreview, next_pass: &str) {
        let name = preview.network.map_or_else(|| preview.text.clone(), |network| network.to_string());
        self.wanted.insert(name.clone());
        let is_created = self.created.contains(&(name.clone(), node.to_owned()));
        let hold = |message: &str| PlannedChange::new(ChangeKind::Hold, &route_to(node)).with_message(message);
        match (&preview.network, &preview.refusal) {
            (None, _) => self.add(&name, hold("the text in spec.podCIDRs is not a network")),
            (Some(_), Some((reason, message))) => self.add(&name, hold(message).with_reason(reason.as_str())),
            (Some(_), None) if !preview.is_planned && !is_created => {
                let message = format!("the Node or the route has changed; planned with the next pass, {next_pass}");
                let change = PlannedChange::new(ChangeKind::Unknown, &route_to(node));
                self.add(&name, change.with_message(&message));
            }
            (Some(_), None) => {}
        }
    }

    /// Returns the part of the report.
    pub(super) fn build(self) -> PlanPart {
        let mut part = PlanPartBuilder::default();
        part.add_unchanged(self.wanted.iter().filter(|network| !self.by_network.contains_key(*network)).count());
        self.by_network.into_values().for_each(|object| part.add(object));
        part.build()
    }

    fn add(&mut self, network: &str, change: PlannedChange) {
        self.by_network.entry(network.to_owned()).or_insert_with(|| ObjectPlan::new(network)).add(change);
    }

    fn number_of_changes(&self, network: &str) -> usize {
        self.by_network.get(network).map_or(0, |object| object.changes.len())
    }
}

fn route_to(node: &str) -> String {
    if node.is_empty() { "route without a target".to_owned() } else { format!("route to {node}") }
}

fn deletion_change(deletion: &RouteDeletion, is_kept: bool) -> PlannedChange {
    let RouteDeletion { route, reason } = deletion;
    let kind = if is_kept { ChangeKind::Hold } else { ChangeKind::Delete };
    let change = PlannedChange::new(kind, &route_to(&route.target_node)).with_present(&route.destination_cidr);
    if is_kept {
        let message = "kept: a live read shows that the Node wants it, or is outside of the Nodes of this controller";
        return PlannedChange { present: None, ..change }.with_message(message);
    }
    change.with_message(match reason {
        DeletionReason::NoTarget => "it leads to no Node",
        DeletionReason::NodeMissing => "no Node has this name; a live read comes first",
        DeletionReason::NotWanted => "the Node does not want it; a live read comes first",
        DeletionReason::OtherAddresses => "the Node has other addresses; a live read comes first",
    })
}

#[cfg(test)]
mod tests;
