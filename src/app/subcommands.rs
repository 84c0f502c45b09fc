//! Subcommands, selected by the first argument. A subcommand starts no watches, elections or background tasks, except a
//! detached command, for which `app::observer` reads.

mod arguments;
mod bundle;
mod check;
mod completion;
mod config_lint;
mod deletions;
mod explain;
mod output;
mod plan;
mod process_client;
mod status;

use super::reports::text::clean;
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

/// All subcommands.
const SUBCOMMANDS: &[(&str, Subcommand)] = &[
    ("bundle", bundle::run),
    ("check", check::run),
    ("completion", completion::run),
    ("config-lint", config_lint::run),
    ("deletions", deletions::run),
    ("explain", explain::run),
    ("plan", plan::run),
    ("status", status::run),
];

/// Exit code for wrong usage, and if there is no process to ask.
const USAGE_ERROR: u8 = 2;

/// Runs the subcommand in the arguments, program name first. Returns `None` if the first argument is no subcommand.
pub fn run(arguments: &[OsString]) -> Option<CommandOutput> {
    let (name, rest) = arguments.get(1..)?.split_first()?;
    let (_, subcommand) = SUBCOMMANDS.iter().find(|(word, _)| name == word)?;
    Some(subcommand(rest))
}

/// Whether the arguments ask for the help of a command.
fn is_help(arguments: &[OsString]) -> bool {
    arguments.iter().any(|argument| argument == "--help" || argument == "-h")
}

impl CommandOutput {
    fn success(output: String) -> Self {
        Self { output, ..Self::default() }
    }

    /// Returns the output of a command that failed. Each line of the message is without control characters, because
    /// messages repeat names and texts of other programs.
    fn failure(message: &str, exit_code: u8) -> Self {
        let lines: Vec<String> = message.split('\n').map(clean).collect();
        Self { messages: format!("error: {}\n", lines.join("\n")), exit_code, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::{CommandOutput, OsString, SUBCOMMANDS, run};
    use crate::app::options::commands::COMMANDS;
    use std::collections::BTreeSet;

    #[test]
    fn each_subcommand_has_help_with_its_usage_and_an_example() {
        for (name, _) in COMMANDS {
            let arguments = ["program", name, "--help"].map(OsString::from);
            let CommandOutput { output, messages, exit_code } = run(&arguments).unwrap();
            assert_eq!((messages.as_str(), exit_code), ("", 0), "{name}");
            let usage = format!("Usage: vsphere-cloud-controller-manager {name} ");
            assert!(output.contains(&usage) && output.contains("Examples:\n"), "{name}: {output}");
        }
    }

    #[test]
    fn no_message_about_a_failure_controls_the_terminal() {
        let failed = CommandOutput::failure("no answer of \u{9b}31m\u{202e}vc\ntry again", 3);
        assert_eq!(failed.messages, "error: no answer of  31m vc\ntry again\n");
    }

    #[test]
    fn the_help_text_has_each_subcommand_once() {
        let run: BTreeSet<&str> = SUBCOMMANDS.iter().map(|(name, _)| *name).collect();
        let listed: Vec<&str> = COMMANDS.iter().map(|(name, _)| *name).collect();
        assert_eq!((listed.len(), BTreeSet::from_iter(listed)), (run.len(), run));
    }
}
