//! Pure: decides whether an object belongs to this cluster. Only objects with our owner tag and cluster tag count.
//!
//! | first row that matches | the object is |
//! |---|---|
//! | the `cluster-uid` of another cluster | foreign: never changed, never deleted |
//! | the `cluster-uid` of this cluster, the `service-uid` of the Service, or an id that this program generates | ours |
//! | a virtual server on the load balancer service in use, with an ingress address of the Service | ours |
//! | a virtual server on the load balancer service in use, if the Service exists and has no ingress, the id is not one of this program, neither the virtual server nor its pool has a `cluster-uid` that may be of another cluster, and the pool has members, all with addresses of our Nodes | ours |
//! | a pool, monitor, group or persistence profile that another of our objects refers to, without a `cluster-uid` that may be of another cluster; an allocation with the address of one of our virtual servers, with an ingress address of the Service, or with the address in the tag of one of our pools | ours |
//! | an allocation with an unknown address | unresolved: the address is read first |
//! | anything else | ambiguous: never changed, never deleted, reported once |
//!
//! While the UID of this cluster is unknown, an object with a `cluster-uid` is ours only if its `service-uid`, its id
//! or its address proves this.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::layout::{self, ClusterLayout, ObjectKind, Port};
use super::resource::{Resource, ServiceResources};
use crate::providers::vsphere::nsx::ownership::{OfCluster, by_cluster_uid};

/// Facts about the cluster and the Service that decide the ownership of objects.
#[derive(Clone, Copy, Debug)]
pub struct ClusterContext<'a> {
    /// Name and UID of this cluster.
    pub layout: &'a ClusterLayout,
    /// UID of the Service; `None` if no Service of this name exists.
    pub service_uid: Option<&'a str>,
    /// The ports of the Service, from which ids derive.
    pub ports: &'a [Port],
    /// The addresses that the Service reports.
    pub ingress: &'a [IpAddr],
    /// The path of the load balancer service in use, if there is one.
    pub lb_service: Option<&'a str>,
    /// The usable addresses of the Nodes of this cluster, except unconfirmed ones; empty if the Service reports an
    /// address. To check whether unconfirmed addresses matter, a call also classifies with them.
    pub nodes: &'a BTreeSet<IpAddr>,
}

/// Objects of a Service by ownership, without objects of other clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassifiedResources {
    /// Objects of this cluster.
    pub owned: ServiceResources,
    /// Objects that may belong to this cluster or to another cluster.
    pub ambiguous: ServiceResources,
    /// Allocations with an unknown address. Only the address can show the owner of such an allocation.
    pub unresolved: Vec<Resource>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TagOwnership {
    Foreign,
    Ours,
    /// Undecided by tags and id. `has_cluster_uid`: the object has a cluster UID, but the UID of this cluster is
    /// unknown.
    Undecided {
        has_cluster_uid: bool,
    },
}

/// Kinds of the objects of a Service, each after the kinds that refer to it.
const KINDS: [ObjectKind; 6] = [
    ObjectKind::VirtualServer,
    ObjectKind::Pool,
    ObjectKind::Monitor,
    ObjectKind::Allocation,
    ObjectKind::Group,
    ObjectKind::PersistenceProfile,
];

/// Classifies all objects of one Service: by their tags and ids, otherwise by their addresses, by the members of their
/// pools, and by the references of our objects.
pub fn classify(objects: &ServiceResources, facts: &ClusterContext<'_>) -> ClassifiedResources {
    let mut classified = ClassifiedResources::default();
    let ClassifiedResources { owned, ambiguous, unresolved } = &mut classified;
    for resource in KINDS.into_iter().flat_map(|kind| objects.of_kind(kind)) {
        let is_ours = match by_tags(resource, facts) {
            TagOwnership::Foreign => continue,
            TagOwnership::Ours => true,
            TagOwnership::Undecided { has_cluster_uid } => match resource.kind {
                ObjectKind::VirtualServer => is_served(resource, has_cluster_uid, objects, facts),
                ObjectKind::Allocation if resource.address.is_none() => {
                    unresolved.push(resource.clone());
                    continue;
                }
                ObjectKind::Allocation => is_in_use(resource, owned, facts),
                _ => !has_cluster_uid && owned.refer_to(&resource.tags.path),
            },
        };
        let list = if is_ours { &mut *owned } else { &mut *ambiguous };
        list.0.push(resource.clone());
    }
    classified
}

fn by_tags(resource: &Resource, facts: &ClusterContext<'_>) -> TagOwnership {
    let Resource { kind, tags, .. } = resource;
    match by_cluster_uid(facts.layout.cluster_uid.as_deref(), tags.cluster_uid.as_deref()) {
        OfCluster::This => return TagOwnership::Ours,
        OfCluster::Another => return TagOwnership::Foreign,
        OfCluster::Unknown => {}
    }
    let is_of_service = facts.service_uid.is_some_and(|uid| {
        let has_id = |port| facts.layout.has_id(tags.secondary, *kind, uid, port, &tags.id);
        let has_own_id = || match kind {
            ObjectKind::Allocation | ObjectKind::Group | ObjectKind::PersistenceProfile => has_id(None),
            _ => tags.port.iter().chain(facts.ports).any(|port| has_id(Some(*port))),
        };
        tags.service_uid.as_deref() == Some(uid) || has_own_id()
    });
    match is_of_service {
        true => TagOwnership::Ours,
        false => TagOwnership::Undecided { has_cluster_uid: tags.cluster_uid.is_some() },
    }
}

/// Whether a virtual server without decisive tags serves the Service.
fn is_served(server: &Resource, has_cluster_uid: bool, objects: &ServiceResources, facts: &ClusterContext<'_>) -> bool {
    if facts.lb_service.is_none_or(|used| *used != *server.reference(ObjectKind::LbService)) {
        return false;
    }
    if !facts.ingress.is_empty() {
        return server.address.is_some_and(|address| facts.ingress.contains(&address));
    }
    // Only this program creates name-based ids (UUID version 5). The caller has checked that the id does not derive
    // from this Service, so the id may come from another cluster with the same name.
    if layout::has_own_form(&server.tags.id) {
        return false;
    }
    let pool = objects.pools().find(|pool| server.refers_to(&pool.tags.path));
    let leads_here = pool.is_some_and(|pool| {
        let is_tagged_by_another =
            matches!(by_tags(pool, facts), TagOwnership::Foreign | TagOwnership::Undecided { has_cluster_uid: true });
        !is_tagged_by_another && !pool.spec.members.is_empty() && pool.spec.members.is_subset(facts.nodes)
    });
    facts.service_uid.is_some() && !has_cluster_uid && leads_here
}

/// Whether the Service uses the address of an allocation, or used it before its virtual servers were deleted.
fn is_in_use(allocation: &Resource, ours: &ServiceResources, facts: &ClusterContext<'_>) -> bool {
    let is_known = |address| ours.servers().chain(ours.pools()).any(|one| one.address == Some(address));
    allocation.address.is_some_and(|address| facts.ingress.contains(&address) || is_known(address))
}

#[cfg(test)]
mod tests;
