//! Provider errors, as far as controllers act on them; vendor detail is in the source.
//!
//! Mirrors the sentinel errors of `cloud.go` and `api/retry_error.go`. Here they are enum variants, also for errors
//! that a provider wrapped.

use std::time::Duration;

use super::reason::{self, Reason};

/// An error of a provider.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The instance does not exist. Only meaningful from `Instances::instance_id`; never a proof of absence.
    #[error("instance not found")]
    InstanceNotFound,
    /// The provider does not implement this operation.
    #[error("unimplemented")]
    NotImplemented,
    /// This process no longer leads, so it did not write.
    #[error("this process is not the leader")]
    NotLeader,
    /// Another component implements this for the provider.
    #[error("implemented by alternate to cloud provider")]
    ImplementedElsewhere,
    /// Retry after exactly this time, without exponential backoff.
    #[error("{message}")]
    RetryAfter {
        /// The operation and its object.
        message: String,
        /// How long to wait.
        after: Duration,
    },
    /// Not a failure: a prerequisite, such as a first list, is still in progress. The provider announces the object
    /// when it is ready; retry after this time at the latest.
    #[error("{message}")]
    Pending {
        /// The prerequisite.
        message: String,
        /// Longest time to wait.
        after: Duration,
    },
    /// The object is invalid. A retry helps only after the object has changed.
    #[error("{message}")]
    Invalid {
        /// The reason.
        reason: Reason,
        /// The invalid part of the object, and what is expected.
        message: String,
    },
    /// A resource of the cloud is exhausted, such as the addresses of a pool. Retry after exactly this time, or when
    /// the provider announces the object.
    #[error("{message}")]
    Exhausted {
        /// The reason.
        reason: Reason,
        /// The exhausted resource, and the object that needs it.
        message: String,
        /// How long to wait.
        after: Duration,
    },
    /// The cloud rejected a write, and may reject it again. Retry after exactly this time, or as soon as the content
    /// changes: with other Nodes, or because the object has changed.
    #[error("{message}")]
    Refused {
        /// The reason.
        reason: Reason,
        /// The rejected write, and why.
        message: String,
        /// How long to wait.
        after: Duration,
    },
    /// The operation failed with a reason of the provider.
    #[error("{message}")]
    Failed {
        /// The reason.
        reason: Reason,
        /// The operation, its object, and the failure.
        message: String,
        /// How long to wait exactly; if none, exponential backoff applies.
        after: Option<Duration>,
    },
    /// The provider's account lacks a permission.
    #[error("{message}")]
    Denied {
        /// The operation, its object, and the missing permission.
        message: String,
    },
    /// The provider is unreachable or does not answer.
    #[error("{message}")]
    Unavailable {
        /// The operation and its object.
        message: String,
        /// The error of the layer below.
        #[source]
        source: Option<BoxError>,
    },
    /// Anything else.
    #[error("{message}")]
    Other {
        /// The operation and its object.
        message: String,
        /// The error of the layer below.
        #[source]
        source: Option<BoxError>,
    },
}

/// The source of an [`Error`].
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

impl Error {
    /// The reason for metrics and Events.
    pub fn reason(&self) -> Reason {
        match self {
            Error::InstanceNotFound => reason::InstanceNotFound,
            Error::NotImplemented | Error::ImplementedElsewhere => reason::NotImplemented,
            Error::RetryAfter { .. } | Error::Pending { .. } | Error::Unavailable { .. } | Error::NotLeader => {
                reason::CloudUnavailable
            }
            Error::Invalid { reason, .. }
            | Error::Exhausted { reason, .. }
            | Error::Refused { reason, .. }
            | Error::Failed { reason, .. } => *reason,
            Error::Denied { .. } => reason::NoPermission,
            Error::Other { .. } => reason::CloudError,
        }
    }

    /// How long to wait before the next try, if the provider says so.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::RetryAfter { after, .. }
            | Error::Pending { after, .. }
            | Error::Exhausted { after, .. }
            | Error::Refused { after, .. } => Some(*after),
            Error::Failed { after, .. } => *after,
            _ => None,
        }
    }

    /// Whether the content of the write was refused, so that a write with other content may succeed at once.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Error::Invalid { .. } | Error::Refused { .. })
    }

    /// An [`Error::Other`] without a source.
    pub fn other(message: impl Into<String>) -> Self {
        Error::Other { message: message.into(), source: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_provider_may_say_why_an_object_has_to_change_or_how_long_to_wait() {
        let after = Duration::from_secs(42);
        let (reason, message) = (reason::CloudError, String::new());
        for (error, expected) in [
            (Error::Invalid { reason, message: message.clone() }, (reason, None)),
            (Error::Exhausted { reason, message: message.clone(), after }, (reason, Some(after))),
            (Error::Refused { reason, message: message.clone(), after }, (reason, Some(after))),
            (Error::RetryAfter { message: message.clone(), after }, (reason::CloudUnavailable, Some(after))),
            (Error::Pending { message: message.clone(), after }, (reason::CloudUnavailable, Some(after))),
            (Error::Failed { reason, message: message.clone(), after: None }, (reason, None)),
            (Error::Failed { reason, message: message.clone(), after: Some(after) }, (reason, Some(after))),
            (Error::Denied { message }, (reason::NoPermission, None)),
        ] {
            assert_eq!((error.reason(), error.retry_after()), expected, "{error:?}");
        }
    }
}
