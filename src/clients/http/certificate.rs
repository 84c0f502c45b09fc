//! The server's certificate of the last handshake in which the server proved that it has the private key.

use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::thumbprint::Thumbprint;

/// Fields of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The subject, for example `CN=vc.example.com`; at most 200 characters.
    pub subject: String,
    /// The issuer; at most 200 characters.
    pub issuer: String,
    /// Start of the validity period.
    pub not_before: Timestamp,
    /// End of the validity period.
    pub not_after: Timestamp,
    /// The SHA-1 thumbprint.
    pub sha1: Thumbprint,
    /// The SHA-256 thumbprint.
    pub sha256: Thumbprint,
}

impl Certificate {
    /// Parses a certificate in DER; `None` if it is malformed or its times are out of range.
    pub(super) fn read(der: &[u8]) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        Some(Self {
            subject: printable(&parsed.subject().to_string()),
            issuer: printable(&parsed.issuer().to_string()),
            not_before: Timestamp::from_second(parsed.validity().not_before.timestamp()).ok()?,
            not_after: Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()?,
            sha1: Thumbprint::sha1_of(der),
            sha256: Thumbprint::sha256_of(der),
        })
    }
}

/// Removes control characters from a text of a certificate, and truncates the text to 200 characters.
pub(super) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

#[derive(Debug, Default)]
pub(super) struct PeerCertificate(Mutex<CertificateState>);

#[derive(Debug, Default)]
struct CertificateState {
    /// The last accepted certificate, until the server proves that it has the private key.
    accepted: Option<Vec<u8>>,
    key_proved: Option<Certificate>,
}

impl PeerCertificate {
    /// Records that the verifier accepted this certificate.
    pub(super) fn set_checked(&self, certificate: &CertificateDer<'_>) {
        self.0.lock().accepted = Some(certificate.to_vec());
    }

    /// Records that the server has the private key of this certificate. Ignores every certificate except the last
    /// accepted one.
    pub(super) fn proved(&self, certificate: &CertificateDer<'_>) {
        let mut state = self.0.lock();
        if state.accepted.as_deref() == Some(certificate.as_ref()) {
            state.accepted = None;
            state.key_proved = Certificate::read(certificate);
        }
    }

    pub(super) fn last(&self) -> Option<Certificate> {
        self.0.lock().key_proved.clone()
    }
}
