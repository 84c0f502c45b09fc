//! Pure: the rules about the deletion of a Node whose VM is absent, in the order of their checks. Verdicts and
//! explanations use the same list.

use std::time::Instant;

use super::record::NodeRecord;
use crate::cloud::Reason;
use crate::controllers::node_lifecycle::reason;

/// A rule about the deletion of a Node whose VM is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionRule {
    /// Deletion is not off.
    Mode,
    /// No operator has paused deletions.
    Pause,
    /// No dry run has reported the deletion of the Node in its current state.
    DryRun,
    /// The pause after a refusal of the API server has ended.
    Refusal,
    /// The grace period has ended.
    Grace,
    /// The control plane keeps its majority.
    ControlPlane,
    /// Few VMs are absent at the same time, or the pause of deletions has ended.
    MassHold,
    /// The limit on deletions is not used up.
    Limit,
}

impl DeletionRule {
    /// All rules. The first one that holds the deletion is reported, and later ones are not checked.
    pub const ALL: [Self; 8] = [
        Self::Mode,
        Self::Pause,
        Self::DryRun,
        Self::Refusal,
        Self::Grace,
        Self::ControlPlane,
        Self::MassHold,
        Self::Limit,
    ];

    /// The rules that are checked again right before the deletion, after the deletion was charged to the allowance.
    pub(super) const REPEATED: [Self; 4] = [Self::Pause, Self::Grace, Self::ControlPlane, Self::MassHold];

    /// Returns the reason that is reported while the rule holds a deletion. [`HoldReason::Counting`] is an exception:
    /// it is reported like the grace period, because it lasts only a moment.
    ///
    /// [`HoldReason::Counting`]: super::HoldReason::Counting
    pub fn reason(self) -> Reason {
        match self {
            Self::Mode => reason::DeletionOff,
            Self::Pause => reason::DeletionPaused,
            Self::DryRun => reason::DeletionDryRun,
            Self::Refusal => reason::DeletionRefused,
            Self::Grace => reason::DeletionGracePeriod,
            Self::ControlPlane => reason::DeletionControlPlaneMajority,
            Self::MassHold => reason::DeletionMassHold,
            Self::Limit => reason::DeletionLimitReached,
        }
    }

    /// Whether the rule does not apply to a Node whose deletion a user has allowed.
    pub fn is_overridden_by_hand(self) -> bool {
        match self {
            Self::Grace | Self::MassHold | Self::Limit => true,
            Self::Mode | Self::Pause | Self::DryRun | Self::Refusal | Self::ControlPlane => false,
        }
    }
}

/// A Node with `Ready=Unknown` whose VM is absent, as the rules see it.
pub(super) struct Suspect<'a> {
    pub(super) known: &'a NodeRecord,
    /// Time since which the VM is absent.
    pub(super) since: Instant,
    /// Whether a user has allowed the deletion.
    pub(super) by_hand: bool,
}

impl<'a> Suspect<'a> {
    /// Returns `None` without a proof that the VM is absent.
    pub(super) fn of(known: &'a NodeRecord) -> Option<Self> {
        Some(Self { known, since: known.absent_since()?, by_hand: known.facts.is_allowed_by_hand })
    }
}
