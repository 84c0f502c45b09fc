//! Tests of the limits and failures of the HTTPS client, against a server in this process.

mod identity;
mod proxy;
mod robustness;
pub(crate) mod server;
mod transport;
mod trust;

use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{Client, Error, Method, Request, Settings, TlsSettings};
use server::{Reply, TestServer};

fn request(method: Method) -> Request {
    Request::new(method, "/sdk", "CurrentTime", Duration::from_secs(20))
}

#[tokio::test]
async fn an_answer_of_any_status_comes_back_whole() {
    let server = TestServer::start(|received| match received.line.as_str() {
        "POST /sdk" => Reply::xml(500, &received.body),
        _ => Reply::xml(404, "no"),
    })
    .await;
    let mut post = request(Method::POST);
    post.body = b"hello".to_vec().into();
    post.headers.push(("Cookie", "a=\"b\"".to_owned()));
    let response = server.client().send(post).await.unwrap();
    assert_eq!((response.status, response.body.as_slice()), (500, b"hello".as_slice()));
    assert_eq!(response.media_type(), "text/xml");
    let received = server.received();
    assert_eq!(received[0].header("cookie"), Some("a=\"b\""));
    assert_eq!(received[0].header("user-agent"), Some("test"));
    assert_eq!(received[0].header("accept-encoding"), Some("gzip"));
}

#[tokio::test]
async fn compressed_answers_are_unpacked_and_limited_by_their_unpacked_size() {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(&vec![b'x'; 100_000]).unwrap();
    let packed = packer.finish().unwrap();
    let server =
        TestServer::start(move |_| Reply::Whole(200, vec![("Content-Encoding", "gzip".to_owned())], packed.clone()))
            .await;
    let client = server.client();
    assert_eq!(client.send(request(Method::GET)).await.unwrap().body.len(), 100_000);
    let mut small = request(Method::GET);
    small.max_bytes = 99_999;
    let error = client.send(small).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge(_, 99_999)), "{error}");
    assert!(!error.is_transient());
}

#[tokio::test]
async fn redirects_are_answers_and_no_cookie_is_kept() {
    let server = TestServer::start(|_| {
        Reply::html(302).with_header("Location", "https://127.0.0.1:1/").with_header("Set-Cookie", "a=b")
    })
    .await;
    let client = server.client();
    for _ in 0..2 {
        assert_eq!(client.send(request(Method::GET)).await.unwrap().status, 302);
    }
    let received = server.received();
    assert_eq!(received.len(), 2);
    assert!(received.iter().all(|request| request.header("cookie").is_none()));
}

#[tokio::test]
async fn w18_a_server_that_does_not_answer_is_a_timeout_that_says_how_long() {
    let server = TestServer::start(|_| Reply::Hang).await;
    let mut hanging = request(Method::GET);
    hanging.timeout = Duration::from_millis(300);
    let error = server.client().send(hanging).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let expected = format!("CurrentTime at 127.0.0.1:{}: no complete answer within 0.3 s", server.port);
    assert_eq!(error.to_string(), expected);
    assert!(error.is_transient());
}

#[tokio::test]
async fn a_closed_port_is_a_connect_error_and_an_unknown_name_a_resolve_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let tls = TlsSettings { insecure: true, ..TlsSettings::default() };
    let client = Client::new(Settings::new("127.0.0.1", port, tls.clone(), "test")).unwrap();
    let error = client.send(request(Method::GET)).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    assert!(error.to_string().starts_with(&format!("CurrentTime at 127.0.0.1:{port}: cannot connect: ")), "{error}");
    let client = Client::new(Settings::new("vcenter.invalid", 443, tls, "test")).unwrap();
    let error = client.send(request(Method::GET)).await.unwrap_err();
    assert!(matches!(error, Error::Resolve { .. }), "{error:?}");
}

#[tokio::test]
async fn a_cut_answer_is_never_taken_for_a_whole_one() {
    let server = TestServer::start(|_| Reply::Half(b"<a>0123456789</a>".to_vec())).await;
    let error = server.client().send(request(Method::GET)).await.unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error:?}");
    assert_eq!(server.received().len(), 1, "a cut answer is not asked for again here");
}

#[tokio::test]
async fn only_a_repeatable_request_is_sent_again_when_the_connection_broke_before_an_answer() {
    let server = TestServer::start(|_| Reply::Close).await;
    let error = server.client().send(request(Method::POST)).await.unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error:?}");
    assert_eq!(server.received().len(), 1);
    let error = server.client().send(request(Method::GET)).await.unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error:?}");
    assert_eq!(server.received().len(), 3);
}

#[test]
fn requests_and_settings_print_no_secret() {
    let mut request = request(Method::POST);
    request.headers.push(("Authorization", "Basic hunter2".to_owned()));
    request.body = b"hunter2".to_vec().into();
    assert!(!format!("{request:?}").contains("hunter2"));
}
