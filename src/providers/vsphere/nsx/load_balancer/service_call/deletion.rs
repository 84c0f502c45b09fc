//! Deletes the load balancer of a Service, without using the configured class or IP pool.

use tracing::warn;

use super::{CallObservation, FamilyTarget, ServiceCall, StepCounts, next};
use crate::base::error_chain::chain;
use crate::cloud::{Error, LeaderToken};
use crate::providers::vsphere::nsx::load_balancer::NsxLoadBalancers;
use crate::providers::vsphere::nsx::load_balancer::backend::{ObjectChange, Request};
use crate::providers::vsphere::nsx::load_balancer::families::{RequestedFamilies, SECOND};
use crate::providers::vsphere::nsx::load_balancer::layout::{ClusterLayout, ObjectKind, Owner};
use crate::providers::vsphere::nsx::load_balancer::ownership::ClassifiedResources;
use crate::providers::vsphere::nsx::load_balancer::plan::Action;
use crate::providers::vsphere::nsx::load_balancer::resource::Resource;
use crate::providers::vsphere::nsx::load_balancer::resource_cache::RequiredFreshness;
use crate::providers::vsphere::nsx::load_balancer::resource_index::ResourceIndex;
use crate::providers::vsphere::nsx::load_balancer::service_request;
use crate::providers::vsphere::nsx::ownership::{OfCluster, by_cluster_uid};
use crate::providers::vsphere::reason;

/// Returns the allocations whose addresses decide about their release: unresolved allocations, and our allocations with
/// an unknown address that a virtual server of another owner may use.
fn undecided(observation: &CallObservation, has_other_servers: bool) -> Vec<Resource> {
    let ClassifiedResources { owned: ours, ambiguous: held, unresolved } = &observation.classified;
    let has_others = held.has(ObjectKind::VirtualServer) || has_other_servers;
    let may_be_used = |one: &&Resource| one.address.is_none() && has_others;
    unresolved.iter().chain(ours.allocations().filter(may_be_used)).cloned().collect()
}

/// Whether a step reads an unrequested and unreferenced object. An account without permission to read the object has
/// not created the object.
fn is_optional(target: &FamilyTarget<'_>, step: &Action<'_>) -> bool {
    let Action::Read { kind, .. } = step else { return false };
    let is_asked_for = match kind {
        ObjectKind::Group => target.desired.features.source_ranges.is_some(),
        ObjectKind::PersistenceProfile => target.desired.features.affinity.is_some(),
        _ => true,
    };
    !is_asked_for && !target.ours.has(ObjectKind::VirtualServer)
}

impl ServiceCall<'_> {
    pub(in crate::providers::vsphere::nsx::load_balancer) async fn delete(mut self) -> Result<(), Error> {
        let result = self.try_delete().await;
        self.record_outcome(&result);
        result
    }

    async fn try_delete(&mut self) -> Result<(), Error> {
        self.cache().begin_deletion(&self.key);
        self.require_fresh(RequiredFreshness::AnyList)?;
        // The IP pool for IPv6 matters only for new load balancers, and none is created here.
        let asked = RequestedFamilies { families: &service_request::families_of(self.service), has_ipv6_pool: false };
        let mut steps = StepCounts::begin();
        for _ in 0..self.most_steps() {
            let observation = self.observe_for_write()?;
            self.record_ip_pools(&observation);
            let open = self.undecided(&observation);
            if self.read_one(&open, self.lacks_address(&observation)).await? {
                continue;
            }
            let targets = self.targets_of_deletion(&observation, &asked);
            let has_second =
                asked.families.contains(&SECOND) || targets.iter().any(|one| one.balancer.secondary.is_some());
            let expected = self.expected_servers(if has_second { &[None, Some(SECOND)] } else { &[None] });
            let refused = || {
                let allocation = self.refused_allocation(&observation)?;
                let target = targets.iter().find(|target| target.balancer.secondary == allocation.tags.secondary)?;
                Some((target, Action::Delete(allocation)))
            };
            let next = next(&targets).or_else(refused);
            self.record_plan(&targets, &observation, next.as_ref(), &Vec::new());
            // A deletion only marks objects: NSX may serve the address of a deleted virtual server for some time.
            let is_last = next.as_ref().is_none_or(|(_, step)| step.is_release());
            if is_last && self.finds_missed_server(&expected).await? {
                continue;
            }
            let Some((target, step)) = next else { return self.end(&observation).await };
            steps.check_time()?;
            // A single list may miss the virtual server that uses this address.
            if step.is_release() && !self.cache().was_complete(&self.key) {
                self.require_fresh(RequiredFreshness::TwoLists)?;
            }
            if let Err(error) = self.perform(target, &step).await {
                if let Action::Read { path, .. } = &step
                    && error.reason() == reason::NSXNoPermission
                    && is_optional(target, &step)
                {
                    warn!(service = self.key, "cannot check what an interrupted deletion has left: {}", chain(&error));
                    self.settled_paths.lock().insert(path.as_str().into());
                    continue;
                }
                // A virtual server that the lists missed, or a deleted one, may refer to the object.
                let is_refused = matches!(error, Error::Pending { .. }) || error.reason() == reason::NSXRefused;
                if matches!(step, Action::Delete(_)) && is_refused && self.finds_missed_server(&expected).await? {
                    continue;
                }
                return Err(error);
            }
            if let Action::Delete(allocation) = step
                && step.is_release()
                && self.is_gone(&allocation.tags.path)
            {
                self.cache().record_release(&self.key, allocation.address, &self.ingress);
            }
            if steps.repeats(&step) {
                break;
            }
        }
        Err(self.endless(&steps))
    }

    /// Returns the allocations whose addresses a deletion reads before its plan.
    pub(super) fn undecided(&self, observation: &CallObservation) -> Vec<Resource> {
        undecided(observation, self.cache().read(ResourceIndex::has_other_servers))
    }

    /// Returns the load balancers of the Service, without any desired ports.
    pub(super) fn targets_of_deletion<'o>(
        &self,
        observation: &'o CallObservation,
        asked: &RequestedFamilies<'_>,
    ) -> Vec<FamilyTarget<'o>> {
        let balancers = asked.balancers(&observation.classified.owned);
        balancers.into_iter().map(|one| self.empty_target(observation, one)).collect()
    }

    /// Returns an allocation without an address from an exhausted IP pool. No virtual server can use the allocation.
    fn refused_allocation<'s>(&self, observation: &'s CallObservation) -> Option<&'s Resource> {
        let mut allocations = observation.classified.owned.allocations();
        allocations.find(|one| self.without_address.get(&one.tags.path) == Some(&true))
    }

    fn is_gone(&self, path: &str) -> bool {
        self.cache().of_service(&self.key).at(path).is_none()
    }

    /// Finishes the deletion when all cached objects of the Service are deleted.
    async fn end(&self, observation: &CallObservation) -> Result<(), Error> {
        self.check_left(observation)?;
        self.check_absence(&self.ingress, &self.record_ip_pools(observation))?;
        match delete_lb_service(self.provider, self.permit()?, &self.layout).await {
            Err(Error::NotLeader) => return Err(Error::NotLeader),
            // The failure is temporary. The deletion of this Service is retried, because possibly no other deletion
            // follows. Orphans, which have no UID, are not retried.
            Err(error) if error.reason() == reason::NSXUnavailable && self.uid().is_some() => return Err(error),
            // No object of this Service is left, and the next deletion of any Service tries again.
            Err(error) => warn!(service = self.key, "{}", chain(&error)),
            Ok(()) => {}
        }
        // A single list may miss objects, or may be older than objects that another process created for the Service.
        let moment = self.cache().last_answer(&self.key).unwrap_or_else(|| self.cache().answered(&self.key));
        // An earlier process may have left an address in an IP pool that is not configured now.
        let released = self.cache().released(&self.key);
        let missing = self.ingress.iter().filter(|address| !released.contains(&Some(**address))).count();
        // A released allocation with an unknown address may have had one of the missing addresses.
        let is_anywhere = missing > released.iter().filter(|address| address.is_none()).count();
        self.require_fresh(if is_anywhere {
            RequiredFreshness::AllIpPoolsListedAfter(moment)
        } else {
            RequiredFreshness::ListedAfter(moment)
        })?;
        let left = self.cache().left_in_effect(&self.key);
        self.cache().forget(&self.key);
        self.remark_left(&left);
        self.remark_kept(observation);
        Ok(())
    }

    /// Whether the allocation at this path stays, because a virtual server of another owner uses its address.
    fn is_kept(&self, observation: &CallObservation, path: &str) -> bool {
        let mut allocations = observation.classified.owned.allocations();
        let address = allocations.find(|one| *one.tags.path == *path).and_then(|one| one.address);
        address.is_some_and(|address| observation.addresses_in_use.contains(&address))
    }

    fn remark_kept(&self, observation: &CallObservation) {
        let mut kept = Vec::new();
        for address in &observation.addresses_in_use {
            if let Some(server) = self.cache().read(|index| index.other_server_on(*address, &[])) {
                kept.push(format!("{address}, which the virtual server {server} has"));
            }
        }
        if kept.is_empty() {
            return;
        }
        let message = format!(
            "the load balancer is deleted, and its address stays reserved in NSX, because it is in use: {}. It is released \
             when no virtual server has it",
            kept.join("; ")
        );
        warn!(service = self.key, "{message}");
        if self.uid().is_some() {
            self.cache().set_event(&self.key, reason::AddressNotReleased, Some(message));
        }
    }

    /// Checks that no object of the Service is left, except allocations for which [`Self::is_kept`] returns true. Also
    /// fails for a virtual server that is ambiguous only because another load balancer service is configured.
    fn check_left(&self, observation: &CallObservation) -> Result<(), Error> {
        let left: Vec<&str> =
            observation.classified.owned.paths().filter(|path| !self.is_kept(observation, path)).collect();
        if self.misplaced(observation).is_some() {
            self.check_lb_service(observation)?;
        }
        if left.is_empty() {
            return Ok(());
        }
        let left = left.join(", ");
        let message = format!(
            "the load balancer is not deleted: virtual servers or pools that are neither changed nor deleted by this program \
             use {left}; the log names them as held"
        );
        Err(Error::Failed { reason: reason::NSXRefused, message, after: None })
    }
}

/// Deletes the unused load balancer service of this cluster, unless one is configured by id. If NSX refuses the
/// deletion, or a call in flight creates a load balancer, the cache schedules a retry.
pub(in crate::providers::vsphere::nsx::load_balancer) async fn delete_lb_service(
    of: &NsxLoadBalancers,
    permit: &LeaderToken,
    layout: &ClusterLayout,
) -> Result<(), Error> {
    if of.selection().id.is_some() {
        return Ok(());
    }
    let Ok(Some(lb_service)) = of.resources.lb_service(of.selection(), layout.cluster_uid.as_deref()) else {
        return Ok(());
    };
    let of_cluster = by_cluster_uid(layout.cluster_uid.as_deref(), lb_service.tags.cluster_uid.as_deref());
    let is_ours = of_cluster == OfCluster::This && lb_service.tags.are_of_first_load_balancer();
    if !is_ours || of.resources.read(|index| index.servers_on(&lb_service.tags.path)) > 0 {
        return Ok(());
    }
    permit.check()?;
    let record = |change| of.resources.record(&change, layout);
    // A call in flight may create a virtual server on it, so the deletion is retried as after a refusal.
    if !of.resources.demands().is_empty() {
        record(ObjectChange::Referenced(lb_service.tags.path.to_string()));
        return Ok(());
    }
    let owner = Owner { service: "", uid: "" };
    let request = Request { permit, layout, owner, spec: None };
    of.backend.perform(&request, &Action::Delete(&lb_service), &record).await
}
