//! What NSX has of load balancers, for all Services: readings of everything, with what this program has read and written
//! since.
//!
//! A reading begins when a sync asks for one, at most every 10 s; one that is to show what writes have left waits up to 15 s for
//! the calls about other Services. Half an hour after the first reading of a term, and after each such one, a reading includes
//! all groups and persistence profiles; nothing else is read in between. No sync waits for a reading: it ends with
//! [`Error::Pending`], and its Service is announced when the reading is there. Everything is forgotten when the lead ends.
//!
//! A pool of addresses that this account may not list delays no other Service: the objects known in it stay, and it is
//! *unread* ([`ResourceCache::unread`]).

mod quarantine;
mod realization;
mod relists;
mod removal;
mod single_flight;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::Instant;
use tracing::warn;

use self::quarantine::Quarantine;
use super::RECENT;
use super::backend::{ConfiguredObject, Full, ObjectChange, ScopeNames, Suitability, Usage};
use super::layout::ClusterLayout;
use super::objects::{LbService, ServiceResources, VirtualServer};
use super::realization::{PendingTeardown, Rollout};
use super::resource_index::relist::{Before, MergeResult, ObjectListing, merge};
use super::resource_index::{ResourceIndex, Selection, Unusable};
use crate::base::error_chain::chain;
use crate::cloud::{Error, LeaderToken, Reason, ServiceEvent};
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::nsx::AnyLeader;

/// A sync that waits for a reading is repeated after this time at the latest.
const AT_MOST: Duration = Duration::from_secs(60);
/// How long a reading that shows what writes have left waits at most for the calls of other Services.
const PATIENCE: Duration = Duration::from_secs(15);
/// The time between two readings that follow from refused changes.
const BETWEEN_REFUSALS: Duration = Duration::from_secs(60);
/// How long it is known how full the load balancer service is.
const USAGE_LIFE: Duration = Duration::from_secs(10);
/// Of so many Services is known at most which pools they had.
const NOTED: usize = 4096;
/// Events for a subscriber that is behind, before it gets one for all.
const BACKLOG: usize = 4096;

/// Which reading a decision needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredFreshness {
    /// Any of this term.
    AnyList,
    /// A second one of this term: one may miss an object.
    TwoLists,
    /// One that began after this moment.
    ListedAfter(Instant),
    /// One that began after this moment, with the allocations of all pools of addresses, also of those that nothing names.
    AllPoolsListedAfter(Instant),
}

/// See the file's header.
pub struct ResourceCache {
    state: Mutex<CacheState>,
    wake: Notify,
    events: broadcast::Sender<ServiceEvent>,
    /// How many readings were completed, of all terms.
    completed: watch::Sender<u64>,
    /// The reading of how full the load balancer service is.
    pub usage_reading: single_flight::SingleFlight,
    /// The creation of the load balancer service.
    pub lb_service_creation: single_flight::SingleFlight,
    /// A look at whether NSX has what the configuration names.
    pub configured_reading: single_flight::SingleFlight,
}

/// Never locked over an await.
#[derive(Default)]
struct CacheState {
    /// Whether this process leads.
    leads: AnyLeader,
    /// The term that this belongs to; none for what was read without a permit.
    permit: Option<LeaderToken>,
    /// Differs after each reset.
    epoch: u64,
    contents: ResourceIndex,
    names: ScopeNames,
    /// When the first call of this term began.
    term_began: Option<Instant>,
    /// How many readings were completed.
    readings: u64,
    /// When the last completed one began.
    begun: Option<Instant>,
    /// When the last one began.
    attempted: Option<Instant>,
    is_asked: bool,
    /// When the next reading begins because NSX has refused a change, and when the last such one began.
    refusal_due: Option<Instant>,
    read_after_refusal: Option<Instant>,
    /// Until when a reading that was asked for waits for the calls of other Services: afterwards they would ask for another one.
    patient_until: Option<Instant>,
    /// When the next reading with groups and persistence profiles begins; none before the first reading.
    next_full: Option<Instant>,
    /// Whether the next reading includes groups and persistence profiles.
    is_full_due: bool,
    /// Whether the next reading includes all pools of addresses.
    are_pools_due: bool,
    /// When the last reading began that included them, and why the last one could not, with when it is tried again.
    pools_begun: Option<Instant>,
    pools_failure: Option<(RelistFailure, Instant)>,
    /// Why groups and persistence profiles could not be listed.
    references_failure: Option<Reason>,
    /// The pools whose allocations the last reading could not list, each with the reason.
    unread: BTreeMap<Box<str>, RelistFailure>,
    /// The pools that objects named which are or were being deleted, by Service, while one is unread.
    pools: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
    /// Services, by namespace and name, whose syncs wait for a reading.
    waiting: BTreeSet<Box<str>>,
    /// Why the last reading failed, and how many failed in a row.
    failure: Option<RelistFailure>,
    /// The paths of what was read and written since the reading under way began.
    touched: Option<BTreeSet<Box<str>>>,
    /// The paths of what the last reading missed.
    missed: BTreeSet<Box<str>>,
    /// When the last write about each Service was answered.
    answered: BTreeMap<Box<str>, Instant>,
    /// Services whose load balancers were complete in this term, with their families.
    complete: BTreeMap<Box<str>, Vec<IpFamily>>,
    /// Services that a call is about now.
    busy: BTreeSet<Box<str>>,
    /// How full the load balancer service is.
    room: Option<Room>,
    /// What the configuration names, and when that was looked up.
    configured: BTreeMap<ConfiguredObject, (Suitability, Instant)>,
    /// Services that are being deleted, and not needed since; and which of their addresses this process has released, with none
    /// for one that was not known.
    deleted: BTreeMap<Box<str>, Vec<Option<IpAddr>>>,
    /// The addresses that Services ask for and are reserving.
    claimed: Vec<AddressReservation>,
    /// The addresses that Services have released lately.
    quarantine: Quarantine,
    /// Services that wait until there is room on the load balancer service.
    without_room: BTreeSet<Box<str>>,
    /// The paths of held objects by Service, which were reported; those that name no Service by an empty text.
    held: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
    /// What the owners of Services have to know of their load balancers, by Service; one remark for each reason.
    remarks: BTreeMap<Box<str>, BTreeMap<Reason, Remark>>,
    /// What was written for each Service and may not be in effect.
    rollouts: BTreeMap<Box<str>, Rollout>,
    /// Virtual servers of each Service that were deleted and may still be in effect.
    teardowns: BTreeMap<Box<str>, PendingTeardown>,
    /// The deletion of the load balancer service that NSX has refused.
    removal: Option<removal::Removal>,
    /// Load balancer services that NSX has put into effect, by path.
    realized_lb_services: BTreeSet<Box<str>>,
    /// How many syncs create on the load balancer service.
    creating: usize,
    /// Whether it is being deleted.
    is_removing: bool,
}

/// What an Event is to say of a load balancer.
struct Remark {
    message: String,
    /// Whether it was given to the controller.
    is_given: bool,
}

/// The address that a Service asks for and is reserving.
struct AddressReservation {
    service: Box<str>,
    /// The id of the pool that it is of.
    pool: Box<str>,
    address: IpAddr,
}

/// How full the load balancer service is.
struct Room {
    /// When that was read.
    read: Instant,
    /// What was read, and what was taken since.
    usage: Usage,
    /// What the load balancers of Services have taken and may not have created yet; second ones by their family.
    taken: BTreeMap<(Box<str>, Option<IpFamily>), Usage>,
}

#[derive(Clone)]
struct RelistFailure {
    reason: Reason,
    message: String,
    after: Option<Duration>,
    in_a_row: u32,
}

impl RelistFailure {
    fn new(error: &Error, in_a_row: u32) -> Self {
        Self { reason: error.reason(), message: chain(error), after: error.retry_after(), in_a_row }
    }

    fn error(&self) -> Error {
        Error::Failed { reason: self.reason, message: self.message.clone(), after: self.after }
    }
}

/// While it is held, no other call of this process is about the Service.
pub struct Busy<'a> {
    inventory: &'a ResourceCache,
    service: Box<str>,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut state = self.inventory.state.lock();
        state.busy.remove(&self.service);
        if state.busy.is_empty() && state.patient_until.is_some() {
            self.inventory.wake.notify_one();
        }
    }
}

/// While it is held, no other Service reserves the address that this one asks for.
pub struct ReservationGuard<'a> {
    inventory: &'a ResourceCache,
    service: Box<str>,
}

impl Drop for ReservationGuard<'_> {
    fn drop(&mut self) {
        self.inventory.state.lock().claimed.retain(|one| one.service != self.service);
    }
}

/// While it is held, the load balancer service is not deleted by this process.
pub struct Creating<'a>(&'a ResourceCache);

impl Drop for Creating<'_> {
    fn drop(&mut self) {
        self.0.state.lock().creating -= 1;
    }
}

/// While it is held, nothing is created on the load balancer service by this process.
pub struct Removing<'a>(&'a ResourceCache);

impl Drop for Removing<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_removing = false;
    }
}

impl CacheState {
    /// Forgets everything but what is under way.
    fn reset(&mut self, permit: Option<LeaderToken>) {
        let (epoch, creating, is_removing) = (self.epoch + 1, self.creating, self.is_removing);
        let (attempted, busy) = (self.attempted, std::mem::take(&mut self.busy));
        let mut leads = self.leads.clone();
        leads.has_changed();
        *self = Self { leads, permit, epoch, creating, is_removing, attempted, busy, ..Self::default() };
    }

    fn is_over(&self) -> bool {
        self.permit.as_ref().is_some_and(|permit| permit.check().is_err())
    }

    /// Whether the state belongs to a term that has ended or, without a permit, leadership has changed since the last reset.
    fn is_outdated(&mut self) -> bool {
        match &self.permit {
            Some(permit) => permit.check().is_err(),
            None => self.leads.has_changed(),
        }
    }

    fn touch(&mut self, path: &str) {
        if let Some(touched) = &mut self.touched {
            touched.insert(path.into());
        }
    }
}

impl ResourceCache {
    /// Nothing is known.
    pub fn new(leads: AnyLeader) -> Self {
        let state = Mutex::new(CacheState { leads, ..CacheState::default() });
        let (events, completed) = (broadcast::Sender::new(BACKLOG), watch::Sender::new(0));
        let single = single_flight::SingleFlight::default;
        let (usage_reading, lb_service_creation, configured_reading) = (single(), single(), single());
        let wake = Notify::new();
        Self { state, wake, events, completed, usage_reading, lb_service_creation, configured_reading }
    }

    /// Begins a call of this term. What was known in another one is forgotten.
    pub fn begin(&self, permit: &LeaderToken) {
        let mut state = self.state.lock();
        if state.permit.as_ref().is_some_and(|known| known.check().is_ok()) {
            return;
        }
        // What is known without a permit may be of an earlier term.
        self.reset(&mut state, Some(permit.clone()));
        state.term_began = Some(Instant::now());
        // The readings end with this term from now on.
        self.wake.notify_one();
    }

    /// Begins a call that only reads.
    pub fn begin_read(&self) {
        let mut state = self.state.lock();
        if state.is_outdated() {
            self.reset(&mut state, None);
        }
    }

    /// Whether there is such a reading; if not, one is asked for, and the Service is announced when it is there.
    ///
    /// # Errors
    /// [`Error::Pending`], or why the last reading failed.
    pub fn check(&self, service: &str, need: RequiredFreshness) -> Result<(), Error> {
        let mut state = self.state.lock();
        let is_met = match need {
            RequiredFreshness::AnyList => state.readings > 0,
            RequiredFreshness::TwoLists => state.readings > 1,
            RequiredFreshness::ListedAfter(moment) => state.begun.is_some_and(|begun| begun > moment),
            RequiredFreshness::AllPoolsListedAfter(moment) => state.pools_begun.is_some_and(|begun| begun > moment),
        };
        if is_met {
            return Ok(());
        }
        let pools_failure =
            state.pools_failure.as_ref().filter(|_| matches!(need, RequiredFreshness::AllPoolsListedAfter(_)));
        if let Some((failure, _)) = pools_failure.filter(|(_, again)| Instant::now() < *again) {
            return Err(failure.error());
        }
        state.waiting.insert(service.into());
        let will_meet = state.touched.is_some()
            && match need {
                RequiredFreshness::AnyList => true,
                RequiredFreshness::TwoLists => state.readings > 0,
                RequiredFreshness::ListedAfter(moment) => state.attempted.is_some_and(|began| began > moment),
                RequiredFreshness::AllPoolsListedAfter(_) => false,
            };
        state.are_pools_due |= matches!(need, RequiredFreshness::AllPoolsListedAfter(_));
        if !will_meet {
            match need {
                RequiredFreshness::ListedAfter(_) => drop(state.patient_until.get_or_insert(Instant::now() + PATIENCE)),
                RequiredFreshness::AnyList
                | RequiredFreshness::TwoLists
                | RequiredFreshness::AllPoolsListedAfter(_) => state.is_asked = true,
            }
            self.wake.notify_one();
        }
        match &state.failure {
            Some(failure) => Err(failure.error()),
            None => {
                let message = "the objects of load balancers in NSX are being listed".to_owned();
                Err(Error::Pending { message, after: AT_MOST })
            }
        }
    }

    /// The objects whose tags name this Service.
    pub fn of_service(&self, service: &str) -> ServiceResources {
        self.state.lock().contents.of_service(service)
    }

    /// The load balancer service in use; none if it has to be created.
    ///
    /// # Errors
    /// The configured one cannot be used.
    pub fn lb_service(&self, selection: Selection<'_>, uid: Option<&str>) -> Result<Option<LbService>, Unusable> {
        self.state.lock().contents.lb_service(selection, uid).map(Option::<&LbService>::cloned)
    }

    /// Whether there is a load balancer service of this path.
    pub fn has_lb_service(&self, path: &str) -> bool {
        self.state.lock().contents.has_lb_service(path)
    }

    /// How many virtual servers run on the load balancer service of this path.
    pub fn servers_on(&self, path: &str) -> usize {
        self.state.lock().contents.servers_on(path)
    }

    /// What has the names of the configuration.
    pub fn names(&self) -> ScopeNames {
        self.state.lock().names.clone()
    }

    /// Enters what a call has shown.
    pub fn record(&self, change: &ObjectChange, layout: &ClusterLayout) {
        let mut state = self.state.lock();
        match change {
            ObjectChange::Entered(kind, object) => {
                state.touch(object.path());
                state.contents.record(*kind, object, layout);
            }
            ObjectChange::Gone(path) => {
                state.touch(path);
                // One that never got an address releases none.
                if let Some((service, address)) = state.contents.address_of(path) {
                    state.quarantine.enter(address, &service, Instant::now().into_std());
                }
                if !path.contains("/ip-allocations/") {
                    // There may be more room than was read.
                    state.room = None;
                    self.announce(&std::mem::take(&mut state.without_room));
                    state.realized_lb_services.remove(path.as_str());
                }
                state.contents.remove(path);
            }
            ObjectChange::Referenced(path) => {
                if state.contents.has_lb_service(path) {
                    state.note_removal_refused(Instant::now());
                    self.wake.notify_one();
                }
            }
            ObjectChange::Reserved { path, address } => {
                state.touch(path);
                state.contents.set_address(path, *address);
            }
        }
    }

    /// A write about this Service was answered, or given up; or nothing of it was there. This moment.
    pub fn answered(&self, service: &str) -> Instant {
        let now = Instant::now();
        self.state.lock().answered.insert(service.into(), now);
        now
    }

    /// A deletion of this Service begins, or goes on. Its first look is no earlier than the last answer that is noted: another
    /// process may have looked after the Service since.
    pub fn begin_deletion(&self, service: &str) {
        let mut state = self.state.lock();
        if !state.deleted.contains_key(service) {
            state.deleted.insert(service.into(), Vec::new());
            state.answered.insert(service.into(), Instant::now());
        }
    }

    /// Notes that this process has released an address of this Service, whose deletion has begun. If it is not known, it is one
    /// that the Service reports.
    pub fn note_release(&self, service: &str, address: Option<IpAddr>, reported: &[IpAddr]) {
        let mut state = self.state.lock();
        state.deleted.entry(service.into()).or_default().push(address);
        for one in reported.iter().filter(|_| address.is_none()) {
            state.quarantine.enter(*one, service, Instant::now().into_std());
        }
    }

    /// What it has released since.
    pub fn released(&self, service: &str) -> Vec<Option<IpAddr>> {
        self.state.lock().deleted.get(service).cloned().unwrap_or_default()
    }

    /// Claims the address of a pool for a Service that asks for it, or says which Service has claimed it.
    pub fn claim_address(&self, service: &str, pool: &str, address: IpAddr) -> Result<ReservationGuard<'_>, Box<str>> {
        let mut state = self.state.lock();
        let claim = AddressReservation { service: service.into(), pool: pool.into(), address };
        let is_other = |one: &AddressReservation| {
            one.service != claim.service && (&one.pool, one.address) == (&claim.pool, address)
        };
        if let Some(other) = state.claimed.iter().find(|one| is_other(one)) {
            return Err(other.service.clone());
        }
        state.claimed.push(claim);
        Ok(ReservationGuard { inventory: self, service: service.into() })
    }

    /// The namespace whose Services alone may ask for this address now, because one of them has released it lately; none if
    /// this Service is of it.
    pub fn reserved_for(&self, service: &str, address: IpAddr) -> Option<Box<str>> {
        self.state.lock().quarantine.closed_to(service, address, Instant::now().into_std()).map(Into::into)
    }

    /// Another Service with a virtual server or an allocation that is known to have this address.
    pub fn user_of(&self, service: &str, address: IpAddr) -> Option<Box<str>> {
        self.state.lock().contents.user_of(service, address)
    }

    /// Another virtual server with this address than those of `own`, of this program or not.
    pub fn other_server_on(&self, address: IpAddr, own: &[VirtualServer]) -> Option<Box<str>> {
        self.state.lock().contents.other_server_on(address, own)
    }

    /// Whether there are virtual servers of others.
    pub fn has_other_servers(&self) -> bool {
        self.state.lock().contents.has_other_servers()
    }

    /// The Service is needed: a later deletion is another one.
    pub fn is_needed(&self, service: &str) {
        self.state.lock().deleted.remove(service);
    }

    /// Whether load balancers can use what the configuration names, if that was looked up: in this term, or, if they cannot,
    /// lately.
    pub fn configured(&self, what: &ConfiguredObject) -> Option<Suitability> {
        let (suitability, at) = self.state.lock().configured.get(what).copied()?;
        let may_change = matches!(suitability, Suitability::Missing | Suitability::NoEdgeCluster);
        (!may_change || at.elapsed() < RECENT).then_some(suitability)
    }

    /// Notes what a lookup has shown.
    pub fn note_configured(&self, what: &ConfiguredObject, suitability: Suitability) {
        self.state.lock().configured.insert(what.clone(), (suitability, Instant::now()));
    }

    /// When the last write about this Service was answered, or its deletion began.
    pub fn last_answer(&self, service: &str) -> Option<Instant> {
        self.state.lock().answered.get(service).copied()
    }

    /// The load balancers of this Service, of these families, are complete.
    pub fn completed(&self, service: &str, families: Vec<IpFamily>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        state.complete.insert(service.into(), families);
        state.without_room.remove(service);
        state.pools.remove(service);
        // The time that a deletion may take goes on.
        let CacheState { teardowns, deleted, .. } = &mut *state;
        teardowns.retain(|one, teardown| deleted.contains_key(one) || teardown.until_purge(now.into_std()).is_some());
        // What it has taken is there.
        if let Some(room) = &mut state.room {
            room.taken.retain(|(taker, _), _| **taker != *service);
        }
    }

    /// Whether it was complete in this term.
    pub fn was_complete(&self, service: &str) -> bool {
        self.state.lock().complete.contains_key(service)
    }

    /// The families of the load balancers of this Service, if they were complete in this term.
    pub fn families(&self, service: &str) -> Vec<IpFamily> {
        self.state.lock().complete.get(service).cloned().unwrap_or_default()
    }

    /// Nothing is left of this Service.
    pub fn forget(&self, service: &str) {
        let mut state = self.state.lock();
        state.complete.remove(service);
        state.answered.remove(service);
        state.deleted.remove(service);
        state.pools.remove(service);
        state.rollouts.remove(service);
        state.teardowns.remove(service);
        state.without_room.remove(service);
        state.waiting.remove(service);
        state.remarks.remove(service);
    }

    /// Announces this Service when an object that is no address goes.
    pub fn wait_for_room(&self, service: &str) {
        self.state.lock().without_room.insert(service.into());
    }

    /// Announces this Service.
    pub fn announce_one(&self, service: &str) {
        self.announce([&service.into()]);
    }

    /// Whether these held objects of this Service, and no others, were reported.
    pub fn are_reported(&self, service: &str, held: &ServiceResources) -> bool {
        let paths: BTreeSet<Box<str>> = held.paths().map(Into::into).collect();
        self.state.lock().held.get(service) == Some(&paths)
    }

    /// The held objects of this Service as they are now; each is reported once.
    pub fn report_held(&self, service: &str, held: &ServiceResources) {
        self.report(service, held.paths().map(Into::into).collect());
    }

    /// Likewise the objects of this cluster's name that name no Service.
    pub fn report_without_service(&self, cluster_uid: Option<&str>) {
        let paths = self.state.lock().contents.without_service(cluster_uid);
        self.report("", paths);
    }

    /// `service` is empty for objects that name none.
    fn report(&self, service: &str, paths: BTreeSet<Box<str>>) {
        let mut state = self.state.lock();
        let before = match paths.is_empty() {
            true => state.held.remove(service).unwrap_or_default(),
            false => state.held.insert(service.into(), paths.clone()).unwrap_or_default(),
        };
        drop(state);
        let service = (!service.is_empty()).then_some(service);
        for path in paths.difference(&before) {
            warn!(
                service,
                "{path} is neither changed nor deleted: its tags have the name of this cluster, but it may belong to another \
                 cluster of the same name. If no cluster uses it, delete it in NSX; to keep it, see \"Held objects\" on the \
                 page of load balancers"
            );
        }
    }

    /// What holds of the load balancer of this Service now, under this reason; none if nothing does. It is given once, and again
    /// after another message or none.
    pub fn remark(&self, service: &str, reason: Reason, message: Option<String>) {
        let mut state = self.state.lock();
        let Some(message) = message else {
            if let Some(of_service) = state.remarks.get_mut(service) {
                of_service.remove(&reason);
            }
            return;
        };
        let of_service = state.remarks.entry(service.into()).or_default();
        if of_service.get(&reason).is_none_or(|known| known.message != message) {
            of_service.insert(reason, Remark { message, is_given: false });
        }
    }

    /// What has happened to the load balancer of this Service, under this reason. It is given each time.
    pub fn remark_event(&self, service: &str, reason: Reason, message: String) {
        let mut state = self.state.lock();
        state.remarks.entry(service.into()).or_default().insert(reason, Remark { message, is_given: false });
    }

    /// A remark about this Service that was not given yet.
    pub fn take_remark(&self, service: &str) -> Option<(Reason, String)> {
        let mut state = self.state.lock();
        let mut of_service = state.remarks.get_mut(service)?.iter_mut();
        let (reason, remark) = of_service.find(|(_, remark)| !remark.is_given)?;
        remark.is_given = true;
        Some((*reason, remark.message.clone()))
    }

    /// How many objects are known, and how many of them are held; nothing before the first reading of a term.
    pub fn counts(&self) -> Option<(usize, usize)> {
        let state = self.state.lock();
        let held = state.held.values().map(BTreeSet::len).sum();
        (state.readings > 0 && !state.is_over()).then(|| (state.contents.count(), held))
    }

    /// Claims the Service for one call.
    ///
    /// # Errors
    /// [`Error::Pending`] while another call is about it.
    pub fn claim(&self, service: &str) -> Result<Busy<'_>, Error> {
        if !self.state.lock().busy.insert(service.into()) {
            let message = "what is left of a Service of this name is being deleted".to_owned();
            return Err(Error::Pending { message, after: Duration::from_secs(1) });
        }
        Ok(Busy { inventory: self, service: service.into() })
    }

    /// Asks for a reading.
    pub fn ask(&self) {
        self.state.lock().is_asked = true;
        self.wake.notify_one();
    }

    /// Asks for a reading because NSX has refused a change: what the change rests on may be gone, or an object that was not seen
    /// may be in the way. There is one such reading a minute at most.
    pub fn ask_after_refusal(&self) {
        let mut state = self.state.lock();
        let (now, before) = (Instant::now(), state.read_after_refusal);
        let due = before.map_or(now, |before| now.max(before + BETWEEN_REFUSALS));
        state.refusal_due.get_or_insert(due);
        self.wake.notify_one();
    }

    /// Asks for a reading with groups and persistence profiles.
    pub fn ask_for_all(&self) {
        self.state.lock().is_full_due = true;
        self.ask();
    }

    /// Why one of these pools of addresses could not be listed; none if all of them were.
    pub fn unread(&self, is_one: impl Fn(&str) -> bool) -> Option<Error> {
        let state = self.state.lock();
        state.unread.iter().find(|(pool, _)| is_one(pool)).map(|(_, failure)| failure.error())
    }

    /// Notes the pools of addresses that objects name which are being deleted. Those that were ever noted of the Service.
    pub fn note_pools<'a>(&self, service: &str, named: impl Iterator<Item = &'a str>) -> BTreeSet<Box<str>> {
        let mut state = self.state.lock();
        // Without a note a deletion waits until all pools are read.
        if state.pools.len() >= NOTED && !state.pools.contains_key(service) {
            state.pools.clear();
        }
        let pools = state.pools.entry(service.into()).or_default();
        pools.extend(named.map(Into::into));
        pools.clone()
    }

    /// Changes after each completed reading.
    pub fn completed_readings(&self) -> watch::Receiver<u64> {
        self.completed.subscribe()
    }

    /// The permit of the last reading, when that began, and a number that each term has for itself.
    pub fn term(&self) -> Option<(LeaderToken, Instant, u64)> {
        let state = self.state.lock();
        let permit = state.permit.clone().filter(|permit| permit.check().is_ok())?;
        Some((permit, state.begun?, state.epoch))
    }

    /// The objects of Services that are not here and that no call is about. What was held of Services without objects is
    /// forgotten.
    pub fn not_here(&self, is_here: &dyn Fn(&str) -> bool) -> Vec<(Box<str>, ServiceResources)> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let named: BTreeSet<&str> = state.contents.services().collect();
        state.held.retain(|service, _| service.is_empty() || named.contains(&**service));
        let is_open = |service: &&str| !is_here(service) && !state.busy.contains(*service);
        let open = named.into_iter().filter(is_open);
        open.map(|service| (service.into(), state.contents.of_service(service))).collect()
    }

    /// Services with objects of this cluster that are not here and that no call is about; and how many Services have objects of
    /// this cluster.
    pub fn suspects(&self, uid: &str, is_here: &dyn Fn(&str) -> bool) -> (BTreeSet<Box<str>>, usize) {
        let state = self.state.lock();
        let with_objects = state.contents.services_of(uid);
        let is_open = |service: &&str| {
            !is_here(service) && !state.busy.contains(*service) && !state.contents.has_only_addresses_of_others(service)
        };
        let suspects = with_objects.iter().copied().filter(is_open).map(Into::into).collect();
        (suspects, with_objects.len())
    }

    /// Takes room on the load balancer service for the first load balancer of a Service, or for the second one of this family,
    /// beyond what it has taken before and not used. None if how full it is was not read in the last 10 s.
    pub fn take_room(&self, service: &str, second: Option<IpFamily>, needed: &Usage) -> Option<Result<(), Full>> {
        let mut state = self.state.lock();
        let Room { usage, taken, .. } = state.room.as_mut().filter(|room| room.read.elapsed() < USAGE_LIFE)?;
        let before = taken.entry((service.into(), second)).or_default();
        let more = needed.beyond(before);
        let free = usage.take(&more);
        if free.is_ok() {
            before.add(&more);
        }
        Some(free)
    }

    /// Notes how full the load balancer service is.
    pub fn note_usage(&self, usage: Usage) {
        self.state.lock().room = Some(Room { read: Instant::now(), usage, taken: BTreeMap::new() });
    }

    /// Keeps the load balancer service while something is created on it.
    ///
    /// # Errors
    /// [`Error::Pending`] while it is being deleted.
    pub fn create(&self) -> Result<Creating<'_>, Error> {
        let mut state = self.state.lock();
        if state.is_removing {
            let message = "the load balancer service is being deleted".to_owned();
            return Err(Error::Pending { message, after: Duration::from_secs(1) });
        }
        state.creating += 1;
        Ok(Creating(self))
    }

    /// Lets the load balancer service be deleted, unless something is created on it.
    pub fn remove(&self) -> Option<Removing<'_>> {
        let mut state = self.state.lock();
        let may_remove = state.creating == 0 && !state.is_removing;
        may_remove.then(|| {
            state.is_removing = true;
            Removing(self)
        })
    }

    /// Services that are to be synced again, from now on.
    pub fn subscribe(&self) -> BoxStream<'static, ServiceEvent> {
        let events = self.events.subscribe();
        let next = async |mut events: broadcast::Receiver<ServiceEvent>| match events.recv().await {
            Ok(event) => Some((event, events)),
            Err(broadcast::error::RecvError::Lagged(_)) => Some((ServiceEvent::All, events)),
            Err(broadcast::error::RecvError::Closed) => None,
        };
        futures::stream::unfold(events, next).boxed()
    }

    /// Forgets what is known. Those that wait for a reading ask again.
    fn reset(&self, state: &mut CacheState, permit: Option<LeaderToken>) {
        self.announce(&std::mem::take(&mut state.waiting));
        state.reset(permit);
    }

    fn announce<'a>(&self, services: impl IntoIterator<Item = &'a Box<str>>) {
        for service in services {
            if let Some((namespace, name)) = service.split_once('/') {
                let (namespace, name) = (namespace.to_owned(), name.to_owned());
                // Without a subscriber there is no controller that waits.
                drop(self.events.send(ServiceEvent::Service { namespace, name }));
            }
        }
    }
}

#[cfg(test)]
mod tests;
