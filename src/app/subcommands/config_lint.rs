//! `config-lint FILE`: checks a `vsphere.conf` and the files that it names as the daemon does, with the environment
//! variables of this process. Does not check Secrets, since no requests go to the API server.

use super::{CommandOutput, is_help};
use crate::app::files::SystemFiles;
use crate::app::options::unknown_variables;
use crate::app::settings::SettingErrors;
use crate::app::settings::vsphere::CloudConfigFile;
use crate::base::limited_read::{MAX_FILE, read_limited};
use crate::providers::vsphere::config::Environment;
use clap::{Arg, ArgAction, Command};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// Exit code if the file has errors, or if it has warnings and `--strict` is given.
const ERRORS: u8 = 1;

/// Exit code for wrong usage, or for a file that cannot be read.
const NOT_CHECKED: u8 = 2;

/// The file name that stands for standard input.
const DASH: &str = "-";

const STRICT: &str = "--strict";

const HELP: &str = "Checks a vsphere.conf and the files that it names, as the daemon does, with the environment \
                    variables\nof this process.\n\n\
                    Usage: vsphere-cloud-controller-manager config-lint [--strict] FILE\n\n\
                    Arguments:\n  FILE      Path of the vsphere.conf, or - for standard input\n\n\
                    Options:\n  --strict  Warnings are errors, too\n  -h, --help\n\n\
                    Exit codes: 0 no errors, 1 errors, or warnings with --strict, 2 not checked.\n\n\
                    Examples:\n  vsphere-cloud-controller-manager config-lint /etc/cloud/vsphere.conf\n  \
                    helm template . | yq '.data.\"vsphere.conf\"' | vsphere-cloud-controller-manager config-lint --strict -\n";

/// The arguments of the command.
#[derive(Debug, PartialEq)]
struct LintArguments {
    path: OsString,
    is_strict: bool,
}

impl LintArguments {
    /// Returns `None` for wrong usage.
    fn parse(arguments: &[OsString]) -> Option<Self> {
        let (options, paths): (Vec<&OsString>, Vec<&OsString>) =
            arguments.iter().partition(|argument| *argument != DASH && argument.to_string_lossy().starts_with('-'));
        let [path] = paths.as_slice() else { return None };
        let is_known = options.iter().all(|option| *option == STRICT);
        is_known.then(|| Self { path: path.into(), is_strict: !options.is_empty() })
    }
}

/// Returns the command, for completion.
pub(super) fn command() -> Command {
    let strict = Arg::new("strict").long("strict").action(ArgAction::SetTrue).help("Warnings are errors, too");
    Command::new("config-lint").args([strict, Arg::new("file").value_name("FILE")])
}

pub(super) fn run(arguments: &[OsString]) -> CommandOutput {
    if is_help(arguments) {
        return CommandOutput::success(HELP.to_owned());
    }
    let Some(LintArguments { path, is_strict }) = LintArguments::parse(arguments) else {
        return CommandOutput::failure("expected config-lint [--strict] FILE", NOT_CHECKED);
    };
    let is_stdin = path == DASH;
    let path = if is_stdin { PathBuf::from("standard input") } else { path.into() };
    let (environment, ipv6_pools) = (Environment::new(std::env::vars_os()), BTreeMap::new());
    let file = CloudConfigFile { path, environment, ipv6_pools };
    let shown = file.path.display();
    let content =
        if is_stdin { read_limited(std::io::stdin().lock(), 0, MAX_FILE) } else { file.content(&SystemFiles) };
    let content = match content {
        Ok(content) => content,
        Err(error) => return CommandOutput::failure(&format!("{shown}: cannot be read: {error}"), NOT_CHECKED),
    };
    let unknown = unknown_variables();
    match file.check(&content, &SystemFiles).and_then(|cloud_config| cloud_config.without_refused_parts(None)) {
        Ok(cloud_config) => {
            let notices = cloud_config.notices.iter().map(ToString::to_string);
            let warnings: Vec<String> = unknown.into_iter().chain(notices).chain(cloud_config.unverified()).collect();
            passed(&shown.to_string(), &warnings, is_strict)
        }
        Err(SettingErrors { errors: found, warnings }) => {
            let mistakes = SettingErrors { errors: found, warnings: [unknown, warnings].concat() };
            CommandOutput::failure(&mistakes.to_string(), ERRORS)
        }
    }
}

/// Returns the output about a file without errors.
fn passed(shown: &str, warnings: &[String], is_strict: bool) -> CommandOutput {
    let messages: String = warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
    if is_strict && !warnings.is_empty() {
        let fault = CommandOutput::failure(&format!("{shown}: {STRICT} does not accept the warnings"), ERRORS);
        return CommandOutput { messages: messages + &fault.messages, ..fault };
    }
    CommandOutput { messages, ..CommandOutput::success(format!("{shown}: no errors\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_one_file_and_known_options() {
        let parsed = |words: &[&str]| LintArguments::parse(&words.iter().map(OsString::from).collect::<Vec<_>>());
        let expected = |path: &str, is_strict| Some(LintArguments { path: path.into(), is_strict });
        assert_eq!(parsed(&["f"]), expected("f", false));
        assert_eq!(parsed(&["-"]), expected("-", false));
        assert_eq!(parsed(&["--strict", "-"]), expected("-", true));
        assert_eq!(parsed(&["f", "--strict"]), expected("f", true));
        for wrong in [&[][..], &["--strict"], &["f", "g"], &["f", "--version"], &["-f"], &["f", "-"]] {
            assert_eq!(parsed(wrong), None, "{wrong:?}");
        }
    }
}
