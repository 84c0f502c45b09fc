//! Every flag with its value and where that is from: for the log, for `/flagz`, and for what is told about flags that were
//! given.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

/// Where a value is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Nobody gave one.
    Default,
    /// The environment variable of the flag.
    Environment,
    /// The command line, which goes before the variable.
    CommandLine,
}

/// A flag with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The flag's name, without dashes.
    pub name: String,
    /// Its environment variable, if it is one of ours.
    pub variable: Option<String>,
    /// As typed, without credentials; several values of a list are joined by commas.
    pub value: String,
    /// What it is when nobody gives one.
    pub default: String,
    /// Where it is from.
    pub origin: Origin,
    /// Whether it is a list.
    pub is_list: bool,
}

impl Value {
    /// Whether somebody gave it and it is not the default.
    pub fn is_changed(&self) -> bool {
        self.origin != Origin::Default && self.value != self.default
    }

    /// `--name`, and `-v` for the short one.
    pub fn flag(&self) -> String {
        if self.name == "v" { "-v".to_owned() } else { format!("--{}", self.name) }
    }

    /// As Go's flag package prints a value: a list stands in brackets.
    pub fn printed(&self) -> String {
        if self.is_list { format!("[{}]", self.value) } else { self.value.clone() }
    }
}

/// The values of all flags, by name.
pub fn of(command: &Command, matches: &ArgMatches) -> Vec<Value> {
    let mut values: Vec<_> = command.get_arguments().filter_map(|flag| value(flag, matches)).collect();
    values.sort_by(|one, other| one.name.cmp(&other.name));
    values
}

fn value(flag: &Arg, matches: &ArgMatches) -> Option<Value> {
    // It prints a text and is no setting.
    let name = flag.get_long().filter(|name| *name != "help")?;
    let id = flag.get_id().as_str();
    let typed = matches.get_raw(id).into_iter().flatten().map(|value| value.to_string_lossy());
    let defaults = flag.get_default_values().iter().map(|value| value.to_string_lossy());
    Some(Value {
        name: name.to_owned(),
        variable: flag.get_env().map(|variable| variable.to_string_lossy().into_owned()),
        value: without_credentials(&typed.collect::<Vec<_>>().join(",")),
        default: defaults.collect::<Vec<_>>().join(","),
        origin: match matches.value_source(id) {
            Some(ValueSource::CommandLine) => Origin::CommandLine,
            Some(ValueSource::EnvVariable) => Origin::Environment,
            _ => Origin::Default,
        },
        is_list: matches!(flag.get_action(), ArgAction::Append),
    })
}

/// A URL may name a user with a password, which nobody else is to read.
pub fn without_credentials(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://[redacted]@{host}{path}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_a_url_are_not_shown() {
        for (typed, shown) in [
            ("https://user:hunter2@10.0.0.1:6443/x?a@b", "https://[redacted]@10.0.0.1:6443/x?a@b"),
            ("https://a@b@10.0.0.1", "https://[redacted]@10.0.0.1"),
            ("https://10.0.0.1:6443/a@b", "https://10.0.0.1:6443/a@b"),
            ("someone@example", "someone@example"),
        ] {
            assert_eq!(without_credentials(typed), shown);
        }
    }
}
