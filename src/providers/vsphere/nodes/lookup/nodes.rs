//! The tracked Nodes, indexed by needed VM, claimed UUID and due time.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use tokio::time::Instant;

use super::node_entry::NodeEntry;
use crate::providers::provider_id::BiosUuid;
use crate::providers::vsphere::vcenter::VmKey;

/// The tracked Nodes and their index. Nodes are changed in place, through [`Nodes::update`].
#[derive(Default)]
pub(super) struct Nodes {
    nodes: HashMap<String, IndexEntry>,
    index: Index,
}

struct IndexEntry {
    /// Boxed, because a `HashMap` has up to twice as many slots as entries.
    tracked: Box<NodeEntry>,
    position: IndexPosition,
}

/// Names of Nodes by key, sorted. Lists, because nearly every key has one name, and a set with one name needs ten times
/// the memory.
type NamesByKey<K> = HashMap<K, Vec<String>>;

#[derive(Default)]
struct Index {
    /// The Nodes that each VM backs or may back.
    needing: NamesByKey<VmKey>,
    claiming: NamesByKey<BiosUuid>,
    due: BTreeSet<(Instant, String)>,
    /// Number of Nodes whose bound VM is rechecked.
    recheck_count: u32,
}

#[derive(Default)]
struct IndexPosition {
    needs: Vec<VmKey>,
    due: Option<Instant>,
    claim: Option<BiosUuid>,
    is_rechecked: bool,
}

impl IndexPosition {
    fn of(tracked: &NodeEntry) -> Self {
        Self {
            needs: tracked.needs(),
            due: [tracked.search_at, tracked.decide_at, tracked.recheck_at].into_iter().flatten().min(),
            claim: tracked.facts.claim().cloned(),
            is_rechecked: tracked.recheck_at.is_some(),
        }
    }
}

impl Nodes {
    pub(super) fn get(&self, name: &str) -> Option<&NodeEntry> {
        self.nodes.get(name).map(|entry| &*entry.tracked)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &NodeEntry)> {
        self.nodes.iter().map(|(name, entry)| (name, &*entry.tracked))
    }

    /// Returns the number of other Nodes whose bound VM is rechecked.
    pub(super) fn count_other_rechecks(&self, name: &str) -> u32 {
        let is_counted = self.nodes.get(name).is_some_and(|entry| entry.position.is_rechecked);
        self.index.recheck_count - u32::from(is_counted)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
    }

    pub(super) fn needing(&self, vm: &VmKey) -> impl Iterator<Item = &String> {
        self.index.needing.get(vm).into_iter().flatten()
    }

    /// Returns the Nodes that claim a VM with this UUID, in either byte order.
    pub(super) fn claiming(&self, uuid: &BiosUuid) -> impl Iterator<Item = &String> {
        let claiming = &self.index.claiming;
        claiming.get(uuid).into_iter().chain(claiming.get(&uuid.byte_swapped())).flatten()
    }

    /// Returns the other Nodes that claim the same UUID, or that need this Node's bound VM.
    pub(super) fn rivals(&self, name: &str) -> BTreeSet<String> {
        let Some(IndexEntry { tracked, position: place }) = self.nodes.get(name) else { return BTreeSet::new() };
        let claiming = place.claim.iter().flat_map(|uuid| self.claiming(uuid));
        let backed = tracked.vm().into_iter().flat_map(|vm| self.needing(vm));
        claiming.chain(backed).filter(|other| *other != name).cloned().collect()
    }

    /// Returns the Nodes without a bound VM that match a VM of this Node, and may get the VM after this Node.
    pub(super) fn waiting_for(&self, name: &str) -> Vec<String> {
        let needs = self.nodes.get(name).map(|entry| entry.position.needs.as_slice()).unwrap_or_default();
        let others: BTreeSet<&String> = needs.iter().flat_map(|vm| self.needing(vm)).collect();
        let is_waiting = |other: &&String| *other != name && self.get(other).is_some_and(|other| other.bound.is_none());
        others.into_iter().filter(is_waiting).cloned().collect()
    }

    /// Inserts or replaces a Node. Returns the VMs that no Node needs any more.
    pub(super) fn put(&mut self, name: &str, tracked: NodeEntry) -> Vec<VmKey> {
        if self.nodes.contains_key(name) {
            return self.update(name, |known| *known = tracked);
        }
        self.nodes
            .insert(name.to_owned(), IndexEntry { tracked: Box::new(tracked), position: IndexPosition::default() });
        self.update(name, |_| {})
    }

    /// Changes a Node, if present, and its index. Returns the VMs that no Node needs any more.
    pub(super) fn update(&mut self, name: &str, change: impl FnOnce(&mut NodeEntry)) -> Vec<VmKey> {
        let Some(IndexEntry { tracked, position: place }) = self.nodes.get_mut(name) else { return Vec::new() };
        change(tracked);
        tracked.share_location();
        let before = std::mem::replace(place, IndexPosition::of(tracked));
        self.index.change(name, before, place)
    }

    /// Removes a Node. Returns the VMs that no Node needs any more.
    pub(super) fn forget(&mut self, name: &str) -> Vec<VmKey> {
        let Some(IndexEntry { position: place, .. }) = self.nodes.remove(name) else { return Vec::new() };
        self.index.change(name, place, &IndexPosition::default())
    }

    /// Returns the earliest time of a search, a recheck or the end of a wait; `None` if nothing is scheduled.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.index.due.first().map(|(at, _)| *at)
    }

    /// Returns the Nodes that are due at `now`. A Node stays due until it is changed.
    pub(super) fn due(&self, now: Instant) -> Vec<String> {
        self.index.due.iter().take_while(|(at, _)| *at <= now).map(|(_, name)| name.clone()).collect()
    }
}

impl Index {
    /// Moves a Node in the index. Returns the VMs that no Node needs any more.
    fn change(&mut self, name: &str, before: IndexPosition, after: &IndexPosition) -> Vec<VmKey> {
        self.recheck_count += u32::from(after.is_rechecked);
        self.recheck_count -= u32::from(before.is_rechecked);
        if before.due != after.due {
            self.due.extend(after.due.map(|at| (at, name.to_owned())));
            if let Some(at) = before.due {
                self.due.remove(&(at, name.to_owned()));
            }
        }
        if before.claim != after.claim {
            if let Some(uuid) = &after.claim {
                add_name(&mut self.claiming, uuid.clone(), name);
            }
            if let Some(uuid) = &before.claim {
                remove_name(&mut self.claiming, uuid, name);
            }
        }
        for vm in after.needs.iter().filter(|vm| !before.needs.contains(vm)) {
            add_name(&mut self.needing, vm.clone(), name);
        }
        let mut unneeded = before.needs;
        unneeded.retain(|vm| !after.needs.contains(vm) && remove_name(&mut self.needing, vm, name));
        unneeded
    }
}

/// Adds a name to this key.
fn add_name<K: Eq + Hash>(names: &mut NamesByKey<K>, key: K, name: &str) {
    let of_key = names.entry(key).or_default();
    if let Err(position) = of_key.binary_search_by(|known| known.as_str().cmp(name)) {
        of_key.reserve_exact(1);
        of_key.insert(position, name.to_owned());
    }
}

/// Removes a name of this key, and removes the key with its last name. Returns true if no name is left.
fn remove_name<K: Eq + Hash>(names: &mut NamesByKey<K>, key: &K, name: &str) -> bool {
    let Some(of_key) = names.get_mut(key) else { return true };
    of_key.retain(|known| known != name);
    let is_empty = of_key.is_empty();
    if is_empty {
        names.remove(key);
    }
    is_empty
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::FoundBy;
    use crate::providers::vsphere::nodes::lookup::facts::NodeFacts;
    use crate::providers::vsphere::nodes::lookup::node_entry::Binding;
    use crate::providers::vsphere::nodes::lookup::resolution::{SearchAnswer, SearchKey};
    use std::time::Duration;

    fn node(ids: &[&str]) -> NodeEntry {
        let ids = ids.iter().map(|id| (*id).into()).collect();
        let mut tracked = NodeEntry::new(None, NodeFacts::default());
        tracked.answers.insert(7.into(), SearchAnswer::Matches { query: SearchKey::Uuid, ids });
        tracked
    }

    fn vm(id: &str) -> VmKey {
        VmKey { vcenter: 7.into(), id: id.into() }
    }

    fn bound(id: &str) -> Option<Binding> {
        let (uuid, instance_uuid, found_by, unasked) = (None, None, FoundBy::Name, Vec::new());
        Some(Binding { vm: vm(id), uuid, instance_uuid, found_by, unqueried: unasked })
    }

    #[test]
    fn a_machine_is_unneeded_when_the_last_node_lets_go_of_it() {
        let mut nodes = Nodes::default();
        assert_eq!(nodes.put("a", node(&["vm-1", "vm-2"])), []);
        assert_eq!(nodes.put("b", node(&["vm-2"])), []);
        assert_eq!(nodes.needing(&vm("vm-2")).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(nodes.update("a", |tracked| tracked.bound = bound("vm-3")), [vm("vm-1")]);
        assert_eq!(nodes.needing(&vm("vm-2")).collect::<Vec<_>>(), ["b"]);
        assert_eq!(nodes.forget("b"), [vm("vm-2")]);
        assert_eq!(nodes.forget("a"), [vm("vm-3")]);
        assert!(nodes.index.needing.is_empty() && nodes.nodes.is_empty() && nodes.index.due.is_empty());
    }

    #[test]
    fn a_node_claims_the_machine_of_its_provider_id_unless_that_is_disputed() {
        let uuid: BiosUuid = "422e4956-ad22-1139-6d72-59cc8f26bc90".parse().unwrap();
        let claims = |is_claimed: bool| {
            let (provider_id, is_disputed) = (Some(uuid.clone()), !is_claimed);
            let facts = NodeFacts { provider_id, has_provider_id: true, is_disputed, ..NodeFacts::default() };
            NodeEntry::new(None, facts)
        };
        let mut nodes = Nodes::default();
        let claiming = |nodes: &Nodes, uuid: &BiosUuid| nodes.claiming(uuid).cloned().collect::<Vec<_>>();
        nodes.put("a", claims(true));
        nodes.put("b", claims(false));
        assert_eq!(claiming(&nodes, &uuid), ["a"]);
        assert_eq!(claiming(&nodes, &uuid.byte_swapped()), ["a"], "in the other byte order");
        nodes.put("b", claims(true));
        assert_eq!(claiming(&nodes, &uuid), ["a", "b"]);
        assert_eq!(nodes.rivals("a"), BTreeSet::from(["b".to_owned()]));
        nodes.put("a", claims(false));
        nodes.forget("b");
        assert_eq!(claiming(&nodes, &uuid), [""; 0]);
        assert!(nodes.index.claiming.is_empty());
    }

    #[test]
    fn nodes_that_wait_for_a_machine_are_found_by_the_node_that_has_it() {
        let mut nodes = Nodes::default();
        nodes.put("waits", node(&["vm-1"]));
        nodes.put("else", node(&["vm-2"]));
        nodes.put("has", NodeEntry { bound: bound("vm-1"), ..node(&[]) });
        nodes.put("has-too", NodeEntry { bound: bound("vm-1"), ..node(&[]) });
        assert_eq!(nodes.waiting_for("has"), ["waits"]);
        assert_eq!(nodes.waiting_for("nobody"), [""; 0]);
    }

    #[test]
    fn nodes_are_due_in_their_order_until_they_are_changed() {
        let start = Instant::now();
        let at = |seconds| Some(start + Duration::from_secs(seconds));
        let mut nodes = Nodes::default();
        nodes.put("late", NodeEntry { search_at: at(9), decide_at: at(5), ..node(&[]) });
        nodes.put("early", NodeEntry { search_at: at(2), ..node(&[]) });
        nodes.put("never", node(&[]));
        assert_eq!(nodes.next_due(), at(2));
        assert_eq!(nodes.due(start), [""; 0]);
        assert_eq!(nodes.due(start + Duration::from_secs(5)), ["early", "late"]);
        nodes.update("early", |tracked| tracked.search_at = None);
        assert_eq!(nodes.next_due(), at(5));
        nodes.forget("late");
        assert_eq!(nodes.next_due(), None);
    }

    #[test]
    fn the_other_nodes_that_are_looked_for_are_counted() {
        let mut nodes = Nodes::default();
        let looked_for = || NodeEntry { recheck_at: Some(Instant::now()), ..node(&[]) };
        nodes.put("a", looked_for());
        nodes.put("b", looked_for());
        nodes.put("c", node(&[]));
        let counts = |nodes: &Nodes| ["a", "b", "c", "d"].map(|name| nodes.count_other_rechecks(name));
        assert_eq!(counts(&nodes), [1, 1, 2, 2]);
        nodes.update("a", |tracked| tracked.recheck_at = None);
        assert_eq!(counts(&nodes), [1, 0, 1, 1]);
        nodes.forget("b");
        assert_eq!(counts(&nodes), [0; 4]);
    }
}
