//! Syncs one Node: observes, plans, applies and reports.

pub mod preview;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;

use super::apply::{ApplyProgress, apply};
use super::memory::NodeMemory;
use super::metrics::NodeMetrics;
use super::observe::{AllowedWrites, OwnNode, observe};
use super::plan::{self, NextStep, NodeAction, NodeBlocked, NodePlan, plan};
use super::turns::{DeferredWrites, SyncResult};
use super::{NodesStatus, Policy};
use crate::base::error_chain::chain;
use crate::cloud::{Presence, Unknown, node};
use crate::controllers::decisions::{DecisionRecorder, INITIALIZED, WRITTEN};
use crate::controllers::driver::Requeue;
use crate::controllers::instances::BoundedInstances;
use crate::controllers::node::reason;
use crate::controllers::reason_tracker::ReasonTracker;
use crate::controllers::{read_live, reason_of, record_event, reference};
use crate::kubernetes::call::CallError;
use crate::kubernetes::events::{EventType, Recorder};
use crate::kubernetes::patch::permits_retry;
use crate::kubernetes::stores::Nodes;

/// The reconciler of one leadership term.
pub struct NodeReconciler {
    pub(super) store: Nodes,
    pub(super) api: Api<Node>,
    pub(super) recorder: Recorder,
    pub(super) instances: BoundedInstances,
    pub(super) policy: Policy,
    pub(super) metrics: NodeMetrics,
    pub(super) reasons: Arc<ReasonTracker>,
    pub(super) memory: NodeMemory,
    pub(super) decisions: DecisionRecorder,
    pub(super) record_moves: DeferredWrites,
    pub(super) label_moves: DeferredWrites,
    /// Whether this term has logged the number of Nodes that lack labels.
    pub(super) are_missing_labels_logged: AtomicBool,
}

impl NodeReconciler {
    /// Whether the Node was up to date at its last reconcile in this term.
    pub fn is_settled(&self, name: &str) -> bool {
        self.memory.is_settled(name)
    }

    /// Returns the state of the Nodes in this term.
    pub fn status(&self) -> NodesStatus {
        NodesStatus {
            nodes: self.store.list().len(),
            settled: self.memory.count_settled(),
            blocked: self.reasons.list(),
        }
    }

    /// Syncs one Node. An error means that this process no longer leads.
    pub(super) async fn sync(&self, name: &str) -> Result<NextStep, CallError> {
        let cached = self.store.get(name);
        if cached.as_ref().is_some_and(|node| self.memory.is_replaced(node)) {
            return Ok(NextStep::Superseded);
        }
        let turn =
            AllowedWrites { of_record: self.record_moves.take_turn(name), of_labels: self.label_moves.take_turn(name) };
        let mut observed = self.observe(cached, turn).await;
        let mut attempts = 0;
        loop {
            let plan = plan(observed.as_ref(), &self.policy);
            let Some(ours) = observed else {
                self.memory.forget(name);
                self.record_moves.synced(name, SyncResult::Settled);
                self.label_moves.synced(name, SyncResult::Settled);
                return Ok(plan.outcome);
            };
            let applied = apply(&self.api, &ours.node, &plan.actions).await;
            self.report(&ours.node, &applied, &plan);
            let is_refused = applied.error.is_some();
            self.record_moves.synced(name, SyncResult::new(plan::has_moved(&ours), turn.of_record, is_refused));
            let lacks = plan::lacks_labels(&ours, &self.policy);
            self.label_moves.synced(name, SyncResult::new(lacks, turn.of_labels, is_refused));
            let Some(error) = applied.error else { return Ok(plan.outcome) };
            let now = OwnNode { node: Arc::new(applied.node), ..ours };
            if !permits_retry(&mut attempts, &error).await {
                return self.refused(&now, plan, error).await;
            }
            observed = match read_live(&self.api, name).await {
                Ok(node) => self.observe(node.map(Arc::new), turn).await,
                Err(error) => return self.refused(&now, plan, error).await,
            };
        }
    }

    /// Reports a panic of a sync in the Node's condition.
    pub(super) async fn panicked(&self, name: &str, panic: String) -> Result<NextStep, CallError> {
        let blocked = NodeBlocked::new(reason::Panic, panic, Requeue::BACKOFF);
        let Some(node) = self.store.get(name) else { return Ok(NextStep::Blocked(blocked)) };
        // Skips a Node of another provider.
        if !self.instances.provider.owns(&node) {
            return Ok(NextStep::Blocked(blocked));
        }
        let instance = Presence::Unknown(Unknown::new(reason::Panic, ""));
        let waited = self.waited(&node);
        let ours = OwnNode {
            node,
            instance: Box::new(instance),
            observed_at: jiff::Timestamp::now(),
            waiting_time: waited,
            turn: AllowedWrites::default(),
        };
        self.report_blocked_node(&ours, blocked).await
    }

    async fn observe(&self, node: Option<Arc<Node>>, turn: AllowedWrites) -> Option<OwnNode> {
        let waited = node.as_ref().map(|node| self.waited(node)).unwrap_or_default();
        observe(node, waited, turn, &self.instances).await
    }

    fn waited(&self, node: &Node) -> Duration {
        self.memory.waited(node, plan::waits(node, &self.policy))
    }

    /// Handles a failed write of `plan`, or a failed live read after a conflict. `ours` has the Node after the
    /// successful writes.
    async fn refused(&self, ours: &OwnNode, plan: NodePlan, error: CallError) -> Result<NextStep, CallError> {
        if error.is_not_leader() {
            return Err(error);
        }
        if error.is_not_found() {
            return Ok(NextStep::Done);
        }
        if plan.only_reports_block() {
            // The next sync retries the report.
            tracing::warn!(node = node::name(&ours.node), "{}", chain(&error));
            return Ok(plan.outcome);
        }
        self.report_blocked_node(ours, NodeBlocked::new(reason_of(&error), chain(&error), Requeue::BACKOFF)).await
    }

    /// Reports `blocked` in the Node's condition, once the report is due. Only lost leadership is an error.
    async fn report_blocked_node(&self, ours: &OwnNode, blocked: NodeBlocked) -> Result<NextStep, CallError> {
        let plan = plan::blocked_plan(ours, blocked, &self.policy);
        let applied = apply(&self.api, &ours.node, &plan.actions).await;
        self.report(&ours.node, &applied, &plan);
        match applied.error {
            Some(error) if error.is_not_leader() => Err(error),
            // The conflicting change of another client enqueues the Node.
            Some(error) if error.is_conflict() => Ok(plan.outcome),
            Some(error) => {
                tracing::warn!(node = node::name(&ours.node), "{}", chain(&error));
                Ok(plan.outcome)
            }
            None => Ok(plan.outcome),
        }
    }

    /// Reports the completed actions of `plan`. `before` is the Node before these actions.
    fn report(&self, before: &Node, applied: &ApplyProgress, plan: &NodePlan) {
        let name = node::name(before);
        self.memory.wrote(name, applied.replaced.clone());
        let done: Vec<_> = plan.actions.iter().take(applied.done).collect();
        let all: Vec<_> = done.iter().map(|action| action.describe()).collect();
        let all = all.join(", ");
        if done.iter().any(|action| matches!(action, NodeAction::Initialize { .. })) {
            self.decisions.record(name, INITIALIZED, &all);
            self.report_initialized(before, &applied.node);
            for note in &plan.messages {
                tracing::warn!(node = name, "{note}");
            }
            if let Some(earlier) = plan.earlier_name.as_deref().and_then(|earlier| self.store.get(earlier)) {
                self.report_earlier_name(&earlier, name);
            }
        } else if !done.is_empty() {
            // The block itself is a decision, and its report is not another one.
            if !plan.only_reports_block() {
                self.decisions.record(name, WRITTEN, &all);
            }
            // A blocked Node is logged separately, once per change of the reason.
            match &plan.outcome {
                NextStep::Blocked(blocked) if plan.only_reports_block() && !blocked.is_quiet => {
                    tracing::debug!(node = name, "node updated: {all}");
                }
                _ => tracing::info!(node = name, "node updated: {all}"),
            }
        }
        if applied.error.is_some() {
            return;
        }
        if let Some((reason, message)) = &plan.event {
            self.recorder.event(&reference(before), EventType::Warning, reason.as_str(), message);
        }
        if let Some(differences) = &plan.differences {
            let news = self.memory.differ(name, differences);
            for difference in news.iter().filter(|difference| !plan::is_reported(before, difference)) {
                let text = difference.describe();
                tracing::warn!(node = name, reason = %difference.reason, "{text}");
                self.recorder.event(&reference(before), EventType::Warning, difference.reason.as_str(), &text);
            }
        }
    }

    /// Logs the number of initialized Nodes that lack labels of `--node-labels`.
    pub(super) fn log_missing_labels(&self) {
        if self.policy.node_labels.is_empty() {
            return;
        }
        let is_own = |node: &Arc<Node>| !node::provider_id(node).is_empty() && self.instances.provider.owns(node);
        let all = self.store.keys().into_iter().filter_map(|name| self.store.get(&name)).filter(is_own);
        let initialized = all.filter(|node| !node::is_uninitialized(node));
        if let Some(line) = plan::describe_missing(initialized, &self.policy) {
            tracing::info!("{line}");
        }
    }

    /// Records an Event on `earlier`, an older Node whose VM has joined as `name`.
    fn report_earlier_name(&self, earlier: &Node, name: &str) {
        let message = format!(
            "the VM of this Node joined as Node {name}, which is initialized now. This Node keeps what it has; if \
             {name} is its new name, delete this Node"
        );
        tracing::warn!(node = node::name(earlier), reason = %reason::VMBacksAnotherNode, "{message}");
        self.recorder.event(&reference(earlier), EventType::Warning, reason::VMBacksAnotherNode.as_str(), &message);
    }

    fn report_initialized(&self, before: &Node, node: &Node) {
        let name = node::name(node);
        let age = node
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(0.0, |created| jiff::Timestamp::now().duration_since(created.0).as_secs_f64().max(0.0));
        // An adopted Node did not wait with the taint, so its age is not the delay of an initialization.
        if node::is_uninitialized(before) {
            self.metrics.initialized(age);
        }
        record_event(&self.recorder, node, EventType::Normal, "Synced", "Node synced successfully");
        tracing::info!(node = name, provider_id = node::provider_id(node), age_seconds = age, "node initialized");
    }
}
