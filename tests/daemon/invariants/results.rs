//! The daemon's part of Nodes. A fresh daemon must write the same.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use support::nodes::UNINITIALIZED_TAINT;
use support::supervisor::Output;

use super::rules::{SHUTDOWN_TAINT, VM, addresses, has_taint, provider_id};
use crate::cluster::labels;

/// Number of lines of a daemon's output in a failure message.
const LINES: usize = 40;

/// The daemon's part of a Node.
#[derive(Debug, PartialEq)]
pub struct Result {
    provider_id: String,
    addresses: Vec<String>,
    labels: BTreeMap<&'static str, Option<String>>,
    is_initialized: bool,
    is_marked_as_shut_down: bool,
    /// vCenter and machine. The host is not compared, because the daemon delays the write after a vMotion.
    vm: [String; 2],
}

/// Returns the daemon's part of each Node by name. Labels that do not follow the machine have the zone at the time of
/// the initialization. Of such labels only the existence is compared.
fn results(nodes: &BTreeMap<String, Node>, follows: bool) -> BTreeMap<String, Result> {
    let result = |node: &Node| {
        let label = |key: &str| node.metadata.labels.as_ref()?.get(key).cloned();
        let value = |value: String| if follows { value } else { "as it was".to_owned() };
        Result {
            provider_id: provider_id(node).to_owned(),
            addresses: by_type(node),
            labels: labels("").into_iter().map(|(key, _)| (key, label(key).map(value))).collect(),
            is_initialized: !has_taint(node, UNINITIALIZED_TAINT),
            is_marked_as_shut_down: has_taint(node, SHUTDOWN_TAINT),
            vm: machine(node),
        }
    };
    nodes.iter().map(|(name, node)| (name.clone(), result(node))).collect()
}

/// Returns the vCenter and the machine in the Node's record.
fn machine(node: &Node) -> [String; 2] {
    let record = node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(VM));
    let record: serde_json::Value = record.map_or_else(Default::default, |text| serde_json::from_str(text).unwrap());
    ["vcenter", "vm"].map(|field| record[field].to_string())
}

/// Returns the Node without the place of its machine, which follows a vMotion with a delay, and without the fields that
/// change with each write.
fn without_place(node: &Node) -> (Node, [String; 2]) {
    let mut rest = node.clone();
    rest.metadata.annotations.get_or_insert_default().remove(VM);
    (rest.metadata.resource_version, rest.metadata.managed_fields) = (None, None);
    (rest, machine(node))
}

/// Asserts that a fresh daemon with this `output` has changed none of the Nodes in `left`, except the place of their
/// machines.
pub fn assert_untouched(found: &BTreeMap<String, Node>, left: &BTreeMap<String, Node>, output: &Output) {
    for (name, node) in found {
        let before = &left[name];
        let has_moved = node.metadata.annotations != before.metadata.annotations;
        if !has_moved || without_place(node) != without_place(before) {
            assert_eq!(node, before, "a fresh daemon wrote to {name}\n{}", output.tail(LINES));
        }
    }
}

/// Asserts that a fresh daemon has written the same to new Nodes of the same machines as to the Nodes in `left`.
pub fn assert_alike(found: &BTreeMap<String, Node>, left: &BTreeMap<String, Node>, follows: bool, output: &Output) {
    assert_eq!(found.keys().collect::<Vec<_>>(), left.keys().collect::<Vec<_>>());
    let expected = results(left, follows);
    for (name, result) in results(found, follows) {
        assert_eq!(result, expected[&name], "{name} would be another one; {}", output.tail(LINES));
    }
}

/// Returns the addresses in their order within a type. The order between types has no meaning and depends on the
/// addresses that the node had before.
fn by_type(node: &Node) -> Vec<String> {
    let mut all = addresses(node).iter().collect::<Vec<_>>();
    all.sort_by(|left, right| left.type_.cmp(&right.type_));
    all.into_iter().map(|address| format!("{}={}", address.type_, address.address)).collect()
}
