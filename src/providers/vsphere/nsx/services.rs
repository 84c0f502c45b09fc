//! NSX services of the active configuration: routes and load balancers, on one shared connection.

use std::sync::Arc;

use futures::stream::BoxStream;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{AnyLeader, LoginSource, NsxSession, NsxSessionStatus};
use crate::clients::http;
use crate::clients::nsx::{Client, LogIn as _, Pace, Timeouts};
use crate::cloud::login_ledger::LoginThrottle;
use crate::cloud::{ClusterEvents, ClusterReads, LiveReads};
use crate::providers::vsphere::config::{Config, NsxConfig, NsxLogin, OptionalSection};
use crate::providers::vsphere::login::LoginPause;
use crate::providers::vsphere::nsx::UsableAddressesOf;
use crate::providers::vsphere::nsx::inspection::{NsxInspection, inspect};
use crate::providers::vsphere::nsx::load_balancer::fresh_read::ServiceReading;
use crate::providers::vsphere::nsx::load_balancer::orphans::Policy;
use crate::providers::vsphere::nsx::load_balancer::{self, RequestedAddresses};
use crate::providers::vsphere::nsx::load_balancer::{NsxLoadBalancers, backend};
use crate::providers::vsphere::nsx::routes::fresh_read::RouteReading;
use crate::providers::vsphere::nsx::routes::{Adoption, KnownRoute, RouterRoutes};
use crate::providers::{BuildError, Task};

/// Builds the HTTP client and the credentials for NSX. Implemented by `app`.
pub trait ConnectNsx: Send + Sync {
    /// Builds the client of the manager; sends nothing.
    ///
    /// # Errors
    /// The configuration is unusable; the text names the reason.
    fn http(&self, nsx: &NsxConfig) -> Result<http::Client, String>;

    /// Returns the login source. Called again after each reload. For the same manager, a later call sends new
    /// credentials through the channel of the first source, because an unchanged connection keeps its first source.
    ///
    /// # Errors
    /// The configuration is unusable; the text names the reason.
    fn source(&self, nsx: &NsxConfig) -> Result<LoginSource, String>;
}

/// Dependencies of the services, and settings that are not in [`Config`].
pub struct NsxServicesContext {
    /// Builder of the HTTP client and the login source.
    pub connect: Arc<dyn ConnectNsx>,
    /// The login throttle that limits the failed logins of all replicas.
    pub throttle: Arc<dyn LoginThrottle>,
    /// The cached Nodes.
    pub nodes: Arc<dyn ClusterReads>,
    /// Uncached reads of the API server.
    pub live: Arc<dyn LiveReads>,
    /// Receiver of cluster-wide Events.
    pub events: Arc<dyn ClusterEvents>,
    /// The leadership of the controllers that use NSX.
    pub leads: AnyLeader,
    /// Whether this process may log in: while it leads, or always if a command reads without a daemon.
    pub may_log_in: AnyLeader,
    /// Maximum number of calls per second.
    pub calls_per_second: u32,
    /// Handling of routes and load balancers that the Go program created.
    pub adoption: Adoption,
    /// Handling of load balancers whose Services no longer exist.
    pub orphans: Policy,
    /// Handling of addresses that Services request.
    pub requested_addresses: RequestedAddresses,
    /// The name of the cluster.
    pub cluster: String,
    /// Whether one call may write several pools of load balancers.
    pub batches: bool,
    /// Time limits of the calls.
    pub timeouts: Timeouts,
}

/// The routes of the active configuration.
#[derive(Clone)]
pub(in crate::providers::vsphere) enum RoutesPart {
    /// Not configured.
    Off,
    /// No configuration is applied yet, the NSX settings are missing or invalid, or the route settings are invalid.
    Unavailable,
    /// Configured and usable.
    Served(Arc<RouterRoutes>),
}

/// The connection to NSX, with the routes and load balancers of the active configuration.
pub struct NsxServices {
    setup: NsxServicesContext,
    usable_addresses: UsableAddressesOf,
    connected: Mutex<Option<NsxConnection>>,
    routes: watch::Sender<RoutesPart>,
    balancers: watch::Sender<Option<Arc<NsxLoadBalancers>>>,
    stop: CancellationToken,
}

struct NsxConnection {
    config: NsxConfig,
    client: Client,
    gate: Arc<NsxSession>,
    router: Option<String>,
    /// The load balancers, and the token that stops their lists.
    balancers: Option<(Arc<NsxLoadBalancers>, CancellationToken)>,
    stop: CancellationToken,
}

/// The state of the connection, for status output.
#[derive(Clone, Debug)]
pub struct NsxReport {
    /// `host:port`.
    pub server: String,
    /// Whether this process uses NSX now: see [`NsxServicesContext::may_log_in`].
    pub is_in_use: bool,
    /// The state of the login.
    pub login: NsxSessionStatus,
    /// Counts of load balancers; `None` without load balancers, or before the first list of a term of leadership.
    pub balancers: Option<load_balancer::Counts>,
    /// The state of the lists of load balancers in this term of leadership. Empty without load balancers.
    pub balancer_list: load_balancer::ListStatus,
    /// Error if the configured tags of load balancers and the tags of this program exceed the NSX limit.
    pub too_many_tags: Option<String>,
    /// The certificate of the server.
    pub certificate: http::CertificateStatus,
    /// Pause of logins that protects the account from lockout, if any.
    pub login_pause: Option<LoginPause>,
    /// The command that ends this pause for all replicas, if there is one.
    pub login_reset: Option<String>,
}

impl NsxServices {
    /// Starts without a configuration. `stop` stops the connection and all services.
    pub fn new(setup: NsxServicesContext, usable_addresses: UsableAddressesOf, stop: &CancellationToken) -> Self {
        let (routes, balancers) = (watch::Sender::new(RoutesPart::Unavailable), watch::Sender::new(None));
        Self { setup, usable_addresses, connected: Mutex::default(), routes, balancers, stop: stop.clone() }
    }

    /// Applies a configuration, and returns the tasks to run. If the settings of the connection are unchanged, the
    /// connection and its login stay. Otherwise, the connection is replaced or ended.
    ///
    /// # Errors
    /// The login source or the new connection cannot be built. In this case, the old connection and its services stay.
    pub fn apply(&self, config: &Config) -> Result<Vec<Task>, BuildError> {
        let wrong = |problem| BuildError { key: "NSX".to_owned(), problem };
        let mut connected = self.connected.lock();
        let mut tasks = Vec::new();
        match &config.nsx {
            OptionalSection::Used(nsx) => {
                let source = self.setup.connect.source(nsx).map_err(wrong)?;
                match connected.as_mut().filter(|connected| connected.serves(nsx)) {
                    Some(connected) => connected.config = nsx.clone(),
                    None => {
                        let (new, task) = self.connect(nsx, source).map_err(wrong)?;
                        tasks.push(task);
                        if let Some(before) = connected.replace(new) {
                            before.stop.cancel();
                        }
                    }
                }
            }
            OptionalSection::Absent | OptionalSection::Refused => {
                if let Some(before) = connected.take() {
                    before.stop.cancel();
                }
            }
        }
        self.apply_routes(config, connected.as_mut());
        tasks.extend(self.apply_load_balancers(config, connected.as_mut()));
        Ok(tasks)
    }

    fn apply_load_balancers(&self, config: &Config, mut connected: Option<&mut NsxConnection>) -> Option<Task> {
        let (Some(wanted), Some(connected)) = (config.load_balancers.used(), connected.as_deref_mut()) else {
            // Stops the relists and the cleanup of the previous load balancers.
            if let Some((_, before)) = connected.and_then(|connected| connected.balancers.take()) {
                before.cancel();
            }
            self.balancers.send_replace(None);
            return None;
        };
        if connected.balancers.as_ref().is_some_and(|(balancers, _)| balancers.is_configured_as(wanted)) {
            return None;
        }
        let setup = &self.setup;
        let settings = load_balancer::LoadBalancerSettings {
            cluster: setup.cluster.clone(),
            adoption: setup.adoption,
            orphans: setup.orphans,
            requested_addresses: setup.requested_addresses,
        };
        let backend = Arc::new(backend::NsxBackend::new(connected.client.clone(), setup.batches));
        let (nodes, live) = (Arc::clone(&setup.nodes), Arc::clone(&setup.live));
        let events = Arc::clone(&setup.events);
        let leads = setup.leads.clone();
        let balancers = NsxLoadBalancers::new(wanted.clone(), settings, backend, nodes, live, events, leads);
        let balancers = Arc::new(balancers.with_usable_addresses(Arc::clone(&self.usable_addresses)));
        let stop = connected.stop.child_token();
        if let Some((_, before)) = connected.balancers.replace((Arc::clone(&balancers), stop.clone())) {
            before.cancel();
        }
        self.balancers.send_replace(Some(Arc::clone(&balancers)));
        let until = stop.clone();
        let run = Box::pin(async move { balancers.run(&until).await });
        Some(Task { name: "load-balancers".to_owned(), stop, run })
    }

    fn apply_routes(&self, config: &Config, connected: Option<&mut NsxConnection>) {
        let part = match (&config.routes, connected) {
            (OptionalSection::Absent, connected) => {
                if let Some(connected) = connected {
                    connected.router = None;
                }
                RoutesPart::Off
            }
            (OptionalSection::Used(routes), Some(connected)) => {
                let router = routes.router.clone();
                if connected.router.as_ref() == Some(&router) {
                    return;
                }
                connected.router = Some(router.clone());
                let (nodes, live) = (Arc::clone(&self.setup.nodes), Arc::clone(&self.setup.live));
                let (client, usable) = (connected.client.clone(), Arc::clone(&self.usable_addresses));
                let routes = RouterRoutes::new(client, router, self.setup.adoption, nodes, live, usable);
                RoutesPart::Served(Arc::new(routes))
            }
            (OptionalSection::Used(_) | OptionalSection::Refused, _) => RoutesPart::Unavailable,
        };
        self.routes.send_replace(part);
    }

    fn connect(&self, nsx: &NsxConfig, source: LoginSource) -> Result<(NsxConnection, Task), String> {
        let NsxServicesContext { connect, throttle, may_log_in, calls_per_second, timeouts, .. } = &self.setup;
        let http = connect.http(nsx)?;
        let gate = Arc::new(NsxSession::new(http.endpoint(), source, Arc::clone(throttle), may_log_in.clone()));
        let pace = Arc::new(Pace::new(*calls_per_second));
        let client = Client::new(http, &nsx.path_prefix, pace, Arc::clone(&gate) as _, *timeouts);
        let stop = self.stop.child_token();
        let runs = Arc::clone(&gate);
        let logs_in = client.clone();
        let until = stop.clone();
        let run = Box::pin(async move { runs.run(&logs_in, until).await });
        let task = Task { name: "nsx".to_owned(), stop: stop.clone(), run };
        Ok((NsxConnection { config: nsx.clone(), client, gate, router: None, balancers: None, stop }, task))
    }

    pub(in crate::providers::vsphere) fn routes(&self) -> RoutesPart {
        self.routes.borrow().clone()
    }

    pub(in crate::providers::vsphere) fn load_balancers(&self) -> Option<Arc<NsxLoadBalancers>> {
        self.balancers.borrow().clone()
    }

    /// Returns a stream that yields when routes or load balancers are replaced.
    pub(in crate::providers::vsphere) fn changes(&self) -> BoxStream<'static, ()> {
        let changes = (self.routes.subscribe(), self.balancers.subscribe());
        let next = async |(mut routes, mut balancers): (watch::Receiver<_>, watch::Receiver<_>)| {
            let changed = tokio::select! {
                changed = routes.changed() => changed,
                changed = balancers.changed() => changed,
            };
            changed.ok().map(|()| ((), (routes, balancers)))
        };
        Box::pin(futures::stream::unfold(changes, next))
    }

    /// Returns what is known about the route of this Node to this network; `None` without usable routes.
    pub fn known_route(&self, node: &Node, network: &IpNet) -> Option<KnownRoute> {
        let part = self.routes.borrow().clone();
        match part {
            RoutesPart::Served(routes) => Some(routes.known_route(node, network)),
            RoutesPart::Off | RoutesPart::Unavailable => None,
        }
    }

    /// Logs in, and lists the objects of load balancers, if NSX is configured. For a command without a daemon, in whose
    /// process no controller makes calls. Completes when this is done or has failed; the caller limits the wait.
    pub async fn read_once(&self) {
        let (client, gate, balancers) = {
            let connected = self.connected.lock();
            let Some(NsxConnection { client, gate, balancers, .. }) = connected.as_ref() else { return };
            let balancers = balancers.as_ref().map(|(balancers, _)| Arc::clone(balancers));
            (client.clone(), Arc::clone(gate), balancers)
        };
        // The report has the failure.
        if gate.log_in(&client, None).await.is_err() {
            return;
        }
        if let Some(balancers) = balancers {
            balancers.list_once().await;
        }
    }

    /// Whether a login of NSX is in use, so that a read needs none.
    fn has_login(&self) -> bool {
        let connected = self.connected.lock();
        connected.as_ref().is_some_and(|connected| connected.client.login().is_some())
    }

    /// As [`NsxLoadBalancers::read_objects_of`]; `None` without load balancers or a login in use.
    pub async fn read_objects_of(&self, service: &str) -> Option<ServiceReading> {
        let balancers = self.load_balancers().filter(|_| self.has_login())?;
        Some(balancers.read_objects_of(service).await)
    }

    /// Reads the known routes of this Node to these networks, as [`RouterRoutes::read_known_route`]; `None` without
    /// usable routes or a login in use.
    pub async fn read_known_routes(&self, node: &Node, networks: &[IpNet]) -> Option<Vec<RouteReading>> {
        let RoutesPart::Served(routes) = self.routes() else { return None };
        if !self.has_login() {
            return None;
        }
        let mut readings = Vec::new();
        for network in networks {
            readings.extend(routes.read_known_route(node, network).await);
        }
        Some(readings)
    }

    /// As [`inspect`]; `None` without a login in use.
    pub async fn inspect(&self, config: &Config) -> Option<NsxInspection> {
        let (client, balancers) = {
            let connected = self.connected.lock();
            let NsxConnection { client, balancers, .. } = connected.as_ref()?;
            (client.clone(), balancers.as_ref().map(|(balancers, _)| Arc::clone(balancers)))
        };
        client.login()?;
        let lb_service = balancers.and_then(|balancers| balancers.lb_service_path());
        Some(inspect(&client, config, lb_service).await)
    }

    /// Returns the state of the connection; `None` without a connection.
    pub fn report(&self) -> Option<NsxReport> {
        let connected = self.connected.lock();
        let NsxConnection { client, gate, balancers, .. } = connected.as_ref()?;
        let balancers = balancers.as_ref().map(|(balancers, _)| balancers);
        let too_many_tags = balancers.and_then(|balancers| balancers.too_many_tags());
        let balancer_list = balancers.map(|balancers| balancers.list_status()).unwrap_or_default();
        let balancers = balancers.and_then(|balancers| balancers.counts());
        Some(NsxReport {
            server: client.endpoint().to_owned(),
            is_in_use: self.setup.may_log_in.is_leader(),
            login: gate.facts(),
            balancers,
            balancer_list,
            too_many_tags,
            certificate: client.http().certificate_status(),
            login_pause: gate.login_pause(),
            login_reset: gate.login_reset(),
        })
    }
}

impl NsxConnection {
    /// Whether this connection can stay for the settings `nsx`. New credentials need no new connection, because they
    /// arrive through the login source.
    fn serves(&self, nsx: &NsxConfig) -> bool {
        let own = &self.config;
        let is_same_login = match (&own.login, &nsx.login) {
            (NsxLogin::Pair { .. }, NsxLogin::Pair { .. }) | (NsxLogin::VmcToken { .. }, NsxLogin::VmcToken { .. }) => {
                true
            }
            (one, other) => one == other,
        };
        own.host == nsx.host
            && own.port == nsx.port
            && own.path_prefix == nsx.path_prefix
            && own.remote_auth == nsx.remote_auth
            && is_same_login
    }
}
