//! Tests of further fields of a kubeconfig: a proxy, and files with credentials that change.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;

use futures::stream::{FuturesUnordered, StreamExt};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use support::eventually;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;

/// Time limit of a test. It is longer than the interval between two checks of the files.
const LIMIT: Duration = Duration::from_secs(30);

fn write_kubeconfig(folder: &Path, cluster: &serde_json::Value, user: &serde_json::Value) -> Settings {
    let path = folder.join("kubeconfig");
    let text = serde_json::json!({
        "clusters": [{"name": "c", "cluster": cluster}, {"name": "other", "cluster": {"server": "https://other"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    });
    std::fs::write(&path, text.to_string()).unwrap();
    Settings { kubeconfig: Some(path), ..Settings::default() }
}

/// Reads the next request without its body. Returns `None` after the peer has closed the connection.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

async fn client(settings: &Settings) -> Api<Node> {
    let config = read_config(settings).await.unwrap();
    Api::all(unguarded(&config, purpose::PROCESS).unwrap())
}

/// A certificate authority.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = parameters.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(parameters, key) }
    }

    fn sign(
        &self,
        name: &str,
        usage: ExtendedKeyUsagePurpose,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
        parameters.extended_key_usages = vec![usage];
        change(&mut parameters);
        (parameters.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// Returns an acceptor with a certificate for these names. It requests a client certificate but does not need one.
    fn acceptor(&self, names: &[&str]) -> TlsAcceptor {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let (certificate, key) = self.sign("server", ExtendedKeyUsagePurpose::ServerAuth, |parameters| {
            parameters.subject_alt_names = CertificateParams::new(names).unwrap().subject_alt_names;
        });
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.allow_unauthenticated().build().unwrap())
            .with_single_cert(vec![certificate.der().clone()], key.serialize_der().try_into().unwrap())
            .unwrap();
        TlsAcceptor::from(Arc::new(tls))
    }
}

/// Requests that a server received: the subject of the client certificate, and the head of the request.
type Requests = Mutex<Vec<String>>;

/// An API server that answers every request with a Node. Before that it answers `busy` requests with 503 and
/// `unknown` requests with 401.
struct Server {
    acceptor: Option<TlsAcceptor>,
    requests: Requests,
    busy: AtomicUsize,
    unknown: AtomicUsize,
}

impl Server {
    fn new(acceptor: Option<TlsAcceptor>) -> Self {
        Self { acceptor, requests: Requests::default(), busy: AtomicUsize::new(0), unknown: AtomicUsize::new(0) }
    }

    async fn serve(&self, listener: TcpListener) -> Infallible {
        let mut connections = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => connections.push(self.answer(accepted.unwrap().0)),
                Some(()) = connections.next() => {}
            }
        }
    }

    async fn answer(&self, stream: TcpStream) {
        let Some(acceptor) = &self.acceptor else { return self.answer_all(stream, "").await };
        let Ok(stream) = acceptor.accept(stream).await else { return };
        let peer = stream.get_ref().1.peer_certificates().map_or_else(String::new, |chain| {
            let (_, certificate) = x509_parser::parse_x509_certificate(&chain[0]).unwrap();
            certificate.subject().to_string()
        });
        self.answer_all(stream, &peer).await;
    }

    async fn answer_all(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin, peer: &str) {
        let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}"#;
        while let Some(head) = read_head(&mut stream).await {
            self.requests.lock().unwrap().push(format!("{peer}\r\n{head}"));
            let is_next = |left: &AtomicUsize| {
                left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
            };
            let (status, body) = match (is_next(&self.busy), is_next(&self.unknown)) {
                (true, _) => ("503 Service Unavailable", ""),
                (_, true) => ("401 Unauthorized", ""),
                _ => ("200 OK", node),
            };
            let (length, json) = (body.len(), "content-type: application/json");
            let text = format!("HTTP/1.1 {status}\r\n{json}\r\ncontent-length: {length}\r\n\r\n{body}");
            if stream.write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    /// Returns the last request.
    fn last(&self) -> String {
        self.requests.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

/// Repeats a call until the server has received a request with this text.
async fn until_seen(nodes: &Api<Node>, server: &Server, expected: &str) {
    eventually(expected, LIMIT, async || {
        limited("get node a", CALL_LIMIT, nodes.get("a")).await.map_err(|error| chain(&error))?;
        let last = server.last();
        if last.contains(expected) { Ok(()) } else { Err(last) }
    })
    .await;
}

/// A proxy that connects every client to `server` and records the requests.
struct Proxy {
    scheme: &'static str,
    acceptor: TlsAcceptor,
    server: SocketAddr,
    asked: Mutex<Vec<String>>,
}

impl Proxy {
    async fn serve(&self, listener: TcpListener) -> Infallible {
        let mut connections = FuturesUnordered::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => connections.push(self.lead(accepted.unwrap().0)),
                Some(_) = connections.next() => {}
            }
        }
    }

    async fn lead(&self, stream: TcpStream) -> std::io::Result<()> {
        match self.scheme {
            "socks5" => self.lead_socks(stream).await,
            "https" => self.lead_http(self.acceptor.accept(stream).await?).await,
            _ => self.lead_http(stream).await,
        }
    }

    async fn lead_http(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
        let head = read_head(&mut stream).await.unwrap_or_default();
        self.asked.lock().unwrap().push(head);
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
        self.pass(stream).await
    }

    /// Serves a SOCKS client (RFC 1928) with user name and password (RFC 1929). The target must be a host name.
    async fn lead_socks(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut methods = [0; 2];
        stream.read_exact(&mut methods).await?;
        stream.read_exact(&mut vec![0; methods[1].into()]).await?;
        stream.write_all(&[5, 2]).await?;
        stream.read_u8().await?;
        let (user, password) = (read_text(&mut stream).await?, read_text(&mut stream).await?);
        stream.write_all(&[1, 0]).await?;
        let mut request = [0; 4];
        stream.read_exact(&mut request).await?;
        assert_eq!(request, [5, 1, 0, 3]);
        let host = read_text(&mut stream).await?;
        let port = stream.read_u16().await?;
        self.asked.lock().unwrap().push(format!("{user}:{password} {host}:{port}"));
        stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
        self.pass(stream).await
    }

    async fn pass(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
        let mut server = TcpStream::connect(self.server).await?;
        copy_bidirectional(&mut stream, &mut server).await.map(drop)
    }
}

async fn read_text(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut text = vec![0; stream.read_u8().await?.into()];
    stream.read_exact(&mut text).await?;
    Ok(String::from_utf8(text).unwrap())
}

/// The field `proxy-url` has the same effect as in client-go.
#[tokio::test]
async fn a_proxy_of_the_kubeconfig_is_used_and_its_password_is_told_to_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://ccm:hunter2@{}", listener.local_addr().unwrap());
    let cluster = serde_json::json!({"server": "https://api.example.invalid:6443", "proxy-url": proxy});
    let nodes = client(&write_kubeconfig(folder.path(), &cluster, &serde_json::json!({}))).await;
    let asked = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = read_head(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").await.unwrap();
        head
    };
    let (answer, head) = tokio::join!(limited("get node a", CALL_LIMIT, nodes.get("a")), asked);
    assert!(head.starts_with("CONNECT api.example.invalid:6443 HTTP/1.1\r\n"), "{head}");
    assert!(head.to_lowercase().contains("\r\nproxy-authorization: basic y2ntomh1bnrlcji="), "{head}");
    let error = answer.unwrap_err();
    assert!(!format!("{} {error:?}", chain(&error)).contains("hunter2"), "{}", chain(&error));
}

/// TLS is between this process and the API server, so the API server sees credentials and user agent.
#[tokio::test]
async fn through_every_kind_of_proxy_the_api_server_sees_the_token_and_the_user_agent() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let ca = folder.path().join("ca.crt");
    std::fs::write(&ca, &authority.pem).unwrap();
    for (scheme, expected) in [
        ("http", "basic y2ntomh1bnrlcji="),
        ("https", "basic y2ntomh1bnrlcji="),
        ("socks5", "ccm:hunter2 api.example.invalid:6443"),
    ] {
        let server = Server::new(Some(authority.acceptor(&["api.example.invalid"])));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy {
            scheme,
            acceptor: authority.acceptor(&["127.0.0.1"]),
            server: listener.local_addr().unwrap(),
            asked: Mutex::default(),
        };
        let proxy_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{scheme}://ccm:hunter2@{}", proxy_listener.local_addr().unwrap());
        let cluster = serde_json::json!({
            "server": "https://api.example.invalid:6443", "proxy-url": url, "certificate-authority": ca,
        });
        let settings = write_kubeconfig(folder.path(), &cluster, &serde_json::json!({"token": "t-1"}));
        let config = read_config(&settings).await.unwrap();
        let clients = Clients::new(&config).unwrap();
        // The client for lists and watches retries a request after a 503, also with a proxy.
        server.busy.store(1, Ordering::SeqCst);
        let nodes = [Api::<Node>::all(clients.watch), Api::all(clients.auxiliary)];
        let test = async {
            for (nodes, purpose) in nodes.iter().zip([purpose::INFORMERS, purpose::PROCESS]) {
                let answer = limited("get node a", LIMIT, nodes.get("a")).await;
                assert!(answer.is_ok(), "{scheme}: {}", chain(&answer.unwrap_err()));
                let request = server.last().to_lowercase();
                for part in ["\r\nauthorization: bearer t-1\r\n", "\r\nget /api/v1/nodes/a http/1.1\r\n", purpose] {
                    assert!(request.contains(part), "{scheme}: {part:?} is not in {request}");
                }
            }
        };
        tokio::select! {
            never = server.serve(listener) => match never {},
            never = proxy.serve(proxy_listener) => match never {},
            () = test => {}
        }
        let asked = proxy.asked.lock().unwrap();
        assert!(
            asked[0].to_lowercase().contains(expected) && asked[0].contains("api.example.invalid:6443"),
            "{asked:?}"
        );
        assert_eq!(server.requests.lock().unwrap().len(), 3, "{scheme}: one was refused");
    }
}

#[tokio::test]
async fn a_proxy_that_says_nothing_is_given_up_like_a_server_that_cannot_be_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = Config::new("https://api.example.invalid:6443".parse().unwrap());
    config.proxy_url = Some(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
    config.connect_timeout = Some(Duration::from_millis(50));
    config.default_retry = false;
    let nodes: Api<Node> = Api::all(transport::builder(config).unwrap().build());
    let error = limited("get node a", LIMIT, nodes.get("a")).await.unwrap_err();
    assert_eq!(error.reason(), "Unreachable", "{}", chain(&error));
}

/// As in client-go. The API server checks the expiry of the certificate at each request, also on open connections.
#[tokio::test]
async fn a_client_certificate_in_files_is_read_again_when_it_changes() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let server = Server::new(Some(authority.acceptor(&["127.0.0.1"])));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let path = |name: &str| folder.path().join(name);
    let put = |(certificate, key): &(rcgen::Certificate, KeyPair)| {
        std::fs::write(path("tls.crt"), certificate.pem()).unwrap();
        std::fs::write(path("tls.key"), key.serialize_pem()).unwrap();
    };
    let pair = |name: &str, year| {
        authority.sign(name, ExtendedKeyUsagePurpose::ClientAuth, |parameters| {
            parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
        })
    };
    std::fs::write(path("ca.crt"), &authority.pem).unwrap();
    put(&pair("first", 2040));
    let proxy = Proxy { scheme: "http", acceptor: authority.acceptor(&[]), server: address, asked: Mutex::default() };
    let proxy_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let user = serde_json::json!({"client-certificate": path("tls.crt"), "client-key": path("tls.key")});
    let mut both = Vec::new();
    for proxy in [String::new(), format!("http://{}", proxy_listener.local_addr().unwrap())] {
        let url = format!("https://{address}");
        let cluster = serde_json::json!({"server": url, "certificate-authority": path("ca.crt"), "proxy-url": proxy});
        both.push(client(&write_kubeconfig(folder.path(), &cluster, &user)).await);
    }
    let shown = || metrics::shown_for(&path("tls.crt").display().to_string());
    let test = async {
        for nodes in &both {
            until_seen(nodes, &server, "CN=first").await;
        }
        assert_eq!(shown(), Some(2_208_988_800.0));
        // A new certificate without its key has no effect. A rotation has this state between its two writes.
        std::fs::write(path("tls.crt"), pair("half", 2041).0.pem()).unwrap();
        limited("get node a", CALL_LIMIT, both[0].get("a")).await.unwrap();
        put(&pair("second", 2042));
        for nodes in &both {
            until_seen(nodes, &server, "CN=second").await;
        }
        assert_eq!(shown(), Some(2_272_147_200.0));
    };
    tokio::select! {
        never = server.serve(listener) => match never {},
        never = proxy.serve(proxy_listener) => match never {},
        () = test => {}
    }
    assert!(!proxy.asked.lock().unwrap().is_empty());
    assert!(!server.requests.lock().unwrap().iter().any(|request| request.contains("half")));
}

/// The kubelet rotates the token of a pod every hour. The connections stay open.
#[tokio::test]
async fn a_client_with_a_token_in_a_file_is_not_built_anew_when_the_token_changes() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cluster = serde_json::json!({"server": format!("http://{}", listener.local_addr().unwrap())});
    let path = folder.path().join("token");
    std::fs::write(&path, "first").unwrap();
    let user = serde_json::json!({"tokenFile": path});
    let settings = write_kubeconfig(folder.path(), &cluster, &user);
    let user = read_config(&settings).await.unwrap().auth_info;
    assert!(rotating::files_of(&user).is_empty(), "the token is read again");
    let nodes = client(&settings).await;
    let server = Server::new(None);
    tokio::select! {
        never = server.serve(listener) => match never {},
        () = until_seen(&nodes, &server, "Bearer first") => {}
    }
}

/// The program supplies a certificate in its first run and a token in its second run.
#[tokio::test]
async fn a_program_runs_again_when_the_api_server_does_not_know_its_credentials() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let server = Server::new(Some(authority.acceptor(&["127.0.0.1"])));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let path = |name: &str| folder.path().join(name);
    let (certificate, key) = authority.sign("first", ExtendedKeyUsagePurpose::ClientAuth, |_| {});
    let outputs = [
        serde_json::json!({"clientCertificateData": certificate.pem(), "clientKeyData": key.serialize_pem()}),
        serde_json::json!({"token": "second"}),
    ];
    for (name, status) in ["1", "2"].iter().zip(outputs) {
        std::fs::write(path(name), serde_json::json!({"status": status}).to_string()).unwrap();
    }
    std::fs::write(path("ca.crt"), &authority.pem).unwrap();
    // The first run removes the file `1`.
    let script = format!("cd {}; cat 1 2>/dev/null && rm 1 || cat 2", folder.path().display());
    let exec = serde_json::json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh", "args": ["-c", script],
    });
    let url = format!("https://{}", listener.local_addr().unwrap());
    let cluster = serde_json::json!({"server": url, "certificate-authority": path("ca.crt")});
    let nodes = client(&write_kubeconfig(folder.path(), &cluster, &serde_json::json!({"exec": exec}))).await;
    server.unknown.store(1, Ordering::SeqCst);
    let test = async {
        let refused = limited("get node a", CALL_LIMIT, nodes.get("a")).await.unwrap_err();
        assert!(chain(&refused).contains("401"), "{}", chain(&refused));
        until_seen(&nodes, &server, "Bearer second").await;
    };
    tokio::select! {
        never = server.serve(listener) => match never {},
        () = test => {}
    }
    let requests = server.requests.lock().unwrap();
    let (first, last) = (&requests[0], requests.last().unwrap());
    assert!(first.starts_with("CN=first\r\n") && !first.contains("Bearer"), "{first}");
    assert!(last.starts_with("\r\n"), "the certificate of the first run is not sent: {last}");
}

/// The program gets the cluster of the kubeconfig. A server given by `--master` replaces that of the kubeconfig.
#[tokio::test]
async fn a_program_that_wants_to_know_the_cluster_gets_its_server_and_its_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let user = serde_json::json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "x", "provideClusterInfo": true,
    }});
    for (proxy, master, expected) in [
        ("http://u:p@proxy:3128", None, ("https://a.example", Some("http://u:p@proxy:3128"))),
        ("", None, ("https://a.example", None)),
        ("", Some("https://b.example:6443"), ("https://b.example:6443", None)),
    ] {
        let cluster = serde_json::json!({"server": "https://a.example", "proxy-url": proxy});
        let settings = write_kubeconfig(folder.path(), &cluster, &user);
        let settings = Settings { master: master.map(str::to_owned), ..settings };
        let given = read_config(&settings).await.unwrap().auth_info.exec.unwrap().cluster.unwrap();
        let given = (given.server.as_deref().unwrap(), given.proxy_url.as_deref());
        assert_eq!(given, expected, "{proxy:?} {master:?}");
    }
}

#[tokio::test]
async fn an_empty_certificate_beside_a_file_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let identity = rcgen::generate_simple_self_signed(Vec::new()).unwrap();
    std::fs::write(folder.path().join("tls.crt"), identity.cert.pem()).unwrap();
    std::fs::write(folder.path().join("tls.key"), identity.signing_key.serialize_pem()).unwrap();
    let user = serde_json::json!({
        "client-certificate": "tls.crt", "client-certificate-data": "", "client-key": "tls.key", "client-key-data": "",
    });
    let settings = write_kubeconfig(folder.path(), &serde_json::json!({"server": "https://a.example"}), &user);
    let user = read_config(&settings).await.unwrap().auth_info;
    assert_eq!((user.client_certificate_data, user.client_key_data.is_some()), (None, false));
    assert_eq!(user.client_certificate, Some(folder.path().join("tls.crt").display().to_string()));
}
