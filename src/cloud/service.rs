//! Pure functions on Services that controllers and providers need: the need for a load balancer, the finalizer, source
//! ranges and health checks. Mirrors `service/helpers/helper.go` of `kubernetes/cloud-provider`.

pub mod cache_filter;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use ipnet::{IpNet, Ipv4Net};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service};

use crate::base::addresses::parse_network_sloppy;
use crate::base::quoting::quoted;

/// The finalizer that keeps a deleted Service until its load balancer is deleted.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// The annotation with comma-separated source ranges. Used only if `spec.loadBalancerSourceRanges` is empty.
pub const ANNOTATION_SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

const LOAD_BALANCER: &str = "LoadBalancer";
const NODE_PORT: &str = "NodePort";

/// Returns true if the Service needs a load balancer of the cloud: it has the type `LoadBalancer` and no class.
pub fn wants_load_balancer(service: &Service) -> bool {
    let class = service.spec.as_ref().and_then(|spec| spec.load_balancer_class.as_ref());
    is_of_type(service, LOAD_BALANCER) && class.is_none()
}

/// Returns true if the Service has the type `LoadBalancer`, with or without a class.
pub fn is_load_balancer(service: &Service) -> bool {
    is_of_type(service, LOAD_BALANCER)
}

/// Returns true if the Service has [`FINALIZER`].
pub fn has_finalizer(service: &Service) -> bool {
    service.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

/// Returns true if a load balancer may have to be deleted: the Service has the finalizer, and is being deleted or has a
/// type other than `LoadBalancer`. A class alone requires no deletion.
pub fn needs_cleanup(service: &Service) -> bool {
    let is_wanted = service.metadata.deletion_timestamp.is_none() && is_of_type(service, LOAD_BALANCER);
    has_finalizer(service) && !is_wanted
}

/// Returns the load balancer addresses in the Service's status.
pub fn ingress(service: &Service) -> &[LoadBalancerIngress] {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.and_then(|balancer| balancer.ingress.as_deref()).unwrap_or_default()
}

/// Returns the networks that are allowed to use the load balancer, or `0.0.0.0/0` if the Service lists none. Fails with
/// the entry that is not a network in CIDR notation.
pub fn source_ranges(service: &Service) -> Result<BTreeSet<IpNet>, InvalidSourceRange> {
    let listed = service.spec.as_ref().and_then(|spec| spec.load_balancer_source_ranges.as_deref()).unwrap_or_default();
    let network = |text: &str| parse_network_sloppy(text.trim()).ok_or_else(|| InvalidSourceRange(text.to_owned()));
    if !listed.is_empty() {
        return listed.iter().map(|text| network(text)).collect();
    }
    let annotations = service.metadata.annotations.as_ref();
    match annotations.and_then(|annotations| annotations.get(ANNOTATION_SOURCE_RANGES)).map(|text| text.trim()) {
        None | Some("") => Ok([everything()].into()),
        Some(text) => text.split(',').map(network).collect(),
    }
}

/// An invalid source range of a Service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("source range {} is not a network; expected CIDR notation such as 192.0.2.0/24", quoted(.0))]
pub struct InvalidSourceRange(pub String);

/// Returns true if the ranges allow every IPv4 address. Upstream does not check IPv6.
pub fn allows_everything(ranges: &BTreeSet<IpNet>) -> bool {
    ranges.contains(&everything())
}

fn everything() -> IpNet {
    IpNet::V4(Ipv4Net::default())
}

/// Returns true if each Node forwards external traffic of the Service only to endpoints on that Node.
pub fn is_only_local(service: &Service) -> bool {
    let policy = service.spec.as_ref().and_then(|spec| spec.external_traffic_policy.as_deref());
    policy == Some("Local") && [LOAD_BALANCER, NODE_PORT].iter().any(|kind| is_of_type(service, kind))
}

/// Returns the port at which each Node reports whether it has endpoints of the Service, if the Service has the type
/// `LoadBalancer` and [`is_only_local`]; 0 until the API server has allocated one.
pub fn health_check_port(service: &Service) -> Option<i32> {
    let port = service.spec.as_ref().and_then(|spec| spec.health_check_node_port).unwrap_or_default();
    (is_only_local(service) && is_of_type(service, LOAD_BALANCER)).then_some(port)
}

fn is_of_type(service: &Service, kind: &str) -> bool {
    service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some(kind)
}
