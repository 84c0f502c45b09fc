//! A running route controller with its own nodes, and nodes in a short form.

use ccm::controllers::Context;
use ccm::controllers::route::withdrawal::{self, Off};
use ccm::controllers::route::{self, PodNetworks, RouteSettings, Trigger};
use ccm::kubernetes::client::{self, Clients, Identity, purpose};
use ccm::kubernetes::events::recorder;
use ccm::kubernetes::leadership::Leadership;
use ccm::kubernetes::stores::{Nodes, watch_nodes};
use ccm::runtime::metrics::Metrics;
use ccm::runtime::tasks::Tasks;
use k8s_openapi::api::core::v1::{Event, Node, NodeCondition};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use support::{ApiServer, eventually, unique};
use tokio_util::sync::CancellationToken;

use super::cloud::{CLUSTER, Cloud};

/// Label that separates the nodes of tests.
const GROUP: &str = "test.ccm/group";
pub const LIMIT: Duration = Duration::from_secs(60);

/// Returns settings for the Go program's loop, with a short period.
pub fn looping() -> RouteSettings {
    settings(Trigger::Loop { period: Duration::from_millis(200) })
}

pub fn settings(trigger: Trigger) -> RouteSettings {
    let networks = ["10.120.0.0/16", "a00::/8"].map(|network| network.parse().unwrap()).into();
    let pod_networks = PodNetworks::ClusterCidr;
    RouteSettings { cluster_name: CLUSTER.into(), networks, pod_networks, trigger, writes_condition: true }
}

/// A node in the form of a vector.
#[derive(Clone, Debug, Default)]
pub struct Form {
    pub name: String,
    pub networks: Vec<String>,
    pub address: String,
    pub provider_id: String,
}

impl Form {
    pub fn new(name: &str, networks: &[&str], address: &str) -> Self {
        let networks = networks.iter().map(|network| (*network).to_owned()).collect();
        Self { name: name.into(), networks, address: address.into(), provider_id: String::new() }
    }

    /// Returns the node without the group label, for the API server in memory.
    pub fn json(&self) -> Value {
        let mut spec = json!({"podCIDRs": self.networks, "podCIDR": self.networks.first()});
        if !self.provider_id.is_empty() {
            spec["providerID"] = json!(self.provider_id);
        }
        let status = json!({"addresses": [{"type": "InternalIP", "address": self.address}]});
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}, "spec": spec, "status": status})
    }

    /// Returns the routes that the node needs, in the form of [`Cloud::routes`].
    pub fn routes(&self) -> Vec<String> {
        self.networks.iter().map(|network| format!("{} {network} {}", self.name, self.address)).collect()
    }
}

/// Returns status and reason, such as `False RouteCreated`. Empty without the condition.
pub fn condition(node: &Node) -> String {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let found = conditions.iter().find(|condition| condition.type_ == "NetworkUnavailable");
    let shown = |one: &NodeCondition| format!("{} {}", one.status, one.reason.as_deref().unwrap_or_default());
    found.map(shown).unwrap_or_default()
}

/// A running controller. Its tasks end when this is dropped.
pub struct Run {
    /// Client with the rights of an administrator.
    pub client: Client,
    pub group: String,
    pub nodes: Nodes,
    metrics: Metrics,
    _tasks: Tasks,
}

/// Parameters of a run.
pub struct Start {
    pub cloud: Cloud,
    pub settings: RouteSettings,
    pub leadership: Leadership,
    /// Group of another run, to use the same nodes.
    pub group: Option<String>,
    /// Whether routes are disabled, so that only conditions are removed.
    pub is_off: bool,
}

impl Start {
    pub fn of(cloud: &Cloud, settings: RouteSettings) -> Self {
        Self { cloud: cloud.clone(), settings, leadership: Leadership::always(), group: None, is_off: false }
    }
}

impl Run {
    pub async fn start(cloud: &Cloud, settings: RouteSettings) -> Self {
        Self::with(Start::of(cloud, settings)).await
    }

    pub async fn with(start: Start) -> Self {
        let server = ApiServer::shared().await;
        let access = client::Settings { kubeconfig: Some(server.kubeconfig()), ..client::Settings::default() };
        let config = client::read_config(&access).await.unwrap();
        let clients = Clients::new(&config).unwrap();
        let identity = Identity::Process(purpose::PROCESS);
        let write = client::writer(&config, None, start.leadership.clone(), identity).unwrap();
        let group = start.group.unwrap_or_else(|| unique("group"));
        let (nodes, watch) = watch_nodes(clients.watch.clone(), Some(format!("{GROUP}={group}")));
        let (recorder, writer) = recorder(clients.auxiliary.clone(), "test");
        let (provider, leadership) = (Arc::new(start.cloud), start.leadership);
        let context = Context { write, recorder, provider, leadership, decisions: Default::default() };
        let (metrics, mut tasks) = (Metrics::new().unwrap(), Tasks::default());
        if start.is_off {
            let controller = withdrawal::controller(context, nodes.clone(), Off::ByFlag);
            tasks.spawn("conditions", controller.run(CancellationToken::new()));
        } else {
            let mut controller = route::controller(context, nodes.clone(), start.settings);
            controller.register(metrics.registry()).unwrap();
            tasks.spawn("routes", controller.run(CancellationToken::new()));
        }
        tasks.spawn("watch", watch);
        tasks.spawn("events", writer.run(CancellationToken::new()));
        Self { client: server.client().await, group, nodes, metrics, _tasks: tasks }
    }

    pub fn api(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub async fn register(&self, form: &Form) -> Node {
        self.register_in(form, &self.group).await
    }

    /// Creates a node in another group.
    pub async fn register_in(&self, form: &Form, group: &str) -> Node {
        let mut node = form.json();
        node["metadata"]["labels"] = json!({GROUP: group});
        self.api().create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap()
    }

    pub async fn patch_status(&self, name: &str, status: Value, manager: &str) -> Node {
        let parameters = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
        let patch = Patch::Strategic(json!({"status": status}));
        self.api().patch_status(name, &parameters, &patch).await.unwrap()
    }

    pub async fn delete(&self, name: &str) {
        self.api().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn get(&self, name: &str) -> Node {
        self.api().get(name).await.unwrap()
    }

    /// Waits until a node has this condition.
    pub async fn wait_for_condition(&self, what: &str, name: &str, expected: &str) -> Node {
        eventually(what, LIMIT, async || {
            let node = self.get(name).await;
            if condition(&node) == expected { Ok(node) } else { Err(format!("{name}: {:?}", condition(&node))) }
        })
        .await
    }

    /// Waits until the cloud has exactly these routes of the cluster.
    pub async fn wait_for_routes(&self, what: &str, cloud: &Cloud, expected: &[String]) {
        let mut expected = expected.to_vec();
        expected.sort();
        eventually(what, LIMIT, async || {
            let routes = cloud.routes();
            if routes == expected { Ok(()) } else { Err(format!("{routes:?}, not {expected:?}")) }
        })
        .await;
    }

    /// Waits for the end of this many more passes.
    pub async fn several_passes(&self, count: u64) {
        let before = self.metric("route_controller_route_sync_total");
        eventually("several passes", LIMIT, async || {
            let passes = self.metric("route_controller_route_sync_total") - before;
            if passes >= count { Ok(()) } else { Err(passes.to_string()) }
        })
        .await;
    }

    /// Waits until the cached node meets `is_expected`.
    pub async fn wait_for_cache(&self, name: &str, is_expected: impl Fn(Option<&Node>) -> bool) {
        eventually("the cache", LIMIT, async || {
            let node = self.nodes.get(name);
            if is_expected(node.as_deref()) { Ok(()) } else { Err(format!("{node:?}")) }
        })
        .await;
    }

    /// Returns the value of a series, or zero if the series does not exist.
    pub fn metric(&self, series: &str) -> u64 {
        let text = self.metrics.encode().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().unwrap())
    }

    pub async fn wait_for_metric(&self, series: &str, value: u64) {
        eventually(series, LIMIT, async || {
            let is = self.metric(series);
            if is == value { Ok(()) } else { Err(format!("{is}\n{}", self.metrics.encode().unwrap())) }
        })
        .await;
    }

    /// Returns the Events about a node.
    pub async fn events(&self, name: &str) -> Vec<Event> {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
        events.list(&about).await.unwrap().items
    }
}
