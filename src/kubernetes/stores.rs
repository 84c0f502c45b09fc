//! Shared caches of API server objects. All readers of a kind share one watch.

mod access_review;
mod cached_object;
mod list_watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::Client;
use parking_lot::RwLock;
use tokio::sync::{broadcast, watch};

use super::watch::repeat;
use crate::runtime::tasks::BoxError;
pub use cached_object::{CachedObject, cached_form};
use list_watch::{ListWatch, SUCCESS_AFTER};

/// Number of changes that a subscriber may lag behind before it gets [`Change::All`].
const CHANGE_BUFFER: usize = 1024;

/// Nodes of the cluster, or those of `--node-selector`, pruned to the fields in use.
pub type Nodes = Store<Node>;

/// Services of the cluster, or those of a selector, that may need or have a load balancer.
pub type Services = Store<Service>;

/// Cache of one kind of objects. A background task keeps the cache up to date. Cheap to clone. Keys are names, or
/// `namespace/name` for namespaced objects.
#[derive(Clone)]
pub struct Store<K> {
    shared: Arc<StoreState<K>>,
}

/// A change of a [`Store`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// This object was added or changed.
    Applied(String),
    /// This object left the cache: it was deleted, is no longer selected, or no reader needs it.
    Deleted(String),
    /// Any object may have changed, because the cache was filled with other objects or the subscriber fell behind.
    All,
}

struct StoreState<K> {
    objects: RwLock<BTreeMap<String, Arc<K>>>,
    changes: broadcast::Sender<Change>,
    is_ready: watch::Sender<bool>,
    is_refused: AtomicBool,
}

/// Watches the Nodes that match the label selector; `None` matches all Nodes. The returned future is the background
/// task. It never completes and survives every outage; dropping it freezes the cache. `client` should be
/// `Clients::watch`.
pub fn watch_nodes(
    client: Client,
    selector: Option<String>,
) -> (Nodes, impl Future<Output = Result<(), BoxError>> + Send + 'static) {
    watch(client, selector)
}

/// Watches the Services that match `selector`, as [`watch_nodes`] does. This program may lack the permission to list
/// and watch Services. If `selector` is `None`, a SelfSubjectAccessReview checks the permission first. While the
/// permission is missing, it is checked again after pauses of up to 5 minutes.
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
            changes: broadcast::Sender::new(CHANGE_BUFFER),
            is_ready: watch::Sender::new(false),
            is_refused: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Returns the cached object.
    pub fn get(&self, key: &str) -> Option<Arc<K>> {
        self.shared.objects.read().get(key).cloned()
    }

    /// Whether the cache has this object.
    pub fn contains(&self, key: &str) -> bool {
        self.shared.objects.read().contains_key(key)
    }

    /// Returns all cached objects, sorted by key.
    pub fn list(&self) -> impl ExactSizeIterator<Item = Arc<K>> + Send + use<K> {
        let objects: Vec<_> = self.shared.objects.read().values().cloned().collect();
        objects.into_iter()
    }

    /// Returns the keys of all objects, sorted.
    pub fn keys(&self) -> Vec<String> {
        self.shared.objects.read().keys().cloned().collect()
    }

    /// Whether the cache has been filled once. Stays true while the API server is unreachable.
    pub fn is_ready(&self) -> bool {
        *self.shared.is_ready.borrow()
    }

    /// Whether the API server denied the last list or watch. Always false for Nodes, because this program requires
    /// them.
    pub fn is_refused(&self) -> bool {
        self.shared.is_refused.load(Ordering::Relaxed)
    }

    fn set_refused(&self, is_refused: bool) -> bool {
        self.shared.is_refused.swap(is_refused, Ordering::Relaxed)
    }

    /// Completes once the cache has been filled.
    pub async fn wait_until_ready(&self) {
        // Fails only if the sender is dropped, but `self` owns the sender.
        let _ = self.shared.is_ready.subscribe().wait_for(|is_ready| *is_ready).await;
    }

    /// Returns the changes from now on. The first item is [`Change::All`], once the cache is filled. Never ends.
    pub fn subscribe(&self) -> BoxStream<'static, Change> {
        let receiver = self.shared.changes.subscribe();
        let store = self.clone();
        let first = futures::stream::once(async move {
            store.wait_until_ready().await;
            Change::All
        });
        let keep_open = self.clone();
        let rest = futures::stream::unfold((receiver, keep_open), |(mut receiver, keep_open)| async move {
            // Fails only for a subscriber that fell behind, because the sender stays alive.
            let change = receiver.recv().await.unwrap_or(Change::All);
            Some((change, (receiver, keep_open)))
        });
        first.chain(rest).boxed()
    }

    fn apply(&self, key: String, object: Arc<K>) {
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

    /// Replaces the content by `fresh`. Announces objects that `fresh` lacks as deleted. Announces nothing if the cache
    /// was filled before and has the same objects.
    fn replace_all(&self, fresh: BTreeMap<String, Arc<K>>) {
        let mut objects = self.shared.objects.write();
        let vanished: Vec<_> = objects.keys().filter(|key| !fresh.contains_key(*key)).cloned().collect();
        let is_same = objects.len() == fresh.len()
            && objects.iter().zip(&fresh).all(|(known, fresh)| known.0 == fresh.0 && Arc::ptr_eq(known.1, fresh.1));
        *objects = fresh;
        drop(objects);
        let was_ready = self.shared.is_ready.send_replace(true);
        if was_ready && is_same {
            return;
        }
        for key in vanished {
            self.notify(Change::Deleted(key));
        }
        self.notify(Change::All);
    }

    fn notify(&self, change: Change) {
        // Sending fails without subscribers, which is fine.
        let _ = self.shared.changes.send(change);
    }
}

#[cfg(test)]
mod tests;
