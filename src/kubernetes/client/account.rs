//! A separate service account for a controller (`--use-service-account-credentials`), and its token.
//!
//! Mirrors `pkg/clientbuilder` of `k8s.io/controller-manager`. The token is stored in memory only. Without a token,
//! writes fail: this process never uses its own identity instead.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tower::{BoxError, Service, service_fn};

use super::proof::sensitive;
use crate::base::backoff::Backoff;
use crate::base::error_chain::chain;
use crate::kubernetes::call::{CALL_LIMIT, CallError, NoToken, get_opt, limited};
use crate::kubernetes::leadership::Leadership;
use crate::runtime::tasks;

const NAMESPACE: &str = "kube-system";

/// Requested lifetime of a token, in seconds. The API server may choose another lifetime.
const EXPIRATION_SECONDS: i64 = 3600;

/// Minimum assumed lifetime of a token. A shorter computed lifetime is attributed to clock skew.
const SHORTEST_LIFE: Duration = Duration::from_secs(600);

/// Part of the lifetime after which a token is renewed, less `SLACK`.
const USED_PART: f64 = 0.8;
/// Time subtracted from `USED_PART` of the lifetime.
const SLACK: Duration = Duration::from_secs(10);

/// Maximum number of attempts in one series to fetch a token.
const ATTEMPTS: u32 = 4;
/// Pauses between the attempts of a series.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(500), LONG_PAUSE);

/// Minimum pause after a failed series of attempts. Also the minimum interval between a token and its replacement.
const LONG_PAUSE: Duration = Duration::from_secs(15);

/// Identity of a service account. Clones share the token.
#[derive(Debug, Clone)]
pub struct Account {
    name: &'static str,
    token: watch::Receiver<Option<Token>>,
    token_rejected: Arc<Notify>,
}

/// The current token, or the reason why there is none.
type Token = Result<Arc<SecretString>, NoToken>;

impl Account {
    pub(super) fn user(&self) -> String {
        format!("system:serviceaccount:{NAMESPACE}:{}", self.name)
    }

    /// Returns the `Authorization` header with the current token. Waits for the first token or error.
    async fn authorization(&self) -> Result<HeaderValue, BoxError> {
        let mut token = self.token.clone();
        let known = token.wait_for(Option::is_some).await.ok().and_then(|known| known.clone());
        let token = known.unwrap_or_else(|| {
            // The task that fetches the token has ended.
            let account = format!("{NAMESPACE}/{}", self.name);
            Err(NoToken { account, reason: "it was not requested yet".to_owned(), is_refused: false })
        })?;
        Ok(sensitive(HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))?))
    }
}

/// Task that fetches and renews the token of one account.
pub struct TokenRenewer {
    name: &'static str,
    accounts: Api<ServiceAccount>,
    namespaces: Api<Namespace>,
    /// API for creating the account. Its client writes only while this process leads, so a standby creates no account.
    make_account: Api<ServiceAccount>,
    make_namespace: Api<Namespace>,
    leadership: Leadership,
    token: watch::Sender<Option<Token>>,
    token_rejected: Arc<Notify>,
}

pub(super) fn new(name: &'static str, ask: Client, create: Client, leadership: Leadership) -> (Account, TokenRenewer) {
    let (token, receiver) = watch::channel(None);
    let refused = Arc::new(Notify::new());
    let keeper = TokenRenewer {
        name,
        accounts: Api::namespaced(ask.clone(), NAMESPACE),
        namespaces: Api::all(ask),
        make_account: Api::namespaced(create.clone(), NAMESPACE),
        make_namespace: Api::all(create),
        leadership,
        token,
        token_rejected: refused.clone(),
    };
    (Account { name, token: receiver, token_rejected: refused }, keeper)
}

fn renew_after(life: Duration) -> Duration {
    life.max(SHORTEST_LIFE).mul_f64(USED_PART).saturating_sub(SLACK)
}

impl TokenRenewer {
    /// Fetches a token and renews it forever. If a renewal fails, the current token stays.
    pub async fn run(self) -> Result<(), tasks::BoxError> {
        let mut is_told = false;
        loop {
            let began = Instant::now();
            let next = match self.fetch_patiently().await {
                Ok((token, life)) => {
                    is_told = false;
                    self.token.send_replace(Some(Ok(Arc::new(token))));
                    began + renew_after(life)
                }
                // Only the leader creates a missing account, so a standby waits. The first write of a new leader waits
                // for the token.
                Err(error) if error.is_not_leader() => {
                    self.leadership.wait_until_leader().await;
                    continue;
                }
                Err(error) => {
                    if !is_told {
                        self.log_failure(&error);
                        is_told = true;
                    }
                    self.fail(&error);
                    Instant::now() + LONG_PAUSE.mul_f64(1.0 + 0.2 * fastrand::f64())
                }
            };
            let refused = async {
                self.token_rejected.notified().await;
                tokio::time::sleep_until(began + LONG_PAUSE).await;
            };
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                () = refused => {}
            }
        }
    }

    /// Logs the failure and its remedy.
    fn log_failure(&self, error: &CallError) {
        let (name, reason) = (self.name, chain(error));
        match error.is_forbidden() {
            true => tracing::error!(
                "--use-service-account-credentials: no token for the service account {NAMESPACE}/{name}, and its \
                 controllers do not write: {reason}; grant this process get and create on serviceaccounts and create on \
                 serviceaccounts/token in {NAMESPACE}, or turn the flag off"
            ),
            false => tracing::warn!("no token for the service account {NAMESPACE}/{name}: {reason}; it is tried again"),
        }
    }

    fn fail(&self, error: &CallError) {
        let account = format!("{NAMESPACE}/{}", self.name);
        let failed = NoToken { account, reason: chain(error), is_refused: error.is_refusal() };
        self.token.send_modify(|token| {
            // The current token may still be valid although its renewal failed.
            if !matches!(token, Some(Ok(_))) {
                *token = Some(Err(failed));
            }
        });
    }

    async fn fetch_patiently(&self) -> Result<(SecretString, Duration), CallError> {
        for failures in 1..ATTEMPTS {
            match self.fetch().await {
                // A retry within a second does not help if a permission or leadership is missing.
                Err(error) if !error.is_forbidden() && !error.is_not_leader() => {
                    tracing::debug!("{}", chain(&error));
                    tokio::time::sleep(BACKOFF.pause(failures, 0.0)).await;
                }
                outcome => return outcome,
            }
        }
        self.fetch().await
    }

    async fn fetch(&self) -> Result<(SecretString, Duration), CallError> {
        self.ensure_account().await?;
        let what = format!("create a token of the service account {NAMESPACE}/{}", self.name);
        let spec = TokenRequestSpec { expiration_seconds: Some(EXPIRATION_SECONDS), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let parameters = PostParams::default();
        let call = self.accounts.create_token_request(self.name, &parameters, &request);
        // Without a status, the token is empty. The API server rejects an empty token, and then a new token is fetched.
        let (token, life) = match limited(&what, CALL_LIMIT, call).await?.status {
            Some(status) => (status.token, status.expiration_timestamp.0.duration_since(Timestamp::now())),
            None => Default::default(),
        };
        // If the local clock is behind, the computed lifetime exceeds the requested lifetime.
        let most = Duration::from_secs(EXPIRATION_SECONDS.unsigned_abs());
        Ok((SecretString::from(token), Duration::try_from(life).unwrap_or_default().min(most)))
    }

    async fn ensure_account(&self) -> Result<(), CallError> {
        let what = format!("get service account {NAMESPACE}/{}", self.name);
        if get_opt(&what, CALL_LIMIT, &self.accounts, self.name).await?.is_some() {
            return Ok(());
        }
        self.ensure_namespace().await;
        let metadata = ObjectMeta { name: Some(self.name.to_owned()), ..ObjectMeta::default() };
        let account = ServiceAccount { metadata, ..ServiceAccount::default() };
        let create = format!("create service account {NAMESPACE}/{}", self.name);
        let parameters = PostParams::default();
        match limited(&create, CALL_LIMIT, self.make_account.create(&parameters, &account)).await {
            // Another client has created the account meanwhile.
            Err(error) if error.is_conflict() => {
                limited(&what, CALL_LIMIT, self.accounts.get(self.name)).await.map(drop)
            }
            answer => answer.map(drop),
        }
    }

    /// Creates the namespace if it is missing. Ignores a failure, because the creation of the account then fails, too.
    async fn ensure_namespace(&self) {
        if let Ok(None) = get_opt("get the namespace", CALL_LIMIT, &self.namespaces, NAMESPACE).await {
            let metadata = ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() };
            let namespace = Namespace { metadata, ..Namespace::default() };
            let parameters = PostParams::default();
            let call = self.make_namespace.create(&parameters, &namespace);
            if let Err(error) = limited("create the namespace", CALL_LIMIT, call).await {
                tracing::debug!("{}", chain(&error));
            }
        }
    }
}

/// Returns a service that sends requests with the current token through `client`. Each caller has its own time limit
/// for the first token.
pub(super) fn service(
    account: Account,
    client: Client,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = BoxError, Future: Send> + Send {
    service_fn(move |mut request: Request<Body>| {
        let account = account.clone();
        let client = client.clone();
        async move {
            let header = account.authorization().await?;
            request.headers_mut().insert(AUTHORIZATION, header);
            let answer = client.send(request).await.map_err(|error| match error {
                // Without the library's wrapping, as the outer client wraps the error again.
                kube::Error::Service(source) => source,
                error => error.into(),
            })?;
            if answer.status() == StatusCode::UNAUTHORIZED {
                // A new token may help: the account may have been recreated, or the API server's signing key may have
                // changed.
                account.token_rejected.notify_one();
            }
            Ok(answer)
        }
    })
}
