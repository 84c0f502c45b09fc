//! The load balancers of a simulated cluster on a fake NSX Manager.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ccm::clients::nsx::Timeouts;
use ccm::cloud::{ClusterEvents, ClusterReads, Error, LeaderToken, LiveReads, LoadBalancer as _, ServiceEvent};
use ccm::providers::vsphere::config::{Class, IpPool, LoadBalancerConfig as Config, Profile, Size};
use ccm::providers::vsphere::nsx::AnyLeader;
use ccm::providers::vsphere::nsx::load_balancer::backend::Backend;
use ccm::providers::vsphere::nsx::load_balancer::orphans::Policy;
use ccm::providers::vsphere::nsx::load_balancer::{
    LoadBalancerSettings, NsxLoadBalancers, RequestedAddresses, backend,
};
use ccm::providers::vsphere::nsx::routes::Adoption;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Node, Service};
use serde_json::{Value, json};
use support::fake_nsx::go::{TCP_PROFILE, UDP_PROFILE};
use support::fake_nsx::go_rules::GoProgram;
use support::fake_nsx::{FakeNsx, Model, ObjectVersion, Side};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::announcement::AnnouncedBackend;
use crate::routes::world::{Cluster, client, node};
use crate::world::{SOON, advance};

/// UID of the tests' cluster.
pub const UID: &str = "0b7f1d4c-8f5e-4c65-9f5a-2c7f3ad4b001";
/// The name of the cluster.
pub const NAME: &str = "c";
/// Interval between two complete passes.
const BETWEEN: Duration = Duration::from_secs(10);
/// Maximum time that a call waits for a pass.
const READING: Duration = Duration::from_secs(60);

/// One process of one cluster.
pub struct World {
    pub fake: Arc<FakeNsx>,
    pub cluster: Arc<Cluster>,
    pub balancers: Arc<NsxLoadBalancers>,
    /// The backend, which compares the steps of calls with what is announced.
    pub backend: Arc<AnnouncedBackend>,
    pub config: Config,
    name: String,
    is_leader: Arc<AtomicBool>,
    /// Whether this process leads.
    pub leads: watch::Sender<bool>,
    events: tokio::sync::Mutex<BoxStream<'static, ServiceEvent>>,
    stop: CancellationToken,
}

/// The flags of a process.
struct Flags {
    batches: bool,
    adoption: Adoption,
    orphans: Policy,
    requested_addresses: RequestedAddresses,
}

impl Default for Flags {
    fn default() -> Self {
        Self {
            batches: true,
            adoption: Adoption::AsIs,
            orphans: Policy::Delete,
            requested_addresses: RequestedAddresses::Honored,
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Returns a configuration with the pool `p1`, profiles by path, and a load balancer service that is created on `t1`.
pub fn config() -> Config {
    Config {
        size: Size::Small,
        lb_service_id: None,
        tier1: Some("/infra/tier-1s/t1".to_owned()),
        snat_disabled: false,
        tags: BTreeMap::new(),
        common: Class {
            pool: Some(IpPool::Id("p1".to_owned())),
            tcp: Some(Profile::Path(TCP_PROFILE.to_owned())),
            udp: Some(Profile::Path(UDP_PROFILE.to_owned())),
        },
        classes: BTreeMap::new(),
        ipv6_pools: BTreeMap::new(),
    }
}

/// Returns [`config`] with the additional pool `p6` for IPv6. It has the addresses of [`dual_model`].
pub fn dual_config() -> Config {
    Config { ipv6_pools: [("default".to_owned(), "p6".to_owned())].into(), ..config() }
}

/// Returns a manager with an IP pool of each family.
pub fn dual_model() -> Model {
    Model::small().ip_pool("p6", "pool6", "2001:db8::/64", &[("2001:db8::5", "2001:db8::68")])
}

/// Returns the Service with these families.
pub fn of_families(mut service: Service, policy: &str, families: &[&str]) -> Service {
    let spec = service.spec.as_mut().unwrap();
    spec.ip_family_policy = Some(policy.to_owned());
    spec.ip_families = Some(families.iter().map(|family| (*family).to_owned()).collect());
    service
}

/// Returns a Service with these ports: protocol, port and node port.
pub fn service(key: &str, ports: &[(&str, u16, u16)]) -> Service {
    let (namespace, name) = key.split_once('/').unwrap();
    let port = |(protocol, port, node_port): &(&str, u16, u16)| json!({"name": format!("{protocol}-{port}").to_lowercase(), "protocol": protocol, "port": port, "nodePort": node_port});
    let ports: Vec<Value> = ports.iter().map(port).collect();
    let service = json!({
        "metadata": {"namespace": namespace, "name": name, "uid": format!("uid-of-{key}")},
        "spec": {"type": "LoadBalancer", "ports": ports},
    });
    serde_json::from_value(service).unwrap()
}

/// Returns the Service `ns/s` with one port.
pub fn one() -> Service {
    service("ns/s", &[("TCP", 80, 30080)])
}

/// Returns the Service with these fields in its spec.
pub fn with(service: &Service, fields: Value) -> Service {
    let mut value = serde_json::to_value(service).unwrap();
    value["spec"].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    serde_json::from_value(value).unwrap()
}

/// Returns the Service with an annotation.
pub fn annotated(mut service: Service, key: &str, value: &str) -> Service {
    service.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
    service
}

/// Returns the Service with this status, as the controller writes it.
pub fn with_status(mut service: Service, status: LoadBalancerStatus) -> Service {
    service.status = Some(k8s_openapi::api::core::v1::ServiceStatus { load_balancer: Some(status), conditions: None });
    service
}

/// Returns the Service with this address in its status.
pub fn reporting(service: Service, address: &str) -> Service {
    let ingress = LoadBalancerIngress { ip: Some(address.to_owned()), ..Default::default() };
    with_status(service, LoadBalancerStatus { ingress: Some(vec![ingress]) })
}

/// Returns the status of the Service's load balancer.
pub fn status_of(service: &Service) -> LoadBalancerStatus {
    service.status.as_ref().and_then(|status| status.load_balancer.clone()).unwrap()
}

/// Returns the Service with other ports.
pub fn moved(service: &Service, ports: &[(&str, u16, u16)]) -> Service {
    let mut moved = service.clone();
    moved.spec.as_mut().unwrap().ports = self::service("ns/s", ports).spec.unwrap().ports;
    moved
}

/// Returns the addresses in a status.
pub fn addresses(status: &LoadBalancerStatus) -> Vec<IpAddr> {
    let ingress = status.ingress.as_deref().unwrap_or_default();
    ingress.iter().map(|ingress| ingress.ip.as_deref().unwrap().parse().unwrap()).collect()
}

/// Returns the reason of an error as a text.
pub fn word(error: &Error) -> String {
    error.reason().to_string()
}

/// Waits until a value is the expected one.
pub async fn until<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, value: impl Fn() -> T) {
    support::eventually(what, SOON, async || match value() {
        found if found == expected => Ok(()),
        found => Err(format!("{found:?}")),
    })
    .await;
}

impl World {
    /// Starts a cluster with the nodes `n1` (10.0.0.1) and `n2` (10.0.0.2) on its own manager.
    pub async fn start(uid: Option<&'static str>) -> Self {
        Self::with(Model::small(), uid, config()).await
    }

    pub async fn with(model: Model, uid: Option<&'static str>, config: Config) -> Self {
        Self::on(Arc::new(FakeNsx::start(model).await), NAME, uid, config)
    }

    /// Creates a cluster with this name on a manager that others use, too.
    pub fn on(fake: Arc<FakeNsx>, name: &str, uid: Option<&'static str>, config: Config) -> Self {
        let cluster = Cluster::new(uid);
        cluster.put(node("n1", "uid-1", &[], &[("InternalIP", "10.0.0.1")]));
        cluster.put(node("n2", "uid-2", &[], &[("InternalIP", "10.0.0.2")]));
        Self::of(fake, cluster, name, config, Flags::default())
    }

    fn of(fake: Arc<FakeNsx>, cluster: Arc<Cluster>, name: &str, config: Config, flags: Flags) -> Self {
        let Flags { batches, adoption, orphans, requested_addresses } = flags;
        let (nodes, live) = (Arc::clone(&cluster) as Arc<dyn ClusterReads>, Arc::clone(&cluster) as Arc<dyn LiveReads>);
        let backend = backend::NsxBackend::new(client(&fake, Timeouts::default()), batches);
        let backend = Arc::new(AnnouncedBackend::new(backend));
        let leads = watch::Sender::new(true);
        let balancers = NsxLoadBalancers::new(
            config.clone(),
            LoadBalancerSettings { cluster: name.to_owned(), adoption, orphans, requested_addresses },
            Arc::clone(&backend) as Arc<dyn Backend>,
            nodes,
            live,
            Arc::clone(&cluster) as Arc<dyn ClusterEvents>,
            AnyLeader::new(vec![leads.subscribe()]),
        );
        let balancers = Arc::new(balancers.with_usable_addresses(cluster.usable()));
        backend.watch(&balancers);
        let stop = CancellationToken::new();
        let (runs, until) = (Arc::clone(&balancers), stop.clone());
        drop(tokio::spawn(async move { runs.run(&until).await }));
        let events = tokio::sync::Mutex::new(balancers.subscribe());
        let is_leader = Arc::new(AtomicBool::new(true));
        Self { fake, cluster, balancers, backend, config, name: name.to_owned(), is_leader, leads, events, stop }
    }

    /// Starts a cluster whose nodes have addresses of both families, on a manager with a pool for each family.
    pub async fn dual(uid: Option<&'static str>) -> Self {
        let world = Self::with(dual_model(), uid, dual_config()).await;
        world.put_dual("n1", 1);
        world.put_dual("n2", 2);
        world
    }

    /// Adds a node with addresses of both families.
    pub fn put_dual(&self, name: &str, last: u8) {
        let (v4, v6) = (format!("10.0.0.{last}"), format!("fd00::{last}"));
        self.cluster.put(node(name, &format!("uid-{last}"), &[], &[("InternalIP", &v4), ("InternalIP", &v6)]));
    }

    /// Ends the process, and starts another one with this configuration.
    pub fn restart_as_configured(&mut self, config: Config) {
        self.config = config;
        self.restart();
    }

    /// Ends the process, and starts another one.
    pub fn restart(&mut self) {
        self.restart_with(true);
    }

    /// As [`World::restart`], with or without requests for several pools.
    pub fn restart_with(&mut self, batches: bool) {
        self.restart_as(Flags { batches, ..Flags::default() });
    }

    /// As [`World::restart`], with `--nsx-adopt=full`.
    pub fn restart_adopting_fully(&mut self) {
        self.restart_as(Flags { adoption: Adoption::Full, ..Flags::default() });
    }

    /// As [`World::restart`], with `--nsx-load-balancer-ip=off`.
    pub fn restart_ignoring_requested_addresses(&mut self) {
        self.restart_as(Flags { requested_addresses: RequestedAddresses::Ignored, ..Flags::default() });
    }

    /// As [`World::restart`], with this value of `--nsx-orphans`.
    pub fn restart_with_orphans(&mut self, orphans: Policy) {
        self.restart_as(Flags { orphans, ..Flags::default() });
    }

    /// Ends the term, and lets the same process lead again.
    pub fn begin_next_term(&mut self) {
        self.is_leader.store(false, Ordering::SeqCst);
        self.is_leader = Arc::new(AtomicBool::new(true));
    }

    fn restart_as(&mut self, flags: Flags) {
        self.is_leader.store(false, Ordering::SeqCst);
        let (fake, cluster, config) = (Arc::clone(&self.fake), Arc::clone(&self.cluster), self.config.clone());
        *self = Self::of(fake, cluster, &self.name.clone(), config, flags);
    }

    pub fn permit(&self) -> LeaderToken {
        let is_leader = Arc::clone(&self.is_leader);
        LeaderToken::new(move || is_leader.load(Ordering::SeqCst), || Box::pin(std::future::pending()))
    }

    /// Returns the Nodes of the cluster.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        self.cluster.nodes().collect()
    }

    /// Repeats a call as the controller does, after the announcement that the call waits for.
    async fn repeated<T>(&self, mut call: impl AsyncFnMut() -> Result<T, Error>) -> Result<T, Error> {
        for _ in 0..300 {
            match call().await {
                // No event announces that NSX has realized an object.
                Err(Error::Pending { after, .. }) if after < READING => advance(after).await,
                Err(Error::Pending { .. }) => {
                    // On both clocks the next pass begins immediately.
                    advance(BETWEEN).await;
                    let mut events = self.events.lock().await;
                    tokio::time::timeout(SOON, events.next()).await.expect("the reading is announced");
                }
                other => return other,
            }
        }
        panic!("the call does not end");
    }

    /// Returns the time that the call will wait for `what`, once NSX is read.
    pub async fn waits_for<T>(&self, what: &str, mut call: impl AsyncFnMut() -> Result<T, Error>) -> Duration {
        let waits = self.repeated(async || match call().await {
            Ok(_) => panic!("the call does not wait for {what}"),
            Err(Error::Pending { message, after, .. }) if message.contains(what) => Ok(after),
            Err(other) => Err(other),
        });
        waits.await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Completes at the next announcement of this Service. Panics after `limit`.
    pub fn announcement_within(&self, service: &Service, limit: Duration) -> impl Future<Output = ()> {
        let name = |part: &Option<String>| part.clone().unwrap_or_default();
        let key = format!("{}/{}", name(&service.metadata.namespace), name(&service.metadata.name));
        self.announced(&key, limit)
    }

    /// Completes at the next announcement of this Service.
    pub fn announcement(&self, key: &str) -> impl Future<Output = ()> {
        self.announced(key, SOON)
    }

    fn announced(&self, key: &str, limit: Duration) -> impl Future<Output = ()> + use<> {
        let (mut events, key) = (self.balancers.subscribe(), key.to_owned());
        let is_of = move |event: &ServiceEvent| matches!(event, ServiceEvent::Service { namespace, name } if format!("{namespace}/{name}") == key);
        let announced = async move { while !events.next().await.is_some_and(|event| is_of(&event)) {} };
        async move { tokio::time::timeout(limit, announced).await.expect("the Service is announced") }
    }

    /// Collects the announcements until the returned function is called.
    pub fn announcements(&self) -> impl FnOnce() -> Vec<String> {
        let mut events = self.balancers.subscribe();
        move || {
            let next = || futures::FutureExt::now_or_never(events.next()).flatten();
            std::iter::from_fn(next).map(|event| format!("{event:?}")).collect()
        }
    }

    /// Makes one call, which may have to wait.
    pub async fn try_ensure(&self, service: &Service) -> Result<LoadBalancerStatus, Error> {
        self.ensure_once(service, &self.nodes()).await
    }

    async fn ensure_once(&self, service: &Service, nodes: &[Arc<Node>]) -> Result<LoadBalancerStatus, Error> {
        self.backend.begin(service, Some(nodes));
        self.balancers.ensure_load_balancer(&self.permit(), &self.name, service, nodes).await
    }

    /// Makes one call, which may have to wait.
    pub async fn try_delete(&self, service: &Service) -> Result<(), Error> {
        self.backend.begin(service, None);
        self.balancers.ensure_load_balancer_deleted(&self.permit(), &self.name, service).await
    }

    pub async fn ensure(&self, service: &Service) -> Result<LoadBalancerStatus, Error> {
        let nodes = self.nodes();
        self.repeated(async || self.ensure_once(service, &nodes).await).await
    }

    /// Ensures a Service whose address does not arrive. After each request for the realized state the clock advances
    /// one second.
    pub async fn late(&self, service: &Service) -> Error {
        let asked = || self.fake.counts().of("GET realized-entities");
        let hurry = async {
            loop {
                let before = asked();
                advance(Duration::from_secs(1)).await;
                support::eventually("it is asked for again", SOON, async || match asked() {
                    count if count > before => Ok(()),
                    count => Err(count),
                })
                .await;
            }
        };
        tokio::select! { late = self.ensure(service) => late.unwrap_err(), () = hurry => unreachable!() }
    }

    /// Ensures the Service, and writes its status as the controller does.
    pub async fn ensured(&self, service: &Service) -> Service {
        let status = self.ensure(service).await.unwrap_or_else(|error| panic!("{error}"));
        with_status(service.clone(), status)
    }

    pub async fn get(&self, service: &Service) -> Result<Option<LoadBalancerStatus>, Error> {
        let get = async || self.balancers.get_load_balancer(&self.name, service).await;
        self.repeated(get).await
    }

    pub async fn delete(&self, service: &Service) -> Result<(), Error> {
        self.repeated(async || self.try_delete(service).await).await
    }

    pub async fn update(&self, services: &[&Service]) -> Vec<Result<(), Error>> {
        let services: Vec<_> = services.iter().map(|service| Arc::new((*service).clone())).collect();
        self.balancers.update_nodes(&self.permit(), &self.name, &services, &self.nodes()).await.unwrap()
    }

    /// Returns the writes since the first `seen` versions. Purges by NSX itself are excluded.
    pub fn history(&self, seen: usize) -> Vec<ObjectVersion> {
        self.fake.written_from(seen)
    }

    /// Holds the next write of this operation, or of any for `*`. `meanwhile` begins when the write is held, and its
    /// end releases the write. Returns both results.
    pub async fn during<T, R>(
        &self,
        operation: &str,
        call: impl Future<Output = T>,
        meanwhile: impl Future<Output = R>,
    ) -> (T, R) {
        let hold = self.fake.hold_operation(operation, 1, Side::Request);
        tokio::join!(call, async {
            hold.wait().await;
            let result = meanwhile.await;
            hold.release();
            result
        })
    }

    /// Returns the operations since the last call, without logins.
    pub fn sent(&self) -> Vec<String> {
        let requests = self.fake.requests();
        self.fake.reset_counts();
        let operations = requests.into_iter().map(|request| request.operation);
        operations.filter(|operation| !operation.starts_with("session")).collect()
    }

    /// Returns the objects of load balancers in this collection, given by the last part of its path.
    pub fn objects(&self, collection: &str) -> Vec<Value> {
        let objects = self.fake.objects();
        let is_one = |object: &Value| {
            let path = object["path"].as_str().unwrap_or_default();
            path.rsplit('/').nth(1) == Some(collection) && object["marked_for_delete"] != json!(true)
        };
        objects.into_iter().filter(is_one).collect()
    }

    /// Returns the path of the first object in this collection.
    pub fn path_of(&self, collection: &str) -> String {
        self.objects(collection)[0]["path"].as_str().unwrap().to_owned()
    }

    /// Returns the object at this path, without the fields that NSX adds at realization.
    pub fn object(&self, path: &str) -> Option<Value> {
        let mut object = self.fake.object(path)?;
        if let Some(members) = object.as_object_mut() {
            members.remove("allocated_ip");
        }
        Some(object)
    }

    /// Returns the number of objects of unclear owner.
    pub fn held(&self) -> usize {
        self.balancers.counts().unwrap().ambiguous
    }

    /// Counts the objects of each collection.
    pub fn counted(&self) -> [usize; 5] {
        ["lb-services", "lb-virtual-servers", "lb-pools", "lb-monitor-profiles", "ip-allocations"]
            .map(|collection| self.objects(collection).len())
    }

    /// Returns the addresses of the members of a pool.
    pub fn members(pool: &Value) -> BTreeSet<String> {
        let members = pool["members"].as_array().cloned().unwrap_or_default();
        members.iter().map(|member| member["ip_address"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the objects that the Go program would reject or write.
    pub fn handed_back(&self, services: &[&Service]) -> Vec<String> {
        let services: Vec<Service> = services.iter().map(|service| (*service).clone()).collect();
        let nodes: Vec<Node> = self.nodes().iter().map(|node| (**node).clone()).collect();
        let mut program = GoProgram::new(&self.name);
        program.lb_service_id.clone_from(&self.config.lb_service_id);
        program.tier1_path.clone_from(&self.config.tier1);
        program.hand_back(&self.fake.objects(), |path| self.fake.allocated_address(path), &services, &nodes)
    }
}
