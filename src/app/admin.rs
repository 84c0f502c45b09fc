//! Starts the server of the secure port.

use super::parts::Parts;
use super::settings::Settings;
use super::stages::{Stage, Stages};
use super::{Error, access, pages};
use crate::runtime::admin::{self, Admin, self_made_certificate, serve};
use crate::runtime::logging::Verbosity;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Listens, on standbys as well. A port that is taken ends the process with that as its reason.
pub async fn start(
    serving: &admin::Settings,
    settings: &Settings,
    parts: &Parts,
    verbosity: Verbosity,
    stages: &mut Stages,
) -> Result<(), Error> {
    let address = serving.address;
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "serving probes and metrics");
    }
    let tls = self_made_certificate(&[address.ip().to_string()])?;
    let (authenticator, authorizer) = access::prepare(settings, parts, stages).await?;
    let admin = Admin {
        checks: parts.checks.clone(),
        metrics: parts.metrics.clone(),
        pages: pages::all(settings),
        verbosity: serving.debug.then_some(verbosity),
        authenticator,
        authorizer,
    };
    let stop = stages.stop_signal(Stage::Services);
    stages.spawn(Stage::Services, "admin-server", serve(listener, tls, Arc::new(admin), stop));
    Ok(())
}
