//! The commands, for the help text and for completion. `app::subcommands` runs them.

use std::fmt::Write as _;

/// Name and summary of each command, in the order of the help text.
pub const COMMANDS: [(&str, &str); 8] = [
    ("status", "Print one screen about the running process"),
    ("explain", "Print what the running process knows of one subject, and why"),
    ("plan", "Print what the controllers would write, delete, adopt or hold now"),
    ("check", "Check what the program needs, with remedies, also before an installation"),
    ("deletions", "List, pause, resume or allow the deletion of Nodes"),
    ("bundle", "Write an archive for a bug report"),
    ("config-lint", "Check a vsphere.conf"),
    ("completion", "Print a script with which a shell completes flags"),
];

/// Returns the help text of the commands.
pub(super) fn help() -> String {
    let mut text = "Commands (each has --help):\n".to_owned();
    for (name, summary) in COMMANDS {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name:<13}{summary}");
    }
    text
}
