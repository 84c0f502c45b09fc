//! Tests of one watch and of one followed object, with a scripted API server and a paused clock.

use super::object::{ObjectPolicy, ObjectUpdate, follow};
use super::*;
use futures::future::Either;
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::client::Body;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tower::BoxError;

const SECOND: Duration = Duration::from_secs(1);

static WITHOUT_GET: ObjectPolicy = policy(true);
static WITH_GET: ObjectPolicy = policy(false);

const fn policy(watches_without_get: bool) -> ObjectPolicy {
    ObjectPolicy {
        watch: WatchPolicy { seconds: 60..61, call_limit: Duration::from_secs(10), is_extended_by_events: true },
        poll: Duration::from_secs(10),
        watches_without_get,
        forbidden: Duration::from_secs(30),
        worked: Duration::from_secs(10),
    }
}

fn version(version: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": version.to_string()}})
}

/// A server with one ConfigMap. It answers a `get` with an error code, or with 200 and version 1. It answers a watch
/// with an error code, or with 200 and these events. After the events the watch ends, unless `stays_open` is true.
#[derive(Clone, Copy)]
struct Server {
    get: u16,
    watch: u16,
    events: &'static [(&'static str, u32)],
    stays_open: bool,
}

impl Server {
    fn client(self, watches: &Arc<Mutex<Vec<String>>>) -> Client {
        let watches = watches.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let is_watch = query.contains("watch=true");
            if is_watch {
                watches.lock().unwrap().push(query);
            }
            async move {
                let code = if is_watch { self.watch } else { self.get };
                let reason = if code == 404 { "NotFound" } else { "" };
                let failure = json!({"kind": "Status", "code": code, "message": "no", "reason": reason});
                let lines = match (code, is_watch) {
                    (200, true) => self
                        .events
                        .iter()
                        .map(|(kind, number)| json!({"type": kind, "object": version(*number)}).to_string() + "\n")
                        .collect(),
                    (200, false) => vec![version(1).to_string()],
                    _ => vec![failure.to_string()],
                };
                let lines = futures::stream::iter(lines).map(|line| Ok::<_, BoxError>(Frame::data(Bytes::from(line))));
                let rest = match is_watch && code == 200 && self.stays_open {
                    true => Either::Left(futures::stream::pending()),
                    false => Either::Right(futures::stream::empty()),
                };
                let body = StreamBody::new(lines.chain(rest));
                Ok::<_, BoxError>(Response::builder().status(code).body(body)?)
            }
        });
        Client::new(service, "default")
    }
}

/// Returns the news as text.
fn told(update: ObjectUpdate<ConfigMap>) -> String {
    let object = |object: Option<ConfigMap>| match object {
        Some(object) => format!("version {}", object.metadata.resource_version.unwrap()),
        None => "missing".to_owned(),
    };
    match update {
        ObjectUpdate::Read(read) => object(read),
        ObjectUpdate::Watched(watched) => object(watched) + ", may be late",
        ObjectUpdate::Polled => "polled".to_owned(),
        ObjectUpdate::Forbidden(error) => {
            assert!(error.is_forbidden());
            "forbidden".to_owned()
        }
        ObjectUpdate::Failed(failure) => failure.to_string(),
    }
}

/// Returns the news from this server within this time, and the queries of its watches.
async fn learned(server: Server, policy: &'static ObjectPolicy, seconds: f64) -> (Vec<String>, Vec<String>) {
    let (notes, watches) = (Mutex::new(Vec::new()), Arc::default());
    let api = Api::namespaced(server.client(&watches), "b");
    let following = follow(api, "a".to_owned(), policy, |update| notes.lock().unwrap().push(told(update)));
    assert!(tokio::time::timeout(Duration::from_secs_f64(seconds), following).await.is_err());
    let watches = watches.lock().unwrap().clone();
    (notes.into_inner().unwrap(), watches)
}

#[tokio::test(start_paused = true)]
async fn an_object_is_followed_as_far_as_the_permissions_go() {
    let all = Server { get: 200, watch: 200, events: &[("MODIFIED", 2), ("DELETED", 2)], stays_open: true };
    let unwatched = Server { watch: 403, ..all };
    let unread = Server { get: 403, ..all };
    let ending = Server { events: &[], stays_open: false, ..all };
    let read = "version 1";
    for (server, policy, seconds, notes, watches) in [
        (all, &WITH_GET, 50.0, &[read, "version 2, may be late", "missing, may be late"][..], 1),
        (Server { get: 404, events: &[], ..all }, &WITH_GET, 50.0, &["missing"], 1),
        (ending, &WITH_GET, 2.5, &[read, read, read], 3),
        // A forbidden watch is retried after 5 minutes.
        (unwatched, &WITH_GET, 25.0, &[read, "polled", read, read, read], 1),
        (unread, &WITHOUT_GET, 50.0, &["version 2", "missing"], 1),
        (Server { get: 403, ..ending }, &WITHOUT_GET, 2.5, &["missing"], 3),
        (Server { get: 403, ..unwatched }, &WITHOUT_GET, 31.0, &["forbidden", "forbidden"], 2),
        (unread, &WITH_GET, 31.0, &["forbidden", "forbidden"], 0),
        (Server { events: &[], ..all }, &WITH_GET, 65.5, &[read, "the watch was silent for 65 s"], 1),
    ] {
        let learned = learned(server, policy, seconds).await;
        assert_eq!(
            (learned.0.iter().map(String::as_str).collect::<Vec<_>>(), learned.1.len()),
            (notes.to_vec(), watches)
        );
        let is_of_this_object =
            |query: &String| query.contains("fieldSelector=metadata.name%3Da") && query.contains("timeoutSeconds=60");
        assert!(learned.1.iter().all(is_of_this_object), "{:?}", learned.1);
    }
    let (notes, watches) = learned(unwatched, &WITH_GET, 305.0).await;
    assert_eq!((notes.iter().filter(|note| *note == "polled").count(), watches.len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn failures_are_repeated_with_growing_pauses() {
    let server = Server { get: 500, watch: 200, events: &[], stays_open: true };
    for (seconds, least, most) in [(0.5, 1, 1), (2.7, 2, 3), (11.9, 4, 4)] {
        let (notes, _) = learned(server, &WITH_GET, seconds).await;
        assert!((least..=most).contains(&notes.len()), "{seconds}: {notes:?}");
        assert!(notes.iter().all(|note| note == "get configmap b/a: no (500)"), "{notes:?}");
    }
}

/// A server that alternates between a failure and a request for a new list gets a growing backoff, not one request
/// each second.
#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_does_not_end_the_backoff() {
    struct Turns(Arc<Mutex<Vec<Duration>>>, u32);

    impl Rounds for Turns {
        async fn round(&mut self) -> Result<RoundEnd, Failure> {
            self.1 += 1;
            if self.1.is_multiple_of(2) { Ok(RoundEnd::Outdated) } else { Err(Failure::NoVersion) }
        }

        fn failed(&mut self, _: Failure, retry_in: Duration) {
            self.0.lock().unwrap().push(retry_in);
        }
    }

    let pauses = Arc::default();
    let repeated = tokio::time::timeout(600 * SECOND, repeat(Turns(Arc::clone(&pauses), 0), SECOND)).await;
    assert!(repeated.is_err());
    assert!(pauses.lock().unwrap().last().is_some_and(|pause| *pause >= 30 * SECOND), "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn events_extend_a_watch_only_where_the_policy_says_so() {
    for (is_extended_by_events, ends) in [(false, 65), (true, 115)] {
        let policy = WatchPolicy { seconds: 60..61, call_limit: SECOND, is_extended_by_events };
        let event = async {
            tokio::time::sleep(50 * SECOND).await;
            Ok(WatchEvent::Added(()))
        };
        let began = Instant::now();
        let mut events = EventStream::new(futures::stream::once(event).chain(futures::stream::pending()), 60, &policy);
        assert!(matches!(events.next().await, Ok(Some(Event::Applied(())))));
        assert!(matches!(events.next().await, Err(Failure::Silent(idle)) if idle == 65 * SECOND));
        assert_eq!(began.elapsed().as_secs(), ends);
    }
}
