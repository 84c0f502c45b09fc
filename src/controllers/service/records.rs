//! State of each Service within one leadership term: the inputs of the last ensure, the Nodes behind the load balancer,
//! failures with their backoff, and the call in flight.
//!
//! A sync and a round of node updates never call the cloud for the same Service concurrently, because each call
//! requires the [`ServiceLock`] of the Service.

use std::collections::HashMap;
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
    by_key: Mutex<HashMap<String, Record>>,
    /// The resourceVersions of cached Services that a write conflict has shown to be outdated. An entry outlives the
    /// record of the Service.
    outdated: Mutex<HashMap<String, String>>,
}

#[derive(Default)]
struct Record {
    /// The UID of the Service; `None` if the record was dropped during a call.
    uid: Option<String>,
    /// The inputs of the last successful ensure.
    ensured: Option<Inputs>,
    /// Whether the cloud may differ from `ensured`, because a call did not complete or the provider announced a resync.
    is_stale: bool,
    /// Number of resyncs of the Service that the provider announced.
    announcements: u64,
    /// Value of `announcements` at the beginning of the last sync.
    seen_announcements: u64,
    rejection: Option<Rejection>,
    /// The inputs of the current ensure or delete, which may be waiting for a retry.
    attempted: Option<Inputs>,
    /// The Nodes of the ensure call of this attempt; `None` for a deletion.
    tried: Option<Arc<NodeSet>>,
    failure: Option<SyncFailure>,
    /// Whether the attempt has recorded the Event `EnsuringLoadBalancer` or `DeletingLoadBalancer`.
    is_announced: bool,
    /// Whether the provider had objects of the Service before its deletion began.
    had_objects: bool,
    /// Time when the finalizer was first kept because another program may own it.
    not_ours_since: Option<Instant>,
    /// The last observed Service, if it had no finalizer. Needed to delete the load balancer of a vanished Service.
    unguarded: Option<Arc<Service>>,
    /// Whether at least one sync of the Service has completed. Before that, rounds skip the Service.
    was_synced: bool,
    backends: Backends,
    node_failure: Option<SyncFailure>,
    is_claimed: bool,
    /// The reason why the Service itself is not up to date.
    blocked: Option<ServiceBlocked>,
    /// The reason why the Nodes of the load balancer are not up to date.
    nodes_blocked: Option<ServiceBlocked>,
}

#[derive(Clone, Default)]
enum Backends {
    /// The Nodes are unknown, because no call of this term has set them.
    #[default]
    Unknown,
    /// The load balancer had these Nodes before a call whose result is unknown.
    Uncertain(Arc<NodeSet>),
    Known(Arc<NodeSet>),
}

#[derive(Clone, Default)]
struct SyncFailure {
    failures: Failures,
    not_before: Option<Instant>,
    /// The Nodes of the failed call, if the cloud refused the call. A call with other Nodes need not wait.
    rejected_nodes: Option<Arc<NodeSet>>,
}

impl SyncFailure {
    /// Counts a failure at `at`. Returns the pause before the next attempt, if any.
    fn count(&mut self, retry: Retry, at: Instant) -> Option<Duration> {
        let pause = retry.pause(&mut self.failures, &BACKOFF);
        self.not_before = pause.map(|pause| at + pause);
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

/// Permission to call the cloud for one Service. At most one lock exists for each Service. Dropping the lock releases
/// the Service.
pub(super) struct ServiceLock {
    records: Arc<Records>,
    pub(super) key: String,
}

impl Drop for ServiceLock {
    fn drop(&mut self) {
        let mut by_key = self.records.by_key.lock();
        if let Some(record) = by_key.get_mut(&self.key) {
            record.is_claimed = false;
            // `forget` was called during the cloud call.
            if record.uid.is_none() {
                by_key.remove(&self.key);
            }
        }
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
        let by_key = self.by_key.lock();
        by_key.get(key).is_some_and(|record| record.uid.is_some() && record.uid != service.metadata.uid)
    }

    /// Begins a sync of the Service. The sync does not cover announcements after this call, because an attempt after a
    /// conflict may reuse the result of an earlier cloud call.
    pub(super) fn begin_sync(&self, key: &str) {
        self.change(key, |record| record.seen_announcements = record.announcements);
    }

    /// Begins an attempt of a sync. Creates the record of the Service if needed.
    pub(super) fn start(&self, key: &str, service: &Service) -> SyncInput {
        let mut by_key = self.by_key.lock();
        let record = by_key.entry(key.to_owned()).or_default();
        if record.uid.is_none() {
            record.uid = service.metadata.uid.clone();
        }
        let ensured = record.ensured.clone();
        SyncInput {
            record: ServiceRecord {
                ensured: ensured.clone().filter(|_| !record.is_stale()),
                rejection: record.rejection.clone(),
            },
            ensured,
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
        let mut by_key = self.by_key.lock();
        let Some(record) = by_key.get_mut(key).filter(|record| !record.is_claimed) else { return Ok(None) };
        if record.attempted.as_ref() != inputs {
            (record.attempted, record.failure, record.is_announced) = (inputs.cloned(), None, false);
            record.tried = None;
        }
        if record.failure.as_ref().is_some_and(|failure| failure.is_of_others(set)) {
            record.failure = None;
        }
        let not_before = record.failure.as_ref().and_then(|failure| failure.not_before).filter(|end| *end > at);
        if let Some(not_before) = not_before {
            return Err(not_before.saturating_duration_since(at));
        }
        record.is_claimed = true;
        Ok(Some(ServiceLock { records: Arc::clone(self), key: key.to_owned() }))
    }

    /// Records that a write has shown the cached version of this Service to be outdated.
    pub(super) fn outdated(&self, key: &str, cached: &Service) {
        if let Some(version) = cached.metadata.resource_version.clone() {
            self.outdated.lock().insert(key.to_owned(), version);
        }
    }

    pub(super) fn is_outdated(&self, key: &str, cached: &Service) -> bool {
        let version = self.outdated.lock().get(key).cloned();
        version.is_some() && version == cached.metadata.resource_version
    }

    /// Records an event of the cache. A Service without the finalizer is stored if this term may have created its load
    /// balancer, because the Service may vanish before its next sync.
    pub(super) fn observe(&self, key: &str, service: Option<&Arc<Service>>) {
        self.outdated.lock().retain(|of, version| {
            of != key || service.is_some_and(|service| service.metadata.resource_version.as_ref() == Some(&*version))
        });
        let Some(service) = service else { return };
        self.change(key, |record| {
            let is_it = record.uid == service.metadata.uid;
            let is_guarded = service::has_finalizer(service);
            if is_it {
                let is_kept = !is_guarded && record.may_have_objects();
                record.unguarded = is_kept.then(|| Arc::new(for_deletion(service)));
            }
        });
    }

    pub(super) fn unguarded(&self, key: &str) -> Option<Arc<Service>> {
        self.by_key.lock().get(key)?.unguarded.clone()
    }

    /// Marks the Nodes as uncertain. Must be called before a cloud call that carries Nodes.
    pub(super) fn begin_node_update(&self, key: &str) {
        self.change(key, Record::begin_node_update);
    }

    /// Marks the last ensure as stale. Must be called before an ensure with these Nodes, or before a delete.
    pub(super) fn begin_change(&self, key: &str, set: Option<&Arc<NodeSet>>) {
        self.change(key, |record| {
            record.begin_node_update();
            (record.is_stale, record.tried) = (true, set.cloned());
        });
    }

    /// Whether to record the Event for the beginning of the attempt. Returns true once per attempt.
    pub(super) fn begin_attempt_event(&self, key: &str) -> bool {
        let mut is_first = false;
        self.change(key, |record| is_first = !std::mem::replace(&mut record.is_announced, true));
        is_first
    }

    /// Records that the Service was deleted during the ensure, so that its load balancer is deleted, too.
    pub(super) fn vanished(&self, key: &str, service: Service) {
        self.change(key, |record| record.unguarded = Some(Arc::new(for_deletion(&service))));
    }

    /// Records the Nodes of the load balancer. Returns whether the previous Nodes are known and different.
    pub(super) fn nodes_updated(&self, key: &str, set: &Arc<NodeSet>) -> bool {
        let mut is_news = false;
        self.change(key, |record| {
            is_news = match &record.backends {
                Backends::Unknown => false,
                Backends::Uncertain(before) | Backends::Known(before) => set.has_other_targets(before),
            };
            (record.backends, record.node_failure, record.nodes_blocked) =
                (Backends::Known(Arc::clone(set)), None, None);
        });
        is_news
    }

    /// Records a failed update to these Nodes. Returns the end of the backoff.
    pub(super) fn node_update_failed(&self, key: &str, set: &Arc<NodeSet>, blocked: ServiceBlocked) -> Option<Instant> {
        let at = Instant::now();
        // An invalid Service must not block updates of the Nodes of its load balancer until it changes.
        let retry = if blocked.retry == Retry::OnChange { Retry::Backoff } else { blocked.retry };
        let mut not_before = None;
        self.change(key, |record| {
            let failure = record.node_failure.get_or_insert_default();
            if failure.is_of_others(set) {
                *failure = SyncFailure::default();
            }
            failure.count(retry, at);
            failure.rejected_nodes = blocked.is_refusal.then(|| Arc::clone(set));
            not_before = failure.not_before;
            record.nodes_blocked = Some(blocked);
        });
        not_before
    }

    /// Records that the Nodes are deliberately not updated.
    pub(super) fn node_update_blocked(&self, key: &str, blocked: ServiceBlocked) {
        self.change(key, |record| {
            (record.node_failure, record.nodes_blocked) = (Some(SyncFailure::default()), Some(blocked));
        });
    }

    /// Records a successful ensure with these inputs, after the status of the Service was written.
    pub(super) fn ensured(&self, key: &str, inputs: Inputs) {
        self.change(key, |record| {
            record.ensured = Some(inputs);
            record.is_stale = record.was_resync_requested_since_start();
            (record.rejection, record.attempted, record.failure, record.is_announced) = (None, None, None, false);
            record.tried = None;
        });
    }

    pub(super) fn ensure_failed(&self, key: &str, rejection: Option<Rejection>) {
        self.change(key, |record| record.rejection = rejection.filter(|_| !record.was_resync_requested_since_start()));
    }

    /// Records that the provider had objects of the Service before their deletion.
    pub(super) fn had_objects(&self, key: &str) {
        self.change(key, |record| record.had_objects = true);
    }

    /// Returns the time since the finalizer was first kept because another program may own it.
    pub(super) fn not_ours_for(&self, key: &str) -> Duration {
        let at = Instant::now();
        let mut lasting = Duration::ZERO;
        self.change(key, |record| {
            lasting = at.saturating_duration_since(*record.not_ours_since.get_or_insert(at));
        });
        lasting
    }

    /// Records an announced resync of one Service, or of all Services if `key` is `None`.
    pub(super) fn resync_requested(&self, key: Option<&str>) {
        let announce = |record: &mut Record| {
            record.announcements += 1;
            record.is_stale = true;
            (record.rejection, record.failure) = (None, None);
        };
        match key {
            Some(key) => self.change(key, announce),
            None => self.by_key.lock().values_mut().for_each(announce),
        }
    }

    /// Records a completed sync. The sync failed if `blocked` is given. Returns the pause before the next attempt, if
    /// time alone leads to another attempt.
    pub(super) fn synced(&self, key: &str, blocked: Option<&ServiceBlocked>) -> Option<Duration> {
        let at = Instant::now();
        let mut pause = None;
        self.change(key, |record| {
            (record.was_synced, record.blocked) = (true, blocked.cloned());
            let is_announced_again = record.was_resync_requested_since_start();
            match blocked {
                None => {
                    (record.attempted, record.failure, record.is_announced) = (None, None, false);
                    record.tried = None;
                }
                Some(held) => {
                    let failure = record.failure.get_or_insert_default();
                    pause = failure.count(held.retry, at);
                    failure.rejected_nodes = record.tried.clone().filter(|_| held.is_refusal);
                    if is_announced_again {
                        (failure.not_before, pause) = (None, Some(Duration::ZERO));
                    }
                }
            }
        });
        // Without a record, each failure counts as the first one.
        pause.or_else(|| blocked.and_then(|held| SyncFailure::default().count(held.retry, at)))
    }

    /// Whether a round must update the load balancer to these Nodes now.
    pub(super) fn is_due(&self, key: &str, set: &Arc<NodeSet>) -> bool {
        self.by_key.lock().get(key).is_some_and(|record| record.is_due(set, Instant::now()))
    }

    /// Returns the keys of the Services whose ensure the cloud refused with other Nodes than these.
    pub(super) fn refused_with_others(&self, set: &Arc<NodeSet>) -> Vec<String> {
        let by_key = self.by_key.lock();
        let is_it = |record: &Record| record.failure.as_ref().is_some_and(|failure| failure.is_of_others(set));
        by_key.iter().filter(|(_, record)| is_it(record)).map(|(key, _)| key.clone()).collect()
    }

    /// Returns the reason why the Service is not up to date. If there is none, returns the reason why its Nodes are not
    /// up to date.
    pub(super) fn blocked(&self, key: &str) -> Option<ServiceBlocked> {
        let by_key = self.by_key.lock();
        let record = by_key.get(key)?;
        record.blocked.clone().or_else(|| record.nodes_blocked.clone())
    }

    pub(super) fn was_synced(&self, key: &str) -> bool {
        self.by_key.lock().get(key).is_some_and(|record| record.was_synced)
    }

    /// Locks all Services whose load balancers must be updated to these Nodes now.
    pub(super) fn due(self: &Arc<Self>, set: &Arc<NodeSet>) -> UpdateRound {
        let at = Instant::now();
        let mut due = UpdateRound { claims: Vec::new(), recovered: Vec::new(), next: None };
        for (key, record) in self.by_key.lock().iter_mut() {
            if record.has_nodes(set) {
                record.nodes_blocked = None;
                if record.node_failure.take().is_some() {
                    due.recovered.push(key.clone());
                }
            } else if record.is_due(set, at) {
                record.is_claimed = true;
                due.claims.push(ServiceLock { records: Arc::clone(self), key: key.clone() });
            }
            let waits = record.node_failure.as_ref().and_then(|failure| failure.not_before).filter(|end| *end > at);
            due.next = [due.next, waits].into_iter().flatten().min();
        }
        due.claims.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        due
    }

    /// Drops the record, because this program has no load balancer for the Service.
    pub(super) fn forget(&self, key: &str) {
        let mut by_key = self.by_key.lock();
        match by_key.get_mut(key) {
            // A call is in flight. Dropping its lock removes the record.
            Some(record) if record.is_claimed => *record = Record { is_claimed: true, ..Record::default() },
            _ => drop(by_key.remove(key)),
        }
    }

    pub(super) fn keys(&self) -> Vec<String> {
        self.by_key.lock().keys().cloned().collect()
    }

    pub(super) fn was_ensured(&self, key: &str) -> bool {
        self.by_key.lock().get(key).is_some_and(|record| record.ensured.is_some())
    }

    pub(super) fn count_ensured(&self) -> usize {
        self.by_key.lock().values().filter(|record| record.ensured.is_some()).count()
    }

    fn change(&self, key: &str, change: impl FnOnce(&mut Record)) {
        if let Some(record) = self.by_key.lock().get_mut(key) {
            change(record);
        }
    }
}

impl Record {
    /// Whether this term may have created objects in the cloud.
    fn may_have_objects(&self) -> bool {
        self.ensured.is_some()
            || self.attempted.is_some()
            || self.had_objects
            || !matches!(self.backends, Backends::Unknown)
    }

    fn begin_node_update(&mut self) {
        if let Backends::Known(set) | Backends::Uncertain(set) = std::mem::take(&mut self.backends) {
            self.backends = Backends::Uncertain(set);
        }
    }

    /// Whether the last ensure must be repeated. After a failed node update, the load balancer may be missing.
    fn is_stale(&self) -> bool {
        self.is_stale || self.node_failure.as_ref().is_some_and(|failure| !failure.failures.is_none())
    }

    /// Whether the provider announced the Service after the sync began. The sync may not cover that announcement.
    fn was_resync_requested_since_start(&self) -> bool {
        self.announcements != self.seen_announcements
    }

    fn has_nodes(&self, set: &Arc<NodeSet>) -> bool {
        matches!(&self.backends, Backends::Known(known) if Arc::ptr_eq(known, set) || known == set)
    }

    fn is_due(&self, set: &Arc<NodeSet>, at: Instant) -> bool {
        let may_try = self.node_failure.as_ref().is_none_or(|failure| failure.is_over(set, at));
        self.was_synced && !self.is_claimed && may_try && !self.has_nodes(set)
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
