//! Pure: whose a route of the configured router is.
//!
//! | first row that fits | the route is |
//! |---|---|
//! | no or another cluster name, or the `cluster-uid` of another cluster | foreign: never changed |
//! | the `cluster-uid` of this cluster | ours |
//! | the UID in its id is that of a Node here, or of one that this process saw; or its next hop is an address of the Node that its tag names | ours, tagged with the first write that is needed anyway |
//! | anything else | held: never changed, and reported once |

use std::net::IpAddr;

use super::static_route::{CLUSTER_NAME, Listed, name_hint};
use crate::clients::nsx::Object;
use crate::providers::vsphere::nsx::ownership::{CLUSTER_UID, OfCluster, by_cluster_uid};

/// Whose a route is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Of another cluster or program.
    Foreign,
    /// Of this cluster.
    Ours,
    /// It has the name of this cluster, and nothing shows that it is this cluster's.
    Held,
}

/// What is known of this cluster.
pub struct Cluster<'a> {
    /// Its name.
    pub name: &'a str,
    /// What identifies it, if that is known.
    pub uid: Option<&'a str>,
    /// Whether this is the UID of a Node that is here, or was since this process began and is remembered.
    pub is_node: &'a dyn Fn(&str) -> bool,
    /// The addresses of the Node of this name.
    pub addresses: &'a dyn Fn(&str) -> Vec<IpAddr>,
}

/// Whose `object` is, which was read as `listed`.
pub fn judge(object: &Object, listed: &Listed, cluster: &Cluster<'_>) -> Ownership {
    if object.tag(CLUSTER_NAME) != Some(cluster.name) {
        return Ownership::Foreign;
    }
    match by_cluster_uid(cluster.uid, object.tag(CLUSTER_UID)) {
        OfCluster::This => return Ownership::Ours,
        OfCluster::Another => return Ownership::Foreign,
        OfCluster::Unknown => {}
    }
    let is_of_node = (cluster.is_node)(name_hint(&listed.id));
    let leads_to_node = || {
        let addresses = (cluster.addresses)(&listed.node);
        listed.next_hops.iter().any(|hop| addresses.contains(hop))
    };
    if is_of_node || (!listed.node.is_empty() && leads_to_node()) { Ownership::Ours } else { Ownership::Held }
}
