//! Keeps the last planned step of each Service, with the inputs of the plan.

use tokio::time::Instant;

use super::ResourceCache;

/// The last step that the plan chose for the load balancers of a Service, with the inputs of the plan as they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastStep {
    /// Time of the plan.
    pub at: Instant,
    /// The step; `None` if the load balancers are as desired.
    pub step: Option<String>,
    /// Number of desired virtual servers in all load balancers of the Service. Zero for a deletion.
    pub desired_servers: usize,
    /// Number of desired pool members in all load balancers of the Service.
    pub desired_members: usize,
    /// Number of objects in NSX that belong to the Service.
    pub owned: usize,
    /// Number of objects in NSX that name the Service and may belong to another cluster.
    pub ambiguous: usize,
}

impl ResourceCache {
    /// Keeps the last step of this Service until its load balancers are deleted or the term ends.
    pub fn record_step(&self, service: &str, last: LastStep) {
        self.state.lock().last_steps.insert(service.into(), last);
    }

    /// Returns the last step of this Service.
    pub fn last_step(&self, service: &str) -> Option<LastStep> {
        self.state.lock().last_steps.get(service).cloned()
    }
}
