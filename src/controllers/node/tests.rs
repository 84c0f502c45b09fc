//! Tests of the node controller with a server in memory. The ids are those of the upstream vectors.

use super::*;
use crate::cloud::{CloudProvider, InstanceMetadata, InstancesV2, Power, PowerState, Presence, Unknown};
use crate::controllers::decisions::DecisionHistory;
use crate::controllers::driver::CacheKind;
use crate::controllers::instances::CONFIRM_LIMIT;
use crate::kubernetes::events::recorder;
use crate::kubernetes::leadership::Leadership;
use crate::kubernetes::stores::watch_nodes;
use crate::runtime::tasks::BoxError;
use async_trait::async_trait;
use futures::StreamExt as _;
use http::{Request, Response};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Client;
use kube::client::Body;
use std::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::BoxError as TowerError;

const LATENCY: Duration = Duration::from_millis(10);
const NODES: usize = 100;

/// The behaviour of [`InstancesV2::refresh`] in a [`Timed`] cloud.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Confirms {
    #[default]
    InTime,
    Never,
    Panics,
}

/// A cloud that answers after [`LATENCY`] and records the times of the requests and of the answers.
#[derive(Clone, Default)]
struct Timed {
    confirms: Confirms,
    /// Zone in the metadata of each Node.
    zone: String,
    confirmed: Arc<Mutex<Vec<Instant>>>,
    asked: Arc<Mutex<Vec<Instant>>>,
    answered: Arc<Mutex<Vec<Instant>>>,
}

fn mark(times: &Mutex<Vec<Instant>>) {
    times.lock().unwrap().push(Instant::now());
}

impl CloudProvider for Timed {
    fn provider_name(&self) -> &'static str {
        "timed"
    }

    fn owns_provider_id(&self, _: &str) -> bool {
        true
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl InstancesV2 for Timed {
    async fn instance_exists(&self, _: &Node) -> Presence {
        unreachable!("the node controller leaves that to the node-lifecycle controller")
    }

    async fn instance_power(&self, _: &Node) -> Presence<Power> {
        unreachable!("the node controller leaves that to the node-lifecycle controller")
    }

    async fn read_instance_power(&self, _: &Node) -> Presence<PowerState> {
        unreachable!("the node controller leaves that to the node-lifecycle controller")
    }

    async fn instance_metadata(&self, node: &Node) -> Presence<InstanceMetadata> {
        mark(&self.asked);
        let _ = tokio::time::timeout(LATENCY, std::future::pending::<()>()).await;
        mark(&self.answered);
        let provider_id = node::provider_id(node).to_owned();
        Presence::Exists(InstanceMetadata { provider_id, zone: self.zone.clone(), ..InstanceMetadata::default() })
    }

    async fn refresh(&self) {
        match self.confirms {
            Confirms::InTime => {
                let _ = tokio::time::timeout(LATENCY, std::future::pending::<()>()).await;
                mark(&self.confirmed);
            }
            Confirms::Never => std::future::pending().await,
            Confirms::Panics => panic!("of this"),
        }
    }
}

fn id(number: usize) -> String {
    format!("memory://{number}")
}

/// Returns the initial events of a watch: all Nodes, then the bookmark that ends the list.
fn initial_events() -> String {
    events_of((0..NODES).map(|number| {
        serde_json::json!({"type": "ADDED", "object": {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": format!("n{number}"), "uid": number.to_string(), "resourceVersion": "1",
                "labels": {node::ZONE.current: "zone-a", node::ZONE.legacy: "zone-a"},
            },
            "spec": {"providerID": id(number)},
        }})
    }))
}

/// Returns these events, and the bookmark that ends the list.
fn events_of(nodes: impl Iterator<Item = serde_json::Value>) -> String {
    let end = serde_json::json!({"type": "BOOKMARK", "object": {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}},
    }});
    nodes.chain([end]).map(|event| format!("{event}\n")).collect()
}

/// Returns a client of an API server that sends these events once, and answers no other request.
fn server(events: String) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let events = events.clone();
        async move {
            let query = request.uri().query().unwrap_or_default();
            if !query.contains("sendInitialEvents=true") {
                std::future::pending::<()>().await;
            }
            Ok::<_, TowerError>(Response::new(Body::from(events.into_bytes())))
        }
    });
    Client::new(service, "default")
}

/// Returns a controller, and the task that fills its cache.
fn controller(
    cloud: Timed,
    workers: usize,
) -> (Controller<NodeReconciler>, impl Future<Output = Result<(), BoxError>>) {
    controller_with(cloud, workers, DecisionHistory::default())
}

/// Returns a controller that records its decisions there, and the task that fills its cache.
fn controller_with(
    cloud: Timed,
    workers: usize,
    decisions: DecisionHistory,
) -> (Controller<NodeReconciler>, impl Future<Output = Result<(), BoxError>>) {
    let provider = Arc::new(cloud);
    let client = server(initial_events());
    let (nodes, watch) = watch_nodes(client.clone(), None);
    let (recorder, _) = recorder(client.clone(), "test");
    let leadership = Leadership::always();
    let context = Context { write: client, recorder, provider, leadership, decisions };
    let workers = NonZeroUsize::new(workers).unwrap();
    let settings = NodeSettings { workers, period: Duration::from_secs(3600), policy: Policy::default() };
    (super::controller(context, nodes, settings).unwrap(), watch)
}

#[tokio::test]
async fn a_node_whose_end_nobody_heard_of_is_forgotten_with_the_next_look_at_all() {
    let (controller, _watch) = controller(Timed::default(), 1);
    let term = Arc::new(controller.begin_term());
    let (reasons, remembered) = (&term.reasons, &term.memory);
    assert!(reasons.set("held", reason::VMNotFound, Some("true")));
    remembered.wrote("written", vec!["7".into()]);
    remembered.set_settled("settled", true);
    let names = term.keys_of(Event::AllObjects(CacheKind::Nodes));
    assert_eq!(names.len(), 3);
    for name in names {
        let outcome = Arc::clone(&term).reconcile(name.clone()).await;
        assert_eq!(term.conclude(&name, Ok(outcome)).await, Requeue::PERIOD);
    }
    assert_eq!((reasons.keys(), remembered.nodes()), (vec![], vec![]));
    assert_eq!(term.status(), NodesStatus::default());
}

#[tokio::test(start_paused = true)]
async fn a_status_counts_the_nodes_that_are_up_to_date_and_names_those_that_are_not() {
    let (controller, watch) = controller(Timed::default(), 1);
    let watch = tokio::spawn(watch);
    let term = Arc::new(controller.begin_term());
    let mut events = term.store.subscribe();
    while !term.store.contains("n7") {
        events.next().await;
    }
    let nodes = term.store.list().len();
    assert_eq!(term.status(), NodesStatus { nodes, settled: 0, blocked: vec![] }, "no Node was reconciled yet");
    assert_eq!(term.conclude("n7", Ok(Ok(NextStep::Done))).await, Requeue::PERIOD);
    assert_eq!(term.status(), NodesStatus { nodes, settled: 1, blocked: vec![] });
    let blocked = NodeBlocked::new(reason::VMNotFound, "no VM".to_owned(), Requeue::BACKOFF);
    let _ = term.conclude("n7", Ok(Ok(NextStep::Blocked(blocked)))).await;
    let status = term.status();
    assert_eq!(status.settled, 0);
    let blocked: Vec<_> = status.blocked.iter().map(|one| (one.key.as_str(), one.reason)).collect();
    assert_eq!(blocked, [("n7", reason::VMNotFound)]);
    watch.abort();
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_recorded_when_a_reason_begins_changes_or_ends() {
    let history = DecisionHistory::default();
    let (controller, watch) = controller_with(Timed::default(), 1, history.clone());
    let watch = tokio::spawn(watch);
    let term = Arc::new(controller.begin_term());
    let mut events = term.store.subscribe();
    while !term.store.contains("n7") {
        events.next().await;
    }
    let blocked = |reason, is_quiet| {
        let blocked = NodeBlocked::new(reason, "why".to_owned(), Requeue::BACKOFF);
        NextStep::Blocked(NodeBlocked { is_quiet, ..blocked })
    };
    for (name, outcome) in [
        ("n7", NextStep::Done),
        ("n7", blocked(reason::VMNotFound, false)),
        ("n7", blocked(reason::VMNotFound, false)),
        ("n7", blocked(reason::CloudError, false)),
        ("n7", NextStep::Done),
        ("n7", NextStep::Done),
        ("n8", blocked(reason::LookupPending, true)),
        ("gone", blocked(reason::VMNotFound, false)),
        ("gone", NextStep::Done),
    ] {
        let _ = term.conclude(name, Ok(Ok(outcome))).await;
    }
    let mut decisions = history.last(usize::MAX, |_| true);
    decisions.reverse();
    let words: Vec<_> = decisions.iter().map(|decision| (&*decision.name, decision.word, &*decision.text)).collect();
    let expected = [
        ("n7", "VMNotFound", "why"),
        ("n7", "CloudError", "why"),
        ("n7", "Settled", "blocked before by CloudError"),
        ("gone", "VMNotFound", "why"),
        ("gone", "Gone", "blocked before by VMNotFound"),
    ];
    assert_eq!(words, expected);
    watch.abort();
}

/// On another thread, a cancelled reconcile continues until its next `await`.
#[tokio::test(start_paused = true)]
async fn a_look_that_outlives_its_term_is_not_remembered() {
    let cloud = Timed { zone: "zone-b".to_owned(), ..Timed::default() };
    let (controller, watch) = controller(cloud.clone(), 1);
    let watch = tokio::spawn(watch);
    let term = Arc::new(controller.begin_term());
    let mut events = term.store.subscribe();
    while !term.store.contains("n7") {
        events.next().await;
    }
    let differing = || term.metrics.differing.with_label_values(&[node::ZONE.current]).get();
    let look = tokio::spawn(Arc::clone(&term).reconcile("n7".to_owned()));
    while cloud.asked.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    term.memory.forget_all();
    look.await.unwrap().unwrap();
    assert_eq!((term.memory.nodes(), differing()), (vec![], 0), "another process looks after them");
    watch.abort();
}

// vectors: N-70–N-73
#[tokio::test(start_paused = true)]
async fn as_many_workers_as_there_are_ask_the_cloud_once_for_each_node() {
    for (vector, workers, expected) in [("N-70", 1, 1000), ("N-71", 5, 200), ("N-72", 10, 100), ("N-73", 30, 40)] {
        let cloud = Timed::default();
        let (mut controller, watch) = controller(cloud.clone(), workers);
        let metrics = crate::runtime::metrics::Metrics::new().unwrap();
        controller.register(metrics.registry()).unwrap();
        let run = async { tokio::join!(watch, controller.run(CancellationToken::new())) };
        let ended = tokio::time::timeout(Duration::from_secs(60), run).await;
        assert!(ended.is_err(), "{vector}: nothing of this ends by itself");
        let text = metrics.encode().unwrap();
        for line in [
            "vsphere_ccm_nodes 100",
            "workqueue_adds_total{name=\"Nodes\"} 100",
            "workqueue_depth{name=\"Nodes\"} 0",
            "running_managed_controllers{manager=\"cloud-controller-manager\",name=\"cloud-node\"} 0",
        ] {
            assert!(text.lines().any(|have| have == line), "{vector}: {line} in {text}");
        }

        let (asked, answered) = (cloud.asked.lock().unwrap(), cloud.answered.lock().unwrap());
        assert_eq!((asked.len(), answered.len()), (NODES, NODES), "{vector}: one call for each node");
        let took = answered.iter().max().unwrap().duration_since(*asked.iter().min().unwrap());
        // The timer of the runtime has a resolution of 1 ms.
        let grain = NODES.div_ceil(workers) as u128;
        let took = took.as_millis();
        assert!((expected..=expected + grain).contains(&took), "{vector}: {took} ms, expected {expected} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_term_begins_when_the_cloud_has_said_whether_all_is_as_known_or_does_not_say() {
    for (confirms, expected) in
        [(Confirms::InTime, LATENCY), (Confirms::Never, CONFIRM_LIMIT), (Confirms::Panics, Duration::ZERO)]
    {
        let cloud = Timed { confirms, ..Timed::default() };
        let (controller, watch) = controller(cloud.clone(), NODES);
        let began = Instant::now();
        let run = async { tokio::join!(watch, controller.run(CancellationToken::new())) };
        assert!(tokio::time::timeout(Duration::from_secs(60), run).await.is_err(), "nothing of this ends by itself");
        let confirmed = cloud.confirmed.lock().unwrap().len();
        assert_eq!(confirmed, usize::from(confirms == Confirms::InTime), "{confirms:?}: once a term");
        let asked = cloud.asked.lock().unwrap();
        let first = asked.iter().min().unwrap().duration_since(began);
        // The timer of the runtime has a resolution of 1 ms.
        assert!(asked.len() == NODES && first >= expected && first <= expected + LATENCY, "{confirms:?}: {first:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_preview_plans_with_the_given_answer_and_changes_nothing() {
    let cloud = Timed::default();
    let (controller, watch) = controller(cloud.clone(), 1);
    let watch = tokio::spawn(watch);
    let term = Arc::new(controller.begin_term());
    let mut events = term.store.subscribe();
    while !term.store.contains("n7") {
        events.next().await;
    }
    let node = term.store.get("n7").unwrap();
    let unknown = || Presence::Unknown(Unknown::new(reason::VMNotFound, "no VM"));
    let preview = term.preview(&node, unknown());
    let outcome = preview.plan.map(|plan| plan.outcome);
    assert!(
        matches!(&outcome, Some(NextStep::Blocked(blocked)) if blocked.reason == reason::VMNotFound),
        "{outcome:?}"
    );
    assert_eq!((preview.blocked, preview.is_settled), (None, false), "no reconcile has ended");
    assert!(cloud.asked.lock().unwrap().is_empty(), "the provider is not called");
    let blocked = NodeBlocked::new(reason::VMNotFound, "x".repeat(2_001), Requeue::BACKOFF);
    let _ = term.conclude("n7", Ok(Ok(NextStep::Blocked(blocked)))).await;
    let message = term.preview(&node, unknown()).blocked.map(|blocked| blocked.message);
    assert_eq!(message, Some(format!("{}…", "x".repeat(2_000))), "the message of the last reconcile, clipped");
    let version = node.metadata.resource_version.clone().unwrap();
    term.memory.wrote("n7", vec![version]);
    for _ in 0..2 {
        let plan = term.preview(&node, unknown()).plan.unwrap();
        let superseded = plan::NodePlan { outcome: NextStep::Superseded, ..plan::NodePlan::default() };
        assert_eq!(plan, superseded, "the cache does not have the last write");
    }
    let mut waiting = (*node).clone();
    let taint = Taint { key: node::TAINT_UNINITIALIZED.to_owned(), ..Taint::default() };
    waiting.spec.get_or_insert_default().taints = Some(vec![taint]);
    tokio::time::advance(Duration::from_secs(9)).await;
    assert_eq!(term.preview(&Arc::new(waiting), unknown()).waiting_time, Duration::ZERO, "a preview starts no wait");
    watch.abort();
}

#[tokio::test(start_paused = true)]
async fn the_oldest_uninitialized_node_is_shown_for_each_reason_while_there_is_one() {
    let node = |(name, created, has_taint): (&str, &str, bool)| {
        let taints = if has_taint { vec![serde_json::json!({"key": node::TAINT_UNINITIALIZED})] } else { vec![] };
        serde_json::json!({"type": "ADDED", "object": {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "uid": name, "resourceVersion": "1", "creationTimestamp": created},
            "spec": {"taints": taints},
        }})
    };
    let nodes = [
        ("initialized", "1970-01-01T00:00:01Z", false),
        ("unknown", "1970-01-01T00:00:02Z", true),
        ("new", "1970-01-01T00:00:09Z", true),
        ("newer", "1970-01-01T00:00:10Z", true),
    ];
    let (store, watch) = watch_nodes(server(events_of(nodes.into_iter().map(node))), None);
    let watch = tokio::spawn(watch);
    let reasons = Arc::new(ReasonTracker::new(NodeMetrics::default().blocked));
    let registry = crate::runtime::metrics::Metrics::new().unwrap();
    let oldest = OldestUninitialized::new(store.clone(), Arc::clone(&reasons));
    registry.registry().register(Box::new(oldest)).unwrap();
    let shown = || -> Vec<String> {
        let name = "vsphere_ccm_nodes_uninitialized_oldest_timestamp_seconds{reason=";
        let text = registry.encode().unwrap();
        text.lines().filter_map(|line| line.strip_prefix(name)).map(str::to_owned).collect()
    };
    assert_eq!(shown(), Vec::<String>::new(), "no Node is known");
    let mut events = store.subscribe();
    while !store.contains("newer") {
        events.next().await;
    }
    assert_eq!(shown(), ["\"Pending\"} 2"], "no Node was reconciled");
    assert!(reasons.set("unknown", reason::VMNotFound, Some("false")));
    assert_eq!(shown(), ["\"Pending\"} 9", "\"VMNotFound\"} 2"]);
    reasons.clear("unknown");
    assert_eq!(shown(), ["\"Pending\"} 2"], "a reason that has ended has no series");
    watch.abort();
}
