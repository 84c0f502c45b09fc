//! Contract of every provider, as functions over `dyn CloudProvider`.

use async_trait::async_trait;
use ccm::cloud::{
    CloudProvider, Error, InstanceEvent, InstanceMetadata, InstancesV2, LeaderToken, Power, PowerState, Presence,
    Route, legacy,
};
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, NodeSystemInfo, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::load_balancers;

/// Limit for an answer. Providers answer from their caches.
const QUICK: Duration = Duration::from_secs(2);

/// Limit until a change is announced and visible. It is much longer than required, so only a failing provider waits
/// that long.
const SOON: Duration = Duration::from_secs(30);

/// Maximum number of permit checks in a call.
pub const MOST_WRITES: usize = 100;

/// Time without an event after which a request is repeated.
const AGAIN: Duration = Duration::from_millis(100);

/// Preparation of a provider's machines for the suite. Names are node names. Every call returns once the change is
/// made. The provider may observe the change later.
#[async_trait]
pub trait World: Send + Sync {
    /// The provider under test.
    fn provider(&self) -> Arc<dyn CloudProvider>;

    /// Adds a running machine with this address for the node with this name. Also adds the node to the provider if that
    /// is required. Returns the machine's system UUID.
    async fn add(&self, name: &str, address: &str) -> String;

    /// Changes the machine's address.
    async fn set_address(&self, name: &str, address: &str);

    /// Switches the machine off or on.
    async fn set_power(&self, name: &str, on: bool);

    /// Destroys the machine in a way that is a proof for the provider. Returns false if the provider cannot prove
    /// absence.
    async fn destroy(&self, name: &str) -> bool;

    /// Makes the state of the machine unknown, or known again.
    async fn set_unreachable(&self, name: &str, unreachable: bool);

    /// Causes more changes than the provider buffers for a slow subscriber. Returns false if the test cannot cause
    /// them.
    async fn flood(&self, name: &str) -> bool;

    /// Makes every call about load balancers and routes fail, or succeed again. Returns false if the test cannot cause
    /// that.
    async fn set_network_fails(&self, _fails: bool) -> bool {
        false
    }

    /// Returns the number of load balancer objects in the cloud, including those of incomplete creations and deletions.
    async fn load_balancer_objects(&self) -> usize {
        0
    }

    /// Returns the names of the nodes of a Service's load balancer, sorted, if they can be read.
    async fn nodes_behind(&self, _service: &Service) -> Option<Vec<String>> {
        None
    }

    /// Advances the clock by the provider's longest pause between two reads of its cloud, if the clock can be set.
    async fn pass(&self) {}

    /// Returns a Service whose load balancer another program makes, if the provider can distinguish it.
    fn declined_service(&self) -> Option<Service> {
        None
    }

    /// Returns a provider ID of another provider, and IDs that no provider could have created.
    fn strange_provider_ids(&self) -> Vec<String> {
        vec!["elsewhere://12345".into(), "://".into(), "\u{0}".into()]
    }
}

/// Returns a node as a kubelet registers it.
pub fn node(name: &str, provider_id: &str, uuid: &str) -> Node {
    let info = NodeSystemInfo { system_uuid: uuid.into(), ..NodeSystemInfo::default() };
    Node {
        metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
        spec: Some(NodeSpec {
            provider_id: (!provider_id.is_empty()).then(|| provider_id.to_owned()),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus { node_info: Some(info), ..NodeStatus::default() }),
    }
}

/// Returns a permit that never ends.
pub fn permit() -> LeaderToken {
    LeaderToken::new(|| true, || std::future::pending().boxed())
}

/// Returns a permit that has ended.
pub fn over() -> LeaderToken {
    LeaderToken::new(|| false, || std::future::ready(()).boxed())
}

/// Returns a permit that ends after this many checks.
pub fn good_for(checks: usize) -> LeaderToken {
    let left = AtomicUsize::new(checks);
    let check = move |left: usize| left.checked_sub(1);
    let is_valid = move || left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, check).is_ok();
    LeaderToken::new(is_valid, || std::future::pending().boxed())
}

/// Runs all tests.
pub async fn all(world: &dyn World) {
    metadata_is_found_by_uuid_and_by_provider_id_and_is_stable(world).await;
    a_change_of_address_is_announced_and_visible(world).await;
    a_machine_that_is_off_exists_and_is_shut_down(world).await;
    a_power_state_is_proven_and_lasts_until_it_changes(world).await;
    exists_unknown_and_absent_are_different(world).await;
    strange_provider_ids_are_never_absent(world).await;
    a_machine_nobody_has_seen_is_unknown(world).await;
    a_subscriber_that_falls_behind_is_told_to_look_at_everything(world).await;
    load_balancers::all(world).await;
    no_route_is_written_after_the_end_of_the_lead(world).await;
    the_next_leader_completes_the_routes_of_a_lead_that_ended(world).await;
    routes_are_created_listed_by_cluster_and_deleted(world).await;
    an_error_never_says_that_there_are_no_routes(world).await;
}

/// Routes from before the end of the leadership stay unchanged, and reads are still answered.
async fn no_route_is_written_after_the_end_of_the_lead(world: &dyn World) {
    let Some(routes) = world.provider().routes() else { return };
    let (valid, over) = (permit(), over());
    let route = Route { target_node: "a".into(), destination_cidr: "10.1.0.0/24".into(), ..Route::default() };
    assert!(matches!(routes.create_route(&over, "c", "uid", &route).await, Err(Error::NotLeader)));
    assert_eq!(routes.list_routes("c").await.unwrap(), []);
    routes.create_route(&valid, "c", "uid", &route).await.unwrap();
    let listed = routes.list_routes("c").await.unwrap();
    assert!(matches!(routes.delete_route(&over, "c", &listed[0]).await, Err(Error::NotLeader)));
    assert_eq!(routes.list_routes("c").await.unwrap(), listed);
    routes.delete_route(&valid, "c", &listed[0]).await.unwrap();
}

/// A permit ends after a given number of checks. Earlier writes stay, and later ones are rejected. With a new permit
/// the same calls reach the same state as without an interruption.
async fn the_next_leader_completes_the_routes_of_a_lead_that_ended(world: &dyn World) {
    let Some(routes) = world.provider().routes() else { return };
    let route = |number: usize| Route {
        target_node: "a".into(),
        destination_cidr: format!("10.{number}.0.0/24"),
        ..Route::default()
    };
    let mut checks = 0;
    while let Err(error) = routes.create_route(&good_for(checks), "c", "uid", &route(1)).await {
        assert!(matches!(error, Error::NotLeader) && checks < MOST_WRITES, "{error}");
        checks += 1;
    }
    assert!(checks > 0, "a call that writes checks the permit");
    let permit = good_for(checks);
    routes.create_route(&permit, "c", "uid", &route(2)).await.unwrap();
    let listed = routes.list_routes("c").await.unwrap();
    assert_eq!(listed.len(), 2, "{listed:?}");
    for one in &listed {
        assert!(matches!(routes.delete_route(&permit, "c", one).await, Err(Error::NotLeader)));
    }
    assert_eq!(routes.list_routes("c").await.unwrap(), listed);
    for one in &listed {
        routes.delete_route(&good_for(usize::MAX), "c", one).await.unwrap();
    }
    assert_eq!(routes.list_routes("c").await.unwrap(), []);
}

async fn routes_are_created_listed_by_cluster_and_deleted(world: &dyn World) {
    let Some(routes) = world.provider().routes() else { return };
    let route = Route { target_node: "a".into(), destination_cidr: "10.1.0.0/24".into(), ..Route::default() };
    for cluster in ["c", "c", "c-d"] {
        routes.create_route(&permit(), cluster, "uid", &route).await.unwrap();
    }
    let listed = routes.list_routes("c").await.unwrap();
    let [one] = listed.as_slice() else { panic!("created twice is created once: {listed:?}") };
    assert!(!one.name.is_empty() && !one.blackhole);
    assert_eq!((one.target_node.as_str(), one.destination_cidr.as_str()), ("a", "10.1.0.0/24"));
    for _ in 0..2 {
        routes.delete_route(&permit(), "c", one).await.unwrap();
        assert_eq!(routes.list_routes("c").await.unwrap(), []);
    }
    let others = routes.list_routes("c-d").await.unwrap();
    assert_eq!(others.len(), 1, "clusters are separate");
    routes.delete_route(&permit(), "c-d", &others[0]).await.unwrap();
}

async fn an_error_never_says_that_there_are_no_routes(world: &dyn World) {
    let Some(routes) = world.provider().routes() else { return };
    if world.set_network_fails(true).await {
        assert!(routes.list_routes("c").await.is_err());
        world.set_network_fails(false).await;
    }
}

fn instances(world: &dyn World) -> Arc<dyn InstancesV2> {
    legacy::instances_v2_of(&*world.provider()).expect("the provider has instances")
}

async fn quickly<T>(answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(QUICK, answer).await.expect("the provider answers from what it knows")
}

/// Waits until the result of `ask` meets `accept`. Repeats `ask` at every event, and also periodically, because not
/// every change is announced.
async fn eventually<T: std::fmt::Debug, F: Future<Output = T>>(
    world: &dyn World,
    what: &str,
    ask: impl Fn() -> F,
    accept: impl Fn(&T) -> bool,
) -> T {
    let start = Instant::now();
    let mut events = world.provider().instance_events().expect("the provider announces changes").subscribe();
    loop {
        let answer = quickly(ask()).await;
        if accept(&answer) {
            return answer;
        }
        assert!(start.elapsed() < SOON, "{what}: the last answer is {answer:?}");
        let _ = tokio::time::timeout(AGAIN, events.next()).await;
    }
}

async fn known(world: &dyn World, node: &Node) -> InstanceMetadata {
    let instances = instances(world);
    eventually(world, "metadata", || instances.instance_metadata(node), |answer| matches!(answer, Presence::Exists(_)))
        .await
        .found()
        .unwrap()
}

/// Waits for the next event that meets `is_wanted`.
async fn next_event(
    events: &mut BoxStream<'static, InstanceEvent>,
    is_wanted: impl Fn(&InstanceEvent) -> bool,
) -> InstanceEvent {
    let wanted = async {
        loop {
            let event = events.next().await.expect("the stream goes on");
            if is_wanted(&event) {
                return event;
            }
        }
    };
    tokio::time::timeout(SOON, wanted).await.expect("the change is announced")
}

/// Waits for the next event about `name`.
async fn next_about(events: &mut BoxStream<'static, InstanceEvent>, name: &str) {
    next_event(events, |event| *event == InstanceEvent::Node(name.to_owned()) || *event == InstanceEvent::All).await;
}

fn addresses(metadata: &InstanceMetadata) -> Vec<&str> {
    metadata.node_addresses.iter().map(|address| address.address.as_str()).collect()
}

async fn metadata_is_found_by_uuid_and_by_provider_id_and_is_stable(world: &dyn World) {
    let uuid = world.add("found", "10.11.0.1").await;
    let first = known(world, &node("found", "", &uuid)).await;
    assert!(!first.provider_id.is_empty(), "the provider ID comes with the metadata");
    assert!(world.provider().owns_provider_id(&first.provider_id), "a provider owns the IDs it makes");
    assert!(addresses(&first).contains(&"10.11.0.1"), "{first:?}");

    let by_id = node("found", &first.provider_id, &uuid);
    for ask in [by_id.clone(), by_id, node("found", "", &uuid)] {
        // A provider may return the evidence from the time of the search, or the current evidence.
        let again = InstanceMetadata { found_by: first.found_by, ..known(world, &ask).await };
        assert_eq!(again, first, "the same question has the same answer");
    }
    let uuid = world.add("other", "10.11.0.2").await;
    let other = known(world, &node("other", "", &uuid)).await;
    match quickly(instances(world).instance_metadata(&node("found", &other.provider_id, ""))).await {
        Presence::Exists(metadata) => {
            assert_eq!(addresses(&metadata), addresses(&other), "the provider ID comes first")
        }
        Presence::Unknown(_) => {}
        Presence::Absent(proof) => panic!("a contradiction proves nothing: {proof}"),
    }
}

async fn a_change_of_address_is_announced_and_visible(world: &dyn World) {
    let uuid = world.add("moving", "10.12.0.1").await;
    let ask = node("moving", "", &uuid);
    known(world, &ask).await;
    let mut events = world.provider().instance_events().expect("the provider announces changes").subscribe();
    world.set_address("moving", "10.12.0.2").await;
    loop {
        next_about(&mut events, "moving").await;
        let now = known(world, &ask).await;
        if addresses(&now).contains(&"10.12.0.2") {
            break;
        }
    }
    // After a refresh an earlier change is visible, or the answer is marked as stale.
    world.set_address("moving", "10.12.0.3").await;
    tokio::time::timeout(SOON, instances(world).refresh()).await.expect("the question has a limit");
    let now = quickly(instances(world).instance_metadata(&ask)).await.found().unwrap();
    assert!(addresses(&now).contains(&"10.12.0.3") || now.stale.is_some(), "{now:?}");
}

async fn a_machine_that_is_off_exists_and_is_shut_down(world: &dyn World) {
    let uuid = world.add("resting", "10.13.0.1").await;
    let id = known(world, &node("resting", "", &uuid)).await.provider_id;
    let ask = node("resting", &id, &uuid);
    let instances = instances(world);
    for on in [true, false, true] {
        world.set_power("resting", on).await;
        let is_expected = |answer: &Presence<bool>| *answer == Presence::Exists(!on);
        drop(eventually(world, "shut down", || instances.instance_shutdown(&ask), is_expected).await);
        assert_eq!(quickly(instances.instance_exists(&ask)).await, Presence::Exists(()), "switched on: {on}");
    }
}

async fn a_power_state_is_proven_and_lasts_until_it_changes(world: &dyn World) {
    let uuid = world.add("switched", "10.16.0.1").await;
    let id = known(world, &node("switched", "", &uuid)).await.provider_id;
    let ask = node("switched", &id, &uuid);
    let instances = instances(world);
    for on in [true, false] {
        let switched = Instant::now();
        world.set_power("switched", on).await;
        let is_expected = |answer: &Presence<Power>| matches!(answer, Presence::Exists(power) if (power.state == PowerState::On) == on);
        let power = eventually(world, "power", || instances.instance_power(&ask), is_expected).await.found().unwrap();
        assert!(on || power.lasting <= switched.elapsed(), "a state lasts no longer than it is: {power:?}");
        let read = quickly(instances.read_instance_power(&ask)).await;
        assert_eq!(read, Presence::Exists(power.state), "what is read anew is what was announced");
    }
    world.set_unreachable("switched", true).await;
    let is_unknown =
        |answer: &Presence<PowerState>| matches!(answer, Presence::Unknown(unknown) if !unknown.message.is_empty());
    drop(eventually(world, "no power", || instances.read_instance_power(&ask), is_unknown).await);
    world.set_unreachable("switched", false).await;
    let is_off = |answer: &Presence<PowerState>| matches!(answer, Presence::Exists(state) if *state != PowerState::On);
    drop(eventually(world, "power again", || instances.read_instance_power(&ask), is_off).await);
}

async fn exists_unknown_and_absent_are_different(world: &dyn World) {
    let uuid = world.add("vanishing", "10.14.0.1").await;
    let id = known(world, &node("vanishing", "", &uuid)).await.provider_id;
    let ask = node("vanishing", &id, &uuid);
    let instances = instances(world);
    drop(
        eventually(world, "exists", || instances.instance_exists(&ask), |answer| *answer == Presence::Exists(())).await,
    );

    world.set_unreachable("vanishing", true).await;
    let is_unknown =
        |answer: &Presence<()>| matches!(answer, Presence::Unknown(unknown) if !unknown.message.is_empty());
    // The provider may still answer from its cache. A machine is never absent because it is unreachable.
    let unreachable = quickly(instances.instance_exists(&ask)).await;
    assert!(!matches!(unreachable, Presence::Absent(_)), "{unreachable:?}");
    world.set_unreachable("vanishing", false).await;
    drop(
        eventually(world, "exists again", || instances.instance_exists(&ask), |answer| *answer == Presence::Exists(()))
            .await,
    );

    let is_provable = world.destroy("vanishing").await;
    let is_gone = |answer: &Presence<()>| match answer {
        Presence::Absent(proof) => is_provable && proof.evidence().iter().all(|evidence| !evidence.is_empty()),
        other => !is_provable && is_unknown(other),
    };
    drop(eventually(world, "gone", || instances.instance_exists(&ask), is_gone).await);
}

async fn strange_provider_ids_are_never_absent(world: &dyn World) {
    let instances = instances(world);
    for id in world.strange_provider_ids() {
        let answer = quickly(instances.instance_exists(&node("strange", &id, ""))).await;
        assert!(matches!(answer, Presence::Unknown(_)), "{id:?}: {answer:?}");
        let answer = quickly(instances.instance_metadata(&node("strange", &id, ""))).await;
        assert!(matches!(answer, Presence::Unknown(_)), "{id:?}: {answer:?}");
    }
}

async fn a_machine_nobody_has_seen_is_unknown(world: &dyn World) {
    let instances = instances(world);
    let ask = node("nobody", "", "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee");
    for answer in [
        quickly(instances.instance_exists(&ask)).await,
        quickly(instances.instance_shutdown(&ask)).await.map(|_| ()),
        quickly(instances.instance_metadata(&ask)).await.map(|_| ()),
    ] {
        let Presence::Unknown(unknown) = answer else { panic!("{answer:?}") };
        assert!(!unknown.message.is_empty(), "{unknown:?}");
    }
}

async fn a_subscriber_that_falls_behind_is_told_to_look_at_everything(world: &dyn World) {
    let uuid = world.add("busy", "10.15.0.1").await;
    known(world, &node("busy", "", &uuid)).await;
    let mut events = world.provider().instance_events().unwrap().subscribe();
    if world.flood("busy").await {
        next_event(&mut events, |event| *event == InstanceEvent::All).await;
        world.set_address("busy", "10.15.0.2").await;
        next_about(&mut events, "busy").await;
    }
}
