//! HTTPS to one endpoint: TLS trust, time limits, size limits, one clear error. Knows no vendor.
//!
//! HTTP/1.1 only, no cookie store, no redirects, and the proxy of the environment (`HTTPS_PROXY`, `NO_PROXY`), as the
//! Go clients do. Bodies and credentials are never logged and never part of an error.

mod error;
mod request;
mod send;
pub mod thumbprint;
pub mod tls;
mod verifier;

#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use error::Error;
pub use request::{Method, Request, Response};
pub use thumbprint::Thumbprint;
pub use tls::{TlsSettings, TlsTrust};

/// Told of every call, for metrics. Must be quick: it runs on the caller's task.
pub trait CallObserver: Send + Sync {
    /// A call ended. `operation` is the vendor's name of it, `outcome` is `ok` or the error's `reason()`.
    fn observed(&self, operation: &'static str, outcome: &'static str, duration: Duration);
}

/// Observes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl CallObserver for NoObserver {
    fn observed(&self, _operation: &'static str, _outcome: &'static str, _duration: Duration) {}
}

/// What a [`Client`] is built from.
pub struct Settings {
    /// Host name or IP literal, IPv6 without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// How the server's certificate is judged.
    pub tls: TlsSettings,
    /// The `User-Agent` header of every request.
    pub user_agent: String,
    /// Limit for resolving, connecting and the TLS handshake together.
    pub connect_timeout: Duration,
    /// Told of every call.
    pub observer: Arc<dyn CallObserver>,
}

impl Settings {
    /// The usual settings: 10 s to connect, nobody observes.
    pub fn new(host: impl Into<String>, port: u16, tls: TlsSettings, user_agent: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            port,
            tls,
            user_agent: user_agent.into(),
            connect_timeout: Duration::from_secs(10),
            observer: Arc::new(NoObserver),
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// A client of one endpoint. Cheap to clone: clones share the connections.
#[derive(Clone)]
pub struct Client {
    inner: reqwest::Client,
    endpoint: Arc<str>,
    base: Arc<str>,
    observer: Arc<dyn CallObserver>,
}

impl Client {
    /// Builds the client; nothing is sent.
    ///
    /// # Errors
    /// [`Error::Configuration`] when the trust settings cannot be used.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let bracketed =
            if settings.host.contains(':') { format!("[{}]", settings.host) } else { settings.host.clone() };
        let endpoint: Arc<str> = format!("{bracketed}:{}", settings.port).into();
        let refused = |message: String| Error::Configuration { endpoint: endpoint.to_string(), message };
        let tls = tls::client_config(&settings.tls, &settings.host, settings.port).map_err(refused)?;
        let inner = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .http1_only()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .user_agent(&settings.user_agent)
            .connect_timeout(settings.connect_timeout)
            // vCenter drops idle connections after some minutes; older ones are not worth the failed try.
            .pool_idle_timeout(Duration::from_secs(120))
            .tcp_keepalive(Duration::from_secs(30))
            .build()
            .map_err(|error| refused(error::chain_text(&error)))?;
        let base = format!("https://{endpoint}").into();
        Ok(Self { inner, endpoint, base, observer: settings.observer })
    }

    /// `host:port`, for messages.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Tells the observer how a call ended.
    pub fn observe(&self, operation: &'static str, outcome: &'static str, duration: Duration) {
        self.observer.observed(operation, outcome, duration);
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
