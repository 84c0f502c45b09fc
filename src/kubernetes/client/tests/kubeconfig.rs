//! What a kubeconfig names beside the server: a proxy, and files with credentials that change.

use std::path::Path;
use std::sync::Mutex;

use futures::stream::{FuturesUnordered, StreamExt};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use support::eventually;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::*;

/// Longer than the pause between two checks of the files.
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

/// The next request without its body; none once the other side has closed.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(head).unwrap())
}

async fn client(settings: &Settings) -> Api<Node> {
    let config = read_config(settings).await.unwrap();
    Api::all(Clients::from_config(&config, None, Leadership::always()).unwrap().lease)
}

/// 3a.7: `proxy-url`, as client-go.
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

/// Answers every request with a node, and notes of each what `credential` makes of it.
async fn serve(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    seen: Arc<Mutex<Vec<String>>>,
) -> std::convert::Infallible {
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => connections.push(answer(accepted.unwrap().0, &acceptor, &seen)),
            Some(()) = connections.next() => {}
        }
    }
}

async fn answer(stream: TcpStream, acceptor: &Option<TlsAcceptor>, seen: &Mutex<Vec<String>>) {
    match acceptor {
        None => answer_all(stream, None, seen).await,
        Some(acceptor) => {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let (_, peer) = x509_parser::parse_x509_certificate(&stream.get_ref().1.peer_certificates().unwrap()[0])
                .map(|(rest, certificate)| (rest.len(), certificate.subject().to_string()))
                .unwrap();
            answer_all(stream, Some(peer), seen).await;
        }
    }
}

async fn answer_all(mut stream: impl AsyncRead + AsyncWrite + Unpin, peer: Option<String>, seen: &Mutex<Vec<String>>) {
    let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}"#;
    while let Some(head) = read_head(&mut stream).await {
        let token = head.lines().find_map(|line| line.strip_prefix("authorization: Bearer "));
        let credential = peer.clone().or(token.map(str::to_owned)).unwrap_or(head.clone());
        seen.lock().unwrap().push(credential);
        let text = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{node}",
            node.len()
        );
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Calls until the server has seen this credential.
async fn until_seen(nodes: &Api<Node>, seen: &Mutex<Vec<String>>, credential: &str) {
    eventually(credential, LIMIT, async || {
        limited("get node a", CALL_LIMIT, nodes.get("a")).await.map_err(|error| chain(&error))?;
        let last = seen.lock().unwrap().last().cloned().unwrap_or_default();
        if last.contains(credential) { Ok(()) } else { Err(last) }
    })
    .await;
}

/// U8: as client-go. The API server looks at a certificate's dates at each request, also on connections that stand.
#[tokio::test]
async fn a_client_certificate_in_files_is_read_again_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let authority_key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = parameters.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(parameters, authority_key);
    let sign = |name: &str, names: Vec<String>, usage| {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
        parameters.extended_key_usages = vec![usage];
        (parameters.signed_by(&key, &issuer).unwrap(), key)
    };
    let (certificate, key) = sign("server", vec!["127.0.0.1".into()], ExtendedKeyUsagePurpose::ServerAuth);
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().unwrap();
    let tls = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate.der().clone()], key.serialize_der().try_into().unwrap())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let path = |name: &str| folder.path().join(name);
    let put = |(certificate, key): &(rcgen::Certificate, KeyPair)| {
        std::fs::write(path("tls.crt"), certificate.pem()).unwrap();
        std::fs::write(path("tls.key"), key.serialize_pem()).unwrap();
    };
    let pair = |name: &str| sign(name, Vec::new(), ExtendedKeyUsagePurpose::ClientAuth);
    std::fs::write(path("ca.crt"), authority.pem()).unwrap();
    put(&pair("first"));
    let cluster = serde_json::json!({"server": format!("https://{address}"), "certificate-authority": path("ca.crt")});
    let user = serde_json::json!({"client-certificate": path("tls.crt"), "client-key": path("tls.key")});
    let nodes = client(&write_kubeconfig(folder.path(), &cluster, &user)).await;
    let seen = Arc::default();
    let test = async {
        until_seen(&nodes, &seen, "CN=first").await;
        // A certificate without its key, as between two writes of a rotation, changes nothing.
        std::fs::write(path("tls.crt"), pair("half").0.pem()).unwrap();
        limited("get node a", CALL_LIMIT, nodes.get("a")).await.unwrap();
        put(&pair("second"));
        until_seen(&nodes, &seen, "CN=second").await;
    };
    tokio::select! {
        never = serve(listener, Some(TlsAcceptor::from(Arc::new(tls))), Arc::clone(&seen)) => match never {},
        () = test => {}
    }
    assert!(!seen.lock().unwrap().iter().any(|name| name.contains("half")));
}

/// As of each pod, whose token the kubelet exchanges every hour: its connections stay.
#[tokio::test]
async fn a_client_with_a_token_in_a_file_is_not_built_anew_when_the_token_changes() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cluster = serde_json::json!({"server": format!("http://{}", listener.local_addr().unwrap())});
    let path = folder.path().join("token");
    std::fs::write(&path, "first").unwrap();
    let user = serde_json::json!({"tokenFile": path});
    let settings = write_kubeconfig(folder.path(), &cluster, &user);
    assert!(Rotating::new(&read_config(&settings).await.unwrap()).is_none(), "the library reads the token again");
    let nodes = client(&settings).await;
    let seen = Arc::default();
    let test = until_seen(&nodes, &seen, "first");
    tokio::select! {
        never = serve(listener, None, Arc::clone(&seen)) => match never {},
        () = test => {}
    }
}
