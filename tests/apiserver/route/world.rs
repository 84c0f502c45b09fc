//! A route controller that leads, its cloud and an API server in memory. The clock of these tests is paused.

use ccm::controllers::Context;
use ccm::controllers::route::{self, Off, RouteSettings, Trigger};
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

/// By default.
pub fn watching() -> RouteSettings {
    settings(Trigger::Watch { period: seconds(300) })
}

/// See the file's header. Dropping it ends its tasks.
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

    /// A process that finds a cluster and a cloud.
    pub async fn on(server: Server, cloud: Cloud, settings: RouteSettings) -> Self {
        let (nodes, watch) = watch_nodes(server.client(), None);
        let (recorder, writer) = recorder(server.client(), "test");
        let context = Context {
            write: cloud.steps.client(server.client()),
            recorder,
            provider: Arc::new(cloud.clone()),
            leadership: Leadership::always(),
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

    /// Creates or replaces a node. Gives its UID.
    pub fn put(&self, form: &Form) -> String {
        self.server.with(|state| state.put(form.json()))
    }

    pub fn change(&self, name: &str, change: &Value) {
        self.server.with(|state| state.change(name, change));
    }

    pub fn remove(&self, name: &str) {
        self.server.with(|state| state.remove(name));
    }

    /// As [`condition`] shows it; nothing without the node.
    pub fn condition(&self, name: &str) -> Option<String> {
        let node = self.server.node(name)?;
        Some(condition(&serde_json::from_value(node).unwrap()))
    }

    /// How many writes of nodes there were.
    pub fn writes(&self) -> usize {
        self.server.sent(&http::Method::PATCH).len()
    }

    /// The value of a series; zero if it is not there.
    pub fn metric(&self, series: &str) -> u64 {
        let text = self.metrics.encode().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }

    pub fn routes_in(&self, state: &str) -> u64 {
        self.metric(&format!("vsphere_ccm_routes{{state=\"{state}\"}}"))
    }
}

/// What removes conditions while routes are off, for as long as the result is kept.
pub fn withdraw_conditions(server: &Server, cloud: &Cloud, leadership: Leadership, off: Off) -> JoinSet<()> {
    let (nodes, watch) = watch_nodes(server.client(), None);
    let (recorder, _) = recorder(server.client(), "test");
    let context = Context { write: server.client(), recorder, provider: Arc::new(cloud.clone()), leadership };
    let mut tasks = JoinSet::new();
    tasks.spawn(async { drop(watch.await) });
    tasks.spawn(async move { match route::withdraw_conditions(context, nodes, off).await {} });
    tasks
}

/// A change of the addresses.
pub fn address(address: &str) -> Value {
    json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}})
}

/// A change of the networks of the pods.
pub fn networks(networks: &[&str]) -> Value {
    json!({"spec": {"podCIDRs": networks}})
}

pub async fn moment() {
    pass(MOMENT).await;
}

/// Time goes by.
pub async fn go_by(time: u64) {
    pass(seconds(time)).await;
}
