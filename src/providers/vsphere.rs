//! The vSphere provider: builds its parts from the configuration and implements [`CloudProvider`].
//!
//! Each configured vCenter has a `vcenter` actor, which owns the session and publishes snapshots. A snapshot contains
//! the VMs that back Nodes, and their ancestors and tags. One `nodes` tracker binds Nodes to VMs. `nsx` serves load
//! balancers and routes.
//!
//! ```text
//!   Nodes ──▶ nodes::lookup ──searches──▶ vcenter (one actor per vCenter) ──▶ clients::{vim, vapi}
//!                 │  ▲                        │
//!                 ▼  └───────snapshots────────┘
//!           instance cache ──▶ nodes::instances (the contract) ──▶ controllers
//! ```
//!
//! Snapshots are read without waiting, so a vCenter that is down delays no Node of another vCenter. The provider has no
//! Kubernetes client and spawns no task: `app` passes in traits and runs the [`Task`]s of the provider. A reload keeps
//! unchanged parts.

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
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::config::Config;
use self::login::LoginPause;
use self::login::credentials::Offers;
use self::nodes::instances::VsphereInstances;
use self::nodes::lookup::Tracker;
use self::nodes::lookup::instance_cache::{BoundVm, CachedInstance, InstanceCache};
use self::nodes::lookup::vcenters::{TrackerConfig, VcenterSource};
use self::nodes::metadata::MetadataRules;
use self::nodes::metadata::topology::TopologyLabels;
use self::nodes::reports::{NodeVmReport, VmReport, node_report, vm_names, vm_reports};
use self::nsx::UsableAddressesOf;
use self::nsx::inspection::NsxInspection;
use self::nsx::load_balancer::NsxLoadBalancers;
use self::nsx::load_balancer::fresh_read::ServiceReading;
use self::nsx::routes::KnownRoute;
use self::nsx::routes::fresh_read::RouteReading;
use self::nsx::services::{self, RoutesPart};
use self::vcenter::session::{PROBES, SessionStatus};
use self::vcenter::snapshot::{ConnectionStep, Freshness, VmRecord};
use self::vcenter::{Session, TagReads, TagSettings, Vcenter, VcenterId, VmKey};
use crate::base::addresses::host_and_port;
use crate::clients::http;
use crate::clients::vim::Timeouts;
use crate::cloud::login_ledger::LoginThrottle;
use crate::cloud::{
    CloudProvider, ClusterReads, InstanceEvents, InstanceMetadata, InstancesV2, LoadBalancer, Power, Presence, Routes,
};
use crate::providers::{BuildError, Task, provider_id};

/// Options of the provider that are not in `vsphere.conf`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The path of `vsphere.conf`, for messages.
    pub file: String,
    /// Interval at which tags are polled.
    pub tag_poll: Duration,
    /// Whether a VM that matches only by name is accepted, as in the Go program.
    pub allow_name_match: bool,
    /// Whether a VM can be proved absent if its last location is unknown.
    pub trusts_unseen: bool,
    /// The location labels of Nodes.
    pub topology: TopologyLabels,
    /// Whether a VM's other addresses take precedence over an address of the API server, and over an address that
    /// several running VMs behind Nodes report.
    pub demotes_virtual_ips: bool,
    /// Whether an address that the kubelet uses is accepted from a guest interface without a virtual NIC.
    pub trusts_guest_interfaces: bool,
    /// The addresses of the API server.
    pub api_server: Vec<IpAddr>,
    /// Maximum wait of a joining Node for each further address family, counted from the guest's first address.
    pub family_wait: Duration,
    /// Timeouts of calls to vCenter.
    pub timeouts: Timeouts,
}

/// HTTP clients and credentials for the vCenter entries. Implemented by `app`, which has access to the files.
pub trait Connect: Send + Sync {
    /// Creates the client for the server of the entry. Sends nothing.
    ///
    /// # Errors
    /// Returns the reason why the entry cannot be used.
    fn http(&self, entry: &config::VcenterConfig) -> Result<http::Client, String>;

    /// Returns the credentials of the entry. The returned value also delivers later changes.
    fn offers(&self, entry: &config::VcenterConfig) -> Offers;
}

/// The vSphere provider. It spawns no task, but returns its background work as [`Task`]s.
pub struct Provider {
    instances: Arc<VsphereInstances>,
    options: Options,
    connect: Arc<dyn Connect>,
    throttle: Arc<dyn LoginThrottle>,
    /// Limits how many unavailable vCenters are probed at the same time.
    probes: Arc<Semaphore>,
    setup: watch::Sender<Arc<TrackerConfig>>,
    /// The active configuration, with which [`Provider::apply`] compares a new one.
    configured: Mutex<BTreeMap<VcenterId, Entry>>,
    /// The load balancers and routes on NSX, if enabled.
    nsx: Option<services::NsxServices>,
    stop: CancellationToken,
}

#[derive(Clone)]
struct Entry {
    config: config::VcenterConfig,
    vcenter: Arc<Vcenter>,
    stop: CancellationToken,
}

/// Report on one vCenter, its snapshot and its session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VcenterReport {
    /// Host and port.
    pub server: String,
    /// Age of the snapshot. Zero while vCenter reports changes continuously; `None` if there is no snapshot.
    pub lag: Option<Duration>,
    /// Reason why the offered credentials are not in use, if vCenter rejected them.
    pub rejected_credentials: Option<String>,
    /// Number of VMs that back Nodes or may back Nodes.
    pub virtual_machines: usize,
    /// Number of hosts, clusters, pools, folders and datacenters above these VMs.
    pub ancestors: usize,
    /// The session and its logins.
    pub session: SessionStatus,
    /// Reason why the inventory is not current, if it is not.
    pub failure: Option<String>,
    /// The step that failed; `None` while the inventory is current, and before the first attempt to connect.
    pub failed_step: Option<ConnectionStep>,
    /// Time of the last answer with the state of the inventory.
    pub last_answer: Option<Instant>,
    /// Time of the next attempt to connect; `None` while a connection is open or attempted, or if the next attempt
    /// waits for other credentials.
    pub next_attempt: Option<Instant>,
    /// The certificate of the server.
    pub certificate: http::CertificateStatus,
    /// Pause of logins that protects the account from lockout, if any.
    pub login_pause: Option<LoginPause>,
    /// The command that ends this pause for all replicas, if there is one.
    pub login_reset: Option<String>,
    /// The times of the polls of tags.
    pub tag_reads: TagReads,
    /// Reason why zones and regions cannot be read, if any.
    pub tag_failure: Option<String>,
}

impl Provider {
    /// Creates a provider without vCenters, and the task that tracks the Nodes. Cancelling `stop` ends all work of the
    /// provider.
    pub fn new(
        options: Options,
        connect: Arc<dyn Connect>,
        throttle: Arc<dyn LoginThrottle>,
        cluster: Arc<dyn ClusterReads>,
        stop: &CancellationToken,
    ) -> (Self, Task) {
        let setup = watch::Sender::default();
        let board = Arc::new(InstanceCache::default());
        let tracker = Tracker::new(cluster, setup.subscribe(), Arc::clone(&board));
        let task =
            Task { name: "node-tracker".to_string(), stop: stop.clone(), run: Box::pin(tracker.run(stop.clone())) };
        let instances = Arc::new(VsphereInstances::new(board, setup.subscribe(), options.trusts_unseen));
        let (probes, configured) = (Arc::new(Semaphore::new(PROBES)), Mutex::default());
        (Self { instances, options, connect, throttle, probes, setup, configured, nsx: None, stop: stop.clone() }, task)
    }

    /// Adds the load balancers and routes on NSX, if they are configured.
    pub fn with_nsx(self, setup: services::NsxServicesContext) -> Self {
        let instances = Arc::clone(&self.instances);
        let usable_addresses: UsableAddressesOf = Arc::new(move |node| instances.usable_addresses(node));
        let nsx = Some(services::NsxServices::new(setup, usable_addresses, &self.stop));
        Self { nsx, ..self }
    }

    /// Reports the state of each configured vCenter, in the order in which the vCenters were added.
    pub fn reports(&self) -> Vec<VcenterReport> {
        self.inventories().iter().map(|vcenter| report(vcenter)).collect()
    }

    /// Returns what is known about the route of this Node to this network; `None` without routes on NSX.
    pub fn known_route(&self, node: &Node, network: &IpNet) -> Option<KnownRoute> {
        self.nsx.as_ref()?.known_route(node, network)
    }

    /// Reports the state of the connection to NSX; `None` without a connection.
    pub fn nsx_report(&self) -> Option<services::NsxReport> {
        self.nsx.as_ref()?.report()
    }

    /// As [`services::NsxServices::read_once`].
    pub async fn read_nsx_once(&self) {
        if let Some(nsx) = &self.nsx {
            nsx.read_once().await;
        }
    }

    /// As [`services::NsxServices::inspect`]; `None` without NSX.
    pub async fn inspect_nsx(&self, config: &Config) -> Option<NsxInspection> {
        self.nsx.as_ref()?.inspect(config).await
    }

    /// As [`services::NsxServices::read_objects_of`]; `None` also without NSX.
    pub async fn read_nsx_objects_of(&self, service: &str) -> Option<ServiceReading> {
        self.nsx.as_ref()?.read_objects_of(service).await
    }

    /// As [`services::NsxServices::read_known_routes`]; `None` also without NSX.
    pub async fn read_known_routes(&self, node: &Node, networks: &[IpNet]) -> Option<Vec<RouteReading>> {
        self.nsx.as_ref()?.read_known_routes(node, networks).await
    }

    /// Returns the load balancers on NSX, for read-only use; `None` without.
    pub fn nsx_load_balancers(&self) -> Option<Arc<NsxLoadBalancers>> {
        self.nsx.as_ref()?.load_balancers()
    }

    /// Applies this configuration and returns the tasks of new vCenters and of NSX. An entry with the same name, server
    /// and port keeps its session, subscription and snapshot. The task of a removed vCenter logs out and ends, and the
    /// Nodes with VMs on this vCenter become *unknown*. The tasks make the connections, so a vCenter that is down does
    /// not delay this call.
    ///
    /// # Errors
    /// Returns one error for each vCenter entry that cannot be used or, without such an entry, the error of NSX. In
    /// this case nothing is changed.
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
        // `nsx.apply` takes effect immediately, so it is the last step that can fail.
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
            // Publishes the inline credentials again. If they changed, the session switches to the new credentials.
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
        TrackerConfig { sources, rejected: config.refused_vcenters.clone(), rules, file: self.options.file.clone() }
    }

    fn entry(&self, config: &Config, entry: &config::VcenterConfig) -> Result<Entry, String> {
        let http = self.connect.http(entry)?;
        let server = host_and_port(&entry.server, entry.port);
        let (offers, throttle) = (self.connect.offers(entry), Arc::clone(&self.throttle));
        let session =
            Session::new(http, offers, throttle, server, self.options.timeouts).with_probes(Arc::clone(&self.probes));
        let vcenter = Vcenter::new(self.settings(config), session);
        Ok(Entry { config: entry.clone(), vcenter, stop: self.stop.child_token() })
    }

    fn settings(&self, config: &Config) -> TagSettings {
        TagSettings { categories: config.labels.clone(), tag_poll: self.options.tag_poll }
    }

    /// Returns the result of the look-up for this Node, with the inputs of the last decision.
    pub fn instance(&self, node: &Node) -> Option<Arc<CachedInstance>> {
        self.instances.view(node)
    }

    /// Returns the VM of this Node, as the controllers get it.
    pub fn vm_of(&self, node: &Node) -> Presence<Arc<BoundVm>> {
        self.instances.find(node)
    }

    /// Returns the metadata for this Node, as the controllers get it. Calls no vCenter.
    pub fn metadata(&self, node: &Node) -> Presence<InstanceMetadata> {
        self.instances.metadata(node)
    }

    /// Returns the power state of the Node's VM, as the controllers get it. Calls no vCenter.
    pub fn power(&self, node: &Node) -> Presence<Power> {
        self.instances.power(node)
    }

    /// Reports what is known of the VM of this Node, and the decisions about it. Calls no vCenter.
    pub fn node_report(&self, node: &Node) -> NodeVmReport {
        let setup = Arc::clone(&self.setup.borrow());
        node_report(&setup, node, self.instances.view(node), self.instances.metadata(node))
    }

    /// Reports the watched VMs that `is_wanted` selects. Calls no vCenter.
    pub fn vm_reports(&self, is_wanted: impl Fn(&VmKey, &VmRecord) -> bool) -> Vec<VmReport> {
        let setup = Arc::clone(&self.setup.borrow());
        vm_reports(&setup, is_wanted)
    }

    /// Returns ids and names of the watched VMs.
    pub fn vm_names(&self) -> Vec<String> {
        vm_names(&Arc::clone(&self.setup.borrow()))
    }

    /// Returns the addresses of the API server, as this process reaches it.
    pub fn api_server_addresses(&self) -> &[IpAddr] {
        &self.options.api_server
    }

    /// Returns the vCenters, for read-only use.
    pub fn inventories(&self) -> Vec<Arc<Vcenter>> {
        let setup = Arc::clone(&self.setup.borrow());
        setup.sources.values().map(|source| Arc::clone(&source.vcenter)).collect()
    }
}

impl Entry {
    /// Returns true if this entry's vCenter and session also serve `entry`.
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
        rejected_credentials: snapshot.credential_failure.clone(),
        virtual_machines: snapshot.vms.len(),
        ancestors: snapshot.entities.len(),
        session: vcenter.session().facts(),
        failure: snapshot.freshness.failure().map(str::to_owned),
        failed_step: match &snapshot.freshness {
            Freshness::Live | Freshness::Never => None,
            Freshness::Unreachable(failure) | Freshness::Stale { failure, .. } => Some(failure.step),
        },
        last_answer: vcenter.last_report(),
        next_attempt: vcenter.next_attempt(),
        certificate: vcenter.session().certificate(),
        login_pause: vcenter.session().login_pause(),
        login_reset: vcenter.session().login_reset(),
        tag_reads: vcenter.tag_reads(),
        tag_failure: snapshot.tags.error.clone(),
    }
}

#[cfg(test)]
mod tests;
