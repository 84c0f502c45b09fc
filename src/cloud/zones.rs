//! `Zones` of `cloud.go`, part of the older contract.

use async_trait::async_trait;

use super::error::Error;

/// The location of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// The failure domain; may be empty.
    pub failure_domain: String,
    /// The region; may be empty.
    pub region: String,
}

/// `Zones` of `cloud.go`, without `GetZone` (the zone of the VM that runs the program). No controller calls `GetZone`.
#[async_trait]
pub trait Zones: Send + Sync {
    /// Returns the zone of the instance with this provider ID.
    async fn zone_by_provider_id(&self, provider_id: &str) -> Result<Zone, Error>;

    /// Returns the zone of the instance of the Node with this name.
    async fn zone_by_node_name(&self, node_name: &str) -> Result<Zone, Error>;
}
