//! vCenter over SOAP (`vim25`): a small typed client with about twenty operations.
//!
//! One [`Client`] has at most one session of one vCenter. The client never logs in by itself and never retries a fault.
//! The caller decides what a fault means for a Node.

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
pub use super::timeouts::Timeouts;

/// Returns the `User-Agent` for the HTTP client, which vCenter shows in its session list. The text begins with the name
/// of the Go program, for which administrators search. `commit` is the commit of the build, if known.
pub fn user_agent(commit: Option<&str>) -> String {
    let (name, version) = (env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    let commit = commit.and_then(|commit| commit.get(..7)).unwrap_or("unknown");
    format!("k8s-cloud-provider-vsphere ({name} {version} {commit})")
}

/// A client of one vCenter. Clones share the session.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    http: http::Client,
    timeouts: Timeouts,
    /// Prefix of every operation id, which identifies this process in the logs of vCenter.
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
    /// Builds a client without a session. Nothing is sent.
    pub fn new(http: http::Client) -> Self {
        Self::with_timeouts(http, Timeouts::default())
    }

    /// Builds a client like [`Client::new`], with other time limits.
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

    /// Returns `host:port`, for messages.
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
