//! Why a request got no usable answer, in one sentence that names the endpoint and what was being done.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use super::refusal::Refusal;
use crate::base::error_chain::chain;

/// Why a request got no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings cannot be used; nothing was sent.
    #[error("cannot set up the connection to {endpoint}: {message}")]
    Configuration {
        /// `host:port`.
        endpoint: String,
        /// What is wrong.
        message: String,
    },
    /// The host name has no address.
    #[error("{operation} at {endpoint}: the host name cannot be resolved: {message}")]
    Resolve {
        /// `host:port`.
        endpoint: String,
        /// What was being done.
        operation: &'static str,
        /// What the resolver said.
        message: String,
    },
    /// No connection: refused or unreachable.
    #[error("{operation} at {endpoint}: cannot connect: {message}")]
    Connect {
        /// `host:port`.
        endpoint: String,
        /// What was being done.
        operation: &'static str,
        /// What the system said.
        message: String,
    },
    /// The proxy in between could not be reached, or would not connect us.
    #[error("{operation} at {endpoint}: cannot connect through the proxy {proxy}: {message}")]
    Proxy {
        /// `host:port`.
        endpoint: String,
        /// What was being done.
        operation: &'static str,
        /// Scheme, host and port of the proxy.
        proxy: String,
        /// What it, or the system, said.
        message: String,
    },
    /// The TLS handshake failed or the server's certificate is not trusted.
    #[error("{operation} at {endpoint}: {message}")]
    Tls {
        /// `host:port`.
        endpoint: String,
        /// What was being done.
        operation: &'static str,
        /// What is wrong with the handshake or certificate, and what was presented.
        message: String,
    },
    /// No complete answer within the time limit.
    #[error("{operation} at {endpoint}: no complete answer within {} s", after.as_secs_f32())]
    Timeout {
        /// `host:port`.
        endpoint: String,
        /// What was being done.
        operation: &'static str,
        /// The limit.
        after: Duration,
    },
    /// An answer that is neither a result nor an error of the protocol: a proxy's page, a wrong service.
    #[error("{operation} at {endpoint}: answered with HTTP status {status}{}", media_note(media_type))]
    Status {
        /// `host:port`.
        endpoint: String,
        /// What was being done.
        operation: &'static str,
        /// The HTTP status.
        status: u16,
        /// The media type of the body, possibly empty.
        media_type: String,
    },
    /// The answer is larger than allowed.
    #[error("{operation} at {endpoint}: the answer is larger than {limit} bytes")]
    TooLarge {
        /// `host:port`.
        endpoint: String,
        /// What was being done.
        operation: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
    /// The connection broke, or what came over it is not HTTP.
    #[error("{operation} at {endpoint}: the connection broke: {message}")]
    Broken {
        /// `host:port`.
        endpoint: String,
        /// What was being done.
        operation: &'static str,
        /// What happened to it.
        message: String,
    },
}

impl Error {
    /// A stable word for metrics and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Configuration { .. } => "Configuration",
            Error::Resolve { .. } => "Resolve",
            Error::Connect { .. } => "Connect",
            Error::Proxy { .. } => "Proxy",
            Error::Tls { .. } => "Tls",
            Error::Timeout { .. } => "Timeout",
            Error::Status { .. } => "Status",
            Error::TooLarge { .. } => "TooLarge",
            Error::Broken { .. } => "Broken",
        }
    }

    /// Whether the same request may well succeed later without anybody changing a setting.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Configuration { .. } | Error::Tls { .. } | Error::TooLarge { .. } => false,
            Error::Resolve { .. }
            | Error::Connect { .. }
            | Error::Proxy { .. }
            | Error::Timeout { .. }
            | Error::Broken { .. } => true,
            Error::Status { status, .. } => matches!(status, 408 | 429 | 500 | 502 | 503 | 504),
        }
    }

    /// The answer's status, for [`Error::Status`].
    pub fn status(&self) -> Option<u16> {
        match self {
            Error::Status { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Sorts an error of the HTTP library, looking through its sources. With a proxy in between, whatever keeps a
    /// connection from being made is the proxy's doing, TLS apart.
    pub(super) fn from_reqwest(
        error: &reqwest::Error,
        endpoint: &str,
        operation: &'static str,
        timeout: Duration,
        proxy: Option<&str>,
    ) -> Self {
        let endpoint = endpoint.to_owned();
        if let Some(message) = tls_message(error) {
            return Error::Tls { endpoint, operation, message };
        }
        if error.is_timeout() && !error.is_connect() {
            return Error::Timeout { endpoint, operation, after: timeout };
        }
        let message = chain_text(error);
        if error.is_builder() {
            return Error::Configuration { endpoint, message };
        }
        if error.is_connect() {
            if let Some(proxy) = proxy {
                return Error::Proxy { endpoint, operation, proxy: proxy.to_owned(), message };
            }
            // hyper-util's resolver failures have no public type; the text is all there is.
            if message.contains("dns error") {
                return Error::Resolve { endpoint, operation, message };
            }
            return Error::Connect { endpoint, operation, message };
        }
        Error::Broken { endpoint, operation, message }
    }
}

fn media_note(media_type: &str) -> String {
    if media_type.is_empty() { String::new() } else { format!(" and a body of type {media_type}") }
}

/// The sources of the error without the library's outer sentence, which would repeat the address.
pub(super) fn chain_text(error: &reqwest::Error) -> String {
    // Without a source the library prints the address without credentials; there are none in ours anyway.
    error.source().map_or_else(|| error.to_string(), chain)
}

/// The text of a TLS failure somewhere in the chain; `io::Error` hides what it wraps from `source`.
fn tls_message(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(current) = next {
        if let Some(tls) = current.downcast_ref::<rustls::Error>() {
            return Some(tls_text(tls));
        }
        next = match current.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => current.source(),
        };
    }
    None
}

fn tls_text(error: &rustls::Error) -> String {
    if let rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other)) = error
        && let Some(refusal) = other.0.downcast_ref::<Refusal>()
    {
        return refusal.to_string();
    }
    format!("the TLS handshake failed: {error}")
}
