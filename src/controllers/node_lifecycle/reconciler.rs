//! Reconciles one Node: queries its VM, deletes the Node if permitted, and updates its taints.

mod allowance;
mod deletion;
mod explanation;
mod preview;
mod taints;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use parking_lot::Mutex;

use super::candidacy::{self, Candidacy};
use super::deletion_policy::{DeletionPolicy, DeletionVerdict, Facts, HoldReason};
use super::metrics::NodeLifecycleMetrics;
use super::pause_monitor::PauseMonitor;
use super::plan::{self, Change};
use super::recent_deletions::{NodeDeletion, RecentDeletions};
use super::retries::Retries;
use super::unreachable::Unreachable;
use super::{DeletionMode, LifecycleSettings, LifecycleStatus};
use crate::base::error_chain::chain;
use crate::cloud::node;
use crate::cloud::{AbsenceProof, Presence, Reason};
use crate::controllers::decisions::{DecisionRecorder, GONE, SETTLED};
use crate::controllers::driver::Requeue;
use crate::controllers::instances::BoundedInstances;
use crate::controllers::node_lifecycle::reason;
use crate::controllers::reason_tracker::ReasonTracker;
use crate::controllers::{now, reference};
use crate::kubernetes::call::CallError;
use crate::kubernetes::events::{EventType, Recorder};
use crate::kubernetes::stores::Nodes;
use crate::runtime::tasks::PanicError;
pub use allowance::AllowanceError;
pub use explanation::{DeletionFacts, NodeDeletionFacts};
pub use preview::{LifecycleInputs, LifecyclePreview, first_deletion_facts, first_preview, needs_presence};

/// Pause before the provider is queried again after an event has outdated its answer.
const REQUERY_DELAY: Duration = Duration::from_millis(100);
/// Pause while answers about other Nodes are pending.
const COUNTING_PAUSE: Duration = Duration::from_secs(1);

/// Interval between two reads of the facts of all Nodes. Between these reads, events keep the facts up to date.
const FULL_PASS_PERIOD: Duration = Duration::from_secs(60);

/// Prefix of the message about any blocked action except the out-of-service taint.
const NOT_DELETED: &str = "Node not deleted";

/// The reconciler of one leadership term, with its state.
pub struct NodeLifecycleReconciler {
    pub(super) store: Nodes,
    pub(super) api: Api<Node>,
    pub(super) recorder: Recorder,
    pub(super) instances: BoundedInstances,
    pub(super) settings: LifecycleSettings,
    pub(super) reasons: Arc<ReasonTracker>,
    /// Outlasts the term.
    pub(super) deletions: Arc<RecentDeletions>,
    /// Shared with the other replicas. Outlasts the term.
    pub(super) pauses: Arc<PauseMonitor>,
    pub(super) decisions: DecisionRecorder,
    pub(super) metrics: NodeLifecycleMetrics,
    pub(super) state: Mutex<LifecycleState>,
}

pub(super) struct LifecycleState {
    pub(super) policy: DeletionPolicy,
    unreachable: Unreachable,
    /// Backoff of failed taint writes.
    rejected_changes: Retries<Vec<Change>>,
    /// Backoff of out-of-service taints after a read that did not prove the VM powered off. Contains the reason, or
    /// `None` if the read proved another power state.
    unproven_power: Retries<Option<DeletionBlocked>>,
    /// The Nodes that need a reconcile, according to their latest facts.
    in_flight: BTreeSet<String>,
    /// Time of the last read of the facts of all Nodes.
    all_noted: Instant,
}

impl LifecycleState {
    pub(super) fn new(settings: &LifecycleSettings) -> Self {
        Self {
            policy: DeletionPolicy::new(settings, now()),
            unreachable: Unreachable::default(),
            rejected_changes: Retries::default(),
            unproven_power: Retries::default(),
            in_flight: BTreeSet::new(),
            all_noted: now(),
        }
    }
}

/// The result of a reconcile.
#[derive(Debug, Default)]
pub struct LifecycleOutcome {
    /// The reason why an action on the Node is blocked, if any.
    pub(super) blocked: Option<DeletionBlocked>,
    pub(super) next: Requeue,
}

/// The reason why a Node is not deleted, or not taken out of service.
#[derive(Clone, Debug)]
pub(super) struct DeletionBlocked {
    /// The blocked action, as prefix of the message.
    pub(super) action: &'static str,
    pub(super) reason: Reason,
    pub(super) message: String,
    /// Whether Events and log omit the block.
    pub(super) is_quiet: bool,
}

impl LifecycleOutcome {
    fn blocked(reason: Reason, message: impl Into<String>, is_quiet: bool) -> Self {
        Self {
            blocked: Some(DeletionBlocked { action: NOT_DELETED, reason, message: message.into(), is_quiet }),
            next: Requeue::PERIOD,
        }
    }

    pub(super) fn after(delay: Duration) -> Self {
        Self { blocked: None, next: Requeue::after(delay) }
    }

    pub(super) fn failed(error: &CallError) -> Self {
        let reason = crate::controllers::reason_of(error);
        Self { next: Requeue::BACKOFF, ..Self::blocked(reason, chain(error), false) }
    }

    pub(super) fn panicked(panic: &PanicError) -> Self {
        let message = format!("the check of the node's VM failed: {panic}");
        Self { next: Requeue::BACKOFF, ..Self::blocked(reason::Panic, message, false) }
    }

    /// Creates the outcome of a deletion that the API server refused. The policy decides about the next attempt.
    pub(super) fn refused(error: &CallError) -> Self {
        Self { next: Requeue::after(Duration::ZERO), ..Self::blocked(reason::DeletionRefused, chain(error), false) }
    }

    pub(super) fn by(hold: &HoldReason) -> Self {
        let left = hold.until().map(|until| until.saturating_duration_since(now()));
        let until = left.map(wall_clock_in);
        let next = match (hold, left) {
            (HoldReason::Counting { .. }, _) => Requeue::after(COUNTING_PAUSE),
            (_, Some(left)) => Requeue::after(left),
            (_, None) => Requeue::PERIOD,
        };
        // The provider is still being queried about other Nodes, which delays the deletion only a little.
        let is_quiet = matches!(hold, HoldReason::Counting { .. });
        Self { next, ..Self::blocked(hold.reason(), hold.message(until.as_deref()), is_quiet) }
    }

    pub(super) fn with(mut self, proof: &AbsenceProof) -> Self {
        if let Some(blocked) = &mut self.blocked {
            blocked.message = format!("{}; VM confirmed deleted: {proof}", blocked.message);
        }
        self
    }
}

/// Returns the wall clock time at the end of `left`, in whole seconds.
fn wall_clock_in(left: Duration) -> String {
    let time = jiff::Timestamp::now() + left;
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl NodeLifecycleReconciler {
    /// Returns the state of deletions in this term.
    pub fn status(&self) -> LifecycleStatus {
        let state = self.state.lock();
        let counts = state.policy.counts(now());
        let capacity = state.policy.capacity();
        let unanswered = state.policy.unanswered();
        drop(state);
        LifecycleStatus {
            mode: self.settings.deletion.clone(),
            allowance: counts.allowance,
            capacity,
            is_mass_held: counts.is_mass_held,
            unanswered,
            blocked: self.reasons.list(),
            last_deletion: self.deletions.last(),
        }
    }

    /// Records the Node's current facts before any other work on the Node. Returns the cached Node, if any.
    pub(super) fn observe(&self, name: &str) -> Option<Arc<Node>> {
        let node = self.store.get(name);
        let facts = node.as_deref().map(|node| self.facts(node));
        let is_busy = node.as_deref().is_some_and(plan::needs_reconcile);
        let mut state = self.state.lock();
        if is_busy {
            state.in_flight.insert(name.to_owned());
        } else {
            state.in_flight.remove(name);
            state.rejected_changes.forget(name);
            state.unproven_power.forget(name);
        }
        state.unreachable.observe(name, node.as_deref(), now());
        state.policy.observe(name, facts, now());
        node
    }

    /// Records the facts of all Nodes. Returns the names of the Nodes that need a reconcile, and of the deleted Nodes.
    pub(super) fn observe_all(&self) -> Vec<String> {
        let mut busy = BTreeSet::new();
        let mut facts = Vec::new();
        for node in self.store.list() {
            let name = node::name(&node).to_owned();
            self.state.lock().unreachable.observe(&name, Some(&node), now());
            if plan::needs_reconcile(&node) {
                busy.insert(name.clone());
            }
            facts.push((name, self.facts(&node)));
        }
        let mut state = self.state.lock();
        // A Node that is not in `busy` is `Ready` or deleted, so its entries are obsolete.
        state.unreachable.retain(|name| busy.contains(name));
        state.rejected_changes.retain(|name| busy.contains(name));
        state.unproven_power.retain(|name| busy.contains(name));
        let vanished = state.policy.observe_all(facts, now());
        state.in_flight.clone_from(&busy);
        drop(state);
        busy.into_iter().chain(vanished).collect()
    }

    /// Returns the names of the Nodes to reconcile in this period. To cover missed events, all cached Nodes are
    /// observed again every `FULL_PASS_PERIOD`; the result then also contains deleted Nodes.
    pub(super) fn tick(&self) -> Vec<String> {
        let mut state = self.state.lock();
        let at = now();
        if at.saturating_duration_since(state.all_noted) >= FULL_PASS_PERIOD {
            state.all_noted = at;
            drop(state);
            return self.observe_all();
        }
        state.policy.count_mass(at);
        state.in_flight.iter().cloned().collect()
    }

    pub(super) async fn sync(&self, name: &str) -> Result<LifecycleOutcome, CallError> {
        let Some(node) = self.observe(name) else {
            if let Some(NodeDeletion { uid, decision, proof, is_confirmed, .. }) = self.deletions.find(name) {
                let decision = decision.map(|decision| decision.to_string());
                let verb = if is_confirmed { "deleted" } else { "may have deleted" };
                let message = format!("the node is gone; this process {verb} a node of this name: {proof}");
                tracing::debug!(node = name, uid, decision, "{message}");
            }
            return Ok(LifecycleOutcome::default());
        };
        let is_own = self.instances.provider.owns(&node);
        if !is_own || !plan::needs_reconcile(&node) {
            return Ok(LifecycleOutcome::default());
        }
        let mut outcome = LifecycleOutcome::default();
        if candidacy::exemption(&node, is_own).is_none() {
            outcome = self.reconcile_deletion(&node).await?;
            if self.store.get(name).is_none() {
                return Ok(outcome);
            }
        }
        self.keep_taints(&node, outcome).await
    }

    /// Returns the last answer about the VM while the answer is valid; otherwise queries the provider.
    async fn presence(&self, node: &Node) -> Presence {
        let last = self.state.lock().policy.last_answer(node::name(node), &self.facts(node), now());
        match last {
            Some(presence) => presence,
            None => self.query_provider(node).await,
        }
    }

    /// Queries the provider and records its answer in the deletion policy.
    pub(super) async fn query_provider(&self, node: &Node) -> Presence {
        let name = node::name(node);
        self.state.lock().policy.record_query(name, &self.facts(node), now());
        let presence = self.instances.presence(node).await;
        match &presence {
            Presence::Exists(()) => tracing::debug!(node = name, "checked whether the VM exists: it does"),
            Presence::Absent(proof) => {
                tracing::debug!(node = name, "checked whether the VM exists: absent, {proof}")
            }
            Presence::Unknown(unknown) => tracing::debug!(node = name, "checked whether the VM exists: {unknown}"),
        }
        self.state.lock().policy.record_answer(name, &presence, now(), fastrand::f64());
        presence
    }

    pub(super) fn facts(&self, node: &Node) -> Facts {
        Facts::of(node, self.instances.provider.owns(node))
    }

    async fn reconcile_deletion(&self, node: &Node) -> Result<LifecycleOutcome, CallError> {
        let presence = self.presence(node).await;
        match candidacy::candidacy(node, presence, self.is_off()) {
            Candidacy::VmExists | Candidacy::Unreported(_) => Ok(LifecycleOutcome::default()),
            Candidacy::Held { reason, message, is_quiet } => Ok(LifecycleOutcome::blocked(reason, message, is_quiet)),
            Candidacy::VmAbsent(proof) => match self.decide(node::name(node)) {
                // The answer came too late: the Node was `Ready` meanwhile, or another event outdated the answer.
                DeletionVerdict::NotSuspected => Ok(LifecycleOutcome::after(REQUERY_DELAY)),
                DeletionVerdict::Held(hold) => Ok(LifecycleOutcome::by(&hold).with(&proof)),
                DeletionVerdict::Permitted(permit) => self.delete(node, permit).await,
            },
        }
    }

    /// Whether no Node is deleted at all.
    fn is_off(&self) -> bool {
        matches!(self.settings.deletion, DeletionMode::Off { .. })
    }

    /// Decides about the deletion of a Node, and logs the decision with its inputs.
    fn decide(&self, name: &str) -> DeletionVerdict {
        let pause = self.pauses.pause();
        let mut state = self.state.lock();
        state.policy.observe_pause(pause);
        let verdict = state.policy.verdict(name, now());
        let decision = state.policy.last_decision(name).cloned();
        drop(state);
        if let Some(decision) = decision {
            tracing::debug!(node = name, "decided whether the node is deleted: {decision}");
        }
        verdict
    }

    /// Clears the reason of a Node about which no action is blocked.
    pub(super) fn clear(&self, name: &str) {
        let Some(before) = self.reasons.clear(name) else { return };
        let node = self.store.get(name);
        let uid = node.as_ref().and_then(|node| node.metadata.uid.as_deref());
        // The deletion by this process is a decision of its own, and the cache may still have the Node.
        if self.deletions.find(name).is_some_and(|deletion| uid.is_none_or(|uid| deletion.uid == uid)) {
            return;
        }
        let word = if node.is_some() { SETTLED } else { GONE };
        self.decisions.record(name, word, &format!("held before by {before}"));
    }

    /// Reports the reason why an action is blocked.
    pub(super) fn report(&self, name: &str, blocked: &DeletionBlocked) {
        let message = format!("{}: {}", blocked.action, blocked.message);
        self.decisions.record(name, blocked.reason.as_str(), &message);
        if blocked.reason == reason::Panic {
            return tracing::error!(node = %name, "{}", blocked.message);
        }
        if let Some(node) = self.store.get(name) {
            self.recorder.event(&reference(&*node), blocked.event_type(), blocked.reason.as_str(), &message);
        }
        tracing::info!(node = name, reason = %blocked.reason, "{message}");
    }

    /// Updates the metrics of the deletion policy.
    pub(super) fn update_metrics(&self) {
        self.metrics.guard(Some(self.state.lock().policy.counts(now())));
    }
}

impl DeletionBlocked {
    pub(super) fn event_type(&self) -> EventType {
        if self.reason == reason::DeletionGracePeriod { EventType::Normal } else { EventType::Warning }
    }
}
