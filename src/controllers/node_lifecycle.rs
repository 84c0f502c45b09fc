//! The node-lifecycle controller (`cloud-node-lifecycle-controller`): removes Nodes whose machine is proved to be gone,
//! and says on the others that their machine is shut down.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::controllers::{Context, Unsupported};
use crate::runtime::tasks::BoxError;

/// What the flags say about this controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `--node-monitor-period`: pause between two looks at every node that is not Ready, beside the events.
    pub period: Duration,
    /// `--node-deletion`
    pub deletion: Deletion,
    /// `--node-deletion-grace`: how long a node has to be not Ready and proved absent before its Node is deleted.
    pub grace: Duration,
    /// `--node-deletion-limit`
    pub limit: Limit,
    /// `--node-deletion-mass-hold`: how long nothing is deleted when many machines are gone at once.
    pub mass_hold: Duration,
    /// `--out-of-service-after`; nothing when it is not asked for.
    pub out_of_service_after: Option<Duration>,
}

/// Whether Nodes are deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// They are.
    Enforce,
    /// It is said what would be deleted, and nothing is.
    DryRun,
    /// They are not.
    Off {
        /// The flag or variable that says so.
        because: &'static str,
    },
}

/// How many Nodes may be deleted: the larger of the two, within the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Nodes.
    pub nodes: u32,
    /// Percent of all nodes, rounded down.
    pub percent: u32,
    /// In which time the allowance is filled again from nothing.
    pub window: Duration,
}

/// The controller. [`NodeLifecycleController::run`] is its task.
pub struct NodeLifecycleController {
    context: Context,
    settings: Settings,
}

impl NodeLifecycleController {
    /// Fails when the provider has no instances.
    pub fn new(context: Context, settings: Settings) -> Result<Self, Unsupported> {
        Ok(Self { context, settings })
    }

    /// Adds this controller's series to `registry`.
    pub fn register(&self, _registry: &prometheus::Registry) -> Result<(), prometheus::Error> {
        Ok(())
    }

    /// Works whenever this process leads, until `stop`.
    pub async fn run(self, stop: CancellationToken) -> Result<(), BoxError> {
        tracing::debug!(period = ?self.settings.period, leads = self.context.leadership.is_leader(), "not built yet");
        stop.cancelled().await;
        Ok(())
    }
}
