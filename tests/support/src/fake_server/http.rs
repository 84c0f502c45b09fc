//! HTTP/1.1 over TLS, implemented by hand: tests must be able to cut, slow down and drop answers.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Handler, Shared};

/// The parts of a request that the fakes need.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Headers with lower-case names.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// The client's certificate as DER.
    pub(crate) client: Option<Arc<[u8]>>,
    /// The client's port, which distinguishes connections.
    pub(crate) client_port: u16,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// An answer, and how it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) media_type: &'static str,
    /// Headers other than those for the type and length of the body.
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
    pub(crate) delivery: Delivery,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Delivery {
    Whole,
    CutAfter(usize),
    Slow(Duration),
    /// The connection is closed without a byte.
    Close,
}

impl Reply {
    pub(crate) fn new(status: u16, media_type: &'static str, body: String) -> Self {
        Self { status, media_type, headers: Vec::new(), body, delivery: Delivery::Whole }
    }

    /// Adds a header. Several headers may have one name.
    #[must_use]
    pub(crate) fn header(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(crate) fn close() -> Self {
        Self { delivery: Delivery::Close, ..Self::new(0, "", String::new()) }
    }
}

/// Serves one connection until either side or the test closes it.
pub(super) async fn serve<H: Handler>(shared: Arc<Shared<H>>, stream: TcpStream) {
    let mut severed = shared.severed.subscribe();
    let acceptor = shared.acceptor.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let client_port = stream.peer_addr().map_or(0, |address| address.port());
    let Ok(mut stream) = acceptor.accept(stream).await else { return };
    let client = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).map(|shown| Arc::from(shown.as_ref()));
    let mut buffer = Vec::new();
    loop {
        let request = tokio::select! {
            request = read_request(&mut stream, &mut buffer) => request,
            _ = severed.changed() => return,
        };
        let Some(request) = request else { return };
        // A server continues when its client is gone: a wait runs on, and its answer is lost.
        let request = Request { client: client.clone(), client_port, ..request };
        let work = tokio::spawn(Arc::clone(&shared.handler).answer(request));
        let reply = tokio::select! {
            reply = work => reply,
            _ = severed.changed() => return,
        };
        let Ok(reply) = reply else { return };
        if send(&mut stream, &reply).await.is_err() || reply.delivery != Delivery::Whole {
            drop(stream.shutdown().await);
            return;
        }
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), reply: &Reply) -> std::io::Result<()> {
    let mut head = format!(
        "HTTP/1.1 {} x\r\nContent-Type: {}\r\nContent-Length: {}\r\n",
        reply.status,
        reply.media_type,
        reply.body.len()
    );
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let body = reply.body.as_bytes();
    match reply.delivery {
        Delivery::Whole => stream.write_all(&[head.as_bytes(), body].concat()).await?,
        Delivery::CutAfter(count) => {
            stream.write_all(&[head.as_bytes(), &body[..count.min(body.len())]].concat()).await?;
        }
        Delivery::Slow(pause) => {
            stream.write_all(head.as_bytes()).await?;
            for byte in body {
                tokio::time::sleep(pause).await;
                stream.write_all(&[*byte]).await?;
                stream.flush().await?;
            }
        }
        Delivery::Close => {}
    }
    stream.flush().await
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> Option<Request> {
    loop {
        if let Some((request, used)) = parse(buffer) {
            buffer.drain(..used);
            return Some(request);
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

fn parse(buffer: &[u8]) -> Option<(Request, usize)> {
    let end = buffer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut request = Request {
        method: first.next()?.into(),
        path: first.next()?.into(),
        headers,
        body: String::new(),
        client: None,
        client_port: 0,
    };
    let length: usize = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    let body = buffer.get(end + 4..end + 4 + length)?;
    request.body = String::from_utf8_lossy(body).into_owned();
    Some((request, end + 4 + length))
}
