//! Tests with the vectors of the Go program, and with other answers of a session manager.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use super::{Error, fetch_ticket, fetch_within};
use crate::clients::http::tests::server::{Received, Reply, TestServer, issued, params};
use crate::clients::http::{Client, Endpoint, Failure, Request, Response, Settings, TlsSettings, TlsTrust, Transport};
use crate::clients::token::tests::secret;

/// Answers like the test server of the Go program.
fn manager(received: &Received) -> Reply {
    if received.header("authorization") != Some("Bearer validtoken") {
        return Reply::json(401, "{\"error\":\"hunter2\"}");
    }
    match received.line.as_str() {
        "GET /session" | "GET /session?vc=1" => Reply::json(200, "{\"token\": \"a-valid-response\", \"more\": 1}"),
        "GET /empty" => Reply::json(200, "{\"token\": \"\"}"),
        "GET /null" => Reply::json(200, "{}"),
        "GET /invalid-token" => Reply::json(200, "\"hunter2\""),
        "GET /html" => Reply::html(200),
        "GET /created" => Reply::json(201, "{\"token\": \"a-valid-response\"}"),
        "GET /moved" => Reply::json(302, "").with_header("Location", "/session"),
        "GET /large" => Reply::json(200, &" ".repeat(70_000)),
        _ => Reply::html(404),
    }
}

async fn ask(path: &str, token: &str) -> (Result<SecretString, Error>, usize) {
    let server = TestServer::start(manager).await;
    let url = format!("https://127.0.0.1:{}{path}", server.port);
    let result = fetch_ticket(&server.client(), &url, &secret(token)).await;
    (result, server.received().len())
}

#[tokio::test]
async fn a_valid_token_gets_the_ticket() {
    for path in ["/session", "/session?vc=1"] {
        assert_eq!(ask(path, "validtoken").await.0.unwrap().expose_secret(), "a-valid-response", "{path}");
    }
}

#[tokio::test]
async fn every_other_answer_is_an_error_of_its_kind_without_its_text() {
    let cases = [
        ("/", "validtoken", "Status", "answered with HTTP status 404; expected 200"),
        ("", "validtoken", "Status", "HTTP status 404"),
        ("/empty", "validtoken", "Malformed", "returned an empty token"),
        ("/null", "validtoken", "Malformed", "returned an empty token"),
        ("/invalid-token", "validtoken", "Malformed", "cannot be decoded"),
        ("/html", "validtoken", "Malformed", "cannot be decoded"),
        ("/created", "validtoken", "Status", "HTTP status 201"),
        ("/moved", "validtoken", "Status", "HTTP status 302"),
        ("/large", "validtoken", "TooLarge", "larger than 65536 bytes"),
        ("/session", "wrongtoken", "InvalidLogin", "HTTP status 401"),
    ];
    for (path, token, reason, part) in cases {
        let (result, asked) = ask(path, token).await;
        let error = result.unwrap_err();
        assert_eq!((error.reason(), asked), (reason, 1), "{path}: {error}");
        assert_eq!(error.is_invalid_login(), reason == "InvalidLogin");
        let text = format!("{error} {error:?}");
        assert!(text.contains(part), "{path}: {text}");
        for kept in ["hunter2", "wrongtoken", "validtoken"] {
            assert!(!text.contains(kept), "{path}: {text}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_asked_is_told_before_anything_is_sent() {
    let server = TestServer::start(manager).await;
    let url = format!("https://127.0.0.1:{}/session", server.port);
    let cases = [
        ("no URL", "", "validtoken", "Configuration", "the URL of the session manager is empty"),
        ("no web address", "ftp://127.0.0.1/hunter2", "validtoken", "Configuration", "expected a URL such as"),
        (
            "no URL at all",
            "manager:8443:hunter2",
            "validtoken",
            "Configuration",
            "the request to the session manager failed",
        ),
        ("no token", &url, "", "Token", "the token for the session manager is empty"),
        ("a header in the token", &url, "validtoken\r\nX: hunter2", "Token", "characters that no token has"),
    ];
    for (name, url, token, reason, part) in cases {
        let error = fetch_ticket(&server.client(), url, &secret(token)).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert_eq!(error.reason(), reason, "{name}: {text}");
        assert!(error.to_string().contains(part) && !text.contains("hunter2"), "{name}: {text}");
    }
    assert_eq!(server.received().len(), 0);
}

/// A transport that answers after 15 ms.
struct Late;

#[async_trait]
impl Transport for Late {
    async fn exchange(&self, _endpoint: &Endpoint, _request: Request) -> Result<Response, Failure> {
        tokio::time::sleep_until(Instant::now() + Duration::from_millis(15)).await;
        let body = b"{\"token\": \"a-valid-response\"}".to_vec();
        Ok(Response { status: 200, headers: http::HeaderMap::new(), body })
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_5_ms_ends_a_wait_of_15_ms() {
    let mut settings = Settings::new("vc.example.com", 443, TlsSettings::default(), "test");
    settings.transport = Some(Arc::new(Late));
    let (vcenter, began) = (Client::new(settings).unwrap(), Instant::now());
    let fetch = |limit| fetch_within(&vcenter, "https://manager/session", &SECRET, Duration::from_millis(limit));
    let error = fetch(5).await.unwrap_err();
    assert_eq!((error.reason(), began.elapsed()), ("Timeout", Duration::from_millis(5)), "{error}");
    assert_eq!(fetch(16).await.unwrap().expose_secret(), "a-valid-response");
}

static SECRET: std::sync::LazyLock<SecretString> = std::sync::LazyLock::new(|| secret("validtoken"));

#[tokio::test]
async fn an_unknown_authority_is_refused() {
    let (vcenter, manager) = (TestServer::start(manager).await, TestServer::start(manager).await);
    // The client trusts the vCenter by its thumbprint. The certificate of the session manager has another thumbprint.
    let url = format!("https://127.0.0.1:{}/session", manager.port);
    let error = fetch_ticket(&vcenter.client(), &url, &SECRET).await.unwrap_err();
    assert_eq!((error.reason(), manager.received().len()), ("Tls", 0), "{error}");
}

/// Returns a client that does not verify the certificate of its vCenter. The settings have a CA file.
fn unverified(host: &str, authority: &str) -> Client {
    let trust = TlsTrust::Ca { pem: authority.as_bytes().to_vec(), path: "/etc/ca.pem".to_owned() };
    let tls = TlsSettings { trust, insecure: true, ..TlsSettings::default() };
    Client::new(Settings::new(host, 443, tls, "test")).unwrap()
}

#[tokio::test]
async fn the_manager_is_verified_also_where_its_vcenter_is_not() {
    let (identity, authority) = issued(&params(&["127.0.0.1"], false), "Test Authority");
    let stranger = issued(&params(&["127.0.0.1"], false), "Other Authority").1;
    let server = TestServer::start_as(identity, manager).await;
    let url = format!("https://127.0.0.1:{}/session", server.port);
    for host in ["127.0.0.1", "vc.example.com"] {
        let error = fetch_ticket(&unverified(host, &stranger), &url, &SECRET).await.unwrap_err();
        assert_eq!((error.reason(), server.received().len()), ("Tls", 0), "{host}: {error}");
    }
    let ticket = fetch_ticket(&unverified("vc.example.com", &authority), &url, &SECRET).await.unwrap();
    assert_eq!(ticket.expose_secret(), "a-valid-response");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_sent_in_the_clear_to_this_machine_only() {
    let mut settings = Settings::new("vc.example.com", 443, TlsSettings::default(), "test");
    settings.transport = Some(Arc::new(Late));
    let vcenter = Client::new(settings).unwrap();
    for url in ["http://127.0.0.1:8080/session", "http://[::1]/session", "http://localhost/session"] {
        assert!(fetch_ticket(&vcenter, url, &SECRET).await.is_ok(), "{url}");
    }
    for url in ["http://manager/session", "http://10.0.0.1:8080/", "http://localhost.example.com/", "HTTP://[fd00::1]/"]
    {
        let error = fetch_ticket(&vcenter, url, &SECRET).await.unwrap_err();
        assert_eq!(error.reason(), "Configuration", "{url}: {error}");
        assert!(error.to_string().contains("expected https://"), "{url}: {error}");
    }
}
