//! Options that commands share.

use super::{CommandOutput, USAGE_ERROR};
use crate::app::options::PROGRAM;
use crate::base::go_duration::parse_duration;
use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::ffi::OsString;
use std::time::Duration;

/// Default of `--timeout`.
const TIMEOUT: &str = "60s";

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputForm {
    /// Lines for a person.
    Text,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// The options that all commands have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonOptions {
    /// `--output`.
    pub form: OutputForm,
    /// `--timeout`: limit of the whole command.
    pub timeout: Duration,
    /// `--wait`: repeat until the exit code is 0.
    pub waits: bool,
    /// `--quiet`: print no report.
    pub is_quiet: bool,
    /// `--mask-users`: print no user names of credentials.
    pub masks_users: bool,
    /// `--pid`: id of the process to ask, if several run in this PID namespace.
    pub process: Option<i32>,
}

/// Returns a command with the options that all commands have. `examples` is the end of its help.
pub fn command(name: &'static str, about: &'static str, examples: &'static str) -> Command {
    Command::new(name)
        .bin_name(format!("{PROGRAM} {name}"))
        .about(about)
        .after_help(examples)
        .disable_version_flag(true)
        .args_override_self(true)
        .args([
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FORM")
                .value_parser(PossibleValuesParser::new(["text", "json", "yaml"]))
                .default_value("text")
                .help("Form of the report"),
            Arg::new("timeout")
                .long("timeout")
                .value_name("DURATION")
                .default_value(TIMEOUT)
                .help("Limit of the whole command, such as 90s or 5m"),
            Arg::new("wait")
                .long("wait")
                .action(ArgAction::SetTrue)
                .help("Repeat until everything is as it should be, at most for --timeout"),
            Arg::new("quiet")
                .short('q')
                .long("quiet")
                .action(ArgAction::SetTrue)
                .help("Print no report; the exit code is the answer"),
            Arg::new("mask-users")
                .long("mask-users")
                .action(ArgAction::SetTrue)
                .help("Replace the user names of credentials by ***"),
            Arg::new("pid")
                .long("pid")
                .value_name("ID")
                .value_parser(clap::value_parser!(i32).range(1..))
                .help("Ask the process with this id, if several run in this PID namespace"),
        ])
}

/// Parses the arguments after the name of the command.
///
/// # Errors
/// The output with the help text, or with the error and the exit code for wrong usage.
pub fn parse(command: Command, arguments: &[OsString]) -> Result<(CommonOptions, ArgMatches), CommandOutput> {
    let name = command.get_name().to_owned();
    let typed = std::iter::once(OsString::from(&name)).chain(arguments.iter().cloned());
    let matches = match command.try_get_matches_from(typed) {
        Ok(matches) => matches,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            return Err(CommandOutput::success(error.render().to_string()));
        }
        Err(error) => {
            let text = error.render().to_string();
            let text = text.trim_start_matches("error: ").trim_end();
            return Err(CommandOutput::failure(text, USAGE_ERROR));
        }
    };
    let form = match text(&matches, "output") {
        Some("json") => OutputForm::Json,
        Some("yaml") => OutputForm::Yaml,
        _ => OutputForm::Text,
    };
    let typed = text(&matches, "timeout").unwrap_or(TIMEOUT);
    let timeout = parse_duration(typed).ok().filter(|timeout| !timeout.is_zero()).ok_or_else(|| {
        let message = format!("--timeout={typed}: expected a duration above zero, such as 90s or 5m");
        CommandOutput::failure(&message, USAGE_ERROR)
    })?;
    let common = CommonOptions {
        form,
        timeout,
        waits: matches.get_flag("wait"),
        is_quiet: matches.get_flag("quiet"),
        masks_users: matches.get_flag("mask-users"),
        process: matches.get_one::<i32>("pid").copied(),
    };
    Ok((common, matches))
}

/// Returns the value of an option.
pub fn text<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a str> {
    matches.get_one::<String>(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<CommonOptions, CommandOutput> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        parse(command("probe", "About.", "Examples:\n  probe"), &arguments).map(|(common, _)| common)
    }

    #[test]
    fn the_options_have_defaults_and_short_forms() {
        let defaults = CommonOptions {
            form: OutputForm::Text,
            timeout: Duration::from_secs(60),
            waits: false,
            is_quiet: false,
            masks_users: false,
            process: None,
        };
        assert_eq!(parsed(&[]), Ok(defaults.clone()));
        assert_eq!(
            parsed(&["-o", "json", "-q", "--wait", "--mask-users", "--timeout=5m", "--pid=7"]),
            Ok(CommonOptions {
                form: OutputForm::Json,
                timeout: Duration::from_secs(300),
                waits: true,
                is_quiet: true,
                masks_users: true,
                process: Some(7),
            })
        );
        assert_eq!(parsed(&["-oyaml", "-otext"]), Ok(defaults));
    }

    #[test]
    fn wrong_usage_is_exit_code_2_and_help_is_0() {
        for arguments in
            [&["--timeout=0"][..], &["--timeout=soon"], &["-o", "xml"], &["extra"], &["--pid=0"], &["--kubeconfig=x"]]
        {
            let output = parsed(arguments).unwrap_err();
            assert_eq!((output.exit_code, output.output.as_str()), (2, ""), "{output:?}");
            assert!(output.messages.starts_with("error: "), "{output:?}");
        }
        let help = parsed(&["--help"]).unwrap_err();
        assert_eq!((help.exit_code, help.messages.as_str()), (0, ""));
        for text in ["About.", "Usage: vsphere-cloud-controller-manager probe", "--mask-users", "Examples:\n  probe"] {
            assert!(help.output.contains(text), "{text} in {}", help.output);
        }
    }
}
