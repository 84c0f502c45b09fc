//! vCenter over REST: sessions and tags.
//!
//! Two framings of the same calls exist: `/rest`, which every supported version has, and `/api`, for servers without
//! `/rest`. The login detects which one the server speaks. Nothing here logs in by itself.

mod error;
mod exchange;
mod session;
mod signing;
pub mod tagging;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use secrecy::SecretString;

pub use error::{Error, Refusal, Unreadable};
pub use tagging::{Category, ObjectTags, Tag, TagObjects};

use super::http;

/// Time limits of the calls, connecting included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Ordinary calls.
    pub call: Duration,
    /// The login, which may involve a directory service.
    pub login: Duration,
    /// The logout, which must not hold up a shutdown.
    pub logout: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { call: Duration::from_secs(30), login: Duration::from_secs(60), logout: Duration::from_secs(3) }
    }
}

/// Framing of requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// `/rest/com/vmware/cis/…`, results inside `value`; 6.5 to at least 9.1.
    Rest,
    /// `/api/…`, bare results; complete from 7.0 Update 2 on.
    Api,
}

/// A client of one vCenter's REST endpoint, with at most one session. Clones share it.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    http: http::Client,
    timeouts: Timeouts,
    session: Mutex<Option<Session>>,
}

#[derive(Clone)]
struct Session {
    id: SecretString,
    framing: Framing,
    /// Whether the session is the one of the SOAP client, which this client must not end.
    is_borrowed: bool,
}

impl Client {
    /// A client without a session; nothing is sent.
    pub fn new(http: http::Client) -> Self {
        Self::with_timeouts(http, Timeouts::default())
    }

    /// As [`Client::new`], with other time limits.
    pub fn with_timeouts(http: http::Client, timeouts: Timeouts) -> Self {
        Self { inner: Arc::new(Inner { http, timeouts, session: Mutex::new(None) }) }
    }

    /// `host:port`, for messages.
    pub fn endpoint(&self) -> &str {
        self.inner.http.endpoint()
    }
}
