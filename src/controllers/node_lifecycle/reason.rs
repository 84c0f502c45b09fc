//! Reasons why a Node is not deleted, in addition to the shared reasons.

pub use crate::controllers::reason::*;

use crate::cloud::reason::reasons;

/// Whether a Node that this reason blocks is as it should be: the grace period runs, an operator has paused deletions,
/// or a setting keeps the Node. The alert `VsphereCcmDeletionsHeld` does not count the pause and the settings either.
pub fn is_expected(reason: crate::cloud::Reason) -> bool {
    [DeletionGracePeriod, DeletionPaused, DeletionDryRun, DeletionOff].contains(&reason)
}

reasons! {
    /// Not deleted yet: the grace period has not ended.
    DeletionGracePeriod,
    /// Not deleted yet: the deletion limit is used up.
    DeletionLimitReached,
    /// Not deleted yet: many VMs are absent at the same time.
    DeletionMassHold,
    /// Not deleted: a majority of the control plane would be lost.
    DeletionControlPlaneMajority,
    /// Not deleted: an operator has paused deletions.
    DeletionPaused,
    /// Not deleted: `--node-deletion=dry-run`.
    DeletionDryRun,
    /// Not deleted: `--node-deletion=off`, or `SKIP_NODE_DELETION`.
    DeletionOff,
    /// The API server refused to delete the Node.
    DeletionRefused,
}
