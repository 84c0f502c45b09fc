//! Builds the node controller.

use super::Error;
use super::parts::Parts;
use super::settings::Settings;
use crate::app::registry::{NODE, Work};
use crate::cloud::{CloudProvider, node};
use crate::controllers::node::NodeController;
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
    let mut settings = settings.nodes.clone();
    // Said once; the Go program says it of every node.
    settings.policy.node_labels.retain(|key, _| {
        let is_reserved = node::is_reserved_label(key);
        if is_reserved {
            tracing::warn!(
                "--node-labels: {key} is not set on any node, because its prefix is reserved for Kubernetes"
            );
        }
        !is_reserved
    });
    let controller = NodeController::new(parts.context(NODE, provider)?, settings)?;
    controller.register(parts.metrics.registry())?;
    Ok(controller.run(stop).boxed())
}
