//! Pure: the backoff of failed writes, and of reads that gave no proof.
//!
//! An event or the period can reconcile a Node at any time. So the backoff belongs to the failed call, not to the Node.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::base::backoff::{Backoff, Failures};

const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(5), Duration::from_secs(60)).shortened_by(0.25);

/// Number of consecutive failures of one call, and the end of its backoff.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallBackoff {
    failures: Failures,
    not_before: Option<Instant>,
}

impl CallBackoff {
    /// Records a failure at `at`. Returns the pause before the next call. `chance` in `0.0..1.0` shortens the pause by
    /// up to a quarter, so that calls that failed together are not repeated together.
    pub fn failed(&mut self, at: Instant, chance: f64) -> Duration {
        let pause = self.failures.next_pause(&BACKOFF, chance);
        self.not_before = Some(at + pause);
        pause
    }

    /// Returns the end of the pause, if the pause has not ended at `at`.
    pub fn not_before(&self, at: Instant) -> Option<Instant> {
        self.not_before.filter(|end| *end > at)
    }

    /// Whether no call has failed.
    pub fn is_first(&self) -> bool {
        self.failures.is_none()
    }
}

/// The backoffs of one kind of call, by Node. `T` describes the last failure.
#[derive(Debug, Default)]
pub struct Retries<T> {
    by_node: HashMap<String, LastFailure<T>>,
}

#[derive(Debug)]
struct LastFailure<T> {
    uid: String,
    subject: T,
    retry: CallBackoff,
}

impl<T> Retries<T> {
    /// Returns the remaining pause of this Node's call at `at`, if any, with the description of the last failure.
    pub fn wait(&self, name: &str, uid: &str, at: Instant) -> Option<(Duration, &T)> {
        let failure = self.by_node.get(name).filter(|failure| failure.uid == uid)?;
        let end = failure.retry.not_before(at)?;
        Some((end.saturating_duration_since(at), &failure.subject))
    }

    /// Records a failure and returns the pause before the next call, like [`CallBackoff::failed`].
    pub fn failed(&mut self, name: &str, uid: &str, about: T, at: Instant, chance: f64) -> Duration {
        let before = self.by_node.remove(name).filter(|failure| failure.uid == uid);
        let mut retry = before.map_or_else(CallBackoff::default, |failure| failure.retry);
        let pause = retry.failed(at, chance);
        self.by_node.insert(name.to_owned(), LastFailure { uid: uid.to_owned(), subject: about, retry });
        pause
    }

    /// Clears the Node's backoff, because the call succeeded or is no longer needed, or because the Node was deleted.
    pub fn forget(&mut self, name: &str) {
        self.by_node.remove(name);
    }

    /// Keeps only the Nodes for which `is_there` returns true.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.by_node.retain(|name, _| is_there(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_PAUSE: Duration = Duration::from_secs(5);

    #[test]
    fn pauses_double_up_to_a_minute_and_are_shortened_by_chance() {
        let start = Instant::now();
        let mut retries = Retries::default();
        let full = [5, 10, 20, 40, 60, 60].map(|_: u64| retries.failed("n", "u", (), start, 0.0).as_secs());
        assert_eq!(full, [5, 10, 20, 40, 60, 60]);
        assert_eq!(retries.failed("n", "u", (), start, 1.0), Duration::from_secs(45));
        retries.retain(|name| name != "n");
        assert_eq!(retries.wait("n", "u", start), None);
        assert_eq!(retries.failed("n", "u", (), start, 0.0), Duration::from_secs(5), "from the beginning");
        retries.forget("n");
        assert_eq!(retries.failed("n", "u", (), start, 0.0), Duration::from_secs(5), "and again");
    }

    #[test]
    fn a_call_waits_for_the_pause_of_its_own_node() {
        let start = Instant::now();
        let mut retries = Retries::default();
        retries.failed("n", "u", "first", start, 0.0);
        let later = start + Duration::from_secs(2);
        assert_eq!(retries.wait("n", "u", later), Some((Duration::from_secs(3), &"first")));
        assert_eq!(retries.wait("n", "u", start + FIRST_PAUSE), None, "it is over");
        assert_eq!(retries.wait("m", "u", later), None, "another node");
        assert_eq!(retries.wait("n", "v", later), None, "another Node of the name");
        let again = retries.failed("n", "u", "second", later, 0.0);
        assert_eq!(again, Duration::from_secs(10), "which failed as the one before did");
        assert_eq!(retries.wait("n", "u", later), Some((again, &"second")));
        assert_eq!(retries.failed("n", "v", "third", later, 0.0), FIRST_PAUSE);
    }
}
