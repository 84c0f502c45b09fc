//! Flags joined, defaulted and checked, with the files they name. All mistakes are reported at once.

mod access;
mod election;
mod gates;
mod generic;
mod label_selector;
pub mod leader_migration;
mod log;
mod mistakes;
mod node_labels;
mod nodes;
mod provider;
mod serving;
pub mod vsphere;

use super::catalogue::{self, Controller};
use super::files::{Files, SystemFiles};
use super::options::values::without_credentials;
use super::options::{Options, Origin, Value};
use crate::base::go_duration;
use crate::controllers::{node, node_lifecycle};
use crate::kubernetes::access::{Authentication, Authorization};
use crate::kubernetes::client;
use crate::providers::vsphere::config::Environment;
use crate::runtime::{admin, logging};
pub use election::{Election, LeaseName, Standby};
pub use gates::FeatureGates;
pub use generic::Generic;
pub use mistakes::{Mistake, Mistakes};
pub use nodes::NodeRules;
pub use provider::ProviderSettings;
use std::path::{Path, PathBuf};
use std::time::Duration;
pub use vsphere::Vsphere;

/// Everything the daemon is told, and true as far as that can be known without a network.
#[derive(Debug)]
pub struct Settings {
    /// How to reach the API server.
    pub kubernetes: client::Settings,
    /// Which nodes are looked after, a label selector; `None` is all.
    pub node_selector: Option<String>,
    /// How to share the work with other replicas; `None` is a single process.
    pub election: Option<Election>,
    /// The Lease that Events about this process refer to, also without an election.
    pub lease: LeaseName,
    /// The cloud provider.
    pub provider: ProviderSettings,
    /// Controllers to run, among them such as are not built yet.
    pub controllers: Vec<&'static Controller>,
    /// The node controller.
    pub nodes: node::Settings,
    /// The node-lifecycle controller.
    pub node_lifecycle: node_lifecycle::Settings,
    /// The flags that belong to no single part.
    pub generic: Generic,
    /// How to serve probes, metrics and the other pages; `None` is not at all.
    pub serving: Option<admin::Settings>,
    /// Who asks at the secure port.
    pub authentication: Authentication,
    /// What they may.
    pub authorization: Authorization,
    /// The log.
    pub logging: logging::Settings,
    /// The flags as typed, for those who show them; nothing is decided by them.
    pub options: Options,
    /// What this process does while it does not lead.
    pub standby: Standby,
}

/// Joins and checks the flags, and reads and checks the files they name.
///
/// # Errors
/// All mistakes, each with where it is, what was written and what is expected.
pub fn settle(options: &Options, files: &dyn Files, environment: &Environment) -> Result<Settings, Mistakes> {
    let mut check = Check { options, files, environment, mistakes: Vec::new() };
    match (check.settings(), check.mistakes) {
        (Some(settings), mistakes) if mistakes.is_empty() => Ok(settings),
        (_, mistakes) => Err(Mistakes(mistakes)),
    }
}

/// The log alone; known before the other settings, since those are logged. A mistake in its flags is told by
/// [`settle`], and the log is the default one until then.
pub fn of_the_log(options: &Options) -> logging::Settings {
    let environment = Environment::default();
    let mut check = Check { options, files: &SystemFiles, environment: &environment, mistakes: Vec::new() };
    check.logging().filter(|_| check.mistakes.is_empty()).unwrap_or_default()
}

/// The flags, and what has been found wrong so far.
struct Check<'a> {
    options: &'a Options,
    files: &'a dyn Files,
    environment: &'a Environment,
    mistakes: Vec<Mistake>,
}

impl<'a> Check<'a> {
    /// `None` when something is missing that a mistake tells of. Every part is looked at before the first is missed.
    fn settings(&mut self) -> Option<Settings> {
        let provider = self.provider();
        let controllers = self.controllers();
        let kubernetes = self.kubernetes();
        let node_selector = self.node_selector();
        let election = self.election();
        let nodes = self.nodes();
        let node_lifecycle = self.node_lifecycle();
        let generic = self.generic();
        let serving = self.serving();
        let authentication = self.authentication();
        let authorization = self.authorization();
        let logging = self.logging();
        let standby = self.standby();
        Some(Settings {
            provider: provider?,
            kubernetes: kubernetes?,
            node_selector,
            election: election?,
            lease: self.lease(),
            controllers: controllers?,
            nodes: nodes?,
            node_lifecycle: node_lifecycle?,
            generic: generic?,
            serving: serving?,
            authentication: authentication?,
            authorization: authorization?,
            logging: logging?,
            options: self.options.clone(),
            standby: standby?,
        })
    }

    fn controllers(&mut self) -> Option<Vec<&'static Controller>> {
        catalogue::chosen_controllers(self.options.list("controllers"))
            .map_err(|names| {
                let known: Vec<_> = catalogue::CONTROLLERS.iter().map(|controller| controller.name).collect();
                let known = known.join(", ");
                for name in names {
                    self.wrong::<()>(
                        "controllers",
                        &name,
                        format!("{name:?} is not in the list of known controllers; expected *, or of {known}"),
                    );
                }
            })
            .ok()
    }

    fn kubernetes(&mut self) -> Option<client::Settings> {
        let master = self.optional("master");
        if let Some(master) = master {
            let shown = without_credentials(master);
            if shown != master {
                let why = "expected a URL without a user; credentials come from a kubeconfig or a service account";
                self.wrong::<()>("master", &shown, why);
            } else if !is_server_url(master) {
                self.wrong::<()>("master", master, "expected a URL such as https://10.0.0.1:6443");
            }
        }
        let (kubeconfig, rate) = (self.readable("kubeconfig"), self.rate());
        Some(client::Settings { kubeconfig: kubeconfig?, master: master.map(str::to_owned), rate })
    }

    /// Only when a flag asks for it: the API server has priority and fairness of its own.
    fn rate(&mut self) -> Option<client::Rate> {
        let given = |name| self.options.list(name).last();
        let (qps, burst) = (given("kube-api-qps"), given("kube-api-burst"));
        if qps.is_none() && burst.is_none() {
            return None;
        }
        let qps = qps.map_or("20", String::as_str);
        let qps = match qps.parse::<f32>() {
            Ok(number) if number.is_finite() => Some(number),
            _ => self.wrong("kube-api-qps", qps, "expected a number such as 20 or 0.5"),
        };
        let burst = match burst {
            Some(_) => self.number("kube-api-burst", "a whole number such as 30"),
            None => Some(30),
        };
        Some(client::Rate { qps: qps?, burst: burst? })
    }

    fn node_selector(&mut self) -> Option<String> {
        let selector = self.optional("node-selector")?;
        if let Err(wrong) = label_selector::check(selector) {
            let expected = format!("{wrong:?} is no requirement; expected a label selector such as pool=blue,!virtual");
            self.wrong::<()>("node-selector", selector, expected);
        }
        Some(selector.to_owned())
    }

    /// The text of a flag, unless it is empty.
    fn optional(&self, flag: &str) -> Option<&'a str> {
        Some(self.options.text(flag)).filter(|text| !text.is_empty())
    }

    /// The path of a file that can be read; `Some(None)` is no file.
    fn readable(&mut self, flag: &str) -> Option<Option<PathBuf>> {
        let Some(path) = self.optional(flag) else { return Some(None) };
        match self.files.read(Path::new(path)) {
            Ok(_) => Some(Some(PathBuf::from(path))),
            Err(error) => self.wrong(flag, path, format!("cannot be read: {error}")),
        }
    }

    fn boolean(&mut self, flag: &str) -> Option<bool> {
        let value = self.options.text(flag);
        boolean(value).or_else(|| self.wrong(flag, value, "expected true or false"))
    }

    fn duration(&mut self, flag: &str) -> Option<Duration> {
        let value = self.options.text(flag);
        go_duration::parse_duration(value).map_err(|refused| self.wrong::<()>(flag, value, refused.to_string())).ok()
    }

    /// A duration between repeated work: not so short that it never rests.
    fn pause(&mut self, flag: &str) -> Option<Duration> {
        match self.duration(flag)? {
            pause if pause < Duration::from_secs(1) => {
                self.wrong(flag, self.options.text(flag), "expected at least 1s")
            }
            pause => Some(pause),
        }
    }

    /// The one of these words that is given.
    fn choice<T: Clone>(&mut self, flag: &str, choices: &[(&str, T)], expected: &str) -> Option<T> {
        let value = self.options.text(flag);
        let choice = choices.iter().find(|(word, _)| *word == value).map(|(_, choice)| choice.clone());
        choice.or_else(|| self.wrong(flag, value, format!("expected {expected}")))
    }

    fn number<T: std::str::FromStr>(&mut self, flag: &str, expected: &str) -> Option<T> {
        let value = self.options.text(flag);
        value.parse().map_or_else(|_| self.wrong(flag, value, format!("expected {expected}")), Some)
    }

    /// Notes a mistake; there is no value then. Who gave a variable and no flag looks for the variable.
    fn wrong<T>(&mut self, flag: &str, value: &str, why: impl Into<String>) -> Option<T> {
        let given = self.options.value(flag);
        let variable = given.filter(|given| given.origin == Origin::Environment).and_then(|given| given.flag.variable);
        let place = match variable {
            Some(variable) => format!("environment variable {variable}={value}"),
            None => format!("{}={value}", given.map_or_else(|| flag.to_owned(), Value::spelled)),
        };
        self.mistakes.push(Mistake { place, why: why.into() });
        None
    }
}

/// As Go's `strconv.ParseBool`.
pub(in crate::app) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn is_server_url(text: &str) -> bool {
    // As client-go, a host without a scheme is taken for http.
    text.parse::<http::Uri>().is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()))
}

#[cfg(test)]
pub(in crate::app) mod tests;
