//! The server's certificate of the last handshake in which the server proved that it has the private key.

use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;

/// The certificate of a server, for status output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateStatus {
    /// Whether the certificate is verified. False with `insecure-flag`.
    pub is_verified: bool,
    /// Expiry of the certificate that the server presented last, in seconds since 1970; `None` before a handshake.
    pub expiry: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct PeerCertificate(Mutex<CertificateState>);

/// Certificates in DER.
#[derive(Debug, Default)]
struct CertificateState {
    /// The last accepted certificate, until the server proves that it has the private key.
    accepted: Option<Vec<u8>>,
    key_proved: Option<Vec<u8>>,
}

impl PeerCertificate {
    /// Records that the verifier accepted this certificate.
    pub(super) fn set_checked(&self, certificate: &CertificateDer<'_>) {
        self.0.lock().accepted = Some(certificate.to_vec());
    }

    /// Records that the server has the private key of this certificate. Ignores every certificate except the last
    /// accepted one.
    pub(super) fn set_proved(&self, certificate: &CertificateDer<'_>) {
        let mut state = self.0.lock();
        if state.accepted.as_deref() == Some(certificate.as_ref()) {
            state.key_proved = state.accepted.take();
        }
    }

    pub(super) fn proved(&self) -> Option<Vec<u8>> {
        self.0.lock().key_proved.clone()
    }
}
