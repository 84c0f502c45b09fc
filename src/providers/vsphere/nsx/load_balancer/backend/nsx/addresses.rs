//! Reserves addresses in IP pools, reads the address of an allocation, and checks which addresses an IP pool has.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::capacity::{family_of, may_have_address, subnets_of};
use super::{NewObject, NsxBackend, PAGE, Record, Request, body, id_of, is_of_another, no_address};
use crate::clients::nsx::Object;
use crate::clients::nsx::realization::Reservation;
use crate::cloud::Error;
use crate::providers::vsphere::config::address_rules::IpFamily;
use crate::providers::vsphere::nsx::load_balancer::address_unavailable;
use crate::providers::vsphere::nsx::load_balancer::backend::{Backend as _, ObjectChange};
use crate::providers::vsphere::nsx::load_balancer::layout::{ADDRESS_POOLS, IDS, ObjectKind};
use crate::providers::vsphere::nsx::load_balancer::resource::{OwnerTags, Resource};
use crate::providers::vsphere::reason;

/// Maximum wait for the address of an allocation.
const ADDRESS_LIMIT: Duration = Duration::from_secs(10);
/// Pause after the first read of the address of an allocation; later pauses are [`ADDRESS_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const ADDRESS_PAUSE: Duration = Duration::from_secs(1);
/// Number of reads without an address after which the allocation itself is read.
const MAX_EMPTY_READS: u32 = 2;

impl NsxBackend {
    /// Reserves the address `requested` of the IP pool, or any address for `None`. Skips ids of allocations marked for
    /// deletion.
    pub(super) async fn allocate(
        &self,
        request: &Request<'_>,
        requested: Option<IpAddr>,
        record: Record<'_>,
    ) -> Result<(), Error> {
        let Request { layout, owner, .. } = *request;
        let Some(spec) = request.spec else { return Err(Error::other("a deletion creates nothing")) };
        let pool = &spec.address_pool;
        let resource = &Resource { address: requested, ..Resource::new(ObjectKind::Allocation, None) };
        let (parent, doing) = (&allocations_of(pool), format!("reserve an address of the pool {pool}"));
        let body = body::new_object(layout, &owner, spec, resource);
        let mut first = 0;
        loop {
            let new = NewObject { resource, parent, body: body.clone(), operation: doing.clone(), first };
            let Some(object) = self.create(request, new, record).await? else { return Ok(()) };
            let Some(allocation) = Resource::read(resource.kind, &object, layout) else { return Ok(()) };
            // Requested addresses are read as well, because NSX may refuse them.
            if self.read_address(request, &allocation, true, record).await? {
                return Ok(());
            }
            // After the last id, `create` returns the error that all ids are in use.
            first = (first..IDS)
                .find(|attempt| id_of(request, resource, *attempt) == object.id())
                .map_or(IDS, |attempt| attempt + 1);
        }
    }

    /// Waits at most 10 s for the address of an allocation. Releases a failed allocation that is new or whose IP pool
    /// is exhausted. Returns false if the allocation does not exist or is being deleted.
    pub(super) async fn read_address(
        &self,
        request: &Request<'_>,
        allocation: &Resource,
        is_new: bool,
        record: Record<'_>,
    ) -> Result<bool, Error> {
        let path = &*allocation.tags.path;
        let doing = format!("reserve an address of the pool {}", allocation.address_pool);
        let until = Instant::now() + ADDRESS_LIMIT;
        let (mut pause, mut reads) = (FIRST_PAUSE, 0);
        loop {
            match self.reservation(allocation).await? {
                Reservation::Reserved(address) => {
                    record(ObjectChange::Reserved { path: path.to_owned(), address });
                    return Ok(true);
                }
                Reservation::Failed { is_exhausted, alarm } => {
                    if is_exhausted || is_new {
                        self.delete(request, allocation, record).await?;
                    }
                    return Err(no_address(&doing, is_exhausted, &alarm));
                }
                Reservation::Pending => reads += 1,
            }
            if reads == MAX_EMPTY_READS
                && self.get(allocation.kind, path, &doing).await?.is_none_or(|object| object.is_marked_for_delete())
            {
                record(ObjectChange::Gone(path.to_owned()));
                return Ok(false);
            }
            if Instant::now() + pause > until {
                let message = format!("{doing}: NSX has not given one within {} s", ADDRESS_LIMIT.as_secs());
                let after = Some(ADDRESS_LIMIT);
                return Err(Error::Failed { reason: reason::NSXUnavailable, message, after });
            }
            tokio::time::sleep(pause).await;
            pause = ADDRESS_PAUSE;
        }
    }

    pub(super) async fn has_subnet_of(&self, pool: &str, family: IpFamily) -> Result<bool, Error> {
        let (mut has_it, mut has_others) = (false, false);
        self.list(&subnets_of(pool), "ip-subnets.list", PAGE, &mut |subnet| match family_of(&subnet) {
            // The family of a subnet from an IP block is unknown.
            None => has_it = true,
            Some(one) if one == family => has_it = true,
            Some(_) => has_others = true,
        })
        .await?;
        // True for an IP pool without subnets: NSX refuses the reservation with its own error.
        Ok(has_it || !has_others)
    }

    /// Checks that an address is in the ranges of an IP pool, and that no allocation of another owner has the address.
    pub(super) async fn check_is_free(
        &self,
        request: &Request<'_>,
        pool: &str,
        requested: IpAddr,
    ) -> Result<(), Error> {
        let doing = format!("reserve the address {requested} of the pool {pool}");
        let unavailable = |object: &str| address_unavailable(format!("{doing}: {object}"));
        let (mut is_inside, mut is_taken) = (false, false);
        self.list(&subnets_of(pool), "ip-subnets.list", PAGE, &mut |subnet| {
            is_inside |= may_have_address(&subnet, requested);
        })
        .await?;
        if !is_inside {
            return Err(unavailable("it is outside of the ranges of the pool"));
        }
        let allocations = allocations_of(pool);
        let wanted = requested.to_string();
        self.list(&allocations, "ip-allocations.list", PAGE, &mut |one| {
            let has_it = one.text("allocation_ip") == wanted || one.text("allocated_ip") == wanted;
            is_taken |= has_it && !is_own_allocation(request, &one);
        })
        .await?;
        if is_taken { Err(unavailable("it is in use")) } else { Ok(()) }
    }
}

/// Returns the path of the allocations of an IP pool.
pub(super) fn allocations_of(pool: &str) -> String {
    format!("{ADDRESS_POOLS}/{pool}/ip-allocations")
}

/// Whether the allocation belongs to the Service: the response to an earlier create may have been lost.
fn is_own_allocation(Request { layout, owner, .. }: &Request<'_>, object: &Object) -> bool {
    let is_named = OwnerTags::read(object, layout).is_some_and(|tags| *tags.service == *owner.service);
    is_named
        && !is_of_another(layout, object)
        && layout.has_id(layout.secondary, ObjectKind::Allocation, owner.uid, None, object.id())
}
