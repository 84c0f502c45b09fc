//! One certificate chain with its key.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::SignatureAlgorithm;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

use super::CertificateError;

/// A chain and a key that belong together.
#[derive(Debug)]
pub(super) struct Pair {
    /// What TLS needs.
    pub key: Arc<CertifiedKey>,
    /// The names and addresses that the certificate is for, lower case.
    pub names: Vec<String>,
    /// When it ends.
    pub ends: SystemTime,
    /// Whether it was made by this program, or by the Go program, without anybody's asking.
    pub is_self_made: bool,
}

/// What signs for a certificate, which decides about the cipher suites of TLS 1.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// Suites with `RSA` in their name.
    Rsa,
    /// Suites with `ECDSA` in their name.
    Ecdsa,
}

impl KeyKind {
    pub(super) fn of(key: &CertifiedKey) -> Self {
        match key.key.algorithm() {
            SignatureAlgorithm::RSA => KeyKind::Rsa,
            _ => KeyKind::Ecdsa,
        }
    }
}

impl Pair {
    /// Reads a chain (leaf first) and a key in PEM form.
    pub(super) fn parse(chain: &[u8], key: &[u8]) -> Result<Self, CertificateError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
        let chain = chain.map_err(|source| CertificateError::Pem("certificate", source))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|source| CertificateError::Pem("private key", source))?;
        let key = Arc::new(CertifiedKey::from_der(chain, key, &default_provider())?);
        let leaf = key.end_entity_cert()?;
        let (_, leaf) = X509Certificate::from_der(leaf)
            .map_err(|_| rustls::Error::InvalidCertificate(rustls::CertificateError::BadEncoding))?;
        let ends = u64::try_from(leaf.validity().not_after.timestamp()).unwrap_or_default();
        let is_self_made = is_self_made(&leaf);
        let ends = SystemTime::UNIX_EPOCH + Duration::from_secs(ends);
        let names = names(&leaf, common(leaf.subject()).to_owned());
        Ok(Self { key, names, ends, is_self_made })
    }
}

/// Whether a chain in PEM form was made as those are that nobody asked for, whatever its key is.
pub(super) fn is_chain_self_made(chain: &[u8]) -> bool {
    let Ok(leaf) = CertificateDer::from_pem_slice(chain) else { return false };
    X509Certificate::from_der(&leaf).is_ok_and(|(_, leaf)| is_self_made(&leaf))
}

fn is_self_made(leaf: &X509Certificate<'_>) -> bool {
    common(leaf.subject()).starts_with("localhost@") && common(leaf.issuer()).starts_with("localhost-ca@")
}

fn common<'a>(name: &'a X509Name<'_>) -> &'a str {
    name.iter_common_name().next().and_then(|name| name.as_str().ok()).unwrap_or_default()
}

/// The DNS names and addresses; the common name of a certificate without any.
fn names(leaf: &X509Certificate<'_>, common: String) -> Vec<String> {
    let alternative = leaf.subject_alternative_name().ok().flatten();
    let alternative = alternative.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
    let mut names: Vec<_> = alternative
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(*bytes) {
                Ok(bytes) => Some(std::net::Ipv4Addr::from(bytes).to_string()),
                Err(_) => Some(std::net::Ipv6Addr::from(<[u8; 16]>::try_from(*bytes).ok()?).to_string()),
            },
            _ => None,
        })
        .collect();
    if names.is_empty() && !common.is_empty() {
        names.push(common.to_ascii_lowercase());
    }
    names
}
