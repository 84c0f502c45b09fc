//! The tracked nodes, and two ways to find them without looking at all: by a machine they need, by when they are due.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;

use super::ids::VmKey;
use super::tracked::Tracked;
use crate::providers::vsphere::provider_id::BiosUuid;

/// See the file's header. A node is taken out to be changed and put back afterwards; only then does the rest follow.
#[derive(Default)]
pub(super) struct Nodes {
    nodes: HashMap<String, Entry>,
    /// The nodes that need a machine: it backs them, or it may.
    needing: HashMap<VmKey, Names>,
    /// The initialised nodes by the UUID of their provider ID.
    claiming: HashMap<BiosUuid, Names>,
    due: BTreeSet<(Instant, String)>,
}

/// Names in order, each once. Nearly always it is one, for which a set would take room for eleven.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    fn insert(&mut self, name: &str) {
        if let Err(at) = self.0.binary_search_by(|known| known.as_str().cmp(name)) {
            self.0.reserve_exact(1);
            self.0.insert(at, name.to_owned());
        }
    }

    /// Whether others are left.
    fn remove(&mut self, name: &str) -> bool {
        self.0.retain(|known| known != name);
        !self.0.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = &String> {
        self.0.iter()
    }
}

/// A node and where it was entered.
#[derive(Default)]
struct Entry {
    /// Nothing while it is taken out. Boxed, as a table of them has up to twice as many places as it needs.
    tracked: Option<Box<Tracked>>,
    place: Place,
}

/// Where a node was entered.
#[derive(Default)]
struct Place {
    needs: Vec<VmKey>,
    due: Option<Instant>,
    claim: Option<BiosUuid>,
}

impl Nodes {
    pub(super) fn get(&self, name: &str) -> Option<&Tracked> {
        self.nodes.get(name)?.tracked.as_deref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Tracked)> {
        self.nodes.iter().filter_map(|(name, entry)| Some((name, entry.tracked.as_deref()?)))
    }

    /// How many nodes' machines are looked for again although they are known. Looks at every node.
    pub(super) fn looked_for(&self) -> u32 {
        let count = self.iter().filter(|(_, tracked)| tracked.look_at.is_some()).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The nodes that need this machine.
    pub(super) fn needing(&self, vm: &VmKey) -> impl Iterator<Item = &String> {
        self.needing.get(vm).into_iter().flat_map(Names::iter)
    }

    /// The initialised nodes whose provider ID names a machine with this UUID.
    pub(super) fn claiming(&self, uuid: &BiosUuid) -> impl Iterator<Item = &String> {
        let swapped = uuid.byte_swapped();
        self.claiming.get(uuid).into_iter().chain(self.claiming.get(&swapped)).flat_map(Names::iter)
    }

    /// The nodes without a machine that may have one of this node's when it is gone.
    pub(super) fn waiting_for(&self, name: &str) -> Vec<String> {
        let needs = self.nodes.get(name).map(|entry| entry.place.needs.as_slice()).unwrap_or_default();
        let others: BTreeSet<&String> = needs.iter().flat_map(|vm| self.needing(vm)).collect();
        let is_waiting = |other: &&String| *other != name && self.get(other).is_some_and(|other| other.bound.is_none());
        others.into_iter().filter(is_waiting).cloned().collect()
    }

    /// Takes a node out, to be changed and put back, or to be forgotten.
    pub(super) fn take(&mut self, name: &str) -> Option<Tracked> {
        self.nodes.get_mut(name)?.tracked.take().map(|tracked| *tracked)
    }

    /// Puts a node back, or in. Gives back the machines that no node needs any more.
    pub(super) fn put(&mut self, name: &str, mut tracked: Tracked) -> Vec<VmKey> {
        tracked.share_location();
        let due = [tracked.search_at, tracked.decide_at, tracked.look_at].into_iter().flatten().min();
        let needs = tracked.needs();
        self.claim(name, tracked.facts.provider_id.clone().filter(|_| tracked.facts.is_initialized));
        self.nodes.entry(name.to_owned()).or_default().tracked = Some(Box::new(tracked));
        self.enter(name, needs, due)
    }

    /// Forgets a node. Gives back the machines that no node needs any more.
    pub(super) fn forget(&mut self, name: &str) -> Vec<VmKey> {
        self.claim(name, None);
        let unneeded = self.enter(name, Vec::new(), None);
        self.nodes.remove(name);
        unneeded
    }

    /// When the next node is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The nodes that are due at `now`. They stay due until they were changed.
    pub(super) fn due(&self, now: Instant) -> Vec<String> {
        self.due.iter().take_while(|(at, _)| *at <= now).map(|(_, name)| name.clone()).collect()
    }

    fn claim(&mut self, name: &str, uuid: Option<BiosUuid>) {
        let place = &mut self.nodes.entry(name.to_owned()).or_default().place;
        if place.claim == uuid {
            return;
        }
        if let Some(before) = std::mem::replace(&mut place.claim, uuid.clone())
            && let Some(nodes) = self.claiming.get_mut(&before)
            && !nodes.remove(name)
        {
            self.claiming.remove(&before);
        }
        if let Some(uuid) = uuid {
            self.claiming.entry(uuid).or_default().insert(name);
        }
    }

    fn enter(&mut self, name: &str, needs: Vec<VmKey>, due: Option<Instant>) -> Vec<VmKey> {
        let place = &mut self.nodes.entry(name.to_owned()).or_default().place;
        if place.due != due {
            if let Some(before) = std::mem::replace(&mut place.due, due) {
                self.due.remove(&(before, name.to_owned()));
            }
            self.due.extend(due.map(|at| (at, name.to_owned())));
        }
        if place.needs == needs {
            return Vec::new();
        }
        let mut unneeded = Vec::new();
        for vm in needs.iter().filter(|vm| !place.needs.contains(vm)) {
            self.needing.entry(vm.clone()).or_default().insert(name);
        }
        for vm in std::mem::take(&mut place.needs).into_iter().filter(|vm| !needs.contains(vm)) {
            let is_left = self.needing.get_mut(&vm).is_some_and(|nodes| nodes.remove(name));
            if !is_left {
                self.needing.remove(&vm);
                unneeded.push(vm);
            }
        }
        place.needs = needs;
        unneeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::vsphere::tracker::facts::NodeFacts;
    use crate::providers::vsphere::tracker::resolve::{Answer, By};
    use crate::providers::vsphere::tracker::tracked::Seen;
    use std::time::Duration;

    fn node(ids: &[&str]) -> Tracked {
        let ids = ids.iter().map(|id| (*id).into()).collect();
        let mut tracked = Tracked::new(Seen::default(), NodeFacts::default());
        tracked.answers.insert(7, Answer::Matches { by: By::Uuid, ids });
        tracked
    }

    fn vm(id: &str) -> VmKey {
        VmKey { vcenter: 7, id: id.into() }
    }

    #[test]
    fn a_machine_is_unneeded_when_the_last_node_lets_go_of_it() {
        let mut nodes = Nodes::default();
        assert_eq!(nodes.put("a", node(&["vm-1", "vm-2"])), []);
        assert_eq!(nodes.put("b", node(&["vm-2"])), []);
        assert_eq!(nodes.needing(&vm("vm-2")).collect::<Vec<_>>(), ["a", "b"]);
        let mut bound = nodes.take("a").unwrap();
        bound.bound = Some(vm("vm-3"));
        assert_eq!(nodes.put("a", bound), [vm("vm-1")]);
        assert_eq!(nodes.needing(&vm("vm-2")).collect::<Vec<_>>(), ["b"]);
        assert_eq!(nodes.forget("b"), [vm("vm-2")]);
        assert_eq!(nodes.forget("a"), [vm("vm-3")]);
        assert!(nodes.needing.is_empty() && nodes.nodes.is_empty() && nodes.due.is_empty());
    }

    #[test]
    fn a_node_claims_the_machine_of_its_provider_id_while_it_is_initialised() {
        let uuid: BiosUuid = "422e4956-ad22-1139-6d72-59cc8f26bc90".parse().unwrap();
        let claims = |is_initialized: bool| {
            let facts = NodeFacts { provider_id: Some(uuid.clone()), is_initialized, ..NodeFacts::default() };
            Tracked::new(Seen::default(), facts)
        };
        let mut nodes = Nodes::default();
        let claiming = |nodes: &Nodes, uuid: &BiosUuid| nodes.claiming(uuid).cloned().collect::<Vec<_>>();
        nodes.put("a", claims(true));
        nodes.put("b", claims(false));
        assert_eq!(claiming(&nodes, &uuid), ["a"]);
        assert_eq!(claiming(&nodes, &uuid.byte_swapped()), ["a"], "in the other byte order");
        nodes.put("b", claims(true));
        assert_eq!(claiming(&nodes, &uuid), ["a", "b"]);
        nodes.put("a", claims(false));
        nodes.forget("b");
        assert_eq!(claiming(&nodes, &uuid), [""; 0]);
        assert!(nodes.claiming.is_empty());
    }

    #[test]
    fn nodes_that_wait_for_a_machine_are_found_by_the_node_that_has_it() {
        let mut nodes = Nodes::default();
        nodes.put("waits", node(&["vm-1"]));
        nodes.put("else", node(&["vm-2"]));
        nodes.put("has", Tracked { bound: Some(vm("vm-1")), ..node(&[]) });
        nodes.put("has-too", Tracked { bound: Some(vm("vm-1")), ..node(&[]) });
        assert_eq!(nodes.waiting_for("has"), ["waits"]);
        assert_eq!(nodes.waiting_for("nobody"), [""; 0]);
    }

    #[test]
    fn nodes_are_due_in_their_order_until_they_are_changed() {
        let start = Instant::now();
        let at = |seconds| Some(start + Duration::from_secs(seconds));
        let mut nodes = Nodes::default();
        nodes.put("late", Tracked { search_at: at(9), decide_at: at(5), ..node(&[]) });
        nodes.put("early", Tracked { search_at: at(2), ..node(&[]) });
        nodes.put("never", node(&[]));
        assert_eq!(nodes.next_due(), at(2));
        assert_eq!(nodes.due(start), [""; 0]);
        assert_eq!(nodes.due(start + Duration::from_secs(5)), ["early", "late"]);
        let mut early = nodes.take("early").unwrap();
        early.search_at = None;
        nodes.put("early", early);
        assert_eq!(nodes.next_due(), at(5));
        nodes.forget("late");
        assert_eq!(nodes.next_due(), None);
    }
}
