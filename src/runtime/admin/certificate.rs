//! The server's certificate: made by itself, or given.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The server cannot have its certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// Making one failed.
    #[error("cannot make a certificate for {names}")]
    Make {
        /// The names it should have.
        names: String,
        /// What is wrong.
        source: rcgen::Error,
    },
    /// The given files are no certificate chain or no key.
    #[error("the {what} is not in PEM form")]
    Pem {
        /// `certificate` or `private key`.
        what: &'static str,
        /// What is wrong.
        source: rustls::pki_types::pem::Error,
    },
    /// The certificate and the key do not belong together, or cannot be used.
    #[error("the certificate cannot be used")]
    Unusable(#[from] rustls::Error),
}

/// TLS with a new self-signed certificate for `names` (host names and addresses) and the loopback ones. Nobody can
/// verify it; the kubelet's probes do not ask.
pub fn self_made_certificate(names: &[String]) -> Result<Arc<ServerConfig>, CertificateError> {
    let mut all: Vec<_> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    all.extend(names.iter().filter(|name| !name.is_empty()).cloned());
    all.sort();
    all.dedup();
    let listed = all.join(", ");
    let made =
        rcgen::generate_simple_self_signed(all).map_err(|source| CertificateError::Make { names: listed, source })?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    server_config(vec![made.cert.der().clone()], key)
}

/// TLS with the certificate chain (leaf first) and the private key of `--tls-cert-file` and `--tls-private-key-file`,
/// both in PEM form.
pub fn given_certificate(chain: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, CertificateError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.map_err(|source| CertificateError::Pem { what: "certificate", source })?;
    let key =
        PrivateKeyDer::from_pem_slice(key).map_err(|source| CertificateError::Pem { what: "private key", source })?;
    server_config(chain, key)
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, CertificateError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_pair_is_used_and_a_wrong_one_says_what_is_wrong() {
        let made = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        assert!(given_certificate(chain.as_bytes(), key.as_bytes()).is_ok());
        let cases = [
            ("no certificate", "", key.as_str(), "the certificate cannot be used"),
            ("no key", chain.as_str(), "", "the private key is not in PEM form"),
            ("another's key", chain.as_str(), &other.signing_key.serialize_pem(), "the certificate cannot be used"),
        ];
        for (case, chain, key, expected) in cases {
            let error = given_certificate(chain.as_bytes(), key.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), expected, "{case}");
        }
    }
}
