//! One connection, from accept to close.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::{Peer, Server, routes, tls};
use crate::runtime::tasks::BoxError;

/// Time limit of a TLS handshake, counted from accept.
pub(super) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Time limit from the handshake to the end of the header of the first request.
const FIRST_REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// Maximum time from one request to the end of the header of the next request, as the idle time in the Go program.
const IDLE_LIMIT: Duration = Duration::from_secs(90);

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
const LIFE_GRACE: Duration = Duration::from_secs(20);

/// Serves one connection until it ends or exceeds a time limit. `_permit` counts the connection until then.
pub(super) async fn serve(server: Arc<Server>, tcp: TcpStream, address: SocketAddr, _permit: OwnedSemaphorePermit) {
    let stream = tokio::select! {
        outcome = tokio::time::timeout(HANDSHAKE_LIMIT, handshake(&server, tcp)) => outcome,
        () = server.stop.cancelled() => return,
    };
    let stream = match stream {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(peer = %address, "a TLS handshake failed: {error}"),
        Err(_) => return tracing::debug!(peer = %address, "a TLS handshake took too long"),
    };
    let session = stream.get_ref().1;
    // Uses the protocol negotiated by ALPN. Detection by the first bytes would also accept HTTP/2 if it is disabled.
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let certificates = session.peer_certificates().unwrap_or_default().to_vec();
    let peer = Peer { address, certificates, requests: Notify::new(), must_close: CancellationToken::new() };
    serve_requests(&server, stream, is_http2, Arc::new(peer)).await;
}

async fn handshake(server: &Server, tcp: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
    let local = tcp.local_addr()?.ip();
    let acceptor = TlsAcceptor::from(Arc::clone(&server.tls));
    let accept = acceptor.accept_with(tcp, |session| session.set_buffer_limit(Some(SEND_BUFFER)));
    tls::at_address(local, accept).await
}

async fn serve_requests<S>(server: &Arc<Server>, stream: S, is_http2: bool, peer: Arc<Peer>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = {
        let (server, peer) = (Arc::clone(server), Arc::clone(&peer));
        service_fn(move |request| routes::answer(Arc::clone(&server), Arc::clone(&peer), request))
    };
    let builder = builder(is_http2, server.streams);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let grace = tokio::select! {
        ended = connection.as_mut() => return log_end(&peer, ended),
        // Short, because an unauthenticated client that reads nothing could make the server buffer many answers.
        () = peer.must_close.cancelled() => GRACE,
        () = idle(&peer.requests) => GRACE,
        () = tokio::time::sleep(LIFE_LIMIT) => LIFE_GRACE,
        () = server.stop.cancelled() => GRACE,
    };
    connection.as_mut().graceful_shutdown();
    match tokio::time::timeout(grace, connection).await {
        Ok(ended) => log_end(&peer, ended),
        Err(_) => tracing::debug!(peer = %peer.address, "a connection was cut off"),
    }
}

/// Waits until the client has sent no request for too long. The answer to a request takes less time than the limit, so
/// this also ends a connection whose client does not read the answer.
async fn idle(requests: &Notify) {
    let mut limit = FIRST_REQUEST_LIMIT;
    while tokio::time::timeout(limit, requests.notified()).await.is_ok() {
        limit = IDLE_LIMIT;
    }
}

fn log_end(peer: &Peer, ended: Result<(), BoxError>) {
    if let Err(error) = ended {
        tracing::debug!(peer = %peer.address, "a connection broke: {error}");
    }
}

fn builder(is_http2: bool, streams: u32) -> Builder<TokioExecutor> {
    let builder = Builder::new(TokioExecutor::new());
    let mut builder = if is_http2 { builder.http2_only() } else { builder.http1_only() };
    // hyper's limit is off, because `idle` limits the time for a header, more strictly for the first request.
    builder.http1().header_read_timeout(None).max_buf_size(LARGEST_HEADER);
    builder
        .http2()
        .max_concurrent_streams(streams)
        .max_header_list_size(LARGEST_HTTP2_HEADER)
        .max_pending_accept_reset_streams(MAX_RESETS)
        .max_local_error_reset_streams(MAX_BAD_REQUESTS)
        .initial_connection_window_size(WINDOWS.0)
        .initial_stream_window_size(WINDOWS.1)
        .max_send_buf_size(SEND_BUFFER);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::admin::tests::{LARGE_PAGE, peer, server};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    const REQUEST: &[u8] = b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n";

    /// Opens an HTTP/1 connection without TLS.
    fn connect() -> (DuplexStream, JoinHandle<()>) {
        let (client, stream) = tokio::io::duplex(1024);
        let serving = async move { serve_requests(&server(), stream, false, Arc::new(peer())).await };
        (client, tokio::spawn(serving))
    }

    /// Sends a request and reads the answer. Returns `false` if the connection is closed.
    async fn is_answered(client: &mut DuplexStream) -> bool {
        let mut answer = Vec::new();
        let is_sent = client.write_all(REQUEST).await.is_ok();
        while is_sent && !answer.ends_with(b"404 page not found") {
            if client.read_buf(&mut answer).await.unwrap_or_default() == 0 {
                return false;
            }
        }
        is_sent
    }

    /// Returns the number of seconds until the server closes the connection.
    async fn seconds(serving: JoinHandle<()>) -> u64 {
        let start = Instant::now();
        serving.await.unwrap();
        start.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_is_cut_off() {
        let (_silent, serving) = connect();
        assert_eq!(seconds(serving).await, 10, "no request");

        let (mut slow, serving) = connect();
        slow.write_all(b"GET /other HTTP/1.1\r\n").await.unwrap();
        assert_eq!(seconds(serving).await, 12, "half a header, and the grace period");

        let (mut idle, serving) = connect();
        assert!(is_answered(&mut idle).await);
        assert_eq!(seconds(serving).await, 90, "no further request");

        let (mut slow, serving) = connect();
        assert!(is_answered(&mut slow).await);
        slow.write_all(b"GET /other HTTP/1.1\r\n").await.unwrap();
        assert_eq!(seconds(serving).await, 90, "half a header of a further request");

        let (mut deaf, serving) = connect();
        deaf.write_all(format!("GET {LARGE_PAGE} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
        assert_eq!(seconds(serving).await, 92, "an answer that is not read, and the grace period");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_after_its_life_however_busy_it_is() {
        const PAUSE: Duration = Duration::from_secs(60);
        let start = Instant::now();
        let (mut client, serving) = connect();
        while is_answered(&mut client).await {
            tokio::time::advance(PAUSE).await;
        }
        // A request at the very end may still be answered.
        let life = start.elapsed();
        assert!((LIFE_LIMIT..=LIFE_LIMIT + PAUSE).contains(&life), "{life:?}");
        serving.await.unwrap();
    }
}
