//! Latency, failures and counts of the calls about load balancers and routes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Memory;
use ccm::cloud::Error;

/// A call of the contract about load balancers or routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// `get_load_balancer`
    GetLoadBalancer,
    /// `ensure_load_balancer`
    EnsureLoadBalancer,
    /// `update_load_balancer`
    UpdateLoadBalancer,
    /// `update_nodes`, which calls none of the others.
    UpdateNodes,
    /// `ensure_load_balancer_deleted`
    DeleteLoadBalancer,
    /// `list_routes`
    ListRoutes,
    /// `create_route`
    CreateRoute,
    /// `delete_route`
    DeleteRoute,
}

/// Makes the error of a failing call. It is a function because errors of the contract cannot be cloned.
pub(super) type Failure = Arc<dyn Fn() -> Error + Send + Sync>;

impl Memory {
    /// Makes every call of this kind fail from now on. A failing call reads and changes nothing.
    pub fn fail(&self, call: Call, failure: impl Fn() -> Error + Send + Sync + 'static) {
        self.lock().failures.insert(call, Arc::new(failure));
    }

    /// Ends the failures of this kind of call.
    pub fn end_failures(&self, call: Call) {
        self.lock().failures.remove(&call);
    }

    /// Sets the time that every call about load balancers and routes takes.
    pub fn set_call_latency(&self, latency: Duration) {
        self.lock().call_latency = latency;
    }

    /// Makes every call of this kind wait from now on until [`Self::release`].
    pub fn hold(&self, call: Call) {
        self.shared.held.send_modify(|held| _ = held.insert(call));
    }

    /// Lets all waiting calls continue.
    pub fn release(&self) {
        self.shared.held.send_modify(BTreeSet::clear);
    }

    /// Returns the number of calls of this kind so far.
    pub fn count(&self, call: Call) -> usize {
        self.lock().counts.get(&call).copied().unwrap_or_default()
    }

    /// Counts a call, waits for its latency, and returns its failure if one is set.
    pub(super) async fn begin(&self, call: Call) -> Result<(), Error> {
        self.count_and_wait(call).await;
        self.failure(call)
    }

    pub(super) async fn count_and_wait(&self, call: Call) {
        let latency = {
            let mut state = self.lock();
            *state.counts.entry(call).or_default() += 1;
            state.call_latency
        };
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        // An error means that the cloud was dropped, so nothing delays the call.
        let mut held = self.shared.held.subscribe();
        drop(held.wait_for(|held| !held.contains(&call)).await);
    }

    pub(super) fn failure(&self, call: Call) -> Result<(), Error> {
        let failure = self.lock().failures.get(&call).cloned();
        failure.map_or(Ok(()), |failure| Err(failure()))
    }
}
