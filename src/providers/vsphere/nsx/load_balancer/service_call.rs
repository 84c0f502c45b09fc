//! One call of the controller for one Service: observes the objects and, once the Service is claimed, performs single
//! steps.

mod addresses;
mod deletion;
mod pools;
mod preview;
mod realization;
mod steps;

pub(super) use deletion::delete_lb_service;
#[cfg(test)]
pub(super) use preview::planned;
pub use preview::{PlannedStep, StepKind};

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{LoadBalancerStatus, Node, Service};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::debug;

use super::backend::{ObjectChange, Request};
use super::families::FamilyLoadBalancer;
use super::layout::{ClusterLayout, ObjectKind, Owner, Port};
use super::ownership::{ClassifiedResources, ClusterContext, ObjectOwner, classify, owners};
use super::plan::{self, Action, CurrentState, DesiredLoadBalancer};
use super::resource::{LoadBalancerSpec, Resource, ServiceResources};
use super::resource_cache::{LastStep, RequiredFreshness, ResourceCache, ServiceInFlight};
use super::resource_index::Selection;
use super::{NsxLoadBalancers, config_wrong, families, service_request, status};
use crate::base::addresses::parse_ip;
use crate::base::error_chain::chain;
use crate::clients::nsx::realization::Reservation;
use crate::cloud::{Error, LeaderToken, Reason, UsableAddresses, node, service};
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::reason;

/// Pause before the next read of an address that NSX does not return yet.
const SOON: Duration = Duration::from_secs(10);

/// Maximum number of consecutive runs of a step. Some repeats are normal while other calls create shared objects.
const MAX_REPEATS: usize = 12;

/// A call of the controller for one Service. A sync or a deletion claims the Service with [`ServiceCall::claimed`]. An
/// update of Nodes makes no claim, because it writes only the members of pools.
pub(super) struct ServiceCall<'a> {
    pub(super) provider: &'a NsxLoadBalancers,
    pub(super) service: &'a Service,
    pub(super) layout: ClusterLayout,
    /// Namespace/name of the Service.
    pub(super) key: String,
    /// The addresses that the Service reports.
    pub(super) ingress: Vec<IpAddr>,
    /// The confirmed usable addresses of all Nodes; empty if the Service reports an address, which then decides about
    /// ownership.
    nodes: BTreeSet<IpAddr>,
    /// Allocations whose address this call has read without result, by path; true if their IP pool is exhausted.
    without_address: BTreeMap<Box<str>, bool>,
    /// Paths for [`CurrentState::settled_paths`]. No task keeps this lock across an `await`.
    pub(super) settled_paths: Mutex<BTreeSet<Box<str>>>,
    /// The permit for writes, and the claim that excludes other calls; `None` for a call that only reads.
    claim: Option<(&'a LeaderToken, ServiceInFlight<'a>)>,
}

/// Failed load balancers of a Service, each by the family of the second load balancer (`None` is the first), with their
/// errors.
type FailedFamilies = Vec<(Option<IpFamily>, Error)>;

fn has_failed(failed: &FailedFamilies, secondary: Option<IpFamily>) -> bool {
    failed.iter().any(|(of, _)| *of == secondary)
}

/// The observed state for one step.
pub(super) struct CallObservation {
    pub(super) classified: ClassifiedResources,
    /// The load balancer service in use, or the message that the configured one is unusable.
    pub(super) lb_service: Result<Option<Resource>, String>,
    /// A copy of [`ServiceCall::settled_paths`] at the time of the observation.
    pub(super) settled_paths: BTreeSet<Box<str>>,
    /// Addresses of allocations of the Service that virtual servers of other owners use.
    pub(super) addresses_in_use: BTreeSet<IpAddr>,
}

/// One load balancer of the Service in one observation, with its desired state.
pub(super) struct FamilyTarget<'o> {
    pub(super) observation: &'o CallObservation,
    pub(super) balancer: FamilyLoadBalancer,
    pub(super) layout: ClusterLayout,
    pub(super) ours: ServiceResources,
    pub(super) desired: DesiredLoadBalancer,
    /// Properties of the load balancer; `None` for a deletion.
    pub(super) spec: Option<LoadBalancerSpec>,
}

impl FamilyTarget<'_> {
    pub(super) fn current(&self) -> CurrentState<'_> {
        let CallObservation { classified, lb_service, settled_paths, addresses_in_use } = self.observation;
        CurrentState {
            ours: &self.ours,
            ambiguous: &classified.ambiguous,
            lb_service: lb_service.as_ref().ok().and_then(Option::as_ref),
            layout: &self.layout,
            settled_paths,
            addresses_in_use,
        }
    }

    pub(super) fn address(&self) -> Option<IpAddr> {
        plan::address(&self.desired, &self.ours)
    }
}

/// Time limit for the start of a step: the controller allows one minute per call, and a step may take half a minute.
const STEPS_LIMIT: Duration = Duration::from_secs(30);

pub(super) struct StepCounts {
    began: Instant,
    count: usize,
    last: String,
    repeats: usize,
}

impl StepCounts {
    pub(super) fn begin() -> Self {
        Self { began: Instant::now(), count: 0, last: String::new(), repeats: 0 }
    }

    /// Checks that time is left for another step; [`Error::Pending`] lets the next call continue immediately.
    pub(super) fn check_time(&self) -> Result<(), Error> {
        if self.count == 0 || self.began.elapsed() < STEPS_LIMIT {
            return Ok(());
        }
        let message = format!("{} changes were made, and more are to be made", self.count);
        Err(Error::Pending { message, after: Duration::from_millis(10) })
    }

    /// Records a step. Returns true if the step was repeated too often in a row.
    pub(super) fn repeats(&mut self, step: &Action<'_>) -> bool {
        let step = step.to_string();
        self.repeats = if step == self.last { self.repeats + 1 } else { 1 };
        (self.count, self.last) = (self.count + 1, step);
        self.repeats > MAX_REPEATS
    }
}

/// Whether a failure suggests an outdated list: a required object is missing, or an object to delete is in use.
pub(super) fn shows_change(reason: Reason) -> bool {
    [reason::NSXRefused, reason::NSXObjectMissing].contains(&reason)
}

pub(super) fn next<'a, 'o>(
    targets: impl IntoIterator<Item = &'a FamilyTarget<'o>>,
) -> Option<(&'a FamilyTarget<'o>, Action<'a>)> {
    let targets: Vec<&FamilyTarget<'_>> = targets.into_iter().collect();
    let all: Vec<_> = targets.iter().map(|target| (&target.desired, target.current())).collect();
    let (at, step) = plan::next(&all)?;
    Some((targets.get(at)?, step))
}

/// Returns namespace and name of a Service, in the format of the tags.
pub(super) fn key_of(service: &Service) -> String {
    let metadata = &service.metadata;
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", part(&metadata.namespace), part(&metadata.name))
}

/// Whether an allocation with an unknown address may belong to the first (`None`) or second load balancer.
fn has_unresolved(observation: &CallObservation, secondary: Option<IpFamily>) -> bool {
    observation.classified.unresolved.iter().any(|one| one.tags.secondary == secondary)
}

fn ingress_of(service: &Service) -> Vec<IpAddr> {
    service::ingress(service).iter().filter_map(|ingress| ingress.ip.as_deref().and_then(parse_ip)).collect()
}

/// Returns the confirmed usable addresses of all Nodes; empty if the Service reports an address, because this address
/// then decides about ownership.
fn nodes_of(of: &NsxLoadBalancers, ingress: &[IpAddr]) -> BTreeSet<IpAddr> {
    if !ingress.is_empty() {
        return BTreeSet::new();
    }
    let addresses = |node: &Node| -> Vec<IpAddr> {
        let usable = of.node_addresses.of(node);
        usable.of(node).filter(|one| one.is_confirmed).map(|one| one.ip).collect()
    };
    of.nodes.nodes().flat_map(|node| addresses(&node)).collect()
}

/// Guard that records the time of the last response for a Service, even if the call is cancelled.
pub(super) struct AnswerRecorder<'a> {
    pub(super) cache: &'a ResourceCache,
    pub(super) key: &'a str,
}

impl Drop for AnswerRecorder<'_> {
    fn drop(&mut self) {
        self.cache.answered(self.key);
    }
}

impl<'a> ServiceCall<'a> {
    pub(super) fn new(of: &'a NsxLoadBalancers, service: &'a Service, layout: ClusterLayout) -> Self {
        let (key, ingress) = (key_of(service), ingress_of(service));
        let nodes = nodes_of(of, &ingress);
        let (without_address, settled_paths) = (BTreeMap::new(), Mutex::default());
        Self { provider: of, service, layout, key, ingress, nodes, without_address, settled_paths, claim: None }
    }

    /// Claims the Service for changes. Fails with [`Error::Pending`] while another call handles the Service.
    pub(super) fn claimed(self, permit: &'a LeaderToken) -> Result<Self, Error> {
        let in_flight = self.provider.resources.lock(&self.key)?;
        Ok(Self { claim: Some((permit, in_flight)), ..self })
    }

    /// Returns the permit for writes. A call without a claim has none.
    pub(super) fn permit(&self) -> Result<&'a LeaderToken, Error> {
        self.claim.as_ref().map(|(permit, _)| *permit).ok_or(Error::NotLeader)
    }

    /// Returns the status of the load balancer of the Service; `None` if the Service has no objects. Before the first
    /// complete list, fails with [`Error::Pending`] or the error of the last relist. Also fails if a Service without
    /// objects may have an address in an unlistable IP pool.
    pub(super) fn status(&self) -> Result<Option<LoadBalancerStatus>, Error> {
        self.require_fresh(RequiredFreshness::AnyList)?;
        let observation = self.observe_by(&self.nodes);
        let ours = &observation.classified.owned;
        if ours.is_empty() {
            return self.check_absence(&self.ingress, &BTreeSet::new()).map(|()| None);
        }
        let first_of = |secondary| plan::shown_address(&ours.of(secondary), has_unresolved(&observation, secondary));
        let all = [None, Some(IpFamily::V4), Some(IpFamily::V6)].into_iter().filter_map(first_of);
        Ok(Some(status(families::in_order(&service_request::families_of(self.service), all))))
    }

    pub(super) fn cache(&self) -> &'a ResourceCache {
        &self.provider.resources
    }

    pub(super) fn require_fresh(&self, need: RequiredFreshness) -> Result<(), Error> {
        self.provider.resources.require_fresh(&self.key, need)
    }

    /// Observes the current state. Reports ambiguous objects, unless these may be ambiguous only because of the
    /// configured load balancer service.
    pub(super) fn observe(&self) -> CallObservation {
        let observation = self.observe_by(&self.nodes);
        if self.check_lb_service(&observation).is_ok() {
            self.cache().report_ambiguous(&self.key, &observation.classified.ambiguous);
        }
        observation
    }

    /// Observes the current state. `nodes` are the addresses of all Nodes.
    fn observe_by(&self, nodes: &BTreeSet<IpAddr>) -> CallObservation {
        let Self { provider: of, key, .. } = self;
        let lb_service = self.lb_service();
        let objects = of.resources.of_service(key);
        let classified = self.in_context(nodes, &lb_service, |facts| classify(&objects, facts));
        let own: Vec<Resource> = classified.owned.servers().chain(classified.ambiguous.servers()).cloned().collect();
        let reserved = classified.owned.allocations().filter_map(|allocation| allocation.address);
        let is_used_elsewhere =
            |address: &IpAddr| of.resources.read(|index| index.other_server_on(*address, &own).is_some());
        let addresses_in_use = reserved.filter(is_used_elsewhere).collect();
        CallObservation { classified, lb_service, settled_paths: self.settled_paths.lock().clone(), addresses_in_use }
    }

    /// Returns the load balancer service in use, or the message that the configured one is unusable.
    pub(super) fn lb_service(&self) -> Result<Option<Resource>, String> {
        self.provider.resources.lb_service(self.provider.selection(), self.layout.cluster_uid.as_deref())
    }

    /// Decides with the facts about this Service. `nodes` are the addresses of all Nodes.
    fn in_context<T>(
        &self,
        nodes: &BTreeSet<IpAddr>,
        lb_service: &Result<Option<Resource>, String>,
        decide: impl FnOnce(&ClusterContext<'_>) -> T,
    ) -> T {
        let ports = service_request::ports_of(self.service).unwrap_or_default();
        let ports: Vec<Port> = ports.into_iter().map(|(port, _)| port).collect();
        decide(&ClusterContext {
            layout: &self.layout,
            ports: &ports,
            service_uid: self.uid(),
            ingress: &self.ingress,
            lb_service: lb_service.as_ref().ok().and_then(Option::as_ref).map(|lb_service| &*lb_service.tags.path),
            nodes,
        })
    }

    /// Returns all cached objects that name the Service, with their owners.
    pub(super) fn owners(&self) -> Vec<(Resource, ObjectOwner)> {
        let objects = self.cache().of_service(&self.key);
        let owners = self.in_context(&self.nodes, &self.lb_service(), |facts| owners(&objects, facts));
        owners.into_iter().map(|(resource, owner)| (resource.clone(), owner)).collect()
    }

    /// Observes the state for a call that writes. Fails with [`Error::Pending`] while the ownership of virtual servers
    /// depends on a Node whose VM is unknown.
    pub(super) fn observe_for_write(&self) -> Result<CallObservation, Error> {
        let observation = self.observe();
        self.check_nodes_are_known(&observation)?;
        Ok(observation)
    }

    /// Checks that the configured load balancer service is usable, and that no virtual server with an address of the
    /// Service is on another one.
    pub(super) fn check_lb_service(&self, observation: &CallObservation) -> Result<(), Error> {
        let Some(server) = self.misplaced(observation) else {
            return observation.lb_service.as_ref().map(drop).map_err(|message| config_wrong(message.clone()));
        };
        let named = self.named_lb_service(observation);
        let lb_service = server.reference(ObjectKind::LbService);
        Err(config_wrong(format!(
            "the virtual server {} has the address of the Service and is on the load balancer service {lb_service}, and the \
             cloud config names {named}; expected lb-service-id or tier1-gateway-path of the load balancer service that the \
             Service is on",
            server.tags.path
        )))
    }

    /// Returns the configured load balancer service, for messages.
    pub(super) fn named_lb_service(&self, observation: &CallObservation) -> String {
        match (&observation.lb_service, self.provider.selection()) {
            (Ok(Some(lb_service)), _) => lb_service.tags.path.to_string(),
            (_, Selection { id: Some(id), .. }) => id.to_owned(),
            (_, Selection { id: None, tier1 }) => format!("one on {}, where there is none", tier1.unwrap_or_default()),
        }
    }

    /// Returns an ambiguous virtual server with a reported address that no owned virtual server has. This virtual
    /// server is ambiguous because it is not on the configured load balancer service.
    pub(super) fn misplaced<'s>(&self, observation: &'s CallObservation) -> Option<&'s Resource> {
        let ClassifiedResources { owned: ours, ambiguous: held, .. } = &observation.classified;
        let is_reported = |server: &&Resource| server.address.is_some_and(|address| self.ingress.contains(&address));
        let is_ours = |address| ours.servers().any(|server| server.address == address);
        held.servers().filter(is_reported).find(|server| !is_ours(server.address))
    }

    /// Checks that no unconfirmed Node address could assign virtual servers to a Service without a reported address.
    /// Fails with [`Error::Pending`] while the VM of such a Node is unknown.
    fn check_nodes_are_known(&self, observation: &CallObservation) -> Result<(), Error> {
        if !self.ingress.is_empty() {
            return Ok(());
        }
        let unconfirmed = |node: &Node| -> Vec<IpAddr> {
            let usable = self.provider.node_addresses.of(node);
            usable.of(node).filter(|one| !one.is_confirmed).map(|one| one.ip).collect()
        };
        let nodes = || self.provider.nodes.nodes();
        let mut possible: BTreeSet<IpAddr> = nodes().flat_map(|node| unconfirmed(&node)).collect();
        if possible.is_empty() {
            return Ok(());
        }
        possible.extend(&self.nodes);
        let if_confirmed = self.observe_by(&possible).classified.owned;
        if if_confirmed.servers().count() == observation.classified.owned.servers().count() {
            return Ok(());
        }
        let is_member = |address: &IpAddr| if_confirmed.pools().any(|pool| pool.spec.members.contains(address));
        let unknown = nodes().find(|node| unconfirmed(node).iter().any(is_member));
        match unknown {
            None => Ok(()),
            Some(node) => {
                let node = node::name(&node);
                let object = format!(
                    "the VM of Node {node} is not known yet, and determines which virtual servers belong to the \
                     Service"
                );
                Err(self.wait(&object, SOON))
            }
        }
    }

    /// Delays a creation with [`Error::Pending`] for a few seconds while the VM of a Node is looked up, because the
    /// lookup provides the addresses of the Node.
    pub(super) fn check_nodes_are_looked_up(&self, step: &Action<'_>, nodes: &[Arc<Node>]) -> Result<(), Error> {
        if !step.is_creation() {
            return Ok(());
        }
        let is_pending = |node: &&Arc<Node>| self.provider.node_addresses.of(node) == UsableAddresses::Pending;
        match nodes.iter().find(is_pending).filter(|_| self.provider.node_addresses.may_wait()) {
            None => Ok(()),
            Some(node) => {
                let node = node::name(node);
                Err(self.wait(&format!("the lookup of the VM of Node {node} is under way"), Duration::from_secs(1)))
            }
        }
    }

    /// Keeps the planned step with the inputs of the plan, and logs it. A failed load balancer keeps its failed step.
    pub(super) fn record_plan(
        &self,
        targets: &[FamilyTarget<'_>],
        observation: &CallObservation,
        planned: Option<&(&FamilyTarget<'_>, Action<'_>)>,
        failed: &FailedFamilies,
    ) {
        let mut steps = self.cache().last_step(&self.key).map(|last| last.steps).unwrap_or_default();
        steps.retain(|secondary, _| has_failed(failed, *secondary));
        steps.extend(planned.map(|(target, step)| (target.balancer.secondary, step.to_string())));
        let last = LastStep {
            at: Instant::now(),
            steps,
            desired_servers: targets.iter().map(|target| target.desired.ports.len()).sum(),
            desired_members: targets.iter().map(|target| target.desired.members.len()).sum(),
            owned: observation.classified.owned.paths().count(),
            ambiguous: observation.classified.ambiguous.paths().count(),
            outcome: None,
        };
        let LastStep { steps, desired_servers, desired_members, owned, ambiguous, .. } = &last;
        debug!(service = self.key, ?steps, desired_servers, desired_members, owned, ambiguous, "planned the next step");
        self.cache().record_step(&self.key, last);
    }

    /// Keeps the outcome of this call beside the last planned step.
    pub(super) fn record_outcome<T>(&self, result: &Result<T, Error>) {
        let outcome = result.as_ref().map(drop).map_err(|error| chain(error));
        self.cache().record_outcome(&self.key, outcome);
    }

    pub(super) fn uid(&self) -> Option<&str> {
        self.service.metadata.uid.as_deref()
    }

    /// Returns the maximum number of steps per call, which is more than any load balancer needs.
    pub(super) fn most_steps(&self) -> usize {
        let ports = self.service.spec.as_ref().and_then(|spec| spec.ports.as_ref()).map_or(0, Vec::len);
        64 + 8 * (ports + self.provider.resources.of_service(&self.key).paths().count())
    }

    pub(super) async fn perform(&self, target: &FamilyTarget<'_>, step: &Action<'_>) -> Result<(), Error> {
        self.perform_in(&target.layout, target.spec.as_ref(), step).await
    }

    pub(super) fn request<'r>(
        &'r self,
        layout: &'r ClusterLayout,
        spec: Option<&'r LoadBalancerSpec>,
    ) -> Result<Request<'r>, Error> {
        let owner = Owner { service: &self.key, uid: self.uid().unwrap_or_default() };
        Ok(Request { permit: self.permit()?, layout, owner, spec })
    }

    async fn perform_in(
        &self,
        layout: &ClusterLayout,
        spec: Option<&LoadBalancerSpec>,
        step: &Action<'_>,
    ) -> Result<(), Error> {
        let request = self.request(layout, spec)?;
        request.permit.check()?;
        let writes = !matches!(step, Action::Read { .. });
        let _answer = writes.then(|| AnswerRecorder { cache: self.cache(), key: &self.key });
        let is_referenced = AtomicBool::new(false);
        let record = |change: ObjectChange| {
            let path = match &change {
                ObjectChange::Present(ObjectKind::Group | ObjectKind::PersistenceProfile, object) => {
                    Some(object.path())
                }
                ObjectChange::Gone(path) => Some(path.as_str()),
                ObjectChange::Present(..) | ObjectChange::Reserved { .. } | ObjectChange::Referenced(_) => None,
            };
            self.settled_paths.lock().extend(path.map(Into::into));
            is_referenced.fetch_or(matches!(change, ObjectChange::Referenced(_)), Ordering::Relaxed);
            self.record_effect(step, &change);
            self.cache().record(&change, &self.layout);
        };
        let performed = self.provider.backend.perform(&request, step, &record).await;
        if !is_referenced.load(Ordering::Relaxed) {
            return self.noted(performed);
        }
        let of_own = self.cache().until_purge(&self.key);
        match (performed, of_own.or_else(|| self.cache().until_purge_of_former())) {
            (Err(error), Some(after)) => {
                // An existing object that the last list missed may also be the referring object.
                if of_own.is_none() {
                    self.cache().request_relist_after_refusal();
                }
                Err(self.wait(&format!("a deleted object may still refer to it: {}", chain(&error)), after))
            }
            (performed, _) => self.noted(performed),
        }
    }

    /// Requests a relist if a refusal shows that the last list is outdated.
    fn noted(&self, performed: Result<(), Error>) -> Result<(), Error> {
        if performed.as_ref().is_err_and(|error| shows_change(error.reason())) {
            self.cache().request_relist_after_refusal();
        }
        performed
    }

    /// Records accepted changes that NSX has to realize before the sync ends.
    fn record_effect(&self, step: &Action<'_>, change: &ObjectChange) {
        match (step, change) {
            (Action::Create(_), ObjectChange::Present(ObjectKind::LbService | ObjectKind::VirtualServer, object)) => {
                self.cache().record_written(&self.key, object.path(), None)
            }
            (Action::Update { .. }, ObjectChange::Present(ObjectKind::VirtualServer, object)) => {
                self.cache().record_written(&self.key, object.path(), object.revision());
            }
            (Action::Delete(_), ObjectChange::Gone(path)) => self.cache().record_deleted(&self.key, path),
            _ => {}
        }
    }

    /// Returns a load balancer of the Service without any desired ports, as for its deletion.
    pub(super) fn empty_target<'o>(
        &self,
        observation: &'o CallObservation,
        balancer: FamilyLoadBalancer,
    ) -> FamilyTarget<'o> {
        let features =
            service_request::features_of(self.service, self.provider.rules, balancer.family).unwrap_or_default();
        let desired = DesiredLoadBalancer {
            ports: Vec::new(),
            members: Vec::new(),
            ingress: self.ingress.clone(),
            cluster_uid: self.layout.cluster_uid.clone(),
            service_uid: self.uid().map(str::to_owned),
            features,
            reported: None,
            has_unresolved: has_unresolved(observation, balancer.secondary),
            may_have_references: self.cache().may_have_references(&self.key),
            adopts_fully: false,
        };
        let (layout, ours) = (self.layout.of(balancer.secondary), observation.classified.owned.of(balancer.secondary));
        FamilyTarget { observation, balancer, layout, ours, desired, spec: None }
    }

    /// Whether an address that the Service reports or a virtual server uses belongs to no known allocation. An
    /// allocation with an unknown address may then have this address.
    pub(super) fn lacks_address(&self, observation: &CallObservation) -> bool {
        let ClassifiedResources { owned: ours, ambiguous: held, .. } = &observation.classified;
        let known: BTreeSet<IpAddr> =
            ours.allocations().chain(held.allocations()).filter_map(|allocation| allocation.address).collect();
        let servers = ours.servers().chain(held.servers()).map(|server| server.address);
        // A deletion has already released these addresses.
        let released = self.cache().released(&self.key);
        let reported = self.ingress.iter().copied().map(Some).filter(|address| !released.contains(address));
        let mut addresses = servers.chain(reported);
        addresses.any(|address| address.is_none_or(|address| !known.contains(&address)))
    }

    /// Reads the address of the next of these `allocations`, because the address shows whether an allocation is ours.
    /// Returns false if no read is left. Fails if NSX returns no address and `matters` is set, because the Service may
    /// have this address.
    pub(super) async fn read_one(&mut self, allocations: &[Resource], matters: bool) -> Result<bool, Error> {
        let Some(allocation) = allocations.iter().find(|one| !self.without_address.contains_key(&*one.tags.path))
        else {
            let is_open = |one: &&Resource| self.without_address.get(&*one.tags.path) == Some(&false);
            return match allocations.iter().find(is_open).filter(|_| matters) {
                Some(allocation) => self.unless_gone(allocation).await.map(|()| true),
                None => Ok(false),
            };
        };
        let path = &allocation.tags.path;
        let says_none = match self.provider.backend.reservation(allocation).await? {
            Reservation::Reserved(address) => {
                let change = ObjectChange::Reserved { path: path.to_string(), address };
                self.cache().record(&change, &self.layout);
                return Ok(true);
            }
            Reservation::Pending => false,
            Reservation::Failed { is_exhausted, .. } => is_exhausted,
        };
        self.without_address.insert(path.clone(), says_none);
        Ok(true)
    }

    /// Reads an allocation without an address. Fails unless the allocation is deleted or has an address now.
    async fn unless_gone(&self, allocation: &Resource) -> Result<(), Error> {
        let path = &allocation.tags.path;
        let step = Action::Read { kind: ObjectKind::Allocation, path: path.to_string() };
        self.perform_in(&self.layout, None, &step).await?;
        let known = self.cache().of_service(&self.key);
        if known.at(path).is_none_or(|one| one.address.is_some()) {
            return Ok(());
        }
        let message = format!("NSX does not give the address of {path}, which the Service {} may have", self.key);
        Err(Error::Failed { reason: reason::NSXUnavailable, message, after: Some(SOON) })
    }

    /// Returns the error of a call whose changes do not converge.
    pub(super) fn endless(&self, steps: &StepCounts) -> Error {
        let message = format!(
            "the load balancer of Service {} is not as it is to be after {} changes: another client changes it, too, or a \
             change has no effect; the last one: {}",
            self.key, steps.count, steps.last
        );
        Error::Failed { reason: reason::NSXRefused, message, after: None }
    }
}
