//! Certificate authorities for tests.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;

pub(super) struct Authority {
    /// Certificate of the authority, as PEM.
    pub(super) pem: String,
    /// Certificate of the authority, as DER.
    pub(super) certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let (parameters, key) = (authority(name), KeyPair::generate().unwrap());
        let certificate = parameters.self_signed(&key).unwrap();
        Self { pem: certificate.pem(), certificate: certificate.into(), issuer: Issuer::new(parameters, key) }
    }

    pub(super) fn intermediate(&self, name: &str) -> Self {
        let (parameters, key) = (authority(name), KeyPair::generate().unwrap());
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        Self { pem: certificate.pem(), certificate: certificate.into(), issuer: Issuer::new(parameters, key) }
    }

    pub(super) fn sign(&self, parameters: &CertificateParams) -> CertificateDer<'static> {
        self.pair(parameters).0
    }

    /// Signs a new certificate. Returns it with its key.
    pub(super) fn pair(&self, parameters: &CertificateParams) -> (CertificateDer<'static>, KeyPair) {
        let key = KeyPair::generate().unwrap();
        (parameters.signed_by(&key, &self.issuer).unwrap().into(), key)
    }
}

fn authority(name: &str) -> CertificateParams {
    let mut parameters = named(name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    parameters
}

/// Returns the parameters of a client certificate with at most two organisations. An empty `name` means no common
/// name.
pub(super) fn client(name: &str, organisations: &[&str]) -> CertificateParams {
    let mut parameters = named(name);
    // The library replaces an entry of the same kind, so the second organisation is given by its OID.
    let kinds = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
    for (kind, organisation) in kinds.into_iter().zip(organisations) {
        parameters.distinguished_name.push(kind, *organisation);
    }
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    parameters
}

fn named(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    if !name.is_empty() {
        parameters.distinguished_name.push(DnType::CommonName, name);
    }
    parameters
}
