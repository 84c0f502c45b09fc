//! Publishes the snapshots of one vCenter: one after each change of what they are made from, in the order of the changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::members::{Members, ViewChange};
use super::mirror::{Mirror, TouchedObjects};
use super::shared_map::SharedMap;
use super::snapshot::{Freshness, Snapshot, TagSnapshot, Trouble, VmRecord};
use crate::clients::vim::UpdateSet;

/// What is known of one vCenter, and the snapshot of it that others read.
#[derive(Default)]
pub(super) struct Publisher {
    state: Mutex<PublisherState>,
    snapshot: watch::Sender<Arc<Snapshot>>,
    /// The view may need a change.
    pub(super) members_changed: Notify,
    /// There may be objects whose tags were not read.
    pub(super) objects_changed: Notify,
}

/// What the snapshots are made from. Never locked over an await.
#[derive(Default)]
pub(super) struct PublisherState {
    /// The next snapshot, without its virtual machines. Its changed VMs are those since the last snapshot.
    pub(super) next: Snapshot,
    pub(super) mirror: Mirror,
    pub(super) members: Members,
    /// When the last update came, also a part of an answer that is not whole.
    pub(super) reported: Option<tokio::time::Instant>,
    /// The last moment vCenter answered.
    answered: Option<Instant>,
}

impl PublisherState {
    /// A change of the view was made, and this is what the server did not know.
    pub(super) fn made(&mut self, change: &ViewChange, unresolved: Vec<Arc<str>>) {
        self.note_changed(change.add.iter().chain(&change.remove).chain(&unresolved));
        self.members.made(change, &unresolved);
        self.set_unresolved(unresolved);
    }

    /// The next change of the view. What it adds is shown at once.
    pub(super) fn next_change(&mut self) -> ViewChange {
        let change = self.members.next_change();
        self.note_changed(&change.add);
        change
    }

    /// These VMs may have to be shown differently in the next snapshot.
    fn note_changed<'a>(&mut self, ids: impl IntoIterator<Item = &'a Arc<str>>) {
        if let Some(changed) = &mut self.next.changed {
            changed.extend(ids.into_iter().cloned());
        }
    }

    /// The same list stays the same allocation: readers compare pointers.
    fn set_unresolved(&mut self, unresolved: Vec<Arc<str>>) {
        if *self.next.unresolved != unresolved {
            self.next.unresolved = Arc::new(unresolved);
        }
    }

    /// From the next snapshot on every change is reported.
    fn begin_live_period(&mut self) {
        self.next.live_period = Some(self.next.number);
    }

    /// Another subscription reports what is true from now on.
    pub(super) fn restart(&mut self, instance_uuid: &str, members: BTreeSet<Arc<str>>, unresolved: Vec<Arc<str>>) {
        if *self.next.instance_uuid != *instance_uuid {
            self.forget_contents();
        }
        self.next.instance_uuid = instance_uuid.into();
        // Changes between the two subscriptions are not reported, and the inventory is still that of the old one.
        self.next.live_period = None;
        self.next.changed = None;
        self.members.restart(members, &unresolved);
        self.set_unresolved(unresolved);
    }

    /// Another vCenter has taken the place of the one that was known, under the same address. Ids mean something else
    /// there: what is held beside its instance UUID would say that its machines are those of the old one.
    fn forget_contents(&mut self) {
        self.mirror = Mirror::default();
        self.next.entities = Arc::default();
        self.next.tags = Arc::default();
        // An id of the new one may be another machine's: how long it has been off is not known.
        self.next.power = SharedMap::default();
        self.next.changed = None;
    }

    /// The virtual machines that are watched and known. The mirror may hold more: what was taken out of the view stays
    /// there until the server says that it left, since the server may never have noticed.
    pub(super) fn vms(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<VmRecord>)> {
        self.mirror.vms.iter().filter(|(id, _)| self.members.shows(id))
    }

    /// Applies one whole answer.
    fn apply(&mut self, pages: &[UpdateSet]) -> TouchedObjects {
        let Self { next, mirror, members, .. } = self;
        let mut touched = mirror.apply(pages);
        // Also one that came back: nobody knows what its power state was in between.
        for id in &touched.left {
            next.power.set(id, None);
        }
        touched.left.retain(|id| !mirror.vms.contains_key(id));
        members.leave(&touched.left);
        if next.unresolved.iter().any(|id| mirror.vms.contains_key(id)) {
            Arc::make_mut(&mut next.unresolved).retain(|id| !mirror.vms.contains_key(id));
        }
        if touched.entities {
            next.entities = Arc::new(mirror.entities.clone());
        }
        self.note_changed(touched.vms.union(&touched.left));
        touched
    }
}

impl Publisher {
    /// What is known now.
    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.borrow().clone()
    }

    /// The snapshots from now on.
    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshot.subscribe()
    }

    /// Reads the state, or changes what the next snapshot does not have to show at once.
    pub(super) fn with<T>(&self, access: impl FnOnce(&mut PublisherState) -> T) -> T {
        access(&mut self.state.lock())
    }

    /// Changes the state and publishes what follows from it.
    pub(super) fn publish(&self, change: impl FnOnce(&mut PublisherState)) {
        let mut state = self.state.lock();
        change(&mut state);
        self.send(&mut state);
    }

    /// Under the lock, so that the snapshots are published in the order of the changes.
    fn send(&self, state: &mut PublisherState) {
        state.next.number += 1;
        let before = self.snapshot();
        let changed = state.next.changed.replace(BTreeSet::new());
        let vms = match &changed {
            Some(changed) => {
                let mut vms = before.vms.clone();
                for id in changed {
                    vms.set(id, state.mirror.vms.get(id).filter(|_| state.members.shows(id)).cloned());
                }
                vms
            }
            None => state.vms().map(|(id, record)| (id.clone(), Arc::clone(record))).collect(),
        };
        debug_assert!(vms.len() == state.vms().count() && state.vms().all(|(id, known)| vms.get(id) == Some(known)));
        let mut snapshot = Snapshot { vms, changed, ..state.next.clone() };
        snapshot.prove_power(&before, Instant::now());
        state.next.power = snapshot.power.clone();
        self.snapshot.send_replace(Arc::new(snapshot));
    }

    /// The first complete answer of a subscription: what is not in it is gone from the snapshot.
    pub(super) fn replace(&self, mirror: Mirror) {
        self.publish(|state| {
            state.next.entities = Arc::new(mirror.entities.clone());
            state.mirror = mirror;
            state.next.changed = None;
            state.begin_live_period();
            if state.mirror.vms.keys().any(|id| state.members.lacks(id)) {
                // Reported by itself: see `apply`.
                self.members_changed.notify_one();
            }
        });
        self.objects_changed.notify_one();
    }

    /// Takes in one whole answer, and publishes what it changed.
    pub(super) fn apply(&self, pages: &[UpdateSet]) -> TouchedObjects {
        let mut state = self.state.lock();
        let touched = state.apply(pages);
        if touched == TouchedObjects::default() {
            return touched;
        }
        // One that was refused is reported when its right comes back; adding it again makes it a member.
        let is_reported = |id: &Arc<str>| state.mirror.vms.contains_key(id) && state.members.lacks(id);
        if !touched.left.is_empty() || touched.vms.iter().any(is_reported) {
            self.members_changed.notify_one();
        }
        self.send(&mut state);
        if touched.objects {
            self.objects_changed.notify_one();
        }
        touched
    }

    /// Changes the tags.
    pub(super) fn change_tags(&self, change: impl FnOnce(&mut TagSnapshot)) {
        self.publish(|state| change(Arc::make_mut(&mut state.next.tags)));
    }

    /// vCenter answers: what is known is true. Returns whether that is new.
    pub(super) fn mark_live(&self) -> bool {
        let mut state = self.state.lock();
        state.answered = Some(Instant::now());
        if state.next.freshness == Freshness::Live {
            return false;
        }
        state.next.freshness = Freshness::Live;
        state.begin_live_period();
        self.send(&mut state);
        true
    }

    /// vCenter does not answer: what is known stays, and is stale.
    pub(super) fn mark_stale(&self, trouble: Trouble) {
        self.publish(|state| {
            let since = match &state.next.freshness {
                Freshness::Live => Some(state.answered.unwrap_or_else(Instant::now)),
                Freshness::Stale { since, .. } => Some(*since),
                Freshness::Never | Freshness::Unreachable(_) => None,
            };
            state.next.freshness = match since {
                Some(since) => Freshness::Stale { since, trouble },
                None => Freshness::Unreachable(trouble),
            };
        });
    }
}
