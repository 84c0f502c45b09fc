//! The end that answers requests. Each connection has one request. Number, size and time are limited.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::frame::{self, FrameError, Reply};
use super::{PeerCheck, name, own_peer_check, own_prefix};
use crate::base::error_chain::chain;
use crate::runtime::accept_retry::AcceptRetry;
use crate::runtime::tasks::{BoxError, PanicError, contain};

/// Maximum number of connections. A client on a further connection gets the reply that the process is busy.
pub(super) const MAX_CONNECTIONS: usize = 8;

/// Number of random names that are tried before the socket is given up.
const BIND_ATTEMPTS: usize = 4;

/// Time limit of a request, from accept to its last byte.
pub(super) const REQUEST_LIMIT: Duration = Duration::from_secs(5);

/// Time limit for a client to take the reply.
pub(super) const REPLY_LIMIT: Duration = Duration::from_secs(10);

/// Maximum lifetime of a connection. The handler has shorter limits of its own.
pub(super) const CONNECTION_LIMIT: Duration = Duration::from_secs(600);

/// Answers requests. Many requests may run at the same time, each in its own task.
#[async_trait::async_trait]
pub trait RequestHandler: Send + Sync + 'static {
    /// Returns the answer to a request of at most [`frame::MAX_REQUEST`] bytes. The answer must have at most
    /// [`frame::MAX_ANSWER`] bytes. The call is dropped when the client closes the connection, when the server stops,
    /// and after 600 s. Must not block.
    async fn handle(&self, request: Vec<u8>) -> Vec<u8>;
}

/// A socket that waits for connections.
#[derive(Debug)]
pub struct SocketListener {
    listener: UnixListener,
    name: String,
}

impl SocketListener {
    /// Returns the abstract name, without the leading NUL byte.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Listens on a new name of this program. Must be called in a tokio runtime. `program` consists of letters, digits and
/// hyphens.
///
/// # Errors
///
/// If the PID namespace is unknown, or none of several random names can be bound. The process can work without the
/// socket.
pub fn bind(program: &str) -> io::Result<SocketListener> {
    let prefix = own_prefix(program)?;
    let names = std::iter::repeat_with(|| name::full_name(&prefix, Uuid::new_v4().as_u128()));
    bind_first(names.take(BIND_ATTEMPTS))
}

/// Listens on the first name that can be bound. Fails with the error of the last name.
pub(super) fn bind_first(names: impl Iterator<Item = String>) -> io::Result<SocketListener> {
    let mut last_error = io::Error::from(io::ErrorKind::InvalidInput);
    for name in names {
        match UnixListener::bind(format!("\0{name}")) {
            Ok(listener) => return Ok(SocketListener { listener, name }),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

/// Answers requests until `stop`, which also ends the open connections. Errors and panics of single connections do not
/// end the server.
///
/// # Errors
///
/// None: the result has the type of a task.
pub async fn serve(
    listener: SocketListener,
    handler: Arc<dyn RequestHandler>,
    stop: CancellationToken,
) -> Result<(), BoxError> {
    SocketServer::new(handler, own_peer_check()).run(listener, stop).await;
    Ok(())
}

pub(super) struct SocketServer {
    handler: Arc<dyn RequestHandler>,
    check_peer: Box<PeerCheck>,
    /// Each connection holds a permit.
    connections: Arc<Semaphore>,
}

/// Reason why a connection ended without a complete reply.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error("the request was not complete after {} s", REQUEST_LIMIT.as_secs())]
    SlowRequest,
    #[error("the request cannot be read")]
    Request(#[source] FrameError),
    #[error("the client closed the connection before the reply, or sent more than one request")]
    ClientClosed,
    #[error("the client did not take the reply within {} s", REPLY_LIMIT.as_secs())]
    SlowReader,
    #[error("the reply cannot be sent")]
    Reply(#[source] io::Error),
    #[error("the connection was open for {} s", CONNECTION_LIMIT.as_secs())]
    TooOld,
}

impl SocketServer {
    pub(super) fn new(handler: Arc<dyn RequestHandler>, check_peer: Box<PeerCheck>) -> Self {
        Self { handler, check_peer, connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)) }
    }

    pub(super) async fn run(&self, listener: SocketListener, stop: CancellationToken) {
        let mut connections = FuturesUnordered::new();
        let mut retry = AcceptRetry::new("the local socket");
        loop {
            // Includes the pause after a failed accept, which must delay neither the shutdown nor existing connections.
            let accept = async {
                retry.wait().await;
                listener.listener.accept().await
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some(ended) = connections.next(), if !connections.is_empty() => log_panic(ended),
                accepted = accept => match accepted {
                    Ok((stream, _)) => {
                        retry.record_success();
                        if let Some((stream, permit)) = self.admit(stream) {
                            let handler = Arc::clone(&self.handler);
                            connections.push(contain(serve_connection(handler, stream, permit)));
                        }
                    }
                    Err(error) => retry.record_failure(&error),
                },
            }
        }
    }

    /// Returns the connection with its permit, or closes it. A process that is not trusted takes no permit and gets no
    /// byte.
    fn admit(&self, stream: UnixStream) -> Option<(UnixStream, OwnedSemaphorePermit)> {
        if let Err(refusal) = (self.check_peer)(&stream) {
            tracing::debug!("a connection to the local socket was closed: {refusal}");
            return None;
        }
        match Arc::clone(&self.connections).try_acquire_owned() {
            Ok(permit) => Some((stream, permit)),
            Err(_) => {
                if let Err(error) = refuse_as_busy(stream) {
                    tracing::debug!("a connection to the local socket was closed: {error}");
                }
                None
            }
        }
    }
}

/// Sends that the process is busy, without waiting. The few bytes fit into the buffer of a new connection.
fn refuse_as_busy(stream: UnixStream) -> io::Result<()> {
    stream.into_std()?.write_all(&frame::BUSY_REPLY)
}

/// Serves one connection until it ends or exceeds a time limit. `_permit` counts the connection until then.
pub(super) async fn serve_connection(
    handler: Arc<dyn RequestHandler>,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    _permit: OwnedSemaphorePermit,
) {
    let outcome = timeout(CONNECTION_LIMIT, exchange(handler, &mut stream)).await;
    if let Err(error) = outcome.unwrap_or(Err(ExchangeError::TooOld)) {
        tracing::debug!("a local request was not answered: {}", chain(&error));
    }
}

/// Reads the request, lets the handler answer it, and sends the reply.
pub(super) async fn exchange(
    handler: Arc<dyn RequestHandler>,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<(), ExchangeError> {
    let request = timeout(REQUEST_LIMIT, frame::read_request(stream)).await;
    let request = request.map_err(|_| ExchangeError::SlowRequest)?.map_err(ExchangeError::Request)?;
    let outcome = tokio::select! {
        // A task of its own, so that a panic becomes a reply.
        outcome = contain(async move { handler.handle(request).await }) => outcome,
        () = client_end(stream) => return Err(ExchangeError::ClientClosed),
    };
    let reply = match outcome {
        Ok(answer) => Reply::Answer(answer),
        Err(panicked) => {
            tracing::error!("a local request failed: {panicked}");
            Reply::Failed
        }
    };
    let sent = timeout(REPLY_LIMIT, frame::write_reply(stream, &reply)).await;
    sent.map_err(|_| ExchangeError::SlowReader)?.map_err(ExchangeError::Reply)
}

/// Waits until the client closes the connection or sends anything. It may do neither before it has the reply.
async fn client_end(stream: &mut (impl AsyncRead + Unpin)) {
    let mut byte = [0];
    // An error also means that the client is gone.
    let _ = stream.read(&mut byte).await;
}

fn log_panic(ended: Result<(), PanicError>) {
    if let Err(panicked) = ended {
        tracing::error!("a connection to the local socket was dropped: {panicked}");
    }
}
