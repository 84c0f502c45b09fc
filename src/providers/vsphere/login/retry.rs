//! Pure: backoff of connections and logins to vCenter and NSX.
//!
//! Rejected logins back off longer than lost connections, so that at most three attempts of one credential fit into 200
//! seconds. The login ledger limits all credentials and processes together, and requires longer pauses where necessary.

use std::time::Duration;

use crate::base::backoff::Backoff;

/// Backoff after transient failures, such as those of the connection or the server.
pub const PASSING: Backoff = Backoff::doubling(Duration::from_secs(1), Duration::from_secs(60)).shortened_by(0.5);

/// Returns the backoff after a rejected login. The pauses grow up to the window of the login policy, because during its
/// own pause this process does not notice that the server accepts a login of another replica.
pub const fn rejected(window: Duration) -> Backoff {
    Backoff::doubling(Duration::from_secs(70), window).lengthened_by(0.25)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_three_rejected_logins_fit_into_200_seconds() {
        let mut at = Duration::ZERO;
        let mut attempts = vec![at];
        for failures in 1..=10 {
            at += rejected(Duration::from_secs(200)).pause(failures, 0.0);
            attempts.push(at);
        }
        for (first, start) in attempts.iter().enumerate() {
            let within =
                attempts.iter().skip(first).filter(|attempt| **attempt < *start + Duration::from_secs(200)).count();
            assert!(within <= 3, "{within} attempts within 200 s from {start:?}: {attempts:?}");
        }
    }
}
