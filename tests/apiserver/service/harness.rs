//! A service controller with its own Services and Nodes, running or step by step.

use ccm::cloud::node;
use ccm::controllers::Context;
use ccm::controllers::driver::{Controller, Reconciler};
use ccm::controllers::service::{self, ServiceSettings};
use ccm::kubernetes::client::{self, Clients, Identity, purpose};
use ccm::kubernetes::events::recorder;
use ccm::kubernetes::leadership::Leadership;
use ccm::kubernetes::stores::{Nodes, Services, watch_nodes, watch_services};
use ccm::runtime::metrics::Metrics;
use ccm::runtime::tasks::Tasks;
use doubles::memory::{Call, Memory};
use k8s_openapi::api::core::v1::{Event, LoadBalancerIngress, Namespace, Node, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use support::{ApiServer, AuditEvent, eventually, unique};
use tokio_util::sync::CancellationToken;

pub use ccm::cloud::service::{FINALIZER, has_finalizer};

/// Label that separates the objects of tests.
pub const GROUP: &str = "test.ccm/group";
pub const LIMIT: Duration = Duration::from_secs(60);

/// Returns the spec of a Service of type LoadBalancer with one port.
pub fn spec(protocol: &str) -> Value {
    json!({"type": "LoadBalancer", "ports": [{"port": 80, "protocol": protocol}]})
}

pub fn ingress(service: &Service) -> &[LoadBalancerIngress] {
    ccm::cloud::service::ingress(service)
}

/// Whether the controller sent this request. The controller writes the status only.
pub fn is_ours(event: &AuditEvent) -> bool {
    event.object_ref.resource == "services" && event.object_ref.subresource == "status"
}

/// A controller. It runs unless it was only prepared. Its tasks end when this is dropped.
pub struct Run {
    /// Client with the rights of an administrator.
    client: Client,
    pub cloud: Memory,
    pub namespace: String,
    pub group: String,
    pub metrics: Metrics,
    pub services: Services,
    nodes: Nodes,
    tasks: Tasks,
}

/// Parameters of a run.
pub struct Start {
    pub cloud: Memory,
    pub leadership: Leadership,
    /// Namespace and label of another run. The default is a new pair.
    pub place: Option<(String, String)>,
    pub has_node_selector: bool,
}

impl Start {
    pub fn of(cloud: &Memory) -> Self {
        Self { cloud: cloud.clone(), leadership: Leadership::always(), place: None, has_node_selector: false }
    }
}

impl Run {
    pub async fn start(cloud: &Memory) -> Self {
        Self::with(ApiServer::shared().await, Start::of(cloud)).await
    }

    pub async fn with(server: &ApiServer, start: Start) -> Self {
        let (mut run, mut controller) = Self::prepare(server, start).await;
        controller.register(run.metrics.registry()).unwrap();
        run.tasks.spawn("service", controller.run(CancellationToken::new()));
        run
    }

    /// Starts the caches, and returns a controller that does not run.
    pub async fn prepare(server: &ApiServer, start: Start) -> (Self, Controller<impl Reconciler>) {
        let Start { cloud, leadership, place, has_node_selector } = start;
        let client = server.client().await;
        let (namespace, group) = match place {
            Some(place) => place,
            None => {
                let name = unique("service");
                let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
                Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
                (name, unique("group"))
            }
        };
        let access = client::Settings { kubeconfig: Some(server.kubeconfig()), ..client::Settings::default() };
        let config = client::read_config(&access).await.unwrap();
        let clients = Clients::new(&config).unwrap();
        let write = client::writer(&config, None, leadership.clone(), Identity::Process(purpose::PROCESS)).unwrap();
        let selector = format!("{GROUP}={group}");
        let (nodes, watch_nodes) = watch_nodes(clients.watch.clone(), Some(selector.clone()));
        let (services, watch_services) = watch_services(clients.watch.clone(), Some(selector.clone()));
        let (recorder, writer) = recorder(clients.auxiliary.clone(), "test");
        let provider = Arc::new(cloud.clone());
        let context = Context { write, recorder, provider, leadership, decisions: Default::default() };
        let settings = ServiceSettings {
            workers: NonZeroUsize::new(8).unwrap(),
            cluster_name: "kubernetes".to_owned(),
            selector: Some(selector),
            has_node_selector,
        };
        let controller = service::controller(context, services.clone(), nodes.clone(), settings);
        let mut tasks = Tasks::default();
        tasks.spawn("watch-nodes", watch_nodes);
        tasks.spawn("watch-services", watch_services);
        tasks.spawn("events", writer.run(CancellationToken::new()));
        nodes.wait_until_ready().await;
        services.wait_until_ready().await;
        let metrics = Metrics::new().unwrap();
        (Self { client, cloud, namespace, group, metrics, services, nodes, tasks }, controller)
    }

    /// Ends all tasks, so that the caches do not change any more.
    pub async fn freeze(&mut self) {
        self.tasks = Tasks::default();
    }

    /// Returns namespace and label, for another run.
    pub fn place(&self) -> Option<(String, String)> {
        Some((self.namespace.clone(), self.group.clone()))
    }

    pub fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }

    /// Returns the value of a series. `series` may include labels.
    pub fn metric(&self, series: &str) -> f64 {
        let text = self.metrics.encode().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{series} in {text}")).parse().unwrap()
    }

    /// Returns the number of Services that are not up to date, for any reason.
    pub fn held(&self) -> f64 {
        let text = self.metrics.encode().unwrap();
        let values =
            text.lines().filter_map(|line| line.strip_prefix("vsphere_ccm_load_balancers_held{")?.split_once("} "));
        values.map(|(_, value)| value.parse::<f64>().unwrap()).sum()
    }

    /// Waits for the value of a series. A sync is counted at its end, which can be after its Event or its call.
    pub async fn wait_for_metric(&self, what: &str, series: &str, value: f64) {
        eventually(what, LIMIT, async || {
            let is = self.metric(series);
            if is == value { Ok(()) } else { Err(format!("{series} is {is}")) }
        })
        .await;
    }

    pub fn api(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn create(&self, name: &str, metadata: Value, spec: Value) {
        let mut all = json!({"name": name, "labels": {GROUP: self.group}});
        all.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let service = serde_json::from_value(json!({"metadata": all, "spec": spec})).unwrap();
        self.api().create(&PostParams::default(), &service).await.unwrap();
    }

    pub async fn delete(&self, name: &str) {
        self.api().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn patch(&self, name: &str, patch: Value) {
        self.api().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn wait(&self, what: &str, name: &str, is_expected: impl Fn(&Service) -> bool) -> Service {
        eventually(what, LIMIT, async || {
            let service = self.api().get(name).await.map_err(|error| error.to_string())?;
            if is_expected(&service) { Ok(service) } else { Err(format!("{service:?} {:?}", self.events(name).await)) }
        })
        .await
    }

    pub async fn wait_until_gone(&self, name: &str) {
        eventually("it is gone", LIMIT, async || match self.api().get_opt(name).await.unwrap() {
            None => Ok(()),
            Some(service) => Err(format!("{service:?}")),
        })
        .await;
    }

    /// Returns the reasons of the controller's Events about a Service, in alphabetical order. Events of the API server
    /// are excluded.
    pub async fn events(&self, name: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let about = ListParams::default().fields(&format!("involvedObject.name={name}"));
        let events = events.list(&about).await.unwrap().items;
        let is_ours = |event: &Event| {
            let source = event.source.as_ref();
            source.and_then(|source| source.component.as_deref()) == Some("service-controller")
        };
        let mut reasons: Vec<_> = events.into_iter().filter(is_ours).filter_map(|event| event.reason).collect();
        reasons.sort();
        reasons
    }

    pub async fn wait_for_event(&self, name: &str, reason: &str) {
        eventually(&format!("Event {reason} on {name}"), LIMIT, async || {
            let events = self.events(name).await;
            if events.iter().any(|event| event == reason) { Ok(()) } else { Err(format!("{events:?}")) }
        })
        .await;
    }

    /// Whether the controller has reported that the Node changes too often.
    pub async fn is_flapping(&self, name: &str) -> bool {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let about =
            ListParams::default().fields(&format!("involvedObject.name={},reason=NodeFlapping", self.node_name(name)));
        !events.list(&about).await.unwrap().items.is_empty()
    }

    pub fn node_name(&self, name: &str) -> String {
        format!("{name}-{}", self.group)
    }

    pub async fn node(&self, name: &str) {
        let metadata = json!({"name": self.node_name(name), "labels": {GROUP: self.group}});
        let node: Node = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        Api::<Node>::all(self.client.clone()).create(&PostParams::default(), &node).await.unwrap();
    }

    /// Adds a Node and waits until the controller has cached it.
    pub async fn with_node(&self, name: &str) {
        self.node(name).await;
        let name = self.node_name(name);
        eventually("the Node is known", LIMIT, async || if self.nodes.contains(&name) { Ok(()) } else { Err("no") })
            .await;
    }

    pub async fn delete_node(&self, name: &str) {
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.delete(&self.node_name(name), &DeleteParams::default()).await.unwrap();
    }

    pub async fn patch_node(&self, name: &str, patch: Value) {
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.patch(&self.node_name(name), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Gives the Node this address and waits until the controller has cached it.
    pub async fn set_address(&self, name: &str, address: &str) {
        let nodes = Api::<Node>::all(self.client.clone());
        let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
        let name = self.node_name(name);
        nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        eventually("the address is known", LIMIT, async || match self.nodes.get(&name) {
            Some(node) if !node::addresses::of(&node).is_empty() => Ok(()),
            node => Err(format!("{node:?}")),
        })
        .await;
    }

    /// Excludes the Node from load balancers.
    pub async fn exclude(&self, name: &str) {
        self.patch_node(name, json!({"metadata": {"labels": {service::node_set::LABEL_EXCLUDE: ""}}})).await;
    }

    /// Creates Services of type LoadBalancer and waits until they have their addresses.
    pub async fn create_ensured(&self, names: &[&str]) {
        for name in names {
            self.create(name, json!({}), spec("TCP")).await;
        }
        for name in names {
            self.wait("it is ensured", name, |service| !ingress(service).is_empty()).await;
        }
    }

    /// Waits until there were at least this many calls.
    pub async fn wait_for_calls(&self, call: Call, count: usize) {
        eventually(&format!("{count} calls {call:?}"), LIMIT, async || {
            let found = self.cloud.count(call);
            if found >= count { Ok(()) } else { Err(found) }
        })
        .await;
    }

    /// Waits until every load balancer has exactly these Nodes.
    pub async fn wait_for_nodes(&self, names: &[String]) {
        eventually("the load balancers have the Nodes", LIMIT, async || {
            let balancers = self.cloud.load_balancers();
            let is_done = !balancers.is_empty() && balancers.iter().all(|balancer| balancer.nodes == names);
            if is_done { Ok(()) } else { Err(format!("{balancers:?}")) }
        })
        .await;
    }
}
