//! Tests of trust settings that change while the client is in use, of the settings that a sibling client inherits, and
//! of the reported certificate.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::super::{Client, Error, Method, Request, Settings, Thumbprint, TlsSettings, TlsTrust};
use super::server::{Identity, Reply, TestServer, issued, params};

fn trust_in(pem: &str) -> TlsSettings {
    let trust = TlsTrust::Ca { pem: pem.as_bytes().to_vec(), path: "/etc/ca.pem".to_owned() };
    TlsSettings { trust, ..TlsSettings::default() }
}

fn leaf() -> (Identity, String) {
    issued(&params(&["127.0.0.1"], false), "Test Authority")
}

fn get(path: &str) -> Request {
    Request::new(Method::GET, path, "probe", Duration::from_secs(20))
}

async fn status(client: &Client) -> Result<u16, Error> {
    client.send(get("/")).await.map(|response| response.status)
}

#[tokio::test]
async fn new_trust_holds_at_once_also_in_clones_and_for_idle_connections() {
    let (identity, authority) = leaf();
    let stranger = leaf().1;
    let server = TestServer::start_as(identity, |_| Reply::json(200, "{}")).await;
    let client = Client::new(Settings::new("127.0.0.1", server.port, trust_in(&authority), "test")).unwrap();
    let clone = client.clone();
    for _ in 0..2 {
        assert_eq!(status(&clone).await.unwrap(), 200);
    }
    assert_eq!(server.connections(), 1, "connections are kept");
    client.set_tls(trust_in(&stranger)).unwrap();
    let error = status(&clone).await.unwrap_err();
    assert!(matches!(error, Error::Certificate { .. }), "the idle connection was used again: {error:?}");
    // During a rotation the operator lists the old and the new authority.
    client.set_tls(trust_in(&format!("{stranger}{authority}"))).unwrap();
    assert_eq!(status(&clone).await.unwrap(), 200);
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn trust_that_cannot_be_used_leaves_the_old_one_in_force() {
    let (identity, authority) = leaf();
    let server = TestServer::start_as(identity, |_| Reply::json(200, "{}")).await;
    let client = Client::new(Settings::new("127.0.0.1", server.port, trust_in(&authority), "test")).unwrap();
    assert_eq!(status(&client).await.unwrap(), 200);
    let error = client.set_tls(trust_in("")).unwrap_err();
    assert!(error.to_string().contains("/etc/ca.pem"), "{error}");
    assert_eq!(status(&client).await.unwrap(), 200);
    assert_eq!(server.connections(), 1, "its connections stay, too");
}

#[tokio::test]
async fn a_call_in_flight_ends_normally_when_the_trust_changes() {
    let (identity, authority) = leaf();
    let reported = Arc::new(Notify::new());
    let held = Arc::clone(&reported);
    let server = TestServer::start_as(identity, move |_| Reply::When(Arc::clone(&held), b"whole".to_vec())).await;
    let client = Client::new(Settings::new("127.0.0.1", server.port, trust_in(&authority), "test")).unwrap();
    let calling = tokio::spawn({
        let client = client.clone();
        async move { client.send(get("/")).await }
    });
    while server.received().is_empty() {
        tokio::task::yield_now().await;
    }
    client.set_tls(trust_in(&leaf().1)).unwrap();
    reported.notify_one();
    assert_eq!(calling.await.unwrap().unwrap().body, b"whole");
}

#[tokio::test]
async fn the_certificate_is_that_of_the_last_handshake_that_the_server_proved() {
    let (identity, authority) = leaf();
    let server = TestServer::start_as(identity, |_| Reply::json(200, "{}")).await;
    let client = Client::new(Settings::new("127.0.0.1", server.port, trust_in(&leaf().1), "test")).unwrap();
    assert_eq!(client.peer_certificate(), None);
    assert!(status(&client).await.is_err());
    assert_eq!(client.peer_certificate(), None, "a refused certificate is no fact of this server");
    client.set_tls(trust_in(&authority)).unwrap();
    assert_eq!(status(&client).await.unwrap(), 200);
    assert_eq!(client.clone().peer_certificate().as_deref(), Some(&*server.certificate));
    client.set_tls(trust_in(&leaf().1)).unwrap();
    assert!(client.peer_certificate().is_some(), "known until a handshake tells another");
}

#[tokio::test]
async fn without_verification_the_certificate_is_known_all_the_same() {
    let server = TestServer::start(|_| Reply::json(200, "{}")).await;
    let tls = TlsSettings { insecure: true, ..TlsSettings::default() };
    let client = Client::new(Settings::new("127.0.0.1", server.port, tls, "test")).unwrap();
    assert_eq!(status(&client).await.unwrap(), 200);
    assert_eq!(client.peer_certificate().as_deref(), Some(&*server.certificate));
}

#[tokio::test]
async fn a_sibling_has_the_present_trust_and_its_own_endpoint() {
    let (identity, authority) = leaf();
    let server = TestServer::start_as(identity, |_| Reply::json(200, "{}")).await;
    let client = Client::new(Settings::new("127.0.0.1", 1, trust_in(&leaf().1), "agent")).unwrap();
    client.set_tls(trust_in(&authority)).unwrap();
    let sibling = client.sibling(&format!("https://127.0.0.1:{}/sts", server.port)).unwrap();
    assert_eq!(sibling.endpoint(), format!("127.0.0.1:{}", server.port));
    assert_eq!(sibling.send(get("/sts")).await.unwrap().status, 200);
    let received = server.received();
    assert_eq!((received[0].line.as_str(), received[0].header("user-agent")), ("GET /sts", Some("agent")));
}

#[tokio::test]
async fn a_thumbprint_goes_along_to_the_same_host_only() {
    let server = TestServer::start(|_| Reply::json(200, "{}")).await;
    let pinned = TlsSettings {
        trust: trust_in(&leaf().1).trust,
        thumbprints: vec![Thumbprint::sha256_of(&server.certificate)],
        ..TlsSettings::default()
    };
    let same = Client::new(Settings::new("127.0.0.1", 1, pinned.clone(), "test")).unwrap();
    let other = Client::new(Settings::new("vc.example.com", 1, pinned.clone(), "test")).unwrap();
    let url = format!("https://127.0.0.1:{}", server.port);
    assert_eq!(status(&same.sibling(&url).unwrap()).await.unwrap(), 200);
    let error = status(&other.sibling(&url).unwrap()).await.unwrap_err();
    assert!(matches!(error, Error::Certificate { .. }), "{error:?}");
    let sibling = other.sibling(&url).unwrap();
    sibling.set_tls(pinned).unwrap();
    assert_eq!(status(&sibling).await.unwrap(), 200);
}

#[test]
fn a_sibling_of_no_web_address_is_refused_without_its_text() {
    let tls = TlsSettings { insecure: true, ..TlsSettings::default() };
    let client = Client::new(Settings::new("vc", 443, tls, "test")).unwrap();
    let error = client.sibling("ftp://ccm:hunter2@manager").unwrap_err().to_string();
    assert!(error.starts_with("cannot set up the connection to a service beside vc:443: "), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}
