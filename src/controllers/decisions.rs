//! The last decisions of all controllers, for commands: what was decided about an object, when, and why. Each
//! controller records changes only, and not that a periodic reconcile had the same result again.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

/// Maximum number of kept decisions.
pub const MAX_DECISIONS: usize = 2_000;

/// Maximum memory of the kept decisions, in bytes. The oldest decisions are dropped first.
pub const MAX_BYTES: usize = 512 * 1024;

/// Maximum number of characters of a name: namespace and name of a Service, with the slash.
const MAX_NAME: usize = 320;

/// Maximum number of characters of a text.
const MAX_TEXT: usize = 300;

/// The object is up to date after a reason has blocked it.
pub const SETTLED: &str = "Settled";

/// The object does not exist any more. A reason has blocked it before.
pub const GONE: &str = "Gone";

/// The Node was initialized.
pub const INITIALIZED: &str = "Initialized";

/// Something was written to the Node.
pub const WRITTEN: &str = "Written";

/// Every rule permits the deletion of the Node, and the VM was confirmed deleted right before the request.
pub const PERMITTED: &str = "Permitted";

/// The API server has accepted the deletion of the Node.
pub const DELETED: &str = "Deleted";

/// Another client has deleted the Node before the request of this process.
pub const DELETED_ELSEWHERE: &str = "DeletedElsewhere";

/// The API server did not answer the deletion of the Node.
pub const UNANSWERED: &str = "Unanswered";

/// Name of the subject if a decision is about the routes of all Nodes.
pub const ALL_ROUTES: &str = "*";

/// A route was created.
pub const ROUTE_CREATED: &str = "RouteCreated";

/// A route was deleted.
pub const ROUTE_DELETED: &str = "RouteDeleted";

/// Kind of the object of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    /// A Node, as the node controller sees it.
    Node,
    /// The deletion and the taints of a Node.
    Deletion,
    /// The load balancer of a Service. The name is `namespace/name`.
    Service,
    /// A route. The name is that of the Node, or the network if the Node is unknown.
    Route,
}

impl SubjectKind {
    /// Returns the word for users.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Deletion => "deletion",
            Self::Service => "service",
            Self::Route => "route",
        }
    }
}

/// One decision about one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Time of the decision, by the clock of this host.
    pub time: Timestamp,
    /// Number of the leadership term in this process, from 1. Zero without an election.
    pub term: u64,
    /// Kind of the object.
    pub kind: SubjectKind,
    /// Name of the object.
    pub name: Box<str>,
    /// The result: a reason, or a word such as [`SETTLED`].
    pub word: &'static str,
    /// Details, at most 300 characters.
    pub text: Box<str>,
}

impl Decision {
    /// Returns the memory of the texts, in bytes.
    fn text_bytes(&self) -> usize {
        self.name.len() + self.text.len()
    }
}

/// The last decisions. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct DecisionHistory(Arc<Mutex<DecisionRing>>);

/// The decisions, the oldest one first.
#[derive(Debug, Default)]
struct DecisionRing {
    decisions: VecDeque<Decision>,
    /// Sum of [`Decision::text_bytes`].
    text_bytes: usize,
}

impl DecisionRing {
    fn push(&mut self, decision: Decision) {
        self.text_bytes += decision.text_bytes();
        self.decisions.push_back(decision);
        while self.decisions.len() > MAX_DECISIONS || self.bytes() > MAX_BYTES {
            let Some(oldest) = self.decisions.pop_front() else { return };
            self.text_bytes -= oldest.text_bytes();
        }
    }

    /// Returns the memory of all decisions, in bytes. The entries count with their unused capacity.
    fn bytes(&self) -> usize {
        self.decisions.capacity() * size_of::<Decision>() + self.text_bytes
    }
}

impl DecisionHistory {
    /// Returns the last decisions that `is_wanted` selects, at most `limit`, the newest one first.
    pub fn last(&self, limit: usize, is_wanted: impl Fn(&Decision) -> bool) -> Vec<Decision> {
        let ring = self.0.lock();
        ring.decisions.iter().rev().filter(|decision| is_wanted(decision)).take(limit).cloned().collect()
    }

    fn push(&self, decision: Decision) {
        self.0.lock().push(decision);
    }
}

/// Records the decisions of one controller in one leadership term.
#[derive(Clone)]
pub(in crate::controllers) struct DecisionRecorder {
    history: DecisionHistory,
    kind: SubjectKind,
    term: u64,
}

impl DecisionRecorder {
    pub(in crate::controllers) fn new(history: DecisionHistory, kind: SubjectKind, term: u64) -> Self {
        Self { history, kind, term }
    }

    /// Records a decision about the object of this name. The caller records changes only.
    pub(in crate::controllers) fn record(&self, name: &str, word: &'static str, text: &str) {
        self.history.push(Decision {
            time: Timestamp::now(),
            term: self.term,
            kind: self.kind,
            name: clipped(name, MAX_NAME).into(),
            word,
            text: shortened(text, MAX_TEXT),
        });
    }
}

/// Returns the text, or its first characters and an ellipsis. The ellipsis tells those who mask or replace names in the
/// text that a name may end there.
pub(in crate::controllers) fn shortened(text: &str, characters: usize) -> Box<str> {
    if text.chars().nth(characters).is_none() {
        return text.into();
    }
    format!("{}…", clipped(text, characters.saturating_sub(1))).into()
}

/// Returns the first characters of the text.
fn clipped(text: &str, characters: usize) -> &str {
    match text.char_indices().nth(characters) {
        Some((end, _)) => text.get(..end).unwrap_or_default(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(history: &DecisionHistory, kind: SubjectKind) -> DecisionRecorder {
        DecisionRecorder::new(history.clone(), kind, 3)
    }

    fn bytes(history: &DecisionHistory) -> usize {
        history.0.lock().bytes()
    }

    #[test]
    fn a_decision_is_found_by_its_object_with_the_newest_first() {
        let history = DecisionHistory::default();
        assert_eq!(bytes(&history), 0, "an idle process needs no memory for it");
        let nodes = recorder(&history, SubjectKind::Node);
        nodes.record("worker-1", WRITTEN, "addresses");
        nodes.record("worker-2", INITIALIZED, "");
        recorder(&history, SubjectKind::Deletion).record("worker-1", PERMITTED, "proof");
        nodes.record("worker-1", SETTLED, "up to date");
        let of_node = |limit| {
            let is_wanted = |decision: &Decision| decision.kind == SubjectKind::Node && &*decision.name == "worker-1";
            let found = history.last(limit, is_wanted);
            assert!(found.iter().all(|decision| decision.term == 3));
            found.into_iter().map(|decision| (decision.word, decision.text.to_string())).collect::<Vec<_>>()
        };
        let settled = (SETTLED, "up to date".to_owned());
        assert_eq!(of_node(20), [settled.clone(), (WRITTEN, "addresses".to_owned())]);
        assert_eq!(of_node(1), [settled]);
        assert_eq!(history.last(20, |_| true).len(), 4);
    }

    #[test]
    fn the_oldest_decisions_are_dropped_at_2000_decisions() {
        let history = DecisionHistory::default();
        let nodes = recorder(&history, SubjectKind::Node);
        for number in 0..=MAX_DECISIONS {
            nodes.record(&format!("worker-{number}"), WRITTEN, "addresses");
        }
        let all = history.last(usize::MAX, |_| true);
        assert_eq!(all.len(), MAX_DECISIONS);
        assert_eq!(all.first().map(|decision| &*decision.name), Some("worker-2000"));
        assert_eq!(all.last().map(|decision| &*decision.name), Some("worker-1"), "worker-0 was the oldest one");
        assert!(bytes(&history) <= MAX_BYTES, "{}", bytes(&history));
    }

    #[test]
    fn the_oldest_decisions_are_dropped_at_512_kib() {
        let history = DecisionHistory::default();
        let nodes = recorder(&history, SubjectKind::Node);
        // The largest texts: four bytes for each character.
        let text = "\u{1f4a5}".repeat(10_000);
        for number in 0..MAX_DECISIONS {
            nodes.record(&format!("worker-{number}"), WRITTEN, &text);
            assert!(bytes(&history) <= MAX_BYTES, "{number}: {}", bytes(&history));
        }
        let all = history.last(usize::MAX, |_| true);
        assert!((100..MAX_DECISIONS).contains(&all.len()), "{}", all.len());
        assert_eq!(all.first().map(|decision| &*decision.name), Some("worker-1999"));
        assert!(all.iter().all(|decision| decision.text.chars().count() == MAX_TEXT && decision.text.ends_with('…')));
        let sum: usize = all.iter().map(Decision::text_bytes).sum();
        assert_eq!(history.0.lock().text_bytes, sum);
        nodes.record(&"n".repeat(9_000), WRITTEN, "");
        let newest = history.last(1, |_| true);
        assert_eq!(newest.first().map(|decision| decision.name.len()), Some(MAX_NAME));
    }
}
