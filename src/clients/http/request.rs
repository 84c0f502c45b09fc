//! Requests and responses.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use secrecy::SecretString;

use super::body::Body;
use super::permit::Permit;

/// One request. `Debug` prints neither headers nor body, because both may contain secrets.
#[derive(Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Path and query, beginning with `/`. The path must never contain a secret, because it may be part of an error.
    pub path: String,
    /// Headers except `Host`, `User-Agent` and `Accept-Encoding`, which the transport adds.
    pub headers: Vec<(&'static str, String)>,
    /// Headers whose value is a password or a key. The values are marked as sensitive and wiped after sending.
    pub secret_headers: Vec<(&'static str, SecretString)>,
    /// The body; empty if there is none.
    pub body: Body,
    /// The vendor's name of the operation, for messages and metrics.
    pub operation: &'static str,
    /// Time limit for the whole exchange, including connecting.
    pub timeout: Duration,
    /// The largest accepted answer, in bytes after decompression.
    pub max_bytes: usize,
    /// Whether the request may be sent a second time if its connection breaks before an answer.
    pub repeatable: bool,
    /// The permission to write; `None` if the request changes nothing. The end of the permission cancels the request.
    pub permit: Option<Arc<dyn Permit>>,
}

impl Request {
    /// Builds a request without headers and body. The answer is limited to 4 MiB, and only a `GET` is repeatable.
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

/// A complete answer of any status.
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

    /// Returns the media type without parameters in lower case, or an empty text if there is none.
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
