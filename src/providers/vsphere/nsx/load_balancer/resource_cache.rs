//! Cache of the load balancer objects in NSX, for all Services: the last list, and all later reads and writes.
//!
//! A relist starts when a sync requests one, at most every 10 s. A relist that confirms writes waits up to 15 s for
//! calls in flight, because these calls would request another relist. Full relists include groups and persistence
//! profiles, and run every 30 minutes. No other relist is periodic. A sync does not wait for a relist: the sync returns
//! [`Error::Pending`], and its Service is requeued after the relist. The cache is cleared when leadership ends.
//!
//! If this account may not list an IP pool, the pool is *unlistable* ([`ResourceCache::unlistable_ip_pool_error`]). The
//! known allocations of the pool stay in the cache, and only Services that depend on the pool wait.

mod last_step;
mod quarantine;
mod realization;
mod relists;
mod removal;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::Instant;
use tracing::warn;

pub use self::last_step::LastStep;
use self::quarantine::Quarantine;
use super::RECENT;
use super::backend::{ConfiguredObject, ObjectChange, ScopeNames, Suitability, Usage};
use super::layout::ClusterLayout;
use super::realization::{PendingTeardown, Rollout};
use super::resource::{Resource, ServiceResources};
use super::resource_index::relist::{MergeResult, ObjectListing, merge};
use super::resource_index::{ResourceIndex, Selection};
use crate::base::error_chain::chain;
use crate::cloud::{Error, LeaderToken, Reason, ServiceEvent};
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::nsx::AnyLeader;

/// Maximum pause before the retry of a sync that waits for a relist.
const MAX_RELIST_DELAY: Duration = Duration::from_secs(60);
/// Maximum delay of a relist that confirms writes, while calls for other Services are in flight.
const PATIENCE: Duration = Duration::from_secs(15);
/// Minimum time between two relists that follow refused changes.
const BETWEEN_REFUSALS: Duration = Duration::from_secs(60);
/// Maximum number of Services whose IP pools are cached, and of Services whose last step is kept.
const MAX_SERVICES: usize = 4096;
/// Maximum number of events by which a subscriber may lag. A slower subscriber gets one event for all Services.
const BACKLOG: usize = 4096;

/// State of the lists of objects in this term.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListStatus {
    /// Start of the last completed list; `None` before the first list of this term.
    pub last: Option<Instant>,
    /// Error of the last list, if it failed.
    pub failure: Option<String>,
}

/// Freshness of the cache that a decision requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredFreshness {
    /// Any list of this term.
    AnyList,
    /// Two lists of this term, because one list may miss an object.
    TwoLists,
    /// A list that started after this time.
    ListedAfter(Instant),
    /// A list that started after this time and includes the allocations of all IP pools, even of unconfigured pools.
    AllIpPoolsListedAfter(Instant),
}

pub struct ResourceCache {
    state: Mutex<CacheState>,
    wake: Notify,
    events: broadcast::Sender<ServiceEvent>,
    /// Number of completed relists in all terms.
    relist_counter: watch::Sender<u64>,
}

/// State of the cache. No task keeps its lock across an `await`.
#[derive(Default)]
struct CacheState {
    leads: AnyLeader,
    /// The permit of the term to which the state belongs; `None` if the state was read without a permit.
    permit: Option<LeaderToken>,
    /// Number of resets.
    epoch: u64,
    index: ResourceIndex,
    names: ScopeNames,
    /// Start of the first call of this term.
    term_began: Option<Instant>,
    /// Number of completed relists in this term.
    relist_count: u64,
    /// Start of the last completed relist.
    last_relist_start: Option<Instant>,
    /// Start of the last relist, completed or not.
    last_attempt: Option<Instant>,
    is_relist_requested: bool,
    /// Due time of a relist after a refused change.
    refusal_due: Option<Instant>,
    /// Start of the last relist after a refused change.
    read_after_refusal: Option<Instant>,
    /// Latest start of a requested relist that waits until no call is in flight.
    patient_until: Option<Instant>,
    /// Time of the next full relist; `None` before the first relist.
    next_full: Option<Instant>,
    /// Whether the next relist is full, that is, includes groups and persistence profiles.
    is_full_due: bool,
    /// Whether the next relist includes all IP pools.
    are_all_ip_pools_due: bool,
    /// Start of the last successful relist with all IP pools.
    ip_pools_relist_start: Option<Instant>,
    /// Error of the last relist with all IP pools, if it failed, and time of the retry.
    ip_pools_failure: Option<(Error, Instant)>,
    /// Reason of the last failure to list groups and persistence profiles.
    references_failure: Option<Reason>,
    /// The IP pools whose allocations the last relist could not list, with the errors.
    unlistable_ip_pools: BTreeMap<Box<str>, Error>,
    /// IP pools that the objects of each Service named before their deletion. Cleared when no IP pool is unlistable.
    named_ip_pools: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
    /// Services (namespace/name) whose syncs wait for a relist.
    waiting: BTreeSet<Box<str>>,
    /// Error of the last relist, if it failed, and number of consecutive failures.
    failure: Option<(Error, u32)>,
    /// Paths of objects read or written since the start of the running relist; `None` if no relist is running.
    touched_paths: Option<BTreeSet<Box<str>>>,
    /// Paths of objects that stay in the cache although the last list missed them.
    missed: BTreeSet<Box<str>>,
    /// Time of the last response to a write, by Service.
    answered_at: BTreeMap<Box<str>, Instant>,
    /// Services whose load balancers were complete in this term, with their families.
    complete_families: BTreeMap<Box<str>, Vec<IpFamily>>,
    /// Services with a call in flight, each with the claims of the call.
    services_in_flight: BTreeMap<Box<str>, CallClaims>,
    /// Suitability of configured objects, and the time of the read.
    configured: BTreeMap<ConfiguredObject, (Suitability, Instant)>,
    /// Services that are being deleted, with the addresses released so far; `None` for an unknown address.
    deleted: BTreeMap<Box<str>, Vec<Option<IpAddr>>>,
    quarantine: Quarantine,
    /// Paths of the reported ambiguous objects, by Service. The key is empty for objects that name no Service.
    blocked: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
    /// Events of each Service, by reason. A taken Event stays, so that its message is not emitted again.
    service_messages: BTreeMap<Box<str>, BTreeMap<Reason, ServiceMessage>>,
    /// The last planned step of each Service.
    last_steps: BTreeMap<Box<str>, LastStep>,
    /// Writes for each Service that NSX may not have realized.
    rollouts: BTreeMap<Box<str>, Rollout>,
    /// Deleted virtual servers of each Service that NSX may still realize.
    teardowns: BTreeMap<Box<str>, PendingTeardown>,
    removal: Option<removal::Removal>,
    realized_lb_services: BTreeSet<Box<str>>,
}

/// Claims of a call in flight, against other calls of this process. They end with the call.
#[derive(Default)]
struct CallClaims {
    /// The demand of the load balancers that the call creates.
    demand: Option<Usage>,
    /// The addresses that the call reserves because the Service requests or reports them.
    addresses: Vec<IpAddr>,
}

/// Usage of the load balancer service, as far as a call knows it.
pub enum LbServiceUsage {
    /// There is no load balancer service yet.
    NoLbService,
    /// The load balancer service exists, and its usage is unreadable.
    Unreadable,
    /// The usage that NSX has reported.
    Reported(Usage),
}

struct ServiceMessage {
    message: String,
    /// Whether the controller has taken the message.
    is_reported: bool,
}

/// Returns the error of a sync that needs a list which failed with this error.
fn not_listed(error: &Error) -> Error {
    Error::Failed { reason: error.reason(), message: chain(error), after: error.retry_after() }
}

/// Guard that excludes other syncs and deletions of the Service in this process. Updates of Nodes do not take it.
pub struct ServiceInFlight<'a> {
    cache: &'a ResourceCache,
    service: Box<str>,
}

impl Drop for ServiceInFlight<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.state.lock();
        state.services_in_flight.remove(&self.service);
        if state.services_in_flight.is_empty() && state.patient_until.is_some() {
            self.cache.wake.notify_one();
        }
    }
}

impl CacheState {
    /// Clears the state, except operations in flight.
    fn reset(&mut self, permit: Option<LeaderToken>) {
        let mut leads = self.leads.clone();
        leads.has_changed();
        *self = Self {
            leads,
            permit,
            epoch: self.epoch + 1,
            last_attempt: self.last_attempt,
            services_in_flight: std::mem::take(&mut self.services_in_flight),
            ..Self::default()
        };
    }

    fn demands(&self) -> BTreeMap<Box<str>, Usage> {
        let calls = self.services_in_flight.iter();
        calls.filter_map(|(service, claims)| Some((service.clone(), claims.demand.clone()?))).collect()
    }

    fn is_over(&self) -> bool {
        self.permit.as_ref().is_some_and(|permit| permit.check().is_err())
    }

    /// Whether the term of the state has ended. Without a permit: whether leadership has changed since the last reset.
    fn is_outdated(&mut self) -> bool {
        match &self.permit {
            Some(permit) => permit.check().is_err(),
            None => self.leads.has_changed(),
        }
    }

    fn touch(&mut self, path: &str) {
        if let Some(touched) = &mut self.touched_paths {
            touched.insert(path.into());
        }
    }
}

impl ResourceCache {
    pub fn new(leads: AnyLeader) -> Self {
        let state = Mutex::new(CacheState { leads, ..CacheState::default() });
        let (events, relist_counter) = (broadcast::Sender::new(BACKLOG), watch::Sender::new(0));
        Self { state, wake: Notify::new(), events, relist_counter }
    }

    /// Starts a call of this term, and clears the state of another term.
    pub fn begin(&self, permit: &LeaderToken) {
        let mut state = self.state.lock();
        if state.permit.as_ref().is_some_and(|known| known.check().is_ok()) {
            return;
        }
        // State that was read without a permit may belong to an earlier term.
        self.reset(&mut state, Some(permit.clone()));
        state.term_began = Some(Instant::now());
        // Wakes the relist loop, which then waits for the end of this term.
        self.wake.notify_one();
    }

    /// Starts a read-only call, and clears the state of a term that has ended.
    pub fn begin_read(&self) {
        let mut state = self.state.lock();
        if state.is_outdated() {
            self.reset(&mut state, None);
        }
    }

    /// Requires that the cache is fresh enough. If not, requests a relist and requeues the Service after the relist.
    ///
    /// # Errors
    /// [`Error::Pending`], or the error of the last relist (for `AllIpPoolsListedAfter` also: with all IP pools).
    pub fn require_fresh(&self, service: &str, need: RequiredFreshness) -> Result<(), Error> {
        let mut state = self.state.lock();
        let is_after = |time: Option<Instant>, moment| time.is_some_and(|time| time > moment);
        // Whether the cache is fresh enough, and whether the running relist, if any, makes it fresh enough.
        let (is_met, is_next_enough) = match need {
            RequiredFreshness::AnyList => (state.relist_count > 0, true),
            RequiredFreshness::TwoLists => (state.relist_count > 1, state.relist_count > 0),
            RequiredFreshness::ListedAfter(moment) => {
                (is_after(state.last_relist_start, moment), is_after(state.last_attempt, moment))
            }
            RequiredFreshness::AllIpPoolsListedAfter(moment) => (is_after(state.ip_pools_relist_start, moment), false),
        };
        if is_met {
            return Ok(());
        }
        if matches!(need, RequiredFreshness::AllIpPoolsListedAfter(_)) {
            if let Some((failure, _)) = state.ip_pools_failure.as_ref().filter(|(_, again)| Instant::now() < *again) {
                return Err(not_listed(failure));
            }
            state.are_all_ip_pools_due = true;
        }
        state.waiting.insert(service.into());
        if state.touched_paths.is_none() || !is_next_enough {
            match need {
                RequiredFreshness::ListedAfter(_) => drop(state.patient_until.get_or_insert(Instant::now() + PATIENCE)),
                _ => state.is_relist_requested = true,
            }
            self.wake.notify_one();
        }
        match &state.failure {
            Some((failure, _)) => Err(not_listed(failure)),
            None => {
                let message = "the objects of load balancers in NSX are being listed".to_owned();
                Err(Error::Pending { message, after: MAX_RELIST_DELAY })
            }
        }
    }

    /// Returns the objects whose tags name this Service.
    pub fn of_service(&self, service: &str) -> ServiceResources {
        self.state.lock().index.of_service(service)
    }

    /// As [`ResourceIndex::lb_service`].
    pub fn lb_service(&self, selection: Selection<'_>, uid: Option<&str>) -> Result<Option<Resource>, String> {
        self.state.lock().index.lb_service(selection, uid).map(Option::<&Resource>::cloned)
    }

    /// Reads the index of all objects, with the state locked.
    pub fn read<T>(&self, read: impl FnOnce(&ResourceIndex) -> T) -> T {
        read(&self.state.lock().index)
    }

    pub fn names(&self) -> ScopeNames {
        self.state.lock().names.clone()
    }

    /// Records the state of an object that a call has observed.
    pub fn record(&self, change: &ObjectChange, layout: &ClusterLayout) {
        let mut state = self.state.lock();
        match change {
            ObjectChange::Present(kind, object) => {
                state.touch(object.path());
                state.index.record(*kind, object, layout);
            }
            ObjectChange::Gone(path) => {
                state.touch(path);
                // The deletion of an allocation without a known address puts no address into quarantine here.
                if let Some((service, address)) = state.index.address_of(path) {
                    state.quarantine.enter(address, &service, Instant::now().into_std());
                }
                state.realized_lb_services.remove(path.as_str());
                state.index.remove(path);
            }
            ObjectChange::Referenced(path) => {
                if state.index.has_lb_service(path) {
                    state.record_removal_refused(Instant::now());
                    self.wake.notify_one();
                }
            }
            ObjectChange::Reserved { path, address } => {
                state.touch(path);
                state.index.set_address(path, *address);
            }
        }
    }

    /// Records and returns the current time as the time of the last response to a write for this Service. Also called
    /// for an abandoned write, and for a deletion without a response.
    pub fn answered(&self, service: &str) -> Instant {
        let now = Instant::now();
        self.state.lock().answered_at.insert(service.into(), now);
        now
    }

    /// Starts or continues the deletion of this Service. Only a list that starts after the first call of this function
    /// for the Service can confirm the deletion, because another process may have changed objects of the Service until
    /// then.
    pub fn begin_deletion(&self, service: &str) {
        let mut state = self.state.lock();
        if !state.deleted.contains_key(service) {
            state.deleted.insert(service.into(), Vec::new());
            state.answered_at.insert(service.into(), Instant::now());
        }
    }

    /// Records an address that this process has released during the deletion of this Service. If the address is
    /// unknown, all reported addresses enter the quarantine.
    pub fn record_release(&self, service: &str, address: Option<IpAddr>, reported: &[IpAddr]) {
        let mut state = self.state.lock();
        state.deleted.entry(service.into()).or_default().push(address);
        for one in reported.iter().filter(|_| address.is_none()) {
            state.quarantine.enter(*one, service, Instant::now().into_std());
        }
    }

    /// Returns the addresses that were released during the deletion of this Service; `None` for an unknown address.
    pub fn released(&self, service: &str) -> Vec<Option<IpAddr>> {
        self.state.lock().deleted.get(service).cloned().unwrap_or_default()
    }

    /// Returns the only namespace that may request this recently released address; `None` if this Service may.
    pub fn reserved_for(&self, service: &str, address: IpAddr) -> Option<Box<str>> {
        self.state.lock().quarantine.closed_to(service, address, Instant::now().into_std()).map(Into::into)
    }

    /// Records that the Service is needed, so that a later deletion starts over.
    pub fn is_needed(&self, service: &str) {
        self.state.lock().deleted.remove(service);
    }

    /// Returns the cached suitability of a configured object. `Missing` and `NoEdgeCluster` expire after one minute.
    pub fn configured(&self, object: &ConfiguredObject) -> Option<Suitability> {
        let (suitability, at) = self.state.lock().configured.get(object).copied()?;
        let may_change = matches!(suitability, Suitability::Missing | Suitability::NoEdgeCluster);
        (!may_change || at.elapsed() < RECENT).then_some(suitability)
    }

    pub fn record_configured(&self, object: &ConfiguredObject, suitability: Suitability) {
        self.state.lock().configured.insert(object.clone(), (suitability, Instant::now()));
    }

    /// Returns the time of the last response to a write for this Service, or of the start of its deletion.
    pub fn last_answer(&self, service: &str) -> Option<Instant> {
        self.state.lock().answered_at.get(service).copied()
    }

    /// Records that the load balancers of this Service are complete, with their families.
    pub fn record_complete(&self, service: &str, families: Vec<IpFamily>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.complete_families.insert(service.into(), families);
        state.named_ip_pools.remove(service);
        // Keeps the teardowns of deletions in progress and of unpurged objects, because their time limits continue.
        let CacheState { teardowns, deleted, .. } = &mut *state;
        teardowns.retain(|one, teardown| deleted.contains_key(one) || teardown.until_purge(now.into_std()).is_some());
    }

    /// Whether the load balancers of this Service were complete in this term.
    pub fn was_complete(&self, service: &str) -> bool {
        self.state.lock().complete_families.contains_key(service)
    }

    /// Returns the families of the load balancers of this Service; empty until these are complete in this term.
    pub fn families(&self, service: &str) -> Vec<IpFamily> {
        self.state.lock().complete_families.get(service).cloned().unwrap_or_default()
    }

    /// Clears the state of a Service that has no objects left.
    pub fn forget(&self, service: &str) {
        let mut state = self.state.lock();
        state.complete_families.remove(service);
        state.answered_at.remove(service);
        state.deleted.remove(service);
        state.named_ip_pools.remove(service);
        state.rollouts.remove(service);
        state.teardowns.remove(service);
        state.waiting.remove(service);
        state.service_messages.remove(service);
        state.last_steps.remove(service);
    }

    pub fn request_resync_of(&self, service: &str) {
        self.request_resync([&service.into()]);
    }

    /// Whether exactly these ambiguous objects of this Service were reported.
    pub fn are_reported(&self, service: &str, ambiguous: &ServiceResources) -> bool {
        let paths: BTreeSet<Box<str>> = ambiguous.paths().map(Into::into).collect();
        self.state.lock().blocked.get(service) == Some(&paths)
    }

    /// Updates the ambiguous objects of this Service. Reports each object once.
    pub fn report_ambiguous(&self, service: &str, ambiguous: &ServiceResources) {
        self.report(service, ambiguous.paths().map(Into::into).collect());
    }

    /// Updates the ambiguous objects that have the name of this cluster but no Service. Reports each object once.
    pub fn report_without_service(&self, cluster_uid: Option<&str>) {
        let paths = self.state.lock().index.without_service(cluster_uid);
        self.report("", paths);
    }

    /// Logs new ambiguous objects. `service` is empty for objects that name no Service.
    fn report(&self, service: &str, paths: BTreeSet<Box<str>>) {
        let mut state = self.state.lock();
        let before = match paths.is_empty() {
            true => state.blocked.remove(service).unwrap_or_default(),
            false => state.blocked.insert(service.into(), paths.clone()).unwrap_or_default(),
        };
        drop(state);
        let service = (!service.is_empty()).then_some(service);
        for path in paths.difference(&before) {
            warn!(
                service,
                "{path} is neither changed nor deleted: its tags have the name of this cluster, but it may belong to another \
                 cluster of the same name. If no cluster uses it, delete it in NSX; to keep it, see \
                 docs/nsx/operate.md#held-objects"
            );
        }
    }

    /// Sets the Event of this Service for a lasting state; `None` clears the Event. Each message is emitted once.
    pub fn set_event(&self, service: &str, reason: Reason, message: Option<String>) {
        let mut state = self.state.lock();
        let Some(message) = message else {
            if let Some(of_service) = state.service_messages.get_mut(service) {
                of_service.remove(&reason);
            }
            return;
        };
        let of_service = state.service_messages.entry(service.into()).or_default();
        if of_service.get(&reason).is_none_or(|known| known.message != message) {
            of_service.insert(reason, ServiceMessage { message, is_reported: false });
        }
    }

    /// Sets an Event of this Service for a single occurrence. Each occurrence is emitted.
    pub fn remark_event(&self, service: &str, reason: Reason, message: String) {
        let mut state = self.state.lock();
        let of_service = state.service_messages.entry(service.into()).or_default();
        of_service.insert(reason, ServiceMessage { message, is_reported: false });
    }

    /// Takes a pending Event of this Service.
    pub fn take_message(&self, service: &str) -> Option<(Reason, String)> {
        let mut state = self.state.lock();
        let mut of_service = state.service_messages.get_mut(service)?.iter_mut();
        let (reason, remark) = of_service.find(|(_, remark)| !remark.is_reported)?;
        remark.is_reported = true;
        Some((*reason, remark.message.clone()))
    }

    /// Returns the current messages of all Events of this Service, taken or not.
    pub fn messages(&self, service: &str) -> Vec<(Reason, String)> {
        let state = self.state.lock();
        let of_service = state.service_messages.get(service).into_iter().flatten();
        of_service.map(|(reason, remark)| (*reason, remark.message.clone())).collect()
    }

    /// Returns the numbers of cached and of reported ambiguous objects; `None` without a list of the current term.
    pub fn counts(&self) -> Option<(usize, usize)> {
        let state = self.state.lock();
        let ambiguous = state.blocked.values().map(BTreeSet::len).sum();
        (state.relist_count > 0 && !state.is_over()).then(|| (state.index.count(), ambiguous))
    }

    /// Returns the number of cached objects that name this cluster and have the UID of another cluster.
    pub fn count_of_other_clusters(&self, cluster_uid: Option<&str>) -> usize {
        self.state.lock().index.count_of_other_clusters(cluster_uid)
    }

    /// Claims the Service for one call. Fails with [`Error::Pending`] while another call handles the Service.
    pub fn lock(&self, service: &str) -> Result<ServiceInFlight<'_>, Error> {
        match self.state.lock().services_in_flight.entry(service.into()) {
            Entry::Vacant(entry) => {
                entry.insert(CallClaims::default());
                Ok(ServiceInFlight { cache: self, service: service.into() })
            }
            Entry::Occupied(_) => {
                let message = "the remaining objects of a Service of this name are being deleted".to_owned();
                Err(Error::Pending { message, after: Duration::from_secs(1) })
            }
        }
    }

    /// Claims an address for the call in flight of this Service. Returns true if the claim is new, and another Service
    /// with a claim as the error.
    pub fn claim_address(&self, service: &str, address: IpAddr) -> Result<bool, Box<str>> {
        let mut state = self.state.lock();
        for (other, claims) in &state.services_in_flight {
            if **other != *service && claims.addresses.contains(&address) {
                return Err(other.clone());
            }
        }
        let Some(claims) = state.services_in_flight.get_mut(service) else { return Ok(false) };
        let is_new = !claims.addresses.contains(&address);
        if is_new {
            claims.addresses.push(address);
        }
        Ok(is_new)
    }

    /// Ends the claim of an address before the call ends.
    pub fn unclaim_address(&self, service: &str, address: IpAddr) {
        if let Some(claims) = self.state.lock().services_in_flight.get_mut(service) {
            claims.addresses.retain(|one| *one != address);
        }
    }

    /// Returns the demands that calls in flight have claimed, by Service.
    pub fn demands(&self) -> BTreeMap<Box<str>, Usage> {
        self.state.lock().demands()
    }

    /// Claims the demand of one load balancer for the call in flight of this Service. Returns false while the calls of
    /// other Services may need the capacity. `before` has the demands before the read of `usage`, because a call that
    /// ended meanwhile may have created objects that the usage lacks. While there is no load balancer service, one call
    /// creates at a time. If the usage is unreadable, NSX refuses what does not fit.
    pub fn claim_capacity(
        &self,
        service: &str,
        demand: Usage,
        usage: LbServiceUsage,
        before: BTreeMap<Box<str>, Usage>,
    ) -> bool {
        let mut state = self.state.lock();
        let mut others = before;
        others.extend(state.demands());
        others.remove(service);
        let is_free = match usage {
            LbServiceUsage::Reported(mut usage) => {
                others.values().for_each(|other| usage.add(other));
                usage.check(&demand).is_ok()
            }
            LbServiceUsage::NoLbService => others.is_empty(),
            LbServiceUsage::Unreadable => true,
        };
        if is_free && let Some(claims) = state.services_in_flight.get_mut(service) {
            claims.demand.get_or_insert_default().add(&demand);
        }
        is_free
    }

    pub fn request_relist(&self) {
        self.state.lock().is_relist_requested = true;
        self.wake.notify_one();
    }

    /// Requests a relist after NSX has refused a change: a required object may be missing, or an object that the last
    /// list missed may conflict. At most one relist per minute starts for this reason.
    pub fn request_relist_after_refusal(&self) {
        let mut state = self.state.lock();
        let (now, before) = (Instant::now(), state.read_after_refusal);
        let due = before.map_or(now, |before| now.max(before + BETWEEN_REFUSALS));
        state.refusal_due.get_or_insert(due);
        self.wake.notify_one();
    }

    pub fn request_full_relist(&self) {
        self.state.lock().is_full_due = true;
        self.request_relist();
    }

    /// Returns the list error of an unlistable IP pool for which `is_one` returns true, if any.
    pub fn unlistable_ip_pool_error(&self, is_one: impl Fn(&str) -> bool) -> Option<Error> {
        let state = self.state.lock();
        state.unlistable_ip_pools.iter().find(|(pool, _)| is_one(pool)).map(|(_, failure)| not_listed(failure))
    }

    /// Records the IP pools named by objects of this Service, before the objects are deleted. Returns all recorded
    /// pools.
    pub fn record_ip_pools<'a>(&self, service: &str, named: impl Iterator<Item = &'a str>) -> BTreeSet<Box<str>> {
        let mut state = self.state.lock();
        // Without a record, a deletion waits until no IP pool is unlistable.
        if state.named_ip_pools.len() >= MAX_SERVICES && !state.named_ip_pools.contains_key(service) {
            state.named_ip_pools.clear();
        }
        let pools = state.named_ip_pools.entry(service.into()).or_default();
        pools.extend(named.map(Into::into));
        pools.clone()
    }

    /// Returns a counter that changes after each completed relist.
    pub fn relist_counter(&self) -> watch::Receiver<u64> {
        self.relist_counter.subscribe()
    }

    /// Returns the permit of the term, the start of the last completed relist, and a number that is unique to the term.
    /// Returns `None` without a valid permit or a completed relist.
    pub fn term(&self) -> Option<(LeaderToken, Instant, u64)> {
        let state = self.state.lock();
        let permit = state.permit.clone().filter(|permit| permit.check().is_ok())?;
        Some((permit, state.last_relist_start?, state.epoch))
    }

    /// Returns the state of the lists. After the end of a term, as before the first list.
    pub fn list_status(&self) -> ListStatus {
        let state = self.state.lock();
        if state.is_over() {
            return ListStatus::default();
        }
        ListStatus {
            last: state.last_relist_start.filter(|_| state.relist_count > 0),
            failure: state.failure.as_ref().map(|(error, _)| chain(error)),
        }
    }

    /// Whether a sync or deletion of this Service waits for a list, and whether its call is in flight.
    pub fn is_waiting(&self, service: &str) -> (bool, bool) {
        let state = self.state.lock();
        (state.waiting.contains(service), state.services_in_flight.contains_key(service))
    }

    /// Returns the objects of Services that are not in the informer cache and have no call in flight. Also removes
    /// Services without objects from the reported ambiguous objects.
    pub fn not_here(&self, is_here: &dyn Fn(&str) -> bool) -> Vec<(Box<str>, ServiceResources)> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let named = state.index.services();
        state.blocked.retain(|service, _| service.is_empty() || named.contains(&**service));
        let is_open = |service: &&str| !is_here(service) && !state.services_in_flight.contains_key(*service);
        let open = named.into_iter().filter(is_open);
        open.map(|service| (service.into(), state.index.of_service(service))).collect()
    }

    /// Returns the Services with objects of this cluster that are not in the informer cache and have no call in flight,
    /// and the number of all Services with objects of this cluster. Skips a Service if all its objects are allocations
    /// with addresses that virtual servers of other owners use.
    pub fn suspects(&self, uid: &str, is_here: &dyn Fn(&str) -> bool) -> (BTreeSet<Box<str>>, usize) {
        let state = self.state.lock();
        let with_objects = state.index.services_of(uid);
        let is_open = |service: &&str| {
            !is_here(service)
                && !state.services_in_flight.contains_key(*service)
                && !state.index.has_only_addresses_of_others(service)
        };
        let suspects = with_objects.iter().copied().filter(is_open).map(Into::into).collect();
        (suspects, with_objects.len())
    }

    /// Returns a stream of the Services to sync again.
    pub fn subscribe(&self) -> BoxStream<'static, ServiceEvent> {
        let events = self.events.subscribe();
        let next = async |mut events: broadcast::Receiver<ServiceEvent>| match events.recv().await {
            Ok(event) => Some((event, events)),
            Err(broadcast::error::RecvError::Lagged(_)) => Some((ServiceEvent::All, events)),
            Err(broadcast::error::RecvError::Closed) => None,
        };
        futures::stream::unfold(events, next).boxed()
    }

    /// Clears the cache, and requeues the Services that wait for a relist.
    fn reset(&self, state: &mut CacheState, permit: Option<LeaderToken>) {
        self.request_resync(&std::mem::take(&mut state.waiting));
        state.reset(permit);
    }

    fn request_resync<'a>(&self, services: impl IntoIterator<Item = &'a Box<str>>) {
        for service in services {
            if let Some((namespace, name)) = service.split_once('/') {
                let (namespace, name) = (namespace.to_owned(), name.to_owned());
                // Without a subscriber, no controller waits.
                drop(self.events.send(ServiceEvent::Service { namespace, name }));
            }
        }
    }
}

#[cfg(test)]
mod tests;
