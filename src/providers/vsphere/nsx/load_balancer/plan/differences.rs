//! Pure: finds the settings of a Service that are not applied to its adopted load balancer.

use super::port_states::{PortState, PortStates};
use super::references::{has_features, has_reference};
use super::{CurrentState, DesiredLoadBalancer, address};
use crate::providers::vsphere::nsx::load_balancer::layout::{ObjectKind, Protocol};
use crate::providers::vsphere::nsx::load_balancer::service_request::{ANNOTATION_SNAT, ANNOTATION_UDP_CHECK, Features};

/// Returns the fields and annotations of the Service that are ignored for a load balancer of another program.
pub fn ignored(desired: &DesiredLoadBalancer, current: &CurrentState<'_>) -> Vec<&'static str> {
    let rows = PortStates::find(desired, current, address(desired, current.ours));
    let adopted: Vec<&PortState<'_>> = rows.all().filter(|row| !row.is_compared).collect();
    let differs =
        |field: fn(&PortState<'_>, &DesiredLoadBalancer) -> bool| adopted.iter().any(|row| field(row, desired));
    let has_other = |kind| adopted.iter().any(|row| has_other_reference(kind, row, desired, current));
    let all = [
        ("spec.loadBalancerSourceRanges", has_other(ObjectKind::Group)),
        ("spec.sessionAffinity", has_other(ObjectKind::PersistenceProfile)),
        ("spec.externalTrafficPolicy", differs(has_no_health_check)),
        (ANNOTATION_UDP_CHECK, differs(has_no_icmp_check)),
        (ANNOTATION_SNAT, differs(has_other_snat)),
        ("spec.loadBalancerIP", differs(has_other_address)),
    ];
    all.into_iter().filter(|(_, is_ignored)| *is_ignored).map(|(name, _)| name).collect()
}

/// Whether the virtual server refers to another group or persistence profile than the Service requests.
fn has_other_reference(
    kind: ObjectKind,
    row: &PortState<'_>,
    desired: &DesiredLoadBalancer,
    current: &CurrentState<'_>,
) -> bool {
    let Some(server) = row.server else { return false };
    if !has_reference(&desired.features, kind) {
        return !server.reference(kind).is_empty();
    }
    let is_enforced = kind != ObjectKind::Group || server.spec.is_restricted;
    let found = current.ours.at(server.reference(kind)).filter(|_| is_enforced);
    found.is_none_or(|one| !has_features(one, &desired.features))
}

fn has_no_health_check(_: &PortState<'_>, desired: &DesiredLoadBalancer) -> bool {
    desired.features.health_check.is_some()
}

fn has_no_icmp_check(row: &PortState<'_>, desired: &DesiredLoadBalancer) -> bool {
    let Features { health_check, has_icmp_check, .. } = &desired.features;
    row.port.port.protocol == Protocol::Udp && *has_icmp_check && health_check.is_none()
}

fn has_other_snat(row: &PortState<'_>, desired: &DesiredLoadBalancer) -> bool {
    row.pool.is_some_and(|pool| pool.spec.is_snat_disabled != Some(desired.features.is_snat_disabled))
}

fn has_other_address(row: &PortState<'_>, desired: &DesiredLoadBalancer) -> bool {
    row.server.is_some_and(|server| desired.features.address.is_some() && server.address != desired.features.address)
}
