//! A vendor-neutral HTTP(S) client for one endpoint: TLS trust, proxy, time limits, size limits, one error type.
//!
//! A [`Request`] goes to the [`Client`], which enforces the limits, then to a [`Transport`], and comes back as a
//! [`Response`]. HTTP/1.1 only, no cookie store, no redirects. Nothing is read from the environment. Bodies and
//! credentials are never logged and never part of an error.

mod authorization;
mod body;
mod certificate;
mod endpoint;
mod error;
mod identity;
mod permit;
pub mod proxy;
mod refusal;
mod request;
pub mod thumbprint;
pub mod tls;
mod transport;
mod verifier;

#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

pub use ::http::Method;
use parking_lot::Mutex;
use tracing::trace;

pub use authorization::authorization;
pub use body::{Body, BodyWriter};
pub use certificate::Certificate;
pub use endpoint::Endpoint;
pub use error::{Error, FailedRequest};
pub use identity::ClientIdentity;
pub use permit::Permit;
pub use proxy::ProxySettings;
pub use refusal::CertificateRefusal;
pub use request::{Request, Response};
pub use thumbprint::Thumbprint;
pub use tls::{TlsSettings, TlsTrust};
pub use transport::{Failure, Transport};

use certificate::PeerCertificate;
use transport::Network;

/// Observes every call, for metrics. Must be fast: it runs on the caller's task.
pub trait CallObserver: Send + Sync {
    /// A call ended. `endpoint` is `host:port`, `operation` is the vendor's name of the call, `outcome` is `ok` or the
    /// error's `reason()`.
    fn observed(&self, endpoint: &str, operation: &'static str, outcome: &'static str, duration: Duration);
}

/// Settings of a [`Client`].
#[derive(Clone)]
pub struct Settings {
    /// Host name or IP literal, IPv6 without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// How the server's certificate is verified.
    pub tls: TlsSettings,
    /// The proxies of the environment; `None` to connect directly.
    pub proxy: Option<ProxySettings>,
    /// The `User-Agent` header of every request.
    pub user_agent: String,
    /// Limit for resolving, connecting and the TLS handshake together.
    pub connect_timeout: Duration,
    /// Observer of every call.
    pub observer: Option<Arc<dyn CallObserver>>,
    /// Replaces the network: for tests, which then run under a paused clock.
    pub transport: Option<Arc<dyn Transport>>,
}

impl Settings {
    /// The usual settings: no proxy, 10 s to connect, no observer.
    pub fn new(host: impl Into<String>, port: u16, tls: TlsSettings, user_agent: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            port,
            tls,
            proxy: None,
            user_agent: user_agent.into(),
            connect_timeout: Duration::from_secs(10),
            observer: None,
            transport: None,
        }
    }
}

/// A client of one endpoint. Cheap to clone: clones share the connections and the trust.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    endpoint: Endpoint,
    /// The settings given at the start; `current` has the TLS settings in use.
    settings: Settings,
    peer_certificate: Arc<PeerCertificate>,
    current: Mutex<Current>,
}

/// State that [`Client::set_tls`] replaces. Never locked across an await.
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
        let seen = Arc::new(PeerCertificate::default());
        let current = Current::new(&settings, &endpoint, settings.tls.clone(), &seen)?;
        Ok(Self { inner: Arc::new(Inner { endpoint, settings, peer_certificate: seen, current: Mutex::new(current) }) })
    }

    /// A client of another endpoint, `http://` or `https://`, with the current authorities and the same proxies,
    /// observer, user agent and limits. It always verifies certificates, even if this client does not. Thumbprints and
    /// the client certificate are used only for the same host. The URL's path and query are ignored. A later
    /// [`Client::set_tls`] on one client does not affect the other.
    ///
    /// # Errors
    /// [`Error::Configuration`] when the URL cannot be used; it is not part of the error.
    pub fn sibling(&self, url: &str) -> Result<Self, Error> {
        let refused =
            |message| Error::Configuration { endpoint: format!("a service beside {}", self.endpoint()), message };
        let endpoint = Endpoint::of_url(url).map_err(refused)?;
        let mut tls = TlsSettings { insecure: false, ..self.current().tls };
        if !endpoint.host().eq_ignore_ascii_case(self.inner.endpoint.host()) {
            tls.thumbprints.clear();
            tls.identity = None;
        }
        let (host, port) = (endpoint.host().to_owned(), endpoint.port());
        Self::to(endpoint, Settings { host, port, tls, ..self.inner.settings.clone() })
    }

    /// Sends the request and reads the whole answer, of any status.
    ///
    /// A repeatable request is sent once more if its connection broke before the response head was complete: servers
    /// close idle pooled connections.
    ///
    /// # Errors
    /// Every variant of [`Error`] but `Status`: classifying the status is up to the caller.
    pub async fn send(&self, request: Request) -> Result<Response, Error> {
        let (timeout, operation, permit) = (request.timeout, request.operation, request.permit.clone());
        let ended = async {
            match permit {
                Some(permit) => permit.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            limited = tokio::time::timeout(timeout, self.send_twice(request)) => {
                limited.unwrap_or_else(|_| Err(Error::Timeout(self.failed(operation), timeout)))
            }
            () = ended => Err(Error::PermitEnded(self.failed(operation))),
        }
    }

    /// An [`Error::Status`] for a response that does not follow the protocol.
    pub fn status_error(&self, operation: &'static str, response: &Response) -> Error {
        Error::Status(self.failed(operation), response.status, response.media_type())
    }

    /// Describes a request of this client, for errors.
    pub fn failed(&self, operation: &'static str) -> FailedRequest {
        FailedRequest { endpoint: self.endpoint().to_owned(), operation }
    }

    async fn send_twice(&self, request: Request) -> Result<Response, Error> {
        let again = request.repeatable.then(|| request.clone());
        match (self.send_once(request).await, again) {
            (Err(Failure::Unanswered(error)), Some(request)) => {
                trace!(operation = request.operation, %error, "connection broke before an answer, sending once more");
                self.send_once(request).await.map_err(Failure::into_error)
            }
            (result, _) => result.map_err(Failure::into_error),
        }
    }

    /// Makes one attempt, over the current transport: `set_tls` may have replaced it since the previous attempt.
    async fn send_once(&self, request: Request) -> Result<Response, Failure> {
        let (operation, limit) = (request.operation, request.max_bytes);
        if request.permit.as_ref().is_some_and(|permit| !permit.is_valid()) {
            return Err(Failure::Final(Error::NotPermitted(self.failed(operation))));
        }
        let transport = self.current().transport;
        let response = transport.exchange(&self.inner.endpoint, request).await?;
        if response.body.len() > limit {
            return Err(Failure::Final(Error::TooLarge(self.failed(operation), limit)));
        }
        Ok(response)
    }

    /// Verifies the servers of new connections by these settings, also for clones of this client. Stops reusing idle
    /// connections; calls in flight are not affected.
    ///
    /// # Errors
    /// [`Error::Configuration`] when the settings cannot be used; the previous ones stay in force.
    pub fn set_tls(&self, tls: TlsSettings) -> Result<(), Error> {
        let renewed = Current::new(&self.inner.settings, &self.inner.endpoint, tls, &self.inner.peer_certificate)?;
        *self.inner.current.lock() = renewed;
        Ok(())
    }

    /// Stops reusing idle connections; calls in flight are not affected. For servers that authenticate the client per
    /// connection, and may accept its certificate on a new one.
    ///
    /// # Errors
    /// [`Error::Configuration`] when new connections cannot be prepared; the previous ones stay in use.
    pub fn forget_connections(&self) -> Result<(), Error> {
        let Inner { endpoint, settings, peer_certificate: seen, current } = &*self.inner;
        let mut current = current.lock();
        *current = Current::new(settings, endpoint, current.tls.clone(), seen)?;
        Ok(())
    }

    /// Whether new connections verify the server's certificate.
    pub fn is_verified(&self) -> bool {
        !self.inner.current.lock().tls.insecure
    }

    /// A weak reference to this client.
    pub fn downgrade(&self) -> WeakClient {
        WeakClient(Arc::downgrade(&self.inner))
    }

    /// A source of the server's certificate that does not keep the client alive.
    pub fn certificate_source(&self) -> CertificateSource {
        CertificateSource(Arc::downgrade(&self.inner))
    }

    /// `host:port`, for messages.
    pub fn endpoint(&self) -> &str {
        self.inner.endpoint.authority()
    }

    /// Whether requests cannot be read on the network: they use TLS, or stay on the local host.
    pub fn is_confidential(&self) -> bool {
        self.inner.endpoint.is_confidential()
    }

    /// Runs a call and reports its outcome to the observer: `ok`, or the `reason` of its error.
    pub async fn observed<T, E>(
        &self,
        operation: &'static str,
        reason: fn(&E) -> &'static str,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let began = Instant::now();
        let result = call.await;
        if let Some(observer) = &self.inner.settings.observer {
            let outcome = result.as_ref().map_or_else(reason, |_| "ok");
            observer.observed(self.endpoint(), operation, outcome, began.elapsed());
        }
        result
    }

    fn current(&self) -> Current {
        self.inner.current.lock().clone()
    }
}

/// A weak reference to a client.
#[derive(Clone)]
pub struct WeakClient(Weak<Inner>);

impl WeakClient {
    /// The client, while a strong reference to it exists.
    pub fn upgrade(&self) -> Option<Client> {
        self.0.upgrade().map(|inner| Client { inner })
    }
}

/// Gives access to the certificate of a client's server, as long as the client exists.
#[derive(Clone)]
pub struct CertificateSource(Weak<Inner>);

impl CertificateSource {
    /// Whether the client still exists.
    pub fn is_in_use(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// The certificate of the last handshake in which the server proved that it holds the key. `None` before the first
    /// such handshake, and once the client is dropped.
    pub fn certificate(&self) -> Option<Certificate> {
        self.0.upgrade()?.peer_certificate.last()
    }

    /// As [`Client::is_verified`]; `None` once the client is dropped.
    pub fn is_verified(&self) -> Option<bool> {
        self.0.upgrade().map(|inner| Client { inner }.is_verified())
    }
}

impl Current {
    /// If `settings` bring a transport, the trust settings are only stored: applying them is up to that transport.
    fn new(
        settings: &Settings,
        endpoint: &Endpoint,
        tls: TlsSettings,
        peer_certificate: &Arc<PeerCertificate>,
    ) -> Result<Self, Error> {
        let transport = match &settings.transport {
            Some(given) => Arc::clone(given),
            None => {
                Arc::new(Network::new(settings, endpoint, &tls, Arc::clone(peer_certificate))?) as Arc<dyn Transport>
            }
        };
        Ok(Self { tls, transport })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint()).finish_non_exhaustive()
    }
}
