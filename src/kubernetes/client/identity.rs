//! The client certificate of a kubeconfig and its private key, in every form that both client-go and this TLS library
//! accept. Errors name the invalid part and, if possible, a command that converts it. Errors contain no text of the
//! files.

use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::AuthInfo;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use secrecy::ExposeSecret as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::public_key::PublicKey;
use zeroize::{Zeroize as _, Zeroizing};

use super::files::ReadFile;
use crate::base::pem::{self, Block};
use crate::base::x509;

/// An error in a client certificate or its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub(super) struct IdentityProblem {
    /// Key of the invalid value in the kubeconfig or in the output of an `exec` program.
    pub(super) key: &'static str,
    reason: String,
}

/// The content of a file, or inline data, with its key in the kubeconfig.
pub(super) struct Source<'a> {
    key: &'static str,
    /// File name for the commands in messages; `FILE` for inline data.
    file: &'a str,
    pub(super) text: Zeroizing<Vec<u8>>,
}

impl Source<'_> {
    fn problem(&self, why: impl Into<String>) -> IdentityProblem {
        IdentityProblem { key: self.key, reason: why.into() }
    }

    /// Returns the problem of a missing certificate. If the text is DER or contains a block such as `TRUSTED
    /// CERTIFICATE`, the message contains a command that converts it.
    pub(super) fn no_certificate(&self, blocks: &[Block]) -> IdentityProblem {
        let reason = "there is no certificate in PEM form";
        let other = blocks.iter().find(|block| block.label.ends_with(" CERTIFICATE"));
        self.problem(match other {
            Some(block) => {
                format!("{reason}, but a {}; to convert it: openssl x509 -in {} -out NEW", block.label, self.file)
            }
            None if is_der(&self.text) => {
                format!("{reason}; to convert DER: openssl x509 -inform DER -in {} -out NEW", self.file)
            }
            None => reason.to_owned(),
        })
    }
}

/// Returns the client certificate of this user, if any. As in client-go, inline data takes precedence over a file, and
/// a private key without a certificate is ignored, unless the key cannot be read.
pub(super) fn of(user: &AuthInfo, read: ReadFile<'_>) -> Result<Option<CertifiedKey>, IdentityProblem> {
    let certificate = source(
        ["client-certificate-data", "client-certificate"],
        user.client_certificate_data.as_deref(),
        user.client_certificate.as_deref(),
        read,
    )?;
    let data = user.client_key_data.as_ref().map(|data| data.expose_secret());
    let key = source(["client-key-data", "client-key"], data, user.client_key.as_deref(), read)?;
    match (certificate, key) {
        (Some(certificate), Some(key)) => certified(&certificate, &key).map(Some),
        (Some(certificate), None) => Err(certificate.problem("its client-key is missing")),
        (None, _) => Ok(None),
    }
}

pub(super) fn is_configured(user: &AuthInfo) -> bool {
    [&user.client_certificate_data, &user.client_certificate].into_iter().flatten().any(|text| !text.is_empty())
}

/// Returns the inline data or the content of the file, if one of them is set. Inline data takes precedence.
pub(super) fn source<'a>(
    [data_key, file_key]: [&'static str; 2],
    data: Option<&str>,
    file: Option<&'a str>,
    read: ReadFile<'_>,
) -> Result<Option<Source<'a>>, IdentityProblem> {
    let problem = |key, why: String| IdentityProblem { key, reason: why };
    if let Some(data) = data.filter(|data| !data.is_empty()) {
        let text = decode_base64(data).ok_or_else(|| problem(data_key, "it is not valid base64".to_owned()))?;
        return Ok(Some(Source { key: data_key, file: "FILE", text }));
    }
    let Some(file) = file.filter(|file| !file.is_empty()) else { return Ok(None) };
    match read(Path::new(file)) {
        Ok(text) => Ok(Some(Source { key: file_key, file, text })),
        Err(error) => Err(problem(file_key, unreadable(&error))),
    }
}

pub(super) fn unreadable(error: &io::Error) -> String {
    format!("the file cannot be read: {error}")
}

/// Decodes base64. Ignores blanks and line breaks, which the tool `base64` inserts.
fn decode_base64(data: &str) -> Option<Zeroizing<Vec<u8>>> {
    let joined = Zeroizing::new(data.split_ascii_whitespace().collect::<String>());
    STANDARD.decode(&*joined).ok().map(Zeroizing::new)
}

/// Returns the client certificate of an `exec` program. Both arguments are PEM.
pub(super) fn of_program(certificate: &str, key: &str) -> Result<CertifiedKey, IdentityProblem> {
    let source = |key, text: &str| Source { key, file: "FILE", text: Zeroizing::new(text.as_bytes().to_vec()) };
    certified(&source("clientCertificateData", certificate), &source("clientKeyData", key))
}

/// Combines all certificates of `certificate` with the first private key of `key`, as `tls.X509KeyPair` of Go.
fn certified(certificate: &Source<'_>, key: &Source<'_>) -> Result<CertifiedKey, IdentityProblem> {
    let blocks = pem::blocks(&certificate.text);
    let listed = blocks.iter().filter(|block| block.label == "CERTIFICATE");
    let chain: Vec<_> = listed.map(|block| CertificateDer::from(block.content.to_vec())).collect();
    let Some(leaf) = chain.first().cloned() else { return Err(certificate.no_certificate(&blocks)) };
    let mut der = private_key(key)?;
    let signing = ring::sign::any_supported_type(&der);
    der.zeroize();
    let signing = signing.map_err(|_| key.problem(unsupported(key, &leaf)))?;
    let public = signing.public_key();
    let belongs_to = |certificate: &CertificateDer<'_>| x509::has_public_key(certificate, public.as_ref()?);
    match belongs_to(&leaf) {
        Some(true) => Ok(CertifiedKey::new(chain, signing)),
        None => Err(certificate.problem("the certificate cannot be read")),
        Some(false) => Err(match chain.iter().position(|one| belongs_to(one) == Some(true)) {
            Some(at) => key.problem(format!(
                "it is the key of certificate {} of {}: move that certificate to the first place",
                at + 1,
                certificate.key
            )),
            None => key.problem(format!("it is not the key of the certificate in {}", certificate.key)),
        }),
    }
}

/// Returns the first private key. Detects the form of the key from its content, because the label may be wrong.
fn private_key(key: &Source<'_>) -> Result<PrivateKeyDer<'static>, IdentityProblem> {
    let Some(block) = pem::blocks(&key.text).into_iter().find(|block| block.label.ends_with("PRIVATE KEY")) else {
        let reason = "there is no private key in PEM form";
        return Err(key.problem(match is_der(&key.text) {
            true => format!("{reason}; to convert DER: openssl pkey -inform DER -in {} -out NEW", key.file),
            false => reason.to_owned(),
        }));
    };
    if block.is_encrypted || block.label.starts_with("ENCRYPTED") {
        return Err(key.problem(format!("it is encrypted; to decrypt it: openssl pkey -in {} -out NEW", key.file)));
    }
    PrivateKeyDer::try_from(block.content.to_vec()).map_err(|_| key.problem("it is neither PKCS #8, PKCS #1 nor SEC 1"))
}

fn is_der(text: &[u8]) -> bool {
    text.first() == Some(&0x30)
}

/// Returns the reason why the TLS library rejects a key, as far as the certificate of the key shows it.
fn unsupported(key: &Source<'_>, certificate: &CertificateDer<'_>) -> String {
    let parsed = X509Certificate::from_der(certificate).ok();
    let kind = parsed.and_then(|(_, parsed)| match parsed.public_key().parsed().ok()? {
        PublicKey::RSA(rsa) if !(2048..=4096).contains(&rsa.key_size()) => {
            Some(format!("RSA keys of {} bits are not supported", rsa.key_size()))
        }
        PublicKey::EC(point) if !matches!(point.key_size(), 256 | 384) => {
            Some("keys on this curve are not supported".to_owned())
        }
        _ => None,
    });
    match kind {
        Some(kind) => format!(
            "{kind}; expected RSA of 2048 to 4096 bits, P-256, P-384 or Ed25519. To make one: openssl ecparam -name \
             prime256v1 -genkey -noout -out NEW"
        ),
        None => format!("it cannot be used in this form; to convert it: openssl pkey -in {} -out NEW", key.file),
    }
}
