//! A proxy between a daemon and the API server that injects faults: it can be slow, overloaded, hanging, disconnected,
//! or reject watch versions as too old. It can also delay writes.
//!
//! Each of its addresses belongs to one user. The proxy sends the daemon's requests to the API server as that user,
//! over a separate connection for each of the daemon's connections. Bodies pass unchanged. While the API server is
//! down, connections end without an answer. The daemon speaks plain HTTP/1.1 to the proxy.

mod answer;
mod barriers;
mod counts;
mod pass;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::api_server::ApiServer;
pub use barriers::{Held, Hold, Side, Write};
pub use counts::ProxyCounts;
use pass::Upstream;

/// The proxy. Dropping it closes its addresses and connections.
pub struct ApiProxy {
    server: String,
    shared: Arc<Shared>,
    accepting: Mutex<Vec<JoinHandle<()>>>,
}

/// Faults that last until they are cleared.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    delay: Duration,
    is_hanging: bool,
    refusal: Option<Refusal>,
}

/// An answer that replaces the API server's.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    status: StatusCode,
    /// Value of `Retry-After` in seconds.
    retry_after: Option<u32>,
}

/// The way in which open streams end.
#[derive(Clone, Copy, Debug)]
enum End {
    /// As the API server ends a watch at its timeout.
    Whole,
    /// In the middle, together with the connection.
    Broken,
}

/// State that changes with each request.
#[derive(Debug, Default)]
struct State {
    counts: ProxyCounts,
    /// Number of watch requests that are still to be rejected because their version is too old.
    expiring: u32,
    /// The hold that delays new writes.
    hold: Option<Arc<Hold>>,
}

struct Shared {
    faults: watch::Sender<Faults>,
    /// Signals the end of all open streams.
    ended: watch::Sender<End>,
    /// Signals that every connection must be closed.
    severed: watch::Sender<()>,
    state: Mutex<State>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ApiProxy {
    /// Starts a proxy for this server without faults. The server may be killed and restarted behind it.
    #[must_use]
    pub fn start(server: &ApiServer) -> Self {
        let shared = Shared {
            faults: watch::Sender::default(),
            ended: watch::Sender::new(End::Whole),
            severed: watch::Sender::new(()),
            state: Mutex::default(),
        };
        Self { server: server.url(), shared: Arc::new(shared), accepting: Mutex::default() }
    }

    /// Writes a kubeconfig for the proxy, next to the given one and for the same user.
    ///
    /// Tokens pass. A client certificate authenticates every request to the API server, including a request with the
    /// token of another user, which the API server then ignores. So a daemon with `--use-service-account-credentials`
    /// needs a kubeconfig with a token.
    ///
    /// # Panics
    ///
    /// If the kubeconfig is for another server.
    pub async fn kubeconfig(&self, existing: &Path) -> PathBuf {
        let upstream = Arc::new(Upstream::of(existing, &self.server).await);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut kubeconfig: Value = serde_json::from_str(&std::fs::read_to_string(existing).unwrap()).unwrap();
        kubeconfig["clusters"][0]["cluster"]["server"] = format!("http://{}", listener.local_addr().unwrap()).into();
        let path = existing.with_file_name(format!("{}.kubeconfig", crate::unique("proxy")));
        std::fs::write(&path, kubeconfig.to_string()).unwrap();
        let shared = Arc::clone(&self.shared);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(pass::serve(stream, Arc::clone(&shared), Arc::clone(&upstream)));
            }
        });
        self.accepting.lock().unwrap_or_else(PoisonError::into_inner).push(accepting);
        path
    }

    /// Delays each request from now on. Open streams continue.
    pub fn slow(&self, delay: Duration) {
        self.shared.faults.send_modify(|faults| faults.delay = delay);
    }

    /// Answers each request with 429 from now on, with a `Retry-After` in seconds if one is given. Open streams
    /// continue.
    pub fn too_many(&self, retry_after: Option<u32>) {
        self.refuse(Refusal { status: StatusCode::TOO_MANY_REQUESTS, retry_after });
    }

    /// Answers each request with this status from now on. Open streams continue.
    ///
    /// # Panics
    ///
    /// If the status is invalid.
    pub fn status(&self, status: u16) {
        self.refuse(Refusal { status: StatusCode::from_u16(status).unwrap(), retry_after: None });
    }

    fn refuse(&self, refusal: Refusal) {
        self.shared.faults.send_modify(|faults| faults.refusal = Some(refusal));
    }

    /// Sends no answers and no stream data from now on. Connections stay open, and new ones are accepted. After
    /// [`ApiProxy::clear`] the waiting requests reach the API server, if their client is still connected, and delayed
    /// data is sent.
    pub fn hang(&self) {
        self.shared.faults.send_modify(|faults| faults.is_hanging = true);
    }

    /// Delays these writes to Nodes from now on, and no others. Each write passes after the release, even if its client
    /// is gone. An earlier hold keeps its writes until it is released.
    pub fn hold(&self, write: Write, side: Side) -> Arc<Hold> {
        let hold = Hold::new(write, side);
        self.shared.state().hold = Some(Arc::clone(&hold));
        hold
    }

    /// Ends all faults. A hold keeps its writes until it is released. Watches are no longer rejected as too old.
    pub fn clear(&self) {
        let mut state = self.shared.state();
        (state.expiring, state.hold) = (0, None);
        drop(state);
        self.shared.faults.send_replace(Faults::default());
    }

    /// Breaks all open watches in the middle, together with their connections.
    pub fn cut_watches(&self) {
        self.shared.ended.send_replace(End::Broken);
    }

    /// Ends all open watches as at their timeout.
    pub fn end_watches(&self) {
        self.shared.ended.send_replace(End::Whole);
    }

    /// Rejects the next watches that continue from a version, because the version is too old. The rejection alternates
    /// between the status 410 and an event in a stream that then ends. Open streams continue, and lists work.
    pub fn expire_watches(&self, count: u32) {
        self.shared.state().expiring = count;
    }

    /// Closes every connection and the requests that hang on it. New ones are accepted.
    pub fn cut_all(&self) {
        self.shared.severed.send_replace(());
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> ProxyCounts {
        self.shared.state().counts.clone()
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        for accepting in self.accepting.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            accepting.abort();
        }
        self.cut_all();
    }
}
