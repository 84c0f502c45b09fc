//! Pure: when taints that could not be written are written again.
//!
//! Events and the period bring a node back at any time. So the pause belongs to the write and not to the node's turn.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::plan::Change;

/// The pause after the first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// No pause is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// See the file's header.
#[derive(Debug, Default)]
pub struct RefusedWrites {
    by_node: HashMap<String, Refused>,
}

#[derive(Debug)]
struct Refused {
    uid: String,
    changes: Vec<Change>,
    failures: u32,
    until: Instant,
}

impl RefusedWrites {
    /// How long this write has to wait at `at`, if it does. Other changes than those that failed last need not.
    pub fn wait(&self, name: &str, uid: &str, changes: &[Change], at: Instant) -> Option<Duration> {
        let refused = self.by_node.get(name).filter(|refused| refused.uid == uid && refused.changes == changes)?;
        refused.until.checked_duration_since(at).filter(|wait| !wait.is_zero())
    }

    /// The write failed at `at`: how long it has to wait. `chance` in `0.0..1.0` shortens that by up to a quarter, so that
    /// writes which failed together do not come back together.
    pub fn failed(&mut self, name: &str, uid: &str, changes: &[Change], at: Instant, chance: f64) -> Duration {
        let before = self.by_node.get(name).filter(|refused| refused.uid == uid);
        let failures = before.map_or(0, |refused| refused.failures);
        let full = FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(LONGEST_PAUSE);
        let pause = full.mul_f64(1.0 - chance.clamp(0.0, 1.0) / 4.0);
        let (uid, changes) = (uid.to_owned(), changes.to_vec());
        let refused = Refused { uid, changes, failures: failures.saturating_add(1), until: at + pause };
        self.by_node.insert(name.to_owned(), refused);
        pause
    }

    /// The taints are as they should be, or the Node is gone.
    pub fn forget(&mut self, name: &str) {
        self.by_node.remove(name);
    }

    /// Forgets all Nodes but those for which `is_there` holds.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.by_node.retain(|name, _| is_there(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADD: &[Change] = &[Change::AddShutdown];

    #[test]
    fn pauses_double_up_to_a_minute_and_are_shortened_by_chance() {
        let start = Instant::now();
        let mut writes = RefusedWrites::default();
        let full = [5, 10, 20, 40, 60, 60].map(|_: u64| writes.failed("n", "u", ADD, start, 0.0).as_secs());
        assert_eq!(full, [5, 10, 20, 40, 60, 60]);
        assert_eq!(writes.failed("n", "u", ADD, start, 1.0), Duration::from_secs(45));
        writes.retain(|name| name != "n");
        assert_eq!(writes.wait("n", "u", ADD, start), None);
        assert_eq!(writes.failed("n", "u", ADD, start, 0.0), Duration::from_secs(5), "from the beginning");
        writes.forget("n");
        assert_eq!(writes.failed("n", "u", ADD, start, 0.0), Duration::from_secs(5), "and again");
    }

    #[test]
    fn a_write_waits_for_its_own_pause_only() {
        let start = Instant::now();
        let mut writes = RefusedWrites::default();
        writes.failed("n", "u", ADD, start, 0.0);
        let later = start + Duration::from_secs(2);
        assert_eq!(writes.wait("n", "u", ADD, later), Some(Duration::from_secs(3)));
        assert_eq!(writes.wait("n", "u", ADD, start + FIRST_PAUSE), None, "it is over");
        assert_eq!(writes.wait("m", "u", ADD, later), None, "another node");
        assert_eq!(writes.wait("n", "v", ADD, later), None, "another Node of the name");
        assert_eq!(writes.wait("n", "u", &[Change::RemoveShutdown], later), None, "another change");
        let again = writes.failed("n", "u", &[Change::RemoveShutdown], later, 0.0);
        assert_eq!(again, Duration::from_secs(10), "which is refused like the one before");
    }
}
