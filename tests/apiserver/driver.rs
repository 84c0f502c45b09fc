//! The code of a new controller, and the work of the driver for it: a third controller on the memory provider and an
//! API server in memory. The clock of these tests is paused.

use http::Method;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use support::Log;
use tokio_util::sync::CancellationToken;

use crate::lifecycle::in_memory::server::Server;
use crate::lifecycle::in_memory::world::{MOMENT, node, pass, seconds};
use ccm::cloud::{CloudProvider, InstanceMetadata, LeaderToken, PowerState, Route, Routes as _, Unknown};
use ccm::controllers::capability::Capability;
use ccm::controllers::driver::{Controller, Event, Reconciler, Requeue, Spec};
use ccm::controllers::instances::BoundedInstances;
use ccm::kubernetes::leadership::Leadership;
use ccm::kubernetes::stores::{Nodes, watch_nodes};
use ccm::providers::vsphere::reason;
use ccm::runtime::tasks::{EndCause, PanicError, Tasks};
use doubles::memory::{Instance, Memory};

/// Labels each Node with the power state of its VM.
struct PowerLabels {
    nodes: Nodes,
    instances: BoundedInstances,
    api: Api<Node>,
}

impl Reconciler for PowerLabels {
    type Outcome = Requeue;

    fn keys_of(&self, event: Event) -> Vec<String> {
        match event {
            Event::Object(_, name) | Event::Instance(name) => vec![name],
            Event::AllObjects(_) | Event::AllInstances | Event::Period => self.nodes.keys(),
        }
    }

    async fn reconcile(self: Arc<Self>, name: String) -> Requeue {
        let Some(node) = self.nodes.get(&name) else { return Requeue::PERIOD };
        let Ok(power) = self.instances.fresh_power(&node).await else { return Requeue::BACKOFF };
        let Some(patch) = plan(&node, power) else { return Requeue::PERIOD };
        let written = self.api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        written.map_or(Requeue::BACKOFF, |_| Requeue::PERIOD)
    }

    async fn conclude(self: &Arc<Self>, _: &str, outcome: Result<Requeue, PanicError>) -> Requeue {
        outcome.unwrap_or(Requeue::BACKOFF)
    }
}

/// Creates routes to the pod network of each Node, while the cloud has routes.
struct PodRoutes {
    nodes: Nodes,
    cloud: Arc<dyn CloudProvider>,
    permit: LeaderToken,
}

impl Reconciler for PodRoutes {
    type Outcome = Requeue;

    fn keys_of(&self, _: Event) -> Vec<String> {
        self.nodes.keys()
    }

    async fn reconcile(self: Arc<Self>, name: String) -> Requeue {
        let (Some(node), Some(routes)) = (self.nodes.get(&name), self.cloud.routes()) else { return Requeue::PERIOD };
        let destination_cidr = node.spec.as_ref().and_then(|spec| spec.pod_cidr.clone()).unwrap_or_default();
        let Ok(existing) = routes.list_routes("c").await else { return Requeue::BACKOFF };
        if existing.iter().any(|route| route.destination_cidr == destination_cidr) {
            return Requeue::PERIOD;
        }
        let route = Route { target_node: name, destination_cidr, ..Route::default() };
        routes.create_route(&self.permit, "c", "uid", &route).await.map_or(Requeue::BACKOFF, |()| Requeue::PERIOD)
    }

    async fn conclude(self: &Arc<Self>, _: &str, outcome: Result<Requeue, PanicError>) -> Requeue {
        outcome.unwrap_or(Requeue::BACKOFF)
    }
}

const LABEL: &str = "example.com/power";

fn plan(node: &Node, power: PowerState) -> Option<Value> {
    assert_ne!(power, PowerState::Suspended, "there is no label for it");
    let label = format!("{power:?}");
    (node.labels().get(LABEL) != Some(&label)).then(|| json!({"metadata": {"labels": {LABEL: label}}}))
}

/// The running controller.
struct World {
    server: Server,
    cloud: Memory,
    nodes: Nodes,
    stop: CancellationToken,
    tasks: Tasks,
}

impl World {
    async fn start(period: Duration) -> Self {
        let (server, cloud, stop, mut tasks) =
            (Server::start(), Memory::default(), CancellationToken::new(), Tasks::default());
        let (nodes, watch) = watch_nodes(server.client(), None);
        let instances = BoundedInstances::of(Arc::new(cloud.clone())).unwrap();
        let spec = Spec {
            workers: 2,
            instances: Some(instances.clone()),
            ..Spec::new("power-labels", Leadership::always(), period, vec![Arc::new(nodes.clone())])
        };
        let (api, cached) = (Api::all(server.client()), nodes.clone());
        let begin = move || PowerLabels { nodes: cached.clone(), instances: instances.clone(), api: api.clone() };
        let controller = Controller::new(spec, begin);
        let cache = Arc::clone(&controller.spec.caches[0]);
        assert!(!cache.is_synced());
        tasks.spawn("watch", watch);
        tasks.spawn("controller", controller.run(stop.clone()));
        pass(MOMENT).await;
        assert!(cache.is_synced(), "readiness follows from the declared {}", cache.kind());
        Self { server, cloud, nodes, stop, tasks }
    }

    fn start_pod_routes(&mut self) {
        let (nodes, cloud): (_, Arc<dyn CloudProvider>) = (self.nodes.clone(), Arc::new(self.cloud.clone()));
        let leadership = Leadership::always();
        let spec = Spec {
            capability: Some(Capability::routes(Arc::clone(&cloud))),
            ..Spec::new("pod-routes", leadership.clone(), seconds(60), vec![Arc::new(nodes.clone())])
        };
        let begin = move || PodRoutes { nodes: nodes.clone(), cloud: Arc::clone(&cloud), permit: leadership.permit() };
        self.tasks.spawn("pod-routes", Controller::new(spec, begin).run(self.stop.clone()));
    }

    /// Adds a Node with this pod network, and returns the target Nodes of the routes after some periods.
    async fn routed_with(&self, name: &str, cidr: &str) -> Vec<String> {
        let mut node = node(name, "True");
        node["spec"]["podCIDR"] = json!(cidr);
        self.server.with(|state| state.put(node));
        pass(seconds(300)).await;
        self.cloud.list_routes("c").await.unwrap().into_iter().map(|route| route.target_node).collect()
    }

    fn create(&self, name: &str, power: PowerState) {
        let metadata = InstanceMetadata { provider_id: id(name), ..InstanceMetadata::default() };
        self.cloud.put(Instance { node_name: name.into(), metadata, power, ..Instance::default() });
        self.server.with(|state| state.put(node(name, "True")));
    }

    fn set_power(&self, name: &str, power: PowerState) {
        assert!(self.cloud.update(&id(name), |instance| instance.power = power));
    }

    fn label(&self, name: &str) -> Option<String> {
        let node = self.server.node(name).unwrap();
        node["metadata"]["labels"][LABEL].as_str().map(str::to_owned)
    }
}

fn id(name: &str) -> String {
    format!("memory://{name}")
}

#[tokio::test(start_paused = true)]
async fn a_third_controller_follows_nodes_and_instances_and_the_period_heals() {
    let world = World::start(seconds(60)).await;
    world.create("a", PowerState::On);
    pass(MOMENT).await;
    assert_eq!(world.label("a").as_deref(), Some("On"), "an event of the Node");
    world.set_power("a", PowerState::Off);
    pass(MOMENT).await;
    assert_eq!(world.label("a").as_deref(), Some("Off"), "an event of the instance");
    pass(seconds(300)).await;
    assert_eq!(world.server.sent(&Method::PATCH).len(), 2, "nothing to change, nothing written");
    world.server.with(|state| state.remove("a"));
    world.create("b", PowerState::On);
    pass(MOMENT).await;
    assert_eq!(world.label("b").as_deref(), Some("On"), "a Node that is gone is no failure");
}

#[tokio::test(start_paused = true)]
async fn the_period_does_not_shorten_the_backoff_and_an_event_does() {
    let world = World::start(seconds(1)).await;
    world.create("a", PowerState::On);
    world.cloud.set_unknown(&id("a"), Some(Unknown::new(reason::VCenterUnavailable, "the test says so")));
    pass(seconds(120)).await;
    let before = world.cloud.calls();
    pass(seconds(300)).await;
    let calls = world.cloud.calls() - before;
    assert!((4..=11).contains(&calls), "each after 30 to 60 s, with a period of one second: {calls}");
    world.cloud.set_unknown(&id("a"), None);
    pass(MOMENT).await;
    assert_eq!(world.label("a").as_deref(), Some("On"));
    let before = world.cloud.calls();
    pass(seconds(300)).await;
    let calls = world.cloud.calls() - before;
    assert!((299..=302).contains(&calls), "one that works is reconciled in each period: {calls}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_holds_up_its_own_key_only_and_is_backed_off() {
    let world = World::start(seconds(1)).await;
    world.create("odd", PowerState::Suspended);
    world.create("even", PowerState::On);
    pass(seconds(120)).await;
    assert_eq!((world.label("odd"), world.label("even").as_deref()), (None, Some("On")));
    world.set_power("odd", PowerState::Off);
    pass(MOMENT).await;
    assert_eq!(world.label("odd").as_deref(), Some("Off"));
}

#[tokio::test(start_paused = true)]
async fn what_is_in_hand_is_finished_at_the_signal_to_stop() {
    let mut world = World::start(seconds(60)).await;
    world.cloud.set_latency(seconds(2));
    world.create("a", PowerState::On);
    pass(MOMENT).await;
    world.stop.cancel();
    let ended = world.tasks.first_unexpected_end().await;
    assert!(ended.name == "controller" && matches!(ended.cause, EndCause::Finished), "{ended}");
    assert_eq!(world.label("a").as_deref(), Some("On"));
}

#[tokio::test(start_paused = true)]
async fn a_controller_works_while_the_cloud_has_what_it_needs_and_says_once_that_it_idles() {
    let log = Log::keep();
    let mut world = World::start(seconds(60)).await;
    world.cloud.set_has_routes(false);
    world.start_pod_routes();
    let idle = || log.lines("idle: the cloud provider has no routes").len();
    assert_eq!(world.routed_with("a", "10.1.0.0/24").await, [""; 0]);
    assert_eq!(idle(), 1, "over several periods");
    world.cloud.set_has_routes(true);
    pass(MOMENT).await;
    assert_eq!(world.routed_with("b", "10.1.1.0/24").await, ["a", "b"]);
    world.cloud.set_has_routes(false);
    assert_eq!(world.routed_with("c", "10.1.2.0/24").await, ["a", "b"], "its work has ended");
    assert_eq!(idle(), 2);
    world.cloud.set_has_routes(true);
    assert_eq!(world.routed_with("d", "10.1.3.0/24").await, ["a", "b", "c", "d"]);
}
