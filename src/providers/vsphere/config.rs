//! `vsphere.conf`: the one validated configuration type, whatever dialect the file is written in.
//!
//! Parsing takes text, not a path, and reports every mistake in one go. Mirrors `pkg/common/config` and
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
use super::login::credentials::offer::EntryCredentials;
pub use super::vcenter::zone_tags::ZoneCategories;
use crate::base::yaml::MAX_TEXT;
pub use crate::providers::vsphere::vcenter::spelling::Spelling;
pub use distinct::distinct_vcenters;
pub use environment::Environment;
pub use load_balancers::{
    Class, CompleteClass, DEFAULT_CLASS, IpPool, LoadBalancerConfig, MOST_TAGS_BESIDE, Profile, Size,
};
pub use nsx::{NsxConfig, NsxLogin};
pub use optional_sections::{OptionalSection, PartName};
pub use problems::{ConfigErrors, ConfigProblem, FilePlaces};
pub use routes::{RouteConfig, Router, RouterKind};
pub use sources::DEFAULT_DIRECTORY;

use fields::{Dialect, RawFile, dialect_of};
use problems::{Findings, ProblemReport};

/// A configuration, and what is odd about its file without being a mistake: keys and sections that nobody reads,
/// settings without effect. To be logged once.
#[derive(Clone, Debug)]
pub struct ParsedConfig {
    /// The configuration.
    pub config: Config,
    /// The oddities, in the order of the lines.
    pub warnings: Vec<ConfigProblem>,
    /// The mistakes of the parts that are turned off by them, in the order of the lines.
    pub refused: Vec<(PartName, ConfigProblem)>,
    /// Where other files are named.
    pub files: FilePlaces,
}

/// Reads the text of a `vsphere.conf` in either dialect, by itself: without environment variables and directories.
/// `file` is its name, for messages.
///
/// # Errors
/// All mistakes in one go, none of which repeats a value of the file.
pub fn parse(text: &str, file: &str) -> Result<ParsedConfig, ConfigErrors> {
    parse_within(text, file, &Environment::default(), &FileChecks::default())
}

/// What the reader of a configuration has to know of other files.
#[derive(Clone, Copy)]
pub struct FileChecks<'a> {
    /// Whether a path is a directory.
    pub is_directory: &'a dyn Fn(&Path) -> bool,
    /// Why the certificate of this vCenter cannot be judged, for example because a CA file is missing; empty where it can.
    /// Called for the vCenters that variables define beside those of the file.
    pub trust_errors: &'a dyn Fn(&VcenterConfig) -> Vec<String>,
}

/// There are no directories, and all CA files can be used.
impl Default for FileChecks<'_> {
    fn default() -> Self {
        Self { is_directory: &|_| false, trust_errors: &|_| Vec::new() }
    }
}

/// As [`parse`], with what else decides: the environment variables, and other files.
///
/// # Errors
/// All mistakes in one go, none of which repeats a value of the file or of a variable. Where all of them are mistakes of
/// parts, they are no error: see [`ParsedConfig::refused`].
pub fn parse_within(
    text: &str,
    file: &str,
    environment: &Environment,
    checks: &FileChecks<'_>,
) -> Result<ParsedConfig, ConfigErrors> {
    let mut report = ProblemReport::new(file);
    if text.len() > MAX_TEXT {
        report.mistake(None, format!("expected at most {MAX_TEXT} bytes"));
        return Err(report.into_errors());
    }
    if text.contains('\0') {
        let line = text.split('\0').next().map(|before| before.matches('\n').count() + 1);
        report.mistake(line, "expected text: there is a NUL character");
    }
    // Editors of Windows write this mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some((line, expected)) = traps::of_other_texts(text) {
        report.mistake(Some(line), expected);
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
    traps::tell_placeholders(&raw, &mut report);
    let environment = environment::read(environment, &raw, &mut report);
    let config = validation::merge(&raw, &environment, checks, &mut report);
    let Findings { warnings, refused, files } = report.finish()?;
    Ok(ParsedConfig { config, warnings, refused, files })
}

/// What `vsphere.conf` says, checked and with all defaults filled in.
#[derive(Clone, Debug)]
pub struct Config {
    /// The vCenters in the order of the file; at least one. The one of `Global` comes last.
    pub vcenters: Vec<VcenterConfig>,
    /// The variables of the vCenters that are turned off because of mistakes in them. They may have machines that no other
    /// vCenter has, so that no machine is proved to be gone.
    pub refused_vcenters: Vec<String>,
    /// Where zone and region come from. Off unless both categories are named.
    pub labels: Option<ZoneCategories>,
    /// Which addresses nodes get; for all vCenters.
    pub addresses: AddressRules,
    /// The connection to NSX.
    pub nsx: OptionalSection<NsxConfig>,
    /// The load balancers. Not in use without the connection to NSX.
    pub load_balancers: OptionalSection<LoadBalancerConfig>,
    /// The routes. Not in use without the connection to NSX.
    pub routes: OptionalSection<RouteConfig>,
}

impl Config {
    /// Whether a part is in the file and wrong.
    pub fn is_refused(&self, part: PartName) -> bool {
        match part {
            PartName::Nsx => self.nsx.is_refused(),
            PartName::LoadBalancers => self.load_balancers.is_refused(),
            PartName::Routes => self.routes.is_refused(),
            PartName::FurtherVcenters => !self.refused_vcenters.is_empty(),
        }
    }

    /// Turns off what needs the connection to NSX where that is not in use: the parts that were in use, with what is
    /// expected.
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

/// One vCenter.
#[derive(Clone, Debug)]
pub struct VcenterConfig {
    /// The name of the entry: the section name or map key; unique. The Go program calls it the tenant.
    pub key: String,
    /// How messages name the entry.
    pub spelling: Spelling,
    /// Host name or IP address, without scheme, port and path; also the key of its credentials inside Secrets.
    pub server: String,
    /// The TCP port.
    pub port: u16,
    /// Whether the server's certificate is not verified.
    pub insecure: bool,
    /// PEM files that replace the system's roots; none means the system's roots. Whether they exist is not checked here.
    pub ca_files: Vec<PathBuf>,
    /// Accepted thumbprints of the server's certificate: SHA-1 (20 bytes) or SHA-256 (32 bytes), upper-case hex,
    /// separated by colons.
    pub thumbprints: Vec<String>,
    /// Names, inventory paths or ids of the datacenters to search; none means all.
    pub datacenters: Vec<String>,
    /// The families of addresses a node gets, in order; at least one, none twice.
    pub ip_families: Vec<IpFamily>,
    /// The credentials to try first.
    pub credentials: Credentials,
    /// The credentials to try when the first are rejected: the Secret or directory behind an inline pair.
    pub fallback_credentials: Option<Credentials>,
}

impl VcenterConfig {
    /// What the entry says about its credentials.
    pub fn entry_credentials(&self) -> EntryCredentials<'_> {
        let (credentials, fallback) = (&self.credentials, self.fallback_credentials.as_ref());
        EntryCredentials { server: &self.server, credentials, fallback }
    }
}

#[cfg(test)]
mod tests;
