//! Builds the node-lifecycle controller.

use super::Error;
use super::parts::Parts;
use super::settings::Settings;
use crate::app::registry::{NODE_LIFECYCLE, Work};
use crate::cloud::CloudProvider;
use crate::controllers::node_lifecycle::{Deletion, NodeLifecycleController};
use futures::FutureExt as _;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Nothing is written before this process leads.
pub fn build(
    settings: &Settings,
    parts: &Parts,
    provider: Arc<dyn CloudProvider>,
    stop: CancellationToken,
) -> Result<Work, Error> {
    let settings = settings.node_lifecycle.clone();
    match &settings.deletion {
        Deletion::Enforce => {}
        Deletion::DryRun => tracing::info!("no Node is deleted, it is only told: --node-deletion=dry-run"),
        Deletion::Off { because } => tracing::info!("no Node is deleted: {because}"),
    }
    let controller = NodeLifecycleController::new(parts.context(NODE_LIFECYCLE, provider)?, settings)?;
    controller.register(parts.metrics.registry())?;
    Ok(controller.run(stop).boxed())
}
