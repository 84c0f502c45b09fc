//! Reasons why a Service is not up to date, and the time of the next attempt. No I/O.

use std::time::Duration;

use crate::base::error_chain::chain;
use crate::cloud::{Error, Reason};
use crate::controllers::reason_of;
use crate::controllers::retry::Retry;
use crate::kubernetes::call::CallError;

/// The reason why a Service is not up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceBlocked {
    pub(super) reason: Reason,
    pub(super) message: String,
    pub(super) retry: Retry,
    /// The failed action, which determines the reason of the Event.
    pub(super) action: ServiceAction,
    /// Whether a call with other content may succeed without a pause; see [`Error::is_refusal`].
    pub(super) is_refusal: bool,
}

/// An action for a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceAction {
    /// Ensure or delete the load balancer of the Service.
    Sync,
    /// Delete the load balancer after the Service was deleted.
    DeleteAfterwards,
    /// Update the Nodes behind the load balancer.
    UpdateNodes,
}

/// The reason why a sync ended early.
#[derive(Debug)]
pub(super) enum Stop {
    NotLeader,
    /// The sync cannot continue yet and must be repeated after this time.
    Wait(Duration),
    /// The Service cannot be brought up to date.
    Held(Box<ServiceBlocked>),
    /// The API server has another version of the Service.
    Conflict(CallError),
}

impl ServiceBlocked {
    pub(super) fn new(reason: Reason, message: impl Into<String>, retry: Retry) -> Self {
        Self { reason, message: message.into(), retry, action: ServiceAction::Sync, is_refusal: false }
    }

    pub(super) fn with(self, action: ServiceAction) -> Self {
        Self { action, ..self }
    }

    /// Describes a failed cloud call, except [`Error::NotLeader`], which is no failure of a Service.
    pub(super) fn by_cloud(error: &Error) -> Self {
        Self { is_refusal: error.is_refusal(), ..Self::new(error.reason(), chain(error), Retry::of(error)) }
    }

    /// Returns the reason and message of the Event, as in the Go program. The reason of the failure is added to the
    /// message.
    pub(super) fn event(&self) -> (&'static str, String) {
        let message = format!("{} ({})", self.message, self.reason);
        match self.action {
            ServiceAction::Sync => ("SyncLoadBalancerFailed", format!("Error syncing load balancer: {message}")),
            ServiceAction::DeleteAfterwards => {
                ("DeleteLoadBalancerFailed", format!("Error deleting load balancer: {message}"))
            }
            ServiceAction::UpdateNodes => ("UpdateLoadBalancerFailed", message),
        }
    }
}

impl From<ServiceBlocked> for Stop {
    fn from(blocked: ServiceBlocked) -> Self {
        Stop::Held(Box::new(blocked))
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error {
            Error::NotLeader => Stop::NotLeader,
            Error::Pending { after, .. } => Stop::Wait(after),
            error => ServiceBlocked::by_cloud(&error).into(),
        }
    }
}

impl From<CallError> for Stop {
    fn from(error: CallError) -> Self {
        match error {
            error if error.is_not_leader() => Stop::NotLeader,
            error if error.is_conflict() => Stop::Conflict(error),
            error => ServiceBlocked::new(reason_of(&error), chain(&error), Retry::Backoff).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::reason;

    #[test]
    fn a_lost_leadership_is_no_failure_of_a_service() {
        assert!(matches!(Stop::from(Error::NotLeader), Stop::NotLeader));
        assert!(matches!(Stop::from(Error::other("m")), Stop::Held(blocked) if blocked.retry == Retry::Backoff));
    }

    #[test]
    fn what_is_on_its_way_is_no_failure_of_a_service() {
        let after = Duration::from_secs(42);
        let pending = Error::Pending { message: "a list".to_owned(), after };
        assert!(matches!(Stop::from(pending), Stop::Wait(wait) if wait == after));
    }

    #[test]
    fn events_have_the_words_of_the_go_program_and_the_reason() {
        let blocked = ServiceBlocked::new(reason::CloudError, "why", Retry::Backoff);
        for (action, reason, message) in [
            (ServiceAction::Sync, "SyncLoadBalancerFailed", "Error syncing load balancer: why (CloudError)"),
            (
                ServiceAction::DeleteAfterwards,
                "DeleteLoadBalancerFailed",
                "Error deleting load balancer: why (CloudError)",
            ),
            (ServiceAction::UpdateNodes, "UpdateLoadBalancerFailed", "why (CloudError)"),
        ] {
            assert_eq!(blocked.clone().with(action).event(), (reason, message.to_owned()));
        }
    }
}
