//! Pure: finds the settings of a Service that are not applied to its adopted load balancer.

use super::port_states::{PortState, PortStates};
use super::references::{has_features, has_reference};
use super::{CurrentState, DesiredLoadBalancer, address};
use crate::providers::vsphere::nsx::load_balancer::layout::{ObjectKind, Protocol};
use crate::providers::vsphere::nsx::load_balancer::service_request::{ANNOTATION_SNAT, ANNOTATION_UDP_CHECK, Features};

/// Returns the fields and annotations of the Service that are ignored for a load balancer of another program.
pub fn ignored(wanted: &DesiredLoadBalancer, known: &CurrentState<'_>) -> Vec<&'static str> {
    let rows = PortStates::find(wanted, known, address(wanted, known.ours));
    let adopted: Vec<&PortState<'_>> = rows.all().filter(|row| !row.is_compared).collect();
    let differs =
        |field: fn(&PortState<'_>, &DesiredLoadBalancer) -> bool| adopted.iter().any(|row| field(row, wanted));
    let has_other = |kind| adopted.iter().any(|row| has_other_reference(kind, row, wanted, known));
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
    wanted: &DesiredLoadBalancer,
    known: &CurrentState<'_>,
) -> bool {
    let Some(server) = row.server else { return false };
    if !has_reference(&wanted.features, kind) {
        return !server.reference(kind).is_empty();
    }
    let is_enforced = kind != ObjectKind::Group || server.spec.is_restricted;
    let found = known.ours.at(server.reference(kind)).filter(|_| is_enforced);
    found.is_none_or(|one| !has_features(one, &wanted.features))
}

fn has_no_health_check(_: &PortState<'_>, wanted: &DesiredLoadBalancer) -> bool {
    wanted.features.health_check.is_some()
}

fn has_no_icmp_check(row: &PortState<'_>, wanted: &DesiredLoadBalancer) -> bool {
    let Features { health_check, has_icmp_check, .. } = &wanted.features;
    row.port.port.protocol == Protocol::Udp && *has_icmp_check && health_check.is_none()
}

fn has_other_snat(row: &PortState<'_>, wanted: &DesiredLoadBalancer) -> bool {
    row.pool.is_some_and(|pool| pool.spec.is_snat_disabled != Some(wanted.features.is_snat_disabled))
}

fn has_other_address(row: &PortState<'_>, wanted: &DesiredLoadBalancer) -> bool {
    row.server.is_some_and(|server| wanted.features.address.is_some() && server.address != wanted.features.address)
}
