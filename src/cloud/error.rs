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
    /// Nothing is wrong: what the provider needs first, such as a list of what there is, is on its way. The provider
    /// announces the object when it is there; try again after this time at the latest.
    #[error("{message}")]
    Pending {
        /// What is being waited for.
        message: String,
        /// How long to wait at most.
        after: Duration,
    },
    /// The object is wrong. Trying again helps after the object has changed.
    #[error("{message}")]
    Invalid {
        /// The word for what is wrong.
        reason: Reason,
        /// What of which object is wrong, and what is expected.
        message: String,
    },
    /// The cloud has no more of what is needed, such as addresses of a pool. Try again after exactly this time, or when the
    /// provider announces the object.
    #[error("{message}")]
    Exhausted {
        /// The word for what is used up.
        reason: Reason,
        /// What is used up, and for which object.
        message: String,
        /// How long to wait.
        after: Duration,
    },
    /// The cloud refused what was to be written, and may refuse it again. Try again after exactly this time, or as soon as
    /// something else is to be written: with other Nodes, or for an object that has changed.
    #[error("{message}")]
    Refused {
        /// The word for what is wrong.
        reason: Reason,
        /// What was refused, and why.
        message: String,
        /// How long to wait.
        after: Duration,
    },
    /// Not done, for a reason that the provider has a word for.
    #[error("{message}")]
    Failed {
        /// The word for what is wrong.
        reason: Reason,
        /// What was being done and to what, and what is wrong.
        message: String,
        /// How long to wait exactly; if nothing, longer after each failure in a row.
        after: Option<Duration>,
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

    /// How long to wait before the next try, where the provider says so.
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

    /// Whether the failure is about what was to be written, so that something else may succeed at once.
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
