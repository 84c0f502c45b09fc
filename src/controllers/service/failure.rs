//! What is in the way of a Service, and when it is tried again: without I/O, but it knows the errors of the API server.

use std::time::Duration;

use super::reason;
use crate::base::error_chain::chain;
use crate::cloud::{Error, Reason};
use crate::controllers::reason_of;
use crate::kubernetes::call::CallError;

/// When something that failed is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// When the object changes.
    OnChange,
    /// After exactly this time. It neither counts nor resets failures.
    After(Duration),
    /// After a pause that doubles with each failure in a row.
    Backoff,
}

/// Something is in the way of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The word for it.
    pub(super) reason: Reason,
    /// What failed and why.
    pub(super) message: String,
    /// When it is tried again.
    pub(super) retry: Retry,
    /// What could not be done, which decides the words of the Event.
    pub(super) action: Action,
}

/// What could not be done for a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To make the load balancer what it should be, or to delete it.
    Sync,
    /// To delete the load balancer of a Service that is gone.
    DeleteAfterwards,
    /// To tell the cloud of the Nodes.
    UpdateNodes,
}

/// Why a sync ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// This process leads no more.
    NotLeader,
    /// Not its turn yet.
    Wait(Duration),
    /// Something is in the way.
    Held(Box<Held>),
    /// The API server has another version of the Service.
    Conflict(CallError),
}

impl Held {
    pub(super) fn new(reason: Reason, message: impl Into<String>, retry: Retry) -> Self {
        Self { reason, message: message.into(), retry, action: Action::Sync }
    }

    pub(super) fn with(self, action: Action) -> Self {
        Self { action, ..self }
    }

    /// Of a call to the cloud. [`Error::NotLeader`] is no failure of a Service.
    pub(super) fn by_cloud(error: &Error) -> Self {
        Self::new(error.reason(), chain(error), retry_of(error))
    }

    /// The reason and the message of the Event, as in the Go program.
    pub(super) fn event(&self) -> (&'static str, String) {
        let message = &self.message;
        match self.action {
            Action::Sync => ("SyncLoadBalancerFailed", format!("Error syncing load balancer: {message}")),
            Action::DeleteAfterwards => {
                ("DeleteLoadBalancerFailed", format!("Error deleting load balancer: {message}"))
            }
            Action::UpdateNodes => ("UpdateLoadBalancerFailed", message.clone()),
        }
    }
}

/// The one place that decides when a failed call to the cloud is repeated.
pub(super) fn retry_of(error: &Error) -> Retry {
    match error {
        Error::Invalid { .. } => Retry::OnChange,
        other => other.retry_after().map_or(Retry::Backoff, Retry::After),
    }
}

impl From<Held> for Stop {
    fn from(held: Held) -> Self {
        Stop::Held(Box::new(held))
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error {
            Error::NotLeader => Stop::NotLeader,
            error => Held::by_cloud(&error).into(),
        }
    }
}

impl From<CallError> for Stop {
    fn from(error: CallError) -> Self {
        match error {
            error if error.is_not_leader() => Stop::NotLeader,
            error if error.is_conflict() => Stop::Conflict(error),
            error => Held::new(reason_of(&error), chain(&error), Retry::Backoff).into(),
        }
    }
}

impl Stop {
    /// What the sync comes to when it is not tried again at once.
    pub(super) fn after_conflicts(self) -> Self {
        match self {
            Stop::Conflict(error) => Held::new(reason::WriteConflict, chain(&error), Retry::Backoff).into(),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // vectors: S-111, S-112
    #[test]
    fn one_function_decides_when_the_cloud_is_called_again() {
        let (reason, after) = (reason::CloudError, Duration::from_secs(42));
        let message = || "m".to_owned();
        for (id, error, expected) in [
            ("S-111", Error::other("something went wrong"), Retry::Backoff),
            ("S-112", Error::RetryAfter { message: message(), after }, Retry::After(after)),
            ("used up", Error::Exhausted { reason, message: message(), after }, Retry::After(after)),
            ("wrong", Error::Invalid { reason, message: message() }, Retry::OnChange),
            ("denied", Error::Denied { message: message() }, Retry::Backoff),
        ] {
            assert_eq!(Held::by_cloud(&error).retry, expected, "{id}");
            assert!(matches!(Stop::from(error), Stop::Held(held) if held.retry == expected), "{id}");
        }
        assert!(matches!(Stop::from(Error::NotLeader), Stop::NotLeader));
    }

    #[test]
    fn events_have_the_words_of_the_go_program() {
        let held = Held::new(reason::CloudError, "why", Retry::Backoff);
        for (action, reason, message) in [
            (Action::Sync, "SyncLoadBalancerFailed", "Error syncing load balancer: why"),
            (Action::DeleteAfterwards, "DeleteLoadBalancerFailed", "Error deleting load balancer: why"),
            (Action::UpdateNodes, "UpdateLoadBalancerFailed", "why"),
        ] {
            assert_eq!(held.clone().with(action).event(), (reason, message.to_owned()));
        }
    }
}
