//! Flags that fit nowhere else.

use clap::{ArgAction, Args};

const HEADING: &str = "Generic flags";

/// As typed; nothing is checked here.
#[derive(Debug, Clone, Args)]
pub struct Generic {
    /// Whether pod CIDRs are given to nodes; no controller here does that
    #[arg(long, help_heading = HEADING, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allocate_node_cidrs: String,

    /// Run with a cloud that has no cluster ID
    #[arg(long, hide = true, help_heading = HEADING, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allow_untagged_cloud: String,

    /// How pod CIDRs are chosen; no controller here does that
    #[arg(long, help_heading = HEADING, value_name = "NAME", default_value = "RangeAllocator", allow_hyphen_values = true)]
    pub cidr_allocator_type: String,

    /// CIDRs of the pods, at most one of each family
    #[arg(long, help_heading = HEADING, value_name = "CIDRS", default_value = "", allow_hyphen_values = true)]
    pub cluster_cidr: String,

    /// Name of the cluster, for load balancers and routes
    #[arg(long, help_heading = HEADING, value_name = "NAME", default_value = "kubernetes", allow_hyphen_values = true)]
    pub cluster_name: String,

    /// Run the route controller if the cloud has routes
    #[arg(long, help_heading = HEADING, value_name = "BOOL", default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub configure_cloud_routes: String,

    /// Pause between the starts of two controllers
    #[arg(long, help_heading = HEADING, value_name = "DURATION", default_value = "0s", allow_hyphen_values = true)]
    pub controller_start_interval: String,

    /// Has no meaning here
    #[arg(long, help_heading = HEADING, value_name = "NAME", default_value = "", allow_hyphen_values = true)]
    pub external_cloud_volume_plugin: String,

    /// Features to turn on or off, as Name=true,Other=false
    #[arg(long, help_heading = HEADING, value_name = "GATES", value_delimiter = ',', action = ArgAction::Append, allow_hyphen_values = true)]
    pub feature_gates: Vec<String>,

    /// Has no meaning here: requests are JSON
    #[arg(long, help_heading = HEADING, value_name = "TYPE", default_value = "application/vnd.kubernetes.protobuf", allow_hyphen_values = true)]
    pub kube_api_content_type: String,

    /// Has no meaning here: caches follow watches, and every node is looked at again after --node-status-update-frequency
    #[arg(long, help_heading = HEADING, value_name = "DURATION", default_value = "12h0m0s", allow_hyphen_values = true)]
    pub min_resync_period: String,

    /// Has no meaning
    #[arg(long, hide = true, help_heading = HEADING, value_name = "DURATION", default_value = "0s", allow_hyphen_values = true)]
    pub node_sync_period: String,

    /// Pause between two looks at all routes
    #[arg(long, help_heading = HEADING, value_name = "DURATION", default_value = "10s", allow_hyphen_values = true)]
    pub route_reconciliation_period: String,

    /// Each controller writes with a service account of its own
    #[arg(long, help_heading = HEADING, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub use_service_account_credentials: String,
}
