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

/// The owner of an object that names a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectOwner {
    /// Another cluster: the object has the UID of that cluster.
    AnotherCluster,
    /// This cluster.
    ThisCluster(OwnershipProof),
    /// Unknown until the address of the allocation is known.
    Unresolved,
    /// This cluster or another cluster.
    Ambiguous,
}

/// The rule that shows that an object belongs to this cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnershipProof {
    /// The tag with the UID of this cluster.
    ClusterUid,
    /// The tag with the UID of the Service.
    ServiceUid,
    /// The id, which this program generates for the Service.
    Id,
    /// An address of the Service.
    Address,
    /// The members of the pool, which are Nodes of this cluster.
    Members,
    /// The reference of another object of this cluster.
    Reference,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TagOwnership {
    Foreign,
    Ours(OwnershipProof),
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
    for (resource, owner) in owners(objects, facts) {
        match owner {
            ObjectOwner::AnotherCluster => {}
            ObjectOwner::ThisCluster(_) => classified.owned.0.push(resource.clone()),
            ObjectOwner::Unresolved => classified.unresolved.push(resource.clone()),
            ObjectOwner::Ambiguous => classified.ambiguous.0.push(resource.clone()),
        }
    }
    classified
}

/// Returns all objects of one Service with their owners, each after the objects that refer to it.
pub fn owners<'a>(objects: &'a ServiceResources, facts: &ClusterContext<'_>) -> Vec<(&'a Resource, ObjectOwner)> {
    let mut owners = Vec::new();
    let mut owned: Vec<&Resource> = Vec::new();
    for resource in KINDS.into_iter().flat_map(|kind| objects.of_kind(kind)) {
        let owner = owner(resource, &owned, objects, facts);
        if matches!(owner, ObjectOwner::ThisCluster(_)) {
            owned.push(resource);
        }
        owners.push((resource, owner));
    }
    owners
}

/// Returns the owner of an object. `owned` contains the objects of this cluster that may refer to it.
fn owner(
    resource: &Resource,
    owned: &[&Resource],
    objects: &ServiceResources,
    facts: &ClusterContext<'_>,
) -> ObjectOwner {
    let has_cluster_uid = match by_tags(resource, facts) {
        TagOwnership::Foreign => return ObjectOwner::AnotherCluster,
        TagOwnership::Ours(proof) => return ObjectOwner::ThisCluster(proof),
        TagOwnership::Undecided { has_cluster_uid } => has_cluster_uid,
    };
    let proof = match resource.kind {
        ObjectKind::VirtualServer => proof_of_server(resource, has_cluster_uid, objects, facts),
        ObjectKind::Allocation if resource.address.is_none() => return ObjectOwner::Unresolved,
        ObjectKind::Allocation => is_in_use(resource, owned, facts).then_some(OwnershipProof::Address),
        _ => {
            let is_referenced = owned.iter().any(|one| one.refers_to(&resource.tags.path));
            (!has_cluster_uid && is_referenced).then_some(OwnershipProof::Reference)
        }
    };
    proof.map_or(ObjectOwner::Ambiguous, ObjectOwner::ThisCluster)
}

fn by_tags(resource: &Resource, facts: &ClusterContext<'_>) -> TagOwnership {
    let Resource { kind, tags, .. } = resource;
    match by_cluster_uid(facts.layout.cluster_uid.as_deref(), tags.cluster_uid.as_deref()) {
        OfCluster::This => return TagOwnership::Ours(OwnershipProof::ClusterUid),
        OfCluster::Another => return TagOwnership::Foreign,
        OfCluster::Unknown => {}
    }
    let undecided = TagOwnership::Undecided { has_cluster_uid: tags.cluster_uid.is_some() };
    let Some(uid) = facts.service_uid else { return undecided };
    if tags.service_uid.as_deref() == Some(uid) {
        return TagOwnership::Ours(OwnershipProof::ServiceUid);
    }
    let has_id = |port| facts.layout.has_id(tags.secondary, *kind, uid, port, &tags.id);
    let has_own_id = match kind {
        ObjectKind::Allocation | ObjectKind::Group | ObjectKind::PersistenceProfile => has_id(None),
        _ => tags.port.iter().chain(facts.ports).any(|port| has_id(Some(*port))),
    };
    if has_own_id { TagOwnership::Ours(OwnershipProof::Id) } else { undecided }
}

/// Returns the proof that a virtual server without decisive tags serves the Service, if there is one.
fn proof_of_server(
    server: &Resource,
    has_cluster_uid: bool,
    objects: &ServiceResources,
    facts: &ClusterContext<'_>,
) -> Option<OwnershipProof> {
    if facts.lb_service.is_none_or(|used| *used != *server.reference(ObjectKind::LbService)) {
        return None;
    }
    if !facts.ingress.is_empty() {
        let is_reported = server.address.is_some_and(|address| facts.ingress.contains(&address));
        return is_reported.then_some(OwnershipProof::Address);
    }
    // Only this program creates name-based ids (UUID version 5). The caller has checked that the id does not derive
    // from this Service, so the id may come from another cluster with the same name.
    if layout::has_own_form(&server.tags.id) {
        return None;
    }
    let pool = objects.pools().find(|pool| server.refers_to(&pool.tags.path));
    let leads_here = pool.is_some_and(|pool| {
        let is_tagged_by_another =
            matches!(by_tags(pool, facts), TagOwnership::Foreign | TagOwnership::Undecided { has_cluster_uid: true });
        !is_tagged_by_another && !pool.spec.members.is_empty() && pool.spec.members.is_subset(facts.nodes)
    });
    let is_proved = facts.service_uid.is_some() && !has_cluster_uid && leads_here;
    is_proved.then_some(OwnershipProof::Members)
}

/// Whether the Service uses the address of an allocation, or used it before its virtual servers were deleted.
fn is_in_use(allocation: &Resource, owned: &[&Resource], facts: &ClusterContext<'_>) -> bool {
    let may_have_address = |one: &Resource| matches!(one.kind, ObjectKind::VirtualServer | ObjectKind::Pool);
    let is_known = |address| owned.iter().any(|one| may_have_address(one) && one.address == Some(address));
    allocation.address.is_some_and(|address| facts.ingress.contains(&address) || is_known(address))
}

#[cfg(test)]
mod tests;
