//! An API server in memory: Nodes with their watch, Events, and failures of requests.

use http::header::DATE;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tower::BoxError;

use super::leases::Leases;

/// Interval between two bookmarks of a watch without changes, as in kube-apiserver (`cacher.go`). Without bookmarks the
/// client treats the watch as dead, and opens it again after a pause.
const BOOKMARKS: Duration = Duration::from_secs(60);

/// Result of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Works,
    /// The request is rejected with this code, and not executed.
    Refused(u16),
    /// The request is executed, and the answer has this code.
    DoneAndFails(u16),
    /// The request is executed, and no answer arrives.
    DoneAndLost,
    /// The request does not arrive.
    Lost,
}

/// One request about a Node.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at: Instant,
    pub method: Method,
    pub name: String,
    pub body: Value,
}

/// The result of one request that changes a Node, or that failed.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "only the race of announcements, which is another test program, reads outcomes")]
pub struct Outcome {
    pub at: Instant,
    pub method: Method,
    pub name: String,
    /// The Node before the request; `None` if there was none.
    pub before: Option<Value>,
    /// The Node after the request; `None` if it was deleted, or if there was none.
    pub after: Option<Value>,
    /// Whether the request was executed, and the client got the answer of the API server.
    pub is_success: bool,
}

/// Random times that requests are under way.
pub struct Delays {
    random: fastrand::Rng,
    longest: Duration,
}

impl Delays {
    /// Most requests take less than 100 ms, and the others less than `longest`.
    pub fn new(seed: u64, longest: Duration) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), longest }
    }

    fn next(&mut self) -> Duration {
        let is_short = self.random.u8(..10) < 7;
        let limit = if is_short { Duration::from_millis(100) } else { self.longest };
        limit.mul_f64(self.random.f64())
    }
}

type Meddler = Box<dyn FnOnce(&mut State) + Send>;

/// The API server. Clones are the same server.
#[derive(Clone)]
pub struct Server {
    state: Arc<Mutex<State>>,
    /// Number of changes that watches may deliver.
    shown: Arc<watch::Sender<usize>>,
}

#[derive(Default)]
pub struct State {
    nodes: BTreeMap<String, Value>,
    /// Changes for watches, in order. The resourceVersion is the length of the list.
    changes: Vec<Value>,
    sent: Vec<Sent>,
    /// Events in the order of their arrival, with repetitions.
    events: Vec<Value>,
    /// Fates of the next requests by method.
    next: BTreeMap<String, VecDeque<Fate>>,
    /// Fate of all other requests by method.
    always: BTreeMap<String, Fate>,
    /// Actions right before the next request with this method is executed.
    meddlers: Vec<(Method, Meddler)>,
    is_watch_held: bool,
    uids: u32,
    /// The Lease about the pause of deletions.
    pub leases: Leases,
    /// Random times that requests are under way; `None` for none.
    pub delays: Option<Delays>,
    /// The results of the requests about Nodes that changed a Node or failed, in the order of their execution.
    pub outcomes: Vec<Outcome>,
    /// Times at which Nodes were deleted by requests.
    pub deleted_at: Vec<Instant>,
}

impl State {
    /// Creates or replaces a Node. Returns its UID.
    pub fn put(&mut self, mut node: Value) -> String {
        let name = text(&node, "/metadata/name");
        if node.pointer("/metadata/uid").is_none() {
            self.uids += 1;
            node["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
        }
        let uid = text(&node, "/metadata/uid");
        let kind = if self.nodes.contains_key(&name) { "MODIFIED" } else { "ADDED" };
        self.store(kind, &name, node);
        uid
    }

    /// Merges `change` into a Node.
    pub fn change(&mut self, name: &str, change: &Value) {
        let mut node = self.nodes[name].clone();
        merge(&mut node, change);
        self.store("MODIFIED", name, node);
    }

    pub fn remove(&mut self, name: &str) {
        let Some(mut node) = self.nodes.remove(name) else { return };
        node["metadata"]["resourceVersion"] = json!((self.changes.len() + 1).to_string());
        self.changes.push(json!({"type": "DELETED", "object": node}));
    }

    fn store(&mut self, kind: &str, name: &str, mut node: Value) {
        node["metadata"]["resourceVersion"] = json!((self.changes.len() + 1).to_string());
        self.nodes.insert(name.to_owned(), node.clone());
        self.changes.push(json!({"type": kind, "object": node}));
    }

    /// Creates an Event, or increments its count.
    fn record(&mut self, path: &str, event: &Value) -> Response<UnsyncBoxBody<Bytes, BoxError>> {
        if path.ends_with("/events") {
            self.events.push(event.clone());
            return complete(201, event);
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        if let Some(repeated) = self.events.iter().find(|event| event["metadata"]["name"] == name).cloned() {
            self.events.push(repeated);
        }
        complete(200, &json!({"metadata": {}, "involvedObject": {}}))
    }

    fn fate(&mut self, method: &Method) -> Fate {
        let next = self.next.get_mut(method.as_str()).and_then(VecDeque::pop_front);
        next.or_else(|| self.always.get(method.as_str()).copied()).unwrap_or(Fate::Works)
    }

    /// Executes the request, and returns the answer.
    fn perform(&mut self, method: &Method, name: &str, body: &Value) -> (u16, Value) {
        let Some(node) = self.nodes.get(name).cloned() else { return failure(404, "NotFound") };
        let carried = match method.as_str() {
            "GET" => return (200, node),
            "DELETE" => &body["preconditions"],
            "PATCH" => &body["metadata"],
            other => panic!("unexpected {other} of a Node"),
        };
        let holds = |field: &str| carried[field].is_null() || carried[field] == node["metadata"][field];
        if !holds("uid") || !holds("resourceVersion") {
            return failure(409, "Conflict");
        }
        if *method == Method::DELETE {
            self.remove(name);
            self.deleted_at.push(Instant::now());
            return (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success", "metadata": {}}));
        }
        let change = strategic(&node, body);
        self.change(name, &change);
        (200, self.nodes[name].clone())
    }

    /// Records the result of a request.
    fn conclude(&mut self, method: &Method, name: &str, before: Option<Value>, is_success: bool) {
        let after = self.nodes.get(name).cloned();
        if !is_success || before != after {
            let (method, name) = (method.clone(), name.to_owned());
            self.outcomes.push(Outcome { at: Instant::now(), method, name, before, after, is_success });
        }
    }
}

impl Server {
    pub fn start() -> Self {
        Self { state: Arc::default(), shown: Arc::new(watch::Sender::new(0)) }
    }

    /// Changes the state of the server. Watches deliver the changes.
    pub fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = act(&mut state);
        self.show(&state);
        result
    }

    /// Stops or resumes the delivery of changes to watches.
    pub fn hold_watch(&self, is_held: bool) {
        self.with(|state| state.is_watch_held = is_held);
    }

    /// Sets the fates of the next requests with this method.
    pub fn next(&self, method: &Method, fates: &[Fate]) {
        self.lock().next.entry(method.to_string()).or_default().extend(fates);
    }

    /// Sets the fate of all other requests with this method.
    pub fn always(&self, method: &Method, fate: Fate) {
        self.lock().always.insert(method.to_string(), fate);
    }

    /// Executes `act` right before the next request with this method about a Node is executed.
    pub fn before(&self, method: &Method, act: impl FnOnce(&mut State) + Send + 'static) {
        self.lock().meddlers.push((method.clone(), Box::new(act)));
    }

    /// Returns the requests with this method about Nodes, except lists and watches.
    pub fn sent(&self, method: &Method) -> Vec<Sent> {
        self.lock().sent.iter().filter(|sent| sent.method == *method).cloned().collect()
    }

    pub fn node(&self, name: &str) -> Option<Value> {
        self.lock().nodes.get(name).cloned()
    }

    /// Returns the Events with this reason, with repetitions.
    pub fn events_with(&self, reason: &str) -> Vec<Value> {
        self.lock().events.iter().filter(|event| event["reason"] == reason).cloned().collect()
    }

    /// Returns the messages of the Events with this reason.
    pub fn events(&self, reason: &str) -> Vec<String> {
        self.events_with(reason).iter().map(|event| text(event, "/message")).collect()
    }

    /// Returns the reasons of all Events, with repetitions.
    pub fn reasons(&self) -> Vec<String> {
        self.lock().events.iter().map(|event| text(event, "/reason")).collect()
    }

    pub fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        Client::new(service, "default")
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, state: &State) {
        if !state.is_watch_held {
            self.shown.send_replace(state.changes.len());
        }
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError> {
        let (parts, body) = request.into_parts();
        let bytes = body.collect_bytes().await?;
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let path = parts.uri.path();
        if path.contains("/events") {
            return Ok(self.lock().record(path, &body));
        }
        if path == "/api/v1/nodes" {
            return Ok(self.watch(parts.uri.query().unwrap_or_default()));
        }
        self.travel().await;
        if path.contains("/leases") {
            return self.answer_about_lease(&parts.method, path, &body).await;
        }
        let object = path.trim_end_matches("/status");
        let name = object.rsplit('/').next().unwrap_or_default().to_owned();
        let fate = {
            let mut state = self.lock();
            let position = state.meddlers.iter().position(|(method, _)| *method == parts.method);
            if let Some((_, meddle)) = position.map(|position| state.meddlers.remove(position)) {
                meddle(&mut state);
            }
            let method = parts.method.clone();
            state.sent.push(Sent { at: Instant::now(), method, name: name.clone(), body: body.clone() });
            self.show(&state);
            state.fate(&parts.method)
        };
        let done = self.with(|state| {
            let before = state.nodes.get(&name).cloned();
            let done = match fate {
                Fate::Works | Fate::DoneAndFails(_) | Fate::DoneAndLost => {
                    Some(state.perform(&parts.method, &name, &body))
                }
                Fate::Refused(_) | Fate::Lost => None,
            };
            state.conclude(&parts.method, &name, before, fate == Fate::Works);
            done
        });
        let (code, answer) = match (fate, done) {
            (Fate::Works, Some(done)) => done,
            (Fate::Refused(code) | Fate::DoneAndFails(code), _) => failure(code, "Forbidden"),
            _ => std::future::pending().await,
        };
        Ok(complete(code, &answer))
    }

    /// Waits while a request is under way. A request that the client gives up meanwhile does not arrive.
    async fn travel(&self) {
        let delay = self.lock().delays.as_mut().map(Delays::next);
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
        }
    }

    async fn answer_about_lease(
        &self,
        method: &Method,
        path: &str,
        body: &Value,
    ) -> Result<Response<UnsyncBoxBody<Bytes, BoxError>>, BoxError> {
        assert!(path.contains("/namespaces/kube-system/"), "{path}");
        let fate = self.lock().leases.fate(method);
        let done = match fate {
            Fate::Works | Fate::DoneAndFails(_) | Fate::DoneAndLost => Some(self.lock().leases.perform(method, body)),
            Fate::Refused(_) | Fate::Lost => None,
        };
        let (code, answer) = match (fate, done) {
            (Fate::Works, Some(Ok(lease))) => (200, lease),
            (Fate::Works, Some(Err((code, reason)))) => failure(code, reason),
            (Fate::Refused(code) | Fate::DoneAndFails(code), _) => failure(code, "Forbidden"),
            _ => std::future::pending().await,
        };
        let mut response = complete(code, &answer);
        if let Some(date) = self.lock().leases.date() {
            response.headers_mut().insert(DATE, date.parse()?);
        }
        Ok(response)
    }

    /// Returns a watch that starts with a list or at a version. The watch never ends.
    fn watch(&self, query: &str) -> Response<UnsyncBoxBody<Bytes, BoxError>> {
        let version = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
        let is_list = query.contains("sendInitialEvents=true");
        let state = self.lock();
        let mut first: Vec<Value> = Vec::new();
        let from = if is_list {
            first.extend(state.nodes.values().map(|node| json!({"type": "ADDED", "object": node})));
            first.push(bookmark(state.changes.len(), &json!({"k8s.io/initial-events-end": "true"})));
            state.changes.len()
        } else {
            version.and_then(|version| version.parse().ok()).expect("a version to watch from")
        };
        drop(state);
        let rest = futures::stream::unfold((self.clone(), from), |(server, at)| async move {
            let mut shown = server.shown.subscribe();
            match timeout(BOOKMARKS, shown.wait_for(|shown| *shown > at)).await {
                Ok(is_shown) => drop(is_shown.ok()?),
                Err(_) => return Some((bookmark(at, &json!({})), (server, at))),
            }
            let change = server.lock().changes.get(at).cloned()?;
            Some((change, (server, at + 1)))
        });
        let all = futures::StreamExt::chain(futures::stream::iter(first), rest);
        let lines = futures::StreamExt::map(all, |change| Ok(Frame::data(Bytes::from(format!("{change}\n")))));
        Response::new(StreamBody::new(lines).boxed_unsync())
    }
}

fn bookmark(version: usize, annotations: &Value) -> Value {
    let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
    json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Node", "metadata": metadata}})
}

fn text(value: &Value, pointer: &str) -> String {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": reason, "message": format!("the test says {reason}")});
    (code, status)
}

fn complete(code: u16, body: &Value) -> Response<UnsyncBoxBody<Bytes, BoxError>> {
    let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).expect("a code");
    response
}

/// Returns the merge of a strategic merge patch, as far as the controllers use one: conditions are merged by their
/// type, and a list of addresses replaces the former one.
fn strategic(node: &Value, patch: &Value) -> Value {
    let mut change = patch.clone();
    if let Some(Value::Array(conditions)) = change.pointer_mut("/status/conditions") {
        let present = node.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let kept = present.into_iter().filter(|other| !conditions.iter().any(|new| new["type"] == other["type"]));
        let mut merged: Vec<Value> = kept.collect();
        merged.append(conditions);
        *conditions = merged;
    }
    if let Some(Value::Array(addresses)) = change.pointer_mut("/status/addresses") {
        addresses.retain(|address| address.get("$patch").is_none());
    }
    change
}

/// Merges objects recursively, removes members for null, and replaces all other values. Tests always give the complete
/// list of conditions.
fn merge(target: &mut Value, change: &Value) {
    if change.is_object() && !target.is_object() {
        *target = json!({});
    }
    let (Value::Object(fields), Value::Object(changes)) = (&mut *target, change) else {
        *target = change.clone();
        return;
    };
    for (key, value) in changes {
        if value.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key).or_insert(Value::Null), value);
        }
    }
}
