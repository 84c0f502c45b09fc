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

use super::options::commands::COMMANDS;
use super::reports::text::clean;
use crate::base::quoting::quoted;
use std::ffi::{OsStr, OsString};

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

/// Runs the subcommand in the arguments, program name first. Returns `None` if there are no arguments, or if the first
/// one is a flag of the daemon.
pub fn run(arguments: &[OsString]) -> Option<CommandOutput> {
    let (name, rest) = arguments.get(1..)?.split_first()?;
    match SUBCOMMANDS.iter().find(|(word, _)| name == word) {
        Some((_, subcommand)) => Some(subcommand(rest)),
        None if name.to_string_lossy().starts_with('-') => None,
        None => Some(unknown_command(name)),
    }
}

fn unknown_command(name: &OsStr) -> CommandOutput {
    let commands = COMMANDS.map(|(name, _)| name).join(", ");
    let name = quoted(&name.to_string_lossy());
    CommandOutput::failure(&format!("unknown command {name}; commands: {commands}"), USAGE_ERROR)
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
    use super::{COMMANDS, CommandOutput, OsString, SUBCOMMANDS, run};
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
    fn a_first_word_that_is_no_command_is_refused_with_the_commands() {
        let commands = "status, explain, plan, check, deletions, bundle, config-lint, completion";
        for (word, shown) in [("serve", "serve"), ("stat\u{1b}us", "stat\u{fffd}us"), ("", "")] {
            let CommandOutput { output, messages, exit_code } = run(&["program", word].map(OsString::from)).unwrap();
            let expected = format!("error: unknown command \"{shown}\"; commands: {commands}\n");
            assert_eq!((output.as_str(), messages, exit_code), ("", expected, 2));
        }
        assert_eq!(run(&["program", "--v=2"].map(OsString::from)), None);
        assert_eq!(run(&[OsString::from("program")]), None);
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
