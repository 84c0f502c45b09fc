//! Deletes the load balancer of a Service. Needs neither the class nor the pool of the configuration.

use tracing::warn;

use super::pools::check_absence;
use super::realization::TeardownState;
use super::{CallObservation, FamilyTarget, ServiceCall, Steps, next};
use crate::base::error_chain::chain;
use crate::cloud::{Error, LeaderToken};
use crate::providers::vsphere::nsx::load_balancer::NsxLoadBalancers;
use crate::providers::vsphere::nsx::load_balancer::families::{RequestedFamilies, SECOND};
use crate::providers::vsphere::nsx::load_balancer::layout::{ClusterLayout, ObjectKind};
use crate::providers::vsphere::nsx::load_balancer::objects::Allocation;
use crate::providers::vsphere::nsx::load_balancer::ownership::ClassifiedResources;
use crate::providers::vsphere::nsx::load_balancer::plan::Step;
use crate::providers::vsphere::nsx::load_balancer::resource_cache::RequiredFreshness;
use crate::providers::vsphere::nsx::load_balancer::resource_index::Selection;
use crate::providers::vsphere::nsx::load_balancer::service_request;
use crate::providers::vsphere::nsx::ownership::{OfCluster, by_cluster_uid};
use crate::providers::vsphere::reason;

/// The allocations whose addresses decide whether they are released: those that only a virtual server, while it is there,
/// shows to be ours, and those that a virtual server of others may have.
fn undecided(seen: &CallObservation, has_other_servers: bool) -> Vec<Allocation> {
    let ClassifiedResources { owned: ours, ambiguous: held, unresolved: unread } = &seen.judged;
    let may_be_used = |one: &&Allocation| one.address.is_none() && (!held.servers.is_empty() || has_other_servers);
    unread.iter().chain(ours.allocations.iter().filter(may_be_used)).cloned().collect()
}

/// Whether a read is of a group or persistence profile that the Service does not ask for and no virtual server leads to: an account
/// without the permission to read it has made none.
fn is_optional(target: &FamilyTarget, step: &Step<'_>) -> bool {
    let Step::Read { kind, .. } = step else { return false };
    let is_asked_for = match kind {
        ObjectKind::Group => target.wanted.features.source_ranges.is_some(),
        ObjectKind::PersistenceProfile => target.wanted.features.affinity.is_some(),
        _ => true,
    };
    !is_asked_for && target.ours.servers.is_empty()
}

impl ServiceCall<'_> {
    pub(in crate::providers::vsphere::nsx::load_balancer) async fn delete(mut self) -> Result<(), Error> {
        self.inventory().begin_deletion(&self.key);
        self.check(RequiredFreshness::AnyList)?;
        let asked = RequestedFamilies { families: &service_request::families_of(self.service), has_ipv6_pool: false };
        let mut steps = Steps::begin();
        for _ in 0..self.most_steps() {
            let seen = self.observe_with_nodes()?;
            self.note_pools(&seen);
            let open = undecided(&seen, self.inventory().has_other_servers());
            if self.read_one(&open, self.lacks_address(&seen)).await? {
                continue;
            }
            let balancers = asked.balancers(&seen.judged.owned);
            let has_second = asked.families.contains(&SECOND) || balancers.iter().any(|one| one.second.is_some());
            let expected = self.expected_servers(if has_second { &[None, Some(SECOND)] } else { &[None] });
            let targets: Vec<FamilyTarget> = balancers.into_iter().map(|one| self.deletion(&seen, one)).collect();
            let refused = || {
                let allocation = self.refused_allocation(&seen)?;
                let target = targets.iter().find(|target| target.balancer.second == allocation.marks.second)?;
                Some((target, Step::ReleaseAddress(allocation)))
            };
            let next = next(&targets, &seen).or_else(refused);
            // A deletion is a mark: what was deleted may serve the address for a while.
            let is_last = next.as_ref().is_none_or(|(_, step)| matches!(step, Step::ReleaseAddress(_)));
            if is_last && self.check_teardown(&expected).await? == TeardownState::Found {
                continue;
            }
            let Some((target, step)) = next else { return self.end(&seen).await };
            steps.check_time()?;
            // One reading may miss the virtual server that has the address.
            if matches!(step, Step::ReleaseAddress(_)) && !self.inventory().was_complete(&self.key) {
                self.check(RequiredFreshness::TwoLists)?;
            }
            if let Err(error) = self.perform(target, &step).await {
                if let Step::Read { path, .. } = &step
                    && error.reason() == reason::NSXNoPermission
                    && is_optional(target, &step)
                {
                    warn!(service = self.key, "cannot check what an interrupted deletion has left: {}", chain(&error));
                    self.read.lock().insert(path.as_str().into());
                    continue;
                }
                // A virtual server that listings miss may refer to it, also where one that was deleted may.
                let is_refused = matches!(error, Error::Pending { .. }) || error.reason() == reason::NSXRefused;
                if step.is_deletion() && is_refused && self.check_teardown(&expected).await? == TeardownState::Found {
                    continue;
                }
                return Err(error);
            }
            if let Step::ReleaseAddress(allocation) = step
                && self.is_gone(&allocation.marks.path)
            {
                self.inventory().note_release(&self.key, allocation.address, &self.ingress);
            }
            if steps.repeats(&step) {
                break;
            }
        }
        Err(self.endless(&steps))
    }

    /// An allocation that NSX refuses an address: no virtual server has it, whoever made that.
    fn refused_allocation<'s>(&self, seen: &'s CallObservation) -> Option<&'s Allocation> {
        seen.judged.owned.allocations.iter().find(|one| self.without_address.get(&one.marks.path) == Some(&true))
    }

    fn is_gone(&self, path: &str) -> bool {
        self.inventory().of_service(&self.key).paths().all(|known| *known != *path)
    }

    /// Nothing of the Service is left that is known.
    async fn end(&self, seen: &CallObservation) -> Result<(), Error> {
        self.check_left(seen)?;
        check_absence(self.of, self.service, &self.key, &self.ingress, &self.note_pools(seen))?;
        match delete_lb_service(self.of, self.permit, &self.layout).await {
            Err(Error::NotLeader) => return Err(Error::NotLeader),
            // Such a failure passes, and there may be no other deletion. That of an orphan is not repeated.
            Err(error) if error.reason() == reason::NSXUnavailable && self.uid().is_some() => return Err(error),
            // Nothing of the Service is left, and the next deletion tries again.
            Err(error) => warn!(service = self.key, "{}", chain(&error)),
            Ok(()) => {}
        }
        // One reading may miss objects, or be older than those of a Service that another process looked after.
        let moment = self.inventory().last_answer(&self.key).unwrap_or_else(|| self.inventory().answered(&self.key));
        // An address that an earlier process has left may be in a pool that the configuration named then.
        let released = self.inventory().released(&self.key);
        let missing = self.ingress.iter().filter(|address| !released.contains(&Some(**address))).count();
        // One without a known address may be one of these.
        let is_anywhere = missing > released.iter().filter(|address| address.is_none()).count();
        self.check(if is_anywhere {
            RequiredFreshness::AllPoolsListedAfter(moment)
        } else {
            RequiredFreshness::ListedAfter(moment)
        })?;
        let left = self.inventory().left_in_effect(&self.key);
        self.inventory().forget(&self.key);
        self.remark_left(&left);
        self.remark_kept(seen);
        Ok(())
    }

    /// Whether this is an address that a virtual server of another owner has: it stays reserved.
    fn is_kept(&self, seen: &CallObservation, path: &str) -> bool {
        let ClassifiedResources { owned: ours, .. } = &seen.judged;
        let is_used = |one: &Allocation| one.address.is_some_and(|address| seen.elsewhere.contains(&address));
        ours.allocations.iter().any(|one| *one.marks.path == *path && is_used(one))
    }

    /// Says which addresses stay reserved, and why.
    fn remark_kept(&self, seen: &CallObservation) {
        let kept: Vec<String> = seen
            .elsewhere
            .iter()
            .filter_map(|address| Some((address, self.inventory().other_server_on(*address, &[])?)))
            .map(|(address, server)| format!("{address}, which the virtual server {server} has"))
            .collect();
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
            self.inventory().remark(&self.key, reason::AddressNotReleased, Some(message));
        }
    }

    /// Whether something is left that is the Service's. A virtual server with its address is held while the configuration names
    /// another load balancer service.
    fn check_left(&self, seen: &CallObservation) -> Result<(), Error> {
        let left: Vec<&str> = seen.judged.owned.paths().filter(|path| !self.is_kept(seen, path)).collect();
        if self.misplaced(seen).is_some() {
            self.check_lb_service(seen)?;
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

/// Deletes the load balancer service, if this program made it and nothing runs on it. If NSX refuses that because something
/// still refers to it, the inventory has it tried again.
pub(in crate::providers::vsphere::nsx::load_balancer) async fn delete_lb_service(
    of: &NsxLoadBalancers,
    permit: &LeaderToken,
    layout: &ClusterLayout,
) -> Result<(), Error> {
    let Selection::Managed { .. } = of.selection() else { return Ok(()) };
    let Ok(Some(lb_service)) = of.inventory.lb_service(of.selection(), layout.cluster_uid.as_deref()) else {
        return Ok(());
    };
    let of_cluster = by_cluster_uid(layout.cluster_uid.as_deref(), lb_service.cluster_uid.as_deref());
    let is_ours = of_cluster == OfCluster::This && lb_service.is_named_as_ours;
    if !is_ours || of.inventory.servers_on(&lb_service.path) > 0 {
        return Ok(());
    }
    let Some(_removing) = of.inventory.remove() else { return Ok(()) };
    permit.check()?;
    let record = |change| of.inventory.record(&change, layout);
    of.backend.delete_lb_service(permit, layout, &lb_service, &record).await
}
