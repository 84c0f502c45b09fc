//! The vSphere provider: builds it and implements [`CloudProvider`].
//!
//! ```text
//!   nodes ──▶ tracker ──searches──▶ inventory (one actor per vCenter) ──▶ clients::{vim, vapi}
//!               │  ▲                    │
//!               ▼  └────snapshots───────┘
//!             board ──▶ instances (the contract) ──▶ controllers
//! ```

pub mod absence;
pub mod addresses;
pub mod config;
pub mod credentials;
pub mod guest_metadata;
pub mod instance_type;
pub mod instances;
pub mod inventory;
pub mod location;
pub mod provider_id;
pub mod tracker;
mod yaml;
pub mod zones;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::config::Config;
use self::credentials::{Login, Offer, Offers};
use self::instances::Instances;
use self::inventory::{Settings, Vcenter};
use self::tracker::Tracker;
use self::tracker::board::Board;
use self::tracker::describe::Rules;
use self::tracker::slots::{Setup, Slot, Source};
use crate::clients::{http, vapi, vim};
use crate::cloud::{CloudProvider, ClusterReads, InstanceEvents, InstancesV2};

/// What the provider takes besides `vsphere.conf`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The path of `vsphere.conf`, for messages.
    pub file: String,
    /// How often tags are polled.
    pub tag_poll: Duration,
    /// Whether a node is matched by name as the Go program does.
    pub allow_name_match: bool,
    /// Whether a machine that this program never saw, and that its node does not record, may be called absent.
    pub trusts_unseen: bool,
}

/// How a vCenter entry is reached and what it has to log in with. Implemented by `app`, which knows the files.
pub trait Connect: Send + Sync {
    /// The client of the entry's server. Nothing is sent.
    ///
    /// # Errors
    /// Why the entry cannot be used.
    fn http(&self, entry: &config::Vcenter) -> Result<http::Client, String>;

    /// The entry's credentials, as they change.
    fn offers(&self, entry: &config::Vcenter) -> Offers;
}

/// The vSphere provider. It spawns nothing: what has to run is handed out as [`Task`]s.
pub struct Provider {
    instances: Arc<Instances>,
    options: Options,
    connect: Arc<dyn Connect>,
    setup: watch::Sender<Arc<Setup>>,
    running: Mutex<Running>,
    stop: CancellationToken,
}

/// What [`Provider::apply`] has to compare a configuration with.
#[derive(Default)]
struct Running {
    entries: BTreeMap<Slot, Entry>,
    next: Slot,
}

#[derive(Clone)]
struct Entry {
    config: config::Vcenter,
    categories: Option<config::ZoneCategories>,
    offer: Arc<Offer>,
    vcenter: Arc<Vcenter>,
    stop: CancellationToken,
}

/// Work that runs until `stop` is cancelled, then ends in order.
pub struct Task {
    /// Its name, for logs.
    pub name: String,
    /// Cancelled when the work is to end: with the provider, or when its vCenter is not configured any more. An end
    /// before that is a mistake in this program.
    pub stop: CancellationToken,
    /// The work.
    pub run: BoxFuture<'static, ()>,
}

/// A configuration that names something this program cannot use.
#[derive(Debug, thiserror::Error)]
#[error("vCenter {key:?}: {problem}")]
pub struct BuildError {
    key: String,
    problem: String,
}

impl Provider {
    /// A provider without any vCenter, and its one task for the nodes. Everything ends with `stop`.
    pub fn new(
        options: Options,
        connect: Arc<dyn Connect>,
        cluster: Arc<dyn ClusterReads>,
        stop: &CancellationToken,
    ) -> (Self, Task) {
        let setup = watch::Sender::default();
        let board = Arc::new(Board::default());
        let tracker = Tracker::new(cluster, setup.subscribe(), Arc::clone(&board));
        let task =
            Task { name: "node-tracker".to_string(), stop: stop.clone(), run: Box::pin(tracker.run(stop.clone())) };
        let instances = Arc::new(Instances::new(board, setup.subscribe(), options.trusts_unseen));
        (Self { instances, options, connect, setup, running: Mutex::default(), stop: stop.clone() }, task)
    }

    /// Works by this configuration from now on; hands out the tasks of vCenters that are new in it. What is configured
    /// as before keeps its session, subscription and snapshot. The task of a vCenter that is not named any more logs out
    /// and ends, and its nodes become *unknown*. No connection is made before the tasks run, so a vCenter that is down
    /// delays nothing.
    ///
    /// # Errors
    /// One for every vCenter entry that cannot be used. Nothing is changed then.
    pub fn apply(&self, config: &Config) -> Result<Vec<Task>, Vec<BuildError>> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = running.next;
        let mut entries = BTreeMap::new();
        let mut tasks = Vec::new();
        let mut errors = Vec::new();
        for entry in &config.vcenters {
            let kept = running.entries.iter().find(|(_, known)| known.serves(entry, config, &self.connect));
            if let Some((slot, known)) = kept {
                entries.insert(*slot, Entry { config: entry.clone(), ..known.clone() });
                continue;
            }
            match self.entry(config, entry) {
                Ok(entry) => {
                    tasks.push(entry.task());
                    entries.insert(next, entry);
                    next += 1;
                }
                Err(problem) => errors.push(BuildError { key: entry.key.clone(), problem }),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        self.setup.send_replace(Arc::new(self.setup_of(config, &entries)));
        for (_, removed) in running.entries.iter().filter(|(slot, _)| !entries.contains_key(slot)) {
            removed.stop.cancel();
        }
        *running = Running { entries, next };
        Ok(tasks)
    }

    fn setup_of(&self, config: &Config, entries: &BTreeMap<Slot, Entry>) -> Setup {
        let source = |entry: &Entry| Source {
            vcenter: Arc::clone(&entry.vcenter),
            datacenters: entry.config.datacenters.clone(),
        };
        let rules = Rules {
            addresses: config.addresses.clone(),
            families: entries.iter().map(|(slot, entry)| (*slot, entry.config.ip_families.clone())).collect(),
            categories: config.labels.clone(),
            allow_name_match: self.options.allow_name_match,
        };
        let sources = entries.iter().map(|(slot, entry)| (*slot, source(entry))).collect();
        Setup { sources, rules, file: self.options.file.clone() }
    }

    fn entry(&self, config: &Config, entry: &config::Vcenter) -> Result<Entry, String> {
        let offer = Arc::clone(&self.connect.offers(entry).borrow());
        let (user, password) = match offer.as_ref() {
            Offer::Ready(credentials) => credentials
                .iter()
                .find_map(|credential| match &credential.login {
                    Login::Password { user, password } => Some((user.clone(), password.clone())),
                    Login::Certificate { .. } | Login::SharedSession { .. } => None,
                })
                .ok_or("expected user and password")?,
            Offer::Pending { why } | Offer::Missing { why } => return Err(why.clone()),
        };
        let http = self.connect.http(entry)?;
        let host = if entry.server.contains(':') { format!("[{}]", entry.server) } else { entry.server.clone() };
        let settings = Settings {
            key: entry.key.clone(),
            server: format!("{host}:{}", entry.port),
            user,
            password,
            datacenters: entry.datacenters.clone(),
            categories: config.labels.clone(),
            tag_poll: self.options.tag_poll,
        };
        let vcenter = Vcenter::new(settings, vim::Client::new(http.clone()), vapi::Client::new(http));
        let stop = self.stop.child_token();
        Ok(Entry { config: entry.clone(), categories: config.labels.clone(), offer, vcenter, stop })
    }

    /// The state of each vCenter: its server, and why it does not answer if it does not.
    pub fn vcenters(&self) -> Vec<(String, Option<String>)> {
        let state = |source: &Source| source.vcenter.snapshot().freshness.trouble().map(String::from);
        let setup = Arc::clone(&self.setup.borrow());
        setup.sources.values().map(|source| (source.vcenter.settings().server.clone(), state(source))).collect()
    }
}

impl Entry {
    /// Whether this session serves `entry`, too.
    fn serves(&self, entry: &config::Vcenter, config: &Config, connect: &Arc<dyn Connect>) -> bool {
        let own = &self.config;
        own.key == entry.key
            && own.server == entry.server
            && own.port == entry.port
            && self.offer == *connect.offers(entry).borrow()
            && self.categories == config.labels
    }

    fn task(&self) -> Task {
        let run = Arc::clone(&self.vcenter).run(self.stop.clone());
        Task { name: format!("vcenter-{}", self.config.key), stop: self.stop.clone(), run: Box::pin(run) }
    }
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

#[cfg(test)]
mod tests;
