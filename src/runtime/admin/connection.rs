//! One connection, from accept to close.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::activity::{Activity, MonitoredStream};
use super::connections::{ConnectionSlot, Phase};
use super::{Peer, Server, routes, tls};

/// Time limit of a TLS handshake, counted from accept.
pub(super) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Interval of keep-alive pings on HTTP/2 connections.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Maximum lifetime of a connection. Clients reconnect.
const LIFE_LIMIT: Duration = Duration::from_secs(900);

/// Grace period for requests in progress when a connection is closed.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// Maximum size of a request header, in bytes.
pub(super) const LARGEST_HEADER: usize = 32 * 1024;

/// Maximum size of an HTTP/2 request header, in bytes. Smaller, because one connection may have many requests.
const LARGEST_HTTP2_HEADER: u32 = 16 * 1024;

/// Flow control windows in bytes: of an HTTP/2 connection (the smallest window that HTTP/2 allows), and of a request.
const WINDOWS: (u32, u32) = (65_535, 8 * 1024);

/// Maximum number of bytes that wait to be sent, for each HTTP/2 request, and for each TLS connection.
const SEND_BUFFER: usize = 32 * 1024;

/// Maximum number of cancelled HTTP/2 requests that are not handled yet. At this limit the connection is closed.
const MAX_RESETS: usize = 20;

/// Maximum number of invalid requests of an HTTP/2 client. At this limit the connection is closed.
const MAX_BAD_REQUESTS: usize = 50;

/// Grace period for requests in progress when a connection is closed because of its age.
const LAST_ANSWERS: Duration = Duration::from_secs(20);

/// Serves one connection until it ends, is too slow or must make room for another connection.
pub(super) async fn serve(server: Arc<Server>, tcp: TcpStream, address: SocketAddr, slot: ConnectionSlot) {
    let handshake = tokio::time::timeout(HANDSHAKE_LIMIT, secured(&server, tcp, &slot));
    let stream = tokio::select! {
        outcome = handshake => outcome,
        () = slot.closed.cancelled() => return,
        () = server.stop.cancelled() => return,
    };
    let stream = match stream {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(peer = %address, "a TLS handshake failed: {error}"),
        Err(_) => return tracing::debug!(peer = %address, "a TLS handshake took too long"),
    };
    let session = stream.get_ref().1;
    // Uses the protocol negotiated by ALPN. The detection by the first bytes would wait without a time limit.
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let certificates = session.peer_certificates().unwrap_or_default().to_vec();
    let activity = Activity::new(slot, !is_http2);
    let peer = Arc::new(Peer { address, certificates, is_full: CancellationToken::new(), activity });
    spoken(&server, MonitoredStream::new(stream, peer.activity.clone()), is_http2, peer).await;
}

async fn secured(server: &Server, tcp: TcpStream, slot: &ConnectionSlot) -> std::io::Result<TlsStream<TcpStream>> {
    // Waits for the first bytes before allocating TLS state. Until then, a connection costs only its socket.
    tcp.readable().await?;
    slot.reached(Phase::Handshake);
    let local = tcp.local_addr()?.ip();
    let acceptor = TlsAcceptor::from(Arc::clone(&server.tls));
    let accept = acceptor.accept_with(tcp, |session| session.set_buffer_limit(Some(SEND_BUFFER)));
    tls::at_address(local, accept).await
}

async fn spoken(server: &Arc<Server>, stream: MonitoredStream<TlsStream<TcpStream>>, is_http2: bool, peer: Arc<Peer>) {
    let builder = builder(is_http2, server.streams);
    let (serving, asked) = (Arc::clone(server), Arc::clone(&peer));
    let service = service_fn(move |request| routes::answer(Arc::clone(&serving), Arc::clone(&asked), request));
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let told_to_end = async {
        tokio::select! {
            // Short, because an unauthenticated client that reads nothing could make the server buffer many answers.
            () = peer.is_full.cancelled() => GRACE,
            () = tokio::time::sleep(LIFE_LIMIT) => LAST_ANSWERS,
            () = peer.activity.waited_too_long() => GRACE,
            () = server.stop.cancelled() => GRACE,
        }
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = peer.activity.closed() => Ok(()),
        grace = told_to_end => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = peer.activity.closed() => Ok(()),
                () = tokio::time::sleep(grace) => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(peer = %peer.address, "a connection broke: {error}");
    }
}

fn builder(is_http2: bool, streams: u32) -> Builder<TokioExecutor> {
    let builder = Builder::new(TokioExecutor::new());
    let mut builder = if is_http2 { builder.http2_only() } else { builder.http1_only() };
    // hyper's limit is off, because `activity` limits the time for a header, separately from the idle time.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(LARGEST_HEADER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .max_concurrent_streams(streams)
        .max_header_list_size(LARGEST_HTTP2_HEADER)
        .max_pending_accept_reset_streams(MAX_RESETS)
        .max_local_error_reset_streams(MAX_BAD_REQUESTS)
        .initial_connection_window_size(WINDOWS.0)
        .initial_stream_window_size(WINDOWS.1)
        .max_send_buf_size(SEND_BUFFER);
    builder
}
