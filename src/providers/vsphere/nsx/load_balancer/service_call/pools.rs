//! Handles IP pools that this account may not list. Only operations that depend on such a pool wait, and an address
//! that the pool may contain is never treated as absent.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tokio::time::Instant;

use super::{CallObservation, FamilyTarget, ServiceCall};
use crate::base::error_chain::chain;
use crate::cloud::Error;
use crate::providers::vsphere::config::IpPool;
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::nsx::load_balancer::layout::ObjectKind;
use crate::providers::vsphere::nsx::load_balancer::ownership::ClassifiedResources;
use crate::providers::vsphere::nsx::load_balancer::resource::{Resource, ServiceResources};
use crate::providers::vsphere::nsx::load_balancer::resource_cache::RequiredFreshness;
use crate::providers::vsphere::nsx::load_balancer::{RECENT, service_request};

/// Returns the IP pools that objects of the Service name.
fn named(ClassifiedResources { owned: ours, unresolved, .. }: &ClassifiedResources) -> BTreeSet<Box<str>> {
    let of_unresolved = unresolved.iter().map(|allocation| &*allocation.address_pool);
    ours.address_pools().chain(of_unresolved).map(Into::into).collect()
}

/// Whether an object has an address that the Service reports. Also true if the Service reports no address.
fn has_reported(ours: &ServiceResources, ingress: &[IpAddr]) -> bool {
    ingress.is_empty() || ours.iter().any(|one| ingress.iter().any(|address| one.has_address(*address)))
}

impl ServiceCall<'_> {
    /// Returns the ids of the IP pools of the class of the Service; `None` if unknown.
    fn pools_of_class(&self) -> Option<Vec<String>> {
        let class = service_request::class_of(self.service);
        let mut ids = match self.provider.config.class(class)?.pool {
            IpPool::Id(id) => vec![id.clone()],
            IpPool::Name(name) => self.cache().names().pools.get(name).cloned()?,
        };
        ids.extend(self.provider.config.ipv6_pools.get(class).cloned());
        Some(ids)
    }

    /// Checks that none of these addresses may be in an unlistable IP pool. `named` contains the IP pools that the
    /// objects of the Service name, or named before their deletion. If `named` is empty, a reported address may be in
    /// any IP pool, and an unreported address in those of the class.
    pub(super) fn check_absence(&self, ingress: &[IpAddr], named: &BTreeSet<Box<str>>) -> Result<(), Error> {
        let of_class = self.pools_of_class();
        self.check_listed(|pool| match (named.is_empty(), ingress.is_empty()) {
            (false, _) => named.contains(pool),
            (true, false) => true,
            (true, true) => of_class.as_ref().is_none_or(|ids| ids.iter().any(|id| id == pool)),
        })
    }

    /// Checks that no IP pool that may have an address of the Service is unread.
    fn check_listed(&self, may_have: impl Fn(&str) -> bool) -> Result<(), Error> {
        let Some(list_error) = self.cache().unlistable_ip_pool_error(may_have) else { return Ok(()) };
        let (reason, after) = (list_error.reason(), list_error.retry_after());
        let message = format!(
            "an address of Service {} may be in a pool of addresses that cannot be listed: {}",
            self.key,
            chain(&list_error)
        );
        Err(self.unless_outdated(Error::Failed { reason, message, after }))
    }

    /// Returns this error if a recent list confirms it; otherwise requests a relist.
    pub(super) fn unless_outdated(&self, error: Error) -> Error {
        match Instant::now().checked_sub(RECENT) {
            Some(moment) => self.require_fresh(RequiredFreshness::ListedAfter(moment)).err().unwrap_or(error),
            None => error,
        }
    }

    /// Records the IP pools that objects of the Service name, before the objects are deleted.
    pub(super) fn record_ip_pools(&self, observation: &CallObservation) -> BTreeSet<Box<str>> {
        let named = named(&observation.classified);
        self.cache().record_ip_pools(&self.key, named.iter().map(AsRef::as_ref))
    }

    /// Records the IP pools of a load balancer that is deleted because the Service does not need its family.
    pub(super) fn record_removed(&self, targets: &[FamilyTarget<'_>]) {
        for target in targets.iter().filter(|target| !target.balancer.is_wanted) {
            self.cache().record_ip_pools(&self.key, target.ours.address_pools());
        }
    }

    /// Checks that no address that the Service reports but no longer uses may still be allocated in an unlistable IP
    /// pool.
    pub(super) fn check_removed(&self, addresses: &[IpAddr]) -> Result<(), Error> {
        let removed: Vec<IpAddr> =
            self.ingress.iter().copied().filter(|address| !addresses.contains(address)).collect();
        if removed.is_empty() {
            return Ok(());
        }
        let named = self.cache().record_ip_pools(&self.key, std::iter::empty());
        self.check_absence(&removed, &named)
    }

    /// Checks that no allocation in an unlistable IP pool may have the address of a load balancer without virtual
    /// servers.
    pub(super) fn check_choice(&self, target: &FamilyTarget<'_>) -> Result<(), Error> {
        let ours = &target.ours;
        let secondary = target.balancer.secondary;
        let family = target.balancer.family;
        if ours.has(ObjectKind::VirtualServer) {
            return Ok(());
        }
        let ingress: Vec<IpAddr> =
            self.ingress.iter().copied().filter(|address| IpFamily::of(*address) == family).collect();
        let is_its = |one: &&Resource| one.tags.secondary == secondary;
        let unresolved = &target.observation.classified.unresolved;
        let of_unresolved = unresolved.iter().filter(is_its).map(|allocation| &*allocation.address_pool);
        let (named, has_reported) = (ours.address_pools().chain(of_unresolved), has_reported(ours, &ingress));
        let named: BTreeSet<&str> = named.collect();
        let pool = target.spec.as_ref().map(|spec| spec.address_pool.as_str());
        let is_reserved_here = |id: &str| !ours.has(ObjectKind::Allocation) && pool == Some(id);
        self.check_listed(|id| !has_reported || named.contains(id) || is_reserved_here(id))
    }
}
