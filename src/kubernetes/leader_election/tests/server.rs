//! A fake API server with Leases. It can fail in several ways, and counts the writes to Nodes.

use super::*;
use crate::kubernetes::client::guarded;
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;
use tower::BoxError;

/// Name of the Lease in most tests.
pub const LEASE: &str = "cloud-controller-manager";

/// The fake API server.
#[derive(Default)]
pub struct Server {
    leases: HashMap<String, Value>,
    version: u64,
    /// The failure that applies to every request.
    pub trouble: Trouble,
    /// Name of a Lease for which all requests are lost.
    pub unreachable: Option<&'static str>,
    /// Methods of the received requests for Leases, except watches.
    pub verbs: Vec<String>,
    /// Writes to Nodes by a candidate while its Lease had another holder.
    pub intruders: Vec<String>,
    /// Numbers of writes to Nodes, by the Lease of the writer.
    node_writes: BTreeMap<&'static str, u32>,
    requests: usize,
}

pub type SharedServer = Arc<Mutex<Server>>;

/// A failure of the server or the network.
#[derive(Clone, Debug, Default)]
pub enum Trouble {
    #[default]
    None,
    /// All requests are lost.
    Silent,
    /// All requests take effect, and all answers are lost.
    LosesAnswers,
    /// All requests take effect, and all answers to writes are lost.
    LosesAnswersToWrites,
    /// All requests take effect, and each answer takes this time.
    Slow(Duration),
    /// The requests get these fates in order, again and again.
    Fates(Vec<Fate>),
}

/// The delays and losses of one request.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// Time until the request arrives.
    pub there: Duration,
    /// Whether the request arrives.
    pub arrives: bool,
    /// Time until the answer arrives. `None` if the answer is lost.
    pub back: Option<Duration>,
}

impl Fate {
    pub const GOOD: Self = Self { there: Duration::ZERO, arrives: true, back: Some(Duration::ZERO) };
}

impl Server {
    pub fn shared() -> SharedServer {
        SharedServer::default()
    }

    fn fate(&mut self, method: &Method, uri: &http::Uri) -> Fate {
        self.requests += 1;
        if self.unreachable.is_some_and(|lease| uri.path().ends_with(lease)) {
            return Fate { arrives: false, ..Fate::GOOD };
        }
        match &self.trouble {
            Trouble::None => Fate::GOOD,
            Trouble::Silent => Fate { arrives: false, ..Fate::GOOD },
            Trouble::LosesAnswers => Fate { back: None, ..Fate::GOOD },
            Trouble::LosesAnswersToWrites if method != Method::GET => Fate { back: None, ..Fate::GOOD },
            Trouble::LosesAnswersToWrites => Fate::GOOD,
            Trouble::Slow(late) => Fate { back: Some(*late), ..Fate::GOOD },
            Trouble::Fates(fates) => fates[self.requests % fates.len()],
        }
    }

    /// Applies a request and returns the answer.
    pub fn answer(&mut self, method: &Method, uri: &http::Uri, body: &[u8]) -> Response<Body> {
        if uri.query().unwrap_or_default().contains("watch=") {
            return status(403, "Forbidden");
        }
        self.verbs.push(method.to_string());
        let object = || serde_json::from_slice::<Value>(body).unwrap();
        let name = match method.as_str() {
            "POST" => object()["metadata"]["name"].as_str().unwrap().to_owned(),
            _ => uri.path().rsplit('/').next().unwrap().to_owned(),
        };
        match (method.as_str(), self.leases.get(&name)) {
            ("GET" | "PUT", None) => return status(404, "NotFound"),
            ("POST", Some(_)) => return status(409, "AlreadyExists"),
            ("POST", None) => self.store(&name, object()),
            ("PUT", Some(lease)) => {
                if object()["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"] {
                    return status(409, "Conflict");
                }
                self.store(&name, object());
            }
            ("GET", Some(_)) => {}
            // A candidate never patches or deletes a Lease.
            other => panic!("unexpected {other:?}"),
        }
        Response::new(Body::from(serde_json::to_vec(&self.leases[&name]).unwrap()))
    }

    fn store(&mut self, name: &str, mut lease: Value) {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.leases.insert(name.to_owned(), lease);
    }

    /// Deletes the Lease, as an administrator does.
    pub fn delete(&mut self, name: &str) {
        self.leases.remove(name);
    }

    /// Removes the holder from the Lease, as an administrator does. All other fields stay.
    pub fn empty(&mut self, name: &str) {
        let mut lease = self.leases[name].clone();
        lease["spec"]["holderIdentity"] = "".into();
        self.store(name, lease);
    }

    /// Returns the number of writes to Leases.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the watch event for an existing Lease.
    pub fn event(&self, name: &str) -> Value {
        json!({ "type": "MODIFIED", "object": self.leases[name] })
    }

    /// Makes another candidate the holder of the Lease.
    pub fn give_to(&mut self, name: &str, identity: &str) {
        let mut lease = self.leases[name].clone();
        lease["spec"]["holderIdentity"] = identity.into();
        self.store(name, lease);
    }

    /// Returns the number of writes to Nodes under this Lease.
    pub fn writes(&self, lease: &str) -> u32 {
        self.node_writes.get(lease).copied().unwrap_or_default()
    }

    pub fn spec(&self, name: &str) -> Value {
        self.leases[name]["spec"].clone()
    }

    /// Returns the holder of the Lease. Returns an empty text if the Lease does not exist.
    pub fn holder(&self, name: &str) -> String {
        let holder = self.leases.get(name).and_then(|lease| lease["spec"]["holderIdentity"].as_str());
        holder.unwrap_or_default().to_owned()
    }
}

fn status(code: u16, reason: &str) -> Response<Body> {
    let body =
        json!({"kind":"Status","apiVersion":"v1","status":"Failure","code":code,"reason":reason,"message":reason});
    let mut response = Response::new(Body::from(serde_json::to_vec(&body).unwrap()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

/// Returns the client of a candidate. A sent request takes effect even if the client cancels its call.
pub fn client(server: &SharedServer) -> Client {
    let server = server.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = server.clone();
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await?;
            let (tell, reported) = oneshot::channel();
            let fate = server.lock().unwrap().fate(&parts.method, &parts.uri);
            tokio::spawn(async move {
                tokio::time::sleep(fate.there).await;
                if fate.arrives {
                    let answer = server.lock().unwrap().answer(&parts.method, &parts.uri, &bytes);
                    if let Some(back) = fate.back {
                        tokio::time::sleep(back).await;
                        drop(tell.send(answer));
                        return;
                    }
                }
                std::future::pending::<()>().await;
                drop(tell);
            });
            reported.await.map_err(BoxError::from)
        }
    });
    Client::new(service, "default")
}

/// Writes to a Node again and again without a check of its own: only the guard of the client stops it. For each sent
/// write, the server compares the writer with the current holder of its Lease.
pub async fn node_writer(server: SharedServer, identity: String, lease: &'static str, leadership: Leadership) {
    use k8s_openapi::api::core::v1::Node;
    use kube::api::{Patch, PatchParams};
    let service = tower::service_fn(move |_: Request<Body>| {
        let (server, identity) = (server.clone(), identity.clone());
        // The request is sent at the first poll, as in the real client.
        async move {
            let mut server = server.lock().unwrap();
            *server.node_writes.entry(lease).or_default() += 1;
            let holder = server.holder(lease);
            if holder != identity {
                server.intruders.push(format!("{identity} while {holder:?} held it"));
            }
            let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}"#;
            Ok::<_, BoxError>(Response::new(Body::from(node.as_bytes().to_vec())))
        }
    });
    let nodes: Api<Node> = Api::all(guarded(service, leadership));
    let patch = Patch::Strategic(json!({}));
    loop {
        let _ = limited("patch", Duration::from_secs(1), nodes.patch("a", &PatchParams::default(), &patch)).await;
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}
