//! Updates the taints of this controller on one Node.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;

use super::{LifecycleOutcome, NodeLifecycleReconciler, now, wall_clock_in};
use crate::base::error_chain::chain;
use crate::cloud::PowerState;
use crate::cloud::node;
use crate::controllers::driver::Requeue;
use crate::controllers::node_lifecycle::apply;
use crate::controllers::node_lifecycle::deletion_policy::{DeletionPermit, HoldReason, PermitOutcome};
use crate::controllers::node_lifecycle::plan::{self, Change, plan};
use crate::controllers::read_live;
use crate::kubernetes::call::CallError;
use crate::kubernetes::patch::permits_retry;

struct TaintPatch {
    planned: Vec<Change>,
    /// `planned`, without the out-of-service taint if this taint is not permitted now.
    changes: Vec<Change>,
    /// The permit for the out-of-service taint, if `changes` contains it.
    permit: Option<DeletionPermit>,
}

impl NodeLifecycleReconciler {
    /// Updates the taints. `outcome` is the result of `reconcile_deletion`, and is returned with the result for the
    /// taints.
    pub(super) async fn keep_taints(
        &self,
        node: &Node,
        mut outcome: LifecycleOutcome,
    ) -> Result<LifecycleOutcome, CallError> {
        let (name, uid) = (node::name(node), node.metadata.uid.as_deref().unwrap_or_default());
        let mut current = node.clone();
        let mut attempts = 0;
        loop {
            let Some(write) = self.plan_taints(&current, &mut outcome).await else { return Ok(outcome) };
            let time = wall_clock_in(Duration::ZERO);
            let written = apply::write_taints(&self.api, &current, &write.changes, &time).await;
            self.settle(write.permit, &written);
            match written {
                Ok(()) => {
                    let changes: Vec<String> = write.changes.iter().map(ToString::to_string).collect();
                    tracing::info!(node = name, "taints changed: {}", changes.join(", "));
                    self.state.lock().rejected_changes.forget(name);
                    return Ok(outcome);
                }
                Err(error) if error.is_not_found() => return Ok(outcome),
                Err(error) if permits_retry(&mut attempts, &error).await => {}
                Err(error) if error.is_not_leader() => return Err(error),
                Err(error) => {
                    tracing::warn!(node = name, "{}", chain(&error));
                    let wait =
                        self.state.lock().rejected_changes.failed(name, uid, write.planned, now(), fastrand::f64());
                    outcome.next = sooner(outcome.next, wait);
                    return Ok(outcome);
                }
            }
            match read_live(&self.api, name).await {
                Ok(Some(live)) if live.metadata.uid == node.metadata.uid && self.instances.provider.owns(&live) => {
                    current = live;
                }
                // The Node is deleted, replaced, or owned by another provider. An event enqueues a replacement.
                Ok(_) => return Ok(outcome),
                Err(error) => {
                    tracing::warn!(node = name, "{}", chain(&error));
                    outcome.next = Requeue::BACKOFF;
                    return Ok(outcome);
                }
            }
        }
    }

    /// Plans the patch for `node`, if a patch is needed. Sets the next reconcile and the blocking reason in `outcome`.
    async fn plan_taints(&self, node: &Node, outcome: &mut LifecycleOutcome) -> Option<TaintPatch> {
        let (name, uid) = (node::name(node), node.metadata.uid.as_deref().unwrap_or_default());
        let power = match plan::needs_power(node) {
            true => self.instances.power(node).await,
            false => None,
        };
        let unreachable_for = self.state.lock().unreachable.lasting(node, now());
        let plan = plan(node, power, unreachable_for, self.settings.out_of_service_after);
        if let Some(delay) = plan.requeue_after {
            outcome.next = sooner(outcome.next, delay);
        }
        let planned = plan.changes;
        if planned.is_empty() {
            self.state.lock().rejected_changes.forget(name);
            return None;
        }
        // The backoff applies only to the changes that failed.
        let refused = |(wait, failed): (Duration, &Vec<Change>)| (*failed == planned).then_some(wait);
        if let Some(wait) = self.state.lock().rejected_changes.wait(name, uid, now()).and_then(refused) {
            outcome.next = sooner(outcome.next, wait);
            return None;
        }
        let mut write = TaintPatch { changes: planned.clone(), planned, permit: None };
        if write.planned.contains(&Change::AddOutOfService) {
            match self.permit_out_of_service(node).await {
                Ok(permit) => write.permit = Some(permit),
                Err(blocked) => {
                    write.changes.retain(|change| *change != Change::AddOutOfService);
                    if outcome.blocked.is_none() {
                        *outcome = blocked;
                    }
                }
            }
        }
        (!write.changes.is_empty()).then_some(write)
    }

    /// Permits the out-of-service taint if a fresh read proves that the VM is powered off and the limit allows the
    /// taint. The read may cost the cloud a full search, so a read without proof is followed by a pause.
    async fn permit_out_of_service(&self, node: &Node) -> Result<DeletionPermit, LifecycleOutcome> {
        let (name, uid) = (node::name(node), node.metadata.uid.as_deref().unwrap_or_default());
        let by = |hold: HoldReason| LifecycleOutcome::by(&hold).about_out_of_service();
        {
            let state = self.state.lock();
            if let Some((wait, held)) = state.unproven_power.wait(name, uid, now()) {
                // Keeps the reason during the pause, so that the same failure is not reported again.
                return Err(LifecycleOutcome { blocked: held.clone(), next: Requeue::after(wait) });
            }
            state.policy.check_limit(now()).map_err(by)?;
        }
        let held = match self.instances.fresh_power(node).await {
            Ok(PowerState::Off) => {
                let mut state = self.state.lock();
                state.unproven_power.forget(name);
                // Reserved only after the read, because a deletion may need the allowance during a long read.
                return state.policy.reserve(now()).map_err(by);
            }
            // The VM is no longer powered off. The event of that change enqueues the Node.
            Ok(PowerState::On | PowerState::Suspended | PowerState::NotRunning) => None,
            Err(unknown) => {
                LifecycleOutcome::blocked(unknown.reason, unknown.message, unknown.is_transient)
                    .about_out_of_service()
                    .blocked
            }
        };
        let wait = self.state.lock().unproven_power.failed(name, uid, held.clone(), now(), fastrand::f64());
        Err(LifecycleOutcome { blocked: held, next: Requeue::after(wait) })
    }

    fn settle(&self, permit: Option<DeletionPermit>, written: &Result<(), CallError>) {
        let Some(permit) = permit else { return };
        // A write without an answer, or with a server error, may have succeeded. So its permit counts as used.
        let is_refused = written.as_ref().is_err_and(CallError::is_refusal);
        if written.is_ok() {
            self.metrics.out_of_service.inc();
        }
        self.state.lock().policy.settle(
            permit,
            if is_refused { PermitOutcome::Unused } else { PermitOutcome::Deleted },
            now(),
        );
    }
}

impl LifecycleOutcome {
    fn about_out_of_service(mut self) -> Self {
        if let Some(blocked) = &mut self.blocked {
            blocked.action = "Node not taken out of service";
        }
        self
    }
}

/// Returns `next` with a reconcile after `delay` at the latest. Does not shorten a backoff.
fn sooner(next: Requeue, delay: Duration) -> Requeue {
    if next.counts_as_failure { next } else { next.or_after(delay) }
}
