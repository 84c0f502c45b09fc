//! A running node controller with nodes of its own, and nodes as short values.

use async_trait::async_trait;
use ccm::cloud::node::{ANNOTATION_PROVIDED_NODE_IP, TAINT_UNINITIALIZED};
use ccm::cloud::{CloudProvider, InstanceEvents, InstanceMetadata, InstancesV2, Power, PowerState, Presence};
use ccm::controllers::Context;
use ccm::controllers::node::{NodeController, Policy, Settings};
use ccm::kubernetes::client::{self, Clients};
use ccm::kubernetes::events::recorder;
use ccm::kubernetes::leader_election::Leadership;
use ccm::kubernetes::stores::{Nodes, watch_nodes};
use ccm::providers::memory::{Instance, Memory};
use ccm::runtime::metrics::Metrics;
use ccm::runtime::tasks::Tasks;
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use support::{ApiServer, eventually, unique};
use tokio_util::sync::CancellationToken;

/// The label that keeps the nodes of tests apart.
const GROUP: &str = "test.ccm/group";
const LIMIT: Duration = Duration::from_secs(60);

/// What a vector says about a node. The label that keeps tests apart is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    pub name: String,
    /// The keys.
    pub taints: Vec<String>,
    pub provider_id: String,
    pub provided_node_ip: String,
    /// `Type address` each.
    pub addresses: Vec<String>,
    pub labels: BTreeMap<String, String>,
}

impl Form {
    pub fn of(node: &Node) -> Self {
        let mut labels = node.metadata.labels.clone().unwrap_or_default();
        labels.remove(GROUP);
        Self {
            name: node.metadata.name.clone().unwrap(),
            taints: ccm::cloud::node::taints(node).iter().map(|taint| taint.key.clone()).collect(),
            provider_id: ccm::cloud::node::provider_id(node).to_owned(),
            provided_node_ip: ccm::cloud::node::annotation(node, ANNOTATION_PROVIDED_NODE_IP)
                .unwrap_or_default()
                .to_owned(),
            addresses: ccm::cloud::node::addresses::of(node)
                .iter()
                .map(|address| format!("{} {}", address.type_, address.address))
                .collect(),
            labels,
        }
    }

    fn node(&self, group: &str) -> Node {
        let mut labels = self.labels.clone();
        labels.insert(GROUP.to_owned(), group.to_owned());
        let annotation = (ANNOTATION_PROVIDED_NODE_IP.to_owned(), self.provided_node_ip.clone());
        let lines: Vec<&str> = self.addresses.iter().map(String::as_str).collect();
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels),
                annotations: (!self.provided_node_ip.is_empty()).then(|| BTreeMap::from([annotation])),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                provider_id: (!self.provider_id.is_empty()).then(|| self.provider_id.clone()),
                taints: Some(self.taints.iter().map(|key| taint(key)).collect()),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus { addresses: Some(addresses(&lines)), ..NodeStatus::default() }),
        }
    }
}

fn taint(key: &str) -> Taint {
    Taint { key: key.into(), value: Some("true".into()), effect: "NoSchedule".into(), time_added: None }
}

pub fn add_taint(node: &mut Node, key: &str) {
    node.spec.get_or_insert_default().taints.get_or_insert_default().push(taint(key));
}

pub fn is_tainted(node: &Node) -> bool {
    ccm::cloud::node::has_taint(node, TAINT_UNINITIALIZED)
}

pub fn addresses(lines: &[&str]) -> Vec<NodeAddress> {
    lines
        .iter()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(type_, address)| NodeAddress { type_: type_.into(), address: address.into() })
        .collect()
}

pub fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

pub fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub fn instance(node_name: &str, metadata: InstanceMetadata) -> Instance {
    Instance { node_name: node_name.into(), metadata, ..Instance::default() }
}

/// A controller at work. Dropping it ends its tasks.
pub struct Run {
    /// An administrator's.
    pub client: Client,
    group: String,
    nodes: Nodes,
    metrics: Metrics,
    _tasks: Tasks,
}

impl Run {
    pub async fn start(cloud: &Memory, period: Duration, leadership: Leadership) -> Self {
        Self::with_provider(Arc::new(cloud.clone()), period, leadership).await
    }

    pub async fn with_provider(provider: Arc<dyn CloudProvider>, period: Duration, leadership: Leadership) -> Self {
        Self::in_group(unique("group"), provider, 16, period, leadership).await
    }

    /// Another replica for the same nodes, with a single worker and only events to go by.
    pub async fn beside(other: &Self, provider: Arc<dyn CloudProvider>) -> Self {
        let never = Duration::from_secs(3600);
        Self::in_group(other.group.clone(), provider, 1, never, Leadership::always()).await
    }

    async fn in_group(
        group: String,
        provider: Arc<dyn CloudProvider>,
        workers: usize,
        period: Duration,
        leadership: Leadership,
    ) -> Self {
        let server = ApiServer::shared().await;
        let settings = client::Settings { kubeconfig: Some(server.kubeconfig()), ..client::Settings::default() };
        let clients = Clients::build(&settings, leadership.clone()).await.unwrap();
        let (nodes, watch) = watch_nodes(clients.watch.clone(), Some(format!("{GROUP}={group}")));
        let (recorder, writer) = recorder(clients.auxiliary.clone(), "test");
        let context = Context { nodes: nodes.clone(), write: clients.write.clone(), recorder, provider, leadership };
        let settings = Settings { workers: NonZeroUsize::new(workers).unwrap(), period, policy: Policy::default() };
        let controller = NodeController::new(context, settings).unwrap();
        let metrics = Metrics::new().unwrap();
        controller.register(metrics.registry()).unwrap();
        let mut tasks = Tasks::new();
        tasks.spawn("watch", watch);
        tasks.spawn("events", writer.run(CancellationToken::new()));
        tasks.spawn("nodes", controller.run(CancellationToken::new()));
        Self { client: server.client().await, group, nodes, metrics, _tasks: tasks }
    }

    fn api(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub async fn register(&self, form: &Form) -> Node {
        self.api().create(&PostParams::default(), &form.node(&self.group)).await.unwrap()
    }

    pub async fn get(&self, name: &str) -> Node {
        self.api().get(name).await.unwrap()
    }

    /// Waits for the node to be as `is_expected` says.
    pub async fn wait(&self, what: &str, name: &str, is_expected: impl Fn(&Node) -> bool) -> Node {
        eventually(what, LIMIT, async || {
            let node = self.api().get(name).await.map_err(|error| error.to_string())?;
            if is_expected(&node) { Ok(node) } else { Err(format!("{:?}", Form::of(&node))) }
        })
        .await
    }

    /// Waits until the cache knows the node.
    pub async fn wait_for_cache(&self, name: &str) {
        eventually("the cache", LIMIT, async || self.nodes.get(name).map(drop).ok_or("not in the cache")).await;
    }

    /// Waits for a line of the metrics.
    pub async fn wait_for_metric(&self, what: &str, line: &str) {
        eventually(what, LIMIT, async || {
            let text = self.metrics.encode().unwrap();
            if text.lines().any(|other| other == line) { Ok(()) } else { Err(text) }
        })
        .await;
    }
}

/// A provider that panics while it is armed.
pub struct Panicking {
    pub cloud: Memory,
    pub is_armed: Arc<AtomicBool>,
}

impl CloudProvider for Panicking {
    fn provider_name(&self) -> &'static str {
        "panicking"
    }

    fn owns_provider_id(&self, _: &str) -> bool {
        true
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(Self { cloud: self.cloud.clone(), is_armed: self.is_armed.clone() }))
    }
}

#[async_trait]
impl InstancesV2 for Panicking {
    async fn instance_exists(&self, node: &Node) -> Presence {
        self.cloud.instance_exists(node).await
    }

    async fn instance_power(&self, node: &Node) -> Presence<Power> {
        self.cloud.instance_power(node).await
    }

    async fn read_instance_power(&self, node: &Node) -> Presence<PowerState> {
        self.cloud.read_instance_power(node).await
    }

    async fn instance_metadata(&self, node: &Node) -> Presence<InstanceMetadata> {
        assert!(!self.is_armed.load(Ordering::SeqCst), "on purpose");
        self.cloud.instance_metadata(node).await
    }
}

/// A provider to which no provider ID belongs.
pub struct OwnsNothing(pub Memory);

impl CloudProvider for OwnsNothing {
    fn provider_name(&self) -> &'static str {
        self.0.provider_name()
    }

    fn owns_provider_id(&self, _: &str) -> bool {
        false
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        self.0.instances_v2()
    }

    fn instance_events(&self) -> Option<Arc<dyn InstanceEvents>> {
        self.0.instance_events()
    }
}

/// A provider during whose answers, the first few times, somebody else edits the node that is asked about: after it was
/// read, and before it is written.
pub struct Meddling {
    cloud: Memory,
    client: Client,
    turns: usize,
    turn: Arc<AtomicUsize>,
    edit: Edit,
}

/// Edits a node in the turn of this number.
type Edit = fn(&mut Node, usize);

impl Meddling {
    pub async fn new(cloud: Memory, turns: usize, edit: Edit) -> Self {
        let client = ApiServer::shared().await.client().await;
        Self { cloud, client, turns, turn: Arc::default(), edit }
    }
}

impl CloudProvider for Meddling {
    fn provider_name(&self) -> &'static str {
        "meddling"
    }

    fn owns_provider_id(&self, _: &str) -> bool {
        true
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        let (cloud, client, turn) = (self.cloud.clone(), self.client.clone(), self.turn.clone());
        Some(Arc::new(Self { cloud, client, turns: self.turns, turn, edit: self.edit }))
    }
}

#[async_trait]
impl InstancesV2 for Meddling {
    async fn instance_exists(&self, node: &Node) -> Presence {
        self.cloud.instance_exists(node).await
    }

    async fn instance_power(&self, node: &Node) -> Presence<Power> {
        self.cloud.instance_power(node).await
    }

    async fn read_instance_power(&self, node: &Node) -> Presence<PowerState> {
        self.cloud.read_instance_power(node).await
    }

    async fn instance_metadata(&self, node: &Node) -> Presence<InstanceMetadata> {
        let turn = self.turn.fetch_add(1, Ordering::SeqCst);
        if turn < self.turns {
            let api: Api<Node> = Api::all(self.client.clone());
            let mut live = api.get(node.metadata.name.as_deref().unwrap()).await.unwrap();
            (self.edit)(&mut live, turn);
            api.replace(node.metadata.name.as_deref().unwrap(), &PostParams::default(), &live).await.unwrap();
        }
        self.cloud.instance_metadata(node).await
    }
}
