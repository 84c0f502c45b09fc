//! vCenter over REST: sessions and tags.
//!
//! The same calls exist in two framings: `/rest`, which every supported version has, and `/api`, for later versions
//! that may lack `/rest`. The login detects the framing. The client never logs in by itself.

mod error;
mod exchange;
mod session;
mod signing;
pub mod tagging;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use parking_lot::Mutex;
use secrecy::SecretString;

pub use error::{Error, Refusal, Unreadable};
pub use tagging::{Category, ObjectTags, Tag, TagObjects};

use super::http;
use super::timeouts::Timeouts;

/// Framing of requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// `/rest/com/vmware/cis/…` with results inside `value`; exists from 6.5 to at least 9.1.
    Rest,
    /// `/api/…` with bare results; complete since 7.0 Update 2.
    Api,
}

/// A client of one vCenter's REST endpoint, with at most one session. Clones share the session.
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
    /// Whether the session belongs to the SOAP client, so that this client must not end it.
    is_borrowed: bool,
}

impl Client {
    /// Builds a client without a session. Nothing is sent.
    pub fn new(http: http::Client) -> Self {
        Self::with_timeouts(http, Timeouts::default())
    }

    /// Builds a client like [`Client::new`], with other time limits.
    pub fn with_timeouts(http: http::Client, timeouts: Timeouts) -> Self {
        Self { inner: Arc::new(Inner { http, timeouts, session: Mutex::new(None) }) }
    }

    /// Returns `host:port`, for messages.
    pub fn endpoint(&self) -> &str {
        self.inner.http.endpoint()
    }
}
