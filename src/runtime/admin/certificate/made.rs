//! A certificate that nobody asked for, like the Go program's: a CA of its own and a leaf, for a year
//! (client-go `util/cert`, `GenerateSelfSignedCertKey`).

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use zeroize::Zeroizing;

use super::CertificateError;

/// For how long it holds.
pub(super) const LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);

/// Clocks differ: it holds already this long before it is made.
const BEFORE: Duration = Duration::from_secs(3600);

/// A chain and a key in PEM form.
pub(super) struct Made {
    /// Leaf, then CA.
    pub chain: String,
    /// The key of the leaf. That of the CA is forgotten.
    pub key: Zeroizing<String>,
}

/// Makes one for the loopback names and `names` (host names and addresses).
pub(super) fn make(names: &[String], now: SystemTime) -> Result<Made, CertificateError> {
    let mut all: Vec<_> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    for name in names.iter().filter(|name| !name.is_empty()) {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    let listed = all.join(", ");
    signed(all, now).map_err(|source| CertificateError::Make(listed, source))
}

fn signed(names: Vec<String>, now: SystemTime) -> Result<Made, rcgen::Error> {
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
    Ok(Made { chain, key: Zeroizing::new(key.serialize_pem()) })
}
