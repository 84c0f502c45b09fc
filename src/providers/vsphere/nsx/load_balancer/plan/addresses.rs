//! Pure: selects the address of a load balancer, and finds addresses that another client has edited or released.

use std::net::IpAddr;

use super::port_states::{self, PortState, PortStates};
use super::{Action, CurrentState, DesiredLoadBalancer};
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::nsx::load_balancer::layout::ObjectKind;
use crate::providers::vsphere::nsx::load_balancer::resource::{Resource, ServiceResources};

/// Returns the address of the load balancer. Virtual servers take precedence over allocations. Among virtual servers,
/// an address that the Service reports comes first, then the address of a virtual server for a port in `desired`. A
/// virtual server is ignored as edited if its address is not reserved but another address is. Returns `None` if there
/// is no address, or while an allocation with an unknown address may have the reported address.
pub fn address(desired: &DesiredLoadBalancer, ours: &ServiceResources) -> Option<IpAddr> {
    let servers = || ours.servers().filter(|server| !is_edited(server, ours, desired.has_unresolved));
    let of_servers = || servers().filter_map(|server| server.address);
    let is_wanted = |server: &&Resource| desired.ports.iter().any(|port| server.tags.port == Some(port.port));
    let of_wanted = || servers().filter(is_wanted).find_map(|server| server.address);
    let of_allocations = || ours.allocations().filter_map(|allocation| allocation.address);
    let are_read = ours.allocations().all(|allocation| allocation.address.is_some());
    let is_reported = |address: &IpAddr| desired.ingress.contains(address);
    of_servers()
        .find(is_reported)
        .or_else(of_wanted)
        .or_else(|| of_servers().next())
        .or_else(|| of_allocations().find(is_reported))
        .or_else(|| of_allocations().next().filter(|_| are_read || desired.ingress.is_empty()))
}

/// Returns the address of the virtual servers, if any, or the reserved address if all virtual servers were edited.
pub fn shown_address(ours: &ServiceResources, has_unresolved: bool) -> Option<IpAddr> {
    let servers = ours.servers().filter(|server| !is_edited(server, ours, has_unresolved));
    let reserved = || ours.allocations().filter(|_| ours.has(ObjectKind::VirtualServer)).find_map(|one| one.address);
    servers.filter_map(|server| server.address).next().or_else(reserved)
}

/// Whether the address of a virtual server differs from all reserved addresses; false without an allocation, or while
/// the address of one is unknown.
fn is_edited(server: &Resource, ours: &ServiceResources, has_unresolved: bool) -> bool {
    let mut allocations = ours.allocations();
    let is_known = !has_unresolved && ours.has(ObjectKind::Allocation);
    is_known && allocations.all(|one| one.address.is_some() && one.address != server.address)
}

/// Whether the Service reports an address, but the virtual servers have only other addresses of the same family.
pub fn is_doubtful(ingress: &[IpAddr], ours: &ServiceResources) -> bool {
    let is_other = |address: IpAddr| {
        let of_family = |one: &&IpAddr| IpFamily::of(**one) == IpFamily::of(address);
        let mut of_servers = ours.servers().filter_map(|server| server.address);
        ingress.iter().any(|one| of_family(&one)) && !of_servers.any(|one| of_family(&&one) && ingress.contains(&one))
    };
    ours.servers().filter_map(|server| server.address).any(is_other)
}

/// Returns the step that restores the address of an edited virtual server. Skips a virtual server if `is_compared` is
/// false, or if another virtual server occupies the address.
pub fn set_back<'a>(
    rows: &PortStates<'a>,
    desired: &DesiredLoadBalancer,
    current: &CurrentState<'a>,
    address: IpAddr,
) -> Option<Action<'a>> {
    let mut all = edited_in(rows, desired, current).filter(|(row, _)| row.is_compared);
    let (_, server) = all.find(|(row, server)| {
        !current
            .servers()
            .any(|other| other.tags.path != server.tags.path && port_states::listens(other, row.port, address))
    })?;
    Some(Action::update(server, Resource { address: Some(address), ..server.clone() }))
}

/// Returns the virtual servers with an edited address.
pub fn edited<'a>(desired: &'a DesiredLoadBalancer, current: &CurrentState<'a>) -> Vec<&'a Resource> {
    let rows = PortStates::find(desired, current, address(desired, current.ours));
    edited_in(&rows, desired, current).map(|(_, server)| server).collect()
}

fn edited_in<'r, 'a>(
    rows: &'r PortStates<'a>,
    desired: &'r DesiredLoadBalancer,
    current: &'r CurrentState<'a>,
) -> impl Iterator<Item = (&'r PortState<'a>, &'a Resource)> {
    let of_row = |row: &'r PortState<'a>| row.server.map(|server| (row, server));
    rows.ports.iter().filter_map(of_row).filter(|(_, server)| is_edited(server, current.ours, desired.has_unresolved))
}

/// Returns a virtual server with the address of the load balancer, if no allocation reserves or may reserve this
/// address. The tag of the virtual server names the IP pool for the reservation. Returns `None` after this sync has
/// tried to reserve the address.
pub fn unreserved<'a>(desired: &DesiredLoadBalancer, current: &CurrentState<'a>) -> Option<&'a Resource> {
    let has_none = !current.ours.has(ObjectKind::Allocation) && !desired.has_unresolved;
    let address = address(desired, current.ours).filter(|_| has_none)?;
    let is_held = current.ambiguous.allocations().any(|one| one.address.is_none_or(|ambiguous| ambiguous == address));
    let mut servers = current.ours.servers().filter(|server| server.address == Some(address));
    let server = servers.find(|server| !server.address_pool.is_empty()).filter(|_| !is_held)?;
    (!current.settled_paths.contains(&server.tags.path)).then_some(server)
}
