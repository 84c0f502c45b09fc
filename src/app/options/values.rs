//! Flags with their values and the origins of the values, for the settings, the log, `/flagz` and error messages.

use super::flag::{FlagDefinition, Kind};
use crate::base::go_flags;
use clap::ArgMatches;
use clap::parser::ValueSource;

/// Origin of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The default; no value was given.
    Default,
    /// The environment variable of the flag.
    Environment,
    /// The command line, which takes precedence over the environment variable.
    CommandLine,
}

/// A flag with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The flag.
    pub flag: FlagDefinition,
    /// The value as typed, without credentials. Several values of a list are joined by commas.
    pub value: String,
    /// The items of a list; for other flags, the single value.
    pub items: Vec<String>,
    /// Origin of the value.
    pub origin: Origin,
}

impl Value {
    pub(super) fn new(flag: FlagDefinition, matches: &ArgMatches) -> Self {
        let typed = matches.get_raw(flag.name).into_iter().flatten();
        let typed: Vec<_> = typed.map(|value| value.to_string_lossy().into_owned()).collect();
        let origin = match matches.value_source(flag.name) {
            Some(ValueSource::CommandLine) => Origin::CommandLine,
            Some(ValueSource::EnvVariable) => Origin::Environment,
            _ => Origin::Default,
        };
        let value = without_credentials(&typed.join(","));
        let items = match flag.kind {
            Kind::Slice => {
                typed.iter().flat_map(|line| go_flags::fields(line)).filter(|item| !item.is_empty()).collect()
            }
            _ => typed,
        };
        Self { flag, value, items, origin }
    }

    /// Whether a value was given that differs from the default.
    pub fn is_changed(&self) -> bool {
        self.origin != Origin::Default && self.value != self.flag.default
    }

    /// Returns the flag as typed: `--name`, or `-v` for the verbosity.
    pub fn spelled(&self) -> String {
        if self.flag.name == "v" { "-v".to_owned() } else { format!("--{}", self.flag.name) }
    }

    /// Returns the value as Go's flag package prints it: a list is in brackets.
    pub fn printed(&self) -> String {
        if self.flag.kind.is_list() { format!("[{}]", self.value) } else { self.value.clone() }
    }
}

/// Replaces user and password in a URL by `[redacted]`.
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
