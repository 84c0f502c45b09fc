//! Pure: the reasons why a Node is not deleted now, with their messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cloud::Reason;
use crate::controllers::node_lifecycle::deletion_pause::DeletionPause;
use crate::controllers::node_lifecycle::reason;

/// The reason why a Node is not deleted now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldReason {
    /// The VM has not been absent for long enough.
    Grace {
        /// The end of the grace period.
        until: Instant,
    },
    /// The provider has not answered about all other Nodes yet, so many VMs may be absent.
    Counting {
        /// Number of Nodes with `Ready=Unknown` whose VM the provider has not checked since the VM of this Node became
        /// absent.
        unanswered: usize,
    },
    /// A majority of the control plane would be lost.
    ControlPlane {
        /// Number of control plane Nodes that have absent VMs, are being deleted, or were deleted within the window.
        not_ready: usize,
        /// Number of all control plane Nodes, including those deleted within the window.
        all: usize,
    },
    /// Many VMs are absent at the same time.
    Mass {
        /// Number of Nodes with absent VMs, except VMs for which a previous pause has ended.
        absent: usize,
        /// Number of all Nodes of this provider.
        nodes: usize,
        /// Names of some Nodes that triggered the pause.
        names: Arc<[String]>,
        /// The end of the pause.
        until: Instant,
    },
    /// The limit on deletions is used up.
    Limit {
        /// Maximum number of deletions within the window.
        capacity: usize,
        /// Length of the window.
        window: Duration,
        /// Time of the next possible deletion; `None` if the limit is zero.
        until: Option<Instant>,
    },
    /// The API server refused the deletion.
    Refused {
        /// Time of the next attempt.
        until: Instant,
    },
    /// `--node-deletion=dry-run` has reported the deletion.
    DryRun,
    /// An operator has paused deletions.
    Paused(DeletionPause),
    /// Deletion is off.
    Off {
        /// The flag or variable that turns deletion off.
        reason: &'static str,
    },
}

impl HoldReason {
    /// Returns the reason for Events, metrics and log.
    pub fn reason(&self) -> Reason {
        match self {
            HoldReason::Grace { .. } | HoldReason::Counting { .. } => reason::DeletionGracePeriod,
            HoldReason::ControlPlane { .. } => reason::DeletionControlPlaneMajority,
            HoldReason::Mass { .. } => reason::DeletionMassHold,
            HoldReason::Limit { .. } => reason::DeletionLimitReached,
            HoldReason::Refused { .. } => reason::DeletionRefused,
            HoldReason::DryRun => reason::DeletionDryRun,
            HoldReason::Paused(_) => reason::DeletionPaused,
            HoldReason::Off { .. } => reason::DeletionOff,
        }
    }

    /// Returns the end of the hold, or `None` if time alone does not end the hold.
    pub fn until(&self) -> Option<Instant> {
        match self {
            HoldReason::Grace { until } | HoldReason::Mass { until, .. } | HoldReason::Refused { until } => {
                Some(*until)
            }
            HoldReason::Limit { until, .. } => *until,
            HoldReason::Counting { .. }
            | HoldReason::ControlPlane { .. }
            | HoldReason::DryRun
            // The end of a pause is a time of the API server's clock.
            | HoldReason::Paused(_)
            | HoldReason::Off { .. } => None,
        }
    }

    /// Returns the message for users. `until` is the time of [`HoldReason::until`] as wall clock time.
    pub fn message(&self, until: Option<&str>) -> String {
        let at = |before: &str| until.map(|until| format!("{before}{until}")).unwrap_or_default();
        match self {
            HoldReason::Grace { .. } => {
                format!(
                    "the grace period runs{}; then the Node may be deleted, unless its kubelet reports",
                    at(" until ")
                )
            }
            HoldReason::Counting { unanswered } => {
                format!("{unanswered} other nodes with Ready=Unknown have to be checked first")
            }
            HoldReason::ControlPlane { not_ready: lost, all } => format!(
                "the VMs of {lost} of {all} control-plane nodes are gone; deleting this Node would confirm the loss of \
                 quorum. Recover etcd, then delete the Node by hand"
            ),
            HoldReason::Mass { absent, nodes, names, .. } => format!(
                "the VMs of {absent} of {nodes} nodes are gone at once ({}{}); deletions begin{}. If the VMs were not deleted on \
                 purpose, set the variable CCM_NODE_DELETION=off before that",
                names.join(", "),
                if names.len() < *absent { ", …" } else { "" },
                at(" at ")
            ),
            HoldReason::Limit { capacity, window, .. } => format!(
                "the limit of {capacity} deletions in {} s is reached{}",
                window.as_secs(),
                at("; the next one is possible at ")
            ),
            HoldReason::Refused { .. } => {
                format!("the API server refused the deletion{}", at("; the next attempt is at "))
            }
            HoldReason::DryRun => "--node-deletion=dry-run; otherwise the Node would be deleted now".to_owned(),
            HoldReason::Paused(pause @ DeletionPause::Until { .. }) => {
                format!("deletions are paused {pause}; the command `deletions resume` ends the pause")
            }
            HoldReason::Paused(pause @ DeletionPause::Unreadable { .. }) => {
                format!("deletions are paused, because {pause}; the command `deletions resume` removes the annotations")
            }
            HoldReason::Off { reason: because } => format!("deletion is off: {because}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hold_says_when_it_ends_and_what_to_do() {
        let until = Instant::now();
        let (window, at) = (Duration::from_secs(600), Some("2026-11-22T03:14:20Z"));
        for (hold, at, expected) in [
            (
                HoldReason::Grace { until },
                at,
                "the grace period runs until 2026-11-22T03:14:20Z; then the Node may be deleted, unless its kubelet reports",
            ),
            (HoldReason::Counting { unanswered: 3 }, None, "3 other nodes with Ready=Unknown have to be checked first"),
            (
                HoldReason::ControlPlane { not_ready: 2, all: 3 },
                None,
                "the VMs of 2 of 3 control-plane nodes are gone; deleting this Node would confirm the loss of quorum. \
                 Recover etcd, then delete the Node by hand",
            ),
            (
                HoldReason::Mass { absent: 9, nodes: 12, names: ["n-1".to_owned(), "n-2".to_owned()].into(), until },
                at,
                "the VMs of 9 of 12 nodes are gone at once (n-1, n-2, …); deletions begin at 2026-11-22T03:14:20Z. If the VMs were not \
                 deleted on purpose, set the variable CCM_NODE_DELETION=off before that",
            ),
            (
                HoldReason::Limit { capacity: 5, window, until: Some(until) },
                at,
                "the limit of 5 deletions in 600 s is reached; the next one is possible at 2026-11-22T03:14:20Z",
            ),
            (
                HoldReason::Limit { capacity: 0, window, until: None },
                None,
                "the limit of 0 deletions in 600 s is reached",
            ),
            (
                HoldReason::Refused { until },
                at,
                "the API server refused the deletion; the next attempt is at 2026-11-22T03:14:20Z",
            ),
            (HoldReason::DryRun, None, "--node-deletion=dry-run; otherwise the Node would be deleted now"),
            (
                HoldReason::Paused(DeletionPause::Until {
                    until: "2026-11-22T03:14:20Z".parse().unwrap(),
                    cause: Some("vCenter upgrade".to_owned()),
                }),
                None,
                "deletions are paused until 2026-11-22T03:14:20Z (vCenter upgrade); the command `deletions resume` \
                 ends the pause",
            ),
            (
                HoldReason::Paused(DeletionPause::Unreadable { fault: "the annotation is odd".to_owned() }),
                None,
                "deletions are paused, because the annotation is odd; the command `deletions resume` removes the \
                 annotations",
            ),
            (
                HoldReason::Off { reason: "SKIP_NODE_DELETION is set" },
                None,
                "deletion is off: SKIP_NODE_DELETION is set",
            ),
        ] {
            assert_eq!(hold.message(at), expected);
        }
    }
}
