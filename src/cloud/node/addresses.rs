//! Pure: computes the addresses of a Node from the cloud's report, the Node's current addresses and `--node-ip`.
//!
//! Mirrors `node/helpers/address.go` of `kubernetes/cloud-provider` and `node/util/ips.go` of
//! `kubernetes/component-helpers`.

use k8s_openapi::api::core::v1::{Node, NodeAddress};
use std::net::IpAddr;

use super::{ANNOTATION_PROVIDED_NODE_IP, annotation};
use crate::base::addresses::parse_ip_sloppy;

/// The address type of host names.
pub const HOSTNAME: &str = "Hostname";
/// The address type for traffic inside the cluster.
pub const INTERNAL_IP: &str = "InternalIP";
/// The address type for traffic from outside.
pub const EXTERNAL_IP: &str = "ExternalIP";

/// Error of the annotation with the kubelet's `--node-ip`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProvidedNodeIpError {
    /// This part of the annotation is not an IP address.
    #[error("could not parse {0:?}")]
    Unparsable(String),
    /// The annotation contains neither one address nor one address of each family.
    #[error("must contain either a single IP or a dual-stack pair of IPs")]
    NotADualStackPair,
    /// An address of a pair is unspecified.
    #[error("dual-stack node IP cannot include '0.0.0.0' or '::'")]
    Unspecified,
    /// The cloud does not report this address.
    #[error("failed to get node address from cloud provider that matches ip: {0}")]
    NotReported(IpAddr),
}

/// Returns the Node's addresses, in the Node's order.
pub fn of(node: &Node) -> &[NodeAddress] {
    node.status.as_ref().and_then(|status| status.addresses.as_deref()).unwrap_or_default()
}

/// Returns true if there is an InternalIP or ExternalIP, so that pods can be reached.
pub fn include_an_ip(addresses: &[NodeAddress]) -> bool {
    addresses.iter().any(|address| address.type_ == INTERNAL_IP || address.type_ == EXTERNAL_IP)
}

/// Parses the annotation `alpha.kubernetes.io/provided-node-ip`: one address, or one of each family, without spaces.
pub fn parse_provided_node_ips(text: &str) -> Result<Vec<IpAddr>, ProvidedNodeIpError> {
    let ips: Vec<IpAddr> = text
        .split(',')
        .map(|part| parse_ip_sloppy(part).ok_or_else(|| ProvidedNodeIpError::Unparsable(part.to_owned())))
        .collect::<Result<_, _>>()?;
    match ips.as_slice() {
        [_] => Ok(ips),
        [first, second] if first.is_ipv6() == second.is_ipv6() => Err(ProvidedNodeIpError::NotADualStackPair),
        [first, second] if first.is_unspecified() || second.is_unspecified() => Err(ProvidedNodeIpError::Unspecified),
        [_, _] => Ok(ips),
        _ => Err(ProvidedNodeIpError::NotADualStackPair),
    }
}

/// Moves the addresses in `provided` to the front, in the order of `provided`, and drops all other addresses of the
/// same types. Fails if the cloud does not report a provided address.
pub fn filter_by_provided_ips(
    provided: &[IpAddr],
    cloud: &[NodeAddress],
) -> Result<Vec<NodeAddress>, ProvidedNodeIpError> {
    let mut kept: Vec<NodeAddress> = Vec::new();
    for ip in provided {
        let before = kept.len();
        kept.extend(cloud.iter().filter(|address| parse_ip_sloppy(&address.address) == Some(*ip)).cloned());
        if kept.len() == before {
            return Err(ProvidedNodeIpError::NotReported(*ip));
        }
    }
    let types: Vec<String> = kept.iter().map(|address| address.type_.clone()).collect();
    kept.extend(cloud.iter().filter(|address| !types.contains(&address.type_)).cloned());
    Ok(kept)
}

/// Appends the addresses that `existing` lacks.
pub fn append_unique(existing: &mut Vec<NodeAddress>, more: &[NodeAddress]) {
    for address in more {
        if !existing.contains(address) {
            existing.push(address.clone());
        }
    }
}

/// Returns true if the addresses differ. The order within a type counts, because the first address of a type is used.
/// Upstream compares a map by type, which reports a change for every dual-stack Node on every resync.
pub fn differ(old: &[NodeAddress], new: &[NodeAddress]) -> bool {
    let of_type = |addresses: &[NodeAddress], wanted: &str| -> Vec<String> {
        addresses.iter().filter(|address| address.type_ == wanted).map(|address| address.address.clone()).collect()
    };
    old.len() != new.len() || new.iter().any(|address| of_type(old, &address.type_) != of_type(new, &address.type_))
}

/// Returns the addresses that `node` should have if the cloud reports `cloud`.
///
/// An empty report changes nothing, and duplicates are dropped. Among addresses of one type and family, the addresses
/// that are already on the Node come first, in the Node's order. If the cloud reports no hostname, the Node's hostnames
/// stay. The kubelet's `--node-ip` is applied last. If the result does not [`differ`], the Node's own list is returned.
pub fn merge(node: &Node, cloud: &[NodeAddress]) -> Result<Vec<NodeAddress>, ProvidedNodeIpError> {
    let present = of(node);
    let provided = annotation(node, ANNOTATION_PROVIDED_NODE_IP).map(parse_provided_node_ips).transpose()?;
    if cloud.is_empty() {
        return Ok(present.to_vec());
    }
    let mut reported = Vec::new();
    append_unique(&mut reported, cloud);
    let mut merged = keep_present_first(present, &reported);
    if !merged.iter().any(|address| address.type_ == HOSTNAME) {
        merged.extend(present.iter().filter(|address| address.type_ == HOSTNAME).cloned());
    }
    if let Some(provided) = provided {
        merged = filter_by_provided_ips(&provided, &merged)?;
    }
    Ok(if differ(present, &merged) { merged } else { present.to_vec() })
}

/// Reorders `cloud` within each type and family. Addresses that are already on the Node come first.
fn keep_present_first(present: &[NodeAddress], cloud: &[NodeAddress]) -> Vec<NodeAddress> {
    let group =
        |address: &NodeAddress| (address.type_.clone(), parse_ip_sloppy(&address.address).map(|ip| ip.is_ipv6()));
    let mut arranged: Vec<NodeAddress> = cloud.to_vec();
    arranged.sort_by_key(|address| present.iter().position(|other| other == address).unwrap_or(usize::MAX));
    // Each type and family keeps its positions in the cloud's list.
    cloud
        .iter()
        .filter_map(|slot| {
            let next = arranged.iter().position(|address| group(address) == group(slot))?;
            Some(arranged.remove(next))
        })
        .collect()
}
