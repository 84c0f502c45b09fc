//! Reads the files with credentials that a kubeconfig names again when they change, as client-go
//! (`transport/cert_rotation.go`): the client is built anew, so that no connection with the old certificate is used again.
//! Requests that are under way end on the old one.

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

use super::{expiry, transport};
use crate::runtime::logging::chain;

/// The pause between two looks at the files; a request begins each.
const LOOK_PERIOD: Duration = Duration::from_secs(5);

/// What the files hold, so that a change shows; not what they hold, which is secret.
type Prints = Vec<Option<[u8; 32]>>;

/// A client whose credentials are in files.
pub(super) struct Rotating {
    config: Config,
    files: Vec<PathBuf>,
    prints: Prints,
    /// What was told to be unfit.
    refused: Option<Prints>,
    client: Client,
    looked: Instant,
}

impl Rotating {
    /// A client on `config`; none where its credentials are not in files.
    pub(super) fn new(config: &Config) -> Option<Result<Self, kube::Error>> {
        let files = files_of(&config.auth_info);
        if files.is_empty() {
            return None;
        }
        let prints = prints(&files);
        let client = transport(config.clone()).map(|builder| builder.build());
        let made =
            |client| Self { config: config.clone(), files, prints, refused: None, client, looked: Instant::now() };
        Some(client.map(made))
    }

    fn look(&mut self) {
        if self.looked.elapsed() < LOOK_PERIOD {
            return;
        }
        self.looked = Instant::now();
        let prints = prints(&self.files);
        if prints == self.prints || self.refused.as_ref() == Some(&prints) {
            return;
        }
        match transport(self.config.clone()) {
            Ok(builder) => {
                self.client = builder.build();
                (self.prints, self.refused) = (prints, None);
                expiry::show(&self.config);
                tracing::info!(server = %self.config.cluster_url, "the credentials for the API server have changed");
            }
            Err(error) => {
                let why = chain(&error);
                tracing::warn!("the changed credentials for the API server cannot be used; the old ones stay: {why}");
                self.refused = Some(prints);
            }
        }
    }
}

/// Inline data takes precedence, and does not change.
fn files_of(user: &AuthInfo) -> Vec<PathBuf> {
    let AuthInfo { client_certificate_data, client_key_data, token, .. } = user;
    let files = [
        (&user.client_certificate, client_certificate_data.is_some()),
        (&user.client_key, client_key_data.is_some()),
        (&user.token_file, token.is_some()),
    ];
    files.into_iter().filter(|(_, is_inline)| !is_inline).filter_map(|(file, _)| Some(file.as_ref()?.into())).collect()
}

fn prints(files: &[PathBuf]) -> Prints {
    let print = |file: &PathBuf| Some(Sha256::digest(&*Zeroizing::new(std::fs::read(file).ok()?)).into());
    files.iter().map(print).collect()
}

impl Service<Request<Body>> for Rotating {
    type Response = Response<Box<DynBody>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The client waits for its own turn.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.look();
        let client = self.client.clone();
        async move {
            let response = client.send(request).await?;
            Ok(response.map(|body| Box::new(body.map_err(BoxError::from)) as Box<DynBody>))
        }
        .boxed()
    }
}
