//! Connections, credentials and retries of requests, as tower layers for the kube client.
//!
//! Watches share one HTTP/2 connection if the API server supports it. Pings end a dropped connection within
//! [`SILENCE`]. Every other call uses HTTP/1.1 and has a time limit. Cancelling the call closes its connection; on a
//! shared connection, the next call would hang, too.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder, ConfigExt as _, DynBody};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use tower::retry::RetryLayer;
use tower::util::BoxService;
use tower::{BoxError, ServiceBuilder};

use super::credentials::Credentials;
use super::proxy::{self, BoxConnector};
use super::rotating::ClientCertificate;
use super::{metrics, verifier};
use crate::kubernetes::call;

/// Idle time after which a ping is sent (client-go: 30 s).
const PING_AFTER: Duration = Duration::from_secs(20);

/// Time limit of the answer to a ping, after which the connection ends (client-go: 15 s).
const PONG_WITHIN: Duration = Duration::from_secs(10);

/// Maximum life of a dead connection, below the 45 s of client-go.
pub(super) const SILENCE: Duration = PING_AFTER.saturating_add(PONG_WITHIN);

/// Interval of the kernel's TCP keepalive probes, for connections without pings.
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

pub(super) type Transport = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

type Wire = legacy::Client<TimeoutConnector<HttpsConnector<BoxConnector>>, Body>;

/// Returns a builder of clients with the current credentials of `config`.
pub(super) fn builder(config: Config) -> Result<ClientBuilder<Transport>, BoxError> {
    let mut certificate = ClientCertificate::read(&config)?;
    let server = Arc::new(Server {
        credentials: Credentials::of(&config.auth_info)?,
        connections: Mutex::new(ClientConnections::new(&config, certificate.current(&config))?),
        certificate: Mutex::new(certificate),
        url: config.cluster_url.to_string().trim_end_matches('/').into(),
        config: config.clone(),
    });
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .layer(config.extra_headers_layer()?)
        .service_fn(move |request: Request<Body>| Arc::clone(&server).send(request));
    Ok(ClientBuilder::new(BoxService::new(service), config.default_namespace))
}

/// Parses `tls-server-name`, the name in the server's certificate if it differs from the URL's name.
pub(super) fn server_name(text: &str) -> Result<ServerName<'static>, &'static str> {
    ServerName::try_from(text.to_owned()).map_err(|_| "tls-server-name: expected a host name or an IP address")
}

/// The connections with one client certificate, or without one.
#[derive(Clone)]
struct ClientConnections {
    /// The certificate, or a later one for which there could be no connections.
    identity: Option<Arc<CertifiedKey>>,
    watches: Wire,
    calls: Wire,
}

impl ClientConnections {
    fn new(config: &Config, identity: Option<Arc<CertifiedKey>>) -> Result<Self, BoxError> {
        let tls = verifier::client_config(config, identity.as_ref())?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(PING_AFTER));
        tcp.set_keepalive_interval(Some(KEEPALIVE_PAUSE));
        tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
        tcp.set_tcp_user_timeout(Some(SILENCE));
        let connector = match &config.proxy_url {
            Some(proxy) => proxy::connector(proxy, tcp, &tls)?,
            None => proxy::boxed(tcp),
        };
        let disabled = std::env::var_os("DISABLE_HTTP2");
        let wire = |is_for_watches| -> Result<Wire, BoxError> {
            let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http();
            if let Some(name) = &config.tls_server_name {
                builder = builder.with_server_name_resolver(FixedServerNameResolver::new(server_name(name)?));
            }
            let connector = match speaks_http2(is_for_watches, disabled.as_deref()) {
                true => builder.enable_all_versions().wrap_connector(connector.clone()),
                false => builder.enable_http1().wrap_connector(connector.clone()),
            };
            let mut connector = TimeoutConnector::new(connector);
            connector.set_connect_timeout(config.connect_timeout);
            connector.set_read_timeout(config.read_timeout);
            connector.set_write_timeout(config.write_timeout);
            connector.set_reset_reader_on_write(config.reset_reader_on_write);
            let mut client = legacy::Client::builder(TokioExecutor::new());
            client.timer(TokioTimer::new()).http2_keep_alive_interval(PING_AFTER);
            // Pings also without an open watch. Otherwise the next watch would be sent into a dead connection.
            client.http2_keep_alive_timeout(PONG_WITHIN).http2_keep_alive_while_idle(true);
            Ok(client.build(connector))
        };
        Ok(Self { watches: wire(true)?, calls: wire(false)?, identity })
    }
}

/// Returns true for the connections of watches, unless the variable `DISABLE_HTTP2` has a non-empty value, as in
/// client-go.
fn speaks_http2(is_for_watches: bool, disabled: Option<&OsStr>) -> bool {
    is_for_watches && disabled.is_none_or(OsStr::is_empty)
}

/// The error of a request, with the API server's URL.
#[derive(Debug, thiserror::Error)]
#[error("API server {server}")]
struct ServerError {
    server: Arc<str>,
    source: BoxError,
}

/// Sends requests to the API server with their credentials.
struct Server {
    config: Config,
    /// Address of the API server in messages.
    url: Arc<str>,
    credentials: Credentials,
    certificate: Mutex<ClientCertificate>,
    connections: Mutex<ClientConnections>,
}

impl Server {
    async fn send(self: Arc<Self>, request: Request<Body>) -> Result<Response<Box<DynBody>>, BoxError> {
        call::record_server(&self.url);
        let response = self.attempt(request).await.map_err(|error| self.named(error))?;
        Ok(response.map(|body| Box::new(body.map_err(move |error| self.named(error.into()))) as Box<DynBody>))
    }

    fn named(&self, source: BoxError) -> BoxError {
        ServerError { server: Arc::clone(&self.url), source }.into()
    }

    async fn attempt(&self, mut request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        let proof = self.credentials.proof().await?;
        if let Some(header) = &proof.header {
            request.headers_mut().insert(AUTHORIZATION, header.clone());
        }
        // A program never supplies a certificate if the kubeconfig has one.
        let identity = proof.identity.clone().or_else(|| self.certificate.lock().current(&self.config));
        let connections = self.connections(identity);
        let wire = if metrics::is_watch(&request) { connections.watches } else { connections.calls };
        let response = wire.request(request).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            self.credentials.refused(&proof);
        }
        Ok(response)
    }

    /// Returns the connections with this certificate. Connections with an earlier certificate end with their requests,
    /// but stay if there cannot be new ones, for example because the operating system's trust store cannot be read.
    fn connections(&self, identity: Option<Arc<CertifiedKey>>) -> ClientConnections {
        let mut connections = self.connections.lock();
        if connections.identity.as_ref().map(Arc::as_ptr) != identity.as_ref().map(Arc::as_ptr) {
            match ClientConnections::new(&self.config, identity.clone()) {
                Ok(new) => *connections = new,
                Err(error) => {
                    let server = &self.url;
                    tracing::warn!(%server, "no connection with the changed client certificate; the old one stays: {error}");
                    connections.identity = identity;
                }
            }
        }
        connections.clone()
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn http2_is_for_watches_unless_a_variable_turns_it_off() {
        for (is_for_watches, disabled, expected) in [
            (true, None, true),
            (true, Some(""), true),
            (true, Some("true"), false),
            (true, Some("0"), false),
            (false, None, false),
        ] {
            let is_spoken = speaks_http2(is_for_watches, disabled.map(OsStr::new));
            assert_eq!(is_spoken, expected, "{is_for_watches} {disabled:?}");
        }
    }

    #[tokio::test]
    async fn the_old_connections_stay_when_there_cannot_be_new_ones() {
        let golden = |name: &str| std::fs::read_to_string(format!("tests/golden/credentials/{name}")).unwrap();
        let mut config = Config::new("https://a.example".parse().unwrap());
        config.accept_invalid_certs = true;
        let mut server = Server {
            credentials: Credentials::of(&config.auth_info).unwrap(),
            connections: Mutex::new(ClientConnections::new(&config, None).unwrap()),
            certificate: Mutex::new(ClientCertificate::read(&config).unwrap()),
            url: "https://a.example".into(),
            config: config.clone(),
        };
        config.auth_info.client_certificate_data = Some(STANDARD.encode(golden("p256.crt")));
        config.auth_info.client_key_data = Some(STANDARD.encode(golden("p256.key")).into());
        let identity = ClientCertificate::read(&config).unwrap().current(&config);
        assert!(identity.is_some());
        server.config.tls_server_name = Some("not a name".to_owned());
        for _ in 0..2 {
            drop(server.connections(identity.clone()));
        }
        server.config.tls_server_name = None;
        drop(server.connections(None));
        assert!(server.connections.lock().identity.is_none());
    }
}
