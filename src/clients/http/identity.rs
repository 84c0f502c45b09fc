//! The client certificate with which this process authenticates to a server.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{Error as TlsError, InconsistentKeys};
use sha2::{Digest, Sha256};
use zeroize::Zeroize as _;

use crate::base::x509;

/// A client certificate with its private key. Only the TLS library's form of the key is stored. The caller must wipe
/// the PEM text. `Debug` prints only the file names.
#[derive(Clone)]
pub struct ClientIdentity {
    certified: Arc<CertifiedKey>,
    digest: [u8; 32],
    shown: String,
}

impl ClientIdentity {
    /// Parses a certificate and its private key (PKCS #8, PKCS #1 or SEC 1), both in PEM. Intermediate authorities may
    /// follow the certificate. `shown` names the files in messages.
    ///
    /// # Errors
    /// The reason that the files cannot be used, without any of their content.
    pub fn from_pem(certificate: &[u8], key: &[u8], shown: impl Into<String>) -> Result<Self, String> {
        let shown = shown.into();
        let refused = |reason: &str| format!("the client certificate {shown} cannot be used: {reason}");
        let chain = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| refused("the file of the certificate is not valid PEM"))?;
        if chain.is_empty() {
            return Err(refused("the file of the certificate holds no certificate"));
        }
        let mut key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| refused("the file of the key holds no private key that is not encrypted, in PEM"))?;
        let mut digest = Sha256::new();
        for part in chain.iter().map(AsRef::as_ref).chain([key.secret_der()]) {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        let signing = ring::sign::any_supported_type(&key);
        key.zeroize();
        let signing = signing.map_err(|_| refused("the private key is of a kind that is not supported"))?;
        let certified = CertifiedKey::new(chain, signing);
        let is_own_key = match certified.keys_match() {
            Ok(()) => true,
            Err(TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch)) => false,
            // The library cannot parse some certificates that a server may accept, such as X.509 version 1.
            Err(_) => has_key(&certified).ok_or_else(|| refused("the certificate cannot be read"))?,
        };
        if !is_own_key {
            return Err(refused("the private key is not that of the certificate"));
        }
        Ok(Self { certified: Arc::new(certified), digest: digest.finalize().into(), shown })
    }

    pub(super) fn resolver(&self) -> Arc<SingleCertAndKey> {
        Arc::new(SingleCertAndKey::from(Arc::clone(&self.certified)))
    }
}

fn has_key(certified: &CertifiedKey) -> Option<bool> {
    x509::has_public_key(certified.end_entity_cert().ok()?, &certified.key.public_key()?)
}

impl PartialEq for ClientIdentity {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for ClientIdentity {}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientIdentity").field(&self.shown).finish()
    }
}
