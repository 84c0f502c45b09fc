//! Pure: refers to the configuration entry of a vCenter in messages, in the syntax of the configuration.

use std::fmt;

/// Syntax of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::providers::vsphere) enum Dialect {
    /// `[Section]` and `kebab-case = value`.
    Ini,
    /// `section:` and `camelCase: value`.
    Yaml,
    /// Environment variables, without a file.
    Environment,
}

/// The syntax of a vCenter entry, and the names in it. Not a part of the settings, because files with equal settings
/// may differ in their syntax.
#[derive(Clone, PartialEq, Eq)]
pub struct Spelling {
    pub(in crate::providers::vsphere) dialect: Dialect,
    /// The section of the entry, or the variable that defines the entry.
    pub(in crate::providers::vsphere) section: String,
    /// The key or variable for thumbprints.
    pub(in crate::providers::vsphere) thumbprint: String,
}

impl Spelling {
    /// Returns the location of the entry's settings, for example `vcenter.east of the cloud config`.
    pub fn place(&self) -> String {
        match self.dialect {
            Dialect::Ini | Dialect::Yaml => format!("{} of the cloud config", self.section),
            Dialect::Environment => format!("the variable {} and the variables of the same vCenter", self.section),
        }
    }

    /// Returns the location of the entry's user and password, which may be the global section.
    pub fn credentials_place(&self) -> String {
        let global = match self.dialect {
            Dialect::Ini => "[Global]",
            Dialect::Yaml => "global",
            Dialect::Environment => return self.place(),
        };
        if self.section == global { self.place() } else { format!("{} or {global} of the cloud config", self.section) }
    }

    /// Returns the configuration line that accepts a certificate with this thumbprint, and its location. The text has
    /// no double quotes, because the log would escape them.
    pub fn thumbprint_line(&self, thumbprint: impl fmt::Display) -> String {
        let Self { dialect, section, thumbprint: key } = self;
        match dialect {
            Dialect::Ini => format!("this line in {section} of the cloud config: {key} = {thumbprint}"),
            // Without quotes, YAML may parse digits with colons as a number.
            Dialect::Yaml => format!("this line in {section} of the cloud config: {key}: '{thumbprint}'"),
            Dialect::Environment => format!("this variable: {key}={thumbprint}"),
        }
    }
}

/// An entry of an INI file, for callers without a configuration.
impl Default for Spelling {
    fn default() -> Self {
        Self { dialect: Dialect::Ini, section: "[VirtualCenter]".to_owned(), thumbprint: "thumbprint".to_owned() }
    }
}

/// Prints no fields, so that equivalent configurations print the same.
impl fmt::Debug for Spelling {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Spelling")
    }
}
