//! The admin server over real connections.

mod certificates;
mod hardening;
mod pages;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm::runtime::admin::access::{Authenticator, Authorizer, NotAuthenticated, RequestCredentials, User};
use ccm::runtime::admin::{Admin, Checks, Health, Page, given_certificate, serve};
use ccm::runtime::logging::Verbosity;
use ccm::runtime::metrics::Metrics;
use ccm::runtime::tasks::BoxError;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

const LONG: Duration = Duration::from_secs(60);

/// Accepts one token and every owner of a certificate. One token causes an error, and one causes a panic.
struct OneUser;

#[async_trait]
impl Authenticator for OneUser {
    async fn authenticate(&self, shown: RequestCredentials<'_>) -> Result<Option<User>, NotAuthenticated> {
        let authorization = shown.headers.get("authorization").map(|value| value.to_str().unwrap());
        match authorization.and_then(|value| value.to_ascii_lowercase().strip_prefix("bearer ").map(str::to_owned)) {
            None if !shown.certificates.is_empty() => {
                Ok(Some(User { name: format!("holder of {}", shown.certificates.len()), ..User::default() }))
            }
            None => Ok(None),
            Some(token) if token == "panic" => panic!("a mistake of the program"),
            Some(token) if token == "good" => Ok(Some(User { name: "prometheus".to_owned(), ..User::default() })),
            Some(token) if token == "unknown" => Err(NotAuthenticated::Unknown("the API server is away".into())),
            Some(_) => Err(NotAuthenticated::Invalid),
        }
    }
}

#[async_trait]
impl Authorizer for OneUser {
    fn is_open(&self, path: &str) -> bool {
        ["/healthz", "/livez", "/readyz"].contains(&path)
    }

    async fn is_allowed(&self, user: &User, _: &str, _: &str) -> Result<bool, BoxError> {
        Ok(user.name == "prometheus" || user.name == "holder of 2")
    }
}

struct Served {
    address: SocketAddr,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), BoxError>>,
    checks: Checks,
    certificate: Vec<u8>,
}

async fn served() -> Served {
    served_with(Vec::new(), None).await
}

async fn served_with(pages: Vec<Page>, verbosity: Option<Verbosity>) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let checks = Checks::default();
    let metrics = Metrics::new().unwrap();
    let admin = Admin {
        checks: checks.clone(),
        metrics,
        authenticator: Arc::new(OneUser),
        authorizer: Arc::new(OneUser),
        pages,
        verbosity,
    };
    let stop = CancellationToken::new();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let certificate = made.cert.pem().into_bytes();
    let tls = given_certificate(&certificate, made.signing_key.serialize_pem().as_bytes()).unwrap();
    let task = tokio::spawn(serve(listener, tls, Arc::new(admin), 100, stop.clone()));
    Served { address, stop, task, checks, certificate }
}

fn client(server: &Served) -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let root = reqwest::Certificate::from_pem(&server.certificate).unwrap();
    reqwest::Client::builder().tls_certs_only([root]).timeout(LONG).build().unwrap()
}

/// Opens TLS on this stream, with this protocol.
async fn over_tls(
    server: &Served,
    tcp: TcpStream,
    protocol: &[u8],
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    use rustls::pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(&server.certificate).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect("localhost".try_into().unwrap(), tcp).await
}

#[tokio::test]
async fn probes_are_open_and_everything_else_needs_a_valid_token() {
    let server = served().await;
    let cases: [(&str, &str, Option<&str>, u16, &str); 19] = [
        ("GET", "/healthz", None, 200, "ok"),
        ("GET", "/livez?verbose", None, 200, "[+]ping ok\nlivez check passed\n"),
        ("GET", "/readyz", Some("Bearer bad"), 200, "ok"),
        ("POST", "/healthz", None, 405, "method not allowed"),
        ("GET", "/metrics", None, 403, "forbidden: User \"system:anonymous\" cannot get path \"/metrics\""),
        ("GET", "/healthz/ping", None, 403, "forbidden: User \"system:anonymous\" cannot get path \"/healthz/ping\""),
        ("GET", "/metrics", Some("Basic Z29vZDo="), 403, "forbidden"),
        ("GET", "/metrics", Some("Bearer bad"), 401, "Unauthorized"),
        ("GET", "/metrics", Some("Bearer unknown"), 401, "Unauthorized"),
        ("GET", "/metrics", Some("bearer good"), 200, "# HELP "),
        ("DELETE", "/metrics", Some("Bearer good"), 405, "method not allowed"),
        ("GET", "/healthz/ping", Some("Bearer good"), 200, "ok"),
        ("GET", "/healthz/other", Some("Bearer good"), 404, "404 page not found"),
        ("GET", "/metrics", Some("Bearer panic"), 500, "This request caused a panic."),
        ("PATCH", "/other", Some("Bearer good"), 404, "404 page not found"),
        ("GET", "/other", Some("Bearer good"), 404, "404 page not found"),
        // Only names of checks may be percent-encoded.
        ("GET", "/%68ealthz", None, 403, "forbidden: User \"system:anonymous\" cannot get path \"/%68ealthz\""),
        ("GET", "/metric%73", None, 403, "forbidden: User \"system:anonymous\" cannot get path \"/metric%73\""),
        ("GET", "/metric%73", Some("Bearer good"), 404, "404 page not found"),
    ];
    let client = client(&server);
    for (method, path, authorization, status, text) in cases {
        let case = format!("{method} {path} {authorization:?}");
        let mut request = client.request(method.parse().unwrap(), format!("https://{}{path}", server.address));
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{case}");
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff", "{case}");
        let body = answer.text().await.unwrap();
        assert!(body.starts_with(text), "{case}: {body}");
    }
    server.stop.cancel();
    server.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_failing_readiness_check_leaves_liveness_alone() {
    let server = served().await;
    server.checks.add_readiness("caches", || Health::Failed("not filled".to_owned()));
    let client = client(&server);
    for (path, status) in [("/readyz", 500), ("/healthz", 200), ("/livez", 200)] {
        let answer = client.get(format!("https://{}{path}", server.address)).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{path}");
    }
}

#[tokio::test]
async fn stopping_does_not_wait_for_idle_or_silent_connections() {
    let server = served().await;
    let silent = TcpStream::connect(server.address).await.unwrap();
    let client = client(&server);
    let answer = client.get(format!("https://{}/healthz", server.address)).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    server.stop.cancel();
    tokio::time::timeout(LONG, server.task).await.expect("it ends").unwrap().unwrap();
    drop((silent, client));
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn http2_is_served_to_whoever_asks_for_it() {
    let server = served().await;
    let tcp = TcpStream::connect(server.address).await.unwrap();
    let tls = over_tls(&server, tcp, b"h2").await.unwrap();
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tls)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::get("https://localhost/readyz?verbose").body(Empty::<hyper::body::Bytes>::new());
    let answer = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "[+]ping ok\nreadyz check passed\n");
    server.stop.cancel();
    server.task.await.unwrap().unwrap();
    connection.await.unwrap().unwrap();
}
