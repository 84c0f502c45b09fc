//! What of Nodes is the daemon's: what a fresh one would write is the same.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use support::nodes::UNINITIALIZED_TAINT;
use support::supervisor::Output;

use super::rules::{SHUTDOWN_TAINT, VM, addresses, has_taint, provider_id};
use crate::cluster::labels;

/// Lines of a daemon's output that a difference is told with.
const LINES: usize = 40;

/// What of a Node is the daemon's.
#[derive(Debug, PartialEq)]
pub struct Result {
    provider_id: String,
    addresses: Vec<String>,
    labels: BTreeMap<&'static str, Option<String>>,
    is_initialised: bool,
    is_marked_as_shut_down: bool,
    /// vCenter and machine. Where the machine was is as of the last time that was written: for a vMotion alone that is
    /// put off.
    vm: [String; 2],
}

/// Of each Node by name. Labels that do not follow the machine say where it was at the initialisation: then it only counts that they exist.
fn results(nodes: &BTreeMap<String, Node>, follows: bool) -> BTreeMap<String, Result> {
    let result = |node: &Node| {
        let label = |key: &str| node.metadata.labels.as_ref()?.get(key).cloned();
        let value = |value: String| if follows { value } else { "as it was".to_owned() };
        Result {
            provider_id: provider_id(node).to_owned(),
            addresses: by_type(node),
            labels: labels("").into_iter().map(|(key, _)| (key, label(key).map(value))).collect(),
            is_initialised: !has_taint(node, UNINITIALIZED_TAINT),
            is_marked_as_shut_down: has_taint(node, SHUTDOWN_TAINT),
            vm: machine(node),
        }
    };
    nodes.iter().map(|(name, node)| (name.clone(), result(node))).collect()
}

/// The vCenter and the machine that the Node records.
fn machine(node: &Node) -> [String; 2] {
    let record = node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(VM));
    let record: serde_json::Value = record.map_or_else(Default::default, |text| serde_json::from_str(text).unwrap());
    ["vcenter", "vm"].map(|field| record[field].to_string())
}

/// The Node without the place of its machine, which follows a vMotion with a delay, and what changes with each write.
fn without_place(node: &Node) -> (Node, [String; 2]) {
    let mut rest = node.clone();
    rest.metadata.annotations.get_or_insert_default().remove(VM);
    (rest.metadata.resource_version, rest.metadata.managed_fields) = (None, None);
    (rest, machine(node))
}

/// A fresh daemon, which wrote this `output`, has changed none of the Nodes that were `left`, the place of their machines
/// apart.
pub fn assert_untouched(found: &BTreeMap<String, Node>, left: &BTreeMap<String, Node>, output: &Output) {
    for (name, node) in found {
        let before = &left[name];
        let has_moved = node.metadata.annotations != before.metadata.annotations;
        if !has_moved || without_place(node) != without_place(before) {
            assert_eq!(node, before, "a fresh daemon wrote to {name}\n{}", output.tail(LINES));
        }
    }
}

/// A fresh daemon has written on new Nodes of the same machines what stood on those that were `left`.
pub fn assert_alike(found: &BTreeMap<String, Node>, left: &BTreeMap<String, Node>, follows: bool, output: &Output) {
    assert_eq!(found.keys().collect::<Vec<_>>(), left.keys().collect::<Vec<_>>());
    let expected = results(left, follows);
    for (name, result) in results(found, follows) {
        assert_eq!(result, expected[&name], "{name} would be another one; {}", output.tail(LINES));
    }
}

/// The addresses in their order within a type. Between types it means nothing, and depends on what the node had before.
fn by_type(node: &Node) -> Vec<String> {
    let mut all = addresses(node).iter().collect::<Vec<_>>();
    all.sort_by(|left, right| left.type_.cmp(&right.type_));
    all.into_iter().map(|address| format!("{}={}", address.type_, address.address)).collect()
}
