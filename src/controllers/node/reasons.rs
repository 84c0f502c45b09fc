//! Which node is held up by what, so that a reason is told when it changes and not at every retry.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::metrics::Metrics;

/// The reasons by node name; a node that is as it should be has no entry.
pub(super) struct Reasons {
    metrics: Metrics,
    by_node: Mutex<HashMap<String, &'static str>>,
}

impl Reasons {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { metrics, by_node: Mutex::default() }
    }

    /// Nothing is in the way any more. Says what was, if something was.
    pub(super) fn clear(&self, node: &str) -> Option<&'static str> {
        let old = self.by_node.lock().unwrap_or_else(PoisonError::into_inner).remove(node);
        self.metrics.reason_changed(old, None);
        old
    }

    /// `reason` is in the way. True if that is news.
    #[must_use]
    pub(super) fn set(&self, node: &str, reason: &'static str) -> bool {
        let old = self.by_node.lock().unwrap_or_else(PoisonError::into_inner).insert(node.to_owned(), reason);
        let is_news = old != Some(reason);
        if is_news {
            self.metrics.reason_changed(old, Some(reason));
        }
        is_news
    }

    /// Forgets all: another process looks after the nodes.
    pub(super) fn forget_all(&self) {
        for (_, reason) in self.by_node.lock().unwrap_or_else(PoisonError::into_inner).drain() {
            self.metrics.reason_changed(Some(reason), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_news_once_until_it_changes_or_ends() {
        let reasons = Reasons::new(Metrics::new());
        let news: Vec<bool> = ["A", "A", "B", "A"].map(|reason| reasons.set("n", reason)).to_vec();
        assert_eq!(news, [true, false, true, true]);
        assert_eq!(reasons.clear("n"), Some("A"));
        assert_eq!(reasons.clear("n"), None);
        assert!(reasons.set("n", "A"));
        reasons.forget_all();
        assert!(reasons.set("n", "A"));
    }
}
