//! The result of a reconcile: of a sync, or of a round of node updates.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;

use super::failure::ServiceBlocked;

/// The result of a reconcile.
pub enum ServiceOutcome {
    /// Skipped: a cache is not filled, or the provider has no load balancers.
    Nothing,
    /// The Service is up to date.
    Settled,
    /// The Service is not up to date.
    Held(ServiceBlocked),
    /// Too early: sync again after this time.
    Wait(Duration),
    /// A round of node updates.
    Round(Round),
    /// This process lost leadership.
    NotLeader,
}

/// The result of a round of node updates.
pub struct Round {
    /// One result for each Service of the round.
    pub(super) updates: Vec<Update>,
    /// The Services whose last update failed and whose load balancers have the correct Nodes now.
    pub(super) recovered: Vec<String>,
    /// How long the whole round took.
    pub(super) took: Duration,
    /// How long the call to the cloud took, if there was one.
    pub(super) call_took: Option<Duration>,
}

/// The result for one Service.
pub struct Update {
    pub(super) key: String,
    pub(super) service: Arc<Service>,
    pub(super) result: Result<WrittenNodes, ServiceBlocked>,
}

/// The Nodes that a load balancer has after an update.
#[derive(Clone)]
pub enum WrittenNodes {
    /// They have changed.
    Changed,
    /// None at all, or none for one IP family: the message.
    Empty(String),
    /// Perhaps the same: this term did not know the previous Nodes.
    Unchanged,
}
