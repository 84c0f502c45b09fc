//! The tracker: decides which VM backs which Node, and which data the Node gets from the VM.
//!
//! One task owns all state. Its inputs are Node changes (through [`ClusterReads`]), the snapshots of each vCenter, and
//! search replies. The pure rules in [`mod@resolution`] and [`super::metadata`] decide. The results go to the
//! [`instance_cache`], from which `InstancesV2` is answered without waiting.

pub mod changes;
pub mod contest;
mod evaluation;
pub mod facts;
pub mod instance_cache;
mod node_entry;
mod nodes;
pub mod resolution;
mod search;
mod shared_addresses;
pub mod vcenters;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::api::core::v1::Node;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::changes::changes;
use self::facts::{NodeFacts, facts_of};
use self::instance_cache::InstanceCache;
use self::node_entry::NodeEntry;
use self::nodes::Nodes;
use self::resolution::SearchAnswer;
use self::search::{SearchReply, SearchRequest, Searches};
use self::shared_addresses::SharedAddresses;
use self::vcenters::{TrackerConfig, VcenterState};
use super::absence::location::Location;
use super::metadata::MetadataRules;
use super::metadata::addresses::candidate_ips;
use crate::cloud::{ClusterReads, NodeChange};
use crate::providers::vsphere::vcenter::snapshot::{Freshness, PowerState, Snapshot, VmRecord};
use crate::providers::vsphere::vcenter::{VcenterId, VmKey};

/// The tracker and its state. Built by [`Tracker::new`], consumed by [`Tracker::run`].
pub struct Tracker {
    cluster: Arc<dyn ClusterReads>,
    setup: watch::Receiver<Arc<TrackerConfig>>,
    cache: Arc<InstanceCache>,
    rules: MetadataRules,
    vcenters: BTreeMap<VcenterId, VcenterState>,
    /// Yields each vCenter that has a new snapshot.
    snapshots: SelectAll<BoxStream<'static, VcenterId>>,
    nodes: Nodes,
    searches: Searches,
    shared_addresses: SharedAddresses,
    /// Nodes to evaluate again because of a change of other Nodes or their VMs.
    changed_nodes: BTreeSet<Arc<str>>,
}

impl Tracker {
    /// Creates a tracker of all Nodes of `cluster` over the vCenters of `setup`. The tracker writes to the instance
    /// cache `board`.
    pub fn new(
        cluster: Arc<dyn ClusterReads>,
        setup: watch::Receiver<Arc<TrackerConfig>>,
        board: Arc<InstanceCache>,
    ) -> Self {
        Self {
            cluster,
            setup,
            cache: board,
            rules: MetadataRules::default(),
            vcenters: BTreeMap::new(),
            snapshots: SelectAll::new(),
            nodes: Nodes::default(),
            searches: Searches::default(),
            shared_addresses: SharedAddresses::default(),
            changed_nodes: BTreeSet::new(),
        }
    }

    /// Runs until `stop` is cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut node_changes = self.cluster.node_changes();
        self.take_setup();
        loop {
            let deadline = self.nodes.next_due();
            let mut taken = None;
            tokio::select! {
                () = stop.cancelled() => return,
                Ok(()) = self.setup.changed() => self.take_setup(),
                Some(change) = node_changes.next() => self.take_node_change(change),
                Some(vcenter) = self.snapshots.next() => {
                    taken = Some(vcenter);
                    self.take_snapshot(vcenter);
                }
                answered = self.searches.next() => self.take_answer(answered),
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    self.take_time(Instant::now());
                }
            }
            while let Some(name) = self.changed_nodes.pop_first() {
                self.evaluate(&name);
            }
            if let Some(held) = taken.and_then(|slot| self.vcenters.get(&slot)) {
                held.source.vcenter.mark_applied(held.snapshot.number);
            }
        }
    }

    fn take_node_change(&mut self, change: NodeChange) {
        match change {
            NodeChange::All => self.take_nodes(),
            NodeChange::Node(name) => match self.cluster.node(&name) {
                Some(node) => self.take_object(&name, node),
                None => self.forget(&name),
            },
        }
    }

    fn take_nodes(&mut self) {
        let cluster = Arc::clone(&self.cluster);
        let mut present = HashSet::new();
        for node in cluster.nodes() {
            let Some(name) = node.metadata.name.clone() else { continue };
            self.take_object(&name, node);
            present.insert(name);
        }
        for name in self.nodes.names().into_iter().filter(|name| !present.contains(name)) {
            self.forget(&name);
        }
    }

    fn take_object(&mut self, name: &str, node: Arc<Node>) {
        if self.nodes.get(name).is_some_and(|tracked| tracked.has_seen(&node)) {
            return;
        }
        match facts_of(&node) {
            Some(facts) => self.take_node(name, node.metadata.resource_version.clone(), facts),
            None => self.forget(name),
        }
    }

    fn take_node(&mut self, name: &str, version: Option<String>, facts: NodeFacts) {
        if self.nodes.get(name).is_some_and(|tracked| tracked.facts.uid != facts.uid) {
            self.forget(name);
        }
        let Some(tracked) = self.nodes.get(name) else {
            self.put(name, NodeEntry::new(version, facts));
            self.changed_nodes.extend(self.rivals(name));
            self.search_everywhere(name);
            self.evaluate(name);
            return;
        };
        let has_changed = tracked.facts != facts;
        // If the provider ID is that of the bound VM, as after this program wrote it, no new search is needed.
        let is_of_bound = tracked.vm().is_some_and(|vm| {
            let uuid = self.record(vm).and_then(|record| record.bios_uuid.clone());
            uuid.is_some() && uuid == facts.provider_id
        });
        // A Node that became adoptable may have been searched in one byte order only.
        let is_asked_enough = tracked.facts.is_adoptable || !facts.is_adoptable;
        let still_fits = is_of_bound || is_asked_enough && tracked.facts.search_uuid() == facts.search_uuid();
        let is_not_ready_now = facts.is_not_ready && !tracked.facts.is_not_ready;
        let is_unreachable_now = facts.is_unreachable && !tracked.facts.is_unreachable;
        self.changed_nodes.extend(self.rivals(name).filter(|_| has_changed));
        if still_fits {
            let others = self.nodes.count_other_rechecks(name);
            self.update(name, |tracked| {
                (tracked.version, tracked.facts) = (version, facts);
                tracked.schedule_recheck(Instant::now(), is_not_ready_now, others);
            });
        } else {
            self.put(name, NodeEntry::new(version, facts));
            self.search_everywhere(name);
        }
        if has_changed {
            self.changed_nodes.extend(self.rivals(name));
            self.evaluate(name);
        }
        if is_unreachable_now {
            // The VM may have rejoined as one of the Nodes that wait for it.
            self.changed_nodes.extend(self.nodes.waiting_for(name).into_iter().map(Arc::from));
        }
    }

    fn forget(&mut self, name: &str) {
        let waiting = self.nodes.waiting_for(name);
        self.changed_nodes.extend(self.rivals(name));
        let unneeded = self.nodes.forget(name);
        self.unwant(unneeded);
        self.cache.remove(name);
        self.changed_nodes.extend(self.shared_addresses.set(name, std::iter::empty()));
        // The removed Node's VM may now back another Node.
        self.changed_nodes.extend(waiting.into_iter().map(Arc::from));
    }

    /// Updates the addresses of the Node's running VM in the index of shared addresses.
    fn record_addresses(&mut self, name: &str) {
        let Some(tracked) = self.nodes.get(name) else { return };
        let record = tracked.vm().and_then(|vm| self.vcenters.get(&vm.vcenter)?.snapshot.vms.get(&vm.id));
        let is_running = |record: &&Arc<VmRecord>| record.power_state == Some(PowerState::PoweredOn);
        // Leaves out a Node whose VM rejoined under another name, because the addresses are those of the same VM. Also
        // leaves out a Node that claims another Node's VM.
        let is_reported = self.rules.demotes_virtual_ips
            && !self.has_joined_again(name, tracked)
            && self.backs_another(tracked).is_none();
        let running = record.filter(is_running).filter(|_| is_reported).cloned();
        let nics = running.as_ref().map(|record| self.rules.nics(&tracked.facts, record)).unwrap_or_default();
        self.changed_nodes.extend(self.shared_addresses.set(name, candidate_ips(&nics)));
    }

    /// Returns other Nodes whose evaluation may depend on this Node.
    fn rivals(&self, name: &str) -> impl Iterator<Item = Arc<str>> + use<> {
        self.nodes.rivals(name).into_iter().map(Arc::from)
    }

    /// Returns true if the Node's VM rejoined and now backs another Node.
    fn has_joined_again(&self, name: &str, tracked: &NodeEntry) -> bool {
        let Some(vm) = tracked.vm().filter(|_| tracked.facts.is_unreachable) else { return false };
        let others = self.nodes.needing(vm).filter(|other| *other != name);
        let mut backed = others.filter_map(|other| self.nodes.get(other)).filter(|other| other.vm() == Some(vm));
        backed.any(|other| self.is_earlier_name(name, &other.facts, vm))
    }

    /// Inserts a Node, and stops watching VMs that no Node needs any more.
    fn put(&mut self, name: &str, tracked: NodeEntry) {
        let unneeded = self.nodes.put(name, tracked);
        self.unwant(unneeded);
    }

    /// Changes a Node, and stops watching VMs that no Node needs any more.
    fn update(&mut self, name: &str, change: impl FnOnce(&mut NodeEntry)) {
        let unneeded = self.nodes.update(name, change);
        self.unwant(unneeded);
    }

    fn unwant(&self, unneeded: Vec<VmKey>) {
        for vm in unneeded {
            if let Some(held) = self.vcenters.get(&vm.vcenter) {
                held.source.vcenter.unwant(&vm.id);
            }
        }
    }

    fn search_everywhere(&mut self, name: &str) {
        let slots: Vec<VcenterId> = self.vcenters.keys().copied().collect();
        for vcenter in slots {
            self.search(name, vcenter);
        }
    }

    fn search(&mut self, name: &str, vcenter: VcenterId) {
        let Some(tracked) = self.nodes.get(name) else { return };
        let facts = &tracked.facts;
        if facts.has_provider_id && facts.provider_id.is_none() {
            return;
        }
        let Some(observed) = self.vcenters.get(&vcenter).map(|held| &held.snapshot) else { return };
        if observed.freshness != Freshness::Live {
            // The vCenter is searched when it is live again.
            return;
        }
        let is_there = |at: &&Arc<Location>| !at.vcenter.is_empty() && at.vcenter == observed.instance_uuid;
        let wanted = SearchRequest {
            node: name.to_string(),
            uid: facts.uid.clone(),
            uuid: facts.search_uuid().cloned(),
            is_provider_id: facts.has_provider_id,
            // The search for a bound VM checks that the VM still exists and has no twin.
            in_both_orders: facts.is_adoptable || tracked.bound.is_some(),
            recorded: tracked.last_places().locations.iter().find(is_there).map(|at| at.vm.clone()),
            contradicting: facts.contradicting_uuid().cloned(),
            by_name: tracked.asked_by_name,
            is_first: tracked.bound.is_none() && facts.is_control_plane,
        };
        self.searches.start(vcenter, wanted);
    }

    fn take_answer(&mut self, answered: SearchReply) {
        let SearchReply { request: SearchRequest { node, uid, uuid, .. }, vcenter, answer, .. } = answered;
        let Some(tracked) = self.nodes.get(&node) else { return };
        if tracked.facts.uid != uid || tracked.facts.search_uuid() != uuid.as_ref() {
            // The reply belongs to an outdated request.
            return;
        }
        if tracked.bound.is_some() {
            self.rewatch_if_missed(tracked, vcenter, &answer);
            self.report_duplicate(&node, vcenter, &answer);
        } else {
            self.record_answer(&node, vcenter, answer);
        }
        self.evaluate(&node);
    }

    /// Drops the answer that a vCenter gave before it became unavailable, because the answer may be outdated.
    fn forget_answer(&mut self, name: &str, vcenter: VcenterId) {
        if self.nodes.get(name).is_none_or(|tracked| tracked.bound.is_some()) {
            return;
        }
        self.record_answer(name, vcenter, SearchAnswer::Pending);
        // The caller starts a search immediately, so the scheduled search is not needed.
        self.update(name, |tracked| tracked.search_at = None);
    }

    fn record_answer(&mut self, name: &str, vcenter: VcenterId, answer: SearchAnswer) {
        // The vCenter may have been removed from the configuration.
        let Some(VcenterState { source, snapshot: observed }) = self.vcenters.get(&vcenter) else { return };
        if let SearchAnswer::Matches { ids, .. } = &answer
            && !ids.is_empty()
        {
            source.vcenter.want(ids.iter().cloned());
        }
        let unneeded = self.nodes.update(name, |tracked| tracked.take_answer(vcenter, observed, answer));
        self.unwant(unneeded);
    }

    fn take_snapshot(&mut self, vcenter: VcenterId) {
        let Some(held) = self.vcenters.get_mut(&vcenter) else { return };
        let now = held.source.vcenter.snapshot();
        if now.number == held.snapshot.number {
            // This snapshot was processed before its notification arrived.
            return;
        }
        let before = std::mem::replace(&mut held.snapshot, Arc::clone(&now));
        match changes(&before, &now) {
            Some(machines) => {
                let keys = machines.into_iter().map(|id| VmKey { vcenter, id });
                let concerned: BTreeSet<String> =
                    keys.flat_map(|vm| self.nodes.needing(&vm).cloned().collect::<Vec<_>>()).collect();
                for name in concerned {
                    self.find_duplicates(&name, vcenter, &before, &now);
                    self.evaluate(&name);
                }
            }
            None => {
                let came_back = now.freshness == Freshness::Live && before.freshness != Freshness::Live;
                self.take_state(vcenter, came_back, &before, &now);
            }
        }
    }

    /// Handles a vCenter that became unavailable or live again, or a change that may concern every Node.
    fn take_state(&mut self, vcenter: VcenterId, came_back: bool, before: &Snapshot, now: &Snapshot) {
        let is_asking =
            |tracked: &NodeEntry| tracked.bound.as_ref().is_none_or(|bound| bound.unqueried.contains(&vcenter));
        let is_concerned = |tracked: &NodeEntry| is_asking(tracked) || tracked.ids_at(vcenter).next().is_some();
        let concerned: Vec<(String, bool)> = self
            .nodes
            .iter()
            .filter(|(_, tracked)| is_concerned(tracked))
            .map(|(name, tracked)| (name.clone(), is_asking(tracked)))
            .collect();
        for (name, is_asking) in concerned {
            self.find_duplicates(&name, vcenter, before, now);
            if came_back && is_asking {
                self.forget_answer(&name, vcenter);
                self.search(&name, vcenter);
            }
            self.evaluate(&name);
        }
    }

    /// Searches for twins if the VM's power state changed, because a twin may have been powered on instead.
    fn find_duplicates(&mut self, name: &str, vcenter: VcenterId, before: &Snapshot, now: &Snapshot) {
        let is_switched = |vm: &VmKey| vm.vcenter == vcenter && has_other_power(before, now, &vm.id);
        if self.nodes.get(name).and_then(|tracked| tracked.vm()).is_some_and(is_switched) {
            self.search_everywhere(name);
        }
    }

    fn take_time(&mut self, now: Instant) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        for name in self.nodes.due(now) {
            let Some(tracked) = self.nodes.get(&name) else { continue };
            let is_look = is_due(tracked.recheck_at);
            let is_search = is_due(tracked.search_at) || is_look;
            let others = self.nodes.count_other_rechecks(&name);
            self.update(&name, |tracked| {
                if is_look {
                    (tracked.recheck_at, tracked.rechecked_at) = (None, Some(now));
                    tracked.schedule_recheck(now, false, others);
                } else if is_search {
                    tracked.search_at = None;
                } else {
                    tracked.decide_at = None;
                }
            });
            if is_search {
                self.search_everywhere(&name);
            } else {
                self.evaluate(&name);
            }
        }
    }
}

fn has_other_power(before: &Snapshot, now: &Snapshot, id: &str) -> bool {
    before.vms.get(id).zip(now.vms.get(id)).is_some_and(|(before, now)| before.power_state != now.power_state)
}
