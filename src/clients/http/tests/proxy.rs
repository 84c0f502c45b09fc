//! Tests through proxies in this process: CONNECT, CONNECT over TLS, SOCKS, and plain forwarding.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::super::{Client, Error, Method, ProxySettings, Request, Settings, Thumbprint, TlsSettings, TlsTrust};
use super::server::{Identity, Reply, TestServer, acceptor, issued, params, self_signed};

/// The reaction of a proxy to a request.
#[derive(Clone)]
enum Manner {
    /// Connects to this port on localhost, whatever the requested target is.
    Tunnel(u16),
    /// Answers with this response head.
    Answer(&'static str),
    /// Closes the connection.
    Close,
    /// Never answers.
    Hang,
    /// Accepts SOCKS version 5 with user and password, then behaves like `Tunnel`.
    Socks(u16),
}

/// A proxy that runs until the runtime of the test ends.
struct Proxy {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    async fn start(manner: Manner) -> Self {
        Self::start_with(manner, None).await
    }

    async fn start_with(manner: Manner, identity: Option<Identity>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, tls) = (Arc::clone(&asked), identity.map(acceptor));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (manner, log, tls) = (manner.clone(), Arc::clone(&log), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, manner, log).await,
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => serve(stream, manner, log).await,
                            Err(_) => None,
                        },
                    }
                });
            }
        });
        Self { port, asked }
    }

    /// Returns the heads of the received requests. For SOCKS these are user, password and target.
    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    manner: Manner,
    log: Arc<Mutex<Vec<String>>>,
) -> Option<()> {
    let said = match manner {
        Manner::Socks(_) => accept_socks(&mut stream).await?,
        _ => read_head(&mut stream).await?,
    };
    log.lock().unwrap().push(said);
    let (port, welcome): (u16, &[u8]) = match manner {
        Manner::Tunnel(port) => (port, b"HTTP/1.1 200 Connection established\r\n\r\n"),
        Manner::Socks(port) => (port, &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
        Manner::Answer(head) => {
            stream.write_all(head.as_bytes()).await.ok()?;
            return stream.shutdown().await.ok();
        }
        Manner::Close => return None,
        Manner::Hang => return std::future::pending().await,
    };
    let mut target = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    stream.write_all(welcome).await.ok()?;
    tokio::io::copy_bidirectional(&mut stream, &mut target).await.ok().map(|_| ())
}

async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// Accepts a SOCKS connection (RFC 1928 and 1929) and returns `user:password target:port`. The target must be a host
/// name.
async fn accept_socks(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Option<String> {
    async fn counted(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
        let mut bytes = vec![0; stream.read_u8().await.ok()?.into()];
        stream.read_exact(&mut bytes).await.ok()?;
        Some(bytes)
    }
    assert_eq!(stream.read_u8().await.ok()?, 5, "the version");
    assert!(counted(stream).await?.contains(&2), "user and password are offered");
    stream.write_all(&[5, 2]).await.ok()?;
    assert_eq!(stream.read_u8().await.ok()?, 1, "the version of the authentication");
    let user = String::from_utf8(counted(stream).await?).ok()?;
    let password = String::from_utf8(counted(stream).await?).ok()?;
    stream.write_all(&[1, 0]).await.ok()?;
    let mut request = [0; 4];
    stream.read_exact(&mut request).await.ok()?;
    assert_eq!(request, [5, 1, 0, 3], "a connection to a name, which the proxy resolves");
    let name = String::from_utf8(counted(stream).await?).ok()?;
    let port = stream.read_u16().await.ok()?;
    Some(format!("{user}:{password} {name}:{port}"))
}

fn proxies(variables: &[(&str, String)]) -> ProxySettings {
    let variables: BTreeMap<&str, String> = variables.iter().cloned().collect();
    ProxySettings::from_environment(|name| variables.get(name).cloned()).unwrap()
}

fn https_proxy(url: String) -> ProxySettings {
    proxies(&[("HTTPS_PROXY", url)])
}

fn trust_in(pem: &str) -> TlsSettings {
    let trust = TlsTrust::Ca { pem: pem.as_bytes().to_vec(), path: "/etc/ca.pem".to_owned() };
    TlsSettings { trust, ..TlsSettings::default() }
}

/// Returns a client of a vCenter with a host name that only the proxy can resolve.
fn client(tls: TlsSettings, proxy: ProxySettings) -> Client {
    let mut settings = Settings::new("vcenter.test", 443, tls, "test");
    settings.proxy = Some(proxy);
    settings.connect_timeout = Duration::from_millis(500);
    Client::new(settings).unwrap()
}

async fn status(client: &Client) -> Result<u16, Error> {
    let request = Request::new(Method::GET, "/sdk", "probe", Duration::from_secs(20));
    client.send(request).await.map(|response| response.status)
}

async fn vcenter(names: &[&str]) -> (TestServer, String) {
    let (identity, authority) = issued(&params(names, false), "Test Authority");
    (TestServer::start_as(identity, |_| Reply::json(200, "{}")).await, authority)
}

#[tokio::test]
async fn the_certificate_behind_a_proxy_is_judged_as_configured() {
    let cases: [(&str, bool, bool, &str, bool); 6] = [
        ("an authority of the CA file", true, false, "vcenter.test", true),
        ("another name", true, false, "other.test", false),
        ("an unknown authority", false, false, "vcenter.test", false),
        ("an unknown authority, thumbprint", false, true, "vcenter.test", true),
        ("another name, thumbprint", true, true, "other.test", true),
        ("an unknown authority and another name, thumbprint", false, true, "other.test", true),
    ];
    for (name, is_known, is_pinned, host, is_accepted) in cases {
        let (server, authority) = vcenter(&[host]).await;
        let stranger = vcenter(&["vcenter.test"]).await.1;
        let proxy = Proxy::start(Manner::Tunnel(server.port)).await;
        let mut tls = trust_in(if is_known { &authority } else { &stranger });
        tls.thumbprints.extend(is_pinned.then(|| Thumbprint::sha1_of(&server.certificate)));
        let client = client(tls.clone(), https_proxy(format!("http://127.0.0.1:{}", proxy.port)));
        let result = status(&client).await;
        assert!(proxy.asked()[0].starts_with("CONNECT vcenter.test:443 HTTP/1.1\r\n"), "{name}: {:?}", proxy.asked());
        match result {
            Ok(200) if is_accepted => {
                assert_eq!(client.peer_certificate().as_deref(), Some(&*server.certificate), "{name}");
            }
            Err(error @ Error::Certificate { .. }) if !is_accepted => {
                assert!(
                    error.to_string().contains("the certificate of vcenter.test is not accepted"),
                    "{name}: {error}"
                );
            }
            other => panic!("{name}: {other:?}"),
        }
        tls.thumbprints = vec![Thumbprint::sha256_of(b"another certificate")];
        client.set_tls(tls).unwrap();
        let is_verified = is_known && host == "vcenter.test";
        assert_eq!(status(&client).await.is_ok(), is_verified, "{name}, then with a thumbprint that does not fit");
    }
}

#[tokio::test]
async fn an_ipv6_address_behind_a_proxy_is_refused_with_a_way_out() {
    let proxy = Proxy::start(Manner::Hang).await;
    let tls = TlsSettings { insecure: true, ..TlsSettings::default() };
    let mut settings = Settings::new("2001:db8::1", 443, tls, "test");
    settings.proxy = Some(https_proxy(format!("http://127.0.0.1:{}", proxy.port)));
    let error = status(&Client::new(settings).unwrap()).await.unwrap_err();
    assert!(matches!(error, Error::Proxy { .. }), "{error:?}");
    assert!(error.to_string().contains("give the server's name instead, or list the address in NO_PROXY"), "{error}");
    assert_eq!(proxy.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn what_no_proxy_lists_and_loopback_are_talked_to_directly() {
    let (server, authority) = vcenter(&["127.0.0.1"]).await;
    let proxy = Proxy::start(Manner::Close).await;
    let url = format!("http://127.0.0.1:{}", proxy.port);
    let listed = proxies(&[("HTTPS_PROXY", url.clone()), ("NO_PROXY", "a.test, .test".to_owned())]);
    // Without the proxy the client cannot resolve the name.
    let error = status(&client(trust_in(&authority), listed)).await.unwrap_err();
    assert!(matches!(error, Error::Resolve { .. }), "{error}");
    let mut settings = Settings::new("127.0.0.1", server.port, trust_in(&authority), "test");
    settings.proxy = Some(https_proxy(url));
    assert_eq!(status(&Client::new(settings).unwrap()).await.unwrap(), 200);
    assert_eq!(proxy.asked(), Vec::<String>::new());
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_without_its_credentials() {
    // A bound socket that does not listen rejects connections and keeps the port reserved.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let cases: [(&str, Option<Manner>, &str); 6] = [
        ("407", Some(Manner::Answer("HTTP/1.1 407 Who are you\r\n\r\n")), "proxy authorization required"),
        ("503", Some(Manner::Answer("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")), "unsuccessful"),
        ("no HTTP", Some(Manner::Answer("SSH-2.0-proxy\r\n\r\n")), "unsuccessful"),
        ("closes", Some(Manner::Close), "unexpected end of file"),
        ("hangs", Some(Manner::Hang), "timed out"),
        ("is not there", None, "refused"),
    ];
    for (name, manner, said) in cases {
        let port = match manner {
            Some(manner) => Proxy::start(manner).await.port,
            None => closed.local_addr().unwrap().port(),
        };
        let tls = TlsSettings { insecure: true, ..TlsSettings::default() };
        let client = client(tls, https_proxy(format!("http://ccm:hunter2@127.0.0.1:{port}")));
        let error = status(&client).await.unwrap_err();
        assert!(matches!(error, Error::Proxy { .. }), "{name}: {error:?}");
        assert_eq!((error.reason(), error.is_transient()), ("Proxy", true), "{name}");
        let text = error.to_string();
        let begin = format!("probe at vcenter.test:443: cannot connect through the proxy http://127.0.0.1:{port}: ");
        assert!(text.starts_with(&begin) && text.contains(said), "{name}: {text}");
        let shown = format!("{text} {error:?} {client:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("ccm"), "{name}: {shown}");
    }
}

#[tokio::test]
async fn user_and_password_of_the_proxy_are_sent_to_it_and_to_nobody_else() {
    let (server, authority) = vcenter(&["vcenter.test"]).await;
    let proxy = Proxy::start(Manner::Tunnel(server.port)).await;
    let url = format!("http://ccm:hunter%402@127.0.0.1:{}", proxy.port);
    assert_eq!(status(&client(trust_in(&authority), https_proxy(url))).await.unwrap(), 200);
    let expected = format!("proxy-authorization: basic {}\r\n", STANDARD.encode("ccm:hunter@2")).to_lowercase();
    assert!(proxy.asked()[0].to_lowercase().contains(&expected), "{:?}", proxy.asked());
    assert_eq!(server.received()[0].header("proxy-authorization"), None);
}

#[tokio::test]
async fn a_proxy_over_tls_is_judged_by_the_ca_file_and_never_excused_by_a_thumbprint() {
    let (server, authority) = vcenter(&["vcenter.test"]).await;
    let (identity, proxy_authority) = issued(&params(&["127.0.0.1"], false), "Proxy Authority");
    let proxy = Proxy::start_with(Manner::Tunnel(server.port), Some(identity)).await;
    let url = format!("https://127.0.0.1:{}", proxy.port);
    let both = client(trust_in(&format!("{authority}{proxy_authority}")), https_proxy(url));
    assert_eq!(status(&both).await.unwrap(), 200);
    assert_eq!(both.peer_certificate().as_deref(), Some(&*server.certificate), "not the proxy's");

    let strange = self_signed(&params(&["127.0.0.1"], false));
    let pinned = TlsSettings { thumbprints: vec![Thumbprint::sha256_of(&strange.chain[0])], ..trust_in(&authority) };
    let proxy = Proxy::start_with(Manner::Tunnel(server.port), Some(strange)).await;
    let pinned = client(pinned, https_proxy(format!("https://127.0.0.1:{}", proxy.port)));
    let error = status(&pinned).await.unwrap_err();
    let text = error.to_string();
    let is_of_proxy =
        matches!(error, Error::Certificate(_, refusal) if refusal.is_of_proxy && refusal.thumbprint.is_none());
    assert!(is_of_proxy, "{text}");
    assert!(text.contains("the certificate of the proxy 127.0.0.1 is not accepted"), "{text}");
    assert!(text.contains("a thumbprint is for vCenter's own certificate") && !text.contains("govc"), "{text}");
    assert_eq!((proxy.asked().len(), pinned.peer_certificate()), (0, None));
}

#[tokio::test]
async fn a_socks_proxy_resolves_the_name_and_gets_user_and_password() {
    let (server, authority) = vcenter(&["vcenter.test"]).await;
    let proxy = Proxy::start(Manner::Socks(server.port)).await;
    let client = client(trust_in(&authority), https_proxy(format!("socks5://ccm:hunter2@127.0.0.1:{}", proxy.port)));
    assert_eq!(status(&client).await.unwrap(), 200);
    assert_eq!(proxy.asked(), ["ccm:hunter2 vcenter.test:443"]);
}

#[tokio::test]
async fn a_sibling_has_the_same_proxies() {
    let (server, authority) = vcenter(&["sts.test"]).await;
    let tunnel = Proxy::start(Manner::Tunnel(server.port)).await;
    let forwarding = Proxy::start(Manner::Answer("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")).await;
    let settings = proxies(&[
        ("https_proxy", format!("127.0.0.1:{}", tunnel.port)),
        ("http_proxy", format!("127.0.0.1:{}", forwarding.port)),
    ]);
    let client = client(trust_in(&authority), settings);
    assert_eq!(status(&client.sibling("https://sts.test/").unwrap()).await.unwrap(), 200);
    assert!(tunnel.asked()[0].starts_with("CONNECT sts.test:443 "), "{:?}", tunnel.asked());
    // Without TLS the client uses no tunnel: the proxy gets the whole request.
    assert_eq!(status(&client.sibling("http://manager.test/").unwrap()).await.unwrap(), 200);
    assert!(forwarding.asked()[0].starts_with("GET http://manager.test/sdk HTTP/1.1\r\n"), "{:?}", forwarding.asked());
}
