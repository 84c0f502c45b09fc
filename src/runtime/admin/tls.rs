//! TLS of the secure port: versions, suites, groups and client certificates.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ResolvesServerCert};
use rustls::{DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};

use super::settings::TlsRules;

/// Maximum size of a client's certificate chain, in bytes. The chain is kept as long as the connection lives.
const LARGEST_CHAIN: usize = 16 * 1024;

/// Maximum number of certificates between the client's certificate and a trusted CA. The search for a path through many
/// certificates takes long, and an unauthenticated client can send any certificates.
const MAX_INTERMEDIATES: usize = 3;

tokio::task_local! {
    /// The local address of this task's connection.
    static LOCAL_ADDRESS: IpAddr;
}

/// Runs a handshake at this local address, which selects the certificate if the client sends no server name.
pub(super) async fn at_address<T>(address: IpAddr, handshake: impl Future<Output = T>) -> T {
    LOCAL_ADDRESS.scope(address.to_canonical(), handshake).await
}

/// Returns the local address of the handshake in progress.
pub(super) fn local_address() -> Option<IpAddr> {
    LOCAL_ADDRESS.try_with(|address| *address).ok()
}

/// Builds the TLS configuration of all connections. Fails if the rules leave no usable version or suite.
///
/// Sessions are not resumed, so that the client proves the possession of its key on each connection, and closed
/// connections leave no state.
pub fn server_config(
    rules: &TlsRules,
    http2: bool,
    certificates: Arc<dyn ResolvesServerCert>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(provider(rules));
    let verifier = Arc::new(AnyHolder { provider: Arc::clone(&provider) });
    let versions: &[_] = if rules.only_13 { &[&rustls::version::TLS13] } else { rustls::DEFAULT_VERSIONS };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificates);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = match http2 {
        true => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        false => vec![b"http/1.1".to_vec()],
    };
    Ok(Arc::new(config))
}

/// Returns the rustls provider with the allowed suites and groups. As in Go, suites of TLS 1.3 are always allowed.
fn provider(rules: &TlsRules) -> CryptoProvider {
    let mut provider = ring::default_provider();
    if !rules.cipher_suites.is_empty() {
        provider.cipher_suites.retain(|suite| suite.tls13().is_some() || rules.cipher_suites.contains(&suite.suite()));
    }
    if !rules.groups.is_empty() {
        provider.kx_groups.retain(|group| rules.groups.contains(&group.name()));
    }
    provider
}

/// Verifier that requests but does not require a client certificate, and accepts any chain within the size limits. TLS
/// proves only that the client has the key. The authenticator identifies the client and checks the certificate.
#[derive(Debug)]
struct AnyHolder {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyHolder {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        if intermediates.len() > MAX_INTERMEDIATES {
            return Err(rustls::Error::General("the client's chain is too long".to_owned()));
        }
        let size = end_entity.len() + intermediates.iter().map(|certificate| certificate.len()).sum::<usize>();
        match size <= LARGEST_CHAIN {
            true => Ok(ClientCertVerified::assertion()),
            false => Err(rustls::Error::General(format!("the client's certificates have {size} bytes"))),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_taken_up_to_a_number_and_a_size() {
        let verifier = AnyHolder { provider: Arc::new(ring::default_provider()) };
        let verified = |number: usize, size: usize| {
            let others = vec![CertificateDer::from(vec![0; size]); number];
            verifier.verify_client_cert(&CertificateDer::from(vec![0; size]), &others, UnixTime::now())
        };
        assert!(verified(0, 100).is_ok() && verified(3, 100).is_ok());
        assert_eq!(verified(4, 100).unwrap_err().to_string(), "unexpected error: the client's chain is too long");
        assert!(verified(3, 4096).is_ok() && verified(3, 4097).is_err());
    }

    #[test]
    fn sessions_are_not_resumed() {
        #[derive(Debug)]
        struct NoCertificate;
        impl ResolvesServerCert for NoCertificate {
            fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<rustls::sign::CertifiedKey>> {
                None
            }
        }
        let config = server_config(&TlsRules::default(), true, Arc::new(NoCertificate)).unwrap();
        assert!(!config.session_storage.can_cache() && !config.ticketer.enabled());
        assert_eq!(config.send_tls13_tickets, 0);
    }
}
