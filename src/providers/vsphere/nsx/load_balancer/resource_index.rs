//! Pure: index of the load balancer objects in NSX, from the last lists and the later writes of this program.

pub mod relist;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::layout::{ClusterLayout, GROUPS, ObjectKind, PERSISTENCE_PROFILES};
use super::objects::{
    Allocation, Group, LbService, Monitor, OwnerTags, PersistenceProfile, Pool, ServiceResources, VirtualServer,
};
use crate::base::addresses::parse_ip;
use crate::clients::nsx::Object;
use crate::providers::vsphere::nsx::ownership::{CLUSTER_UID, OfCluster, by_cluster_uid};

/// Objects with the name of this cluster by Service, load balancer services, and virtual servers of other owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceIndex {
    lb_services: Vec<LbService>,
    /// Objects by Service (namespace/name).
    services: BTreeMap<Box<str>, ServiceResources>,
    /// Objects with the name of this cluster but without a Service: path, and cluster UID of the tag.
    without_service: Vec<(Box<str>, Option<Box<str>>)>,
    /// Virtual servers of other owners, by path.
    foreign: BTreeMap<Box<str>, ForeignServer>,
}

/// A virtual server of another owner.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ForeignServer {
    /// The path of the load balancer service; empty without one.
    lb_service: Box<str>,
    address: Option<IpAddr>,
}

/// Selection of the load balancer service for the virtual servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection<'a> {
    /// An existing load balancer service. `tier1` is the required gateway, if configured.
    Existing {
        /// The configured id.
        id: &'a str,
        /// The path of the gateway.
        tier1: Option<&'a str>,
    },
    /// The load balancer service on this gateway; otherwise, the one with the tags of this cluster. Created if missing.
    Managed {
        /// The path of the gateway.
        tier1: Option<&'a str>,
    },
}

/// Reason why the configured load balancer service is unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableLbService {
    /// No load balancer service has this id.
    #[error("no load balancer service found with id {0}")]
    Missing(String),
    /// The load balancer service is on another gateway.
    #[error("load balancer service {id:?} is configured for router {found:?} not {expected:?}")]
    OtherGateway {
        /// The id of the load balancer service.
        id: String,
        /// The gateway of the load balancer service; empty without a gateway.
        found: String,
        /// The configured gateway.
        expected: String,
    },
}

impl ResourceIndex {
    /// Builds the index from lists.
    pub fn of_lists(lists: &[(ObjectKind, Vec<Object>)], layout: &ClusterLayout) -> Self {
        let mut contents = Self::default();
        for (kind, objects) in lists {
            objects.iter().for_each(|object| contents.add(*kind, object, layout));
        }
        contents
    }

    /// Records an object that was read or written, and replaces its previous version.
    pub fn record(&mut self, kind: ObjectKind, object: &Object, layout: &ClusterLayout) {
        self.remove(object.path());
        self.add(kind, object, layout);
    }

    /// Adds an object of a list.
    pub fn add(&mut self, kind: ObjectKind, object: &Object, layout: &ClusterLayout) {
        if kind != ObjectKind::LbService && names_no_service(object, layout) {
            self.without_service.push((object.path().into(), object.tag(CLUSTER_UID).map(Into::into)));
        }
        match kind {
            ObjectKind::LbService => self.lb_services.extend(LbService::read(object, layout)),
            ObjectKind::VirtualServer => match VirtualServer::read(object, layout) {
                Some(server) => insert(&mut self.of(&server.tags.service).servers, server, |one| &one.tags.path),
                None if object.is_marked_for_delete() => {}
                None => {
                    let lb_service = object.text("lb_service_path").into();
                    let server = ForeignServer { lb_service, address: parse_ip(object.text("ip_address")) };
                    self.foreign.insert(object.path().into(), server);
                }
            },
            ObjectKind::Pool => {
                if let Some(pool) = Pool::read(object, layout) {
                    insert(&mut self.of(&pool.tags.service).pools, pool, |one| &one.tags.path);
                }
            }
            ObjectKind::Monitor => {
                if let Some(monitor) = Monitor::read(object, layout) {
                    insert(&mut self.of(&monitor.tags.service).monitors, monitor, |one| &one.tags.path);
                }
            }
            ObjectKind::Allocation => {
                if let Some(allocation) = Allocation::read(object, layout) {
                    insert(&mut self.of(&allocation.tags.service).allocations, allocation, |one| &one.tags.path);
                }
            }
            ObjectKind::Group => {
                if let Some(group) = Group::read(object, layout) {
                    insert(&mut self.of(&group.tags.service).groups, group, |one| &one.tags.path);
                }
            }
            ObjectKind::PersistenceProfile => {
                if let Some(profile) = PersistenceProfile::read(object, layout) {
                    let profiles = &mut self.of(&profile.tags.service).persistence_profiles;
                    insert(profiles, profile, |one| &one.tags.path);
                }
            }
        }
    }

    /// Returns another Service with a virtual server or an allocation that has this address.
    pub fn user_of(&self, service: &str, address: IpAddr) -> Option<Box<str>> {
        let has_it = |objects: &ServiceResources| {
            let of_servers = objects.servers.iter().map(|one| one.address);
            of_servers.chain(objects.allocations.iter().map(|one| one.address)).any(|one| one == Some(address))
        };
        let mut others = self.services.iter().filter(|(other, _)| ***other != *service);
        others.find(|(_, objects)| has_it(objects)).map(|(other, _)| other.clone())
    }

    /// Returns the path of a virtual server of any owner with this address that is not in `own`.
    pub fn other_server_on(&self, address: IpAddr, own: &[VirtualServer]) -> Option<Box<str>> {
        let all = self.services.values().flat_map(|objects| &objects.servers);
        let is_own = |server: &VirtualServer| own.iter().any(|one| one.tags.path == server.tags.path);
        let mut others = all.filter(|server| server.address == Some(address) && !is_own(server));
        let known = others.next().map(|server| server.tags.path.clone());
        let mut foreign = self.foreign.iter().filter(|(_, server)| server.address == Some(address));
        known.or_else(|| foreign.next().map(|(path, _)| path.clone()))
    }

    /// Whether all objects of the Service are allocations whose addresses virtual servers of other owners use.
    pub fn has_only_addresses_of_others(&self, service: &str) -> bool {
        let Some(objects) = self.services.get(service) else { return false };
        let is_used =
            |one: &Allocation| one.address.is_some_and(|address| self.other_server_on(address, &[]).is_some());
        objects.marks().count() == objects.allocations.len() && objects.allocations.iter().all(is_used)
    }

    /// Whether other owners have virtual servers.
    pub fn has_other_servers(&self) -> bool {
        self.foreign.values().any(|server| server.address.is_some())
    }

    /// Adds the allocations of `other`, which belong to other IP pools.
    pub fn extend(&mut self, other: Self) {
        self.without_service.extend(other.without_service);
        for (service, objects) in other.services {
            let all = &mut self.of(&service).allocations;
            objects.allocations.into_iter().for_each(|one| insert(all, one, |one| &one.tags.path));
        }
    }

    /// Removes the object at this path.
    pub fn remove(&mut self, path: &str) {
        self.foreign.remove(path);
        self.without_service.retain(|(known, _)| **known != *path);
        self.lb_services.retain(|one| *one.path != *path);
        for objects in self.services.values_mut() {
            let ServiceResources { servers, pools, monitors, allocations, groups, persistence_profiles } = objects;
            servers.retain(|one| *one.tags.path != *path);
            pools.retain(|one| *one.tags.path != *path);
            monitors.retain(|one| *one.tags.path != *path);
            allocations.retain(|one| *one.tags.path != *path);
            groups.retain(|one| *one.tags.path != *path);
            persistence_profiles.retain(|one| *one.tags.path != *path);
        }
        self.services.retain(|_, objects| !objects.is_empty());
    }

    /// Drops groups and persistence profiles, because their lists are missing or incomplete.
    pub fn forget_references(&mut self) {
        self.without_service.retain(|(path, _)| !is_reference(path));
        for objects in self.services.values_mut() {
            objects.groups.clear();
            objects.persistence_profiles.clear();
        }
    }

    /// Drops the allocations of this IP pool, because their list is incomplete.
    pub fn forget_allocations(&mut self, pool: &str) {
        for objects in self.services.values_mut() {
            objects.allocations.retain(|one| *one.address_pool != *pool);
        }
    }

    /// Returns the Service (namespace/name) and the address of the allocation at this path, if the address is known.
    pub fn address_of(&self, path: &str) -> Option<(Box<str>, IpAddr)> {
        let of_service =
            |objects: &ServiceResources| objects.allocations.iter().find(|one| *one.tags.path == *path)?.address;
        self.services.iter().find_map(|(service, objects)| Some((service.clone(), of_service(objects)?)))
    }

    /// Sets the address of the allocation at this path.
    pub fn set_address(&mut self, path: &str, address: IpAddr) {
        let all = self.services.values_mut().flat_map(|objects| &mut objects.allocations);
        all.filter(|one| *one.tags.path == *path).for_each(|one| one.address = Some(address));
    }

    /// Returns the valid ids of the IP pools that tags and paths of allocations name.
    pub fn address_pools(&self) -> BTreeSet<Box<str>> {
        self.services.values().flat_map(ServiceResources::address_pools).map(Into::into).collect()
    }

    /// Returns the objects whose tags name this Service, including objects of other clusters with the same name.
    pub fn of_service(&self, service: &str) -> ServiceResources {
        self.services.get(service).cloned().unwrap_or_default()
    }

    /// Returns the Services named by objects with this cluster UID.
    pub fn services_of(&self, cluster_uid: &str) -> Vec<&str> {
        let is_of =
            |objects: &ServiceResources| objects.marks().any(|tags| tags.cluster_uid.as_deref() == Some(cluster_uid));
        self.services.iter().filter(|(_, objects)| is_of(objects)).map(|(service, _)| &**service).collect()
    }

    /// Returns the Services with several allocations for one load balancer, at least one of them without an address.
    pub fn with_unread_surplus(&self) -> impl Iterator<Item = &Box<str>> {
        let is_one = |objects: &ServiceResources| {
            let is_beside = |one: &Allocation, other: &Allocation| {
                one.tags.secondary == other.tags.secondary && one.tags.path != other.tags.path
            };
            let mut unread = objects.allocations.iter().filter(|one| one.address.is_none());
            unread.any(|one| objects.allocations.iter().any(|other| is_beside(one, other)))
        };
        self.services.iter().filter(move |(_, objects)| is_one(objects)).map(|(service, _)| service)
    }

    /// Returns the number of objects that name this cluster, except load balancer services.
    pub fn count(&self) -> usize {
        self.services.values().map(|objects| objects.marks().count()).sum::<usize>() + self.without_service.len()
    }

    /// Returns the objects that name this cluster but no Service, and have no UID of another cluster. While the UID of
    /// this cluster is unknown, returns only objects without a cluster UID.
    pub fn without_service(&self, cluster_uid: Option<&str>) -> BTreeSet<Box<str>> {
        let may_be_ours = |tagged: &Option<Box<str>>| tagged.is_none() || tagged.as_deref() == cluster_uid;
        self.without_service.iter().filter(|(_, tagged)| may_be_ours(tagged)).map(|(path, _)| path.clone()).collect()
    }

    /// Returns the Services that objects name.
    pub fn services(&self) -> impl Iterator<Item = &str> {
        self.services.keys().map(AsRef::as_ref)
    }

    /// Whether a load balancer service exists at this path.
    pub fn has_lb_service(&self, path: &str) -> bool {
        self.lb_services.iter().any(|one| *one.path == *path)
    }

    /// Returns the number of virtual servers of all owners on the load balancer service at this path.
    pub fn servers_on(&self, path: &str) -> usize {
        let ours = self.services.values().flat_map(|objects| &objects.servers);
        let ours = ours.filter(|server| *server.lb_service == *path).count();
        ours + self.foreign.values().filter(|server| *server.lb_service == *path).count()
    }

    /// Returns the load balancer service in use; `None` if it has to be created. As in the Go program, the load
    /// balancer service on the configured gateway is used regardless of its tags.
    ///
    /// # Errors
    /// The configured load balancer service is missing, or is on another gateway than configured.
    pub fn lb_service(
        &self,
        selection: Selection<'_>,
        cluster_uid: Option<&str>,
    ) -> Result<Option<&LbService>, UnusableLbService> {
        match selection {
            Selection::Existing { id, tier1 } => {
                let found = self.lb_services.iter().find(|one| *one.id == *id);
                let found = found.ok_or_else(|| UnusableLbService::Missing(id.to_owned()))?;
                match tier1.filter(|tier1| *found.tier1 != **tier1) {
                    Some(tier1) => Err(UnusableLbService::OtherGateway {
                        id: id.to_owned(),
                        found: found.tier1.to_string(),
                        expected: tier1.to_owned(),
                    }),
                    None => Ok(Some(found)),
                }
            }
            Selection::Managed { tier1 } => {
                let is_on_gateway = |one: &&LbService| tier1.is_some_and(|tier1| *one.tier1 == *tier1);
                let is_ours = |one: &&LbService| {
                    one.is_named_as_ours
                        && match by_cluster_uid(cluster_uid, one.cluster_uid.as_deref()) {
                            OfCluster::This => true,
                            OfCluster::Another => false,
                            // Clusters with the same name on several gateways differ by gateway.
                            OfCluster::Unknown => tier1.is_none(),
                        }
                };
                let on_gateway = self.lb_services.iter().find(is_on_gateway);
                Ok(on_gateway.or_else(|| self.lb_services.iter().find(is_ours)))
            }
        }
    }

    fn of(&mut self, service: &str) -> &mut ServiceResources {
        self.services.entry(service.into()).or_default()
    }
}

/// Whether an object has our owner and cluster name, no valid Service tag, and no deletion mark.
fn names_no_service(object: &Object, layout: &ClusterLayout) -> bool {
    let is_considered = layout.load_balancer_of(object).is_some() && !object.is_marked_for_delete();
    is_considered && !object.path().is_empty() && OwnerTags::read(object, layout).is_none()
}

fn is_reference(path: &str) -> bool {
    path.starts_with(GROUPS) || path.starts_with(PERSISTENCE_PROFILES)
}

/// Inserts an object sorted by path, so that the order of the lists does not matter.
fn insert<T>(all: &mut Vec<T>, new: T, path: impl Fn(&T) -> &str) {
    let position = all.partition_point(|one| path(one) < path(&new));
    // Most Services have one object of each kind; by default, the vector would reserve space for four.
    all.reserve_exact(1);
    all.insert(position, new);
}

#[cfg(test)]
mod tests;
