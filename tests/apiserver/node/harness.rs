//! A running node controller with its own nodes, and nodes in a short form.

mod clouds;

use ccm::cloud::node::{ANNOTATION_PROVIDED_NODE_IP, TAINT_UNINITIALIZED};
use ccm::cloud::{CloudProvider, InstanceEvent, InstanceMetadata, Reason, Unknown};
use ccm::controllers::Context;
use ccm::controllers::node::{self, NodeSettings, Policy};
use ccm::kubernetes::client::{self, Clients, Identity, purpose};
use ccm::kubernetes::events::recorder;
use ccm::kubernetes::leadership::Leadership;
use ccm::kubernetes::stores::{Nodes, watch_nodes};
use ccm::runtime::metrics::Metrics;
use ccm::runtime::tasks::{BoxError, Tasks};
use doubles::memory::{Instance, Memory};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Event, Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::rbac::{Subject, grant};
use support::{ApiServer, eventually, unique};
use tokio_util::sync::CancellationToken;

pub use clouds::{Meddling, OwnsNothing};

/// Type of the condition with the reason why a node is not initialized.
const CONDITION: &str = "VSphereInitialized";
/// Label that separates the nodes of tests.
const GROUP: &str = "test.ccm/group";
const LIMIT: Duration = Duration::from_secs(60);

/// A node in the form of a vector, without the label that separates tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form {
    pub name: String,
    /// Keys of the taints.
    pub taints: Vec<String>,
    pub provider_id: String,
    pub provided_node_ip: String,
    /// Addresses as `Type address`.
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

/// Returns a node that waits for initialization, with no other field than its name.
pub fn waiting(name: &str) -> Form {
    Form { name: name.into(), taints: vec![TAINT_UNINITIALIZED.into()], ..Form::default() }
}

/// Returns the condition with the reason why the node is not initialized.
pub fn condition(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == CONDITION)
}

/// Whether the condition has this status and reason.
pub fn says(node: &Node, status: &str, reason: &str) -> bool {
    condition(node).is_some_and(|found| found.status == status && found.reason.as_deref() == Some(reason))
}

pub fn unknown(reason: Reason, message: &str) -> Option<Unknown> {
    Some(Unknown::new(reason, message))
}

/// Returns a kubeconfig of a user with these rights: resources of the core group, and verbs.
pub async fn user_with(rights: &[(&[&str], &[&str])]) -> PathBuf {
    let server = ApiServer::shared().await;
    let name = unique("user");
    let rule =
        |(resources, verbs): &(&[&str], &[&str])| json!({"apiGroups": [""], "resources": resources, "verbs": verbs});
    let rules = rights.iter().map(rule).collect();
    grant(&server.client().await, None, &name, Subject::User(&name), rules).await;
    server.kubeconfig_of(&name)
}

pub fn instance(node_name: &str, metadata: InstanceMetadata) -> Instance {
    Instance { node_name: node_name.into(), metadata, ..Instance::default() }
}

/// Parameters of a controller. The default has 16 workers, no periodic passes and no other replica.
pub struct Start {
    group: String,
    provider: Arc<dyn CloudProvider>,
    workers: usize,
    period: Duration,
    policy: Policy,
    leadership: Leadership,
    kubeconfig: Option<PathBuf>,
}

impl Start {
    pub fn with(provider: Arc<dyn CloudProvider>) -> Self {
        Self {
            group: unique("group"),
            provider,
            workers: 16,
            period: Duration::from_secs(3600),
            policy: Policy::default(),
            leadership: Leadership::always(),
            kubeconfig: None,
        }
    }

    /// Uses a cloud in memory.
    pub fn on(cloud: &Memory) -> Self {
        Self::with(Arc::new(cloud.clone()))
    }

    /// Uses the same nodes as another run.
    pub fn beside(self, other: &Run) -> Self {
        Self { group: other.group.clone(), ..self }
    }

    /// Sets a period of 100 ms.
    pub fn restless(self) -> Self {
        Self { period: Duration::from_millis(100), ..self }
    }

    pub fn policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    pub fn kubeconfig(self, kubeconfig: PathBuf) -> Self {
        Self { kubeconfig: Some(kubeconfig), ..self }
    }

    pub async fn run(self) -> Run {
        let server = ApiServer::shared().await;
        let client = server.client().await;
        let mut tasks = Tasks::default();
        let history = History::default();
        tasks.spawn("history", history.clone().follow(Api::all(client.clone()), &self.group).await);
        let kubeconfig = self.kubeconfig.unwrap_or_else(|| server.kubeconfig());
        let settings = client::Settings { kubeconfig: Some(kubeconfig), ..client::Settings::default() };
        let config = client::read_config(&settings).await.unwrap();
        let clients = Clients::new(&config).unwrap();
        let identity = Identity::Process(purpose::PROCESS);
        let write = client::writer(&config, None, self.leadership.clone(), identity).unwrap();
        let (nodes, watch) = watch_nodes(clients.watch.clone(), Some(format!("{GROUP}={}", self.group)));
        let (recorder, writer) = recorder(clients.auxiliary.clone(), "test");
        let (provider, leadership) = (self.provider, self.leadership);
        let context = Context { write, recorder, provider, leadership, decisions: Default::default() };
        let workers = NonZeroUsize::new(self.workers).unwrap();
        let settings = NodeSettings { workers, period: self.period, policy: self.policy };
        let mut controller = node::controller(context, nodes.clone(), settings).unwrap();
        let metrics = Metrics::new().unwrap();
        controller.register(metrics.registry()).unwrap();
        tasks.spawn("watch", watch);
        tasks.spawn("events", writer.run(CancellationToken::new()));
        tasks.spawn("nodes", controller.run(CancellationToken::new()));
        Run { client, group: self.group, nodes, metrics, history, _tasks: tasks }
    }
}

/// All states of a group's nodes after their registration.
#[derive(Clone, Default)]
struct History(Arc<Mutex<BTreeMap<String, Vec<Node>>>>);

impl History {
    /// Starts to collect now. The returned future continues the collection.
    async fn follow(self, api: Api<Node>, group: &str) -> impl Future<Output = Result<(), BoxError>> + use<> {
        let labels = format!("{GROUP}={group}");
        let start = api.list(&ListParams::default().labels(&labels)).await.unwrap().metadata.resource_version.unwrap();
        async move {
            let mut events = api.watch(&WatchParams::default().labels(&labels).timeout(290), &start).await?.boxed();
            while let Some(event) = events.next().await {
                if let WatchEvent::Modified(node) = event? {
                    let name = ccm::cloud::node::name(&node).to_owned();
                    self.0.lock().unwrap().entry(name).or_default().push(node);
                }
            }
            Err("the watch ended".into())
        }
    }
}

/// A running controller. Its tasks end when this is dropped.
pub struct Run {
    /// Client with the rights of an administrator.
    pub client: Client,
    group: String,
    nodes: Nodes,
    metrics: Metrics,
    history: History,
    _tasks: Tasks,
}

impl Run {
    pub async fn start(cloud: &Memory, period: Duration, leadership: Leadership) -> Self {
        Start { period, leadership, ..Start::on(cloud) }.run().await
    }

    pub async fn with_provider(provider: Arc<dyn CloudProvider>) -> Self {
        Start::with(provider).run().await
    }

    /// Starts another replica for the same nodes, with a single worker and without periodic passes.
    pub async fn beside(other: &Self, provider: Arc<dyn CloudProvider>) -> Self {
        Start { workers: 1, ..Start::with(provider).beside(other) }.run().await
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

    /// Waits until the node meets `is_expected`.
    pub async fn wait(&self, what: &str, name: &str, is_expected: impl Fn(&Node) -> bool) -> Node {
        eventually(what, LIMIT, async || {
            let node = self.api().get(name).await.map_err(|error| error.to_string())?;
            if is_expected(&node) { Ok(node) } else { Err(format!("{:?}", Form::of(&node))) }
        })
        .await
    }

    /// Returns the states of the node since its registration, one for each write.
    pub async fn writes(&self, name: &str) -> Vec<Node> {
        let version = self.get(name).await.metadata.resource_version;
        eventually("the history is complete", LIMIT, async || {
            let seen = self.history.0.lock().unwrap().get(name).cloned().unwrap_or_default();
            let is_complete = seen.last().is_none_or(|last| last.metadata.resource_version == version);
            if is_complete { Ok(seen) } else { Err(format!("{} writes, the last one is missing", seen.len())) }
        })
        .await
    }

    /// Patches the status as another client.
    pub async fn patch_status(&self, name: &str, status: Value) -> Node {
        let patch = Patch::Strategic(json!({"status": status}));
        self.api().patch_status(name, &PatchParams::default(), &patch).await.unwrap()
    }

    /// Waits until the Events about the node have these types, reasons and counts.
    pub async fn wait_for_events(&self, name: &str, expected: &[(&str, &str, i32)]) {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
        eventually("the Events", LIMIT, async || {
            let list = events.list(&about).await.map_err(|error| error.to_string())?;
            let text = |text: Option<String>| text.unwrap_or_default();
            let mut seen: Vec<(String, String, i32)> = list
                .items
                .into_iter()
                .map(|event| (text(event.type_), text(event.reason), event.count.unwrap_or_default()))
                .collect();
            seen.sort();
            let mut wanted: Vec<_> = expected.iter().map(|(t, r, n)| ((*t).to_owned(), (*r).to_owned(), *n)).collect();
            wanted.sort();
            if seen == wanted { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await;
    }

    /// Returns the value of a series, or zero if the series does not exist.
    pub fn metric(&self, series: &str) -> u64 {
        let text = self.metrics.encode().unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
        value.unwrap_or_default()
    }

    /// Waits until nodes were reconciled this many more times with this result.
    pub async fn wait_for_looks(&self, result: &str, more: u64) {
        self.wait_for_looks_caused_by(|| {}, result, more).await;
    }

    /// The same for a node whose reconciliations always fail. An instance event ends the backoff, and the period does
    /// not.
    pub async fn wait_for_failing_looks(&self, cloud: &Memory, name: &str, result: &str, more: u64) {
        let announce = || cloud.announce(InstanceEvent::Node(name.to_owned()));
        self.wait_for_looks_caused_by(announce, result, more).await;
    }

    async fn wait_for_looks_caused_by(&self, cause: impl Fn(), result: &str, more: u64) {
        let series = format!("vsphere_ccm_node_syncs_total{{result=\"{result}\"}}");
        let before = self.metric(&series);
        eventually("further looks", LIMIT, async || {
            cause();
            let seen = self.metric(&series) - before;
            if seen >= more { Ok(()) } else { Err(format!("{seen} of {more}, {result}")) }
        })
        .await;
    }

    /// Waits until the cache has the node.
    pub async fn wait_for_cache(&self, name: &str) {
        eventually("the cache", LIMIT, async || self.nodes.get(name).map(drop).ok_or("not in the cache")).await;
    }

    /// Waits for a value of the metric of held nodes.
    pub async fn wait_for_nodes_held(&self, what: &str, reason: &str, initialized: bool, nodes: usize) {
        let labels = format!("initialized=\"{initialized}\",reason=\"{reason}\"");
        self.wait_for_metric(what, &format!("vsphere_ccm_nodes_held{{{labels}}} {nodes}")).await;
    }

    pub async fn wait_for_metric(&self, what: &str, line: &str) {
        eventually(what, LIMIT, async || {
            let text = self.metrics.encode().unwrap();
            if text.lines().any(|other| other == line) { Ok(()) } else { Err(text) }
        })
        .await;
    }
}
