//! The reasons of this controller, beside those of all controllers: why a Node is not deleted.

pub use crate::controllers::reason::*;

use crate::cloud::reason::reasons;

reasons! {
    /// Not deleted yet: the grace period runs.
    DeletionGracePeriod,
    /// Not deleted yet: as many nodes as may be were deleted lately.
    DeletionLimitReached,
    /// Not deleted yet: many machines are gone at once.
    DeletionMassHold,
    /// Not deleted: a majority of the control plane would be gone.
    DeletionControlPlaneMajority,
    /// Not deleted: `--node-deletion=dry-run`.
    DeletionDryRun,
    /// Not deleted: `--node-deletion=off`, or `SKIP_NODE_DELETION`.
    DeletionOff,
    /// The API server refused to delete the Node.
    DeletionRefused,
}
