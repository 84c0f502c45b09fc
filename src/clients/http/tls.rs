//! Trust in a server's certificate: the user's settings, and the rustls configuration built from them.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::Endpoint;
use super::certificate::PeerCertificate;
use super::identity::ClientIdentity;
use super::thumbprint::Thumbprint;
use super::verifier::Verifier;
use crate::base::x509;

/// The trusted authorities for server certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TlsTrust {
    /// The authorities that the operating system trusts.
    #[default]
    System,
    /// Only the authorities of a PEM bundle. A server certificate in the bundle is trusted too.
    Ca {
        /// The bundle.
        pem: Vec<u8>,
        /// The source of the bundle, for messages.
        path: String,
    },
    /// The authorities that the operating system trusts, and those of a PEM bundle.
    SystemAnd {
        /// The bundle.
        pem: Vec<u8>,
        /// The source of the bundle, for messages.
        path: String,
    },
}

/// Settings for the trust in a server, and the client certificate of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// The trusted authorities.
    pub trust: TlsTrust,
    /// Thumbprints of certificates that are accepted even if the issuer is not trusted or the names do not match. As in
    /// govmomi, a certificate that passes verification is accepted regardless of this list.
    pub thumbprints: Vec<Thumbprint>,
    /// Whether thumbprints can be configured for this server. If so, a refusal offers a thumbprint as the remedy.
    pub can_be_pinned: bool,
    /// Whether every certificate that the TLS library can use is accepted. Handshake signatures are still checked.
    pub insecure: bool,
    /// The certificate that authenticates this process, for servers that request one.
    pub identity: Option<ClientIdentity>,
}

impl TlsSettings {
    /// Returns settings for a public service that this server relies on, such as a token service. The system's
    /// authorities and those of `trust` are trusted. The certificate is always verified, without thumbprints. The
    /// service gets no client certificate.
    pub fn of_public_service(&self) -> Self {
        let trust = match self.trust.clone() {
            TlsTrust::Ca { pem, path } if !pem.is_empty() => TlsTrust::SystemAnd { pem, path },
            other => other,
        };
        Self { trust, ..Self::default() }
    }
}

/// Builds the rustls configuration for one endpoint.
///
/// # Errors
/// A message for the user if the CA file is not valid PEM or has no certificate, or if the system's trusted
/// certificates cannot be used. With [`TlsTrust::System`] and configured thumbprints, unusable system certificates are
/// no error.
pub(super) fn client_config(
    settings: &TlsSettings,
    endpoint: &Endpoint,
    peer_certificate: Arc<PeerCertificate>,
) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let verifier = verifier(settings, endpoint, peer_certificate, &provider)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    Ok(match &settings.identity {
        Some(identity) => builder.with_client_cert_resolver(identity.resolver()),
        None => builder.with_no_client_auth(),
    })
}

fn verifier(
    settings: &TlsSettings,
    endpoint: &Endpoint,
    seen: Arc<PeerCertificate>,
    provider: &Arc<CryptoProvider>,
) -> Result<Verifier, String> {
    let (chain, listed) = match &settings.trust {
        _ if settings.insecure => (None, Vec::new()),
        TlsTrust::System => (system_verifier(provider, Vec::new(), !settings.thumbprints.is_empty())?, Vec::new()),
        TlsTrust::SystemAnd { pem, path } => {
            let listed = read_bundle(pem, path)?;
            let extra = listed.iter().filter(|listed| x509::may_issue(listed)).cloned().collect();
            (system_verifier(provider, extra, false)?, listed)
        }
        TlsTrust::Ca { pem, path } => {
            let listed = read_bundle(pem, path)?;
            (bundle_verifier(&listed, provider)?, listed)
        }
    };
    Ok(Verifier {
        endpoint: endpoint.clone(),
        chain,
        listed,
        thumbprints: settings.thumbprints.clone(),
        can_be_pinned: settings.can_be_pinned,
        insecure: settings.insecure,
        peer_certificate: seen,
        provider: Arc::clone(provider),
    })
}

/// Returns a verifier with the system's authorities and `extra`; `None` if the authorities cannot be used and `pinned`
/// is true.
fn system_verifier(
    provider: &Arc<CryptoProvider>,
    extra: Vec<CertificateDer<'static>>,
    pinned: bool,
) -> Result<Option<Arc<dyn ServerCertVerifier>>, String> {
    match rustls_platform_verifier::Verifier::new_with_extra_roots(extra, Arc::clone(provider)) {
        Ok(verifier) => Ok(Some(Arc::new(verifier))),
        Err(_) if pinned => Ok(None),
        Err(error) => Err(format!(
            "the system's trusted certificates cannot be used ({error}): configure a CA file or a thumbprint"
        )),
    }
}

fn read_bundle(pem: &[u8], path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let listed = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        // Drops the library's error, which quotes a line of the file: a user may have given a private key by mistake.
        .map_err(|_| format!("the CA file {path} is not valid PEM"))?;
    if listed.is_empty() {
        return Err(format!("the CA file {path} holds no certificate"));
    }
    Ok(listed)
}

/// Returns a verifier with the authorities of a bundle; `None` if the bundle has no usable authority.
fn bundle_verifier(
    listed: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ServerCertVerifier>>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(listed.iter().filter(|listed| x509::may_issue(listed)).cloned());
    if roots.is_empty() {
        return Ok(None);
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| error.to_string())?;
    Ok(Some(verifier))
}

#[cfg(test)]
mod tests;
