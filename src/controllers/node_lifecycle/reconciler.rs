//! One look at one node: what is known of its machine, whether the Node is deleted, and which taints it is to have.

mod deletion;
mod taints;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use parking_lot::{Mutex, MutexGuard};

use super::deletion_policy::{DeletionPolicy, DeletionVerdict, Facts, HoldReason};
use super::metrics::NodeLifecycleMetrics;
use super::plan::{self, Change};
use super::retries::Retries;
use super::unreachable::Unreachable;
use super::{DeletionMode, Settings};
use crate::base::error_chain::chain;
use crate::cloud::node::{self, Readiness};
use crate::cloud::{AbsenceProof, Presence, Reason};
use crate::controllers::driver::Next;
use crate::controllers::instances::Instances;
use crate::controllers::node_lifecycle::reason;
use crate::controllers::reason_tracker::ReasonTracker;
use crate::controllers::reference;
use crate::kubernetes::call::CallError;
use crate::kubernetes::events::{EventType, Recorder};
use crate::kubernetes::stores::Nodes;
use crate::runtime::tasks::PanicError;

/// The pause before vCenter is queried again about a node whose answer something overtook.
const REQUERY_DELAY: Duration = Duration::from_millis(100);
/// When answers about other nodes are waited for.
const COUNTING_PAUSE: Duration = Duration::from_secs(1);

/// The pause between two looks at what every Node says. In between, that is known from the events.
const ALL_NOTED_AGAIN: Duration = Duration::from_secs(60);

/// What all holds but one are about.
const NOT_DELETED: &str = "Node not deleted";

/// What looks at nodes need.
pub(super) struct NodeLifecycleReconciler {
    pub(super) store: Nodes,
    pub(super) api: Api<Node>,
    pub(super) recorder: Recorder,
    pub(super) instances: Instances,
    pub(super) settings: Settings,
    pub(super) reasons: ReasonTracker,
    pub(super) metrics: NodeLifecycleMetrics,
}

/// What one leader knows. It ends with the leadership.
pub struct LeaderState {
    pub(super) looks: Arc<NodeLifecycleReconciler>,
    state: Mutex<LifecycleState>,
}

pub(super) struct LifecycleState {
    pub(super) guard: DeletionPolicy,
    unreachable: Unreachable,
    /// Changes of taints that could not be written.
    refused: Retries<Vec<Change>>,
    /// Nodes that were to be taken out of service, and why their VMs were not proved to be off; `None` for one that runs.
    unproved: Retries<Option<DeletionBlocked>>,
    /// The Nodes with something to do, as of what was last noted of each.
    busy: BTreeSet<String>,
    /// When the period last went through all Nodes.
    all_noted: Instant,
}

impl LeaderState {
    pub(super) fn new(looks: Arc<NodeLifecycleReconciler>) -> Self {
        let state = LifecycleState {
            guard: DeletionPolicy::new(&looks.settings, now()),
            unreachable: Unreachable::default(),
            refused: Retries::default(),
            unproved: Retries::default(),
            busy: BTreeSet::new(),
            all_noted: now(),
        };
        Self { looks, state: Mutex::new(state) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LifecycleState> {
        self.state.lock()
    }
}

/// The monotonic clock, also in tests that hold it.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// What came of a look.
#[derive(Debug, Default)]
pub struct LifecycleOutcome {
    /// Why the Node is not deleted, if its machine may be gone.
    pub(super) held: Option<DeletionBlocked>,
    pub(super) next: Next,
}

/// What keeps a Node from being deleted, or its machine from being taken out of service.
#[derive(Clone, Debug)]
pub(super) struct DeletionBlocked {
    /// What is not done, in words.
    pub(super) what: &'static str,
    pub(super) reason: Reason,
    pub(super) message: String,
    /// Not reported in Events or the log.
    pub(super) is_quiet: bool,
}

impl LifecycleOutcome {
    fn held(reason: Reason, message: impl Into<String>, is_quiet: bool) -> Self {
        Self {
            held: Some(DeletionBlocked { what: NOT_DELETED, reason, message: message.into(), is_quiet }),
            next: Next::Period,
        }
    }

    pub(super) fn after(delay: Duration) -> Self {
        Self { held: None, next: Next::After(delay) }
    }

    pub(super) fn failed(error: &CallError) -> Self {
        let reason = crate::controllers::reason_of(error);
        Self { next: Next::Backoff, ..Self::held(reason, chain(error), false) }
    }

    pub(super) fn panicked(panic: &PanicError) -> Self {
        let message = format!("looking at the node's machine failed: {panic}");
        Self { next: Next::Backoff, ..Self::held(reason::Panic, message, false) }
    }

    /// The API server refused. The guard says for how long that holds.
    pub(super) fn refused(error: &CallError) -> Self {
        Self { next: Next::After(Duration::ZERO), ..Self::held(reason::DeletionRefused, chain(error), false) }
    }

    pub(super) fn told(proof: &AbsenceProof) -> Self {
        Self::held(reason::DeletionDryRun, HoldReason::DryRun.message(None), false).with(proof)
    }

    fn by(hold: &HoldReason) -> Self {
        let left = hold.until().map(|until| until.saturating_duration_since(now()));
        let until = left.map(wall_clock_in);
        let next = match (hold, left) {
            (HoldReason::Counting { .. }, _) => Next::After(COUNTING_PAUSE),
            (_, Some(left)) => Next::After(left),
            (_, None) => Next::Period,
        };
        // Others are still being asked about: the grace period is only a little longer.
        let is_quiet = matches!(hold, HoldReason::Counting { .. });
        Self { next, ..Self::held(hold.reason(), hold.message(until.as_deref()), is_quiet) }
    }
}

/// The time of day after `left`, in whole seconds.
fn wall_clock_in(left: Duration) -> String {
    let time = jiff::Timestamp::now() + left;
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl NodeLifecycleReconciler {
    /// Tells the guard of the Node as it is, before anybody works on it.
    pub(super) fn note(&self, term: &LeaderState, name: &str) -> Option<Arc<Node>> {
        let node = self.store.get(name);
        let facts = node.as_deref().map(|node| self.facts(node));
        let is_busy = node.as_deref().is_some_and(plan::needs_a_look);
        let mut state = term.lock();
        if is_busy {
            state.busy.insert(name.to_owned());
        } else {
            state.busy.remove(name);
            state.refused.forget(name);
            state.unproved.forget(name);
        }
        state.unreachable.saw(name, node.as_deref(), now());
        state.guard.observe(name, facts, now());
        node
    }

    /// The same for all. Gives the names that have to be looked at: of Nodes with something to do, and of those that
    /// are gone.
    pub(super) fn note_all(&self, term: &LeaderState) -> Vec<String> {
        let mut busy = BTreeSet::new();
        let mut facts = Vec::new();
        for node in self.store.list() {
            let name = node::name(&node).to_owned();
            term.lock().unreachable.saw(&name, Some(&node), now());
            if plan::needs_a_look(&node) {
                busy.insert(name.clone());
            }
            facts.push((name, self.facts(&node)));
        }
        let mut state = term.lock();
        // Of a Node that is not busy the kubelet reports.
        state.unreachable.retain(|name| busy.contains(name));
        state.refused.retain(|name| busy.contains(name));
        state.unproved.retain(|name| busy.contains(name));
        let vanished = state.guard.observe_all(facts, now());
        state.busy.clone_from(&busy);
        drop(state);
        busy.into_iter().chain(vanished).collect()
    }

    /// The names to look at with the period: of Nodes with something to do. Events have noted what each Node is; going
    /// through all of them only heals what they missed, and is rare.
    pub(super) fn pass(&self, term: &LeaderState) -> Vec<String> {
        let mut state = term.lock();
        let at = now();
        if at.saturating_duration_since(state.all_noted) >= ALL_NOTED_AGAIN {
            state.all_noted = at;
            drop(state);
            return self.note_all(term);
        }
        state.guard.tick(at);
        state.busy.iter().cloned().collect()
    }

    /// Looks at one node, and does what is to be done.
    pub(super) async fn reconcile(&self, term: &LeaderState, name: &str) -> Result<LifecycleOutcome, CallError> {
        let Some(node) = self.note(term, name) else { return Ok(LifecycleOutcome::default()) };
        if !self.instances.owns(&node) || !plan::needs_a_look(&node) {
            return Ok(LifecycleOutcome::default());
        }
        let mut outcome = LifecycleOutcome::default();
        if node::readiness(&node) == Readiness::Unknown {
            outcome = self.look_for_deletion(term, &node).await?;
            if self.store.get(name).is_none() {
                return Ok(outcome);
            }
        }
        self.keep_taints(term, &node, outcome).await
    }

    /// The last answer about the machine while it is valid, else a new one.
    async fn presence(&self, term: &LeaderState, node: &Node) -> Presence {
        let last = term.lock().guard.last_answer(node::name(node), &self.facts(node), now());
        match last {
            Some(presence) => presence,
            None => self.ask(term, node).await,
        }
    }

    /// Asks the provider and passes its answer to the guard.
    pub(super) async fn ask(&self, term: &LeaderState, node: &Node) -> Presence {
        let name = node::name(node);
        term.lock().guard.ask(name, &self.facts(node), now());
        let presence = self.instances.presence(node).await;
        match &presence {
            Presence::Exists(()) => tracing::debug!(node = name, "asked whether the machine exists: it does"),
            Presence::Absent(proof) => {
                tracing::debug!(node = name, "asked whether the machine exists: absent, {proof}")
            }
            Presence::Unknown(unknown) => tracing::debug!(node = name, "asked whether the machine exists: {unknown}"),
        }
        term.lock().guard.answered(name, &presence, now(), fastrand::f64());
        presence
    }

    /// The facts of a Node that the guard uses.
    pub(super) fn facts(&self, node: &Node) -> Facts {
        Facts::of(node, self.instances.owns(node))
    }

    async fn look_for_deletion(&self, term: &LeaderState, node: &Node) -> Result<LifecycleOutcome, CallError> {
        if node.metadata.deletion_timestamp.is_some() {
            // Whoever set a finalizer is waited for. To delete it again would only use up the limit.
            return Ok(LifecycleOutcome::default());
        }
        let presence = self.presence(term, node).await;
        let is_off = matches!(self.settings.deletion, DeletionMode::Off { .. });
        let is_absent = matches!(presence, Presence::Absent(_));
        if presence != Presence::Exists(()) && node::is_uninitialized(node) {
            // The node controller tells why, where that takes longer than it should.
            let message = "the node is not initialized; its VM is not treated as deleted";
            return Ok(LifecycleOutcome::held(reason::Uninitialized, message, !is_absent));
        }
        match presence {
            Presence::Exists(()) => Ok(LifecycleOutcome::default()),
            Presence::Unknown(_) if is_off => Ok(LifecycleOutcome::default()),
            Presence::Unknown(unknown) => {
                Ok(LifecycleOutcome::held(unknown.reason, unknown.message, unknown.is_passing))
            }
            Presence::Absent(_) if node::provider_id(node).is_empty() => {
                let message = "the node has no provider ID, so its VM is unknown";
                Ok(LifecycleOutcome::held(reason::NoProviderID, message, false))
            }
            Presence::Absent(proof) => {
                let verdict = term.lock().guard.judge(node::name(node), now());
                match verdict {
                    // The answer came too late: the node was Ready in between, or something else happened.
                    DeletionVerdict::NotSuspected => Ok(LifecycleOutcome::after(REQUERY_DELAY)),
                    DeletionVerdict::Held(hold) => Ok(LifecycleOutcome::by(&hold).with(&proof)),
                    DeletionVerdict::Permitted(permit) => self.delete(term, node, permit).await,
                }
            }
        }
    }

    /// Says once why something is not done.
    pub(super) fn tell(&self, name: &str, held: &DeletionBlocked) {
        if held.reason == reason::Panic {
            return tracing::error!(node = %name, "{}", held.message);
        }
        let message = format!("{}: {}", held.what, held.message);
        if let Some(node) = self.store.get(name) {
            self.recorder.event(&reference(&*node), held.event_type(), held.reason.as_str(), &message);
        }
        tracing::info!(node = name, reason = %held.reason, "{message}");
    }

    /// What the guard counts, as metrics.
    pub(super) fn show(&self, term: &LeaderState) {
        self.metrics.guard(Some(term.lock().guard.counts(now())));
    }
}

impl LifecycleOutcome {
    fn with(mut self, proof: &AbsenceProof) -> Self {
        if let Some(held) = &mut self.held {
            held.message = format!("{}; VM confirmed deleted: {proof}", held.message);
        }
        self
    }
}

impl DeletionBlocked {
    /// News where it is as it should be, else trouble.
    pub(super) fn event_type(&self) -> EventType {
        if self.reason == reason::DeletionGracePeriod { EventType::Normal } else { EventType::Warning }
    }
}
