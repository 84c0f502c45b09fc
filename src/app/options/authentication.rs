//! Flags about who asks at the secure port.

use clap::{ArgAction, Args};

const HEADING: &str = "Authentication flags";

/// As typed; nothing is checked here.
#[derive(Debug, Clone, Args)]
pub struct Authentication {
    /// Kubeconfig of the API server that says whose tokens are whose; empty is the one of the pod
    #[arg(long, help_heading = HEADING, value_name = "PATH", default_value = "", allow_hyphen_values = true)]
    pub authentication_kubeconfig: String,

    /// Do not read the CAs of clients from the cluster
    #[arg(long, help_heading = HEADING, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub authentication_skip_lookup: String,

    /// How long an answer about a token is believed
    #[arg(long, help_heading = HEADING, value_name = "DURATION", default_value = "10s", allow_hyphen_values = true)]
    pub authentication_token_webhook_cache_ttl: String,

    /// Start although the CAs of clients cannot be read from the cluster
    #[arg(long, help_heading = HEADING, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub authentication_tolerate_lookup_failure: String,

    /// CAs of client certificates, instead of the cluster's
    #[arg(long, help_heading = HEADING, value_name = "PATH", default_value = "", allow_hyphen_values = true)]
    pub client_ca_file: String,

    /// Has no meaning here: the secure port ignores identity headers of a proxy
    #[arg(long, help_heading = HEADING, value_name = "NAMES", action = ArgAction::Append, allow_hyphen_values = true)]
    pub requestheader_allowed_names: Vec<String>,

    /// Has no meaning here: the secure port ignores identity headers of a proxy
    #[arg(long, help_heading = HEADING, value_name = "PATH", default_value = "", allow_hyphen_values = true)]
    pub requestheader_client_ca_file: String,

    /// Has no meaning here: the secure port ignores identity headers of a proxy
    #[arg(long, help_heading = HEADING, value_name = "NAMES", default_value = "x-remote-user", action = ArgAction::Append, allow_hyphen_values = true)]
    pub requestheader_username_headers: Vec<String>,

    /// Has no meaning here: the secure port ignores identity headers of a proxy
    #[arg(long, help_heading = HEADING, value_name = "NAMES", default_value = "x-remote-group", action = ArgAction::Append, allow_hyphen_values = true)]
    pub requestheader_group_headers: Vec<String>,

    /// Has no meaning here: the secure port ignores identity headers of a proxy
    #[arg(long, help_heading = HEADING, value_name = "PREFIXES", default_value = "x-remote-extra-", action = ArgAction::Append, allow_hyphen_values = true)]
    pub requestheader_extra_headers_prefix: Vec<String>,

    /// Has no meaning here: the secure port ignores identity headers of a proxy
    #[arg(long, help_heading = HEADING, value_name = "NAMES", action = ArgAction::Append, allow_hyphen_values = true)]
    pub requestheader_uid_headers: Vec<String>,
}
