//! The reason that blocks each object. A reason is reported when it changes, not at every retry.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus::IntGaugeVec;

use super::now;
use crate::cloud::Reason;

/// The reasons by object key. Objects that are up to date have no entry.
pub(in crate::controllers) struct ReasonTracker {
    /// Number of objects that each reason blocks. The first label is the reason. Some metrics have a second label.
    gauge: IntGaugeVec,
    by_key: Mutex<HashMap<String, TrackedReason>>,
}

/// Maximum number of characters of a message.
const MESSAGE: usize = 2_000;

struct TrackedReason {
    entry: Entry,
    since: Instant,
    message: Box<str>,
}

/// The reason, and the value of the second metric label if the metric has one.
type Entry = (Reason, Option<&'static str>);

/// An object that a reason blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedObject {
    /// The key of the object, such as the name of a Node.
    pub key: String,
    /// The reason.
    pub reason: Reason,
    /// Time for which this reason has blocked the object.
    pub blocked_for: Duration,
    /// Details for users, at most 2,000 characters and an ellipsis. Empty if the controller keeps no message.
    pub message: String,
}

impl ReasonTracker {
    pub(in crate::controllers) fn new(blocked: IntGaugeVec) -> Self {
        Self { gauge: blocked, by_key: Mutex::default() }
    }

    /// Removes the reason of the object. Returns the reason that has blocked the object, if any.
    pub(in crate::controllers) fn clear(&self, key: &str) -> Option<Reason> {
        let mut by_key = self.by_key.lock();
        let old = by_key.remove(key).map(|old| old.entry);
        self.changed(old, None);
        old.map(|(reason, _)| reason)
    }

    /// Sets the reason that blocks the object. `kind` is the value of the second metric label. Returns true if the
    /// reason changed.
    #[must_use]
    pub(in crate::controllers) fn set(&self, key: &str, reason: Reason, kind: Option<&'static str>) -> bool {
        let new = (reason, kind);
        let mut by_key = self.by_key.lock();
        let before = by_key.remove(key);
        let old = before.as_ref().map(|before| before.entry);
        let tracked = match before.filter(|before| before.entry.0 == reason) {
            Some(same) => TrackedReason { entry: new, ..same },
            None => TrackedReason { entry: new, since: now(), message: Box::default() },
        };
        by_key.insert(key.to_owned(), tracked);
        drop(by_key);
        if old != Some(new) {
            self.changed(old, Some(new));
        }
        old.is_none_or(|(old, _)| old != reason)
    }

    /// Keeps the first 2,000 characters of the message of a blocked object, for readers. An ellipsis ends a longer message.
    pub(in crate::controllers) fn set_message(&self, key: &str, message: &str) {
        let mut clipped: String = message.chars().take(MESSAGE).collect();
        if message.chars().nth(MESSAGE).is_some() {
            clipped.push('…');
        }
        if let Some(tracked) = self.by_key.lock().get_mut(key) {
            tracked.message = clipped.into_boxed_str();
        }
    }

    /// Returns the object with this key, if a reason blocks it.
    pub(in crate::controllers) fn get(&self, key: &str) -> Option<BlockedObject> {
        self.by_key.lock().get(key).map(|tracked| tracked.blocked(key, now()))
    }

    /// Returns all blocked objects, ordered by key.
    pub(in crate::controllers) fn list(&self) -> Vec<BlockedObject> {
        let now = now();
        let by_key = self.by_key.lock();
        let mut blocked: Vec<_> = by_key.iter().map(|(key, tracked)| tracked.blocked(key, now)).collect();
        drop(by_key);
        blocked.sort_by(|one, other| one.key.cmp(&other.key));
        blocked
    }

    pub(in crate::controllers) fn keys(&self) -> Vec<String> {
        self.by_key.lock().keys().cloned().collect()
    }

    fn changed(&self, old: Option<Entry>, new: Option<Entry>) {
        let gauge = |(reason, kind): Entry| {
            let labels: Vec<&str> = std::iter::once(reason.as_str()).chain(kind).collect();
            self.gauge.with_label_values(&labels)
        };
        if let Some(old) = old {
            gauge(old).dec();
        }
        if let Some(new) = new {
            gauge(new).inc();
        }
    }

    pub(in crate::controllers) fn forget_all(&self) {
        for (_, tracked) in self.by_key.lock().drain() {
            self.changed(Some(tracked.entry), None);
        }
    }
}

impl TrackedReason {
    fn blocked(&self, key: &str, now: Instant) -> BlockedObject {
        BlockedObject {
            key: key.to_owned(),
            reason: self.entry.0,
            blocked_for: now.saturating_duration_since(self.since),
            message: self.message.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::reason;
    use prometheus::Opts;

    #[test]
    fn a_reason_is_news_once_until_it_changes_or_ends() {
        let blocked = IntGaugeVec::new(Opts::new("held", "nodes"), &["reason"]).unwrap();
        let reasons = ReasonTracker::new(blocked.clone());
        let (a, b) = (reason::VMNotFound, reason::CloudError);
        let news: Vec<bool> = [a, a, b, a].map(|reason| reasons.set("n", reason, None)).to_vec();
        assert_eq!(news, [true, false, true, true]);
        assert_eq!(
            (blocked.with_label_values(&[a.as_str()]).get(), blocked.with_label_values(&[b.as_str()]).get()),
            (1, 0)
        );
        for before in [Some(a), None] {
            assert_eq!(reasons.clear("n"), before);
            assert_eq!(blocked.with_label_values(&[a.as_str()]).get(), 0);
        }
        assert!(reasons.set("n", a, None));
        reasons.forget_all();
        assert!(reasons.set("n", a, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_has_the_time_since_which_each_reason_blocks_its_object() {
        let reasons = ReasonTracker::new(IntGaugeVec::new(Opts::new("held", "nodes"), &["reason"]).unwrap());
        let second = Duration::from_secs(1);
        for (key, reason) in [("b", reason::VMNotFound), ("a", reason::CloudError), ("b", reason::VMNotFound)] {
            let _ = reasons.set(key, reason, None);
            tokio::time::advance(second).await;
        }
        let list = || reasons.list().into_iter().map(|one| (one.key, one.reason, one.blocked_for)).collect::<Vec<_>>();
        let (a, b) = ("a".to_owned(), "b".to_owned());
        assert_eq!(
            list(),
            [(a.clone(), reason::CloudError, second * 2), (b.clone(), reason::VMNotFound, second * 3)],
            "the same reason again does not start anew"
        );
        assert_eq!([reasons.get("a"), reasons.get("b")], [0, 1].map(|index| reasons.list().get(index).cloned()));
        assert_eq!(reasons.get("c"), None);
        let _ = reasons.set("b", reason::CloudError, None);
        assert_eq!(list(), [(a, reason::CloudError, second * 2), (b, reason::CloudError, Duration::ZERO)]);
        reasons.clear("a");
        assert_eq!(list().len(), 1);
    }

    #[test]
    fn the_message_of_a_blocked_object_is_clipped_and_goes_with_its_reason() {
        let reasons = ReasonTracker::new(IntGaugeVec::new(Opts::new("held", "nodes"), &["reason"]).unwrap());
        reasons.set_message("n", "not blocked");
        assert_eq!(reasons.get("n"), None);
        let message = || reasons.get("n").map(|blocked| blocked.message);
        let _ = reasons.set("n", reason::VMNotFound, None);
        reasons.set_message("n", &"é".repeat(MESSAGE + 1));
        let _ = reasons.set("n", reason::VMNotFound, None);
        assert_eq!(message(), Some(format!("{}…", "é".repeat(MESSAGE))));
        reasons.set_message("n", &"é".repeat(MESSAGE));
        assert_eq!(message(), Some("é".repeat(MESSAGE)));
        let _ = reasons.set("n", reason::CloudError, None);
        assert_eq!(message(), Some(String::new()));
    }

    #[test]
    fn a_node_that_becomes_another_kind_is_counted_there_and_is_no_news() {
        let blocked = IntGaugeVec::new(Opts::new("held", "nodes"), &["reason", "kind"]).unwrap();
        let reasons = ReasonTracker::new(blocked.clone());
        let reason = reason::CloudError;
        let counts = || ["new", "old"].map(|kind| blocked.with_label_values(&[reason.as_str(), kind]).get());
        assert!(reasons.set("n", reason, Some("new")));
        assert_eq!(counts(), [1, 0]);
        assert!(!reasons.set("n", reason, Some("old")));
        assert_eq!(counts(), [0, 1]);
        reasons.forget_all();
        assert_eq!(counts(), [0, 0]);
    }
}
