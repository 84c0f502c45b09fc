//! What a controller may act on when a provider fails. Vendor detail is in the source.
//!
//! Mirrors the sentinel errors of `cloud.go` and `api/retry_error.go`; they are matched structurally here, also when
//! a provider wrapped something.

use std::time::Duration;

use super::reason::{self, Reason};

/// The public taxonomy of provider errors.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such instance. Only `Instances::instance_id` gives this a meaning; it is never a proof of absence.
    #[error("instance not found")]
    InstanceNotFound,
    /// The provider does not have this operation.
    #[error("unimplemented")]
    NotImplemented,
    /// This process does not lead any more, so it did not write.
    #[error("this process is not the leader")]
    NotLeader,
    /// Another component does this for the provider.
    #[error("implemented by alternate to cloud provider")]
    ImplementedElsewhere,
    /// Try again after exactly this time, without exponential backoff.
    #[error("{message}")]
    RetryAfter {
        /// What was being done and to what.
        message: String,
        /// How long to wait.
        after: Duration,
    },
    /// The provider's credentials do not allow this.
    #[error("{message}")]
    Denied {
        /// What was being done and to what, and which right is missing.
        message: String,
    },
    /// The provider cannot be reached or does not answer.
    #[error("{message}")]
    Unavailable {
        /// What was being done and to what.
        message: String,
        /// What the layer below said.
        #[source]
        source: Option<BoxError>,
    },
    /// Anything else.
    #[error("{message}")]
    Other {
        /// What was being done and to what.
        message: String,
        /// What the layer below said.
        #[source]
        source: Option<BoxError>,
    },
}

/// The source of an [`Error`].
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

impl Error {
    /// The word for metrics and Events.
    pub fn reason(&self) -> Reason {
        match self {
            Error::InstanceNotFound => reason::InstanceNotFound,
            Error::NotImplemented | Error::ImplementedElsewhere => reason::NotImplemented,
            Error::RetryAfter { .. } | Error::Unavailable { .. } | Error::NotLeader => reason::CloudUnavailable,
            Error::Denied { .. } => reason::NoPermission,
            Error::Other { .. } => reason::CloudError,
        }
    }

    /// An [`Error::Other`] without a source.
    pub fn other(message: impl Into<String>) -> Self {
        Error::Other { message: message.into(), source: None }
    }
}
