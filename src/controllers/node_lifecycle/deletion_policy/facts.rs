//! Pure: what the guard needs to know of a Node.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use crate::cloud::node::{self, Readiness};
use crate::controllers::node_lifecycle::plan;

/// See the file's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its UID.
    pub uid: String,
    /// Its provider ID.
    pub provider_id: String,
    /// Whether it is this provider's: not one whose provider ID is another's.
    pub is_own: bool,
    /// Whether it belongs to the control plane.
    pub is_control_plane: bool,
    /// Whether it is deleted already and only waits for its finalizers.
    pub is_leaving: bool,
    /// Whether its VM may be gone: own, Ready=Unknown, initialised, with a provider ID, and not deleted already.
    /// Ready=False is reported by a kubelet that runs, so its VM exists, perhaps as a copy that no vCenter shows.
    pub may_be_suspected: bool,
    /// Whether it has the annotation that allows its deletion.
    pub is_allowed_by_hand: bool,
    /// What `Ready` says.
    pub readiness: Readiness,
    /// Since when, as the Node has it.
    pub transition: Option<Timestamp>,
}

impl Facts {
    /// Reads them from the Node.
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
            may_be_suspected: is_own && readiness == Readiness::Unknown && is_candidate,
            is_allowed_by_hand: plan::is_allowed_by_hand(node),
            readiness,
            transition: node::ready_since(node),
        }
    }

    /// Whether what the provider said of `self` holds for `later`, too: the same Node and VM, with the same status of
    /// Ready all the time.
    pub fn is_same_subject(&self, later: &Self) -> bool {
        // Another transition time means another status in between that this process did not see.
        self.is_same_node(later)
            && self.may_be_suspected == later.may_be_suspected
            && self.readiness == later.readiness
            && self.transition == later.transition
    }

    /// Whether both are of the same Node and VM, in any state.
    pub fn is_same_node(&self, later: &Self) -> bool {
        self.uid == later.uid && self.provider_id == later.provider_id
    }
}
