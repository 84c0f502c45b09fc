//! One pass of the node-lifecycle controller over Nodes with Ready=Unknown whose machines exist: from the start of a
//! term until each Node was reconciled once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ccm::cloud::reason;
use ccm::cloud::{CloudProvider, InstanceMetadata, InstancesV2, Power, PowerState, Presence, Unknown};
use ccm::controllers::Context;
use ccm::controllers::node_lifecycle::pause_monitor::PauseMonitor;
use ccm::controllers::node_lifecycle::{self, DeletionMode, LifecycleSettings, Limit};
use ccm::kubernetes::deletion_lease::DeletionLease;
use ccm::kubernetes::events::recorder;
use ccm::kubernetes::leadership::Leadership;
use ccm::kubernetes::stores::{Nodes, watch_nodes};
use criterion::{Criterion, SamplingMode, Throughput};
use http::{Request, Response};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::client::Body;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

/// Numbers of Nodes. A pass over the larger number is five times as much work, and may take six times as long.
const NODES: [usize; 2] = [1_000, 5_000];

/// A provider for which every machine exists and runs. It signals when all machines were requested.
#[derive(Clone, Default)]
struct Cloud {
    asked: Arc<AtomicUsize>,
    nodes: usize,
    is_done: Arc<Notify>,
}

impl CloudProvider for Cloud {
    fn provider_name(&self) -> &'static str {
        "micro"
    }

    fn owns_provider_id(&self, _: &str) -> bool {
        true
    }

    fn instances_v2(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl InstancesV2 for Cloud {
    async fn instance_exists(&self, _: &Node) -> Presence {
        Presence::Exists(())
    }

    async fn instance_power(&self, _: &Node) -> Presence<Power> {
        // The last request of a reconciliation.
        if self.asked.fetch_add(1, Ordering::Relaxed) + 1 == self.nodes {
            self.is_done.notify_one();
        }
        Presence::Exists(Power { state: PowerState::On, lasting: Duration::ZERO })
    }

    async fn read_instance_power(&self, _: &Node) -> Presence<PowerState> {
        Presence::Exists(PowerState::On)
    }

    async fn instance_metadata(&self, _: &Node) -> Presence<InstanceMetadata> {
        Presence::Unknown(Unknown::new(reason::InstanceNotFound, "nobody asks that here"))
    }
}

/// Measures a pass of the node-lifecycle controller.
pub fn measure(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let mut group = criterion.benchmark_group("lifecycle");
    group.sampling_mode(SamplingMode::Flat);
    for count in NODES {
        let (store, client) = runtime.block_on(filled(&runtime, count));
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(format!("pass-{count}"), |bencher| {
            bencher.iter(|| runtime.block_on(pass(&store, &client, count)));
        });
    }
    group.finish();
}

/// Runs one term until every Node was reconciled.
async fn pass(store: &Nodes, client: &Client, count: usize) {
    let cloud = Cloud { nodes: count, ..Cloud::default() };
    let settings = LifecycleSettings {
        period: Duration::from_secs(3600),
        deletion: DeletionMode::Enforce,
        grace: Duration::from_secs(30),
        limit: Limit { nodes: 5, percent: 10, window: Duration::from_secs(600) },
        mass_hold: Duration::from_secs(900),
        out_of_service_after: None,
    };
    let context = Context {
        write: client.clone(),
        recorder: recorder(client.clone(), "micro").0,
        provider: Arc::new(cloud.clone()),
        leadership: Leadership::always(),
        decisions: Default::default(),
    };
    let lease = DeletionLease::new(client.clone(), "kube-system");
    let pauses = Arc::new(PauseMonitor::new(lease, context.recorder.clone(), Leadership::always(), "host"));
    let controller = node_lifecycle::controller(context, store.clone(), pauses, settings).expect("it has instances");
    let stop = CancellationToken::new();
    let run = controller.run(stop.clone());
    let watch = async {
        cloud.is_done.notified().await;
        stop.cancel();
    };
    let (ended, ()) = tokio::join!(run, watch);
    assert!(ended.is_ok() && cloud.asked.load(Ordering::Relaxed) == count, "each is looked at once");
}

/// Returns a cache with this many Nodes, and a client of their API server.
async fn filled(runtime: &Runtime, count: usize) -> (Nodes, Client) {
    let client = client(count);
    let (store, watch) = watch_nodes(client.clone(), None);
    let watching = runtime.spawn(watch);
    store.wait_until_ready().await;
    watching.abort();
    assert_eq!(store.keys().len(), count);
    (store, client)
}

/// Returns the client of an API server that only lists the Nodes.
fn client(count: usize) -> Client {
    let list: Vec<String> = (0..count).map(node).collect();
    let list = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"NodeList\",\"metadata\":{{\"resourceVersion\":\"1\"}},\"items\":[{}]}}",
        list.join(",")
    );
    let list: Arc<str> = list.into();
    let service = tower::service_fn(move |request: Request<Body>| {
        let list = Arc::clone(&list);
        async move {
            let query = request.uri().query().unwrap_or_default();
            let (code, body) = match query {
                query if query.contains("sendInitialEvents") => (422, REFUSED.to_owned()),
                query if query.contains("limit=") => (200, list.as_ref().to_owned()),
                _ => std::future::pending().await,
            };
            let mut response = Response::new(Body::from(body.into_bytes()));
            *response.status_mut() = http::StatusCode::from_u16(code)?;
            Ok::<_, BoxError>(response)
        }
    });
    Client::new(service, "default")
}

/// Answer that rejects streaming lists, so that the client lists the Nodes in a single page.
const REFUSED: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","code":422,"reason":"Invalid"}"#;

/// Returns an initialized Node whose kubelet does not report.
fn node(number: usize) -> String {
    let name = format!("cluster-a-md-0-{number:05}-x7k2p");
    format!(
        r#"{{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{name}","uid":"{number:032x}","resourceVersion":"1"}},
        "spec":{{"providerID":"vsphere://4213c3b6-1f0e-6a7d-92c4-{number:012x}"}},"status":{{"conditions":[{{"type":"Ready",
        "status":"Unknown","lastTransitionTime":"2026-01-01T00:00:00Z"}}]}}}}"#
    )
}
