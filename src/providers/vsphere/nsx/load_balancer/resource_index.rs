//! Pure: index of the load balancer objects in NSX, from the last lists and the later writes of this program.

pub mod relist;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::layout::{ClusterLayout, ObjectKind};
use super::resource::{Resource, ServiceResources};
use crate::clients::nsx::Object;
use crate::providers::vsphere::nsx::ownership::{OfCluster, by_cluster_uid};

/// Resources with the name of this cluster, load balancer services, and virtual servers of other owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceIndex {
    /// The resources by Service (namespace/name; empty for those that name no Service) and path.
    resources: BTreeMap<ResourceKey, Resource>,
    /// The keys of the virtual servers with each address. A scan of all resources for each sync of each Service would
    /// take quadratic time.
    servers: BTreeMap<IpAddr, BTreeSet<ResourceKey>>,
}

type ResourceKey = (Box<str>, Box<str>);

/// Selection of the load balancer service for the virtual servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selection<'a> {
    /// The id of an existing load balancer service. `None` selects the load balancer service on the gateway; otherwise,
    /// the one with the tags of this cluster, which is created if missing.
    pub id: Option<&'a str>,
    /// The path of the gateway.
    pub tier1: Option<&'a str>,
}

impl ResourceIndex {
    /// Records an object that was read or written, and replaces its previous version.
    pub fn record(&mut self, kind: ObjectKind, object: &Object, layout: &ClusterLayout) {
        self.remove(object.path());
        self.add(kind, object, layout);
    }

    /// Adds an object of a list.
    pub fn add(&mut self, kind: ObjectKind, object: &Object, layout: &ClusterLayout) {
        let Some(resource) = Resource::read(kind, object, layout) else { return };
        // Virtual servers of other owners use capacity and addresses.
        let is_shared = matches!(kind, ObjectKind::LbService | ObjectKind::VirtualServer);
        if is_shared || resource.tags.is_named_as_ours {
            self.insert(resource);
        }
    }

    fn of(resources: BTreeMap<ResourceKey, Resource>) -> Self {
        let mut index = Self::default();
        resources.into_values().for_each(|resource| index.insert(resource));
        index
    }

    fn insert(&mut self, resource: Resource) {
        let key = (resource.tags.service.clone(), resource.tags.path.clone());
        if let Some(address) = resource.address.filter(|_| resource.kind == ObjectKind::VirtualServer) {
            self.servers.entry(address).or_default().insert(key.clone());
        }
        self.resources.insert(key, resource);
    }

    /// Returns another Service with a virtual server or an allocation that has this address.
    pub fn user_of(&self, service: &str, address: IpAddr) -> Option<Box<str>> {
        let is_other = |one: &&Resource| !one.tags.service.is_empty() && *one.tags.service != *service;
        let mut others = self.resources.values().filter(is_other);
        others.find(|one| one.has_address(address)).map(|one| one.tags.service.clone())
    }

    /// Returns the path of a virtual server of any owner with this address that is not in `own`.
    pub fn other_server_on(&self, address: IpAddr, own: &[Resource]) -> Option<Box<str>> {
        let is_own = |path: &str| own.iter().any(|one| *one.tags.path == *path);
        let mut paths = self.servers.get(&address)?.iter().map(|(_, path)| path);
        paths.find(|path| !is_own(path)).cloned()
    }

    /// Whether all objects of the Service are allocations whose addresses virtual servers of other owners use.
    pub fn has_only_addresses_of_others(&self, service: &str) -> bool {
        let is_used = |one: &Resource| {
            let address = one.address.filter(|_| one.kind == ObjectKind::Allocation);
            address.is_some_and(|address| self.other_server_on(address, &[]).is_some())
        };
        let mut all = self.named(service).peekable();
        all.peek().is_some() && all.all(is_used)
    }

    /// Whether other owners have virtual servers.
    pub fn has_other_servers(&self) -> bool {
        self.named("").any(|one| one.kind == ObjectKind::VirtualServer && one.address.is_some())
    }

    /// Adds the allocations of `other`, which belong to other IP pools.
    pub fn extend(&mut self, other: Self) {
        self.resources.extend(other.resources);
    }

    /// Removes the object at this path.
    pub fn remove(&mut self, path: &str) {
        self.resources.retain(|(_, known), _| **known != *path);
        self.servers.retain(|_, keys| {
            keys.retain(|(_, known)| **known != *path);
            !keys.is_empty()
        });
    }

    /// Drops groups and persistence profiles, because their lists are missing or incomplete.
    pub fn forget_references(&mut self) {
        self.resources.retain(|_, one| !one.kind.is_listed_rarely());
    }

    /// Drops the allocations of this IP pool, because their list is incomplete.
    pub fn forget_allocations(&mut self, pool: &str) {
        self.resources.retain(|_, one| one.kind != ObjectKind::Allocation || *one.address_pool != *pool);
    }

    /// Returns the Service (namespace/name) and the address of the allocation at this path, if the address is known.
    pub fn address_of(&self, path: &str) -> Option<(Box<str>, IpAddr)> {
        let mut allocations = self.of_kind(ObjectKind::Allocation).filter(|one| !one.tags.service.is_empty());
        let allocation = allocations.find(|one| *one.tags.path == *path)?;
        Some((allocation.tags.service.clone(), allocation.address?))
    }

    /// Sets the address of the allocation at this path.
    pub fn set_address(&mut self, path: &str, address: IpAddr) {
        let all = self.resources.values_mut().filter(|one| one.kind == ObjectKind::Allocation);
        all.filter(|one| *one.tags.path == *path).for_each(|one| one.address = Some(address));
    }

    /// Returns the valid ids of the IP pools that tags and paths of allocations name.
    pub fn address_pools(&self) -> BTreeSet<Box<str>> {
        let of_services = self.resources.values().filter(|one| !one.tags.service.is_empty());
        of_services.filter_map(Resource::valid_address_pool).map(Into::into).collect()
    }

    /// Returns the objects whose tags name this Service, including objects of other clusters with the same name.
    pub fn of_service(&self, service: &str) -> ServiceResources {
        ServiceResources(self.named(service).cloned().collect())
    }

    /// Returns the Services named by objects with this cluster UID.
    pub fn services_of(&self, cluster_uid: &str) -> BTreeSet<&str> {
        let is_of = |one: &&Resource| one.tags.cluster_uid.as_deref() == Some(cluster_uid);
        services_of(self.resources.values().filter(is_of))
    }

    /// Returns the Services with several allocations for one load balancer, at least one of them without an address.
    pub fn with_surplus_allocations(&self) -> BTreeSet<&str> {
        let is_surplus = |one: &&Resource| {
            let mut others = self.named(&one.tags.service).filter(|other| other.kind == one.kind);
            let is_beside =
                |other: &Resource| other.tags.secondary == one.tags.secondary && other.tags.path != one.tags.path;
            one.address.is_none() && others.any(is_beside)
        };
        services_of(self.of_kind(ObjectKind::Allocation).filter(is_surplus))
    }

    /// Returns the number of objects that name this cluster, except load balancer services.
    pub fn count(&self) -> usize {
        let is_counted = |one: &&Resource| one.tags.is_named_as_ours && one.kind != ObjectKind::LbService;
        self.resources.values().filter(is_counted).count()
    }

    /// Returns the number of objects that name this cluster and have the UID of another cluster of the same name.
    pub fn count_of_other_clusters(&self, cluster_uid: Option<&str>) -> usize {
        let is_of_other = |one: &&Resource| {
            let of_cluster = by_cluster_uid(cluster_uid, one.tags.cluster_uid.as_deref());
            one.tags.is_named_as_ours && of_cluster == OfCluster::Another
        };
        self.resources.values().filter(is_of_other).count()
    }

    /// Returns the objects that name this cluster but no Service, and have no UID of another cluster. While the UID of
    /// this cluster is unknown, returns only objects without a cluster UID.
    pub fn without_service(&self, cluster_uid: Option<&str>) -> BTreeSet<Box<str>> {
        let may_be_ours = |one: &&Resource| {
            let tagged = one.tags.cluster_uid.as_deref();
            one.tags.is_named_as_ours
                && one.kind != ObjectKind::LbService
                && (tagged.is_none() || tagged == cluster_uid)
        };
        self.named("").filter(may_be_ours).map(|one| one.tags.path.clone()).collect()
    }

    /// Returns the Services that objects name.
    pub fn services(&self) -> BTreeSet<&str> {
        services_of(self.resources.values())
    }

    /// Whether a load balancer service exists at this path.
    pub fn has_lb_service(&self, path: &str) -> bool {
        self.of_kind(ObjectKind::LbService).any(|one| *one.tags.path == *path)
    }

    /// Returns the number of virtual servers of all owners on the load balancer service at this path.
    pub fn servers_on(&self, path: &str) -> usize {
        self.of_kind(ObjectKind::VirtualServer).filter(|one| one.reference(ObjectKind::LbService) == path).count()
    }

    /// Returns the load balancer service in use; `None` if it has to be created. As in the Go program, the load
    /// balancer service on the configured gateway is used regardless of its tags.
    ///
    /// # Errors
    /// The message that the configured load balancer service is missing, or is on another gateway than configured.
    pub fn lb_service(
        &self,
        Selection { id, tier1 }: Selection<'_>,
        cluster_uid: Option<&str>,
    ) -> Result<Option<&Resource>, String> {
        // A load balancer service belongs to no Service.
        let mut lb_services = self.named("").filter(|one| one.kind == ObjectKind::LbService);
        if let Some(id) = id {
            let found = lb_services.find(|one| *one.tags.id == *id);
            let found = found.ok_or_else(|| format!("no load balancer service found with id {id}"))?;
            let gateway = &*found.spec.tier1;
            return match tier1.filter(|tier1| gateway != *tier1) {
                Some(tier1) => {
                    Err(format!("load balancer service {id:?} is configured for router {gateway:?} not {tier1:?}"))
                }
                None => Ok(Some(found)),
            };
        }
        let is_on_gateway = |one: &&Resource| tier1.is_some_and(|tier1| *one.spec.tier1 == *tier1);
        let is_ours = |one: &&Resource| {
            one.tags.are_of_first_load_balancer()
                && match by_cluster_uid(cluster_uid, one.tags.cluster_uid.as_deref()) {
                    OfCluster::This => true,
                    OfCluster::Another => false,
                    // Clusters with the same name on several gateways differ by gateway.
                    OfCluster::Unknown => tier1.is_none(),
                }
        };
        let on_gateway = lb_services.clone().find(is_on_gateway);
        Ok(on_gateway.or_else(|| lb_services.find(is_ours)))
    }

    /// Returns the resources that name this Service; for an empty name, those that name none.
    fn named(&self, service: &str) -> impl Iterator<Item = &Resource> + Clone {
        let all = self.resources.range((service.into(), Box::default())..);
        all.map(|(_, one)| one).take_while(move |one| *one.tags.service == *service)
    }

    fn of_kind(&self, kind: ObjectKind) -> impl Iterator<Item = &Resource> + Clone {
        self.resources.values().filter(move |one| one.kind == kind)
    }
}

/// Returns the Services that resources name.
fn services_of<'a>(resources: impl Iterator<Item = &'a Resource>) -> BTreeSet<&'a str> {
    resources.map(|one| &*one.tags.service).filter(|service| !service.is_empty()).collect()
}

#[cfg(test)]
mod tests;
