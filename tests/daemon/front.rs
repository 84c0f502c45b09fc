//! Stands between a daemon and the API server, and holds writes back: a moment between two writes lasts as long as a
//! test wants.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use support::{eventually, unique};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::cluster::{Cluster, LIMIT};

/// What belongs to one connection, or is made anew for the next one.
const HOP_BY_HOP: [header::HeaderName; 4] =
    [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];

/// Which of the two writes of an initialisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// The addresses: the first one.
    Status,
    /// Provider ID, labels and taints: the second one.
    Node,
}

/// Where a write is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The API server has not seen it.
    Request,
    /// The API server has done it, and the daemon does not know.
    Answer,
}

/// A write that was held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The node's name.
    pub node: String,
    /// What the API server answered, once it has.
    pub status: Option<StatusCode>,
}

/// See the file's header. It serves as long as the test runs, and passes on what it held even when the daemon is gone.
pub struct Front {
    kubeconfig: PathBuf,
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    /// The one that new writes are held by.
    hold: Mutex<Option<Arc<Hold>>>,
}

/// Holds writes until it is released.
pub struct Hold {
    write: Write,
    side: Side,
    held: Mutex<Vec<Held>>,
    released: watch::Sender<bool>,
}

impl Front {
    /// Everything passes.
    pub async fn start(cluster: &Cluster) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared { client: cluster.client.clone(), hold: Mutex::default() });
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&serving)));
            }
        });
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "front", "cluster": { "server": url } }],
            "users": [{ "name": "front", "user": {} }],
            "contexts": [{ "name": "front", "context": { "cluster": "front", "user": "front" } }],
            "current-context": "front",
        });
        let path = cluster.folder().join(format!("{}.kubeconfig", unique("front")));
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        Self { kubeconfig: path, shared }
    }

    /// Leads a daemon here instead of to the API server.
    pub fn flag(&self) -> String {
        format!("--kubeconfig={}", self.kubeconfig.display())
    }

    /// From now on these writes are held, and no others. What an earlier hold has stays there until that is released.
    pub fn hold(&self, write: Write, side: Side) -> Arc<Hold> {
        let hold = Arc::new(Hold { write, side, held: Mutex::default(), released: watch::Sender::new(false) });
        *self.shared.hold.lock().unwrap() = Some(Arc::clone(&hold));
        hold
    }

    /// From now on everything passes.
    pub fn open(&self) {
        *self.shared.hold.lock().unwrap() = None;
    }
}

impl Hold {
    /// Waits until so many writes are held; those whose answer is, have an answer then.
    pub async fn wait_for(&self, count: usize) {
        let is_held = |held: &&Held| self.side == Side::Request || held.status.is_some();
        eventually(&format!("{count} writes are held"), LIMIT, async || match self.held() {
            held if held.iter().filter(is_held).count() >= count => Ok(()),
            held => Err(format!("{held:?}")),
        })
        .await;
    }

    /// Lets go of what is held, and gives it once the API server has answered all of it.
    pub async fn release(&self) -> Vec<Held> {
        self.released.send_replace(true);
        eventually("all that was held is answered", LIMIT, async || match self.held() {
            held if held.iter().all(|held| held.status.is_some()) => Ok(held),
            held => Err(format!("{held:?}")),
        })
        .await
    }

    fn held(&self) -> Vec<Held> {
        self.held.lock().unwrap().clone()
    }

    /// The place among what is held, if this write is to be.
    fn place(&self, method: &Method, path: &str) -> Option<usize> {
        let rest = path.strip_prefix("/api/v1/nodes/")?;
        let (node, write) = match rest.split_once('/') {
            None => (rest, Write::Node),
            Some((node, "status")) => (node, Write::Status),
            Some(_) => return None,
        };
        if method != Method::PATCH || write != self.write {
            return None;
        }
        let mut held = self.held.lock().unwrap();
        held.push(Held { node: node.to_owned(), status: None });
        Some(held.len() - 1)
    }

    async fn wait_on(&self, side: Side) {
        if side == self.side {
            drop(self.released.subscribe().wait_for(|released| *released).await);
        }
    }
}

impl Shared {
    async fn pass(&self, request: Request<Incoming>) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return plain(StatusCode::BAD_REQUEST) };
        for name in HOP_BY_HOP {
            parts.headers.remove(name);
        }
        let hold = self.hold.lock().unwrap().clone();
        let place = hold.and_then(|hold| Some((hold.place(&parts.method, parts.uri.path())?, hold)));
        if let Some((_, hold)) = &place {
            hold.wait_on(Side::Request).await;
        }
        let request = Request::from_parts(parts, Body::from(body.to_bytes()));
        let mut answer = self.client.send(request).await.unwrap_or_else(|_| plain(StatusCode::BAD_GATEWAY));
        if let Some((index, hold)) = &place {
            hold.held.lock().unwrap()[*index].status = Some(answer.status());
            hold.wait_on(Side::Answer).await;
        }
        for name in HOP_BY_HOP {
            answer.headers_mut().remove(name);
        }
        answer
    }
}

fn plain(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        // A task of its own: what the daemon sent is on its way, also when the daemon is gone.
        let work = tokio::spawn(async move { shared.pass(request).await });
        async move { Ok::<_, Infallible>(work.await.unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR))) }
    });
    // It ends with an error when the daemon is killed.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
}
