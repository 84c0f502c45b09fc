//! Results of a sync and of a round of node updates.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;

use super::failure::ServiceBlocked;

/// The result of a reconcile.
pub enum ServiceOutcome {
    /// Nothing is to be reported, because a cache is not filled, the provider has no load balancers, or this process
    /// lost leadership. In the last case, the driver stops the worker.
    Nothing,
    /// The sync has ended. Contains the reason why the Service is not up to date, if any.
    Synced(Option<ServiceBlocked>),
    /// The sync cannot continue yet and must be repeated after this time.
    Wait(Duration),
    /// The round of node updates has ended.
    Round(Round),
}

/// The result of a round of node updates.
pub struct Round {
    /// The results by Service. A Service whose update is pending has no result.
    pub(super) updates: Vec<Update>,
    /// Keys of the Services whose last update failed, but whose load balancers have the correct Nodes now.
    pub(super) recovered: Vec<String>,
    pub(super) duration: Duration,
    /// Duration of the cloud call, if the round made one.
    pub(super) call_duration: Option<Duration>,
}

/// The result for one Service.
pub struct Update {
    pub(super) key: String,
    pub(super) service: Arc<Service>,
    pub(super) result: WrittenNodes,
}

/// The effect of an update on the Nodes of a load balancer.
pub enum WrittenNodes {
    /// The load balancer has other Nodes than before.
    Changed,
    /// The load balancer has no Nodes, or no Nodes of one IP family. Contains the message of the Event.
    Empty(String),
    /// The load balancer has the same Nodes as before, or its previous Nodes are unknown in this term.
    Unchanged,
    /// The update failed or is blocked. The records contain the reason.
    Failed,
}
