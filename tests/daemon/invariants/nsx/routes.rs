//! The routes that Nodes need, and those that NSX has.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use serde_json::Value;
use support::nodes::UNINITIALIZED_TAINT;

use crate::invariants::rules::{addresses, has_taint};

/// Scopes of the tags for the cluster's name, the Node's name and the cluster's UID.
pub const CLUSTER_NAME: &str = "vsphere.k8s.io/cluster-name";
pub const NODE_NAME: &str = "vsphere.k8s.io/node-name";
pub const CLUSTER_UID: &str = "cluster-uid";

/// The route that a Node needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The name of the Node.
    pub node: String,
    /// Pod network of the Node.
    pub network: String,
    /// Address of the Node.
    pub hop: String,
}

/// Returns the route that this Node needs. Only an initialized Node with an address and a pod network needs one.
pub fn destination(node: &Node) -> Option<Destination> {
    let network = node.spec.as_ref()?.pod_cidr.clone()?;
    let hop = addresses(node).iter().find(|address| address.type_ == "InternalIP")?.address.clone();
    let node_name = node.metadata.name.clone()?;
    (!has_taint(node, UNINITIALIZED_TAINT)).then_some(Destination { node: node_name, network, hop })
}

/// A route in NSX.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Destination network.
    pub network: String,
    /// Name of the Node in the tag.
    pub node: String,
    /// Addresses of the next hops.
    pub hops: Vec<String>,
    /// All tags.
    pub tags: BTreeSet<(String, String)>,
}

impl Route {
    /// Reads a route. Returns `None` for any other object.
    pub fn of(object: &Value) -> Option<Self> {
        let hops = object["next_hops"].as_array()?;
        let hops = hops.iter().filter_map(|hop| hop["ip_address"].as_str()).map(str::to_owned).collect();
        let tags: BTreeSet<(String, String)> = tags(object).collect();
        let node = tag(object, NODE_NAME).unwrap_or_default();
        Some(Self { network: object["network"].as_str()?.to_owned(), node, hops, tags })
    }

    /// Whether the route serves this destination.
    pub fn serves(&self, wanted: &Destination) -> bool {
        self.network == wanted.network && self.node == wanted.node && self.hops == [wanted.hop.as_str()]
    }
}

fn tags(object: &Value) -> impl Iterator<Item = (String, String)> {
    let all = object["tags"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    all.iter().map(move |tag| (text(&tag["scope"]), text(&tag["tag"])))
}

/// Returns the tag of this scope.
pub fn tag(object: &Value, scope: &str) -> Option<String> {
    tags(object).find(|(found, _)| found == scope).map(|(_, tag)| tag)
}

/// Returns the differences between the routes of a cluster and those that its Nodes need.
pub fn differences(wanted: &[Destination], routes: &[Route]) -> Vec<String> {
    let mut by_network: BTreeMap<&str, Vec<&Route>> = BTreeMap::new();
    for route in routes {
        by_network.entry(&route.network).or_default().push(route);
    }
    let mut found = Vec::new();
    for destination in wanted {
        match by_network.remove(destination.network.as_str()).unwrap_or_default().as_slice() {
            [route] if route.serves(destination) => {}
            [] => found.push(format!("missing: {destination:?}")),
            others => found.push(format!("expected {destination:?}, found {others:?}")),
        }
    }
    found.extend(by_network.into_values().flatten().map(|route| format!("nothing needs {route:?}")));
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted(number: u8) -> Destination {
        Destination {
            node: format!("n-{number}"),
            network: format!("10.244.{number}.0/24"),
            hop: format!("10.1.0.{number}"),
        }
    }

    fn route(number: u8, hop: u8) -> Route {
        let object = json!({
            "network": format!("10.244.{number}.0/24"),
            "next_hops": [{"ip_address": format!("10.1.0.{hop}")}],
            "tags": [{"scope": NODE_NAME, "tag": format!("n-{number}")}],
        });
        Route::of(&object).unwrap()
    }

    #[test]
    fn routes_that_nodes_need_and_no_others_are_expected() {
        for (case, wanted, routes, expected) in [
            ("as needed", vec![wanted(1), wanted(2)], vec![route(2, 2), route(1, 1)], 0),
            ("missing", vec![wanted(1), wanted(2)], vec![route(2, 2)], 1),
            ("another address", vec![wanted(1)], vec![route(1, 2)], 1),
            ("twice", vec![wanted(1)], vec![route(1, 1), route(1, 1)], 1),
            ("left over", vec![], vec![route(1, 1), route(2, 2)], 2),
        ] {
            assert_eq!(differences(&wanted, &routes).len(), expected, "{case}");
        }
    }

    #[test]
    fn a_node_needs_a_route_once_it_is_initialized_and_has_an_address() {
        let node = |taints: &[&str], addresses: &[&str], network: Option<&str>| -> Node {
            let taints: Vec<_> = taints.iter().map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
            let addresses: Vec<_> = addresses.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
            serde_json::from_value(json!({
                "metadata": {"name": "n-1"},
                "spec": {"podCIDR": network, "taints": taints},
                "status": {"addresses": addresses},
            }))
            .unwrap()
        };
        let network = Some("10.244.1.0/24");
        assert_eq!(destination(&node(&[], &["10.1.0.1"], network)), Some(wanted(1)));
        assert_eq!(destination(&node(&[UNINITIALIZED_TAINT], &["10.1.0.1"], network)), None);
        assert_eq!(destination(&node(&[], &[], network)), None);
        assert_eq!(destination(&node(&[], &["10.1.0.1"], None)), None);
    }
}
