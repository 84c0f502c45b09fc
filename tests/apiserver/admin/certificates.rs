//! The certificates of clients, and the supported TLS versions.

use ccm::runtime::admin::{CertificateSource, Certificates, TlsRules, server_config};
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, ClientConfig, NamedGroup, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Presents this chain and signs with this key, even if they do not match.
#[derive(Debug)]
struct Shows(Arc<CertifiedKey>);

impl ResolvesClientCert for Shows {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Returns a client with this many certificates, which signs with the key of the first one or with another key.
fn holder(
    server: &Served,
    certificates: usize,
    owns_key: bool,
    version: &'static rustls::SupportedProtocolVersion,
) -> ClientConfig {
    let made = |_| rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
    let made: Vec<_> = (0..certificates.max(2)).map(made).collect();
    let key = &made[if owns_key { 0 } else { 1 }].signing_key;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let key = rustls::crypto::ring::sign::any_supported_type(&key).unwrap();
    let chain = made.iter().take(certificates).map(|made| made.cert.der().clone()).collect();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&server.certificate).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    config
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(Shows(Arc::new(CertifiedKey::new(chain, key)))))
}

/// Returns the first line of the answer, if there is one.
async fn metrics(server: &Served, config: ClientConfig) -> Option<String> {
    let tcp = TcpStream::connect(server.address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut tls = connector.connect("localhost".try_into().unwrap(), tcp).await.ok()?;
    tls.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.ok()?;
    let mut answer = Vec::new();
    tls.read_to_end(&mut answer).await.ok()?;
    String::from_utf8(answer).unwrap().lines().next().map(str::to_owned)
}

#[tokio::test]
async fn a_certificate_is_shown_on_to_whoever_authenticates_and_its_key_is_proved() {
    let server = served().await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let answer = metrics(&server, holder(&server, 2, true, version)).await;
        assert_eq!(answer.as_deref(), Some("HTTP/1.1 200 OK"), "the chain of two: {version:?}");
        let answer = metrics(&server, holder(&server, 1, true, version)).await;
        assert_eq!(answer.as_deref(), Some("HTTP/1.1 403 Forbidden"), "another chain: {version:?}");
        let answer = metrics(&server, holder(&server, 2, false, version)).await;
        assert_eq!(answer, None, "another's certificate: {version:?}");
        let answer = metrics(&server, holder(&server, 60, true, version)).await;
        assert_eq!(answer, None, "a chain that is too long: {version:?}");
    }
}

#[tokio::test]
async fn tls_is_as_the_flags_say() {
    let old = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    let cases = [
        ("all", TlsRules::default(), true, true),
        ("TLS 1.3 only", TlsRules { only_13: true, ..TlsRules::default() }, false, true),
        ("the suite of the client", TlsRules { cipher_suites: vec![old], ..TlsRules::default() }, true, true),
        (
            "another suite",
            TlsRules {
                cipher_suites: vec![CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384],
                ..TlsRules::default()
            },
            false,
            true,
        ),
        ("another group", TlsRules { groups: vec![NamedGroup::secp384r1], ..TlsRules::default() }, false, false),
    ];
    for (case, rules, speaks_12, speaks_13) in cases {
        let (certificates, _) = Certificates::load(&CertificateSource::Memory, &[], &[]).unwrap();
        let server = server_config(&rules, true, certificates).unwrap();
        for (version, expected) in [(&rustls::version::TLS12, speaks_12), (&rustls::version::TLS13, speaks_13)] {
            let mut provider = rustls::crypto::ring::default_provider();
            provider.cipher_suites.retain(|suite| suite.tls13().is_some() || suite.suite() == old);
            provider.kx_groups.retain(|group| group.name() == NamedGroup::X25519);
            let client = ClientConfig::builder_with_provider(Arc::new(provider));
            let client = client.with_protocol_versions(&[version]).unwrap();
            let client = client.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
            let (near, far) = tokio::io::duplex(64 * 1024);
            let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
            let acceptor = tokio_rustls::TlsAcceptor::from(Arc::clone(&server));
            let (client, _) =
                tokio::join!(connector.connect("localhost".try_into().unwrap(), near), acceptor.accept(far));
            let error = client.map(|_| ()).unwrap_err().to_string();
            // A handshake that reaches the certificate has passed all other checks.
            assert_eq!(error.contains("UnknownIssuer"), expected, "{case}, {version:?}: {error}");
        }
    }
}
