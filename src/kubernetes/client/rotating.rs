//! Reloads the kubeconfig's client certificate and private key when their files change. As in client-go
//! (`transport/cert_rotation.go`), the client is rebuilt, so that no connection with the old certificate is reused.
//! Requests in flight complete on the old connection.
//!
//! A token file needs no new connection: `credentials` reads the file again once a minute.

use std::path::PathBuf;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::{Body, DynBody};
use kube::config::AuthInfo;
use kube::{Client, Config};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tower::{BoxError, Service};
use zeroize::Zeroizing;

use super::{metrics, transport};
use crate::base::error_chain::chain;

/// Minimum interval between two checks of the files. Requests trigger the checks.
const CHECK_PERIOD: Duration = Duration::from_secs(5);

/// Digests of the files. They show changes, and store no secret content.
type Digests = Vec<Option<[u8; 32]>>;

/// A client whose certificate comes from files.
pub(super) struct Rotating {
    config: Config,
    files: Vec<PathBuf>,
    digests: Digests,
    /// Digests of the files for which an error was last logged.
    rejected: Option<Digests>,
    client: Client,
    last_check: Instant,
}

impl Rotating {
    /// Returns a client for `config`, or `None` if neither the client certificate nor its private key is in a file.
    pub(super) fn new(config: &Config) -> Option<Result<Self, BoxError>> {
        let files = files_of(&config.auth_info);
        if files.is_empty() {
            return None;
        }
        let digests = digests(&files);
        let client = transport::builder(config.clone()).map(|builder| builder.build());
        let made = |client| Self {
            config: config.clone(),
            files,
            digests,
            rejected: None,
            client,
            last_check: Instant::now(),
        };
        Some(client.map(made))
    }

    fn check_files(&mut self) {
        if self.last_check.elapsed() < CHECK_PERIOD {
            return;
        }
        self.last_check = Instant::now();
        let digests = digests(&self.files);
        if digests == self.digests {
            return;
        }
        match transport::builder(self.config.clone()) {
            Ok(builder) => {
                self.client = builder.build();
                (self.digests, self.rejected) = (digests, None);
                metrics::show_expiry(&self.config);
                tracing::info!(server = %self.config.cluster_url, "the client certificate for the API server has changed");
            }
            // Logged once per content, but retried: the cause may be another file, such as an unreadable token file.
            Err(error) if self.rejected.as_ref() != Some(&digests) => {
                let reason = chain(error.as_ref());
                tracing::warn!(
                    "the changed client certificate for the API server cannot be used; the old one stays: {reason}"
                );
                self.rejected = Some(digests);
            }
            Err(_) => {}
        }
    }
}

/// Returns the files to check. Inline data takes precedence over a file, and does not change.
fn files_of(user: &AuthInfo) -> Vec<PathBuf> {
    let AuthInfo { client_certificate_data, client_key_data, .. } = user;
    let files =
        [(&user.client_certificate, client_certificate_data.is_some()), (&user.client_key, client_key_data.is_some())];
    files.into_iter().filter(|(_, is_inline)| !is_inline).filter_map(|(file, _)| Some(file.as_ref()?.into())).collect()
}

fn digests(files: &[PathBuf]) -> Digests {
    let digest = |file: &PathBuf| Some(Sha256::digest(&*Zeroizing::new(std::fs::read(file).ok()?)).into());
    files.iter().map(digest).collect()
}

impl Service<Request<Body>> for Rotating {
    type Response = Response<Box<DynBody>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The inner client has its own readiness.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.check_files();
        let client = self.client.clone();
        async move {
            let response = client.send(request).await?;
            Ok(response.map(|body| Box::new(body.map_err(BoxError::from)) as Box<DynBody>))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! golden {
        ($name:literal) => {
            include_str!(concat!("../../../tests/golden/credentials/", $name))
        };
    }

    /// A problem can end although the certificate files stay the same. Here it is an empty token file.
    #[tokio::test(start_paused = true)]
    async fn a_changed_certificate_that_could_not_be_used_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let write = |name: &str, content: &str| std::fs::write(path(name), content).unwrap();
        write("tls.crt", golden!("rsa.crt"));
        write("tls.key", golden!("rsa.key"));
        write("token", "t");
        let mut config = Config::new("https://a.example".parse().unwrap());
        config.auth_info.client_certificate = Some(path("tls.crt"));
        config.auth_info.client_key = Some(path("tls.key"));
        config.auth_info.token_file = Some(path("token"));
        let mut rotating = Rotating::new(&config).unwrap().unwrap();
        let old = rotating.digests.clone();
        write("tls.crt", golden!("p256.crt"));
        write("tls.key", golden!("p256.key"));
        write("token", "");
        for (token, is_new) in [("", false), ("t", true)] {
            write("token", token);
            tokio::time::advance(CHECK_PERIOD).await;
            rotating.check_files();
            assert_eq!(rotating.digests != old, is_new, "{token:?}");
        }
    }
}
