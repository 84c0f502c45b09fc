//! Flags about looking into the process.

use clap::Args;

const HEADING: &str = "Debugging flags";

/// As typed; nothing is checked here.
#[derive(Debug, Clone, Args)]
pub struct Debugging {
    /// Serve /debug/flags/v beside the probes; there are no pprof pages
    #[arg(long, help_heading = HEADING, value_name = "BOOL", default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub profiling: String,

    /// Has no meaning here
    #[arg(long, help_heading = HEADING, value_name = "BOOL", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub contention_profiling: String,
}
