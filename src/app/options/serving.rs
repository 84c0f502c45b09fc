//! Flags of the secure port.

use clap::{ArgAction, Args};

const HEADING: &str = "Secure serving flags";

/// As typed; nothing is checked here.
#[derive(Debug, Clone, Args)]
pub struct Serving {
    /// Address that the secure port listens on; 0.0.0.0 and :: are all
    #[arg(long, help_heading = HEADING, value_name = "IP", default_value = "0.0.0.0", allow_hyphen_values = true)]
    pub bind_address: String,

    /// Port of probes, metrics and the other pages, with TLS; 0 turns it off
    #[arg(long, help_heading = HEADING, value_name = "PORT", default_value = "10258", allow_hyphen_values = true)]
    pub secure_port: String,

    /// Folder of cloud-controller-manager.crt and .key, made there if they are missing; empty keeps the certificate in memory
    #[arg(long, help_heading = HEADING, value_name = "PATH", default_value = "", allow_hyphen_values = true)]
    pub cert_dir: String,

    /// Certificate of the secure port, with what leads to its root; read again when it changes
    #[arg(long, help_heading = HEADING, value_name = "PATH", default_value = "", allow_hyphen_values = true)]
    pub tls_cert_file: String,

    /// Key of --tls-cert-file
    #[arg(long, help_heading = HEADING, value_name = "PATH", default_value = "", allow_hyphen_values = true)]
    pub tls_private_key_file: String,

    /// Cipher suites of the secure port, by their IANA names
    #[arg(long, help_heading = HEADING, value_name = "NAMES", action = ArgAction::Append, allow_hyphen_values = true)]
    pub tls_cipher_suites: Vec<String>,

    /// Key exchange groups of the secure port, by their numbers
    #[arg(long, help_heading = HEADING, value_name = "NUMBERS", value_delimiter = ',', action = ArgAction::Append, allow_hyphen_values = true)]
    pub tls_curve_preferences: Vec<String>,

    /// Oldest version of TLS of the secure port: VersionTLS12 or VersionTLS13
    #[arg(long, help_heading = HEADING, value_name = "VERSION", default_value = "", allow_hyphen_values = true)]
    pub tls_min_version: String,

    /// A further certificate: certificate,key for the names it has, certificate,key:name,... for others; may be repeated
    #[arg(long, help_heading = HEADING, value_name = "PAIR", action = ArgAction::Append, allow_hyphen_values = true)]
    pub tls_sni_cert_key: Vec<String>,

    /// Serve with HTTP/1.1 only
    #[arg(long, help_heading = HEADING, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub disable_http2_serving: String,

    /// Requests of one HTTP/2 connection at the same time; 0 is 100
    #[arg(long, help_heading = HEADING, value_name = "NUMBER", default_value = "0", allow_hyphen_values = true)]
    pub http2_max_streams_per_connection: String,

    /// Listen with SO_REUSEADDR
    #[arg(long, help_heading = HEADING, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub permit_address_sharing: String,

    /// Listen with SO_REUSEPORT
    #[arg(long, help_heading = HEADING, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub permit_port_sharing: String,
}
