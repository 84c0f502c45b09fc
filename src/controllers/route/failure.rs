//! Pure: failures of changes and listings, with the only retry policy of the controller.

use std::time::Duration;

use crate::base::backoff::{Backoff, Failures};
use crate::base::error_chain::chain;
use crate::cloud::{Error, Reason, Unknown};
use crate::controllers::retry::Retry;

/// Backoff of each destination, and of the listing.
const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60));

/// The reason why a change or a listing failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteFailure {
    pub(super) reason: Reason,
    pub(super) message: String,
    /// `None` if nothing was tried, because this process lost leadership or the provider lost its routes.
    pub(super) retry: Option<Retry>,
}

impl RouteFailure {
    pub(super) fn of(error: &Error) -> Self {
        let retry = (!matches!(error, Error::NotLeader)).then(|| Retry::of(error));
        Self { reason: error.reason(), message: chain(error), retry }
    }

    pub(super) fn unknown(unknown: Unknown) -> Self {
        let Unknown { reason, message, retry_after, .. } = unknown;
        Self { reason, message, retry: Some(retry_after.map_or(Retry::Backoff, Retry::After)) }
    }

    /// Puts the failed action in front of the message.
    pub(super) fn with_context(self, what: &str) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    /// Returns the pause before the retry; `None` if nothing was tried, or if the retry waits for a change. Only
    /// [`Retry::Backoff`] counts the failure.
    pub(super) fn pause(&self, failures: &mut Failures) -> Option<Duration> {
        self.retry?.pause(failures, &BACKOFF)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::reason;

    #[test]
    fn the_provider_decides_how_long_to_wait() {
        let (reason, message, after) = (reason::CloudError, "m".to_owned(), Duration::from_secs(42));
        let mut failures = Failures::default();
        for (error, expected) in [
            (Error::other("m"), Some(1)),
            (Error::RetryAfter { message: message.clone(), after }, Some(42)),
            (Error::Exhausted { reason, message: message.clone(), after }, Some(42)),
            (Error::Unavailable { message: message.clone(), source: None }, Some(2)),
            (Error::Invalid { reason, message: message.clone() }, None),
            (Error::NotLeader, None),
            (Error::Denied { message }, Some(4)),
            (Error::NotImplemented, Some(8)),
        ] {
            let failure = RouteFailure::of(&error);
            assert_eq!(failure.pause(&mut failures).map(|pause| pause.as_secs()), expected, "{error:?}");
            assert_eq!(failure.reason, error.reason());
        }
        let pauses: Vec<_> = (0..4).filter_map(|_| RouteFailure::of(&Error::other("")).pause(&mut failures)).collect();
        assert_eq!(pauses.iter().map(Duration::as_secs).collect::<Vec<_>>(), [16, 32, 60, 60]);
        let unknown = Unknown { retry_after: Some(after), ..Unknown::new(reason, "no answer") };
        assert_eq!(RouteFailure::unknown(unknown).with_context("x").retry, Some(Retry::After(after)));
    }
}
