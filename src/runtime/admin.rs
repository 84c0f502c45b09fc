//! The HTTPS server for probes, metrics and other pages. This process alone answers open paths; for all others it asks
//! the authenticator and the authorizer.
//!
//! Clients need not be authenticated to connect, so connections, requests, headers, bodies and times are bounded. If
//! there are too many connections, one of the client with the most is closed.

pub mod access;
mod activity;
mod answer;
mod certificate;
mod connection;
mod connections;
mod gate;
mod health;
mod routes;
mod settings;
mod tls;

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::logging::Verbosity;
use super::metrics::Metrics;
use super::tasks::{BoxError, PanicError, contain};
use access::{Authenticator, Authorizer};
use activity::Activity;
pub use certificate::{
    CertificateError, CertificateUpdater, Certificates, KeyKind, SERVED_CERTIFICATE, SERVED_KEY, given_certificate,
};
use connections::Connections;
use gate::ReviewLimiter;
pub use health::{Checks, Health};
pub use settings::{CertificateSource, NamedPair, PairFiles, Settings, TlsRules};
pub use tls::server_config;

/// Most connections at once; for each further one, another connection is closed.
const MAX_CONNECTIONS: usize = 256;

/// Most connections that are being closed but have not ended; at this number the server stops accepting until one ends.
const MAX_ENDING: usize = 64;

/// Pause after a failed accept: its cause, such as no free file descriptors, takes time to go away.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Most connections that the kernel has accepted and that wait until this process accepts them.
const BACKLOG: u32 = 1024;

/// The file that holds `0` if a socket for IPv6 also accepts IPv4 by default.
const ONLY_V6: &str = "/proc/sys/net/ipv6/bindv6only";

/// The content of the server, and its access control.
pub struct Admin {
    /// The checks behind the probes.
    pub checks: Checks,
    /// `/metrics`.
    pub metrics: Metrics,
    /// Further pages.
    pub pages: Vec<Page>,
    /// Enables `/debug/flags/v`; without it no path below `/debug` is served.
    pub verbosity: Option<Verbosity>,
    /// Authenticates requests.
    pub authenticator: Arc<dyn Authenticator>,
    /// Authorizes requests.
    pub authorizer: Arc<dyn Authorizer>,
}

/// A page with a fixed path; its content is written at each request.
#[derive(Clone)]
pub struct Page {
    /// Its path, such as `/configz`.
    pub path: &'static str,
    /// Its media type.
    pub content_type: &'static str,
    /// Returns the content, which must hold no secret. Must not block.
    pub write: Arc<dyn Fn() -> String + Send + Sync>,
}

struct Server {
    admin: Arc<Admin>,
    tls: Arc<ServerConfig>,
    streams: u32,
    review_limiter: ReviewLimiter,
    connection_permits: Arc<Semaphore>,
    stop: CancellationToken,
}

/// The properties of a connection that the handling of its requests needs.
struct Peer {
    address: SocketAddr,
    /// The client's certificate chain, leaf first.
    certificates: Vec<CertificateDer<'static>>,
    /// Closes the connection once the requests in progress are answered, or after a grace period.
    is_full: CancellationToken,
    activity: Activity,
}

/// Binds the address, without accepting connections yet. `0.0.0.0` and `::` both mean all addresses of both families,
/// as in Go, if the host has both. `SO_REUSEADDR` is always set, as by Go and by tokio: a restart must not wait for
/// closed connections in TIME_WAIT. `shares_port` is `SO_REUSEPORT`.
///
/// # Errors
/// The operating system's: the port is taken, or the address does not belong to this host.
pub fn bind(address: SocketAddr, shares_port: bool) -> io::Result<TcpSocket> {
    let takes_both = || std::fs::read_to_string(ONLY_V6).is_ok_and(|text| text.trim() == "0");
    if address.ip().is_unspecified() && address.is_ipv4() && takes_both() {
        let all = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), address.port());
        match bound(all, shares_port) {
            // The host has no IPv6. 97 is EAFNOSUPPORT, which has no stable `ErrorKind`.
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

/// Starts to accept connections.
///
/// # Errors
/// The operating system's: another process started to listen there first.
pub fn listen(socket: TcpSocket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)
}

/// Serves on `listener` until `stop`, then lets requests in progress finish for two seconds. `streams` is the maximum
/// of concurrent requests of one HTTP/2 connection.
pub async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    admin: Arc<Admin>,
    streams: u32,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    let asked = ReviewLimiter::default();
    let kept = Arc::new(Semaphore::new(answer::MAX_ANSWERS));
    let server =
        Arc::new(Server { admin, tls, streams, review_limiter: asked, connection_permits: kept, stop: stop.clone() });
    let slots = Connections::new(MAX_CONNECTIONS);
    let mut connections = FuturesUnordered::new();
    let (mut is_failing, mut accepts_from) = (false, Instant::now());
    loop {
        // Includes the pause after a failed accept, so that it delays neither the shutdown nor existing connections.
        let accept = async {
            tokio::time::sleep_until(accepts_from).await;
            listener.accept().await
        };
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept, if connections.len() < MAX_CONNECTIONS + MAX_ENDING => match accepted {
                Ok((tcp, address)) => {
                    if std::mem::take(&mut is_failing) {
                        tracing::info!("connections are accepted again");
                    }
                    let slot = slots.admit(address.ip());
                    connections.push(contain(connection::serve(Arc::clone(&server), tcp, address, slot)));
                }
                Err(error) => {
                    match std::mem::replace(&mut is_failing, true) {
                        false => tracing::warn!("cannot accept a connection: {error}; told once until it works again"),
                        true => tracing::debug!("cannot accept a connection: {error}"),
                    }
                    accepts_from = Instant::now() + ACCEPT_PAUSE;
                }
            },
            Some(ended) = connections.next(), if !connections.is_empty() => told(ended),
        }
    }
    drop(listener);
    let rest = async {
        while let Some(ended) = connections.next().await {
            told(ended);
        }
    };
    // Each connection ends by itself after `GRACE`, so this time limit should never be reached.
    if tokio::time::timeout(connection::GRACE * 2, rest).await.is_err() {
        tracing::debug!("some connections were cut off");
    }
    Ok(())
}

fn told(ended: Result<(), PanicError>) {
    if let Err(panicked) = ended {
        tracing::error!("a connection to the secure port was dropped: {panicked}");
    }
}

#[cfg(test)]
mod tests;
