//! HTTP and HTTPS to one endpoint: TLS trust, proxy, time limits, size limits, one clear error. Knows no vendor.
//!
//! A [`Request`] goes to the [`Client`], which keeps the limits, from there to a [`Transport`], and comes back as a
//! [`Response`]. HTTP/1.1 only, no cookie store, no redirects. Nothing is read from the environment. Bodies and
//! credentials are never logged and never part of an error.

mod body;
mod certificate;
mod endpoint;
mod error;
pub mod proxy;
mod refusal;
mod request;
mod send;
pub mod thumbprint;
pub mod tls;
mod transport;
mod verifier;

#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

pub use body::{Body, BodyWriter};
pub use certificate::Certificate;
pub use endpoint::Endpoint;
pub use error::Error;
pub use proxy::ProxySettings;
pub use request::{Method, Request, Response};
pub use thumbprint::Thumbprint;
pub use tls::{TlsSettings, TlsTrust};
pub use transport::{Failure, Transport};

use certificate::Seen;
use transport::Network;

/// Told of every call, for metrics. Must be quick: it runs on the caller's task.
pub trait CallObserver: Send + Sync {
    /// A call ended. `endpoint` is `host:port`, `operation` is the vendor's name of the call, `outcome` is `ok` or the
    /// error's `reason()`.
    fn observed(&self, endpoint: &str, operation: &'static str, outcome: &'static str, duration: Duration);
}

/// Observes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl CallObserver for NoObserver {
    fn observed(&self, _endpoint: &str, _operation: &'static str, _outcome: &'static str, _duration: Duration) {}
}

/// What a [`Client`] is built from.
#[derive(Clone)]
pub struct Settings {
    /// Host name or IP literal, IPv6 without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// How the server's certificate is judged.
    pub tls: TlsSettings,
    /// The proxies to go through; `None` for none.
    pub proxy: Option<ProxySettings>,
    /// The `User-Agent` header of every request.
    pub user_agent: String,
    /// Limit for resolving, connecting and the TLS handshake together.
    pub connect_timeout: Duration,
    /// Told of every call.
    pub observer: Arc<dyn CallObserver>,
    /// What takes the place of the network: for tests, whose stacks then run under a paused clock.
    pub transport: Option<Arc<dyn Transport>>,
}

impl Settings {
    /// The usual settings: no proxy, 10 s to connect, nobody observes.
    pub fn new(host: impl Into<String>, port: u16, tls: TlsSettings, user_agent: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            port,
            tls,
            proxy: None,
            user_agent: user_agent.into(),
            connect_timeout: Duration::from_secs(10),
            observer: Arc::new(NoObserver),
            transport: None,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}

/// A client of one endpoint. Cheap to clone: clones share the connections and the trust.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    endpoint: Endpoint,
    /// As given; `tls` is that of the start.
    settings: Settings,
    seen: Arc<Seen>,
    current: Mutex<Current>,
}

/// What [`Client::set_tls`] replaces. Never locked over an await.
#[derive(Clone)]
struct Current {
    tls: TlsSettings,
    transport: Arc<dyn Transport>,
}

impl Client {
    /// Builds the client; nothing is sent.
    ///
    /// # Errors
    /// [`Error::Configuration`] when the trust settings or the proxy cannot be used.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        Self::to(Endpoint::https(&settings.host, settings.port), settings)
    }

    fn to(endpoint: Endpoint, settings: Settings) -> Result<Self, Error> {
        let seen = Arc::new(Seen::default());
        let current = Current::new(&settings, &endpoint, settings.tls.clone(), &seen)?;
        Ok(Self { inner: Arc::new(Inner { endpoint, settings, seen, current: Mutex::new(current) }) })
    }

    /// A client of another endpoint, `http://` or `https://`, with the present authorities and the same proxies,
    /// observer, user agent and limits. It always verifies: that this endpoint is not verified says nothing about
    /// another one. Thumbprints go along only to the same host. What follows in the URL after host and port is not
    /// kept. A later [`Client::set_tls`] of the one does not reach the other.
    ///
    /// # Errors
    /// [`Error::Configuration`] when the URL cannot be used; it is not part of the error.
    pub fn sibling(&self, url: &str) -> Result<Self, Error> {
        let endpoint = self.parse_sibling(url)?;
        let mut tls = TlsSettings { insecure: false, ..self.current().tls };
        if !endpoint.host().eq_ignore_ascii_case(self.inner.endpoint.host()) {
            tls.thumbprints.clear();
        }
        self.sibling_at(endpoint, tls)
    }

    /// As [`Client::sibling`], with a trust of its own.
    ///
    /// # Errors
    /// [`Error::Configuration`] when the URL or the trust cannot be used.
    pub fn sibling_with_tls(&self, url: &str, tls: TlsSettings) -> Result<Self, Error> {
        self.sibling_at(self.parse_sibling(url)?, tls)
    }

    fn parse_sibling(&self, url: &str) -> Result<Endpoint, Error> {
        let refused =
            |message| Error::Configuration { endpoint: format!("a service beside {}", self.endpoint()), message };
        Endpoint::of_url(url).map_err(refused)
    }

    fn sibling_at(&self, endpoint: Endpoint, tls: TlsSettings) -> Result<Self, Error> {
        let mut settings = self.inner.settings.clone();
        settings.host = endpoint.host().to_owned();
        settings.port = endpoint.port();
        settings.tls = tls;
        Self::to(endpoint, settings)
    }

    /// From now on new connections are judged by these settings, in clones too. Idle connections of before are not used
    /// again; calls in flight end as they began.
    ///
    /// # Errors
    /// [`Error::Configuration`] when the settings cannot be used; those of before stay in force.
    pub fn set_tls(&self, tls: TlsSettings) -> Result<(), Error> {
        let renewed = Current::new(&self.inner.settings, &self.inner.endpoint, tls, &self.inner.seen)?;
        *self.lock() = renewed;
        Ok(())
    }

    /// What the server's certificate says: that of the last handshake in which the server proved that it is its own.
    /// `None` before the first.
    pub fn certificate(&self) -> Option<Certificate> {
        self.inner.seen.last()
    }

    /// Whether new connections verify the server's certificate.
    pub fn is_verified(&self) -> bool {
        !self.lock().tls.insecure
    }

    /// Tells of the certificate without keeping the client alive.
    pub fn certificate_source(&self) -> CertificateSource {
        CertificateSource(Arc::downgrade(&self.inner))
    }

    /// `host:port`, for messages.
    pub fn endpoint(&self) -> &str {
        self.inner.endpoint.authority()
    }

    /// Whether requests cannot be read on the network: they use TLS, or stay on this machine.
    pub fn is_confidential(&self) -> bool {
        self.inner.endpoint.is_confidential()
    }

    /// Tells the observer how a call ended.
    pub fn observe(&self, operation: &'static str, outcome: &'static str, duration: Duration) {
        self.inner.settings.observer.observed(self.endpoint(), operation, outcome, duration);
    }

    fn current(&self) -> Current {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.inner.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells what a client knows of its server's certificate, for as long as a clone of that client is in use.
#[derive(Clone)]
pub struct CertificateSource(Weak<Inner>);

impl CertificateSource {
    /// Whether the client is still there.
    pub fn is_in_use(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// As [`Client::certificate`].
    pub fn certificate(&self) -> Option<Certificate> {
        self.0.upgrade()?.seen.last()
    }

    /// As [`Client::is_verified`]; nothing when the client is gone.
    pub fn is_verified(&self) -> Option<bool> {
        self.0.upgrade().map(|inner| Client { inner }.is_verified())
    }
}

impl Current {
    /// With a transport of the caller's the trust is only kept: it is that transport's to use.
    fn new(settings: &Settings, endpoint: &Endpoint, tls: TlsSettings, seen: &Arc<Seen>) -> Result<Self, Error> {
        let transport = match &settings.transport {
            Some(given) => Arc::clone(given),
            None => Arc::new(Network::new(settings, endpoint, &tls, Arc::clone(seen))?) as Arc<dyn Transport>,
        };
        Ok(Self { tls, transport })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint()).finish_non_exhaustive()
    }
}
