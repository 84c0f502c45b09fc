//! The message for a refused certificate: the error, the presented chain, and the remedy.

use std::fmt::Write as _;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, Error as TlsError, OtherError};
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};
use x509_parser::public_key::PublicKey;

use super::thumbprint::Thumbprint;

/// Maximum number of certificates that the message describes.
const DESCRIBED: usize = 4;

/// The shortest RSA key that the TLS library accepts for signatures, in bits.
const SHORTEST_RSA_KEY: usize = 2048;

/// The refusal of a certificate, passed to the caller inside the TLS error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct CertificateRefusal {
    /// The error, the presented chain, and the remedy.
    text: String,
    /// Whether the certificate belongs to a proxy and not to the server.
    pub is_of_proxy: bool,
    /// The SHA-256 thumbprint of the server's certificate, if configuring this thumbprint is a remedy.
    pub thumbprint: Option<Thumbprint>,
}

pub(super) enum CertificateOwner {
    /// A vCenter, for which thumbprints can be configured. `target` is its address for `govc`.
    Vcenter {
        /// `host` or `host:port`.
        target: String,
    },
    /// A server for which no thumbprints can be configured.
    Server { target: String },
    /// A proxy between this process and the server.
    Proxy,
}

pub(super) struct Complaint {
    problem: String,
    remedy: Remedy,
}

#[derive(Clone, Copy)]
enum Remedy {
    Trust,
    Rename,
    Renew,
    Clocks,
}

impl Complaint {
    /// Adds to the message that the configured thumbprints do not match.
    pub(super) fn and_not_pinned(mut self, configured: &[Thumbprint]) -> Self {
        let configured: Vec<String> = configured.iter().map(Thumbprint::to_string).collect();
        let _ = write!(self.problem, ", and its thumbprint is not the configured {}", configured.join(" or "));
        self
    }

    pub(super) fn into_error(
        self,
        peer: &CertificateOwner,
        name: &str,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
    ) -> TlsError {
        let whose = match peer {
            CertificateOwner::Vcenter { .. } | CertificateOwner::Server { .. } => "",
            CertificateOwner::Proxy => "the proxy ",
        };
        let mut text = format!("the certificate of {whose}{name} is not accepted: {}; presented:", self.problem);
        for (position, certificate) in std::iter::once(leaf).chain(intermediates).take(DESCRIBED).enumerate() {
            let _ = write!(text, " [{position}] {};", describe_certificate(certificate));
        }
        let _ = write!(text, " {}", self.remedy.text(peer));
        let refusal = CertificateRefusal {
            text,
            is_of_proxy: matches!(peer, CertificateOwner::Proxy),
            thumbprint: self.remedy.is_thumbprint(peer).then(|| Thumbprint::sha256_of(leaf)),
        };
        TlsError::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(refusal))))
    }
}

impl Remedy {
    /// Whether the certificate would be accepted if its thumbprint were configured.
    fn is_thumbprint(self, peer: &CertificateOwner) -> bool {
        matches!((self, peer), (Remedy::Trust | Remedy::Rename, CertificateOwner::Vcenter { .. }))
    }

    fn text(self, peer: &CertificateOwner) -> String {
        match (self, peer) {
            (Remedy::Renew, _) => {
                "the certificate has to be replaced; neither a CA file nor a thumbprint makes up for this".to_owned()
            }
            (Remedy::Clocks, _) => {
                "compare the clocks of this host and of the server; neither a CA file nor a thumbprint makes up for \
                 this"
                    .to_owned()
            }
            (_, CertificateOwner::Proxy) => {
                "put its authority's certificate into the CA file; a thumbprint is for vCenter's own certificate"
                    .to_owned()
            }
            (Remedy::Trust, CertificateOwner::Server { target }) => format!(
                "compare the thumbprints with what `openssl s_client -connect {target}` shows on a host with a \
                 trusted path to the server; if they agree, put its authority's certificate into the CA file"
            ),
            (Remedy::Rename, CertificateOwner::Server { .. }) => {
                "name the server as in its certificate, or give it a certificate with this name".to_owned()
            }
            (Remedy::Trust, CertificateOwner::Vcenter { target }) => format!(
                "compare the thumbprints with what `govc about.cert -u {target} -k -thumbprint` prints on a host \
                 with a trusted path to vCenter; if they agree, put its authority's certificate into the CA file, or \
                 configure one of the thumbprints"
            ),
            (Remedy::Rename, CertificateOwner::Vcenter { target }) => format!(
                "name the server as in its certificate; or compare the thumbprints with what `govc about.cert -u \
                 {target} -k -thumbprint` prints on a host with a trusted path to vCenter, and configure one of them"
            ),
        }
    }
}

pub(super) fn complaint(failure: &CertificateError) -> Complaint {
    let (what, remedy) = match failure {
        CertificateError::UnknownIssuer => ("no trusted authority issued it".to_owned(), Remedy::Trust),
        CertificateError::BadSignature => (
            "a trusted authority has its issuer's name, but did not sign it (was the authority rebuilt?)".to_owned(),
            Remedy::Trust,
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("it has expired".to_owned(), Remedy::Renew)
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("it is not valid yet".to_owned(), Remedy::Clocks)
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            ("it is not a certificate for servers".to_owned(), Remedy::Renew)
        }
        CertificateError::NotValidForName => ("it was issued for other names".to_owned(), Remedy::Rename),
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            ("it names no host (a subject alternative name is needed)".to_owned(), Remedy::Rename)
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: Vec<String> = presented.iter().take(8).map(|name| printable(name)).collect();
            (format!("it was issued for other names ({})", names.join(", ")), Remedy::Rename)
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => (
            "it, or a certificate above it, is signed in a way that is no longer trusted, such as SHA-1".to_owned(),
            Remedy::Trust,
        ),
        other => (printable(&other.to_string()), Remedy::Trust),
    };
    Complaint { problem: what, remedy }
}

/// Returns a complaint if the certificate is not of X.509 version 3 or its RSA key is too short. The TLS library cannot
/// use such a certificate under any configuration.
pub(super) fn unusable(leaf: &CertificateDer<'_>) -> Option<Complaint> {
    let (_, parsed) = X509Certificate::from_der(leaf).ok()?;
    let what = match parsed.public_key().parsed() {
        _ if parsed.version() != X509Version::V3 => {
            format!("it is of X.509 version {}; only version 3 can be used", parsed.version().0.saturating_add(1))
        }
        Ok(PublicKey::RSA(key)) if key.key_size() < SHORTEST_RSA_KEY => {
            format!("its RSA key has {} bits; at least {SHORTEST_RSA_KEY} are needed", key.key_size())
        }
        _ => return None,
    };
    Some(Complaint { problem: what, remedy: Remedy::Renew })
}

fn describe_certificate(certificate: &CertificateDer<'_>) -> String {
    let prints = format!("SHA-256 {}, SHA-1 {}", Thumbprint::sha256_of(certificate), Thumbprint::sha1_of(certificate));
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return format!("an unreadable certificate, {prints}");
    };
    let validity = parsed.validity();
    format!(
        "subject {}, issuer {}, valid {} to {}, {prints}",
        printable(&parsed.subject().to_string()),
        printable(&parsed.issuer().to_string()),
        time(validity.not_before.timestamp()),
        time(validity.not_after.timestamp()),
    )
}

/// Removes control characters from a text of a certificate, and truncates the text to 200 characters.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(200).collect()
}

fn time(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| "an unknown time".to_owned(), |time| time.to_string())
}
