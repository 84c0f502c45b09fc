//! State about Nodes that this process keeps between two reconciles of one leadership term: the start of the wait for
//! initialization, the reported label differences, and the `resourceVersion`s that writes of this process replaced.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use prometheus::IntGaugeVec;
use tokio::time::Instant;

use super::plan::Difference;
use crate::cloud::node;

/// Longest time for which a reconcile skips a cached Node that a write of this process has replaced. The limit exists
/// because the cache may never get the new version, for example because the Node cannot be decoded.
const CACHE_LIMIT: Duration = Duration::from_secs(60);

/// State per Node of one leadership term. Changes after the end of the term are ignored.
pub(super) struct NodeMemory {
    /// Number of Nodes on which each label differs from the cloud.
    differing: IntGaugeVec,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    nodes: HashMap<String, MemoryEntry>,
    /// The Nodes that were up to date at their last reconcile.
    settled: HashSet<Box<str>>,
    /// Whether the term is over. Another process then reconciles the Nodes.
    has_ended: bool,
}

#[derive(Default)]
struct MemoryEntry {
    /// UID of a Node that waits for initialization, and the start of its wait.
    waiting: Option<(Option<String>, Instant)>,
    differences: Vec<Difference>,
    /// The `resourceVersion`s that the last writes of this process replaced, and the time of these writes.
    replaced: Option<(Vec<String>, Instant)>,
}

impl MemoryEntry {
    /// Whether a recent write replaced this version of the Node.
    fn replaces(&self, node: &Node) -> bool {
        let recent = self.replaced.as_ref().filter(|(_, at)| at.elapsed() < CACHE_LIMIT);
        let version = node.metadata.resource_version.as_ref();
        recent.zip(version).is_some_and(|((versions, _), version)| versions.contains(version))
    }
}

impl NodeMemory {
    pub(super) fn new(differing: IntGaugeVec) -> Self {
        Self { differing, memory: Mutex::default() }
    }

    /// Returns the time since this process first saw `node` wait for initialization; zero if `waits` is false or the
    /// term is over.
    pub(super) fn waited(&self, node: &Node, waits: bool) -> Duration {
        let mut memory = self.memory.lock();
        let name = node::name(node);
        if !waits || memory.has_ended {
            if let Some(entry) = memory.nodes.get_mut(name) {
                entry.waiting = None;
            }
            drop_if_empty(&mut memory.nodes, name);
            return Duration::ZERO;
        }
        let entry = memory.nodes.entry(name.to_owned()).or_default();
        // If a Node is recreated under the same name, the wait starts again from zero.
        entry.waiting.take_if(|(uid, _)| *uid != node.metadata.uid);
        entry.waiting.get_or_insert_with(|| (node.metadata.uid.clone(), Instant::now())).1.elapsed()
    }

    /// Returns the same time as [`NodeMemory::waited`], without starting or ending a wait.
    pub(super) fn waiting_time(&self, node: &Node) -> Duration {
        let memory = self.memory.lock();
        let waiting = memory.nodes.get(node::name(node)).and_then(|entry| entry.waiting.as_ref());
        let own = waiting.filter(|(uid, _)| *uid == node.metadata.uid);
        own.map(|(_, since)| since.elapsed()).unwrap_or_default()
    }

    /// Records a write of this process that replaced these `resourceVersion`s of the Node.
    pub(super) fn wrote(&self, name: &str, replaced: Vec<String>) {
        let mut memory = self.memory.lock();
        if !replaced.is_empty() && !memory.has_ended {
            memory.nodes.entry(name.to_owned()).or_default().replaced = Some((replaced, Instant::now()));
        }
    }

    /// Whether a write of this process within the last 60 s replaced the cached version `node`. The new version reaches
    /// the cache soon. Forgets the write once the cache has another version.
    pub(super) fn is_replaced(&self, node: &Node) -> bool {
        let mut memory = self.memory.lock();
        let nodes = &mut memory.nodes;
        let name = node::name(node);
        let Some(entry) = nodes.get_mut(name) else { return false };
        if entry.replaces(node) {
            return true;
        }
        entry.replaced = None;
        drop_if_empty(nodes, name);
        false
    }

    /// Returns the same as [`NodeMemory::is_replaced`], and forgets nothing.
    pub(super) fn is_behind_write(&self, node: &Node) -> bool {
        self.memory.lock().nodes.get(node::name(node)).is_some_and(|entry| entry.replaces(node))
    }

    /// Records the current label differences. Returns the differences that are new; none after the end of the term.
    pub(super) fn differ(&self, name: &str, differences: &[Difference]) -> Vec<Difference> {
        let mut memory = self.memory.lock();
        if memory.has_ended {
            return Vec::new();
        }
        let nodes = &mut memory.nodes;
        let entry = nodes.entry(name.to_owned()).or_default();
        let old = std::mem::replace(&mut entry.differences, differences.to_vec());
        self.count(&old, -1);
        self.count(differences, 1);
        drop_if_empty(nodes, name);
        differences.iter().filter(|difference| !old.contains(difference)).cloned().collect()
    }

    /// Records whether the Node was up to date at its last reconcile.
    pub(super) fn set_settled(&self, name: &str, is_settled: bool) {
        let mut memory = self.memory.lock();
        if !is_settled {
            memory.settled.remove(name);
        } else if !memory.has_ended && !memory.settled.contains(name) {
            memory.settled.insert(name.into());
        }
    }

    /// Whether the Node was up to date at its last reconcile.
    pub(super) fn is_settled(&self, name: &str) -> bool {
        self.memory.lock().settled.contains(name)
    }

    /// Returns the number of Nodes that were up to date at their last reconcile.
    pub(super) fn count_settled(&self) -> usize {
        self.memory.lock().settled.len()
    }

    pub(super) fn forget(&self, name: &str) {
        let mut memory = self.memory.lock();
        memory.settled.remove(name);
        if let Some(entry) = memory.nodes.remove(name) {
            self.count(&entry.differences, -1);
        }
    }

    pub(super) fn nodes(&self) -> Vec<String> {
        let memory = self.memory.lock();
        let settled = memory.settled.iter().map(|name| String::from(&**name));
        memory.nodes.keys().cloned().chain(settled).collect()
    }

    /// Ends the term: clears all state and ignores later changes.
    pub(super) fn forget_all(&self) {
        let mut memory = self.memory.lock();
        memory.has_ended = true;
        memory.settled.clear();
        for (_, entry) in memory.nodes.drain() {
            self.count(&entry.differences, -1);
        }
    }

    fn count(&self, differences: &[Difference], by: i64) {
        for difference in differences {
            self.differing.with_label_values(&[difference.label]).add(by);
        }
    }
}

fn drop_if_empty(nodes: &mut HashMap<String, MemoryEntry>, name: &str) {
    let is_empty =
        |entry: &MemoryEntry| entry.waiting.is_none() && entry.differences.is_empty() && entry.replaced.is_none();
    if nodes.get(name).is_some_and(is_empty) {
        nodes.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::node::ZONE;
    use crate::controllers::node::reason;
    use prometheus::Opts;

    fn remembered() -> (NodeMemory, IntGaugeVec) {
        let differing = IntGaugeVec::new(Opts::new("differing", "nodes"), &["label"]).unwrap();
        (NodeMemory::new(differing.clone()), differing)
    }

    fn node(uid: &str) -> Node {
        let mut node = Node::default();
        node.metadata.name = Some("a".into());
        node.metadata.uid = Some(uid.into());
        node
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_waits_from_the_first_look_on_and_anew_when_it_is_made_anew() {
        let (remembered, _) = remembered();
        let second = Duration::from_secs(1);
        let mut seen = Vec::new();
        for (uid, waits) in [("1", true), ("1", true), ("2", true), ("2", true), ("2", false), ("2", true)] {
            let waited = remembered.waited(&node(uid), waits);
            assert_eq!(remembered.waiting_time(&node(uid)), waited, "{uid}");
            seen.push(waited.as_secs());
            tokio::time::advance(second).await;
        }
        assert_eq!(seen, [0, 1, 0, 1, 0, 0]);
        remembered.waited(&node("2"), false);
        assert!(remembered.memory.lock().nodes.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_was_written_over_is_history_until_the_cache_has_another_or_does_not_get_it() {
        let (remembered, _) = remembered();
        let at = |version: &str| {
            let mut node = node("1");
            node.metadata.resource_version = Some(version.into());
            node
        };
        assert!(!remembered.is_replaced(&at("7")));
        remembered.wrote("a", vec!["7".into(), "8".into()]);
        assert!(remembered.is_replaced(&at("7")) && remembered.is_replaced(&at("8")));
        assert!(!remembered.is_replaced(&at("9")), "what was written");
        assert!(!remembered.is_replaced(&at("8")) && remembered.memory.lock().nodes.is_empty(), "nothing is kept");
        remembered.wrote("a", vec!["9".into()]);
        tokio::time::advance(CACHE_LIMIT - Duration::from_secs(1)).await;
        assert!(remembered.is_replaced(&at("9")));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(
            !remembered.is_replaced(&at("9")) && remembered.memory.lock().nodes.is_empty(),
            "it is not looked past for ever"
        );
    }

    #[test]
    fn a_difference_is_news_once_until_it_changes_and_is_counted_while_it_lasts() {
        let (remembered, differing) = remembered();
        let zone = |cloud: &str| Difference {
            label: ZONE.current,
            reason: reason::ZoneLabelsDiffer,
            present: "a".into(),
            cloud: cloud.into(),
        };
        let count = || differing.with_label_values(&[ZONE.current]).get();
        for (differences, news, counted) in [
            (vec![zone("b")], 1, 1),
            (vec![zone("b")], 0, 1),
            (vec![zone("c")], 1, 1),
            (vec![], 0, 0),
            (vec![zone("c")], 1, 1),
        ] {
            assert_eq!((remembered.differ("n", &differences).len(), count()), (news, counted));
        }
        remembered.forget("n");
        assert_eq!(count(), 0);
        remembered.differ("n", &[zone("b")]);
        remembered.forget_all();
        assert_eq!(count(), 0);
        assert!(remembered.memory.lock().nodes.is_empty());
    }
}
