//! A certificate and its RSA key, parsed from PEM.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use secrecy::{ExposeSecret, SecretString};
use x509_parser::oid_registry::OID_PKCS1_RSAENCRYPTION;
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

/// Error of a certificate or key that cannot be used. Contains no part of the certificate or key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(&'static str);

const NO_CERTIFICATE: KeyError = KeyError("there is no CERTIFICATE block in the certificate's PEM text");
const BAD_CERTIFICATE: KeyError = KeyError("the first certificate of the PEM text cannot be read");
const NO_KEY: KeyError = KeyError("there is no PRIVATE KEY block in the key's PEM text");
const ENCRYPTED: KeyError = KeyError("the private key is encrypted; expected one without a passphrase");
const NOT_RSA: KeyError = KeyError("the certificate's key is no RSA key; vCenter's token service needs an RSA key");
const BAD_KEY: KeyError =
    KeyError("the private key cannot be used: expected an RSA key of 2048 to 4096 bits in PKCS#1 or PKCS#8 form");
const MISMATCH: KeyError = KeyError("the private key does not belong to the certificate");
const UNSIGNED: KeyError = KeyError("the private key could not make a signature");

/// A certificate and its RSA key. `Debug` prints neither.
pub struct HolderKey {
    certificate: Vec<u8>,
    pair: RsaKeyPair,
}

impl HolderKey {
    /// Parses a certificate and its key in PKCS#1 or PKCS#8. As in the Go program, the first of several certificates is
    /// used.
    ///
    /// # Errors
    /// An error if the certificate or the key is missing, unreadable or of another kind, if the key is encrypted, or if
    /// the two do not belong together.
    pub fn from_pem(certificate: &str, key: &SecretString) -> Result<Self, KeyError> {
        let certificate = block(certificate, |label| label == "CERTIFICATE")
            .ok_or(NO_CERTIFICATE)?
            .der()
            .ok_or(BAD_CERTIFICATE)?
            .to_vec();
        let public = rsa_public_key(&certificate)?;
        let block = block(key.expose_secret(), |label| label.ends_with("PRIVATE KEY")).ok_or(NO_KEY)?;
        if block.is_encrypted() {
            return Err(ENCRYPTED);
        }
        let der = block.der().ok_or(BAD_KEY)?;
        // The PEM label often names the wrong encoding, so both encodings are tried.
        let pair = RsaKeyPair::from_pkcs8(&der).or_else(|_| RsaKeyPair::from_der(&der)).map_err(|_| BAD_KEY)?;
        if pair.public().as_ref() != public {
            return Err(MISMATCH);
        }
        Ok(Self { certificate, pair })
    }

    /// Returns the certificate in DER.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// Signs with RSA PKCS#1 v1.5 over SHA-256. Returns the signature in base64.
    pub(in crate::clients) fn sign(&self, message: &[u8]) -> Result<String, KeyError> {
        let mut signature = vec![0; self.pair.public().modulus_len()];
        let signed = self.pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature);
        signed.map_err(|_| UNSIGNED)?;
        Ok(STANDARD.encode(signature))
    }
}

impl fmt::Debug for HolderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HolderKey").finish_non_exhaustive()
    }
}

fn rsa_public_key(certificate: &[u8]) -> Result<Vec<u8>, KeyError> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| BAD_CERTIFICATE)?;
    let info = parsed.public_key();
    if info.algorithm.algorithm != OID_PKCS1_RSAENCRYPTION {
        return Err(NOT_RSA);
    }
    Ok(info.subject_public_key.data.to_vec())
}

struct Block<'a> {
    label: &'a str,
    text: &'a str,
}

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
    /// Whether a passphrase protects the block, in the PKCS#8 or the older form.
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
