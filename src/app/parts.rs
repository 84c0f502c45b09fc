//! What controllers and providers are given: clients, leadership, the shared cache of Nodes, events, metrics.

use super::options::PROGRAM;
use super::settings::Settings;
use super::stages::{Stage, Stages};
use super::{Error, api_server, election};
use crate::cloud::CloudProvider;
use crate::controllers::Context;
use crate::kubernetes::client::{self, Clients};
use crate::kubernetes::events::{self, Recorder};
use crate::kubernetes::leader_election::Leadership;
use crate::kubernetes::stores::{self, Nodes};
use crate::runtime::admin::{Checks, Health};
use crate::runtime::metrics::Metrics;
use std::net::IpAddr;
use std::sync::Arc;

/// The component in Events about the Lease, as in the Go program.
const ELECTION: &str = "cloud-controller-manager";

/// The shared parts. Their background work runs already.
pub struct Parts {
    /// The API server, one client for each purpose.
    pub clients: Clients,
    /// The addresses of the API server, if somebody wants to know them.
    pub api_server: Vec<IpAddr>,
    /// Whether this process may write.
    pub leadership: Leadership,
    /// The Nodes this process looks after.
    pub nodes: Nodes,
    /// For what users are told on their objects.
    pub events: Recorder,
    /// Where series are registered.
    pub metrics: Metrics,
    /// What the probes ask.
    pub checks: Checks,
}

impl Parts {
    /// Builds them and starts their background work. Waits for no answer of the API server, at most for its name.
    pub async fn prepare(settings: &Settings, stages: &mut Stages) -> Result<Self, Error> {
        let config = client::read_config(&settings.kubernetes).await?;
        tracing::info!(server = %config.cluster_url, "API server");
        let api_server = match settings.node_rules.demotes_virtual_ips {
            true => api_server::addresses(&config.cluster_url).await,
            false => Vec::new(),
        };
        let metrics = Metrics::new()?;
        client::metrics::register(metrics.registry())?;
        let (elector, leadership) = match &settings.election {
            None => (None, Leadership::always()),
            Some(settings) => {
                let (elector, token) = election::candidate(settings, &config, &metrics)?;
                (Some(elector), token)
            }
        };
        let clients = Clients::from_config(&config, settings.kubernetes.rate, leadership.clone())?;
        let (nodes, watch) = stores::watch_nodes(clients.watch.clone(), settings.node_selector.clone());
        stages.spawn_until_stop(Stage::Services, "watch-nodes", watch);
        let (events, writer) = events::recorder(clients.auxiliary.clone(), PROGRAM);
        events.register(metrics.registry())?;
        stages.spawn(Stage::Services, "event-writer", writer.run(stages.stop_signal(Stage::Services)));
        if let Some(elector) = elector {
            let elector = elector.with_recorder(events.for_component(ELECTION));
            stages.spawn(Stage::Election, "leader-election", elector.run(stages.stop_signal(Stage::Election)));
        }
        let checks = checks(nodes.clone());
        Ok(Self { clients, api_server, leadership, nodes, events, metrics, checks })
    }

    /// What the controller of this name is handed.
    pub fn context(&self, _controller: &'static str, provider: Arc<dyn CloudProvider>) -> Context {
        Context {
            nodes: self.nodes.clone(),
            write: self.clients.write.clone(),
            recorder: self.events.clone(),
            provider,
            leadership: self.leadership.clone(),
        }
    }
}

/// Ready means that the caches are filled. The provider adds the state of its vCenters, which fails nothing.
fn checks(nodes: Nodes) -> Checks {
    let checks = Checks::default();
    checks.add_readiness("nodes", move || match nodes.is_ready() {
        true => Health::Ok,
        false => Health::Failed("the nodes have not been listed yet".to_owned()),
    });
    checks
}
