//! Converts flags into settings, and checks the flags and the files that they name. All errors are reported together.

mod access;
mod election;
mod gates;
mod generic;
mod label_selector;
pub mod leader_migration;
mod log;
mod network;
mod nodes;
mod provider;
mod serving;
pub mod vsphere;

use super::catalogue::{self, Controller};
use super::files::{FileSystem, SystemFiles};
use super::options::values::without_credentials;
use super::options::{Flag, Options, Origin, flags};
use crate::base::go_duration;
use crate::controllers::{node, node_lifecycle, route, service};
use crate::kubernetes::access::{Authentication, Authorization};
use crate::kubernetes::client;
use crate::providers::vsphere::config::Environment;
use crate::runtime::{admin, logging};
pub use election::{Election, LeaseName, Standby};
pub use gates::FeatureGates;
pub use generic::Generic;
pub use provider::ProviderSettings;
pub use serving::SecurePort;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
pub use vsphere::{NsxSettings, Vsphere};

/// All settings of the daemon, validated as far as possible without a network.
#[derive(Debug)]
pub struct Settings {
    /// The connection to the API server.
    pub kubernetes: client::Settings,
    /// Label selector of the Nodes to manage; `None` for all Nodes.
    pub node_selector: Option<String>,
    /// The leader election; `None` if it is off.
    pub election: Option<Election>,
    /// The Lease that Events about this process refer to. Set even if there is no election.
    pub lease: LeaseName,
    /// The cloud provider.
    pub provider: ProviderSettings,
    /// Controllers to run.
    pub controllers: Vec<&'static Controller>,
    /// Settings of the node controller.
    pub nodes: node::NodeSettings,
    /// Settings of the node-lifecycle controller.
    pub node_lifecycle: node_lifecycle::LifecycleSettings,
    /// Settings of the route controller; `None` if routes are turned off.
    pub routes: Option<route::RouteSettings>,
    /// Settings of the service controller.
    pub services: service::ServiceSettings,
    /// The flags that belong to no single part.
    pub generic: Generic,
    /// The server of probes, metrics and the other pages; `None` if the secure port is off.
    pub serving: Option<admin::Settings>,
    /// Authentication at the secure port.
    pub authentication: Authentication,
    /// Authorization at the secure port.
    pub authorization: Authorization,
    /// The log.
    pub logging: logging::LogSettings,
    /// The flags as typed, for the log and for pages only.
    pub options: Options,
    /// Handling of the vCenter connections while this process does not lead.
    pub standby: Standby,
}

impl Settings {
    /// Returns the namespace of the Leases that are not those of the election: that of the election's Lease, so that no
    /// permission in another namespace is needed, and `kube-system` without an election.
    pub fn lease_namespace(&self) -> &str {
        self.election.as_ref().map_or("kube-system", |_| self.lease.namespace.as_str())
    }
}

/// Converts the flags into settings, and reads and checks the files that the flags name.
///
/// # Errors
/// All errors, each with its place, the given value and the expected value.
pub fn resolve(
    options: &Options,
    files: &dyn FileSystem,
    environment: &Environment,
) -> Result<Settings, SettingErrors> {
    let mut check = SettingsCheck::new(options, files, environment);
    match (check.settings(), check.errors) {
        (Some(settings), mistakes) if mistakes.is_empty() => Ok(settings),
        (_, found) => Err(SettingErrors { errors: found, warnings: check.warnings }),
    }
}

/// Returns the settings of the log; the defaults if a flag of the log is invalid, since [`resolve`] reports the error.
pub fn of_the_log(options: &Options) -> logging::LogSettings {
    let environment = Environment::default();
    let mut check = SettingsCheck::new(options, &SystemFiles, &environment);
    let logging = check.logging();
    if check.errors.is_empty() { logging } else { logging::LogSettings::default() }
}

/// Returns the secure port; `None` if it is off, or if its port or address is invalid. [`resolve`] reports the error.
pub fn secure_port(options: &Options) -> Option<SecurePort> {
    SettingsCheck::new(options, &SystemFiles, &Environment::default()).secure_port()
}

/// A configuration error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct SettingError {
    /// The flag with its value, or the file with section and key. Never contains a secret.
    pub place: String,
    /// The error, and the expected value.
    pub reason: String,
}

/// All configuration errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingErrors {
    /// The errors, at least one.
    pub errors: Vec<SettingError>,
    /// Warnings about `vsphere.conf` and environment variables, which often name the cause of an error.
    pub warnings: Vec<String>,
}

impl std::error::Error for SettingErrors {}

impl fmt::Display for SettingErrors {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.errors.as_slice() {
            [only] => write!(formatter, "invalid configuration: {only}"),
            all => {
                write!(formatter, "{} configuration errors:", all.len())?;
                all.iter().try_for_each(|error| write!(formatter, "\n  {error}"))
            }
        }?;
        self.warnings.iter().try_for_each(|warning| write!(formatter, "\n  warning: {warning}"))
    }
}

/// The flags and files to check, and the errors found so far.
struct SettingsCheck<'a> {
    options: &'a Options,
    files: &'a dyn FileSystem,
    environment: &'a Environment,
    errors: Vec<SettingError>,
    /// Warnings about environment variables and the file of `--cloud-config`, reported only together with errors.
    warnings: Vec<String>,
}

impl<'a> SettingsCheck<'a> {
    fn new(options: &'a Options, files: &'a dyn FileSystem, environment: &'a Environment) -> Self {
        Self { options, files, environment, errors: Vec::new(), warnings: options.unknown_variables.clone() }
    }

    /// Returns the settings, which are valid only if `errors` is empty; `None` without a valid provider.
    fn settings(&mut self) -> Option<Settings> {
        let provider = self.provider();
        let topology_labels = provider.as_ref().map(ProviderSettings::topology_labels).unwrap_or_default();
        Some(Settings {
            controllers: self.controllers(),
            kubernetes: self.kubernetes(),
            node_selector: self.selector(flags::NODE_SELECTOR),
            election: self.election(),
            lease: self.lease(),
            nodes: self.nodes(topology_labels),
            node_lifecycle: self.node_lifecycle(),
            routes: self.routes(),
            services: self.services(),
            generic: self.generic(),
            serving: self.serving(),
            authentication: self.authentication(),
            authorization: self.authorization(),
            logging: self.logging(),
            options: self.options.clone(),
            standby: self.standby(),
            provider: provider?,
        })
    }

    fn controllers(&mut self) -> Vec<&'static Controller> {
        catalogue::chosen_controllers(self.options.list(flags::CONTROLLERS)).unwrap_or_else(|names| {
            let known: Vec<_> = catalogue::CONTROLLERS.iter().map(|controller| controller.name).collect();
            let expected = format!("expected *, or of {}", known.join(", "));
            for name in names {
                let reason = format!("{name:?} is not in the list of known controllers; {expected}");
                self.invalid(flags::CONTROLLERS, &name, reason);
            }
            Vec::new()
        })
    }

    fn kubernetes(&mut self) -> client::Settings {
        let master = self.optional(flags::MASTER);
        if let Some(master) = master {
            let shown = without_credentials(master);
            if shown != master {
                let reason = "expected a URL without a user; credentials come from a kubeconfig or a service account";
                self.invalid(flags::MASTER, &shown, reason);
            } else if !is_server_url(master) {
                self.invalid(flags::MASTER, master, "expected a URL such as https://10.0.0.1:6443");
            }
        }
        let kubeconfig = self.kubeconfig(flags::KUBECONFIG);
        if kubeconfig.is_none() && master.is_none() && !self.environment.is_of_pod() {
            self.invalid(flags::KUBECONFIG, "", "expected the path of a kubeconfig, since this is not a pod");
        }
        client::Settings { kubeconfig, master: master.map(str::to_owned), rate: self.rate() }
    }

    /// Returns the client-side rate limit; `None` unless a flag sets it. No limit is needed by default, since API
    /// Priority and Fairness protects the API server.
    fn rate(&mut self) -> Option<client::Rate> {
        let qps = self.options.value(flags::KUBE_API_QPS).items.last();
        let burst = self.options.value(flags::KUBE_API_BURST).items.last();
        if qps.is_none() && burst.is_none() {
            return None;
        }
        let qps = qps.map_or("20", String::as_str);
        let number = qps.parse().ok().filter(|number: &f32| number.is_finite());
        if number.is_none() {
            self.invalid(flags::KUBE_API_QPS, qps, "expected a number such as 20 or 0.5");
        }
        let burst = burst.and_then(|_| self.number(flags::KUBE_API_BURST, "a whole number such as 30"));
        Some(client::Rate { qps: number.unwrap_or_default(), burst: burst.unwrap_or(30) })
    }

    fn selector(&mut self, flag: Flag<&str>) -> Option<String> {
        let selector = self.optional(flag)?;
        if let Err(wrong) = label_selector::check(selector) {
            let expected = format!("{wrong:?} is no requirement; expected a label selector such as pool=blue,!virtual");
            self.invalid(flag, selector, expected);
        }
        Some(selector.to_owned())
    }

    /// Returns the items of a list without spaces around them, and without empty items.
    fn items(&self, flag: Flag<&[String]>) -> impl Iterator<Item = &'a str> + use<'a> {
        self.options.list(flag).iter().map(|item| item.trim()).filter(|item| !item.is_empty())
    }

    /// Returns the text of a flag; `None` if it is empty.
    fn optional<T>(&self, flag: Flag<T>) -> Option<&'a str> {
        Some(self.options.text(flag)).filter(|text| !text.is_empty())
    }

    /// Returns the path of a kubeconfig. Checks the kubeconfig and the files that it names.
    fn kubeconfig(&mut self, flag: Flag<&str>) -> Option<PathBuf> {
        let path = self.optional(flag)?;
        let (files, file) = (self.files, Path::new(path));
        match files.read(file) {
            Err(error) => self.invalid(flag, path, format!("cannot be read: {error}")),
            Ok(content) => {
                let problems = client::check_kubeconfig(file, &content, &|path| files.read(path)).err();
                for problem in problems.unwrap_or_default() {
                    self.invalid(flag, path, problem.to_string());
                }
            }
        }
        Some(PathBuf::from(path))
    }

    fn boolean(&mut self, flag: Flag<bool>) -> bool {
        let value = self.options.boolean(flag);
        if value.is_none() {
            self.invalid(flag, self.options.text(flag), "expected true or false");
        }
        value.unwrap_or_default()
    }

    fn duration(&mut self, flag: Flag<Duration>) -> Option<Duration> {
        let value = self.options.text(flag);
        go_duration::parse_duration(value).map_err(|refused| self.invalid(flag, value, refused.to_string())).ok()
    }

    /// Returns the interval of repeated work. Reports an interval below 1 s.
    fn pause(&mut self, flag: Flag<Duration>) -> Duration {
        let pause = self.duration(flag);
        if pause.is_some_and(|pause| pause < Duration::from_secs(1)) {
            self.invalid(flag, self.options.text(flag), "expected at least 1s");
        }
        pause.unwrap_or_default()
    }

    /// Returns the value that the flag's word selects from `choices`. Reports any other word.
    fn choice<T: Clone>(&mut self, flag: Flag<&str>, choices: &[(&str, T)], expected: &str) -> Option<T> {
        let value = self.options.text(flag);
        let choice = choices.iter().find(|(word, _)| *word == value).map(|(_, choice)| choice.clone());
        if choice.is_none() {
            self.invalid(flag, value, format!("expected {expected}"));
        }
        choice
    }

    fn number<T: std::str::FromStr + Copy>(&mut self, flag: Flag<T>, expected: &str) -> Option<T> {
        let value = self.options.text(flag);
        value.parse().map_err(|_| self.invalid(flag, value, format!("expected {expected}"))).ok()
    }

    /// Records an error. Names the environment variable if the value comes from it.
    fn invalid<T>(&mut self, flag: Flag<T>, value: &str, why: impl Into<String>) {
        let given = self.options.value(flag);
        let place = match given.flag.variable.filter(|_| given.origin == Origin::Environment) {
            Some(variable) => format!("environment variable {variable}={value}"),
            None => format!("{}={value}", given.spelled()),
        };
        self.errors.push(SettingError { place, reason: why.into() });
    }
}

fn is_server_url(text: &str) -> bool {
    // Like client-go, accepts a host without a scheme, which means http.
    text.parse::<http::Uri>().is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()))
}

#[cfg(test)]
pub(in crate::app) mod tests;
