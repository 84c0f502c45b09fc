//! Flags of the log.

use clap::{ArgAction, Args};

const HEADING: &str = "Global flags";

/// As typed; nothing is checked here.
#[derive(Debug, Clone, Args)]
pub struct Logging {
    /// How much to log: from 0 the life of the process and the changes it makes, from 4 its decisions, from 6 data
    #[arg(short = 'v', long = "v", help_heading = HEADING, value_name = "LEVEL", default_value = "0", allow_hyphen_values = true)]
    pub v: String,

    /// Levels of single modules, pattern=LEVEL; text format only
    #[arg(long, help_heading = HEADING, value_name = "LEVELS", value_delimiter = ',', action = ArgAction::Append, allow_hyphen_values = true)]
    pub vmodule: Vec<String>,

    /// text, as klog writes it, or json
    #[arg(long, help_heading = HEADING, value_name = "FORMAT", default_value = "text", allow_hyphen_values = true)]
    pub logging_format: String,

    /// Has no meaning here: every line is written at once
    #[arg(long, help_heading = HEADING, value_name = "DURATION", default_value = "5s", allow_hyphen_values = true)]
    pub log_flush_frequency: String,

    /// Write errors to standard error and the rest to standard output; text format
    #[arg(long, help_heading = HEADING, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub log_text_split_stream: String,

    /// Has no meaning here: every line is written at once
    #[arg(long, help_heading = HEADING, value_name = "SIZE", default_value = "0", allow_hyphen_values = true)]
    pub log_text_info_buffer_size: String,

    /// Write errors to standard error and the rest to standard output; JSON format
    #[arg(long, help_heading = HEADING, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub log_json_split_stream: String,

    /// Has no meaning here: every line is written at once
    #[arg(long, help_heading = HEADING, value_name = "SIZE", default_value = "0", allow_hyphen_values = true)]
    pub log_json_info_buffer_size: String,
}
