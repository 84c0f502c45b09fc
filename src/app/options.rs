//! Flags exactly as typed. Needs no file, no network and no other flag: what they mean together is `settings`.

mod authentication;
mod authorization;
mod debugging;
mod generic;
mod leader_migration;
mod logging;
mod node_workers;
pub mod notes;
mod other_provider;
mod services;
mod serving;
mod spelling;
pub mod values;
mod webhook;

use crate::base::csv;
use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Command, CommandFactory, FromArgMatches, Parser};
use std::ffi::{OsStr, OsString};

pub use authentication::Authentication;
pub use authorization::Authorization;
pub use debugging::Debugging;
pub use generic::Generic;
pub use leader_migration::LeaderMigration;
pub use logging::Logging;
pub use node_workers::NodeWorkers;
pub use other_provider::OtherProvider;
pub use services::Services;
pub use serving::Serving;
pub use values::{Origin, Value};
pub use webhook::Webhook;

/// The name of the program, as `--version` prints it.
pub const PROGRAM: &str = "vsphere-cloud-controller-manager";

const GENERIC: &str = "Generic flags";
const NODES: &str = "Cloud-node-controller flags";
const MISC: &str = "Misc flags";
const GLOBAL: &str = "Global flags";
const OURS: &str = "Flags the Go program does not have (each also an environment variable, which it ignores)";

/// The flags, as text. A value that was typed is not checked here, so that all mistakes can be told at once.
#[derive(Debug, Clone, Parser)]
#[command(
    name = PROGRAM,
    about = "Connects a Kubernetes cluster to vSphere: initialises nodes from vCenter and keeps them up to date.",
    override_usage = "vsphere-cloud-controller-manager [flags]",
    disable_help_flag = true,
    disable_version_flag = true,
    args_override_self = true,
    next_line_help = true,
    term_width = 110,
    color = clap::ColorChoice::Never
)]
pub struct Options {
    /// See [`Debugging`].
    #[command(flatten)]
    pub debugging: Debugging,

    /// See [`LeaderMigration`].
    #[command(flatten)]
    pub leader_migration: LeaderMigration,

    /// See [`Generic`].
    #[command(flatten)]
    pub generic: Generic,

    /// Path of vsphere.conf, INI or YAML
    #[arg(long, help_heading = GENERIC, value_name = "PATH", allow_hyphen_values = true)]
    pub cloud_config: Option<String>,

    /// The cloud provider
    #[arg(long, help_heading = GENERIC, value_name = "NAME", default_value = "vsphere", allow_hyphen_values = true)]
    pub cloud_provider: String,

    /// Controllers to run, comma separated: * is all that are on by default, foo turns foo on, -foo turns it off; the
    /// first mention of a name wins
    #[arg(long, help_heading = GENERIC, value_name = "NAMES", default_value = "*", action = ArgAction::Append, allow_hyphen_values = true)]
    pub controllers: Vec<String>,

    /// Writes per second to the API server; without this flag and the next there is no limit on this side
    #[arg(long, help_heading = GENERIC, value_name = "NUMBER", allow_hyphen_values = true)]
    pub kube_api_qps: Option<String>,

    /// Writes to the API server that may follow each other at once after a pause
    #[arg(long, help_heading = GENERIC, value_name = "NUMBER", allow_hyphen_values = true)]
    pub kube_api_burst: Option<String>,

    /// Work only while holding the Lease; turn it off for a single process only
    #[arg(long, help_heading = GENERIC, value_name = "BOOL", default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub leader_elect: String,

    /// How long others wait after the last renewal they saw before they take over
    #[arg(long, help_heading = GENERIC, value_name = "DURATION", default_value = "15s", allow_hyphen_values = true)]
    pub leader_elect_lease_duration: String,

    /// How long a leader tries to renew before it stops; shorter than the lease duration
    #[arg(long, help_heading = GENERIC, value_name = "DURATION", default_value = "10s", allow_hyphen_values = true)]
    pub leader_elect_renew_deadline: String,

    /// Pause between attempts to get or renew the Lease
    #[arg(long, help_heading = GENERIC, value_name = "DURATION", default_value = "2s", allow_hyphen_values = true)]
    pub leader_elect_retry_period: String,

    /// Kind of the lock; leases is the only one
    #[arg(long, help_heading = GENERIC, value_name = "KIND", default_value = "leases", allow_hyphen_values = true)]
    pub leader_elect_resource_lock: String,

    /// Name of the Lease
    #[arg(long, help_heading = GENERIC, value_name = "NAME", default_value = "cloud-controller-manager", allow_hyphen_values = true)]
    pub leader_elect_resource_name: String,

    /// Namespace of the Lease
    #[arg(long, help_heading = GENERIC, value_name = "NAME", default_value = "kube-system", allow_hyphen_values = true)]
    pub leader_elect_resource_namespace: String,

    /// See [`NodeWorkers`].
    #[command(flatten)]
    pub node_workers: NodeWorkers,

    /// Nodes that are worked on at the same time
    #[arg(long, help_heading = NODES, value_name = "NUMBER", default_value = "16", allow_hyphen_values = true)]
    pub concurrent_node_syncs: String,

    /// Labels that a node gets when it is initialised, key=value,...; one that it has already stays as it is
    #[arg(long, help_heading = NODES, value_name = "LABELS", action = ArgAction::Append, allow_hyphen_values = true)]
    pub node_labels: Vec<String>,

    /// See [`Services`].
    #[command(flatten)]
    pub services: Services,

    /// See [`Webhook`].
    #[command(flatten)]
    pub webhook: Webhook,

    /// See [`Serving`].
    #[command(flatten)]
    pub serving: Serving,

    /// See [`Authentication`].
    #[command(flatten)]
    pub authentication: Authentication,

    /// See [`Authorization`].
    #[command(flatten)]
    pub authorization: Authorization,

    /// See [`OtherProvider`].
    #[command(flatten)]
    pub other_provider: OtherProvider,

    /// Path of a kubeconfig; without it and --master the service account of the pod is used
    #[arg(long, help_heading = MISC, value_name = "PATH", allow_hyphen_values = true)]
    pub kubeconfig: Option<String>,

    /// Address of the API server; goes before the one in the kubeconfig
    #[arg(long, help_heading = MISC, value_name = "URL", allow_hyphen_values = true)]
    pub master: Option<String>,

    /// Pause between two looks at every node that is not ready, beside the events
    #[arg(long, help_heading = GENERIC, value_name = "DURATION", default_value = "5s", allow_hyphen_values = true)]
    pub node_monitor_period: String,

    /// Pause between two looks at every node, beside the events
    #[arg(long, help_heading = MISC, value_name = "DURATION", default_value = "5m0s", allow_hyphen_values = true)]
    pub node_status_update_frequency: String,

    /// See [`Logging`].
    #[command(flatten)]
    pub logging: Logging,

    /// Print the version and exit; vX.Y.Z is printed instead of it
    #[arg(long, help_heading = GLOBAL, value_name = "FORM", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub version: String,

    /// Print this text and exit
    #[arg(short = 'h', long, help_heading = GLOBAL, action = ArgAction::Help)]
    help: Option<bool>,

    /// Initialise also nodes without provider ID and without the taint, by their systemUUID alone
    #[arg(long, help_heading = OURS, value_name = "BOOL", env = "CCM_ADOPT_UNTAINTED_NODES", hide_env_values = true, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub adopt_untainted_nodes: String,

    /// Take a VM that was found by its name alone even if its UUID contradicts the node's or it backs another node
    #[arg(long, help_heading = OURS, value_name = "BOOL", env = "CCM_ALLOW_NAME_MATCH", hide_env_values = true, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub allow_name_match: String,

    /// An address that several machines have, or the API server, is a node's only if it has no other
    #[arg(long, help_heading = OURS, value_name = "BOOL", env = "CCM_DEMOTE_VIRTUAL_IPS", hide_env_values = true, default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub demote_virtual_ips: String,

    /// Whether the instance type stays as it was at initialisation (init) or follows the machine (follow)
    #[arg(long, help_heading = OURS, value_name = "WORD", env = "CCM_INSTANCE_TYPE", hide_env_values = true, default_value = "init", allow_hyphen_values = true)]
    pub instance_type: String,

    /// Whether Nodes whose machine is proved to be gone are deleted (enforce), only told (dry-run) or neither (off)
    #[arg(long, help_heading = OURS, value_name = "WORD", env = "CCM_NODE_DELETION", hide_env_values = true, default_value = "enforce", allow_hyphen_values = true)]
    pub node_deletion: String,

    /// How long a node has to be Ready=Unknown and its machine proved to be gone before its Node is deleted
    #[arg(long, help_heading = OURS, value_name = "DURATION", env = "CCM_NODE_DELETION_GRACE", hide_env_values = true, default_value = "30s", allow_hyphen_values = true)]
    pub node_deletion_grace: String,

    /// How many Nodes may be deleted: the larger of a number and a share of all nodes, within a time
    #[arg(long, help_heading = OURS, value_name = "LIMIT", env = "CCM_NODE_DELETION_LIMIT", hide_env_values = true, default_value = "5,10%,10m", allow_hyphen_values = true)]
    pub node_deletion_limit: String,

    /// How long no Node is deleted after many machines have gone at once
    #[arg(long, help_heading = OURS, value_name = "DURATION", env = "CCM_NODE_DELETION_MASS_HOLD", hide_env_values = true, default_value = "15m", allow_hyphen_values = true)]
    pub node_deletion_mass_hold: String,

    /// Whether a Node whose machine was never seen stays (hold) or is deleted like others (enforce)
    #[arg(long, help_heading = OURS, value_name = "WORD", env = "CCM_NODE_DELETION_UNSEEN", hide_env_values = true, default_value = "hold", allow_hyphen_values = true)]
    pub node_deletion_unseen: String,

    /// Label selector of the nodes to look after; empty is all
    #[arg(long, help_heading = OURS, value_name = "SELECTOR", env = "CCM_NODE_SELECTOR", hide_env_values = true, allow_hyphen_values = true)]
    pub node_selector: Option<String>,

    /// Taint a node as out of service once it has been Ready=Unknown and its VM powered off for this long; without it, or with 0, never
    #[arg(long, help_heading = OURS, value_name = "DURATION", env = "CCM_OUT_OF_SERVICE_AFTER", hide_env_values = true, allow_hyphen_values = true)]
    pub out_of_service_after: Option<String>,

    /// Hosts of session managers that are allowed, comma separated; they can receive the service account's token; empty is any
    #[arg(long, help_heading = OURS, value_name = "NAMES", env = "CCM_SESSION_MANAGER_HOSTS", hide_env_values = true, action = ArgAction::Append, allow_hyphen_values = true)]
    pub session_manager_hosts: Vec<String>,

    /// Whether a process that does not lead keeps its vCenter sessions and inventory (warm) or has none (cold)
    #[arg(long, help_heading = OURS, value_name = "WORD", env = "CCM_STANDBY", hide_env_values = true, default_value = "warm", allow_hyphen_values = true)]
    pub standby: String,

    /// Pause between two looks at the tags of vCenter
    #[arg(long, help_heading = OURS, value_name = "DURATION", env = "CCM_TAG_POLL_INTERVAL", hide_env_values = true, default_value = "60s", allow_hyphen_values = true)]
    pub tag_poll_interval: String,

    /// What the names of the labels of --topology-labels begin with
    #[arg(long, help_heading = OURS, value_name = "PREFIX", env = "CCM_TOPOLOGY_LABEL_PREFIX", hide_env_values = true, default_value = "topology.vsphere-ccm.dev/", allow_hyphen_values = true)]
    pub topology_label_prefix: String,

    /// Labels that say where a node's machine is and follow it, comma separated: vcenter, datacenter, cluster, esxi-host, resource-pool, folder, datastore
    #[arg(long, help_heading = OURS, value_name = "NAMES", env = "CCM_TOPOLOGY_LABELS", hide_env_values = true, action = ArgAction::Append, allow_hyphen_values = true)]
    pub topology_labels: Vec<String>,

    /// Whether zone and region stay as they were at initialisation (init), are added to nodes that have neither (fill), or follow the machine (follow)
    #[arg(long, help_heading = OURS, value_name = "WORD", env = "CCM_ZONE_LABELS", hide_env_values = true, default_value = "init", allow_hyphen_values = true)]
    pub zone_labels: String,

    /// Every flag with its value and where that is from, by name.
    #[arg(skip)]
    pub values: Vec<Value>,
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Asked {
    /// The daemon with these flags.
    Run(Box<Options>),
    /// A text on standard output, then success.
    Print(String),
}

/// Why the command line was not understood; what is told ends with how to get help.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misspelled {
    /// A flag that does not exist, with the nearest that does.
    #[error("unknown flag: {flag}{}\nfor all flags: {PROGRAM} --help", nearest.as_ref().map_or(String::new(), |name| format!("; did you mean {name}?")))]
    UnknownFlag {
        /// As typed.
        flag: String,
        /// The name it resembles most.
        nearest: Option<String>,
    },
    /// Something that is not a flag.
    #[error("{PROGRAM:?} does not take any arguments, got {0:?}\nfor all flags: {PROGRAM} --help")]
    Argument(String),
    /// A flag without the value it needs.
    #[error("flag needs a value: {0}\nfor all flags: {PROGRAM} --help")]
    NoValue(String),
    /// Anything else; the parser's own words.
    #[error("{0}\nfor all flags: {PROGRAM} --help")]
    Other(String),
}

/// The flags by group, in the order of the Go program: groups as it has them, flags by name.
pub fn command() -> Command {
    let command = Options::command();
    let mut names: Vec<_> = command.get_arguments().map(|flag| flag.get_id().clone()).collect();
    names.sort();
    command.mut_args(|flag| {
        let place = names.iter().position(|name| name == flag.get_id()).unwrap_or_default();
        let defaults = flag.get_default_values();
        let has_empty_default = !defaults.is_empty() && defaults.iter().all(|value| value.is_empty());
        flag.display_order(place).hide_default_value(has_empty_default)
    })
}

/// Reads a command line, the program's name first, and the environment variables of our own flags; an empty one counts
/// as none. What is deprecated is told by [`Options::deprecations`].
///
/// # Errors
/// A command line that is not only known flags. Values are not looked at.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Asked, Misspelled> {
    let arguments = spelling::as_dashes(arguments);
    if let Some((place, argument)) = arguments.iter().enumerate().find(|(_, argument)| argument.to_str().is_none()) {
        return Err(Misspelled::Other(format!(
            "argument {place} is not text in UTF-8: {:?}",
            argument.to_string_lossy()
        )));
    }
    let mut command = without_empty_variables(command())?;
    let names: Vec<String> = command.get_arguments().filter_map(|flag| flag.get_long()).map(str::to_owned).collect();
    match command.try_get_matches_from_mut(arguments) {
        Ok(matches) => {
            let mut options =
                Options::from_arg_matches(&matches).map_err(|error| Misspelled::Other(first_line(&error)))?;
            options.values = values::of(&command, &matches);
            options.split_lists();
            Ok(match printed_version(&options.version)? {
                None => Asked::Run(Box::new(options)),
                Some(version) => Asked::Print(format!("{PROGRAM} {version}\n")),
            })
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            Ok(Asked::Print(self::command().render_help().to_string()))
        }
        Err(error) => Err(misspelled(&error, &names)),
    }
}

/// A manifest may name every variable and leave some empty.
fn without_empty_variables(command: Command) -> Result<Command, Misspelled> {
    let mut wrong = None;
    let command = command.mut_args(|flag| {
        let variable = flag.get_env().map(OsStr::to_owned);
        match variable.as_ref().and_then(std::env::var_os) {
            Some(value) if value.is_empty() => flag.env(Resettable::Reset),
            Some(value) if value.to_str().is_none() => {
                wrong = variable;
                flag
            }
            _ => flag,
        }
    });
    match wrong {
        Some(variable) => {
            let name = variable.to_string_lossy();
            Err(Misspelled::Other(format!("the environment variable {name} is not text in UTF-8")))
        }
        None => Ok(command),
    }
}

/// What `--version` prints, if it asks for that: the version of this program, or the one it is told to report.
fn printed_version(asked: &str) -> Result<Option<&str>, Misspelled> {
    match asked {
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(None),
        "1" | "t" | "T" | "true" | "TRUE" | "True" | "raw" => Ok(Some(env!("CARGO_PKG_VERSION"))),
        _ if asked.strip_prefix('v').is_some_and(|rest| rest.starts_with(|char: char| char.is_ascii_digit())) => {
            Ok(Some(asked))
        }
        _ => {
            Err(Misspelled::Other(format!("--version={asked}: expected true, false, raw or a version such as v1.2.3")))
        }
    }
}

impl Options {
    /// The flags that are read as Go reads its string slices: one value is a line of comma separated values. An empty
    /// item is dropped, so that `--flag=` clears the default.
    fn split_lists(&mut self) {
        let Self { controllers, session_manager_hosts, topology_labels, webhook, serving, authorization, .. } = self;
        let lists = [
            controllers,
            session_manager_hosts,
            topology_labels,
            &mut webhook.webhooks,
            &mut webhook.webhook_tls_cipher_suites,
            &mut webhook.webhook_tls_curve_preferences,
            &mut serving.tls_cipher_suites,
            &mut serving.tls_curve_preferences,
            &mut authorization.authorization_always_allow_paths,
        ];
        for list in lists {
            *list = list.iter().flat_map(|line| csv::fields(line)).filter(|item| !item.is_empty()).collect();
        }
    }

    /// What is told on standard error about flags that will go, as Go's flag package tells it.
    pub fn deprecations(&self) -> Vec<String> {
        let hint = |name: &str| notes::DEPRECATED.iter().find(|(flag, _)| *flag == name).map(|(_, hint)| *hint);
        let given = self.values.iter().filter(|value| value.origin == Origin::CommandLine);
        let told = given
            .filter_map(|value| Some(format!("Flag --{} has been deprecated, {}", value.name, hint(&value.name)?)));
        told.collect()
    }

    /// The flags that somebody set to something else than their default although they change nothing, and why not.
    pub fn without_effect(&self) -> Vec<(String, &'static str)> {
        let changed = self.values.iter().filter(|value| value.is_changed());
        changed.filter_map(|value| Some((value.flag(), notes::without_effect(&value.name)?))).collect()
    }
}

fn misspelled(error: &clap::Error, names: &[String]) -> Misspelled {
    let typed = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(typed)) => typed.clone(),
        _ => return Misspelled::Other(first_line(error)),
    };
    match error.kind() {
        ErrorKind::UnknownArgument if typed.starts_with('-') => {
            let nearest = spelling::nearest(&typed, names).map(|name| format!("--{name}"));
            Misspelled::UnknownFlag { flag: typed, nearest }
        }
        ErrorKind::UnknownArgument => Misspelled::Argument(typed),
        ErrorKind::InvalidValue | ErrorKind::NoEquals => {
            Misspelled::NoValue(typed.split([' ', '=']).next().unwrap_or_default().to_owned())
        }
        _ => Misspelled::Other(first_line(error)),
    }
}

fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests;
