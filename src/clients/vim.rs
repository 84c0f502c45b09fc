//! vCenter over SOAP (`vim25`): a small typed client, about twenty operations.
//!
//! One [`Client`] holds at most one session of one vCenter. Nothing here logs in by itself, retries a fault or decides
//! what a fault means for a Node: that is up to the caller.

mod call;
mod decoder;
mod envelope;
mod error;
mod fault;
pub mod filter;
mod operations;
mod session;
mod updates;
mod value;
mod version;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::SecretString;

pub use decoder::DecodeError;
pub use error::Error;
pub use fault::{Fault, FaultKind};
pub use filter::{FilterSpec, ObjectSpec, PropertySpec, Selection};
pub use session::{AboutInfo, ServiceContent};
pub use updates::{FilterUpdate, MissingProperty, ObjectContent, ObjectUpdate, PropertyChange, UpdateKind, UpdateSet};
pub use value::{GuestNic, Value, decode_name};

use super::http;
pub use super::object::MoRef;

/// The `User-Agent` for the HTTP client: vCenter shows it in its session list, where administrators look for the name
/// that the Go program sends. `commit` is the commit of the build, if known.
pub fn user_agent(commit: Option<&str>) -> String {
    let (name, version) = (env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    let commit = commit.and_then(|commit| commit.get(..7)).unwrap_or("unknown");
    format!("k8s-cloud-provider-vsphere ({name} {version} {commit})")
}

/// Time limits of the calls, connecting included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Ordinary calls.
    pub call: Duration,
    /// `Login`, which may involve a directory service.
    pub login: Duration,
    /// `Logout`, which must not hold up a shutdown.
    pub logout: Duration,
    /// Time that `WaitForUpdatesEx` may take beyond its requested wait.
    pub wait_margin: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            call: Duration::from_secs(30),
            login: Duration::from_secs(60),
            logout: Duration::from_secs(3),
            wait_margin: Duration::from_secs(20),
        }
    }
}

/// A client of one vCenter. Clones share the session.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    http: http::Client,
    timeouts: Timeouts,
    /// Prefix of every operation id, which tells processes apart in vCenter's logs.
    prefix: String,
    calls: AtomicU64,
    state: Mutex<ConnectionState>,
}

/// State of a connection. Never locked across an await.
struct ConnectionState {
    cookie: Option<SecretString>,
    /// `UserSession.key` of the session that this client opened.
    session_key: Option<SecretString>,
    version: String,
    content: ServiceContent,
}

impl Client {
    /// A client without a session; nothing is sent.
    pub fn new(http: http::Client) -> Self {
        Self::with_timeouts(http, Timeouts::default())
    }

    /// As [`Client::new`], with other time limits.
    pub fn with_timeouts(http: http::Client, timeouts: Timeouts) -> Self {
        let state = ConnectionState {
            cookie: None,
            session_key: None,
            version: version::PREFERRED.to_owned(),
            content: ServiceContent::with_fixed_ids(),
        };
        let prefix = format!("ccm-{:08x}", fastrand::u32(..));
        let inner = Inner { http, timeouts, prefix, calls: AtomicU64::new(0), state: Mutex::new(state) };
        Self { inner: Arc::new(inner) }
    }

    /// `host:port`, for messages.
    pub fn endpoint(&self) -> &str {
        self.inner.http.endpoint()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint()).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
