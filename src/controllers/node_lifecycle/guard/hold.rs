//! Pure: why a Node is not deleted now, in words.

use std::fmt;
use std::time::{Duration, Instant};

use crate::cloud::Reason;

/// Why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It was not gone for long enough.
    Grace {
        /// The end of the grace period.
        until: Instant,
    },
    /// It is not known yet whether many are gone.
    Counting {
        /// Nodes that are not Ready and about which the provider has not answered since.
        unanswered: usize,
    },
    /// A majority of the control plane would be gone.
    ControlPlane {
        /// Gone, or deleted within the window.
        lost: usize,
        /// All, with those that were deleted within the window.
        all: usize,
    },
    /// Many are gone at once.
    Mass {
        /// Nodes whose machines are gone.
        absent: usize,
        /// All nodes.
        nodes: usize,
        /// The end of the pause.
        until: Instant,
    },
    /// As many as may be were deleted lately.
    Limit {
        /// Nodes within the window.
        capacity: usize,
        /// The window.
        window: Duration,
        /// When the next one may be; never with a limit of zero.
        until: Option<Instant>,
    },
    /// The API server refused.
    Refused {
        /// When it is asked again.
        until: Instant,
    },
    /// It was said that it would be deleted.
    Told,
    /// No Node is deleted.
    Off {
        /// The flag or variable that says so.
        because: &'static str,
    },
}

impl Hold {
    /// The word for Events, metric and log.
    pub fn reason(&self) -> Reason {
        match self {
            Hold::Grace { .. } | Hold::Counting { .. } => Reason::DeletionGracePeriod,
            Hold::ControlPlane { .. } => Reason::DeletionControlPlaneMajority,
            Hold::Mass { .. } => Reason::DeletionMassHold,
            Hold::Limit { .. } => Reason::DeletionLimitReached,
            Hold::Refused { .. } => Reason::DeletionRefused,
            Hold::Told => Reason::DeletionDryRun,
            Hold::Off { .. } => Reason::DeletionOff,
        }
    }

    /// When it ends, if nothing else happens.
    pub fn until(&self) -> Option<Instant> {
        match self {
            Hold::Grace { until } | Hold::Mass { until, .. } | Hold::Refused { until } => Some(*until),
            Hold::Limit { until, .. } => *until,
            Hold::Counting { .. } | Hold::ControlPlane { .. } | Hold::Told | Hold::Off { .. } => None,
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hold::Grace { .. } => f.write_str("the grace period runs"),
            Hold::Counting { unanswered } => {
                write!(f, "{unanswered} other nodes that are not Ready have to be asked about first")
            }
            Hold::ControlPlane { lost, all } => {
                write!(f, "of {all} nodes of the control plane {lost} are gone, which is a majority")
            }
            Hold::Mass { absent, nodes, .. } => write!(f, "the machines of {absent} of {nodes} nodes are gone at once"),
            Hold::Limit { capacity, window, .. } => {
                write!(f, "{capacity} nodes may be deleted within {} s, and no more now", window.as_secs())
            }
            Hold::Refused { .. } => f.write_str("the API server refused the deletion"),
            Hold::Told => f.write_str("it would be deleted now, but --node-deletion is dry-run"),
            Hold::Off { because } => write!(f, "no Node is deleted: {because}"),
        }
    }
}
