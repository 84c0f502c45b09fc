//! Services shared by controllers and providers: clients, leadership, the cache of Nodes, Events, metrics.

use super::catalogue::{Controller, SERVICE};
use super::election::{self, Candidates, Elections};
use super::options::PROGRAM;
use super::settings::Settings;
use super::shutdown_order::{ShutdownStage, Stages};
use super::{Error, controller_health};
use crate::base::error_chain::chain;
use crate::cloud::CloudProvider;
use crate::controllers::Context;
use crate::controllers::decisions::DecisionHistory;
use crate::controllers::driver::Cache;
use crate::kubernetes::client::{self, Account, Clients, Identity, Rate};
use crate::kubernetes::events::{self, EventWriter, Recorder};
use crate::kubernetes::leadership::Leadership;
use crate::kubernetes::stores::{self, Nodes, Services};
use crate::runtime::admin::Checks;
use crate::runtime::metrics::Metrics;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The component of Events about the Lease, as in the Go program.
const ELECTION: &str = "cloud-controller-manager";

/// Time limit for resolving the API server's name. The start waits for the result.
const RESOLUTION_LIMIT: Duration = Duration::from_secs(5);

/// The connection to the API server. Starts neither watches nor writes, so that a command can use it without the rest.
pub struct ApiServer {
    /// The clients, one for each purpose.
    pub clients: Clients,
    /// The addresses; empty unless the provider needs them.
    pub addresses: Vec<IpAddr>,
    config: kube::Config,
}

/// The caches of Nodes and Services, which background tasks keep up to date.
pub struct Caches {
    /// The Nodes that this process manages.
    pub nodes: Nodes,
    /// The Services that this process manages; `None` if the service controller does not run.
    pub services: Option<Services>,
}

/// The shared services with their running background tasks. Only the election starts later, by `compete`.
pub struct SharedServices {
    /// The connection to the API server.
    pub api_server: ApiServer,
    /// The caches of Nodes and Services.
    pub caches: Caches,
    /// The leadership of each controller.
    pub elections: Elections,
    /// Writes Events on users' objects.
    pub events: Recorder,
    /// The registry of metrics.
    pub metrics: Metrics,
    /// The checks of the probes.
    pub checks: Checks,
    /// Whether a command reads with these services, and no daemon runs: see `app::observer`.
    pub is_observer: bool,
    /// The last decisions of all controllers.
    pub decisions: DecisionHistory,
    /// The candidates of the election until `compete`; `None` afterwards or without an election.
    candidates: Option<Candidates>,
    rate: Option<Rate>,
    /// Service accounts by client name; empty if all controllers write with the identity of this process.
    accounts: BTreeMap<&'static str, Account>,
}

impl ApiServer {
    /// Reads the credentials and builds the clients. Waits for a DNS lookup at most, never for the API server.
    ///
    /// # Errors
    /// The credentials cannot be used.
    pub async fn connect(settings: &Settings) -> Result<Self, Error> {
        let config = client::read_config(&settings.kubernetes).await?;
        tracing::info!(server = %config.cluster_url, "API server");
        let addresses = match settings.provider.needs_api_server_addresses() {
            true => addresses(&config.cluster_url).await,
            false => Vec::new(),
        };
        Ok(Self { clients: Clients::new(&config)?, addresses, config })
    }
}

impl Caches {
    /// Starts the watch of Nodes, and that of Services if a controller needs it.
    pub fn start(clients: &Clients, settings: &Settings, needs_services: bool, stages: &mut Stages) -> Self {
        let (nodes, watch) = stores::watch_nodes(clients.watch.clone(), settings.node_selector.clone());
        stages.spawn_until_stop(ShutdownStage::Services, "watch-nodes", watch);
        if !needs_services {
            return Self { nodes, services: None };
        }
        let (services, watch) = stores::watch_services(clients.watch.clone(), settings.services.selector.clone());
        stages.spawn_until_stop(ShutdownStage::Services, "watch-services", watch);
        Self { nodes, services: Some(services) }
    }

    /// Makes the readiness of this process depend on the caches, and not on the vCenters, whose state `app::vsphere`
    /// adds to `/readyz`.
    fn add_readiness(&self, checks: &Checks) {
        let mut caches: Vec<Arc<dyn Cache>> = vec![Arc::new(self.nodes.clone())];
        caches.extend(self.services.clone().map(|services| Arc::new(services) as Arc<dyn Cache>));
        for cache in caches {
            checks.add_readiness(cache.kind().to_string(), move || {
                controller_health::of_caches(std::slice::from_ref(&cache))
            });
        }
    }
}

impl SharedServices {
    /// Builds the services and starts their background tasks. Waits for a DNS lookup at most, never for the API server.
    pub async fn prepare(settings: &Settings, stages: &mut Stages) -> Result<Self, Error> {
        let api_server = ApiServer::connect(settings).await?;
        let metrics = Metrics::new()?;
        let (candidates, elections) = election::prepare(settings, &api_server.config, &metrics)?;
        let (mut parts, writer) = Self::build(settings, api_server, metrics, elections, stages)?;
        stages.spawn(ShutdownStage::Services, "event-writer", writer.run(stages.stop_signal(ShutdownStage::Services)));
        parts.candidates = candidates;
        if settings.generic.use_service_account_credentials {
            let config = &parts.api_server.config;
            parts.accounts = start_accounts(&settings.controllers, &parts.elections, config, stages)?;
        }
        Ok(parts)
    }

    /// As [`SharedServices::prepare`], for a command that only reads: it never leads, writes no Events and requests no
    /// tokens.
    pub async fn prepare_observer(settings: &Settings, stages: &mut Stages) -> Result<Self, Error> {
        let api_server = ApiServer::connect(settings).await?;
        let (mut parts, _) = Self::build(settings, api_server, Metrics::new()?, Elections::never(), stages)?;
        parts.is_observer = true;
        Ok(parts)
    }

    /// Builds the services and starts the caches. The caller runs the writer of Events.
    fn build(
        settings: &Settings,
        api_server: ApiServer,
        metrics: Metrics,
        elections: Elections,
        stages: &mut Stages,
    ) -> Result<(Self, EventWriter), Error> {
        client::metrics::register(metrics.registry())?;
        let is_run = |controller: &&Controller| elections.leadership_of(controller.name).is_some();
        let needs_services = settings.controllers.iter().copied().filter(is_run).any(|one| one.name == SERVICE);
        let caches = Caches::start(&api_server.clients, settings, needs_services, stages);
        let (events, writer) = events::recorder(api_server.clients.auxiliary.clone(), PROGRAM);
        events.register(metrics.registry())?;
        let checks = Checks::default();
        caches.add_readiness(&checks);
        let parts = Self {
            api_server,
            caches,
            elections,
            events,
            metrics,
            checks,
            is_observer: false,
            decisions: DecisionHistory::default(),
            candidates: None,
            rate: settings.kubernetes.rate,
            accounts: BTreeMap::new(),
        };
        Ok((parts, writer))
    }

    /// Starts to compete for the Leases, if there is an election. Later calls do nothing.
    pub fn compete(&mut self, stages: &mut Stages) {
        if let Some(candidates) = self.candidates.take() {
            candidates.start(&self.events.for_component(ELECTION), &self.checks, stages);
        }
    }

    /// Returns the context of a controller. The client writes under the Lease and the identity of the controller.
    pub fn context(
        &self,
        controller: &Controller,
        leadership: Leadership,
        provider: Arc<dyn CloudProvider>,
    ) -> Result<Context, Error> {
        let identity = match self.accounts.get(controller.client_name) {
            Some(account) => Identity::Account(account),
            None => Identity::Process(controller.client_name),
        };
        let write = client::writer(&self.api_server.config, self.rate, leadership.clone(), identity)?;
        let (recorder, decisions) = (self.events.clone(), self.decisions.clone());
        Ok(Context { write, recorder, provider, leadership, decisions })
    }
}

/// Prepares one service account for each client name, and starts the tasks that renew the tokens.
fn start_accounts(
    controllers: &[&'static Controller],
    elections: &Elections,
    config: &kube::Config,
    stages: &mut Stages,
) -> Result<BTreeMap<&'static str, Account>, Error> {
    let mut accounts = BTreeMap::new();
    // A controller that another program runs needs no account here.
    let is_run = |name| elections.leadership_of(name).is_some();
    for controller in controllers.iter().filter(|controller| is_run(controller.name)) {
        let name = controller.client_name;
        if !accounts.contains_key(name) {
            let (account, keeper) = client::account(config, name, elections.main.clone())?;
            stages.spawn_until_stop(ShutdownStage::Services, format!("service-account {name}"), keeper.run());
            accounts.insert(name, account);
        }
    }
    Ok(accounts)
}

/// Returns the addresses of the API server, which may be virtual IPs that a Node must not report as its own. If the
/// name cannot be resolved, logs the error and returns no addresses.
async fn addresses(url: &http::Uri) -> Vec<IpAddr> {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    if let Ok(address) = host.parse() {
        return vec![address];
    }
    let reason = match tokio::time::timeout(RESOLUTION_LIMIT, tokio::net::lookup_host((host, 0))).await {
        Ok(Ok(found)) => return Vec::from_iter(found.map(|address| address.ip()).collect::<BTreeSet<_>>()),
        Ok(Err(error)) => chain(&error),
        Err(_) => "no answer within 5 s".to_owned(),
    };
    tracing::warn!(
        "{host}, the API server, cannot be resolved, so its addresses are not recognized when a node reports them: {reason}"
    );
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_host_is_an_address_or_a_name_for_some() {
        for (url, expected) in [
            ("https://10.0.0.1:6443", vec!["10.0.0.1"]),
            ("http://192.0.2.7", vec!["192.0.2.7"]),
            ("https://[fd00::1]:6443/path", vec!["fd00::1"]),
            ("https://name.invalid:6443", vec![]),
        ] {
            let expected: Vec<IpAddr> = expected.into_iter().map(|address| address.parse().unwrap()).collect();
            assert_eq!(addresses(&url.parse().unwrap()).await, expected, "{url}");
        }
        let local = addresses(&"https://localhost:6443".parse().unwrap()).await;
        assert!(!local.is_empty() && local.iter().all(IpAddr::is_loopback), "{local:?}");
    }
}
