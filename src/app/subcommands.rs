//! Subcommands, selected by the first argument. Subcommands start no watches, elections or background tasks.

mod completion;
mod config_lint;

use std::ffi::OsString;

/// The output and exit code of a subcommand.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// Text for standard output.
    pub output: String,
    /// Text for standard error.
    pub messages: String,
    /// The exit code.
    pub exit_code: u8,
}

/// A subcommand, called with the arguments after its name.
type Subcommand = fn(&[OsString]) -> CommandOutput;

/// All subcommands. No help text lists `config-lint` yet.
const SUBCOMMANDS: &[(&str, Subcommand)] = &[("completion", completion::run), ("config-lint", config_lint::run)];

/// Runs the subcommand in the arguments, program name first. Returns `None` if the first argument is no subcommand.
pub fn run(arguments: &[OsString]) -> Option<CommandOutput> {
    let (name, rest) = arguments.get(1..)?.split_first()?;
    let (_, subcommand) = SUBCOMMANDS.iter().find(|(word, _)| name == word)?;
    Some(subcommand(rest))
}

impl CommandOutput {
    fn success(output: String) -> Self {
        Self { output, ..Self::default() }
    }

    fn failure(message: &str, exit_code: u8) -> Self {
        Self { messages: format!("error: {message}\n"), exit_code, ..Self::default() }
    }
}
