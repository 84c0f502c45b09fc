//! A leading route controller, its cloud and an API server in memory. The clock of these tests is paused.

use ccm::controllers::Context;
use ccm::controllers::route::withdrawal::{self, Off};
use ccm::controllers::route::{self, RouteSettings, Trigger};
use ccm::kubernetes::events::recorder;
use ccm::kubernetes::leadership::Leadership;
use ccm::kubernetes::stores::watch_nodes;
use ccm::runtime::metrics::Metrics;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::cloud::Cloud;
use super::harness::{Form, condition, settings};
use crate::lifecycle::in_memory::server::Server;
use crate::lifecycle::in_memory::world::{MOMENT, pass, seconds};

/// Returns the default settings.
pub fn watching() -> RouteSettings {
    settings(Trigger::Watch { period: seconds(300) })
}

/// A leading route controller, its cloud and its API server. Its tasks end when this is dropped.
pub struct World {
    pub server: Server,
    pub cloud: Cloud,
    pub metrics: Metrics,
    _tasks: JoinSet<()>,
}

impl World {
    pub async fn start(settings: RouteSettings) -> Self {
        Self::on(Server::start(), Cloud::default(), settings).await
    }

    /// Starts a process on an existing cluster and cloud.
    pub async fn on(server: Server, cloud: Cloud, settings: RouteSettings) -> Self {
        let (nodes, watch) = watch_nodes(server.client(), None);
        let (recorder, writer) = recorder(server.client(), "test");
        let context = Context {
            write: cloud.steps.client(server.client()),
            recorder,
            provider: Arc::new(cloud.clone()),
            leadership: Leadership::always(),
            decisions: Default::default(),
        };
        let mut controller = route::controller(context, nodes.clone(), settings);
        let metrics = Metrics::new().unwrap();
        controller.register(metrics.registry()).unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async { drop(watch.await) });
        tasks.spawn(async { drop(writer.run(CancellationToken::new()).await) });
        tasks.spawn(async { drop(controller.run(CancellationToken::new()).await) });
        nodes.wait_until_ready().await;
        pass(MOMENT).await;
        Self { server, cloud, metrics, _tasks: tasks }
    }

    /// Creates or replaces a node. Returns its UID.
    pub fn put(&self, form: &Form) -> String {
        self.server.with(|state| state.put(form.json()))
    }

    pub fn change(&self, name: &str, change: &Value) {
        self.server.with(|state| state.change(name, change));
    }

    pub fn remove(&self, name: &str) {
        self.server.with(|state| state.remove(name));
    }

    /// Returns the node's condition in the form of [`condition`], or `None` without the node.
    pub fn condition(&self, name: &str) -> Option<String> {
        let node = self.server.node(name)?;
        Some(condition(&serde_json::from_value(node).unwrap()))
    }

    /// Returns the number of writes of nodes.
    pub fn writes(&self) -> usize {
        self.server.sent(&http::Method::PATCH).len()
    }

    /// Returns the value of a series, or zero if the series does not exist.
    pub fn metric(&self, series: &str) -> u64 {
        let text = self.metrics.encode().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }

    pub fn routes_in(&self, state: &str) -> u64 {
        self.metric(&format!("vsphere_ccm_routes{{state=\"{state}\"}}"))
    }
}

/// Starts the removal of conditions while routes are disabled. It runs until the result is dropped.
pub fn withdraw_conditions(server: &Server, cloud: &Cloud, leadership: Leadership, off: Off) -> JoinSet<()> {
    let (nodes, watch) = watch_nodes(server.client(), None);
    let (recorder, _) = recorder(server.client(), "test");
    let provider = Arc::new(cloud.clone());
    let context = Context { write: server.client(), recorder, provider, leadership, decisions: Default::default() };
    let mut tasks = JoinSet::new();
    tasks.spawn(async { drop(watch.await) });
    let controller = withdrawal::controller(context, nodes, off);
    tasks.spawn(async { drop(controller.run(CancellationToken::new()).await) });
    tasks
}

/// Returns a change of the addresses.
pub fn address(address: &str) -> Value {
    json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}})
}

/// Returns a change of the pod networks.
pub fn networks(networks: &[&str]) -> Value {
    json!({"spec": {"podCIDRs": networks}})
}

pub async fn moment() {
    pass(MOMENT).await;
}

/// Advances the clock by this many seconds.
pub async fn go_by(time: u64) {
    pass(seconds(time)).await;
}
