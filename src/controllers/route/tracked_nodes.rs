//! Pure: digests of the Node properties that routes depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use crate::cloud::node::{self, addresses};

/// Digest of a Node's UID, pod networks and addresses in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(u64);

impl Version {
    /// Digest of a Node of another provider: only UID and pod networks. The networks matter because Nodes of this
    /// provider must not get routes to them.
    pub(super) fn of_other(node: &Node) -> Self {
        Self(Self::networks_of(node).finish())
    }

    pub(super) fn of(node: &Node) -> Self {
        let mut hasher = Self::networks_of(node);
        true.hash(&mut hasher);
        for address in addresses::of(node) {
            (&address.type_, &address.address).hash(&mut hasher);
        }
        Self(hasher.finish())
    }

    fn networks_of(node: &Node) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        node.metadata.uid.hash(&mut hasher);
        node.spec.as_ref().and_then(|spec| spec.pod_cidrs.as_deref()).unwrap_or_default().hash(&mut hasher);
        hasher
    }
}

/// All Nodes, and the state of this controller's Nodes in the last pass.
#[derive(Debug, Default)]
pub(super) struct TrackedNodes {
    current: BTreeMap<String, Version>,
    planned: BTreeMap<String, Version>,
    /// The names of the Nodes added, changed or deleted since the last pass.
    changed: BTreeSet<String>,
    /// Names of the Nodes without networks to which a listed route leads.
    targets: BTreeSet<String>,
}

impl TrackedNodes {
    /// Records the current version of this Node; `None` if the Node does not exist. Returns whether the version
    /// changed.
    #[must_use]
    pub(super) fn update(&mut self, name: &str, version: Option<Version>) -> bool {
        let before = match version {
            Some(version) => self.current.insert(name.to_owned(), version),
            None => self.current.remove(name),
        };
        let has_changed = before != version;
        if has_changed {
            self.changed.insert(name.to_owned());
        }
        has_changed
    }

    pub(super) fn replace_all(&mut self, all: Vec<(String, Version)>) {
        let before = std::mem::replace(&mut self.current, all.into_iter().collect());
        let is_as_before = |one: &&String| before.get(*one) == self.current.get(*one);
        let changed = before.keys().chain(self.current.keys()).filter(|one| !is_as_before(one)).cloned();
        self.changed.extend(changed);
    }

    /// Records a pass with these Nodes. `targets` are the Nodes without networks to which a listed route leads. Returns
    /// the names of the Nodes changed since the previous pass.
    pub(super) fn plan(&mut self, nodes: &[Arc<Node>], targets: BTreeSet<String>) -> BTreeSet<String> {
        self.planned.clear();
        self.planned.extend(nodes.iter().map(|node| (node::name(node).to_owned(), Version::of(node))));
        self.targets = targets;
        std::mem::take(&mut self.changed)
    }

    /// Whether the last pass planned with this Node's current state.
    pub(super) fn is_planned(&self, node: &Node) -> bool {
        self.planned.get(node::name(node)) == Some(&Version::of(node))
    }

    /// Whether the last pass listed a route to this Node, although the Node has no networks.
    pub(super) fn is_target(&self, node: &Node) -> bool {
        self.targets.contains(node::name(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node(change: impl FnOnce(&mut Value)) -> Node {
        let mut node = json!({
            "metadata": {
                "name": "node-1", "uid": "01", "resourceVersion": "1", "labels": {"a": "b"},
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"podCIDRs": ["10.120.0.0/24"], "providerID": "p"},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "10.0.1.1"}],
                "conditions": [
                    {"type": "Ready", "status": "True"},
                    {"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated"},
                ],
            },
        });
        change(&mut node);
        serde_json::from_value(node).unwrap()
    }

    // vectors
    #[test]
    fn only_what_routes_depend_on_is_a_change() {
        for (id, is_change, change) in [
            ("R-50", true, ("/status/addresses/0/address", json!("10.0.1.2"))),
            ("R-51", true, ("/spec/podCIDRs/0", json!("10.121.0.0/24"))),
            ("R-52", false, ("/metadata/resourceVersion", json!("2"))),
            (
                "R-53",
                false,
                (
                    "/status",
                    json!({"addresses": [{"type": "InternalIP", "address": "10.0.1.1"}],
                "images": [{"names": ["x"]}]}),
                ),
            ),
            ("a heartbeat", false, ("/status/conditions", json!([{"type": "Ready", "status": "False"}]))),
            ("another Node of this name", true, ("/metadata/uid", json!("02"))),
            ("another type of address", true, ("/status/addresses/0/type", json!("ExternalIP"))),
        ] {
            let mut nodes = TrackedNodes::default();
            assert!(nodes.update("node-1", Some(Version::of(&node(|_| ())))), "it is new");
            let (way, value) = change;
            let changed = node(|node| *node.pointer_mut(way).unwrap() = value);
            assert_eq!(nodes.update("node-1", Some(Version::of(&changed))), is_change, "{id}");
            assert!(nodes.update("node-1", None) && !nodes.update("node-1", None), "it is gone once: {id}");
        }
    }

    #[test]
    fn a_pass_is_about_the_nodes_as_they_were_then() {
        let before = Arc::new(node(|_| ()));
        let after = node(|node| node["spec"]["podCIDRs"] = json!(["10.121.0.0/24"]));
        let mut nodes = TrackedNodes::default();
        nodes.replace_all(vec![("node-1".into(), Version::of(&before))]);
        assert!(!nodes.update("node-1", Some(Version::of(&before))));
        let targets = || BTreeSet::from(["node-1".into()]);
        assert_eq!(nodes.plan(&[Arc::clone(&before)], targets()), targets(), "it is new");
        assert!(nodes.is_planned(&before) && !nodes.is_planned(&after) && nodes.is_target(&before));
        nodes.replace_all(vec![("node-1".into(), Version::of(&before))]);
        assert_eq!(nodes.plan(&[Arc::clone(&before)], targets()), BTreeSet::new());
        assert!(nodes.update("node-2", Some(Version::of(&after))) && nodes.update("node-2", None));
        nodes.replace_all(Vec::new());
        assert_eq!(nodes.plan(&[], targets()), BTreeSet::from(["node-1".into(), "node-2".into()]));
    }
}
