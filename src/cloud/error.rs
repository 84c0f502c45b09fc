//! Provider errors, with the distinctions that controllers need. Mirrors the sentinel errors of `cloud.go` and
//! `api/retry_error.go` as enum variants.

use std::time::Duration;

use super::reason::{self, Reason};

/// An error of a provider.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The instance does not exist. Meaningful only from `Instances::instance_id`, and never a proof of absence.
    #[error("instance not found")]
    InstanceNotFound,
    /// The provider does not implement this operation.
    #[error("unimplemented")]
    NotImplemented,
    /// This process lost the leadership, so the provider did not write.
    #[error("this process is not the leader")]
    NotLeader,
    /// Another component implements this operation for the provider.
    #[error("implemented by alternate to cloud provider")]
    ImplementedElsewhere,
    /// The caller must retry after exactly this time, without exponential backoff.
    #[error("{message}")]
    RetryAfter {
        /// The operation and its object.
        message: String,
        /// Time to wait.
        after: Duration,
    },
    /// A prerequisite, such as a first list, is still in progress. This is not a failure. The caller retries after
    /// `after`, or earlier if the provider announces a change of the object.
    #[error("{message}")]
    Pending {
        /// The prerequisite.
        message: String,
        /// Maximum time to wait.
        after: Duration,
    },
    /// The object is invalid. A retry helps only after the object has changed.
    #[error("{message}")]
    Invalid {
        /// The reason.
        reason: Reason,
        /// The invalid part of the object, and the expected content.
        message: String,
    },
    /// A resource of the cloud is exhausted, such as the addresses of a pool. The caller retries after exactly `after`,
    /// or when the provider announces a change of the object.
    #[error("{message}")]
    Exhausted {
        /// The reason.
        reason: Reason,
        /// The exhausted resource, and the object that needs it.
        message: String,
        /// Time to wait.
        after: Duration,
    },
    /// The cloud rejected a write, and may reject a repetition of the write. The caller retries after exactly `after`,
    /// or as soon as the content of the write changes because the Nodes or the object changed.
    #[error("{message}")]
    Refused {
        /// The reason.
        reason: Reason,
        /// The rejected write, and the cause.
        message: String,
        /// Time to wait.
        after: Duration,
    },
    /// The operation failed for a provider-specific reason.
    #[error("{message}")]
    Failed {
        /// The reason.
        reason: Reason,
        /// The operation, its object, and the failure.
        message: String,
        /// Exact time to wait. `None` means exponential backoff.
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
    /// Any other error.
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
    /// Returns the reason for metrics and Events.
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

    /// Returns the time to wait before the retry, if the provider specifies a time.
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

    /// Returns true if the content of the write was rejected. A write with other content may succeed immediately.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Error::Invalid { .. } | Error::Refused { .. })
    }

    /// Creates an [`Error::Other`] without a source.
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
