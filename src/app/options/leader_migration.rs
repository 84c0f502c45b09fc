//! Flags of the leader migration.

use clap::Args;

const HEADING: &str = "Leader-migration flags";

/// As typed; nothing is checked here.
#[derive(Debug, Clone, Args)]
pub struct LeaderMigration {
    /// Share controllers with another process while they move from one to the other, by a second Lease
    #[arg(long, help_heading = HEADING, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub enable_leader_migration: String,

    /// Path of a LeaderMigrationConfiguration; without it the built-in one
    #[arg(long, help_heading = HEADING, value_name = "PATH", allow_hyphen_values = true)]
    pub leader_migration_config: Option<String>,
}
