//! The state of one Node in the current term, and the plan of its next reconcile, for readers. Writes nothing, and calls
//! neither the API server nor the provider.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use super::NodeReconciler;
use crate::cloud::{CloudProvider, InstanceMetadata, Presence, node};
use crate::controllers::BlockedObject;
use crate::controllers::node::Policy;
use crate::controllers::node::observe::{AllowedWrites, OwnNode, usable_answer};
use crate::controllers::node::plan::{self, NextStep, NodePlan, plan};

/// The state of one Node, and the plan of its next reconcile.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePreview {
    /// The result of the last reconcile, if it ended with a reason.
    pub blocked: Option<BlockedObject>,
    /// Whether the Node was up to date at its last reconcile.
    pub is_settled: bool,
    /// Time for which this process has seen the Node wait for initialization; zero if the Node does not wait.
    pub waiting_time: Duration,
    /// The plan; `None` if the controller leaves the Node alone, because it belongs to another provider.
    pub plan: Option<NodePlan>,
    /// Whether the new location of the VM is recorded later, because such writes have a pace.
    pub defers_record: bool,
    /// Whether missing labels of `--node-labels` are added later, because such writes have a pace.
    pub defers_labels: bool,
}

impl NodeReconciler {
    /// Returns the state of `node`, and the plan for `node` if the provider's answer is `answer`.
    pub fn preview(&self, node: &Arc<Node>, answer: Presence<InstanceMetadata>) -> NodePreview {
        let name = node::name(node);
        let turn =
            AllowedWrites { of_record: self.record_moves.has_turn(name), of_labels: self.label_moves.has_turn(name) };
        self.preview_with(node, answer, turn)
    }

    /// As [`NodeReconciler::preview`], but the plan also has the writes that are made later, because they have a pace.
    pub fn complete_preview(&self, node: &Arc<Node>, answer: Presence<InstanceMetadata>) -> NodePreview {
        self.preview_with(node, answer, AllowedWrites { of_record: true, of_labels: true })
    }

    fn preview_with(&self, node: &Arc<Node>, answer: Presence<InstanceMetadata>, turn: AllowedWrites) -> NodePreview {
        let name = node::name(node);
        let waiting_time = self.memory.waiting_time(node);
        let observed = observed(node, answer, &*self.instances.provider, (waiting_time, turn));
        let has_moved = observed.as_ref().is_some_and(plan::has_moved);
        let lacks_labels = observed.as_ref().is_some_and(|own| plan::lacks_labels(own, &self.policy));
        // As a reconcile does, waits until the cache has the last write of this process.
        let is_superseded = self.memory.is_behind_write(node);
        let planned = observed.as_ref().map(|own| match is_superseded {
            true => NodePlan { outcome: NextStep::Superseded, ..NodePlan::default() },
            false => plan(Some(own), &self.policy),
        });
        NodePreview {
            blocked: self.reasons.get(name),
            is_settled: self.memory.is_settled(name),
            waiting_time,
            plan: planned,
            defers_record: has_moved && !self.record_moves.has_turn(name),
            defers_labels: lacks_labels && !self.label_moves.has_turn(name),
        }
    }
}

/// Returns the plan for `node` with the provider's answer, without the state of a term: that of the first reconcile,
/// with the writes that have a pace. `None` for a Node that the controller leaves alone.
pub fn first_plan(
    node: &Arc<Node>,
    answer: Presence<InstanceMetadata>,
    provider: &dyn CloudProvider,
    policy: &Policy,
) -> Option<NodePlan> {
    let turn = AllowedWrites { of_record: true, of_labels: true };
    let own = observed(node, answer, provider, (Duration::ZERO, turn))?;
    Some(plan(Some(&own), policy))
}

/// Returns the inputs of the plan, without a call to the provider.
fn observed(
    node: &Arc<Node>,
    answer: Presence<InstanceMetadata>,
    provider: &dyn CloudProvider,
    (waiting_time, turn): (Duration, AllowedWrites),
) -> Option<OwnNode> {
    let answer = provider.owns(node).then_some(answer);
    let instance = usable_answer(node, answer, provider.provider_name())?;
    Some(OwnNode {
        node: Arc::clone(node),
        instance: Box::new(instance),
        observed_at: Timestamp::now(),
        waiting_time,
        turn,
    })
}
