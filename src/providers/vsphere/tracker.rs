//! Which virtual machine backs which node, and what follows from it for the node.
//!
//! One task holds all of it. It hears of nodes (through [`ClusterReads`]), of inventory changes (through each
//! vCenter's snapshot) and of answered searches; it decides with the pure rules in [`mod@resolve`] and [`mod@describe`]; it
//! writes the outcome on the [`board`], from which the contract is answered without waiting.

pub mod board;
pub mod describe;
pub mod facts;
pub mod resolve;
mod search;
mod tracked;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream, SelectAll};
use k8s_openapi::api::core::v1::Node;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::board::{Board, Found, Outcome, View};
use self::describe::{Rules, describe, is_shut_down};
use self::facts::facts_of;
use self::resolve::{Answer, Asked, By, Decision, NodeFacts, Question, VmKey, resolve};
use self::search::{Answered, Searches, Wanted};
use self::tracked::{NextSearch, Tracked};
use super::inventory::Vcenter;
use super::inventory::snapshot::{Freshness, Snapshot};
use super::provider_id::BiosUuid;
use crate::cloud::{ClusterReads, Unknown};

/// How long a match may take to be reported once it is watched.
const READING_LIMIT: Duration = Duration::from_secs(10);
/// The first pause before an unknown machine is looked for again; doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// No event can announce an unknown machine, so it is looked for at least this often.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The task's state. Built by [`Tracker::new`], consumed by [`Tracker::run`].
pub struct Tracker {
    vcenters: Vec<Arc<Vcenter>>,
    cluster: Arc<dyn ClusterReads>,
    rules: Rules,
    board: Arc<Board>,
    nodes: HashMap<String, Tracked>,
    /// The snapshot of each vCenter that was last looked at.
    seen: Vec<Arc<Snapshot>>,
    searches: Searches,
}

impl Tracker {
    /// A tracker of all nodes of `cluster` over all `vcenters`, writing on `board`.
    pub fn new(vcenters: Vec<Arc<Vcenter>>, cluster: Arc<dyn ClusterReads>, rules: Rules, board: Arc<Board>) -> Self {
        Self {
            seen: vcenters.iter().map(|vcenter| vcenter.snapshot()).collect(),
            searches: Searches::new(vcenters.clone()),
            vcenters,
            cluster,
            rules,
            board,
            nodes: HashMap::new(),
        }
    }

    /// Runs until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut node_changes = self.cluster.node_changes();
        let mut snapshots = self.snapshot_changes();
        loop {
            let deadline = self.next_deadline();
            tokio::select! {
                () = stop.cancelled() => return,
                Some(()) = node_changes.next() => self.take_nodes(),
                Some(vcenter) = snapshots.next() => self.take_snapshot(vcenter),
                answered = self.searches.next() => self.take_answer(answered),
                () = until(deadline) => self.take_time(Instant::now()),
            }
        }
    }

    fn snapshot_changes(&self) -> SelectAll<BoxStream<'static, usize>> {
        stream::select_all(self.vcenters.iter().enumerate().map(|(index, vcenter)| {
            let mut changes = vcenter.changes();
            // What was published before the subscription counts as a change, too.
            changes.mark_changed();
            stream::unfold(changes, move |mut changes| async move {
                changes.changed().await.ok()?;
                Some((index, changes))
            })
            .boxed()
        }))
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
            self.nodes.insert(name.to_string(), Tracked::new(object, facts, self.vcenters.len()));
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
            let fresh = Tracked::new(tracked.object, tracked.facts, self.vcenters.len());
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
        for (index, vcenter) in self.vcenters.iter().enumerate() {
            for id in tracked.ids_at(index) {
                let is_kept = kept.is_some_and(|vm| vm.vcenter == index && vm.id == *id);
                if !is_kept && !self.nodes.values().any(|other| other.ids_at(index).any(|needed| needed == id)) {
                    vcenter.unwant(id);
                }
            }
        }
    }

    fn search_everywhere(&mut self, name: &str) {
        for vcenter in 0..self.vcenters.len() {
            self.search(name, vcenter);
        }
    }

    fn search(&mut self, name: &str, vcenter: usize) {
        let Some(tracked) = self.nodes.get(name) else { return };
        let facts = &tracked.facts;
        if facts.has_provider_id && facts.provider_id.is_none() {
            return;
        }
        let is_answering = self.seen.get(vcenter).is_some_and(|snapshot| snapshot.freshness == Freshness::Live);
        if !is_answering {
            // It is asked when it comes back.
            return;
        }
        let wanted = Wanted {
            node: name.to_string(),
            uid: facts.uid.clone(),
            uuid: facts.search_uuid().cloned(),
            is_provider_id: facts.has_provider_id,
            by_name: tracked.asked_by_name,
        };
        self.searches.start(vcenter, wanted);
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
    fn forget_answer(&mut self, name: &str, vcenter: usize) {
        let Some(mut tracked) = self.nodes.remove(name) else { return };
        if tracked.bound.is_none() {
            self.note_answer(&mut tracked, vcenter, Answer::Pending);
        }
        self.nodes.insert(name.to_string(), tracked);
    }

    fn note_answer(&self, tracked: &mut Tracked, vcenter: usize, answer: Answer) {
        let (Some(source), Some(known)) = (self.vcenters.get(vcenter), tracked.answers.get_mut(vcenter)) else {
            return;
        };
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

    /// A vCenter that was silent when the machine was bound has another one with the node's UUID.
    fn tell_of_twin(&self, tracked: &mut Tracked, vcenter: usize, answer: &Answer) {
        let (Some(source), Some(bound)) = (self.vcenters.get(vcenter), &tracked.bound) else { return };
        let Answer::Matches { by: By::Uuid, ids } = answer else { return };
        tracked.unasked.retain(|unasked| *unasked != vcenter);
        let is_same_vcenter =
            self.seen.get(vcenter).zip(self.seen.get(bound.vcenter)).is_some_and(|(here, there)| {
                !here.instance_uuid.is_empty() && here.instance_uuid == there.instance_uuid
            });
        let is_bound = |id: &String| *id == bound.id && (vcenter == bound.vcenter || is_same_vcenter);
        let twins: Vec<String> = ids
            .iter()
            .filter(|id| !is_bound(id))
            .map(|id| format!("{id} on {} has the node's UUID, too; {} is taken", source.settings().server, bound.id))
            .collect();
        self.tell_twins(tracked, twins);
    }

    /// Told once, not at every look.
    fn tell_twins(&self, tracked: &mut Tracked, twins: Vec<String>) {
        if twins.is_empty() || twins == tracked.twins {
            return;
        }
        for message in &twins {
            warn!(node = tracked.facts.name, message, "several virtual machines have the node's UUID");
        }
        tracked.twins = twins;
    }

    fn take_snapshot(&mut self, vcenter: usize) {
        let (Some(source), Some(seen)) = (self.vcenters.get(vcenter), self.seen.get_mut(vcenter)) else { return };
        let now = source.snapshot();
        let before = std::mem::replace(seen, Arc::clone(&now));
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

    /// Decides for one node and puts the outcome on the board.
    fn evaluate(&mut self, name: &str) {
        let Some(mut tracked) = self.nodes.remove(name) else { return };
        let mut next_search = NextSearch::None;
        if tracked.bound.is_none() {
            next_search = self.bind(&mut tracked);
            if tracked.bound.is_some() {
                self.searches.put_last(name);
            }
        }
        let outcome = match (&tracked.bound, &mut next_search) {
            (Some(vm), _) => match self.outcome(&tracked.facts, vm, tracked.bound_uuid.as_ref()) {
                Some(found) => Outcome::Found(Arc::new(found)),
                None => {
                    let message = format!("virtual machine {} left the inventory; it is being looked for again", vm.id);
                    debug!(node = name, message, "look-up starts anew");
                    self.release(&tracked, None);
                    tracked = Tracked::new(tracked.object, tracked.facts, self.vcenters.len());
                    next_search = NextSearch::Now;
                    Outcome::Unknown(Unknown::new("VMNotFound", message))
                }
            },
            (None, NextSearch::Later(unknown) | NextSearch::Waiting(unknown)) => Outcome::Unknown(unknown.clone()),
            (None, NextSearch::Now | NextSearch::None) => {
                Outcome::Unknown(Unknown::passing("LookupPending", "the virtual machine is being looked for"))
            }
        };
        self.board.set(name, View { uid: tracked.facts.uid.clone(), outcome });
        match next_search {
            NextSearch::Later(_) if tracked.search_at.is_none() => {
                let step = FIRST_PAUSE.saturating_mul(1 << tracked.pauses.min(5)).min(LONGEST_PAUSE);
                tracked.pauses = tracked.pauses.saturating_add(1);
                tracked.search_at = Some(Instant::now() + step.mul_f64(0.5 + fastrand::f64() / 2.0));
            }
            NextSearch::Later(_) | NextSearch::Waiting(_) | NextSearch::Now => {}
            NextSearch::None => tracked.search_at = None,
        }
        self.nodes.insert(name.to_string(), tracked);
        if next_search == NextSearch::Now {
            self.search_everywhere(name);
        }
    }

    /// Tries to bind a node that has no machine yet.
    fn bind(&self, tracked: &mut Tracked) -> NextSearch {
        if tracked.facts.has_provider_id && tracked.facts.provider_id.is_none() {
            let message = "spec.providerID is not vsphere:// followed by a UUID".to_string();
            return NextSearch::Waiting(Unknown::new("MalformedProviderID", message));
        }
        let waited = tracked.first_match.map_or(Duration::ZERO, |at| at.elapsed());
        let decision = self.decide(tracked, waited);
        if !matches!(decision, Decision::Reading(_)) {
            tracked.reading_since = None;
        }
        match decision {
            Decision::Bind { vm, others } => {
                self.tell_twins(tracked, others);
                debug!(node = tracked.facts.name, vm = vm.id, "the node's virtual machine was found");
                self.release(tracked, Some(&vm));
                let is_open = |answer: &Answer| !matches!(answer, Answer::Matches { .. });
                tracked.unasked = tracked
                    .answers
                    .iter()
                    .enumerate()
                    .filter(|(_, answer)| is_open(answer))
                    .map(|(at, _)| at)
                    .collect();
                tracked.answers = vec![Answer::Pending; self.vcenters.len()];
                tracked.bound_uuid = self.record(&vm).and_then(|record| record.bios_uuid.clone());
                tracked.bound = Some(vm);
                tracked.decide_at = None;
                tracked.pauses = 0;
                NextSearch::None
            }
            Decision::Wait(unknown) => {
                tracked.decide_at = tracked.end_of_silent_wait(Instant::now());
                NextSearch::Later(unknown)
            }
            Decision::SearchByName => {
                tracked.asked_by_name = true;
                tracked.answers = vec![Answer::Pending; self.vcenters.len()];
                NextSearch::Now
            }
            Decision::Reading(unknown) => self.wait_for_reading(tracked, unknown),
            Decision::Unresolved(unknown) if unknown.is_passing => NextSearch::Waiting(unknown),
            Decision::Unresolved(unknown) => NextSearch::Later(unknown),
        }
    }

    /// A match is reported within moments of being watched. One that is not is looked for again, and put into the view
    /// once more.
    fn wait_for_reading(&self, tracked: &mut Tracked, unknown: Unknown) -> NextSearch {
        let now = Instant::now();
        let over = *tracked.reading_since.get_or_insert(now) + READING_LIMIT;
        if now < over {
            tracked.decide_at = Some(over);
            return NextSearch::Waiting(unknown);
        }
        tracked.decide_at = None;
        // Once per search: putting it into the view again is itself a change that is looked at.
        let rewatched = if tracked.search_at.is_none() { self.vcenters.as_slice() } else { &[] };
        for (index, vcenter) in rewatched.iter().enumerate() {
            let is_known = |id: &String| self.seen.get(index).is_some_and(|snapshot| snapshot.vms.contains_key(id));
            let unread: Vec<String> = tracked.ids_at(index).filter(|id| !is_known(id)).cloned().collect();
            if !unread.is_empty() {
                vcenter.rewatch(&unread);
            }
        }
        let message = format!(
            "vCenter found a match and does not report it ({}); check that the account may read it (System.Read)",
            unknown.message
        );
        NextSearch::Later(Unknown::new("VMNotReadable", message))
    }

    fn decide(&self, tracked: &Tracked, waited: Duration) -> Decision {
        let asked: Vec<Asked<'_>> = self
            .vcenters
            .iter()
            .zip(&self.seen)
            .zip(&tracked.answers)
            .map(|((vcenter, snapshot), answer)| Asked {
                server: &vcenter.settings().server,
                datacenters: &vcenter.settings().datacenters,
                snapshot,
                answer,
            })
            .collect();
        let backs = |vm: &VmKey| {
            self.nodes.iter().find(|(_, other)| other.bound.as_ref() == Some(vm)).map(|(name, _)| name.clone())
        };
        resolve(&Question {
            node: &tracked.facts,
            asked_by_name: tracked.asked_by_name,
            vcenters: &asked,
            waited,
            backs: &backs,
            allow_name_match: self.rules.allow_name_match,
        })
    }

    fn record(&self, vm: &VmKey) -> Option<&super::inventory::snapshot::VmRecord> {
        self.seen.get(vm.vcenter)?.vms.get(&vm.id).map(Arc::as_ref)
    }

    /// What a bound machine means for the node; none when it is not in the inventory any more, or is another one under
    /// the same id.
    fn outcome(&self, facts: &NodeFacts, vm: &VmKey, bound_uuid: Option<&BiosUuid>) -> Option<Found> {
        let snapshot = self.seen.get(vm.vcenter)?;
        let record = snapshot.vms.get(&vm.id)?;
        if bound_uuid.is_some() && record.bios_uuid.is_some() && bound_uuid != record.bios_uuid.as_ref() {
            return None;
        }
        Some(Found {
            vcenter: vm.vcenter,
            uuid: record.bios_uuid.clone(),
            metadata: describe(facts, snapshot, vm, record, &self.rules),
            is_shut_down: is_shut_down(snapshot, record),
        })
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
