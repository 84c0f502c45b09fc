//! Pure: the rule for retries of failed calls to the cloud. Services and routes share this rule.

use std::time::Duration;

use crate::base::backoff::{Backoff, Failures};
use crate::cloud::Error;

/// Time of the retry after a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The retry waits for a change of the object.
    OnChange,
    /// The retry comes after exactly this time. The number of failures stays the same.
    After(Duration),
    /// The retry comes after a backoff that grows with each consecutive failure.
    Backoff,
}

impl Retry {
    /// Returns the retry for this error of a provider.
    pub(in crate::controllers) fn of(error: &Error) -> Self {
        match error {
            Error::Invalid { .. } => Retry::OnChange,
            other => other.retry_after().map_or(Retry::Backoff, Retry::After),
        }
    }

    /// Returns the pause before the retry, or `None` for `Retry::OnChange`. Only `Retry::Backoff` counts the failure.
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
