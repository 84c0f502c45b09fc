//! The Nodes behind every load balancer. The set for comparisons follows the events; the Nodes themselves are unpacked for a call
//! to the cloud, and concurrent calls share them.

use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;

use super::node_set::{NodeSet, is_target};
use crate::kubernetes::stores::Nodes;

/// The targets of one term.
pub(super) struct Targets {
    store: Nodes,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// As the events about Nodes say it; nothing before the first one, which is about all Nodes.
    set: Option<Arc<NodeSet>>,
    /// Of a call that runs, if any.
    list: Weak<TargetList>,
}

/// The targets with their Nodes.
pub(super) struct TargetList {
    /// What is compared of them.
    pub(super) set: Arc<NodeSet>,
    /// The Nodes, by name.
    pub(super) nodes: Vec<Arc<Node>>,
}

/// What an event about Nodes changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetChange {
    /// Nothing that load balancers depend on.
    Nothing,
    /// The set is another one.
    Changed,
    /// The set was empty and has a Node now.
    NoLongerEmpty,
}

impl Targets {
    pub(super) fn new(store: Nodes) -> Self {
        Self { store, state: Mutex::default() }
    }

    /// Whether the Nodes are known.
    pub(super) fn is_ready(&self) -> bool {
        self.store.is_ready()
    }

    /// The Node of this name was added, changed or deleted.
    pub(super) fn observe(&self, name: &str) -> TargetChange {
        let node = self.store.get(name);
        let mut state = self.state.lock();
        // `observe_all` follows.
        let Some(set) = &mut state.set else { return TargetChange::Nothing };
        if !set.differs_in(name, node.as_deref()) {
            return TargetChange::Nothing;
        }
        let was_empty = set.is_empty();
        Arc::make_mut(set).put(name, node.as_deref());
        if was_empty { TargetChange::NoLongerEmpty } else { TargetChange::Changed }
    }

    /// Any Node may have changed.
    pub(super) fn observe_all(&self) {
        // One Node at a time is unpacked.
        let mut set = NodeSet::default();
        for node in self.store.list() {
            set.put(crate::cloud::node::name(&node), Some(&node));
        }
        let mut state = self.state.lock();
        // Keeps the pointer of an equal set, which makes comparisons cheap.
        if state.set.as_deref() != Some(&set) {
            state.set = Some(Arc::new(set));
        }
    }

    /// The Nodes that every load balancer should have now.
    pub(super) fn current(&self) -> Arc<NodeSet> {
        let known = self.state.lock().set.clone();
        known.unwrap_or_else(|| Arc::clone(&self.list().set))
    }

    /// The Nodes for a call to the cloud.
    pub(super) fn list(&self) -> Arc<TargetList> {
        let (current, shared) = {
            let state = self.state.lock();
            (state.set.clone(), state.list.upgrade())
        };
        let is_current = |list: &Arc<TargetList>| current.as_ref().is_some_and(|current| **current == *list.set);
        if let Some(shared) = shared.filter(is_current) {
            return shared;
        }
        let nodes: Vec<Arc<Node>> = self.store.list().filter(|node| is_target(node)).collect();
        let set = NodeSet::of(nodes.iter().map(|node| &**node));
        let set = current.filter(|current| **current == set).unwrap_or_else(|| Arc::new(set));
        let list = Arc::new(TargetList { set, nodes });
        self.state.lock().list = Arc::downgrade(&list);
        list
    }
}
