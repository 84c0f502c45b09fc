//! The shared caches of API server objects: one watch per kind, for all readers.

mod access_review;
mod list_watch;
mod packed_object;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Client;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{broadcast, watch};

use super::watch::repeat;
use crate::runtime::tasks::BoxError;
use list_watch::{ListWatch, SUCCESS_AFTER};
pub use packed_object::CachedObject;
use packed_object::PackedObject;

/// How many changes a subscriber may lag behind before it gets [`Change::All`].
const CHANGE_BUFFER: usize = 1024;

/// How many objects stay unpacked: as many as change within a second or two in a cluster of 5,000 Nodes.
const RECENT: usize = 32;

/// The cluster's Nodes (or those of `--node-selector`), pruned to the fields in use.
pub type Nodes = Store<Node>;

/// The cluster's Services (or those of a selector) that have, or may have, a load balancer.
pub type Services = Store<Service>;

/// A cache of one kind of objects, kept up to date by a background task. Cheap to clone. Keys are names, or
/// `namespace/name` for namespaced objects. Objects are kept packed, and unpacked for each reader.
#[derive(Clone)]
pub struct Store<K> {
    shared: Arc<StoreState<K>>,
}

/// A change of a [`Store`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// This object was added or changed.
    Applied(String),
    /// This object left the cache: deleted, no longer selected, or no longer needed by any reader.
    Deleted(String),
    /// Any object may have changed: the cache was filled, or the subscriber fell behind.
    All,
}

struct StoreState<K> {
    objects: RwLock<BTreeMap<String, PackedObject<K>>>,
    /// The objects unpacked last. The readers of an event need the same object within milliseconds, and share it.
    recent: Mutex<VecDeque<(PackedObject<K>, Arc<K>)>>,
    changes: broadcast::Sender<Change>,
    is_ready: watch::Sender<bool>,
    is_refused: AtomicBool,
}

/// Watches the Nodes that `selector` matches (a label selector; `None` matches all). The future is the background task:
/// it never completes and survives every outage; dropping it freezes the cache. `client` should be the one for watches.
pub fn watch_nodes(
    client: Client,
    selector: Option<String>,
) -> (Nodes, impl Future<Output = Result<(), BoxError>> + Send + 'static) {
    watch(client, selector)
}

/// Watches the Services that `selector` matches, as [`watch_nodes`] does. This program may lack the permission: it is
/// checked first by SelfSubjectAccessReview, and again every 5 minutes while missing.
pub fn watch_services(
    client: Client,
    selector: Option<String>,
) -> (Services, impl Future<Output = Result<(), BoxError>> + Send + 'static) {
    watch(client, selector)
}

fn watch<K: CachedObject>(
    client: Client,
    selector: Option<String>,
) -> (Store<K>, impl Future<Output = Result<(), BoxError>> + Send + 'static) {
    let store = Store::new();
    let list_watch = ListWatch::new(client, selector, store.clone());
    (store, async { match repeat(list_watch, SUCCESS_AFTER).await {} })
}

impl<K: CachedObject> Store<K> {
    fn new() -> Self {
        let shared = StoreState {
            objects: RwLock::default(),
            recent: Mutex::default(),
            changes: broadcast::Sender::new(CHANGE_BUFFER),
            is_ready: watch::Sender::new(false),
            is_refused: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The object as last seen.
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        let packed = self.packed(key)?;
        let recent = || self.shared.recent.lock();
        if let Some((_, object)) = recent().iter().find(|(known, _)| Arc::ptr_eq(&known.json, &packed.json)) {
            return Some(Arc::clone(object));
        }
        // Unpacked without the lock, so that readers of other objects need not wait. Two concurrent readers may both
        // unpack it.
        let object = packed.unpacked();
        let mut recent = recent();
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back((packed, Arc::clone(&object)));
        Some(object)
    }

    fn packed(&self, key: &str) -> Option<PackedObject<K>> {
        self.shared.objects.read().get(key).cloned()
    }

    /// Whether the cache has this object.
    pub fn contains(&self, key: &str) -> bool {
        self.shared.objects.read().contains_key(key)
    }

    /// All current objects, sorted by key. The iterator unpacks one object at a time.
    pub fn list(&self) -> impl ExactSizeIterator<Item = Arc<K>> + Send + use<K> {
        let objects = self.shared.objects.read();
        let packed: Vec<_> = objects.values().cloned().collect();
        packed.into_iter().map(|packed| packed.unpacked())
    }

    /// Number of objects, and number of those that their kind marks: Nodes that wait for initialisation.
    pub fn count_marked(&self) -> (usize, usize) {
        let objects = self.shared.objects.read();
        (objects.len(), objects.values().filter(|packed| packed.is_marked).count())
    }

    /// The keys of all objects, sorted.
    pub fn keys(&self) -> Vec<String> {
        self.shared.objects.read().keys().cloned().collect()
    }

    /// Whether the cache has been filled once. Stays true while the API server is unreachable.
    pub fn is_ready(&self) -> bool {
        *self.shared.is_ready.borrow()
    }

    /// Whether the API server refused the last attempt to list or watch.
    pub fn is_refused(&self) -> bool {
        self.shared.is_refused.load(Ordering::Relaxed)
    }

    /// Sets the flag and returns its previous value.
    fn set_refused(&self, is_refused: bool) -> bool {
        self.shared.is_refused.swap(is_refused, Ordering::Relaxed)
    }

    /// Completes once the cache has been filled.
    pub async fn wait_until_ready(&self) {
        // Fails only if the sender is dropped, but `self` holds it.
        let _ = self.shared.is_ready.subscribe().wait_for(|is_ready| *is_ready).await;
    }

    /// The changes from now on. The first item is [`Change::All`], once the cache is filled; never ends.
    pub fn subscribe(&self) -> BoxStream<'static, Change> {
        let receiver = self.shared.changes.subscribe();
        let store = self.clone();
        let first = futures::stream::once(async move {
            store.wait_until_ready().await;
            Change::All
        });
        let keep_open = self.clone();
        let rest = futures::stream::unfold((receiver, keep_open), |(mut receiver, keep_open)| async move {
            // Fails only for a subscriber that fell behind: the sender is kept.
            let change = receiver.recv().await.unwrap_or(Change::All);
            Some((change, (receiver, keep_open)))
        });
        first.chain(rest).boxed()
    }

    fn apply(&self, key: String, object: PackedObject<K>) {
        let mut objects = self.shared.objects.write();
        objects.insert(key.clone(), object);
        drop(objects);
        self.notify(Change::Applied(key));
    }

    fn remove(&self, key: &str) {
        let mut objects = self.shared.objects.write();
        let removed = objects.remove(key);
        drop(objects);
        if removed.is_some() {
            self.notify(Change::Deleted(key.to_owned()));
        }
    }

    /// Replaces the content by a complete list. Announces objects that vanished as deleted.
    fn replace_all(&self, fresh: BTreeMap<String, PackedObject<K>>) {
        let mut objects = self.shared.objects.write();
        let vanished: Vec<_> = objects.keys().filter(|key| !fresh.contains_key(*key)).cloned().collect();
        *objects = fresh;
        drop(objects);
        self.shared.is_ready.send_replace(true);
        for key in vanished {
            self.notify(Change::Deleted(key));
        }
        self.notify(Change::All);
    }

    fn notify(&self, change: Change) {
        // Without subscribers, sending fails, which is fine.
        let _ = self.shared.changes.send(change);
    }
}

#[cfg(test)]
mod tests;
