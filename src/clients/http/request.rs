//! Requests and responses.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use secrecy::SecretString;

use super::body::Body;
use super::permit::Permit;

/// One request. Its `Debug` shows neither headers nor body: both may hold secrets.
#[derive(Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Path and query, beginning with `/`. Must hold no secret: it may be part of an error.
    pub path: String,
    /// Headers other than `Host`, `User-Agent` and `Accept-Encoding`.
    pub headers: Vec<(&'static str, String)>,
    /// Headers whose value is a password or a key; sent as sensitive, and wiped afterwards.
    pub secret_headers: Vec<(&'static str, SecretString)>,
    /// The body; empty for none.
    pub body: Body,
    /// The vendor's name of the operation, for messages and metrics.
    pub operation: &'static str,
    /// Limit for the whole exchange, connecting included.
    pub timeout: Duration,
    /// The largest accepted answer, in bytes after decompression.
    pub max_bytes: usize,
    /// Whether the request may be sent a second time when a pooled connection turns out to be dead.
    pub repeatable: bool,
    /// Checked before each attempt; the end of the permission cancels the request. `None` if the request changes
    /// nothing.
    pub permit: Option<Arc<dyn Permit>>,
}

impl Request {
    /// A request without headers and body, repeatable only if it is a `GET`, with a limit of 4 MiB for the answer.
    pub fn new(method: Method, path: impl Into<String>, operation: &'static str, timeout: Duration) -> Self {
        let repeatable = method == Method::GET;
        Self {
            method,
            path: path.into(),
            headers: Vec::new(),
            secret_headers: Vec::new(),
            body: Body::default(),
            operation,
            timeout,
            max_bytes: 4 << 20,
            repeatable,
            permit: None,
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("operation", &self.operation)
            .finish_non_exhaustive()
    }
}

/// A complete answer, of any status.
#[derive(Clone)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// All headers.
    pub headers: http::HeaderMap,
    /// The body, decompressed.
    pub body: Vec<u8>,
}

impl Response {
    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The media type without parameters, in lower case; empty if there is none.
    pub fn media_type(&self) -> String {
        let value = self.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media = value.unwrap_or_default().split(';').next().unwrap_or_default();
        media.trim().to_ascii_lowercase()
    }
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}
