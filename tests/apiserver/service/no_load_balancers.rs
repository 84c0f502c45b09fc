//! Services that wait although no load balancers are configured, with an API server with three answers and a paused
//! clock.

use ccm::controllers::Context;
use ccm::controllers::service::no_load_balancers;
use ccm::kubernetes::events::recorder;
use ccm::kubernetes::leadership::Leadership;
use ccm::kubernetes::stores::watch_services;
use ccm::runtime::metrics::Metrics;
use ccm::runtime::tasks::Tasks;
use doubles::memory::Memory;
use futures::StreamExt as _;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

/// Returns a watch that starts with a list and delivers no changes.
fn watch() -> impl hyper::body::Body<Data = Bytes, Error = BoxError> + Send {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "spec": {"type": "LoadBalancer"},
        "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"},
    });
    let end = json!({"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}});
    let first = [
        json!({"type": "ADDED", "object": service}),
        json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Service", "metadata": end}}),
    ];
    let lines = first.map(|change| Ok(Frame::data(Bytes::from(format!("{change}\n")))));
    StreamBody::new(futures::stream::iter(lines).chain(futures::stream::pending()))
}

/// Returns a client with a watch of one Service. The posted objects are stored.
fn client(posted: &Arc<Mutex<Vec<Value>>>) -> Client {
    let posted = Arc::clone(posted);
    let never = |never: Infallible| -> BoxError { match never {} };
    let answer = move |request: Request<Body>| {
        let posted = Arc::clone(&posted);
        async move {
            if request.method() == Method::GET {
                return Ok::<_, BoxError>(Response::new(watch().boxed_unsync()));
            }
            let is_event = request.uri().path().ends_with("/events");
            let body: Value = serde_json::from_slice(&request.into_body().collect().await?.to_bytes())?;
            if !is_event {
                let allowed = json!({"spec": body["spec"], "status": {"allowed": true}});
                return Ok(Response::new(Full::new(Bytes::from(allowed.to_string())).map_err(never).boxed_unsync()));
            }
            posted.lock().unwrap().push(body.clone());
            let answer = Full::new(Bytes::from(body.to_string())).map_err(never);
            Ok(Response::new(answer.boxed_unsync()))
        }
    };
    Client::new(tower::service_fn(answer), "default")
}

#[tokio::test(start_paused = true)]
async fn a_service_that_waits_in_vain_is_told_so_once_and_the_gauge_follows() {
    let (cloud, posted, mut tasks) = (Memory::default(), Arc::default(), Tasks::default());
    cloud.set_has_load_balancers(false);
    let client = client(&posted);
    let (services, watch) = watch_services(client.clone(), None);
    let (recorder, writer) = recorder(client.clone(), "test");
    let leadership = Leadership::always();
    let provider = Arc::new(cloud.clone());
    let context = Context { write: client, recorder, provider, leadership, decisions: Default::default() };
    let metrics = Metrics::new().unwrap();
    metrics.registry().register(Box::new(no_load_balancers::gauge(Arc::new(cloud.clone())))).unwrap();
    tasks.spawn("watch-services", watch);
    tasks.spawn("events", writer.run(CancellationToken::new()));
    let controller = no_load_balancers::controller(context, services);
    tasks.spawn("not-configured", controller.run(CancellationToken::new()));
    let is_shown = |value: u8| {
        metrics.encode().unwrap().lines().any(|line| line == format!("vsphere_ccm_load_balancer_configured {value}"))
    };
    // The clock is paused. It jumps to the next time that any task waits for.
    tokio::time::sleep(Duration::from_secs(590)).await;
    assert!(posted.lock().unwrap().is_empty() && is_shown(0));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let events = posted.lock().unwrap().clone();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!((&events[0]["reason"], &events[0]["type"]), (&json!("LoadBalancerNotConfigured"), &json!("Warning")));
    assert_eq!(events[0]["involvedObject"]["namespace"], "n");
    cloud.set_has_load_balancers(true);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(is_shown(1), "at once");
}
