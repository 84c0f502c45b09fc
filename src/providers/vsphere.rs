//! The vSphere provider: builds it and implements [`CloudProvider`].
//!
//! ```text
//!   nodes ──▶ tracker ──searches──▶ inventory (one actor per vCenter) ──▶ clients::{vim, vapi}
//!               │  ▲                    │
//!               ▼  └────snapshots───────┘
//!             board ──▶ instances (the contract) ──▶ controllers
//! ```

pub mod addresses;
pub mod config;
pub mod credentials;
pub mod guest_metadata;
pub mod instance_type;
pub mod instances;
pub mod inventory;
pub mod provider_id;
pub mod tracker;
mod yaml;
pub mod zones;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use self::config::{Config, Credentials};
use self::instances::Instances;
use self::inventory::{Settings, Vcenter};
use self::tracker::Tracker;
use self::tracker::board::Board;
use self::tracker::describe::Rules;
use crate::clients::{http, vapi, vim};
use crate::cloud::{CloudProvider, ClusterReads, InstanceEvents, InstancesV2};

/// What the provider takes besides `vsphere.conf`.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often tags are polled.
    pub tag_poll: Duration,
    /// Whether a node is matched by name as the Go program does.
    pub allow_name_match: bool,
}

/// The vSphere provider.
pub struct Provider {
    instances: Arc<Instances>,
    vcenters: Vec<Arc<Vcenter>>,
}

/// A named task that runs until the stop signal, then ends in order.
pub type Task = (String, BoxFuture<'static, ()>);

/// A configuration that names something this program cannot use.
#[derive(Debug, thiserror::Error)]
#[error("vCenter {key:?}: {problem}")]
pub struct BuildError {
    key: String,
    problem: String,
}

impl Provider {
    /// Builds the provider and its background work: one task per vCenter and one for the nodes. No connection is made
    /// before they run, so a vCenter that is down delays nothing.
    ///
    /// # Errors
    /// One for every vCenter entry that cannot be used.
    pub fn build(
        config: &Config,
        options: &Options,
        connect: impl Fn(&config::Vcenter) -> Result<(http::Client, http::Client), String>,
        cluster: Arc<dyn ClusterReads>,
        stop: &CancellationToken,
    ) -> Result<(Self, Vec<Task>), Vec<BuildError>> {
        let mut vcenters = Vec::new();
        let mut errors = Vec::new();
        for entry in &config.vcenters {
            match vcenter(config, options, entry, &connect) {
                Ok(vcenter) => vcenters.push(vcenter),
                Err(problem) => errors.push(BuildError { key: entry.key.clone(), problem }),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let board = Arc::new(Board::default());
        let rules = Rules {
            addresses: config.addresses.clone(),
            families: config.vcenters.iter().map(|entry| entry.ip_families.clone()).collect(),
            categories: config.labels.clone(),
            allow_name_match: options.allow_name_match,
        };
        let tracker = Tracker::new(vcenters.clone(), cluster, rules, Arc::clone(&board));
        let mut tasks: Vec<Task> = vec![("node-tracker".to_string(), Box::pin(tracker.run(stop.clone())))];
        for vcenter in &vcenters {
            let name = format!("vcenter-{}", vcenter.settings().key);
            tasks.push((name, Box::pin(Arc::clone(vcenter).run(stop.clone()))));
        }
        let instances = Arc::new(Instances::new(board, vcenters.clone()));
        Ok((Self { instances, vcenters }, tasks))
    }

    /// The state of each vCenter: its server, and why it does not answer if it does not.
    pub fn vcenters(&self) -> Vec<(String, Option<String>)> {
        let state = |vcenter: &Arc<Vcenter>| vcenter.snapshot().freshness.trouble().map(String::from);
        self.vcenters.iter().map(|vcenter| (vcenter.settings().server.clone(), state(vcenter))).collect()
    }
}

fn vcenter(
    config: &Config,
    options: &Options,
    entry: &config::Vcenter,
    connect: impl Fn(&config::Vcenter) -> Result<(http::Client, http::Client), String>,
) -> Result<Arc<Vcenter>, String> {
    let Credentials::Inline { user, password } = &entry.credentials else {
        return Err("credentials in a Secret or a directory are not supported yet; expected user and password in the \
                    cloud config"
            .to_string());
    };
    let (soap, rest) = connect(entry)?;
    let host = if entry.server.contains(':') { format!("[{}]", entry.server) } else { entry.server.clone() };
    let settings = Settings {
        key: entry.key.clone(),
        server: format!("{host}:{}", entry.port),
        user: user.clone(),
        password: password.clone(),
        datacenters: entry.datacenters.clone(),
        categories: config.labels.clone(),
        tag_poll: options.tag_poll,
    };
    Ok(Vcenter::new(settings, vim::Client::new(soap), vapi::Client::new(rest)))
}

impl CloudProvider for Provider {
    fn provider_name(&self) -> &'static str {
        provider_id::SCHEME
    }

    fn owns_provider_id(&self, provider_id: &str) -> bool {
        provider_id::is_own(provider_id)
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(self.instances.clone())
    }

    fn instance_events(&self) -> Option<Arc<dyn InstanceEvents>> {
        Some(self.instances.clone())
    }
}
