//! Flags of the webhook server, of which there is none here.

use clap::{ArgAction, Args};

const HEADING: &str = "Webhook flags";
const SERVING: &str = "Webhook serving flags";

/// As typed; nothing is checked here.
#[derive(Debug, Clone, Args)]
pub struct Webhook {
    /// Webhooks to run, as --controllers; there are none here
    #[arg(long, help_heading = HEADING, value_name = "NAMES", action = ArgAction::Append, allow_hyphen_values = true)]
    pub webhooks: Vec<String>,

    /// Address that the webhook port listens on
    #[arg(long, help_heading = SERVING, value_name = "IP", default_value = "0.0.0.0", allow_hyphen_values = true)]
    pub webhook_bind_address: String,

    /// Port of the webhooks; 0 turns it off
    #[arg(long, help_heading = SERVING, value_name = "PORT", default_value = "10260", allow_hyphen_values = true)]
    pub webhook_secure_port: String,

    /// Serve webhooks with HTTP/1.1 only
    #[arg(long, help_heading = SERVING, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub webhook_disable_http2_serving: String,

    /// Folder of the certificate of the webhooks
    #[arg(long, help_heading = SERVING, value_name = "PATH", default_value = "", allow_hyphen_values = true)]
    pub webhook_cert_dir: String,

    /// Certificate of the webhooks
    #[arg(long, help_heading = SERVING, value_name = "PATH", default_value = "", allow_hyphen_values = true)]
    pub webhook_tls_cert_file: String,

    /// Key of the certificate of the webhooks
    #[arg(long, help_heading = SERVING, value_name = "PATH", default_value = "", allow_hyphen_values = true)]
    pub webhook_tls_private_key_file: String,

    /// Cipher suites of the webhooks
    #[arg(long, help_heading = SERVING, value_name = "NAMES", action = ArgAction::Append, allow_hyphen_values = true)]
    pub webhook_tls_cipher_suites: Vec<String>,

    /// Key exchange groups of the webhooks
    #[arg(long, help_heading = SERVING, value_name = "NUMBERS", value_delimiter = ',', action = ArgAction::Append, allow_hyphen_values = true)]
    pub webhook_tls_curve_preferences: Vec<String>,

    /// Oldest version of TLS of the webhooks
    #[arg(long, help_heading = SERVING, value_name = "VERSION", default_value = "", allow_hyphen_values = true)]
    pub webhook_tls_min_version: String,

    /// Further certificates of the webhooks: certificate,key or certificate,key:name
    #[arg(long, help_heading = SERVING, value_name = "PAIR", action = ArgAction::Append, allow_hyphen_values = true)]
    pub webhook_tls_sni_cert_key: Vec<String>,
}
