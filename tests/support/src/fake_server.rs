//! An HTTPS server for the fakes of this process, with a fixed port, changeable certificates, and connections that a
//! test can close.
//!
//! It is independent of the product: a [`Handler`] makes the answers.

pub(crate) mod barriers;
pub(crate) mod http;
pub(crate) mod identity;
pub(crate) mod place;
pub(crate) mod rules;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use http::{Reply, Request};
use place::Place;

/// The handler that answers requests.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Answers a request. It runs to completion, even if the client is gone.
    fn answer(self: Arc<Self>, request: Request) -> impl Future<Output = Reply> + Send;
}

struct Shared<H> {
    handler: Arc<H>,
    acceptor: Mutex<TlsAcceptor>,
    /// Signals that every connection must be closed.
    severed: watch::Sender<()>,
}

/// A server on a port of 127.0.0.1. It ends with the test's runtime, or when it is dropped.
pub(crate) struct Server<H: Handler> {
    shared: Arc<Shared<H>>,
    place: Place,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl<H: Handler> Server<H> {
    /// Listens on a free port.
    pub(crate) fn start(handler: Arc<H>, acceptor: TlsAcceptor) -> Self {
        let shared = Arc::new(Shared { handler, acceptor: Mutex::new(acceptor), severed: watch::Sender::new(()) });
        let place = Place::take();
        let accepting = Mutex::new(Some(accept(&shared, place.listen())));
        Self { shared, place, accepting }
    }

    /// Returns the port, which never changes.
    pub(crate) fn port(&self) -> u16 {
        self.place.port()
    }

    /// Closes every connection. Calls continue, and their answers are lost.
    pub(crate) fn sever(&self) {
        self.shared.severed.send_replace(());
    }

    /// Closes the port and every connection.
    pub(crate) async fn stop_listening(&self) {
        let accepting = self.accepting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(accepting) = accepting {
            accepting.abort();
            drop(accepting.await);
        }
        self.sever();
    }

    /// Listens again on the same port.
    pub(crate) fn resume_listening(&self) {
        let accepting = accept(&self.shared, self.place.listen());
        *self.accepting.lock().unwrap_or_else(PoisonError::into_inner) = Some(accepting);
    }

    /// Returns the acceptor with the certificate for new connections.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.shared.acceptor.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Presents another certificate to new connections, and closes the existing ones.
    pub(crate) fn use_acceptor(&self, acceptor: TlsAcceptor) {
        *self.shared.acceptor.lock().unwrap_or_else(PoisonError::into_inner) = acceptor;
        self.sever();
    }
}

impl<H: Handler> Drop for Server<H> {
    fn drop(&mut self) {
        if let Some(accepting) = self.accepting.lock().unwrap_or_else(PoisonError::into_inner).take() {
            accepting.abort();
        }
        self.sever();
    }
}

fn accept<H: Handler>(shared: &Arc<Shared<H>>, listener: TcpListener) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(stream.set_nodelay(true));
            tokio::spawn(http::serve(Arc::clone(&shared), stream));
        }
    })
}
