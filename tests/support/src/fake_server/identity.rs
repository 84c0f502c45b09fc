//! Certificates of servers.

use std::sync::Arc;

use rcgen::{Certificate, CertificateParams, KeyPair};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{Error, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// A self-signed identity for 127.0.0.1: the acceptor, and the certificate as PEM.
pub(crate) fn identity() -> (TlsAcceptor, String) {
    let (certificate, key) = self_signed();
    let config = builder().with_no_client_auth();
    (acceptor(config.with_single_cert(vec![certificate.der().clone()], key)), certificate.pem())
}

fn self_signed() -> (Certificate, PrivateKeyDer<'static>) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate, PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())))
}

fn builder() -> rustls::ConfigBuilder<ServerConfig, rustls::WantsVerifier> {
    let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
    ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap()
}

fn acceptor(config: Result<ServerConfig, Error>) -> TlsAcceptor {
    let mut config = config.unwrap();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}
