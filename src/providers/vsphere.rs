//! The vSphere provider: builds it and implements [`CloudProvider`].
//!
//! ```text
//!   Nodes ──▶ lookup ──searches──▶ vcenter (one actor per vCenter) ──▶ clients::{vim, vapi}
//!               │  ▲                    │
//!               ▼  └────snapshots───────┘
//!             board ──▶ instances (the contract) ──▶ controllers
//! ```

pub mod config;
pub mod login;
pub mod nodes;
pub mod nsx;
pub mod reason;
pub mod vcenter;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use self::config::Config;
use self::login::credentials::Offers;
use self::nodes::instances::Instances;
use self::nodes::lookup::Tracker;
use self::nodes::lookup::instance_cache::InstanceCache;
use self::nodes::lookup::vcenters::{TrackerConfig, VcenterSource};
use self::nodes::metadata::MetadataRules;
use self::nodes::metadata::topology::TopologyLabels;
use self::nsx::UsableAddressesOf;
use self::nsx::services::{self, RoutesPart};
use self::vcenter::session::{PROBES, SessionStatus, Timeouts};
use self::vcenter::snapshot::Freshness;
use self::vcenter::{Session, Settings, Vcenter, VcenterId, VcenterNames};
use crate::base::addresses::host_and_port;
use crate::clients::http;
use crate::cloud::login_ledger::LoginThrottle;
use crate::cloud::{CloudProvider, ClusterReads, InstanceEvents, InstancesV2, LoadBalancer, LoadBalancerFleet, Routes};
use crate::providers::{BuildError, Task, provider_id};

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
    /// Which labels say where a node's machine is.
    pub topology: TopologyLabels,
    /// Whether an address that several running machines behind nodes report, or that is the API server's, gives way to
    /// others of its machine.
    pub demotes_virtual_ips: bool,
    /// Whether an address that the kubelet uses counts where the guest reports it on an interface without a virtual NIC.
    pub trusts_guest_interfaces: bool,
    /// The addresses of the API server.
    pub api_server: Vec<IpAddr>,
    /// How long a node that joins waits for each address family but its first, from the first address of its guest on.
    pub family_wait: Duration,
    /// How long vCenter may take to answer.
    pub timeouts: Timeouts,
}

/// How a vCenter entry is reached and what it has to log in with. Implemented by `app`, which knows the files.
pub trait Connect: Send + Sync {
    /// The client of the entry's server. Nothing is sent.
    ///
    /// # Errors
    /// Why the entry cannot be used.
    fn http(&self, entry: &config::VcenterConfig) -> Result<http::Client, String>;

    /// The entry's credentials, as they change.
    fn offers(&self, entry: &config::VcenterConfig) -> Offers;
}

/// The vSphere provider. It spawns nothing: what has to run is handed out as [`Task`]s.
pub struct Provider {
    instances: Arc<Instances>,
    options: Options,
    connect: Arc<dyn Connect>,
    ledger: Arc<dyn LoginThrottle>,
    /// Bounds how many vCenters that are away are asked at once.
    probes: Arc<Semaphore>,
    setup: watch::Sender<Arc<TrackerConfig>>,
    /// What [`Provider::apply`] has to compare a configuration with.
    configured: Mutex<BTreeMap<VcenterId, Entry>>,
    /// What needs NSX, where that was asked for.
    nsx: Option<services::NsxServices>,
    stop: CancellationToken,
}

#[derive(Clone)]
struct Entry {
    config: config::VcenterConfig,
    vcenter: Arc<Vcenter>,
    stop: CancellationToken,
}

/// One vCenter at this moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VcenterReport {
    /// Host and port.
    pub server: String,
    /// How long ago what is known was last true: nothing when changes arrive as they happen; none if nothing was ever
    /// read.
    pub lag: Option<Duration>,
    /// Why credentials that are offered now are not the ones in use, if vCenter refused them.
    pub refused_offer: Option<String>,
    /// Virtual machines that back nodes, or may.
    pub virtual_machines: usize,
    /// Hosts, clusters, pools, folders and datacenters above them.
    pub ancestors: usize,
    /// The session in use, and its logins.
    pub session: SessionStatus,
}

impl Provider {
    /// A provider without any vCenter, and its one task for the nodes. Everything ends with `stop`.
    pub fn new(
        options: Options,
        connect: Arc<dyn Connect>,
        ledger: Arc<dyn LoginThrottle>,
        cluster: Arc<dyn ClusterReads>,
        stop: &CancellationToken,
    ) -> (Self, Task) {
        let setup = watch::Sender::default();
        let board = Arc::new(InstanceCache::default());
        let tracker = Tracker::new(cluster, setup.subscribe(), Arc::clone(&board));
        let task =
            Task { name: "node-tracker".to_string(), stop: stop.clone(), run: Box::pin(tracker.run(stop.clone())) };
        let instances = Arc::new(Instances::new(board, setup.subscribe(), options.trusts_unseen));
        let (probes, configured) = (Arc::new(Semaphore::new(PROBES)), Mutex::default());
        (Self { instances, options, connect, ledger, probes, setup, configured, nsx: None, stop: stop.clone() }, task)
    }

    /// The same with load balancers and routes on NSX, where the configuration has them.
    pub fn with_nsx(self, setup: services::NsxServicesContext) -> Self {
        let instances = Arc::clone(&self.instances);
        let usable_addresses: UsableAddressesOf = Arc::new(move |node| instances.usable_addresses(node));
        let nsx = Some(services::NsxServices::new(setup, usable_addresses, &self.stop));
        Self { nsx, ..self }
    }

    /// A report of each vCenter that is configured, in the order of the configuration.
    pub fn reports(&self) -> Vec<VcenterReport> {
        let setup = Arc::clone(&self.setup.borrow());
        setup.sources.values().map(|source| report(&source.vcenter)).collect()
    }

    /// The state of the connection to NSX, if one is configured.
    pub fn nsx_report(&self) -> Option<services::NsxReport> {
        self.nsx.as_ref()?.report()
    }

    /// Works by this configuration from now on; hands out the tasks of vCenters that are new in it. What is configured
    /// as before keeps its session, subscription and snapshot. The task of a vCenter that is not named any more logs out
    /// and ends, and its nodes become *unknown*. No connection is made before the tasks run, so a vCenter that is down
    /// delays nothing.
    ///
    /// # Errors
    /// One for every vCenter entry that cannot be used. Nothing is changed then.
    pub fn apply(&self, config: &Config) -> Result<Vec<Task>, Vec<BuildError>> {
        let mut configured = self.configured.lock();
        let mut entries = BTreeMap::new();
        let mut tasks = Vec::new();
        let mut errors = Vec::new();
        for entry in &config::distinct_vcenters(&config.vcenters) {
            let kept = configured.iter().find(|(_, known)| known.serves(entry));
            if let Some((id, known)) = kept {
                entries.insert(*id, Entry { config: entry.clone(), ..known.clone() });
                continue;
            }
            match self.entry(config, entry) {
                Ok(entry) => {
                    tasks.push(entry.task());
                    entries.insert(VcenterId::next(), entry);
                }
                Err(problem) => errors.push(BuildError { key: format!("vCenter {:?}", entry.key), problem }),
            }
        }
        // The last that may fail, since it changes what is in force.
        if errors.is_empty()
            && let Some(nsx) = &self.nsx
        {
            match nsx.apply(config) {
                Ok(more) => tasks.extend(more),
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        self.setup.send_replace(Arc::new(self.setup_of(config, &entries)));
        for (_, removed) in configured.iter().filter(|(id, _)| !entries.contains_key(id)) {
            removed.stop.cancel();
        }
        for entry in entries.values() {
            entry.vcenter.reconfigure(self.settings(config));
            entry.vcenter.session().respell(entry.config.spelling.clone());
            // What stands in the file itself is offered anew; the session changes over by itself.
            drop(self.connect.offers(&entry.config));
        }
        *configured = entries;
        Ok(tasks)
    }

    fn setup_of(&self, config: &Config, entries: &BTreeMap<VcenterId, Entry>) -> TrackerConfig {
        let source = |entry: &Entry| VcenterSource {
            vcenter: Arc::clone(&entry.vcenter),
            datacenters: entry.config.datacenters.clone(),
        };
        let rules = MetadataRules {
            addresses: config.addresses.clone(),
            families: entries.iter().map(|(id, entry)| (*id, entry.config.ip_families.clone())).collect(),
            categories: config.labels.clone(),
            servers: entries.iter().map(|(id, entry)| (*id, entry.config.server.clone())).collect(),
            topology: self.options.topology.clone(),
            allow_name_match: self.options.allow_name_match,
            demotes_virtual_ips: self.options.demotes_virtual_ips,
            trusts_guest_interfaces: self.options.trusts_guest_interfaces,
            api_server: self.options.api_server.clone(),
            family_wait: self.options.family_wait,
        };
        let sources = entries.iter().map(|(id, entry)| (*id, source(entry))).collect();
        TrackerConfig { sources, refused: config.refused_vcenters.clone(), rules, file: self.options.file.clone() }
    }

    fn entry(&self, config: &Config, entry: &config::VcenterConfig) -> Result<Entry, String> {
        let http = self.connect.http(entry)?;
        let names = VcenterNames { key: entry.key.clone(), server: host_and_port(&entry.server, entry.port) };
        let (offers, ledger) = (self.connect.offers(entry), Arc::clone(&self.ledger));
        let session =
            Session::new(http, offers, ledger, names, self.options.timeouts).with_probes(Arc::clone(&self.probes));
        let vcenter = Vcenter::new(self.settings(config), session);
        Ok(Entry { config: entry.clone(), vcenter, stop: self.stop.child_token() })
    }

    fn settings(&self, config: &Config) -> Settings {
        Settings { categories: config.labels.clone(), tag_poll: self.options.tag_poll }
    }

    /// The inventory of each vCenter, for those who only look.
    pub fn inventories(&self) -> Vec<Arc<Vcenter>> {
        let setup = Arc::clone(&self.setup.borrow());
        setup.sources.values().map(|source| Arc::clone(&source.vcenter)).collect()
    }
}

impl Entry {
    /// Whether this session serves `entry`, too.
    fn serves(&self, entry: &config::VcenterConfig) -> bool {
        let own = &self.config;
        own.key == entry.key && own.server == entry.server && own.port == entry.port
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

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(self.nsx.as_ref()?.load_balancers()?)
    }

    fn load_balancer_fleet(&self) -> Option<Arc<dyn LoadBalancerFleet>> {
        Some(self.nsx.as_ref()?.load_balancers()?)
    }

    fn routes(&self) -> Option<Arc<dyn Routes>> {
        match self.nsx.as_ref()?.routes() {
            RoutesPart::Served(routes) => Some(routes),
            RoutesPart::Off | RoutesPart::Unavailable => None,
        }
    }

    fn routes_are_off(&self) -> bool {
        self.nsx.as_ref().is_some_and(|nsx| matches!(nsx.routes(), RoutesPart::Off))
    }

    fn capability_changes(&self) -> BoxStream<'static, ()> {
        match &self.nsx {
            Some(nsx) => nsx.changes(),
            None => Box::pin(futures::stream::pending()),
        }
    }
}

fn report(vcenter: &Vcenter) -> VcenterReport {
    let snapshot = vcenter.snapshot();
    let lag = match &snapshot.freshness {
        Freshness::Live => Some(Duration::ZERO),
        Freshness::Stale { since, .. } => Some(since.elapsed()),
        Freshness::Never | Freshness::Unreachable(_) => None,
    };
    VcenterReport {
        server: vcenter.server().to_owned(),
        lag,
        refused_offer: snapshot.offer_trouble.clone(),
        virtual_machines: snapshot.vms.len(),
        ancestors: snapshot.entities.len(),
        session: vcenter.session().facts(),
    }
}

#[cfg(test)]
mod tests;
