//! Pure: the declaration of a flag, and the clap argument derived from it.

use clap::{Arg, ArgAction};
use std::marker::PhantomData;

/// A flag whose value has the type `T`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flag<T> {
    /// The name, without dashes.
    pub name: &'static str,
    value: PhantomData<T>,
}

impl<T> Flag<T> {
    pub(super) const fn new(definition: FlagDefinition) -> Self {
        Self { name: definition.name, value: PhantomData }
    }
}

/// The kind of value that a flag takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No value: the flag prints the help.
    Help,
    /// A boolean as Go spells it, given only after `=`. A flag without a value is `true`.
    Boolean,
    /// One text; the last use of the flag takes precedence.
    Text,
    /// A list; each use of the flag adds one item.
    Repeated,
    /// A list of items separated by commas.
    Items,
    /// A list of comma-separated values in each use, as in Go. Empty items are dropped: `--flag=` clears the default.
    Slice,
}

impl Kind {
    /// Returns true if repeated uses of the flag add items to its value.
    pub fn is_list(self) -> bool {
        matches!(self, Self::Repeated | Self::Items | Self::Slice)
    }
}

/// The properties of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlagDefinition {
    /// The name, without dashes.
    pub name: &'static str,
    /// The heading in the help.
    pub group: &'static str,
    /// The kind of the value.
    pub kind: Kind,
    /// Placeholder for the value in the help.
    pub value_name: &'static str,
    /// The default value; empty if there is none.
    pub default: &'static str,
    /// Help text: a sentence without a full stop.
    pub help: &'static str,
    /// The one-letter name, if there is one.
    pub short: Option<char>,
    /// The environment variable; `None` for flags of the Go program.
    pub variable: Option<&'static str>,
    /// The reason why the flag has no effect; `None` for a flag with an effect.
    pub without_effect: Option<&'static str>,
    /// The hint of the Go program for a deprecated flag. The help omits deprecated flags.
    pub deprecated: Option<&'static str>,
}

pub(super) const fn flag(
    name: &'static str,
    kind: Kind,
    value_name: &'static str,
    default: &'static str,
) -> FlagDefinition {
    let group = "";
    let help = "";
    let short = None;
    let variable = None;
    let without_effect = None;
    let deprecated = None;
    FlagDefinition { name, group, kind, value_name, default, help, short, variable, without_effect, deprecated }
}

pub(super) const fn boolean(name: &'static str, default: &'static str) -> FlagDefinition {
    flag(name, Kind::Boolean, "BOOL", default)
}

pub(super) const fn text(name: &'static str, value_name: &'static str, default: &'static str) -> FlagDefinition {
    flag(name, Kind::Text, value_name, default)
}

pub(super) const fn repeated(name: &'static str, value_name: &'static str, default: &'static str) -> FlagDefinition {
    flag(name, Kind::Repeated, value_name, default)
}

pub(super) const fn slice(name: &'static str, value_name: &'static str, default: &'static str) -> FlagDefinition {
    flag(name, Kind::Slice, value_name, default)
}

impl FlagDefinition {
    pub(super) const fn help(self, help: &'static str) -> Self {
        Self { help, ..self }
    }

    pub(super) const fn short(self, short: char) -> Self {
        Self { short: Some(short), ..self }
    }

    pub(super) const fn variable(self, variable: &'static str) -> Self {
        Self { variable: Some(variable), ..self }
    }

    pub(super) const fn without_effect(self, reason: &'static str) -> Self {
        Self { without_effect: Some(reason), ..self }
    }

    pub(super) const fn deprecated(self, hint: &'static str) -> Self {
        Self { deprecated: Some(hint), ..self }
    }

    pub(super) fn arg(self) -> Arg {
        let mut arg = Arg::new(self.name).long(self.name).help(self.help).help_heading(self.group);
        arg = arg.hide(self.deprecated.is_some()).hide_env_values(true).action(match self.kind {
            Kind::Help => ArgAction::Help,
            kind if kind.is_list() => ArgAction::Append,
            _ => ArgAction::Set,
        });
        arg = match self.kind {
            Kind::Help => arg,
            Kind::Boolean => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
            _ => arg.allow_hyphen_values(true),
        };
        if self.kind == Kind::Items {
            arg = arg.value_delimiter(',');
        }
        if self.kind != Kind::Help {
            arg = arg.value_name(self.value_name);
        }
        if !self.default.is_empty() {
            arg = arg.default_value(self.default);
        }
        if let Some(short) = self.short {
            arg = arg.short(short);
        }
        if let Some(variable) = self.variable {
            arg = arg.env(variable);
        }
        arg
    }
}
