//! Flags exactly as typed. Needs no file, no network and no other flag: `settings` interprets them together.

pub mod flag;
mod table;
pub mod values;
mod variables;

use crate::base::go_flags::parse_bool;
use clap::Command;
use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::{OsStr, OsString};

pub use flag::{Flag, Kind};
pub use values::{Origin, Value};

/// The name of the program, as `--version` prints it.
pub const PROGRAM: &str = "vsphere-cloud-controller-manager";

const ABOUT: &str =
    "Connects a Kubernetes cluster to vSphere: initialises nodes from vCenter and keeps them up to date.";
const USAGE: &str = "vsphere-cloud-controller-manager [flags]";

const OURS: &str = "Flags the Go program does not have (each also an environment variable, which it ignores)";

/// The flags with their values, by name. Values are not validated here, so that all errors can be reported together.
#[derive(Debug, Clone)]
pub struct Options {
    /// Every flag of the program, with its value.
    pub values: Vec<Value>,
    /// A warning for each environment variable that looks like one of ours but is unknown.
    pub unknown_variables: Vec<String>,
}

/// The action that the command line requests.
#[derive(Debug)]
pub enum Invocation {
    /// The daemon with these flags.
    Run(Box<Options>),
    /// A text on standard output, then success.
    Print(String),
}

/// Error of the command line; its message ends with how to get help.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}\nfor all flags: {PROGRAM} --help")]
pub struct UsageError(String);

/// All flags, by name.
pub fn flags() -> Vec<Flag> {
    let mut flags: Vec<_> = table::flags().collect();
    flags.sort_by_key(|flag| flag.name);
    flags
}

/// The command line with its flags: groups in the order of the Go program, flags of a group by name.
pub fn command() -> Command {
    let by_name = flags();
    let place = |flag: &Flag| by_name.iter().position(|other| other.name == flag.name).unwrap_or_default();
    Command::new(PROGRAM)
        .about(ABOUT)
        .override_usage(USAGE)
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args_override_self(true)
        .next_line_help(true)
        .args(table::flags().map(|flag| flag.arg().display_order(place(&flag))))
}

/// Parses a command line, the program's name first, and the environment variables of our own flags; an empty variable
/// counts as unset. [`Options::deprecations`] returns the warnings about deprecated flags.
///
/// # Errors
/// An unknown flag or argument. Values are validated later.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, UsageError> {
    let arguments = as_dashes(arguments);
    if let Some((place, argument)) = arguments.iter().enumerate().find(|(_, argument)| argument.to_str().is_none()) {
        return Err(UsageError(format!("argument {place} is not text in UTF-8: {:?}", argument.to_string_lossy())));
    }
    match without_empty_variables(command())?.try_get_matches_from(arguments) {
        Ok(matches) => {
            let values = flags().into_iter().filter(|flag| flag.kind != Kind::Help);
            let options = Options {
                values: values.map(|flag| Value::new(flag, &matches)).collect(),
                unknown_variables: unknown_variables(),
            };
            Ok(match printed_version(options.text("version"))? {
                None => Invocation::Run(Box::new(options)),
                Some(version) => Invocation::Print(format!("{PROGRAM} {version}\n")),
            })
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            Ok(Invocation::Print(self::command().render_help().to_string()))
        }
        Err(error) => Err(misspelled(&error)),
    }
}

/// A warning for each environment variable of this process that looks like one of ours but is unknown.
pub fn unknown_variables() -> Vec<String> {
    variables::warnings(std::env::vars_os().map(|(name, _)| name))
}

/// Treats empty variables as unset: a manifest may name every variable and leave some empty.
fn without_empty_variables(command: Command) -> Result<Command, UsageError> {
    let mut wrong = None;
    let command = command.mut_args(|flag| {
        let variable = flag.get_env().map(OsStr::to_owned);
        match variable.as_ref().and_then(std::env::var_os) {
            Some(value) if value.is_empty() => flag.env(Resettable::Reset),
            Some(value) if value.to_str().is_none() => {
                wrong = variable;
                flag
            }
            _ => flag,
        }
    });
    match wrong {
        Some(variable) => {
            let name = variable.to_string_lossy();
            Err(UsageError(format!("the environment variable {name} is not text in UTF-8")))
        }
        None => Ok(command),
    }
}

/// The output of `--version`, if requested: this program's version, or the one that the flag says to report.
fn printed_version(asked: &str) -> Result<Option<&str>, UsageError> {
    match (parse_bool(asked), asked) {
        (Some(false), _) => Ok(None),
        (Some(true), _) | (None, "raw") => Ok(Some(env!("CARGO_PKG_VERSION"))),
        _ if asked.strip_prefix('v').is_some_and(|rest| rest.starts_with(|char: char| char.is_ascii_digit())) => {
            Ok(Some(asked))
        }
        _ => Err(UsageError(format!("--version={asked}: expected true, false, raw or a version such as v1.2.3"))),
    }
}

impl Options {
    /// The value of the flag of this name. A name without a row in `table` is a programming error, which panics in tests.
    pub fn value(&self, name: &str) -> Option<&Value> {
        let value = self.values.iter().find(|value| value.flag.name == name);
        debug_assert!(value.is_some(), "{name} is no flag");
        value
    }

    /// The value of a flag, the last one if there are several; empty if there is none.
    pub fn text(&self, name: &str) -> &str {
        self.value(name).and_then(|value| value.items.last()).map_or("", String::as_str)
    }

    /// The items of a flag that takes a list; empty if there is none.
    pub fn list(&self, name: &str) -> &[String] {
        self.value(name).map_or(&[], |value| &value.items)
    }

    /// Warnings about deprecated flags for standard error, worded as by Go's flag package.
    pub fn deprecations(&self) -> Vec<String> {
        let given = self.values.iter().filter(|value| value.origin == Origin::CommandLine);
        let reported = given.filter_map(|Value { flag, .. }| {
            Some(format!("Flag --{} has been deprecated, {}", flag.name, flag.deprecated?))
        });
        reported.collect()
    }

    /// The flags without effect that were set to something else than their default, each with the reason.
    pub fn without_effect(&self) -> Vec<(String, &'static str)> {
        let changed = self.values.iter().filter(|value| value.is_changed());
        changed.filter_map(|value| Some((value.spelled(), value.flag.without_effect?))).collect()
    }
}

fn misspelled(error: &clap::Error) -> UsageError {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else {
        return UsageError(first_line(error));
    };
    let what = match error.kind() {
        ErrorKind::UnknownArgument if typed.starts_with('-') => {
            let names = flags().into_iter().map(|flag| flag.name);
            let hint = nearest(typed, names).map(|name| format!("; did you mean --{name}?"));
            format!("unknown flag: {typed}{}", hint.unwrap_or_default())
        }
        ErrorKind::UnknownArgument => format!("{PROGRAM:?} does not take any arguments, got {typed:?}"),
        ErrorKind::InvalidValue | ErrorKind::NoEquals => {
            format!("flag needs a value: {}", typed.split([' ', '=']).next().unwrap_or_default())
        }
        _ => first_line(error),
    };
    UsageError(what)
}

fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Accepts `_` as separator in a flag's name: `--cloud_config=a_b` is `--cloud-config=a_b`.
fn as_dashes(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let dashed = |argument: OsString| match argument.to_str() {
        Some(text) if text.starts_with("--") => {
            let (name, value) = text.split_at(text.find('=').unwrap_or(text.len()));
            OsString::from(name.replace('_', "-") + value)
        }
        _ => argument,
    };
    arguments.into_iter().map(dashed).collect()
}

/// The name with the smallest edit distance from the typed one, unless the two are too different.
fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.trim_start_matches('-').split('=').next().unwrap_or_default().to_lowercase();
    let (edits, name) = names.map(|name| (strsim::levenshtein(&typed, name), name)).min()?;
    let is_near = edits * 3 <= typed.len().max(name.len()) || (typed.len() > 3 && name.contains(typed.as_str()));
    is_near.then_some(name)
}

#[cfg(test)]
mod tests;
