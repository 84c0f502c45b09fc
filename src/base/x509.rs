//! Reads certificates, including those that Go accepts but the TLS library does not parse, such as X.509 version 1.

use x509_parser::prelude::{FromDer as _, X509Certificate, X509Version};
use x509_parser::x509::SubjectPublicKeyInfo;

/// Position of a point in time relative to the validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Before the period.
    NotYet,
    /// Within the period.
    Valid,
    /// After the period.
    Expired,
}

/// Returns whether this `SubjectPublicKeyInfo` belongs to the certificate. `None` if one of the two cannot be parsed.
pub fn has_public_key(certificate: &[u8], public_key: &[u8]) -> Option<bool> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let (_, key) = SubjectPublicKeyInfo::from_der(public_key).ok()?;
    Some(key.subject_public_key.data == parsed.public_key().subject_public_key.data)
}

/// Returns true if this certificate is allowed to issue other certificates, as Go's `CheckSignatureFrom` decides.
/// Version 3 requires CA:TRUE, and a key usage, if present, must include certificate signing. Needed because the TLS
/// library does not check trusted certificates.
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

/// Returns whether the certificate has no extended key usage, or one for servers or for any purpose. `None` if the
/// certificate cannot be parsed.
pub fn is_for_servers(certificate: &[u8]) -> Option<bool> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let purposes = parsed.extended_key_usage().ok()?;
    Some(purposes.is_none_or(|purposes| purposes.value.any || purposes.value.server_auth))
}

/// Returns the validity at the Unix time `at`, in seconds. `None` if the certificate cannot be parsed.
pub fn validity(certificate: &[u8], at: u64) -> Option<Validity> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let at = i64::try_from(at).ok()?;
    Some(match parsed.validity() {
        dates if at < dates.not_before.timestamp() => Validity::NotYet,
        dates if at > dates.not_after.timestamp() => Validity::Expired,
        _ => Validity::Valid,
    })
}

/// Returns the end of the validity as Unix time in seconds. `None` if the certificate cannot be parsed.
pub fn expiry(certificate: &[u8]) -> Option<i64> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    Some(parsed.validity().not_after.timestamp())
}
