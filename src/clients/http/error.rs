//! Errors of requests. Each message names the endpoint and, except for `Error::Configuration`, the operation.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

use super::refusal::CertificateRefusal;
use crate::base::error_chain::chain;

/// A failed request, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedRequest {
    /// `host:port`.
    pub endpoint: String,
    /// The vendor's name of the operation.
    pub operation: &'static str,
}

impl fmt::Display for FailedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.operation, self.endpoint)
    }
}

/// Error of a request without a usable answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings or the request cannot be used; nothing was sent.
    #[error("cannot set up the connection to {endpoint}: {message}")]
    Configuration {
        /// `host:port`.
        endpoint: String,
        /// The cause as text.
        message: String,
    },
    /// The host name cannot be resolved. The text is the resolver's message.
    #[error("{0}: the host name cannot be resolved: {1}")]
    Resolve(FailedRequest, String),
    /// The server is unreachable or refused the connection. The text is the cause.
    #[error("{0}: cannot connect: {1}")]
    Connect(FailedRequest, String),
    /// The connection through the proxy failed. The texts are the address of the proxy and the cause.
    #[error("{0}: cannot connect through the proxy {1}: {2}")]
    Proxy(FailedRequest, String, String),
    /// The certificate of the server or of a proxy was refused.
    #[error("{0}: {1}")]
    Certificate(FailedRequest, Box<CertificateRefusal>),
    /// The TLS handshake failed. The text is the cause.
    #[error("{0}: {1}")]
    Tls(FailedRequest, String),
    /// The answer was not complete within this time limit.
    #[error("{0}: no complete answer within {seconds} s", seconds = .1.as_secs_f32())]
    Timeout(FailedRequest, Duration),
    /// The answer is neither a result nor an error of the vendor's protocol, for example a web page. The values are the
    /// HTTP status and the media type of the body (possibly empty).
    #[error("{0}: answered with HTTP status {1}{note}", note = media_note(.2))]
    Status(FailedRequest, u16, String),
    /// The answer is larger than this limit in bytes.
    #[error("{0}: the answer is larger than {1} bytes")]
    TooLarge(FailedRequest, usize),
    /// The answer has more JSON values than this limit.
    #[error("{0}: the answer has more than {1} values")]
    TooManyValues(FailedRequest, usize),
    /// The connection broke, or its data is not HTTP. The text is the cause.
    #[error("{0}: the connection broke: {1}")]
    Broken(FailedRequest, String),
    /// The request was not sent, because its permit had ended.
    #[error("{0}: not sent: the permission to write has ended")]
    NotPermitted(FailedRequest),
    /// The permit ended while the request was in flight. The effect of the request is unknown.
    #[error("{0}: given up: the permission to write has ended")]
    PermitEnded(FailedRequest),
}

impl Error {
    /// Returns a stable word for metrics and Events.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Configuration { .. } => "Configuration",
            Error::Resolve { .. } => "Resolve",
            Error::Connect { .. } => "Connect",
            Error::Proxy { .. } => "Proxy",
            Error::Certificate { .. } | Error::Tls { .. } => "Tls",
            Error::Timeout { .. } => "Timeout",
            Error::Status { .. } => "Status",
            Error::TooLarge { .. } | Error::TooManyValues { .. } => "TooLarge",
            Error::Broken { .. } => "Broken",
            Error::NotPermitted { .. } => "NotPermitted",
            Error::PermitEnded { .. } => "PermitEnded",
        }
    }

    /// Whether the same request may succeed later without a change of settings.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Configuration { .. }
            | Error::Certificate { .. }
            | Error::Tls { .. }
            | Error::TooLarge { .. }
            | Error::TooManyValues { .. }
            | Error::NotPermitted { .. }
            | Error::PermitEnded { .. } => false,
            Error::Resolve { .. }
            | Error::Connect { .. }
            | Error::Proxy { .. }
            | Error::Timeout { .. }
            | Error::Broken { .. } => true,
            Error::Status(_, status, _) => matches!(status, 408 | 429 | 500 | 502 | 503 | 504),
        }
    }

    /// Classifies an error of the HTTP library by its sources. With a proxy, every failure to connect except a TLS
    /// failure counts as a failure of the proxy.
    pub(super) fn from_reqwest(
        error: &reqwest::Error,
        request: FailedRequest,
        timeout: Duration,
        proxy: Option<&str>,
    ) -> Self {
        if let Some(tls) = tls_error(error) {
            return match refusal(tls) {
                Some(refusal) => Error::Certificate(request, Box::new(refusal.clone())),
                None => Error::Tls(request, format!("the TLS handshake failed: {tls}")),
            };
        }
        if error.is_timeout() && !error.is_connect() {
            return Error::Timeout(request, timeout);
        }
        let message = chain_text(error);
        if error.is_builder() {
            return Error::Configuration { endpoint: request.endpoint, message };
        }
        match proxy {
            _ if !error.is_connect() => Error::Broken(request, message),
            Some(proxy) => Error::Proxy(request, proxy.to_owned(), message),
            // The resolver errors of hyper-util have no public type, only a text.
            None if message.contains("dns error") => Error::Resolve(request, message),
            None => Error::Connect(request, message),
        }
    }
}

fn media_note(media_type: &str) -> String {
    if media_type.is_empty() { String::new() } else { format!(" and a body of type {media_type}") }
}

/// Returns the sources of the error without the outer message, which would repeat the address.
pub(super) fn chain_text(error: &reqwest::Error) -> String {
    // An error without sources has only the library's message, which omits credentials in the URL.
    error.source().map_or_else(|| error.to_string(), chain)
}

/// Returns the TLS failure in the chain of sources. `io::Error` hides its inner error from `source`.
fn tls_error<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e rustls::Error> {
    let mut next: Option<&'e (dyn StdError + 'static)> = Some(error);
    while let Some(current) = next {
        if let Some(tls) = current.downcast_ref::<rustls::Error>() {
            return Some(tls);
        }
        next = match current.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => current.source(),
        };
    }
    None
}

fn refusal(error: &rustls::Error) -> Option<&CertificateRefusal> {
    match error {
        rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other)) => other.0.downcast_ref(),
        _ => None,
    }
}
