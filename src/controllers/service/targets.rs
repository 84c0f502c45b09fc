//! The Nodes behind all load balancers. Events update the set that is used for comparison. Concurrent cloud calls share
//! one list of the Nodes with its set, because both are built from all Nodes of the cache.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::damping::{Damping, DampingVerdict};
use super::node_set::{NodeSet, is_target};
use crate::cloud::{CloudProvider, UsableAddresses, node};
use crate::controllers::now;
use crate::kubernetes::stores::Nodes;

pub(super) struct Targets {
    pub(super) store: Nodes,
    provider: Arc<dyn CloudProvider>,
    state: Mutex<TargetState>,
}

#[derive(Default)]
struct TargetState {
    /// The set according to the events; `None` before the first event, which covers all Nodes.
    set: Option<Arc<NodeSet>>,
    /// The list that the calls in flight share, if any.
    list: Weak<TargetList>,
    damping: Damping,
    /// By name, the Node states that load balancers use during pauses. Contains Nodes in a pause, and Nodes whose next
    /// change may begin a pause.
    published: BTreeMap<String, Arc<Node>>,
}

impl TargetState {
    /// Returns the Nodes in a pause, in the state that load balancers use.
    fn pausing(&self) -> BTreeMap<String, Arc<Node>> {
        let pausing = self.published.iter().filter(|(name, _)| self.damping.is_pausing(name));
        pausing.map(|(name, node)| (name.clone(), Arc::clone(node))).collect()
    }
}

/// Returns the Node in the state that load balancers use.
fn seen(node: Arc<Node>, pausing: &BTreeMap<String, Arc<Node>>) -> Arc<Node> {
    let shown = pausing.get(node::name(&node)).filter(|_| !is_gone(Some(&node)));
    shown.cloned().unwrap_or(node)
}

pub(super) struct TargetList {
    pub(super) set: Arc<NodeSet>,
    /// The Nodes, sorted by name.
    pub(super) nodes: Vec<Arc<Node>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetChange {
    /// No change that load balancers depend on.
    Nothing,
    Changed,
    /// The set was empty and now has a Node.
    NoLongerEmpty,
    /// The Node changes too often. Load balancers use its previous state until the end of the pause.
    Waits {
        until: Instant,
        is_first: bool,
    },
}

/// Whether the Node is deleted or is being deleted. A deletion cannot be undone.
fn is_gone(node: Option<&Node>) -> bool {
    node.is_none_or(|node| node.metadata.deletion_timestamp.is_some())
}

impl Targets {
    pub(super) fn new(store: Nodes, provider: Arc<dyn CloudProvider>) -> Self {
        Self { store, provider, state: Mutex::default() }
    }

    fn with_usable<'n>(&self, node: &'n Node) -> (&'n Node, UsableAddresses) {
        let balancer = self.provider.load_balancer();
        (node, balancer.map_or_else(UsableAddresses::default, |balancer| balancer.usable_addresses(node)))
    }

    /// Records that the Node of this name was added, changed or deleted.
    pub(super) fn observe(&self, name: &str) -> TargetChange {
        let node = self.store.get(name);
        let mut state = self.state.lock();
        let TargetState { set, damping, published: shown, .. } = &mut *state;
        // There is no set before the first event of the cache, which calls `observe_all`.
        let Some(set) = set else { return TargetChange::Nothing };
        let usable = || node.as_deref().map(|node| self.with_usable(node));
        if !set.differs_in(name, usable()) {
            return TargetChange::Nothing;
        }
        match &node {
            Some(node) if !is_gone(Some(node)) => match damping.change(name, now()) {
                DampingVerdict::Follow { is_last: true } => drop(shown.insert(name.to_owned(), Arc::clone(node))),
                DampingVerdict::Follow { is_last: false } => {}
                DampingVerdict::Wait { until, is_first } => {
                    return TargetChange::Waits { until: until.into(), is_first };
                }
            },
            _ => {
                damping.forget(name);
                shown.remove(name);
            }
        }
        let was_empty = set.is_empty();
        Arc::make_mut(set).put(name, usable());
        if was_empty { TargetChange::NoLongerEmpty } else { TargetChange::Changed }
    }

    /// Applies the changes of Nodes whose pause is over. Returns the earliest end of the other pauses.
    pub(super) fn end_pauses(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        let TargetState { set, damping, published: shown, .. } = &mut *state;
        for name in damping.end_pauses(now()) {
            shown.remove(&name);
            // If the next change of the Node begins a pause, load balancers use this state during the pause.
            if let Some(node) = self.store.get(&name) {
                let usable = || Some(self.with_usable(&node));
                if let Some(set) = set.as_mut().filter(|set| set.differs_in(&name, usable())) {
                    Arc::make_mut(set).put(&name, usable());
                }
                shown.insert(name, node);
            }
        }
        shown.retain(|name, _| damping.is_known(name));
        damping.next_end().map(Instant::from_std)
    }

    /// Returns the Nodes whose changes wait, with the ends of the pauses.
    pub(super) fn pauses(&self) -> Vec<(String, Instant)> {
        let pauses = self.state.lock().damping.pauses();
        pauses.into_iter().map(|(name, until)| (name, Instant::from_std(until))).collect()
    }

    /// Rebuilds the set, because any Node may have changed.
    pub(super) fn observe_all(&self) {
        let mut set = NodeSet::default();
        let pausing = self.state.lock().pausing();
        for node in self.store.list() {
            let node = seen(node, &pausing);
            set.put(node::name(&node), Some(self.with_usable(&node)));
        }
        let mut state = self.state.lock();
        // An equal set keeps its pointer, so that comparisons are cheap.
        if state.set.as_deref() != Some(&set) {
            state.set = Some(Arc::new(set));
        }
    }

    /// Returns the set of the target Nodes for comparison.
    pub(super) fn current(&self) -> Arc<NodeSet> {
        let known = self.state.lock().set.clone();
        known.unwrap_or_else(|| Arc::clone(&self.list().set))
    }

    /// Returns the target Nodes for a cloud call.
    pub(super) fn list(&self) -> Arc<TargetList> {
        let (current, shared, pausing) = {
            let state = self.state.lock();
            (state.set.clone(), state.list.upgrade(), state.pausing())
        };
        let is_current = |list: &Arc<TargetList>| current.as_ref().is_some_and(|current| **current == *list.set);
        if let Some(shared) = shared.filter(is_current) {
            return shared;
        }
        let nodes = self.store.list().map(|node| seen(node, &pausing));
        let nodes: Vec<Arc<Node>> = nodes.filter(|node| is_target(node)).collect();
        let set = NodeSet::of(nodes.iter().map(|node| self.with_usable(node)));
        let set = current.filter(|current| **current == set).unwrap_or_else(|| Arc::new(set));
        let list = Arc::new(TargetList { set, nodes });
        self.state.lock().list = Arc::downgrade(&list);
        list
    }
}
