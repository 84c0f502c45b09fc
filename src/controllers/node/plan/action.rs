//! Pure: one change of a node, and what the node is like after it.

use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeSpec, NodeStatus, Taint};
use std::collections::BTreeMap;

use crate::cloud::node::{self, TAINT_UNINITIALIZED};

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Replaces the whole list of addresses in the status.
    WriteAddresses(Vec<NodeAddress>),
    /// Everything else that makes a node initialised, in one write.
    Initialise(Initialise),
    /// Sets these labels on an initialised node.
    SetLabels(BTreeMap<String, String>),
}

/// Provider ID, labels and annotations, and the removal of the taint that says they are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Initialise {
    /// The provider ID, if the node has none.
    pub provider_id: Option<String>,
    /// The labels that are missing or different.
    pub labels: BTreeMap<String, String>,
    /// The annotations that are missing or different.
    pub annotations: BTreeMap<String, String>,
}

impl Action {
    /// What it changes, for people.
    pub fn describe(&self) -> String {
        match self {
            Action::WriteAddresses(addresses) => {
                let all: Vec<_> =
                    addresses.iter().map(|address| format!("{} {}", address.type_, address.address)).collect();
                format!("addresses [{}]", all.join(", "))
            }
            Action::Initialise(_) => "initialised".to_owned(),
            Action::SetLabels(labels) => {
                format!("labels [{}]", labels.keys().map(String::as_str).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// Does to `node` in memory what the write does to the one in the API server.
    pub fn apply_to(&self, node: &mut Node) {
        match self {
            Action::WriteAddresses(addresses) => {
                let status = node.status.get_or_insert_with(NodeStatus::default);
                status.addresses = Some(addresses.clone());
            }
            Action::Initialise(Initialise { provider_id, labels, annotations }) => {
                let taints = other_taints(node);
                let spec = node.spec.get_or_insert_with(NodeSpec::default);
                spec.taints = Some(taints).filter(|taints| !taints.is_empty());
                if let Some(provider_id) = provider_id {
                    spec.provider_id = Some(provider_id.clone());
                }
                extend(&mut node.metadata.labels, labels);
                extend(&mut node.metadata.annotations, annotations);
            }
            Action::SetLabels(labels) => extend(&mut node.metadata.labels, labels),
        }
    }
}

/// The taints that stay when a node is initialised, in their order.
pub(in crate::controllers::node) fn other_taints(node: &Node) -> Vec<Taint> {
    node::taints(node).iter().filter(|taint| taint.key != TAINT_UNINITIALIZED).cloned().collect()
}

fn extend(present: &mut Option<BTreeMap<String, String>>, more: &BTreeMap<String, String>) {
    if !more.is_empty() {
        present.get_or_insert_default().extend(more.clone());
    }
}
