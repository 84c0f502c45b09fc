//! NSX over its Policy API: logins, calls, lists. When to log in, and with what, is the caller's to decide ([`LogIn`]).
//!
//! A call waits for the pace, is sent with what the client is logged in with, and its answer is judged by one table
//! (`nsx::answer`). A session that is over is renewed once. Objects are kept as they came, so that a write gives back what this program does not know.
//!
//! Mirrors the REST connector that `pkg/nsxt/connector_manager.go` uses, not its lack of limits.

mod answer;
mod call;
mod error;
mod json;
mod list;
mod login;
mod object;
mod pace;
mod proof;
pub mod realization;
mod token;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

pub use call::WriteCall;
pub use error::{Error, ErrorAnswer, Kind};
pub use list::{Listing, Pages};
pub use object::{Object, ObjectTag};
pub use pace::{Pace, Priority};
pub use proof::{LogIn, Login, NoLogin, Scheme};
pub use token::AccessToken;

use super::http;

/// Where the objects of the Policy API are.
const BASE: &str = "/policy/api/v1";

/// How many requests with Basic may be under way. Each is a login, so that a password that changes meanwhile costs no more
/// rejections than this.
const BASIC_REQUESTS: usize = 2;

/// Time limits of the calls, connecting included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Ordinary calls.
    pub call: Duration,
    /// A login, which may involve a directory service.
    pub login: Duration,
    /// The logout, which must not hold up a shutdown.
    pub logout: Duration,
    /// How long a call may wait for its turn.
    pub turn: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            call: Duration::from_secs(30),
            login: Duration::from_secs(30),
            logout: Duration::from_secs(3),
            turn: Duration::from_secs(30),
        }
    }
}

/// A client of one NSX Manager, with at most one login. Clones share it.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    http: http::Client,
    /// Before every path, for managers behind a proxy: empty, or `/prefix`.
    prefix: String,
    pace: Arc<Pace>,
    timeouts: Timeouts,
    log_in: Arc<dyn LogIn>,
    /// Never locked over an await.
    login: Mutex<Option<Login>>,
    basic: Semaphore,
}

impl Client {
    /// A client that is not logged in; nothing is sent. `prefix` is empty or begins with a slash. Clients of one manager
    /// share the pace.
    pub fn new(
        http: http::Client,
        prefix: impl Into<String>,
        pace: Arc<Pace>,
        log_in: Arc<dyn LogIn>,
        timeouts: Timeouts,
    ) -> Self {
        let inner = Inner {
            http,
            prefix: prefix.into(),
            pace,
            timeouts,
            log_in,
            login: Mutex::new(None),
            basic: Semaphore::new(BASIC_REQUESTS),
        };
        Self { inner: Arc::new(inner) }
    }

    /// `host:port`, for messages.
    pub fn endpoint(&self) -> &str {
        self.inner.http.endpoint()
    }
}
