//! Tests of the caches with a scripted API server and a paused clock.

use super::*;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;
use tower::BoxError;

/// An answer of the server.
enum Answer {
    /// A status code and a complete body.
    Json(u16, Value),
    /// The events of a watch, and whether the watch stays open after them.
    Watch(Vec<Value>, bool),
    /// The lines of a watch that stays open.
    Lines(String),
}

#[derive(Default)]
struct Script {
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<(Instant, String)>>,
    /// Answers to SelfSubjectAccessReviews. The last one also answers all later reviews. Without any, all is allowed.
    reviews: Mutex<VecDeque<Answer>>,
    /// Times of the reviews, with verb and resource.
    reviewed: Mutex<Vec<(Instant, String)>>,
}

impl Script {
    fn of(answers: Vec<Answer>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into()), ..Self::default() })
    }

    /// Like [`Script::of`], with answers to SelfSubjectAccessReviews.
    fn with_reviews(answers: Vec<Answer>, reviews: Vec<Answer>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into()), reviews: Mutex::new(reviews.into()), ..Self::default() })
    }

    fn client(self: &Arc<Self>) -> Client {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let script = script.clone();
            async move {
                if request.uri().path() == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" {
                    return Ok(script.review(request).await.respond());
                }
                script.asked.lock().unwrap().push((Instant::now(), request.uri().to_string()));
                let answer = script.answers.lock().unwrap().pop_front();
                match answer {
                    None => std::future::pending().await,
                    Some(answer) => Ok::<_, BoxError>(answer.respond()),
                }
            }
        });
        Client::new(service, "default")
    }

    async fn review(&self, request: Request<Body>) -> Answer {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let review: Value = serde_json::from_slice(&body).unwrap();
        let asked = &review["spec"]["resourceAttributes"];
        let text = |key: &str| asked[key].as_str().unwrap_or_default().to_owned();
        assert_eq!((text("group"), text("namespace")), Default::default());
        self.reviewed.lock().unwrap().push((Instant::now(), format!("{} {}", text("verb"), text("resource"))));
        let mut reviews = self.reviews.lock().unwrap();
        match (reviews.len(), reviews.front()) {
            (0, _) => review_says(json!({"allowed": true})),
            (1, Some(Answer::Json(code, value))) => Answer::Json(*code, value.clone()),
            _ => reviews.pop_front().unwrap(),
        }
    }

    fn reviewed(&self) -> Vec<String> {
        self.reviewed.lock().unwrap().iter().map(|(_, asked)| asked.clone()).collect()
    }

    fn queries(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|(_, uri)| uri.clone()).collect()
    }
}

/// Returns a SelfSubjectAccessReview with this status.
fn review_says(status: Value) -> Answer {
    let (kind, version) = ("SelfSubjectAccessReview", "authorization.k8s.io/v1");
    Answer::Json(201, json!({"kind": kind, "apiVersion": version, "spec": {}, "status": status}))
}

impl Answer {
    fn respond(self) -> Response<UnsyncBoxBody<Bytes, BoxError>> {
        match self {
            Answer::Json(code, value) => {
                let body = Full::new(Bytes::from(value.to_string())).map_err(|never| match never {});
                let mut response = Response::new(body.boxed_unsync());
                *response.status_mut() = StatusCode::from_u16(code).unwrap();
                response
            }
            Answer::Watch(events, stays_open) => {
                let lines = events.into_iter().map(|event| format!("{event}\n"));
                watch(lines.collect(), stays_open)
            }
            Answer::Lines(lines) => watch(lines + "\n", true),
        }
    }
}

fn watch(lines: String, stays_open: bool) -> Response<UnsyncBoxBody<Bytes, BoxError>> {
    let lines = futures::stream::iter([Ok::<_, BoxError>(Frame::data(Bytes::from(lines)))]);
    let rest = if stays_open { futures::stream::pending().boxed() } else { futures::stream::empty().boxed() };
    Response::new(StreamBody::new(lines.chain(rest)).boxed_unsync())
}

fn node(name: &str, version: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "resourceVersion": version.to_string(), "managedFields": [{"manager": "m"}]},
        "status": {"images": [{"names": ["a"]}], "nodeInfo": null}})
}

fn bad(name: &str, version: u32) -> Value {
    let mut node = node(name, version);
    node["spec"] = json!({"taints": "not a list"});
    node
}

fn event(kind: &str, object: Value) -> Value {
    json!({"type": kind, "object": object})
}

fn list_end(version: u32) -> Value {
    event(
        "BOOKMARK",
        json!({"apiVersion": "v1", "kind": "Node", "metadata":
        {"resourceVersion": version.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}}}),
    )
}

fn failure(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no", "reason": "no"})
}

fn page(version: u32, items: &[Value], next: &str) -> Answer {
    let metadata = json!({"resourceVersion": version.to_string(), "continue": next});
    Answer::Json(200, json!({"apiVersion": "v1", "kind": "NodeList", "metadata": metadata, "items": items}))
}

fn start(script: &Arc<Script>) -> (Nodes, tokio::task::JoinHandle<Result<(), BoxError>>) {
    let (nodes, task) = watch_nodes(script.client(), Some("role=worker".into()));
    (nodes, tokio::spawn(task))
}

async fn next(changes: &mut BoxStream<'static, Change>) -> Change {
    tokio::time::timeout(Duration::from_secs(600), changes.next()).await.expect("a change").unwrap()
}

fn names(nodes: &Nodes) -> Vec<String> {
    nodes.list().map(|node| node.metadata.name.clone().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_fills_the_cache_and_changes_follow() {
    let events = vec![
        event("ADDED", node("a", 1)),
        event("ADDED", node("b", 2)),
        list_end(5),
        event("MODIFIED", node("a", 6)),
        event("DELETED", node("b", 7)),
    ];
    let script = Script::of(vec![Answer::Watch(events, true)]);
    let (nodes, task) = watch_nodes(script.client(), Some("role=worker".into()));
    let mut changes = nodes.subscribe();
    assert!(!nodes.is_ready());
    let task = tokio::spawn(task);
    assert_eq!(next(&mut changes).await, Change::All);
    // The change is sent to all subscribers that exist while the list is stored, so it may arrive twice.
    assert_eq!(next(&mut changes).await, Change::All);
    assert_eq!(next(&mut changes).await, Change::Applied("a".into()));
    assert_eq!(next(&mut changes).await, Change::Deleted("b".into()));
    assert_eq!(names(&nodes), ["a"]);
    let a = nodes.get("a").unwrap();
    assert_eq!(a.metadata.managed_fields, None);
    assert_eq!(a.status.as_ref().unwrap().images, None);
    let query = script.queries().remove(0);
    for part in ["sendInitialEvents=true", "labelSelector=role%3Dworker", "allowWatchBookmarks=true"] {
        assert!(query.contains(part), "{query}");
    }
    task.abort();
}

/// The readers are those of the program: two reads each by the node and lifecycle controllers, and one by the provider.
#[tokio::test(start_paused = true)]
async fn all_readers_of_an_event_share_one_object_and_the_previous_version_is_dropped() {
    let script = Script::of(vec![
        Answer::Watch(vec![event("ADDED", node("a", 1)), list_end(2)], false),
        Answer::Lines(format!(r#"{{"type":"MODIFIED","object":{}}}"#, node("a", 3))),
    ]);
    let (nodes, task) = start(&script);
    let readers: Vec<_> = [2, 2, 1].into_iter().map(|reads| (reads, nodes.subscribe())).collect();
    nodes.wait_until_ready().await;
    let previous = nodes.get("a").unwrap();
    let readers = readers.into_iter().map(|(reads, mut changes)| {
        let nodes = nodes.clone();
        async move {
            while next(&mut changes).await != Change::Applied("a".into()) {}
            let mut read = Vec::new();
            for _ in 0..reads {
                tokio::time::sleep(Duration::from_millis(1)).await;
                read.push(nodes.get("a").unwrap());
            }
            read
        }
    });
    let read = futures::future::join_all(readers).await.concat();
    assert_eq!((read.len(), read[0].metadata.resource_version.as_deref()), (5, Some("3")));
    assert!(read.iter().all(|object| Arc::ptr_eq(object, &read[0])), "it is shared");
    assert_eq!(Arc::strong_count(&previous), 1);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_streaming_lists_is_listed_in_pages() {
    let script = Script::of(vec![
        Answer::Json(422, failure(422)),
        page(3, &[node("a", 1)], "more"),
        page(3, &[node("b", 2)], ""),
        Answer::Watch(vec![event("ADDED", node("c", 4))], true),
    ]);
    let (nodes, task) = start(&script);
    let mut changes = nodes.subscribe();
    while next(&mut changes).await != Change::Applied("c".into()) {}
    assert_eq!(names(&nodes), ["a", "b", "c"]);
    let queries = script.queries();
    assert!(queries[1].contains("limit=50"), "{queries:?}");
    assert!(queries[2].contains("continue=more"), "{queries:?}");
    assert!(queries[3].contains("resourceVersion=3"), "{queries:?}");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_items_is_no_empty_list() {
    let script = Script::of(vec![
        Answer::Json(422, failure(422)),
        Answer::Json(200, json!({"kind": "NodeList", "metadata": {"resourceVersion": "3"}})),
        Answer::Json(200, json!({"kind": "NodeList", "metadata": {"resourceVersion": "4"}, "items": null})),
    ]);
    let (nodes, task) = start(&script);
    nodes.wait_until_ready().await;
    let queries = script.queries();
    assert_eq!(queries.iter().filter(|query| query.contains("limit=50")).count(), 2, "{queries:?}");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn an_object_that_vanished_during_an_outage_is_announced_as_deleted() {
    let script = Script::of(vec![
        Answer::Watch(vec![event("ADDED", node("a", 1)), event("ADDED", node("b", 2)), list_end(2)], false),
        Answer::Watch(vec![event("ERROR", failure(410))], true),
        Answer::Watch(vec![event("ADDED", node("b", 2)), list_end(9)], true),
    ]);
    let (nodes, task) = start(&script);
    let mut changes = nodes.subscribe();
    let mut seen = Vec::new();
    while !seen.contains(&Change::Deleted("a".into())) {
        seen.push(next(&mut changes).await);
    }
    assert_eq!(names(&nodes), ["b"]);
    assert!(!seen.contains(&Change::Deleted("b".into())), "{seen:?}");
    assert_eq!(next(&mut changes).await, Change::All);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_bad_object_is_passed_over_and_what_was_known_of_it_stays() {
    let script = Script::of(vec![
        Answer::Watch(
            vec![
                event("ADDED", node("a", 1)),
                event("ADDED", bad("x", 1)),
                list_end(2),
                event("MODIFIED", bad("a", 3)),
                event("ADDED", json!({"metadata": 7})),
                event("ADDED", node("b", 4)),
                event("ERROR", failure(410)),
            ],
            true,
        ),
        Answer::Watch(vec![event("ADDED", bad("a", 3)), event("ADDED", node("c", 5)), list_end(9)], true),
    ]);
    let (nodes, task) = start(&script);
    let mut changes = nodes.subscribe();
    while next(&mut changes).await != Change::Applied("b".into()) {}
    assert_eq!(names(&nodes), ["a", "b"]);
    while next(&mut changes).await != Change::Deleted("b".into()) {}
    assert_eq!(names(&nodes), ["a", "c"]);
    task.abort();
}

/// An object without a name.
fn nameless() -> Value {
    json!({"metadata": {"resourceVersion": "9"}})
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_cannot_be_read_whole_is_listed_again_in_pages() {
    let script = Script::of(vec![
        Answer::Watch(vec![event("ADDED", node("a", 1)), event("ADDED", nameless()), list_end(2)], true),
        page(3, &[node("a", 1), node("b", 2)], ""),
        Answer::Watch(vec![event("ERROR", failure(410))], true),
        Answer::Watch(vec![event("ADDED", node("c", 1)), list_end(4)], true),
    ]);
    let (nodes, task) = start(&script);
    let mut changes = nodes.subscribe();
    nodes.wait_until_ready().await;
    assert_eq!(names(&nodes), ["a", "b"], "a part is not taken for the whole");
    while next(&mut changes).await != Change::Deleted("b".into()) {}
    assert_eq!(names(&nodes), ["c"]);
    let queries = script.queries();
    for (query, part) in queries.iter().zip(["sendInitialEvents", "limit=50", "resourceVersion=3", "sendInitialEvents"])
    {
        assert!(query.contains(part), "{queries:?}");
    }
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn while_an_item_cannot_be_read_nobody_is_gone_and_all_is_listed_again_now_and_then() {
    let silent = || Answer::Watch(vec![], true);
    let script = Script::of(vec![
        Answer::Watch(vec![event("ADDED", node("a", 1)), event("ADDED", node("b", 2)), list_end(2)], false),
        Answer::Watch(vec![event("ERROR", failure(410))], true),
        Answer::Watch(vec![event("ADDED", node("a", 1)), event("ADDED", nameless()), list_end(3)], true),
        page(4, &[node("a", 1), nameless(), json!(7), node("c", 4)], ""),
        silent(),
        page(5, &[node("a", 1), nameless()], ""),
        silent(),
        page(6, &[node("a", 1), node("c", 4)], ""),
    ]);
    let (nodes, task) = start(&script);
    let mut changes = nodes.subscribe();
    let mut seen = Vec::new();
    while !seen.contains(&Change::Deleted("b".into())) {
        seen.push(next(&mut changes).await);
        if nodes.contains("c") && nodes.contains("b") {
            assert_eq!(names(&nodes), ["a", "b", "c"]);
        }
    }
    assert_eq!(names(&nodes), ["a", "c"], "the first whole list says who is gone");
    let deleted = seen.iter().filter(|change| matches!(change, Change::Deleted(_))).count();
    assert_eq!(deleted, 1, "{seen:?}");
    let asked = script.asked.lock().unwrap();
    let lists: Vec<_> = asked.iter().filter(|(_, query)| query.contains("limit=50")).map(|(at, _)| *at).collect();
    assert_eq!(lists.len(), 3, "{asked:?}");
    for pair in lists.windows(2) {
        let pause = pair[1] - pair[0];
        assert!((60..62).contains(&pause.as_secs()), "also while a watch runs: {pause:?} in {asked:?}");
    }
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn who_is_gone_between_a_watch_and_a_list_that_is_not_whole_is_heard_of() {
    let script = Script::of(vec![
        Answer::Watch(
            vec![
                event("ADDED", node("a", 1)),
                event("ADDED", node("b", 2)),
                list_end(2),
                event("ADDED", nameless()),
                event("MODIFIED", node("a", 3)),
            ],
            true,
        ),
        Answer::Watch(vec![event("ADDED", nameless())], true),
        Answer::Watch(vec![event("MODIFIED", node("a", 4))], true),
        page(9, &[node("a", 4), nameless()], ""),
        Answer::Watch(vec![event("DELETED", node("b", 8))], true),
    ]);
    let (nodes, task) = start(&script);
    let mut changes = nodes.subscribe();
    while next(&mut changes).await != Change::Deleted("b".into()) {}
    assert_eq!(names(&nodes), ["a"]);
    let queries = script.queries();
    let parts = ["sendInitialEvents", "sendInitialEvents", "resourceVersion=3", "limit=50", "resourceVersion=4"];
    for (query, part) in queries.iter().zip(parts) {
        assert!(query.contains(part), "{queries:?}");
    }
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn after_an_event_that_cannot_be_read_all_is_listed_again() {
    let script = Script::of(vec![
        Answer::Watch(vec![event("ADDED", node("a", 1)), list_end(2), event("ADDED", nameless())], true),
        Answer::Watch(vec![event("ADDED", node("a", 1)), event("ADDED", node("b", 2)), list_end(3)], false),
        Answer::Watch(vec![event("ADDED", node("c", 4))], true),
    ]);
    let (nodes, task) = start(&script);
    let mut changes = nodes.subscribe();
    while next(&mut changes).await != Change::Applied("c".into()) {}
    assert_eq!(names(&nodes), ["a", "b", "c"]);
    let queries = script.queries();
    for (query, part) in queries.iter().zip(["sendInitialEvents", "sendInitialEvents", "resourceVersion=3"]) {
        assert!(query.contains(part), "{queries:?}");
    }
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_watches_at_once_is_asked_once_a_second() {
    let first = Answer::Watch(vec![event("ADDED", node("a", 1)), list_end(2)], false);
    let script = Script::of(std::iter::once(first).chain((0..9).map(|_| Answer::Watch(vec![], false))).collect());
    let (nodes, task) = start(&script);
    nodes.wait_until_ready().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    let asked = script.asked.lock().unwrap();
    assert_eq!(asked.len(), 11, "ten answered, one waiting");
    for pair in asked.windows(2) {
        assert!(pair[1].0 - pair[0].0 >= Duration::from_secs(1), "{asked:?}");
    }
    assert!(asked[5].1.contains("resourceVersion=2"), "it continues where it was: {asked:?}");
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_survived_with_growing_pauses_and_the_cache_stays() {
    let first = Answer::Watch(vec![event("ADDED", node("a", 1)), list_end(2)], false);
    let refusals = (0..4).map(|_| Answer::Json(500, failure(500)));
    let last = Answer::Watch(vec![event("ADDED", node("b", 3))], true);
    let script = Script::of(std::iter::once(first).chain(refusals).chain([last]).collect());
    let (nodes, task) = start(&script);
    let mut changes = nodes.subscribe();
    while next(&mut changes).await != Change::Applied("b".into()) {
        assert_eq!(names(&nodes), ["a"]);
    }
    let asked = script.asked.lock().unwrap();
    let pauses: Vec<_> = asked.windows(2).map(|pair| (pair[1].0 - pair[0].0).as_millis()).collect();
    for (pause, least) in pauses.iter().skip(1).zip([800, 1600, 3200, 6400]) {
        assert!((least..=2 * least + 10).contains(pause), "{pauses:?}");
    }
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_relist_keeps_equal_objects_and_announces_nothing_if_all_are_equal() {
    let list = |version, objects: &[Value]| {
        objects.iter().map(|object| event("ADDED", object.clone())).chain([list_end(version)]).collect::<Vec<_>>()
    };
    let expired = || Answer::Watch(vec![event("ERROR", failure(410))], true);
    let last = [list(4, &[node("a", 1), node("b", 3)]), vec![event("ADDED", node("c", 5))]].concat();
    let script = Script::of(vec![
        Answer::Watch(list(2, &[node("a", 1), node("b", 2)]), false),
        expired(),
        Answer::Watch(list(3, &[node("a", 1), node("b", 3)]), false),
        expired(),
        Answer::Watch(last, true),
    ]);
    let (nodes, task) = start(&script);
    let mut changes = nodes.subscribe();
    assert_eq!(next(&mut changes).await, Change::All, "the cache is filled");
    let first = ["a", "b"].map(|name| nodes.get(name).unwrap());
    assert_eq!(next(&mut changes).await, Change::All, "the first list");
    assert_eq!(next(&mut changes).await, Change::All, "b is another object");
    let second = ["a", "b"].map(|name| nodes.get(name).unwrap());
    assert!(Arc::ptr_eq(&first[0], &second[0]));
    assert_eq!(second[1].metadata.resource_version.as_deref(), Some("3"));
    assert_eq!(Arc::strong_count(&first[1]), 1, "the previous version is dropped");
    assert_eq!(next(&mut changes).await, Change::Applied("c".into()), "the second relist changes nothing");
    let third = ["a", "b"].map(|name| nodes.get(name).unwrap());
    assert!(third.iter().zip(&second).all(|(third, second)| Arc::ptr_eq(third, second)));
    assert_eq!(script.queries().iter().filter(|query| query.contains("sendInitialEvents")).count(), 3);
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_fell_behind_is_told_to_look_at_everything() {
    let nodes = Nodes::new();
    let mut changes = nodes.subscribe();
    nodes.replace_all(BTreeMap::new());
    assert_eq!(next(&mut changes).await, Change::All);
    for index in 0..2 * CHANGE_BUFFER {
        nodes.apply(format!("n{index}"), Arc::default());
    }
    assert_eq!(next(&mut changes).await, Change::All);
    assert_eq!(next(&mut changes).await, Change::Applied(format!("n{CHANGE_BUFFER}")));
}

fn service(name: &str, version: u32, kind: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "n", "resourceVersion": version.to_string()}, "spec": {"type": kind}})
}

#[tokio::test(start_paused = true)]
async fn a_service_is_kept_while_a_reader_needs_it() {
    let events = vec![
        event("ADDED", service("a", 1, "LoadBalancer")),
        event("ADDED", service("b", 2, "ClusterIP")),
        event("ADDED", service("c", 3, "LoadBalancer")),
        event("MODIFIED", service("c", 4, "NodePort")),
        list_end(5),
        event("MODIFIED", service("a", 6, "ClusterIP")),
        event("MODIFIED", service("c", 7, "ClusterIP")),
        event("MODIFIED", service("b", 8, "LoadBalancer")),
    ];
    let list = page(10, &[service("b", 9, "ClusterIP"), service("c", 10, "LoadBalancer")], "");
    let script = Script::of(vec![
        Answer::Watch(events, false),
        Answer::Json(410, failure(410)),
        Answer::Json(422, failure(422)),
        list,
    ]);
    let (services, task) = watch_services(script.client(), Some("lb=ours".into()));
    let mut changes = services.subscribe();
    let task = tokio::spawn(task);
    assert_eq!(next(&mut changes).await, Change::All);
    assert_eq!(next(&mut changes).await, Change::All);
    for expected in
        [Change::Deleted("n/a".into()), Change::Applied("n/b".into()), Change::Deleted("n/b".into()), Change::All]
    {
        assert_eq!(next(&mut changes).await, expected);
    }
    assert_eq!(services.keys(), ["n/c"]);
    assert!(script.queries().iter().all(|query| query.contains("labelSelector=lb%3Dours")), "{:?}", script.queries());
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn a_missing_permission_for_services_is_asked_for_again_and_is_no_failure() {
    let events = vec![event("ADDED", service("a", 1, "LoadBalancer")), list_end(2)];
    let refused = || Answer::Json(403, failure(403));
    let script = Script::of(vec![refused(), refused(), Answer::Watch(events, true)]);
    let (services, task) = watch_services(script.client(), None);
    let task = tokio::spawn(task);
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((services.is_ready(), services.is_refused()), (false, true));
    services.wait_until_ready().await;
    assert_eq!((services.keys(), services.is_refused()), (vec!["n/a".to_owned()], false));
    // An API server that has just started rejects all requests until it has read its roles.
    assert_eq!((began.elapsed().as_secs(), script.queries().len()), (2 + 4, 3));
    task.abort();
    // As long as the permission is missing, the pauses grow to 5 minutes.
    let refusals = (0..20).map(|_| refused()).collect();
    let script = Script::of(refusals);
    let (services, task) = watch_services(script.client(), None);
    let task = tokio::spawn(task);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(services.is_refused());
    assert_eq!(script.queries().len(), 8 + (3600 - 254) / 300);
    task.abort();
    // Nodes are always required, so a missing permission for them is a failure like any other.
    let script = Script::of(vec![refused(), Answer::Watch(vec![list_end(2)], true)]);
    let began = Instant::now();
    let (nodes, task) = start(&script);
    nodes.wait_until_ready().await;
    assert!(began.elapsed() < Duration::from_secs(60));
    task.abort();
}

#[tokio::test(start_paused = true)]
async fn what_a_review_denies_is_not_listed_until_it_is_allowed() {
    let denied = || review_says(json!({"allowed": false, "reason": "no rule"}));
    let allowed = || review_says(json!({"allowed": true}));
    let events = vec![event("ADDED", service("a", 1, "LoadBalancer")), list_end(2)];
    // The third attempt has the permission to `list`, and the fourth also the permission to `watch`.
    let reviews = vec![denied(), denied(), allowed(), denied(), allowed()];
    let script = Script::with_reviews(vec![Answer::Watch(events, true)], reviews);
    let (services, task) = watch_services(script.client(), None);
    let task = tokio::spawn(task);
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((services.is_ready(), services.is_refused()), (false, true));
    services.wait_until_ready().await;
    assert_eq!((services.keys(), services.is_refused()), (vec!["n/a".to_owned()], false));
    assert_eq!((began.elapsed().as_secs(), script.queries().len()), (2 + 4 + 8, 1));
    let (list, watch) = ("list services", "watch services");
    assert_eq!(script.reviewed(), [list, list, list, watch, list, watch]);
    task.abort();

    // As long as the permission is missing, nothing is listed, and the pauses grow to 5 minutes.
    let script = Script::with_reviews(vec![], vec![denied()]);
    let (services, task) = watch_services(script.client(), None);
    let task = tokio::spawn(task);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(services.is_refused() && !services.is_ready());
    assert_eq!((script.queries().len(), script.reviewed().len()), (0, 8 + (3600 - 254) / 300));
    task.abort();
}

/// A failed review decides nothing, so the list is tried.
#[tokio::test(start_paused = true)]
async fn where_no_review_is_answered_the_list_is_tried() {
    let failed = [
        Answer::Json(403, failure(403)),
        Answer::Json(404, failure(404)),
        Answer::Json(500, failure(500)),
        Answer::Json(201, json!({"spec": {}})),
        Answer::Lines("no JSON".into()),
        review_says(json!({"allowed": false, "evaluationError": "webhook: no answer"})),
    ];
    for answer in failed {
        let list = Answer::Watch(vec![event("ADDED", service("a", 1, "LoadBalancer")), list_end(2)], true);
        let script = Script::with_reviews(vec![list], vec![answer]);
        let (services, task) = watch_services(script.client(), None);
        let task = tokio::spawn(task);
        services.wait_until_ready().await;
        assert_eq!(services.keys(), ["n/a"]);
        task.abort();
    }
    // With a selector no review is made, because a permission may be limited to the selector.
    let list = Answer::Watch(vec![event("ADDED", service("a", 1, "LoadBalancer")), list_end(2)], true);
    let script = Script::with_reviews(vec![list], vec![review_says(json!({"allowed": false}))]);
    let (services, task) = watch_services(script.client(), Some("lb=ours".into()));
    let task = tokio::spawn(task);
    services.wait_until_ready().await;
    assert_eq!((services.keys(), script.reviewed()), (vec!["n/a".to_owned()], vec![]));
    task.abort();
    // No review is made for Nodes, because Nodes are always required.
    let script = Script::of(vec![Answer::Watch(vec![list_end(2)], true)]);
    let (nodes, task) = start(&script);
    nodes.wait_until_ready().await;
    assert_eq!(script.reviewed(), Vec::<String>::new());
    task.abort();
}
