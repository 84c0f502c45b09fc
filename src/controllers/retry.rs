//! Pure: when a failed call to the cloud is repeated. Shared by Services and routes.

use std::time::Duration;

use crate::base::backoff::{Backoff, Failures};
use crate::cloud::Error;

/// When to repeat a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// When the object changes.
    OnChange,
    /// After exactly this time. It neither counts nor resets failures.
    After(Duration),
    /// After a backoff that grows with each consecutive failure.
    Backoff,
}

impl Retry {
    /// The retry after this error of a provider.
    pub(in crate::controllers) fn of(error: &Error) -> Self {
        match error {
            Error::Invalid { .. } => Retry::OnChange,
            other => other.retry_after().map_or(Retry::Backoff, Retry::After),
        }
    }

    /// Counts the failure. Returns the pause before the retry, or `None` if time alone does not help.
    pub(in crate::controllers) fn pause(self, failures: &mut Failures, backoff: &Backoff) -> Option<Duration> {
        match self {
            Retry::OnChange => None,
            Retry::After(after) => Some(after),
            Retry::Backoff => Some(failures.next_pause(backoff, 0.0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::reason;

    // vectors: S-111, S-112
    #[test]
    fn one_function_decides_when_the_cloud_is_called_again() {
        let backoff = Backoff::doubling(Duration::from_secs(5), Duration::from_secs(300));
        let (reason, after) = (reason::CloudError, Duration::from_secs(42));
        let (message, mut failures) = (|| "m".to_owned(), Failures::default());
        for (id, error, expected, pause) in [
            ("S-111", Error::other("something went wrong"), Retry::Backoff, Some(5)),
            ("S-112", Error::RetryAfter { message: message(), after }, Retry::After(after), Some(42)),
            ("used up", Error::Exhausted { reason, message: message(), after }, Retry::After(after), Some(42)),
            ("wrong", Error::Invalid { reason, message: message() }, Retry::OnChange, None),
            ("the others count no failure", Error::Denied { message: message() }, Retry::Backoff, Some(10)),
        ] {
            let retry = Retry::of(&error);
            assert_eq!(retry, expected, "{id}");
            assert_eq!(retry.pause(&mut failures, &backoff).map(|pause| pause.as_secs()), pause, "{id}");
        }
    }
}
