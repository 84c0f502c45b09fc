//! Verifies the API server's certificate by the authorities of the kubeconfig, the pod or the operating system. Follows
//! Go's `crypto/x509` where the TLS library is stricter. Unusable certificates of a bundle are skipped. A server
//! certificate that is itself in the bundle is trusted while its dates, names and purpose are valid.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use kube::Config;
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, OtherError, RootCertStore,
    SignatureScheme,
};
use tower::BoxError;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::files::read_file;
use super::proxy;
use crate::base::pem;
use crate::base::x509::{self, Validity};

/// Returns the TLS configuration for the API server. Fails if the system's authorities are required but cannot be used.
pub(super) fn client_config(config: &Config, identity: Option<&Arc<CertifiedKey>>) -> Result<ClientConfig, BoxError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Verifier { authorities: Authorities::of(config, &provider)?, provider: Arc::clone(&provider) };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut tls = match identity {
        Some(identity) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(identity)))),
        None => builder.with_no_client_auth(),
    };
    // Session resumption is off, as in client-go. The verifier does not see a resumed session, so the session could
    // outlive the certificate or a change of the authorities.
    tls.resumption = Resumption::disabled();
    Ok(tls)
}

/// Returns those certificates of a PEM bundle that can be parsed.
pub(super) fn read_bundle(text: &[u8]) -> Vec<Vec<u8>> {
    let blocks = pem::blocks(text).into_iter().filter(|block| block.label == "CERTIFICATE");
    let is_certificate = |der: &Vec<u8>| X509Certificate::from_der(der).is_ok();
    blocks.map(|block| block.content.to_vec()).filter(is_certificate).collect()
}

/// Trusted authorities for the API server and for an HTTPS proxy.
#[derive(Debug)]
enum Authorities {
    /// All certificates are accepted (`insecure-skip-tls-verify`), or there is no TLS.
    Unchecked,
    /// The authorities of the kubeconfig, or of the operating system.
    Fixed(ServerTrust),
    /// The authorities of a pod, read for each connection. If the file cannot be read, the previous authorities stay.
    InFile(PathBuf, Mutex<ServerTrust>),
}

/// The authorities of the operating system or those of a bundle. Each certificate of a bundle may be an authority, or
/// the server's own certificate.
#[derive(Debug)]
struct ServerTrust {
    is_system: bool,
    /// The certificates of the bundle.
    listed: Vec<CertificateDer<'static>>,
    /// The verification of certificate chains; `None` if no certificate in the bundle can be an authority.
    chain: Option<Arc<dyn ServerCertVerifier>>,
}

impl ServerTrust {
    fn system(provider: &Arc<CryptoProvider>) -> Result<Self, BoxError> {
        let chain = rustls_platform_verifier::Verifier::new(Arc::clone(provider))?;
        Ok(Self { is_system: true, listed: Vec::new(), chain: Some(Arc::new(chain)) })
    }

    fn bundle(certificates: &[Vec<u8>], provider: &Arc<CryptoProvider>) -> Self {
        let listed: Vec<_> = certificates.iter().map(|der| CertificateDer::from(der.clone())).collect();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(listed.iter().filter(|listed| x509::may_issue(listed)).cloned());
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
        let chain = chain.ok().map(|chain| chain as Arc<dyn ServerCertVerifier>);
        Self { is_system: false, listed, chain }
    }

    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        if self.listed.iter().any(|listed| listed.as_ref() == leaf.as_ref()) {
            return own_checks(leaf, name, now).map(|()| ServerCertVerified::assertion());
        }
        match &self.chain {
            Some(chain) => chain.verify_server_cert(leaf, intermediates, name, ocsp, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }
}

impl Authorities {
    fn of(config: &Config, provider: &Arc<CryptoProvider>) -> Result<Self, BoxError> {
        let is_tls =
            config.cluster_url.scheme_str() == Some("https") || config.proxy_url.as_ref().is_some_and(proxy::is_tls);
        if config.accept_invalid_certs || !is_tls {
            return Ok(Self::Unchecked);
        }
        let listed = config.root_cert.as_ref().map(|listed| ServerTrust::bundle(listed, provider));
        Ok(match (listed, &config.root_cert_file) {
            (Some(listed), Some(path)) => Self::InFile(path.clone(), Mutex::new(listed)),
            (Some(listed), None) => Self::Fixed(listed),
            (None, Some(path)) => {
                let system = ServerTrust::system(provider);
                // Without system authorities, no connection succeeds until the file can be read.
                let trust = system.unwrap_or_else(|_| ServerTrust::bundle(&[], provider));
                Self::InFile(path.clone(), Mutex::new(trust))
            }
            (None, None) => Self::Fixed(ServerTrust::system(provider)?),
        })
    }

    /// Returns the source of the authorities, for messages.
    fn shown(&self) -> &'static str {
        match self {
            Self::Fixed(trust) if trust.is_system => {
                "the system's trusted certificates (the kubeconfig has no certificate-authority)"
            }
            Self::Unchecked | Self::Fixed(_) => "certificate-authority of the kubeconfig",
            Self::InFile(_, trust) if trust.lock().is_system => {
                "the system's trusted certificates (the file ca.crt of the pod's service account has none)"
            }
            Self::InFile(..) => "the file ca.crt of the pod's service account",
        }
    }
}

#[derive(Debug)]
struct Verifier {
    authorities: Authorities,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let verified = match &self.authorities {
            Authorities::Unchecked => return Ok(ServerCertVerified::assertion()),
            Authorities::Fixed(trust) => trust.verify(leaf, intermediates, name, ocsp, now),
            Authorities::InFile(path, last) => {
                let fresh = read_file(path).map(|text| read_bundle(&text)).unwrap_or_default();
                let mut last = last.lock();
                if !fresh.is_empty() {
                    *last = ServerTrust::bundle(&fresh, &self.provider);
                }
                last.verify(leaf, intermediates, name, ocsp, now)
            }
        };
        verified.map_err(|error| self.explained(error, leaf))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        if matches!(self.authorities, Authorities::Unchecked) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        if matches!(self.authorities, Authorities::Unchecked) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.provider.signature_verification_algorithms.supported_schemes();
        if matches!(self.authorities, Authorities::Unchecked) {
            schemes.extend([
                SignatureScheme::ECDSA_NISTP521_SHA512,
                SignatureScheme::RSA_PKCS1_SHA1,
                SignatureScheme::ECDSA_SHA1_Legacy,
            ]);
        }
        schemes
    }
}

impl Verifier {
    /// Replaces an error for which the library's text is a single word by an error with advice. Returns other errors
    /// unchanged.
    fn explained(&self, error: TlsError, leaf: &CertificateDer<'_>) -> TlsError {
        let TlsError::InvalidCertificate(failure) = &error else { return error };
        let reason = match failure {
            CertificateError::UnknownIssuer => format!(
                "it was issued by {}, which is not in {}. Compare with: openssl s_client -showcerts -connect HOST:PORT",
                issuer(leaf),
                self.authorities.shown()
            ),
            CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
                "its key or a signature is of a kind that is not supported (RSA below 2048 bits, P-521, SHA-1)"
                    .to_owned()
            }
            CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => format!(
                "it is the certificate of an authority (CA:TRUE) and not itself in {}: add it there, or issue one for \
                 the server",
                self.authorities.shown()
            ),
            _ => return error,
        };
        TlsError::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(RejectedCertificate(reason)))))
    }
}

#[derive(thiserror::Error)]
#[error("{0}")]
struct RejectedCertificate(String);

/// Plain text, because the TLS library prints this error with `Debug`.
impl fmt::Debug for RejectedCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Returns the issuer, escaped, because the text of an untrusted certificate must not break a log line.
fn issuer(leaf: &CertificateDer<'_>) -> String {
    let parsed = X509Certificate::from_der(leaf).ok();
    let name = parsed.map(|(_, parsed)| parsed.issuer().to_string()).unwrap_or_default();
    format!("{:?}", name.chars().filter(|char| !char.is_control()).take(200).collect::<String>())
}

/// Checks dates, names and server usage of a server certificate that is itself in the bundle, as the verification of a
/// chain would.
fn own_checks(leaf: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), TlsError> {
    match x509::validity(leaf, now.as_secs()) {
        None => return Err(CertificateError::BadEncoding.into()),
        Some(Validity::NotYet) => return Err(CertificateError::NotValidYet.into()),
        Some(Validity::Expired) => return Err(CertificateError::Expired.into()),
        Some(Validity::Valid) => {}
    }
    verify_server_name(&ParsedCertificate::try_from(leaf)?, name)?;
    match x509::is_for_servers(leaf) {
        None => Err(CertificateError::BadEncoding.into()),
        Some(false) => Err(CertificateError::InvalidPurpose.into()),
        Some(true) => Ok(()),
    }
}
