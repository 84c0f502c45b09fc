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
    /// Whether the Node belongs to this provider or to none yet.
    pub is_own: bool,
    /// Whether it is a control plane Node.
    pub is_control_plane: bool,
    /// Whether it is being deleted and waits for its finalizers.
    pub is_leaving: bool,
    /// Whether its VM may be absent: own, Ready=Unknown, initialised, with a provider ID, and not being deleted. With
    /// Ready=False a kubelet still reports, so the VM exists, perhaps as a copy that no vCenter shows.
    pub may_have_absent_vm: bool,
    /// Whether the Node has the annotation that allows its deletion.
    pub is_allowed_by_hand: bool,
    /// The status of the condition `Ready`.
    pub readiness: Readiness,
    /// The condition's transition time.
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

    /// Whether an answer about `self` is also valid for `later`: the same Node and VM, with an unchanged status of
    /// Ready.
    pub fn is_same_subject(&self, later: &Self) -> bool {
        // Another transition time shows a status in between that this process did not see.
        self.is_same_node(later)
            && self.may_have_absent_vm == later.may_have_absent_vm
            && self.readiness == later.readiness
            && self.transition == later.transition
    }

    /// Whether both are facts of the same Node and VM, in any state.
    pub fn is_same_node(&self, later: &Self) -> bool {
        self.uid == later.uid && self.provider_id == later.provider_id
    }
}
