//! `Backend` for the NSX Policy API.
//!
//! The id of a new object derives from its Service and port (of a load balancer service: from cluster and gateway), so
//! a repeated create finds the same object. Before each change or deletion, this backend reads the object, and skips it
//! if its tags differ from the tags in the plan.

mod addresses;
mod capacity;
mod failures;
mod pools;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use async_trait::async_trait;
use tracing::info;

use self::capacity::{advertises_addresses, usage_of};
use self::failures::{
    create_failed, failed, is_missing, is_to_be_read, kind_of, no_address, not_listed, obstructed, unmarked,
};
use super::{
    Backend, ConfiguredObject, Each, ObjectChange, PoolUpdate, Record, Request, Scope, ScopeNames, Suitability, Usage,
};
use crate::clients::http::Permit;
use crate::clients::nsx::realization::{Reservation, RevisionStatus};
use crate::clients::nsx::{self as client, Client, Object};
use crate::cloud::{Error, LeaderToken};
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::nsx::load_balancer::body::{self, GROUP_TYPE};
use crate::providers::vsphere::nsx::load_balancer::layout::{
    ADDRESS_POOLS, ClusterLayout, IDS, ObjectKind, Owner, Protocol,
};
use crate::providers::vsphere::nsx::load_balancer::members;
use crate::providers::vsphere::nsx::load_balancer::plan::{self, Action, AllocationRequest};
use crate::providers::vsphere::nsx::load_balancer::resource::{OwnerTags, Resource};
use crate::providers::vsphere::nsx::ownership::{CLUSTER_UID, OfCluster, by_cluster_uid};
use crate::providers::vsphere::nsx::permit as permit_of;
use crate::providers::vsphere::reason;

/// Maximum number of attempts for a change while other clients change the object, too.
const ATTEMPTS: u32 = 5;
/// Page size of lists. Lists of pools and groups have smaller pages, because pools and groups may have many members.
const PAGE: usize = 1000;
const POOL_PAGE: usize = 100;
const GROUP_PAGE: usize = 100;

const PROFILES: &str = "/infra/lb-app-profiles";

/// Load balancers of one NSX Manager.
pub struct NsxBackend {
    client: Client,
    /// Whether one call may write several pools.
    batches: AtomicBool,
}

/// Names of the operations on one kind of object, for metrics.
struct Calls {
    list: &'static str,
    get: &'static str,
    put: &'static str,
    delete: &'static str,
}

macro_rules! calls {
    ($objects:literal) => {
        Calls {
            list: concat!($objects, ".list"),
            get: concat!($objects, ".get"),
            put: concat!($objects, ".put"),
            delete: concat!($objects, ".delete"),
        }
    };
}

impl Calls {
    const fn of(kind: ObjectKind) -> Self {
        match kind {
            ObjectKind::LbService => calls!("lb-services"),
            ObjectKind::VirtualServer => calls!("lb-virtual-servers"),
            ObjectKind::Pool => calls!("lb-pools"),
            ObjectKind::Monitor => calls!("lb-monitor-profiles"),
            ObjectKind::Allocation => Calls { put: "ip-allocations.create", ..calls!("ip-allocations") },
            ObjectKind::Group => calls!("groups"),
            ObjectKind::PersistenceProfile => calls!("lb-persistence-profiles"),
        }
    }
}

/// An object to create under its first free id.
struct NewObject<'a> {
    resource: &'a Resource,
    /// The path without the id.
    parent: &'a str,
    body: Object,
    operation: String,
    /// Index of the first id to try.
    first: u8,
}

impl NsxBackend {
    /// Creates the backend; sends no request.
    pub fn new(client: Client, batches: bool) -> Self {
        Self { client, batches: AtomicBool::new(batches) }
    }

    /// Reads an object. `doing` is the current operation, for messages.
    async fn get(&self, kind: ObjectKind, path: &str, doing: &str) -> Result<Option<Object>, Error> {
        match self.client.get(path, Calls::of(kind).get).await {
            Ok(object) if object.path() == path => Ok(Some(object)),
            Ok(_) => {
                let message = format!("{doing}: the answer is not the requested object");
                Err(Error::Failed { reason: reason::NSXUnavailable, message, after: None })
            }
            Err(error) if error.kind == client::Kind::NotFound => Ok(None),
            Err(error) => Err(failed(doing, None, &error)),
        }
    }

    /// Whether the object at `path`, which NSX reported as missing, is missing or being deleted, and of a kind that
    /// this program creates. Reads the object, because NSX may also report an existing object.
    async fn lacks_part(&self, path: &str, doing: &str) -> Result<bool, Error> {
        let Some(kind) = kind_of(path) else { return Ok(false) };
        let found = self.get(kind, path, doing).await?;
        Ok(found.is_none_or(|object| object.is_marked_for_delete()))
    }

    /// Creates an object under its first free id, or returns the existing object of the Service. If the new object
    /// refers to a missing object of the load balancer, only records this and returns `None`.
    async fn create(
        &self,
        request: &Request<'_>,
        new: NewObject<'_>,
        record: Record<'_>,
    ) -> Result<Option<Object>, Error> {
        let permit = permit_of(request.permit);
        for attempt in new.first..IDS {
            let path = format!("{}/{}", new.parent, id_of(request, new.resource, attempt));
            match self.create_at(request, &permit, &new, &path).await? {
                CreateOutcome::Here(object) => {
                    info!(service = %request.owner.service, path, "created in NSX");
                    record(ObjectChange::Present(new.resource.kind, object.clone()));
                    return Ok(Some(object));
                }
                CreateOutcome::Missing(path) => {
                    record(ObjectChange::Gone(path));
                    return Ok(None);
                }
                CreateOutcome::Unmarked => return Err(unmarked(&new.operation, &path)),
                CreateOutcome::Taken => {}
            }
        }
        let message =
            format!("{}: all ids are in use, by other objects or by deleted ones that NSX still keeps", new.operation);
        Err(Error::Failed { reason: reason::NSXRefused, message, after: None })
    }

    async fn create_at(
        &self,
        request: &Request<'_>,
        permit: &Arc<dyn Permit>,
        new: &NewObject<'_>,
        path: &str,
    ) -> Result<CreateOutcome, Error> {
        let (mut attempt, mut body) = (1, new.body.clone());
        loop {
            let error = match self.put(permit, new.resource.kind, path, &body).await {
                Ok(object) => return Ok(CreateOutcome::Here(object)),
                Err(error) => error,
            };
            match &error.kind {
                client::Kind::MarkedForDeletion => return Ok(CreateOutcome::Taken),
                // The object may exist already, or the outcome of the write is unknown.
                client::Kind::Conflict | client::Kind::Unknown => {
                    match self.get(new.resource.kind, path, &new.operation).await? {
                        Some(object) => return Ok(taken(request, new, object)),
                        None if attempt < ATTEMPTS => attempt += 1,
                        None => return Err(create_failed(&new.operation, &error)),
                    }
                }
                client::Kind::MissingReference(missing) if self.lacks_part(missing, &new.operation).await? => {
                    return Ok(CreateOutcome::Missing(missing.clone()));
                }
                // Old versions of NSX reject this field.
                client::Kind::BadRequest if attempt < ATTEMPTS && body.0.remove(GROUP_TYPE).is_some() => attempt += 1,
                _ => return Err(create_failed(&new.operation, &error)),
            }
        }
    }

    /// Writes an object and returns the stored version. An allocation is written with a PATCH, which returns no body,
    /// so the sent version is returned.
    async fn put(
        &self,
        permit: &Arc<dyn Permit>,
        kind: ObjectKind,
        path: &str,
        body: &Object,
    ) -> Result<Object, client::Error> {
        let operation = Calls::of(kind).put;
        if kind != ObjectKind::Allocation {
            return self.client.put(permit, path, operation, body).await;
        }
        self.client.patch(permit, path, operation, body).await?;
        let mut object = body.clone();
        let id = path.rsplit('/').next().unwrap_or_default();
        object.0.insert("id".to_owned(), id.into());
        object.0.insert("path".to_owned(), path.into());
        Ok(object)
    }

    async fn update_object(
        &self,
        request: &Request<'_>,
        resource: &Resource,
        desired: &Resource,
        record: Record<'_>,
    ) -> Result<(), Error> {
        let members = request.spec.map(|spec| spec.members.as_slice()).unwrap_or_default();
        let tags = plan::tags_at_write(&resource.tags, resource.kind, &request.owner, request.layout);
        let edit = |object: &mut Object| {
            body::edit(object, resource, desired, &request.layout.cluster, members);
            tags.write_into(object);
        };
        self.change(request, resource, &format!("change {}", resource.tags.path), &edit, record).await
    }

    /// Changes an object if its tags are unchanged. Otherwise, or if a referenced object is missing, only records this.
    async fn change(
        &self,
        request: &Request<'_>,
        resource: &Resource,
        doing: &str,
        edit: &(dyn Fn(&mut Object) + Send + Sync),
        record: Record<'_>,
    ) -> Result<(), Error> {
        let (kind, path) = (resource.kind, &*resource.tags.path);
        let permit = permit_of(request.permit);
        let mut attempt = 1;
        loop {
            let Some(mut object) = self.checked(request.layout, resource, doing, record).await? else { return Ok(()) };
            let owner = object.created_by().to_owned();
            edit(&mut object);
            request.layout.of(resource.tags.secondary).tags(kind).write_into(&mut object);
            match self.client.put(&permit, path, Calls::of(kind).put, &object).await {
                Ok(stored) => {
                    info!(service = %request.owner.service, path, "changed in NSX");
                    record(ObjectChange::Present(kind, stored));
                    return Ok(());
                }
                Err(error) => match &error.kind {
                    kind if is_to_be_read(kind) && attempt < ATTEMPTS => attempt += 1,
                    client::Kind::MissingReference(missing) if self.lacks_part(missing, doing).await? => {
                        record(ObjectChange::Gone(missing.clone()));
                        return Ok(());
                    }
                    _ => return Err(failed(doing, Some(&owner), &error)),
                },
            }
        }
    }

    /// Reads an object and returns it if its tags, and the gateway of a load balancer service, are unchanged; otherwise
    /// only records the new state.
    async fn checked(
        &self,
        layout: &ClusterLayout,
        resource: &Resource,
        doing: &str,
        record: Record<'_>,
    ) -> Result<Option<Object>, Error> {
        let (kind, path) = (resource.kind, &*resource.tags.path);
        let Some(object) = self.get(kind, path, doing).await? else {
            record(ObjectChange::Gone(path.to_owned()));
            return Ok(None);
        };
        let is_same = |now: Resource| now.tags == resource.tags && now.spec.tier1 == resource.spec.tier1;
        if Resource::read(kind, &object, layout).is_some_and(is_same) {
            return Ok(Some(object));
        }
        record(ObjectChange::Present(kind, object));
        Ok(None)
    }

    async fn delete(&self, request: &Request<'_>, resource: &Resource, record: Record<'_>) -> Result<(), Error> {
        let (kind, path) = (resource.kind, &*resource.tags.path);
        let doing = format!("delete {path}");
        let permit = permit_of(request.permit);
        let mut attempt = 1;
        loop {
            let Some(object) = self.checked(request.layout, resource, &doing, record).await? else { return Ok(()) };
            match self.client.delete(&permit, path, Calls::of(kind).delete).await {
                Ok(()) => {
                    // The load balancer service belongs to no Service.
                    let service = (kind != ObjectKind::LbService).then_some(request.owner.service);
                    info!(service, path, "deleted in NSX");
                    record(ObjectChange::Gone(path.to_owned()));
                    return Ok(());
                }
                Err(error) => match error.kind {
                    client::Kind::Conflict | client::Kind::Unknown if attempt < ATTEMPTS => attempt += 1,
                    client::Kind::Referenced if kind == ObjectKind::LbService => {
                        record(ObjectChange::Referenced(path.to_owned()));
                        return Ok(());
                    }
                    _ => {
                        if error.kind == client::Kind::Referenced {
                            record(ObjectChange::Referenced(path.to_owned()));
                        }
                        return Err(failed(&doing, Some(object.created_by()), &error));
                    }
                },
            }
        }
    }

    async fn list_kind(&self, kind: ObjectKind, each: Each<'_>) -> Result<(), Error> {
        let page = match kind {
            ObjectKind::Pool => POOL_PAGE,
            ObjectKind::Group => GROUP_PAGE,
            _ => PAGE,
        };
        self.list(kind.parent(), Calls::of(kind).list, page, &mut |object| each(kind, object)).await
    }

    async fn list(
        &self,
        path: &str,
        operation: &'static str,
        page: usize,
        each: &mut (dyn FnMut(Object) + Send),
    ) -> Result<(), Error> {
        let wrong = |error: client::Error| not_listed(path, &error);
        let mut pages = self.client.pages(path, operation, page);
        while let Some(objects) = pages.next().await.map_err(wrong)? {
            objects.into_iter().for_each(&mut *each);
        }
        Ok(())
    }
}

enum CreateOutcome {
    Here(Object),
    /// The id belongs to another object, or to one that is being deleted.
    Taken,
    /// The id belongs to an object of this cluster that names no Service.
    Unmarked,
    /// The new object refers to a missing object of the load balancer, at this path.
    Missing(String),
}

/// Returns one of the ids of a new object.
fn id_of(Request { layout, owner, spec, .. }: &Request<'_>, new: &Resource, attempt: u8) -> String {
    match (new.kind, new.spec.monitor_type, new.tags.port) {
        (ObjectKind::LbService, ..) => layout.lb_service_id(spec.and_then(|of| of.tier1.as_deref()), attempt),
        (_, Some(monitor_type), Some(port)) => layout.monitor_id(monitor_type, owner.uid, port, attempt),
        (kind, _, port) => layout.id(kind, owner.uid, port, attempt),
    }
}

/// Classifies the existing object with the id of the new object. Accepts an existing object that is not being deleted,
/// if its tags name the Service (for a load balancer service: this cluster) and no other cluster.
fn taken(
    request: &Request<'_>,
    NewObject { resource: new, body, .. }: &NewObject<'_>,
    object: Object,
) -> CreateOutcome {
    let (Request { layout, owner, .. }, kind) = (*request, new.kind);
    let Some(found) = OwnerTags::read(&object, layout).filter(|_| !is_of_another(layout, &object)) else {
        return CreateOutcome::Taken;
    };
    if kind == ObjectKind::LbService {
        // Both families share one load balancer service.
        return if found.are_of_first_load_balancer() { CreateOutcome::Here(object) } else { CreateOutcome::Taken };
    }
    let is_of_type = kind != ObjectKind::Monitor || object.text("resource_type") == body.text("resource_type");
    let is_of_load_balancer = found.is_named_as_ours && found.secondary == layout.secondary;
    match (is_of_load_balancer, &*found.service) {
        (true, service) if service == owner.service && is_of_type => CreateOutcome::Here(object),
        // A second object of these kinds could change the address of the Service.
        (true, "") if matches!(kind, ObjectKind::VirtualServer | ObjectKind::Allocation) => CreateOutcome::Unmarked,
        _ => CreateOutcome::Taken,
    }
}

fn is_of_another(layout: &ClusterLayout, object: &Object) -> bool {
    by_cluster_uid(layout.cluster_uid.as_deref(), object.tag(CLUSTER_UID)) == OfCluster::Another
}

#[async_trait]
impl Backend for NsxBackend {
    async fn read(&self, scope: &Scope, each: Each<'_>) -> Result<ScopeNames, Error> {
        for kind in [ObjectKind::LbService, ObjectKind::VirtualServer, ObjectKind::Pool, ObjectKind::Monitor] {
            self.list_kind(kind, each).await?;
        }
        let mut names = ScopeNames::default();
        if !scope.pool_names.is_empty() {
            self.list(ADDRESS_POOLS, "ip-pools.list", PAGE, &mut |pool| {
                let name = pool.text("display_name");
                if scope.pool_names.contains(name) {
                    names.pools.entry(name.to_owned()).or_default().push(pool.id().to_owned());
                }
            })
            .await?;
        }
        if !scope.profile_names.is_empty() {
            self.list(PROFILES, "lb-app-profiles.list", PAGE, &mut |profile| {
                let protocol = match profile.text("resource_type") {
                    "LBFastTcpProfile" => Protocol::Tcp,
                    "LBFastUdpProfile" => Protocol::Udp,
                    _ => return,
                };
                let key = (protocol, profile.text("display_name").to_owned());
                if scope.profile_names.contains(&key) {
                    names.profiles.entry(key).or_default().push(profile.path().to_owned());
                }
            })
            .await?;
        }
        Ok(names)
    }

    async fn read_references(&self, each: Each<'_>) -> Result<(), Error> {
        self.list_kind(ObjectKind::PersistenceProfile, each).await?;
        self.list_kind(ObjectKind::Group, each).await
    }

    async fn read_allocations(&self, pool: &str, each: Each<'_>) -> Result<(), Error> {
        let path = addresses::allocations_of(pool);
        let mut pages = self.client.pages(&path, Calls::of(ObjectKind::Allocation).list, PAGE);
        loop {
            match pages.next().await {
                Ok(Some(objects)) => objects.into_iter().for_each(|object| each(ObjectKind::Allocation, object)),
                Ok(None) => return Ok(()),
                Err(error) if error.says_absent() => return Ok(()),
                Err(error) => return Err(not_listed(&path, &error)),
            }
        }
    }

    async fn address_pools(&self) -> Result<BTreeSet<Box<str>>, Error> {
        let mut ids = BTreeSet::new();
        self.list(ADDRESS_POOLS, "ip-pools.list", PAGE, &mut |pool| ids.extend([pool.id().into()])).await?;
        Ok(ids)
    }

    async fn read_object(&self, kind: ObjectKind, path: &str) -> Result<Option<Object>, Error> {
        self.get(kind, path, &format!("read the {} {path}", kind.name())).await
    }

    async fn suitability(&self, object: &ConfiguredObject) -> Result<Suitability, Error> {
        let (path, operation) = match object {
            ConfiguredObject::AddressPool(id) => (format!("{ADDRESS_POOLS}/{id}"), "ip-pools.get"),
            ConfiguredObject::Profile(path) => (path.clone(), "lb-app-profiles.get"),
            ConfiguredObject::Gateway(path) => (path.clone(), "tier-1s.get"),
        };
        let found = match self.client.get(&path, operation).await {
            Ok(found) => found,
            Err(error) if is_missing(&error) => return Ok(Suitability::Missing),
            Err(error) => return Err(failed(&format!("read {path}"), None, &error)),
        };
        if !matches!(object, ConfiguredObject::Gateway(_)) {
            return Ok(Suitability::Usable);
        }
        let mut has_edge_cluster = false;
        self.list(&format!("{path}/locale-services"), "locale-services.list", PAGE, &mut |one| {
            has_edge_cluster |= !one.text("edge_cluster_path").is_empty();
        })
        .await?;
        Ok(match (has_edge_cluster, advertises_addresses(&found)) {
            (false, _) => Suitability::NoEdgeCluster,
            (true, false) => Suitability::NotAdvertised,
            (true, true) => Suitability::Usable,
        })
    }

    async fn perform(&self, request: &Request<'_>, step: &Action<'_>, record: Record<'_>) -> Result<(), Error> {
        let doing = step.to_string();
        match step {
            Action::Create(resource) => {
                let Some(spec) = request.spec else { return Err(Error::other("a deletion creates nothing")) };
                let body = body::new_object(request.layout, &request.owner, spec, resource);
                let parent = resource.kind.parent();
                let new = NewObject { resource, parent, body, operation: doing, first: 0 };
                self.create(request, new, record).await.map(drop)
            }
            Action::Allocate(AllocationRequest::Any) => self.allocate(request, None, record).await,
            Action::Allocate(AllocationRequest::Rather(address) | AllocationRequest::Only(address)) => {
                self.allocate(request, Some(*address), record).await
            }
            Action::Reserve(server) => self.allocate(request, server.address, record).await,
            Action::Update { resource, desired } => self.update_object(request, resource, desired, record).await,
            Action::Delete(resource) => self.delete(request, resource, record).await,
            Action::Tag { resource, address } => {
                let tags = plan::tags_of(&request.owner, request.layout, resource.kind, *address);
                self.change(request, resource, &doing, &|object| tags.write_into(object), record).await
            }
            Action::Read { kind, path } => {
                let found = self.get(*kind, path, &doing).await?;
                let gone = || ObjectChange::Gone(path.clone());
                record(found.map_or_else(gone, |object| ObjectChange::Present(*kind, object)));
                Ok(())
            }
            Action::ReadAddress(allocation) => self.read_address(request, allocation, false, record).await.map(drop),
            Action::PortConflict { port, server } => Err(obstructed(port, server)),
        }
    }

    async fn reservation(&self, allocation: &Resource) -> Result<Reservation, Error> {
        let path = &*allocation.tags.path;
        let reservation = self.client.reservation(path, "ip-allocations.realization").await;
        reservation.map_err(|error| failed(&format!("read the address of {path}"), None, &error))
    }

    async fn realization(&self, path: &str, revision: Option<i64>) -> Result<RevisionStatus, Error> {
        let status = match revision {
            Some(revision) => self.client.revision_status(path, revision, "realized-status.get").await,
            None => self.client.realization(path, "realized-entities.list").await.map(RevisionStatus::Known),
        };
        status.map_err(|error| failed(&format!("read the realized state of {path}"), None, &error))
    }

    async fn is_in_effect(&self, path: &str) -> Result<bool, Error> {
        let is_in_effect = self.client.is_in_effect(path, "realized-entities.list").await;
        is_in_effect.map_err(|error| failed(&format!("read the realized state of {path}"), None, &error))
    }

    async fn usage(&self, lb_service: &str) -> Result<Option<Usage>, Error> {
        let path = format!("{lb_service}/service-usage");
        match self.client.get(&path, "lb-services.usage").await {
            Ok(answer) => Ok(usage_of(&answer.0)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) if matches!(error.kind, client::Kind::NoPermission | client::Kind::BadRequest) => Ok(None),
            Err(error) => Err(failed(&format!("read {path}"), None, &error)),
        }
    }

    async fn has_family(&self, pool: &str, family: IpFamily) -> Result<bool, Error> {
        self.has_subnet_of(pool, family).await
    }

    /// Checks the address here, because NSX may accept an address that is outside of the IP pool or in use.
    async fn check_address(&self, request: &Request<'_>, pool: &str, requested: IpAddr) -> Result<(), Error> {
        self.check_is_free(request, pool, requested).await
    }

    async fn update_pools(
        &self,
        permit: &LeaderToken,
        layout: &ClusterLayout,
        updates: BTreeMap<Box<str>, PoolUpdate>,
        record: Record<'_>,
    ) -> BTreeMap<Box<str>, Error> {
        self.update(permit, layout, updates, record).await
    }
}
