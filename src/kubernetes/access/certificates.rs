//! Verifies client certificates, and reads the user from a verified certificate.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::runtime::admin::access::User;

/// OID of the subject attribute that contains a user's UID.
const UID: &str = "1.3.6.1.4.1.57683.2";

/// Key of the `extra` entry that identifies the user's credential.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

type ClientVerifier = Arc<dyn ClientCertVerifier>;

/// The error for a text that is not a valid certificate bundle.
#[derive(Debug, thiserror::Error)]
pub enum BadBundle {
    /// The text contains no certificate.
    #[error("there is no certificate in PEM form")]
    Empty,
    /// The PEM encoding is invalid. The library's error is omitted, because it quotes the invalid line.
    #[error("the PEM form is broken")]
    Pem,
    /// The certificate with this number, counted from 1, cannot be used as a CA.
    #[error("the certificate with number {0} cannot be used")]
    Certificate(usize, #[source] rustls::Error),
    /// The verifier rejects the certificates as a set.
    #[error("the certificates cannot be used")]
    Together(#[source] rustls::server::VerifierBuilderError),
}

/// The error for a client certificate that does not identify a user.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("no authority vouches for the client certificate")]
    Unverified(#[source] rustls::Error),
    #[error("the client certificate cannot be read")]
    Unreadable,
    #[error("the client certificate names several UIDs")]
    ManyUids,
}

/// Checks that a text is a PEM bundle of CAs.
pub fn check_bundle(pem: &[u8]) -> Result<(), BadBundle> {
    authorities(pem).map(drop)
}

/// The CAs that verify client certificates. Empty at first. Cheap to clone; clones share the CAs.
#[derive(Clone, Default)]
pub struct ClientTrust(Arc<Mutex<Option<ClientVerifier>>>);

impl ClientTrust {
    /// Replaces the CAs by those in this PEM bundle. Fails if the bundle is invalid; the previous CAs then stay in use.
    pub fn trust_clients(&self, pem: &[u8]) -> Result<(), BadBundle> {
        let cache_duration = authorities(pem)?;
        *self.0.lock() = Some(cache_duration);
        Ok(())
    }

    /// Verifies `chain` and returns the user of its first certificate. Returns `None` if `chain` is empty, if there are
    /// no CAs, or if the certificate has no common name.
    pub(super) fn user(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<Option<User>, Refusal> {
        let Some((leaf, others)) = chain.split_first() else { return Ok(None) };
        let authorities = self.0.lock().clone();
        let Some(authorities) = authorities else { return Ok(None) };
        authorities.verify_client_cert(leaf, others, now).map_err(Refusal::Unverified)?;
        user(leaf)
    }
}

fn authorities(pem: &[u8]) -> Result<ClientVerifier, BadBundle> {
    let mut roots = RootCertStore::empty();
    for (index, certificate) in CertificateDer::pem_slice_iter(pem).enumerate() {
        let certificate = certificate.map_err(|_| BadBundle::Pem)?;
        roots.add(certificate).map_err(|source| BadBundle::Certificate(index + 1, source))?;
    }
    if roots.is_empty() {
        return Err(BadBundle::Empty);
    }
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    verifier.build().map_err(BadBundle::Together)
}

/// Returns the user of a verified certificate: the common name is the user name, and the organisations are the groups.
/// Returns `None` without a common name. Mirrors `x509.CommonNameUserConversion` of `kubernetes/apiserver`.
fn user(leaf: &CertificateDer<'_>) -> Result<Option<User>, Refusal> {
    let (_, certificate) = X509Certificate::from_der(leaf).map_err(|_| Refusal::Unreadable)?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().filter_map(|name| name.as_str().ok()).last().unwrap_or_default();
    if name.is_empty() {
        return Ok(None);
    }
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
    let mut uids = subject.iter_attributes().filter(|attribute| attribute.attr_type().to_id_string() == UID);
    let uid = uids.next().map(|uid| uid.as_str().map_err(|_| Refusal::Unreadable)).transpose()?.unwrap_or_default();
    if uids.next().is_some() {
        return Err(Refusal::ManyUids);
    }
    let credential = format!("X509SHA256={:x}", Sha256::digest(leaf));
    let extra = BTreeMap::from([(CREDENTIAL.to_owned(), vec![credential])]);
    Ok(Some(User { name: name.to_owned(), uid: uid.to_owned(), groups, extra }))
}

#[cfg(test)]
mod tests;
