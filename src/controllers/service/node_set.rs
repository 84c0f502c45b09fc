//! Pure: the target Nodes of all load balancers. Mirrors `stableNodeSetPredicates` of
//! `controllers/service/controller.go`, for both traffic policies. The set ignores readiness, because the load balancer
//! has its own health check.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;

use crate::base::go_flags::parse_bool;
use crate::cloud::node::usable_addresses::UsableAddress;
use crate::cloud::{UsableAddresses, node};

/// Label of a Node that load balancers must not use.
pub const LABEL_EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// Taint of a Node that the cluster autoscaler is about to delete.
pub const TAINT_TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// Whether load balancers send traffic to `node`.
pub fn is_target(node: &Node) -> bool {
    // As upstream, a value that is not a boolean also excludes the Node.
    let is_excluded = node::label(node, LABEL_EXCLUDE).is_some_and(|value| parse_bool(value) != Some(false));
    node.metadata.deletion_timestamp.is_none() && !is_excluded && !node::has_taint(node, TAINT_TO_BE_DELETED)
}

/// The Node properties that load balancers depend on: names, provider IDs and addresses. A changed set triggers an
/// update of the load balancers. Upstream does not compare addresses, although load balancers forward to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSet(BTreeMap<String, String>);

impl NodeSet {
    /// Returns the set of the targets among `nodes`, each with its usable addresses.
    pub fn of<'a>(nodes: impl IntoIterator<Item = (&'a Node, UsableAddresses)>) -> Self {
        let mut set = Self::default();
        nodes.into_iter().for_each(|(node, usable)| set.put(node::name(node), Some((node, usable))));
        set
    }

    /// Whether [`NodeSet::put`] with these arguments would change the set.
    pub fn differs_in(&self, name: &str, node: Option<(&Node, UsableAddresses)>) -> bool {
        self.0.get(name) != node.and_then(value).as_ref()
    }

    /// Whether load balancers forward to other Nodes or addresses than with the set `before`. Ignores whether an
    /// address is confirmed, because a load balancer keeps its addresses while the VM is unknown.
    pub fn has_other_targets(&self, before: &Self) -> bool {
        let known = |set: &Self| -> Vec<_> {
            set.0.iter().map(|(name, value)| (name.clone(), value.replace(UNCONFIRMED, "\n"))).collect()
        };
        self != before && known(self) != known(before)
    }

    /// Sets the Node of this name, or removes the Node if `node` is `None` or no target.
    pub fn put(&mut self, name: &str, node: Option<(&Node, UsableAddresses)>) {
        match node.and_then(value) {
            Some(value) => drop(self.0.insert(name.to_owned(), value)),
            None => drop(self.0.remove(name)),
        }
    }

    /// Returns the number of Nodes.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the names of the Nodes that differ between both sets, sorted.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let names: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        names.into_iter().filter(|name| self.0.get(*name) != other.0.get(*name)).cloned().collect()
    }

    /// Whether no Node is a target.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

const UNCONFIRMED: &str = "\n?";

/// Returns the compared value of a Node, or `None` if the Node is no target.
fn value((node, usable): (&Node, UsableAddresses)) -> Option<String> {
    let mut value = node::provider_id(node).to_owned();
    for UsableAddress { entry, is_confirmed, .. } in usable.of(node) {
        value.extend([if is_confirmed { "\n" } else { UNCONFIRMED }, &entry.type_, "=", &entry.address]);
    }
    is_target(node).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::node::{Readiness, readiness};
    use serde_json::{Value, json};

    /// Returns the Node with all its addresses.
    fn all(node: &Node) -> (&Node, UsableAddresses) {
        (node, UsableAddresses::All)
    }

    fn set_of<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> NodeSet {
        NodeSet::of(nodes.into_iter().map(all))
    }

    /// Returns a ready Node after `change`.
    fn node(name: &str, change: impl FnOnce(&mut Value)) -> Node {
        let mut node = json!({
            "metadata": {"name": name}, "spec": {"providerID": "providerID"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        change(&mut node);
        serde_json::from_value(node).unwrap()
    }

    fn taint(key: &str) -> impl Fn(&mut Value) {
        move |node| node["spec"]["taints"] = json!([{"key": key, "effect": "NoSchedule"}])
    }

    fn label(key: &'static str, value: &'static str) -> impl Fn(&mut Value) {
        move |node| node["metadata"]["labels"] = json!({key: value})
    }

    fn ready(status: &'static str) -> impl Fn(&mut Value) {
        move |node| node["status"]["conditions"] = json!([{"type": "Ready", "status": status}])
    }

    fn id(id: &'static str) -> impl Fn(&mut Value) {
        move |node| node["spec"]["providerID"] = json!(id)
    }

    fn deleted(node: &mut Value) {
        node["metadata"]["deletionTimestamp"] = json!("2025-01-01T00:00:00Z");
    }

    fn same(_: &mut Value) {}

    #[test]
    fn the_differences_are_the_names_of_new_lost_and_changed_nodes() {
        let before = set_of(&[node("a", same), node("b", same), node("c", same)]);
        let after = set_of(&[node("b", id("other")), node("c", same), node("d", same)]);
        assert_eq!(after.differences(&before), ["a", "b", "d"]);
        assert_eq!((after.differences(&after), after.count()), (Vec::new(), 3));
    }

    /// Returns true if this change of `n2` updates the load balancers. The other Nodes are `n1` and `n3`.
    fn updates(before: impl FnOnce(&mut Value), after: impl FnOnce(&mut Value)) -> bool {
        let others = [node("n1", same), node("n3", same)];
        let of = |n2: &Node| set_of(others.iter().chain([n2]));
        of(&node("n2", before)) != of(&node("n2", after))
    }

    // vectors: S-50, S-51, S-53–S-59, S-70–S-72
    #[test]
    fn the_stable_set_changes_as_in_the_go_program() {
        let (n1, n2, n3) = (node("n1", same), node("n2", same), node("n3", same));
        assert_eq!(set_of([&n1, &n2, &n3]), set_of([&n3, &n2, &n1]), "S-50");
        assert_ne!(set_of([&n1, &n2]), set_of([&n1, &n2, &n3]), "S-51, S-57");
        assert!(!updates(same, ready("False")), "S-53");
        assert!(!updates(ready("False"), same), "S-55");
        assert!(updates(same, taint(TAINT_TO_BE_DELETED)), "S-54");
        assert!(updates(same, label(LABEL_EXCLUDE, "")), "S-56");
        assert!(updates(same, deleted), "S-58");
        assert!(!updates(same, taint("other")), "S-59");
        assert!(updates(id("cumulus/0"), id("cumulus/1")), "S-70");
        assert!(!updates(id("pid"), id("pid")), "S-71");
        assert_ne!(set_of([&n1, &n2]), set_of([&n1, &n3]), "S-72");
        assert!(set_of([&node("n", deleted)]).is_empty() && !set_of([&n1]).is_empty());
        let address =
            |node: &mut Value| node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "192.0.2.1"}]);
        assert!(updates(same, address), "beyond the Go program: load balancers forward to addresses");
    }

    #[test]
    fn a_set_that_follows_single_nodes_equals_a_new_one() {
        let (n1, n2) = (node("n1", same), node("n2", same));
        let mut set = set_of([&n1]);
        for (case, name, after, expected) in [
            ("the same", "n1", Some(node("n1", ready("False"))), false),
            ("another provider ID", "n1", Some(node("n1", id("other"))), true),
            ("a new one", "n2", Some(n2), true),
            ("excluded", "n2", Some(node("n2", deleted)), true),
            ("still none", "n2", None, false),
            ("gone", "n1", None, true),
        ] {
            assert_eq!(set.differs_in(name, after.as_ref().map(all)), expected, "{case}");
            set.put(name, after.as_ref().map(all));
            assert!(!set.differs_in(name, after.as_ref().map(all)), "{case}");
        }
        assert_eq!(set, NodeSet::default());
    }

    /// The Go program filters events. This program compares the sets, so a deletion and the taint of the autoscaler
    /// take effect at once.
    // vectors: S-80–S-91
    #[test]
    fn changes_of_one_node_update_as_in_the_go_program_or_earlier() {
        let excluded = || label(LABEL_EXCLUDE, "");
        let both = |first: &dyn Fn(&mut Value), second: &dyn Fn(&mut Value)| {
            let mut value = json!({"metadata": {"name": "n2"}, "spec": {"providerID": "providerID"}});
            first(&mut value);
            second(&mut value);
            set_of([&serde_json::from_value::<Node>(value).unwrap()])
        };
        for (case, expected, found) in [
            ("S-80: nothing", false, updates(same, same)),
            ("S-80: another taint", false, updates(same, taint("other"))),
            ("S-80: another label", false, updates(same, label("other", ""))),
            ("S-80: not ready", false, updates(same, ready("False"))),
            ("S-80 differs: a deletion drains at once", true, updates(same, deleted)),
            ("S-81: excluded", true, updates(same, excluded())),
            ("S-81: included", true, updates(excluded(), same)),
            ("S-82: excluded on both", false, updates(excluded(), excluded())),
            ("S-83: a provider ID", true, updates(id(""), id("a"))),
            ("S-83: provider ID removed", true, updates(id("a"), id(""))),
            ("S-83: another one", true, updates(id("a"), id("b"))),
            (
                "S-88 differs: the autoscaler drains also who is not ready",
                true,
                updates(ready("False"), taint(TAINT_TO_BE_DELETED)),
            ),
            ("S-90: without provider ID, excluded", true, both(&id(""), &same) != both(&id(""), &excluded())),
            ("S-91: without provider ID, ready", false, both(&id(""), &same) != both(&id(""), &ready("False"))),
            (
                "S-91 differs: without provider ID, the autoscaler",
                true,
                both(&id(""), &same) != both(&id(""), &taint(TAINT_TO_BE_DELETED)),
            ),
            (
                "S-86: excluded, the autoscaler",
                false,
                both(&excluded(), &same) != both(&excluded(), &taint(TAINT_TO_BE_DELETED)),
            ),
            (
                "S-89: not ready, a provider ID",
                true,
                both(&ready("False"), &id("a")) != both(&ready("False"), &id("b")),
            ),
        ] {
            assert_eq!(found, expected, "{case}");
        }
        // S-84 and S-87 pass the filter of the Go program, but its sets are equal too, so it updates no load balancer.
        let tainted = || taint(TAINT_TO_BE_DELETED);
        assert_eq!(both(&tainted(), &id("a")), both(&tainted(), &id("b")), "S-84");
        assert_eq!(both(&tainted(), &ready("False")), both(&tainted(), &same), "S-85");
        assert_eq!(both(&excluded(), &id("a")), both(&excluded(), &id("b")), "S-87");
    }

    // vectors: S-100–S-105
    #[test]
    fn who_is_included_untainted_and_ready_is_as_in_the_go_program() {
        let is_full = |node: &Node| is_target(node) && readiness(node) == Readiness::True;
        assert!(!is_full(&Node::default()), "S-100");
        for (case, node, expected) in [
            ("S-101", node("n", same), true),
            ("S-101", node("n", id("")), true),
            ("S-102", node("n", ready("False")), false),
            ("S-103", node("n", label(LABEL_EXCLUDE, "")), false),
            ("S-103", node("n", label(LABEL_EXCLUDE, "true")), false),
            ("S-103", node("n", label(LABEL_EXCLUDE, "foo")), false),
            ("S-104", node("n", label(LABEL_EXCLUDE, "false")), true),
            ("S-105", node("n", taint(TAINT_TO_BE_DELETED)), false),
        ] {
            assert_eq!(is_full(&node), expected, "{case}: {node:?}");
        }
    }

    #[test]
    fn the_addresses_that_count_are_compared_and_whether_they_are_known() {
        let addresses = |all: &[&str]| {
            let all: Vec<_> = all.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
            node("n", |node| node["status"]["addresses"] = json!(all))
        };
        let (own, forged) = (addresses(&["10.0.0.1"]), addresses(&["10.0.0.9", "10.0.0.1"]));
        let only = || UsableAddresses::Only(["10.0.0.1".parse().unwrap()].into());
        let set = |node, usable| NodeSet::of([(node, usable)]);
        assert_eq!(set(&own, only()), set(&forged, only()));
        assert_eq!(set(&own, only()), set(&own, UsableAddresses::All));
        assert_ne!(set(&own, only()), set(&own, UsableAddresses::Unknown));
        assert_ne!(set(&own, UsableAddresses::All), set(&forged, UsableAddresses::All));
        for (before, elsewhere) in [
            (set(&own, only()), false),
            (set(&own, UsableAddresses::Unknown), false),
            (set(&forged, only()), false),
            (set(&forged, UsableAddresses::All), true),
            (set(&forged, UsableAddresses::Unknown), true),
            (NodeSet::default(), true),
        ] {
            assert_eq!(set(&own, only()).has_other_targets(&before), elsewhere, "{before:?}");
        }
    }
}
