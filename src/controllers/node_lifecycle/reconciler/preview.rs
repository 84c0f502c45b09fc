//! What this term would do with one Node now, for the command `plan`. Queries nothing, and changes nothing.

use k8s_openapi::api::core::v1::Node;

use super::explanation::NodeDeletionFacts;
use super::{NodeLifecycleReconciler, now};
use crate::cloud::Power;
use crate::controllers::node_lifecycle::deletion_policy::HoldReason;
use crate::controllers::node_lifecycle::plan::{self, Change, LifecyclePlan};

/// What this term would do with one Node.
#[derive(Clone, Debug, PartialEq)]
pub struct LifecyclePreview {
    /// The inputs of the decision about the deletion, and what follows from them.
    pub deletion: NodeDeletionFacts,
    /// The changes of the taints, if the Node is not deleted. A live read of the power state comes before
    /// [`Change::AddOutOfService`].
    pub taints: Vec<Change>,
    /// The reason why the limit on deletions prevents [`Change::AddOutOfService`], which is then not in `taints`.
    pub out_of_service_hold: Option<HoldReason>,
}

impl NodeLifecycleReconciler {
    /// Returns what this term would do with `node` if `power` is the proven power state of its VM. `None` for a Node
    /// that this controller leaves alone.
    pub fn preview(&self, node: &Node, power: Option<Power>) -> Option<LifecyclePreview> {
        if !self.instances.provider.owns(node) || !plan::needs_reconcile(node) {
            return None;
        }
        let state = self.state.lock();
        let unreachable_for = state.unreachable.lasting(node, now());
        let limit = state.policy.check_limit(now());
        drop(state);
        let power = power.filter(|_| plan::needs_power(node));
        let LifecyclePlan { changes: mut taints, .. } =
            plan::plan(node, power, unreachable_for, self.settings.out_of_service_after);
        let mut out_of_service_hold = None;
        if let (Err(hold), true) = (limit, taints.contains(&Change::AddOutOfService)) {
            taints.retain(|change| *change != Change::AddOutOfService);
            out_of_service_hold = Some(hold);
        }
        Some(LifecyclePreview { deletion: self.explain_node(node), taints, out_of_service_hold })
    }
}
