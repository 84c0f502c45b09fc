//! Starts the node controller.

use super::Error;
use super::parts::Parts;
use super::settings::Settings;
use super::stages::{Stage, Stages};
use crate::app::registry::NODE;
use crate::cloud::CloudProvider;
use crate::controllers::node::NodeController;
use std::sync::Arc;

/// Nothing is written before this process leads.
pub fn start(
    settings: &Settings,
    parts: &Parts,
    provider: Arc<dyn CloudProvider>,
    stages: &mut Stages,
) -> Result<(), Error> {
    let controller = NodeController::new(parts.context(provider), settings.nodes.clone())?;
    controller.register(parts.metrics.registry())?;
    stages.spawn(Stage::Controllers, NODE, controller.run(stages.stop_signal(Stage::Controllers)));
    Ok(())
}
