//! `vsphere.conf`: one validated configuration type for both dialects of the file.
//!
//! Parsing takes text, not a path, and reports all errors together. Mirrors `pkg/common/config` and
//! `pkg/cloudprovider/vsphere/config`.

pub(in crate::providers::vsphere) mod address_rules;
mod distinct;
mod environment;
mod fields;
mod gcfg;
mod ini;
mod load_balancers;
mod names;
mod nsx;
mod optional_sections;
mod problems;
mod routes;
mod sizes;
mod sources;
mod spelling;
mod traps;
mod validation;
mod values;
mod yaml;

use std::path::{Path, PathBuf};

pub use self::address_rules::{AddressRule, AddressRules, IpFamily};
pub use super::login::credentials::Credentials;
use super::login::credentials::offer::CredentialSettings;
pub use super::vcenter::zone_tags::ZoneCategories;
use crate::base::yaml::MAX_TEXT;
use crate::clients::http::Thumbprint;
pub use crate::providers::vsphere::vcenter::spelling::Spelling;
pub use distinct::distinct_vcenters;
pub use environment::Environment;
pub use load_balancers::{
    Class, CompleteClass, DEFAULT_CLASS, IpPool, LoadBalancerConfig, MAX_EXTRA_TAGS, Profile, Size,
};
pub use nsx::{NsxConfig, NsxLogin};
pub use optional_sections::{OptionalSection, PartName};
pub use problems::{ConfigErrors, ConfigProblem, FilePlaces};
pub use routes::{RouteConfig, parse_router};
pub use sources::DEFAULT_DIRECTORY;

use fields::{Dialect, RawFile, dialect_of};
use problems::ProblemReport;
use secrecy::SecretString;

/// A configuration and its warnings, such as unknown keys. The caller logs each warning once.
#[derive(Clone, Debug)]
pub struct ParsedConfig {
    /// The configuration.
    pub config: Config,
    /// The warnings, in line order.
    pub warnings: Vec<ConfigProblem>,
    /// The errors that turn off optional parts, in line order.
    pub rejected: Vec<(PartName, ConfigProblem)>,
    /// The places where the configuration names other files, for messages.
    pub files: FilePlaces,
}

/// Parses a `vsphere.conf` in either dialect, without environment variables. `file` is the file name for messages.
///
/// # Errors
/// Returns all errors together. No message repeats a value of the file.
pub fn parse(text: &str, file: &str) -> Result<ParsedConfig, ConfigErrors> {
    parse_within(text, file, &Environment::default(), &FileChecks::default())
}

/// Checks of other files that parsing depends on.
#[derive(Clone, Copy)]
pub struct FileChecks<'a> {
    /// Whether a path is a directory.
    pub is_directory: &'a dyn Fn(&Path) -> bool,
    /// Reasons why the trust settings of a vCenter are unusable, for example a missing CA file. Empty if the settings
    /// are usable. Called for vCenters that variables define in addition to those of the file.
    pub trust_errors: &'a dyn Fn(&VcenterConfig) -> Vec<String>,
}

/// Assumes that no directory exists and that all CA files are usable.
impl Default for FileChecks<'_> {
    fn default() -> Self {
        Self { is_directory: &|_| false, trust_errors: &|_| Vec::new() }
    }
}

/// Parses like [`parse`], with environment variables and checks of other files.
///
/// # Errors
/// Returns all errors together. No message repeats a value of the file or of a variable. If only optional parts have
/// errors, parsing succeeds: see [`ParsedConfig::rejected`].
pub fn parse_within(
    text: &str,
    file: &str,
    environment: &Environment,
    checks: &FileChecks<'_>,
) -> Result<ParsedConfig, ConfigErrors> {
    let mut report = ProblemReport::new(file);
    if text.len() > MAX_TEXT {
        report.error(None, format!("expected at most {MAX_TEXT} bytes"));
        return Err(report.into_errors());
    }
    if text.contains('\0') {
        let line = text.split('\0').next().map(|before| before.matches('\n').count() + 1);
        report.error(line, "expected text: there is a NUL character");
    }
    // Windows editors write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some((line, expected)) = traps::of_other_texts(text) {
        report.error(Some(line), expected);
        return Err(report.into_errors());
    }
    let dialect = dialect_of(text);
    let mut raw = match dialect {
        Dialect::Yaml => yaml::read(text, &mut report),
        _ => ini::read(text, &mut report),
    };
    if !sizes::are_lists_short(&raw, &mut report) {
        raw = RawFile::new(dialect);
    }
    traps::warn_of_placeholders(&raw, &mut report);
    let environment = environment::read(environment, &raw, &mut report);
    let config = validation::merge(&raw, &environment, checks, &mut report);
    report.finish(config)
}

/// The validated content of `vsphere.conf`, with all defaults.
#[derive(Clone, Debug)]
pub struct Config {
    /// The vCenters: first those of the file in order, then that of `Global`, then those of variables; at least one.
    pub vcenters: Vec<VcenterConfig>,
    /// vCenters that are turned off because of errors, each as the name of the variable that defines it. Any VM may be
    /// on such a vCenter, so no VM can be proved absent while this list has entries.
    pub refused_vcenters: Vec<String>,
    /// The tag categories of zone and region; `None` unless both are configured.
    pub labels: Option<ZoneCategories>,
    /// The address rules for the Nodes of all vCenters.
    pub addresses: AddressRules,
    /// The connection to NSX.
    pub nsx: OptionalSection<NsxConfig>,
    /// The load balancers. Unused without the connection to NSX.
    pub load_balancers: OptionalSection<LoadBalancerConfig>,
    /// The routes. Unused without the connection to NSX.
    pub routes: OptionalSection<RouteConfig>,
}

impl Config {
    /// Returns true if this part is configured but turned off because of an error.
    pub fn is_refused(&self, part: PartName) -> bool {
        match part {
            PartName::Nsx => self.nsx.is_refused(),
            PartName::LoadBalancers => self.load_balancers.is_refused(),
            PartName::Routes => self.routes.is_refused(),
            PartName::FurtherVcenters => !self.refused_vcenters.is_empty(),
        }
    }

    /// Returns the users and passwords that the configuration itself has, also those that are not in use.
    pub fn inline_pairs(&self) -> Vec<(&str, &SecretString)> {
        let of_nsx = self.nsx.used().and_then(|nsx| match &nsx.login {
            NsxLogin::Pair { credentials, fallback } => Some((credentials, fallback.as_ref())),
            NsxLogin::Certificate { .. } | NsxLogin::VmcToken { .. } => None,
        });
        let of_vcenters = self.vcenters.iter().map(|one| (&one.credentials, one.fallback_credentials.as_ref()));
        let all = of_vcenters.chain(of_nsx).flat_map(|(first, fallback)| std::iter::once(first).chain(fallback));
        let pairs = all.filter_map(|credentials| match credentials {
            Credentials::Inline { user, password } => Some((user.as_str(), password)),
            Credentials::Stored(_) => None,
        });
        pairs.collect()
    }

    /// Turns off load balancers and routes if there is no connection to NSX. Returns the parts that are turned off,
    /// each with the text of the expected value for the message.
    pub fn refuse_without_nsx(&mut self) -> Vec<(PartName, &'static str)> {
        let mut refused = Vec::new();
        if self.nsx.used().is_some() {
            return refused;
        }
        if self.load_balancers.used().is_some() {
            self.load_balancers = OptionalSection::Refused;
            refused.push((PartName::LoadBalancers, "expected a section NSXT without errors: load balancers need NSX"));
        }
        if self.routes.used().is_some() {
            self.routes = OptionalSection::Refused;
            refused.push((PartName::Routes, "expected a section NSXT without errors: routes need NSX"));
        }
        refused
    }
}

/// One vCenter entry.
#[derive(Clone, Debug)]
pub struct VcenterConfig {
    /// The unique name of the entry: the section name, the map key, `server` of `Global`, or the value of the variable
    /// that defines the vCenter.
    pub key: String,
    /// The spelling of the entry in messages.
    pub spelling: Spelling,
    /// Host name or IP address, without scheme, port and path; also the key of the credentials inside Secrets.
    pub server: String,
    /// The TCP port.
    pub port: u16,
    /// Whether the server's certificate is not verified.
    pub insecure: bool,
    /// PEM files that replace the system's roots; empty means the system's roots. Their existence is not checked here.
    pub ca_files: Vec<PathBuf>,
    /// Accepted thumbprints of the server's certificate.
    pub thumbprints: Vec<Thumbprint>,
    /// Names, name patterns, inventory paths or ids of the datacenters to search; empty means all.
    pub datacenters: Vec<String>,
    /// The address families of Nodes, in order; at least one, without duplicates.
    pub ip_families: Vec<IpFamily>,
    /// The credentials to try first.
    pub credentials: Credentials,
    /// The credentials to try if the first are rejected: a Secret or directory that is configured in addition to inline
    /// credentials.
    pub fallback_credentials: Option<Credentials>,
}

impl VcenterConfig {
    /// Returns the credentials of the entry together with its server.
    pub fn credential_settings(&self) -> CredentialSettings {
        CredentialSettings {
            entry: Some(self.key.clone()),
            server: self.server.clone(),
            port: self.port,
            credentials: self.credentials.clone(),
            fallback: self.fallback_credentials.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
