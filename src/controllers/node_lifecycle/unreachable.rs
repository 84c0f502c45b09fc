//! Pure: the time for which each Node has been `Ready=Unknown`, as this leader has observed it.
//!
//! The timestamps of the condition `Ready` come from the clock of another host, and a new leader did not observe the
//! time before its term. So the time starts with the first observation of this leader.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

use crate::cloud::node::{self, Readiness};

/// The Nodes with `Ready=Unknown`, and the time of their first observation.
#[derive(Debug, Default)]
pub struct Unreachable {
    by_node: HashMap<String, UnknownSince>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct UnknownSince {
    uid: String,
    /// Transition time of the condition `Ready`. A different value shows that the kubelet has reported meanwhile.
    transition: Option<Timestamp>,
    since: Instant,
}

impl Unreachable {
    /// Records the Node's state at `at`; `None` if the Node does not exist.
    pub fn observe(&mut self, name: &str, node: Option<&Node>, at: Instant) {
        let Some(node) = node.filter(|node| node::readiness(node) == Readiness::Unknown) else {
            self.by_node.remove(name);
            return;
        };
        if !self.by_node.get(name).is_some_and(|silence| silence.is_of(node)) {
            let uid = node.metadata.uid.clone().unwrap_or_default();
            let silence = UnknownSince { uid, transition: node::ready_since(node), since: at };
            self.by_node.insert(name.to_owned(), silence);
        }
    }

    /// Returns the uninterrupted time with `Ready=Unknown`; zero for another status or a first observation.
    pub fn lasting(&self, node: &Node, at: Instant) -> Duration {
        let silence = self.by_node.get(node::name(node)).filter(|silence| silence.is_of(node));
        silence.map_or(Duration::ZERO, |silence| at.saturating_duration_since(silence.since))
    }

    /// Keeps only the Nodes for which `is_there` returns true.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.by_node.retain(|name, _| is_there(name));
    }
}

impl UnknownSince {
    fn is_of(&self, node: &Node) -> bool {
        node::readiness(node) == Readiness::Unknown
            && self.uid == node.metadata.uid.as_deref().unwrap_or_default()
            && self.transition == node::ready_since(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(uid: &str, ready: &str, since: &str) -> Node {
        let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": since});
        serde_json::from_value(json!({
            "metadata": {"name": "n", "uid": uid},
            "status": {"conditions": if ready.is_empty() { json!([]) } else { json!([condition]) }},
        }))
        .unwrap()
    }

    #[test]
    fn the_time_counts_from_the_first_sight_of_unknown_without_a_break() {
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z");
        let silent = || node("u", "Unknown", early);
        let cases = [
            ("nothing happens", None, silent(), 60),
            ("seen again", Some(Some(silent())), silent(), 60),
            ("the kubelet reports", Some(Some(node("u", "False", late))), silent(), 0),
            ("Ready", Some(Some(node("u", "True", late))), silent(), 0),
            ("it vanished", Some(None), silent(), 0),
            ("another time in between", Some(Some(node("u", "Unknown", late))), node("u", "Unknown", late), 30),
            ("a status in between that only a live read shows", None, node("u", "Unknown", late), 0),
            ("a live read shows that the kubelet reports", None, node("u", "False", early), 0),
            ("a live read shows another Node", None, node("v", "Unknown", early), 0),
        ];
        for (case, between, asked, expected) in cases {
            let start = Instant::now();
            let mut unreachable = Unreachable::default();
            unreachable.observe("n", Some(&silent()), start);
            if let Some(between) = between {
                unreachable.observe("n", between.as_ref(), start + Duration::from_secs(30));
            }
            let lasting = unreachable.lasting(&asked, start + Duration::from_secs(60));
            assert_eq!(lasting, Duration::from_secs(expected), "{case}");
        }
        let mut unreachable = Unreachable::default();
        let never = node("u", "", early);
        unreachable.observe("n", Some(&never), Instant::now());
        assert!(unreachable.lasting(&never, Instant::now() + Duration::from_secs(1)) >= Duration::from_secs(1));
        unreachable.retain(|name| name != "n");
        assert_eq!(unreachable.by_node.len(), 0, "what is gone is forgotten");
    }
}
