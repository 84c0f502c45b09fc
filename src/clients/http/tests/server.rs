//! An HTTPS server for unit tests. It runs in this process, answers from a script, and records the requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::clients::http::{Client, Settings, Thumbprint, TlsSettings};

/// A received request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    /// Method and path.
    pub(crate) line: String,
    /// Header names in lower case, with their values.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// The reaction of the server to a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Sends a complete answer: status, extra headers, body.
    Whole(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Announces the length of the whole body and closes after half of it.
    Half(Vec<u8>),
    /// Sends these bytes unchanged, then closes.
    Raw(Vec<u8>),
    /// Sends these bytes one at a time, with a pause after each, and then nothing more.
    Drip(Vec<u8>),
    /// Sends the first bytes once, then the second bytes again and again.
    Endless(Vec<u8>, Vec<u8>),
    /// Closes without sending a byte.
    Close,
    /// Never answers.
    Hang,
    /// Answers with this body after the notification.
    When(Arc<tokio::sync::Notify>, Vec<u8>),
}

impl Reply {
    pub(crate) fn xml(status: u16, body: &str) -> Self {
        Reply::Whole(status, vec![("Content-Type", "text/xml".to_owned())], body.as_bytes().to_vec())
    }

    pub(crate) fn json(status: u16, body: &str) -> Self {
        Reply::Whole(status, vec![("Content-Type", "application/json".to_owned())], body.as_bytes().to_vec())
    }

    pub(crate) fn html(status: u16) -> Self {
        let body = b"<html><body><h1>no healthy upstream".to_vec();
        Reply::Whole(status, vec![("Content-Type", "text/html; charset=utf-8".to_owned())], body)
    }

    pub(crate) fn with_header(self, name: &'static str, value: &str) -> Self {
        match self {
            Reply::Whole(status, mut headers, body) => {
                headers.push((name, value.to_owned()));
                Reply::Whole(status, headers, body)
            }
            other => other,
        }
    }
}

type Script = dyn Fn(&Received) -> Reply + Send + Sync;

/// A server that runs until the runtime of the test ends.
pub(crate) struct TestServer {
    pub(crate) port: u16,
    pub(crate) certificate: CertificateDer<'static>,
    received: Arc<Mutex<Vec<Received>>>,
    connections: Arc<AtomicUsize>,
}

/// A certificate and its key.
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) pem: String,
    pub(crate) key: KeyPair,
}

/// Returns the parameters of a certificate for these names.
pub(crate) fn params(names: &[&str], is_ca: bool) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, "vcenter.test");
    params.is_ca = if is_ca { IsCa::Ca(BasicConstraints::Unconstrained) } else { IsCa::ExplicitNoCa };
    params
}

pub(crate) fn self_signed(params: &CertificateParams) -> Identity {
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    Identity { chain: vec![certificate.der().clone()], pem: certificate.pem(), key }
}

/// Returns a leaf certificate, and the PEM of the authority that issued it.
pub(crate) fn issued(leaf: &CertificateParams, by: &str) -> (Identity, String) {
    let mut authority = params(&[], true);
    authority.distinguished_name.push(DnType::CommonName, by);
    issued_under(leaf, authority)
}

/// Like [`issued`], with these parameters for the authority.
pub(crate) fn issued_under(leaf: &CertificateParams, authority: CertificateParams) -> (Identity, String) {
    let authority_key = KeyPair::generate().unwrap();
    let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
    let key = KeyPair::generate().unwrap();
    let certificate = leaf.signed_by(&key, &Issuer::new(authority, authority_key)).unwrap();
    (Identity { chain: vec![certificate.der().clone()], pem: certificate.pem(), key }, authority_pem)
}

/// Returns an acceptor that presents this certificate.
pub(crate) fn acceptor(identity: Identity) -> TlsAcceptor {
    acceptor_for(identity, None)
}

/// Returns an acceptor that presents this certificate and requests a client certificate of the authority `clients`.
fn acceptor_for(identity: Identity, clients: Option<CertificateDer<'static>>) -> TlsAcceptor {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(identity.key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        Some(authority) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(authority).unwrap();
            let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
        None => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(identity.chain, key).unwrap();
    TlsAcceptor::from(Arc::new(config))
}

impl TestServer {
    /// Starts a server with a self-signed certificate.
    pub(crate) async fn start(script: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_as(self_signed(&params(&["127.0.0.1"], false)), script).await
    }

    pub(crate) async fn start_as(
        identity: Identity,
        script: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start_for(identity, None, script).await
    }

    /// Like [`TestServer::start_as`]. If an authority is given, clients must present a certificate that it issued.
    pub(crate) async fn start_for(
        identity: Identity,
        clients: Option<CertificateDer<'static>>,
        script: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let certificate = identity.chain.first().unwrap().clone();
        let acceptor = acceptor_for(identity, clients);
        let received = Arc::new(Mutex::new(Vec::new()));
        let (script, log): (Arc<Script>, _) = (Arc::new(script), Arc::clone(&received));
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(acceptor.clone(), stream, Arc::clone(&script), Arc::clone(&log)));
            }
        });
        Self { port, certificate, received, connections }
    }

    /// Returns a client that accepts the certificate of this server.
    pub(crate) fn client(&self) -> Client {
        let tls = TlsSettings { thumbprints: vec![Thumbprint::sha256_of(&self.certificate)], ..TlsSettings::default() };
        Client::new(Settings::new("127.0.0.1", self.port, tls, "test")).unwrap()
    }

    /// Returns the number of accepted connections so far, including those with a failed handshake.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, script: Arc<Script>, log: Arc<Mutex<Vec<Received>>>) {
    let Ok(mut stream) = acceptor.accept(stream).await else { return };
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        let reply = script(&request);
        log.lock().unwrap().push(request);
        let done = match reply {
            Reply::Whole(status, headers, body) => {
                let mut head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n", body.len());
                for (name, value) in headers {
                    head.push_str(&format!("{name}: {value}\r\n"));
                }
                let answer = [head.as_bytes(), b"\r\n", &body].concat();
                stream.write_all(&answer).await.is_err()
            }
            Reply::Half(body) => {
                let head = format!("HTTP/1.1 200 x\r\nContent-Length: {}\r\n\r\n", body.len());
                let half = body.get(..body.len() / 2).unwrap();
                let _ = stream.write_all(&[head.as_bytes(), half].concat()).await;
                true
            }
            Reply::Raw(bytes) => {
                let _ = stream.write_all(&bytes).await;
                true
            }
            Reply::Drip(bytes) => {
                let mut pause = tokio::time::interval(std::time::Duration::from_millis(20));
                for byte in bytes {
                    pause.tick().await;
                    if stream.write_all(&[byte]).await.is_err() || stream.flush().await.is_err() {
                        return;
                    }
                }
                std::future::pending().await
            }
            Reply::Endless(head, again) => {
                let mut is_open = stream.write_all(&head).await.is_ok();
                while is_open {
                    is_open = stream.write_all(&again).await.is_ok();
                }
                true
            }
            Reply::Close => true,
            Reply::Hang => std::future::pending().await,
            Reply::When(reported, body) => {
                reported.notified().await;
                let head = format!("HTTP/1.1 200 x\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.write_all(&[head.as_bytes(), &body].concat()).await.is_err()
            }
        };
        if done {
            let _ = stream.shutdown().await;
            return;
        }
    }
}

async fn read_request(stream: &mut (impl AsyncReadExt + Unpin), buffer: &mut Vec<u8>) -> Option<Received> {
    loop {
        if let Some((request, rest)) = parse_request(buffer) {
            *buffer = rest;
            return Some(request);
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

fn parse_request(buffer: &[u8]) -> Option<(Received, Vec<u8>)> {
    let text = String::from_utf8_lossy(buffer).into_owned();
    let (head, rest) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let line = lines.next()?.trim_end_matches(" HTTP/1.1").to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut request = Received { line, headers, body: String::new() };
    let length: usize = request.header("content-length").map_or(0, |length| length.parse().unwrap());
    request.body = rest.get(..length)?.to_owned();
    Some((request, rest.get(length..)?.as_bytes().to_vec()))
}
