//! Starts the server for probes and metrics.

use super::Error;
use super::parts::Parts;
use super::stages::{Stage, Stages};
use crate::kubernetes::token_review::TokenReviews;
use crate::runtime::admin::{Admin, self_made_certificate, serve};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Listens on `address`, on standbys as well. A port that is taken ends the process with that as its reason.
pub async fn start(address: SocketAddr, parts: &Parts, stages: &mut Stages) -> Result<(), Error> {
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(%address, "serving probes and metrics");
    }
    let tls = self_made_certificate(&[address.ip().to_string()])?;
    let authenticator = Arc::new(TokenReviews::new(parts.clients.auxiliary.clone()));
    let admin =
        Admin { checks: parts.checks.clone(), metrics: parts.metrics.clone(), authenticator: Some(authenticator) };
    let stop = stages.stop_signal(Stage::Services);
    stages.spawn(Stage::Services, "admin-server", serve(listener, tls, Arc::new(admin), stop));
    Ok(())
}
