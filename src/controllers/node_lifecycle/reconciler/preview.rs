//! What this term would do with one Node now, for the command `plan`. Queries nothing, and changes nothing.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;

use super::explanation::NodeDeletionFacts;
use super::{NodeLifecycleReconciler, now};
use crate::cloud::{Power, Presence};
use crate::controllers::node_lifecycle::DeletionMode;
use crate::controllers::node_lifecycle::candidacy;
use crate::controllers::node_lifecycle::deletion_policy::{Facts, HoldReason, LastAnswer};
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

/// What is known of one Node without a term of leadership.
#[derive(Clone, Debug)]
pub struct LifecycleInputs {
    /// Whether the Node belongs to this provider, or has no provider ID yet.
    pub is_own: bool,
    /// The answer about the VM; `None` if the provider was not queried.
    pub presence: Option<Presence>,
    /// The proven power state of the VM.
    pub power: Option<Power>,
    /// `--node-deletion`.
    pub mode: DeletionMode,
}

/// Whether the provider has to be queried about the VM of `node`. See [`LifecycleInputs::is_own`].
pub fn needs_presence(node: &Node, is_own: bool) -> bool {
    plan::needs_reconcile(node) && candidacy::exemption(node, is_own).is_none()
}

/// As [`NodeLifecycleReconciler::preview`], without the state of a term: clocks and limits are not known, so
/// [`NodeDeletionFacts::checks`] is `None`, and there is no out-of-service taint.
pub fn first_preview(node: &Node, inputs: LifecycleInputs) -> Option<LifecyclePreview> {
    let LifecycleInputs { is_own, presence, power, mode } = inputs;
    if !is_own || !plan::needs_reconcile(node) {
        return None;
    }
    let power = power.filter(|_| plan::needs_power(node));
    let deletion = first_deletion_facts(node, LifecycleInputs { is_own, presence, power: None, mode });
    let taints = plan::plan(node, power, Duration::ZERO, None).changes;
    Some(LifecyclePreview { deletion, taints, out_of_service_hold: None })
}

/// Returns the inputs of the decision about the deletion of `node`, without the state of a term: there are no checks of
/// the deletion policy.
pub fn first_deletion_facts(node: &Node, inputs: LifecycleInputs) -> NodeDeletionFacts {
    let LifecycleInputs { is_own, presence, mode, .. } = inputs;
    let exemption = candidacy::exemption(node, is_own);
    let is_off = matches!(mode, DeletionMode::Off { .. });
    let presence = presence.filter(|_| exemption.is_none());
    let at = now();
    NodeDeletionFacts {
        facts: Facts::of(node, is_own),
        unknown_for: Duration::ZERO,
        exemption,
        candidacy: presence.clone().map(|presence| candidacy::candidacy(node, presence, is_off)),
        answer: presence.map(|presence| LastAnswer { presence, since: at, requested_at: at, due: None }),
        mode,
        checks: None,
        reported: None,
    }
}
