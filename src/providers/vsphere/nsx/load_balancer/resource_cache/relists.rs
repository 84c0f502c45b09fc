//! Schedules relists and applies their results to the cache.

use super::*;
use crate::providers::vsphere::nsx::load_balancer::LATER;
use crate::providers::vsphere::nsx::load_balancer::backend::{Backend, Scope};
use crate::providers::vsphere::reason;
use futures::future::OptionFuture;
use tokio::time::{sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// Minimum interval between the starts of relists.
const RELIST_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum pause after consecutive failures.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Maximum duration of a relist. For many pages, the limits of the single calls would add up to hours.
const LIMIT: Duration = Duration::from_secs(600);
/// Interval of full relists.
const FULL_RELIST_INTERVAL: Duration = Duration::from_secs(30 * 60);

struct RelistScope {
    epoch: u64,
    began: Instant,
    is_full: bool,
    has_all_ip_pools: bool,
}

struct RelistResult {
    listing: ObjectListing,
    names: ScopeNames,
    unlistable_ip_pools: BTreeMap<Box<str>, Error>,
    /// Error of listing groups and persistence profiles.
    references_failure: Option<Error>,
    /// Error of listing the allocations of all IP pools, if that was requested.
    ip_pools_failure: Option<Error>,
}

impl CacheState {
    /// Returns the time of the next relist, if any. Without a permit, only requested relists run.
    fn next(&self, now: Instant) -> Option<Instant> {
        let (failures, said) = self.failure.as_ref().map_or((0, None), |(error, count)| (*count, error.retry_after()));
        let pause = RELIST_INTERVAL.saturating_mul(1 << failures.saturating_sub(1).min(8)).min(LONGEST_PAUSE);
        let earliest = self.last_attempt.map_or(now, |attempted| attempted + pause.max(said.unwrap_or_default()));
        let patient = self.patient_until.map(|until| if self.services_in_flight.is_empty() { now } else { until });
        match self.is_relist_requested.then_some(now).or(patient).into_iter().chain(self.refusal_due).min() {
            Some(asked) => Some(asked.max(earliest)),
            None => {
                let removal = self.removal.map(|removal| removal.next);
                let next = self.next_full.into_iter().chain(removal).min();
                next.filter(|_| self.permit.is_some()).map(|next| next.max(earliest))
            }
        }
    }

    /// Updates the IP pools whose allocations could not be listed, and logs changes.
    fn record_unlistable_ip_pools(&mut self, unlistable_ip_pools: BTreeMap<Box<str>, Error>) {
        for (pool, error) in &unlistable_ip_pools {
            let (reason, message) = (error.reason(), chain(error));
            if self.unlistable_ip_pools.get(pool).is_none_or(|known| known.reason() != reason) {
                warn!(%reason, "cannot list the allocations of IP pool {pool}; creations and deletions that depend on it wait: {message}");
            }
        }
        for pool in self.unlistable_ip_pools.keys().filter(|pool| !unlistable_ip_pools.contains_key(*pool)) {
            info!("the allocations of IP pool {pool} can be listed again");
        }
        if unlistable_ip_pools.is_empty() {
            self.named_ip_pools.clear();
        }
        self.unlistable_ip_pools = unlistable_ip_pools;
    }

    /// Records the result of a relist with all IP pools that started at `at`.
    fn record_all_ip_pools(&mut self, at: Instant, failure: Option<Error>) {
        match failure {
            None => (self.ip_pools_relist_start, self.ip_pools_failure) = (Some(at), None),
            Some(error) => {
                let again = Instant::now() + error.retry_after().unwrap_or(LONGEST_PAUSE);
                self.ip_pools_failure = Some((error, again));
            }
        }
    }

    /// Logs a failure to list groups and persistence profiles. The cache keeps the objects of earlier lists.
    fn record_references(&mut self, failure: Option<Error>) {
        let reason = failure.as_ref().map(Error::reason);
        if let Some(error) = failure.filter(|_| reason != self.references_failure) {
            let reason = error.reason();
            warn!(%reason, "cannot list groups and persistence profiles in NSX; using the last known state: {}", chain(&error));
        }
        self.references_failure = reason;
    }
}

impl ResourceCache {
    /// Runs relists when they are due, until `stop` is cancelled.
    pub async fn run(&self, backend: &dyn Backend, layout: &ClusterLayout, scope: &Scope, stop: &CancellationToken) {
        let mut leads = self.state.lock().leads.clone();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.until_due(&mut leads) => {}
            }
            let started = self.begin_list();
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.until_reset(started.epoch, &mut leads) => {}
                shown = timeout(LIMIT, self.relist(backend, layout, scope, &started)) => {
                    self.end_list(&started, shown.unwrap_or_else(|_| Err(too_long())));
                }
            }
        }
    }

    async fn until_due(&self, leads: &mut AnyLeader) {
        loop {
            let (next, epoch) = {
                let state = self.state.lock();
                (state.next(Instant::now()), state.epoch)
            };
            tokio::select! {
                () = self.until_reset(epoch, leads) => {}
                () = self.wake.notified() => {}
                Some(()) = OptionFuture::from(next.map(sleep_until)) => return,
            }
        }
    }

    /// Waits for a reset of the state of this epoch, and resets the state when its term ends or, without a permit, when
    /// leadership changes. Completes after the reset, because a relist cancelled earlier would still count as running.
    async fn until_reset(&self, epoch: u64, leads: &mut AnyLeader) {
        loop {
            let permit = {
                let mut state = self.state.lock();
                if state.epoch == epoch && state.is_outdated() {
                    self.reset(&mut state, None);
                }
                if state.epoch != epoch {
                    return;
                }
                state.permit.clone()
            };
            match permit {
                Some(permit) => permit.ended().await,
                None => leads.changed().await,
            }
        }
    }

    async fn relist(
        &self,
        backend: &dyn Backend,
        layout: &ClusterLayout,
        scope: &Scope,
        started: &RelistScope,
    ) -> Result<RelistResult, Error> {
        let mut contents = ResourceIndex::default();
        let mut each = |kind, object| contents.add(kind, &object, layout);
        let names = backend.read(scope, &mut each).await?;
        let references_failure = match started.is_full {
            true => backend.read_references(&mut each).await.err(),
            false => None,
        };
        let has_references = started.is_full && references_failure.is_none();
        if !has_references {
            contents.forget_references();
        }
        let mut pools = self.state.lock().index.address_pools();
        pools.extend(contents.address_pools());
        pools.extend(scope.pools.iter().cloned());
        pools.extend(names.pools.values().flatten().map(|id| id.as_str().into()));
        let mut unlistable_ip_pools = BTreeMap::new();
        for pool in &pools {
            let mut each = |kind, object| contents.add(kind, &object, layout);
            match backend.read_allocations(pool, &mut each).await {
                Ok(()) => {}
                Err(error) if is_of_pool(&error) => {
                    contents.forget_allocations(pool);
                    unlistable_ip_pools.insert(pool.clone(), error);
                }
                Err(error) => return Err(error),
            }
        }
        let ip_pools_failure = match started.has_all_ip_pools {
            true => self.read_others(backend, layout, &pools, &mut contents).await.err(),
            false => None,
        };
        let read = ObjectListing {
            index: contents,
            has_references,
            unlistable_ip_pools: unlistable_ip_pools.keys().cloned().collect(),
        };
        Ok(RelistResult { listing: read, names, unlistable_ip_pools, references_failure, ip_pools_failure })
    }

    /// Lists the allocations of all IP pools that neither the configuration nor any object names.
    async fn read_others(
        &self,
        backend: &dyn Backend,
        layout: &ClusterLayout,
        known: &BTreeSet<Box<str>>,
        contents: &mut ResourceIndex,
    ) -> Result<(), Error> {
        for pool in backend.address_pools().await?.difference(known) {
            let mut of_pool = ResourceIndex::default();
            let mut each = |kind, object| of_pool.add(kind, &object, layout);
            match backend.read_allocations(pool, &mut each).await {
                Ok(()) => contents.extend(of_pool),
                // The IP pool belongs to another tenant, so this account has reserved nothing there.
                Err(error) if error.reason() == reason::NSXNoPermission => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn begin_list(&self) -> RelistScope {
        let (mut state, at) = (self.state.lock(), Instant::now());
        state.last_attempt = Some(at);
        state.begin_removal(at);
        (state.is_relist_requested, state.patient_until) = (false, None);
        if state.refusal_due.take().is_some() {
            state.read_after_refusal = Some(at);
        }
        state.touched_paths = Some(BTreeSet::new());
        let is_full = state.is_full_due || state.next_full.is_some_and(|next| next <= at);
        let has_all_ip_pools = std::mem::take(&mut state.are_all_ip_pools_due);
        RelistScope { epoch: state.epoch, began: at, is_full, has_all_ip_pools }
    }

    fn end_list(&self, started: &RelistScope, shown: Result<RelistResult, Error>) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        // Leadership has ended during the relist.
        if state.epoch != started.epoch {
            return;
        }
        let touched = state.touched_paths.take().unwrap_or_default();
        let RelistResult { listing: read, names, unlistable_ip_pools, references_failure, ip_pools_failure } =
            match shown {
                Ok(shown) => shown,
                Err(error) => return self.record_failure(state, error),
            };
        if started.has_all_ip_pools {
            state.record_all_ip_pools(started.began, ip_pools_failure);
        }
        if started.is_full {
            // A missing permission may be permanent; other failures are probably temporary.
            let is_brief = references_failure.as_ref().is_some_and(|error| error.reason() != reason::NSXNoPermission);
            let next = started.began + if is_brief { LATER } else { FULL_RELIST_INTERVAL };
            (state.is_full_due, state.next_full) = (false, Some(next));
            state.record_references(references_failure);
        }
        let merged = merge(read, &state.index, &touched, &state.missed);
        // Only another full relist can confirm that groups and persistence profiles are missing.
        state.is_full_due |= merged.misses_references();
        let MergeResult { index: contents, missed, mut changed } = merged;
        if started.is_full {
            // Lists may lack an address that NSX has assigned later, so a sync reads the address.
            changed.extend(contents.with_surplus_allocations().into_iter().map(Into::into));
        }
        let is_first = state.relist_count == 0;
        if state.failure.is_some() {
            info!("the load balancers in NSX are listed again");
        }
        state.index = contents;
        state.names = names;
        state.failure = None;
        state.record_unlistable_ip_pools(unlistable_ip_pools);
        state.relist_count += 1;
        state.last_relist_start = Some(started.began);
        state.next_full.get_or_insert(started.began + FULL_RELIST_INTERVAL);
        state.is_relist_requested |= !missed.is_empty();
        state.missed = missed;
        self.request_resync(&std::mem::take(&mut state.waiting));
        if !is_first {
            self.request_resync(&changed);
        }
        drop(guard);
        self.relist_counter.send_modify(|count| *count += 1);
    }

    fn record_failure(&self, state: &mut CacheState, error: Error) {
        let in_a_row = state.failure.as_ref().map_or(0, |(_, count)| *count) + 1;
        let (reason, message) = (error.reason(), chain(&error));
        if state.failure.as_ref().is_none_or(|(before, _)| before.reason() != reason) {
            warn!(%reason, "cannot list the load balancer objects in NSX, and tries again; what needs a new list waits: {message}");
        }
        state.failure = Some((error, in_a_row));
        // Requests the retry, because possibly no sync waits for the full relist or for the second list after a miss.
        state.is_relist_requested |= state.is_full_due || !state.missed.is_empty();
        // After later failures, the waiting syncs already have the error and retry without an event.
        if in_a_row == 1 {
            self.request_resync(&std::mem::take(&mut state.waiting));
        }
    }
}

fn too_long() -> Error {
    let limit = LIMIT.as_secs() / 60;
    let message = format!(
        "list the load balancer objects in NSX: the list is not complete after {limit} minutes; expected an NSX Manager that \
         answers each page within seconds"
    );
    Error::Failed { reason: reason::NSXUnavailable, message, after: None }
}

/// Whether the failure concerns only this IP pool, whose id may come from a tag that was edited by hand.
fn is_of_pool(error: &Error) -> bool {
    [reason::NSXNoPermission, reason::NSXRefused].contains(&error.reason())
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;
    use crate::clients::nsx::Object;
    use crate::providers::vsphere::nsx::load_balancer::layout::ObjectKind;
    use crate::providers::vsphere::nsx::ownership::PROGRAM;

    /// The events before the relist task observes the end of a term.
    #[derive(Clone, Copy, Debug)]
    enum Meanwhile {
        Nothing,
        Write,
        Read,
    }

    #[tokio::test]
    async fn the_end_of_a_term_resets_the_state_unless_a_call_of_the_next_term_has_done_so() {
        for has_permit in [false, true] {
            for meanwhile in [Meanwhile::Nothing, Meanwhile::Write, Meanwhile::Read] {
                let (lead, over) = (watch::Sender::new(has_permit), CancellationToken::new());
                let mut leads = AnyLeader::new(vec![lead.subscribe()]);
                let cache = ResourceCache::new(leads.clone());
                if has_permit {
                    cache.begin(&valid_until(&over));
                }
                let mut reset = pin!(cache.until_reset(cache.epoch(), &mut leads));
                assert!((&mut reset).now_or_never().is_none(), "{has_permit}");
                lead.send_replace(!has_permit);
                over.cancel();
                match meanwhile {
                    Meanwhile::Nothing => {}
                    Meanwhile::Write => cache.begin(&valid_until(&CancellationToken::new())),
                    Meanwhile::Read => cache.begin_read(),
                }
                cache.state.lock().relist_count = 1;
                assert!(reset.now_or_never().is_some(), "{has_permit} {meanwhile:?}");
                let is_kept = !matches!(meanwhile, Meanwhile::Nothing);
                assert_eq!(cache.state.lock().relist_count, u64::from(is_kept), "{has_permit} {meanwhile:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_term_begins_with_nothing_and_ends_with_its_own_lead() {
        let [own, other] = [(); 2].map(|()| watch::Sender::new(true));
        let mut leads = AnyLeader::new(vec![own.subscribe(), other.subscribe()]);
        let (cache, over) = (ResourceCache::new(leads.clone()), CancellationToken::new());
        cache.state.lock().relist_count = 1;
        cache.begin_read();
        assert_eq!(cache.state.lock().relist_count, 1, "the lead has not changed");
        cache.begin(&valid_until(&over));
        assert_eq!(cache.state.lock().relist_count, 0);
        cache.state.lock().relist_count = 1;
        let mut reset = pin!(cache.until_reset(cache.epoch(), &mut leads));
        assert!((&mut reset).now_or_never().is_none());
        other.send_replace(false);
        cache.begin_read();
        assert!((&mut reset).now_or_never().is_none());
        assert_eq!(cache.state.lock().relist_count, 1);
        over.cancel();
        assert!(reset.now_or_never().is_some());
        assert_eq!(cache.state.lock().relist_count, 0);
    }

    impl ResourceCache {
        fn epoch(&self) -> u64 {
            self.state.lock().epoch
        }
    }

    fn valid_until(end: &CancellationToken) -> LeaderToken {
        let (end, ended) = (end.clone(), end.clone());
        LeaderToken::new(move || !end.is_cancelled(), move || ended.clone().cancelled_owned().boxed())
    }

    #[tokio::test(start_paused = true)]
    async fn refused_changes_lead_to_one_reading_a_minute() {
        let cache = ResourceCache::new(AnyLeader::new(Vec::new()));
        let due = || {
            let (state, now) = (cache.state.lock(), Instant::now());
            state.next(now).map(|next| next - now)
        };
        assert_eq!(due(), None);
        cache.request_relist_after_refusal();
        assert_eq!(due(), Some(Duration::ZERO));
        cache.begin_list();
        assert_eq!(due(), None);
        tokio::time::advance(Duration::from_secs(20)).await;
        cache.request_relist_after_refusal();
        assert_eq!(due(), Some(Duration::from_secs(40)));
        tokio::time::advance(Duration::from_secs(30)).await;
        cache.request_relist_after_refusal();
        assert_eq!(due(), Some(Duration::from_secs(10)), "it is not put off");
        cache.begin_list();
        assert_eq!(due(), None, "any reading shows what the refusal is about");
    }

    #[test]
    fn what_a_reading_missed_is_looked_at_again_also_if_that_fails() {
        for missed in [BTreeSet::new(), BTreeSet::from(["/infra/lb-pools/a".into()])] {
            let cache = ResourceCache::new(AnyLeader::new(Vec::new()));
            let mut state = cache.state.lock();
            state.missed.clone_from(&missed);
            cache.record_failure(&mut state, Error::other("the list failed"));
            assert_eq!(state.is_relist_requested, !missed.is_empty());
        }
    }

    fn layout() -> ClusterLayout {
        ClusterLayout { cluster: "c".to_owned(), cluster_uid: None, configured: BTreeMap::new(), secondary: None }
    }

    fn object(path: &str, port: &str) -> Object {
        let tags = [("owner", PROGRAM), ("cluster", "c"), ("service", "ns/s"), ("port", port)];
        let tags: Vec<_> = tags.iter().map(|(scope, tag)| json!({"scope": scope, "tag": tag})).collect();
        let id = path.rsplit('/').next().unwrap();
        Object(serde_json::from_value(json!({"id": id, "path": path, "tags": tags})).unwrap())
    }

    /// Runs a relist with this result. `meanwhile` runs before the relist ends.
    fn relist(
        cache: &ResourceCache,
        objects: &[(ObjectKind, Object)],
        unlistable_ip_pools: &[&str],
        meanwhile: impl FnOnce(),
    ) {
        let started = cache.begin_list();
        let mut index = ResourceIndex::default();
        objects.iter().for_each(|(kind, object)| index.add(*kind, object, &layout()));
        meanwhile();
        let error = || Error::Failed { reason: reason::NSXNoPermission, message: "denied".to_owned(), after: None };
        let unlistable_ip_pools: BTreeMap<Box<str>, Error> =
            unlistable_ip_pools.iter().map(|pool| ((*pool).into(), error())).collect();
        let listing = ObjectListing {
            index,
            has_references: false,
            unlistable_ip_pools: unlistable_ip_pools.keys().cloned().collect(),
        };
        let (names, references_failure, ip_pools_failure) = (ScopeNames::default(), None, None);
        cache.end_list(
            &started,
            Ok(RelistResult { listing, names, unlistable_ip_pools, references_failure, ip_pools_failure }),
        );
    }

    #[test]
    fn an_object_that_was_written_during_a_relist_is_newer_than_the_list() {
        let cache = ResourceCache::new(AnyLeader::new(Vec::new()));
        let pool = |id: &str, port: &str| (ObjectKind::Pool, object(&format!("/infra/lb-pools/{id}"), port));
        relist(&cache, &[pool("changed", "TCP/1"), pool("deleted", "TCP/1")], &[], || {
            let (kind, object) = pool("changed", "TCP/2");
            cache.record(&ObjectChange::Present(kind, object), &layout());
            cache.record(&ObjectChange::Gone("/infra/lb-pools/deleted".to_owned()), &layout());
        });
        let ports = || -> Vec<String> {
            cache.of_service("ns/s").pools().filter_map(|pool| pool.tags.port).map(|port| port.to_string()).collect()
        };
        assert_eq!(ports(), ["TCP/2"]);
        assert!(!cache.state.lock().is_relist_requested, "no object was missed");
        relist(&cache, &[pool("changed", "TCP/3")], &[], || {});
        assert_eq!(ports(), ["TCP/3"], "the next list is newer than the write");
    }

    #[test]
    fn allocations_stay_while_their_pool_is_unread() {
        let cache = ResourceCache::new(AnyLeader::new(Vec::new()));
        let allocation = || (ObjectKind::Allocation, object("/infra/ip-pools/p/ip-allocations/a", "TCP/1"));
        let has_one = || cache.of_service("ns/s").has(ObjectKind::Allocation);
        let unlistable =
            || cache.unlistable_ip_pool_error(|pool| pool == "p").map(|error| (error.reason(), error.to_string()));
        relist(&cache, &[allocation()], &[], || {});
        for _ in 0..3 {
            relist(&cache, &[], &["p"], || {});
            assert!(has_one(), "the list says nothing about it");
            assert_eq!(unlistable(), Some((reason::NSXNoPermission, "denied".to_owned())));
            assert!(cache.unlistable_ip_pool_error(|pool| pool == "q").is_none(), "only Services of this IP pool wait");
        }
        relist(&cache, &[], &[], || {});
        assert_eq!((has_one(), unlistable()), (true, None), "one list may miss it");
        relist(&cache, &[], &[], || {});
        assert!(!has_one());
    }
}
