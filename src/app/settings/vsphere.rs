//! `vsphere.conf` and the files it names, read and checked together with our flags about vCenter.

use super::{Check, Mistake, Mistakes};
use crate::app::files::{Files, Noted, Noting};
use crate::app::options::Options;
use crate::clients::http;
use crate::clients::http::{Endpoint, Thumbprint, TlsSettings, TlsTrust};
use crate::providers::vsphere::config::{self, Config, ConfigProblem, Environment, Surroundings, Vcenter};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use zeroize::Zeroizing;

/// What the vSphere provider is built from.
pub struct Vsphere {
    /// Where `vsphere.conf` was read.
    pub path: PathBuf,
    /// What it says.
    pub config: Config,
    /// What is odd about it without being a mistake.
    pub oddities: Vec<ConfigProblem>,
    /// How to judge each vCenter's certificate, by the key of its entry.
    pub tls: BTreeMap<String, TlsSettings>,
    /// Pause between two looks at the tags.
    pub tag_poll_interval: Duration,
    /// Whether a VM found by its name alone is taken even if its UUID contradicts the node's.
    pub allows_name_match: bool,
    /// The hosts of session managers that may be asked; empty is any.
    pub session_manager_hosts: BTreeSet<String>,
    /// Whether the variable `SKIP_NODE_DELETION` is there: no Node is to be deleted.
    pub skips_node_deletion: bool,
    /// The files this was read from, as they were.
    pub files: Noted,
}

/// What the cloud config is read from, again and again: the flags and variables of the process. They do not change.
#[derive(Debug)]
pub struct Sources {
    /// The flags.
    pub options: Options,
    /// The environment variables.
    pub environment: Environment,
}

/// What was read, and from which files, also where they are wrong.
pub struct Read {
    /// What they mean, or their mistakes.
    pub outcome: Result<Vsphere, Mistakes>,
    /// The files, as they were.
    pub seen: Noted,
}

impl Vsphere {
    /// A warning for each vCenter whose certificate is not verified.
    pub fn unverified(&self) -> Vec<String> {
        let told = |vcenter: &Vcenter| {
            format!(
                "vCenter {}:{}: its certificate is not verified (insecure-flag): its credentials can be intercepted. \
                 Set ca-file or thumbprint in place of insecure-flag",
                vcenter.server, vcenter.port
            )
        };
        self.config.vcenters.iter().filter(|vcenter| vcenter.insecure).map(told).collect()
    }
}

impl Sources {
    /// As [`read`].
    pub fn read(&self, files: &dyn Files) -> Read {
        let files = Noting::new(files);
        let outcome = read_noting(&self.options, &files, &self.environment);
        Read { outcome, seen: files.noted() }
    }
}

/// Reads and checks the file of `--cloud-config` and what it names, and our flags about vCenter. Asks nothing else of the
/// process, so that it may be called again while the daemon runs; it reads files, so not where waiting is forbidden.
///
/// # Errors
/// All mistakes in one go, none of which repeats what is in a file.
pub fn read(options: &Options, files: &dyn Files, environment: &Environment) -> Result<Vsphere, Mistakes> {
    read_noting(options, &Noting::new(files), environment)
}

fn read_noting(options: &Options, files: &Noting<'_>, environment: &Environment) -> Result<Vsphere, Mistakes> {
    let mut check = Check { options, files, environment, mistakes: Vec::new() };
    match (check.vsphere(), check.mistakes) {
        (Some(vsphere), mistakes) if mistakes.is_empty() => Ok(vsphere),
        (_, mistakes) => Err(Mistakes(mistakes)),
    }
}

/// Without the certificates, which say nothing to a reader.
impl fmt::Debug for Vsphere {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Vsphere");
        shown.field("path", &self.path).field("config", &self.config);
        shown.field("tag_poll_interval", &self.tag_poll_interval).field("allows_name_match", &self.allows_name_match);
        shown.finish_non_exhaustive()
    }
}

impl Check<'_> {
    /// Reads the file of `--cloud-config` and what it names, and checks our flags about vCenter.
    pub(super) fn vsphere(&mut self) -> Option<Vsphere> {
        let tag_poll_interval = self.pause("--tag-poll-interval", &self.options.tag_poll_interval);
        let allows_name_match = self.boolean("--allow-name-match", &self.options.allow_name_match);
        let session_manager_hosts = self.session_manager_hosts();
        let path = self.options.cloud_config.clone().filter(|path| !path.is_empty());
        let Some(path) = path.map(PathBuf::from) else {
            let why = "required (path of vsphere.conf)".to_owned();
            self.mistakes.push(Mistake { place: "--cloud-config".to_owned(), why });
            return None;
        };
        let bytes = self.content(&path)?;
        let file = path.display().to_string();
        let Ok(text) = std::str::from_utf8(&bytes) else {
            return self.wrong("--cloud-config", &file, "the file is not text in UTF-8");
        };
        if text.trim().is_empty() {
            return self.wrong("--cloud-config", &file, "the file is empty");
        }
        let is_directory = |path: &Path| self.files.is_directory(path);
        let surroundings = Surroundings { environment: self.environment, is_directory: &is_directory };
        let parsed = match config::parse_within(text, &file, surroundings) {
            Ok(parsed) => parsed,
            Err(errors) => {
                self.mistakes.extend(errors.problems().iter().map(Mistake::from));
                return None;
            }
        };
        let mut tls = BTreeMap::new();
        for vcenter in &parsed.config.vcenters {
            tls.extend(self.tls(&file, vcenter).map(|tls| (vcenter.key.clone(), tls)));
        }
        Some(Vsphere {
            path,
            config: parsed.config,
            oddities: parsed.warnings,
            tls,
            tag_poll_interval: tag_poll_interval?,
            allows_name_match: allows_name_match?,
            session_manager_hosts,
            skips_node_deletion: self.environment.skips_node_deletion(),
            files: self.files.noted(),
        })
    }

    /// Host names and addresses in the form of URLs; mistakes are told.
    fn session_manager_hosts(&mut self) -> BTreeSet<String> {
        let mut hosts = BTreeSet::new();
        for item in self.options.session_manager_hosts.iter().map(|item| item.trim()).filter(|item| !item.is_empty()) {
            let bare = item.trim_start_matches('[').trim_end_matches(']');
            let url = if bare.contains(':') { format!("https://[{bare}]") } else { format!("https://{bare}") };
            let host = Endpoint::of_url(&url).ok().filter(|_| !bare.contains(['/', '?', '#', '@', '\\']));
            let expected = "expected host names or IP addresses, without scheme, port and path";
            match host {
                Some(endpoint) => hosts.extend([endpoint.host().to_owned()]),
                None => hosts.extend(self.wrong::<String>("--session-manager-hosts", item, expected)),
            }
        }
        hosts
    }

    fn content(&mut self, path: &Path) -> Option<Zeroizing<Vec<u8>>> {
        let read = self.files.read(path);
        read.map_or_else(
            |error| self.wrong("--cloud-config", &path.display().to_string(), format!("cannot be read: {error}")),
            Some,
        )
    }

    /// Reads the CA files. That they hold certificates, or that the system has some, is tried here, so that it is told
    /// at start.
    fn tls(&mut self, file: &str, vcenter: &Vcenter) -> Option<TlsSettings> {
        // Without verification the CA files are for the session manager. A missing one stops nothing: there is less to
        // trust then, not more.
        let trust = match vcenter.insecure {
            true => self.readable_trust(vcenter).unwrap_or_default(),
            false => self.trust(file, vcenter)?,
        };
        let mut thumbprints = Vec::new();
        for text in &vcenter.thumbprints {
            match Thumbprint::parse(text) {
                Ok(thumbprint) => thumbprints.push(thumbprint),
                Err(error) => self.mistakes.push(Mistake::at(file, vcenter, error.to_string())),
            }
        }
        let tls = TlsSettings { trust, thumbprints, insecure: vcenter.insecure };
        if let Err(error) = http::Client::new(http::Settings::new(&vcenter.server, vcenter.port, tls.clone(), "")) {
            self.mistakes.push(Mistake::at(file, vcenter, error.to_string()));
        }
        Some(tls)
    }

    fn trust(&mut self, file: &str, vcenter: &Vcenter) -> Option<TlsTrust> {
        self.readable_trust(vcenter).map_err(|why| self.mistakes.push(Mistake::at(file, vcenter, why))).ok()
    }

    /// The bundle of all CA files; the system's authorities where there is none.
    fn readable_trust(&self, vcenter: &Vcenter) -> Result<TlsTrust, String> {
        if vcenter.ca_files.is_empty() {
            return Ok(TlsTrust::System);
        }
        let mut pem = Vec::new();
        for path in &vcenter.ca_files {
            let failed = |error| format!("the CA file {} cannot be read: {error}", path.display());
            pem.extend_from_slice(&self.files.read(path).map_err(failed)?);
            pem.push(b'\n');
        }
        let shown: Vec<_> = vcenter.ca_files.iter().map(|path| path.display().to_string()).collect();
        Ok(TlsTrust::Ca { pem, path: shown.join(":") })
    }
}

impl Mistake {
    fn at(file: &str, vcenter: &Vcenter, why: impl Into<String>) -> Self {
        Self { place: format!("{file}: vCenter {:?}", vcenter.key), why: why.into() }
    }
}

impl From<&ConfigProblem> for Mistake {
    fn from(problem: &ConfigProblem) -> Self {
        Self { place: problem.place(), why: problem.expected.clone() }
    }
}
