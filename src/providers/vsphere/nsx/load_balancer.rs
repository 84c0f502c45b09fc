//! Load balancers of Services on NSX: implements `cloud::LoadBalancer`.
//!
//! ```text
//!   Service ─────────▶ service_request ──────────────┐
//!                                                    ├──▶ plan ──▶ one step ──▶ backend ──▶ NSX
//!   resource_cache ──▶ resource_index ─▶ ownership ──┘                             │
//!       ▲                                                                          │
//!       └──────────────────────── objects read and written ────────────────────────┘
//! ```
//!
//! A sync performs one planned step at a time, and continues where an earlier sync or another process stopped.
//!
//! Mirrors `pkg/cloudprovider/vsphere/loadbalancer`.

pub mod backend;
mod body;
mod cleanup;
pub mod explanation;
pub mod families;
pub mod fresh_read;
pub mod layout;
pub mod members;
mod node_addresses;
mod node_update;
pub mod orphans;
pub mod ownership;
pub mod plan;
pub mod preview;
pub mod realization;
pub mod resource;
mod resource_cache;
pub mod resource_index;
mod service_call;
pub mod service_request;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Node, Service};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use self::backend::{Backend, Scope};
use self::cleanup::Cleanup;
use self::layout::{ClusterLayout, ObjectKind, Protocol};
use self::node_addresses::{HasNode, NodeAddresses};
use self::orphans::Policy;
use self::resource_cache::ResourceCache;
pub use self::resource_cache::{LastStep, ListStatus};
use self::resource_index::Selection;
use self::service_call::ServiceCall;
pub use self::service_call::{PlannedStep, StepKind};
use self::service_request::ServiceRules;
use super::AnyLeader;
use super::cluster_uid::ClusterUid;
use super::routes::Adoption;
use crate::cloud::service::ANNOTATION_SOURCE_RANGES;
use crate::cloud::{
    ClusterEvents, ClusterReads, Error, Handling, LeaderToken, LiveReads, LoadBalancer, NO_NODES, Reason, ServiceEvent,
    UsableAddresses,
};
use crate::providers::vsphere::config::{self, Class, IpPool, Profile};
use crate::providers::vsphere::nsx::UsableAddressesOf;
use crate::providers::vsphere::reason;

const WITHOUT_UID: &str = "load balancers get no tag with the UID of this cluster, so only their Services and Nodes \
                           distinguish them from those of another cluster of the same name";

/// Retry interval of an error that only a change of the configuration, of NSX or of another Service can resolve.
const LATER: Duration = Duration::from_secs(300);

/// Interval at which a reader that waits for a list looks whether the list has failed.
const LIST_CHECK: Duration = Duration::from_millis(100);

/// Maximum age of a list or read that proves an object to be missing, unusable or unreadable.
const RECENT: Duration = Duration::from_secs(60);

/// Prefixes of the annotations that a load balancer depends on.
const ANNOTATIONS: &[&str] = &["loadbalancer.vmware.io/", "loadbalancer.vsphere-ccm.dev/", ANNOTATION_SOURCE_RANGES];

/// The load balancers of one NSX configuration.
pub struct NsxLoadBalancers {
    config: config::LoadBalancerConfig,
    cluster: String,
    backend: Arc<dyn Backend>,
    resources: ResourceCache,
    adoption: Adoption,
    rules: ServiceRules,
    cleanup: Cleanup,
    nodes: Arc<dyn ClusterReads>,
    node_addresses: NodeAddresses,
    uid: ClusterUid,
}

/// Counts of objects and orphans, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Number of objects that name this cluster, except load balancer services.
    pub named: usize,
    /// Number of reported ambiguous objects, which may belong to this cluster or to another cluster.
    pub ambiguous: usize,
    /// Number of deleted Services that still have load balancers.
    pub orphans: usize,
    /// Number of objects that name this cluster and have the UID of another cluster, which has the same name. Zero
    /// while the UID of this cluster is unknown.
    pub of_other_clusters: usize,
}

/// Handling of addresses that Services request with `spec.loadBalancerIP`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestedAddresses {
    /// A Service gets the requested address or no address.
    #[default]
    Honored,
    /// `spec.loadBalancerIP` has no effect, as in the Go program.
    Ignored,
}

/// Settings from command-line flags, for all load balancers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadBalancerSettings {
    /// The name of the cluster.
    pub cluster: String,
    /// Adoption of load balancers that the Go program created.
    pub adoption: Adoption,
    /// Handling of load balancers whose Services no longer exist.
    pub orphans: Policy,
    /// Handling of `spec.loadBalancerIP`.
    pub requested_addresses: RequestedAddresses,
}

impl NsxLoadBalancers {
    /// Creates the load balancers. [`NsxLoadBalancers::run`] lists the objects. `events` receives cluster-wide Events,
    /// in addition to the log.
    pub fn new(
        config: config::LoadBalancerConfig,
        settings: LoadBalancerSettings,
        backend: Arc<dyn Backend>,
        nodes: Arc<dyn ClusterReads>,
        live: Arc<dyn LiveReads>,
        events: Arc<dyn ClusterEvents>,
        leads: AnyLeader,
    ) -> Self {
        let LoadBalancerSettings { cluster, adoption, orphans, requested_addresses } = settings;
        let ignores_address = requested_addresses == RequestedAddresses::Ignored;
        Self {
            rules: ServiceRules { is_snat_disabled: config.snat_disabled, ignores_address },
            config,
            cluster,
            backend,
            resources: ResourceCache::new(leads),
            adoption,
            cleanup: Cleanup::new(orphans, Arc::clone(&live), events),
            node_addresses: NodeAddresses::new(Arc::new(|_| UsableAddresses::All), has_node(&nodes)),
            nodes,
            uid: ClusterUid::new(live, WITHOUT_UID),
        }
    }

    /// Restricts pool members to the Node addresses that `usable_addresses` returns.
    #[must_use]
    pub fn with_usable_addresses(mut self, usable_addresses: UsableAddressesOf) -> Self {
        self.node_addresses = NodeAddresses::new(usable_addresses, has_node(&self.nodes));
        self
    }

    /// Lists all objects on request and periodically, and cleans up orphans, until `stop` is cancelled.
    pub async fn run(&self, stop: &CancellationToken) {
        let (layout, scope) = (self.layout(None), self.scope());
        let readings = self.resources.run(&*self.backend, &layout, &scope, stop);
        tokio::join!(readings, self.clean_up(stop));
    }

    /// Whether these load balancers use exactly this configuration.
    pub fn is_configured_as(&self, config: &config::LoadBalancerConfig) -> bool {
        self.config == *config
    }

    /// Returns the current counts; `None` before the first list of a leadership term, and after the end of the term.
    pub fn counts(&self) -> Option<Counts> {
        let (named, ambiguous) = self.resources.counts()?;
        let of_other_clusters = self.resources.count_of_other_clusters(self.uid.known().as_deref());
        Some(Counts { named, ambiguous, orphans: self.cleanup.count(), of_other_clusters })
    }

    /// Returns the state of the lists of objects in this leadership term.
    pub fn list_status(&self) -> ListStatus {
        self.resources.list_status()
    }

    /// Returns an error message if the configured tags and the tags of this program exceed the NSX limit.
    pub fn too_many_tags(&self) -> Option<String> {
        self.config.too_many_tags()
    }

    /// Requests a relist.
    pub fn read_again(&self) {
        self.resources.request_relist();
    }

    /// Lists the objects once, for a reader that never leads: [`NsxLoadBalancers::run`] must run, and nothing but the
    /// list follows. Completes when the list has ended or failed. The caller limits the wait.
    pub async fn list_once(&self) {
        // The count of objects of other clusters needs the UID, which stays unknown without the permission to read it.
        drop(self.uid.read().await);
        let mut lists = self.resources.relist_counter();
        self.resources.request_relist();
        loop {
            // A failed list does not count.
            match timeout(LIST_CHECK, lists.changed()).await {
                Err(_) if self.resources.list_status().failure.is_none() => {}
                _ => return,
            }
        }
    }

    /// Returns the path of the load balancer service: the configured one, or the one of this cluster in the last list.
    pub fn lb_service_path(&self) -> Option<String> {
        if let Some(id) = &self.config.lb_service_id {
            return Some(format!("{}/{id}", ObjectKind::LbService.parent()));
        }
        let found = self.resources.lb_service(self.selection(), self.uid.known().as_deref());
        found.ok().flatten().map(|lb_service| lb_service.tags.path.to_string())
    }

    /// Returns the start of the last completed relist of this leadership term, if any.
    pub fn last_list(&self) -> Option<Instant> {
        self.resources.term().map(|(_, started, _)| started)
    }

    /// Returns the last planned step for this Service (namespace/name), with the outcome of the last call.
    pub fn last_step(&self, service: &str) -> Option<LastStep> {
        self.resources.last_step(service)
    }

    fn layout(&self, cluster_uid: Option<String>) -> ClusterLayout {
        ClusterLayout {
            cluster: self.cluster.clone(),
            cluster_uid,
            configured: self.config.tags.clone(),
            secondary: None,
        }
    }

    fn selection(&self) -> Selection<'_> {
        Selection { id: self.config.lb_service_id.as_deref(), tier1: self.config.tier1.as_deref() }
    }

    /// Returns the configured objects that a relist has to include.
    fn scope(&self) -> Scope {
        let mut scope = Scope::default();
        let Self { config: config::LoadBalancerConfig { common, classes, ipv6_pools, .. }, .. } = self;
        scope.pools.extend(ipv6_pools.values().map(|id| id.as_str().into()));
        for Class { pool, tcp, udp } in classes.values().chain([common]) {
            match pool {
                Some(IpPool::Id(id)) => drop(scope.pools.insert(id.as_str().into())),
                Some(IpPool::Name(name)) => drop(scope.pool_names.insert(name.clone())),
                None => {}
            }
            for (protocol, profile) in [(Protocol::Tcp, tcp), (Protocol::Udp, udp)] {
                if let Some(Profile::Name(name)) = profile {
                    scope.profile_names.insert((protocol, name.clone()));
                }
            }
        }
        scope
    }

    /// Rejects other cluster names: this program never changes objects of other clusters.
    fn check_cluster(&self, name: &str) -> Result<(), Error> {
        match name == self.cluster {
            true => Ok(()),
            false => Err(Error::other(format!(
                "the load balancers of the cluster {:?} are served, not those of {name:?}",
                self.cluster
            ))),
        }
    }

    async fn call<'a>(&'a self, permit: &'a LeaderToken, service: &'a Service) -> Result<ServiceCall<'a>, Error> {
        permit.check()?;
        self.resources.begin(permit);
        self.node_addresses.begin(permit);
        let uid = self.uid.read().await?;
        ServiceCall::new(self, service, self.layout(uid)).claimed(permit)
    }
}

#[async_trait]
impl LoadBalancer for NsxLoadBalancers {
    async fn get_load_balancer(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, Error> {
        self.check_cluster(cluster)?;
        self.resources.begin_read();
        ServiceCall::new(self, service, self.layout(self.uid.read().await?)).status()
    }

    fn load_balancer_name(&self, cluster_name: &str, service: &Service) -> String {
        format!("cluster:{cluster_name}:{}", service_call::key_of(service))
    }

    async fn ensure_load_balancer(
        &self,
        permit: &LeaderToken,
        cluster: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<LoadBalancerStatus, Error> {
        self.check_cluster(cluster)?;
        self.call(permit, service).await?.ensure(nodes).await
    }

    async fn update_load_balancer(
        &self,
        permit: &LeaderToken,
        cluster_name: &str,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<(), Error> {
        let services = [Arc::new(service.clone())];
        let results = self.update_nodes(permit, cluster_name, &services, nodes).await;
        let result = results.and_then(|mut results| results.pop());
        result.unwrap_or_else(|| Err(Error::other("the update of the Nodes gave no result for the Service")))
    }

    async fn ensure_load_balancer_deleted(
        &self,
        permit: &LeaderToken,
        cluster: &str,
        service: &Service,
    ) -> Result<(), Error> {
        self.check_cluster(cluster)?;
        self.call(permit, service).await?.delete().await
    }

    fn handles(&self, service: &Service) -> Handling {
        if service.spec.as_ref().is_some_and(|spec| spec.load_balancer_class.is_some()) {
            return Handling::Declined;
        }
        match service_request::check(service, &self.config, self.rules) {
            Err(Error::Invalid { reason, message }) => Handling::Invalid { reason, message },
            Ok(()) | Err(_) => Handling::Handled,
        }
    }

    async fn update_nodes(
        &self,
        permit: &LeaderToken,
        cluster: &str,
        services: &[Arc<Service>],
        nodes: &[Arc<Node>],
    ) -> Option<Vec<Result<(), Error>>> {
        if let Err(error) = permit.check().and_then(|()| self.check_cluster(cluster)) {
            return Some(services.iter().map(|_| Err(repeated(&error))).collect());
        }
        Some(node_update::update(self, permit, services, nodes).await)
    }

    fn annotation_prefixes(&self) -> &[&str] {
        ANNOTATIONS
    }

    fn remark(&self, service: &Service) -> Option<(Reason, String)> {
        self.resources.take_message(&service_call::key_of(service))
    }

    fn without_nodes(&self, service: &Service, nodes: &[Arc<Node>]) -> Option<String> {
        if nodes.is_empty() {
            return Some(NO_NODES.to_owned());
        }
        let mut families = self.resources.families(&service_call::key_of(service)).into_iter();
        let family = families.find(|family| self.node_addresses.members(nodes, *family).is_empty())?;
        Some(format!("{NO_NODES}: none has an internal {} address", family.as_str()))
    }

    fn usable_addresses(&self, node: &Node) -> UsableAddresses {
        self.node_addresses.of(node)
    }

    fn needs_address_before_deletion(&self) -> bool {
        true
    }

    fn subscribe(&self) -> BoxStream<'static, ServiceEvent> {
        self.resources.subscribe()
    }
}

fn has_node(nodes: &Arc<dyn ClusterReads>) -> HasNode {
    let nodes = Arc::clone(nodes);
    Box::new(move |name| nodes.node(name).is_some())
}

fn status(addresses: Vec<IpAddr>) -> LoadBalancerStatus {
    let ingress = |address: IpAddr| LoadBalancerIngress { ip: Some(address.to_string()), ..Default::default() };
    LoadBalancerStatus { ingress: Some(addresses.into_iter().map(ingress).collect()) }
}

/// Returns an error that only a change of the configuration, or of a configured object, can resolve.
fn config_wrong(message: String) -> Error {
    Error::Exhausted { reason: reason::LoadBalancerConfigWrong, message, after: LATER }
}

/// Returns [`LATER`] with jitter of up to one minute, which lets Services that wait for the same resource take turns.
fn later() -> Duration {
    LATER + Duration::from_secs(60).mul_f64(fastrand::f64())
}

/// Returns the error of a failed reservation.
fn address_unavailable(message: String) -> Error {
    Error::Exhausted { reason: reason::AddressUnavailable, message, after: later() }
}

/// Copies an error for each of several Services.
fn repeated(error: &Error) -> Error {
    let (reason, message) = (error.reason(), crate::base::error_chain::chain(error));
    match error {
        Error::NotLeader => Error::NotLeader,
        error => Error::Failed { reason, message, after: error.retry_after() },
    }
}
