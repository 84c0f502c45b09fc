//! Which node is held up by what, so that a reason is told when it changes and not at every retry.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use prometheus::IntGaugeVec;

use crate::cloud::Reason;

/// The reasons by node name; a node that is as it should be has no entry.
pub(in crate::controllers) struct Reasons {
    /// How many nodes each reason holds up.
    held: IntGaugeVec,
    by_node: Mutex<HashMap<String, Reason>>,
}

impl Reasons {
    pub(in crate::controllers) fn new(held: IntGaugeVec) -> Self {
        Self { held, by_node: Mutex::default() }
    }

    /// Nothing is in the way any more. Says what was, if something was.
    pub(in crate::controllers) fn clear(&self, node: &str) -> Option<Reason> {
        let old = {
            let mut by_node = self.by_node.lock().unwrap_or_else(PoisonError::into_inner);
            let old = by_node.remove(node);
            // What a storm needed is not kept until the next one.
            if old.is_some() && by_node.is_empty() {
                by_node.shrink_to_fit();
            }
            old
        };
        self.changed(old, None);
        old
    }

    /// `reason` is in the way. True if that is news.
    #[must_use]
    pub(in crate::controllers) fn set(&self, node: &str, reason: Reason) -> bool {
        let old = self.by_node.lock().unwrap_or_else(PoisonError::into_inner).insert(node.to_owned(), reason);
        let is_news = old != Some(reason);
        if is_news {
            self.changed(old, Some(reason));
        }
        is_news
    }

    /// The nodes that something holds.
    pub(in crate::controllers) fn nodes(&self) -> Vec<String> {
        self.by_node.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// The reason of one node changed.
    fn changed(&self, old: Option<Reason>, new: Option<Reason>) {
        if let Some(old) = old {
            self.held.with_label_values(&[old.as_str()]).dec();
        }
        if let Some(new) = new {
            self.held.with_label_values(&[new.as_str()]).inc();
        }
    }

    /// Forgets all: another process looks after the nodes.
    pub(in crate::controllers) fn forget_all(&self) {
        for (_, reason) in self.by_node.lock().unwrap_or_else(PoisonError::into_inner).drain() {
            self.changed(Some(reason), None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::Opts;

    #[test]
    fn a_reason_is_news_once_until_it_changes_or_ends() {
        let held = IntGaugeVec::new(Opts::new("held", "nodes"), &["reason"]).unwrap();
        let reasons = Reasons::new(held.clone());
        let (a, b) = (Reason::VMNotFound, Reason::NoAddresses);
        let news: Vec<bool> = [a, a, b, a].map(|reason| reasons.set("n", reason)).to_vec();
        assert_eq!(news, [true, false, true, true]);
        assert_eq!((held.with_label_values(&[a.as_str()]).get(), held.with_label_values(&[b.as_str()]).get()), (1, 0));
        assert_eq!(reasons.clear("n"), Some(a));
        assert_eq!(reasons.clear("n"), None);
        assert!(reasons.set("n", a));
        reasons.forget_all();
        assert!(reasons.set("n", a));
    }
}
