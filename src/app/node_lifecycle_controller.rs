//! Starts the node-lifecycle controller.

use super::Error;
use super::parts::Parts;
use super::settings::Settings;
use super::stages::{Stage, Stages};
use crate::app::registry::NODE_LIFECYCLE;
use crate::cloud::CloudProvider;
use crate::controllers::node_lifecycle::{Deletion, NodeLifecycleController};
use std::sync::Arc;

/// Nothing is written before this process leads.
pub fn start(
    settings: &Settings,
    parts: &Parts,
    provider: Arc<dyn CloudProvider>,
    stages: &mut Stages,
) -> Result<(), Error> {
    let settings = settings.node_lifecycle.clone();
    match &settings.deletion {
        Deletion::Enforce => {}
        Deletion::DryRun => tracing::info!("no Node is deleted, it is only told: --node-deletion=dry-run"),
        Deletion::Off { because } => tracing::info!("no Node is deleted: {because}"),
    }
    let controller = NodeLifecycleController::new(parts.context(NODE_LIFECYCLE, provider), settings)?;
    controller.register(parts.metrics.registry())?;
    stages.spawn(Stage::Controllers, NODE_LIFECYCLE, controller.run(stages.stop_signal(Stage::Controllers)));
    Ok(())
}
