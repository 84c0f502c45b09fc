//! Judges a server's certificate, as the Go clients do where rustls alone is stricter, and says what it saw.
//!
//! Mirrors `vim25/soap/client.go` of govmomi: a thumbprint is a fallback for an unknown issuer or an unfitting name,
//! never for an expired certificate. Signatures of the handshake are always checked.

use std::fmt;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error as TlsError, OtherError, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::certificate::{Seen, printable};
use super::thumbprint::Thumbprint;

/// At most this many certificates of a presented chain are described.
const DESCRIBED: usize = 4;

/// The verifier of one endpoint.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) host: String,
    pub(super) port: u16,
    /// The ordinary verification; `None` when there is no authority at all.
    pub(super) chain: Option<Arc<dyn ServerCertVerifier>>,
    /// The certificates of the CA file, any of which may be the server's own.
    pub(super) listed: Vec<CertificateDer<'static>>,
    pub(super) thumbprints: Vec<Thumbprint>,
    pub(super) insecure: bool,
    /// Told of the server's certificate, not of a proxy's.
    pub(super) seen: Arc<Seen>,
    pub(super) provider: Arc<CryptoProvider>,
}

/// Why a certificate was refused; travels inside the TLS error to whoever reports it.
#[derive(Debug)]
pub(super) struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let verified = self.judge(leaf, intermediates, name, ocsp, now)?;
        if self.is_own_name(name) {
            self.seen.judged(leaf);
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        let valid = rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)?;
        self.seen.proved(certificate);
        Ok(valid)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        let algorithms = &self.provider.signature_verification_algorithms;
        let valid = rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)?;
        self.seen.proved(certificate);
        Ok(valid)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl Verifier {
    fn judge(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        if self.insecure {
            return Ok(ServerCertVerified::assertion());
        }
        let verified = match &self.chain {
            Some(chain) => chain.verify_server_cert(leaf, intermediates, name, ocsp, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        };
        let failure = match verified {
            Ok(verified) => return Ok(verified),
            Err(TlsError::InvalidCertificate(failure)) => failure,
            Err(other) => return Err(other),
        };
        match self.second_chance(leaf, name, now, failure) {
            Ok(verified) => Ok(verified),
            Err(complaint) => Err(self.refusal(&complaint, leaf, intermediates, name)),
        }
    }

    /// The server's own certificate in the CA file, then the thumbprints.
    fn second_chance(
        &self,
        leaf: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
        failure: CertificateError,
    ) -> Result<ServerCertVerified, String> {
        let failure = if self.listed.iter().any(|listed| listed.as_ref() == leaf.as_ref()) {
            // rustls refuses a self-signed certificate that says it is an authority, which `openssl req -x509` makes
            // by default, even when it is the trusted one.
            match own_checks(leaf, name, now) {
                Ok(()) => return Ok(ServerCertVerified::assertion()),
                Err(failure) => failure,
            }
        } else {
            failure
        };
        let complaint = describe_failure(&failure);
        // A proxy's certificate, judged by the same configuration, is never excused by the server's thumbprint.
        if self.thumbprints.is_empty() || !self.is_own_name(name) || !pin_may_excuse(&failure) {
            return Err(complaint);
        }
        // Several defects may meet; only the worst one is reported. Expiry is never excused.
        check_validity(leaf, now).map_err(|failure| describe_failure(&failure))?;
        if self.thumbprints.iter().any(|pin| pin.matches(leaf)) {
            return Ok(ServerCertVerified::assertion());
        }
        let configured: Vec<String> = self.thumbprints.iter().map(Thumbprint::to_string).collect();
        Err(format!("{complaint}, and its thumbprint is not the configured {}", configured.join(" or ")))
    }

    fn is_own_name(&self, name: &ServerName<'_>) -> bool {
        match name {
            ServerName::IpAddress(address) => {
                self.host.parse::<IpAddr>().is_ok_and(|own| own == IpAddr::from(*address))
            }
            other => other.to_str().eq_ignore_ascii_case(self.host.trim_end_matches('.')),
        }
    }

    /// As `govc` takes it.
    fn target(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == 443 { host } else { format!("{host}:{}", self.port) }
    }

    fn refusal(
        &self,
        complaint: &str,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
    ) -> TlsError {
        let is_own = self.is_own_name(name);
        let whose = if is_own { "" } else { "the proxy " };
        let mut text = format!("the certificate of {whose}{} is not trusted: {complaint}; presented:", name.to_str());
        for (position, certificate) in std::iter::once(leaf).chain(intermediates).take(DESCRIBED).enumerate() {
            let _ = write!(text, " [{position}] {};", describe_certificate(certificate));
        }
        if is_own {
            let _ = write!(
                text,
                " compare it with `govc about.cert -u {} -k -thumbprint`, then configure the CA file that issued it or its \
                 thumbprint",
                self.target()
            );
        } else {
            text.push_str(" configure the CA file that issued it; a thumbprint is for vCenter's own certificate");
        }
        TlsError::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(Refusal(text)))))
    }
}

/// What an authority would have vouched for: the dates and the name.
fn own_checks(leaf: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), CertificateError> {
    check_validity(leaf, now)?;
    let named = ParsedCertificate::try_from(leaf).and_then(|parsed| verify_server_name(&parsed, name));
    named.map_err(|error| match error {
        TlsError::InvalidCertificate(failure) => failure,
        _ => CertificateError::BadEncoding,
    })
}

fn check_validity(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).map_err(|_| CertificateError::BadEncoding)?;
    if now < parsed.validity().not_before.timestamp() {
        return Err(CertificateError::NotValidYet);
    }
    if now > parsed.validity().not_after.timestamp() {
        return Err(CertificateError::Expired);
    }
    Ok(())
}

/// Go falls back to the thumbprint for an unknown authority and an unfitting name; what rustls says in these
/// situations has more names. `Other` wraps webpki's, `CaUsedAsEndEntity` among them.
fn pin_may_excuse(failure: &CertificateError) -> bool {
    #[allow(deprecated, reason = "older verifiers still return the short form")]
    let excusable = matches!(
        failure,
        CertificateError::UnknownIssuer
            | CertificateError::NotValidForName
            | CertificateError::NotValidForNameContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithm
            | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
            | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. }
            // The issuer was rebuilt under its old name with a new key; Go calls this an unknown authority.
            | CertificateError::BadSignature
            | CertificateError::Other(_)
    );
    excusable
}

fn describe_failure(failure: &CertificateError) -> String {
    match failure {
        CertificateError::UnknownIssuer => "no trusted authority issued it".to_owned(),
        CertificateError::BadSignature => {
            "a trusted authority has its issuer's name, but did not sign it (was the authority rebuilt?)".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired".to_owned(),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "it is not valid yet".to_owned(),
        CertificateError::NotValidForName => "it was issued for other names".to_owned(),
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            "it names no host (a subject alternative name is needed)".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: Vec<String> = presented.iter().take(8).map(|name| printable(name)).collect();
            format!("it was issued for other names ({})", names.join(", "))
        }
        CertificateError::Other(other) => printable(&other.to_string()),
        other => printable(&other.to_string()),
    }
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
        day(validity.not_before.timestamp()),
        day(validity.not_after.timestamp()),
    )
}

fn day(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| "an unknown time".to_owned(), |time| time.to_string())
}
