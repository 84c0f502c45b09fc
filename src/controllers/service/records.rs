//! State of each Service within one leadership term: the inputs of the last ensure, the Nodes behind the load balancer,
//! failures with their backoff, and the call in flight.
//!
//! A sync and a round of node updates never call the cloud for the same Service concurrently, because each call
//! requires the [`ServiceLock`] of the Service.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::failure::ServiceBlocked;
use super::inputs::Inputs;
use super::node_set::NodeSet;
use super::plan::{Rejection, ServiceRecord};
use crate::base::backoff::{Backoff, Failures};
use crate::cloud::service;
use crate::cloud::service::cache_filter::for_deletion;
use crate::controllers::retry::Retry;

/// Backoff of each Service, as in the Go program.
pub(super) const BACKOFF: Backoff = Backoff::doubling(Duration::from_secs(5), Duration::from_secs(300));

#[derive(Default)]
pub(super) struct Records {
    table: Mutex<RecordTable>,
}

#[derive(Default)]
struct RecordTable {
    by_key: HashMap<String, Record>,
    /// Keys of the Services with a [`ServiceLock`]. A lock can outlive the record of its Service.
    locked: HashSet<String>,
    /// The resourceVersions of cached Services that a write conflict has shown to be outdated. An entry outlives the
    /// record of the Service.
    outdated: HashMap<String, String>,
}

#[derive(Default)]
struct Record {
    /// The UID of the Service.
    uid: Option<String>,
    /// Number of resyncs of the Service that the provider requested.
    resync_generation: u64,
    /// Value of `resync_generation` at the beginning of the last sync.
    observed_resync_generation: u64,
    ensured: Option<EnsuredInputs>,
    rejection: Option<Rejection>,
    attempt: Attempt,
    nodes: NodeState,
    /// The result of the last sync: the reason why the Service itself is not up to date, if any. `None` before the first
    /// sync has completed. Until then, rounds skip the Service.
    last_sync: Option<Result<(), ServiceBlocked>>,
    /// Whether the provider had objects of the Service before its deletion began.
    had_objects: bool,
    /// Time when the finalizer was first kept because another program may own it.
    not_ours_since: Option<Instant>,
    /// The last observed Service, if it had no finalizer. Needed to delete the load balancer of a vanished Service.
    unguarded: Option<Arc<Service>>,
}

/// The inputs of the last successful ensure.
struct EnsuredInputs {
    inputs: Inputs,
    /// The resync generation that the ensure covers. `None` if the cloud may differ from `inputs`, because a later call
    /// did not complete.
    resync_generation: Option<u64>,
}

/// The current ensure or delete, which may be waiting for a retry. Empty after a success.
#[derive(Default)]
struct Attempt {
    /// The inputs. `None` for the deletion of a vanished Service.
    inputs: Option<Inputs>,
    /// The Nodes of the last ensure call; `None` for a deletion.
    nodes: Option<Arc<NodeSet>>,
    failure: SyncFailure,
    /// Whether the attempt has recorded the Event `EnsuringLoadBalancer` or `DeletingLoadBalancer`.
    is_announced: bool,
}

/// The Nodes behind the load balancer.
#[derive(Default)]
struct NodeState {
    /// The Nodes that a call of this term has set last; `None` before the first of these calls.
    written: Option<Arc<NodeSet>>,
    /// Whether the load balancer has the Nodes in `written`. False after the beginning of a call whose result is unknown.
    is_certain: bool,
    failure: SyncFailure,
    /// The reason why the Nodes are not up to date.
    blocked: Option<ServiceBlocked>,
}

#[derive(Default)]
struct SyncFailure {
    failures: Failures,
    not_before: Option<Instant>,
    /// The Nodes of the failed call, if the cloud refused the call. A call with other Nodes need not wait.
    rejected_nodes: Option<Arc<NodeSet>>,
}

impl SyncFailure {
    /// Counts a failure at `at`. Returns the pause before the next attempt, if any.
    fn count(&mut self, retry: Retry, rejected_nodes: Option<Arc<NodeSet>>, at: Instant) -> Option<Duration> {
        let pause = retry.pause(&mut self.failures, &BACKOFF);
        self.not_before = pause.map(|pause| at + pause);
        self.rejected_nodes = rejected_nodes;
        pause
    }

    /// Whether the cloud can be called with these Nodes now, in spite of the failure.
    fn is_over(&self, set: &Arc<NodeSet>, at: Instant) -> bool {
        self.is_of_others(set) || self.not_before.is_none_or(|end| end <= at)
    }

    /// Whether the cloud refused a call with other Nodes than these.
    fn is_of_others(&self, set: &Arc<NodeSet>) -> bool {
        self.rejected_nodes.as_ref().is_some_and(|refused| !Arc::ptr_eq(refused, set) && refused != set)
    }
}

/// The state of the record at the beginning of an attempt.
pub(super) struct SyncInput {
    pub(super) record: ServiceRecord,
    /// The inputs of the last successful ensure, even if stale.
    pub(super) ensured: Option<Inputs>,
    pub(super) had_objects: bool,
}

/// A copy of the state of a record, for readers.
pub(super) struct RecordView {
    /// The UID of the Service of the record.
    pub(super) uid: Option<String>,
    pub(super) plan_input: ServiceRecord,
    /// Whether at least one sync of the Service has completed.
    pub(super) is_synced: bool,
    pub(super) was_ensured: bool,
    /// Whether a call for the Service is in flight.
    pub(super) is_locked: bool,
    /// The end of the pause after a failed sync.
    pub(super) sync_not_before: Option<Instant>,
    /// The Nodes that a call of this term has set last.
    pub(super) written: Option<Arc<NodeSet>>,
    /// Whether the load balancer has the Nodes in `written`.
    pub(super) is_certain: bool,
    /// The end of the pause after a failed update of the Nodes.
    pub(super) nodes_not_before: Option<Instant>,
}

/// Permission to call the cloud for one Service. At most one lock exists for each Service. Dropping the lock releases
/// the Service.
pub(super) struct ServiceLock {
    records: Arc<Records>,
    pub(super) key: String,
}

impl Drop for ServiceLock {
    fn drop(&mut self) {
        self.records.table.lock().locked.remove(&self.key);
    }
}

pub(super) struct UpdateRound {
    /// Locks of the Services whose load balancers need other Nodes.
    pub(super) claims: Vec<ServiceLock>,
    /// Keys of the Services whose last update failed, but whose load balancers have the correct Nodes now.
    pub(super) recovered: Vec<String>,
    /// The earliest end of a backoff.
    pub(super) next: Option<Instant>,
}

impl Records {
    /// Whether the record of this key belongs to a Service with another UID.
    pub(super) fn is_another(&self, key: &str, service: &Service) -> bool {
        self.table.lock().by_key.get(key).is_some_and(|record| record.uid != service.metadata.uid)
    }

    /// Begins a sync of the Service. The sync does not cover resyncs that are requested after this call, because an
    /// attempt after a conflict may reuse the result of an earlier cloud call.
    pub(super) fn begin_sync(&self, key: &str) {
        self.change(key, |record| record.observed_resync_generation = record.resync_generation);
    }

    /// Begins an attempt of a sync. Creates the record of the Service if needed.
    pub(super) fn start(&self, key: &str, service: &Service) -> SyncInput {
        let mut table = self.table.lock();
        let new = || Record { uid: service.metadata.uid.clone(), ..Record::default() };
        let record = table.by_key.entry(key.to_owned()).or_insert_with(new);
        SyncInput {
            record: record.plan_input(),
            ensured: record.ensured.as_ref().map(|ensured| ensured.inputs.clone()),
            had_objects: record.had_objects,
        }
    }

    /// Locks the Service for an ensure or delete with these inputs. Without inputs, the lock is for the deletion of a
    /// vanished Service. `set` contains the current Nodes. Returns `None` while another call is in flight, or if the
    /// Service has no record.
    ///
    /// # Errors
    /// Returns the remaining backoff if the last attempt with the same inputs failed. There is no backoff if the cloud
    /// refused that attempt with other Nodes than `set`.
    pub(super) fn lock(
        self: &Arc<Self>,
        key: &str,
        inputs: Option<&Inputs>,
        set: &Arc<NodeSet>,
    ) -> Result<Option<ServiceLock>, Duration> {
        let at = Instant::now();
        let mut table = self.table.lock();
        let RecordTable { by_key, locked, .. } = &mut *table;
        let Some(record) = by_key.get_mut(key).filter(|_| !locked.contains(key)) else { return Ok(None) };
        if record.attempt.inputs.as_ref() != inputs {
            record.attempt = Attempt { inputs: inputs.cloned(), ..Attempt::default() };
        }
        if record.attempt.failure.is_of_others(set) {
            record.attempt.failure = SyncFailure::default();
        }
        if let Some(not_before) = record.attempt.failure.not_before.filter(|end| *end > at) {
            return Err(not_before.saturating_duration_since(at));
        }
        locked.insert(key.to_owned());
        Ok(Some(ServiceLock { records: Arc::clone(self), key: key.to_owned() }))
    }

    /// Records that a write has shown the cached version of this Service to be outdated.
    pub(super) fn outdated(&self, key: &str, cached: &Service) {
        if let Some(version) = cached.metadata.resource_version.clone() {
            self.table.lock().outdated.insert(key.to_owned(), version);
        }
    }

    pub(super) fn is_outdated(&self, key: &str, cached: &Service) -> bool {
        let table = self.table.lock();
        let version = table.outdated.get(key);
        version.is_some() && version == cached.metadata.resource_version.as_ref()
    }

    /// Records an event of the cache. A Service without the finalizer is stored if this term may have created its load
    /// balancer, because the Service may vanish before its next sync.
    pub(super) fn observe(&self, key: &str, service: Option<&Arc<Service>>) {
        let mut table = self.table.lock();
        let version = service.and_then(|service| service.metadata.resource_version.as_ref());
        if table.outdated.get(key) != version {
            table.outdated.remove(key);
        }
        let Some(service) = service else { return };
        if let Some(record) = table.by_key.get_mut(key).filter(|record| record.uid == service.metadata.uid) {
            let is_kept = !service::has_finalizer(service) && record.may_have_objects();
            record.unguarded = is_kept.then(|| Arc::new(for_deletion(service)));
        }
    }

    pub(super) fn unguarded(&self, key: &str) -> Option<Arc<Service>> {
        self.table.lock().by_key.get(key)?.unguarded.clone()
    }

    /// Marks the Nodes as uncertain. Must be called before a cloud call that carries Nodes.
    pub(super) fn begin_node_update(&self, key: &str) {
        self.change(key, |record| record.nodes.is_certain = false);
    }

    /// Marks the last ensure as stale. Must be called before an ensure with these Nodes, or before a delete.
    pub(super) fn begin_change(&self, key: &str, set: Option<&Arc<NodeSet>>) {
        self.change(key, |record| {
            record.nodes.is_certain = false;
            record.attempt.nodes = set.cloned();
            if let Some(ensured) = &mut record.ensured {
                ensured.resync_generation = None;
            }
        });
    }

    /// Whether to record the Event for the beginning of the attempt. Returns true once per attempt.
    pub(super) fn begin_attempt_event(&self, key: &str) -> bool {
        let is_first = self.change(key, |record| !std::mem::replace(&mut record.attempt.is_announced, true));
        is_first.unwrap_or(false)
    }

    /// Records that the Service was deleted during the ensure, so that its load balancer is deleted, too.
    pub(super) fn vanished(&self, key: &str, service: Service) {
        self.change(key, |record| record.unguarded = Some(Arc::new(for_deletion(&service))));
    }

    /// Records the Nodes of the load balancer. Returns whether the previous Nodes are known and different.
    pub(super) fn nodes_updated(&self, key: &str, set: &Arc<NodeSet>) -> bool {
        let is_news = self.change(key, |record| {
            let before = record.nodes.written.take();
            record.nodes = NodeState { written: Some(Arc::clone(set)), is_certain: true, ..NodeState::default() };
            before.is_some_and(|before| set.has_other_targets(&before))
        });
        is_news.unwrap_or(false)
    }

    /// Records a failed update to these Nodes. Returns the end of the backoff.
    pub(super) fn node_update_failed(&self, key: &str, set: &Arc<NodeSet>, blocked: ServiceBlocked) -> Option<Instant> {
        let at = Instant::now();
        // An invalid Service must not block updates of the Nodes of its load balancer until it changes.
        let retry = if blocked.retry == Retry::OnChange { Retry::Backoff } else { blocked.retry };
        let not_before = self.change(key, |record| {
            let nodes = &mut record.nodes;
            if nodes.failure.is_of_others(set) {
                nodes.failure = SyncFailure::default();
            }
            nodes.failure.count(retry, blocked.is_refusal.then(|| Arc::clone(set)), at);
            nodes.blocked = Some(blocked);
            nodes.failure.not_before
        });
        not_before.flatten()
    }

    /// Records that the Nodes are deliberately not updated.
    pub(super) fn node_update_blocked(&self, key: &str, blocked: ServiceBlocked) {
        self.change(key, |record| {
            record.nodes.failure = SyncFailure::default();
            record.nodes.blocked = Some(blocked);
        });
    }

    /// Records a successful ensure with these inputs, after the status of the Service was written.
    pub(super) fn ensured(&self, key: &str, inputs: Inputs) {
        self.change(key, |record| {
            record.ensured = Some(EnsuredInputs { inputs, resync_generation: Some(record.observed_resync_generation) });
            record.rejection = None;
            record.attempt = Attempt::default();
        });
    }

    pub(super) fn ensure_failed(&self, key: &str, rejection: Option<Rejection>) {
        self.change(key, |record| record.rejection = rejection.filter(|_| !record.has_new_resync()));
    }

    /// Records that the provider had objects of the Service before their deletion.
    pub(super) fn had_objects(&self, key: &str) {
        self.change(key, |record| record.had_objects = true);
    }

    /// Returns the time since the finalizer was first kept because another program may own it.
    pub(super) fn not_ours_for(&self, key: &str) -> Duration {
        let at = Instant::now();
        let since = self.change(key, |record| *record.not_ours_since.get_or_insert(at));
        at.saturating_duration_since(since.unwrap_or(at))
    }

    /// Records a requested resync of one Service, or of all Services if `key` is `None`.
    pub(super) fn resync_requested(&self, key: Option<&str>) {
        match key {
            Some(key) => drop(self.change(key, Record::request_resync)),
            None => self.table.lock().by_key.values_mut().for_each(Record::request_resync),
        }
    }

    /// Records a completed sync. The sync failed if `blocked` is given. Returns the pause before the next attempt, if
    /// time alone leads to another attempt.
    pub(super) fn synced(&self, key: &str, blocked: Option<&ServiceBlocked>) -> Option<Duration> {
        let at = Instant::now();
        let recorded = self.change(key, |record| {
            record.last_sync = Some(blocked.cloned().map_or(Ok(()), Err));
            let Some(blocked) = blocked else {
                record.attempt = Attempt::default();
                return None;
            };
            let attempt = &mut record.attempt;
            let rejected_nodes = attempt.nodes.clone().filter(|_| blocked.is_refusal);
            let pause = attempt.failure.count(blocked.retry, rejected_nodes, at);
            if record.has_new_resync() {
                record.attempt.failure.not_before = None;
                return Some(Duration::ZERO);
            }
            pause
        });
        // Without a record, each failure counts as the first one.
        recorded.unwrap_or_else(|| SyncFailure::default().count(blocked?.retry, None, at))
    }

    /// Whether a round must update the load balancer to these Nodes now.
    pub(super) fn is_due(&self, key: &str, set: &Arc<NodeSet>) -> bool {
        let table = self.table.lock();
        !table.locked.contains(key) && table.by_key.get(key).is_some_and(|record| record.is_due(set, Instant::now()))
    }

    /// Returns the keys of the Services whose ensure the cloud refused with other Nodes than these.
    pub(super) fn refused_with_others(&self, set: &Arc<NodeSet>) -> Vec<String> {
        let table = self.table.lock();
        let refused = table.by_key.iter().filter(|(_, record)| record.attempt.failure.is_of_others(set));
        refused.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the reason why the Service is not up to date. If there is none, returns the reason why its Nodes are not
    /// up to date.
    pub(super) fn blocked(&self, key: &str) -> Option<ServiceBlocked> {
        let table = self.table.lock();
        let record = table.by_key.get(key)?;
        match &record.last_sync {
            Some(Err(blocked)) => Some(blocked.clone()),
            _ => record.nodes.blocked.clone(),
        }
    }

    /// Whether at least one sync of the Service has completed.
    pub(super) fn was_synced(&self, key: &str) -> bool {
        self.table.lock().by_key.get(key).is_some_and(|record| record.last_sync.is_some())
    }

    /// Locks all Services whose load balancers must be updated to these Nodes now.
    pub(super) fn due(self: &Arc<Self>, set: &Arc<NodeSet>) -> UpdateRound {
        let at = Instant::now();
        let mut due = UpdateRound { claims: Vec::new(), recovered: Vec::new(), next: None };
        let mut table = self.table.lock();
        let RecordTable { by_key, locked, .. } = &mut *table;
        for (key, record) in by_key {
            if record.nodes.are(set) {
                record.nodes.failure = SyncFailure::default();
                if record.nodes.blocked.take().is_some() {
                    due.recovered.push(key.clone());
                }
            } else if !locked.contains(key) && record.is_due(set, at) {
                locked.insert(key.clone());
                due.claims.push(ServiceLock { records: Arc::clone(self), key: key.clone() });
            }
            let waits = record.nodes.failure.not_before.filter(|end| *end > at);
            due.next = [due.next, waits].into_iter().flatten().min();
        }
        due.claims.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        due
    }

    /// Returns the state of the record; `None` without one. Changes nothing.
    pub(super) fn view(&self, key: &str) -> Option<RecordView> {
        let table = self.table.lock();
        let record = table.by_key.get(key)?;
        Some(RecordView {
            uid: record.uid.clone(),
            plan_input: record.plan_input(),
            is_synced: record.last_sync.is_some(),
            was_ensured: record.ensured.is_some(),
            is_locked: table.locked.contains(key),
            sync_not_before: record.attempt.failure.not_before,
            written: record.nodes.written.clone(),
            is_certain: record.nodes.is_certain,
            nodes_not_before: record.nodes.failure.not_before,
        })
    }

    /// Drops the record, because this program has no load balancer for the Service. A call in flight keeps its lock.
    pub(super) fn forget(&self, key: &str) {
        self.table.lock().by_key.remove(key);
    }

    pub(super) fn keys(&self) -> Vec<String> {
        self.table.lock().by_key.keys().cloned().collect()
    }

    pub(super) fn was_ensured(&self, key: &str) -> bool {
        self.table.lock().by_key.get(key).is_some_and(|record| record.ensured.is_some())
    }

    pub(super) fn count_ensured(&self) -> usize {
        self.table.lock().by_key.values().filter(|record| record.ensured.is_some()).count()
    }

    /// Changes the record of the Service. Returns `None` if the Service has no record.
    fn change<T>(&self, key: &str, change: impl FnOnce(&mut Record) -> T) -> Option<T> {
        self.table.lock().by_key.get_mut(key).map(change)
    }
}

impl Record {
    /// Whether this term may have created objects in the cloud.
    fn may_have_objects(&self) -> bool {
        self.ensured.is_some() || self.attempt.inputs.is_some() || self.had_objects || self.nodes.written.is_some()
    }

    /// Returns the part of the record on which the plan of a sync depends.
    fn plan_input(&self) -> ServiceRecord {
        ServiceRecord { ensured: self.current_inputs().cloned(), rejection: self.rejection.clone() }
    }

    /// Returns the inputs of the last ensure, unless the ensure must be repeated.
    fn current_inputs(&self) -> Option<&Inputs> {
        let ensured =
            self.ensured.as_ref().filter(|ensured| ensured.resync_generation == Some(self.resync_generation))?;
        // After a failed node update, the load balancer may be missing.
        self.nodes.failure.failures.is_none().then_some(&ensured.inputs)
    }

    fn request_resync(&mut self) {
        self.resync_generation += 1;
        self.rejection = None;
        self.attempt.failure = SyncFailure::default();
    }

    /// Whether the provider requested a resync after the sync began. The sync may not cover that request.
    fn has_new_resync(&self) -> bool {
        self.resync_generation != self.observed_resync_generation
    }

    fn is_due(&self, set: &Arc<NodeSet>, at: Instant) -> bool {
        self.last_sync.is_some() && self.nodes.failure.is_over(set, at) && !self.nodes.are(set)
    }
}

impl NodeState {
    /// Whether the load balancer has these Nodes.
    fn are(&self, set: &Arc<NodeSet>) -> bool {
        let is_written = self.written.as_ref().is_some_and(|written| Arc::ptr_eq(written, set) || written == set);
        self.is_certain && is_written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::reason;
    use crate::controllers::service::failure::ServiceAction;
    use serde_json::json;

    const KEY: &str = "n/a";

    fn service() -> Service {
        let metadata = json!({"name": "a", "namespace": "n", "uid": "u"});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"type": "LoadBalancer"}})).unwrap()
    }

    fn set(name: &str) -> Arc<NodeSet> {
        let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        Arc::new(NodeSet::of([(&node, crate::cloud::UsableAddresses::All)]))
    }

    fn held(retry: Retry) -> ServiceBlocked {
        ServiceBlocked::new(reason::CloudError, "why", retry)
    }

    /// Returns records with one Service. Its load balancer was ensured and has these Nodes.
    fn ensured(nodes: &Arc<NodeSet>) -> (Arc<Records>, Inputs) {
        let (records, inputs) = (Arc::<Records>::default(), Inputs::of(&service(), &[""]));
        records.start(KEY, &service());
        drop(records.lock(KEY, Some(&inputs), &set("a")).unwrap());
        records.begin_change(KEY, Some(nodes));
        records.nodes_updated(KEY, nodes);
        records.ensured(KEY, inputs.clone());
        records.synced(KEY, None);
        (records, inputs)
    }

    #[test]
    fn what_a_call_may_have_changed_is_in_doubt_until_it_has_ended_well() {
        let (records, inputs) = ensured(&set("a"));
        assert_eq!(records.start(KEY, &service()).record.ensured.as_ref(), Some(&inputs));
        records.begin_change(KEY, None);
        records.begin_sync(KEY);
        let start = records.start(KEY, &service());
        assert_eq!((start.record.ensured.as_ref(), start.ensured.as_ref()), (None, Some(&inputs)));
        records.resync_requested(None);
        // The next attempt, after a conflict.
        records.start(KEY, &service());
        records.ensured(KEY, inputs.clone());
        assert_eq!(records.start(KEY, &service()).record.ensured, None, "it was announced during the call");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_exact_ends_with_a_change_and_an_announcement_is_not_lost() {
        let (records, inputs) = ensured(&set("a"));
        let after = Duration::from_secs(42);
        let fail = || {
            records.begin_sync(KEY);
            records.start(KEY, &service());
            drop(records.lock(KEY, Some(&inputs), &set("a")).unwrap_or_else(|delay| panic!("{delay:?}")));
            records.synced(KEY, Some(&held(Retry::After(after))))
        };
        assert_eq!(fail(), Some(after));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(records.lock(KEY, Some(&inputs), &set("a")).err(), Some(Duration::from_secs(40)));
        tokio::time::advance(Duration::from_secs(40)).await;
        records.begin_sync(KEY);
        records.start(KEY, &service());
        let claim = records.lock(KEY, Some(&inputs), &set("a")).unwrap();
        assert!(claim.is_some() && records.lock(KEY, Some(&inputs), &set("a")).unwrap().is_none(), "one at a time");
        // A resync is requested during a call that fails.
        records.resync_requested(Some(KEY));
        drop(claim);
        assert_eq!(records.synced(KEY, Some(&held(Retry::After(after)))), Some(Duration::ZERO));
        assert!(records.lock(KEY, Some(&inputs), &set("a")).unwrap().is_some());
        fail();
        assert!(records.lock(KEY, None, &set("a")).unwrap().is_some(), "another Service, so to say");
    }

    #[test]
    fn of_two_things_in_the_way_that_of_the_service_is_shown() {
        let (records, _) = ensured(&set("a"));
        assert_eq!(records.blocked(KEY), None);
        let of_nodes = held(Retry::Backoff).with(ServiceAction::UpdateNodes);
        records.node_update_failed(KEY, &set("b"), of_nodes.clone());
        assert_eq!(records.blocked(KEY).as_ref(), Some(&of_nodes));
        records.synced(KEY, Some(&held(Retry::OnChange)));
        assert_eq!(records.blocked(KEY), Some(held(Retry::OnChange)));
        records.nodes_updated(KEY, &set("b"));
        assert_eq!(records.blocked(KEY), Some(held(Retry::OnChange)), "a node update mends no Service");
        records.node_update_failed(KEY, &set("b"), of_nodes.clone());
        records.synced(KEY, None);
        assert_eq!(records.blocked(KEY), Some(of_nodes));
        records.node_update_blocked(KEY, held(Retry::OnChange));
        assert_eq!(records.due(&set("b")).recovered, [KEY], "the Nodes are those that the cloud has");
        assert_eq!(records.blocked(KEY), None);
    }

    #[test]
    fn nodes_that_were_told_after_a_failure_are_news() {
        let (one, two) = (set("a"), set("b"));
        let (records, _) = ensured(&one);
        for _ in 0..2 {
            records.begin_node_update(KEY);
            records.node_update_failed(KEY, &set("b"), held(Retry::Backoff));
        }
        records.begin_node_update(KEY);
        assert!(records.nodes_updated(KEY, &two) && !records.nodes_updated(KEY, &two));
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_back_off_by_service_also_if_it_is_wrong() {
        let (one, two) = (set("a"), set("b"));
        let (records, _) = ensured(&one);
        for pause in [5, 10, 20] {
            let due = records.due(&two);
            assert_eq!(due.claims.len(), 1);
            assert!(records.due(&two).claims.is_empty(), "it is claimed");
            records.begin_node_update(KEY);
            records.node_update_failed(KEY, &set("b"), held(Retry::OnChange));
            drop(due);
            let again = records.due(&two);
            assert!(again.claims.is_empty() && again.next == Some(Instant::now() + Duration::from_secs(pause)));
            tokio::time::advance(Duration::from_secs(pause)).await;
        }
        // The Nodes are the previous ones again, but the failed update may have changed the load balancer.
        assert_eq!(records.due(&one).claims.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn other_nodes_end_the_pause_after_a_refusal_and_no_other_pause() {
        let (one, two, three) = (set("a"), set("b"), set("c"));
        for is_refusal in [true, false] {
            let blocked = |retry| ServiceBlocked { is_refusal, ..held(retry) };
            let (records, inputs) = ensured(&one);
            for _ in 0..3 {
                records.node_update_failed(KEY, &two, blocked(Retry::OnChange));
            }
            assert!(!records.is_due(KEY, &two), "{is_refusal}: the same is refused again");
            assert_eq!(records.is_due(KEY, &three), is_refusal);
            records.node_update_failed(KEY, &three, blocked(Retry::OnChange));
            tokio::time::advance(Duration::from_secs(5)).await;
            assert_eq!(records.is_due(KEY, &three), is_refusal, "{is_refusal}: of other Nodes it is the first failure");

            // The same applies to an ensure call.
            let (records, _) = ensured(&one);
            assert!(records.lock(KEY, Some(&inputs), &two).unwrap().is_some());
            records.begin_change(KEY, Some(&two));
            records.synced(KEY, Some(&blocked(Retry::After(Duration::from_secs(300)))));
            assert!(records.lock(KEY, Some(&inputs), &two).is_err());
            assert_eq!(records.refused_with_others(&two), Vec::<String>::new());
            assert_eq!(records.refused_with_others(&three).len(), usize::from(is_refusal));
            assert_eq!(records.lock(KEY, Some(&inputs), &three).is_ok(), is_refusal);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_deletion_backs_off_whatever_the_nodes_are() {
        let (one, two) = (set("a"), set("b"));
        let (records, _) = ensured(&one);
        let refused = ServiceBlocked { is_refusal: true, ..held(Retry::Backoff) };
        for pause in [5, 10].map(Duration::from_secs) {
            assert!(records.lock(KEY, None, &two).unwrap().is_some());
            assert_eq!(records.synced(KEY, Some(&refused)), Some(pause));
            assert_eq!(records.refused_with_others(&two), Vec::<String>::new());
            assert_eq!(records.lock(KEY, None, &two).err(), Some(pause));
            tokio::time::advance(pause).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_view_has_the_pauses_the_lock_and_the_input_of_the_next_plan() {
        let (one, two) = (set("a"), set("b"));
        let (records, inputs) = ensured(&one);
        let view = || records.view(KEY).unwrap();
        assert!(view().was_ensured && view().is_certain && !view().is_locked);
        assert_eq!((view().plan_input.ensured, view().written), (Some(inputs.clone()), Some(Arc::clone(&one))));
        let due = records.due(&two);
        records.begin_node_update(KEY);
        assert!(view().is_locked && !view().is_certain);
        records.node_update_failed(KEY, &two, held(Retry::Backoff));
        drop(due);
        assert_eq!(view().nodes_not_before, Some(Instant::now() + Duration::from_secs(5)));
        assert_eq!(view().plan_input.ensured, None, "after a failed update the ensure is repeated");
        records.synced(KEY, Some(&held(Retry::After(Duration::from_secs(42)))));
        assert_eq!(view().sync_not_before, Some(Instant::now() + Duration::from_secs(42)));
        assert!(records.view("n/other").is_none());
    }

    #[test]
    fn one_that_is_forgotten_during_a_call_stays_claimed() {
        let (records, inputs) = ensured(&set("a"));
        let due = records.due(&set("b"));
        records.forget(KEY);
        assert!(!records.was_synced(KEY));
        records.start(KEY, &service());
        assert!(records.lock(KEY, Some(&inputs), &set("a")).unwrap().is_none());
        drop(due);
        assert!(records.lock(KEY, Some(&inputs), &set("a")).unwrap().is_some());
        records.forget(KEY);
        assert_eq!(records.keys(), Vec::<String>::new());
    }
}
