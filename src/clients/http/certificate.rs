//! What the server's certificate says, kept from the last handshake that proved it.

use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::thumbprint::Thumbprint;

/// Facts of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Whose it is, for example `CN=vc.example.com`; at most 200 characters.
    pub subject: String,
    /// Who issued it.
    pub issuer: String,
    /// From when on it is valid.
    pub not_before: Timestamp,
    /// Until when it is valid.
    pub not_after: Timestamp,
    /// 20 bytes.
    pub sha1: Thumbprint,
    /// 32 bytes.
    pub sha256: Thumbprint,
}

impl Certificate {
    /// `None` when it is no certificate, or its times are beyond what a time can be.
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

/// What a stranger wrote into a certificate must not break a log line.
pub(super) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// The certificate of the last successful handshake of one endpoint.
#[derive(Debug, Default)]
pub(super) struct PeerCertificate(Mutex<CertificateState>);

#[derive(Debug, Default)]
struct CertificateState {
    /// Judged good, not yet proved to be the server's own.
    judged: Option<Vec<u8>>,
    proved: Option<Certificate>,
}

impl PeerCertificate {
    /// The certificate was accepted; the server has still to prove that it holds the key.
    pub(super) fn judged(&self, certificate: &CertificateDer<'_>) {
        self.0.lock().judged = Some(certificate.to_vec());
    }

    /// The server has proved that it holds the key of this certificate. One that was not judged is a proxy's.
    pub(super) fn proved(&self, certificate: &CertificateDer<'_>) {
        let mut state = self.0.lock();
        if state.judged.as_deref() == Some(certificate.as_ref()) {
            state.judged = None;
            state.proved = Certificate::read(certificate);
        }
    }

    pub(super) fn last(&self) -> Option<Certificate> {
        self.0.lock().proved.clone()
    }
}
