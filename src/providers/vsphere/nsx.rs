//! The connection to NSX that routes and load balancers share: when to log in, and what its failures mean for them.

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

/// Which addresses in the status of a Node traffic may be sent to.
pub type UsableAddressesOf = Arc<dyn Fn(&Node) -> UsableAddresses + Send + Sync>;

/// The permit of a call of a controller, as requests carry it.
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
