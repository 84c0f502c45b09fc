//! Which virtual machine backs which node, and what follows from it for the node.
//!
//! One task holds all of it. It hears of nodes (through [`ClusterReads`]), of inventory changes (through each
//! vCenter's snapshot) and of answered searches; it decides with the pure rules in [`mod@resolve`] and [`mod@describe`]; it
//! writes the outcome on the [`board`], from which the contract is answered without waiting.

pub mod board;
pub mod describe;
mod evaluate;
pub mod facts;
pub mod resolve;
mod search;
pub mod slots;
mod tracked;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::api::core::v1::Node;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::board::Board;
use self::describe::Rules;
use self::facts::facts_of;
use self::resolve::{Answer, NodeFacts, VmKey};
use self::search::{Answered, Searches, Wanted};
use self::slots::{Held, Setup, Slot};
use self::tracked::Tracked;
use super::inventory::snapshot::{Freshness, Snapshot};
use super::location::Location;
use crate::cloud::ClusterReads;

/// The task's state. Built by [`Tracker::new`], consumed by [`Tracker::run`].
pub struct Tracker {
    cluster: Arc<dyn ClusterReads>,
    setup: watch::Receiver<Arc<Setup>>,
    board: Arc<Board>,
    rules: Rules,
    slots: BTreeMap<Slot, Held>,
    /// Which vCenter's snapshot changed.
    snapshots: SelectAll<BoxStream<'static, Slot>>,
    nodes: HashMap<String, Tracked>,
    searches: Searches,
}

impl Tracker {
    /// A tracker of all nodes of `cluster` over the vCenters of `setup`, writing on `board`.
    pub fn new(cluster: Arc<dyn ClusterReads>, setup: watch::Receiver<Arc<Setup>>, board: Arc<Board>) -> Self {
        Self {
            cluster,
            setup,
            board,
            rules: Rules::default(),
            slots: BTreeMap::new(),
            snapshots: SelectAll::new(),
            nodes: HashMap::new(),
            searches: Searches::default(),
        }
    }

    /// Runs until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut node_changes = self.cluster.node_changes();
        self.take_setup();
        loop {
            let deadline = self.next_deadline();
            tokio::select! {
                () = stop.cancelled() => return,
                Ok(()) = self.setup.changed() => self.take_setup(),
                Some(()) = node_changes.next() => self.take_nodes(),
                Some(slot) = self.snapshots.next() => self.take_snapshot(slot),
                answered = self.searches.next() => self.take_answer(answered),
                () = until(deadline) => self.take_time(Instant::now()),
            }
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.nodes.values().flat_map(|tracked| [tracked.search_at, tracked.decide_at]).flatten().min()
    }

    /// The set of nodes, or a node, may have changed.
    fn take_nodes(&mut self) {
        let nodes = self.cluster.nodes();
        let mut present = HashSet::with_capacity(nodes.len());
        for node in nodes {
            let Some(name) = node.metadata.name.clone() else { continue };
            let is_known = self.nodes.get(&name).is_some_and(|tracked| Arc::ptr_eq(&tracked.object, &node));
            if is_known {
                present.insert(name);
            } else if let Some(facts) = facts_of(&node) {
                self.take_node(&name, node, facts);
                present.insert(name);
            }
        }
        let gone: Vec<String> = self.nodes.keys().filter(|name| !present.contains(*name)).cloned().collect();
        for name in gone {
            self.forget(&name);
        }
    }

    fn take_node(&mut self, name: &str, object: Arc<Node>, facts: NodeFacts) {
        if self.nodes.get(name).is_some_and(|tracked| tracked.facts.uid != facts.uid) {
            self.forget(name);
        }
        let Some(mut tracked) = self.nodes.remove(name) else {
            self.nodes.insert(name.to_string(), Tracked::new(object, facts));
            self.search_everywhere(name);
            self.evaluate(name);
            return;
        };
        let has_changed = tracked.facts != facts;
        // The provider ID that we wrote ourselves is the bound machine's, and no reason to look again.
        let still_fits = tracked.facts.search_uuid() == facts.search_uuid()
            || tracked.bound.as_ref().is_some_and(|vm| {
                let uuid = self.record(vm).and_then(|record| record.bios_uuid.clone());
                uuid.is_some() && uuid == facts.provider_id
            });
        tracked.object = object;
        tracked.facts = facts;
        if still_fits {
            self.nodes.insert(name.to_string(), tracked);
        } else {
            self.release(&tracked, None);
            let fresh = Tracked::new(tracked.object, tracked.facts);
            self.nodes.insert(name.to_string(), fresh);
            self.search_everywhere(name);
        }
        if has_changed {
            self.evaluate(name);
        }
    }

    fn forget(&mut self, name: &str) {
        if let Some(tracked) = self.nodes.remove(name) {
            self.release(&tracked, None);
        }
        self.board.remove(name);
    }

    /// Stops watching the machines of a node, except `kept`, that no other node needs. The node is not in the map at
    /// that moment.
    fn release(&self, tracked: &Tracked, kept: Option<&VmKey>) {
        for (slot, held) in &self.slots {
            for id in tracked.ids_at(*slot) {
                let is_kept = kept.is_some_and(|vm| vm.vcenter == *slot && vm.id == *id);
                if !is_kept && !self.nodes.values().any(|other| other.ids_at(*slot).any(|needed| needed == id)) {
                    held.source.vcenter.unwant(id);
                }
            }
        }
    }

    fn search_everywhere(&mut self, name: &str) {
        let slots: Vec<Slot> = self.slots.keys().copied().collect();
        for slot in slots {
            self.search(name, slot);
        }
    }

    fn search(&mut self, name: &str, slot: Slot) {
        let Some(tracked) = self.nodes.get(name) else { return };
        let facts = &tracked.facts;
        if facts.has_provider_id && facts.provider_id.is_none() {
            return;
        }
        let Some(seen) = self.slots.get(&slot).map(|held| &held.seen) else { return };
        if seen.freshness != Freshness::Live {
            // It is asked when it comes back.
            return;
        }
        let is_there = |at: &&Location| !at.vcenter.is_empty() && at.vcenter == seen.instance_uuid;
        let wanted = Wanted {
            node: name.to_string(),
            uid: facts.uid.clone(),
            uuid: facts.search_uuid().cloned(),
            is_provider_id: facts.has_provider_id,
            recorded: tracked.last_known().filter(is_there).map(|at| at.vm.clone()),
            by_name: tracked.asked_by_name,
        };
        self.searches.start(slot, wanted);
    }

    fn take_answer(&mut self, answered: Answered) {
        let Answered { node, uid, uuid, vcenter, answer, .. } = answered;
        let Some(mut tracked) = self.nodes.remove(&node) else { return };
        if tracked.facts.uid != uid || tracked.facts.search_uuid() != uuid.as_ref() {
            // The answer to an earlier question.
            self.nodes.insert(node, tracked);
        } else if tracked.bound.is_some() {
            self.tell_of_twin(&mut tracked, vcenter, &answer);
            self.nodes.insert(node, tracked);
        } else {
            self.note_answer(&mut tracked, vcenter, answer);
            self.nodes.insert(node.clone(), tracked);
            self.evaluate(&node);
        }
    }

    /// What a vCenter answered before it went away may not be so any more.
    fn forget_answer(&mut self, name: &str, vcenter: Slot) {
        let Some(mut tracked) = self.nodes.remove(name) else { return };
        if tracked.bound.is_none() {
            self.note_answer(&mut tracked, vcenter, Answer::Pending);
        }
        self.nodes.insert(name.to_string(), tracked);
    }

    fn note_answer(&self, tracked: &mut Tracked, vcenter: Slot, answer: Answer) {
        // A vCenter that is not configured any more has no say.
        let Some(source) = self.slots.get(&vcenter).map(|held| &held.source.vcenter) else { return };
        let known = tracked.answers.entry(vcenter).or_default();
        let before = std::mem::replace(known, answer);
        if let Answer::Matches { ids, .. } = known
            && !ids.is_empty()
        {
            let is_news = |id: &String| !matches!(&before, Answer::Matches { ids, .. } if ids.contains(id));
            if tracked.first_match.is_none() || ids.iter().any(is_news) {
                tracked.first_match = Some(Instant::now());
            }
            source.want(ids.iter().cloned());
        }
        if let Answer::Matches { ids, .. } = before {
            for id in ids {
                let is_needed = tracked.ids_at(vcenter).any(|needed| *needed == id)
                    || self.nodes.values().any(|other| other.ids_at(vcenter).any(|needed| *needed == id));
                if !is_needed {
                    source.unwant(&id);
                }
            }
        }
    }

    fn take_snapshot(&mut self, vcenter: Slot) {
        let Some(held) = self.slots.get_mut(&vcenter) else { return };
        let now = held.source.vcenter.snapshot();
        let before = std::mem::replace(&mut held.seen, Arc::clone(&now));
        let came_back = now.freshness == Freshness::Live && before.freshness != Freshness::Live;
        let changed_for_all = before.freshness != now.freshness
            || !Arc::ptr_eq(&before.entities, &now.entities)
            || !Arc::ptr_eq(&before.tags, &now.tags)
            || !Arc::ptr_eq(&before.unresolved, &now.unresolved);
        let is_changed = |id: &String| match (before.vms.get(id), now.vms.get(id)) {
            (Some(before), Some(now)) => !Arc::ptr_eq(before, now),
            (before, now) => before.is_some() != now.is_some(),
        };
        let concerned: Vec<String> = self
            .nodes
            .iter()
            .filter(|(_, tracked)| {
                let is_open = tracked.bound.is_none() && before.freshness != now.freshness;
                let is_to_be_asked = came_back && tracked.unasked.contains(&vcenter);
                is_open || is_to_be_asked || tracked.ids_at(vcenter).any(|id| changed_for_all || is_changed(id))
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in concerned {
            let is_switched = |vm: &VmKey| vm.vcenter == vcenter && has_other_power(&before, &now, &vm.id);
            if self.nodes.get(&name).and_then(|tracked| tracked.bound.as_ref()).is_some_and(is_switched) {
                // A twin may have been switched on in its place.
                self.search_everywhere(&name);
            }
            let is_asking = |tracked: &Tracked| tracked.bound.is_none() || tracked.unasked.contains(&vcenter);
            if came_back && self.nodes.get(&name).is_some_and(is_asking) {
                self.forget_answer(&name, vcenter);
                self.search(&name, vcenter);
            }
            self.evaluate(&name);
        }
    }

    fn take_time(&mut self, now: Instant) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let due: Vec<String> = self
            .nodes
            .iter()
            .filter(|(_, tracked)| is_due(tracked.search_at) || is_due(tracked.decide_at))
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            let Some(tracked) = self.nodes.get_mut(&name) else { continue };
            if is_due(tracked.search_at) {
                tracked.search_at = None;
                self.search_everywhere(&name);
            } else {
                tracked.decide_at = None;
                self.evaluate(&name);
            }
        }
    }
}

fn has_other_power(before: &Snapshot, now: &Snapshot, id: &str) -> bool {
    before.vms.get(id).zip(now.vms.get(id)).is_some_and(|(before, now)| before.power_state != now.power_state)
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
