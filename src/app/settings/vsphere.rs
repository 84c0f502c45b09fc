//! Settings of the vSphere provider: flags, `vsphere.conf`, and the files that `vsphere.conf` names.

mod nsx;

use super::{SettingError, SettingErrors, SettingsCheck, flags};
use crate::app::files::{FileFingerprints, FileSystem, RecordingFiles};
use crate::base::addresses::host_and_port;
use crate::clients::http::{self, Endpoint, ProxySettings, TlsSettings, TlsTrust};
use crate::clients::vim::Timeouts;
use crate::providers::vsphere::Options;
use crate::providers::vsphere::config::{
    self, Config, ConfigProblem, DEFAULT_CLASS, Environment, OptionalSection, PartName, VcenterConfig,
};
use crate::providers::vsphere::nsx::load_balancer::RequestedAddresses;
use crate::providers::vsphere::nsx::load_balancer::orphans::Policy;
use crate::providers::vsphere::nsx::routes::Adoption;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// Longest wait of a joining Node for each address family after the first family. VMware Tools reports families seconds
/// apart.
const FAMILY_WAIT: Duration = Duration::from_secs(120);

/// The settings of the vSphere provider.
pub struct Vsphere {
    /// The location of `vsphere.conf`.
    pub file: CloudConfigFile,
    /// The content of `vsphere.conf` at the start.
    pub cloud_config: Arc<CloudConfig>,
    /// Fingerprints of the files that were read for `cloud_config`.
    pub fingerprints: FileFingerprints,
    /// The allowed hosts of session managers; empty allows any host.
    pub session_manager_hosts: BTreeSet<String>,
    /// The file with the token for session managers without their own token; `None` for the service account's token.
    pub session_manager_token: Option<PathBuf>,
    /// The proxies from environment variables.
    pub proxy: ProxySettings,
    /// The options of the provider. `api_server` is empty: `app::vsphere::build` adds the resolved addresses.
    pub options: Options,
    /// The flags of NSX.
    pub nsx: NsxSettings,
}

/// The flags of NSX.
#[derive(Debug, Clone, Copy)]
pub struct NsxSettings {
    /// `--nsx-requests-per-second`.
    pub calls_per_second: u32,
    /// `--nsx-adopt`.
    pub adoption: Adoption,
    /// `--nsx-orphans`.
    pub orphans: Policy,
    /// `--nsx-load-balancer-ip`.
    pub requested_addresses: RequestedAddresses,
    /// `--nsx-batch-updates`.
    pub batches: bool,
}

/// The path of `vsphere.conf`, the environment variables and a flag, which do not change while the process runs.
#[derive(Debug, Clone)]
pub struct CloudConfigFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The environment variables.
    pub environment: Environment,
    /// `--nsx-ipv6-pool`: IDs of IP pools by load balancer class. The file must define each class except `default`.
    pub ipv6_pools: BTreeMap<String, String>,
}

/// The configuration from `vsphere.conf`, environment variables, and CA and certificate files.
pub struct CloudConfig {
    /// The parsed configuration.
    pub config: Config,
    /// Warnings about the content.
    pub notices: Vec<ConfigProblem>,
    /// TLS settings of the vCenters, by the key of the entry.
    pub tls: BTreeMap<String, TlsSettings>,
    /// TLS settings of NSX with the client certificate; `None` if NSX is not used.
    pub nsx_tls: Option<TlsSettings>,
    /// The parts that are turned off because of errors, with the errors.
    pub rejected: Vec<(PartName, SettingError)>,
}

impl CloudConfigFile {
    /// Reads and checks the file and the files that it names, and returns the fingerprints of all read files. Blocks.
    pub fn read(&self, files: &dyn FileSystem) -> (Result<CloudConfig, SettingErrors>, FileFingerprints) {
        let files = RecordingFiles::new(files);
        let outcome = match self.content(&files) {
            Ok(content) => self.check(&content, &files),
            Err(error) => Err(self.error(format!("cannot be read: {error}"))),
        };
        (outcome, files.noted())
    }

    /// Returns the bytes of `vsphere.conf`.
    pub fn content(&self, files: &dyn FileSystem) -> io::Result<Zeroizing<Vec<u8>>> {
        files.read(&self.path)
    }

    /// Parses and checks the bytes of the file, and reads and checks the files that it names.
    ///
    /// # Errors
    /// All errors together, without content of files. If only optional parts have errors, returns the
    /// configuration with the errors in [`CloudConfig::rejected`].
    pub fn check(&self, content: &[u8], files: &dyn FileSystem) -> Result<CloudConfig, SettingErrors> {
        if matches!(content, [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, _, ..] | [_, 0, ..]) {
            return Err(self.error("the file is text in UTF-16: save it as UTF-8"));
        }
        let text = std::str::from_utf8(content).map_err(|_| self.error("the file is not text in UTF-8"))?;
        if text.trim().is_empty() {
            return Err(self.error("the file is empty"));
        }
        let file = self.path.display().to_string();
        let is_directory = |path: &Path| files.is_directory(path);
        let trust_errors = |vcenter: &VcenterConfig| {
            vcenter_tls(vcenter, files, "").err().into_iter().map(|error| error.reason).collect()
        };
        let checks = config::FileChecks { is_directory: &is_directory, trust_errors: &trust_errors };
        let mistake = |problem: ConfigProblem| SettingError { place: problem.place(), reason: problem.expected };
        let messages = |warnings: &[ConfigProblem]| warnings.iter().map(ToString::to_string).collect();
        let parsed = config::parse_within(text, &file, &self.environment, &checks).map_err(|errors| SettingErrors {
            warnings: messages(&errors.warnings),
            errors: errors.errors.into_iter().map(mistake).collect(),
        })?;
        let mut config = parsed.config;
        let mut mistakes = self.set_ipv6_pools(&mut config);
        let mut refused: Vec<_> = parsed.rejected.into_iter().map(|(part, problem)| (part, mistake(problem))).collect();
        let mut tls = BTreeMap::new();
        for vcenter in &config.vcenters {
            let place = format!("{file}: vCenter {:?}", vcenter.key);
            let of_ca = parsed.files.ca_file(&vcenter.key).unwrap_or(&place);
            match vcenter_tls(vcenter, files, of_ca) {
                Ok(settings) => drop(tls.insert(vcenter.key.clone(), settings)),
                // Several vCenters may use the same file.
                Err(error) if mistakes.contains(&error) => {}
                Err(error) => mistakes.push(error),
            }
        }
        let nsx_tls = match config.nsx.used().map(|nsx| nsx::nsx_tls(nsx, files)).transpose() {
            Ok(settings) => settings,
            Err(wrong) => {
                config.nsx = OptionalSection::Refused;
                let dependents = config.refuse_without_nsx().into_iter().map(|(part, why)| (part, why.to_owned()));
                let of_key = |key: Option<&'static str>| key.and_then(|key| parsed.files.nsx(key)).map(str::to_owned);
                let wrong = wrong.into_iter().map(|(key, why)| (PartName::Nsx, of_key(key), why));
                let wrong = wrong.chain(dependents.map(|(part, why)| (part, None, why)));
                refused.extend(wrong.map(|(part, place, why)| {
                    let place = place.unwrap_or_else(|| format!("{file}: {part}"));
                    (part, SettingError { place, reason: why })
                }));
                None
            }
        };
        match mistakes.is_empty() {
            true => Ok(CloudConfig { config, notices: parsed.warnings, tls, nsx_tls, rejected: refused }),
            false => {
                mistakes.extend(refused.into_iter().map(|(_, mistake)| mistake));
                Err(SettingErrors { errors: mistakes, warnings: messages(&parsed.warnings) })
            }
        }
    }

    /// Sets the IPv6 pools of the classes, if load balancers are used. Returns an error for each class except `default`
    /// that the file lacks.
    fn set_ipv6_pools(&self, config: &mut Config) -> Vec<SettingError> {
        let OptionalSection::Used(balancers) = &mut config.load_balancers else { return Vec::new() };
        balancers.ipv6_pools.clone_from(&self.ipv6_pools);
        let mut known: Vec<&str> = balancers.classes.keys().map(String::as_str).collect();
        if !known.contains(&DEFAULT_CLASS) {
            known.push(DEFAULT_CLASS);
        }
        let unknown = self.ipv6_pools.iter().filter(|(class, _)| !known.contains(&class.as_str()));
        let error = |(class, pool): (&String, &String)| {
            let (place, known) = (format!("--nsx-ipv6-pool={class}={pool}"), known.join(", "));
            let why = format!("{} does not have the class {class:?}; it has {known}", self.path.display());
            SettingError { place, reason: why }
        };
        unknown.map(error).collect()
    }

    fn error(&self, why: impl Into<String>) -> SettingErrors {
        let found = vec![SettingError { place: format!("--cloud-config={}", self.path.display()), reason: why.into() }];
        SettingErrors { errors: found, warnings: Vec::new() }
    }
}

impl CloudConfig {
    /// Returns the configuration if no part is turned off because of errors. Ignores errors in environment variables if
    /// `in_force`, the active configuration, already has the same invalid variables: a reload cannot change environment
    /// variables.
    ///
    /// # Errors
    /// The errors of all parts that are turned off, except the ignored errors.
    pub fn without_refused_parts(self, in_force: Option<&Self>) -> Result<Self, SettingErrors> {
        let known = in_force.map(|in_force| in_force.config.refused_vcenters.as_slice()).unwrap_or_default();
        let is_known = self.config.refused_vcenters.iter().all(|variable| known.contains(variable));
        let counts = |part: PartName| part != PartName::FurtherVcenters || !is_known;
        if !self.rejected.iter().any(|(part, _)| counts(*part)) {
            return Ok(self);
        }
        Err(SettingErrors {
            errors: self.rejected.into_iter().filter(|(part, _)| counts(*part)).map(|(_, error)| error).collect(),
            warnings: self.notices.iter().map(ToString::to_string).collect(),
        })
    }

    /// Returns a warning for each vCenter and NSX Manager whose certificate is not verified.
    pub fn unverified(&self) -> Vec<String> {
        let warning = |product: &str, host: &str, port: u16, keys: &str| {
            format!(
                "{product} {}: its certificate is not verified (insecure-flag): its credentials can be intercepted. \
                 Set {keys} in place of insecure-flag",
                host_and_port(host, port)
            )
        };
        let vcenters = self.config.vcenters.iter().filter(|vcenter| vcenter.insecure);
        let vcenters =
            vcenters.map(|vcenter| warning("vCenter", &vcenter.server, vcenter.port, "ca-file or thumbprint"));
        let nsx = self.config.nsx.used().filter(|nsx| nsx.insecure);
        let nsx = nsx.map(|nsx| warning("NSX", &nsx.host, nsx.port, "ca-file"));
        vcenters.chain(nsx).collect()
    }
}

impl fmt::Debug for Vsphere {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Vsphere");
        shown.field("path", &self.file.path).field("config", &self.cloud_config);
        shown.field("tag_poll_interval", &self.options.tag_poll);
        shown.field("allows_name_match", &self.options.allow_name_match).finish_non_exhaustive()
    }
}

impl fmt::Debug for CloudConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.config.fmt(formatter)
    }
}

impl SettingsCheck<'_> {
    /// Reads and checks the file of `--cloud-config`, the files that it names, and the flags about vCenter and NSX.
    pub(super) fn vsphere(&mut self) -> Option<Vsphere> {
        let tag_poll = self.pause(flags::TAG_POLL_INTERVAL);
        let allow_name_match = self.boolean(flags::ALLOW_NAME_MATCH);
        let session_manager_hosts = self.session_manager_hosts();
        let session_manager_token = self.optional(flags::SESSION_MANAGER_TOKEN_FILE).map(PathBuf::from);
        let topology = self.topology();
        let demotes_virtual_ips = self.boolean(flags::DEMOTE_VIRTUAL_IPS);
        let trusts_guest_interfaces = self.boolean(flags::TRUST_GUEST_INTERFACES);
        let choices = [("hold", false), ("enforce", true)];
        let trusts_unseen = self.choice(flags::NODE_DELETION_UNSEEN, &choices, "hold or enforce");
        let nsx = self.nsx();
        let ipv6_pools = self.ipv6_pools();
        let proxy = self.proxies();
        let Some(path) = self.optional(flags::CLOUD_CONFIG) else {
            let why = "required (path of vsphere.conf)".to_owned();
            self.errors.push(SettingError { place: "--cloud-config".to_owned(), reason: why });
            return None;
        };
        let file = CloudConfigFile { path: PathBuf::from(path), environment: self.environment.clone(), ipv6_pools };
        let (outcome, seen) = file.read(self.files);
        let refuse = |SettingErrors { errors: found, warnings }| {
            self.errors.extend(found);
            self.warnings.extend(warnings);
        };
        let cloud_config = Arc::new(outcome.map_err(refuse).ok()?);
        let options = Options {
            file: path.to_owned(),
            tag_poll,
            allow_name_match,
            trusts_unseen: trusts_unseen.unwrap_or_default(),
            topology,
            demotes_virtual_ips,
            trusts_guest_interfaces,
            api_server: Vec::new(),
            family_wait: FAMILY_WAIT,
            timeouts: Timeouts::default(),
        };
        Some(Vsphere {
            file,
            cloud_config,
            fingerprints: seen,
            session_manager_hosts,
            session_manager_token,
            proxy,
            options,
            nsx,
        })
    }

    /// Returns the proxies from environment variables. Errors omit the values, which may contain passwords.
    fn proxies(&mut self) -> ProxySettings {
        ProxySettings::from_environment(|name| self.environment.proxy(name)).unwrap_or_else(|wrong| {
            self.errors.extend(wrong.into_iter().map(|error| SettingError {
                place: format!("environment variable {}", error.variable),
                reason: error.why(),
            }));
            ProxySettings::default()
        })
    }

    fn nsx(&mut self) -> NsxSettings {
        let rate = flags::NSX_REQUESTS_PER_SECOND;
        let expected = "a whole number from 1 to 1000";
        let calls_per_second = self.number(rate, expected).unwrap_or(1);
        if !(1..=1000).contains(&calls_per_second) {
            self.invalid(rate, self.options.text(rate), format!("expected {expected}"));
        }
        let choices = [("as-is", Adoption::AsIs), ("full", Adoption::Full)];
        let adoption = self.choice(flags::NSX_ADOPT, &choices, "as-is or full").unwrap_or_default();
        let choices = [("delete", Policy::Delete), ("report", Policy::Report), ("off", Policy::Off)];
        let orphans = self.choice(flags::NSX_ORPHANS, &choices, "delete, report or off").unwrap_or_default();
        let choices = [("on", RequestedAddresses::Honored), ("off", RequestedAddresses::Ignored)];
        let requested_addresses = self.choice(flags::NSX_LOAD_BALANCER_IP, &choices, "on or off").unwrap_or_default();
        let batches = self.boolean(flags::NSX_BATCH_UPDATES);
        NsxSettings { calls_per_second, adoption, orphans, requested_addresses, batches }
    }

    fn ipv6_pools(&mut self) -> BTreeMap<String, String> {
        let flag = flags::NSX_IPV6_POOL;
        let mut pools: BTreeMap<String, String> = BTreeMap::new();
        for item in self.items(flag) {
            let (class, pool) = item.split_once('=').unwrap_or_default();
            let (class, pool) = (class.trim(), pool.trim());
            let is_id = !pool.is_empty() && !pool.contains(['/', '=', ' ']);
            if class.is_empty() || !is_id {
                self.invalid(flag, item, "expected CLASS=POOL-ID, with the id of an IP pool of NSX");
            } else if pools.insert(class.to_owned(), pool.to_owned()).is_some_and(|other| other != pool) {
                self.invalid(flag, item, "the class has another pool already");
            }
        }
        pools
    }

    /// Returns the host names and addresses, spelled as in URLs. Reports invalid items.
    fn session_manager_hosts(&mut self) -> BTreeSet<String> {
        let mut hosts = BTreeSet::new();
        for item in self.items(flags::SESSION_MANAGER_HOSTS) {
            let bare = item.trim_start_matches('[').trim_end_matches(']');
            let url = if bare.contains(':') { format!("https://[{bare}]") } else { format!("https://{bare}") };
            let host = Endpoint::of_url(&url).ok().filter(|_| !bare.contains(['/', '?', '#', '@', '\\']));
            let expected = "expected host names or IP addresses, without scheme, port and path";
            match host {
                Some(endpoint) => drop(hosts.insert(endpoint.host().to_owned())),
                None => self.invalid(flags::SESSION_MANAGER_HOSTS, item, expected),
            }
        }
        hosts
    }
}

/// Returns the TLS settings of a vCenter, after a check that the CA files, or the system, have certificates. An error
/// gets the place `of_ca`.
fn vcenter_tls(vcenter: &VcenterConfig, files: &dyn FileSystem, of_ca: &str) -> Result<TlsSettings, SettingError> {
    let failed = |reason: String| SettingError { place: of_ca.to_owned(), reason };
    let trust = match trust(vcenter, files) {
        Ok(trust) => trust,
        // Without verification, only the session manager uses CA files: an unreadable file can only reduce trust.
        Err(_) if vcenter.insecure => TlsTrust::default(),
        Err(why) => return Err(failed(why)),
    };
    let thumbprints = vcenter.thumbprints.clone();
    let tls = TlsSettings { trust, thumbprints, can_be_pinned: true, insecure: vcenter.insecure, identity: None };
    let client = http::Client::new(http::Settings::new(&vcenter.server, vcenter.port, tls.clone(), ""));
    client.map(|_| tls).map_err(|error| failed(error.to_string()))
}

/// Returns the bundle of all CA files; without CA files, the CAs of the system.
fn trust(vcenter: &VcenterConfig, files: &dyn FileSystem) -> Result<TlsTrust, String> {
    if vcenter.ca_files.is_empty() {
        return Ok(TlsTrust::System);
    }
    let mut pem = Vec::new();
    for path in &vcenter.ca_files {
        let failed = |error| format!("the CA file {} cannot be read: {error}", path.display());
        pem.extend_from_slice(&files.read(path).map_err(failed)?);
        pem.push(b'\n');
    }
    let shown: Vec<_> = vcenter.ca_files.iter().map(|path| path.display().to_string()).collect();
    Ok(TlsTrust::Ca { pem, path: shown.join(":") })
}
