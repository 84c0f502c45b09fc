//! Flags of the node controller's workers.

use clap::Args;

const HEADING: &str = "Cloud-node-controller flags";

/// As typed; nothing is checked here.
#[derive(Debug, Clone, Args)]
pub struct NodeWorkers {
    /// Nodes whose addresses are looked at at the same time by the periodic pass; 0 is the value of --concurrent-node-syncs
    #[arg(long, help_heading = HEADING, value_name = "NUMBER", default_value = "0", allow_hyphen_values = true)]
    pub concurrent_node_status_updates: String,
}
