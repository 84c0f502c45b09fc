//! The HTTPS server for probes, metrics and other pages. Except on open paths, requests pass the authenticator and the
//! authorizer. Clients connect without authentication, so connections, requests, headers, bodies and times are limited.
//! Some connections are reserved for clients on this host, so that a full port does not fail the kubelet's probes.

pub mod access;
mod answer;
mod certificate;
mod connection;
mod gate;
mod health;
mod routes;
mod settings;
mod tls;

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::accept_retry::AcceptRetry;
use super::logging::Verbosity;
use super::metrics::Metrics;
use super::tasks::{BoxError, PanicError, contain};
use access::{Authenticator, Authorizer};
pub use certificate::{
    CertificateError, CertificateUpdater, Certificates, SERVED_CERTIFICATE, SERVED_KEY, given_certificate,
};
pub use health::{Checks, Health};
pub use settings::{CertificateSource, NamedPair, PairFiles, Settings, TlsRules};
pub use tls::server_config;

/// Maximum number of connections. The server closes further connections at once.
const MAX_CONNECTIONS: usize = 256;

/// Number of connections that only clients on this host can use.
const RESERVED_CONNECTIONS: usize = 16;

/// Minimum time between two log lines about refused connections.
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of connections that wait in the kernel until this process accepts them.
const BACKLOG: u32 = 1024;

/// File that contains `0` if an IPv6 socket also accepts IPv4 connections by default.
const ONLY_V6: &str = "/proc/sys/net/ipv6/bindv6only";

/// The content and the access control of the server.
pub struct Admin {
    /// The checks of the probes.
    pub checks: Checks,
    /// The content of `/metrics`.
    pub metrics: Metrics,
    /// Further pages.
    pub pages: Vec<Page>,
    /// Enables `/debug/flags/v`. If `None`, no path below `/debug` is served.
    pub verbosity: Option<Verbosity>,
    /// The authenticator of requests.
    pub authenticator: Arc<dyn Authenticator>,
    /// The authorizer of requests.
    pub authorizer: Arc<dyn Authorizer>,
}

/// A page with a fixed path. Each request generates the content.
#[derive(Clone)]
pub struct Page {
    /// The path, such as `/configz`.
    pub path: &'static str,
    /// The media type.
    pub content_type: &'static str,
    /// Returns the content, which must not contain a secret. Must not block.
    pub write: Arc<dyn Fn() -> String + Send + Sync>,
}

struct Server {
    admin: Arc<Admin>,
    tls: Arc<ServerConfig>,
    streams: u32,
    /// Each connection holds a permit.
    connections: Arc<Semaphore>,
    /// Each request that waits for a review holds a permit.
    pending_reviews: Semaphore,
    stop: CancellationToken,
}

struct Peer {
    address: SocketAddr,
    /// The client's certificate chain, leaf first.
    certificates: Vec<CertificateDer<'static>>,
    /// Notified at the start of each request.
    requests: Notify,
    /// Cancelled to close the connection after the requests in progress are answered, or after a grace period.
    must_close: CancellationToken,
}

/// Binds the address without accepting connections yet. If the host has IPv4 and IPv6, `0.0.0.0` and `::` both mean all
/// addresses of both families, as in Go. `SO_REUSEADDR` is always set, as in Go and tokio, so that a restart does not
/// wait for closed connections in TIME_WAIT. `shares_port` sets `SO_REUSEPORT`.
pub fn bind(address: SocketAddr, shares_port: bool) -> io::Result<TcpSocket> {
    let takes_both = || std::fs::read_to_string(ONLY_V6).is_ok_and(|text| text.trim() == "0");
    if address.ip().is_unspecified() && address.is_ipv4() && takes_both() {
        let all = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port());
        match bound(all, shares_port) {
            // The host has no IPv6. 97 is `EAFNOSUPPORT`, which has no stable `ErrorKind`.
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(97) => {}
            outcome => return outcome,
        }
    }
    bound(address, shares_port)
}

fn bound(address: SocketAddr, shares_port: bool) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    if shares_port {
        socket.set_reuseport(true)?;
    }
    socket.bind(address)?;
    Ok(socket)
}

/// Starts to accept connections. Fails if another process has started to listen on the address.
pub fn listen(socket: TcpSocket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)
}

/// Serves on `listener` until `stop`. Requests in progress get up to 2 s more. `streams` is the maximum number of
/// concurrent requests of one HTTP/2 connection.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    admin: Arc<Admin>,
    streams: u32,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    accept_connections(listener, Arc::new(Server::new(tls, admin, streams, stop))).await;
    Ok(())
}

impl Server {
    fn new(tls: Arc<ServerConfig>, admin: Arc<Admin>, streams: u32, stop: CancellationToken) -> Self {
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let pending_reviews = Semaphore::new(gate::MAX_PENDING_REVIEWS);
        Self { admin, tls, streams, connections, pending_reviews, stop }
    }
}

async fn accept_connections(listener: TcpListener, server: Arc<Server>) {
    let mut connections = FuturesUnordered::new();
    let mut retry = AcceptRetry::new("the secure port");
    let mut refusal_logged_at: Option<Instant> = None;
    loop {
        // Includes the pause after a failed accept, which must delay neither the shutdown nor existing connections.
        let accept = async {
            retry.wait().await;
            listener.accept().await
        };
        tokio::select! {
            () = server.stop.cancelled() => break,
            accepted = accept => match accepted {
                Ok((tcp, address)) => {
                    retry.record_success();
                    let local = tcp.local_addr();
                    let is_on_this_host = local.is_ok_and(|local| is_on_this_host(address.ip(), local.ip()));
                    if let Some(permit) = connection_permit(&server.connections, is_on_this_host) {
                        connections.push(contain(connection::serve(Arc::clone(&server), tcp, address, permit)));
                    } else if refusal_logged_at.is_none_or(|logged| logged.elapsed() >= REFUSAL_LOG_INTERVAL) {
                        refusal_logged_at = Some(Instant::now());
                        tracing::warn!(
                            "the secure port has no free connection, so a connection from {} was closed; logged at \
                             most once a minute",
                            address.ip()
                        );
                    }
                }
                Err(error) => retry.record_failure(&error),
            },
            Some(ended) = connections.next(), if !connections.is_empty() => log_panic(ended),
        }
    }
    drop(listener);
    let rest = async {
        while let Some(ended) = connections.next().await {
            log_panic(ended);
        }
    };
    // Connections end by themselves within `GRACE`, except connections that were already being closed because of their
    // age.
    if tokio::time::timeout(connection::GRACE * 2, rest).await.is_err() {
        tracing::debug!("some connections were cut off");
    }
}

/// Whether a client is on this host, as the kubelet is if the pod uses the host network: it connects from the address
/// that it connects to, or from a loopback address. A client on another host can use neither. A client on this host
/// that connects to a secondary address of an interface is not recognized, because it comes from the primary one.
fn is_on_this_host(peer: IpAddr, local: IpAddr) -> bool {
    let peer = peer.to_canonical();
    peer.is_loopback() || peer == local.to_canonical()
}

/// Returns the permit of a new connection, or `None` if no connection is free for this client.
fn connection_permit(connections: &Arc<Semaphore>, is_on_this_host: bool) -> Option<OwnedSemaphorePermit> {
    let reserved = if is_on_this_host { 0 } else { RESERVED_CONNECTIONS };
    if connections.available_permits() <= reserved {
        return None;
    }
    Arc::clone(connections).try_acquire_owned().ok()
}

fn log_panic(ended: Result<(), PanicError>) {
    if let Err(panicked) = ended {
        tracing::error!("a connection to the secure port was dropped: {panicked}");
    }
}

#[cfg(test)]
mod tests;
