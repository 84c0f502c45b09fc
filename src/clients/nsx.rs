//! Client of the NSX Policy API: logins, calls and lists. The caller's [`LogIn`] decides when and how to log in.
//!
//! A call waits until the rate limiter [`Pace`] admits it, and is sent with the client's login. One table classifies
//! the answers (`nsx::answer`). An ended session is renewed once per call. Objects keep all fields as received, so that
//! a write preserves fields that are unknown to this program.
//!
//! Mirrors the REST connector that `pkg/nsxt/connector_manager.go` uses, and adds limits.

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

pub use error::{Error, ErrorAnswer, Kind};
pub use list::{Listing, Pages};
pub use object::{Object, ObjectTag};
pub use pace::Pace;
pub use proof::{LogIn, Login, NoLogin, Scheme};
pub use token::AccessToken;

use super::http;

const BASE: &str = "/policy/api/v1";

/// Maximum number of requests with HTTP Basic in flight. Each request is a login, so this limits the rejected logins
/// after a password change.
const BASIC_REQUESTS: usize = 2;

/// Time limits of the calls, including connecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Limit of ordinary calls.
    pub call: Duration,
    /// Limit of a login, which may involve a directory service.
    pub login: Duration,
    /// Limit of the logout, which must not delay a shutdown.
    pub logout: Duration,
    /// Limit of the wait for the rate limiter.
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

/// A client of one NSX Manager, with at most one login. Clones share the login.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    http: http::Client,
    /// Prefix of every path, for managers behind a proxy: empty, or in the form `/prefix`.
    prefix: String,
    pace: Arc<Pace>,
    timeouts: Timeouts,
    log_in: Arc<dyn LogIn>,
    /// Never locked across an await.
    login: Mutex<Option<Login>>,
    basic: Semaphore,
}

impl Client {
    /// Builds a client without a login. Nothing is sent. `prefix` is empty or begins with a slash. All clients of one
    /// manager must share `pace`.
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

    /// Returns the client of the connection.
    pub fn http(&self) -> &http::Client {
        &self.inner.http
    }

    /// Returns `host:port`, for messages.
    pub fn endpoint(&self) -> &str {
        self.inner.http.endpoint()
    }
}
