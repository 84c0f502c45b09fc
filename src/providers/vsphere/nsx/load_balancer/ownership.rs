//! Pure: whose an object of a load balancer is. Only objects whose owner and cluster name are ours are considered.
//!
//! | first row that fits | the object is |
//! |---|---|
//! | the `cluster-uid` of another cluster | foreign: never changed, never deleted |
//! | the `cluster-uid` of this cluster; the `service-uid` of the Service, or an id that this program gives its objects | ours |
//! | a virtual server on the load balancer service in use, whose address is an ingress of the Service; or, if the Service has no ingress and the id is none of this program, all members of its pool, at least one, are addresses of Nodes here | ours |
//! | a pool, monitor, group or persistence profile that such a virtual server leads to; an allocation whose address is that of one, an ingress of the Service, or that of the tag of a pool of ours | ours |
//! | anything else | held: never changed, never deleted, reported once |
//!
//! While the UID of this cluster is not known, an object that has a `cluster-uid` is ours only by its `service-uid`, its id
//! or its address.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::layout::{self, ClusterLayout, ObjectKind, Port};
use super::objects::{Allocation, OwnerTags, ServiceResources, VirtualServer};
use crate::providers::vsphere::nsx::ownership::{OfCluster, by_cluster_uid};

/// What is known of the cluster and of the Service.
#[derive(Clone, Copy, Debug)]
pub struct ClusterContext<'a> {
    /// The name of this cluster, and what identifies it.
    pub layout: &'a ClusterLayout,
    /// What identifies the Service; none while there is no Service of this name.
    pub service_uid: Option<&'a str>,
    /// The ports of the Service: an id is recognised whatever became of the tags.
    pub ports: &'a [Port],
    /// The addresses that the Service reports.
    pub ingress: &'a [IpAddr],
    /// The path of the load balancer service in use, if there is one.
    pub lb_service: Option<&'a str>,
    /// The addresses of all Nodes here.
    pub nodes: &'a BTreeSet<IpAddr>,
}

/// The objects of a Service by whose they are. Foreign ones are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassifiedResources {
    /// Those of this cluster.
    pub owned: ServiceResources,
    /// Those that nothing shows to be of this cluster.
    pub ambiguous: ServiceResources,
    /// Allocations of which only the address can show whose they are, and whose address was not read.
    pub unresolved: Vec<Allocation>,
}

/// What the marks of one object say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TagOwnership {
    Foreign,
    Ours,
    /// Nothing. `is_tagged`: it has the UID of some cluster, and ours is not known.
    Untagged {
        is_tagged: bool,
    },
}

/// Judges all objects of one Service.
pub fn classify(objects: &ServiceResources, facts: &ClusterContext<'_>) -> ClassifiedResources {
    let mut judged = ClassifiedResources::default();
    let ClassifiedResources { owned: ours, ambiguous: held, unresolved: unread } = &mut judged;
    for server in &objects.servers {
        match by_marks(&server.marks, ObjectKind::VirtualServer, facts) {
            TagOwnership::Foreign => {}
            TagOwnership::Ours => ours.servers.push(server.clone()),
            TagOwnership::Untagged { is_tagged } if is_served(server, is_tagged, objects, facts) => {
                ours.servers.push(server.clone());
            }
            TagOwnership::Untagged { .. } => held.servers.push(server.clone()),
        }
    }
    let led_to: BTreeSet<&str> = ours.servers.iter().map(|server| &*server.pool).collect();
    for pool in &objects.pools {
        match by_marks(&pool.marks, ObjectKind::Pool, facts) {
            TagOwnership::Foreign => {}
            TagOwnership::Untagged { is_tagged } if is_tagged || !led_to.contains(&*pool.marks.path) => {
                held.pools.push(pool.clone());
            }
            TagOwnership::Ours | TagOwnership::Untagged { .. } => ours.pools.push(pool.clone()),
        }
    }
    let asked: BTreeSet<&str> = ours.pools.iter().flat_map(|pool| &pool.monitors).map(AsRef::as_ref).collect();
    for monitor in &objects.monitors {
        match by_marks(&monitor.marks, ObjectKind::Monitor, facts) {
            TagOwnership::Foreign => {}
            TagOwnership::Untagged { is_tagged } if is_tagged || !asked.contains(&*monitor.marks.path) => {
                held.monitors.push(monitor.clone());
            }
            TagOwnership::Ours | TagOwnership::Untagged { .. } => ours.monitors.push(monitor.clone()),
        }
    }
    for allocation in &objects.allocations {
        match by_marks(&allocation.marks, ObjectKind::Allocation, facts) {
            TagOwnership::Foreign => {}
            TagOwnership::Untagged { .. } if allocation.address.is_none() => unread.push(allocation.clone()),
            TagOwnership::Untagged { .. } if !is_in_use(allocation, ours, facts) => {
                held.allocations.push(allocation.clone());
            }
            TagOwnership::Ours | TagOwnership::Untagged { .. } => ours.allocations.push(allocation.clone()),
        }
    }
    judge_unlisted(objects, facts, &mut judged);
    judged
}

/// Judges what a virtual server refers to by itself.
fn judge_unlisted(objects: &ServiceResources, facts: &ClusterContext<'_>, judged: &mut ClassifiedResources) {
    let ClassifiedResources { owned: ours, ambiguous: held, .. } = judged;
    let groups: BTreeSet<&str> = ours.servers.iter().map(|server| &*server.group).collect();
    for group in &objects.groups {
        match by_marks(&group.marks, ObjectKind::Group, facts) {
            TagOwnership::Foreign => {}
            TagOwnership::Untagged { is_tagged } if is_tagged || !groups.contains(&*group.marks.path) => {
                held.groups.push(group.clone());
            }
            TagOwnership::Ours | TagOwnership::Untagged { .. } => ours.groups.push(group.clone()),
        }
    }
    let profiles: BTreeSet<&str> = ours.servers.iter().map(|server| &*server.persistence).collect();
    for profile in &objects.persistence_profiles {
        match by_marks(&profile.marks, ObjectKind::PersistenceProfile, facts) {
            TagOwnership::Foreign => {}
            TagOwnership::Untagged { is_tagged } if is_tagged || !profiles.contains(&*profile.marks.path) => {
                held.persistence_profiles.push(profile.clone());
            }
            TagOwnership::Ours | TagOwnership::Untagged { .. } => ours.persistence_profiles.push(profile.clone()),
        }
    }
}

fn by_marks(marks: &OwnerTags, kind: ObjectKind, facts: &ClusterContext<'_>) -> TagOwnership {
    match by_cluster_uid(facts.layout.cluster_uid.as_deref(), marks.cluster_uid.as_deref()) {
        OfCluster::This => return TagOwnership::Ours,
        OfCluster::Another => return TagOwnership::Foreign,
        OfCluster::Unknown => {}
    }
    let is_of_service = facts.service_uid.is_some_and(|uid| {
        let has_id = |port| facts.layout.has_id(marks.second, kind, uid, port, &marks.id);
        let has_own_id = || match kind {
            ObjectKind::Allocation | ObjectKind::Group | ObjectKind::PersistenceProfile => has_id(None),
            _ => marks.port.iter().chain(facts.ports).any(|port| has_id(Some(*port))),
        };
        marks.service_uid.as_deref() == Some(uid) || has_own_id()
    });
    match is_of_service {
        true => TagOwnership::Ours,
        false => TagOwnership::Untagged { is_tagged: marks.cluster_uid.is_some() },
    }
}

/// Whether a virtual server without marks serves the Service.
fn is_served(server: &VirtualServer, is_tagged: bool, objects: &ServiceResources, facts: &ClusterContext<'_>) -> bool {
    if facts.lb_service.is_none_or(|used| *used != *server.lb_service) {
        return false;
    }
    if !facts.ingress.is_empty() {
        return server.address.is_some_and(|address| facts.ingress.contains(&address));
    }
    // The Go program gives random ids. One of this program that is not of the Service is of one of another UID, which another
    // cluster of the same name may have.
    if layout::is_name_based(&server.marks.id) {
        return false;
    }
    let pool = objects.pools.iter().find(|pool| pool.marks.path == server.pool);
    let leads_here = pool.is_some_and(|pool| {
        let is_tagged_by_another = matches!(
            by_marks(&pool.marks, ObjectKind::Pool, facts),
            TagOwnership::Foreign | TagOwnership::Untagged { is_tagged: true }
        );
        !is_tagged_by_another && !pool.members.is_empty() && pool.members.is_subset(facts.nodes)
    });
    facts.service_uid.is_some() && !is_tagged && leads_here
}

/// Whether the Service has the address of an allocation, or had it before its virtual servers were deleted.
fn is_in_use(allocation: &Allocation, ours: &ServiceResources, facts: &ClusterContext<'_>) -> bool {
    let mut known = ours.servers.iter().map(|one| one.address).chain(ours.pools.iter().map(|one| one.address));
    allocation.address.is_some_and(|address| facts.ingress.contains(&address) || known.any(|one| one == Some(address)))
}

#[cfg(test)]
mod tests;
