//! Contract of every provider with load balancers, as the service controller uses it.

use std::sync::Arc;
use std::time::Duration;

use ccm::cloud::service::cache_filter;
use ccm::cloud::{Error, Handling, LeaderToken, LoadBalancer, ServiceEvent};
use ccm::controllers::service::cloud_calls::update_nodes;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::{LoadBalancerStatus, Node, NodeAddress, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::sync::watch;

use super::suite::{MOST_WRITES, World, good_for, node, over, permit};

/// Name of the cluster that the provider serves.
const CLUSTER: &str = "c";

/// Limit for an announcement. It is much longer than required.
const ANNOUNCED: Duration = Duration::from_secs(30);

/// Maximum number of waits of a call.
const MOST_WAITS: usize = 20;

/// Returns a Service of type LoadBalancer, as the API server returns it.
pub fn service(uid: &str) -> Service {
    let metadata = ObjectMeta {
        name: Some(format!("service-{uid}")),
        namespace: Some("default".to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectMeta::default()
    };
    let port = |name: &str, protocol: &str, port: i32, node_port: i32| ServicePort {
        name: Some(name.to_owned()),
        protocol: Some(protocol.to_owned()),
        port,
        target_port: Some(IntOrString::Int(port)),
        node_port: Some(node_port),
        ..ServicePort::default()
    };
    let ports = vec![port("http", "TCP", 80, 30080), port("dns", "UDP", 53, 30053)];
    let spec = ServiceSpec { type_: Some("LoadBalancer".into()), ports: Some(ports), ..ServiceSpec::default() };
    Service { metadata, spec: Some(spec), ..Service::default() }
}

/// Returns nodes with these names, each with an address. They belong to another provider, so that no provider has to
/// find their machines.
fn nodes(names: &[&str]) -> Vec<Arc<Node>> {
    let with_address = |name: &&str| {
        let mut node = node(name, &format!("other://{name}"), "");
        let address = format!("10.0.0.{}", name.bytes().next().unwrap());
        let addresses = vec![NodeAddress { type_: "InternalIP".to_owned(), address }];
        node.status.get_or_insert_default().addresses = Some(addresses);
        Arc::new(node)
    };
    names.iter().map(with_address).collect()
}

/// Returns a permit, and the sender that ends it.
fn term() -> (LeaderToken, watch::Sender<bool>) {
    let lasts = watch::Sender::new(true);
    let (checked, watched) = (lasts.subscribe(), lasts.subscribe());
    let ended = move || {
        let mut watched = watched.clone();
        async move { drop(watched.wait_for(|lasts| !lasts).await) }.boxed()
    };
    (LeaderToken::new(move || *checked.borrow(), ended), lasts)
}

fn is_refused<T>(answer: Result<T, Error>) -> bool {
    matches!(answer, Err(Error::NotLeader))
}

/// The load balancers under test, called as the controller does.
struct Balancers<'a> {
    world: &'a dyn World,
    cloud: Arc<dyn LoadBalancer>,
}

impl<'a> Balancers<'a> {
    fn of(world: &'a dyn World) -> Option<Self> {
        let provider = world.provider();
        Some(Self { world, cloud: provider.load_balancer()? })
    }

    /// Repeats a call that is not ready, after the provider announces the Service, or after the time in the error.
    async fn ready<T>(&self, service: &Service, call: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
        for _ in 0..MOST_WAITS {
            let mut events = self.cloud.subscribe();
            let after = match call().await {
                Err(Error::Pending { after, .. }) => after,
                other => return other,
            };
            self.world.pass().await;
            let is_of = |event: &ServiceEvent| match event {
                ServiceEvent::Service { namespace, name } => {
                    service.metadata.namespace.as_ref() == Some(namespace)
                        && service.metadata.name.as_ref() == Some(name)
                }
                ServiceEvent::All => true,
            };
            let announced = async { while !is_of(&events.next().await.expect("the stream goes on")) {} };
            let is_announced = tokio::time::timeout(ANNOUNCED.min(after), announced).await.is_ok();
            assert!(is_announced || after <= ANNOUNCED, "a Service that waits is announced");
        }
        panic!("the call waits and waits");
    }

    async fn get(&self, service: &Service) -> Result<Option<LoadBalancerStatus>, Error> {
        self.get_of(CLUSTER, service).await
    }

    async fn get_of(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, Error> {
        self.ready(service, async || self.cloud.get_load_balancer(cluster, service).await).await
    }

    async fn ensure(
        &self,
        permit: &LeaderToken,
        service: &Service,
        nodes: &[Arc<Node>],
    ) -> Result<LoadBalancerStatus, Error> {
        self.ready(service, async || self.cloud.ensure_load_balancer(permit, CLUSTER, service, nodes).await).await
    }

    async fn update(&self, permit: &LeaderToken, service: &Service, nodes: &[Arc<Node>]) -> Result<(), Error> {
        self.ready(service, async || self.cloud.update_load_balancer(permit, CLUSTER, service, nodes).await).await
    }

    async fn delete(&self, permit: &LeaderToken, service: &Service) -> Result<(), Error> {
        self.ready(service, async || self.cloud.ensure_load_balancer_deleted(permit, CLUSTER, service).await).await
    }

    /// Checks the nodes of a load balancer, if the world can read them.
    async fn assert_nodes(&self, service: &Service, expected: &[&str]) {
        if let Some(nodes) = self.world.nodes_behind(service).await {
            assert_eq!(nodes, expected);
        }
    }
}

/// Runs all tests of load balancers.
pub async fn all(world: &dyn World) {
    let Some(balancers) = Balancers::of(world) else { return };
    nothing_is_written_after_the_end_of_the_lead(&balancers).await;
    the_next_leader_completes_a_call_whose_lead_ended_between_two_writes(&balancers).await;
    they_are_ensured_updated_and_deleted(&balancers).await;
    clusters_are_separate(&balancers).await;
    names_are_stable_and_differ(&balancers);
    what_was_made_or_deleted_by_half_is_deleted_by_the_next_call(&balancers).await;
    all_get_their_nodes_in_one_call(&balancers).await;
    a_service_of_another_program_is_declined(&balancers);
    an_error_never_says_that_there_is_nothing(&balancers).await;
    assert_eq!(world.load_balancer_objects().await, 0, "nothing is left");
}

/// Objects from before the end of the leadership stay unchanged, and reads are still answered.
async fn nothing_is_written_after_the_end_of_the_lead(balancers: &Balancers<'_>) {
    let (valid, over, service) = (permit(), over(), service("12345"));
    assert!(is_refused(balancers.ensure(&over, &service, &nodes(&["a"])).await));
    assert_eq!(balancers.get(&service).await.unwrap(), None);
    let status = balancers.ensure(&valid, &service, &nodes(&["a"])).await.unwrap();
    for others in [&["a"][..], &["b"], &[]] {
        assert!(is_refused(balancers.ensure(&over, &service, &nodes(others)).await));
        assert!(is_refused(balancers.update(&over, &service, &nodes(others)).await));
    }
    assert!(is_refused(balancers.delete(&over, &service).await));
    assert_eq!(balancers.get(&service).await.unwrap(), Some(status));
    balancers.assert_nodes(&service, &["a"]).await;
    balancers.delete(&valid, &service).await.unwrap();
}

/// A permit ends after a given number of checks. Earlier writes stay, and later ones are rejected. With a new permit
/// the same calls reach the same state as without an interruption.
async fn the_next_leader_completes_a_call_whose_lead_ended_between_two_writes(balancers: &Balancers<'_>) {
    let (one, two, nodes) = (service("1"), service("2"), nodes(&["a", "b"]));
    let mut checks = 0;
    // The leadership ends before each write of one call in turn.
    while let Err(error) = balancers.ensure(&good_for(checks), &one, &nodes).await {
        assert!(matches!(error, Error::NotLeader) && checks < MOST_WRITES, "{error}");
        checks += 1;
    }
    assert!(checks > 0, "a call that writes checks the permit");
    let status = balancers.get(&one).await.unwrap();
    let objects = balancers.world.load_balancer_objects().await;
    let again = balancers.ensure(&permit(), &one, &nodes).await.unwrap();
    assert_eq!(status, Some(again), "nothing was left to do");
    assert_eq!(balancers.world.load_balancer_objects().await, objects);
    balancers.assert_nodes(&one, &["a", "b"]).await;

    // The leadership ends between two calls.
    let (permit_of_term, lasts) = term();
    balancers.ensure(&permit_of_term, &two, &nodes).await.unwrap();
    lasts.send_replace(false);
    assert!(is_refused(balancers.delete(&permit_of_term, &two).await));
    assert!(balancers.get(&two).await.unwrap().is_some());
    for service in [&one, &two] {
        balancers.delete(&permit(), service).await.unwrap();
        assert_eq!(balancers.get(service).await.unwrap(), None);
    }
}

async fn they_are_ensured_updated_and_deleted(balancers: &Balancers<'_>) {
    let (mine, other) = (service("lb-1"), service("lb-2"));
    assert_eq!(balancers.get(&mine).await.unwrap(), None);
    assert!(balancers.update(&permit(), &mine, &nodes(&["a"])).await.is_err(), "there is none to update");
    balancers.delete(&permit(), &mine).await.expect("what is not there is deleted");

    let status = balancers.ensure(&permit(), &mine, &nodes(&["b", "a"])).await.unwrap();
    let is_reachable = |status: &LoadBalancerStatus| {
        let ingress = status.ingress.iter().flatten().next();
        ingress.is_some_and(|ingress| ingress.ip.is_some() || ingress.hostname.is_some())
    };
    assert!(is_reachable(&status), "{status:?}");
    let objects = balancers.world.load_balancer_objects().await;
    let again = balancers.ensure(&permit(), &mine, &nodes(&["a", "b"])).await.unwrap();
    assert_eq!((again, balancers.world.load_balancer_objects().await), (status.clone(), objects), "twice is as once");
    balancers.assert_nodes(&mine, &["a", "b"]).await;
    balancers.update(&permit(), &mine, &nodes(&["c", "b"])).await.unwrap();
    assert_eq!(balancers.get(&mine).await.unwrap(), Some(status.clone()));
    balancers.assert_nodes(&mine, &["b", "c"]).await;
    let again = balancers.ensure(&permit(), &mine, &nodes(&["c"])).await.unwrap();
    assert_eq!(again, status, "the address stays");
    balancers.assert_nodes(&mine, &["c"]).await;

    let others = balancers.ensure(&permit(), &other, &[]).await.unwrap();
    assert_ne!(others, status, "no two have the same address");
    for _ in 0..2 {
        balancers.delete(&permit(), &mine).await.unwrap();
        assert_eq!(balancers.get(&mine).await.unwrap(), None);
    }
    assert_eq!(balancers.get(&other).await.unwrap(), Some(others), "the other one stays");
    balancers.delete(&permit(), &other).await.unwrap();
    assert_eq!(balancers.world.load_balancer_objects().await, 0, "nothing is left");
}

/// A provider may serve several clusters, or reject all but its own. It never returns or deletes objects of another
/// cluster.
async fn clusters_are_separate(balancers: &Balancers<'_>) {
    let mine = service("lb-3");
    let status = balancers.ensure(&permit(), &mine, &nodes(&["a"])).await.unwrap();
    for elsewhere in ["c-d", "d", ""] {
        let shown = balancers.get_of(elsewhere, &mine).await;
        assert!(!matches!(shown, Ok(Some(_))), "{elsewhere:?}: {shown:?}");
        // The call may succeed, because there is no load balancer, or be rejected.
        drop(balancers.cloud.ensure_load_balancer_deleted(&permit(), elsewhere, &mine).await);
        drop(balancers.cloud.update_load_balancer(&permit(), elsewhere, &mine, &nodes(&["b"])).await);
    }
    assert_eq!(balancers.get(&mine).await.unwrap(), Some(status));
    balancers.assert_nodes(&mine, &["a"]).await;
    balancers.delete(&permit(), &mine).await.unwrap();
}

fn names_are_stable_and_differ(balancers: &Balancers<'_>) {
    let name = |uid: &str| balancers.cloud.load_balancer_name(CLUSTER, &service(uid));
    assert_eq!(name("1"), name("1"));
    assert_ne!(name("1"), name("2"));
    assert!(!name("1").is_empty());
}

/// This holds even if `get_load_balancer` already returns no load balancer.
async fn what_was_made_or_deleted_by_half_is_deleted_by_the_next_call(balancers: &Balancers<'_>) {
    for is_deleted in [false, true] {
        let mut checks = 0;
        loop {
            let service = service(&format!("lb-half-{is_deleted}-{checks}"));
            let permit_of_term = good_for(checks);
            let interrupted = match is_deleted {
                false => balancers.ensure(&permit_of_term, &service, &nodes(&["a"])).await.map(drop),
                true => {
                    balancers.ensure(&permit(), &service, &nodes(&["a"])).await.unwrap();
                    balancers.delete(&permit_of_term, &service).await
                }
            };
            balancers.delete(&permit(), &service).await.unwrap();
            let left = balancers.world.load_balancer_objects().await;
            assert_eq!(left, 0, "interrupted at check {checks}, deleted: {is_deleted}");
            match interrupted {
                Ok(()) => break,
                Err(Error::NotLeader) => checks += 1,
                Err(error) => panic!("{error}"),
            }
            assert!(checks < MOST_WRITES);
        }
        assert!(checks > 0, "a call that writes checks the permit");
    }
}

async fn all_get_their_nodes_in_one_call(balancers: &Balancers<'_>) {
    let Balancers { cloud, .. } = balancers;
    let services = ["lb-4", "lb-none", "lb-5"].map(|uid| Arc::new(service(uid)));
    for service in [&services[0], &services[2]] {
        balancers.ensure(&permit(), service, &nodes(&["a", "b"])).await.unwrap();
    }
    let valid = permit();
    // The provider's preparations are complete once one Service got its nodes.
    balancers.update(&valid, &services[0], &nodes(&["a", "b"])).await.unwrap();
    for names in [&["c"][..], &["c", "d"], &[]] {
        let results = update_nodes(&**cloud, &valid, CLUSTER, &services, &nodes(names)).await;
        let is_ok: Vec<bool> = results.iter().map(Result::is_ok).collect();
        assert_eq!(is_ok, [true, false, true], "one result each, in their order: {results:?}");
        for service in [&services[0], &services[2]] {
            balancers.assert_nodes(service, names).await;
        }
    }
    let results = update_nodes(&**cloud, &over(), CLUSTER, &services, &nodes(&["e"])).await;
    assert!(results.len() == 3 && results.iter().all(|result| matches!(result, Err(Error::NotLeader))), "{results:?}");
    assert_eq!(update_nodes(&**cloud, &permit(), CLUSTER, &[], &nodes(&["e"])).await.len(), 0);
    balancers.assert_nodes(&services[0], &[]).await;
    for service in &services {
        balancers.delete(&permit(), service).await.unwrap();
    }
}

fn a_service_of_another_program_is_declined(balancers: &Balancers<'_>) {
    let Balancers { world, cloud, .. } = balancers;
    assert_eq!(cloud.handles(&service("lb-6")), Handling::Handled);
    // The cache keeps the annotations that the provider reads.
    let prefixes = cloud.annotation_prefixes();
    assert!(prefixes.iter().all(|prefix| cache_filter::keeps_annotation(prefix)), "{prefixes:?}");
    if let Some(declined) = world.declined_service() {
        assert_eq!(cloud.handles(&declined), Handling::Declined);
        let is_read = |key: &str| cloud.annotation_prefixes().iter().any(|prefix| key.starts_with(prefix));
        assert!(declined.metadata.annotations.unwrap_or_default().keys().all(|key| is_read(key)));
    }
}

/// A provider may continue to answer from its cache. No provider treats an error as absence.
async fn an_error_never_says_that_there_is_nothing(balancers: &Balancers<'_>) {
    let Balancers { world, .. } = balancers;
    let mine = service("lb-7");
    let status = balancers.ensure(&permit(), &mine, &nodes(&["a"])).await.unwrap();
    if world.set_network_fails(true).await {
        let shown = balancers.get(&mine).await;
        assert!(!matches!(shown, Ok(None)), "{shown:?}");
        // The same with a new permit: the cache of an earlier term is no proof.
        for _ in 0..2 {
            assert!(balancers.delete(&permit(), &mine).await.is_err());
        }
        world.set_network_fails(false).await;
        assert_eq!(balancers.get(&mine).await.unwrap(), Some(status));
    }
    balancers.delete(&permit(), &mine).await.unwrap();
    assert_eq!(balancers.get(&mine).await.unwrap(), None);
}
