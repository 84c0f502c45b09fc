//! Pure: selects the load balancers of a Service, one for each address family with an IP pool.
//!
//! The first load balancer takes its address from the IP pool of the class. Its layout is the layout of the Go program,
//! so that the Go program can replace this program. The second load balancer is IPv6, takes its address from
//! `--nsx-ipv6-pool`, and has tags that the Go program does not use.

use std::net::IpAddr;

use super::layout::{ObjectKind, has_own_form};
use super::resource::ServiceResources;
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::config::address_rules::IpFamily::{V4, V6};

/// The family of second load balancers.
pub const SECOND: IpFamily = V6;

/// Families that a Service requests, with the IP pools of the class.
#[derive(Clone, Copy, Debug)]
pub struct RequestedFamilies<'a> {
    /// The families in the order of the Service; at least one.
    pub families: &'a [IpFamily],
    /// Whether the class has an additional IP pool for IPv6.
    pub has_ipv6_pool: bool,
}

/// One load balancer of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilyLoadBalancer {
    /// The family of the second load balancer; `None` for the first load balancer.
    pub secondary: Option<IpFamily>,
    /// The family of the address and the members.
    pub family: IpFamily,
    /// Whether the Service needs this load balancer; if not, the load balancer is deleted.
    pub is_wanted: bool,
}

impl RequestedFamilies<'_> {
    /// Returns the existing and the needed load balancers of a Service.
    ///
    /// An existing second load balancer stays when `--nsx-ipv6-pool` is removed. A first load balancer that another
    /// program created stays even if the Service does not request IPv4, because clients use the address.
    pub fn balancers(&self, ours: &ServiceResources) -> Vec<FamilyLoadBalancer> {
        let first = address_of(ours, None).map(IpFamily::of);
        let has_pool = self.has_ipv6_pool || has_address(ours, Some(SECOND));
        // The unknown address of the first load balancer may be IPv6, so the second load balancer has to wait.
        let is_unknown = first.is_none() && has_address(ours, None) && !has_address(ours, Some(SECOND));
        let has_second = self.asks_for(SECOND) && first != Some(SECOND) && has_pool && !is_unknown;
        let of_first = || ours.iter().filter(|one| one.tags.secondary.is_none());
        let is_adopted = of_first().any(|one| !has_own_form(&one.tags.id));
        let family = first.unwrap_or(if self.asks_for(V4) { V4 } else { V6 });
        let is_wanted = self.asks_for(V4) || !has_second || is_adopted;
        let mut all = Vec::new();
        if is_wanted || of_first().next().is_some() {
            all.push(FamilyLoadBalancer { secondary: None, family, is_wanted });
        }
        if has_second || ours.iter().any(|one| one.tags.secondary == Some(SECOND)) {
            all.push(FamilyLoadBalancer { secondary: Some(SECOND), family: SECOND, is_wanted: has_second });
        }
        all
    }

    fn asks_for(&self, family: IpFamily) -> bool {
        self.families.contains(&family)
    }

    /// Returns the required family of a new load balancer. `None` accepts any family, as in the Go program.
    pub fn required(&self, balancer: &FamilyLoadBalancer) -> Option<IpFamily> {
        match balancer.secondary {
            Some(secondary) => Some(secondary),
            None if !self.asks_for(V4) => Some(V6),
            None if self.asks_for(V6) && self.has_ipv6_pool => Some(V4),
            None => None,
        }
    }
}

/// Returns the address of the first load balancer (`None`), or of the second load balancer with this family.
fn address_of(ours: &ServiceResources, secondary: Option<IpFamily>) -> Option<IpAddr> {
    let mut all = ours.servers().chain(ours.allocations()).filter(|one| one.tags.secondary == secondary);
    all.find_map(|one| one.address)
}

/// Whether this load balancer has an address, even if the address is not read yet.
fn has_address(ours: &ServiceResources, secondary: Option<IpFamily>) -> bool {
    let kinds = [ObjectKind::VirtualServer, ObjectKind::Allocation];
    ours.iter().any(|one| one.tags.secondary == secondary && kinds.contains(&one.kind))
}

/// Sorts addresses in the order of the requested families.
pub fn in_order(families: &[IpFamily], addresses: impl IntoIterator<Item = IpAddr>) -> Vec<IpAddr> {
    let position = |address: &IpAddr| {
        families.iter().position(|family| *family == IpFamily::of(*address)).unwrap_or(families.len())
    };
    let mut addresses: Vec<IpAddr> = addresses.into_iter().collect();
    addresses.sort_by_key(position);
    addresses
}

#[cfg(test)]
mod tests;
