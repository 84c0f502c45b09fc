//! Client certificates: whether an authority vouches for one, and whom it names.

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

/// Where Kubernetes puts a user's UID into a subject.
const UID: &str = "1.3.6.1.4.1.57683.2";

/// Where Kubernetes notes by which credentials somebody is known.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// The authorities of a bundle.
type ClientVerifier = Arc<dyn ClientCertVerifier>;

/// A text is no bundle of certificates.
#[derive(Debug, thiserror::Error)]
pub enum BadBundle {
    /// There is none in it.
    #[error("there is no certificate in PEM form")]
    Empty,
    /// The PEM form is broken. Without the library's error, which quotes the line.
    #[error("the PEM form is broken")]
    Pem,
    /// One of them, with this number from 1 on, cannot be an authority's.
    #[error("the certificate with number {0} cannot be used")]
    Certificate(usize, #[source] rustls::Error),
    /// Together they cannot be used.
    #[error("the certificates cannot be used")]
    Together(#[source] rustls::server::VerifierBuilderError),
}

/// A certificate does not say who shows it.
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

/// The authorities of the moment; none at first. Cheap to clone; all clones are one.
#[derive(Clone, Default)]
pub struct ClientTrust(Arc<Mutex<Option<ClientVerifier>>>);

impl ClientTrust {
    /// Believes client certificates of the authorities in this PEM bundle from now on, and of no others.
    ///
    /// # Errors
    /// It is no bundle; all stays as it was.
    pub fn believe_clients(&self, pem: &[u8]) -> Result<(), BadBundle> {
        let believed = authorities(pem)?;
        *self.0.lock() = Some(believed);
        Ok(())
    }

    /// The user that a client's chain, leaf first, names; nobody when there is none, or there are no authorities.
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

/// The user a verified certificate is for: the common name, in the groups that are its organisations. Nobody without a
/// common name. As `x509.CommonNameUserConversion` of `kubernetes/apiserver`.
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
