//! Authentication and authorization of the secure port, built from the settings.

mod bundle;

use super::Error;
use super::settings::Settings;
use super::shared_services::SharedServices;
use super::shutdown_order::{ShutdownStage, Stages};
use crate::kubernetes::access::{
    Authentication, ClientTrust, DelegatedAuthenticator, LookupResult, Metrics, Permissions, TokenReviews,
    follow_published,
};
use crate::kubernetes::call::CallError;
use crate::kubernetes::client;
use crate::runtime::admin::access::{Authenticator, Authorizer};
use bundle::Bundle;
use kube::Client;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The authenticator and the authorizer of the secure port.
pub type Access = (Arc<dyn Authenticator>, Arc<dyn Authorizer>);

/// Time limit for the first read of the ConfigMap with the client CAs. Afterwards, the start continues without the CAs.
const FIRST_READ_LIMIT: Duration = Duration::from_secs(3);

/// The API server forbids this process to read the ConfigMap with the client CAs.
#[derive(Debug, thiserror::Error)]
#[error(
    "client certificates at the secure port cannot be checked. Bind the user of this process to the Role \
     extension-apiserver-authentication-reader in kube-system (kubectl create rolebinding --namespace=kube-system NAME \
     --role=extension-apiserver-authentication-reader --serviceaccount=NAMESPACE:NAME), or set \
     --authentication-tolerate-lookup-failure to start without, or --authentication-skip-lookup"
)]
pub struct LookupForbidden(#[source] Arc<CallError>);

/// Builds the authenticator and the authorizer, and starts the task that keeps the trusted client CAs up to date.
pub async fn prepare(settings: &Settings, parts: &SharedServices, stages: &mut Stages) -> Result<Access, Error> {
    let metrics = Metrics::default();
    metrics.register(parts.metrics.registry())?;
    let default = &parts.api_server.clients.auxiliary;
    let asked = client_of(settings.authentication.kubeconfig.as_deref(), default).await?;
    let trust = ClientTrust::default();
    follow_client_cas(&settings.authentication, &trust, asked.clone(), stages).await?;
    let tokens = TokenReviews::new(asked, settings.authentication.cache, &metrics);
    let asked = client_of(settings.authorization.kubeconfig.as_deref(), default).await?;
    let permissions = Permissions::new(asked, &settings.authorization, metrics.clone());
    Ok((Arc::new(DelegatedAuthenticator::new(trust, tokens, metrics)), Arc::new(permissions)))
}

/// Returns the client for a kubeconfig; without a kubeconfig, `default`, the client that this process uses for its API
/// server.
///
/// # Errors
/// The kubeconfig cannot be used.
pub async fn client_of(kubeconfig: Option<&Path>, default: &Client) -> Result<Client, Error> {
    let Some(path) = kubeconfig else { return Ok(default.clone()) };
    let settings = client::Settings { kubeconfig: Some(path.to_owned()), ..client::Settings::default() };
    Ok(client::unguarded(&client::read_config(&settings).await?, client::purpose::PROCESS)?)
}

/// Reads and follows the client CAs: from the file of `--client-ca-file` if the flag is given; otherwise from the API
/// server, unless `--authentication-skip-lookup` is set.
async fn follow_client_cas(
    settings: &Authentication,
    trust: &ClientTrust,
    client: Client,
    stages: &mut Stages,
) -> Result<(), Error> {
    if let Some(path) = &settings.client_ca {
        let trust = trust.clone();
        let bundle = Bundle::read(path, move |pem| trust.trust_clients(pem)).await;
        stages.spawn_until_stop(ShutdownStage::Services, "client-ca-file", bundle.follow());
        return Ok(());
    }
    if settings.skips_lookup {
        return Ok(());
    }
    let (mut results, following) = follow_published(client, trust.clone());
    stages.spawn_until_stop(ShutdownStage::Services, "client-ca-lookup", async move { match following.await {} });
    let first =
        tokio::time::timeout(FIRST_READ_LIMIT, results.wait_for(|look| !matches!(look, LookupResult::Pending))).await;
    match first.ok().and_then(Result::ok).as_deref() {
        Some(LookupResult::Forbidden(error)) if !settings.tolerates_lookup_failure => {
            Err(LookupForbidden(Arc::clone(error)).into())
        }
        _ => Ok(()),
    }
}
