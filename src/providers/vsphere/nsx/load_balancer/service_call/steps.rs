//! Ensures the load balancer of a Service: creates or updates it in single steps.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{LoadBalancerStatus, Node};

use super::{CallObservation, FailedFamilies, FamilyTarget, ServiceCall, StepCounts, has_failed, next};
use crate::base::error_chain::chain;
use crate::cloud::{Error, Reason};
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::config::{CompleteClass, IpPool, Profile};
use crate::providers::vsphere::nsx::load_balancer::backend::{CapacityExceeded, ConfiguredObject, Suitability, Usage};
use crate::providers::vsphere::nsx::load_balancer::families::{FamilyLoadBalancer, RequestedFamilies};
use crate::providers::vsphere::nsx::load_balancer::layout::{ObjectKind, Port, Protocol};
use crate::providers::vsphere::nsx::load_balancer::members::Member;
use crate::providers::vsphere::nsx::load_balancer::plan::{self, Action, DesiredLoadBalancer, WantedPort};
use crate::providers::vsphere::nsx::load_balancer::resource::{LoadBalancerSpec, Resource};
use crate::providers::vsphere::nsx::load_balancer::resource_cache::{LbServiceUsage, RequiredFreshness};
use crate::providers::vsphere::nsx::load_balancer::{config_wrong, families, later, service_request, status};
use crate::providers::vsphere::nsx::routes::Adoption;
use crate::providers::vsphere::reason;

/// Minimum pause of a sync whose ports may not fit beside those of the calls in flight. Jitter at most doubles it.
const CAPACITY_PAUSE: Duration = Duration::from_secs(1);

/// Returns the pool members of a family.
pub(super) type MembersOf<'a> = &'a dyn Fn(IpFamily) -> Vec<Member>;

#[derive(Default)]
pub(super) struct EnsureProgress {
    /// Load balancers whose address this call has reserved, by the family of the second load balancer. `None` is the
    /// first load balancer, here and below.
    allocated: Vec<Option<IpFamily>>,
    /// Load balancers whose creation this call has checked.
    checked_creations: Vec<Option<IpFamily>>,
    /// Load balancers that wait for capacity, because calls in flight may need it.
    waiting: Vec<Option<IpFamily>>,
    /// Messages about addresses of virtual servers that could not be reserved.
    pub(super) unreserved: Vec<String>,
    /// Failed load balancers, for which this call makes no further steps.
    failed: FailedFamilies,
}

impl ServiceCall<'_> {
    pub(in crate::providers::vsphere::nsx::load_balancer) async fn ensure(
        mut self,
        nodes: &[Arc<Node>],
    ) -> Result<LoadBalancerStatus, Error> {
        let result = self.try_ensure(nodes).await;
        self.record_outcome(&result);
        result
    }

    async fn try_ensure(&mut self, nodes: &[Arc<Node>]) -> Result<LoadBalancerStatus, Error> {
        service_request::check(self.service, &self.provider.config, self.provider.rules)?;
        let ports = service_request::ports_of(self.service)?;
        let asked = RequestedFamilies {
            families: &service_request::families_of(self.service),
            has_ipv6_pool: self.has_ipv6_pool(),
        };
        let provider = self.provider;
        let members = |family| provider.node_addresses.members(nodes, family);
        self.require_fresh(RequiredFreshness::AnyList)?;
        self.cache().is_needed(&self.key);
        let (mut progress, mut steps) = (EnsureProgress::default(), StepCounts::begin());
        for _ in 0..self.most_steps() {
            let observation = self.observe_for_write()?;
            self.check_lb_service(&observation).map_err(|error| self.unless_created(error))?;
            if self.read_next(&observation).await? {
                continue;
            }
            let targets =
                self.targets(&observation, &asked, &ports, &members).map_err(|error| self.unless_created(error))?;
            self.record_removed(&targets);
            // An unneeded load balancer stays until its replacement is complete.
            let is_open = |target: &&FamilyTarget<'_>| {
                let FamilyLoadBalancer { secondary, is_wanted, .. } = &target.balancer;
                !has_failed(&progress.failed, *secondary) && (*is_wanted || progress.failed.is_empty())
            };
            let open = targets.iter().filter(is_open);
            let planned = next(open);
            self.record_plan(&targets, &observation, planned.as_ref(), &progress.failed);
            let Some((target, step)) = planned else {
                self.add_unrealized(&targets, &mut progress.failed).await?;
                return match progress.failed.is_empty() {
                    true => {
                        self.remark_addresses(&targets, &progress.unreserved);
                        self.completed(&asked, &targets)
                    }
                    false => self.failed(&asked, &targets, progress.failed),
                };
            };
            steps.check_time()?;
            self.check_nodes_are_looked_up(&step, nodes)?;
            match self.advance(&asked, target, &step, &mut progress).await {
                Ok(()) => {}
                Err(Error::NotLeader) => return Err(Error::NotLeader),
                Err(error @ Error::Pending { .. }) if !progress.waiting.contains(&target.balancer.secondary) => {
                    return Err(error);
                }
                Err(error) => {
                    // NSX responds and only this address is late, so the other load balancer can continue.
                    let is_of_address = matches!(step, Action::Allocate(_) | Action::ReadAddress(_));
                    let is_silent = error.reason() == reason::NSXUnavailable && !is_of_address;
                    progress.failed.push((target.balancer.secondary, error));
                    if is_silent {
                        self.add_unrealized(&targets, &mut progress.failed).await?;
                        return self.failed(&asked, &targets, progress.failed);
                    }
                }
            }
            if steps.repeats(&step) {
                break;
            }
        }
        Err(self.endless(&steps))
    }

    /// Whether the class of the Service has an additional IP pool for IPv6.
    pub(super) fn has_ipv6_pool(&self) -> bool {
        self.provider.config.ipv6_pools.contains_key(service_request::class_of(self.service))
    }

    async fn advance(
        &self,
        asked: &RequestedFamilies<'_>,
        target: &FamilyTarget<'_>,
        step: &Action<'_>,
        progress: &mut EnsureProgress,
    ) -> Result<(), Error> {
        self.check_missed(step)?;
        if step.is_release() {
            let mut expected = self.expected_servers(&[target.balancer.secondary]);
            expected.retain(|path| target.ours.at(path).is_none());
            if self.finds_missed_server(&expected).await? {
                return Ok(());
            }
            self.remark_left(&self.cache().left_in_effect(&self.key));
        }
        let secondary = target.balancer.secondary;
        if step.is_creation() {
            self.check_gateway(target, step)?;
            self.check_creation(asked, target, progress).await?;
        }
        let is_allocated = progress.allocated.contains(&secondary);
        if let Some(address) = step.address_of_new_server()
            && !target.ours.has(ObjectKind::VirtualServer)
            && !self.ingress.contains(&address)
            && let Some(family) = asked.required(&target.balancer).filter(|family| IpFamily::of(address) != *family)
        {
            if !is_allocated {
                self.check_twice()?;
            }
            self.release(target, address).await?;
            return Err(wrong_family(target, address, family));
        }
        match self.make(target, step, progress).await {
            Ok(()) => {
                if matches!(step, Action::Allocate(_)) {
                    progress.allocated.push(secondary);
                }
                // With one more known address, allocations without an address may be surplus, so they are read again.
                if matches!(step, Action::ReadAddress(_)) {
                    self.settled_paths.lock().retain(|path| !path.contains("/ip-allocations/"));
                }
                Ok(())
            }
            Err(error) => self.handle_failed_step(target, step, is_allocated, error).await,
        }
    }

    /// Makes the checks that can refuse a load balancer before its objects are created.
    async fn check_creation(
        &self,
        asked: &RequestedFamilies<'_>,
        target: &FamilyTarget<'_>,
        progress: &mut EnsureProgress,
    ) -> Result<(), Error> {
        self.check_choice(target)?;
        if progress.checked_creations.contains(&target.balancer.secondary) {
            return Ok(());
        }
        progress.checked_creations.push(target.balancer.secondary);
        self.check_configured(target).await?;
        let capacity = self.claim_capacity(target).await;
        if matches!(capacity, Err(Error::Pending { .. })) {
            progress.waiting.push(target.balancer.secondary);
        }
        capacity?;
        self.claim_requested_address(target).await?;
        match asked.required(&target.balancer).filter(|_| has_no_address(target)) {
            Some(family) => self.check_family(target, family).await,
            None => Ok(()),
        }
    }

    fn completed(
        &self,
        asked: &RequestedFamilies<'_>,
        targets: &[FamilyTarget<'_>],
    ) -> Result<LoadBalancerStatus, Error> {
        let wanted = || targets.iter().filter(|target| target.balancer.is_wanted);
        self.check_removed(&wanted().filter_map(FamilyTarget::address).collect::<Vec<_>>())?;
        self.cache().record_complete(&self.key, wanted().map(|target| target.balancer.family).collect());
        let as_is = ignored_settings(wanted());
        let is_as_is = as_is.is_some();
        self.cache().set_event(&self.key, reason::LoadBalancerAdoptedAsIs, as_is);
        let addresses = wanted().filter_map(|target| Some((target, target.address()?)));
        for (target, address) in addresses.clone().filter(|_| !is_as_is) {
            service_request::check_address(&target.desired.features, address)?;
        }
        let addresses = families::in_order(asked.families, addresses.map(|(_, address)| address));
        self.remark_unconfirmed(&addresses);
        service_request::check_both(self.service, &addresses)?;
        Ok(status(addresses))
    }

    /// Ends a call in which load balancers failed. If the other load balancer has a new address, returns the status
    /// with this address and requests a resync, which returns the failures.
    fn failed(
        &self,
        asked: &RequestedFamilies<'_>,
        targets: &[FamilyTarget<'_>],
        failed: FailedFamilies,
    ) -> Result<LoadBalancerStatus, Error> {
        let wanted = || targets.iter().filter(|one| one.balancer.is_wanted);
        let has_new = self.is_resync_needed(targets, &failed);
        let is_of_failed = |address: &&IpAddr| {
            let mut all = targets.iter().filter(|one| has_failed(&failed, one.balancer.secondary));
            all.any(|one| one.balancer.family == IpFamily::of(**address))
        };
        // The Service keeps the addresses of failed load balancers, even unserved ones: they identify its objects.
        let mut addresses: BTreeSet<IpAddr> = self.ingress.iter().filter(is_of_failed).copied().collect();
        let is_served = |one: &&FamilyTarget<'_>| {
            one.ours.has(ObjectKind::VirtualServer) && !has_failed(&failed, one.balancer.secondary)
        };
        addresses.extend(wanted().filter(is_served).filter_map(FamilyTarget::address));
        match failed.into_iter().map(|(_, error)| error).reduce(joined) {
            Some(error) if !has_new => Err(error),
            _ => {
                self.cache().request_resync_of(&self.key);
                Ok(status(families::in_order(asked.families, addresses)))
            }
        }
    }

    /// Adds the load balancers that NSX could not realize to `failed`, if the call would report an address.
    async fn add_unrealized(&self, targets: &[FamilyTarget<'_>], failed: &mut FailedFamilies) -> Result<(), Error> {
        if failed.is_empty() || self.is_resync_needed(targets, failed) {
            failed.extend(self.unrealized(targets).await?);
        }
        Ok(())
    }

    /// Whether a complete load balancer has an address that the Service does not report yet.
    fn is_resync_needed(&self, targets: &[FamilyTarget<'_>], failed: &FailedFamilies) -> bool {
        let wanted = targets.iter().filter(|one| one.balancer.is_wanted);
        let is_complete =
            |one: &&FamilyTarget<'_>| !has_failed(failed, one.balancer.secondary) && next([*one]).is_none();
        wanted.filter(is_complete).filter_map(FamilyTarget::address).any(|address| !self.ingress.contains(&address))
    }

    /// Requires two lists for releases and, if the Service reports an address, for creations: one list may miss
    /// objects.
    fn check_missed(&self, step: &Action<'_>) -> Result<(), Error> {
        let may_exist = step.is_creation() && !self.ingress.is_empty();
        let matters = may_exist || step.is_release();
        if matters { self.check_twice() } else { Ok(()) }
    }

    /// Checks that two lists, or a complete load balancer in this term, have shown the existing objects.
    pub(super) fn check_twice(&self) -> Result<(), Error> {
        if self.cache().was_complete(&self.key) { Ok(()) } else { self.require_fresh(RequiredFreshness::TwoLists) }
    }

    /// Refuses new ports and a new load balancer service while virtual servers with the address of the Service are not
    /// on the configured load balancer service, because an address belongs to one gateway.
    fn check_gateway(&self, target: &FamilyTarget<'_>, step: &Action<'_>) -> Result<(), Error> {
        let is_served = |new: &Resource| target.ours.servers().any(|server| server.tags.port == new.tags.port);
        let is_new = match step {
            Action::Create(new) if new.tags.port.is_some() => !is_served(new),
            Action::Create(new) => new.kind == ObjectKind::LbService,
            _ => false,
        };
        if !is_new {
            return Ok(());
        }
        let (used, address) = (target.current().lb_service, target.address());
        let is_elsewhere = |server: &&Resource| {
            server.address == address
                && used.is_none_or(|used| !server.refers_to(&used.tags.path))
                && self.cache().read(|index| index.has_lb_service(server.reference(ObjectKind::LbService)))
        };
        let Some(server) = target.ours.servers().find(is_elsewhere) else { return Ok(()) };
        let lb_service = server.reference(ObjectKind::LbService);
        let named = self.named_lb_service(target.observation);
        Err(self.unless_outdated(config_wrong(format!(
            "nothing is created: the virtual server {} of the Service is on the load balancer service {lb_service}, and the \
             cloud config names {named}; expected lb-service-id or tier1-gateway-path of the load balancer service that the \
             Service is on",
            server.tags.path
        ))))
    }

    async fn check_family(&self, target: &FamilyTarget<'_>, family: IpFamily) -> Result<(), Error> {
        let Some(LoadBalancerSpec { address_pool, .. }) = &target.spec else { return Ok(()) };
        if self.provider.backend.has_family(address_pool, family).await? {
            return Ok(());
        }
        let family = family.as_str();
        Err(config_wrong(format!(
            "the IP pool {address_pool} has no {family} addresses, and the Service requires {family}"
        )))
    }

    /// Returns a configuration error only if a recent list confirms it, because the configured objects may exist by
    /// now. Returns any other error unchanged.
    fn unless_created(&self, error: Error) -> Error {
        if error.reason() == reason::LoadBalancerConfigWrong { self.unless_outdated(error) } else { error }
    }

    /// Checks objects that are configured by id or path. Lists have already resolved objects configured by name.
    async fn check_configured(&self, target: &FamilyTarget<'_>) -> Result<(), Error> {
        let Some(LoadBalancerSpec { address_pool, tier1, .. }) = &target.spec else { return Ok(()) };
        let names = self.cache().names();
        let listed: BTreeSet<&String> = names.pools.values().chain(names.profiles.values()).flatten().collect();
        let mut all = BTreeSet::new();
        if has_no_address(target) && !listed.contains(address_pool) {
            all.insert(ConfiguredObject::AddressPool(address_pool.clone()));
        }
        let profiles = target.desired.ports.iter().map(|port| &port.profile);
        let profiles = profiles.filter(|path| !listed.contains(path));
        all.extend(profiles.cloned().map(ConfiguredObject::Profile));
        if let (Ok(None), Some(path)) = (&target.observation.lb_service, tier1) {
            all.insert(ConfiguredObject::Gateway(path.clone()));
        }
        for object in all {
            match self.suitability(&object).await? {
                Suitability::Usable => {}
                Suitability::NotAdvertised => self.remark_advertisement(&object),
                Suitability::Missing => {
                    let message = format!("{object} from vsphere.conf or --nsx-ipv6-pool does not exist in NSX");
                    return Err(config_wrong(message));
                }
                Suitability::NoEdgeCluster => {
                    return Err(config_wrong(format!(
                        "{object} from vsphere.conf has no edge cluster, and load balancers run on edges: set the edge cluster \
                         of the gateway in NSX"
                    )));
                }
            }
        }
        Ok(())
    }

    fn remark_advertisement(&self, gateway: &ConfiguredObject) {
        let message = format!(
            "{gateway} does not advertise the addresses of load balancers, so that clients outside of NSX may not reach them: add \
             TIER1_LB_VIP to its route advertisement in NSX"
        );
        self.cache().set_event(&self.key, reason::LoadBalancerConfigWrong, Some(message));
    }

    async fn suitability(&self, object: &ConfiguredObject) -> Result<Suitability, Error> {
        if let Some(known) = self.cache().configured(object) {
            return Ok(known);
        }
        let suitability = match self.provider.backend.suitability(object).await {
            // The object may be usable. If not, NSX refuses its use.
            Err(error) if error.reason() == reason::NSXNoPermission => Suitability::Usable,
            answer => answer?,
        };
        self.cache().record_configured(object, suitability);
        Ok(suitability)
    }

    /// Claims the capacity of the load balancer service for all missing ports, because two Services with a part of
    /// their ports each could leave no capacity for the other. The claim ends with the call, so this can still happen
    /// to a Service whose call is interrupted. If the usage is unreadable, NSX itself refuses creations on a full load
    /// balancer service.
    async fn claim_capacity(&self, target: &FamilyTarget<'_>) -> Result<(), Error> {
        let DesiredLoadBalancer { ports, members, .. } = &target.desired;
        let lacks_server = |port: &&WantedPort| target.ours.servers().all(|one| one.tags.port != Some(port.port));
        let ports = ports.iter().filter(lacks_server).count();
        if ports == 0 {
            return Ok(());
        }
        let (needed, before) = (Usage::of_ports(ports, members.len()), self.cache().demands());
        let usage = match &target.observation.lb_service {
            Ok(Some(lb_service)) => match self.provider.backend.usage(&lb_service.tags.path).await? {
                Some(usage) => {
                    usage.check(&needed).map_err(|exceeded| no_capacity(&lb_service.tags.path, ports, exceeded))?;
                    LbServiceUsage::Reported(usage)
                }
                None => LbServiceUsage::Unreadable,
            },
            Ok(None) | Err(_) => LbServiceUsage::NoLbService,
        };
        if self.cache().claim_capacity(&self.key, needed, usage, before) {
            return Ok(());
        }
        let after = CAPACITY_PAUSE.mul_f64(1.0 + fastrand::f64());
        Err(self.wait("other Services are created, and may need the capacity of the load balancer service", after))
    }

    /// Handles a failed step. Returns an error only if the load balancer depends on the step.
    async fn handle_failed_step(
        &self,
        target: &FamilyTarget<'_>,
        step: &Action<'_>,
        is_allocated: bool,
        error: Error,
    ) -> Result<(), Error> {
        let is_unavailable = error.reason() == reason::AddressUnavailable;
        if let Action::ReadAddress(allocation) = step
            && (is_unavailable || error.reason() == reason::NSXUnavailable)
        {
            if is_unavailable {
                self.release_refused(target, allocation).await?;
            }
            let path = &allocation.tags.path;
            let is_other = |one: &Resource| one.address.is_none() && one.tags.path != *path;
            let is_first = self.settled_paths.lock().insert(path.clone());
            // Without this address, the Service would report the edited address of a virtual server.
            if !is_unavailable && plan::is_doubtful(&self.ingress, &target.ours) {
                return Err(error);
            }
            let is_released = is_unavailable && self.cache().of_service(&self.key).at(path).is_none();
            // An earlier call created the allocation. The IP pool may have a free address now, so the sync continues.
            if is_released && !is_allocated {
                return Ok(());
            }
            // The allocation may be surplus and never get an address, or another allocation may have the address.
            if is_first && (target.ours.has(ObjectKind::VirtualServer) || target.ours.allocations().any(is_other)) {
                return Ok(());
            }
        }
        if is_unavailable && target.ours.has(ObjectKind::VirtualServer) {
            return Ok(());
        }
        if let Some(address) = step.address_of_new_server()
            && is_allocated
            && is_nsx_refusal(error.reason())
        {
            self.release(target, address).await?;
        }
        Err(error)
    }

    async fn release(&self, target: &FamilyTarget<'_>, address: IpAddr) -> Result<(), Error> {
        let current = target.current();
        let is_free = |one: &&Resource| one.address == Some(address) && !current.has_server_on(one);
        match current.ours.allocations().find(is_free) {
            Some(allocation) => self.perform(target, &Action::Delete(allocation)).await,
            None => Ok(()),
        }
    }

    /// Releases a failed allocation, because the cause may be temporary, unless the allocation may have an address in
    /// use.
    async fn release_refused(&self, target: &FamilyTarget<'_>, allocation: &Resource) -> Result<(), Error> {
        let path = &*allocation.tags.path;
        // The backend has already released an allocation of an exhausted IP pool.
        if self.cache().of_service(&self.key).at(path).is_none() || self.lacks_address(target.observation) {
            return Ok(());
        }
        let step = Action::Delete(allocation);
        self.check_missed(&step)?;
        self.perform(target, &step).await
    }

    /// Returns the load balancers of the Service with their desired states. `members` returns the pool members of a
    /// family.
    pub(super) fn targets<'o>(
        &self,
        observation: &'o CallObservation,
        asked: &RequestedFamilies<'_>,
        ports: &[(Port, u16)],
        members: MembersOf<'_>,
    ) -> Result<Vec<FamilyTarget<'o>>, Error> {
        let requested = service_request::class_of(self.service);
        let mut classes = observation.classified.owned.servers().map(|server| &*server.spec.class);
        let class = classes.find(|class| !class.is_empty()).unwrap_or(requested);
        if class != requested {
            let annotation = service_request::ANNOTATION_CLASS;
            let message = format!(
                "the load balancer has the class {class:?}, and the annotation {annotation} requests {requested:?}: \
                 the class of a load balancer cannot change; set the annotation back, or delete the Service and \
                 create it again"
            );
            return Err(Error::Invalid { reason: reason::LoadBalancerClassFixed, message });
        }
        service_request::check_class(&self.provider.config, class)?;
        let complete = self.provider.config.class(class).ok_or_else(|| {
            config_wrong(format!("the class {class:?} in vsphere.conf lacks an IP pool or an application profile"))
        })?;
        let wanted_port = |(port, node_port): &(Port, u16)| {
            Ok(WantedPort { port: *port, node_port: *node_port, profile: self.profile(&complete, port.protocol)? })
        };
        let ports: Vec<WantedPort> = ports.iter().map(wanted_port).collect::<Result<_, Error>>()?;
        let mut targets = Vec::new();
        for balancer in asked.balancers(&observation.classified.owned) {
            let mut target = self.empty_target(observation, balancer);
            if balancer.is_wanted {
                self.set_wanted(&mut target, (class, &complete), &ports, members)?;
                let is_its = |one: &&IpAddr| asked.required(&balancer).is_none_or(|of| IpFamily::of(**one) == of);
                target.desired.reported = self.ingress.iter().find(is_its).copied();
            }
            targets.push(target);
        }
        Ok(targets)
    }

    /// Sets the desired state of a load balancer that the Service needs.
    fn set_wanted(
        &self,
        target: &mut FamilyTarget<'_>,
        (class, complete): (&str, &CompleteClass<'_>),
        ports: &[WantedPort],
        members: MembersOf<'_>,
    ) -> Result<(), Error> {
        let family = target.balancer.family;
        let members = members(family);
        target.desired.ports = ports.to_vec();
        target.desired.features = service_request::features_of(self.service, self.provider.rules, family)?;
        target.desired.adopts_fully = self.provider.adoption == Adoption::Full;
        target.desired.members.clone_from(&members);
        let address_pool = match (named_pool(target), target.balancer.secondary) {
            (Some(pool), _) => pool,
            (None, Some(_)) => self.ipv6_pool(class)?,
            (None, None) => self.pool(complete.pool)?,
        };
        target.spec = Some(LoadBalancerSpec {
            class: class.to_owned(),
            address_pool,
            members,
            size: self.provider.config.size.as_str(),
            tier1: self.provider.config.tier1.clone(),
        });
        Ok(())
    }

    fn ipv6_pool(&self, class: &str) -> Result<String, Error> {
        let pool = self.provider.config.ipv6_pools.get(class).cloned();
        pool.ok_or_else(|| {
            config_wrong(format!("the class {class:?} has no IP pool for IPv6; set --nsx-ipv6-pool={class}=POOL-ID"))
        })
    }

    fn pool(&self, pool: &IpPool) -> Result<String, Error> {
        match pool {
            IpPool::Id(id) => Ok(id.clone()),
            IpPool::Name(name) => {
                let names = self.cache().names();
                only(names.pools.get(name), || format!("the IP pool named {name:?}"))
            }
        }
    }

    fn profile(&self, class: &CompleteClass<'_>, protocol: Protocol) -> Result<String, Error> {
        let (profile, kind) = match protocol {
            Protocol::Tcp => (class.tcp, "TCP"),
            Protocol::Udp => (class.udp, "UDP"),
        };
        match profile {
            Profile::Path(path) => Ok(path.clone()),
            Profile::Name(name) => {
                let names = self.cache().names();
                let found = names.profiles.get(&(protocol, name.clone()));
                only(found, || format!("the {kind} application profile named {name:?}"))
            }
        }
    }
}

/// Returns the id or path of the only object with a configured name.
fn only(found: Option<&Vec<String>>, object: impl Fn() -> String) -> Result<String, Error> {
    match found.map(Vec::as_slice) {
        Some([one]) => Ok(one.clone()),
        None | Some([]) => Err(config_wrong(format!("{} of the cloud config is not found in NSX", object()))),
        Some(several) => {
            let (object, count) = (object(), several.len());
            Err(config_wrong(format!(
                "{object} of the cloud config is not unique in NSX: {count} have the name; give its id or path"
            )))
        }
    }
}

/// Returns the IP pool of the address of a load balancer.
fn named_pool(target: &FamilyTarget<'_>) -> Option<String> {
    let address = target.address();
    let of_servers = target.ours.servers().map(|server| &*server.address_pool).find(|pool| !pool.is_empty());
    let is_in_use = |one: &&Resource| address.is_none() || one.address == address;
    let of_allocations = || target.ours.allocations().find(is_in_use).map(|one| &*one.address_pool);
    of_servers.or_else(of_allocations).map(str::to_owned)
}

fn no_capacity(lb_service: &str, ports: usize, exceeded: CapacityExceeded) -> Error {
    let CapacityExceeded { object: what, used, allowed } = exceeded;
    let message = format!(
        "the load balancer service {lb_service} has {used} of {allowed} {what}, and {ports} ports of the Service are to be \
         created"
    );
    Error::Exhausted { reason: reason::LoadBalancerCapacity, message, after: later() }
}

/// Combines the errors of both load balancers of a Service. [`Error::Pending`] is no failure: it neither hides the
/// failure of the other load balancer nor ends its backoff.
fn joined(first: Error, second: Error) -> Error {
    let is_wait = |error: &Error| matches!(error, Error::Pending { .. });
    match (is_wait(&first), is_wait(&second)) {
        (true, true) => return first,
        (true, false) => return joined(second, first),
        (false, true) if first.retry_after().is_none() => return first,
        (false, _) => {}
    }
    let message = format!("{}; {}", chain(&first), chain(&second));
    let after = first.retry_after().into_iter().chain(second.retry_after()).min();
    match (after, first.is_refusal() || second.is_refusal()) {
        (Some(after), true) => Error::Refused { reason: first.reason(), message, after },
        (after, _) => Error::Failed { reason: first.reason(), message, after },
    }
}

pub(super) fn has_no_address(target: &FamilyTarget<'_>) -> bool {
    !target.ours.has(ObjectKind::VirtualServer) && !target.ours.has(ObjectKind::Allocation)
}

fn wrong_family(target: &FamilyTarget<'_>, address: IpAddr, family: IpFamily) -> Error {
    let pool = target.spec.as_ref().map(|spec| spec.address_pool.as_str()).unwrap_or_default();
    let family = family.as_str();
    config_wrong(format!(
        "the IP pool {pool} gave the address {address}, but the Service needs {family}; use a pool with {family} ranges only"
    ))
}

/// Returns the message about the settings of the Service that are not applied to these load balancers, because another
/// program made them; `None` without such settings.
pub(super) fn ignored_settings<'a>(targets: impl Iterator<Item = &'a FamilyTarget<'a>>) -> Option<String> {
    let mut ignored: Vec<&str> = Vec::new();
    for field in targets.flat_map(|target| plan::ignored(&target.desired, &target.current())) {
        if !ignored.contains(&field) {
            ignored.push(field);
        }
    }
    let message = format!(
        "the load balancer was made by another program: ports and Nodes are kept up to date, but these settings of the Service \
         are not applied: {}. To apply them to all such load balancers, set --nsx-adopt=full",
        ignored.join(", ")
    );
    (!ignored.is_empty()).then_some(message)
}

/// Whether NSX has answered and refused the request.
fn is_nsx_refusal(reason: Reason) -> bool {
    reason == reason::NSXRefused || reason == reason::LoadBalancerConfigWrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_hides_no_failure_of_the_other_load_balancer() {
        let wait = || Error::Pending { message: "wait".to_owned(), after: CAPACITY_PAUSE };
        assert!(matches!(joined(wait(), wait()), Error::Pending { after, .. } if after == CAPACITY_PAUSE));
        let reason = reason::AddressUnavailable;
        for (after, expected) in [(None, None), (Some(Duration::from_secs(300)), Some(CAPACITY_PAUSE))] {
            let failure = || Error::Failed { reason, message: "no address".to_owned(), after };
            for error in [joined(failure(), wait()), joined(wait(), failure())] {
                assert_eq!((error.reason(), error.retry_after()), (reason, expected), "{error}");
                assert!(error.to_string().starts_with("no address"), "{error}");
            }
        }
    }
}
