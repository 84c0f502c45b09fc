//! Tests of the socket, of the number of connections and of the handshake. `tests/apiserver/admin.rs` tests the pages.

use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The only path that needs a review, which denies it.
pub(super) const REVIEWED: &str = "/reviewed";

/// A page of 64 KiB.
pub(super) const LARGE_PAGE: &str = "/large";

struct OnePathDenied;

#[async_trait::async_trait]
impl Authenticator for OnePathDenied {
    async fn authenticate(
        &self,
        _: access::RequestCredentials<'_>,
    ) -> Result<Option<access::User>, access::NotAuthenticated> {
        Ok(None)
    }
}

#[async_trait::async_trait]
impl Authorizer for OnePathDenied {
    fn is_open(&self, path: &str) -> bool {
        path != REVIEWED
    }

    async fn is_allowed(&self, _: &access::User, _: &str, _: &str) -> Result<bool, BoxError> {
        Ok(false)
    }
}

pub(super) fn server() -> Arc<Server> {
    let (certificates, _) = Certificates::load(&CertificateSource::Memory, &[], &[]).unwrap();
    server_with(server_config(&TlsRules::default(), true, certificates).unwrap())
}

fn server_with(tls: Arc<ServerConfig>) -> Arc<Server> {
    let write = Arc::new(|| "x".repeat(64 * 1024));
    let admin = Admin {
        checks: Checks::default(),
        metrics: Metrics::new().unwrap(),
        pages: vec![Page { path: LARGE_PAGE, content_type: "text/plain", write }],
        verbosity: None,
        authenticator: Arc::new(OnePathDenied),
        authorizer: Arc::new(OnePathDenied),
    };
    Arc::new(Server::new(tls, Arc::new(admin), 100, CancellationToken::new()))
}

pub(super) fn peer() -> Peer {
    Peer {
        address: ([192, 0, 2, 1], 12345).into(),
        certificates: Vec::new(),
        requests: Notify::new(),
        must_close: CancellationToken::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_handshake_is_cut_off() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = server();
    let task = tokio::spawn(accept_connections(listener, Arc::clone(&server)));

    for begin in [&[][..], &[0x16, 3, 1, 0, 45, 1]] {
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(begin).await.unwrap();
        let start = tokio::time::Instant::now();
        assert_eq!(client.read_to_end(&mut Vec::new()).await.unwrap(), 0, "closed without a word");
        assert!(start.elapsed() <= connection::HANDSHAKE_LIMIT + Duration::from_secs(1), "{:?}", start.elapsed());
    }
    server.stop.cancel();
    task.await.unwrap();
}

/// Sends a probe over a new connection. Returns the answer.
async fn probe(address: SocketAddr, certificate: &CertificateDer<'static>) -> io::Result<String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let tcp = TcpStream::connect(address).await?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect("localhost".try_into().unwrap(), tcp).await?;
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn a_port_full_of_strangers_answers_the_kubelet() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let tls = given_certificate(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes()).unwrap();
    let server = server_with(tls);
    let task = tokio::spawn(accept_connections(listener, Arc::clone(&server)));

    let strangers: Vec<_> = std::iter::from_fn(|| connection_permit(&server.connections, false)).collect();
    assert_eq!(strangers.len(), MAX_CONNECTIONS - RESERVED_CONNECTIONS);
    let answer = probe(address, made.cert.der()).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");

    // Waits until the connection of the probe has ended.
    let all = server.connections.acquire_many(u32::try_from(RESERVED_CONNECTIONS).unwrap()).await.unwrap();
    let mut refused = TcpStream::connect(address).await.unwrap();
    assert_eq!(refused.read_to_end(&mut Vec::new()).await.unwrap(), 0, "all connections are in use");
    drop(all);
    let answer = probe(address, made.cert.der()).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");

    drop(strangers);
    assert!(connection_permit(&server.connections, false).is_some(), "there is room again");
    server.stop.cancel();
    task.await.unwrap();
}

#[test]
fn a_client_on_this_host_has_a_loopback_address_or_the_local_address() {
    let cases = [
        ("127.0.0.1", "127.0.0.1", true),
        ("::1", "::1", true),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", true),
        ("192.0.2.1", "192.0.2.1", true),
        ("192.0.2.1", "::ffff:192.0.2.1", true),
        ("2001:db8::1", "2001:db8::1", true),
        ("192.0.2.2", "192.0.2.1", false),
        ("192.0.2.2", "127.0.0.1", false),
        ("2001:db8::2", "2001:db8::1", false),
    ];
    for (peer, local, expected) in cases {
        assert_eq!(is_on_this_host(peer.parse().unwrap(), local.parse().unwrap()), expected, "{peer} to {local}");
    }
}

#[tokio::test]
async fn all_addresses_are_those_of_both_families() {
    let listener = bind("0.0.0.0:0".parse().unwrap(), false).and_then(listen).unwrap();
    let port = listener.local_addr().unwrap().port();
    TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    if listener.local_addr().unwrap().is_ipv6() {
        TcpStream::connect(("::1", port)).await.unwrap();
    } else {
        assert!(TcpSocket::new_v6().is_err() || !std::fs::read_to_string(ONLY_V6).unwrap().starts_with('0'));
    }
}

#[tokio::test]
async fn a_port_is_shared_only_when_asked() {
    let first = bind("127.0.0.1:0".parse().unwrap(), true).and_then(listen).unwrap();
    let address = first.local_addr().unwrap();
    assert_eq!(bind(address, false).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    bind(address, true).and_then(listen).unwrap();
}

/// Otherwise a process that cannot answer yet would accept connections for another process on a shared port.
#[tokio::test]
async fn a_port_that_is_taken_accepts_nothing_before_it_is_listened_on() {
    let socket = bind("127.0.0.1:0".parse().unwrap(), true).unwrap();
    let address = socket.local_addr().unwrap();
    let refused = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    let _listener = listen(socket).unwrap();
    TcpStream::connect(address).await.unwrap();
}
