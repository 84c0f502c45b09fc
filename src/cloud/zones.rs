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

/// `Zones` of `cloud.go`, without upstream's `GetZone` (the zone of the VM that runs the program), which no controller
/// calls.
#[async_trait]
pub trait Zones: Send + Sync {
    /// The zone of the instance with this provider ID.
    async fn zone_by_provider_id(&self, provider_id: &str) -> Result<Zone, Error>;

    /// The zone of the instance behind the Node of this name.
    async fn zone_by_node_name(&self, node_name: &str) -> Result<Zone, Error>;
}
