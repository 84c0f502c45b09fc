//! Pure: the properties of a Node that the deletion policy uses.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use crate::cloud::node::{self, Readiness};
use crate::controllers::node_lifecycle::plan;

/// The properties of one Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The Node's UID.
    pub uid: String,
    /// The Node's provider ID.
    pub provider_id: String,
    /// Whether the Node belongs to this provider, or has no provider ID yet.
    pub is_own: bool,
    /// Whether the Node is a control plane Node.
    pub is_control_plane: bool,
    /// Whether the Node is being deleted and waits for its finalizers.
    pub is_leaving: bool,
    /// Whether the VM may be absent: the Node is `Ready=Unknown`, initialized, not being deleted, and has a provider ID
    /// of this provider. With `Ready=False`, the kubelet still updates its Node, perhaps on a copy of the VM that no
    /// vCenter shows.
    pub may_have_absent_vm: bool,
    /// Whether the Node has the annotation that allows its deletion.
    pub is_allowed_by_hand: bool,
    /// The status of the condition `Ready`.
    pub readiness: Readiness,
    /// The transition time of the condition `Ready`.
    pub transition: Option<Timestamp>,
}

impl Facts {
    /// Reads the facts from the Node.
    pub fn of(node: &Node, is_own: bool) -> Self {
        let readiness = node::readiness(node);
        let is_leaving = node.metadata.deletion_timestamp.is_some();
        let is_candidate = !is_leaving && !node::is_uninitialized(node) && !node::provider_id(node).is_empty();
        Self {
            uid: node.metadata.uid.clone().unwrap_or_default(),
            provider_id: node::provider_id(node).to_owned(),
            is_own,
            is_control_plane: node::is_control_plane(node),
            is_leaving,
            may_have_absent_vm: is_own && readiness == Readiness::Unknown && is_candidate,
            is_allowed_by_hand: plan::is_allowed_by_hand(node),
            readiness,
            transition: node::ready_since(node),
        }
    }

    /// Whether an answer about `self` is valid for `later`: same Node, VM, `Ready` condition and `may_have_absent_vm`.
    pub fn is_same_subject(&self, later: &Self) -> bool {
        // Another transition time shows that the status changed, even if this process sees the same status again.
        self.is_same_node(later)
            && self.may_have_absent_vm == later.may_have_absent_vm
            && self.readiness == later.readiness
            && self.transition == later.transition
    }

    /// Whether `self` and `later` are facts of the same Node and VM, in any state.
    pub fn is_same_node(&self, later: &Self) -> bool {
        self.uid == later.uid && self.provider_id == later.provider_id
    }
}
