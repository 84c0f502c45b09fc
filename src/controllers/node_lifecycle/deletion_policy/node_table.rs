//! Pure: the Nodes of the deletion policy, with a count per category. Each change updates the counts, because every
//! event of every Node needs them.

use std::collections::BTreeMap;
use std::time::Instant;

use super::record::NodeRecord;

#[derive(Debug, Default)]
pub(super) struct NodeTable {
    nodes: BTreeMap<String, NodeRecord>,
    /// Start of `NodeCategory::NewlyAbsent`. With `None`, the category includes all absent VMs.
    changed_from: Option<Instant>,
    counts: BTreeMap<NodeCategory, usize>,
}

/// The categories of the counts. A Node whose deletion a dry run reported is not in the first three categories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NodeCategory {
    /// The Node belongs to this provider.
    Own,
    /// The Node's VM is absent.
    Absent,
    /// The Node's VM became absent at or after the start that [`NodeTable::count_from`] sets.
    NewlyAbsent,
    /// Another query about the Node's VM may cost the cloud a search.
    Costly,
    /// The VM may be absent, although the last answer reported it as existing at this time; `None` without an answer.
    Unanswered(Option<Instant>),
}

impl NodeTable {
    pub(super) fn count(&self, category: NodeCategory) -> usize {
        self.counts.get(&category).copied().unwrap_or_default()
    }

    /// Returns the number of Nodes whose VM may have disappeared together with a VM that became absent at `since`.
    pub(super) fn unanswered(&self, since: Instant) -> usize {
        self.counts
            .range(NodeCategory::Unanswered(None)..NodeCategory::Unanswered(Some(since)))
            .map(|(_, count)| count)
            .sum()
    }

    /// Sets the start of `NodeCategory::NewlyAbsent`. Iterates over all Nodes if the start changes.
    pub(super) fn count_from(&mut self, from: Option<Instant>) {
        if self.changed_from != from {
            self.changed_from = from;
            self.change_all(|_| {});
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&NodeRecord> {
        self.nodes.get(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.nodes.keys()
    }

    /// Returns the names of up to `most` Nodes with newly absent VMs.
    pub(super) fn newly_absent(&self, most: usize) -> Vec<String> {
        let is_newcomer = |record: &NodeRecord| {
            marks(record, self.changed_from).any(|category| category == NodeCategory::NewlyAbsent)
        };
        let newcomers = self.nodes.iter().filter(|(_, record)| is_newcomer(record));
        newcomers.take(most).map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &NodeRecord> {
        self.nodes.values()
    }

    pub(super) fn put(&mut self, name: &str, record: NodeRecord) {
        add(&mut self.counts, &record, self.changed_from);
        self.nodes.insert(name.to_owned(), record);
    }

    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(&mut NodeRecord)) {
        let Some(record) = self.nodes.get_mut(name) else { return };
        subtract(&mut self.counts, record, self.changed_from);
        change(record);
        add(&mut self.counts, record, self.changed_from);
    }

    pub(super) fn change_all(&mut self, mut change: impl FnMut(&mut NodeRecord)) {
        self.counts.clear();
        for record in self.nodes.values_mut() {
            change(record);
            add(&mut self.counts, record, self.changed_from);
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Some(record) = self.nodes.remove(name) {
            subtract(&mut self.counts, &record, self.changed_from);
        }
    }
}

fn add(counts: &mut BTreeMap<NodeCategory, usize>, record: &NodeRecord, from: Option<Instant>) {
    marks(record, from).for_each(|category| *counts.entry(category).or_default() += 1);
}

fn subtract(counts: &mut BTreeMap<NodeCategory, usize>, record: &NodeRecord, from: Option<Instant>) {
    for category in marks(record, from) {
        let Some(count) = counts.get_mut(&category) else { continue };
        *count -= 1;
        if *count == 0 {
            counts.remove(&category);
        }
    }
}

fn marks(record: &NodeRecord, from: Option<Instant>) -> impl Iterator<Item = NodeCategory> {
    let since = record.absent_since().filter(|_| !record.is_dry_run_reported);
    let categories = [
        (record.facts.is_own && !record.is_dry_run_reported).then_some(NodeCategory::Own),
        since.map(|_| NodeCategory::Absent),
        since.filter(|since| from.is_none_or(|from| *since >= from)).map(|_| NodeCategory::NewlyAbsent),
        record.is_costly().then_some(NodeCategory::Costly),
        record.unanswered_since().map(NodeCategory::Unanswered),
    ];
    categories.into_iter().flatten()
}
