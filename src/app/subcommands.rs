//! Subcommands, which run if the first argument is a word and not a flag. They use the same parts as the daemon and
//! start none of its watches, elections or background work.

mod completion;
mod config_lint;

use std::ffi::OsString;

/// The output and exit code of a subcommand.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CommandOutput {
    /// For standard output.
    pub output: String,
    /// For standard error.
    pub messages: String,
    /// The exit code.
    pub exit_code: u8,
}

/// A subcommand, called with the arguments after its name.
type Subcommand = fn(&[OsString]) -> CommandOutput;

/// All subcommands. `config-lint` is in no help text yet.
const SUBCOMMANDS: &[(&str, Subcommand)] = &[("completion", completion::run), ("config-lint", config_lint::run)];

/// Runs the subcommand that a command line names, the program's name first; `None` if it names none.
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
