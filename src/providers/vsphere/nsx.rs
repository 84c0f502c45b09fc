//! NSX: one connection, shared by the routes of the pod network (`routes`) and by the load balancers of Services
//! (`load_balancer`).
//!
//! Data flow: `services` applies the configuration. It builds one client of the Policy API with one `session`, and the
//! routes and load balancers that use this client. Routes and load balancers list their NSX objects, compare them with
//! Nodes and Services, and write the difference. NSX is the only store: lists rebuild the caches after a restart.
//! `failure` maps each failed call to the error that the controllers handle.
//!
//! The session exists only while this process leads for a controller that needs NSX (`AnyLeader`), and each write
//! carries the leader's permit. So a standby changes nothing and risks no lockout of the account.
//!
//! NSX is shared with other clusters and programs. Tags (`tags`, `ownership`) decide which objects this program may
//! change: an object that is not provably this cluster's is foreign or ambiguous, and never changed.

mod any_leader;
pub mod cluster_uid;
mod failure;
pub mod load_balancer;
pub mod names;
pub mod ownership;
pub mod routes;
pub mod services;
mod session;
pub mod tags;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use crate::clients::http::Permit;
use crate::cloud::{LeaderToken, UsableAddresses};
use async_trait::async_trait;

pub use any_leader::AnyLeader;
pub(in crate::providers::vsphere) use failure::failed;
pub use session::{LoginSource, NsxSession, NsxSessionStatus, Token};

/// Returns the addresses in the status of a Node that may receive traffic.
pub type UsableAddressesOf = Arc<dyn Fn(&Node) -> UsableAddresses + Send + Sync>;

/// Turns a controller's leader token into the permit of its NSX requests.
pub(in crate::providers::vsphere) fn permit(permit: &LeaderToken) -> Arc<dyn Permit> {
    Arc::new(OfCall(permit.clone()))
}

struct OfCall(LeaderToken);

#[async_trait]
impl Permit for OfCall {
    fn is_valid(&self) -> bool {
        self.0.check().is_ok()
    }

    async fn ended(&self) {
        self.0.ended().await;
    }
}
