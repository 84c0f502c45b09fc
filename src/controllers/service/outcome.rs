//! What came of a reconcile: of a sync, or of a round of node updates.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;

use super::failure::Held;

/// What came of a reconcile.
pub enum Outcome {
    /// The caches or the load balancers of the provider are missing: nothing was looked at.
    Nothing,
    /// The Service is as it should be.
    Settled,
    /// Something is in the way.
    Held(Held),
    /// It is not the Service's turn before this time has passed.
    Wait(Duration),
    /// The cloud was told of the Nodes.
    Round(Round),
    /// This process leads no more.
    NotLeader,
}

/// What came of a round.
pub struct Round {
    /// The Services that the cloud was to be told about.
    pub(super) updates: Vec<Update>,
    /// The Services that need no update any more although the last one failed.
    pub(super) recovered: Vec<String>,
    /// How long the whole round took.
    pub(super) took: Duration,
    /// How long the call to the cloud took, if there was one.
    pub(super) call_took: Option<Duration>,
}

/// What came of it for one Service.
pub struct Update {
    pub(super) key: String,
    pub(super) service: Arc<Service>,
    pub(super) result: Result<Written, Held>,
}

/// The Nodes that a load balancer has now.
#[derive(Clone, Copy)]
pub enum Written {
    /// Others than before.
    Changed,
    /// None at all.
    Empty,
    /// Maybe the same: this term did not know those before.
    Unchanged,
}
