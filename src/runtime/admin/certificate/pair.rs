//! One certificate chain with its key, read or created.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::SignatureAlgorithm;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;
use zeroize::Zeroizing;

use super::CertificateError;

/// Lifetime of self-made certificates.
pub(super) const LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// Self-made certificates are valid from this long before their creation, since clocks differ.
const BEFORE: Duration = Duration::from_secs(3600);

/// A chain and a key that belong together.
#[derive(Debug)]
pub(super) struct Pair {
    /// The pair as TLS needs it.
    pub key: Arc<CertifiedKey>,
    /// The names and addresses of the certificate, lower case.
    pub names: Vec<String>,
    /// When the certificate expires.
    pub ends: SystemTime,
    /// Whether this program, or the Go program, created it by default.
    pub is_self_made: bool,
}

/// The kind of key of a certificate; it restricts the cipher suites of TLS 1.2.
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
        let chain = chain.map_err(|_| CertificateError::Pem("certificate"))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| CertificateError::Pem("private key"))?;
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

/// Whether a chain in PEM form is self-made, whatever its key is.
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

/// The DNS names and addresses; without any, the common name.
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

/// A chain and a key in PEM form for servers without a configured pair, like the Go program's: a CA and a leaf, for a
/// year (client-go `util/cert`, `GenerateSelfSignedCertKey`).
pub(super) struct GeneratedPair {
    /// Leaf, then CA.
    pub chain: String,
    /// The key of the leaf. The key of the CA is discarded.
    pub key: Zeroizing<String>,
}

/// Creates a pair for the loopback names and `names` (host names and addresses).
pub(super) fn make(names: &[String], now: SystemTime) -> Result<GeneratedPair, CertificateError> {
    let mut all: Vec<_> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    for name in names.iter().filter(|name| !name.is_empty()) {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    let listed = all.join(", ");
    signed(all, now).map_err(|source| CertificateError::Make(listed, source))
}

fn signed(names: Vec<String>, now: SystemTime) -> Result<GeneratedPair, rcgen::Error> {
    let second = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let named = |name: &str| {
        let mut named = DistinguishedName::new();
        named.push(DnType::CommonName, format!("{name}@{}", second.as_secs()));
        named
    };
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let (from, until) = (epoch + second.saturating_sub(BEFORE), epoch + second + LIFETIME);

    let mut ca = CertificateParams::default();
    (ca.distinguished_name, ca.not_before, ca.not_after) = (named("localhost-ca"), from, until);
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages =
        vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment, KeyUsagePurpose::KeyCertSign];
    let ca_key = KeyPair::generate()?;
    let ca_certificate = ca.self_signed(&ca_key)?;
    let issuer = Issuer::new(ca, ca_key);

    let mut leaf = CertificateParams::new(names)?;
    (leaf.distinguished_name, leaf.not_before, leaf.not_after) = (named("localhost"), from, until);
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = leaf.signed_by(&key, &issuer)?;
    let chain = format!("{}{}", certificate.pem(), ca_certificate.pem());
    Ok(GeneratedPair { chain, key: Zeroizing::new(key.serialize_pem()) })
}
