//! Tests with all relevant combinations of credentials in a request.

use super::*;
use crate::kubernetes::access::authority::{Authority, client};
use crate::kubernetes::access::scripted_server::server;
use crate::runtime::admin::access::Authorizer;
use crate::runtime::admin::{Admin, Checks, given_certificate, serve};
use crate::runtime::tasks::BoxError;
use http::{HeaderMap, HeaderName, HeaderValue};
use rcgen::KeyPair;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

struct World {
    clients: Authority,
    /// Authority of front proxies. The Go program trusts identity headers of such a proxy. This program does not.
    proxies: Authority,
    delegated: DelegatedAuthenticator,
}

/// Returns an authenticator that accepts certificates of `clients` and some tokens, such as `good`.
fn world() -> World {
    let (api, _) = server(|spec, _| {
        Ok(match spec["token"].as_str() {
            Some("good") => json!({"authenticated": true, "user": {"username": "token user"}}),
            Some("anonymous") => json!({"authenticated": true, "user": {"username": "system:anonymous"}}),
            Some("known") => {
                let user = json!({"username": "token user", "groups": ["system:authenticated", "a"]});
                json!({"authenticated": true, "user": user})
            }
            _ => json!({"authenticated": false}),
        })
    });
    let (clients, proxies) = (Authority::new("clients"), Authority::new("proxies"));
    let trust = ClientTrust::default();
    trust.trust_clients(clients.pem.as_bytes()).unwrap();
    let metrics = Metrics::default();
    let tokens = TokenReviews::new(api, Duration::from_secs(10), &metrics);
    World { clients, proxies, delegated: DelegatedAuthenticator::new(trust, tokens, metrics) }
}

fn headers(entries: &[(&'static str, &str)]) -> HeaderMap {
    let parse =
        |(name, value): &(&'static str, &str)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    entries.iter().map(parse).collect()
}

async fn who(world: &World, certificates: &[CertificateDer<'static>], entries: &[(&'static str, &str)]) -> String {
    let headers = headers(entries);
    match world.delegated.authenticate(RequestCredentials { headers: &headers, certificates }).await {
        Ok(Some(user)) => format!("{} in {}", user.name, user.groups.join(",")),
        Ok(None) => "nobody".to_owned(),
        Err(NotAuthenticated::Invalid) => "wrong".to_owned(),
        Err(NotAuthenticated::Unknown(error)) => format!("unknown: {error}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_that_names_somebody_counts_and_something_wrong_only_if_nobody_is_named() {
    let world = world();
    let jane = world.clients.sign(&client("jane", &["a"]));
    let nameless = world.clients.sign(&client("", &["a"]));
    let stranger = world.proxies.sign(&client("front", &["system:masters"]));
    let good: &[(&str, &str)] = &[("authorization", "Bearer good")];
    let bad: &[(&str, &str)] = &[("authorization", "Bearer bad")];
    let cases = [
        ("nothing", None, &[][..], "nobody"),
        ("a token", None, good, "token user in system:authenticated"),
        ("a bad token", None, bad, "wrong"),
        ("a certificate", Some(&jane), &[], "jane in a,system:authenticated"),
        ("a certificate and a bad token", Some(&jane), bad, "jane in a,system:authenticated"),
        ("a certificate without a name", Some(&nameless), &[], "nobody"),
        ("a certificate without a name and a token", Some(&nameless), good, "token user in system:authenticated"),
        ("a stranger", Some(&stranger), &[], "wrong"),
        ("a stranger with a token", Some(&stranger), good, "token user in system:authenticated"),
        ("a stranger with a bad token", Some(&stranger), bad, "wrong"),
    ];
    for (name, certificate, entries, expected) in cases {
        let chain: Vec<_> = certificate.into_iter().cloned().collect();
        assert_eq!(who(&world, &chain, entries).await, expected, "{name}");
    }
}

/// Headers of a front proxy, which the Go program trusts.
const HEADERS: [(&str, &str); 4] = [
    ("x-remote-user", "root"),
    ("x-remote-uid", "0"),
    ("x-remote-group", "system:masters"),
    ("x-remote-extra-scopes", "all"),
];

#[tokio::test(start_paused = true)]
async fn identity_headers_of_a_proxy_are_ignored_whatever_credentials_are_sent() {
    let world = world();
    let jane = world.clients.sign(&client("jane", &["a"]));
    // A certificate of the authority `clients` is a client certificate, even if it has the name of a proxy.
    let client_front = world.clients.sign(&client("front-proxy-client", &[]));
    let front = world.proxies.sign(&client("front-proxy-client", &[]));
    for (name, certificate, token, expected) in [
        ("nothing else", None, None, "nobody"),
        ("a token", None, Some("Bearer good"), "token user in system:authenticated"),
        ("a bad token", None, Some("Bearer bad"), "wrong"),
        ("a client's certificate", Some(&jane), None, "jane in a,system:authenticated"),
        ("one of a proxy's name", Some(&client_front), None, "front-proxy-client in system:authenticated"),
        ("a proxy's certificate", Some(&front), None, "wrong"),
        ("a proxy's certificate and a token", Some(&front), Some("Bearer good"), "token user in system:authenticated"),
        ("a proxy's certificate and a bad token", Some(&front), Some("Bearer bad"), "wrong"),
    ] {
        let chain: Vec<_> = certificate.into_iter().cloned().collect();
        let shown: Vec<_> = HEADERS.into_iter().chain(token.map(|token| ("authorization", token))).collect();
        assert_eq!(who(&world, &chain, &shown).await, expected, "{name}");
    }
}

/// An authorizer that rejects all requests and records their users.
#[derive(Default)]
struct Noting(Mutex<Vec<User>>);

#[async_trait]
impl Authorizer for Noting {
    fn is_open(&self, _: &str) -> bool {
        false
    }

    async fn is_allowed(&self, user: &User, _: &str, _: &str) -> Result<bool, BoxError> {
        self.0.lock().unwrap().push(user.clone());
        Ok(false)
    }
}

/// Sends a request with the headers of a proxy and this client certificate. Returns the status line.
async fn status(
    server: SocketAddr,
    root: &CertificateDer<'static>,
    client: Option<(CertificateDer<'static>, KeyPair)>,
) -> String {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots);
    let config = match client {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            config.with_client_auth_cert(vec![certificate], PrivateKeyDer::Pkcs8(key.serialize_der().into())).unwrap()
        }
    };
    let tcp = TcpStream::connect(server).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut tls = connector.connect("localhost".try_into().unwrap(), tcp).await.unwrap();
    let headers: String = HEADERS.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n");
    tls.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    tls.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap().lines().next().unwrap().to_owned()
}

#[tokio::test]
async fn identity_headers_are_ignored_on_a_connection_with_a_client_certificate() {
    let world = world();
    let jane = world.clients.pair(&client("jane", &["a"]));
    let front = world.proxies.pair(&client("front-proxy-client", &[]));
    let asked = Arc::new(Noting::default());
    let admin = Admin {
        checks: Checks::default(),
        metrics: crate::runtime::metrics::Metrics::new().unwrap(),
        pages: Vec::new(),
        verbosity: None,
        authenticator: Arc::new(world.delegated),
        authorizer: asked.clone(),
    };
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let tls = given_certificate(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(serve(listener, tls, Arc::new(admin), 100, stop.clone()));
    let root = made.cert.der();
    assert_eq!(status(server, root, None).await, "HTTP/1.1 403 Forbidden", "without a certificate");
    assert_eq!(status(server, root, Some(jane)).await, "HTTP/1.1 403 Forbidden", "with a client's");
    assert_eq!(status(server, root, Some(front)).await, "HTTP/1.1 401 Unauthorized", "with a proxy's");
    stop.cancel();
    serving.await.unwrap().unwrap();
    let asked = std::mem::take(&mut *asked.0.lock().unwrap());
    let [nobody, jane] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(*nobody, User::anonymous());
    assert_eq!((jane.name.as_str(), jane.uid.as_str()), ("jane", ""));
    assert_eq!(jane.groups, ["a", "system:authenticated"]);
    assert!(jane.extra.keys().eq(["authentication.kubernetes.io/credential-id"]), "{jane:?}");
}

#[tokio::test(start_paused = true)]
async fn the_group_of_the_known_is_added_once_and_not_to_the_anonymous() {
    let world = world();
    let asked = async |token: &str| who(&world, &[], &[("authorization", token)]).await;
    assert_eq!(asked("Bearer known").await, "token user in system:authenticated,a");
    assert_eq!(asked("Bearer anonymous").await, "system:anonymous in ");
}

#[tokio::test(start_paused = true)]
async fn without_authorities_certificates_say_nothing() {
    let world = world();
    let jane = world.clients.sign(&client("jane", &[]));
    let (api, _) = server(|_, _| Ok(json!({"authenticated": false})));
    let metrics = Metrics::default();
    let tokens = TokenReviews::new(api, Duration::from_secs(10), &metrics);
    let bare = World { delegated: DelegatedAuthenticator::new(ClientTrust::default(), tokens, metrics), ..world };
    assert_eq!(who(&bare, &[jane], &[("x-remote-user", "john")]).await, "nobody");
}

#[tokio::test(start_paused = true)]
async fn a_wrong_bundle_changes_nothing() {
    let world = world();
    let jane = world.clients.sign(&client("jane", &[]));
    assert!(world.delegated.trust.trust_clients(b"nothing").is_err());
    assert_eq!(who(&world, &[jane], &[]).await, "jane in system:authenticated");
    let newer = Authority::new("newer");
    world.delegated.trust.trust_clients(newer.pem.as_bytes()).unwrap();
    let john = newer.sign(&client("john", &[]));
    assert_eq!(who(&world, &[john], &[]).await, "john in system:authenticated");
    let jane = world.clients.sign(&client("jane", &[]));
    assert_eq!(who(&world, &[jane], &[]).await, "wrong", "her authority is not believed any more");
}
