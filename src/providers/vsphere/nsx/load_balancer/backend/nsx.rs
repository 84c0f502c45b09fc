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
use self::failures::{failed, is_missing, no_address, not_listed, obstructed, part_of, refused, unmarked};
use super::{
    Backend, ConfiguredObject, Each, LoadBalancerSpec, ObjectChange, PoolUpdate, Record, Request, Scope, ScopeNames,
    Suitability, Usage,
};
use crate::clients::http::Permit;
use crate::clients::nsx::realization::{Reservation, RevisionStatus};
use crate::clients::nsx::{self as client, Client, Object, Priority, WriteCall};
use crate::cloud::{Error, LeaderToken};
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::nsx::load_balancer::layout::{
    ClusterLayout, GROUP_TYPE, GROUPS, IDS, LB_SERVICES, ObjectKind, Owner, PERSISTENCE_PROFILES, PoolFacts, Protocol,
    SERVERS, ServerFacts,
};
use crate::providers::vsphere::nsx::load_balancer::members;
use crate::providers::vsphere::nsx::load_balancer::objects::{Allocation, LbService, OwnerTags};
use crate::providers::vsphere::nsx::load_balancer::plan::{self, AllocationRequest, Step};
use crate::providers::vsphere::nsx::ownership::{CLUSTER_UID, OfCluster, by_cluster_uid};
use crate::providers::vsphere::nsx::permit as permit_of;
use crate::providers::vsphere::reason;

/// Maximum number of attempts for a change while other clients change the object, too.
const ATTEMPTS: u32 = 5;
/// Page size of lists. Lists of pools and groups have smaller pages, because pools and groups may have many members.
const PAGE: usize = 1000;
const POOL_PAGE: usize = 100;
const GROUP_PAGE: usize = 100;

const POOLS: &str = "/infra/lb-pools";
const MONITORS: &str = "/infra/lb-monitor-profiles";
const PROFILES: &str = "/infra/lb-app-profiles";
const ADDRESS_POOLS: &str = "/infra/ip-pools";

/// Load balancers of one NSX Manager.
pub struct NsxBackend {
    client: Client,
    /// Whether one call may write several pools.
    batches: AtomicBool,
}

/// Names of the operations on one kind of object, for metrics.
struct Calls {
    get: &'static str,
    put: &'static str,
    delete: &'static str,
}

impl Calls {
    const fn of(kind: ObjectKind) -> Self {
        match kind {
            ObjectKind::LbService => {
                Self { get: "lb-services.get", put: "lb-services.put", delete: "lb-services.delete" }
            }
            ObjectKind::VirtualServer => Self {
                get: "lb-virtual-servers.get",
                put: "lb-virtual-servers.put",
                delete: "lb-virtual-servers.delete",
            },
            ObjectKind::Pool => Self { get: "lb-pools.get", put: "lb-pools.put", delete: "lb-pools.delete" },
            ObjectKind::Monitor => Self {
                get: "lb-monitor-profiles.get",
                put: "lb-monitor-profiles.put",
                delete: "lb-monitor-profiles.delete",
            },
            ObjectKind::Allocation => {
                Self { get: "ip-allocations.get", put: "ip-allocations.create", delete: "ip-allocations.delete" }
            }
            ObjectKind::Group => Self { get: "groups.get", put: "groups.put", delete: "groups.delete" },
            ObjectKind::PersistenceProfile => Self {
                get: "lb-persistence-profiles.get",
                put: "lb-persistence-profiles.put",
                delete: "lb-persistence-profiles.delete",
            },
        }
    }
}

/// An object and the current operation on it. `operation` is text, for messages.
#[derive(Clone, Copy)]
struct ObjectTarget<'a> {
    kind: ObjectKind,
    path: &'a str,
    operation: &'a str,
}

/// An object to create under its first free id.
struct NewObject<'a> {
    kind: ObjectKind,
    /// The path without the id.
    parent: &'a str,
    id: &'a (dyn Fn(u8) -> String + Send + Sync),
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

    async fn get(&self, target: ObjectTarget<'_>) -> Result<Option<Object>, Error> {
        let ObjectTarget { kind, path, operation: doing } = target;
        match self.client.get(path, Calls::of(kind).get, Priority::Urgent).await {
            Ok(object) if object.path() == path => Ok(Some(object)),
            Ok(_) => {
                let message = format!("{doing}: the answer is not the object that was asked for");
                Err(Error::Failed { reason: reason::NSXUnavailable, message, after: None })
            }
            Err(error) if error.kind == client::Kind::NotFound => Ok(None),
            Err(error) => Err(failed(doing, None, &error)),
        }
    }

    /// Whether the object at `path`, which NSX reported as missing, is missing or being deleted, and of a kind that
    /// this program creates. Reads the object, because NSX may also report an existing object.
    async fn lacks_part(&self, path: &str, doing: &str) -> Result<bool, Error> {
        let Some(kind) = part_of(path) else { return Ok(false) };
        let found = self.get(ObjectTarget { kind, path, operation: doing }).await?;
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
            let path = format!("{}/{}", new.parent, (new.id)(attempt));
            match self.create_at(request, &permit, &new, &path).await? {
                CreateOutcome::Here(object) => {
                    info!(service = %request.owner, path, "created in NSX");
                    record(ObjectChange::Entered(new.kind, object.clone()));
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
        let target = ObjectTarget { kind: new.kind, path, operation: &new.operation };
        let (mut last, mut body) = (None, new.body.clone());
        for _ in 0..ATTEMPTS {
            let error = match self.put(permit, new.kind, path, &body).await {
                Ok(object) => return Ok(CreateOutcome::Here(object)),
                Err(error) => error,
            };
            match &error.kind {
                client::Kind::MarkedForDeletion => return Ok(CreateOutcome::Taken),
                // The object may exist already, or the outcome of the write is unknown.
                client::Kind::Conflict | client::Kind::Unknown => match self.get(target).await? {
                    Some(object) => return Ok(taken(request, new, object)),
                    None => last = Some(error),
                },
                client::Kind::MissingReference(missing) if self.lacks_part(missing, &new.operation).await? => {
                    return Ok(CreateOutcome::Missing(missing.clone()));
                }
                // Old versions of NSX reject this field.
                client::Kind::BadRequest if body.0.remove(GROUP_TYPE).is_some() => last = Some(error),
                _ => return Err(refused(&new.operation, &error)),
            }
        }
        Err(last.map_or_else(|| Error::other(&*new.operation), |error| refused(&new.operation, &error)))
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
            return self.client.put(WriteCall { permit }, path, operation, body).await;
        }
        self.client.patch(WriteCall { permit }, path, operation, body).await?;
        let mut object = body.clone();
        let id = path.rsplit('/').next().unwrap_or_default();
        object.0.insert("id".to_owned(), id.into());
        object.0.insert("path".to_owned(), path.into());
        Ok(object)
    }

    async fn edit(
        &self,
        request: &Request<'_>,
        kind: ObjectKind,
        marks: &OwnerTags,
        step: &Step<'_>,
        record: Record<'_>,
    ) -> Result<(), Error> {
        let (path, doing) = (&*marks.path, format!("change {}", marks.path));
        let members = request.spec.map(|parts| parts.members.as_slice()).unwrap_or_default();
        let tags = plan::tags_at_write(marks, kind, &request.owner, request.layout);
        let edit = |object: &mut Object| {
            step.edit(object, request.layout, members);
            tags.write_into(object);
        };
        self.change(request, ObjectTarget { kind, path, operation: &doing }, marks, &edit, record).await
    }

    /// Changes an object if its tags are unchanged. Otherwise, or if a referenced object is missing, only records this.
    async fn change(
        &self,
        request: &Request<'_>,
        target: ObjectTarget<'_>,
        tags: &OwnerTags,
        edit: &(dyn Fn(&mut Object) + Send + Sync),
        record: Record<'_>,
    ) -> Result<(), Error> {
        let ObjectTarget { kind, path, operation: doing } = target;
        let permit = permit_of(request.permit);
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let Some(mut object) = self.checked(request.layout, target, tags, record).await? else { return Ok(()) };
            let owner = object.created_by().to_owned();
            edit(&mut object);
            request.layout.of(tags.secondary).tags(kind).write_into(&mut object);
            match self.client.put(WriteCall { permit: &permit }, path, Calls::of(kind).put, &object).await {
                Ok(stored) => {
                    info!(service = %request.owner, path, "changed in NSX");
                    record(ObjectChange::Entered(kind, stored));
                    return Ok(());
                }
                Err(error) => match &error.kind {
                    client::Kind::Conflict
                    | client::Kind::Unknown
                    | client::Kind::NotFound
                    | client::Kind::MarkedForDeletion => last = Some(error),
                    client::Kind::MissingReference(missing) if self.lacks_part(missing, doing).await? => {
                        record(ObjectChange::Gone(missing.clone()));
                        return Ok(());
                    }
                    _ => return Err(failed(doing, Some(&owner), &error)),
                },
            }
        }
        Err(last.map_or_else(|| Error::other(doing), |error| failed(doing, None, &error)))
    }

    /// Reads an object and returns it if its tags are unchanged; otherwise only records the new state.
    async fn checked(
        &self,
        layout: &ClusterLayout,
        target: ObjectTarget<'_>,
        tags: &OwnerTags,
        record: Record<'_>,
    ) -> Result<Option<Object>, Error> {
        match self.get(target).await? {
            None => {
                record(ObjectChange::Gone(target.path.to_owned()));
                Ok(None)
            }
            Some(object) if OwnerTags::read(&object, layout).as_ref() == Some(tags) => Ok(Some(object)),
            Some(object) => {
                record(ObjectChange::Entered(target.kind, object));
                Ok(None)
            }
        }
    }

    async fn delete(
        &self,
        request: &Request<'_>,
        kind: ObjectKind,
        tags: &OwnerTags,
        record: Record<'_>,
    ) -> Result<(), Error> {
        let (path, doing) = (&*tags.path, format!("delete {}", tags.path));
        let target = ObjectTarget { kind, path, operation: &doing };
        let permit = permit_of(request.permit);
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let Some(object) = self.checked(request.layout, target, tags, record).await? else { return Ok(()) };
            match self.client.delete(WriteCall { permit: &permit }, path, Calls::of(kind).delete).await {
                Ok(()) => {
                    info!(service = %request.owner, path, "deleted in NSX");
                    record(ObjectChange::Gone(path.to_owned()));
                    return Ok(());
                }
                Err(error) if matches!(error.kind, client::Kind::Conflict | client::Kind::Unknown) => {
                    last = Some(error)
                }
                Err(error) => {
                    if error.kind == client::Kind::Referenced {
                        record(ObjectChange::Referenced(path.to_owned()));
                    }
                    return Err(failed(&doing, Some(object.created_by()), &error));
                }
            }
        }
        Err(last.map_or_else(|| Error::other(&*doing), |error| failed(&doing, None, &error)))
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

/// Classifies the existing object with the id of the new object. Accepts an existing object that is not being deleted,
/// if its tags name the Service (for a load balancer service: this cluster) and no other cluster.
fn taken(request: &Request<'_>, NewObject { kind, body, .. }: &NewObject<'_>, object: Object) -> CreateOutcome {
    let (Request { layout, owner, .. }, kind) = (*request, *kind);
    let is_of_type = kind != ObjectKind::Monitor || object.text("resource_type") == body.text("resource_type");
    let is_service = |tags: &OwnerTags| *tags.service == *owner.to_string() && tags.secondary == layout.secondary;
    // Both families share one load balancer service.
    let second = layout.secondary.filter(|_| kind != ObjectKind::LbService);
    let is_named = layout.load_balancer_of(&object) == Some(second);
    match &OwnerTags::read(&object, layout) {
        _ if is_of_another(layout, &object) || object.is_marked_for_delete() => CreateOutcome::Taken,
        Some(marks) if is_service(marks) && is_of_type => CreateOutcome::Here(object),
        None if is_named && kind == ObjectKind::LbService => CreateOutcome::Here(object),
        // A second object of these kinds could change the address of the Service.
        None if is_named && matches!(kind, ObjectKind::VirtualServer | ObjectKind::Allocation) => {
            CreateOutcome::Unmarked
        }
        Some(_) | None => CreateOutcome::Taken,
    }
}

fn is_of_another(layout: &ClusterLayout, object: &Object) -> bool {
    by_cluster_uid(layout.cluster_uid.as_deref(), object.tag(CLUSTER_UID)) == OfCluster::Another
}

#[async_trait]
impl Backend for NsxBackend {
    async fn read(&self, scope: &Scope, each: Each<'_>) -> Result<ScopeNames, Error> {
        let lists = [
            (ObjectKind::LbService, LB_SERVICES, "lb-services.list", PAGE),
            (ObjectKind::VirtualServer, SERVERS, "lb-virtual-servers.list", PAGE),
            (ObjectKind::Pool, POOLS, "lb-pools.list", POOL_PAGE),
            (ObjectKind::Monitor, MONITORS, "lb-monitor-profiles.list", PAGE),
        ];
        for (kind, path, operation, page) in lists {
            self.list(path, operation, page, &mut |object| each(kind, object)).await?;
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
        let profiles = (ObjectKind::PersistenceProfile, PERSISTENCE_PROFILES, "lb-persistence-profiles.list", PAGE);
        for (kind, path, operation, page) in [profiles, (ObjectKind::Group, GROUPS, "groups.list", GROUP_PAGE)] {
            self.list(path, operation, page, &mut |object| each(kind, object)).await?;
        }
        Ok(())
    }

    async fn read_allocations(&self, pool: &str, each: Each<'_>) -> Result<(), Error> {
        let path = format!("{ADDRESS_POOLS}/{pool}/ip-allocations");
        let mut pages = self.client.pages(&path, "ip-allocations.list", PAGE);
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

    async fn suitability(&self, object: &ConfiguredObject) -> Result<Suitability, Error> {
        let (path, operation) = match object {
            ConfiguredObject::AddressPool(id) => (format!("{ADDRESS_POOLS}/{id}"), "ip-pools.get"),
            ConfiguredObject::Profile(path) => (path.clone(), "lb-app-profiles.get"),
            ConfiguredObject::Gateway(path) => (path.clone(), "tier-1s.get"),
        };
        let found = match self.client.get(&path, operation, Priority::Urgent).await {
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

    async fn perform(&self, request: &Request<'_>, step: &Step<'_>, record: Record<'_>) -> Result<(), Error> {
        match step {
            Step::CreateMonitor { .. }
            | Step::CreatePool { .. }
            | Step::CreateGroup { .. }
            | Step::CreatePersistenceProfile { .. }
            | Step::Allocate { .. }
            | Step::Reserve { .. }
            | Step::CreateLbService
            | Step::CreateServer { .. } => match request.spec {
                Some(parts) => self.perform_creation(request, parts, step, record).await,
                None => Err(Error::other("a deletion creates nothing")),
            },
            Step::ChangeMonitor { monitor, .. } => {
                self.edit(request, ObjectKind::Monitor, &monitor.tags, step, record).await
            }
            Step::ChangePool { pool, .. } => self.edit(request, ObjectKind::Pool, &pool.tags, step, record).await,
            Step::ChangeServer { server, .. } | Step::SetAddress { server, .. } => {
                self.edit(request, ObjectKind::VirtualServer, &server.tags, step, record).await
            }
            Step::ChangeGroup { group, .. } => self.edit(request, ObjectKind::Group, &group.tags, step, record).await,
            Step::ChangePersistenceProfile { profile, .. } => {
                self.edit(request, ObjectKind::PersistenceProfile, &profile.tags, step, record).await
            }
            Step::Read { kind, path } => {
                let doing = format!("read {path}");
                let found = self.get(ObjectTarget { kind: *kind, path, operation: &doing }).await?;
                record(
                    found.map_or_else(
                        || ObjectChange::Gone(path.clone()),
                        |object| ObjectChange::Entered(*kind, object),
                    ),
                );
                Ok(())
            }
            Step::PortConflict { port, server } => Err(obstructed(port, server)),
            Step::Tag { tags: present, address } => {
                let kind = part_of(&present.path).unwrap_or(ObjectKind::Monitor);
                let doing = format!("tag {}", present.path);
                let target = ObjectTarget { kind, path: &present.path, operation: &doing };
                let tags = plan::tags_of(&request.owner, request.layout, kind, *address);
                self.change(request, target, present, &|object| tags.write_into(object), record).await
            }
            Step::Untag { pool } => self.edit(request, ObjectKind::Pool, &pool.tags, step, record).await,
            Step::ReadAddress { allocation } => self.read_address(request, allocation, false, record).await.map(drop),
            Step::DeleteServer(server) => self.delete(request, ObjectKind::VirtualServer, &server.tags, record).await,
            Step::DeletePool(pool) => self.delete(request, ObjectKind::Pool, &pool.tags, record).await,
            Step::DeleteMonitor(monitor) => self.delete(request, ObjectKind::Monitor, &monitor.tags, record).await,
            Step::DeletePersistenceProfile(profile) => {
                self.delete(request, ObjectKind::PersistenceProfile, &profile.tags, record).await
            }
            Step::DeleteGroup(group) => self.delete(request, ObjectKind::Group, &group.tags, record).await,
            Step::ReleaseAddress(allocation) => {
                self.delete(request, ObjectKind::Allocation, &allocation.tags, record).await
            }
        }
    }

    async fn reservation(&self, allocation: &Allocation) -> Result<Reservation, Error> {
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

    async fn usage(&self, lb_service: &str) -> Result<Usage, Error> {
        let path = format!("{lb_service}/service-usage");
        let read = self.client.get(&path, "lb-services.usage", Priority::Urgent).await;
        let read = read.map_err(|error| failed(&format!("read {path}"), None, &error))?;
        usage_of(&read.0).ok_or_else(|| {
            let message = format!("read {path}: the answer does not say what is used and allowed");
            Error::Failed { reason: reason::NSXUnavailable, message, after: None }
        })
    }

    async fn has_family(&self, pool: &str, family: IpFamily) -> Result<bool, Error> {
        self.has_subnet_of(pool, family).await
    }

    /// Checks the address here, because NSX may accept an address that is outside of the IP pool or in use.
    async fn check_address(&self, request: &Request<'_>, pool: &str, requested: IpAddr) -> Result<(), Error> {
        self.check_is_free(request, pool, requested).await
    }

    async fn delete_lb_service(
        &self,
        permit: &LeaderToken,
        layout: &ClusterLayout,
        lb_service: &LbService,
        record: Record<'_>,
    ) -> Result<(), Error> {
        let (path, doing) = (&*lb_service.path, format!("delete {}", lb_service.path));
        let target = ObjectTarget { kind: ObjectKind::LbService, path, operation: &doing };
        let permit = permit_of(permit);
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let Some(object) = self.get(target).await? else {
                record(ObjectChange::Gone(path.to_owned()));
                return Ok(());
            };
            if LbService::read(&object, layout).as_ref() != Some(lb_service) {
                record(ObjectChange::Entered(ObjectKind::LbService, object));
                return Ok(());
            }
            match self.client.delete(WriteCall { permit: &permit }, path, Calls::of(ObjectKind::LbService).delete).await
            {
                Ok(()) => {
                    info!(path, "deleted in NSX");
                    record(ObjectChange::Gone(path.to_owned()));
                    return Ok(());
                }
                Err(error) => match error.kind {
                    client::Kind::Referenced => {
                        record(ObjectChange::Referenced(path.to_owned()));
                        return Ok(());
                    }
                    client::Kind::Conflict | client::Kind::Unknown => last = Some(error),
                    _ => return Err(failed(&doing, Some(object.created_by()), &error)),
                },
            }
        }
        Err(last.map_or_else(|| Error::other(&*doing), |error| failed(&doing, None, &error)))
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

impl NsxBackend {
    async fn perform_creation(
        &self,
        request: &Request<'_>,
        parts: &LoadBalancerSpec,
        step: &Step<'_>,
        record: Record<'_>,
    ) -> Result<(), Error> {
        let Request { layout, owner, .. } = *request;
        let LoadBalancerSpec { address_pool, members, size, tier1, .. } = parts;
        let (kind, parent, port, body, doing) = match step {
            Step::CreateMonitor { port, probe } => {
                let body = layout.monitor(&owner, port.port, *probe);
                let doing = format!("create the monitor of port {}", port.port);
                (ObjectKind::Monitor, MONITORS, Some(port.port), body, doing)
            }
            Step::CreatePool { port, monitor, is_snat_disabled } => {
                let port = port.port;
                let monitor = *monitor;
                let is_snat_disabled = *is_snat_disabled;
                let body = layout.pool(&owner, &PoolFacts { port, address_pool, members, monitor, is_snat_disabled });
                (ObjectKind::Pool, POOLS, Some(port), body, format!("create the pool of port {port}"))
            }
            Step::CreateServer { port, .. } => {
                let Some(facts) = server_facts(parts, step) else { return Ok(()) };
                let doing = format!("create the virtual server of port {}", port.port);
                (ObjectKind::VirtualServer, SERVERS, Some(port.port), layout.virtual_server(&owner, &facts), doing)
            }
            Step::CreateGroup { ranges } => {
                let doing = "create the group of source ranges".to_owned();
                (ObjectKind::Group, GROUPS, None, layout.group(&owner, ranges), doing)
            }
            Step::CreatePersistenceProfile { timeout } => {
                let body = layout.persistence_profile(&owner, *timeout);
                let doing = "create the persistence profile".to_owned();
                (ObjectKind::PersistenceProfile, PERSISTENCE_PROFILES, None, body, doing)
            }
            Step::CreateLbService => {
                let body = layout.lb_service(size, tier1.as_deref());
                (ObjectKind::LbService, LB_SERVICES, None, body, "create the load balancer service".to_owned())
            }
            Step::Allocate { allocation_request: AllocationRequest::Any } => {
                return self.allocate(request, address_pool, None, record).await;
            }
            Step::Allocate {
                allocation_request: AllocationRequest::Rather(address) | AllocationRequest::Only(address),
            }
            | Step::Reserve { address, .. } => {
                return self.allocate(request, address_pool, Some(*address), record).await;
            }
            _ => return Ok(()),
        };
        let id = |attempt| match (step, kind) {
            (_, ObjectKind::LbService) => layout.lb_service_id(tier1.as_deref(), attempt),
            (Step::CreateMonitor { port, probe }, _) => {
                layout.monitor_id(probe.monitor_type(), owner.uid, port.port, attempt)
            }
            _ => layout.id(kind, owner.uid, port, attempt),
        };
        self.create(request, NewObject { kind, parent, id: &id, body, operation: doing, first: 0 }, record)
            .await
            .map(drop)
    }
}

fn server_facts<'a>(parts: &'a LoadBalancerSpec, step: &'a Step<'_>) -> Option<ServerFacts<'a>> {
    let Step::CreateServer { port, address, pool, lb_service, group, persistence } = step else { return None };
    Some(ServerFacts {
        port: port.port,
        node_port: port.node_port,
        address: *address,
        class: &parts.class,
        address_pool: &parts.address_pool,
        profile: &port.profile,
        pool,
        lb_service,
        group: *group,
        persistence: *persistence,
    })
}
