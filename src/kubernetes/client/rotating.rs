//! The kubeconfig's client certificate and private key, which are reloaded when their files change. As in client-go
//! (`transport/cert_rotation.go`), later requests use new connections, so that no connection with the old certificate
//! is reused. Requests in flight complete on the old connection.
//!
//! A token file needs no new connection: `credentials` reads the file again once a minute.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::Config;
use kube::config::AuthInfo;
use rustls::sign::CertifiedKey;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::files::read_file;
use super::identity::{self, IdentityProblem};
use super::metrics;

/// Minimum interval between two checks of the files. Requests trigger the checks.
const CHECK_PERIOD: Duration = Duration::from_secs(5);

/// Digests of the files. They show changes, and store no secret content.
type Digests = Vec<Option<[u8; 32]>>;

/// The client certificate of a kubeconfig with its private key, if there is one.
pub(super) struct ClientCertificate {
    current: Option<Arc<CertifiedKey>>,
    files: Vec<PathBuf>,
    digests: Digests,
    /// Digests of the files for which an error was last logged.
    rejected: Option<Digests>,
    last_check: Instant,
}

impl ClientCertificate {
    pub(super) fn read(config: &Config) -> Result<Self, IdentityProblem> {
        let files = files_of(&config.auth_info);
        let digests = digests(&files);
        Ok(Self { current: load(config)?, files, digests, rejected: None, last_check: Instant::now() })
    }

    /// Returns the certificate, after checking the files of `config` for a change.
    pub(super) fn current(&mut self, config: &Config) -> Option<Arc<CertifiedKey>> {
        if !self.files.is_empty() && self.last_check.elapsed() >= CHECK_PERIOD {
            self.last_check = Instant::now();
            self.check_files(config);
        }
        self.current.clone()
    }

    fn check_files(&mut self, config: &Config) {
        let digests = digests(&self.files);
        if digests == self.digests {
            return;
        }
        match load(config) {
            Ok(certificate) => {
                self.current = certificate;
                (self.digests, self.rejected) = (digests, None);
                tracing::info!(server = %config.cluster_url, "the client certificate for the API server has changed");
            }
            // Logged once per content, but retried: a file may be unreadable for another reason than its content.
            Err(problem) if self.rejected.as_ref() != Some(&digests) => {
                tracing::warn!(
                    "the changed client certificate for the API server cannot be used; the old one stays: {problem}"
                );
                self.rejected = Some(digests);
            }
            Err(_) => {}
        }
    }
}

fn load(config: &Config) -> Result<Option<Arc<CertifiedKey>>, IdentityProblem> {
    let certificate = identity::of(&config.auth_info, &read_file)?.map(Arc::new);
    if let Some(certificate) = &certificate {
        metrics::show_expiry(config, certificate);
    }
    Ok(certificate)
}

/// Returns the files to check. Inline data takes precedence over a file, and does not change.
pub(super) fn files_of(user: &AuthInfo) -> Vec<PathBuf> {
    let AuthInfo { client_certificate_data, client_key_data, .. } = user;
    let files =
        [(&user.client_certificate, client_certificate_data.is_some()), (&user.client_key, client_key_data.is_some())];
    files.into_iter().filter(|(_, is_inline)| !is_inline).filter_map(|(file, _)| Some(file.as_ref()?.into())).collect()
}

fn digests(files: &[PathBuf]) -> Digests {
    let digest = |file: &PathBuf| Some(Sha256::digest(&*Zeroizing::new(std::fs::read(file).ok()?)).into());
    files.iter().map(digest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! golden {
        ($name:literal) => {
            include_str!(concat!("../../../tests/golden/credentials/", $name))
        };
    }

    /// A problem can end although the files stay the same. Here the first try finds no key, as if it were unreadable.
    #[tokio::test(start_paused = true)]
    async fn a_changed_certificate_that_could_not_be_used_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let write = |name: &str, content: &str| std::fs::write(path(name), content).unwrap();
        write("tls.crt", golden!("rsa.crt"));
        write("tls.key", golden!("rsa.key"));
        let mut config = Config::new("https://a.example".parse().unwrap());
        config.auth_info.client_certificate = Some(path("tls.crt"));
        config.auth_info.client_key = Some(path("tls.key"));
        let mut certificate = ClientCertificate::read(&config).unwrap();
        let old = certificate.current.clone().unwrap();
        write("tls.crt", golden!("p256.crt"));
        write("tls.key", golden!("p256.key"));
        let mut unreadable = config.clone();
        unreadable.auth_info.client_key = Some(path("none"));
        for (config, is_new) in [(&unreadable, false), (&config, true)] {
            assert!(Arc::ptr_eq(&certificate.current(config).unwrap(), &old), "the files are checked every 5 s");
            tokio::time::advance(CHECK_PERIOD).await;
            assert_eq!(!Arc::ptr_eq(&certificate.current(config).unwrap(), &old), is_new);
        }
    }
}
