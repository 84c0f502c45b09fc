//! Routes of the pod network (`routes`) and load balancers of Services (`load_balancer`) on NSX, over one connection.
//!
//! Data flow: `services` applies the configuration and builds one Policy API client with one `session`. Routes and load
//! balancers list their NSX objects, compare them with Nodes and Services, and write the difference. NSX is the only
//! store: lists rebuild the caches after a restart. `failure` maps failed calls to the errors of the controllers.
//!
//! The session exists only while this process is the leader for a controller that needs NSX (`AnyLeader`), and each
//! write carries the permit of the leader. A standby therefore changes nothing in NSX and cannot lock the account.
//!
//! NSX is shared with other clusters and programs. This program changes an object only if the object provably belongs
//! to this cluster (`tags`, `ownership`). All other objects are foreign or ambiguous.

mod any_leader;
pub mod cluster_uid;
mod failure;
pub mod inspection;
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

/// Function that returns which addresses in the status of a Node may receive traffic.
pub type UsableAddressesOf = Arc<dyn Fn(&Node) -> UsableAddresses + Send + Sync>;

/// Converts the leader token of a controller to the permit of its NSX requests.
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
