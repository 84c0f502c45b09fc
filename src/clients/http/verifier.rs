//! Verifies a server's certificate as the Go clients do, even where rustls alone is stricter, and records the
//! certificate.
//!
//! Mirrors `vim25/soap/client.go` of govmomi: a thumbprint is a fallback for an unknown issuer or a wrong name, but
//! never for an expired certificate. Handshake signatures are always checked.

use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error as TlsError, SignatureScheme};

use super::Endpoint;
use super::certificate::PeerCertificate;
use super::refusal::{self, CertificateOwner, Complaint, unusable};
use super::thumbprint::Thumbprint;
use crate::base::x509::{self, Validity};

#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) endpoint: Endpoint,
    /// The standard verification of the certificate chain; `None` if there are no trusted authorities, or if `insecure`
    /// is true.
    pub(super) chain: Option<Arc<dyn ServerCertVerifier>>,
    /// The certificates of the CA file, which may include the server's own certificate.
    pub(super) listed: Vec<CertificateDer<'static>>,
    pub(super) thumbprints: Vec<Thumbprint>,
    pub(super) can_be_pinned: bool,
    pub(super) insecure: bool,
    /// Record of the server's certificate. A proxy's certificate is not recorded.
    pub(super) peer_certificate: Arc<PeerCertificate>,
    pub(super) provider: Arc<CryptoProvider>,
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
        let refused =
            |complaint: Complaint| complaint.into_error(&self.peer(name), &name.to_str(), leaf, intermediates);
        if let Some(complaint) = unusable(leaf) {
            return Err(refused(complaint));
        }
        let verified = match &self.chain {
            _ if self.insecure => Ok(ServerCertVerified::assertion()),
            Some(chain) => chain.verify_server_cert(leaf, intermediates, name, ocsp, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        };
        let verified = match verified {
            Err(TlsError::InvalidCertificate(failure)) => {
                self.verify_listed_or_pinned(leaf, name, now, failure).map_err(refused)?
            }
            other => other?,
        };
        if self.is_own_name(name) {
            self.peer_certificate.set_checked(leaf);
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
            .inspect(|_| self.peer_certificate.set_proved(certificate))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
            .inspect(|_| self.peer_certificate.set_proved(certificate))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl Verifier {
    /// Accepts a certificate that the CA file lists and that passes `own_checks`; otherwise tries the thumbprints.
    fn verify_listed_or_pinned(
        &self,
        leaf: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
        failure: CertificateError,
    ) -> Result<ServerCertVerified, Complaint> {
        let failure = if self.listed.iter().any(|listed| listed.as_ref() == leaf.as_ref()) {
            // rustls refuses a self-signed certificate that is marked as an authority, even if the CA file lists it.
            // `openssl req -x509` sets this mark by default.
            match own_checks(leaf, name, now) {
                Ok(()) => return Ok(ServerCertVerified::assertion()),
                Err(failure) => failure,
            }
        } else {
            failure
        };
        let complaint = refusal::complaint(&failure);
        // The verifier also checks proxies, and a thumbprint of the server never excuses the certificate of a proxy.
        if self.thumbprints.is_empty() || !self.is_own_name(name) || !pin_may_excuse(&failure) {
            return Err(complaint);
        }
        // Verification returns only one of several defects, and expiry is never excused, so the dates are checked
        // separately.
        check_validity(leaf, now).map_err(|failure| refusal::complaint(&failure))?;
        if self.thumbprints.iter().any(|pin| pin.matches(leaf)) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(complaint.and_not_pinned(&self.thumbprints))
    }

    fn is_own_name(&self, name: &ServerName<'_>) -> bool {
        match name {
            ServerName::IpAddress(address) => {
                self.endpoint.host().parse::<IpAddr>().is_ok_and(|own| own == IpAddr::from(*address))
            }
            other => other.to_str().eq_ignore_ascii_case(self.endpoint.host().trim_end_matches('.')),
        }
    }

    fn peer(&self, name: &ServerName<'_>) -> CertificateOwner {
        if !self.is_own_name(name) {
            return CertificateOwner::Proxy;
        }
        let authority = self.endpoint.authority();
        if self.can_be_pinned {
            CertificateOwner::Vcenter { target: authority.strip_suffix(":443").unwrap_or(authority).to_owned() }
        } else {
            CertificateOwner::Server { target: authority.to_owned() }
        }
    }
}

/// Checks a trusted server certificate without its chain: the dates, the name, and the server purpose.
fn own_checks(leaf: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), CertificateError> {
    check_validity(leaf, now)?;
    let named = ParsedCertificate::try_from(leaf).and_then(|parsed| verify_server_name(&parsed, name));
    named.map_err(|error| match error {
        TlsError::InvalidCertificate(failure) => failure,
        _ => CertificateError::BadEncoding,
    })?;
    match x509::is_for_servers(leaf) {
        None => Err(CertificateError::BadEncoding),
        Some(false) => Err(CertificateError::InvalidPurpose),
        Some(true) => Ok(()),
    }
}

fn check_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
    match x509::validity(certificate, now.as_secs()).ok_or(CertificateError::BadEncoding)? {
        Validity::NotYet => Err(CertificateError::NotValidYet),
        Validity::Expired => Err(CertificateError::Expired),
        Validity::Valid => Ok(()),
    }
}

/// Whether a thumbprint may replace the failed verification, which Go allows for an unknown authority and a wrong name.
/// rustls has more error variants for these cases; `Other` wraps webpki errors such as `CaUsedAsEndEntity`.
fn pin_may_excuse(failure: &CertificateError) -> bool {
    #[allow(deprecated, reason = "older verifiers still return the short form")]
    let excusable = matches!(
        failure,
        CertificateError::UnknownIssuer
            | CertificateError::NotValidForName
            | CertificateError::NotValidForNameContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithm
            | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. }
            // Occurs if the issuer got a new key under its old name. Go reports an unknown authority then.
            | CertificateError::BadSignature
            | CertificateError::Other(_)
    );
    excusable
}
