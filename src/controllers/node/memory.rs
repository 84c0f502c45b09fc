//! What this process remembers of nodes between two looks of one term: since when they wait, which labels it told to
//! differ, and which of their versions it replaced.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use prometheus::IntGaugeVec;
use tokio::time::Instant;

use super::plan::Difference;
use crate::cloud::node;

/// The cache has what was written within moments. Where it does not, as of a Node that cannot be read any more, the next
/// look after this time goes by what it has.
const CACHE_LIMIT: Duration = Duration::from_secs(60);

/// The memory of one term, by node name; what there is nothing to remember of has no entry. A look that outlives the term
/// for a moment leaves nothing in it.
pub(super) struct NodeMemory {
    /// On how many nodes each label differs.
    differing: IntGaugeVec,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    nodes: HashMap<String, MemoryEntry>,
    /// The term is over: another process looks after the nodes.
    is_over: bool,
}

#[derive(Default)]
struct MemoryEntry {
    /// Since when the node of this UID waits to be initialised.
    waiting: Option<(Option<String>, Instant)>,
    differences: Vec<Difference>,
    /// The resourceVersions that this process replaced last, and when. The cache may still have one of them.
    replaced: Option<(Vec<String>, Instant)>,
}

impl NodeMemory {
    pub(super) fn new(differing: IntGaugeVec) -> Self {
        Self { differing, memory: Mutex::default() }
    }

    /// For how long `node` is known to wait, by the monotonic clock; `waits` says whether it does now.
    pub(super) fn waited(&self, node: &Node, waits: bool) -> Duration {
        let mut memory = self.memory.lock();
        let name = node::name(node);
        if !waits || memory.is_over {
            if let Some(entry) = memory.nodes.get_mut(name) {
                entry.waiting = None;
            }
            drop_if_empty(&mut memory.nodes, name);
            return Duration::ZERO;
        }
        let entry = memory.nodes.entry(name.to_owned()).or_default();
        // A node that was made anew under the same name waits anew.
        entry.waiting.take_if(|(uid, _)| *uid != node.metadata.uid);
        entry.waiting.get_or_insert_with(|| (node.metadata.uid.clone(), Instant::now())).1.elapsed()
    }

    /// This process wrote to the node, whose versions `replaced` are history with that.
    pub(super) fn wrote(&self, name: &str, replaced: Vec<String>) {
        let mut memory = self.memory.lock();
        if !replaced.is_empty() && !memory.is_over {
            memory.nodes.entry(name.to_owned()).or_default().replaced = Some((replaced, Instant::now()));
        }
    }

    /// Whether `node` is as it was before this process wrote to it. Its present state is on its way to the cache, and is
    /// looked at when it comes.
    pub(super) fn is_replaced(&self, node: &Node) -> bool {
        let mut memory = self.memory.lock();
        let nodes = &mut memory.nodes;
        let name = node::name(node);
        let Some(entry) = nodes.get_mut(name) else { return false };
        let version = node.metadata.resource_version.as_ref();
        let recent = entry.replaced.as_ref().filter(|(_, at)| at.elapsed() < CACHE_LIMIT);
        if recent.zip(version).is_some_and(|((versions, _), version)| versions.contains(version)) {
            return true;
        }
        entry.replaced = None;
        drop_if_empty(nodes, name);
        false
    }

    /// These labels differ now. Gives those of which that is news.
    pub(super) fn differ(&self, name: &str, differences: &[Difference]) -> Vec<Difference> {
        let mut memory = self.memory.lock();
        if memory.is_over {
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

    /// There is no such node any more.
    pub(super) fn forget(&self, name: &str) {
        if let Some(entry) = self.memory.lock().nodes.remove(name) {
            self.count(&entry.differences, -1);
        }
    }

    /// The nodes of which there is something to remember.
    pub(super) fn nodes(&self) -> Vec<String> {
        self.memory.lock().nodes.keys().cloned().collect()
    }

    /// The term is over: forgets everything, and remembers nothing from now on.
    pub(super) fn forget_all(&self) {
        let mut memory = self.memory.lock();
        memory.is_over = true;
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
        // What a storm needed is not kept until the next one.
        if nodes.is_empty() {
            nodes.shrink_to_fit();
        }
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
            seen.push(remembered.waited(&node(uid), waits).as_secs());
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
