//! Pure: which load balancers a Service has: one for each family of addresses that there is a pool for.
//!
//! The first one has its address from the pool of the class and is as the Go program makes it, so that this program can be
//! replaced by that. The second one is of IPv6, has its address from the pool of `--nsx-ipv6-pool`, and has tags that the Go
//! program does not know.

use std::net::IpAddr;

use super::layout::has_own_form;
use super::objects::{OwnerTags, ServiceResources};
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::config::address_rules::IpFamily::{V4, V6};

/// The family of second load balancers.
pub const SECOND: IpFamily = V6;

/// What a Service asks for, and what the configuration has for it.
#[derive(Clone, Copy, Debug)]
pub struct RequestedFamilies<'a> {
    /// The families of the Service in their order, at least one.
    pub families: &'a [IpFamily],
    /// Whether the class has a pool of addresses for IPv6 beside its own.
    pub has_ipv6_pool: bool,
}

/// One load balancer of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyLoadBalancer {
    /// Its family, if it is the second one.
    pub second: Option<IpFamily>,
    /// The family of its address and members.
    pub family: IpFamily,
    /// Whether it is to be there.
    pub is_wanted: bool,
}

impl RequestedFamilies<'_> {
    /// The load balancers that a Service has or is to have.
    ///
    /// A second one that is there is needed no pool for: it stays when the flag goes. A first one of another program stays also
    /// where the Service does not ask for its family: its address is known to clients.
    pub fn balancers(&self, ours: &ServiceResources) -> Vec<FamilyLoadBalancer> {
        let first = address_of(ours, None).map(IpFamily::of);
        let has_pool = self.has_ipv6_pool || has_address(ours, Some(SECOND));
        // It may have the family of the second one: that is begun when the address is known.
        let is_unread = first.is_none() && has_address(ours, None) && !has_address(ours, Some(SECOND));
        let has_second = self.asks_for(SECOND) && first != Some(SECOND) && has_pool && !is_unread;
        let of_first = || ours.marks().filter(|marks| marks.second.is_none());
        let is_adopted = of_first().any(|marks| !has_own_form(&marks.id));
        let family = first.unwrap_or(if self.asks_for(V4) { V4 } else { V6 });
        let is_wanted = self.asks_for(V4) || !has_second || is_adopted;
        let mut all = Vec::new();
        if is_wanted || of_first().next().is_some() {
            all.push(FamilyLoadBalancer { second: None, family, is_wanted });
        }
        if has_second || ours.marks().any(|marks| marks.second == Some(SECOND)) {
            all.push(FamilyLoadBalancer { second: Some(SECOND), family: SECOND, is_wanted: has_second });
        }
        all
    }

    fn asks_for(&self, family: IpFamily) -> bool {
        self.families.contains(&family)
    }

    /// The family that a new load balancer has to have. Without one that of its pool decides, as in the Go program.
    pub fn required(&self, balancer: &FamilyLoadBalancer) -> Option<IpFamily> {
        match balancer.second {
            Some(second) => Some(second),
            None if !self.asks_for(V4) => Some(V6),
            None if self.asks_for(V6) && self.has_ipv6_pool => Some(V4),
            None => None,
        }
    }
}

/// The address of the first load balancer, or of the second one, which is of this family.
fn address_of(ours: &ServiceResources, second: Option<IpFamily>) -> Option<IpAddr> {
    let servers = ours.servers.iter().filter(|one| one.marks.second == second);
    let allocations = ours.allocations.iter().filter(|one| one.marks.second == second);
    servers.filter_map(|one| one.address).chain(allocations.filter_map(|one| one.address)).next()
}

/// Whether the first load balancer, or the second one of this family, has an address, also one that is not known yet.
fn has_address(ours: &ServiceResources, second: Option<IpFamily>) -> bool {
    let has = |marks: &OwnerTags| marks.second == second;
    ours.servers.iter().any(|one| has(&one.marks)) || ours.allocations.iter().any(|one| has(&one.marks))
}

/// The addresses in the order of the families that a Service asks for.
pub fn in_order(families: &[IpFamily], addresses: impl IntoIterator<Item = IpAddr>) -> Vec<IpAddr> {
    let place = |address: &IpAddr| {
        families.iter().position(|family| *family == IpFamily::of(*address)).unwrap_or(families.len())
    };
    let mut addresses: Vec<IpAddr> = addresses.into_iter().collect();
    addresses.sort_by_key(place);
    addresses
}

#[cfg(test)]
mod tests;
