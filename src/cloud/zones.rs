//! `Zones` of `cloud.go`, part of the older contract.

use async_trait::async_trait;

use super::error::Error;

/// Where an instance runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// The failure domain; may be empty.
    pub failure_domain: String,
    /// The region; may be empty.
    pub region: String,
}

/// `Zones` of `cloud.go`. Upstream's `GetZone` (the zone of the machine the program runs on) is never called by a
/// controller and left out.
#[async_trait]
pub trait Zones: Send + Sync {
    /// The zone of the instance with this provider ID.
    async fn zone_by_provider_id(&self, provider_id: &str) -> Result<Zone, Error>;

    /// The zone of the instance behind the node of this name.
    async fn zone_by_node_name(&self, node_name: &str) -> Result<Zone, Error>;
}
