//! Pure: the changes of a Node.

use k8s_openapi::api::core::v1::{NodeAddress, NodeCondition};
use std::collections::{BTreeMap, BTreeSet};

use super::labels::LabelChanges;

/// One write to a Node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeAction {
    /// Replaces the address list in the status.
    WriteAddresses(Vec<NodeAddress>),
    /// Writes all changes of an initialization except the addresses. Also removes the uninitialized taint, if any.
    Initialize {
        /// The provider ID to set; `None` if the Node already has one.
        provider_id: Option<String>,
        /// Labels and annotations to change.
        metadata: Metadata,
    },
    /// Changes these labels and annotations of an initialized Node.
    SetMetadata(Metadata),
    /// Sets this condition in the status.
    SetCondition(NodeCondition),
}

/// Labels and annotations to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The labels to change; `None` removes the label.
    pub labels: LabelChanges,
    /// The annotations to set.
    pub annotations: BTreeMap<String, String>,
    /// The annotations to remove.
    pub removed_annotations: BTreeSet<&'static str>,
}

impl Metadata {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty() && self.removed_annotations.is_empty()
    }
}

impl NodeAction {
    /// Describes the change for users.
    pub fn describe(&self) -> String {
        match self {
            NodeAction::WriteAddresses(addresses) => {
                let all: Vec<_> =
                    addresses.iter().map(|address| format!("{} {}", address.type_, address.address)).collect();
                format!("addresses [{}]", all.join(", "))
            }
            NodeAction::Initialize { .. } => "initialized".to_owned(),
            NodeAction::SetMetadata(Metadata { labels, annotations, removed_annotations }) => {
                let set = labels.keys().chain(annotations.keys()).map(String::as_str);
                let keys: Vec<_> = set.chain(removed_annotations.iter().copied()).collect();
                format!("metadata [{}]", keys.join(", "))
            }
            NodeAction::SetCondition(NodeCondition { type_, status, reason, .. }) => {
                format!("condition {type_}={status} ({})", reason.as_deref().unwrap_or_default())
            }
        }
    }
}
