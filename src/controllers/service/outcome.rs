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
    /// The sync cannot continue yet and must be repeated after this time.
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
    pub(super) duration: Duration,
    /// How long the call to the cloud took, if there was one.
    pub(super) call_duration: Option<Duration>,
}

/// The result for one Service.
pub struct Update {
    pub(super) key: String,
    pub(super) service: Arc<Service>,
    pub(super) result: Result<WrittenNodes, ServiceBlocked>,
}

/// The effect of an update on the Nodes of a load balancer.
#[derive(Clone)]
pub enum WrittenNodes {
    /// The load balancer has other Nodes than before.
    Changed,
    /// The load balancer has no Nodes, or none of one IP family; contains the message about that.
    Empty(String),
    /// The Nodes are the same, or this term does not know the previous ones.
    Unchanged,
}
