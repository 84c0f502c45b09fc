//! Certificates of servers, and of clients if a server requests them.

use std::sync::Arc;

use rcgen::{Certificate, CertificateParams, ExtendedKeyUsagePurpose, KeyPair};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme};
use tokio_rustls::TlsAcceptor;

/// Second name in a fake's certificate, for clients behind a proxy. A client reaches a loopback address without a
/// proxy.
pub(crate) const NAME: &str = "fake.test";

/// Makes a self-signed identity for 127.0.0.1. Returns the acceptor and the certificate as PEM.
pub(crate) fn identity() -> (TlsAcceptor, String) {
    let (certificate, key) = self_signed();
    let config = builder().with_no_client_auth();
    (acceptor(config.with_single_cert(vec![certificate.der().clone()], key)), certificate.pem())
}

/// Like [`identity`], for a server that requests a client certificate and accepts any, or none. Each request carries
/// the certificate, and the handler verifies it.
pub(crate) fn identity_asking_for_client() -> (TlsAcceptor, String) {
    let (certificate, key) = self_signed();
    let verifier = AnyClient(ring::default_provider().signature_verification_algorithms);
    let config = builder().with_client_cert_verifier(Arc::new(verifier));
    (acceptor(config.with_single_cert(vec![certificate.der().clone()], key)), certificate.pem())
}

/// Makes a certificate for clients and its key, both as PEM.
pub(crate) fn client_identity(name: &str) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn self_signed() -> (Certificate, PrivateKeyDer<'static>) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned(), NAME.to_owned()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
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

/// Accepts every client whose key matches its certificate, and clients without a certificate.
#[derive(Debug)]
struct AnyClient(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
