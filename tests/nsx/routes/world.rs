//! The routes of one router of a fake NSX Manager, for clusters with the Nodes of the test.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ccm::clients::http::{self, TlsSettings, TlsTrust};
use ccm::clients::nsx::{Client, Kind, LogIn, Login, NoLogin, Pace, Scheme, Timeouts};
use ccm::cloud::{
    AbsenceProof, ClusterEvents, ClusterReads, Error, LeaderToken, LiveReads, NodeChange, Presence, Reason, Route,
    Routes as _, Unknown, UsableAddresses, reason,
};
use ccm::controllers::route::plan::{LiveReadVerdict, RouteChanges, plan};
use ccm::controllers::route::pod_networks::RefusedNetworks;
use ccm::providers::vsphere::nsx::UsableAddressesOf;
use ccm::providers::vsphere::nsx::routes::{Adoption, RouterRoutes};
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream::{self, BoxStream};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Node, Service};
use serde_json::{Value, json};
use support::fake_nsx::{FakeNsx, Model, ObjectVersion, Recorded};

/// Name of the cluster in the vectors, and the default name.
pub const NAME: &str = "kubernetes";

/// The router of the vectors.
pub const ROUTER: &str = "/infra/tier-1s/test-t1";

pub const UID_1: &str = "62d347a4-1b70-435e-b92a-9a61453843ee";
pub const UID_2: &str = "a4775ec4-8b68-42ea-86fc-d17390e4c373";

/// The Nodes and the UID of a simulated cluster.
pub struct Cluster {
    nodes: Mutex<BTreeMap<String, Arc<Node>>>,
    /// Usable addresses by name of the Node. A missing entry permits all addresses.
    usable: Mutex<BTreeMap<String, UsableAddresses>>,
    /// Services by namespace and name.
    pub services: Mutex<BTreeMap<String, Service>>,
    /// Services that the API server has and the cache lacks.
    pub hidden: Mutex<BTreeMap<String, Service>>,
    uid: Option<&'static str>,
    /// Number of calls of `cluster_uid`.
    pub uid_reads: AtomicUsize,
    /// Whether the API server does not answer.
    pub is_down: AtomicBool,
    /// Events about the cluster: reason and message.
    pub warnings: Mutex<Vec<(String, String)>>,
}

impl Cluster {
    pub fn new(uid: Option<&'static str>) -> Arc<Self> {
        Arc::new(Self {
            nodes: Mutex::default(),
            usable: Mutex::default(),
            services: Mutex::default(),
            hidden: Mutex::default(),
            uid,
            uid_reads: AtomicUsize::new(0),
            is_down: AtomicBool::new(false),
            warnings: Mutex::default(),
        })
    }

    pub fn put(&self, node: Node) {
        self.nodes.lock().unwrap().insert(node.metadata.name.clone().unwrap(), Arc::new(node));
    }

    /// Sets the addresses that vCenter reports for the Node's machine.
    pub fn set_usable(&self, name: &str, usable: UsableAddresses) {
        self.usable.lock().unwrap().insert(name.to_owned(), usable);
    }

    /// Returns the function for the provider.
    pub fn usable(self: &Arc<Self>) -> UsableAddressesOf {
        let cluster = Arc::clone(self);
        Arc::new(move |node| {
            let usable = cluster.usable.lock().unwrap();
            usable.get(node.metadata.name.as_deref().unwrap()).cloned().unwrap_or_default()
        })
    }

    pub fn remove(&self, name: &str) {
        self.nodes.lock().unwrap().remove(name);
    }
}

impl ClusterReads for Cluster {
    fn nodes(&self) -> Box<dyn Iterator<Item = Arc<Node>> + Send + '_> {
        let nodes: Vec<_> = self.nodes.lock().unwrap().values().cloned().collect();
        Box::new(nodes.into_iter())
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.lock().unwrap().get(name).cloned()
    }

    fn has_service(&self, key: &str) -> bool {
        self.services.lock().unwrap().contains_key(key)
    }

    fn node_changes(&self) -> BoxStream<'static, NodeChange> {
        stream::iter([NodeChange::All]).chain(stream::pending()).boxed()
    }
}

fn unknown() -> Unknown {
    Unknown::new(reason::NoPermission, "namespace kube-system: forbidden")
}

#[async_trait]
impl LiveReads for Cluster {
    async fn node(&self, _name: &str) -> Presence<Node> {
        Presence::Unknown(unknown())
    }

    async fn service(&self, namespace: &str, name: &str) -> Presence<Service> {
        if self.is_down.load(Ordering::Relaxed) {
            return Presence::Unknown(unknown());
        }
        let key = format!("{namespace}/{name}");
        let hidden = self.hidden.lock().unwrap().get(&key).cloned();
        match self.services.lock().unwrap().get(&key).cloned().or(hidden) {
            Some(service) => Presence::Exists(service),
            None => Presence::Absent(AbsenceProof::new("no Service of this name", [])),
        }
    }

    async fn cluster_uid(&self) -> Result<String, Unknown> {
        self.uid_reads.fetch_add(1, Ordering::Relaxed);
        if self.is_down.load(Ordering::Relaxed) {
            return Err(Unknown::new(reason::APIServerUnavailable, "namespace kube-system: no answer"));
        }
        self.uid.map(str::to_owned).ok_or_else(unknown)
    }
}

#[async_trait]
impl ClusterEvents for Cluster {
    async fn warn(&self, reason: Reason, message: &str) {
        self.warnings.lock().unwrap().push((reason.to_string(), message.to_owned()));
    }
}

/// Returns a Node with these pod networks, and with addresses as pairs of type and text.
pub fn node(name: &str, uid: &str, networks: &[&str], addresses: &[(&str, &str)]) -> Node {
    let addresses: Vec<Value> = addresses.iter().map(|(kind, text)| json!({"type": kind, "address": text})).collect();
    let node = json!({
        "metadata": {"name": name, "uid": uid},
        "spec": {"podCIDRs": networks},
        "status": {"addresses": addresses},
    });
    serde_json::from_value(node).unwrap()
}

/// Opens a session with the fake's user.
struct Password {
    user: String,
    password: String,
    turn: tokio::sync::Mutex<()>,
}

#[async_trait]
impl LogIn for Password {
    async fn log_in(&self, client: &Client, over: Option<&Login>) -> Result<(), NoLogin> {
        let _turn = self.turn.lock().await;
        if client.login().is_some_and(|login| over.is_none_or(|over| !login.is(over))) {
            return Ok(());
        }
        let opened = client.open_session(Scheme::Basic, &self.user, &self.password.clone().into()).await;
        let failed = |reason: String| NoLogin { kind: Kind::Unavailable, reason };
        let login = opened.map_err(|error| failed(error.to_string()))?;
        client.adopt(login.ok_or_else(|| failed("no sessions".to_owned()))?);
        Ok(())
    }

    fn rejected(&self, _login: &Login) {}
}

/// Returns a client of the manager. It logs in with its first call.
pub fn client(fake: &FakeNsx, timeouts: Timeouts) -> Client {
    let trust = TlsTrust::Ca { pem: fake.ca_pem().as_bytes().to_vec(), path: "ca.pem".to_owned() };
    let tls = TlsSettings { trust, ..TlsSettings::default() };
    let mut settings = http::Settings::new("127.0.0.1", fake.port(), tls, "test");
    settings.connect_timeout = settings.connect_timeout.min(timeouts.call);
    let http = http::Client::new(settings).unwrap();
    let login =
        Password { user: fake.user().to_owned(), password: fake.password(), turn: tokio::sync::Mutex::default() };
    Client::new(http, "", Arc::new(Pace::new(80)), Arc::new(login), timeouts)
}

/// One cluster with its provider.
pub struct World {
    pub fake: Arc<FakeNsx>,
    pub cluster: Arc<Cluster>,
    pub routes: RouterRoutes,
    router: String,
    timeouts: Timeouts,
}

/// Result of one change in a pass.
pub struct Outcome {
    pub route: Route,
    pub is_deletion: bool,
    pub result: Result<(), Error>,
}

pub fn permit() -> LeaderToken {
    LeaderToken::new(|| true, || Box::pin(std::future::pending()))
}

pub fn model() -> Model {
    Model::empty().tier1("test-t1")
}

impl World {
    /// Starts a cluster with this UID, the first node of the vectors, and its own router.
    pub async fn start(uid: Option<&'static str>) -> Self {
        Self::with(model(), uid).await
    }

    pub async fn with(model: Model, uid: Option<&'static str>) -> Self {
        let fake = Arc::new(FakeNsx::start(model).await);
        let world = Self::on(fake, uid, ROUTER, Adoption::AsIs);
        world.cluster.put(node("node1", UID_1, &["100.96.0.0/24"], &[("InternalIP", "172.50.0.13")]));
        world
    }

    /// Creates a cluster without Nodes on a manager that others use, too.
    pub fn on(fake: Arc<FakeNsx>, uid: Option<&'static str>, router: &str, adoption: Adoption) -> Self {
        Self::new(fake, Cluster::new(uid), router, adoption, Timeouts::default())
    }

    /// As [`Self::on`], on the router of the vectors, with these time limits for calls.
    pub fn on_time(fake: Arc<FakeNsx>, uid: Option<&'static str>, timeouts: Timeouts) -> Self {
        Self::new(fake, Cluster::new(uid), ROUTER, Adoption::AsIs, timeouts)
    }

    fn new(fake: Arc<FakeNsx>, cluster: Arc<Cluster>, router: &str, adoption: Adoption, timeouts: Timeouts) -> Self {
        let (nodes, live) = (Arc::clone(&cluster) as Arc<dyn ClusterReads>, Arc::clone(&cluster) as Arc<dyn LiveReads>);
        let routes = RouterRoutes::new(client(&fake, timeouts), router, adoption, nodes, live, cluster.usable());
        Self { fake, cluster, routes, router: router.to_owned(), timeouts }
    }

    /// Ends the process, and starts another one.
    pub fn restart(&mut self, adoption: Adoption) {
        let (fake, cluster) = (Arc::clone(&self.fake), Arc::clone(&self.cluster));
        *self = Self::new(fake, cluster, &self.router, adoption, self.timeouts);
    }

    pub fn path(&self, id: &str) -> String {
        format!("{}/static-routes/{id}", self.router)
    }

    /// Returns the route in NSX.
    pub fn object(&self, id: &str) -> Value {
        self.fake.object(&self.path(id)).unwrap_or_default()
    }

    pub fn objects(&self) -> Vec<Value> {
        let mut objects = self.fake.objects_below(&format!("{}/static-routes", self.router));
        objects.retain(|object| object["marked_for_delete"] != json!(true));
        objects
    }

    /// Returns the writes since the first `seen` versions. Purges by NSX itself are excluded.
    pub fn history(&self, seen: usize) -> Vec<ObjectVersion> {
        self.fake.written_from(seen)
    }

    /// Creates the route of the first vector.
    pub async fn create(&self) -> Result<(), Error> {
        self.create_for("node1", UID_1, "100.96.0.0/24").await
    }

    pub async fn create_for(&self, node: &str, uid: &str, network: &str) -> Result<(), Error> {
        let route = Route { target_node: node.to_owned(), destination_cidr: network.to_owned(), ..Route::default() };
        self.routes.create_route(&permit(), NAME, uid, &route).await
    }

    pub async fn list(&self) -> Vec<Route> {
        self.routes.list_routes(NAME).await.unwrap()
    }

    pub async fn delete(&self, route: &Route) -> Result<(), Error> {
        self.routes.delete_route(&permit(), NAME, route).await
    }

    /// Returns the route controller's plan for a new list.
    pub async fn plan(&self) -> BTreeMap<IpNet, RouteChanges> {
        self.plan_of(&self.list().await)
    }

    /// Returns the route controller's plan for this list.
    pub fn plan_of(&self, listed: &[Route]) -> BTreeMap<IpNet, RouteChanges> {
        let nodes: Vec<_> = self.cluster.nodes().collect();
        let nodes: Vec<&Node> = nodes.iter().map(|node| &**node).collect();
        let networks = ["100.96.0.0/11".parse().unwrap(), "fd00::/8".parse().unwrap()];
        plan(&nodes, listed, &networks, &RefusedNetworks::default(), self.routes.rewrites_in_place())
    }

    /// Makes a pass of the route controller without errors. Nodes that are not in the cluster count as deleted.
    pub async fn pass(&self) {
        for changes in self.plan().await.into_values() {
            for Outcome { route, result, .. } in self.make(changes).await {
                result.unwrap_or_else(|error| panic!("{route:?}: {error}"));
            }
        }
    }

    /// Makes these changes, concurrently for each network.
    pub async fn work(&self, changes: BTreeMap<IpNet, RouteChanges>) -> Vec<Outcome> {
        join_all(changes.into_values().map(|changes| self.make(changes))).await.into_iter().flatten().collect()
    }

    /// Makes these changes in sequence until one fails.
    async fn make(&self, changes: RouteChanges) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for deletion in changes.deletions {
            let live = match self.cluster.nodes.lock().unwrap().get(&deletion.route.target_node) {
                Some(node) => Presence::Exists((**node).clone()),
                None => Presence::Absent(AbsenceProof::new("no Node of this name", [])),
            };
            if deletion.verdict(Some(&live)) == LiveReadVerdict::Delete {
                let result = self.delete(&deletion.route).await;
                outcomes.push(Outcome { route: deletion.route, is_deletion: true, result });
            }
        }
        for creation in changes.creations {
            if outcomes.iter().any(|outcome| outcome.result.is_err()) {
                break;
            }
            let result = self.routes.create_route(&permit(), NAME, &creation.name_hint, &creation.route).await;
            outcomes.push(Outcome { route: creation.route, is_deletion: false, result });
        }
        outcomes
    }

    /// Returns the requests since the last call, without logins.
    pub fn sent(&self) -> Vec<Recorded> {
        let requests = self.fake.requests();
        self.fake.reset_counts();
        requests.into_iter().filter(|request| !request.operation.starts_with("session")).collect()
    }

    /// Returns the operations of these requests.
    pub fn operations(&self) -> Vec<String> {
        self.sent().into_iter().map(|request| request.operation).collect()
    }
}

/// Returns the reason of a failure as a text.
pub fn word(error: &Error) -> String {
    match error {
        Error::Failed { reason, .. } | Error::Invalid { reason, .. } => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Returns a route as the Go program writes it.
pub fn of_go(node: &str, network: &str, hop: &str) -> Value {
    json!({
        "display_name": format!("{NAME}_{node}_{network}"),
        "network": network,
        "next_hops": [{"ip_address": hop}],
        "tags": [
            {"scope": "vsphere.k8s.io/cluster-name", "tag": NAME},
            {"scope": "vsphere.k8s.io/node-name", "tag": node},
        ],
    })
}
