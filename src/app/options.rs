//! Parses the command line and environment variables. The values stay texts, which `settings` validates.

pub mod commands;
pub mod flag;
pub(super) mod flags;
pub mod values;
mod variables;

use crate::base::go_flags::parse_bool;
use clap::Command;
use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::{OsStr, OsString};

pub use flag::{Flag, FlagDefinition, Kind};
pub use values::{Origin, Value};

/// The name of the program, as `--version` prints it.
pub const PROGRAM: &str = "vsphere-cloud-controller-manager";

const ABOUT: &str =
    "Connects a Kubernetes cluster to vSphere: initializes nodes from vCenter and keeps them up to date.";
const USAGE: &str = "vsphere-cloud-controller-manager [flags]
       vsphere-cloud-controller-manager COMMAND [options]";

/// Heading of the flags that have no effect. They come last.
const WITHOUT_EFFECT: &str = "Flags without effect (accepted, so that the flags of the Go program can stay)";

const OURS: &str = "Flags the Go program does not have (each also an environment variable, which it ignores)";

/// The flags with their values, sorted by name. The values are validated later, so that all errors are reported
/// together.
#[derive(Debug, Clone)]
pub struct Options {
    /// Every flag of the program except `--help`, with its value.
    pub values: Vec<Value>,
    /// A warning for each unknown environment variable whose name begins with `CCM_`.
    pub unknown_variables: Vec<String>,
}

/// The action that the command line requests.
#[derive(Debug)]
pub enum Invocation {
    /// Run the daemon with these flags.
    Run(Box<Options>),
    /// Print the text to standard output and exit with success.
    Print(String),
}

/// Error of the command line. The message ends with a hint to `--help`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}\nfor all flags: {PROGRAM} --help")]
pub struct UsageError(String);

impl UsageError {
    /// Creates an error with this message.
    pub(super) fn new(message: &str) -> Self {
        Self(message.to_owned())
    }
}

/// Returns all flags, sorted by name.
pub fn definitions() -> Vec<FlagDefinition> {
    let mut flags: Vec<_> = flags::all().collect();
    flags.sort_by_key(|flag| flag.name);
    flags
}

/// Returns all flags, in the order of the groups of the Go program.
pub fn definitions_by_group() -> Vec<FlagDefinition> {
    flags::all().collect()
}

/// Returns the clap command. Groups have the order of the Go program, and flags without effect come last; flags of a
/// group are sorted by name.
pub fn command() -> Command {
    let by_name = definitions();
    let (without_effect, with_effect): (Vec<_>, Vec<_>) = flags::all().partition(|flag| flag.without_effect.is_some());
    let without_effect = without_effect.into_iter().map(|flag| FlagDefinition { group: WITHOUT_EFFECT, ..flag });
    let place = |flag: &FlagDefinition| by_name.iter().position(|other| other.name == flag.name).unwrap_or_default();
    Command::new(PROGRAM)
        .about(ABOUT)
        .override_usage(USAGE)
        .help_template(format!("{{about}}\n\n{{usage-heading}} {{usage}}\n\n{}\n{{all-args}}", commands::help()))
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args_override_self(true)
        .next_line_help(true)
        .args(with_effect.into_iter().chain(without_effect).map(|flag| flag.arg().display_order(place(&flag))))
}

/// Parses the arguments, program name first, and the environment variables. An empty variable counts as unset.
///
/// # Errors
/// An unknown flag or argument, a flag without its value, text that is not UTF-8, or an invalid `--version`.
/// Other values are validated later.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Invocation, UsageError> {
    let arguments = as_dashes(arguments);
    if let Some((place, argument)) = arguments.iter().enumerate().find(|(_, argument)| argument.to_str().is_none()) {
        return Err(UsageError(format!("argument {place} is not text in UTF-8: {:?}", argument.to_string_lossy())));
    }
    match without_empty_variables(command())?.try_get_matches_from(arguments) {
        Ok(matches) => {
            let values = definitions().into_iter().filter(|flag| flag.kind != Kind::Help);
            let options = Options {
                values: values.map(|flag| Value::new(flag, &matches)).collect(),
                unknown_variables: unknown_variables(),
            };
            Ok(match printed_version(options.text(flags::VERSION))? {
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

/// Returns a warning for each unknown environment variable of this process whose name begins with `CCM_`.
pub fn unknown_variables() -> Vec<String> {
    variables::warnings(std::env::vars_os().map(|(name, _)| name))
}

/// Treats empty variables as unset: a manifest can list every variable and leave some empty. Fails if a variable is not
/// text in UTF-8.
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

/// Returns the version of this program, or a given version such as `v1.2.3`; `None` if `--version` is false.
fn printed_version(value: &str) -> Result<Option<&str>, UsageError> {
    match (parse_bool(value), value) {
        (Some(false), _) => Ok(None),
        (Some(true), _) | (None, "raw") => Ok(Some(env!("CARGO_PKG_VERSION"))),
        _ if value.strip_prefix('v').is_some_and(|rest| rest.starts_with(|char: char| char.is_ascii_digit())) => {
            Ok(Some(value))
        }
        _ => Err(UsageError(format!("--version={value}: expected true, false, raw or a version such as v1.2.3"))),
    }
}

impl Options {
    /// Returns the flag with its value.
    pub fn value<T>(&self, flag: Flag<T>) -> &Value {
        let value = self.values.iter().find(|value| value.flag.name == flag.name);
        value.expect("every flag that has a constant has a value")
    }

    /// Returns the value of a boolean; `None` if it is invalid.
    pub fn boolean(&self, flag: Flag<bool>) -> Option<bool> {
        parse_bool(self.text(flag))
    }

    /// Returns the last value of a flag, as typed; empty if there is none.
    pub fn text<T>(&self, flag: Flag<T>) -> &str {
        self.value(flag).items.last().map_or("", String::as_str)
    }

    /// Returns the items of a list; empty if there are none.
    pub fn list(&self, flag: Flag<&[String]>) -> &[String] {
        &self.value(flag).items
    }

    /// Returns a warning for each deprecated flag on the command line, in the words of Go's flag package.
    pub fn deprecations(&self) -> Vec<String> {
        let given = self.values.iter().filter(|value| value.origin == Origin::CommandLine);
        let reported = given.filter_map(|Value { flag, .. }| {
            Some(format!("Flag --{} has been deprecated, {}", flag.name, flag.deprecated?))
        });
        reported.collect()
    }

    /// Returns the flags without effect whose values differ from the defaults, each with the reason.
    pub fn without_effect(&self) -> Vec<(String, &'static str)> {
        let changed = self.values.iter().filter(|value| value.is_changed());
        changed.filter_map(|value| Some((value.spelled(), value.flag.without_effect?))).collect()
    }
}

fn misspelled(error: &clap::Error) -> UsageError {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else {
        return UsageError(first_line(error));
    };
    let fault = match error.kind() {
        ErrorKind::UnknownArgument if typed.starts_with('-') => {
            let names = definitions().into_iter().map(|flag| flag.name);
            let hint = nearest(typed, names).map(|name| format!("; did you mean --{name}?"));
            format!("unknown flag: {typed}{}", hint.unwrap_or_default())
        }
        ErrorKind::UnknownArgument => {
            format!("{PROGRAM:?} takes no arguments other than flags, got {typed:?}; a command is the first argument")
        }
        ErrorKind::InvalidValue | ErrorKind::NoEquals => {
            format!("flag needs a value: {}", typed.split([' ', '=']).next().unwrap_or_default())
        }
        _ => first_line(error),
    };
    UsageError(fault)
}

fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// Replaces `_` by `-` in names of flags: `--cloud_config=a_b` becomes `--cloud-config=a_b`.
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

/// Returns the name with the smallest edit distance to `typed`; `None` if all names are too different.
fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.trim_start_matches('-').split('=').next().unwrap_or_default().to_lowercase();
    let (edits, name) = names.map(|name| (strsim::levenshtein(&typed, name), name)).min()?;
    let is_near = edits * 3 <= typed.len().max(name.len()) || (typed.len() > 3 && name.contains(typed.as_str()));
    is_near.then_some(name)
}

#[cfg(test)]
mod tests;
