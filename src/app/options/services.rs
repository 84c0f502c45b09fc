//! Flags of the service controller.

use clap::Args;

const HEADING: &str = "Service-lb-controller flags";

/// As typed; nothing is checked here.
#[derive(Debug, Clone, Args)]
pub struct Services {
    /// Services that are worked on at the same time
    #[arg(long, help_heading = HEADING, value_name = "NUMBER", default_value = "1", allow_hyphen_values = true)]
    pub concurrent_service_syncs: String,
}
