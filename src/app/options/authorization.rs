//! Flags about what may be asked at the secure port.

use clap::{ArgAction, Args};

const HEADING: &str = "Authorization flags";

/// As typed; nothing is checked here.
#[derive(Debug, Clone, Args)]
pub struct Authorization {
    /// Kubeconfig of the API server that says who may do what; empty is the one of the pod
    #[arg(long, help_heading = HEADING, value_name = "PATH", default_value = "", allow_hyphen_values = true)]
    pub authorization_kubeconfig: String,

    /// Paths that are open to everybody; a * at the end is any rest
    #[arg(long, help_heading = HEADING, value_name = "PATHS", default_value = "/healthz,/readyz,/livez", action = ArgAction::Append, allow_hyphen_values = true)]
    pub authorization_always_allow_paths: Vec<String>,

    /// How long a permission is believed
    #[arg(long, help_heading = HEADING, value_name = "DURATION", default_value = "10s", allow_hyphen_values = true)]
    pub authorization_webhook_cache_authorized_ttl: String,

    /// How long a refusal is believed
    #[arg(long, help_heading = HEADING, value_name = "DURATION", default_value = "10s", allow_hyphen_values = true)]
    pub authorization_webhook_cache_unauthorized_ttl: String,
}
