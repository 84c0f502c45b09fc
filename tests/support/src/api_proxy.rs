//! Stands between a daemon and the API server, and is all that can be wrong there: slow, overloaded, mute, cut off,
//! forgetful. It can also hold writes back.
//!
//! One of its addresses is for one user: what the daemon asks, the API server is asked by that user, over a connection
//! of its own for each of the daemon's. Bodies pass as they come. When the API server is down, so is the proxy:
//! connections end without an answer. In between it is plain HTTP/1.1, which the daemon speaks where there is
//! no TLS.

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

/// See the file's header. Dropping it closes its addresses and connections.
pub struct ApiProxy {
    server: String,
    shared: Arc<Shared>,
    accepting: Mutex<Vec<JoinHandle<()>>>,
}

/// What is wrong until it is cleared.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    delay: Duration,
    is_hanging: bool,
    refusal: Option<Refusal>,
}

/// An answer instead of the API server's.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    status: StatusCode,
    /// Seconds.
    retry_after: Option<u32>,
}

/// How open streams end.
#[derive(Clone, Copy, Debug)]
enum End {
    /// As the API server ends them when their time is up.
    Whole,
    /// In the middle, with the connection.
    Broken,
}

/// What changes with each request.
#[derive(Debug, Default)]
struct State {
    counts: ProxyCounts,
    /// Watch requests that are still to be told that their version is too old.
    expiring: u32,
    /// What new writes are held by.
    hold: Option<Arc<Hold>>,
}

struct Shared {
    faults: watch::Sender<Faults>,
    /// Sent to when the streams that are open are to end.
    ended: watch::Sender<End>,
    /// Sent to when every connection is to be closed.
    severed: watch::Sender<()>,
    state: Mutex<State>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ApiProxy {
    /// In front of this server, which may be killed and restarted behind it. Everything passes.
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

    /// A kubeconfig that leads here instead of to the API server, and is of the same user as this one. It lies beside it.
    ///
    /// Tokens pass; a client certificate is shown to the API server for each request, also for one that brings the token
    /// of somebody else, whom the API server then does not see. So a daemon with `--use-service-account-credentials`
    /// needs a kubeconfig with a token.
    ///
    /// # Panics
    ///
    /// When the kubeconfig is not one of this server's.
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

    /// From now on each request is served so much later. Streams that are open flow on.
    pub fn slow(&self, delay: Duration) {
        self.shared.faults.send_modify(|faults| faults.delay = delay);
    }

    /// From now on each request is answered 429, with a `Retry-After` of so many seconds if one is given. Streams that
    /// are open flow on.
    pub fn too_many(&self, retry_after: Option<u32>) {
        self.refuse(Refusal { status: StatusCode::TOO_MANY_REQUESTS, retry_after });
    }

    /// From now on each request is answered with this status. Streams that are open flow on.
    ///
    /// # Panics
    ///
    /// When it is none.
    pub fn status(&self, status: u16) {
        self.refuse(Refusal { status: StatusCode::from_u16(status).unwrap(), retry_after: None });
    }

    fn refuse(&self, refusal: Refusal) {
        self.shared.faults.send_modify(|faults| faults.refusal = Some(refusal));
    }

    /// From now on there are no answers, and nothing comes over streams; connections stay, and new ones are accepted.
    /// What was asked meanwhile reaches the API server after [`ApiProxy::clear`], unless the asker has gone; what was
    /// on its way comes then.
    pub fn hang(&self) {
        self.shared.faults.send_modify(|faults| faults.is_hanging = true);
    }

    /// From now on these writes to Nodes are held, and no others; each passes in the end, even when its sender is gone.
    /// What an earlier hold has stays there until that is released.
    pub fn hold(&self, write: Write, side: Side) -> Arc<Hold> {
        let hold = Hold::new(write, side);
        self.shared.state().hold = Some(Arc::clone(&hold));
        hold
    }

    /// Everything passes again, but for what a hold has until that is released. Watches that were to expire do not.
    pub fn clear(&self) {
        let mut state = self.shared.state();
        (state.expiring, state.hold) = (0, None);
        drop(state);
        self.shared.faults.send_replace(Faults::default());
    }

    /// The watches that are open break off in the middle, with their connections.
    pub fn cut_watches(&self) {
        self.shared.ended.send_replace(End::Broken);
    }

    /// The watches that are open end as if their time were up.
    pub fn end_watches(&self) {
        self.shared.ended.send_replace(End::Whole);
    }

    /// The next watches that go on from a version are told that it is too old: in turn with a status (410), and with an
    /// event in a stream that then ends. Streams that are open flow on, lists work.
    pub fn expire_watches(&self, count: u32) {
        self.shared.state().expiring = count;
    }

    /// Closes every connection, and lets go of what hangs on them. New ones are accepted.
    pub fn cut_all(&self) {
        self.shared.severed.send_replace(());
    }

    /// What it has seen so far.
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
