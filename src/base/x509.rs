//! What a certificate says, where the TLS library reads fewer certificates than servers and Go clients take, such as those
//! of X.509 version 1.

use x509_parser::prelude::{FromDer as _, X509Certificate, X509Version};
use x509_parser::x509::SubjectPublicKeyInfo;

/// Where a moment lies in the time for which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Before it.
    NotYet,
    /// In it.
    Valid,
    /// After it.
    Expired,
}

/// Whether this public key (a SubjectPublicKeyInfo) is that of the certificate; `None` if one of them cannot be read.
pub fn has_public_key(certificate: &[u8], public_key: &[u8]) -> Option<bool> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let (_, key) = SubjectPublicKeyInfo::from_der(public_key).ok()?;
    Some(key.subject_public_key.data == parsed.public_key().subject_public_key.data)
}

/// Whether this certificate may issue others, as Go's `CheckSignatureFrom` decides: of version 3 it says so (CA:TRUE), and
/// its key usage, where there is one, has the signing of certificates. The TLS library asks no trusted certificate.
pub fn may_issue(certificate: &[u8]) -> bool {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return false };
    let is_authority = match parsed.basic_constraints() {
        Ok(Some(constraints)) => constraints.value.ca,
        Ok(None) => parsed.version() != X509Version::V3,
        Err(_) => false,
    };
    let may_sign = match parsed.key_usage() {
        Ok(usage) => usage.is_none_or(|usage| usage.value.key_cert_sign()),
        Err(_) => false,
    };
    is_authority && may_sign
}

/// Whether this certificate is for servers: it names no purposes, or that one is among them. `None` if it cannot be read.
pub fn is_for_servers(certificate: &[u8]) -> Option<bool> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let purposes = parsed.extended_key_usage().ok()?;
    Some(purposes.is_none_or(|purposes| purposes.value.any || purposes.value.server_auth))
}

/// The validity `at` so many seconds since 1970; `None` if the certificate cannot be read.
pub fn validity(certificate: &[u8], at: u64) -> Option<Validity> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let at = i64::try_from(at).ok()?;
    Some(match parsed.validity() {
        dates if at < dates.not_before.timestamp() => Validity::NotYet,
        dates if at > dates.not_after.timestamp() => Validity::Expired,
        _ => Validity::Valid,
    })
}
