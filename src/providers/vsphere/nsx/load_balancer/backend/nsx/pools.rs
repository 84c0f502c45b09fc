//! Updates the members of many pools: lists all pools and writes the changed pools in batches.
//!
//! If a batch has a stale revision, its pools are listed and planned again. If NSX refuses the objects of a batch, the
//! batch is halved until the refused pool is alone. If NSX does not accept batches, pools are written one by one. If
//! NSX refuses new members of a pool, the surplus members are still removed.

use std::sync::atomic::Ordering;

use futures::StreamExt as _;
use serde_json::Value;
use tracing::{debug, warn};

use super::*;
use crate::base::error_chain::chain;
use crate::clients::nsx::Kind as Failure;

/// Maximum number of pools per batch.
const MAX_POOLS: usize = 50;
/// Maximum number of bytes per batch. A larger pool is written alone.
const MAX_BYTES: usize = 512 << 10;
/// Maximum number of concurrent writes without batches.
const MAX_CONCURRENT: usize = 8;

const TOGETHER: &str = "lb-pools.patch-together";

struct PoolWriteRound<'a> {
    nsx: &'a NsxBackend,
    permit: Arc<dyn Permit>,
    layout: &'a ClusterLayout,
    record: Record<'a>,
    /// Remaining updates, by path.
    pending: BTreeMap<Box<str>, PoolUpdate>,
    /// Number of first members that stay, for each pool that both loses and gains members, by path.
    unchanged: BTreeMap<Box<str>, usize>,
    failed: BTreeMap<Box<str>, Error>,
}

#[derive(Default)]
struct Batch {
    objects: Vec<Object>,
    bytes: usize,
}

impl Batch {
    fn is_full_with(&self, bytes: usize) -> bool {
        !self.objects.is_empty() && (self.objects.len() >= MAX_POOLS || self.bytes + bytes > MAX_BYTES)
    }

    fn add(&mut self, object: Object, bytes: usize) {
        self.objects.push(object);
        self.bytes += bytes;
    }
}

impl NsxBackend {
    pub(super) async fn update(
        &self,
        permit: &LeaderToken,
        layout: &ClusterLayout,
        updates: BTreeMap<Box<str>, PoolUpdate>,
        record: Record<'_>,
    ) -> BTreeMap<Box<str>, Error> {
        let (permit, failed) = (permit_of(permit), BTreeMap::new());
        let staying = BTreeMap::new();
        let mut round =
            PoolWriteRound { nsx: self, permit, layout, record, pending: updates, unchanged: staying, failed };
        for _ in 0..ATTEMPTS {
            if round.pending.is_empty() {
                break;
            }
            if let Err(error) = round.attempt().await {
                round.fail_all(&error);
            }
        }
        let message = "another client changed the pool during each of several attempts".to_owned();
        round.fail_all(&Error::Failed { reason: reason::NSXRefused, message, after: None });
        round.failed
    }

    fn has_batches(&self) -> bool {
        self.batches.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct WrittenPools {
    count: usize,
    /// Whether the account lacks permission to write one of the pools.
    is_any_denied: bool,
}

impl PoolWriteRound<'_> {
    /// Lists all pools and writes those in `pending`. An update with a stale revision stays in `pending`.
    async fn attempt(&mut self) -> Result<(), Error> {
        let client = self.nsx.client.clone();
        let pools = ObjectKind::Pool.parent();
        let mut pages = client.pages(pools, "lb-pools.list", POOL_PAGE);
        let mut unseen: BTreeSet<Box<str>> = self.pending.keys().cloned().collect();
        let mut batch = Batch::default();
        while let Some(objects) = pages.next().await.map_err(|error| not_listed(pools, &error))? {
            for object in objects {
                let is_open = unseen.remove(object.path());
                let Some(object) = is_open.then(|| self.planned(object)).flatten() else { continue };
                let bytes = serde_json::to_vec(&object.0).map_or(0, |text| text.len());
                if batch.is_full_with(bytes) {
                    self.write(std::mem::take(&mut batch)).await;
                }
                batch.add(object, bytes);
            }
        }
        self.write(batch).await;
        // Reads the pools that the list may have missed.
        for path in unseen {
            let doing = format!("change the pool {path}");
            match self.nsx.get(ObjectKind::Pool, &path, &doing).await {
                Ok(Some(object)) => {
                    if let Some(object) = self.planned(object) {
                        self.write_one_by_one(vec![object]).await;
                    }
                }
                Ok(None) => {
                    self.pending.remove(&path);
                    (self.record)(ObjectChange::Gone(path.into()));
                }
                Err(error) => self.fail(&path, error),
            }
        }
        Ok(())
    }

    /// Returns the pool with its new members; `None` if its members need no write or its tags have changed.
    fn planned(&mut self, mut object: Object) -> Option<Object> {
        let update = self.pending.get(object.path())?;
        let is_known = OwnerTags::read(&object, self.layout).as_ref() == Some(&update.tags);
        match members::staying(&object, &update.members) {
            Some(count) => drop(self.unchanged.insert(object.path().into(), count)),
            None => drop(self.unchanged.remove(object.path())),
        }
        if is_known && members::set(&mut object, &update.members, &self.layout.cluster) {
            let owner = Owner { service: &update.tags.service, uid: &update.service_uid };
            plan::tags_at_write(&update.tags, ObjectKind::Pool, &owner, self.layout).write_into(&mut object);
            self.layout.of(update.tags.secondary).tags(ObjectKind::Pool).write_into(&mut object);
            return Some(object);
        }
        self.pending.remove(object.path());
        (self.record)(ObjectChange::Present(ObjectKind::Pool, object));
        None
    }

    /// Writes pools in batches and splits refused batches, until each pool is written, stale or failed.
    async fn write(&mut self, batch: Batch) {
        let mut parts = vec![batch.objects];
        while let Some(mut objects) = parts.pop() {
            // The error of a single write identifies the refused pool.
            if !self.nsx.has_batches() || objects.len() < 2 {
                self.write_one_by_one(objects).await;
                continue;
            }
            let patched = self.nsx.client.patch_together(&self.permit, "LBPool", TOGETHER, &objects).await;
            let Err(error) = patched else {
                objects.into_iter().for_each(|object| self.written(object));
                continue;
            };
            match &error.kind {
                Failure::Conflict | Failure::Unknown => {}
                _ if is_call_refused(&error) => {
                    let WrittenPools { count, is_any_denied } = self.write_one_by_one(objects).await;
                    // Batches stay enabled if a proxy refuses every call, or if the account may not write one pool.
                    let is_of_one = is_any_denied && error.kind == Failure::NoPermission;
                    if !is_of_one && (count > 0 || error.kind != Failure::Unavailable) {
                        warn!("pools are written one by one from now on: {error}");
                        self.nsx.batches.store(false, Ordering::Relaxed);
                    }
                }
                Failure::NotPermitted
                | Failure::Rejected
                | Failure::SessionOver
                | Failure::Unavailable
                | Failure::Busy => {
                    objects.iter().for_each(|object| self.fail(object.path(), of_pool(object, &error)));
                }
                _ => {
                    let second = objects.split_off(objects.len() / 2);
                    parts.extend([second, objects]);
                }
            }
        }
    }

    async fn write_one_by_one(&mut self, objects: Vec<Object>) -> WrittenPools {
        let mut result = WrittenPools::default();
        let (client, permit) = (self.nsx.client.clone(), Arc::clone(&self.permit));
        let put = |object: Object| {
            let (client, permit) = (client.clone(), Arc::clone(&permit));
            async move {
                let written = client.put(&permit, object.path(), Calls::of(ObjectKind::Pool).put, &object).await;
                (object, written)
            }
        };
        let mut results = futures::stream::iter(objects).map(put).buffer_unordered(MAX_CONCURRENT);
        while let Some((object, written)) = results.next().await {
            match written {
                Ok(stored) => {
                    self.written(stored);
                    result.count += 1;
                }
                Err(error) if is_to_be_read(&error.kind) => {}
                Err(error) => {
                    result.is_any_denied |= error.kind == Failure::NoPermission;
                    self.fail(object.path(), of_pool(&object, &error));
                    if error.kind == Failure::BadRequest {
                        self.remove_members(object).await;
                    }
                }
            }
        }
        result
    }

    /// Removes only the surplus members, because NSX may have refused the new members. Errors are only logged.
    async fn remove_members(&mut self, mut object: Object) {
        let Some(count) = self.unchanged.remove(object.path()) else { return };
        if let Some(members) = object.0.get_mut("members").and_then(Value::as_array_mut) {
            members.truncate(count);
        }
        match self.nsx.client.put(&self.permit, object.path(), Calls::of(ObjectKind::Pool).put, &object).await {
            Ok(stored) => (self.record)(ObjectChange::Present(ObjectKind::Pool, stored)),
            Err(error) => debug!("cannot remove members of the pool {}: {error}", object.path()),
        }
    }

    fn written(&mut self, object: Object) {
        self.pending.remove(object.path());
        (self.record)(ObjectChange::Present(ObjectKind::Pool, object));
    }

    fn fail(&mut self, path: &str, error: Error) {
        self.pending.remove(path);
        self.failed.insert(path.into(), error);
    }

    fn fail_all(&mut self, error: &Error) {
        for path in std::mem::take(&mut self.pending).into_keys() {
            let message = format!("change the pool {path}: {}", chain(error));
            let same = match error {
                Error::NotLeader => Error::NotLeader,
                error => Error::Failed { reason: error.reason(), message, after: error.retry_after() },
            };
            self.failed.insert(path, same);
        }
    }
}

/// Whether NSX refuses the batch request itself, rather than one of its pools.
fn is_call_refused(error: &client::Error) -> bool {
    let is_of_call = !matches!(error.kind, Failure::MissingReference(_) | Failure::Rejected | Failure::SessionOver);
    is_of_call && matches!(error.status(), Some(403..=405))
}

fn of_pool(object: &Object, error: &client::Error) -> Error {
    failed(&format!("change the pool {}", object.path()), Some(object.created_by()), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_has_so_many_pools_and_so_many_bytes() {
        let mut batch = Batch::default();
        assert!(!batch.is_full_with(MAX_BYTES + 1), "a pool that is larger goes alone");
        let object = || Object(serde_json::Map::new());
        batch.add(object(), MAX_BYTES - 100);
        assert!(!batch.is_full_with(100) && batch.is_full_with(101));
        let mut batch = Batch::default();
        for _ in 0..50 {
            assert!(!batch.is_full_with(1));
            batch.add(object(), 1);
        }
        assert!(batch.is_full_with(1));
    }
}
