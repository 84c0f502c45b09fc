//! The HTTPS server for probes and metrics. Probes are open, everything else asks for a valid bearer token.

pub mod access;
mod certificate;
mod health;
mod page;
mod routes;
mod settings;
mod slis;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::logging::Verbosity;
use super::metrics::Metrics;
use super::tasks::BoxError;
use access::{Authenticator, Authorizer};
pub use certificate::{CertificateError, given_certificate, self_made_certificate};
pub use health::{Checks, Health};
pub use page::Page;
pub use settings::{CertificateSource, NamedPair, PairFiles, Settings, TlsRules};

/// Connections at once; further ones wait to be accepted.
const MOST_CONNECTIONS: usize = 100;

/// How long a TLS handshake may take.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// How long the header of a request may take, and how long a connection may idle between two.
const HEADER_LIMIT: Duration = Duration::from_secs(32);

/// How often an HTTP/2 connection is asked whether it is alive.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// How long one connection may live; clients connect anew.
const CONNECTION_LIMIT: Duration = Duration::from_secs(900);

/// How long the answers under way may take once the server is told to stop.
const GRACE: Duration = Duration::from_secs(2);

/// Header sizes, in bytes.
const MOST_HEADER: usize = 64 * 1024;

/// After a failure to accept, which is one of the machine (no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// What the server serves, and to whom.
pub struct Admin {
    /// What the probes ask.
    pub checks: Checks,
    /// `/metrics`.
    pub metrics: Metrics,
    /// Further pages.
    pub pages: Vec<Page>,
    /// `/debug/flags/v`; not served when absent.
    pub verbosity: Option<Verbosity>,
    /// Says who asks.
    pub authenticator: Arc<dyn Authenticator>,
    /// Says who may see what.
    pub authorizer: Arc<dyn Authorizer>,
}

/// Serves on `listener` until `stop`, then lets answers under way finish for two seconds.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    admin: Arc<Admin>,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    let acceptor = TlsAcceptor::from(tls);
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                Ok((tcp, _)) => connections.push(connection(tcp, acceptor.clone(), admin.clone(), stop.clone())),
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(()) = connections.next(), if !connections.is_empty() => {}
        }
    }
    drop(listener);
    let rest = async { while connections.next().await.is_some() {} };
    if tokio::time::timeout(GRACE, rest).await.is_err() {
        tracing::debug!("some connections were cut off");
    }
    Ok(())
}

async fn connection(tcp: TcpStream, acceptor: TlsAcceptor, admin: Arc<Admin>, stop: CancellationToken) {
    let tls = match tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(tcp)).await {
        Ok(Ok(tls)) => tls,
        Ok(Err(error)) => return tracing::debug!("a TLS handshake failed: {error}"),
        Err(_) => return tracing::debug!("a TLS handshake took too long"),
    };
    // By the agreed protocol and not by the first bytes: waiting for those would have no time limit.
    let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    let builder = Builder::new(TokioExecutor::new());
    let mut builder = if is_http2 { builder.http2_only() } else { builder.http1_only() };
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_LIMIT).max_buf_size(MOST_HEADER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .max_concurrent_streams(16)
        .max_header_list_size(MOST_HEADER.try_into().unwrap_or(u32::MAX));
    let service = service_fn(move |request| routes::answer(admin.clone(), request));
    let connection = builder.serve_connection(TokioIo::new(tls), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = async { tokio::select! { () = stop.cancelled() => {}, () = tokio::time::sleep(CONNECTION_LIMIT) => {} } } => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(GRACE, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection broke: {error}");
    }
}

#[cfg(test)]
mod tests;
