//! Publishes the snapshots of one vCenter: one for each change of the state, in the order of the changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::members::{Members, ViewChange};
use super::mirror::{Mirror, TouchedObjects};
use super::shared_map::SharedMap;
use super::snapshot::{Freshness, Snapshot, TagSnapshot, VcenterFailure, VmRecord};
use crate::clients::vim::UpdateSet;

#[derive(Default)]
pub(super) struct Publisher {
    state: Mutex<PublisherState>,
    snapshot: watch::Sender<Arc<Snapshot>>,
    pub(super) members_changed: Notify,
    /// Signals that the tags of some objects may be unread.
    pub(super) objects_changed: Notify,
}

/// The state from which snapshots are made. Never locked across an await.
#[derive(Default)]
pub(super) struct PublisherState {
    /// The next snapshot, without its VMs. Its `changed` collects the VMs that changed since the last snapshot.
    pub(super) next: Snapshot,
    pub(super) mirror: Mirror,
    pub(super) members: Members,
    /// Time of the last update, including parts of an incomplete answer.
    pub(super) reported: Option<tokio::time::Instant>,
    answered: Option<Instant>,
}

impl PublisherState {
    /// Records a change of the view, with the ids that the server did not resolve.
    pub(super) fn made(&mut self, change: &ViewChange, unresolved: Vec<Arc<str>>) {
        self.record_changed(change.add.iter().chain(&change.remove).chain(&unresolved));
        self.members.made(change, &unresolved);
        self.set_unresolved(unresolved);
    }

    /// Begins the next change of the view. The next snapshot already shows the added VMs.
    pub(super) fn next_change(&mut self) -> ViewChange {
        let change = self.members.next_change();
        self.record_changed(&change.add);
        change
    }

    /// Marks VMs that may differ in the next snapshot.
    fn record_changed<'a>(&mut self, ids: impl IntoIterator<Item = &'a Arc<str>>) {
        if let Some(changed) = &mut self.next.changed {
            changed.extend(ids.into_iter().cloned());
        }
    }

    /// Sets the unresolved ids. Keeps the allocation of an equal list, because readers compare pointers.
    fn set_unresolved(&mut self, unresolved: Vec<Arc<str>>) {
        if *self.next.unresolved != unresolved {
            self.next.unresolved = Arc::new(unresolved);
        }
    }

    /// Begins a live period. Every change from the next snapshot on is reported.
    fn begin_live_period(&mut self) {
        self.next.live_period = Some(self.next.number);
    }

    pub(super) fn restart(&mut self, instance_uuid: &str, members: BTreeSet<Arc<str>>, unresolved: Vec<Arc<str>>) {
        if *self.next.instance_uuid != *instance_uuid {
            self.forget_contents();
        }
        self.next.instance_uuid = instance_uuid.into();
        // Changes between the two subscriptions are not reported, and the mirror still has the old inventory.
        self.next.live_period = None;
        self.next.changed = None;
        self.members.restart(members, &unresolved);
        self.set_unresolved(unresolved);
    }

    /// Drops the contents, because another vCenter at the same address has other objects with the same ids.
    fn forget_contents(&mut self) {
        self.mirror = Mirror::default();
        self.next.entities = Arc::default();
        self.next.tags = Arc::default();
        self.next.power = SharedMap::default();
        self.next.changed = None;
    }

    /// Returns the watched VMs. The mirror may contain more VMs: a VM that was removed from the ListView stays there
    /// until the server sends `leave`.
    pub(super) fn vms(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<VmRecord>)> {
        self.mirror.vms.iter().filter(|(id, _)| self.members.shows(id))
    }

    fn apply(&mut self, pages: &[UpdateSet]) -> TouchedObjects {
        let Self { next, mirror, members, .. } = self;
        let mut touched = mirror.apply(pages);
        // A VM that left and came back loses its proven power state, because the state was unobserved for a time.
        for id in &touched.removed {
            next.power.set(id, None);
        }
        touched.removed.retain(|id| !mirror.vms.contains_key(id));
        members.remove(&touched.removed);
        if next.unresolved.iter().any(|id| mirror.vms.contains_key(id)) {
            Arc::make_mut(&mut next.unresolved).retain(|id| !mirror.vms.contains_key(id));
        }
        if touched.entities {
            next.entities = Arc::new(mirror.entities.clone());
        }
        self.record_changed(touched.vms.union(&touched.removed));
        touched
    }
}

impl Publisher {
    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.borrow().clone()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.snapshot.subscribe()
    }

    /// Reads the state, or makes changes that need no new snapshot yet.
    pub(super) fn with<T>(&self, access: impl FnOnce(&mut PublisherState) -> T) -> T {
        access(&mut self.state.lock())
    }

    pub(super) fn publish(&self, change: impl FnOnce(&mut PublisherState)) {
        let mut state = self.state.lock();
        change(&mut state);
        self.send(&mut state);
    }

    /// Publishes the next snapshot. Called under the lock, so that the snapshots have the order of the changes.
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

    /// Publishes the first complete answer of a subscription. Objects that are not in the answer leave the snapshot.
    pub(super) fn replace(&self, mirror: Mirror) {
        self.publish(|state| {
            state.next.entities = Arc::new(mirror.entities.clone());
            state.mirror = mirror;
            state.next.changed = None;
            state.begin_live_period();
            if state.mirror.vms.keys().any(|id| state.members.lacks(id)) {
                // The server reports a wanted VM that is no member of the view; see `apply`.
                self.members_changed.notify_one();
            }
        });
        self.objects_changed.notify_one();
    }

    /// Applies one complete answer and publishes its changes.
    pub(super) fn apply(&self, pages: &[UpdateSet]) -> TouchedObjects {
        let mut state = self.state.lock();
        let touched = state.apply(pages);
        if touched == TouchedObjects::default() {
            return touched;
        }
        // The server reports an unresolved VM when the account may read it. Adding the VM again makes it a member.
        let is_reported = |id: &Arc<str>| state.mirror.vms.contains_key(id) && state.members.lacks(id);
        if !touched.removed.is_empty() || touched.vms.iter().any(is_reported) {
            self.members_changed.notify_one();
        }
        self.send(&mut state);
        if touched.objects {
            self.objects_changed.notify_one();
        }
        touched
    }

    pub(super) fn change_tags(&self, change: impl FnOnce(&mut TagSnapshot)) {
        self.publish(|state| change(Arc::make_mut(&mut state.next.tags)));
    }

    /// Marks the snapshot live. Returns true if the snapshot was not live before.
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

    /// Marks the snapshot stale. The contents stay.
    pub(super) fn mark_stale(&self, trouble: VcenterFailure) {
        self.publish(|state| {
            let since = match &state.next.freshness {
                Freshness::Live => Some(state.answered.unwrap_or_else(Instant::now)),
                Freshness::Stale { since, .. } => Some(*since),
                Freshness::Never | Freshness::Unreachable(_) => None,
            };
            state.next.freshness = match since {
                Some(since) => Freshness::Stale { since, failure: trouble },
                None => Freshness::Unreachable(trouble),
            };
        });
    }
}
