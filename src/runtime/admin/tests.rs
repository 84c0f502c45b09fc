//! Tests of the socket and of the time limits of the server. `tests/apiserver/admin.rs` tests the pages.

use super::*;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

struct Nobody;

#[async_trait::async_trait]
impl access::Authenticator for Nobody {
    async fn authenticate(
        &self,
        _: access::RequestCredentials<'_>,
    ) -> Result<Option<access::User>, access::NotAuthenticated> {
        Ok(None)
    }
}

#[async_trait::async_trait]
impl access::Authorizer for Nobody {
    fn is_open(&self, _: &str) -> bool {
        false
    }

    async fn may(&self, _: &access::User, _: &str, _: &str) -> Result<bool, BoxError> {
        Ok(false)
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_is_cut_off() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let admin = Admin {
        checks: Checks::default(),
        metrics: Metrics::new().unwrap(),
        pages: Vec::new(),
        verbosity: None,
        authenticator: Arc::new(Nobody),
        authorizer: Arc::new(Nobody),
    };
    let stop = CancellationToken::new();
    let (certificates, _) = Certificates::load(&CertificateSource::Memory, &[], &[]).unwrap();
    let tls = server_config(&TlsRules::default(), true, certificates).unwrap();
    let task = tokio::spawn(serve(listener, tls, Arc::new(admin), 100, stop.clone()));

    let mut silent = TcpStream::connect(address).await.unwrap();
    let start = tokio::time::Instant::now();
    assert_eq!(silent.read_to_end(&mut Vec::new()).await.unwrap(), 0, "closed without a word");
    assert!(start.elapsed() <= connection::HANDSHAKE_LIMIT + Duration::from_secs(1), "{:?}", start.elapsed());
    stop.cancel();
    task.await.unwrap().unwrap();
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
