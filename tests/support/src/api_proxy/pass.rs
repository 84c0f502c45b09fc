//! One connection of the daemon, and its connection to the API server.

use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use http::{Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Config;
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, watch};
use tokio_rustls::TlsConnector;

use super::barriers::{Place, Side};
use super::counts::Open;
use super::{End, Faults, Shared, answer};

/// Timeout of a connection to the API server, including TLS.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The API server and the credentials of one user.
pub(super) struct Upstream {
    tls: TlsConnector,
    host: String,
    port: u16,
}

impl Upstream {
    /// Reads this kubeconfig. It must be for the server at this address.
    pub(super) async fn of(kubeconfig: &Path, server: &str) -> Self {
        crate::api_server::install_crypto();
        let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        assert_eq!(config.cluster_url.to_string().trim_end_matches('/'), server, "the kubeconfig is of this server");
        let (host, port) = (config.cluster_url.host().unwrap().to_owned(), config.cluster_url.port_u16().unwrap());
        // It contains no token: the daemon sends its token with each request, and the proxy passes it.
        Self { tls: TlsConnector::from(Arc::new(config.rustls_client_config().unwrap())), host, port }
    }

    /// Connects. Sets `lost` to true at the end of the connection.
    async fn connect(&self, lost: &watch::Sender<bool>) -> io::Result<SendRequest<Body>> {
        let connect = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
            stream.set_nodelay(true)?;
            let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
            let stream = self.tls.connect(name, stream).await?;
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)
        };
        let (sender, connection) = tokio::time::timeout(CONNECT_LIMIT, connect).await??;
        let lost = lost.clone();
        tokio::spawn(async move {
            drop(connection.await);
            lost.send_replace(true);
        });
        Ok(sender)
    }

    /// Replaces the headers that belong to the daemon's connection.
    fn address(&self, mut request: Request<Body>) -> io::Result<Request<Body>> {
        for name in [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING] {
            request.headers_mut().remove(name);
        }
        let host = format!("{}:{}", self.host, self.port);
        request.headers_mut().insert(header::HOST, host.parse().map_err(io::Error::other)?);
        Ok(request)
    }
}

struct Link {
    shared: Arc<Shared>,
    upstream: Arc<Upstream>,
    /// The connection to the API server, from the first request on. There is one request at a time.
    sender: Mutex<Option<SendRequest<Body>>>,
    /// Whether that connection has ended.
    lost: watch::Sender<bool>,
}

/// Serves one connection until either side or the test closes it.
pub(super) async fn serve(stream: TcpStream, shared: Arc<Shared>, upstream: Arc<Upstream>) {
    drop(stream.set_nodelay(true));
    let mut severed = shared.severed.subscribe();
    let _open = Open::new(&shared, |counts| &mut counts.open_connections);
    let lost = watch::Sender::new(false);
    let mut is_lost = lost.subscribe();
    let link = Arc::new(Link { shared, upstream, sender: Mutex::default(), lost });
    let service = service_fn(move |request| {
        let link = Arc::clone(&link);
        async move { link.answer(request).await }
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let mut is_closing = false;
    loop {
        tokio::select! {
            // This is an error if the service returns one: the connection is closed without an answer.
            _ = &mut connection => return,
            _ = severed.changed() => return,
            // Finished answers are still sent. An idle connection is closed at once, like the connection to the API
            // server.
            _ = is_lost.wait_for(|lost| *lost), if !is_closing => {
                is_closing = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

impl Link {
    async fn answer(&self, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let is_watch = answer::is_watch(request.uri());
        {
            let counts = &mut self.shared.state().counts;
            counts.requests += 1;
            counts.watches += u64::from(is_watch);
        }
        let mut faults = self.shared.faults.subscribe();
        let delay = faults.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        self.while_hanging(&mut faults).await;
        let refusal = faults.borrow().refusal;
        if let Some(refusal) = refusal {
            self.shared.state().counts.refused += 1;
            return Ok(own(answer::refused(refusal)));
        }
        if answer::can_expire(request.uri())
            && let Some(expired) = self.expired()
        {
            return Ok(own(expired));
        }
        let hold = self.shared.state().hold.clone();
        match hold.and_then(|hold| hold.place(request.method(), request.uri().path())) {
            Some(place) => self.pass_held(request, place).await,
            None => self.pass(request, is_watch, faults).await,
        }
    }

    async fn while_hanging(&self, faults: &mut watch::Receiver<Faults>) {
        if faults.borrow().is_hanging {
            let _hanging = Open::new(&self.shared, |counts| &mut counts.hanging);
            drop(faults.wait_for(|faults| !faults.is_hanging).await);
        }
    }

    fn expired(&self) -> Option<Response<String>> {
        let mut state = self.shared.state();
        state.expiring = state.expiring.checked_sub(1)?;
        state.counts.expired += 1;
        Some(answer::expired(state.counts.expired.is_multiple_of(2)))
    }

    async fn pass(
        &self,
        request: Request<Incoming>,
        is_watch: bool,
        mut faults: watch::Receiver<Faults>,
    ) -> io::Result<Response<Body>> {
        let watch = is_watch
            .then(|| (self.shared.ended.subscribe(), Open::new(&self.shared, |counts| &mut counts.open_watches)));
        self.shared.state().counts.passed += 1;
        let request = self.upstream.address(request.map(boxed))?;
        let mut sender = self.sender.lock().await;
        // There is no connection, or it was closed because the proxy ended a stream early.
        if let Some(before) = sender.as_mut()
            && before.ready().await.is_err()
        {
            *sender = None;
        }
        if sender.is_none() {
            *sender = Some(self.upstream.connect(&self.lost).await?);
        }
        let sender = sender.as_mut().ok_or_else(|| io::Error::other("no connection"))?;
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        self.while_hanging(&mut faults).await;
        let (mut head, body) = answer.into_parts();
        head.headers.remove(header::TRANSFER_ENCODING);
        let (ended, open) = watch.unzip();
        let passing = Passing { body, faults, ended, is_over: false, _open: open };
        let frames = stream::unfold(passing, |mut passing| async move {
            let frame = passing.next().await?;
            Some((frame, passing))
        });
        Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
    }

    /// Passes a write in a task of its own, so that it continues if the client is gone.
    async fn pass_held(&self, request: Request<Incoming>, place: Place) -> io::Result<Response<Body>> {
        self.shared.state().counts.passed += 1;
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
        let request = self.upstream.address(Request::from_parts(head, body))?;
        let upstream = Arc::clone(&self.upstream);
        let work = tokio::spawn(async move {
            place.pass(Side::Request).await;
            let mut sender = upstream.connect(&watch::Sender::default()).await?;
            let answer = sender.send_request(request).await.map_err(io::Error::other)?;
            place.answered(answer.status());
            place.pass(Side::Answer).await;
            let (mut head, body) = answer.into_parts();
            head.headers.remove(header::TRANSFER_ENCODING);
            Ok(Response::from_parts(head, boxed(body)))
        });
        work.await.map_err(io::Error::other)?
    }
}

struct Passing {
    body: Incoming,
    faults: watch::Receiver<Faults>,
    /// Set for watches only.
    ended: Option<watch::Receiver<End>>,
    is_over: bool,
    _open: Option<Open>,
}

impl Passing {
    async fn next(&mut self) -> Option<io::Result<Frame<Bytes>>> {
        if self.is_over {
            return None;
        }
        let Self { body, faults, ended, .. } = self;
        let frame = async {
            let frame = body.frame().await;
            // Fails only if the proxy, with its connections, is gone.
            drop(faults.wait_for(|faults| !faults.is_hanging).await);
            frame.map(|frame| frame.map_err(io::Error::other))
        };
        let end = async {
            let Some(ended) = ended else { return std::future::pending().await };
            drop(ended.changed().await);
            *ended.borrow()
        };
        tokio::select! {
            biased;
            end = end => {
                self.is_over = true;
                match end {
                    End::Whole => None,
                    End::Broken => Some(Err(io::ErrorKind::ConnectionReset.into())),
                }
            }
            frame = frame => frame,
        }
    }
}

fn boxed(body: Incoming) -> Body {
    body.map_err(io::Error::other).boxed_unsync()
}

fn own(answer: Response<String>) -> Response<Body> {
    answer.map(|text| text.map_err(|never| match never {}).boxed_unsync())
}
