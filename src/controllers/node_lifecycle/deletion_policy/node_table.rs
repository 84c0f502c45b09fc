//! Pure: the Nodes that the guard knows, and how many of them are its own, are gone, were not asked about, and so on. The
//! counts are needed at every event of every Node, so they are kept.

use std::collections::BTreeMap;
use std::time::Instant;

use super::record::NodeRecord;

/// See the file's header.
#[derive(Debug, Default)]
pub(super) struct NodeTable {
    nodes: BTreeMap<String, NodeRecord>,
    /// Nodes absent since this time are newcomers; all absent Nodes if it is none.
    from: Option<Instant>,
    counts: BTreeMap<NodeCategory, usize>,
}

/// The categories in which Nodes are counted. A Node that a dry run reported as deleted is in none of the first three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NodeCategory {
    /// One of this provider.
    Own,
    /// Its VM is gone.
    Absent,
    /// Its VM is gone since the time of [`NodeTable::count_from`].
    NewlyAbsent,
    /// To ask about it again may cost a search.
    Costly,
    /// Its VM may be gone, though the provider did not say so: it existed then, or the provider was not asked.
    Unanswered(Option<Instant>),
}

impl NodeTable {
    /// The number of Nodes of this category.
    pub(super) fn count(&self, mark: NodeCategory) -> usize {
        self.counts.get(&mark).copied().unwrap_or_default()
    }

    /// The nodes whose machines may have gone together with one that is gone since `since`.
    pub(super) fn unanswered(&self, since: Instant) -> usize {
        self.counts
            .range(NodeCategory::Unanswered(None)..NodeCategory::Unanswered(Some(since)))
            .map(|(_, count)| count)
            .sum()
    }

    /// From when on a machine that is gone is a newcomer. Goes through all of them if that is another time.
    pub(super) fn count_from(&mut self, from: Option<Instant>) {
        if self.from != from {
            self.from = from;
            let newcomers =
                self.all().flat_map(|record| marks(record, from)).filter(|mark| *mark == NodeCategory::NewlyAbsent);
            self.counts.insert(NodeCategory::NewlyAbsent, newcomers.count());
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&NodeRecord> {
        self.nodes.get(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.nodes.keys()
    }

    /// The names of at most so many newcomers.
    pub(super) fn newcomers(&self, most: usize) -> Vec<String> {
        let is_newcomer = |record: &NodeRecord| marks(record, self.from).any(|mark| mark == NodeCategory::NewlyAbsent);
        let newcomers = self.nodes.iter().filter(|(_, record)| is_newcomer(record));
        newcomers.take(most).map(|(name, _)| name.clone()).collect()
    }

    /// Goes through all of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &NodeRecord> {
        self.nodes.values()
    }

    /// Of a Node that was not known.
    pub(super) fn put(&mut self, name: &str, record: NodeRecord) {
        add(&mut self.counts, &record, self.from);
        self.nodes.insert(name.to_owned(), record);
    }

    /// Changes what is known under this name, if anything is.
    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(&mut NodeRecord)) {
        let Some(record) = self.nodes.get_mut(name) else { return };
        subtract(&mut self.counts, record, self.from);
        change(record);
        add(&mut self.counts, record, self.from);
    }

    /// Changes what is known of each.
    pub(super) fn change_all(&mut self, mut change: impl FnMut(&mut NodeRecord)) {
        self.counts.clear();
        for record in self.nodes.values_mut() {
            change(record);
            add(&mut self.counts, record, self.from);
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(record) = self.nodes.remove(name) {
            subtract(&mut self.counts, &record, self.from);
        }
    }
}

fn add(counts: &mut BTreeMap<NodeCategory, usize>, record: &NodeRecord, from: Option<Instant>) {
    marks(record, from).for_each(|mark| *counts.entry(mark).or_default() += 1);
}

fn subtract(counts: &mut BTreeMap<NodeCategory, usize>, record: &NodeRecord, from: Option<Instant>) {
    for mark in marks(record, from) {
        let Some(count) = counts.get_mut(&mark) else { continue };
        *count -= 1;
        if *count == 0 {
            counts.remove(&mark);
        }
    }
}

fn marks(record: &NodeRecord, from: Option<Instant>) -> impl Iterator<Item = NodeCategory> {
    let since = record.suspected_since().filter(|_| !record.is_told);
    let marks = [
        (record.facts.is_own && !record.is_told).then_some(NodeCategory::Own),
        since.map(|_| NodeCategory::Absent),
        since.filter(|since| from.is_none_or(|from| *since >= from)).map(|_| NodeCategory::NewlyAbsent),
        record.is_costly().then_some(NodeCategory::Costly),
        record.unanswered_since().map(NodeCategory::Unanswered),
    ];
    marks.into_iter().flatten()
}
