//! Keeps the last planned step of each Service, with the inputs of the plan and the outcome of the last call.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::{MAX_SERVICES, ResourceCache};
use crate::providers::vsphere::config::address_rules::IpFamily;

/// The last plan for the load balancers of a Service with its inputs as they were, and the outcome of the last call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastStep {
    /// Time of the plan.
    pub at: Instant,
    /// The next step, and the failed step of each load balancer that failed in the call of the plan, by the family of
    /// the second load balancer; `None` is the first. If empty, the plan found nothing to do; only an `outcome` of `Ok`
    /// then says that all is as desired.
    pub steps: BTreeMap<Option<IpFamily>, String>,
    /// Number of desired virtual servers in all load balancers of the Service. Zero for a deletion.
    pub desired_servers: usize,
    /// Number of desired pool members in all load balancers of the Service.
    pub desired_members: usize,
    /// Number of objects in NSX that belong to the Service.
    pub owned: usize,
    /// Number of objects in NSX that name the Service and may belong to another cluster.
    pub ambiguous: usize,
    /// The result of the last call, which is the call of the plan or a later call that ended before a plan. `None` until
    /// the call of the plan ends.
    pub outcome: Option<Result<(), String>>,
}

impl ResourceCache {
    /// Keeps the last step of this Service until its load balancers are deleted or the term ends. Of too many Services,
    /// the one with the oldest step loses it.
    pub fn record_step(&self, service: &str, last: LastStep) {
        let mut state = self.state.lock();
        let steps = &mut state.last_steps;
        if steps.len() >= MAX_SERVICES && !steps.contains_key(service) {
            let oldest = steps.iter().min_by_key(|(_, step)| step.at).map(|(service, _)| service.clone());
            if let Some(oldest) = oldest {
                steps.remove(&oldest);
            }
        }
        steps.insert(service.into(), last);
    }

    /// Keeps the outcome of a call beside the last step, if there is one.
    pub fn record_outcome(&self, service: &str, outcome: Result<(), String>) {
        if let Some(last) = self.state.lock().last_steps.get_mut(service) {
            last.outcome = Some(outcome);
        }
    }

    /// Returns the last step of this Service.
    pub fn last_step(&self, service: &str) -> Option<LastStep> {
        self.state.lock().last_steps.get(service).cloned()
    }
}
