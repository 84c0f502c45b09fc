//! A vendor-neutral HTTP(S) client for one endpoint, with TLS trust, a proxy, time limits, size limits, and one error
//! type.
//!
//! The [`Client`] enforces the limits of a [`Request`] and passes the request to a [`Transport`], which returns a
//! [`Response`]. The client uses HTTP/1.1 only, stores no cookies, follows no redirects, and takes proxies only from
//! its settings. Bodies and credentials are never logged and never part of an error.

mod authorization;
mod body;
mod call_counter;
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
pub use call_counter::CallCounter;
pub use certificate::CertificateStatus;
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

use crate::base::x509;
use certificate::PeerCertificate;
use transport::Network;

/// Observer of every call, for metrics. An observer must be fast, because it runs on the caller's task.
pub trait CallObserver: Send + Sync {
    /// Records a finished call. `endpoint` is `host:port`, `operation` is the vendor's name of the call, and `outcome`
    /// is `ok` or the `reason()` of the error.
    fn observed(&self, endpoint: &str, operation: &'static str, outcome: &'static str, duration: Duration);
}

/// Settings of a [`Client`].
#[derive(Clone)]
pub struct Settings {
    /// The server.
    pub endpoint: Endpoint,
    /// Trust in the server, and the client certificate of this process.
    pub tls: TlsSettings,
    /// The proxies of the environment; `None` for direct connections.
    pub proxy: Option<ProxySettings>,
    /// The `User-Agent` header of every request.
    pub user_agent: String,
    /// Time limit for name resolution, connecting and the TLS handshake together.
    pub connect_timeout: Duration,
    /// Observer of every call.
    pub observer: Option<Arc<dyn CallObserver>>,
    /// A transport that replaces the network, so that tests can run under a paused clock; `None` in production.
    pub transport: Option<Arc<dyn Transport>>,
}

impl Settings {
    /// Returns the default settings for a server with TLS: no proxy, 10 s to connect, no observer. An IPv6 `host` has
    /// no brackets.
    pub fn new(host: impl Into<String>, port: u16, tls: TlsSettings, user_agent: impl Into<String>) -> Self {
        Self {
            endpoint: Endpoint::https(&host.into(), port),
            tls,
            proxy: None,
            user_agent: user_agent.into(),
            connect_timeout: Duration::from_secs(10),
            observer: None,
            transport: None,
        }
    }
}

/// A client of one endpoint. Clones are cheap, and share the connections and the TLS settings.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    /// Initial settings. `current` has the TLS settings in use.
    settings: Settings,
    peer_certificate: Arc<PeerCertificate>,
    current: Mutex<Current>,
}

/// The state that [`Client::set_tls`] and [`Client::forget_connections`] replace. Never locked across an await.
#[derive(Clone)]
struct Current {
    tls: TlsSettings,
    transport: Arc<dyn Transport>,
}

impl Client {
    /// Builds the client without sending anything.
    ///
    /// # Errors
    /// [`Error::Configuration`] if the trust settings or the proxy cannot be used.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let peer_certificate = Arc::new(PeerCertificate::default());
        let current = Mutex::new(Current::new(&settings, settings.tls.clone(), &peer_certificate)?);
        Ok(Self { inner: Arc::new(Inner { settings, peer_certificate, current }) })
    }

    /// Builds a client of another endpoint, `http://` or `https://`, with the current authorities and the same proxies,
    /// observer, user agent and limits. The path and query of the URL are ignored.
    ///
    /// The new client always verifies certificates, even if this client does not. It inherits the thumbprints and the
    /// client certificate only if its host is the same. A later [`Client::set_tls`] on this client does not affect the
    /// new client.
    ///
    /// # Errors
    /// [`Error::Configuration`] if the URL, the trust settings or the proxy cannot be used. The error does not contain
    /// the URL.
    pub fn sibling(&self, url: &str) -> Result<Self, Error> {
        let refused =
            |message| Error::Configuration { endpoint: format!("a service beside {}", self.endpoint()), message };
        let endpoint = Endpoint::of_url(url).map_err(refused)?;
        let mut tls = TlsSettings { insecure: false, ..self.current().tls };
        if !endpoint.host().eq_ignore_ascii_case(self.inner.settings.endpoint.host()) {
            tls.thumbprints.clear();
            tls.identity = None;
        }
        Self::new(Settings { endpoint, tls, ..self.inner.settings.clone() })
    }

    /// Sends the request and reads the whole answer of any status.
    ///
    /// A repeatable request is sent a second time if its connection breaks before the response head is complete,
    /// because servers close idle pooled connections.
    ///
    /// # Errors
    /// Every variant of [`Error`] except `Status` and `TooManyValues`, because only callers examine the answer.
    pub async fn send(&self, request: Request) -> Result<Response, Error> {
        let timeout = request.timeout;
        let operation = request.operation;
        let limited = tokio::time::timeout(timeout, self.send_twice(request)).await;
        limited.unwrap_or_else(|_| Err(Error::Timeout(self.failed(operation), timeout)))
    }

    /// Returns an [`Error::Status`] for a response that does not follow the protocol.
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

    async fn send_once(&self, request: Request) -> Result<Response, Failure> {
        let (operation, limit) = (request.operation, request.max_bytes);
        let permit = request.permit.clone();
        if permit.as_ref().is_some_and(|permit| !permit.is_valid()) {
            return Err(Failure::Final(Error::NotPermitted(self.failed(operation))));
        }
        let ended = async {
            match &permit {
                Some(permit) => permit.ended().await,
                None => std::future::pending().await,
            }
        };
        let transport = self.current().transport;
        call_counter::record_call(self.endpoint());
        let response = tokio::select! {
            // Any poll of the exchange can send the request, for example once a connection is established, so the
            // permit is polled before it.
            biased;
            () = ended => return Err(Failure::Final(Error::PermitEnded(self.failed(operation)))),
            response = transport.exchange(&self.inner.settings.endpoint, request) => response?,
        };
        if response.body.len() > limit {
            return Err(Failure::Final(Error::TooLarge(self.failed(operation), limit)));
        }
        Ok(response)
    }

    /// Applies these TLS settings to new connections of this client and its clones. If they differ from the settings in
    /// use, idle connections are not reused. Calls in flight are not affected.
    ///
    /// # Errors
    /// [`Error::Configuration`] if the settings cannot be used. The previous settings then remain active.
    pub fn set_tls(&self, tls: TlsSettings) -> Result<(), Error> {
        if self.inner.current.lock().tls == tls {
            return Ok(());
        }
        let renewed = Current::new(&self.inner.settings, tls, &self.inner.peer_certificate)?;
        *self.inner.current.lock() = renewed;
        Ok(())
    }

    /// Returns the status of the server's certificate.
    pub fn certificate_status(&self) -> CertificateStatus {
        let certificate = self.peer_certificate();
        let expiry = certificate.and_then(|certificate| x509::expiry(&certificate));
        CertificateStatus { is_verified: self.is_verified(), expiry }
    }

    /// Stops reusing idle connections. Calls in flight are not affected. A server that authenticates the client once
    /// per connection may accept a rejected client certificate on a new connection.
    ///
    /// # Errors
    /// [`Error::Configuration`] if new connections cannot be prepared. The previous connections then remain in use.
    pub fn forget_connections(&self) -> Result<(), Error> {
        let Inner { settings, peer_certificate, current } = &*self.inner;
        let mut current = current.lock();
        *current = Current::new(settings, current.tls.clone(), peer_certificate)?;
        Ok(())
    }

    /// Whether new connections verify the server's certificate.
    pub fn is_verified(&self) -> bool {
        !self.inner.current.lock().tls.insecure
    }

    /// Returns a weak reference to this client.
    pub fn downgrade(&self) -> WeakClient {
        WeakClient(Arc::downgrade(&self.inner))
    }

    /// Returns the certificate (DER) of the last handshake in which the server proved that it has the private key;
    /// `None` if there is no such handshake.
    pub fn peer_certificate(&self) -> Option<Vec<u8>> {
        self.inner.peer_certificate.proved()
    }

    /// Returns `host:port`, for messages.
    pub fn endpoint(&self) -> &str {
        self.inner.settings.endpoint.authority()
    }

    /// Whether requests are unreadable on the network, because they use TLS or stay on the local host.
    pub fn is_confidential(&self) -> bool {
        self.inner.settings.endpoint.is_confidential()
    }

    /// Runs a call and passes its outcome to the observer. The outcome is `ok`, or the `reason` of the error.
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
    /// Returns the client while a strong reference to it exists.
    pub fn upgrade(&self) -> Option<Client> {
        self.0.upgrade().map(|inner| Client { inner })
    }
}

impl Current {
    /// Builds the transport. A transport given in `settings` is used unchanged.
    fn new(settings: &Settings, tls: TlsSettings, peer_certificate: &Arc<PeerCertificate>) -> Result<Self, Error> {
        let transport = match &settings.transport {
            Some(given) => Arc::clone(given),
            None => Arc::new(Network::new(settings, &tls, Arc::clone(peer_certificate))?) as Arc<dyn Transport>,
        };
        Ok(Self { tls, transport })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint()).finish_non_exhaustive()
    }
}
