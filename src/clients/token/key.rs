//! A certificate and the RSA key that belongs to it, read from PEM.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use secrecy::{ExposeSecret, SecretString};
use x509_parser::oid_registry::OID_PKCS1_RSAENCRYPTION;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

/// Why a certificate and key cannot be used. Holds nothing of either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// There is no certificate in the text.
    #[error("there is no CERTIFICATE block in the certificate's PEM text")]
    NoCertificate,
    /// The certificate cannot be read.
    #[error("the first certificate of the PEM text cannot be read")]
    BadCertificate,
    /// There is no key in the text.
    #[error("there is no PRIVATE KEY block in the key's PEM text")]
    NoKey,
    /// The key needs a passphrase.
    #[error("the private key is encrypted; expected one without a passphrase")]
    Encrypted,
    /// The certificate's key is of another kind.
    #[error("the certificate's key is no RSA key; vCenter's token service needs an RSA key")]
    NotRsa,
    /// The key is broken, or of another kind or length.
    #[error("the private key cannot be used: expected an RSA key of 2048 to 4096 bits in PKCS#1 or PKCS#8 form")]
    BadKey,
    /// The key is not the certificate's.
    #[error("the private key does not belong to the certificate")]
    Mismatch,
    /// The library could not sign.
    #[error("the private key could not make a signature")]
    Unsigned,
}

/// A certificate and its RSA key. Prints neither.
pub struct HolderKey {
    certificate: Vec<u8>,
    pair: RsaKeyPair,
}

impl HolderKey {
    /// Reads a pair: of the certificates the first one counts, as in the Go program; the key is PKCS#1 or PKCS#8.
    ///
    /// # Errors
    /// When there is none, it is of another kind, or the two do not belong together.
    pub fn from_pem(certificate: &str, key: &SecretString) -> Result<Self, KeyError> {
        let certificate = block(certificate, |label| label == "CERTIFICATE")
            .ok_or(KeyError::NoCertificate)?
            .der()
            .ok_or(KeyError::BadCertificate)?
            .to_vec();
        let public = rsa_public_key(&certificate)?;
        let block = block(key.expose_secret(), |label| label.ends_with("PRIVATE KEY")).ok_or(KeyError::NoKey)?;
        if block.is_encrypted() {
            return Err(KeyError::Encrypted);
        }
        let der = block.der().ok_or(KeyError::BadKey)?;
        // Labels are often wrong, so both forms are tried whatever it says.
        let pair =
            RsaKeyPair::from_pkcs8(&der).or_else(|_| RsaKeyPair::from_der(&der)).map_err(|_| KeyError::BadKey)?;
        if pair.public().as_ref() != public {
            return Err(KeyError::Mismatch);
        }
        Ok(Self { certificate, pair })
    }

    /// The certificate in DER.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// RSA PKCS#1 v1.5 over SHA-256, in base64.
    pub(in crate::clients) fn sign(&self, message: &[u8]) -> Result<String, KeyError> {
        let mut signature = vec![0; self.pair.public().modulus_len()];
        let signed = self.pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature);
        signed.map_err(|_| KeyError::Unsigned)?;
        Ok(STANDARD.encode(signature))
    }
}

impl fmt::Debug for HolderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HolderKey").finish_non_exhaustive()
    }
}

/// The `RSAPublicKey` of a certificate.
fn rsa_public_key(certificate: &[u8]) -> Result<Vec<u8>, KeyError> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| KeyError::BadCertificate)?;
    let info = parsed.public_key();
    if info.algorithm.algorithm != OID_PKCS1_RSAENCRYPTION {
        return Err(KeyError::NotRsa);
    }
    Ok(info.subject_public_key.data.to_vec())
}

/// What stands between the lines `BEGIN` and `END` of one PEM block.
struct Block<'a> {
    label: &'a str,
    text: &'a str,
}

/// The first block with such a label.
fn block(pem: &str, is_wanted: impl Fn(&str) -> bool) -> Option<Block<'_>> {
    let mut rest = pem;
    while let Some((_, begun)) = rest.split_once("-----BEGIN ") {
        let (label, after) = begun.split_once("-----")?;
        let (text, after) = after.split_once(&format!("-----END {label}-----"))?;
        if is_wanted(label) {
            return Some(Block { label, text });
        }
        rest = after;
    }
    None
}

impl Block<'_> {
    /// A passphrase protects it, in the PKCS#8 or in the older form.
    fn is_encrypted(&self) -> bool {
        self.label.starts_with("ENCRYPTED ") || self.text.contains("Proc-Type")
    }

    fn der(&self) -> Option<Zeroizing<Vec<u8>>> {
        let mut packed = Zeroizing::new(String::with_capacity(self.text.len()));
        packed.extend(self.text.chars().filter(|char| !char.is_ascii_whitespace()));
        STANDARD.decode(packed.as_bytes()).ok().map(Zeroizing::new)
    }
}

#[cfg(test)]
mod tests;
