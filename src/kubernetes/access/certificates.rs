//! Client certificates: verification by an authority, and the user that a certificate names.

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

/// The OID in which Kubernetes puts a user's UID into a subject.
const UID: &str = "1.3.6.1.4.1.57683.2";

/// The extra key in which Kubernetes records the credential of a user.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// Verifies client certificates by the authorities of a bundle.
type ClientVerifier = Arc<dyn ClientCertVerifier>;

/// A text is not a valid certificate bundle.
#[derive(Debug, thiserror::Error)]
pub enum BadBundle {
    /// The text contains no certificate.
    #[error("there is no certificate in PEM form")]
    Empty,
    /// The PEM form is broken. The library's error is left out, because it quotes the line.
    #[error("the PEM form is broken")]
    Pem,
    /// The certificate with this number, counted from 1, cannot be an authority.
    #[error("the certificate with number {0} cannot be used")]
    Certificate(usize, #[source] rustls::Error),
    /// The certificates cannot be used together.
    #[error("the certificates cannot be used")]
    Together(#[source] rustls::server::VerifierBuilderError),
}

/// A client certificate that does not identify a user.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("no authority vouches for the client certificate")]
    Unverified(#[source] rustls::Error),
    #[error("the client certificate cannot be read")]
    Unreadable,
    #[error("the client certificate names several UIDs")]
    ManyUids,
}

/// Checks that a text is a bundle of CAs.
pub fn check_bundle(pem: &[u8]) -> Result<(), BadBundle> {
    authorities(pem).map(drop)
}

/// The authorities by which client certificates are verified; none at first. Cheap to clone; clones share the state.
#[derive(Clone, Default)]
pub struct ClientTrust(Arc<Mutex<Option<ClientVerifier>>>);

impl ClientTrust {
    /// Accepts client certificates of the authorities in this PEM bundle from now on, and no others.
    ///
    /// # Errors
    /// `pem` is no valid bundle; the previous authorities stay.
    pub fn trust_clients(&self, pem: &[u8]) -> Result<(), BadBundle> {
        let cache_duration = authorities(pem)?;
        *self.0.lock() = Some(cache_duration);
        Ok(())
    }

    /// The user that a client's chain, leaf first, names; `None` without a chain or without authorities.
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

/// The user of a verified certificate: the common name, with the organisations as groups; `None` without a common name.
/// As `x509.CommonNameUserConversion` of `kubernetes/apiserver`.
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
